//! What a rank is told of the others.

use std::os::fd::BorrowedFd;

use samite_control::{Figures, PeerStats};
use samite_fabric::Address;

/// What tells where the other ranks are, and when they end. Asked seldom.
pub(crate) trait Directory: Send {
    /// Asks for a rank's address; a [`Notice`] answers.
    fn request_address(&mut self, rank: u32);

    /// The next piece of news.
    fn poll(&mut self) -> Option<Notice>;

    /// Readable when there may be news.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Answers [`Notice::Asked`]: where nobody asks there is nobody to tell.
    fn tell(&mut self, _figures: Figures, _peers: &[PeerStats]) {}

    /// Has another rank told that this one has given up an incarnation of it, and why. Does nothing under launchers
    /// that speak PMI or PMIx, where no connection leads to the other ranks.
    fn give_up(&mut self, _rank: u32, _incarnation: u32, _why: String) {}

    /// Returns true if the end of every rank is told, and how its process ended. Then a goodbye is not final.
    fn tells_ends(&self) -> bool {
        false
    }

    /// This rank is done, and nothing that its process does afterwards is a failure for the others.
    fn leave(&mut self);

    /// This rank has closed its world. Whether it has left in good order shows when its process ends, where that is
    /// seen.
    fn close(&mut self) {
        self.leave();
    }

    /// This rank is done because it panicked.
    fn panicked(&mut self);
}

/// News of a rank.
#[derive(Debug)]
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
        /// Whether the launcher starts it again.
        returns: bool,
    },
    Left {
        rank: u32,
        incarnation: u32,
    },
    /// A rank's process was stopped, or goes on.
    Stopped {
        rank: u32,
        incarnation: u32,
        is_stopped: bool,
    },
    /// A living rank has given up this one.
    GaveUp {
        rank: u32,
        incarnation: u32,
        /// The incarnation of this rank that it has given up.
        verdict_on: u32,
        why: String,
    },
    /// The launcher wants to know what this rank does: now, or when it ends, with whom it dealt too.
    Asked {
        at_end: bool,
    },
    /// This rank itself was given up.
    Condemned {
        why: String,
    },
}
