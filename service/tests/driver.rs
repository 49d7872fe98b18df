//! The thread that drives for futures: when it exists, and what it costs. This file has one test, which counts the
//! process's threads.

mod threads;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use samite::{Error, Rank};
use threads::{drivers, processor_time};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Awaits a future; returns its result and the number of its polls.
fn block_on<F: IntoFuture>(future: F) -> (F::Output, usize) {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut polls = 1;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return (output, polls),
            Poll::Pending => thread::park(),
        }
        polls += 1;
    }
}

#[test]
fn the_driver_lives_while_futures_wait_and_takes_little() {
    const WAIT: Duration = Duration::from_secs(10);
    samite::local(1, |world| {
        let me = Rank(0);
        let comm = world.comm();
        assert!(drivers().is_empty());
        // A future that has its result at once needs no thread.
        comm.send(&[1_u8], me, 1).unwrap();
        let (done, polls) = block_on(comm.irecv(vec![0_u8; 1], me, 1).unwrap());
        assert_eq!((done.unwrap().buffer, polls, drivers().len()), (vec![1], 1, 0));

        thread::scope(|threads| {
            let bounded = comm.with_timeout(WAIT);
            let before = processor_time();
            let waits = threads.spawn(move || block_on(bounded.irecv(vec![0_u8; 1], me, 1).unwrap()));
            let driver = loop {
                if let Some(driver) = drivers().pop() {
                    break driver;
                }
                thread::yield_now();
            };
            // SIGHUP, SIGINT, SIGTERM and SIGCHLD.
            for signal in [1, 2, 15, 17] {
                assert!(driver >> (signal - 1) & 1 == 1, "signal {signal} is blocked: {driver:x}");
            }
            let (end, polls) = waits.join().unwrap();
            let took = processor_time() - before;
            assert!(matches!(end.unwrap_err().error, Error::TimedOut { .. }));
            assert!(polls <= 3, "{polls}");
            assert!(took < WAIT / 100, "{took:?} of processor time");
        });
        while !drivers().is_empty() {
            thread::yield_now();
        }
        // The next future that waits starts another driver.
        thread::scope(|threads| {
            let waits = threads.spawn(|| block_on(comm.irecv(vec![0_u8; 1], me, 1).unwrap()).0);
            while drivers().is_empty() {
                thread::yield_now();
            }
            comm.send(&[2_u8], me, 1).unwrap();
            assert_eq!(waits.join().unwrap().unwrap().buffer, [2]);
        });
        let kept = comm.irecv(vec![0_u8; 1], me, 1).unwrap();
        thread::scope(|threads| {
            let waits = threads.spawn(|| block_on(kept).0);
            while drivers().is_empty() {
                thread::yield_now();
            }
            drop(world);
            assert!(matches!(waits.join().unwrap().unwrap_err().error, Error::Closed { .. }));
        });
    });
    while !drivers().is_empty() {
        thread::yield_now();
    }
}
