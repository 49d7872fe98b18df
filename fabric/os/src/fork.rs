//! Distinguishes a process from its children made by fork(2), whichever library function has called fork(2).
//!
//! This uses memory that the kernel replaces by zeros in children (MADV_WIPEONFORK in madvise(2)). Handlers of
//! pthread_atfork(3) would not suffice: they run one after the other, so another handler may run before ours, and they
//! do not run at all after `_Fork` or clone(2).

use std::io;
use std::mem::ManuallyDrop;
#[cfg(any(test, feature = "forks"))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A value in memory that children get as zeros. A child must not read it as a `T`, unless zeros are a valid `T`.
///
/// The value is never dropped.
#[derive(Debug)]
pub(crate) struct Wiped<T>(NonNull<T>);

impl<T> Wiped<T> {
    const LEN: usize = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };

    /// Moves `value` to memory that children get as zeros.
    ///
    /// # Errors
    /// The errors of mmap(2) and madvise(2): Linux before 4.14 has no such memory.
    #[cfg(not(miri))]
    pub(crate) fn new(value: T) -> io::Result<Self> {
        // A page is at least 4096 bytes large, so a value at its start is aligned.
        const { assert!(align_of::<T>() <= 4096) };
        // SAFETY: a new private mapping at an address of the kernel's choice changes no memory in use.
        let memory = unsafe {
            libc::mmap(
                null_mut(),
                Self::LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let wiped = Self(NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: `memory` is the mapping made above, in which nothing is written yet.
        if unsafe { libc::madvise(memory, Self::LEN, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is as long as a `T`, begins at a page, and has no other owner.
        unsafe { wiped.0.write(value) };
        Ok(wiped)
    }

    /// The implementation under Miri, which supports neither fork(2) nor MADV_WIPEONFORK.
    #[cfg(miri)]
    pub(crate) fn new(value: T) -> io::Result<Self> {
        Ok(Self(NonNull::from(Box::leak(Box::new(value)))))
    }

    /// Returns the address of the value. The address is valid until this `Wiped` is dropped.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> NonNull<T> {
        self.0
    }
}

impl<T> Drop for Wiped<T> {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: `new` mapped the memory, and its address is not used after this.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), Self::LEN)
        };
        #[cfg(miri)]
        // SAFETY: the pointer is the box of `new`, whose value is not dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr().cast::<ManuallyDrop<T>>()) });
    }
}

// SAFETY: the type owns the value.
unsafe impl<T: Send> Send for Wiped<T> {}
// SAFETY: a shared reference only gives out the address of the value.
unsafe impl<T: Sync> Sync for Wiped<T> {}

/// A mark that distinguishes the process that made the mark from the children of that process.
#[derive(Debug)]
pub struct ForkMark(AtomicU64);

impl ForkMark {
    /// Returns a mark of this process.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the kernel has no memory that it wipes.
    pub fn new() -> io::Result<Self> {
        match this_process() {
            0 => Err(io::ErrorKind::Unsupported.into()),
            number => Ok(Self(AtomicU64::new(number))),
        }
    }

    /// Returns true in a child of the process that made the mark, and in the child's own children. The call never
    /// blocks.
    #[inline]
    pub fn is_in_child(&self) -> bool {
        self.0.load(Ordering::Relaxed) != this_process()
    }

    /// Makes this mark treat this process as a child.
    #[cfg(any(test, feature = "forks"))]
    pub fn wipe(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// A value that is dropped only in the process that made it, and not in children of that process. In a child, the
/// numbers of the value's descriptors may refer to other files.
#[derive(Debug)]
pub struct Own<T> {
    value: ManuallyDrop<T>,
    mark: ForkMark,
}

impl<T> Own<T> {
    /// Wraps a value of this process.
    ///
    /// # Errors
    /// Returns the errors of [`ForkMark::new`].
    pub fn new(value: T) -> io::Result<Self> {
        Ok(Self { value: ManuallyDrop::new(value), mark: ForkMark::new()? })
    }

    /// Returns the value; `None` in a child.
    pub fn get(&self) -> Option<&T> {
        (!self.mark.is_in_child()).then_some(&*self.value)
    }

    /// Returns the value, even in a child. The child must allow for the case that the value's descriptors refer to
    /// other files.
    pub fn even_in_child(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.mark.is_in_child() {
            // SAFETY: the value is dropped only here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Returns a number that differs from the number of every process from which this one was forked: a child copies
/// [`NEXT`] and continues from there. Returns 0 if the kernel has no memory that it wipes.
#[inline]
fn this_process() -> u64 {
    let page = NUMBER.load(Ordering::Acquire);
    // SAFETY: the pointer is the address of a number that is never freed, and any bytes are a valid number.
    match unsafe { page.as_ref() }.map(|number| number.load(Ordering::Relaxed)) {
        Some(number) if number != 0 => number,
        _ => number_this_process(),
    }
}

/// Gives this process a number. The function uses no lock: in a child, a lock that a thread of the parent held at the
/// fork would never be released.
#[cold]
fn number_this_process() -> u64 {
    if NUMBER.load(Ordering::Acquire).is_null() {
        let Ok(wiped) = Wiped::new(AtomicU64::new(0)) else { return 0 };
        let number = wiped.as_ptr().as_ptr();
        if NUMBER.compare_exchange(null_mut(), number, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // The memory stays for ever.
            std::mem::forget(wiped);
        }
    }
    // SAFETY: as in `this_process`. The pointer is not null any more.
    let number = unsafe { &*NUMBER.load(Ordering::Acquire) };
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    number
        .compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed)
        .map_or_else(|first| first, |_| next)
}

/// The number of this process, in memory that is wiped. Null until its first use.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Runs `body` in a child of this process. The child is killed if it takes half a minute. Returns true if `body`
/// returned true. Tests check with it that calls are refused in children.
///
/// `body` must not use memory of `samite_fabric::Heap` that was allocated before, because the child shares that memory
/// with this process.
///
/// # Errors
/// The errors of fork(2) and waitpid(2).
#[cfg(any(test, feature = "forks"))]
pub fn in_a_child(body: impl FnOnce() -> bool) -> io::Result<bool> {
    // SAFETY: the child has only this thread. It allocates, which malloc supports there, takes no lock that another
    // thread may have held, as the caller guarantees, and ends without any handlers.
    unsafe {
        let child = libc::fork();
        match child {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                libc::alarm(30);
                let said = catch_unwind(AssertUnwindSafe(body));
                libc::_exit(i32::from(!said.unwrap_or(false)));
            }
            _ => {}
        }
        let mut status = -1;
        match libc::waitpid(child, &mut status, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(status == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_grandchildren_are_distinguished_from_their_parents() {
        let mark = ForkMark::new().unwrap();
        assert!(!mark.is_in_child());
        let is_known = in_a_child(|| {
            let childs = ForkMark::new().unwrap();
            mark.is_in_child()
                && !childs.is_in_child()
                && in_a_child(|| mark.is_in_child() && childs.is_in_child()).unwrap()
                && !childs.is_in_child()
        });
        assert!(is_known.unwrap());
        assert!(!mark.is_in_child() && !ForkMark::new().unwrap().is_in_child());
    }

    #[test]
    fn a_child_drops_nothing_of_its_parents() {
        let value = std::rc::Rc::new(());
        let own = Own::new(value.clone()).unwrap();
        assert!(own.get().is_some());
        let dropped = |own: Own<_>| {
            drop(own);
            std::rc::Rc::strong_count(&value) == 1
        };
        let childs = Own::new(value.clone()).unwrap();
        assert!(in_a_child(|| childs.get().is_none() && !dropped(childs)).unwrap());
        drop(own);
    }

    #[test]
    fn a_child_gets_zeros() {
        let wiped = Wiped::new([AtomicU64::new(1), AtomicU64::new(2)]).unwrap();
        // SAFETY: the page is alive, and any bytes are numbers.
        let sum =
            || unsafe { wiped.as_ptr().as_ref() }.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
        assert!(in_a_child(|| sum() == 0).unwrap());
        assert_eq!(sum(), 3);
    }
}
