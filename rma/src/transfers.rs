//! The operations that travel by puts of the port.
//!
//! An operation is one or more puts. Its memory belongs to the port until all of them have ended, also if the
//! operation's request or epoch has ended early. The port can fence off a peer (see [`Limits`](crate::path::Limits)),
//! so the puts to a peer that has failed end too.

use std::collections::VecDeque;

use samite_fabric::link::{Lease, Peer, RequestId, Slab, WorldRank};
use samite_fabric::{Local, Region};
use slab::Slab as Table;

use crate::WindowId;
use crate::window::Operation;

/// The name of a transfer: the key of its puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferId(usize);

impl TransferId {
    /// Returns the key of the transfer's puts.
    pub(crate) fn key(self) -> u64 {
        self.0 as u64
    }
}

/// The memory from which an operation is put.
#[derive(Debug)]
pub(crate) enum Source {
    /// The operation's own memory.
    Own { region: Region, lease: Lease },
    /// Slabs of `part` bytes that have a copy of the bytes.
    Slabs { slabs: Vec<Slab>, part: usize },
}

impl Source {
    /// Returns the registered memory of the operation's bytes from `offset` on, at most `len` bytes.
    pub(crate) fn local(&self, offset: usize, len: usize) -> Local {
        match self {
            Self::Own { lease, .. } => lease.local(offset, len),
            Self::Slabs { slabs, part } => {
                let within = offset % part;
                slabs[offset / part].local(within, len.min(part - within))
            }
        }
    }
}

/// An operation that travels by puts.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) window: WindowId,
    pub(crate) epoch: u64,
    pub(crate) rank: WorldRank,
    pub(crate) peer: Peer,
    pub(crate) source: Source,
    pub(crate) request: Option<RequestId>,
    /// The bytes by which the operation counts as recorded.
    pub(crate) cost: usize,
    /// The number of puts under way.
    pub(crate) outstanding: usize,
    /// True if a put was posted. From then on the transfer counts in its epoch.
    pub(crate) has_begun: bool,
    /// True if no further put is posted.
    pub(crate) is_closed: bool,
    /// True if the operation was dropped before all its puts were posted, or if a put has failed.
    pub(crate) has_failed: bool,
}

impl Transfer {
    /// Returns a transfer of which nothing was posted.
    pub(crate) fn new(
        window: WindowId,
        epoch: u64,
        (rank, peer): (WorldRank, Peer),
        source: Source,
        operation: &Operation,
    ) -> Self {
        let (request, cost) = (operation.request, operation.cost());
        let (outstanding, has_begun, is_closed, has_failed) = (0, false, false, false);
        Self {
            window,
            epoch,
            rank,
            peer,
            source,
            request,
            cost,
            outstanding,
            has_begun,
            is_closed,
            has_failed,
        }
    }
}

/// The operations that travel by puts.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    all: Table<Transfer>,
    /// The transfers that are over.
    finished: VecDeque<usize>,
}

impl Transfers {
    pub(crate) fn begin(&mut self, transfer: Transfer) -> TransferId {
        TransferId(self.all.insert(transfer))
    }

    pub(crate) fn of(&mut self, id: TransferId) -> &mut Transfer {
        &mut self.all[id.0]
    }

    /// Notes that no further put of a transfer is posted.
    pub(crate) fn close(&mut self, id: TransferId, has_failed: bool) {
        let transfer = &mut self.all[id.0];
        assert!(!transfer.is_closed, "a transfer is closed once");
        (transfer.is_closed, transfer.has_failed) = (true, transfer.has_failed || has_failed);
        self.check_finished(id.0);
    }

    /// Notes the end of a put, and returns its peer.
    pub(crate) fn put_ended(&mut self, key: u64, has_failed: bool) -> Peer {
        let index = usize::try_from(key).expect("it is the index of a transfer");
        let transfer = &mut self.all[index];
        transfer.outstanding -= 1;
        transfer.has_failed |= has_failed;
        let peer = transfer.peer;
        self.check_finished(index);
        peer
    }

    fn check_finished(&mut self, index: usize) {
        let transfer = &self.all[index];
        if transfer.is_closed && transfer.outstanding == 0 {
            self.finished.push_back(index);
        }
    }

    /// Returns the number of transfers that are over.
    pub(crate) fn finished(&self) -> usize {
        self.finished.len()
    }

    /// Removes a transfer that is over.
    pub(crate) fn take_finished(&mut self) -> Option<Transfer> {
        Some(self.all.remove(self.finished.pop_front()?))
    }
}
