//! Short sends return before their receiver makes a call, and a rank that leaves waits until their messages are taken.

#![expect(clippy::print_stdout, reason = "ranks report their results to their test")]

use std::path::{Path, PathBuf};
use std::process::abort;
use std::time::{Duration, Instant};

use samite::{BUFFERED_OVERHEAD, Comm, Error, Fate, Rank, World};

use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test};
use crate::support::{Scratch, text};

const TAG: u64 = 7;
const SHORT: usize = 100;

#[expect(clippy::disallowed_methods, reason = "the test tells its ranks the file by the environment")]
fn sign() -> PathBuf {
    std::env::var_os("TEST_SIGN").unwrap().into()
}

/// Waits without a call to Samite until rank 0 has made the file.
fn computes_until(sign: &Path) {
    while !sign.exists() {
        std::thread::yield_now();
    }
}

/// Runs a test's ranks over each transport, and checks that rank 0 prints `expected`. `linger_us` limits the wait of a
/// leaving rank.
fn on_every_transport(test: &str, linger_us: u64, expected: &str) {
    on_every_transport_with(test, "off", linger_us, expected);
}

/// Runs a test's ranks as [`on_every_transport`] does, with this value of `SAMITE_PROGRESS`.
fn on_every_transport_with(test: &str, progress: &str, linger_us: u64, expected: &str) {
    for transport in TRANSPORTS {
        let scratch = Scratch::new(test);
        let arguments = format!("-n 2 --on-failure continue --timeout 60 {transport}");
        let mut job = job_of_test(&format!("short_sends::{test}"), &arguments);
        job.command.env("TEST_SIGN", scratch.0.join("sign"));
        job.command.env("SAMITE_LINGER_US", linger_us.to_string());
        job.command.env("SAMITE_PROGRESS", progress);
        let output = job.output();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(stdout.contains(expected), "{transport}: {stdout}{stderr}");
    }
}

fn join() -> (World, Comm) {
    let world = samite::init().unwrap();
    let comm = world.comm().clone();
    (world, comm)
}

fn message(number: usize) -> Vec<u8> {
    (0..SHORT).map(|at| (number + at) as u8).collect()
}

#[test]
fn sends_return_up_to_the_budget_and_keep_their_order() {
    if !is_rank() {
        let test = "sends_return_up_to_the_budget_and_keep_their_order";
        return on_every_transport(test, 10_000_000, "all were received");
    }
    const FIT: usize = (1 << 20) / (SHORT + BUFFERED_OVERHEAD);
    let (world, comm) = join();
    let long = vec![3_u8; 1_000_000];
    if comm.rank() == 0 {
        for number in 0..FIT {
            comm.send(&message(number), Rank(1), TAG).unwrap();
        }
        let bounded = comm.with_timeout(Duration::from_millis(20));
        let error = bounded.send(&message(0), Rank(1), TAG).unwrap_err();
        assert!(matches!(error, Error::TimedOut { fate: Fate::NotDelivered, .. }), "{error}");
        std::fs::write(sign(), "").unwrap();
        // A longer message, and those beyond the budget, come after the others.
        comm.send(&long, Rank(1), TAG).unwrap();
        for number in FIT..10_000 {
            comm.send(&message(number), Rank(1), TAG).unwrap();
        }
        comm.with_timeout(PATIENCE).recv(&mut [0_u8], Rank(1), TAG).unwrap();
        println!("\nall were received");
    } else {
        computes_until(&sign());
        let comm = comm.with_timeout(PATIENCE);
        let mut buffer = vec![0; 1_000_000];
        for number in 0..10_000 {
            if number == FIT {
                assert_eq!(comm.recv(&mut buffer, Rank(0), TAG).unwrap().bytes, 1_000_000);
                assert!(buffer == long);
            }
            assert_eq!(comm.recv(&mut buffer, Rank(0), TAG).unwrap().bytes, SHORT, "{number}");
            assert_eq!(buffer[..SHORT], message(number));
        }
        comm.send(&[1_u8], Rank(0), TAG).unwrap();
    }
    world.leave().unwrap();
}

/// The sends have no time-out, so the rank that leaves waits longer than `linger_us` for its receiver.
#[test]
fn a_rank_that_leaves_waits_until_its_messages_are_taken() {
    if !is_rank() {
        let test = "a_rank_that_leaves_waits_until_its_messages_are_taken";
        return on_every_transport(test, 1_000, "all were received, then rank 0 has left in good order");
    }
    let (world, comm) = join();
    if comm.rank() == 0 {
        for number in 0..100 {
            comm.send(&message(number), Rank(1), TAG).unwrap();
        }
        return world.leave().unwrap();
    }
    #[expect(clippy::disallowed_methods, reason = "the rank computes for a time")]
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        std::hint::spin_loop();
    }
    let comm = comm.with_timeout(PATIENCE);
    for number in 0..100 {
        let mut buffer = [0; SHORT];
        comm.recv(&mut buffer, Rank(0), TAG).unwrap();
        assert_eq!(buffer[..], message(number));
    }
    let error = comm.recv(&mut [0_u8], Rank(0), TAG).unwrap_err();
    assert!(matches!(error, Error::PeerFailed { cause: samite::Cause::Left, .. }), "{error}");
    println!("\nall were received, then rank 0 has left in good order");
}

/// The time-out of the sends limits the wait of the rank that leaves, beyond `linger_us`.
#[test]
fn a_rank_that_leaves_names_the_messages_that_were_not_taken() {
    if !is_rank() {
        let test = "a_rank_that_leaves_names_the_messages_that_were_not_taken";
        return on_every_transport(test, 1_000, "2 messages to rank 1 were not taken");
    }
    let (world, comm) = join();
    if comm.rank() == 0 {
        let bounded = comm.with_timeout(Duration::from_millis(20));
        for number in 0..2 {
            bounded.send(&message(number), Rank(1), TAG).unwrap();
        }
        let error = world.leave().unwrap_err();
        assert_eq!(error, Error::Undelivered { messages: vec![(Rank(1), 2)] });
        println!("\n{error}");
        std::fs::write(sign(), "").unwrap();
    } else {
        computes_until(&sign());
    }
}

/// Rank 1 fails while rank 0 has a message for it. The send has returned, so `leave` reports the loss.
#[test]
fn a_rank_that_leaves_names_the_messages_to_a_rank_that_fails() {
    if !is_rank() {
        let test = "a_rank_that_leaves_names_the_messages_to_a_rank_that_fails";
        return on_every_transport(test, 10_000_000, "1 message to rank 1 was not taken");
    }
    let (world, comm) = join();
    if comm.rank() == 0 {
        comm.send(&message(0), Rank(1), TAG).unwrap();
        std::fs::write(sign(), "").unwrap();
        println!("\n{}", world.leave().unwrap_err());
    } else {
        computes_until(&sign());
        abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "the launcher tells the transport by the environment")]
fn is_tcp() -> bool {
    std::env::var("SAMITE_TRANSPORT").is_ok_and(|name| name.starts_with("tcp"))
}

/// Over tcp, all messages of a scope except the first message are gathered. They are sent at the end of the scope,
/// although the rank makes no call afterwards.
#[test]
fn the_end_of_a_scope_sends_the_gathered_messages() {
    if !is_rank() {
        return on_every_transport(
            "the_end_of_a_scope_sends_the_gathered_messages",
            10_000_000,
            "all were received",
        );
    }
    const MESSAGES: usize = 20;
    let (world, comm) = join();
    let comm = comm.with_timeout(PATIENCE);
    let mut buffer = [0; SHORT];
    if comm.rank() == Rank(1) {
        comm.send(&[0u8; 0], Rank(0), TAG).unwrap();
        for number in 0..MESSAGES {
            comm.recv(&mut buffer, Rank(0), TAG).unwrap();
            assert_eq!(buffer.as_slice(), message(number));
        }
        std::fs::write(sign(), "").unwrap();
        comm.recv(&mut buffer, Rank(0), TAG).unwrap();
    } else {
        comm.recv(&mut buffer, Rank(1), TAG).unwrap();
        let messages: Vec<_> = (0..MESSAGES).map(message).collect();
        comm.scope(|scope| {
            for message in &messages {
                scope.isend(message, Rank(1), TAG)?;
            }
            assert_eq!(comm.stats().outbox_bytes > 0, is_tcp());
            Ok(())
        })
        .unwrap();
        assert_eq!(comm.stats().outbox_bytes, 0);
        computes_until(&sign());
        comm.send(&buffer, Rank(1), TAG).unwrap();
        println!("all were received");
    }
    world.leave().unwrap();
}

/// With a thread for progress, sends outside a scope gather messages over tcp too: all messages of a burst except the
/// first message. The thread sends them, although the rank makes no call afterwards.
#[test]
fn the_thread_for_progress_sends_the_gathered_messages() {
    if !is_rank() {
        let test = "the_thread_for_progress_sends_the_gathered_messages";
        for progress in ["needed", "always"] {
            on_every_transport_with(test, progress, 10_000_000, "all were received");
        }
        return;
    }
    const BURSTS: usize = 50;
    const MESSAGES: usize = 20;
    let (world, comm) = join();
    let comm = comm.with_timeout(PATIENCE);
    let mut buffer = [0; SHORT];
    let mut was_gathered = false;
    // At the first contact the messages would wait in the outbox for the receiver's address, until the next call.
    match comm.rank() {
        Rank(1) => comm.send(&[0u8; 0], Rank(0), TAG).unwrap(),
        _ => drop(comm.recv(&mut buffer, Rank(1), TAG).unwrap()),
    }
    for burst in 0..BURSTS {
        if comm.rank() == Rank(1) {
            for number in 0..MESSAGES {
                comm.recv(&mut buffer, Rank(0), TAG).unwrap();
                assert_eq!(buffer.as_slice(), message(number));
            }
            std::fs::write(sign().with_extension(burst.to_string()), "").unwrap();
            comm.send(&buffer, Rank(0), TAG).unwrap();
        } else {
            for number in 0..MESSAGES {
                match number % 2 {
                    0 => comm.send(&message(number), Rank(1), TAG).unwrap(),
                    _ => drop(comm.isend(message(number), Rank(1), TAG).unwrap()),
                }
                was_gathered |= comm.stats().outbox_bytes > 0;
            }
            computes_until(&sign().with_extension(burst.to_string()));
            comm.recv(&mut buffer, Rank(1), TAG).unwrap();
        }
    }
    if comm.rank() == Rank(0) {
        assert_eq!(was_gathered, is_tcp());
        println!("all were received");
    }
    world.leave().unwrap();
}
