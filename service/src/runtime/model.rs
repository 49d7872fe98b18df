//! A model of the futures, the long messages and their driver. Loom runs it through every interleaving with a limited
//! number of preemptions. It is the code of the runtime, with the lock and the threads of loom ([`sync`](self::sync)).
//! Time stands still, and no time-out ends a sleep. Only a timer that is set to less than a millisecond ends it, at
//! once. So a lost wake-up is a deadlock, or a thread that looks at its descriptor without end. Loom reports both.

pub(super) mod sync;

use std::task::{Wake, Waker};

use loom::sync::Mutex;
use loom::thread::{JoinHandle, yield_now};
use samite_control::Progress;
use samite_fabric::Memory;
use samite_fabric::loopback::{Hub, Loopback};
use samite_p2p::{Config, Identity, Pattern, Sent};

use super::sync::{await_change, await_state, tell_change};
use super::*;
use crate::stack::engine;
use crate::watch::{Bell, is_readable};

/// The only rank of a job: its runtime, and the threads that use it.
#[derive(Clone)]
struct Rank0(Arc<Runtime<Loopback>>, Arc<std::sync::Mutex<Vec<JoinHandle<()>>>>);

/// A waker that records that it was called, for the thread that polls the future.
#[derive(Debug)]
struct Told(Mutex<bool>);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        tell_change();
    }
}

impl Told {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(false)))
    }

    fn is_told(&self) -> bool {
        *self.0.lock().unwrap()
    }

    fn take(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn wait(&self) {
        await_change(|| self.take());
    }
}

impl Rank0 {
    fn new() -> Self {
        let identity = Identity { rank: WorldRank(0), size: 1, incarnation: 7, secret: [9; 16] };
        let mut config = Config::default();
        config.overlap_min = LONG;
        let mut engine = engine(Hub::new().port(), identity.clone(), config);
        let address = engine.port().address();
        engine.introduce(WorldRank(0), 7, address).unwrap();
        while engine.poll(Time::ZERO, &mut ()).unwrap() > 0 {}
        let place = Place { host: 0, hosts: 1, neighbours: 1, address: None };
        let lane = Lane::ONLY;
        let mut settings = Settings::default();
        settings.progress = Progress::Needed;
        let runtime = Runtime::new(engine, Box::new(Silent), &identity, &place, lane, &settings);
        let runtime = Arc::new(runtime.unwrap());
        runtime.permit_background();
        Self(runtime, Arc::default())
    }

    /// Starts a thread that ends before the runtime is closed.
    fn start(&self, run: impl FnOnce(Self) + Send + 'static) {
        let rank = self.clone();
        let thread = sync::start(move || run(rank));
        self.1.lock().unwrap().push(thread);
    }

    /// Starts a receive of a short message. The driver makes no progress for it between calls.
    fn irecv(&self, tag: u64) -> RequestId {
        self.irecv_of(tag, 8)
    }

    /// Starts a receive whose message may be long, so the driver makes progress for it between calls.
    fn irecv_long(&self, tag: u64) -> RequestId {
        self.irecv_of(tag, LONG)
    }

    fn irecv_of(&self, tag: u64, len: usize) -> RequestId {
        self.0.enter(&Bounds::default()).unwrap().start(|engine, now, deadline| {
            engine.irecv(now, Pattern::exact(1, 0, tag), Memory::zeroed(len), deadline).unwrap()
        })
    }

    fn wait(&self, id: RequestId) {
        assert!(self.0.finish(id, &mut (), &Bounds::default()).unwrap().result.is_ok());
    }

    /// Computes, without a call, until no long message is under way.
    fn compute(&self) {
        await_state(|| self.0.core.look(|core| !core.engine.needs_progress()));
    }

    /// Sends a message from this rank to itself, without a further poll.
    fn send(&self, tag: u64) {
        self.0.enter(&Bounds::default()).unwrap().start(|engine, now, deadline| {
            assert_eq!(engine.send(now, WorldRank(0), 1, tag, &[1; 8], deadline), Ok(Sent::Now));
        });
    }

    fn poll(
        &self,
        id: RequestId,
        entry: &mut Entry,
        bounds: &Bounds,
        told: &Arc<Told>,
    ) -> Option<Result<(), Error>> {
        match self.0.poll_end(id, entry, bounds, &Waker::from(told.clone())) {
            Poll::Ready(end) => Some(end.unwrap().result.map(drop)),
            Poll::Pending => None,
        }
    }

    /// Awaits a request on an executor of one thread.
    fn block_on(&self, id: RequestId, bounds: &Bounds) -> Result<(), Error> {
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        loop {
            if let Some(end) = self.poll(id, &mut entry, bounds, &told) {
                return end;
            }
            told.wait();
        }
    }

    /// Awaits a request on an executor of one thread, which also drives.
    fn block_on_and_drive(&self, id: RequestId, bell: &Bell) -> Result<(), Error> {
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        loop {
            if let Some(end) = self.poll(id, &mut entry, &Bounds::default(), &told) {
                return end;
            }
            self.drive_until(bell, &told);
        }
    }

    /// Drives when the descriptor is readable, until the future can continue.
    fn drive_until(&self, bell: &Bell, told: &Told) {
        while !told.take() {
            await_change(|| told.is_told() || is_readable(bell));
            self.0.drive_for_program(bell).unwrap();
            // The descriptor stays readable until a thread that is about to wake up resets the runtime's alarm.
            yield_now();
        }
    }
}

/// The shortest length of a buffer whose message may be long.
const LONG: usize = 16;

/// Checks `run`, and then closes the runtime. Without the close, a driver thread whose last future was polled again
/// would sleep until some time has passed, and in a model time stands still.
fn check(preemptions: usize, run: impl Fn(&Rank0) + Copy + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        sync::begin();
        let all = move || {
            let rank = Rank0::new();
            run(&rank);
            let threads = std::mem::take(&mut *rank.1.lock().unwrap());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            rank.0.abandon();
        };
        sync::start(all).join().unwrap();
    });
}

#[test]
fn a_future_is_woken_by_a_message_that_comes_at_any_time() {
    check(3, |rank| {
        let id = rank.irecv(0);
        rank.start(|rank| rank.send(0));
        assert_eq!(rank.block_on(id, &Bounds::default()), Ok(()));
    });
}

/// The second future may get the key that the dropped future had.
#[test]
fn a_future_that_is_dropped_takes_no_wake_up_from_another() {
    check(2, |rank| {
        let dropped = rank.irecv(0);
        rank.start(|rank| {
            rank.send(0);
            rank.send(1);
        });
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        let end = rank.poll(dropped, &mut entry, &Bounds::default(), &told);
        rank.0.end_task(&mut entry);
        if end.is_none() {
            let kept = rank.irecv(1);
            let (told, mut entry) = (Told::new(), Entry::Nowhere);
            let mut end = rank.poll(kept, &mut entry, &Bounds::default(), &told);
            rank.0.forget(dropped);
            while end.is_none() {
                told.wait();
                end = rank.poll(kept, &mut entry, &Bounds::default(), &told);
            }
            assert_eq!(end, Some(Ok(())));
        }
    });
}

#[test]
fn a_future_is_woken_by_its_cancel() {
    check(2, |rank| {
        let id = rank.irecv(0);
        let cancel = CancelToken::new();
        let bounds = Bounds { cancel: Some(cancel.clone()), ..Bounds::default() };
        rank.start(move |_| cancel.cancel());
        assert!(matches!(rank.block_on(id, &bounds), Err(Error::Cancelled { .. })));
    });
}

#[test]
fn a_future_is_woken_by_the_end_of_its_world() {
    check(3, |rank| {
        let id = rank.irecv(0);
        rank.start(|rank| rank.0.abandon());
        assert!(matches!(rank.block_on(id, &Bounds::default()), Err(Error::Closed { .. })));
    });
}

/// The driver of the first future may be about to end when the second future waits.
#[test]
fn a_future_that_comes_while_the_driver_ends_is_woken() {
    check(2, |rank| {
        let ids = [0, 1].map(|tag| rank.irecv(tag));
        rank.start(|rank| {
            rank.send(0);
            rank.send(1);
        });
        for id in ids {
            assert_eq!(rank.block_on(id, &Bounds::default()), Ok(()));
        }
    });
}

/// The waiting thread sleeps on the descriptors in the driver's place, or takes the events that end the future's wait.
#[test]
fn a_thread_that_waits_takes_no_wake_up_from_a_future() {
    check(1, |rank| {
        let (awaited, waited) = (rank.irecv(0), rank.irecv(1));
        rank.start(move |rank| {
            assert!(rank.0.finish(waited, &mut (), &Bounds::default()).unwrap().result.is_ok());
        });
        rank.start(|rank| {
            rank.send(0);
            rank.send(1);
        });
        assert_eq!(rank.block_on(awaited, &Bounds::default()), Ok(()));
    });
}

#[test]
fn the_program_drives() {
    check(4, |rank| {
        let bell = rank.0.lend_driver().unwrap();
        let id = rank.irecv(0);
        rank.start(|rank| rank.send(0));
        assert_eq!(rank.block_on_and_drive(id, &bell), Ok(()));
        rank.0.take_driver_back();
    });
}

/// The waiting thread sleeps on the descriptors in the program's place, which may never drive again.
#[test]
fn the_program_and_a_thread_that_waits_both_end() {
    check(2, |rank| {
        let bell = rank.0.lend_driver().unwrap();
        let (awaited, waited) = (rank.irecv(0), rank.irecv(1));
        rank.start(|rank| {
            rank.send(0);
            rank.send(1);
        });
        rank.start(move |rank| {
            assert!(rank.0.finish(waited, &mut (), &Bounds::default()).unwrap().result.is_ok());
        });
        assert_eq!(rank.block_on_and_drive(awaited, &bell), Ok(()));
    });
}

#[test]
fn a_program_that_does_not_drive_holds_up_no_thread() {
    check(4, |rank| {
        let bell = rank.0.lend_driver().unwrap();
        let waited = rank.irecv(1);
        rank.0.drive_for_program(&bell).unwrap();
        rank.start(|rank| rank.send(1));
        assert!(rank.0.finish(waited, &mut (), &Bounds::default()).unwrap().result.is_ok());
    });
}

#[test]
fn the_program_takes_over_from_a_thread() {
    check(2, |rank| {
        let id = rank.irecv(0);
        rank.start(|rank| rank.send(0));
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        if rank.poll(id, &mut entry, &Bounds::default(), &told).is_none() {
            let bell = rank.0.lend_driver().unwrap();
            rank.drive_until(&bell, &told);
            assert_eq!(rank.poll(id, &mut entry, &Bounds::default(), &told), Some(Ok(())));
        }
    });
}

#[test]
fn a_thread_takes_over_from_the_program() {
    check(2, |rank| {
        let bell = rank.0.lend_driver().unwrap();
        let id = rank.irecv(0);
        rank.start(|rank| rank.send(0));
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        if rank.poll(id, &mut entry, &Bounds::default(), &told).is_none() {
            rank.0.drive_for_program(&bell).unwrap();
            rank.0.take_driver_back();
            told.wait();
            assert_eq!(rank.poll(id, &mut entry, &Bounds::default(), &told), Some(Ok(())));
        }
    });
}

#[test]
fn the_program_is_told_of_the_end_of_its_world() {
    check(3, |rank| {
        let bell = rank.0.lend_driver().unwrap();
        rank.start(|rank| rank.0.abandon());
        let end = loop {
            await_change(|| is_readable(&bell));
            if let Err(error) = rank.0.drive_for_program(&bell) {
                break error;
            }
        };
        assert!(matches!(end, Error::Closed { .. }));
    });
}

#[test]
fn the_program_is_told_of_a_cancel() {
    check(3, |rank| {
        let bell = rank.0.lend_driver().unwrap();
        let cancel = CancelToken::new();
        let bounds = Bounds { cancel: Some(cancel.clone()), ..Bounds::default() };
        let id = rank.irecv(0);
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        rank.start(move |_| cancel.cancel());
        let end = loop {
            if let Some(end) = rank.poll(id, &mut entry, &bounds, &told) {
                break end;
            }
            rank.drive_until(&bell, &told);
        };
        assert!(matches!(end, Err(Error::Cancelled { .. })));
    });
}

#[test]
fn a_long_message_travels_while_the_program_computes() {
    check(3, |rank| {
        rank.irecv_long(0);
        rank.start(|rank| rank.send(0));
        rank.compute();
    });
}

/// When the second receive starts, the driver may pause, or may be about to pause or to become idle.
#[test]
fn two_long_messages_travel_while_the_program_computes() {
    check(2, |rank| {
        rank.start(|rank| {
            rank.send(0);
            rank.send(1);
        });
        for tag in [0, 1] {
            rank.irecv_long(tag);
            rank.compute();
        }
    });
}

/// The long message may arrive before, during or after the wait. During the wait the waiting thread makes the progress
/// itself.
#[test]
fn a_long_message_travels_after_a_wait_for_another_message() {
    for tags in [[0, 1], [1, 0]] {
        check(2, move |rank| {
            rank.irecv_long(0);
            let waited = rank.irecv(1);
            rank.start(move |rank| tags.into_iter().for_each(|tag| rank.send(tag)));
            rank.wait(waited);
            rank.compute();
        });
    }
}

#[test]
fn a_future_that_comes_while_the_driver_rests_is_woken() {
    check(2, |rank| {
        rank.irecv_long(1);
        let id = rank.irecv(0);
        rank.start(|rank| rank.send(0));
        assert_eq!(rank.block_on(id, &Bounds::default()), Ok(()));
    });
}

/// The future ends the sleep of the driver, and the wait prolongs it. If the wait comes just after the future, the
/// sleep must still end. When the wait ends, the long message has arrived, so nothing else wakes the driver.
#[test]
fn a_wait_takes_no_call_from_a_future() {
    check(2, |rank| {
        rank.irecv_long(2);
        let (awaited, waited) = (rank.irecv(0), rank.irecv(1));
        let (told, mut entry) = (Told::new(), Entry::Nowhere);
        assert!(rank.poll(awaited, &mut entry, &Bounds::default(), &told).is_none());
        rank.start(|rank| [2, 1].into_iter().for_each(|tag| rank.send(tag)));
        rank.wait(waited);
        rank.send(0);
        told.wait();
        assert_eq!(rank.poll(awaited, &mut entry, &Bounds::default(), &told), Some(Ok(())));
    });
}

/// The former driver thread may still sleep when the next driver thread starts.
#[test]
fn a_thread_makes_progress_after_the_program_was_the_driver() {
    check(2, |rank| {
        rank.irecv_long(0);
        let bell = rank.0.lend_driver().unwrap();
        rank.start(|rank| rank.send(0));
        rank.0.drive_for_program(&bell).unwrap();
        rank.0.take_driver_back();
        rank.compute();
    });
}

#[test]
fn a_driver_that_rests_ends_with_its_world() {
    check(3, |rank| {
        rank.irecv_long(0);
        rank.start(|rank| rank.0.abandon());
    });
}
