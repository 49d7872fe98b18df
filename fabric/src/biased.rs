//! A mutex that is biased towards one thread: what belongs to all, and is nearly always used by one.
//!
//! The first thread that locks it owns the *bias*: it takes and releases the lock by two plain stores. When another
//! thread comes, it takes the bias away for good, and from then on all use an ordinary mutex. (After Dice, Moir and
//! Scherer, Quickly Reacquirable Locks, 2003, without the way back.)
//!
//! ```text
//!   owner of the bias                            another thread, which holds the mutex
//!   held ← 1                                     bias ← SHARED
//!   (ordered by the other's barrier)             full barrier, for the owner too
//!   bias still mine? ─ no ─▶ held ← 0, mutex     waits until held is 0
//!     yes: in; out again: held ← 0               in; nobody enters by the bias any more
//! ```
//! So either the owner sees that it has lost the bias, or the other sees that the owner is in.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
#[cfg(not(all(test, loom)))]
use std::{sync::atomic::AtomicU64, thread::yield_now};

#[cfg(all(test, loom))]
use loom::{sync::atomic::AtomicU64, thread::yield_now};

use crate::os::barrier;

/// A mutex that costs its first user next to nothing, until there is a second one.
///
/// A panic while it is held does not poison it.
pub struct BiasedMutex<T> {
    bias: Bias,
    /// Held by whoever is in without the bias, and to change the bias.
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: as of std's Mutex: a reference to it gives access to the value to one thread at a time, which may take it
// out. That it is one at a time is shown at `Bias`.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// Access to the value, until it is dropped.
pub struct BiasedGuard<'a, T> {
    lock: &'a BiasedMutex<T>,
    /// None if it is by the bias. Guards are not sent to other threads because of it, which the bias needs too.
    shared: Option<MutexGuard<'a, ()>>,
    /// It is shared between threads if that can be.
    value: PhantomData<&'a mut T>,
}

impl<T> BiasedMutex<T> {
    /// One that nobody has locked.
    pub fn new(value: T) -> Self {
        // Without a barrier for others nobody can have the bias.
        let bias = Bias::new(if barrier::join() { FREE } else { SHARED });
        Self { bias, mutex: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds it.
    ///
    /// # Panics
    /// This thread holds it already; or the system has forbidden membarrier(2) since the lock was made.
    #[inline(always)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        let shared = if self.bias.enter(this_thread()) { None } else { self.lock_slowly() };
        BiasedGuard { lock: self, shared, value: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) -> Option<MutexGuard<'_, ()>> {
        let me = number_this_thread();
        assert!(self.bias.owner() != me, "a thread locks what it holds");
        let mutex = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        match self.bias.owner() {
            FREE => {
                self.bias.give(me);
                return None;
            }
            SHARED => {}
            _ => self.bias.revoke(),
        }
        Some(mutex)
    }
}

impl<T> fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedMutex").finish_non_exhaustive()
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Waits, without the lock, until `condition` is notified or `time` has passed. It may return earlier, and does at
    /// once if no other thread has ever had the lock: then there is none to notify it.
    #[must_use]
    pub fn wait(mut self, condition: &Condvar, time: Duration) -> Self {
        if let Some(mutex) = self.shared.take() {
            let (mutex, _) = condition.wait_timeout(mutex, time).unwrap_or_else(PoisonError::into_inner);
            self.shared = Some(mutex);
        }
        self
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one there is, see `Bias`; and its borrow lasts as long as this one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.shared.take() {
            None => self.lock.bias.leave(),
            Some(mutex) => unlock(mutex),
        }
    }
}

/// Kept out of the way of those who have the bias.
#[cold]
#[inline(never)]
fn unlock(mutex: MutexGuard<'_, ()>) {
    drop(mutex);
}

/// Who may be in without the mutex.
///
/// `owner` is written under the mutex only, and goes from [`FREE`] to a thread to [`SHARED`], once. Of two that are in
/// together, one would be in by the bias. The other is not: there is one owner, it is a number that no other thread has
/// ever had, and a thread that is in already is not let in. So the other would hold the mutex, after a revocation that
/// it saw: its own, or an earlier holder's of the mutex. The barrier of that comes in the order of all fences before or
/// after the one between the owner's store to `held` and its second look at `owner`. If before, the owner sees
/// [`SHARED`] and is not in. If after, whoever revokes sees `held`, and waits for the store by which the owner leaves;
/// that is `Release`, and the look for it `Acquire`, so all that the owner did comes before.
struct Bias {
    owner: AtomicU64,
    /// 1 while the owner is in, or looks whether it may.
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

    /// Whether this thread, `me`, is the owner and now in.
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

    /// Takes the bias from the owner. Under the mutex.
    fn revoke(&self) {
        let owner = self.owner();
        self.owner.store(SHARED, Ordering::Relaxed);
        if !barrier::everywhere() {
            // The owner may be in, and nobody would know: it stays the only one.
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

/// The number of this thread, or [`NONE`].
#[inline(always)]
fn this_thread() -> u64 {
    NUMBER.get()
}

/// Gives this thread a number that no other one has, unless it has one.
fn number_this_thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    if NUMBER.get() == NONE {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// A thread without a number: no owner.
const NONE: u64 = 0;
/// No thread has locked it yet.
const FREE: u64 = u64::MAX - 1;
/// Nobody has the bias any more.
const SHARED: u64 = u64::MAX;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
