//! Ranks that continue when others fail: each exchanges numbered messages with every other, checks them, and
//! leaves out failed ranks.
//!
//! ```console
//! $ samite run -n 4 --on-failure continue -- target/release/examples/survivors [ROUNDS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::time::{Duration, SystemTime};

use samite::World;

const TAG: u64 = 1;

/// The pause between two rounds, in place of a computation.
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(200), |text| text.parse())?;
    let world = samite::init()?;
    let mut others: Vec<u32> = (0..world.size()).filter(|&rank| rank != world.rank()).collect();
    println!("{:.3} rank {} begins", now(), world.rank());
    for round in 0..rounds {
        let mut left = Vec::new();
        for rank in others {
            match exchange(&world, rank, round) {
                Ok(()) => left.push(rank),
                // Without a deadline, a failure is the only other end of an exchange.
                Err(error @ samite::Error::PeerFailed { .. }) => println!("{:.3} {error}", now()),
                Err(error) => {
                    println!("{:.3} {error}", now());
                    return Err(error.into());
                }
            }
        }
        others = left;
        std::thread::park_timeout(PAUSE);
    }
    println!("{:.3} rank {} verified {rounds} rounds, the last with ranks {others:?}", now(), world.rank());
    Ok(())
}

/// Sends this round's message to a rank, and receives and checks its own.
fn exchange(world: &World, other: u32, round: u64) -> Result<(), samite::Error> {
    let (sent, expected) = (message(world.rank(), other, round), message(other, world.rank(), round));
    let mut received = vec![0; expected.len()];
    world.sendrecv(&sent, other, TAG, &mut received, other, TAG)?;
    assert_eq!(received, expected, "from rank {other} in round {round}");
    Ok(())
}

/// Returns a message; one in several is long.
fn message(from: u32, to: u32, round: u64) -> Vec<u64> {
    let length = if round % 10 == 9 { 50_000 } else { 100 };
    (0..length).map(|index: u64| index ^ round << 32 ^ u64::from(from) << 24 ^ u64::from(to) << 16).collect()
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
