//! The lock and the threads of the runtime, as loom provides them.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::{Builder, JoinHandle};
use samite_os::Refused;
use samite_os::alarm::Alarm;

use crate::watch::{Watch, is_readable};

/// The lock of the runtime, without its bias towards one thread. The bias has a model of its own.
pub(crate) struct BiasedMutex<T> {
    value: Mutex<Option<T>>,
    call: fn(&mut T),
}

pub(crate) struct BiasedGuard<'a, T> {
    lock: &'a BiasedMutex<T>,
    /// `None` only during the drop of the guard.
    value: Option<MutexGuard<'a, Option<T>>>,
}

impl<T> BiasedMutex<T> {
    pub(crate) fn with_errand(value: T, call: fn(&mut T)) -> io::Result<Self> {
        Ok(Self { value: Mutex::new(Some(value)), call })
    }

    pub(crate) fn enter(&self) -> Option<BiasedGuard<'_, T>> {
        let value = self.value.lock().unwrap();
        // The guard is made only if the value is present, because the drop of a guard takes the lock of an event.
        value.is_some().then(|| BiasedGuard { lock: self, value: Some(value) })
    }

    pub(crate) fn lock(&self) -> Result<BiasedGuard<'_, T>, Refused> {
        self.enter().ok_or(Refused::Closed)
    }

    /// Calls `look` with the value. The value does not change, so unlike the release of a guard, this announces no
    /// change.
    pub(in super::super) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(self.value.lock().unwrap().as_ref().unwrap())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.value.lock().unwrap().is_some()
    }

    pub(crate) fn refused(&self) -> Refused {
        Refused::Closed
    }

    pub(crate) fn share(&self) -> Result<(), Refused> {
        self.lock().map(drop)
    }

    pub(crate) fn ask(&self) {
        if let Some(mut guard) = self.enter() {
            (self.call)(&mut guard);
        }
    }

    pub(crate) fn close(&self, last: impl FnOnce(&mut T)) -> Result<T, Refused> {
        let mut guard = self.lock()?;
        last(&mut guard);
        Ok(guard.value.as_mut().unwrap().take().unwrap())
    }
}

impl<T> BiasedGuard<'_, T> {
    pub(crate) fn wait(self, event: &Event, _: Duration) -> Result<Self, Refused> {
        let lock = self.lock;
        event.wait(|| drop(self));
        lock.lock()
    }

    /// Releases the lock. The bias has a model of its own.
    pub(crate) fn return_bias(self) {}
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().unwrap().as_ref().unwrap()
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap().as_mut().unwrap()
    }
}

/// Announces a change when the lock is released, because the thread that held it may have made descriptors readable.
impl<T> Drop for BiasedGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.value.take());
        tell_change();
    }
}

/// The event without its time-out: a lost notification is a deadlock.
#[derive(Debug)]
pub(crate) struct Event {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Default for Event {
    fn default() -> Self {
        Self { count: Mutex::new(0), changed: Condvar::new() }
    }
}

impl Event {
    pub(crate) fn notify_all(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn wait(&self, release: impl FnOnce()) {
        let mut count = self.count.lock().unwrap();
        let seen = *count;
        release();
        while *count == seen {
            count = self.changed.wait(count).unwrap();
        }
    }
}

std::thread_local! {
    /// An event that is signalled when a descriptor may have become readable. Threads wait for this event, because a
    /// thread that looked at descriptors in a loop would keep loom from running other threads. It is a thread-local
    /// variable, because all threads of a model are coroutines of one thread.
    static CHANGE: RefCell<Option<Arc<Event>>> = const { RefCell::new(None) };
}

/// Begins a new run of a model.
pub(in super::super) fn begin() {
    CHANGE.set(Some(Arc::default()));
}

/// Waits until `is_ready` returns true. Calls it again after each [`tell_change`].
pub(crate) fn await_change(mut is_ready: impl FnMut() -> bool) {
    let change = CHANGE.with_borrow(Clone::clone).unwrap();
    let mut count = change.count.lock().unwrap();
    while !is_ready() {
        count = change.changed.wait(count).unwrap();
    }
}

pub(crate) fn tell_change() {
    change(|| ());
}

/// Waits until `is_ready` returns true. Calls it again after each change. `is_ready` may take locks, and must change
/// nothing.
pub(in super::super) fn await_state(is_ready: impl Fn() -> bool) {
    let change = CHANGE.with_borrow(Clone::clone).unwrap();
    let mut seen = *change.count.lock().unwrap();
    while !is_ready() {
        let mut count = change.count.lock().unwrap();
        while *count == seen {
            count = change.changed.wait(count).unwrap();
        }
        seen = *count;
    }
}

/// Rings or resets an alarm, under a lock, and announces the change. The lock gives the same order as the kernel: a
/// thread that sees the ring also sees all writes that precede it.
pub(crate) fn change(alarm: impl FnOnce()) {
    let Some(change) = CHANGE.with_borrow(Clone::clone) else { return alarm() };
    let mut count = change.count.lock().unwrap();
    alarm();
    *count += 1;
    drop(count);
    change.changed.notify_all();
}

/// A timer. In a model, a time of less than a millisecond passes at once, and a longer one never passes.
#[derive(Debug)]
pub(crate) struct Timer(Alarm);

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        Alarm::new().map(Self)
    }

    pub(crate) fn set(&self, time: Duration) {
        self.stop();
        if time < Duration::from_millis(1) {
            change(|| self.0.ring());
        }
    }

    pub(crate) fn stop(&self) {
        change(|| self.0.silence());
    }

    pub(crate) fn sleep(&self, watch: Option<&Watch>) -> bool {
        let watched = watch.and_then(Watch::descriptor);
        await_change(|| is_readable(&self.0) || watched.is_some_and(is_readable));
        watched.is_some_and(is_readable)
    }
}

pub(crate) fn start_thread(_: &str, _: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start(run);
    Ok(())
}

/// Starts a thread with a stack that suffices for the engine.
pub(in super::super) fn start(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().stack_size(STACK_WORDS).spawn(run).unwrap()
}

/// Yields. In the model the time-out may end at once, or after other threads have run.
pub(crate) fn sleep_precisely() {}

pub(crate) fn park_timeout(_: Duration) {
    loom::thread::yield_now();
}

pub(crate) fn yield_now() {
    loom::thread::yield_now();
}

/// The stack of a thread in words: 256 KiB.
const STACK_WORDS: usize = 1 << 15;
