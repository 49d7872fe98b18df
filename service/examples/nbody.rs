//! Bodies that attract each other, with the forces of all pairs summed directly.
//!
//! Each rank owns a part of the bodies, as equal as possible. In each step it posts a receive for every other rank's
//! part, and sends its own part to all other ranks. So the longest queue of posted receives is one less than the number
//! of ranks. Each force is summed in the order of the bodies, for any number of ranks. So the result must equal the
//! serial result bit for bit. Rank 0 also computes the serial result, and compares.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/nbody [BODIES [STEPS]]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use samite::{Comm, Rank};

const PLACES: u64 = 1;
const RESULT: u64 = 2;

/// The time of one step. The unit of length is the edge of the cube in which the bodies start, the unit of mass is the
/// mass of all bodies together, and the constant of gravitation is 1.
const STEP: f64 = 1e-3;

/// A constant that is added to the squares of distances, so that close encounters do not make the forces infinite.
const SOFTENING: f64 = 1e-4;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bodies: usize = args.next().map_or(Ok(1000), |text| text.parse())?;
    let steps: usize = args.next().map_or(Ok(20), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let own = part(bodies, comm.size(), comm.rank().0);

    let start = now();
    let mut places: Vec<[f64; 3]> = (0..bodies).map(initial_place).collect();
    let mut speeds = vec![[0.0; 3]; own.len()];
    for _ in 0..steps {
        step(&mut places, &mut speeds, own.clone());
        exchange(comm, &mut places)?;
    }
    let seconds = start.elapsed().as_secs_f64();

    if comm.rank() != 0 {
        comm.send(places[own].as_flattened(), Rank(0), RESULT)?;
        return Ok(());
    }
    let mut serial: Vec<[f64; 3]> = (0..bodies).map(initial_place).collect();
    let mut speeds = vec![[0.0; 3]; bodies];
    for _ in 0..steps {
        step(&mut serial, &mut speeds, 0..bodies);
    }
    for rank in 1..comm.size() {
        comm.recv(places[part(bodies, comm.size(), rank)].as_flattened_mut(), Rank(rank), RESULT)?;
    }
    let pairs = places.as_flattened().iter().zip(serial.as_flattened());
    match pairs.filter(|(ours, serial)| ours.to_bits() != serial.to_bits()).count() {
        0 => {
            let ranks = comm.size();
            println!("nbody: ranks={ranks} bodies={bodies} steps={steps} seconds={seconds:.3} verified");
            Ok(())
        }
        wrong => Err(format!("{wrong} of {} coordinates differ from the serial ones", bodies * 3).into()),
    }
}

/// Moves the bodies in `own` under the attraction of all bodies. `speeds` are the speeds of the bodies in `own`.
fn step(places: &mut [[f64; 3]], speeds: &mut [[f64; 3]], own: Range<usize>) {
    let mass = 1.0 / places.len() as f64;
    for (speed, here) in speeds.iter_mut().zip(&places[own.clone()]) {
        for there in places.iter() {
            let apart: [f64; 3] = std::array::from_fn(|axis| there[axis] - here[axis]);
            let square = apart.iter().map(|distance| distance * distance).sum::<f64>() + SOFTENING;
            let pull = STEP * mass / (square * square.sqrt());
            for (speed, distance) in speed.iter_mut().zip(apart) {
                *speed += pull * distance;
            }
        }
    }
    for (speed, place) in speeds.iter().zip(&mut places[own]) {
        for (speed, place) in speed.iter().zip(place) {
            *place += STEP * speed;
        }
    }
}

/// Sends the bodies of this rank to all other ranks, and receives their bodies.
fn exchange(comm: &Comm, places: &mut [[f64; 3]]) -> Result<(), samite::Error> {
    let (bodies, me) = (places.len(), comm.rank());
    let own = places[part(bodies, comm.size(), me.0)].to_vec();
    let mut rest = places;
    let mut parts = Vec::new();
    for rank in (0..comm.size()).map(Rank) {
        let (part, behind) = rest.split_at_mut(part(bodies, comm.size(), rank.0).len());
        rest = behind;
        parts.push((rank, part));
    }
    comm.scope(|scope| {
        for (rank, part) in parts.into_iter().filter(|(rank, _)| *rank != me) {
            scope.irecv(part.as_flattened_mut(), rank, PLACES)?;
        }
        // Each rank sends first to the next higher rank, so that not all ranks send to the same rank at the same time.
        for distance in 1..comm.size() {
            scope.isend(own.as_flattened(), Rank((me.0 + distance) % comm.size()), PLACES)?;
        }
        Ok(())
    })
}

/// Returns the place of a body at the start: a point of a sequence that fills the cube evenly (Roberts, The
/// unreasonable effectiveness of quasirandom sequences, 2018).
fn initial_place(body: usize) -> [f64; 3] {
    [0.819_172_513_396_164_5, 0.671_043_606_703_789_2, 0.549_700_477_901_970_3]
        .map(|ratio| (0.5 + ratio * (body + 1) as f64).fract())
}

/// Returns part `index` of `total` bodies that are divided into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| total * index as usize / parts as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
