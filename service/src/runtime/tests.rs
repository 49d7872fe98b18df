//! Tests of runtimes that get notices of the launcher, and of the threads that a poll wakes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use samite_control::Progress;
use samite_fabric::Memory;
use samite_fabric::loopback::Hub;
use samite_os::alarm::Alarm;
use samite_p2p::{Config, Identity, Pattern, Sent};

use super::state::{Sleeper, Who};
use super::*;
use crate::error::Cause;
use crate::lanes::Addresses;
use crate::stack::engine;
use crate::watch::is_readable;

/// A directory whose notices the test provides.
#[derive(Clone, Default)]
struct Notices(Arc<Mutex<VecDeque<Notice>>>);

impl Directory for Notices {
    fn request_address(&mut self, _: u32) {}
    fn poll(&mut self) -> Option<Notice> {
        self.0.lock().unwrap().pop_front()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn leave(&mut self) {}
    fn panicked(&mut self) {}
}

/// Returns the runtime of the first rank of a job. It knows no other rank.
fn runtime<D: Directory + 'static>(size: u32, hub: &Hub, notices: D) -> Runtime<impl Port + use<D>> {
    let identity = identity(0, size);
    let mut engine = engine(hub.port(), identity.clone(), Config::default());
    let address = engine.port().address();
    engine.introduce(WorldRank(0), 7, address).unwrap();
    while engine.poll(Time::ZERO, &mut ()).unwrap() > 0 {}
    let place = Place { host: 0, hosts: 1, neighbours: 1, address: None };
    Runtime::new(engine, Box::new(notices), &identity, &place, Lane::ONLY, &Settings::default()).unwrap()
}

fn identity(rank: u32, size: u32) -> Identity {
    Identity { rank: WorldRank(rank), size, incarnation: 7, secret: [9; 16] }
}

/// Returns the runtime of rank 0 and the engine of rank 1. They know each other, and their packets are dear.
fn with_dear_packets() -> (Runtime<impl Port>, Engine<impl Port>) {
    let hub = Hub::new();
    let mut engines =
        [0, 1].map(|rank| engine(hub.port().with_dear_packets(), identity(rank, 2), Config::default()));
    let addresses = engines.each_ref().map(|engine| engine.port().address());
    for engine in &mut engines {
        for (rank, address) in (0..).zip(&addresses) {
            engine.introduce(WorldRank(rank), 7, address.clone()).unwrap();
        }
    }
    for _ in 0..10 {
        engines.iter_mut().for_each(|engine| _ = engine.poll(Time::ZERO, &mut ()).unwrap());
    }
    let [own, other] = engines;
    let place = Place { host: 0, hosts: 1, neighbours: 2, address: None };
    let (notices, settings) = (Box::new(Notices::default()), Settings::default());
    (Runtime::new(own, notices, &identity(0, 2), &place, Lane::ONLY, &settings).unwrap(), other)
}

/// A message may still arrive for a receive that has ended because the other ranks have given up this rank.
#[test]
fn a_rank_that_was_given_up_reports_each_end_once() {
    let notices = Notices::default();
    let runtime = runtime(1, &Hub::new(), notices.clone());
    let bounds = Bounds::default();
    let watcher = runtime.add_watcher();
    let receive = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        engine.irecv(now, Pattern::exact(1, 0, 5), Memory::zeroed(8), deadline).unwrap()
    });
    runtime.watch(receive, watcher, 3);
    notices.0.lock().unwrap().push_back(Notice::Condemned { why: "its host was lost".to_owned() });
    let end = runtime.finish(receive, &mut (), &bounds).unwrap();
    assert!(matches!(end.result, Err(Error::Condemned { .. })));
    runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        assert_eq!(engine.send(now, WorldRank(0), 1, 5, &[1; 8], deadline), Ok(Sent::Now));
        while engine.poll(now, &mut ()).unwrap() > 0 {}
        assert_eq!(engine.outcome(receive), Outcome::Ready);
    });
    assert!(runtime.take_end(watcher, &mut (), None).is_none());
}

/// The poll of a future may end the wait of another thread, which sleeps.
#[test]
fn the_poll_of_a_future_wakes_the_threads_for_which_it_had_events() {
    let runtime = Arc::new(runtime(1, &Hub::new(), Notices::default()));
    let bounds = Bounds::default();
    let awaited = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        assert_eq!(engine.send(now, WorldRank(0), 1, 6, &[1; 8], deadline), Ok(Sent::Now));
        engine.irecv(now, Pattern::exact(1, 0, 5), Memory::zeroed(8), deadline).unwrap()
    });
    runtime.core.lock().unwrap().sleeper =
        Some(Sleeper { until: Time::NEVER, is_roused: false, who: Who::Thread });
    let end = runtime.poll_end(awaited, &mut Entry::Nowhere, &bounds, Waker::noop());
    assert!(end.is_pending());
    assert!(runtime.core.lock().unwrap().sleeper.is_some_and(|sleeper| sleeper.is_roused));
    runtime.abandon();
}

/// Returns the incarnations of the members of a communicator in which rank 1 is this incarnation.
fn incarnations(incarnation: u32) -> Incarnations {
    [(WorldRank(1), incarnation)].into()
}

/// Communicators are created in the first lane, even if no thread uses the other lanes.
#[test]
fn a_restarted_rank_is_a_member_in_lanes_that_nobody_drove() {
    let notices = Notices::default();
    let hub = Hub::new();
    let runtime = runtime(2, &hub, notices.clone());
    let ports = [hub.port(), hub.port()];
    let address = |incarnation: u32| Notice::Address {
        rank: 1,
        incarnation,
        address: Addresses::encode([ports[incarnation as usize % 2].address()].into_iter()),
    };
    notices.0.lock().unwrap().push_back(address(5));
    runtime.drive(&mut ()).unwrap();
    let failed = Notice::Failed { rank: 1, incarnation: 5, how: "by a signal".to_owned(), returns: true };
    notices.0.lock().unwrap().extend([failed, address(6)]);
    let members = Group::range(WorldRank(0), 2);
    assert_eq!(runtime.open_contexts_here(2, &members, None, &incarnations(6)), Ok(true));
    runtime.core.lock().unwrap().ask = Time::ZERO;
    let found = runtime.look(|engine| engine.probe(&Pattern::exact(2, 1, 5)));
    assert!(matches!(found, Ok(None)), "{found:?}");
}

/// If a rank made the first contact with a lane, that lane learns the addresses of the rank's later incarnations only
/// if it requests them.
#[test]
fn a_restarted_rank_is_a_member_in_lanes_that_know_only_its_end() {
    let notices = Notices::default();
    let hub = Hub::new();
    let runtime = runtime(2, &hub, notices.clone());
    let address = Addresses::encode([hub.port().address()].into_iter());
    notices.0.lock().unwrap().push_back(Notice::Address { rank: 1, incarnation: 5, address });
    runtime.drive(&mut ()).unwrap();
    let failed = Notice::Failed { rank: 1, incarnation: 5, how: "by a signal".to_owned(), returns: true };
    notices.0.lock().unwrap().push_back(failed);
    let members = Group::range(WorldRank(0), 2);
    assert_eq!(runtime.open_contexts_here(2, &members, None, &incarnations(5)), Ok(true));
    runtime.core.lock().unwrap().ask = Time::ZERO;
    let gone = runtime.look(|engine| engine.probe(&Pattern::exact(2, 1, 5)));
    assert!(matches!(gone, Err(Error::PeerFailed { .. })), "{gone:?}");
    assert_eq!(runtime.open_contexts_here(4, &members, None, &incarnations(6)), Ok(true));
    let found = runtime.look(|engine| engine.probe(&Pattern::exact(4, 1, 5)));
    assert!(matches!(found, Ok(None)), "{found:?}");
}

/// A waker that sends to a channel.
struct Told(std::sync::mpsc::SyncSender<()>);

impl std::task::Wake for Told {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_send(());
    }
}

/// If a future were not polled again, the driver would find the same error forever.
#[test]
fn the_driver_ends_with_an_error_that_lasts() {
    let notices = Notices::default();
    let runtime = Arc::new(runtime(1, &Hub::new(), notices.clone()));
    let bounds = Bounds::default();
    let awaited = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        engine.irecv(now, Pattern::exact(1, 0, 5), Memory::zeroed(8), deadline).unwrap()
    });
    let (sender, told) = std::sync::mpsc::sync_channel(1);
    let mut entry = Entry::Nowhere;
    assert!(runtime.poll_end(awaited, &mut entry, &bounds, &Arc::new(Told(sender)).into()).is_pending());
    notices.0.lock().unwrap().push_back(Notice::Condemned { why: "its host was lost".to_owned() });
    told.recv().unwrap();
    // The driver thread holds the second reference until it ends.
    while Arc::strong_count(&runtime) > 1 {
        std::thread::yield_now();
    }
    // A poll returns the error after the next look at the notices, which is not made in every poll.
    let end = std::iter::from_fn(|| Some(runtime.poll_end(awaited, &mut entry, &bounds, Waker::noop())));
    let end = end.into_iter().find(Poll::is_ready);
    assert!(matches!(end, Some(Poll::Ready(Some(Completion { result: Err(Error::Condemned { .. }), .. })))));
}

/// A directory with a descriptor that is readable while the alarm rings, like the connection to a launcher.
struct Rung(Notices, Arc<Alarm>);

impl Directory for Rung {
    fn request_address(&mut self, _: u32) {}
    fn poll(&mut self) -> Option<Notice> {
        self.1.silence();
        self.0.poll()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
    fn leave(&mut self) {}
    fn panicked(&mut self) {}
}

/// The launcher's report that a process was killed makes the descriptor readable.
#[test]
fn the_program_is_told_that_a_peer_was_killed() {
    let (notices, alarm) = (Notices::default(), Arc::new(Alarm::new().unwrap()));
    let hub = Hub::new();
    let runtime = Arc::new(runtime(2, &hub, Rung(notices.clone(), Arc::clone(&alarm))));
    let bounds = Bounds::default();
    let peer = hub.port();
    let address = Addresses::encode([peer.address()].into_iter());
    notices.0.lock().unwrap().push_back(Notice::Address { rank: 1, incarnation: 5, address });
    runtime.drive(&mut ()).unwrap();
    let awaited = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        engine.irecv(now, Pattern::exact(1, 1, 5), Memory::zeroed(8), deadline).unwrap()
    });
    let bell = runtime.lend_driver().unwrap();
    let (sender, told) = std::sync::mpsc::sync_channel(1);
    let (mut entry, waker) = (Entry::Nowhere, Arc::new(Told(sender)).into());
    assert!(runtime.poll_end(awaited, &mut entry, &bounds, &waker).is_pending());
    assert!(is_readable(&bell), "it was made just now");
    runtime.drive_for_program(&bell).unwrap();
    let how = "by SIGKILL".to_owned();
    notices.0.lock().unwrap().push_back(Notice::Failed { rank: 1, incarnation: 5, how, returns: false });
    alarm.ring();
    assert!(is_readable(&bell));
    runtime.drive_for_program(&bell).unwrap();
    told.try_recv().unwrap();
    let end = runtime.poll_end(awaited, &mut entry, &bounds, &waker);
    let Poll::Ready(Some(Completion { result: Err(error), .. })) = end else { panic!("it ends") };
    assert!(matches!(error, Error::PeerFailed { cause: crate::Cause::Died(_), .. }), "{error}");
}

/// An error that lasts must neither keep the program busy nor leave it asleep.
#[test]
fn an_error_wakes_the_futures_and_then_the_program() {
    let notices = Notices::default();
    let runtime = Arc::new(runtime(1, &Hub::new(), notices.clone()));
    let bell = runtime.lend_driver().unwrap();
    notices.0.lock().unwrap().push_back(Notice::Condemned { why: "its host was lost".to_owned() });
    assert!(matches!(runtime.drive_for_program(&bell), Err(Error::Condemned { .. })));
    // A timer makes the descriptor readable.
    while !is_readable(&bell) {
        std::thread::yield_now();
    }
    assert!(matches!(runtime.drive_for_program(&bell), Err(Error::Condemned { .. })));
    assert!(!is_readable(&bell));
}

/// A directory that reports at its third poll that rank 1 was killed.
struct Late(u32);

impl Directory for Late {
    fn request_address(&mut self, _: u32) {}
    fn poll(&mut self) -> Option<Notice> {
        self.0 += 1;
        let failed =
            || Notice::Failed { rank: 1, incarnation: 5, how: "by SIGABRT".to_owned(), returns: false };
        (self.0 == 3).then(failed)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn tells_ends(&self) -> bool {
        true
    }
    fn leave(&mut self) {}
    fn panicked(&mut self) {}
}

/// In a creation a rank may learn of a failure from another rank, which has noticed the loss of a connection, before
/// the launcher's report has arrived.
#[test]
fn a_failure_that_another_rank_has_noticed_gets_the_cause_of_the_launcher() {
    let runtime = runtime(3, &Hub::new(), Late(0));
    let (rank, fate) = (Rank(1), Fate::NotDelivered);
    let lost = Error::PeerFailed { rank, world_rank: rank, cause: Cause::Lost, fate, report: None };
    let error = runtime.explain(lost, &Bounds::default());
    let Error::PeerFailed { cause: Cause::Died(how), .. } = error else { panic!("{error}") };
    assert_eq!(how, "by SIGABRT");
    runtime.abandon();
}

/// If no thread can be started, the message makes progress in calls.
#[test]
fn a_thread_for_long_messages_that_cannot_be_started_is_counted() {
    let runtime = runtime(1, &Hub::new(), Notices::default());
    let refuse = |_| Err(std::io::ErrorKind::WouldBlock.into());
    assert!(runtime.background.set(Box::new(refuse)).is_ok());
    runtime.core.lock().unwrap().background = Background::new(Progress::Needed);
    let bounds = Bounds::default();
    let receive = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        engine.irecv(now, Pattern::exact(1, 0, 5), Memory::zeroed(1 << 20), deadline).unwrap()
    });
    assert_eq!(runtime.stats().threads_refused, 1);
    let long = Memory::zeroed(1 << 20);
    let send = runtime
        .enter(&bounds)
        .unwrap()
        .start(|engine, now, deadline| engine.isend(now, WorldRank(0), 1, 5, long, deadline).unwrap());
    for id in [receive, send] {
        assert!(runtime.finish(id, &mut (), &bounds).unwrap().result.is_ok());
    }
    assert!(runtime.stats().threads_refused > 1, "each call that returns tries again");
    runtime.abandon();
}

/// Without a thread nothing would send gathered messages while the program computes. So they leave at once, and are
/// gathered again when a thread was started for another operation.
#[test]
fn messages_are_gathered_again_when_a_thread_starts_that_was_refused_before() {
    let (runtime, mut peer) = with_dear_packets();
    let is_refused = Arc::new(AtomicBool::new(true));
    let refused = Arc::clone(&is_refused);
    let start = move |_| match refused.load(Ordering::Relaxed) {
        true => Err(std::io::ErrorKind::WouldBlock.into()),
        false => Ok(()),
    };
    assert!(runtime.background.set(Box::new(start)).is_ok());
    let bounds = Bounds::default();
    let sent = Cell::new(0);
    // Sends a message, and returns the number of gathered bytes.
    let send = || {
        runtime.send(WorldRank(1), 1, 5, [1_u8; 8].as_slice(), &bounds).unwrap();
        sent.set(sent.get() + 1);
        runtime.core.lock().unwrap().engine.usage().gathered
    };
    // The peer acknowledges nothing, so one of the first messages is gathered.
    assert!((0..200).any(|_| {
        assert_eq!(send(), 0);
        runtime.stats().threads_refused == 1
    }));
    for _ in 0..200 {
        assert_eq!(send(), 0);
    }
    assert_eq!(runtime.stats().threads_refused, 1, "short messages do not need the thread any more");
    while peer.poll(Time::ZERO, &mut ()).unwrap() > 0 {}
    assert_eq!(peer.usage().unexpected_messages, sent.get(), "no message waits for a thread");

    is_refused.store(false, Ordering::Relaxed);
    let receive = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        engine.irecv(now, Pattern::exact(1, 1, 5), Memory::zeroed(1 << 20), deadline).unwrap()
    });
    assert!((0..200).any(|_| send() > 0), "messages are gathered again");
    assert_eq!(runtime.stats().threads_refused, 1);
    runtime.forget(receive);
    runtime.abandon();
}
