//! Nonblocking collective operations beside a computation.
//!
//! Each rank starts an operation, computes for a time, and waits for the end. The computation takes twice the time of
//! the operation alone, and at least 1 ms, at all ranks. The *rest* is the time from the start to the end, less the
//! time of the computation. It has two parts, which are measured apart: the call that starts the operation, which may
//! do a part of its work, and the wait after the computation. The processor time of the operation alone bounds the rest
//! of a rank that keeps its core busy, because the operation has no other core.

use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use samite::reduction::{Max, Sum};
use samite::{Comm, Rank};

use super::{COMPUTED_MIN_NS, OverlapArgs, WARM_UP};
use crate::failure::now_ns;
use crate::record::Record;
use crate::spread::Spread;

/// A collective operation on numbers of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// A sum to all ranks.
    Allreduce,
    /// A block from each rank to each rank.
    Alltoall,
    /// A broadcast, whose root changes with each round.
    Bcast,
}

impl Operation {
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("every operation has a name").get_name().to_owned()
    }
}

/// The times of an operation: medians of the rounds, at the rank at which they are largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    /// The time from the start to the end without a computation.
    alone_us: f64,
    /// The processor time of that.
    processor_us: f64,
    /// With a computation: the time of the call that starts the operation.
    start_us: f64,
    /// With a computation: the time of the wait after it.
    wait_us: f64,
    /// With a computation: the time from the start to the end, without the computation.
    rest_us: f64,
}

impl Times {
    /// Parses the output of a job: one line with the times in microseconds, in the order of the fields.
    pub(super) fn parse(said: &str) -> Option<Self> {
        let numbers: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [alone_us, processor_us, start_us, wait_us, rest_us] = numbers[..] else { return None };
        Some(Self { alone_us, processor_us, start_us, wait_us, rest_us })
    }

    /// Returns the time as a part of the time alone, in percent.
    fn percent(&self, time_us: f64) -> f64 {
        100.0 * time_us / self.alone_us
    }
}

impl OverlapArgs {
    /// Prints the head of the table.
    pub(super) fn print_head_of_collectives(&self) {
        let kind = if self.busy { "keeps the core busy" } else { "sleeps" };
        say!("the rest of a collective operation after a computation that {kind}, {} rounds", self.rounds);
        say!(
            "{:<12} {:<27} {:<10} {:>5} {:>9} {:>10} {:>13} {:>10} {:>10} {:>6} {:>10} {:>6}",
            "transport",
            "",
            "operation",
            "ranks",
            "bytes",
            "alone us",
            "processor us",
            "start us",
            "wait us",
            "wait",
            "rest us",
            "rest"
        );
    }

    /// Adds the arguments of a job.
    pub(super) fn add_operation(&self, command: &mut Command, operation: Operation) {
        command.args(["--operation", &operation.name()]);
    }

    /// Prints the figures of one job.
    pub(super) fn print_times(
        &self,
        transport: &str,
        name: &str,
        operation: Operation,
        bytes: usize,
        times: &Times,
    ) {
        let Times { alone_us, processor_us, start_us, wait_us, rest_us } = *times;
        let (wait, rest, ranks) = (times.percent(wait_us), times.percent(rest_us), self.ranks);
        if self.json {
            for (end, metric, percent) in [("", "rest_percent", rest), ("-wait", "wait_percent", wait)] {
                let bench = format!("overlap-{}{end}", operation.name());
                let spread = Spread { median: percent, min: percent, max: percent };
                let record = Record::of_job(&bench, name, transport, (metric, "%"), spread);
                say!("{}", Record { bytes: Some(bytes), ranks, ..record }.to_json());
            }
            return;
        }
        say!(
            "{transport:<12} {name:<27} {:<10} {ranks:>5} {bytes:>9} {alone_us:>10.1} {processor_us:>13.1} \
             {start_us:>10.1} {wait_us:>10.1} {wait:>5.0}% {rest_us:>10.1} {rest:>5.0}%",
            operation.name()
        );
    }

    /// Measures one operation. Rank 0 prints the times in the form of [`Times::parse`].
    pub(super) fn measure_operation(
        &self,
        comm: &Comm,
        operation: Operation,
        bytes: usize,
    ) -> Result<(), samite::Error> {
        let [alone_us, processor_us, ..] = self.medians(comm, operation, bytes, 0)?;
        let computed_ns = COMPUTED_MIN_NS.max((2e3 * alone_us) as u64);
        let [rest_us, _, start_us, wait_us] = self.medians(comm, operation, bytes, computed_ns)?;
        if comm.rank() == 0 {
            say!("{alone_us} {processor_us} {start_us} {wait_us} {rest_us}");
        }
        Ok(())
    }

    /// Returns medians in microseconds, each at the rank at which it is largest: the time from the start of an
    /// operation to its end, without the computation, the processor time of the process, the time of the start, and
    /// that of the wait.
    fn medians(
        &self,
        comm: &Comm,
        operation: Operation,
        bytes: usize,
        computed_ns: u64,
    ) -> Result<[f64; 4], samite::Error> {
        let len = bytes / size_of::<f64>();
        let blocks = if operation == Operation::Alltoall { comm.size() as usize } else { 1 };
        let (mut out, mut into) = (vec![1.0_f64; len * blocks], vec![0.0; len * blocks]);
        let mut times = [const { Vec::new() }; 4];
        for round in 0..self.rounds + WARM_UP {
            comm.barrier()?;
            let (begin_ns, begin_processor) = (now_ns(), processor_ns());
            let (started_ns, computed);
            match operation {
                Operation::Bcast => {
                    let request = comm.ibcast(into, Rank(round % comm.size()))?;
                    started_ns = now_ns();
                    computed = self.compute(computed_ns);
                    into = request.wait()?.buffer;
                }
                Operation::Allreduce | Operation::Alltoall => {
                    let request = match operation {
                        Operation::Allreduce => comm.iallreduce(out, into, Sum)?,
                        _ => comm.ialltoall(out, into)?,
                    };
                    started_ns = now_ns();
                    computed = self.compute(computed_ns);
                    (out, into) = request.wait()?.buffer;
                }
            }
            if round >= WARM_UP {
                let (end_ns, end_processor) = (now_ns(), processor_ns());
                let rest = end_ns - begin_ns - computed;
                let start = started_ns - begin_ns;
                let of_round = [rest, end_processor - begin_processor, start, rest - start];
                times.iter_mut().zip(of_round).for_each(|(times, ns)| times.push(ns as f64 / 1e3));
            }
        }
        let mut medians = times.map(|times| Spread::of(times).expect("there is a round").median);
        comm.allreduce_in_place(&mut medians, Max)?;
        Ok(medians)
    }
}

/// Returns the processor time of all threads of this process.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_prints_the_times_in_order() {
        let times = Times::parse("200 150.5 6 4 10\n").unwrap();
        let expected =
            Times { alone_us: 200.0, processor_us: 150.5, start_us: 6.0, wait_us: 4.0, rest_us: 10.0 };
        assert_eq!(times, expected);
        assert!((times.percent(times.rest_us) - 5.0).abs() < 1e-9);
        assert!(Times::parse("absent\n").is_none() && Times::parse("1 2").is_none());
    }
}
