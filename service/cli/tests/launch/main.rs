//! `samite run` with real processes.

mod announced;
#[path = "../../../tests/calls/mod.rs"]
mod calls;
mod claims;
mod crowd;
mod delayed;
mod examples;
mod flood;
mod forked;
mod given_up;
mod hosts;
mod interrupt;
mod join;
mod kill;
mod lanes;
mod leaving;
mod levels;
mod observe;
mod places;
mod progress;
mod ranks;
mod rendezvous;
mod run;
mod short_sends;
mod strangers;
mod support;
mod survivors;
mod terminal;
mod told;
mod top;
mod trust;
mod world;
