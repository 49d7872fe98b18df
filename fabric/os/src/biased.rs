//! A mutex that is biased towards one thread, for shared state that is nearly always used by the same thread.
//!
//! The first thread that locks the mutex owns the *bias*: this thread takes and releases the lock by two plain stores.
//! A thread that has the lock is *inside*. When another thread locks the mutex, that thread ends the bias, and from
//! then on all threads use an ordinary mutex. A thread that needs the lock rarely can give the bias back when it leaves
//! ([`BiasedGuard::return_bias`]). (After Dice, Moir and Scherer, Quickly Reacquirable Locks, 2003.)
//!
//! ```text
//!   owner of the bias                            another thread, which holds the mutex
//!   held ← me                                    bias ← SHARED
//!   (ordered by the other's barrier)             full barrier, for the owner too
//!   bias still mine? ─ no ─▶ held ← 0, mutex     waits until held is 0
//!     yes: is inside; leaves: held ← 0           is inside; no thread enters by the bias any more
//! ```
//! So either the owner sees that it has lost the bias, or the other thread sees that the owner has entered.
//!
//! A thread that must not wait can leave an *errand* ([`BiasedMutex::ask`]): it requests a call of a function with the
//! value. If the lock is free, the thread makes the call itself; otherwise the holder makes it when it releases the
//! lock. Errands require that the bias was given up ([`BiasedMutex::share`]), so the owner of a bias does not pay for
//! them.
//!
//! The word with the owner of the bias also shows if the lock is closed. It lies in memory that children of fork(2) get
//! as zeros, so it also shows if this process is a child of the process that made the lock. So both checks cost the
//! owner nothing.

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
/// A panic of the thread that holds the mutex does not poison it.
pub struct BiasedMutex<T> {
    hot: Wiped<Hot<T>>,
    /// A thread holds this mutex while it is inside without the bias, and while it changes the bias.
    mutex: Mutex<()>,
    /// The number of the thread that is inside with `mutex`; [`NO_THREAD`] if there is none. A thread that finds its
    /// own number would wait for itself.
    holder: AtomicU64,
    /// The guard of `mutex`, while a thread that entered without the bias is inside. Only that thread accesses this
    /// field.
    held: UnsafeCell<Option<MutexGuard<'static, ()>>>,
    /// The threads that have locked this mutex. Only the holder of `mutex` accesses this field.
    lockers: Cell<Lockers>,
    errand: Errand,
    /// The function that is called for an errand.
    call: fn(&mut T),
}

/// The parts that the owner of the bias uses. In a child of the process that made the lock, they are zeros, and there
/// is no value.
#[repr(C)]
struct Hot<T> {
    bias: Bias,
    /// The lock that the thread inside must unlock when it leaves; null if that thread entered by the bias. Only the
    /// thread inside accesses this field.
    entered: Cell<*const BiasedMutex<T>>,
    /// The value is present until the thread that closes the lock takes it out.
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The threads that have locked the mutex: the first owner of the bias, and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lockers {
    /// No thread has locked it.
    None,
    /// The first owner, and no other thread since the bias was last given to it.
    First(u64),
    /// The first owner, and one other thread since the bias was last given to the first owner.
    Two { first: u64, other: u64 },
    /// Several other threads.
    More,
}

impl Lockers {
    fn with(self, me: u64) -> Self {
        match self {
            Self::None => Self::First(me),
            Self::First(first) if first != me => Self::Two { first, other: me },
            Self::Two { first, other } if first != me && other != me => Self::More,
            same => same,
        }
    }
}

// SAFETY: as for std's Mutex: a reference to the lock gives one thread at a time access to the value, and this thread
// may take the value out. The proof that at most one thread at a time has access is at `Bias`.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}
// SAFETY: as for std's Mutex. A lock that is moved has no guard, unless a guard was forgotten. In that case `held` and
// `entered` are not used again.
unsafe impl<T: Send> Send for BiasedMutex<T> {}

/// Access to the value, until the guard is dropped.
///
/// The guard is one pointer, so that it stays in a register, and so does an `Option` of it. An earlier guard of several
/// fields was moved through memory in pieces on its way to the caller. Loads of other sizes than the stores then waited
/// for the stores. That took 17 % of the latency of a message in shared memory, with the same number of instructions.
pub struct BiasedGuard<'a, T> {
    /// A pointer is not `Send`, so guards are not sent to other threads. The bias and the mutex require this, because
    /// they must be released by the thread that acquired them.
    hot: NonNull<Hot<T>>,
    /// Makes the guard `Sync` if the value is `Sync`.
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

    /// Returns a lock that no thread has locked. `call` is the function that a request by [`ask`](Self::ask) calls with
    /// the value.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn with_errand(value: T, call: fn(&mut T)) -> io::Result<Self> {
        // If the system has no barrier that acts on other threads, no thread can have the bias.
        let bias = Bias::new(if barrier::join() { FREE } else { SHARED });
        let entered = Cell::new(ptr::null());
        let hot = Wiped::new(Hot { bias, entered, value: UnsafeCell::new(MaybeUninit::new(value)) })?;
        let (mutex, held) = (Mutex::new(()), UnsafeCell::new(None));
        let (holder, lockers) = (AtomicU64::new(NO_THREAD), Cell::new(Lockers::None));
        Ok(Self { hot, mutex, holder, held, lockers, errand: Errand::default(), call })
    }

    /// Gives up the bias for good, so that [`ask`](Self::ask) may be called. The call waits until no other thread holds
    /// the lock.
    ///
    /// # Errors
    /// Returns the errors of [`lock`](Self::lock).
    ///
    /// # Panics
    /// If [`lock`](Self::lock) would panic.
    pub fn share(&self) -> Result<(), Refused> {
        let me = number_this_thread();
        let mutex = self.lock_mutex(me)?;
        self.take_bias();
        self.errand.enable();
        // Another thread may have called `ask` meanwhile.
        self.release(mutex);
        Ok(())
    }

    /// Requests a call of the errand's function with the value, without waiting. This thread makes the call if the lock
    /// is free, otherwise the holder makes it when it releases the lock. The call sees all writes of this thread before
    /// the request. One call may serve several requests. The request has no effect if the lock is closed or belongs to
    /// another process.
    ///
    /// # Panics
    /// If the lock was never [shared](Self::share).
    pub fn ask(&self) {
        assert!(self.errand.is_enabled(), "only a shared lock has errands");
        self.errand.ask(|| self.try_lock(), |_| self.run_errand());
    }

    /// Calls the errand's function. The caller holds the mutex, after [`share`](Self::share).
    fn run_errand(&self) {
        self.holder.store(number_this_thread(), Ordering::Relaxed);
        // If the call panics, the mutex is unlocked too.
        let _held = Held(&self.holder);
        // SAFETY: the callers hold the mutex by `try_lock`, which has seen that no thread has the bias any more and
        // that the lock is not closed: see `Bias`. So this thread is the only one inside, and the value is present.
        (self.call)(unsafe { (*self.value()).assume_init_mut() });
    }

    /// Locks the mutex for this thread, `me`.
    ///
    /// # Panics
    /// If this thread holds the mutex already.
    fn lock_mutex(&self, me: u64) -> Result<MutexGuard<'_, ()>, Refused> {
        self.bias().refusal()?;
        // Only this thread stores its number, and it stores another one before it unlocks the mutex.
        let is_inside = self.holder.load(Ordering::Relaxed) == me || self.bias().is_held_by(me);
        // A thread that revokes the bias has the mutex while it waits until this thread is not inside.
        assert!(!is_inside, "a thread locks what it holds");
        self.bias().lock(&self.mutex)
    }

    /// Locks the mutex if it is free and the bias was given up. Returns `None` otherwise, and also if the lock refuses.
    fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.bias().refusal().ok()?;
        let mutex = match self.mutex.try_lock() {
            Ok(mutex) => mutex,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.bias().owner() == SHARED).then_some(mutex)
    }

    /// Waits until no other thread holds the lock, and locks it.
    ///
    /// # Errors
    /// Returns an error at once if the lock is closed or belongs to another process.
    ///
    /// # Panics
    /// If this thread holds the lock already, or if the system has forbidden membarrier(2) since the lock was made.
    #[inline(always)]
    pub fn lock(&self) -> Result<BiasedGuard<'_, T>, Refused> {
        self.enter().ok_or_else(|| self.refused())
    }

    /// Locks the mutex as [`lock`](Self::lock) does. Returns `None` if the lock refuses; [`refused`](Self::refused)
    /// returns the reason. This is for callers for which the larger result of `lock` is too expensive.
    ///
    /// # Panics
    /// If [`lock`](Self::lock) would panic.
    #[inline(always)]
    pub fn enter(&self) -> Option<BiasedGuard<'_, T>> {
        let is_inside = self.bias().enter(this_thread()) || self.lock_slowly();
        is_inside.then(|| BiasedGuard { hot: self.hot.as_ptr(), value: PhantomData })
    }

    /// Returns false if the lock refuses, because it is closed or belongs to another process. This takes no lock.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.bias().refusal().is_ok()
    }

    /// Returns the reason why the lock refused. A lock that has refused once refuses always, for the same reason.
    ///
    /// # Panics
    /// If the lock has not refused.
    #[cold]
    pub fn refused(&self) -> Refused {
        self.bias().refusal().expect_err("a lock that has refused stays closed")
    }

    /// Waits until no other thread holds the lock, calls `last` with the value, and takes the value out. Threads that
    /// call [`lock`](Self::lock) meanwhile wait until this is done, and are then refused.
    ///
    /// # Errors
    /// Returns the errors of [`lock`](Self::lock).
    ///
    /// # Panics
    /// If [`lock`](Self::lock) would panic.
    pub fn close(&self, last: impl FnOnce(&mut T)) -> Result<T, Refused> {
        let me = number_this_thread();
        let _mutex = self.lock_mutex(me)?;
        self.take_bias();
        // SAFETY: this thread holds the mutex, and no thread has the bias any more: see `Bias`. So this thread is the
        // only one inside. Since the lock is not closed, the value is present.
        let value = unsafe { (*self.value()).assume_init_mut() };
        last(value);
        self.bias().close();
        // SAFETY: as above. The value is not read again: every reader holds the mutex and first checks if the lock is
        // closed.
        Ok(unsafe { (*self.value()).assume_init_read() })
    }

    /// Ends the bias, whichever thread has it. The caller holds the mutex, and is not inside.
    fn take_bias(&self) {
        match self.bias().owner() {
            SHARED => {}
            FREE => self.bias().share(),
            _ => self.bias().revoke(),
        }
    }

    /// Lets this thread in as the first owner of the bias, or with the mutex. Returns false if the lock refuses.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) -> bool {
        let me = number_this_thread();
        let Ok(mutex) = self.lock_mutex(me) else { return false };
        self.lockers.set(self.lockers.get().with(me));
        match self.bias().owner() {
            // This thread is the first one, or another thread has given the bias back to it meanwhile.
            owner if owner == FREE || owner == me => {
                self.bias().give(me);
                return true;
            }
            SHARED => {}
            _ => self.bias().revoke(),
        }
        self.holder.store(me, Ordering::Relaxed);
        // SAFETY: this thread holds the mutex, and no thread has the bias any more: see `Bias`. So this thread is the
        // only one inside, and the only one that accesses `held` and `entered`. The transmute extends the lifetime of
        // the mutex's guard. This is sound: `unlock` takes that guard out of `held` and drops it when the `BiasedGuard`
        // is dropped that `enter` makes after this call. The `BiasedGuard` borrows this lock, so the lock lives until
        // then and is not moved. If the `BiasedGuard` is forgotten, no thread unlocks the mutex or reads `entered`
        // again.
        unsafe {
            *self.held.get() =
                Some(std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(mutex));
            (*self.hot.as_ptr().as_ptr()).entered.set(self);
        }
        true
    }

    /// Releases the mutex, and calls the errand's function if a call is owed.
    fn release(&self, mutex: MutexGuard<'_, ()>) {
        // Errands are enabled only under the mutex, so this value does not change while this thread holds the mutex.
        let may_owe = self.errand.is_enabled();
        drop(mutex);
        if may_owe {
            self.errand.released(|| self.try_lock(), |_| self.run_errand());
        }
    }

    #[inline(always)]
    fn bias(&self) -> &Bias {
        // SAFETY: the memory lives as long as this lock. In a child it contains zeros, which are a valid `Bias` too.
        unsafe { &(*self.hot.as_ptr().as_ptr()).bias }
    }

    fn value(&self) -> *mut MaybeUninit<T> {
        // SAFETY: the memory lives as long as this lock, and no reference to the value is made.
        unsafe { (*self.hot.as_ptr().as_ptr()).value.get() }
    }
}

/// In a child of fork(2) the value is not dropped, because its contents may be shared with the parent.
impl<T> Drop for BiasedMutex<T> {
    fn drop(&mut self) {
        // A guard of the mutex is present here only if a guard of this lock was forgotten. Only the thread that locked
        // the mutex may unlock it. That may be another thread than this one, so the mutex's guard is leaked.
        std::mem::forget(self.held.get_mut().take());
        if !matches!(self.bias().owner(), CLOSED | FORKED) {
            // SAFETY: no other owner of the lock is left. The lock is neither closed nor another process's, so the
            // value is present.
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
    /// Releases the lock, and gives the bias back to its first owner if this thread is the only other thread that has
    /// locked the mutex since the first owner had the bias, and if the lock was not [shared](BiasedMutex::share). The
    /// owner then takes and releases the lock by two plain stores again, until another thread locks it, which costs
    /// that thread a system call.
    pub fn return_bias(self) {
        // SAFETY: the guard borrows the lock, so it is valid.
        let Some(lock) = (unsafe { self.entered().get().as_ref() }) else { return };
        let Lockers::Two { first, other } = lock.lockers.get() else { return };
        if other != this_thread() || lock.errand.is_enabled() {
            return;
        }
        self.entered().set(ptr::null());
        std::mem::forget(self);
        // SAFETY: this thread is inside with the mutex, and other threads do not enter before `give_back`.
        let mutex = unsafe { (*lock.held.get()).take() };
        lock.holder.store(NO_THREAD, Ordering::Relaxed);
        lock.lockers.set(Lockers::First(first));
        lock.bias().give_back(first);
        drop(mutex);
    }

    /// Releases the lock, waits until `event` is notified or `time` has passed, and locks again. It may return earlier.
    /// If this thread has the bias, it returns at once and keeps the lock: no other thread has had the lock since this
    /// thread got the bias, so none can notify the event.
    ///
    /// # Errors
    /// If the lock was closed meanwhile.
    pub fn wait(self, event: &Event, time: Duration) -> Result<Self, Refused> {
        // SAFETY: the guard borrows the lock, so it is valid.
        let Some(lock) = (unsafe { self.entered().get().as_ref() }) else { return Ok(self) };
        event.wait(time, || drop(self));
        lock.lock()
    }

    /// Returns the pointer to the lock, which is null if this thread entered by the bias.
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
        // SAFETY: this guard is the only one (see `Bias`), and the returned reference does not live longer than the
        // borrow of the guard. A lock that gives out a guard is not closed, so the value is present.
        unsafe { (*(*self.hot.as_ptr()).value.get()).assume_init_ref() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { (*(*self.hot.as_ptr()).value.get()).assume_init_mut() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.entered().get().is_null() {
            self.bias().leave();
        } else {
            // SAFETY: the pointer is to the lock that the guard borrows, and this thread entered with the mutex.
            unsafe { unlock(self.entered().replace(ptr::null())) }
        }
    }
}

/// Notes at its end that no thread holds the mutex.
struct Held<'a>(&'a AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(NO_THREAD, Ordering::Relaxed);
    }
}

/// Unlocks the mutex of a lock. It is not inlined, to keep the path of the bias short.
///
/// # Safety
/// `lock` is valid. This thread is inside with the lock's mutex, and does not access the value after this call.
#[cold]
#[inline(never)]
unsafe fn unlock<T>(lock: *const BiasedMutex<T>) {
    // SAFETY: as required.
    let lock = unsafe { &*lock };
    // SAFETY: only the thread inside accesses it.
    let mutex = unsafe { (*lock.held.get()).take() };
    lock.holder.store(NO_THREAD, Ordering::Relaxed);
    lock.release(mutex.expect("the thread inside has locked the mutex"));
}

/// The thread that may enter without the mutex.
///
/// `owner` is written only under the mutex. It is first [`FREE`] and at last [`CLOSED`]. Between them are the number of
/// one thread, always the same, and [`SHARED`], in turns: the bias is revoked, and may be given back. (`held` has no
/// owner's name, so it must not be stored to by several threads.)
///
/// Assume that two threads, A and B, are inside together. They do not both hold the mutex, so one of them, A, entered
/// by the bias. B did not enter by the bias: there is only one owner, no two threads ever have the same number, and a
/// thread that is inside is not let in again. So B holds the mutex, and has seen the end of the bias. B has revoked the
/// bias itself, or an earlier holder of the mutex has, and it was not given back since. In the order of all fences, the
/// barrier of this revocation comes either before or after A's fence, which is between A's store to `held` and A's
/// second look at `owner`. If the barrier comes before, A sees [`SHARED`] and does not enter, or sees the value of a
/// later [`give_back`](Bias::give_back): B or a later holder of the mutex has stored it after B has left. If the
/// barrier comes after, the revoking thread sees `held`, and waits for the store by which A leaves. That store is
/// `Release` and the load that waits for it is `Acquire`, so all actions of A happen before those of B. And `give_back`
/// is a `Release` store and A's second look is an `Acquire` load, so all actions of a thread that gives the bias back
/// happen before those of A.
///
/// In a child of fork(2) both words are 0. No thread has the number 0, so every thread is refused.
#[repr(C)]
struct Bias {
    owner: AtomicU64,
    /// The number of the owner while it is inside, or checks if it may enter; otherwise 0. A thread that finds its own
    /// number here is inside, also after another thread has begun to revoke the bias and waits.
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

    /// Locks the mutex of this bias. In a child of fork(2) it does not wait for the mutex, because the holder may be a
    /// thread that does not exist in the child.
    fn lock<'a>(&self, mutex: &'a Mutex<()>) -> Result<MutexGuard<'a, ()>, Refused> {
        self.refusal()?;
        let mutex = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        self.refusal()?;
        Ok(mutex)
    }

    /// Enters if this thread, `me`, is the owner and is not inside. Returns true if it has entered.
    #[inline(always)]
    fn enter(&self, me: u64) -> bool {
        if self.owner() != me || self.held.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.held.store(me, Ordering::Relaxed);
        barrier::light();
        if self.owner.load(Ordering::Acquire) != me {
            self.leave();
            return false;
        }
        true
    }

    #[inline(always)]
    fn leave(&self) {
        self.held.store(0, Ordering::Release);
    }

    /// Makes this thread, `me`, the owner, and lets it in. The caller holds the mutex, and `owner` is [`FREE`] or `me`.
    fn give(&self, me: u64) {
        self.held.store(me, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
    }

    /// Makes a thread the owner. The caller holds the mutex, `owner` is [`SHARED`], and the caller is not inside any
    /// more.
    fn give_back(&self, to: u64) {
        self.owner.store(to, Ordering::Release);
    }

    /// Returns true if the thread `me`, which calls this, is inside by the bias.
    fn is_held_by(&self, me: u64) -> bool {
        // Only this thread stores its number.
        self.held.load(Ordering::Relaxed) == me
    }

    /// Gives up the bias before any thread has it. The caller holds the mutex, and `owner` is [`FREE`].
    fn share(&self) {
        self.owner.store(SHARED, Ordering::Relaxed);
    }

    /// Refuses all threads from now on. The caller holds the mutex, and `owner` is [`SHARED`].
    fn close(&self) {
        self.owner.store(CLOSED, Ordering::Relaxed);
    }

    /// Takes the bias from the owner. The caller holds the mutex.
    fn revoke(&self) {
        let owner = self.owner();
        self.owner.store(SHARED, Ordering::Relaxed);
        if !barrier::everywhere() {
            // Without the barrier, this thread cannot see if the owner is inside. So the owner keeps the bias, and no
            // other thread enters.
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

/// Stands for no thread: numbers of threads begin at 1.
const NO_THREAD: u64 = 0;
/// The value of `owner` in a child of the process that made the lock.
const FORKED: u64 = NO_THREAD;
/// Stands for the number of a thread that has none yet. `owner` never has this value.
const NONE: u64 = u64::MAX - 3;
/// The value of `owner` in a closed lock, which refuses all threads.
const CLOSED: u64 = u64::MAX - 2;
/// The value of `owner` while no thread has locked the lock yet.
const FREE: u64 = u64::MAX - 1;
/// The value of `owner` when no thread has the bias any more.
const SHARED: u64 = u64::MAX;

mod errand;
mod event;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
