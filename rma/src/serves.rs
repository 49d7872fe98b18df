//! Reads of members that this process answers by puts of the port.
//!
//! A member that cannot get from this process's part sends the place of its own memory, and this process puts the bytes
//! there. A member has at most [`SERVES_MAX`] such reads that have not ended. Their puts are posted in the order of
//! arrival, so this process keeps a bounded state for each member, and a bounded number of puts is under way.

use samite_fabric::Remote;
use samite_fabric::link::Peer;
use slab::Slab as Table;

use crate::WindowId;

/// The largest number of reads of one member that have not ended. A member that asks for more fails.
pub(crate) const SERVES_MAX: usize = 16;

/// The name of a read of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServeId(u32);

impl ServeId {
    /// Returns the key of the read's puts.
    pub(crate) fn key(self) -> u64 {
        MARK | u64::from(self.0)
    }

    /// Returns the read to which a put belongs, or `None` if the key is of another kind of operation.
    pub(crate) fn of_key(key: u64) -> Option<Self> {
        (key & MARK != 0).then_some(Self(key as u32))
    }
}

/// The mark of keys of these puts.
const MARK: u64 = 1 << 59;

/// A read of a member.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) peer: Peer,
    pub(crate) window: WindowId,
    /// The offset of the first byte in the part.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// The place of the first byte in the member's memory.
    pub(crate) into: Remote,
    /// The member's name for the read.
    pub(crate) name: u64,
    /// The number of bytes whose puts were posted.
    pub(crate) posted: usize,
    /// The number of puts under way.
    pub(crate) outstanding: usize,
    /// True if the member has ended. No further put is posted.
    pub(crate) is_dropped: bool,
}

impl Serve {
    fn is_over(&self) -> bool {
        (self.posted == self.len || self.is_dropped) && self.outstanding == 0
    }
}

/// The reads of all members that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Serves {
    all: Table<Serve>,
}

impl Serves {
    pub(crate) fn begin(&mut self, serve: Serve) -> ServeId {
        let index = self.all.insert(serve);
        ServeId(u32::try_from(index).expect("each member has a few reads"))
    }

    pub(crate) fn of(&mut self, id: ServeId) -> &mut Serve {
        &mut self.all[id.0 as usize]
    }

    /// Removes a read if it has ended.
    pub(crate) fn take_if_over(&mut self, id: ServeId) -> Option<Serve> {
        self.of(id).is_over().then(|| self.all.remove(id.0 as usize))
    }

    /// Posts no further put of the reads of a member that has ended. Removes those without a put under way, and returns
    /// them.
    pub(crate) fn drop_of(&mut self, peer: Peer) -> Vec<Serve> {
        let theirs: Vec<_> =
            self.all.iter().filter(|(_, serve)| serve.peer == peer).map(|(index, _)| index).collect();
        let over = |index: usize| {
            self.all[index].is_dropped = true;
            self.all[index].is_over().then(|| self.all.remove(index))
        };
        theirs.into_iter().filter_map(over).collect()
    }

    /// Returns true if no member reads.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if members read from a window.
    pub(crate) fn concern(&self, window: WindowId) -> bool {
        self.all.iter().any(|(_, serve)| serve.window == window)
    }
}
