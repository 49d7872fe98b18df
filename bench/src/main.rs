//! Measurements of Samite beside raw libfabric and its peers.
//!
//! `samite-bench latency` and its like measure once, between processes that they start themselves;
//! `samite-bench compare` runs all implementations that it finds in turns, and sets them side by side.
//!
//! An implementation is an [`End`](measure::End) of two; those that pass messages share the loops in
//! [`loops`]. To `compare` an implementation is a command that prints a [`Record`](record::Record), so that
//! one in another language can join: MPI libraries do, by `../peers/peer.c` ([`peers`]).

#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "what stands in the way of figures is told")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[macro_use]
mod say;

mod benchmark;
mod beside;
mod callgrind;
mod cli;
mod compare;
mod completion;
mod failure;
mod hello;
mod implementation;
mod instructions;
mod loops;
mod matching;
mod measure;
mod memory;
mod once;
mod ours;
mod peers;
#[cfg(feature = "ofi")]
mod raw;
mod record;
mod report;
mod spread;
mod table;

use std::process::ExitCode;

use clap::Parser;

/// Messages lie in it as they would in a program that cares.
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
