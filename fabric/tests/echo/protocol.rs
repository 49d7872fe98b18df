//! A complete protocol over the link: an echo with a deadline. It shows what a new protocol implements.

use std::collections::{BTreeMap, VecDeque};

use samite_fabric::link::{
    Cause, Done, Ending, Expiry, Fault, Lent, Link, Out, Peer, RequestId, Slot, Slots, Stack, Time, Turn,
};
use samite_fabric::wire::{Flags, Header, Protocol, WireError};
use samite_fabric::{Caps, Port, PortError};
use zerocopy::IntoBytes;

/// Kinds of packets. Packets of both kinds carry the number that the caller gave to the call, and the bytes.
const ASK: u8 = 0;
const ANSWER: u8 = 1;

/// Calls under way, and those that wait for room in the port.
pub(crate) struct Echo {
    protocol: Protocol,
    pub(crate) calls: Slots<Call>,
    queues: BTreeMap<Peer, VecDeque<RequestId>>,
    /// For each peer, the length of the longest packet on its path.
    packet_max: BTreeMap<Peer, usize>,
}

/// A call whose result the caller has not collected.
pub(crate) struct Call {
    to: Peer,
    bytes: Vec<u8>,
    deadline: Time,
    result: Option<Result<Vec<u8>, Ended>>,
}

/// The reason why a call has no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ended {
    TimedOut,
    PeerFailed(Cause),
    /// This side has said goodbye to the peer. The peer ignores calls that arrive after the goodbye.
    Closed,
    /// The bytes do not fit in one packet.
    TooLong,
}

impl Slot for Call {
    fn bare() -> Self {
        Self { to: Peer::default(), bytes: Vec::new(), deadline: Time::ZERO, result: None }
    }
    fn is_bare(&self) -> bool {
        self.bytes.capacity() == 0 && self.result.is_none()
    }
}

impl Echo {
    /// Makes an echo that uses the packets of this protocol.
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { protocol, calls: Slots::new(protocol), queues: BTreeMap::new(), packet_max: BTreeMap::new() }
    }

    /// Starts a call.
    pub(crate) fn call(&mut self, link: &mut Link, to: Peer, bytes: &[u8], deadline: Time) -> RequestId {
        let id = self.calls.insert(Call { to, bytes: bytes.to_vec(), deadline, result: None });
        // The link reports the failure of a peer only once. An operation that starts later must check for it.
        if let Some(cause) = link.peer(to).failure() {
            self.end(id, Err(Ended::PeerFailed(cause)));
            return id;
        }
        if link.peer(to).was_told_goodbye() {
            self.end(id, Err(Ended::Closed));
            return id;
        }
        let calls = &self.calls;
        link.set_deadline(id, deadline, |id, due| calls.get(id).is_some_and(|call| call.deadline == due));
        self.queues.entry(to).or_default().push_back(id);
        link.set_queued(to, self.protocol);
        link.seek(to);
        link.list(to);
        id
    }

    /// Returns the result of a call that has ended, and forgets the call.
    pub(crate) fn collect(&mut self, id: RequestId) -> Option<Result<Vec<u8>, Ended>> {
        let result = self.calls.get_mut(id)?.result.take()?;
        self.calls.remove(id);
        Some(result)
    }

    fn end(&mut self, id: RequestId, result: Result<Vec<u8>, Ended>) {
        if let Some(call) = self.calls.get_mut(id) {
            call.result.get_or_insert(result);
        }
    }

    fn end_all(&mut self, peer: Peer, why: &Ended) {
        for id in self.calls.select(|call| call.to == peer) {
            self.end(id, Err(why.clone()));
        }
        self.queues.remove(&peer);
    }
}

impl Stack for Echo {
    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        _: &mut L,
    ) -> Result<(), Fault> {
        // The link hands over the packets of all protocols except its own.
        if header.protocol() != self.protocol {
            return Err(Fault::new(from, WireError::Protocol { theirs: header.protocol() as u8 }));
        }
        let Some((name, bytes)) = body.split_first_chunk() else {
            return Err(Fault::new(from, WireError::Short { len: body.len() }));
        };
        match header.kind {
            ASK => link.answer(from, self.protocol, ANSWER, body),
            ANSWER => {
                // A peer may send the number of any call. Only an answer from the peer that was called counts.
                let id = RequestId::from_wire(u64::from_le_bytes(*name));
                if self.calls.get(id).is_some_and(|call| call.to == from) {
                    self.end(id, Ok(bytes.to_vec()));
                }
            }
            theirs => return Err(Fault::new(from, WireError::Kind { theirs })),
        }
        Ok(())
    }

    fn completed<L: Lent>(&mut self, _: &mut Link, _: Done, _: &mut L) -> Result<(), Fault> {
        unreachable!("it posts no operations")
    }

    fn path_resolved(&mut self, _: &mut Link, peer: Peer, caps: &Caps) {
        self.packet_max.insert(peer, caps.packet_max);
    }

    fn peer_ended(&mut self, _: &mut Link, peer: Peer, ending: &Ending<'_>) {
        match ending {
            Ending::Left => self.end_all(peer, &Ended::PeerFailed(Cause::Left)),
            Ending::Failed(cause) => self.end_all(peer, &Ended::PeerFailed((*cause).clone())),
            _ => {}
        }
    }

    fn no_path(&mut self, _: &mut Link, peer: Peer, what: &'static str, _: &str) {
        self.end_all(peer, &Ended::PeerFailed(Cause::Unreachable(what.to_owned())));
    }

    fn said_goodbye(&mut self, _: &mut Link, peer: Peer) {
        self.end_all(peer, &Ended::Closed);
    }

    fn expired(&mut self, _: &mut Link, id: RequestId, due: Time, _: bool) -> Expiry {
        if self.calls.get(id).is_some_and(|call| call.deadline == due) {
            self.end(id, Err(Ended::TimedOut));
        }
        Expiry::Done
    }

    fn next<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer, _: Protocol) -> Result<Turn, PortError> {
        let queue = self.queues.entry(to).or_default();
        let turn = match queue.front().and_then(|id| Some((*id, self.calls.get_mut(*id)?))) {
            Some((id, call)) if call.result.is_none() => {
                let header = out.link.header(to, self.protocol, ASK, Flags::empty(), 0);
                let head = [header.as_bytes(), &id.to_wire().to_le_bytes()].concat();
                if self.packet_max.get(&to).is_some_and(|&max| head.len() + call.bytes.len() > max) {
                    // The port would refuse the packet, and a port's error ends the peer.
                    call.result = Some(Err(Ended::TooLong));
                    Turn::Skipped
                } else {
                    Turn::from(out.send(to, &head, call.bytes.as_slice())?)
                }
            }
            _ => Turn::Skipped,
        };
        if turn != Turn::NoRoom {
            queue.pop_front();
        }
        if queue.is_empty() {
            out.link.clear_queued(to, self.protocol);
        }
        Ok(turn)
    }
}
