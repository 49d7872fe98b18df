//! Ranks that compute for seconds at a time without a message, as solvers do. No rank must be declared failed.
//!
//! ```console
//! $ samite run -n 16 --detection-time 1 -- target/release/examples/compute [SECONDS]
//! ```
//! In each round a rank computes for a time that depends on its number, then exchanges the result with its neighbours.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]
#![expect(clippy::disallowed_methods, reason = "a program may look at the clock")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use samite::{Comm, Rank};

const TAG: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let begin = Instant::now();
    let mut rounds: u64 = 0;
    // Rank 0 decides if there is another round, so that all ranks run the same number of rounds.
    while agreed(comm, begin.elapsed() < Duration::from_secs(seconds))? {
        compute(quiet_time(comm.rank().0, rounds));
        exchange(comm, rounds)?;
        rounds += 1;
    }
    println!("rank {} verified {rounds} rounds", comm.rank());
    Ok(())
}

/// Returns a time from a quarter of a second to four seconds, by rank and round.
fn quiet_time(rank: u32, round: u64) -> Duration {
    let step = (u64::from(rank) * 7 + round * 5) % 16;
    Duration::from_millis(250 * (step + 1))
}

/// Keeps a core busy, without any call of the library.
fn compute(time: Duration) {
    let begin = Instant::now();
    let mut sum: u64 = 0;
    while begin.elapsed() < time {
        for number in 0..100_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
}

/// Sends this rank's number and the round to the next rank of the ring, and checks the numbers that the previous rank
/// sends.
fn exchange(comm: &Comm, round: u64) -> Result<(), samite::Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, previous) = (Rank((rank.0 + 1) % size), Rank((rank.0 + size - 1) % size));
    let mut received = [0; 2];
    comm.sendrecv(&[u64::from(rank.0), round], next, TAG, &mut received, previous, TAG)?;
    assert_eq!(received, [u64::from(previous.0), round]);
    Ok(())
}

/// Returns rank 0's `wish` at every rank. Each rank passes it on to the next rank.
fn agreed(comm: &Comm, wish: bool) -> Result<bool, samite::Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut word = [u8::from(wish)];
    if rank != 0 {
        comm.recv(&mut word, Rank(rank.0 - 1), TAG)?;
    }
    if rank.0 + 1 < size {
        comm.send(&word, Rank(rank.0 + 1), TAG)?;
    }
    Ok(word[0] == 1)
}
