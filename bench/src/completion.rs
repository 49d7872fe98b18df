//! The cost of a completion in a set of requests, by the number of pending requests.

use std::error::Error;
use std::time::Instant;

use clap::Args;
use samite::{Comm, Rank, RequestSet};

use crate::record::Record;
use crate::spread::Spread;

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The number of pending receives
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10,100,1000,10000")]
    pending: Vec<u64>,
    /// Rounds; each round measures all numbers of pending receives
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
}

/// The number of completions that a round measures for each number of pending receives.
const COMPLETIONS: u64 = 20_000;

/// Runs the benchmark. A rank sends to itself: each message ends one pending receive, which `wait_any` takes and the
/// loop posts again.
pub(crate) fn run(arguments: &CompletionArgs) -> Result<(), Box<dyn Error + Send + Sync>> {
    let results = samite::local(1, |world| -> Result<(), samite::Error> {
        let comm = world.comm();
        let mut sets = Vec::new();
        for (context, &pending) in arguments.pending.iter().enumerate() {
            let mut set = comm.request_set();
            // The sets use distinct tags, so that a message matches a receive of its own set.
            let first = (context as u64) << 32;
            for tag in first..first + pending {
                post(comm, &mut set, tag)?;
            }
            sets.push((first, pending, set, Vec::new()));
        }
        for _ in 0..arguments.rounds {
            for (first, pending, set, samples) in &mut sets {
                samples.push(round(comm, set, *first, *pending)?);
            }
        }
        if !arguments.json {
            say!("{:<10} {:>10} {:>10} {:>10}", "pending", "ns", "min", "max");
        }
        for (_, pending, set, samples) in sets {
            let spread @ Spread { median, min, max } = Spread::of(samples).expect("there is a round");
            if arguments.json {
                let metric = ("completion_ns", "ns");
                let record = Record::of_job("completion", "samite", "loopback", metric, spread);
                say!("{}", Record { ranks: 1, depth: Some(pending as usize), ..record }.to_json());
            } else {
                say!("{pending:<10} {median:>10.0} {min:>10.0} {max:>10.0}");
            }
            drop(set);
        }
        Ok(())
    });
    results.into_iter().try_for_each(|result| Ok(result?))
}

/// Returns the average time in nanoseconds of a completion, which contains a send, the wait, and the posting of the
/// next receive.
fn round(
    comm: &Comm,
    set: &mut RequestSet<Vec<u64>>,
    first: u64,
    pending: u64,
) -> Result<f64, samite::Error> {
    let begin = Instant::now();
    for number in 0..COMPLETIONS {
        // The multiplication makes the order of the messages differ from the order in which the receives were posted.
        let tag = first + number.wrapping_mul(7919) % pending;
        comm.send(&[tag], Rank(0), tag)?;
        let (_, end) = set.wait_any().expect("receives are under way");
        assert_eq!(end?.buffer, [tag]);
        post(comm, set, tag)?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / COMPLETIONS as f64)
}

fn post(comm: &Comm, set: &mut RequestSet<Vec<u64>>, tag: u64) -> Result<(), samite::Error> {
    set.insert(comm.irecv(vec![0_u64; 1], Rank(0), tag)?).expect("the request is of this world");
    Ok(())
}
