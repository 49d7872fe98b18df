//! `samite run` with real processes.

mod examples;
mod kill;
mod run;
mod support;
mod world;
