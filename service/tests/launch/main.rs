//! `samite run` with real processes.

mod claims;
mod examples;
mod hosts;
mod interrupt;
mod join;
mod kill;
mod observe;
mod ranks;
mod rendezvous;
mod run;
mod strangers;
mod support;
mod told;
mod top;
mod world;
