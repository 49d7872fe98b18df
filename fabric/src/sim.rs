//! A deterministic network for any number of ranks in one thread, or in several that take turns.
//!
//! [`Net`] is the network with its virtual clock, which stands still until [`Net::advance`] moves it to the next event.
//! [`Net::start`] gives a rank its [`SimPort`]. Messages cost time by the LogGP model ([`Costs`]) plus a delay drawn
//! from the seed. They overtake one another as far as the claimed [`Caps::order`](crate::Caps::order) allows. Packets
//! of one pair never overtake one another. Any other operations may, unless their order is claimed. The memory of an
//! operation is read and written at any time at which a provider might do so, also late. So a protocol that reuses
//! memory too early sends or sees wrong bytes, and tests detect that.
//!
//! The caller injects faults: it kills, pauses and restarts ranks, and cuts pairs of ranks off from each other. One
//! seed with the same calls gives one run: [`Net::trace_hash`] shows if two runs were the same.
//!
//! ```
//! # use samite_fabric::{sim, Failure, OpId, PeerId, Port, Post, Sink};
//! # struct Print;
//! # impl Sink for Print {
//! #     fn packet(&mut self, bytes: &[u8]) { assert_eq!(bytes, b"hello"); }
//! #     fn completed(&mut self, _: OpId, _: Result<(), Failure>) {}
//! #     fn notified(&mut self, _: u64) {}
//! #     fn peer_lost(&mut self, _: PeerId) {}
//! # }
//! let net = sim::Net::new(42, sim::Config::default());
//! let (mut a, mut b) = (net.start(0), net.start(1));
//! let to_b = a.resolve(&b.address())?;
//! assert_eq!(a.send(to_b, b"hel", b"lo")?, Post::Done);
//! assert_eq!(b.poll(&mut Print)?, 0);
//! while net.advance() {}
//! assert_eq!(b.poll(&mut Print)?, 1);
//! # Ok::<(), samite_fabric::PortError>(())
//! ```

mod config;
mod faults;
mod operation;
mod port;
mod trace;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Address, Caps};
use world::World;

pub use config::{Config, Costs, Cut, Death};
pub use port::SimPort;
pub use trace::{Mark, TraceEvent, What};
pub use world::Process;

/// A simulated network and its clock. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Net(Arc<Mutex<World>>);

impl Net {
    /// Returns a network without ranks, at time 0. All random choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, config: Config) -> Self {
        Self(Arc::new(Mutex::new(World::new(seed, config))))
    }

    /// Returns the address of a rank's present incarnation; the same for all of its incarnations unless
    /// [`Config::moves`] is true.
    #[must_use]
    pub fn address(&self, rank: u32) -> Address {
        lock(&self.0).address(rank)
    }

    /// Starts an incarnation of `rank` and returns its port. If there is a previous incarnation, this call ends it, but
    /// messages from and to it may still be under way.
    #[must_use]
    pub fn start(&self, rank: u32) -> SimPort {
        let caps = lock(&self.0).config.caps.clone();
        self.start_as(rank, caps)
    }

    /// Starts a port as [`Net::start`] does, with limits and operations that differ from its peers'. The network works
    /// by `order`, `passive`, `fence` and `peers_max` of [`Config::caps`], so `caps` must have the same values there.
    #[must_use]
    pub fn start_as(&self, rank: u32, caps: Caps) -> SimPort {
        let mut world = lock(&self.0);
        world.kill(rank);
        let incarnation = world.start(rank);
        SimPort::new(Arc::clone(&self.0), incarnation, caps)
    }

    /// Ends the present incarnation of `rank`, as SIGKILL does. Its port does nothing any more. Its last messages
    /// may be lost.
    pub fn kill(&self, rank: u32) {
        lock(&self.0).kill(rank);
    }

    /// Stops a rank as SIGSTOP does: until [`Net::resume`] its port does nothing. Messages still arrive,
    /// and its memory can be reached if the network is [`Caps::passive`](crate::Caps::passive).
    pub fn pause(&self, rank: u32) {
        lock(&self.0).pause(rank, true);
    }

    /// Lets a rank run again.
    pub fn resume(&self, rank: u32) {
        lock(&self.0).pause(rank, false);
    }

    /// Cuts two ranks off from each other, in both directions.
    pub fn partition(&self, a: u32, b: u32, cut: Cut) {
        lock(&self.0).partition(a, b, cut);
    }

    /// Ends the cut between two ranks.
    pub fn heal(&self, a: u32, b: u32) {
        lock(&self.0).heal(a, b);
    }

    /// Delivers to a rank a packet that no port has sent, as an unauthenticated process might do.
    pub fn inject(&self, rank: u32, bytes: &[u8]) {
        lock(&self.0).inject(rank, bytes);
    }

    /// Returns nanoseconds since the beginning.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        lock(&self.0).now
    }

    /// Returns true if the next poll of a rank's port would find events, or start operations of other ranks.
    #[must_use]
    pub fn has_events(&self, rank: u32) -> bool {
        lock(&self.0).has_events(rank)
    }

    /// Returns the time of the next event.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        lock(&self.0).next()
    }

    /// Moves the clock to the next event, and performs it and all others of that time. Returns false if there was
    /// none.
    pub fn advance(&self) -> bool {
        let next = self.next_ns();
        next.inspect(|&next| self.advance_to(next)).is_some()
    }

    /// Moves the clock to `now_ns` and performs all events due until then.
    pub fn advance_to(&self, now_ns: u64) {
        lock(&self.0).advance_to(now_ns);
    }

    /// Returns a hash of all events so far.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        lock(&self.0).trace.hash()
    }

    /// Records the events from here on, for [`Net::take_trace`].
    pub fn record(&self) {
        lock(&self.0).trace.recorded = Some(Vec::new());
    }

    /// Returns the events since [`Net::record`], or since the last call.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        lock(&self.0).trace.recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a line of the caller's own to the trace.
    pub fn note(&self, note: String) {
        lock(&self.0).note(What::Note(note));
    }
}

/// Locks a network. If a thread has panicked while it held the lock, the test has failed anyway, and the state of the
/// network does not matter.
fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
