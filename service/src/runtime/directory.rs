//! The runtime's connection to the launcher: addresses of the other ranks, and reports about them.

use std::os::fd::BorrowedFd;

use samite_control::{Figures, PeerStats};
use samite_fabric::Address;

/// A source of the other ranks' addresses, and of reports that they have ended. Its calls are rare, so the runtime uses
/// it as a trait object.
pub(crate) trait Directory: Send {
    /// Requests a rank's address. A later [`Notice`] is the answer.
    fn request_address(&mut self, rank: u32);

    /// Returns the next notice, or `None` if there is none yet.
    fn poll(&mut self) -> Option<Notice>;

    /// Returns a descriptor that is readable when there may be a notice, or `None` if there is no such descriptor.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Reports this rank's figures to the launcher, in answer to [`Notice::Asked`]. `peers` is empty in a report during
    /// the job, and contains the figures for each peer in the report at the end. The default does nothing, for
    /// directories that never ask.
    fn tell(&mut self, _figures: Figures, _peers: &[PeerStats]) {}

    /// Informs another rank that this rank has given up an incarnation of the other rank, with the reason. The default
    /// does nothing, for launchers that speak PMI or PMIx, which offer no connection to the other ranks.
    fn give_up(&mut self, _rank: u32, _incarnation: u32, _why: String) {}

    /// Returns true if this directory reports the end of every rank and how its process ended. Then a goodbye is not
    /// final.
    fn tells_ends(&self) -> bool {
        false
    }

    /// Returns true if this directory reports the failure of every rank. The default is for launchers that speak PMI or
    /// PMIx.
    fn tells_deaths(&self) -> bool {
        self.tells_ends()
    }

    /// Reports that this rank has finished, so that a later failure of its process is not reported to the other ranks.
    fn leave(&mut self);

    /// Reports that this rank has closed its world. If a launcher observes the end of the process, that end decides if
    /// the rank has left in good order.
    fn close(&mut self) {
        self.leave();
    }

    /// Reports that this rank has failed because of a panic.
    fn panicked(&mut self);
}

/// A report about another rank or this rank, or a question of the launcher.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// The address of an incarnation of a rank.
    Address { rank: u32, incarnation: u32, address: Address },
    /// An incarnation of a rank has failed.
    Failed {
        rank: u32,
        incarnation: u32,
        how: String,
        /// True if the launcher restarts the rank.
        returns: bool,
    },
    /// An incarnation of a rank has left in good order.
    Left { rank: u32, incarnation: u32 },
    /// A rank's process was stopped, or continued.
    Stopped { rank: u32, incarnation: u32, is_stopped: bool },
    /// A living rank has given up this rank.
    GaveUp {
        rank: u32,
        incarnation: u32,
        /// The incarnation of this rank that the other rank has given up.
        verdict_on: u32,
        why: String,
    },
    /// The launcher asks for a report of this rank's activity: at once or, if `at_end` is true, when the rank ends. The
    /// report at the end includes figures for each peer.
    Asked { at_end: bool },
    /// The other ranks have given up this rank.
    Condemned { why: String },
}

/// The directory of a job without a launcher: it reports nothing.
#[cfg(test)]
pub(crate) struct Silent;

#[cfg(test)]
impl Directory for Silent {
    fn request_address(&mut self, _: u32) {}
    fn poll(&mut self) -> Option<Notice> {
        None
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn leave(&mut self) {}
    fn panicked(&mut self) {}
}
