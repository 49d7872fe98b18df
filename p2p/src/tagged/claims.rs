//! Claimed messages: taken out of matching, and received or discarded later.
//!
//! A stream can be claimed before all of its bytes have arrived. The bytes are kept here, against the budget for
//! unexpected messages, until the message is received or discarded. So if the whole message has arrived, it can be
//! received even after its sender has left, failed or restarted. If the rest cannot arrive any more, the receive ends
//! with an error.

use samite_fabric::Memory;
use samite_fabric::link::{Cause, Error, Fate, Incarnation, Link, Peer, RequestId, WorldRank};
use samite_matching::{Envelope, Pattern, Source, UnexpectedId};

use super::{Stream, Tagged, Unexpected};
use crate::choose::cost;
use crate::request::{Buffer, Partner, Request, State};
use crate::wire::{Fin, TransferMode, Verdict, kind};

/// A message taken out of matching, which only [`Engine::recv_claimed`](crate::Engine::recv_claimed) can receive (MPI:
/// matched probe).
#[derive(Debug)]
#[must_use = "receive it, or give it to Engine::discard"]
pub struct Claimed {
    envelope: Envelope,
    message: Unexpected,
    /// The incarnation of the sender.
    incarnation: Option<Incarnation>,
    /// The index in [`Tagged::claims`], if the message is a stream.
    place: Option<usize>,
}

/// A claimed message that arrives as a stream.
#[derive(Debug)]
pub(crate) struct Claim {
    sender: Peer,
    /// The sender's name for the message.
    send: u64,
    pub(super) total: usize,
    /// The bytes that have arrived.
    pub(super) bytes: Vec<u8>,
    /// True once the rest cannot arrive any more. Then no bytes are kept.
    is_lost: bool,
}

impl Claimed {
    pub(crate) fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}

impl Claim {
    /// Returns true once the rest of the message cannot arrive any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }
}

impl Tagged {
    /// Makes a claim of a message that was taken out of matching.
    pub(crate) fn claimed(&mut self, link: &mut Link, envelope: Envelope, message: Unexpected) -> Claimed {
        self.matched(link, &envelope, &message);
        if let Unexpected::Eager(_) | Unexpected::Whole(_) = &message {
            self.claimed_cost += u64::from(cost(message.bytes()));
        }
        let Some(sender) = link.find(WorldRank(envelope.source)) else {
            unreachable!("a message came from rank {}, which was never met", envelope.source)
        };
        let incarnation = link.peer(sender).incarnation();
        let mut place = None;
        if let Unexpected::Rts(rendezvous) = message
            && rendezvous.mode == TransferMode::Stream
        {
            let name = (sender, rendezvous.send);
            let Some(Stream::Kept { total, bytes, .. }) = self.streams.get_mut(&name) else {
                unreachable!("an unexpected stream is kept under its name until it is claimed")
            };
            let (total, bytes) = (*total, std::mem::take(bytes));
            let claim = Claim { sender, send: rendezvous.send, total, bytes, is_lost: false };
            let at = self.claims.insert(claim);
            self.streams.insert(name, Stream::Claimed(at));
            place = Some(at);
        }
        Claimed { envelope, message, incarnation, place }
    }

    /// Delivers a claimed message to the receive that was started for it.
    pub(crate) fn accept_claimed(&mut self, link: &mut Link, id: RequestId, claimed: Claimed) {
        let Claimed { envelope, message, incarnation, place } = claimed;
        let claim = place.and_then(|place| self.claims.try_remove(place));
        match (message, claim) {
            (Unexpected::Rts(rendezvous), Some(claim)) => {
                if claim.is_lost {
                    let abandoned =
                        Error::Abandoned { rank: WorldRank(envelope.source), fate: Fate::NotDelivered };
                    let error = self.sender_failure(link, &envelope, incarnation).unwrap_or(abandoned);
                    return self.finish(link, id, Err(error));
                }
                link.release(cost(claim.total).into());
                // The name may belong to another message by now: once a claimed message is complete, the sender's next
                // incarnation may use the same name. So the entry is removed only if it belongs to this claim.
                let name = (claim.sender, claim.send);
                if matches!(self.streams.get(&name), Some(Stream::Claimed(at)) if Some(*at) == place) {
                    self.streams.remove(&name);
                }
                self.go_on(link, id, &envelope, rendezvous, &claim.bytes, &mut ());
            }
            (Unexpected::Rts(rendezvous), None) => match self.sender_failure(link, &envelope, incarnation) {
                Some(error) => self.finish(link, id, Err(error)),
                None => self.begin(link, id, &envelope, rendezvous),
            },
            (mut message @ (Unexpected::Eager(_) | Unexpected::Whole(_)), _) => {
                self.claimed_cost -= u64::from(cost(message.bytes()));
                if let Unexpected::Whole(whole) = &mut message
                    && self.sender_failure(link, &envelope, incarnation).is_some()
                {
                    // The sender has ended and waits for no answer.
                    whole.send = None;
                }
                self.accept(link, id, &envelope, message, &mut ());
            }
        }
    }

    /// Drops an unexpected message. Its sender sees it as received.
    #[cold]
    pub(crate) fn discard_unexpected(&mut self, link: &mut Link, unexpected: UnexpectedId) {
        let Some((envelope, message)) = self.matcher.remove(unexpected) else { return };
        let claimed = self.claimed(link, envelope, message);
        let Envelope { source, context, tag } = envelope;
        let (buffer, partner) = (Buffer::Owned(Memory::zeroed(0)), Partner::Rank(WorldRank(source)));
        let mut request = Request::new(State::Over, buffer, partner, context, tag, link.now());
        request.collected = true;
        let id = self.requests.insert(request);
        self.accept_claimed(link, id, claimed);
    }

    /// Drops a message that no receive has matched, and informs its sender if the sender waits for the match.
    #[cold]
    pub(super) fn drop_unmatched(&mut self, link: &mut Link, unexpected: UnexpectedId, verdict: Verdict) {
        let Some((envelope, message)) = self.matcher.remove(unexpected) else { return };
        self.matched(link, &envelope, &message);
        let send = match message {
            Unexpected::Rts(rendezvous) => Some(rendezvous.send),
            Unexpected::Whole(whole) => {
                self.drop_whole(link, whole.data);
                whole.send
            }
            Unexpected::Eager(_) => None,
        };
        if let (Some(send), Some(peer)) = (send, link.find(WorldRank(envelope.source))) {
            self.answer(link, peer, kind::FIN, &Fin::new(send, verdict));
        }
    }

    /// Closes the contexts of a communicator: cancels their receives and drops their unexpected messages. Later
    /// messages are dropped on arrival. Sends of other ranks that wait for the match of such a message end with
    /// [`Error::Abandoned`], or with [`Error::NotPosted`] if they are ready sends.
    #[cold]
    pub(crate) fn close_contexts(&mut self, link: &mut Link, context: u32) {
        if let Some(first) = self.contexts.close(context, link) {
            (first..=first + 1).for_each(|context| self.purge_context(link, context));
        }
    }

    /// Closes contexts that were opened for a communicator, because no rank has created the communicator.
    #[cold]
    pub(crate) fn withdraw_contexts(&mut self, link: &mut Link, context: u32) {
        if let Some(first) = self.contexts.withdraw(context, link) {
            (first..=first + 1).for_each(|context| self.purge_context(link, context));
        }
    }

    fn purge_context(&mut self, link: &mut Link, context: u32) {
        self.failures.forget_context(context);
        let mut receives = Vec::new();
        self.matcher.visit_posted(context, |_, _, id| receives.push(*id));
        for id in receives {
            self.withdraw_unmatched(link, id);
        }
        self.drop_matching(link, &Pattern { context, source: Source::ANY, tag: 0, mask: 0 });
        self.close_halves(link, context);
    }

    /// Drops the unexpected messages that a pattern matches. Their senders are informed if they wait for the match.
    #[cold]
    pub(super) fn drop_matching(&mut self, link: &mut Link, pattern: &Pattern) {
        while let Some((unexpected, envelope, _)) = self.matcher.probe(pattern) {
            if let Some(sender) = link.find(WorldRank(envelope.source)) {
                self.tell_revoked(link, sender, envelope.context);
            }
            match self.matcher.unexpected(unexpected) {
                Some((_, message)) if message.awaits_match() => {
                    self.drop_unmatched(link, unexpected, Verdict::Abandoned);
                }
                _ => self.discard_unexpected(link, unexpected),
            }
        }
    }

    /// Returns an error if this incarnation of a message's sender has ended. Then the bytes that it has not sent cannot
    /// come any more.
    fn sender_failure(
        &mut self,
        link: &mut Link,
        from: &Envelope,
        incarnation: Option<Incarnation>,
    ) -> Option<Error> {
        let rank = WorldRank(from.source);
        let peer = link.find(rank)?;
        let renewed = link.peer(peer).incarnation() != incarnation;
        let cause = link.peer(peer).failure().or(renewed.then_some(Cause::Restarted))?;
        Some(Error::PeerFailed { rank, cause, fate: Fate::NotDelivered, report: None })
    }

    /// Notes that the rest of a claimed message will not come.
    pub(super) fn lose_claim(&mut self, link: &mut Link, place: usize) {
        let Some(claim) = self.claims.get_mut(place) else { return };
        (claim.bytes, claim.is_lost) = (Vec::new(), true);
        link.release(cost(claim.total).into());
    }
}
