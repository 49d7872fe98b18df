//! Every public call in every situation in which it might wait for ever: each must end within its bound, with a
//! permitted result. The calls are a table (`table.rs`), which a test compares with the public API.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

mod table;
mod windows;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};
use samite::{Comm, Error, Rank, WindowError, World};
use samite_os::fork::in_a_child;

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};
use crate::support::text;
use crate::table::{CALLS, Call, GIVEN, Kind, NEVER, OF_WORLD, PEER, Rest, Situation};

#[path = "../launch/ranks.rs"]
mod ranks;
#[path = "../launch/support.rs"]
#[expect(dead_code, reason = "some of it only the tests of launching need")]
mod support;

/// The time-out of calls whose peer is stopped.
const BOUND: Duration = Duration::from_millis(300);

/// The time within which a call must end if it must not wait, or has nothing to wait for any more. In this time the
/// launcher's report of an end reaches all calls of the table, even if they wait in threads of one process on a busy
/// machine.
const SOON: Duration = Duration::from_secs(5);

/// The tag of messages by which the ranks of a test say that they are ready or done.
const READY: u64 = 100;
/// The tag of messages by which rank 0 lets the peer continue.
const GO: u64 = 101;

#[test]
fn the_table_has_all_public_calls() {
    let api = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/api/samite.txt");
    let api = std::fs::read_to_string(api).unwrap();
    let mut offered = BTreeSet::new();
    for line in api.lines() {
        for owner in [
            "Comm",
            "Scope",
            "Request",
            "RequestFuture",
            "RequestSet",
            "Exchange",
            "PersistentSend",
            "PersistentRecv",
            "PersistentCollective",
            "PartitionedSend",
            "PartitionedRecv",
            "Part",
            "PendingSet",
            "Message",
            "World",
            "CancelToken",
            "Creation",
            "ValueRequest",
            "ValueFuture",
            "Window",
            "Epoch",
        ] {
            let Some(at) = line.find(&format!("fn samite::{owner}")) else { continue };
            // Generics, the method and its arguments follow in the line.
            let rest = &line[at + "fn samite::".len() + owner.len()..];
            let Some((generics, method)) = split_generics(rest) else { continue };
            let method: String = method.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // Methods of traits are not in the table. They have these names.
            if (generics.is_empty() || generics.starts_with('<'))
                && !["drop", "fmt", "clone", "default", "poll", "deref", "deref_mut"]
                    .contains(&method.as_str())
            {
                offered.insert(format!("{owner}::{method}"));
            }
        }
    }
    let first = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
    let names = CALLS.iter().map(|call| call.name).chain(OF_WORLD.iter().copied());
    let tested: BTreeSet<String> = names.map(first).collect();
    assert!(offered.len() > 20, "{offered:?}");
    let missing: Vec<_> = offered.symmetric_difference(&tested).collect();
    assert!(missing.is_empty(), "in one of ci/api/samite.txt and the table only: {missing:?}");
}

/// Splits the text behind the name of a type into its generics and the method.
fn split_generics(text: &str) -> Option<(&str, &str)> {
    // The generics may contain paths.
    let end = if text.starts_with('<') { text.find(">::")? + 1 } else { 0 };
    let method = end + text[end..].find("::")?;
    Some((&text[..method], &text[method + 2..]))
}

/// The result of a call.
struct End {
    name: &'static str,
    kind: Kind,
    result: Result<(), Error>,
    begun: Instant,
    ended: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn now() -> Instant {
    Instant::now()
}

fn run(call: &Call, rest: Rest) -> End {
    let begun = now();
    let result = rest();
    End { name: call.name, kind: call.kind, result, begun, ended: now() }
}

impl End {
    fn check(&self, situation: Situation) {
        let Self { name, kind, result, begun, ended } = self;
        let took = ended.saturating_duration_since(*begun);
        assert!(kind.allows(situation, result), "{name}, {situation:?}: ended with {result:?}");
        assert!(took < SOON, "{name}, {situation:?}: took {took:?}");
    }
}

/// Runs every call in its own thread while `event` happens, and every call once more after it.
fn in_threads(comm: &Comm, situation: Situation, event: impl FnOnce()) {
    let (begun, (sender, ends)) = (AtomicUsize::new(0), channel());
    thread::scope(|threads| {
        for call in CALLS {
            let rest = (call.begin)(comm);
            let (begun, sender): (_, Sender<End>) = (&begun, sender.clone());
            threads.spawn(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                let _ = sender.send(run(call, rest));
            });
        }
        drop(sender);
        while begun.load(Ordering::Relaxed) < CALLS.len() {
            thread::yield_now();
        }
        event();
        // For calls that wait for the event, measure the time from here and not from the start of the threads, which
        // takes long on a busy machine.
        let happened = now();
        let mut waiting: BTreeSet<_> = CALLS.iter().map(|call| call.name).collect();
        loop {
            match ends.recv_timeout(SOON) {
                Ok(end) => {
                    let end = End { begun: end.begun.max(happened), ..end };
                    waiting.remove(end.name);
                    // The call may have ended before the event.
                    if matches!(end.kind, Kind::Waits) || !end.kind.allows(Situation::Alive, &end.result) {
                        end.check(situation);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // End the process, because a return from here would wait for the threads.
                    println!("\n{situation:?}: these do not end: {waiting:?}");
                    std::process::exit(1);
                }
            }
        }
        assert!(waiting.is_empty(), "{waiting:?}");
    });
    for call in CALLS {
        run(call, (call.begin)(comm)).check(situation);
    }
}

/// Starts the sends whose messages rank 0 claims, then calls `end` when rank 0 asks for it.
fn play_peer(world: World, end: impl FnOnce(World)) {
    let patient = world.comm().with_timeout(PATIENCE);
    patient.send(&[getpid().as_raw_pid()], Rank(0), READY).unwrap();
    // Each call runs twice, during the event and after the event, and needs a message each time.
    let given: Vec<_> =
        (0..2 * CALLS.len()).map(|_| world.comm().isend(vec![1_u8; 1 << 20], Rank(0), GIVEN)).collect();
    patient.recv(&mut [0_u8], Rank(0), GO).unwrap();
    end(world);
    drop(given);
}

fn with_processes(name: &str, situation: Situation, end: impl FnOnce(World)) {
    if !is_rank() {
        thread::scope(|jobs| {
            for transport in TRANSPORTS {
                jobs.spawn(move || {
                    // If the peer is stopped, each call takes the whole time-out.
                    let seconds = 20 + (2 * BOUND * CALLS.len() as u32).as_secs();
                    let arguments = format!("-n 2 --on-failure continue --timeout {seconds} {transport}");
                    let output = job_of_test(name, &arguments).output();
                    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
                    assert!(stdout.contains("all ended"), "{transport}: {stdout}{stderr}");
                });
            }
        });
        return;
    }
    let world = samite::init().unwrap();
    if world.comm().rank() == PEER {
        return play_peer(world, end);
    }
    let mut pid = [0];
    world.comm().with_timeout(PATIENCE).recv(&mut pid, PEER, READY).unwrap();
    let comm = match situation {
        Situation::Stopped => world.comm().with_timeout(BOUND),
        _ => world.comm().clone(),
    };
    let _killed = (situation == Situation::Stopped).then(|| Killed(Pid::from_raw(pid[0]).unwrap()));
    in_threads(&comm, situation, || {
        world.comm().send(&[1_u8], PEER, GO).unwrap();
        // On a busy machine the peer still serves calls for longer than their time-out.
        while situation == Situation::Stopped && !is_stopped(pid[0]) {
            thread::yield_now();
        }
    });
    println!("\nall ended");
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: i32) -> bool {
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.all(|task| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    })
}

/// A stopped process that is killed at the end, since the job would wait for it.
struct Killed(Pid);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Sends a signal to this process, and never returns. If it returned before the signal takes effect, the rank could
/// leave in good order.
fn signal_itself(_world: &World, signal: Signal) {
    kill_process(getpid(), signal).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn the_peer_dies() {
    with_processes("the_peer_dies", Situation::Dead, |world| signal_itself(&world, Signal::KILL));
}

#[test]
fn the_peer_leaves() {
    // The result is ignored: `leave` reports messages that rank 0, which is in no call then, has not taken.
    with_processes("the_peer_leaves", Situation::Left, |world| drop(world.leave()));
}

#[test]
fn the_peer_is_stopped() {
    with_processes("the_peer_is_stopped", Situation::Stopped, |world| signal_itself(&world, Signal::STOP));
}

#[test]
fn in_a_child_of_fork() {
    if !is_rank() {
        for transport in TRANSPORTS {
            output_of(job_of_test("in_a_child_of_fork", &format!("-n 2 --timeout 50 {transport}")));
        }
        return;
    }
    let world = samite::init().unwrap();
    let comm = world.comm();
    let patient = comm.with_timeout(PATIENCE);
    patient
        .sendrecv(&[1_u8], Rank(1 - comm.rank().0), READY, &mut [0_u8], Rank(1 - comm.rank().0), READY)
        .unwrap();
    if comm.rank() == 0 {
        let is_refused = in_a_child(|| {
            for call in CALLS {
                run(call, (call.begin)(comm)).check(Situation::Forked);
            }
            true
        });
        assert!(is_refused.unwrap());
    }
    patient
        .sendrecv(&[1_u8], Rank(1 - comm.rank().0), READY, &mut [0_u8], Rank(1 - comm.rank().0), READY)
        .unwrap();
}

/// Runs every call on rank 0 while rank 0 ends its World by `end`. The peer stays and polls.
fn ended_by(end: impl Fn(World) + Sync) {
    let is_over = AtomicBool::new(false);
    samite::local(2, |world| {
        if world.comm().rank() == PEER {
            return play_peer(world, |world| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = world.comm().try_probe(Rank(0), NEVER);
                }
            });
        }
        let comm = world.comm().clone();
        comm.recv(&mut [0_i32], PEER, READY).unwrap();
        comm.send(&[1_u8], PEER, GO).unwrap();
        let _over = Over(&is_over);
        in_threads(&comm, Situation::Closed, || end(world));
    });
}

/// Sets the flag when a test ends, also if it ends by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_world_is_dropped() {
    ended_by(drop);
}

#[test]
fn the_world_is_left() {
    ended_by(|world| match world.leave() {
        Ok(()) => {}
        // Calls of the table have dropped windows that the peer does not have.
        Err(Error::Window(why)) => assert!(matches!(*why, WindowError::TimedOut { .. }), "{why}"),
        Err(error) => panic!("{error}"),
    });
}

/// Runs one call after the other on rank 0, while the peer does its part of each. `around` is called on rank 0 with a
/// function that runs the calls, and has an operation of its own under way meanwhile.
fn served(around: impl Fn(&Comm, &(dyn Fn() + Sync)) + Sync) {
    samite::local(2, |world| {
        let comm = world.comm();
        if comm.rank() == PEER {
            for call in CALLS.iter().filter(|call| call.can_succeed()) {
                (call.partner)(comm).unwrap_or_else(|error| panic!("{}: {error}", call.name));
                comm.recv(&mut [0_u8], Rank(0), GO).unwrap();
            }
            // This message ends the operations that are under way around the calls.
            return comm.send(&[1_u8], Rank(0), READY).unwrap();
        }
        around(comm, &|| {
            for call in CALLS.iter().filter(|call| call.can_succeed()) {
                run(call, (call.begin)(comm)).check(Situation::Alive);
                comm.send(&[1_u8], PEER, GO).unwrap();
            }
        });
    });
}

#[test]
fn another_thread_drives() {
    served(|world, calls| {
        thread::scope(|threads| {
            let drives = threads.spawn(|| world.recv(&mut [0_u8], PEER, READY));
            calls();
            drives.join().unwrap().unwrap();
        });
    });
}

#[test]
fn in_a_scope() {
    served(|world, calls| {
        let mut buffer = [0_u8];
        world
            .scope(|scope| {
                let posted = scope.irecv(&mut buffer, PEER, READY)?;
                calls();
                scope.wait(posted)
            })
            .unwrap();
    });
}

/// A second World has an operation under way too, and the peer of that World is gone.
#[test]
fn beside_another_world() {
    served(|world, calls| {
        let ends = samite::local(2, |other| {
            if other.comm().rank() == PEER {
                return Ok(());
            }
            let posted = other.comm().irecv(vec![0_u8], PEER, NEVER).map_err(Error::from);
            calls();
            Ok(posted?.wait().map(drop)?)
        });
        assert!(matches!(ends[0], Err(Error::PeerFailed { rank: PEER, .. })), "{ends:?}");
        world.recv(&mut [0_u8], PEER, READY).unwrap();
    });
}
