//! PMIx: the exchange between a process and the launchers of Open MPI, PRRTE and Slurm (`--mpi=pmix`), through
//! the client library that comes with the launcher.
//!
//! The library is loaded on first use and works in its own thread. This module calls eight of its
//! functions: to get the identity of this process, to publish one value, and to fetch values of other ranks.

#![expect(clippy::disallowed_methods, reason = "the library of the launcher is where its variables say")]

mod library;

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use self::library::{ByteObject, Data, Info, Library, Proc, Value};

/// A client of a PMIx server. Its calls wait for the server.
pub struct Client {
    library: Library,
    this: Proc,
}

/// A number that the server holds about the job or about this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The number of ranks.
    JobSize,
    /// The number of ranks on this host.
    LocalSize,
    /// The number of hosts.
    Hosts,
    /// The number of this process's host.
    Host,
}

/// The error of a client's operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PmixError {
    /// The library cannot be used.
    #[error("the PMIx library cannot be loaded ({0})")]
    Library(String),
    /// The server did not answer in time.
    #[error("no answer to {0} in time")]
    NoAnswer(&'static str),
    /// There is no such value.
    #[error("{0} finds nothing")]
    NotFound(&'static str),
    /// The value is of a type that was not expected.
    #[error("{call} gives a value of type {kind}")]
    Type {
        /// The function.
        call: &'static str,
        /// The number of the type.
        kind: u16,
    },
    /// A function failed.
    #[error("{call} fails: {text} ({status})")]
    Failed {
        /// The function.
        call: &'static str,
        /// The library's message.
        text: String,
        /// The status number.
        status: i32,
    },
}

impl Client {
    /// Loads the library and connects to the server that the environment names.
    ///
    /// `libpmix.so.2` is searched first below `PMIX_PREFIX`, which a launcher sets to its installation folder, then in
    /// the dynamic linker's path. A process connects to its launcher only once.
    ///
    /// # Errors
    /// [`PmixError::Library`], [`PmixError::Failed`].
    pub fn connect() -> Result<Client, PmixError> {
        let prefix = std::env::var_os("PMIX_PREFIX");
        let below =
            ["lib/libpmix.so.2", "lib64/libpmix.so.2", "lib/openmpi/libpmix.so.2"].into_iter().filter_map(
                |file| CString::new(Path::new(prefix.as_ref()?).join(file).as_os_str().as_bytes()).ok(),
            );
        let library = Library::load(below.chain([c"libpmix.so.2".to_owned()])).map_err(PmixError::Library)?;
        let mut this = Proc { namespace: [0; library::NAMESPACE_BYTES], rank: 0 };
        // SAFETY: `this` is a pmix_proc_t, which the call fills. No attributes are passed.
        let status = unsafe { (library.init)(&mut this, std::ptr::null(), 0) };
        let client = Client { library, this };
        client.check("PMIx_Init", status)?;
        Ok(client)
    }

    /// Returns this process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.this.rank
    }

    /// Returns a fact that the server sent when this process connected.
    ///
    /// # Errors
    /// [`PmixError::NotFound`] if the server did not send it.
    pub fn fact(&self, fact: Fact) -> Result<u32, PmixError> {
        let (key, rank) = match fact {
            Fact::JobSize => (c"pmix.job.size", library::RANK_WILDCARD),
            Fact::LocalSize => (c"pmix.local.size", library::RANK_WILDCARD),
            Fact::Hosts => (c"pmix.num.nodes", library::RANK_WILDCARD),
            Fact::Host => (c"pmix.nodeid", self.this.rank),
        };
        let not_from_afar = info(c"pmix.optional", library::TYPE_BOOL, Data { flag: true });
        let value = self.look_up(rank, key, not_from_afar)?;
        match value.kind() {
            // SAFETY: by its type the union holds this member.
            library::TYPE_UINT32 => Ok(unsafe { value.get().data.uint32 }),
            kind => Err(PmixError::Type { call: "PMIx_Get", kind }),
        }
    }

    /// Publishes a value under a key, and waits until every rank has called `publish`. From then on, other ranks can
    /// fetch the value.
    ///
    /// # Errors
    /// [`PmixError::NoAnswer`] if not all ranks have called `publish` within `patience`, [`PmixError::Failed`].
    pub fn publish(&self, key: &CStr, value: &[u8], patience: Duration) -> Result<(), PmixError> {
        let bytes = ByteObject { bytes: value.as_ptr().cast_mut().cast(), size: value.len() };
        let mut object = Value { kind: library::TYPE_BYTE_OBJECT, data: Data { bytes } };
        // SAFETY: the key is a C string and the value a pmix_value_t; both are copied, not changed, and not kept.
        let status = unsafe { (self.library.put)(library::GLOBAL, key.as_ptr(), &mut object) };
        self.check("PMIx_Put", status)?;
        // SAFETY: the only precondition is that PMIx_Init has succeeded, which it has.
        let status = unsafe { (self.library.commit)() };
        self.check("PMIx_Commit", status)?;
        let within = within(patience);
        // SAFETY: a null list of processes means all processes of the job. The one attribute outlives the call.
        let status = unsafe { (self.library.fence)(std::ptr::null(), 0, &within, 1) };
        self.check("PMIx_Fence", status)
    }

    /// Returns the value that `rank` has published under `key`.
    ///
    /// # Errors
    /// [`PmixError::NotFound`], [`PmixError::NoAnswer`], [`PmixError::Failed`].
    pub fn fetch(&self, rank: u32, key: &CStr, patience: Duration) -> Result<Vec<u8>, PmixError> {
        let value = self.look_up(rank, key, within(patience))?;
        match value.kind() {
            library::TYPE_BYTE_OBJECT => {
                // SAFETY: by its type the union holds this member.
                let ByteObject { bytes, size } = unsafe { value.get().data.bytes };
                if bytes.is_null() || size == 0 {
                    return Ok(Vec::new());
                }
                // SAFETY: `bytes` points to as many bytes as the library says, until `value` is dropped.
                Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec())
            }
            kind => Err(PmixError::Type { call: "PMIx_Get", kind }),
        }
    }

    /// Informs the server that this process ends in good order. Without this call, a launcher treats the end of the
    /// process as a failure.
    pub fn leave(self) {
        // The result is not needed, because the launcher reports a failure of this call.
        // SAFETY: PMIx_Init has succeeded. No function is called after this one, since `self` is consumed.
        let _ = unsafe { (self.library.finalize)(std::ptr::null(), 0) };
    }

    fn look_up(&self, rank: u32, key: &CStr, how: Info) -> Result<Given, PmixError> {
        let proc = Proc { rank, ..self.this };
        let mut value = std::ptr::null_mut();
        // SAFETY: a pmix_proc_t, a C string and one attribute, which all outlive the call; `value` is for the result.
        let status = unsafe { (self.library.get)(&proc, key.as_ptr(), &how, 1, &mut value) };
        self.check("PMIx_Get", status)?;
        match value.is_null() {
            true => Err(PmixError::NotFound("PMIx_Get")),
            false => Ok(Given(value)),
        }
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), PmixError> {
        match status {
            library::SUCCESS => Ok(()),
            library::ERR_TIMEOUT => Err(PmixError::NoAnswer(call)),
            library::ERR_NOT_FOUND => Err(PmixError::NotFound(call)),
            status => Err(PmixError::Failed { call, text: self.library.describe(status), status }),
        }
    }
}

/// A value that the library has allocated with malloc, and that this type owns. The pointer is never null.
struct Given(*mut Value);

impl Given {
    fn get(&self) -> &Value {
        // SAFETY: the library made it a pmix_value_t, and this value is its only owner.
        unsafe { &*self.0 }
    }

    fn kind(&self) -> u16 {
        self.get().kind
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if self.kind() == library::TYPE_BYTE_OBJECT {
            // SAFETY: PMIX_VALUE_RELEASE does the same for this type. The bytes are a separate allocation, or null.
            unsafe { libc::free(self.get().data.bytes.bytes.cast()) };
        }
        // Values of some other types have content in allocations of their own, which would leak. This module requests
        // no such values. SAFETY: the value was allocated by the library for the caller to free, and is not used any
        // more.
        unsafe { libc::free(self.0.cast()) };
    }
}

/// Returns `patience` as an attribute that limits how long the server waits, in whole seconds, at least one.
fn within(patience: Duration) -> Info {
    let seconds = c_int::try_from(patience.as_secs().max(1)).unwrap_or(c_int::MAX);
    info(c"pmix.timeout", library::TYPE_INT, Data { integer: seconds })
}

fn info(name: &CStr, kind: u16, data: Data) -> Info {
    let mut key = [0; library::KEY_BYTES];
    for (to, from) in key.iter_mut().zip(name.to_bytes()) {
        *to = *from as c_char;
    }
    Info { key, flags: 0, value: Value { kind, data } }
}
