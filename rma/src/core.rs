//! The state machine of one window. This file introduces the process to members, and queues the items for them.

mod access;
mod aggregate;
mod early;
mod epochs;
mod synchronization;

pub(crate) use self::access::Bytes;
pub(crate) use self::epochs::answer_freed;

use std::collections::VecDeque;

use samite_fabric::link::{Link, WorldRank};
use smallvec::SmallVec;

use crate::counters::Counters;
use crate::outbox::{Item, Outbox};
use crate::requests::Requests;
use crate::window::{Contact, Member, Operation, Step, Window};
use crate::wire::{Note, Traits};
use crate::{Config, ElementType, EpochId, Error, WindowId, barrier};

/// One window, and the state that all windows share. Its methods leave work in `touched` and `rescan`, which
/// [`Core::settle`] does.
pub(crate) struct Core<'a> {
    pub(crate) id: WindowId,
    pub(crate) config: &'a Config,
    pub(crate) window: &'a mut Window,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) requests: &'a mut Requests,
    pub(crate) counters: &'a mut Counters,
    pub(crate) link: &'a mut Link,
    /// Epochs that may have completed.
    touched: Numbers,
    /// True if deferred epochs may be activated.
    rescan: bool,
}

/// Ranks of a small group, or of the partners in a round of a barrier.
pub(crate) type Ranks = SmallVec<[WorldRank; barrier::PARTNERS]>;

/// Numbers of epochs.
pub(crate) type Numbers = SmallVec<[u64; 4]>;

/// A packet that no member may send in the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

impl<'a> Core<'a> {
    pub(crate) fn new(
        id: WindowId,
        config: &'a Config,
        window: &'a mut Window,
        outbox: &'a mut Outbox,
        requests: &'a mut Requests,
        counters: &'a mut Counters,
        link: &'a mut Link,
    ) -> Self {
        Self { id, config, window, outbox, requests, counters, link, touched: Numbers::new(), rescan: false }
    }

    /// Completes and activates epochs until nothing changes.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(number) = self.touched.pop() {
                self.check_completion(number);
            } else if std::mem::take(&mut self.rescan) {
                self.activate_deferred();
            } else {
                return;
            }
        }
    }

    /// Asks for another scan of the deferred epochs.
    pub(crate) fn rescan(&mut self) {
        self.rescan = true;
    }

    pub(crate) fn touch(&mut self, number: u64) {
        self.touched.push(number);
    }

    fn epoch_id(&self, number: u64) -> EpochId {
        EpochId { window: self.id, number }
    }

    /// Returns the state of a member, and creates it at first use.
    pub(crate) fn member(&mut self, rank: WorldRank) -> &mut Member {
        let link = &mut *self.link;
        self.window.members.get_or_insert_with(rank, || {
            let peer = link.find_or_meet(rank).expect("members of a window are ranks of the job");
            let mut member = Member::new(peer);
            member.failure = link.peer(peer).failure().map(Box::new);
            Box::new(member)
        })
    }

    /// Introduces this process to a member, unless that was done.
    pub(crate) fn contact(&mut self, rank: WorldRank) {
        let window = self.id;
        let member = self.member(rank);
        if matches!(member.contact, Contact::None) && member.failure.is_none() {
            member.contact = Contact::Asked;
            let peer = member.peer;
            self.outbox.push(self.link, peer, Item::Meet { window, is_answer: false });
        }
    }

    /// Sends an item to a member when its traits are known.
    fn send(&mut self, rank: WorldRank, item: Item) {
        self.contact(rank);
        let member = self.member(rank);
        if member.failure.is_some() {
            return;
        }
        match member.contact {
            Contact::Known(traits) => self.push(rank, traits, item),
            _ => member.held.push_back(item),
        }
    }

    /// Takes the items that wait until a member has answered the introduction.
    fn take_held(&mut self, rank: WorldRank) -> VecDeque<Item> {
        let member = self.member(rank);
        let (peer, held) = (member.peer, std::mem::take(&mut member.held));
        if std::mem::take(&mut member.owes) {
            self.outbox.of(peer).owed -= 1;
        }
        held
    }

    fn note(&mut self, to: WorldRank, kind: u8, note: Note) {
        self.send(to, Item::Note { slot: 0, kind, note });
    }

    /// Queues an item for a member whose traits are known. An operation that leaves the member's part ends here.
    fn push(&mut self, rank: WorldRank, traits: Traits, mut item: Item) {
        if let Item::Note { slot, note, .. } = &mut item {
            (*slot, note.generation) = (traits.slot.get(), traits.generation);
        }
        let refused = match &item {
            Item::Step { step: Step::Operation(operation), .. } => check_place(rank, traits, operation).err(),
            _ => None,
        };
        if let Some(error) = refused {
            let Item::Step { epoch, step: Step::Operation(operation), .. } = item else { return };
            return self.refuse(epoch, rank, *operation, error);
        }
        let peer = self.member(rank).peer;
        self.outbox.push(self.link, peer, item);
    }

    /// Ends an operation that was passed on and is not sent.
    fn refuse(&mut self, number: u64, rank: WorldRank, operation: Operation, error: Error) {
        if let Some(party) = self.window.party(number, rank) {
            party.queued -= 1;
        }
        self.drop_operation(number, rank, operation, error);
        self.check_party(number, rank);
    }

    /// Ends an operation that is not sent. If it has no request, its epoch gets the error.
    fn drop_operation(&mut self, number: u64, rank: WorldRank, operation: Operation, error: Error) {
        match operation.transfer {
            Some(id) => self.close_transfer(id, true),
            None => self.requests.recorded -= operation.cost(),
        }
        let epoch = self.window.epoch(number);
        match (operation.request, epoch) {
            (Some(id), epoch) => {
                if operation.awaits_reply()
                    && let Some(party) = epoch.and_then(|epoch| epoch.parties.get_mut(rank))
                {
                    party.unanswered -= 1;
                } else if !operation.action.has_reply() {
                    self.requests.give_back(id, operation.memory);
                }
                self.requests.end(id, Err(error));
            }
            (None, Some(epoch)) => {
                epoch.error.get_or_insert(error);
            }
            (None, None) => {}
        }
    }

    /// Notes that the answer to a member's introduction was sent.
    pub(crate) fn answered_introduction(&mut self, rank: WorldRank) {
        self.member(rank).is_unanswered = false;
        self.touch_active();
    }

    /// Notes the traits of a member, and sends the packets that waited for them. The first traits count: operations
    /// were checked against them, and the part may be mapped.
    pub(crate) fn met(&mut self, rank: WorldRank, traits: Traits) {
        let member = self.member(rank);
        if let Contact::Known(_) = member.contact {
            return;
        }
        member.contact = Contact::Known(traits);
        let held = self.take_held(rank);
        self.requests.end_meetings(self.id, rank, &Ok(()));
        for item in held {
            self.push(rank, traits, item);
        }
        self.touch_active();
    }
}

/// Checks that an operation stays in a member's part, and returns the offset of its displacement. The places of
/// [`Operation::run`] are relative to it.
pub(crate) fn check_place(rank: WorldRank, traits: Traits, operation: &Operation) -> Result<u64, Error> {
    check_span(rank, traits.unit.get().into(), traits.len.get(), operation)
}

/// Checks that an operation stays in memory of this size, as [`check_place`] does. A displacement is `unit` bytes.
pub(crate) fn check_span(rank: WorldRank, unit: u64, size: u64, operation: &Operation) -> Result<u64, Error> {
    let (first, len) = operation.span();
    let base = operation.displacement.checked_mul(unit);
    let at = base.and_then(|base| base.checked_add_signed(first as i64));
    let (Some(base), Some(at)) = (base, at.filter(|at| at.checked_add(len).is_some_and(|end| end <= size)))
    else {
        return Err(Error::OutOfBounds { rank, at: at.unwrap_or(u64::MAX), len, size });
    };
    match operation.action.element() {
        // All places of a form are multiples of the size of an element apart.
        Some(element) if !is_aligned(at, element) => Err(Error::Misaligned { rank, at, element }),
        _ => Ok(base),
    }
}

/// Returns true if elements may begin at this offset.
pub(crate) fn is_aligned(at: u64, element: ElementType) -> bool {
    at.is_multiple_of(element.size().min(8) as u64)
}
