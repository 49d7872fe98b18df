//! A port that replays prepared events.

use std::collections::VecDeque;
use std::ops::Range;

use samite_fabric::port::gather;
use samite_fabric::{
    Access, Address, Body, Caps, Failure, Local, OpId, Order, PathId, PeerId, Port, PortError, Post, Reach,
    Region, Registration, Remote, Sink,
};

/// A port that reports the prepared `events`, accepts posts while there is room, and keeps the contract of a port:
/// each operation ends once, and no operation ends after its peer was disconnected.
#[derive(Debug)]
pub(crate) struct Tape {
    caps: Caps,
    pub(crate) events: VecDeque<Event>,
    pub(crate) has_room: bool,
    /// Packets that were sent and not yet inspected.
    pub(crate) sent: Vec<Vec<u8>>,
    outstanding: VecDeque<(OpId, PeerId)>,
    /// True for each peer that was disconnected.
    peers: Vec<bool>,
    registrations: Vec<Option<(Region, Access)>>,
}

#[derive(Debug)]
pub(crate) enum Event {
    Packet(Vec<u8>),
    Completed(OpId, Result<(), Failure>),
    Notified(u64),
    Lost(PeerId),
}

impl Tape {
    pub(crate) fn new(get: bool, put: bool) -> Self {
        let caps = Caps {
            name: "tape".into(),
            short_max: 64,
            packet_max: 512,
            fragment_max: 512,
            zcopy_max: 0,
            rma_max: if get || put { 1000 } else { 0 },
            put_bytes_max: 0,
            get_bytes_max: 0,
            iov_max: 0,
            rma_depth: 4,
            put: Reach::Any.when(put),
            get: Reach::Any.when(get),
            change: Reach::None,
            map: false,
            passive: false,
            immediate_bits: 0,
            order: Order::SEND_AFTER_SEND,
            fence: true,
            peers_max: usize::MAX,
            dear_packets: true,
        };
        Self {
            caps,
            events: VecDeque::new(),
            has_room: true,
            sent: Vec::new(),
            outstanding: VecDeque::new(),
            peers: Vec::new(),
            registrations: Vec::new(),
        }
    }

    /// Ends the oldest operation.
    pub(crate) fn complete(&mut self, result: Result<(), Failure>) {
        if let Some((op, _)) = self.outstanding.pop_front() {
            self.events.push_back(Event::Completed(op, result));
        }
    }

    /// Returns what each registration that has not ended permits.
    pub(crate) fn registered(&self) -> Vec<Access> {
        self.registrations.iter().flatten().map(|(_, access)| *access).collect()
    }

    /// Accepts a get or a put, of which the memory of other ranks that the port reaches is `reach`.
    fn one_sided(&mut self, reach: Reach, peer: PeerId, local: Local, op: OpId) -> Result<Post, PortError> {
        self.check(peer)?;
        if !reach.is_some() {
            return Err(PortError::Unsupported { what: "get or put" });
        }
        assert!(local.len <= self.caps.rma_max, "{local:?}");
        let (region, _) = self.registrations[local.registration.id as usize].as_ref().expect("registered");
        assert!(local.offset + local.len <= region.len(), "{local:?}");
        if !self.has_room || self.outstanding.len() >= self.caps.rma_depth {
            return Ok(Post::Again);
        }
        self.outstanding.push_back((op, peer));
        Ok(Post::Done)
    }

    fn check(&self, peer: PeerId) -> Result<(), PortError> {
        match self.peers.get(peer.0 as usize) {
            Some(false) => Ok(()),
            _ => Err(PortError::PeerGone(peer)),
        }
    }
}

impl Port for Tape {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(b"tape".to_vec())
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        if address.0.len() > 16 {
            return Err(PortError::BadAddress { why: "longer than 16 bytes".into() });
        }
        self.peers.push(false);
        Ok(PeerId(self.peers.len() as u32 - 1))
    }

    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        self.check(to)?;
        assert!(head.len() + body.len() <= self.caps.packet_max);
        if !self.has_room {
            return Ok(Post::Again);
        }
        self.sent.push(gather(head, body));
        Ok(Post::Done)
    }

    fn send_zcopy(&mut self, _: PeerId, _: &[u8], _: Local, _: OpId) -> Result<Post, PortError> {
        Err(PortError::Unsupported { what: "gather" })
    }

    fn put(&mut self, to: PeerId, from: Local, _: Remote, op: OpId) -> Result<Post, PortError> {
        self.one_sided(self.caps.put, to, from, op)
    }

    fn put_imm(&mut self, _: PeerId, _: Local, _: Remote, _: u64, _: OpId) -> Result<Post, PortError> {
        Err(PortError::Unsupported { what: "put" })
    }

    fn get(&mut self, to: PeerId, into: Local, _: Remote, op: OpId) -> Result<Post, PortError> {
        self.one_sided(self.caps.get, to, into, op)
    }

    fn path(&self, peer: PeerId) -> Result<PathId, PortError> {
        self.check(peer).map(|()| PathId::default())
    }

    fn register_span(
        &mut self,
        _: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        assert_eq!(span, 0..region.len());
        self.registrations.push(Some((region.clone(), access)));
        Ok(Registration { id: self.registrations.len() as u32 - 1, key: 0x5eed, base: 0 })
    }

    fn deregister(&mut self, registration: Registration) {
        let ended = self.registrations[registration.id as usize].take();
        assert!(ended.is_some(), "deregistered twice");
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let events = std::mem::take(&mut self.events);
        let count = events.len();
        for event in events {
            match event {
                Event::Packet(bytes) => sink.packet(&bytes),
                Event::Completed(op, result) => sink.completed(op, result),
                Event::Notified(immediate) => sink.notified(immediate),
                Event::Lost(peer) => {
                    if self.check(peer).is_ok() {
                        self.fence_peer(peer);
                        sink.peer_lost(peer);
                    }
                }
            }
        }
        Ok(count)
    }

    fn has_packet(&self) -> bool {
        matches!(self.events.front(), Some(Event::Packet(_)))
    }

    fn next_packet<S: Sink>(&mut self, sink: &mut S) -> bool {
        let packet = self.events.pop_front_if(|event| matches!(event, Event::Packet(_)));
        let Some(Event::Packet(bytes)) = packet else { return false };
        sink.packet(&bytes);
        true
    }

    fn fence_peer(&mut self, peer: PeerId) {
        if let Some(fenced) = self.peers.get_mut(peer.0 as usize) {
            *fenced = true;
        }
        let (theirs, rest) = self.outstanding.drain(..).partition(|(_, to)| *to == peer);
        self.outstanding = rest;
        let theirs: VecDeque<(OpId, PeerId)> = theirs;
        self.events.extend(theirs.into_iter().map(|(op, _)| Event::Completed(op, Err(Failure::Fenced))));
    }
}
