//! Ranks that continue when other ranks fail. Each rank exchanges numbered messages with every other rank, checks them,
//! and leaves out failed ranks.
//!
//! ```console
//! $ samite run -n 4 --on-failure continue -- target/release/examples/survivors [ROUNDS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::time::{Duration, SystemTime};

use samite::{Comm, Rank};

const TAG: u64 = 1;

/// The pause between two rounds, in place of a computation.
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(200), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let mut others: Vec<Rank> = (0..comm.size()).map(Rank).filter(|&rank| rank != comm.rank()).collect();
    println!("{:.3} rank {} begins", now(), comm.rank());
    for round in 0..rounds {
        let mut surviving = Vec::new();
        for rank in others {
            match exchange(comm, rank, round) {
                Ok(()) => surviving.push(rank),
                // The other rank has failed. This rank continues without it.
                Err(error @ samite::Error::PeerFailed { .. }) => println!("{:.3} {error}", now()),
                Err(error) => {
                    println!("{:.3} {error}", now());
                    return Err(error.into());
                }
            }
        }
        others = surviving;
        std::thread::park_timeout(PAUSE);
    }
    println!(
        "{:.3} rank {} verified {rounds} rounds, the last with ranks {:?}",
        now(),
        comm.rank(),
        others.iter().map(|rank| rank.0).collect::<Vec<_>>()
    );
    Ok(())
}

/// Sends this round's message to a rank, and receives and checks the message of that rank.
fn exchange(comm: &Comm, other: Rank, round: u64) -> Result<(), samite::Error> {
    let (sent, expected) = (message(comm.rank(), other, round), message(other, comm.rank(), round));
    let mut received = vec![0; expected.len()];
    comm.sendrecv(&sent, other, TAG, &mut received, other, TAG)?;
    assert_eq!(received, expected, "from rank {other} in round {round}");
    Ok(())
}

/// Returns the message of a round. The messages of one round in ten are long.
fn message(from: Rank, to: Rank, round: u64) -> Vec<u64> {
    let length = if round % 10 == 9 { 50_000 } else { 100 };
    (0..length)
        .map(|index: u64| index ^ round << 32 ^ u64::from(from.0) << 24 ^ u64::from(to.0) << 16)
        .collect()
}

/// Returns the seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
