//! A mutex that is biased towards one thread, for shared state that is nearly always used by one.
//!
//! The first thread that locks it owns the *bias*: it takes and releases the lock by two plain stores. When another
//! thread locks the mutex, it ends the bias for good, and from then on all threads use an ordinary mutex. (After Dice,
//! Moir and Scherer, Quickly Reacquirable Locks, 2003, except that the bias is never acquired again.)
//!
//! ```text
//!   owner of the bias                            another thread, which holds the mutex
//!   held ← 1                                     bias ← SHARED
//!   (ordered by the other's barrier)             full barrier, for the owner too
//!   bias still mine? ─ no ─▶ held ← 0, mutex     waits until held is 0
//!     yes: in; out again: held ← 0               in; nobody enters by the bias any more
//! ```
//! So either the owner sees that it has lost the bias, or the other thread sees that the owner has entered.
//!
//! A thread that must not wait can leave an *errand* ([`BiasedMutex::ask`]): it requests a call with the value. If the
//! lock is free, the thread makes the call itself; otherwise the holder makes it when it releases the lock. Errands
//! require that the bias was given up ([`BiasedMutex::share`]), so the owner of a bias does not pay for them.
//!
//! The word with the owner of the bias also says that the lock is closed, or that this process is a child of the one
//! that made the lock, since it lies in memory that children get as zeros. So these checks cost the owner nothing.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use std::{fmt, io, ptr};
#[cfg(not(all(test, loom)))]
use std::{sync::atomic::AtomicU64, thread::yield_now};

#[cfg(all(test, loom))]
use loom::{sync::atomic::AtomicU64, thread::yield_now};

use self::errand::Errand;
pub use self::event::Event;

use crate::barrier;
use crate::fork::Wiped;

/// A mutex that costs its first thread almost nothing until a second thread locks it. It can be closed, and it cannot
/// be locked in children of its process.
///
/// A panic while it is held does not poison it.
pub struct BiasedMutex<T> {
    hot: Wiped<Hot<T>>,
    /// Held by a thread that enters without the bias, and to change the bias.
    mutex: Mutex<()>,
    /// The mutex, while a thread is inside that entered without the bias. Only that thread accesses it.
    held: UnsafeCell<Option<MutexGuard<'static, ()>>>,
    errand: Errand,
    /// The call of an errand.
    call: fn(&mut T),
}

/// The parts that the owner of the bias uses. In a child of the process that made it there is no value.
#[repr(C)]
struct Hot<T> {
    bias: Bias,
    /// The lock that the thread inside must unlock when it leaves; null if it entered by the bias. Only the thread inside
    /// accesses it.
    entered: Cell<*const BiasedMutex<T>>,
    /// Present until the thread that closes the lock takes it out.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: as of std's Mutex: a reference to it gives access to the value to one thread at a time, which may take it
// out. `Bias` has the proof that it is one at a time.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}
// SAFETY: as of std's Mutex. A lock that is moved has no guard, unless one was forgotten: then `held` and `entered` are
// not used again.
unsafe impl<T: Send> Send for BiasedMutex<T> {}

/// Access to the value, until it is dropped.
///
/// It is one pointer, so it and an `Option` of it stay in a register. A guard of several fields was moved through memory
/// in pieces on its way to the caller, and loads of other sizes waited for the stores: 17 % of the latency of a message
/// in shared memory, without an instruction more.
pub struct BiasedGuard<'a, T> {
    /// A pointer also keeps guards from being sent to other threads, which the bias and the mutex need.
    hot: NonNull<Hot<T>>,
    /// The guard is `Sync` if the value is.
    value: PhantomData<&'a mut T>,
}

/// The reason why a lock refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The lock was closed.
    Closed,
    /// The lock belongs to the process from which this one was forked.
    Forked,
}

impl<T> BiasedMutex<T> {
    /// Returns a lock that no thread has locked.
    ///
    /// # Errors
    /// The errors of mmap(2) and madvise(2) for the memory of the value: out of memory, or Linux before 4.14.
    pub fn new(value: T) -> io::Result<Self> {
        Self::with_errand(value, |_| {})
    }

    /// Returns a lock that no thread has locked, with the call of its errands.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn with_errand(value: T, call: fn(&mut T)) -> io::Result<Self> {
        // Without a barrier for others no thread can have the bias.
        let bias = Bias::new(if barrier::join() { FREE } else { SHARED });
        let entered = Cell::new(ptr::null());
        let hot = Wiped::new(Hot { bias, entered, value: UnsafeCell::new(MaybeUninit::new(value)) })?;
        let (mutex, held) = (Mutex::new(()), UnsafeCell::new(None));
        Ok(Self { hot, mutex, held, errand: Errand::default(), call })
    }

    /// Gives up the bias for good, so that [`ask`](Self::ask) may be called. Waits until no other thread holds the
    /// lock.
    ///
    /// # Errors
    /// Returns the errors of [`lock`](Self::lock).
    ///
    /// # Panics
    /// If [`lock`](Self::lock) would panic.
    pub fn share(&self) -> Result<(), Refused> {
        let me = number_this_thread();
        let mutex = self.bias().lock(&self.mutex)?;
        self.take_bias(me);
        self.errand.enable();
        // Another thread may have asked meanwhile.
        self.release(mutex);
        Ok(())
    }

    /// Requests the errand's call with the value, without waiting. This thread makes the call if the lock is free,
    /// otherwise the holder makes it when it releases the lock. The call sees all writes of this thread before the
    /// request. One call may serve several requests. Does nothing if the lock is closed or belongs to another process.
    ///
    /// # Panics
    /// If the lock was never [shared](Self::share).
    pub fn ask(&self) {
        assert!(self.errand.is_enabled(), "only a shared lock has errands");
        self.errand.ask(|| self.try_lock(), |_| self.run_errand());
    }

    /// Makes the errand's call. The caller holds the mutex, after [`share`](Self::share).
    fn run_errand(&self) {
        // SAFETY: the callers hold the mutex by `try_lock`, which has seen that no thread has the bias any more and
        // that the lock is not closed: see `Bias`. So this thread is the only one inside, and the value is present.
        (self.call)(unsafe { (*self.value()).assume_init_mut() });
    }

    /// Locks the mutex if it is free, and no thread has the bias.
    fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.bias().refusal().ok()?;
        let mutex = match self.mutex.try_lock() {
            Ok(mutex) => mutex,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.bias().owner() == SHARED).then_some(mutex)
    }

    /// Waits until no other thread holds it, and locks it.
    ///
    /// # Errors
    /// At once if it is closed, or another process's.
    ///
    /// # Panics
    /// If this thread holds it already; or if the system has forbidden membarrier(2) since the lock was made.
    #[inline(always)]
    pub fn lock(&self) -> Result<BiasedGuard<'_, T>, Refused> {
        self.enter().ok_or_else(|| self.refused())
    }

    /// Locks it as [`lock`](Self::lock) does. `None` if the lock refuses: [`refused`](Self::refused) tells why. For
    /// callers to which the cost of a larger result matters.
    ///
    /// # Panics
    /// If [`lock`](Self::lock) would panic.
    #[inline(always)]
    pub fn enter(&self) -> Option<BiasedGuard<'_, T>> {
        let is_inside = self.bias().enter(this_thread()) || self.lock_slowly();
        is_inside.then(|| BiasedGuard { hot: self.hot.as_ptr(), value: PhantomData })
    }

    /// Returns the reason why the lock refused: once it refuses, it always does, for the same reason.
    ///
    /// # Panics
    /// If it has not refused.
    #[cold]
    pub fn refused(&self) -> Refused {
        self.bias().refusal().expect_err("a lock that has refused stays closed")
    }

    /// Waits until no other thread holds it, calls `last` with the value, and takes the value out. Threads that call
    /// [`lock`](Self::lock) meanwhile wait until this is done, and are then refused.
    ///
    /// # Errors
    /// Errors as of [`lock`](Self::lock).
    ///
    /// # Panics
    /// Errors as of [`lock`](Self::lock).
    pub fn close(&self, last: impl FnOnce(&mut T)) -> Result<T, Refused> {
        let me = number_this_thread();
        let _mutex = self.bias().lock(&self.mutex)?;
        self.take_bias(me);
        // SAFETY: this thread holds the mutex, and no thread has the bias any more: see `Bias`. So it is the only one
        // inside, and since the lock is not closed, the value is present.
        let value = unsafe { (*self.value()).assume_init_mut() };
        last(value);
        self.bias().close();
        // SAFETY: as above. It is not read again: every reader first checks if the lock is closed, and holds the mutex
        // then.
        Ok(unsafe { (*self.value()).assume_init_read() })
    }

    /// Ends the bias of any thread. The calling thread, `me`, holds the mutex.
    fn take_bias(&self, me: u64) {
        match self.bias().owner() {
            SHARED => {}
            FREE => self.bias().share(),
            owner => {
                assert!(
                    owner != me || !self.bias().is_held(),
                    "a thread takes the bias by which it is inside"
                );
                self.bias().revoke();
            }
        }
    }

    /// Lets this thread in as the first owner of the bias, or with the mutex. Returns false if the lock refuses.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) -> bool {
        let me = number_this_thread();
        assert!(self.bias().owner() != me, "a thread locks what it holds");
        let Ok(mutex) = self.bias().lock(&self.mutex) else { return false };
        match self.bias().owner() {
            FREE => {
                self.bias().give(me);
                return true;
            }
            SHARED => {}
            _ => self.bias().revoke(),
        }
        // SAFETY: this thread holds the mutex, and no thread has the bias any more: see `Bias`. So it is the only one
        // inside, and the only one that accesses these two. The mutex's guard may live longer than it says, because it
        // is dropped only in `unlock`, by the guard that is returned. That one borrows this lock, which therefore lives
        // and is not moved. If it is forgotten, no thread unlocks the mutex or reads `entered` again.
        unsafe {
            *self.held.get() =
                Some(std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(mutex));
            (*self.hot.as_ptr().as_ptr()).entered.set(self);
        }
        true
    }

    /// Releases the mutex, and makes the errand's call if one is owed.
    fn release(&self, mutex: MutexGuard<'_, ()>) {
        // Errands are enabled under the mutex, so this value is valid for the whole time that this thread held it.
        let may_owe = self.errand.is_enabled();
        drop(mutex);
        if may_owe {
            self.errand.released(|| self.try_lock(), |_| self.run_errand());
        }
    }

    #[inline(always)]
    fn bias(&self) -> &Bias {
        // SAFETY: the memory lives as long as this, and zeros, in a child, are a valid `Bias` too.
        unsafe { &(*self.hot.as_ptr().as_ptr()).bias }
    }

    fn value(&self) -> *mut MaybeUninit<T> {
        // SAFETY: the memory lives as long as this; no reference to the value is made.
        unsafe { (*self.hot.as_ptr().as_ptr()).value.get() }
    }
}

/// In a child nothing is dropped: the value's contents may be shared with the parent.
impl<T> Drop for BiasedMutex<T> {
    fn drop(&mut self) {
        // A guard of the mutex is present here only if a guard of this lock was forgotten. Only the thread that locked
        // the mutex may unlock it, and that may be another thread, so the guard is leaked.
        std::mem::forget(self.held.get_mut().take());
        if !matches!(self.bias().owner(), CLOSED | FORKED) {
            // SAFETY: it has no other owner any more, and its value is present: it is neither closed nor another
            // process's.
            unsafe { (*self.value()).assume_init_drop() };
        }
    }
}

impl<T> fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedMutex").finish_non_exhaustive()
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Waits, without the lock, until `event` is notified or `time` has passed. It may return earlier, and does so
    /// at once if no other thread has ever had the lock: then none can notify it.
    ///
    /// # Errors
    /// If the lock was closed meanwhile.
    pub fn wait(self, event: &Event, time: Duration) -> Result<Self, Refused> {
        // SAFETY: the guard borrows the lock, so it is valid.
        let Some(lock) = (unsafe { self.entered().get().as_ref() }) else { return Ok(self) };
        event.wait(time, || drop(self));
        lock.lock()
    }

    /// Returns the lock that this thread entered with the mutex, or null if it entered by the bias.
    #[inline(always)]
    fn entered(&self) -> &Cell<*const BiasedMutex<T>> {
        // SAFETY: the guard borrows the lock, and this thread is inside.
        unsafe { &(*self.hot.as_ptr()).entered }
    }

    #[inline(always)]
    fn bias(&self) -> &Bias {
        // SAFETY: the guard borrows the lock.
        unsafe { &(*self.hot.as_ptr()).bias }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one, see `Bias`, and its borrow lasts as long as this one. A lock that
        // gives out a guard is not closed, so the value is present.
        unsafe { (*(*self.hot.as_ptr()).value.get()).assume_init_ref() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and it is borrowed exclusively.
        unsafe { (*(*self.hot.as_ptr()).value.get()).assume_init_mut() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.entered().get().is_null() {
            self.bias().leave();
        } else {
            // SAFETY: the lock that the guard borrows, which this thread entered with the mutex.
            unsafe { unlock(self.entered().replace(ptr::null())) }
        }
    }
}

/// Unlocks a mutex. Out of line, to keep the path of the bias short.
///
/// # Safety
/// `lock` is valid, and this thread is inside with its mutex, for the last time.
#[cold]
#[inline(never)]
unsafe fn unlock<T>(lock: *const BiasedMutex<T>) {
    // SAFETY: as required.
    let lock = unsafe { &*lock };
    // SAFETY: only the thread inside accesses it.
    let mutex = unsafe { (*lock.held.get()).take() };
    lock.release(mutex.expect("the thread inside has locked the mutex"));
}

/// The thread that may enter without the mutex.
///
/// `owner` is written only under the mutex, and goes from [`FREE`] to a thread to [`SHARED`] to [`CLOSED`], once.
/// Assume that two threads are inside together. One of them entered by the bias. The other did not: there is one owner,
/// its number is unique among all threads ever, and a thread that is inside is not let in again. So the other holds the
/// mutex, after a revocation that it saw: its own, or that of an earlier holder of the mutex. In the order of all
/// fences, the barrier of that revocation comes before or after the one between the owner's store to `held` and its
/// second look at `owner`. If before, the owner sees [`SHARED`] and does not enter. If after, the revoking thread sees
/// `held`, and waits for the store by which the owner leaves; that is `Release`, and the look for it `Acquire`, so all
/// actions of the owner come before.
///
/// In a child of fork(2) both words are 0, which no thread writes to `owner`: every thread is refused.
#[repr(C)]
struct Bias {
    owner: AtomicU64,
    /// 1 while the owner is inside, or checks if it may enter.
    held: AtomicU64,
}

impl Bias {
    fn new(owner: u64) -> Self {
        Self { owner: AtomicU64::new(owner), held: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Returns the reason for a refusal, if there is one.
    fn refusal(&self) -> Result<(), Refused> {
        match self.owner() {
            FORKED => Err(Refused::Forked),
            CLOSED => Err(Refused::Closed),
            _ => Ok(()),
        }
    }

    /// Locks the mutex of this bias. A child does not wait for it: the holder may be a thread that does not exist
    /// there.
    fn lock<'a>(&self, mutex: &'a Mutex<()>) -> Result<MutexGuard<'a, ()>, Refused> {
        self.refusal()?;
        let mutex = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        self.refusal()?;
        Ok(mutex)
    }

    /// Returns true if this thread, `me`, is the owner and has entered.
    #[inline(always)]
    fn enter(&self, me: u64) -> bool {
        if self.owner() != me || self.held.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.held.store(1, Ordering::Relaxed);
        barrier::light();
        if self.owner() != me {
            self.leave();
            return false;
        }
        true
    }

    #[inline(always)]
    fn leave(&self) {
        self.held.store(0, Ordering::Release);
    }

    /// Makes this thread, `me`, the owner, and lets it in. Under the mutex, and while it is [`FREE`].
    fn give(&self, me: u64) {
        self.held.store(1, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Gives up the bias before any thread has it. Under the mutex, and while it is [`FREE`].
    fn share(&self) {
        self.owner.store(SHARED, Ordering::Relaxed);
    }

    /// Refuses all threads from now on. Under the mutex, and while it is [`SHARED`].
    fn close(&self) {
        self.owner.store(CLOSED, Ordering::Relaxed);
    }

    /// Takes the bias from the owner. Under the mutex.
    fn revoke(&self) {
        let owner = self.owner();
        self.owner.store(SHARED, Ordering::Relaxed);
        if !barrier::everywhere() {
            // The owner may be inside without being noticed: it stays the only one.
            self.owner.store(owner, Ordering::Relaxed);
            panic!("membarrier(2) was allowed when the lock was made, and is refused now");
        }
        while self.held.load(Ordering::Acquire) != 0 {
            yield_now();
        }
    }
}

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(NONE) };
}

/// Returns the number of this thread, or [`NONE`].
#[inline(always)]
fn this_thread() -> u64 {
    NUMBER.get()
}

/// Gives this thread a unique number, unless it has one.
fn number_this_thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    if NUMBER.get() == NONE {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// The owner's word in a child of the process that made the lock.
const FORKED: u64 = 0;
/// The number of a thread without a number; never an owner.
const NONE: u64 = u64::MAX - 3;
/// All threads are refused.
const CLOSED: u64 = u64::MAX - 2;
/// No thread has locked it yet.
const FREE: u64 = u64::MAX - 1;
/// No thread has the bias any more.
const SHARED: u64 = u64::MAX;

mod errand;
mod event;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
