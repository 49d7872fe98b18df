//! The program that [`Benchmark::StartUp`](crate::benchmark::Benchmark::StartUp) starts.

use std::error::Error;
use std::process::ExitCode;

use samite::bootstrap::Launch;
use samite::{Rank, Source};
use samite_launch::{self as launch, Options};

/// Sends a greeting from every rank to rank 0, which prints the greetings. Without a launcher, this program starts
/// itself as `ranks` ranks, as `samite run` would.
///
/// # Errors
/// An error to print.
pub(crate) fn run(ranks: u32, transport: Option<&str>) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    if Launch::detect(&|name| std::env::var_os(name))? == Launch::Alone {
        let code = launch::run(Options {
            transport: transport.map(str::to_owned),
            args: std::env::args_os().skip(1).collect(),
            ..Options::new(ranks, std::env::current_exe()?)
        })?;
        return Ok(code.into());
    }
    let world = samite::init()?;
    let comm = world.comm();
    let (rank, size) = (comm.rank(), comm.size());
    let greeting = format!("hello from rank {rank} of {size}");
    if rank != 0 {
        comm.send(greeting.as_bytes(), Rank(0), 0)?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("{greeting}");
    for _ in 1..size {
        let message = comm.recv_vec::<u8>(Source::ANY, 0)?;
        say!("{}", String::from_utf8(message.buffer)?);
    }
    Ok(ExitCode::SUCCESS)
}
