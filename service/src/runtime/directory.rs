//! Reports about the other ranks.

use std::os::fd::BorrowedFd;

use samite_control::{Figures, PeerStats};
use samite_fabric::Address;

/// A source of the other ranks' addresses, and of reports that they have ended. Used rarely.
pub(crate) trait Directory: Send {
    /// Requests a rank's address; a [`Notice`] answers.
    fn request_address(&mut self, rank: u32);

    /// Returns the next notice.
    fn poll(&mut self) -> Option<Notice>;

    /// Returns a descriptor that is readable when there may be a notice, or `None` if there is no such descriptor.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Answers [`Notice::Asked`]. The default does nothing, for directories that never ask.
    fn tell(&mut self, _figures: Figures, _peers: &[PeerStats]) {}

    /// Informs another rank that this one has given up an incarnation of it, with the reason. Does nothing under
    /// launchers that speak PMI or PMIx, where no connection leads to the other ranks.
    fn give_up(&mut self, _rank: u32, _incarnation: u32, _why: String) {}

    /// Returns true if this directory reports the end of every rank and how its process ended. Then a goodbye is not
    /// final.
    fn tells_ends(&self) -> bool {
        false
    }

    /// Reports that this rank has finished, so that a later failure of its process is not reported to the others.
    fn leave(&mut self);

    /// Reports that this rank has closed its world. Where a launcher observes the end of the process, that end decides
    /// if the rank has left in good order.
    fn close(&mut self) {
        self.leave();
    }

    /// Reports that this rank has failed because of a panic.
    fn panicked(&mut self);
}

/// A report about a rank.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Address {
        rank: u32,
        incarnation: u32,
        address: Address,
    },
    Failed {
        rank: u32,
        incarnation: u32,
        how: String,
        /// True if the launcher restarts it.
        returns: bool,
    },
    Left {
        rank: u32,
        incarnation: u32,
    },
    /// A rank's process was stopped, or continued.
    Stopped {
        rank: u32,
        incarnation: u32,
        is_stopped: bool,
    },
    /// A living rank has given up this one.
    GaveUp {
        rank: u32,
        incarnation: u32,
        /// The incarnation of this rank that the other rank has given up.
        verdict_on: u32,
        why: String,
    },
    /// The launcher asks for a report of this rank's activity: at once, or if `at_end`, when the rank ends. The report
    /// at the end includes figures for each peer.
    Asked {
        at_end: bool,
    },
    /// The others have given up this rank.
    Condemned {
        why: String,
    },
}
