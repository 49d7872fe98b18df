//! The operations that travel by puts and gets of the port.
//!
//! An operation is one or more pieces, each a put or a get. Its memory belongs to the port until all of them have
//! ended, also if the operation's request or epoch has ended early. The port can fence off a peer (see
//! [`Limits`](crate::path::Limits)), so the pieces of a peer that has failed end too. A piece can also be a request
//! that the peer put bytes into this memory. When the peer ends, so does the piece, and the memory is kept until the
//! path is cut off.

use std::collections::VecDeque;

use samite_fabric::link::{Lease, Peer, RequestId, Slab, WorldRank};
use samite_fabric::{Local, Region, Remote};
use slab::Slab as Table;

use crate::WindowId;
use crate::path::Path;
use crate::window::Operation;

/// The name of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferId(u32);

impl TransferId {
    /// Returns the key of a piece in a slab with this number. A piece in no slab, and a put, has number 0.
    pub(crate) fn key(self, slab: usize) -> u64 {
        assert!(slab < SLABS_MAX, "a read has few slabs");
        u64::from(self.0) | (slab as u64) << u32::BITS
    }

    /// Returns the transfer and the slab of a piece.
    pub(crate) fn of_key(key: u64) -> (Self, usize) {
        (Self(key as u32), (key >> u32::BITS) as usize)
    }
}

/// The number of slabs that the key of a piece can name. The bits above are the link's, and the mark of
/// [`serves`](crate::serves).
pub(crate) const SLABS_MAX: usize = 1 << 16;

/// The registered memory of an operation.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// The operation's own memory.
    Own { region: Region, lease: Lease },
    /// Slabs of `part` bytes that have a copy of the bytes of a write.
    Copies { slabs: Vec<Slab>, part: usize },
    /// Slabs of `part` bytes that each get the bytes of a piece of a read. They are copied to the memory of the
    /// request, and the slab gets the bytes of another piece.
    Landing { slabs: Vec<LandingSlab>, part: usize },
}

/// A slab that gets the bytes of pieces of a read, one after another.
#[derive(Debug)]
pub(crate) struct LandingSlab {
    pub(crate) slab: Slab,
    /// The place in the operation of the piece that is under way, and its length.
    pub(crate) piece: Option<(usize, usize)>,
}

impl Buffer {
    /// Returns the registered memory for the operation's bytes from `offset` on, at most `len` bytes, and the number of
    /// its slab for the key of the piece. Returns `None` if all slabs are in use.
    pub(crate) fn local(&self, offset: usize, len: usize) -> Option<(Local, usize)> {
        match self {
            Self::Own { lease, .. } => Some((lease.local(offset, len), 0)),
            Self::Copies { slabs, part } => {
                let within = offset % part;
                Some((slabs[offset / part].local(within, len.min(part - within)), 0))
            }
            Self::Landing { slabs, part } => {
                let number = slabs.iter().position(|landing| landing.piece.is_none())?;
                Some((slabs[number].slab.local(0, len.min(*part)), number))
            }
        }
    }

    /// Returns the place for the operation's bytes from `offset` on, at most `len` bytes, for the puts of the target.
    /// Also returns the number of its slab for the name of the piece, and the length of the piece. Returns `None` if
    /// all slabs are in use.
    pub(crate) fn remote(&self, offset: usize, len: usize) -> Option<(Remote, usize, usize)> {
        match self {
            Self::Own { lease, .. } => Some((lease.remote(offset), 0, len)),
            Self::Copies { .. } => unreachable!("they have the bytes of a write"),
            Self::Landing { slabs, part } => {
                let number = slabs.iter().position(|landing| landing.piece.is_none())?;
                Some((slabs[number].slab.remote(0), number, len.min(*part)))
            }
        }
    }

    /// Returns true if a slab with this number exists and has a piece under way. Own memory has number 0.
    fn has_piece(&self, number: usize) -> bool {
        match self {
            Self::Own { .. } => number == 0,
            Self::Copies { .. } => false,
            Self::Landing { slabs, .. } => slabs.get(number).is_some_and(|landing| landing.piece.is_some()),
        }
    }

    /// Notes that a piece is under way whose memory [`Buffer::local`] has returned.
    pub(crate) fn begin_piece(&mut self, number: usize, offset: usize, len: usize) {
        if let Self::Landing { slabs, .. } = self {
            slabs[number].piece = Some((offset, len));
        }
    }

    /// Notes that a piece has ended. Returns the slab with its bytes, their place in the operation, and their number,
    /// if they must be copied.
    pub(crate) fn end_piece(&mut self, number: usize) -> Option<(&Region, usize, usize)> {
        let Self::Landing { slabs, .. } = self else { return None };
        let landing = &mut slabs[number];
        let (offset, len) = landing.piece.take().expect("a piece is under way in the slab");
        Some((landing.slab.region(), offset, len))
    }
}

/// An operation that travels by puts or gets.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) window: WindowId,
    pub(crate) epoch: u64,
    pub(crate) rank: WorldRank,
    pub(crate) peer: Peer,
    pub(crate) buffer: Buffer,
    pub(crate) request: Option<RequestId>,
    /// The way of the bytes: [`Path::Put`], [`Path::Get`] or [`Path::PutBack`].
    pub(crate) way: Path,
    /// The bytes by which the operation counts as recorded.
    pub(crate) cost: usize,
    /// The number of pieces under way.
    pub(crate) outstanding: usize,
    /// True if a piece was posted. From then on the transfer counts in its epoch.
    pub(crate) has_begun: bool,
    /// True if no further piece is posted.
    pub(crate) is_closed: bool,
    /// True if the operation was dropped before all its pieces were posted, or if a piece has failed.
    pub(crate) has_failed: bool,
}

impl Transfer {
    /// Returns a transfer of which nothing was posted.
    pub(crate) fn new(
        window: WindowId,
        epoch: u64,
        (rank, peer): (WorldRank, Peer),
        way: Path,
        buffer: Buffer,
        operation: &Operation,
    ) -> Self {
        let (request, cost) = (operation.request, operation.cost());
        let (outstanding, has_begun, is_closed, has_failed) = (0, false, false, false);
        Self {
            window,
            epoch,
            rank,
            peer,
            buffer,
            request,
            way,
            cost,
            outstanding,
            has_begun,
            is_closed,
            has_failed,
        }
    }
}

/// The operations that travel by puts and gets of the port.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    all: Table<Transfer>,
    /// The transfers that are over.
    finished: VecDeque<TransferId>,
}

impl Transfers {
    pub(crate) fn begin(&mut self, transfer: Transfer) -> TransferId {
        let index = self.all.insert(transfer);
        TransferId(u32::try_from(index).expect("2^32 transfers do not fit in memory"))
    }

    pub(crate) fn of(&mut self, id: TransferId) -> &mut Transfer {
        &mut self.all[id.0 as usize]
    }

    /// Notes that no further piece of a transfer is posted.
    pub(crate) fn close(&mut self, id: TransferId, has_failed: bool) {
        let transfer = self.of(id);
        assert!(!transfer.is_closed, "a transfer is closed once");
        (transfer.is_closed, transfer.has_failed) = (true, transfer.has_failed || has_failed);
        self.check_finished(id);
    }

    /// Notes the end of a piece, and returns its peer.
    pub(crate) fn piece_ended(&mut self, id: TransferId, has_failed: bool) -> Peer {
        let transfer = self.of(id);
        transfer.outstanding -= 1;
        transfer.has_failed |= has_failed;
        let peer = transfer.peer;
        self.check_finished(id);
        peer
    }

    fn check_finished(&mut self, id: TransferId) {
        let transfer = &self.all[id.0 as usize];
        if transfer.is_closed && transfer.outstanding == 0 {
            self.finished.push_back(id);
        }
    }

    /// Returns true if a peer may report that a piece of a transfer has landed.
    pub(crate) fn is_awaited(&self, id: TransferId, number: usize, from: Peer) -> bool {
        self.all.get(id.0 as usize).is_some_and(|transfer| {
            transfer.way == Path::PutBack
                && transfer.peer == from
                && transfer.outstanding > 0
                && transfer.buffer.has_piece(number)
        })
    }

    /// Ends the reads that a peer was asked to answer by puts: the peer has ended. All of them are closed.
    pub(crate) fn abandon(&mut self, peer: Peer) {
        let is_theirs = |transfer: &Transfer| transfer.way == Path::PutBack && transfer.peer == peer;
        let theirs = self.all.iter().filter(|(_, transfer)| is_theirs(transfer) && transfer.outstanding > 0);
        for index in theirs.map(|(index, _)| index).collect::<Vec<_>>() {
            let transfer = &mut self.all[index];
            assert!(transfer.is_closed, "the items to a peer that has ended are dropped");
            (transfer.outstanding, transfer.has_failed) = (0, true);
            self.finished.push_back(TransferId(index as u32));
        }
    }

    /// Returns the number of transfers that are over.
    pub(crate) fn finished(&self) -> usize {
        self.finished.len()
    }

    /// Removes a transfer that is over.
    pub(crate) fn take_finished(&mut self) -> Option<Transfer> {
        Some(self.all.remove(self.finished.pop_front()?.0 as usize))
    }
}
