//! `samite run` with real processes.

mod join;
mod kill;
mod run;
mod support;
