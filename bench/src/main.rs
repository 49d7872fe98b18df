//! Measurements of Samite, of raw libfabric and of MPI libraries.
//!
//! `samite-bench latency` and similar commands run one measurement between processes that they start. `samite-bench
//! compare` runs all available implementations in turns and compares their figures.
//!
//! An implementation is an [`End`](measure::End); implementations that pass messages share the loops in
//! [`loops`]. For `compare` an implementation is a command that prints a [`Record`](record::Record), so
//! it can be written in another language, as `../peers/peer.c` is for MPI libraries ([`peers`]).

#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "what stands in the way of figures is told")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[macro_use]
mod say;

mod apps;
mod behind;
mod benchmark;
mod beside;
mod callgrind;
mod cli;
mod compare;
mod completion;
mod examples;
mod failure;
mod hello;
mod implementation;
mod instructions;
mod layouts;
mod limits;
mod loops;
mod matching;
mod measure;
mod memory;
mod once;
mod ours;
mod overlap;
mod partitioned;
mod peers;
#[cfg(feature = "ofi")]
mod raw;
mod record;
mod report;
mod rma;
mod simulate;
mod spread;
mod table;
mod threads;
mod tune;

use std::process::ExitCode;

use clap::Parser;

/// The allocator that Samite recommends for long messages.
#[global_allocator]
static HEAP: samite::Heap = samite::Heap;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("samite-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
