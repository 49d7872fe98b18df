//! The endpoint and the objects that it needs.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

use samite_fabric_sys as sys;

use super::info::Info;
use super::object::{Object, check, error};
use crate::PortError;

/// The objects that an endpoint needs, in the order of closing.
#[derive(Debug)]
pub(super) struct Domain {
    av: Object<sys::fid_av>,
    cq: Object<sys::fid_cq>,
    /// The descriptor of the completion queue, which owns it.
    wait_fd: Option<RawFd>,
    domain: Object<sys::fid_domain>,
    fabric: Object<sys::fid_fabric>,
    info: Info,
}

/// Largest number of completions that one call reads.
const BATCH: usize = 16;

/// The maximum length of a text address, with its NUL. Libfabric's shm has the longest addresses (SMR_NAME_MAX,
/// include/ofi_shm.h).
const TEXT_MAX: usize = 256;

/// The result of one read of the completion queue.
pub(super) enum Completions<'a> {
    /// The queue had no completion.
    None,
    /// The completions of successful operations.
    Some(&'a [sys::fi_cq_data_entry]),
    /// A failed operation.
    Failed(Box<sys::fi_cq_err_entry>),
}

/// Room for the completions that one call reads. It is uninitialized, so that a poll that finds no completion does not
/// spend time on its initialization.
pub(super) struct Batch([MaybeUninit<sys::fi_cq_data_entry>; BATCH]);

impl Batch {
    #[inline]
    pub(super) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; BATCH])
    }
}

impl Domain {
    /// Opens a domain on `info` with a completion queue of `completions` entries. With `wakes` the queue has a
    /// descriptor that wakes a sleeper, if the provider supports it.
    pub(super) fn open(info: Info, completions: usize, wakes: bool) -> Result<Self, PortError> {
        let attributes = info.attributes();
        let (mut cq_attr, mut av_attr) = (
            sys::fi_cq_attr { size: completions, format: sys::FI_CQ_FORMAT_DATA, ..Default::default() },
            sys::fi_av_attr { type_: sys::FI_AV_TABLE, ..Default::default() },
        );
        // SAFETY: each call stores a newly opened object, which the struct below closes before the objects that it
        // depends on. The attributes live during the calls; `info` lives as long as the domain.
        unsafe {
            let fabric = Object::open("fi_fabric", |fabric| {
                sys::fi_fabric(std::ptr::from_ref(attributes.fabric).cast_mut(), fabric, null_mut())
            })?;
            let domain = Object::open("fi_domain", |domain| {
                sys::fi_domain(fabric.as_ptr(), info.as_ptr(), domain, null_mut())
            })?;
            let mut open_cq = |wait_obj| {
                cq_attr.wait_obj = wait_obj;
                Object::open("fi_cq_open", |cq| {
                    sys::fi_cq_open(domain.as_ptr(), &mut cq_attr, cq, null_mut())
                })
            };
            let waiting = if wakes { open_cq(sys::FI_WAIT_FD).ok() } else { None };
            let (wait_fd, cq) = match waiting {
                Some(cq) => (wait_fd(&cq), cq),
                None => (None, open_cq(sys::FI_WAIT_NONE)?),
            };
            let av = Object::open("fi_av_open", |av| {
                sys::fi_av_open(domain.as_ptr(), &mut av_attr, av, null_mut())
            })?;
            Ok(Self { av, cq, wait_fd, domain, fabric, info })
        }
    }

    /// Opens the domain's endpoint, ready for transfers.
    ///
    /// # Safety
    /// The endpoint is closed before the domain.
    pub(super) unsafe fn endpoint(&self) -> Result<Object<sys::fid_ep>, PortError> {
        // SAFETY: all objects are live, and the endpoint does not outlive them, as the caller guarantees.
        unsafe {
            let ep = Object::open("fi_endpoint", |ep| {
                sys::fi_endpoint(self.domain.as_ptr(), self.info.as_ptr(), ep, null_mut())
            })?;
            check(
                "fi_ep_bind",
                sys::fi_ep_bind(ep.as_ptr(), self.cq.fid(), sys::FI_TRANSMIT | sys::FI_RECV),
            )?;
            check("fi_ep_bind", sys::fi_ep_bind(ep.as_ptr(), self.av.fid(), 0))?;
            check("fi_enable", sys::fi_enable(ep.as_ptr()))?;
            Ok(ep)
        }
    }

    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fid_domain {
        self.domain.as_ptr()
    }

    #[cfg(any(test, feature = "strict"))]
    pub(super) fn completions(&self) -> *mut sys::fid_cq {
        self.cq.as_ptr()
    }

    /// Returns a descriptor that is readable when there may be completions, once [`Domain::may_sleep`] has returned
    /// true.
    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the queue keeps the descriptor open until it is closed, which is after the last use of `self`.
        self.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Returns true if the caller may sleep on the descriptor, because no completion has arrived that the descriptor
    /// does not report. Call it before each sleep.
    pub(super) fn may_sleep(&self) -> bool {
        let mut fids = [self.cq.fid()];
        // SAFETY: fabric and queue are live, and the queue was opened with a descriptor (without one, the call
        // fails).
        unsafe { sys::fi_trywait(self.fabric.as_ptr(), fids.as_mut_ptr(), 1) == 0 }
    }

    /// Reads up to a batch of completions, and drives progress.
    #[inline]
    pub(super) fn read<'a>(&self, batch: &'a mut Batch) -> Result<Completions<'a>, PortError> {
        let entries = batch.0.as_mut_ptr().cast::<sys::fi_cq_data_entry>();
        // SAFETY: the queue is live, its format is that of the entries, and the batch has room for `BATCH` entries.
        let read = unsafe { sys::fi_cq_read(self.cq.as_ptr(), entries.cast::<c_void>(), BATCH) };
        match usize::try_from(read) {
            Ok(read) => {
                // SAFETY: the provider has written the first `read` entries, and there are `BATCH` entries.
                let entries = unsafe { std::slice::from_raw_parts(entries, read.min(BATCH)) };
                Ok(Completions::Some(entries))
            }
            Err(_) if read == -(sys::FI_EAGAIN as isize) => Ok(Completions::None),
            Err(_) if read == -(sys::FI_EAVAIL as isize) => self.read_failed(),
            Err(_) => Err(error("fi_cq_read", -read as i32)),
        }
    }

    #[cold]
    fn read_failed<'a>(&self) -> Result<Completions<'a>, PortError> {
        // `err_data_size` is 0, which tells the provider that there is no room for its additional error data.
        let mut entry = sys::fi_cq_err_entry::default();
        // SAFETY: the queue is live, and the entry has the layout of the requested version.
        match unsafe { sys::fi_cq_readerr(self.cq.as_ptr(), &mut entry, 0) } {
            read if read > 0 => Ok(Completions::Failed(Box::new(entry))),
            read if read == -(sys::FI_EAGAIN as isize) => Ok(Completions::None),
            read => Err(error("fi_cq_readerr", -read as i32)),
        }
    }

    /// Returns true if `name` holds a complete address. An address that is text ends with its only NUL. Any other
    /// address has exactly `len` bytes.
    pub(super) fn is_name(&self, name: &[u8], len: usize) -> bool {
        match self.info.attributes().info.addr_format {
            sys::FI_ADDR_STR => {
                name.len() <= TEXT_MAX
                    && name.iter().position(|&byte| byte == 0) == Some(name.len().wrapping_sub(1))
            }
            _ => name.len() == len,
        }
    }

    /// Inserts a peer's address, of this provider's format and length.
    pub(super) fn insert(&self, name: &[u8]) -> Result<sys::fi_addr_t, PortError> {
        let mut address = sys::FI_ADDR_NOTAVAIL;
        // SAFETY: the vector is live; `name` is a complete address (the caller asked `is_name`).
        let inserted = unsafe {
            sys::fi_av_insert(self.av.as_ptr(), name.as_ptr().cast(), 1, &mut address, 0, null_mut())
        };
        match inserted {
            1 if address != sys::FI_ADDR_NOTAVAIL => Ok(address),
            0 | 1 => Err(PortError::BadAddress { why: "the provider refuses it".into() }),
            status => Err(error("fi_av_insert", -status)),
        }
    }

    /// Removes a peer's address. This also closes the peer's connection, if `FI_AV_REMOVE_CLEANUP` is set.
    pub(super) fn remove(&self, mut address: sys::fi_addr_t) -> Result<(), PortError> {
        // SAFETY: the vector is live, and the address was inserted and not removed since.
        check("fi_av_remove", unsafe { sys::fi_av_remove(self.av.as_ptr(), &mut address, 1, 0) })
    }
}

/// Returns the descriptor of a queue that was opened with one.
fn wait_fd(cq: &Object<sys::fid_cq>) -> Option<RawFd> {
    let mut fd: RawFd = -1;
    // SAFETY: the queue is live, and for FI_WAIT_FD the argument is a pointer to a descriptor (fi_cq(3)).
    let status =
        unsafe { sys::fi_control(cq.fid(), sys::FI_GETWAIT as i32, std::ptr::from_mut(&mut fd).cast()) };
    (status == 0 && fd >= 0).then_some(fd)
}

/// Returns the name by which peers insert this endpoint.
pub(super) fn name(ep: &Object<sys::fid_ep>) -> Result<Vec<u8>, PortError> {
    let mut name = vec![0; 64];
    loop {
        let mut len = name.len();
        // SAFETY: the endpoint is enabled, and `len` bytes may be written.
        let status = unsafe { sys::fi_getname(ep.fid(), name.as_mut_ptr().cast(), &mut len) };
        let room = name.len();
        name.resize(len, 0);
        if status == -sys::FI_ETOOSMALL && len > room {
            continue;
        }
        check("fi_getname", status)?;
        return Ok(name);
    }
}
