//! Claimed messages: taken out of matching, and received or discarded later.
//!
//! A message whose bytes follow their envelope can be claimed before all of them have come. The bytes are kept here, against
//! the budget for unexpected messages, until the message is received or discarded. So a message that has arrived whole is
//! received, though its sender has left, failed or begun another life by then. One that cannot arrive any more is an error.

use samite_fabric::{Memory, Port};
use samite_matching::{Envelope, Pattern};

use super::{Core, Engine, Stream, Unexpected, status_of};
use crate::RequestId;
use crate::choose::cost;
use crate::error::{Cause, Error, Fate, Status};
use crate::request::{Buffer, Partner, Request, State};
use crate::wire::Way;

/// A message taken out of matching, which only [`Engine::recv_claimed`] can receive (MPI: matched probe).
#[derive(Debug)]
#[must_use = "receive it, or give it to Engine::discard"]
pub struct Claimed {
    envelope: Envelope,
    message: Unexpected,
    /// The life of the sender.
    incarnation: Option<u32>,
    /// Its place among [`Core::claims`], if its bytes follow the envelope.
    place: Option<usize>,
}

/// The bytes of a claimed message that follow their envelope.
#[derive(Debug)]
pub(super) struct Claim {
    /// The index of the sender.
    sender: u32,
    /// The sender's name for the message.
    send: u64,
    pub(super) total: usize,
    /// The bytes that have arrived.
    pub(super) bytes: Vec<u8>,
    /// True once the rest cannot arrive any more. Then no bytes are kept.
    is_lost: bool,
}

impl<P: Port> Engine<P> {
    /// Takes the first message that `pattern` matches out of matching, if one has arrived.
    ///
    /// # Errors
    /// As [`Engine::probe`].
    pub fn claim(&mut self, pattern: &Pattern) -> Result<Option<(Status, Claimed)>, Error> {
        self.core.check_source(pattern)?;
        match self.core.matcher.take(pattern) {
            Some((envelope, message)) => {
                let status = status_of(&envelope, message.bytes());
                Ok(Some((status, self.core.claimed(envelope, message))))
            }
            None => self.core.nothing_from(pattern),
        }
    }

    /// Starts to receive a claimed message: to `memory`, or to a borrowed buffer of `Err(len)` bytes that is
    /// lent at each poll.
    pub fn recv_claimed(
        &mut self,
        now_ns: u64,
        claimed: Claimed,
        into: Result<Memory, usize>,
        deadline_ns: u64,
    ) -> RequestId {
        self.core.now_ns = now_ns;
        let buffer = into.map_or_else(Buffer::lent, Buffer::Owned);
        let Envelope { source, context, tag } = claimed.envelope;
        let request = Request::new(State::Over, buffer, Partner::Rank(source), context, tag, now_ns);
        let id = self.core.requests.insert(request);
        self.core.set_deadline(id, deadline_ns);
        self.core.accept_claimed(id, claimed);
        self.drive(&mut ());
        id
    }

    /// Drops a claimed message. Its sender takes it for received.
    pub fn discard(&mut self, now_ns: u64, claimed: Claimed) {
        let id = self.recv_claimed(now_ns, claimed, Ok(Memory::zeroed(0)), u64::MAX);
        self.forget(id);
    }
}

impl Core {
    /// Notes that a message was claimed.
    fn claimed(&mut self, envelope: Envelope, message: Unexpected) -> Claimed {
        self.matched(&envelope, &message);
        let sender = self.peers.find(envelope.source);
        let incarnation = sender.and_then(|index| self.peers[index].incarnation);
        let mut place = None;
        if let (Some(sender), &Unexpected::Rts(rendezvous)) = (sender, &message)
            && rendezvous.way == Way::Stream
            && let Some(stream) = self.streams.get_mut(&(sender, rendezvous.send))
            && let Stream::Kept { total, bytes, .. } = stream
        {
            let (total, bytes) = (*total, std::mem::take(bytes));
            let claim = Claim { sender, send: rendezvous.send, total, bytes, is_lost: false };
            let at = self.claims.insert(claim);
            *stream = Stream::Claimed(at);
            place = Some(at);
        }
        Claimed { envelope, message, incarnation, place }
    }

    /// A receive gets a message that was claimed.
    fn accept_claimed(&mut self, id: RequestId, claimed: Claimed) {
        let Claimed { envelope, message, incarnation, place } = claimed;
        let claim = place.and_then(|place| self.claims.try_remove(place));
        match (message, claim) {
            (Unexpected::Rts(rendezvous), Some(claim)) => {
                if claim.is_lost {
                    let abandoned = Error::Abandoned { rank: envelope.source, fate: Fate::NotDelivered };
                    let error = self.sender_failure(&envelope, incarnation).unwrap_or(abandoned);
                    return self.finish(id, Err(error));
                }
                self.unexpected_cost -= u64::from(cost(claim.total));
                // Once it is whole, its name may be that of another message, which the sender's next life sends.
                let name = (claim.sender, claim.send);
                if matches!(self.streams.get(&name), Some(Stream::Claimed(at)) if Some(*at) == place) {
                    self.streams.remove(&name);
                }
                self.go_on(id, &envelope, rendezvous, &claim.bytes, &mut ());
            }
            (Unexpected::Rts(rendezvous), None) => match self.sender_failure(&envelope, incarnation) {
                Some(error) => self.finish(id, Err(error)),
                None => self.begin(id, &envelope, rendezvous),
            },
            (message @ Unexpected::Eager(_), _) => self.accept(id, &envelope, message, &mut ()),
        }
    }

    /// Why bytes that are still with their sender will not come, if so.
    fn sender_failure(&mut self, from: &Envelope, incarnation: Option<u32>) -> Option<Error> {
        let index = self.peers.find(from.source)?;
        let renewed = self.peers[index].incarnation != incarnation;
        let cause = self.peers[index].failure().or(renewed.then_some(Cause::Restarted))?;
        Some(Error::PeerFailed { rank: from.source, cause, fate: Fate::NotDelivered, report: None })
    }

    /// The rest of a claimed message will not come.
    pub(super) fn lose_claim(&mut self, place: usize) {
        let Some(claim) = self.claims.get_mut(place) else { return };
        (claim.bytes, claim.is_lost) = (Vec::new(), true);
        self.unexpected_cost -= u64::from(cost(claim.total));
    }
}
