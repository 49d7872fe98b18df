//! Delayed transports: messages take their time, and deadlines pass meanwhile.

use std::time::{Duration, Instant};

use samite::{Error, Rank};

use crate::ranks::{PATIENCE, is_rank, job_of_test, output_of};

/// The latency of the delayed transports of these tests.
const LATENCY: Duration = Duration::from_millis(100);

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures the delay")]
fn messages_take_their_time_and_deadlines_pass_meanwhile() {
    const NAME: &str = "delayed::messages_take_their_time_and_deadlines_pass_meanwhile";
    if !is_rank() {
        for inner in ["samite-shm", "tcp;ofi_rxm"] {
            let transport = format!("--transport delay(100ms,0.1ns/B)+{inner}");
            output_of(job_of_test(NAME, &format!("-n 2 {transport}")));
        }
        return;
    }
    let world = samite::init().unwrap();
    let world = world.comm().with_timeout(PATIENCE);
    let other = Rank(1 - world.rank().0);
    assert!(world.transport(other).is_none_or(|name| name.starts_with("delay(100ms,0.1ns/B)+")));
    // The first messages also make the contact.
    world.sendrecv(&[0_u8], other, 0, &mut [1_u8], other, 0).unwrap();
    let explained = world.explain(other).unwrap();
    assert!(explained.starts_with("delay(100ms,0.1ns/B)+"), "{explained}");
    for length in [8, 3_000_000] {
        let begun = Instant::now();
        if world.rank() == 0 {
            world.send(&vec![7_u8; length], other, 1).unwrap();
            world.recv(&mut [0_u8], other, 2).unwrap();
            assert!(begun.elapsed() >= 2 * LATENCY);
        } else {
            let mut data = vec![0_u8; length];
            world.recv(&mut data, other, 1).unwrap();
            assert!(data == vec![7; length]);
            world.send(&[0_u8], other, 2).unwrap();
        }
    }
    // This rank knows that the other one has just sent, or will: no message is there before its time.
    world.send(&[3_u8], other, 3).unwrap();
    let error = world.with_timeout(LATENCY / 20).recv(&mut [0_u8], other, 4).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    world.recv(&mut [0_u8], other, 3).unwrap();
}

#[test]
fn a_wrong_name_of_a_delayed_transport_is_refused() {
    const NAME: &str = "delayed::a_wrong_name_of_a_delayed_transport_is_refused";
    let output = job_of_test(NAME, "-n 1 --transport delay(2us)+samite-shm").output();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("delay(LATENCY,TIME/B)+"), "{text}");
}
