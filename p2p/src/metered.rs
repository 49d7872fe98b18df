//! The matching engine in builds that measure it: it counts its steps, and its data structure is the one that
//! `samite-bench apps` has selected for the build.

use samite_fabric::Port;
use samite_fabric::link::RequestId;
#[cfg(not(any(metered = "linked-list", metered = "four-d")))]
use samite_matching::Adaptive as Structure;
#[cfg(metered = "four-d")]
use samite_matching::FourD as Structure;
#[cfg(metered = "linked-list")]
use samite_matching::LinkedList as Structure;
use samite_matching::{Counting, Matcher, Stats};

use crate::engine::{Engine, WithTagged as _};
use crate::tagged::{HasTagged, Unexpected};

/// The matching engine of a rank.
pub(crate) type MessageQueues = Matcher<RequestId, Unexpected, Structure, Counting>;

impl<P: Port, S: HasTagged> Engine<P, S> {
    /// Returns the statistics of the searches so far.
    pub fn matching_stats(&self) -> Stats {
        self.inner.tagged().matcher.stats()
    }
}
