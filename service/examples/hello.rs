//! Every rank greets rank 0, which checks that each rank's greeting arrives once.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/hello
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;

use samite::{Done, Rank, Source};

const GREETING: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let world = samite::init()?;
    let comm = world.comm();
    let (rank, size) = (comm.rank(), comm.size());
    if rank != 0 {
        let greeting = format!("hello from rank {rank} of {size}, process {}", std::process::id());
        comm.send(greeting.as_bytes(), Rank(0), GREETING)?;
        return Ok(());
    }
    let mut greeted = vec![false; size as usize];
    greeted[0] = true;
    println!("hello from rank 0 of {size}, process {}", std::process::id());
    for _ in 1..size {
        let Done { buffer: bytes, status } = comm.recv_vec::<u8>(Source::ANY, GREETING)?;
        let greeting = String::from_utf8(bytes)?;
        let source = status.peer;
        let is_right = greeting.starts_with(&format!("hello from rank {source} of {size},"));
        if !is_right || std::mem::replace(&mut greeted[source.index()], true) {
            return Err(format!("rank {source} greeted wrongly: {greeting}").into());
        }
        println!("{greeting}");
    }
    println!("hello: ranks={size} verified");
    Ok(())
}
