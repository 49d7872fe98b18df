//! The packets that wait to be sent to each peer.

use std::collections::VecDeque;

use samite_fabric::link::{Link, Peer, Time, WorldRank};
use samite_fabric::wire::Protocol;

use crate::path::{self, Limits, Means, Path};
use crate::serves::{Serve, ServeId, Serves};
use crate::transfers::Transfers;
use crate::window::{Operation, Step};
use crate::wire::{Note, Traits};
use crate::{Name, WindowId};

/// A packet, or an operation that takes several packets.
#[derive(Debug)]
pub(crate) enum Item {
    /// The description of this process's part of a window: the first packet to a member, or the answer to its first
    /// packet.
    Meet {
        window: WindowId,
        is_answer: bool,
    },
    /// `slot` is that of the window at the receiver. It and the generation in the note are set when they are known.
    Note {
        slot: u32,
        kind: u8,
        note: Note,
    },
    /// Asks a member if it frees the window too.
    AskFreed {
        window: Name,
    },
    Step {
        window: WindowId,
        to: WorldRank,
        epoch: u64,
        step: Step,
    },
    /// Answers the operations that came with a member's request for the lock. `slot` is that of the window at the
    /// receiver, and `cost` the memory of the operations.
    Applied {
        window: WindowId,
        to: WorldRank,
        slot: u32,
        note: Note,
        results: Vec<u8>,
        cost: usize,
    },
}

/// The packets to each peer, and the operations that travel by puts and gets of the port.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The state of each peer, by its index.
    peers: Vec<PeerState>,
    pub(crate) transfers: Transfers,
    pub(crate) serves: Serves,
    /// The epochs with operations for which the program may wait, and whose locks may wait for the end of the epoch.
    pub(crate) recording: Vec<(WindowId, u64, WorldRank)>,
    /// The memory of the operations that came with requests for locks of this process: those that wait, and those whose
    /// answer was not sent.
    pub(crate) attached: usize,
}

#[derive(Debug, Default)]
pub(crate) struct PeerState {
    /// The limits of the path, once it is known.
    pub(crate) limits: Limits,
    /// The number of puts and gets of the port to the peer that are under way.
    pub(crate) pieces: usize,
    /// The time at which the peer was last told that puts or gets are under way.
    pub(crate) told: Option<Time>,
    /// The number of answers to `GET_INTO` that are awaited.
    pub(crate) asked: usize,
    /// The peer's reads of which a put is not posted, in the order of arrival.
    pub(crate) serves: VecDeque<ServeId>,
    /// The number of the peer's reads that have not ended.
    pub(crate) serving: usize,
    /// The number of puts for these reads that are under way.
    pub(crate) serve_pieces: usize,
    /// The number of slabs that operations to the peer use.
    pub(crate) slabs: usize,
    pub(crate) queue: VecDeque<Item>,
    /// The number of windows whose [`Member::owes`](crate::window::Member::owes) is true for this peer.
    pub(crate) owed: usize,
    /// The number of packets whose answer is awaited. Answers wait in the peer's memory while its port has no room, so
    /// this number is limited.
    pub(crate) unanswered: u32,
    /// The epochs of the flushes whose answers are awaited, in the order of their packets, which is that of the answers.
    /// A put or a get of the port could overtake the packets before them, so it waits.
    pub(crate) flushes: VecDeque<(WindowId, u64)>,
    /// The number of the peer's requests for windows that do not exist yet.
    pub(crate) early: usize,
    /// True if there was once no room to note such a request.
    pub(crate) was_refused: bool,
}

impl Outbox {
    pub(crate) fn of(&mut self, peer: Peer) -> &mut PeerState {
        if peer.index() >= self.peers.len() {
            self.peers.resize_with(peer.index() + 1, PeerState::default);
        }
        &mut self.peers[peer.index()]
    }

    /// Returns the way of an operation, of which no packet was sent, into a part that is not mapped.
    pub(crate) fn way(&mut self, to: Peer, traits: Traits, operation: &Operation) -> Path {
        let limits = self.of(to).limits;
        let is_registered = traits.key.get() != 0;
        let min = |min: Option<usize>| min.filter(|_| is_registered);
        let put_min = min(limits.put_min());
        let get_min = min(limits.get_min());
        // Both sides of a path have the same capabilities, so the target can put if this side can.
        let means = Means { is_mapped: false, put_min, get_min, put_back_min: put_min };
        // All runs take the same way.
        path::choose(operation.action, operation.shortest_run(), means)
    }

    /// Returns true if registered memory is accessed for operations with the peer: by this side or by the peer.
    pub(crate) fn has_pieces(&self, peer: Peer) -> bool {
        let has_pieces = |state: &PeerState| state.pieces + state.asked + state.serving > 0;
        self.peers.get(peer.index()).is_some_and(has_pieces)
    }

    /// Queues a read of a peer.
    pub(crate) fn serve(&mut self, link: &mut Link, serve: Serve) {
        let peer = serve.peer;
        let id = self.serves.begin(serve);
        let state = self.of(peer);
        state.serving += 1;
        state.serves.push_back(id);
        link.set_queued(peer, Protocol::Rma);
        link.seek(peer);
        link.list(peer);
    }

    /// Returns true if packets or reads of the peer wait.
    pub(crate) fn has_work(&self, peer: Peer) -> bool {
        let has_work = |state: &PeerState| !state.queue.is_empty() || !state.serves.is_empty();
        self.peers.get(peer.index()).is_some_and(has_work)
    }

    /// Returns the number of members to which messages of completed fences wait.
    pub(crate) fn owed(&self) -> usize {
        self.peers.iter().map(|state| state.owed).sum()
    }

    /// Returns true if messages of completed fences wait until the peer has answered an introduction.
    pub(crate) fn owes(&self, peer: Peer) -> bool {
        self.peers.get(peer.index()).is_some_and(|state| state.owed > 0)
    }

    /// Returns true if there was once no room to note a request of the peer.
    pub(crate) fn was_refused(&self, peer: Peer) -> bool {
        self.peers.get(peer.index()).is_some_and(|state| state.was_refused)
    }

    /// Returns true if packets wait for the peer.
    pub(crate) fn has_items(&self, peer: Peer) -> bool {
        self.peers.get(peer.index()).is_some_and(|state| !state.queue.is_empty())
    }

    /// Notes that an answer of the peer has arrived.
    pub(crate) fn answered(&mut self, link: &mut Link, peer: Peer) {
        let state = self.of(peer);
        state.unanswered = state.unanswered.saturating_sub(1);
        if !state.queue.is_empty() {
            link.list(peer);
        }
    }

    /// Returns the memory of the applied operations whose answers wait to be sent.
    pub(crate) fn applied(&self) -> usize {
        let items = self.peers.iter().flat_map(|state| &state.queue);
        items.map(|item| if let Item::Applied { cost, .. } = item { *cost } else { 0 }).sum()
    }

    /// Queues an item.
    pub(crate) fn push(&mut self, link: &mut Link, peer: Peer, item: Item) {
        self.of(peer).queue.push_back(item);
        link.set_queued(peer, Protocol::Rma);
        link.seek(peer);
        link.list(peer);
    }
}
