//! The matching engine with a meter, and with the structure that `samite-bench apps` chooses when it builds a program.

use samite_fabric::Port;
use samite_fabric::link::RequestId;
#[cfg(not(any(metered = "linked-list", metered = "four-d")))]
use samite_matching::Adaptive as Structure;
#[cfg(metered = "four-d")]
use samite_matching::FourD as Structure;
#[cfg(metered = "linked-list")]
use samite_matching::LinkedList as Structure;
use samite_matching::{Counting, Matcher, Stats};

use crate::engine::Engine;
use crate::tagged::Unexpected;

/// The matching engine of a rank.
pub(crate) type MessageQueues = Matcher<RequestId, Unexpected, Structure, Counting>;

impl<P: Port> Engine<P> {
    /// Returns the statistics of the searches so far.
    pub fn matching_stats(&self) -> Stats {
        self.inner.stack().matcher.stats()
    }
}
