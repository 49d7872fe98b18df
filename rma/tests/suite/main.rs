//! Tests of windows on the loopback port and in simulated networks with random delays, limits and faults.

mod failures;
mod operations;
mod rules;
mod world;
