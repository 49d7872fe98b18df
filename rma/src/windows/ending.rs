//! Early ends: deadlines, cancels, and the end of peers.

use samite_fabric::link::{self, Cause, Ending, Expiry, Fate, Link, Peer, RequestId, Time, WorldRank};

use super::Windows;
use crate::activation::Kind;
use crate::barrier;
use crate::outbox::Item;
use crate::requests;
use crate::window::{Contact, Epoch, Member, Party, Space, State, Window};
use crate::{AWAITED_MAX, Awaiting, EpochId, Error, Event};

impl Windows {
    /// Cancels a request. An operation that was not passed on to be sent is dropped; one that was runs to its end. The
    /// end of an epoch ends the request now: locks and exposures that are not granted are withdrawn, and granted ones
    /// end as aborted on both sides. A request that has ended keeps its result.
    pub fn cancel(&mut self, link: &mut Link, request: RequestId) {
        self.end_early(link, request, |fate, _| Error::Link(link::Error::Cancelled { fate }));
    }

    pub(super) fn deadline_passed(
        &mut self,
        link: &mut Link,
        request: RequestId,
        due: Time,
        is_busy: bool,
    ) -> Expiry {
        if let Some(expiry) = self.requests.puts_off(request, due, is_busy) {
            return expiry;
        }
        self.end_early(link, request, |fate, awaited| Error::TimedOut { fate, awaited });
        Expiry::Done
    }

    /// Ends a request that has no result.
    fn end_early(&mut self, link: &mut Link, id: RequestId, error: impl Fn(Fate, Box<[Awaiting]>) -> Error) {
        let Some(request) = self.requests.get(id) else { return };
        let Some(epoch) = request.epoch else { return };
        if self.requests.outcome(id) == link::Outcome::Ready {
            return;
        }
        let awaited = self.awaited_by(epoch, &request.kind, link);
        match request.kind {
            requests::Kind::Operation { rank, .. } => {
                let dropped = error(Fate::NotDelivered, awaited.clone());
                let was_dropped = self
                    .with(link, epoch.window.slot, |core| core.withdraw(epoch.number, rank, id, &dropped));
                if was_dropped != Some(true) {
                    self.requests.decide(id, Err(error(Fate::Unknown, awaited)));
                }
            }
            requests::Kind::Flush(_) => self.requests.end(id, Err(error(Fate::Unknown, awaited))),
            requests::Kind::Meeting(_) => self.requests.end(id, Err(error(Fate::NotDelivered, awaited))),
            requests::Kind::Close => {
                let open = self.window(epoch.window).ok();
                let begun = open.and_then(|open| open.epochs.get(epoch.number)).is_none_or(Epoch::has_begun);
                let error = error(if begun { Fate::Unknown } else { Fate::NotDelivered }, awaited);
                self.requests.end(id, Err(error.clone()));
                self.with(link, epoch.window.slot, |core| core.abort(epoch.number, &error));
            }
        }
    }

    /// Returns the ranks and events for which a request waits, at most [`AWAITED_MAX`].
    #[must_use]
    pub fn awaited(&self, link: &Link, request: RequestId) -> Box<[Awaiting]> {
        match self.requests.get(request) {
            Some(requests::Request { epoch: Some(epoch), kind, .. }) => self.awaited_by(*epoch, kind, link),
            _ => Box::default(),
        }
    }

    /// Returns an event for which the oldest request waits, if possible an event at another rank, and the time at which
    /// the request began.
    #[must_use]
    pub fn oldest(&self, link: &Link) -> Option<(Awaiting, Time)> {
        let (request, begun) = self.requests.oldest()?;
        let (own, awaited) = (link.identity().rank, self.awaited(link, request));
        let awaiting = awaited.into_iter().min_by_key(|awaiting| awaiting.rank == own)?;
        Some((awaiting, begun))
    }

    /// Returns an event for which an epoch waits that the program has closed, or a window that it has freed: if
    /// possible an event at another rank.
    #[must_use]
    pub fn unfinished(&self, link: &Link) -> Option<Awaiting> {
        if self.active == 0 {
            return None;
        }
        let own = link.identity().rank;
        let unfinished = self.windows.iter().filter_map(|(_, window)| window.unfinished(link));
        // `min_by_key` returns the first one of equal keys.
        unfinished.min_by_key(|awaiting| awaiting.rank == own)
    }

    fn awaited_by(&self, epoch: EpochId, kind: &requests::Kind, link: &Link) -> Box<[Awaiting]> {
        let Ok(window) = self.window(epoch.window) else { return Box::default() };
        if let requests::Kind::Meeting(rank) = kind {
            return [window.awaiting(*rank, Event::Window, link)].into();
        }
        let mut awaited = window.awaited(epoch.number, link);
        // An operation in an epoch that is not active waits for the ranks of the epochs before, and not yet for its own.
        let is_active = window.epochs.get(epoch.number).is_some_and(|epoch| epoch.is_active);
        match kind {
            _ if !is_active => {}
            requests::Kind::Operation { rank, .. } => awaited.retain(|awaiting| awaiting.rank == *rank),
            requests::Kind::Flush(ranks) => awaited.retain(|awaiting| ranks.contains(&awaiting.rank)),
            requests::Kind::Close | requests::Kind::Meeting(_) => {}
        }
        awaited.truncate(AWAITED_MAX);
        awaited.into()
    }

    /// Ends the operations with a peer.
    pub(super) fn end_of_peer(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        match ending {
            Ending::Left => self.fail_peer(link, peer, &Cause::Left),
            Ending::Failed(cause) => self.fail_peer(link, peer, cause),
            // The members are first incarnations.
            Ending::Unmet => self.fail_peer(link, peer, &Cause::Restarted),
            Ending::FailedAfterGoodbye(_) | Ending::Explained(_) | Ending::Renewed { .. } => {}
        }
    }

    fn fail_peer(&mut self, link: &mut Link, peer: Peer, cause: &Cause) {
        let rank = link.peer(peer).rank();
        if self.outbox.of(peer).early > 0 {
            self.early.retain(|_, all| {
                all.retain(|(early, _)| *early != peer);
                !all.is_empty()
            });
            self.outbox.of(peer).early = 0;
        }
        self.outbox.of(peer).was_refused = false;
        self.outbox.of(peer).unanswered = 0;
        self.outbox.of(peer).flushes.clear();
        for item in std::mem::take(&mut self.outbox.of(peer).queue) {
            match &item {
                Item::Step { window, .. } => {
                    self.with(link, window.slot, |core| core.drop_item(rank, item, cause));
                }
                Item::Applied { cost, .. } => self.outbox.attached -= cost,
                Item::Meet { .. } | Item::Note { .. } | Item::AskFreed { .. } => {}
            }
        }
        self.outbox.transfers.abandon(peer);
        self.outbox.of(peer).asked = 0;
        self.outbox.of(peer).serves.clear();
        let dropped = self.outbox.serves.drop_of(peer);
        self.outbox.of(peer).serving -= dropped.len();
        link.defer();
        link.clear_queued(peer, samite_fabric::wire::Protocol::Rma);
        let slots: Vec<_> = self.windows.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            if self.windows[slot as usize].group.contains(rank) {
                self.with(link, slot, |core| core.fail_member(rank, cause));
            }
        }
    }

    /// Ends the operations with a peer to which there is no room for a connection. Synchronization is not dropped: the
    /// link tries again.
    pub(super) fn no_path_to(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str) {
        let rank = link.peer(peer).rank();
        let error = Error::exhausted(what, hint.to_owned());
        let slots: Vec<_> = self.windows.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            self.with(link, slot, |core| core.drop_operations(rank, &error));
        }
    }

    /// Ends the operations that would need to send more packets to a peer, after this side's goodbye to it.
    pub(super) fn goodbye_to(&mut self, link: &mut Link, peer: Peer) {
        self.fail_peer(link, peer, &Cause::Left);
    }
}

impl Window {
    fn unfinished(&self, link: &Link) -> Option<Awaiting> {
        let active = self.active.keys().filter_map(|number| self.epochs.get(number));
        let mut closed = active.filter(|epoch| epoch.closed.is_some() && !epoch.has_ended_early()).peekable();
        closed.peek()?;
        let own = link.identity().rank;
        let awaited = closed.flat_map(|epoch| self.awaited_by_active(epoch, link));
        awaited.min_by_key(|awaiting| awaiting.rank == own).or_else(|| {
            let mut waiting = self.members.iter().filter(|(_, member)| member.needs_window());
            waiting.next().map(|(rank, _)| self.awaiting(rank, Event::Window, link))
        })
    }

    fn awaiting(&self, rank: WorldRank, event: Event, link: &Link) -> Awaiting {
        let is_stopped = self.members.get(rank).is_some_and(|member| link.peer(member.peer).is_stopped());
        Awaiting { rank, event, is_stopped }
    }

    /// Returns the ranks and events for which an epoch waits.
    fn awaited(&self, number: u64, link: &Link) -> Vec<Awaiting> {
        let own = link.identity().rank;
        let Some(epoch) = self.epochs.get(number) else { return Vec::new() };
        if epoch.is_active {
            return self.awaited_by_active(epoch, link);
        }
        let mut awaited = Vec::new();
        let earlier = self.active.keys().take_while(|active| *active < number);
        let holds_up = |earlier: &&Epoch| !earlier.view().is_aborted_beside(&epoch.kind);
        for earlier in earlier.filter_map(|active| self.epochs.get(active)).filter(holds_up) {
            if earlier.closed.is_none() {
                awaited.push(self.awaiting(own, Event::EarlierEpoch, link));
            }
            awaited.extend(self.awaited_by_active(earlier, link));
        }
        awaited
    }

    fn awaited_by_active(&self, epoch: &Epoch, link: &Link) -> Vec<Awaiting> {
        let of = |(rank, party): (WorldRank, &Party)| {
            let contact = self.members.get(rank).map(|member| &member.contact);
            let event = match (&epoch.kind, party.state) {
                (_, State::Over) => return None,
                _ if !matches!(contact, Some(Contact::Known(_))) => Event::Window,
                (Kind::Post(_), _) => Event::Completion,
                (_, State::Granted) => Event::Data,
                (Kind::Lock { .. } | Kind::LockAll, _) => Event::Lock,
                _ => Event::Exposure,
            };
            Some(self.awaiting(rank, event, link))
        };
        let mut awaited: Vec<_> = epoch.parties.iter().filter_map(of).collect();
        if let Some(barrier) = epoch.barrier
            && let Some(round) = barrier.round
        {
            let own = self.group.index(link.identity().rank).expect("this process is a member");
            let partners: Vec<_> = match barrier.asks_all {
                true => (0..self.group.len()).filter(|index| *index != own).collect(),
                false => barrier::predecessors(own, self.group.len(), round).collect(),
            };
            let is_missing = |rank: &WorldRank| {
                let is_heard = |member: &Member| match barrier.asks_all {
                    true => member.frees() || member.failure.is_some(),
                    false => heard(member, barrier.space) >= barrier.number,
                };
                !self.members.get(*rank).is_some_and(|member| is_heard(member))
            };
            let partners = partners.into_iter().filter_map(|index| self.group.rank(index));
            let missing = partners.filter(is_missing);
            awaited.extend(missing.map(|rank| self.awaiting(rank, Event::Barrier, link)));
        }
        awaited
    }
}

fn heard(member: &Member, space: Space) -> u64 {
    member.fenced[space as usize]
}
