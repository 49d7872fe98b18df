//! Tests of windows on the loopback port and in simulated networks with random delays, limits and faults.

mod aggregate;
mod dynamic;
mod failures;
mod forms;
mod gets;
mod lock_word;
mod operations;
mod puts;
mod rules;
mod slices;
mod views;
mod world;
