//! What [`Benchmark::StartUp`](crate::benchmark::Benchmark::StartUp) starts.

use std::error::Error;
use std::process::ExitCode;

use samite::Source;
use samite::bootstrap::Launch;
use samite_launch::{self as launch, Options};

/// Every rank greets rank 0, which prints what it hears. Started by no launcher, it starts itself as `ranks`
/// ranks, as `samite run` would.
///
/// # Errors
/// Whatever stood in the way, ready to be printed.
pub(crate) fn run(ranks: u32, transport: Option<&str>) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    if let Launch::Alone { .. } = Launch::detect(&|name| std::env::var_os(name))? {
        let code = launch::run(Options {
            transport: transport.map(str::to_owned),
            args: std::env::args_os().skip(1).collect(),
            ..Options::new(ranks, std::env::current_exe()?)
        })?;
        return Ok(code.into());
    }
    let world = samite::init()?;
    let (rank, size) = (world.rank(), world.size());
    let greeting = format!("hello from rank {rank} of {size}");
    if rank > 0 {
        world.send(greeting.as_bytes(), 0, 0)?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("{greeting}");
    for _ in 1..size {
        let (bytes, _) = world.recv_vec::<u8>(Source::ANY, 0)?;
        say!("{}", String::from_utf8(bytes)?);
    }
    Ok(ExitCode::SUCCESS)
}
