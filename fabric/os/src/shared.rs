//! Memory shared between processes: an anonymous file, which is freed when no process uses it any more, and typed views
//! of the file's mappings.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::PermissionsExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, FileType, MemfdFlags, OFlags, fallocate, memfd_create};
use rustix::io::retry_on_intr;
use rustix::process::{Resource, getrlimit};

use super::descriptor::{self, Kind};
use super::process::Process;
use crate::OsError;

/// A file in memory (memfd_create(2)) whose size never changes. It has no name in any file system. So the kernel frees
/// the file when no process has it open or mapped any more, even if the last process was killed.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    len: usize,
}

impl SharedFile {
    /// Returns a new file of `len` bytes. All of it is a hole, which reads as zero. `name` appears only in /proc.
    pub fn create(name: &CStr, len: usize) -> Result<Self, OsError> {
        // Beyond the limit on file sizes (`ulimit -f`), the kernel would not only refuse, but also send SIGXFSZ.
        if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|&limit| limit < len as u64) {
            return Err(OsError::Exhausted {
                what: "shared memory",
                hint: format!(
                    "a file in memory of {len} bytes is above the limit of {limit}: raise it (`ulimit -f unlimited`)"
                ),
            });
        }
        // SAFETY: `name` is a C string; the flags belong to memfd_create(2).
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(OsError::last("memfd_create", "raise the limit of open files (ulimit -n)"));
        }
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        if let Err(error) = file.set_len(len as u64) {
            return Err(OsError::of("ftruncate", &error, "raise the memory limit of the job or container"));
        }
        // SAFETY: fcntl(2) with F_ADD_SEALS takes an integer.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(OsError::last("fcntl(F_ADD_SEALS)", "samite-shm needs Linux 3.17 or later"));
        }
        Ok(Self { file, len })
    }

    /// Removes the write permission: from now on other processes can open the file only for reading. (Root can still
    /// open it for writing, and a process of this user could restore the permission. The seal F_SEAL_FUTURE_WRITE
    /// serves the same purpose, but with that seal the owner could never return memory to the system: see
    /// shmem_fallocate in Linux, mm/shmem.c.)
    pub fn make_read_only(&self) -> Result<(), OsError> {
        self.file.set_permissions(Permissions::from_mode(0o400)).map_err(|_| {
            OsError::last("fchmod", "a file in memory keeps its permissions: is there a security module?")
        })
    }

    /// Opens the file that another process (or this one) has open as descriptor `fd`, for reading and writing; see
    /// [`descriptor::open`].
    pub fn open(owner: Process, fd: u32) -> Result<Self, OsError> {
        Self::open_by(OFlags::RDWR, owner, fd)
    }

    /// Opens a file as [`SharedFile::open`] does, for reading only.
    pub fn open_to_read(owner: Process, fd: u32) -> Result<Self, OsError> {
        Self::open_by(OFlags::RDONLY, owner, fd)
    }

    fn open_by(flags: OFlags, owner: Process, fd: u32) -> Result<Self, OsError> {
        let path = descriptor::path(owner, fd);
        let unreachable = |why: String| OsError::Unreachable { why };
        let home = home().map_err(|error| {
            descriptor::refused(&error, format!("this process has no file in memory: {error}"))
        })?;
        let is_meant = |kind: &Kind| kind.file_type == FileType::RegularFile && kind.device == home;
        let file = descriptor::open(owner, fd, flags, is_meant)
            .map_err(|error| descriptor::lost(owner, fd, &error))?;
        // SAFETY: fcntl(2) with F_GET_SEALS takes no third argument.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(unreachable(format!("{path} is no file in memory of a fixed size")));
        }
        let len = file.metadata().map_err(|error| unreachable(format!("{path}: {error}")))?.len();
        Ok(Self { file, len: usize::try_from(len).unwrap_or(0) })
    }

    /// Returns the size in bytes. It may be 0 if another process created the file.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Returns the descriptor's number in this process.
    pub fn fd(&self) -> u32 {
        self.file.as_raw_fd() as u32
    }

    /// Fills the holes in `range` with memory, so that touching them cannot fail later. If that fails, a part of the
    /// range may have memory.
    pub fn allocate(&self, range: Range<usize>) -> Result<(), OsError> {
        self.fallocate(FallocateFlags::empty(), &range).map_err(|error| OsError::Exhausted {
            what: "shared memory",
            hint: format!(
                "{} more bytes were refused ({}): raise the memory limit of the job or container, or use smaller rings",
                range.len(),
                io::Error::from(error)
            ),
        })
    }

    /// Makes `range` a hole again: its memory goes back to the system, and the range reads as zero.
    pub fn release(&self, range: Range<usize>) -> Result<(), OsError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(flags, &range).map_err(|error| {
            let hint = "the memory stays in use until the port is closed";
            OsError::of("fallocate(PUNCH_HOLE)", &error.into(), hint)
        })
    }

    /// Calls fallocate(2) for parts of a range. The effect on mapped pages is that of writes of another process. In
    /// many versions of Linux a signal interrupts the call, which then undoes what it has done (shmem_fallocate in
    /// mm/shmem.c). So each part takes less time than passes between two signals of a profiler, and is repeated.
    fn fallocate(&self, flags: FallocateFlags, range: &Range<usize>) -> rustix::io::Result<()> {
        const PART: usize = 1 << 20;
        range.clone().step_by(PART).try_for_each(|start| {
            let len = (range.end - start).min(PART);
            retry_on_intr(|| fallocate(&self.file, flags, start as u64, len as u64))
        })
    }

    /// Maps `range`, which begins at a multiple of [`PAGE`], for reading and writing.
    pub fn map(&self, range: Range<usize>) -> Result<Arc<Mapping>, OsError> {
        self.map_as(libc::PROT_READ | libc::PROT_WRITE, range)
    }

    /// Maps a range as [`SharedFile::map`] does, for reading only: a store to it is a fault.
    pub fn map_to_read(&self, range: Range<usize>) -> Result<Arc<Mapping>, OsError> {
        self.map_as(libc::PROT_READ, range)
    }

    /// Maps a range as [`SharedFile::map`] does, but without access. Access needs [`Mapping::open`].
    pub fn map_shut(&self, range: Range<usize>) -> Result<Arc<Mapping>, OsError> {
        self.map_as(libc::PROT_NONE, range)
    }

    fn map_as(&self, access: libc::c_int, range: Range<usize>) -> Result<Arc<Mapping>, OsError> {
        assert!(range.start.is_multiple_of(PAGE) && range.start < range.end && range.end <= self.len);
        // SAFETY: a new mapping at an address of the kernel's choice, inside of the file, changes no memory
        // in use.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                range.len(),
                access,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                range.start as libc::off_t,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(OsError::last("mmap", "raise the limit of address space (ulimit -v)"));
        }
        let origin =
            NonNull::new(address.cast()).ok_or_else(|| OsError::last("mmap", "the kernel mapped page 0"))?;
        Ok(Arc::new(Mapping { origin, len: range.len() }))
    }
}

/// A part of a [`SharedFile`], mapped in this process. Other processes may write to it at any time.
#[derive(Debug)]
pub struct Mapping {
    origin: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; its bytes are reached through `Shareable` types
// only.
unsafe impl Send for Mapping {}
// SAFETY: as above; there is no interior state.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns a view of `count` values of `T`, from byte `offset` on. The view keeps the mapping alive.
    pub fn view<T: Shareable>(self: &Arc<Self>, offset: usize, count: usize) -> View<T> {
        let bytes = count.checked_mul(size_of::<T>()).and_then(|len| len.checked_add(offset));
        assert!(bytes.is_some_and(|end| end <= self.len), "a view lies in its mapping");
        assert!(offset.is_multiple_of(align_of::<T>()) && align_of::<T>() <= PAGE);
        // SAFETY: `offset` is at most the length of the mapping, by the first assertion.
        let first = unsafe { self.origin.add(offset) }.cast();
        View { mapping: Arc::clone(self), first, count, _values: PhantomData }
    }

    /// Returns a pointer to the first byte. A caller that accesses memory through the pointer must ensure that the
    /// mapping lives, and that the accessed bytes are mapped for this access.
    pub fn origin(&self) -> NonNull<u8> {
        self.origin
    }

    /// Returns the number of bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Makes a part that was [mapped shut](SharedFile::map_shut) readable and writable. The part begins at a multiple
    /// of [`PAGE`], and so does the rest after it.
    pub fn open(&self, part: Range<usize>) -> Result<(), OsError> {
        assert!(part.start.is_multiple_of(PAGE) && part.start <= part.end && part.end <= self.len);
        // SAFETY: the part lies in this mapping, by the assertion. More access rights invalidate no reference.
        let result = unsafe {
            libc::mprotect(
                self.origin.as_ptr().add(part.start).cast(),
                part.len(),
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if result == 0 { Ok(()) } else { Err(OsError::last("mprotect", "raise the limits of memory")) }
    }

    /// Leaves the whole mapping out of core dumps. To dump it, the kernel would fill its holes with memory.
    pub fn leave_out_of_dumps(&self) {
        self.advise(0..self.len, libc::MADV_DONTDUMP);
    }

    /// Asks for huge pages. This has an effect if the administrator lets programs decide
    /// (/sys/kernel/mm/transparent_hugepage/shmem_enabled).
    pub fn prefer_huge_pages(&self) {
        self.advise(0..self.len, libc::MADV_HUGEPAGE);
    }

    /// Returns a part of the memory to the system; afterwards the file has a hole there, which reads as zero. Returns
    /// false, without any change, if the part does not consist of whole pages of `page` bytes, or if the system
    /// refuses. (The call uses the mapping, not the descriptor, which other code may close.)
    ///
    /// # Safety
    /// No other code in this process uses the bytes of the part, and their content may be replaced by zeros.
    pub unsafe fn empty(&self, part: Range<usize>, page: usize) -> bool {
        // If the part ended within a page, the kernel would empty the whole page.
        let is_whole = part.start.is_multiple_of(page) && part.end.is_multiple_of(page);
        is_whole && self.advise(part, libc::MADV_REMOVE)
    }

    /// Gives advice by madvise(2). Returns true if the system followed it. Advice that changes the content is given
    /// only by callers that are allowed to change the content.
    fn advise(&self, part: Range<usize>, advice: libc::c_int) -> bool {
        assert!(part.start <= part.end && part.end <= self.len);
        // SAFETY: the part lies in this mapping, by the assertion. Of the three kinds of advice used here only one
        // changes the content, and its caller may do so.
        unsafe { libc::madvise(self.origin.as_ptr().add(part.start).cast(), part.len(), advice) == 0 }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map_as` made this mapping. Views hold the `Arc` of the mapping, so no view is left.
        unsafe { libc::munmap(self.origin.as_ptr().cast(), self.len) };
    }
}

/// A slice of a [`Mapping`].
#[derive(Debug)]
pub struct View<T: Shareable> {
    mapping: Arc<Mapping>,
    first: NonNull<T>,
    count: usize,
    _values: PhantomData<T>,
}

impl<T: Shareable> View<T> {
    /// Returns a view of the values in `range`.
    pub fn part(&self, range: Range<usize>) -> Self {
        let first = NonNull::from(&self[range.clone()]).cast();
        Self { mapping: Arc::clone(&self.mapping), first, count: range.len(), _values: PhantomData }
    }
}

impl<T: Shareable> Deref for View<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `view` checked bounds and alignment, and the mapping is alive. Any bytes are a `T`. A `T` consists
        // only of atomics, so writes by other processes at any time are no data race in this process.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

// SAFETY: a view is a shared slice of `T`, which is `Sync`, and the owner of a mapping, which is `Send` and
// `Sync`.
unsafe impl<T: Shareable> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for View<T> {}

/// Types that may lie in memory which other processes write.
///
/// # Safety
/// All fields are atomic integers without padding between them, and the layout is fixed (`repr(C)`).
pub unsafe trait Shareable: Sync {}

// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU64 {}

/// Returns the device number of the file system that contains files of memfd_create(2). Files of huge pages are in
/// another file system; they are excluded, because the lengths of their mappings follow other rules.
fn home() -> io::Result<(u32, u32)> {
    static HOME: OnceLock<(u32, u32)> = OnceLock::new();
    if let Some(home) = HOME.get() {
        return Ok(*home);
    }
    let file = memfd_create(c"samite", MemfdFlags::CLOEXEC)?;
    let home = Kind::of(&file)?.device;
    Ok(*HOME.get_or_init(|| home))
}

/// Mappings begin at multiples of this number of bytes, which is a multiple of the page size of every known machine.
pub const PAGE: usize = 65536;

/// The seals that fix the size of a file. If a process could shrink the file, an access of another process to its
/// mapping could raise SIGBUS.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mknodat, openat};
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let file = SharedFile::create(c"test", 2 * PAGE).unwrap();
        let peer = SharedFile::open(Process::current().unwrap(), file.fd()).unwrap();
        assert_eq!(peer.size(), 2 * PAGE);
        file.allocate(PAGE..2 * PAGE).unwrap();
        let ours = file.map(0..2 * PAGE).unwrap().view::<AtomicU64>(PAGE, 2);
        let theirs = peer.map(PAGE..2 * PAGE).unwrap().view::<AtomicU64>(8, 1);
        theirs[0].store(7, Ordering::Relaxed);
        assert_eq!((ours[0].load(Ordering::Relaxed), ours[1].load(Ordering::Relaxed)), (0, 7));
        file.release(PAGE..2 * PAGE).unwrap();
        assert_eq!(ours[1].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn signals_do_not_keep_a_file_from_its_memory() {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: the handler does nothing, and no other test uses the signal.
        unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
        // SAFETY: pthread_self(3) has no requirements.
        let own = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    // SAFETY: the thread waits for the end of this one, so it exists.
                    unsafe { libc::pthread_kill(own, libc::SIGUSR1) };
                }
            });
            let len = 64 << 20;
            let file = SharedFile::create(c"samite-test", len).unwrap();
            file.allocate(0..len).unwrap();
            file.release(0..len).unwrap();
        });
    }

    #[test]
    fn only_a_sealed_file_is_opened() {
        let this = Process::current().unwrap();
        let plain = File::open("/proc/self/stat").unwrap();
        for (owner, fd) in
            [(this, plain.as_raw_fd() as u32), (this, u32::MAX), (Process { pid: u32::MAX, start: 0 }, 0)]
        {
            let opened = SharedFile::open(owner, fd);
            assert!(matches!(opened, Err(OsError::Unreachable { .. } | OsError::Ended { .. })));
        }
    }

    /// Opens files of other kinds. No call waits, though opening a named pipe would wait for a writer.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "one that is stuck cannot be joined")]
    fn other_kinds_of_files_are_not_opened() {
        let this = Process::current().unwrap();
        let path = std::env::temp_dir().join(format!("samite-named-pipe-{}", this.pid));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let pipe = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let plain = File::open(std::env::current_exe().unwrap()).unwrap();
        let (asked, answer) = std::sync::mpsc::channel();
        let fds = [pipe.as_raw_fd(), socket.as_raw_fd(), plain.as_raw_fd()];
        std::thread::spawn(move || {
            for fd in fds {
                asked.send(SharedFile::open_to_read(this, fd as u32)).unwrap();
            }
        });
        for _ in fds {
            let opened = answer.recv_timeout(std::time::Duration::from_secs(10)).expect("an answer at once");
            assert!(matches!(opened, Err(OsError::Unreachable { .. } | OsError::Ended { .. })));
        }
    }

    #[test]
    fn what_is_mapped_shut_is_opened_and_emptied_in_parts() {
        let file = SharedFile::create(c"test", 4 * PAGE).unwrap();
        let mapping = file.map_shut(0..4 * PAGE).unwrap();
        mapping.open(PAGE..3 * PAGE).unwrap();
        file.make_read_only().unwrap();
        let ours = mapping.view::<AtomicU64>(PAGE, 2 * PAGE / 8);
        ours.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        // SAFETY: all other accesses are atomic.
        assert!(unsafe { mapping.empty(PAGE..2 * PAGE, 4096) });
        // A part that is smaller than a page keeps its content, in the middle, at the start and at the end of a page.
        for part in [2 * PAGE + 4096..3 * PAGE - 4096, 2 * PAGE..3 * PAGE - 4096, 2 * PAGE + 4096..3 * PAGE] {
            // SAFETY: as above.
            assert!(!unsafe { mapping.empty(part, PAGE) });
        }
        let peer = SharedFile::open_to_read(Process::current().unwrap(), file.fd()).unwrap();
        let theirs = peer.map_to_read(0..4 * PAGE).unwrap().view::<AtomicU64>(0, 4 * PAGE / 8);
        for (page, value) in [0, 0, u64::MAX, 0].into_iter().enumerate() {
            assert!(theirs[page * PAGE / 8..][..PAGE / 8].iter().all(|w| w.load(Ordering::Relaxed) == value));
        }
        assert!(peer.map(0..PAGE).is_err(), "opened for reading");
    }

    #[test]
    #[should_panic(expected = "a view lies in its mapping")]
    fn a_view_stays_inside() {
        let file = SharedFile::create(c"test", PAGE).unwrap();
        let _ = file.map(0..PAGE).unwrap().view::<AtomicU64>(PAGE - 8, 2);
    }
}
