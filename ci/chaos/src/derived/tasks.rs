//! A minimal executor. It polls a future only when the future was woken, so that a missing wake-up shows.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The futures of one communicator.
pub(super) struct Tasks<T>(Vec<Task<T>>);

struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    woken: Arc<Woken>,
    since: Instant,
}

struct Woken {
    is_due: AtomicBool,
    thread: Thread,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Tasks<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn spawn(&mut self, future: impl Future<Output = T> + 'static) {
        let woken = Woken { is_due: AtomicBool::new(true), thread: std::thread::current() };
        self.0.push(Task { future: Box::pin(future), woken: Arc::new(woken), since: Instant::now() });
    }

    /// Polls the futures that were woken, and returns the results of the ended ones.
    pub(super) fn run(&mut self) -> Vec<T> {
        let mut results = Vec::new();
        self.0.retain_mut(|task| {
            if !task.woken.is_due.swap(false, Ordering::Acquire) {
                return true;
            }
            let waker = Waker::from(Arc::clone(&task.woken));
            match task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    results.push(result);
                    false
                }
            }
        });
        results
    }

    /// Sleeps until a future is woken, or for `time`. Only the runtime's thread makes progress meanwhile.
    pub(super) fn sleep(&self, time: Duration) {
        if !self.0.iter().any(|task| task.woken.is_due.load(Ordering::Acquire)) {
            std::thread::park_timeout(time);
        }
    }

    /// Drops one of the futures.
    pub(super) fn drop_one(&mut self, which: u64) {
        if !self.0.is_empty() {
            self.0.swap_remove(which as usize % self.0.len());
        }
    }

    /// Returns the age of the oldest future.
    pub(super) fn age(&self) -> Option<Duration> {
        self.0.iter().map(|task| task.since.elapsed()).max()
    }
}
