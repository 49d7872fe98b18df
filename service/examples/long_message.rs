//! Sends messages of more than 2^32 bytes to a neighbour, contiguous and scattered, and verifies each element. Each of
//! the two ranks needs 5 GB of memory: `ci/long-message.sh`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::error::Error;

use samite::{Comm, Layout, Rank};

/// The number of elements of a message of 2^32 + 4096 bytes.
const ELEMENTS: usize = ((1 << 32) + 4096) / 8;
/// The number of elements of a block of the scattered message.
const BLOCK: usize = 512;
/// The distance between the first elements of two successive blocks.
const STRIDE: usize = 520;
/// The content of elements that are not received.
const UNTOUCHED: u64 = u64::MAX;

fn main() -> Result<(), Box<dyn Error>> {
    let world = samite::init()?;
    let comm = world.comm();
    if comm.size() != 2 {
        eprintln!("this program needs two ranks");
        std::process::exit(2);
    }
    contiguous(comm)?;
    owned(comm)?;
    scattered(comm)?;
    Ok(())
}

/// Checks that a message has arrived without a change, and prints the transport.
fn report(comm: &Comm, what: &str, is_whole: bool, bytes: usize) {
    assert!(is_whole && bytes == 8 * ELEMENTS, "the {what} message was changed");
    let transport = comm.transport(Rank(0)).unwrap_or_default();
    println!("{what}: {bytes} bytes arrived whole over {transport}");
}

/// Returns elements whose values are their indices.
fn numbered() -> Vec<u64> {
    (0..ELEMENTS as u64).collect()
}

fn contiguous(comm: &Comm) -> Result<(), Box<dyn Error>> {
    if comm.rank() == 0 {
        return Ok(comm.send(&numbered(), Rank(1), 1)?);
    }
    let mut elements = vec![UNTOUCHED; ELEMENTS];
    let status = comm.recv(&mut elements, Rank(0), 1)?;
    report(comm, "contiguous", (0..).zip(&elements).all(|(place, &element)| element == place), status.bytes);
    Ok(())
}

fn owned(comm: &Comm) -> Result<(), Box<dyn Error>> {
    if comm.rank() == 0 {
        comm.isend(numbered(), Rank(1), 2)?.wait()?;
        return Ok(());
    }
    let done = comm.irecv(vec![UNTOUCHED; ELEMENTS], Rank(0), 2)?.wait()?;
    report(
        comm,
        "owned",
        (0..).zip(&done.buffer).all(|(place, &element)| element == place),
        done.status.bytes,
    );
    Ok(())
}

fn scattered(comm: &Comm) -> Result<(), Box<dyn Error>> {
    let blocks = ELEMENTS / BLOCK;
    let layout = Layout::vector(blocks, BLOCK, STRIDE as isize)?;
    let mut memory = vec![UNTOUCHED; blocks * STRIDE];
    if comm.rank() == 0 {
        for (block, memory) in memory.chunks_mut(STRIDE).enumerate() {
            (0..)
                .zip(&mut memory[..BLOCK])
                .for_each(|(place, element)| *element = (block * BLOCK) as u64 + place);
        }
        return Ok(comm.send_view(layout.of(&memory)?, Rank(1), 3)?);
    }
    let status = comm.recv_view(&mut layout.of_mut(&mut memory)?, Rank(0), 3)?;
    let is_whole = memory.chunks(STRIDE).enumerate().all(|(block, memory)| {
        let (elements, gap) = memory.split_at(BLOCK);
        (0..).zip(elements).all(|(place, &element)| element == (block * BLOCK) as u64 + place)
            && gap.iter().all(|&element| element == UNTOUCHED)
    });
    report(comm, "scattered", is_whole, status.bytes);
    Ok(())
}
