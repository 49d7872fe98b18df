//! A token goes around the ring of ranks, and each rank adds its number to the token.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/ring [ROUNDS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use samite::Rank;
use std::error::Error;
use std::time::Instant;

const TOKEN: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let (rank, size) = (comm.rank(), comm.size());
    let (left, right) = (Rank((rank.0 + size - 1) % size), Rank((rank.0 + 1) % size));

    let start = now();
    let mut token = [0_u64];
    for _ in 0..rounds {
        if rank != 0 {
            comm.recv(&mut token, left, TOKEN)?;
        }
        token[0] += u64::from(rank.0);
        comm.send(&token, right, TOKEN)?;
        if rank == 0 {
            comm.recv(&mut token, left, TOKEN)?;
        }
    }
    if rank == 0 {
        let expected = rounds * u64::from(size) * u64::from(size - 1) / 2;
        if token[0] != expected {
            return Err(format!("the token came back with {}, not {expected}", token[0]).into());
        }
        let hops = rounds * u64::from(size);
        let hop_us = start.elapsed().as_secs_f64() * 1e6 / hops.max(1) as f64;
        println!("ring: ranks={size} rounds={rounds} hop_us={hop_us:.2} verified");
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
