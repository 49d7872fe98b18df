//! The state machine of one window: contact with members, activation and completion of epochs.

use samite_fabric::link::{Cause, Fate, Link, RequestId, WorldRank};

use crate::activation::Kind;
use crate::barrier;
use crate::counters::Counters;
use crate::locks::Released;
use crate::ordinals::Over;
use crate::outbox::{Item, Outbox};
use crate::requests::{self, Requests};
use crate::window::{Closing, Contact, Member, Operation, Space, State, Step, Window};
use crate::wire::{Note, Traits, kind};
use crate::{ElementType, EpochId, Error, LockKind, WindowId};

/// One window, and the state that all windows share. Its methods leave work in `touched` and `rescan`, which
/// [`Core::settle`] does.
pub(crate) struct Core<'a> {
    pub(crate) id: WindowId,
    pub(crate) window: &'a mut Window,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) requests: &'a mut Requests,
    pub(crate) counters: &'a mut Counters,
    pub(crate) link: &'a mut Link,
    /// Epochs that may have completed.
    touched: Vec<u64>,
    /// True if deferred epochs may be activated.
    rescan: bool,
}

/// A packet that no member may send in the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

impl<'a> Core<'a> {
    pub(crate) fn new(
        id: WindowId,
        window: &'a mut Window,
        outbox: &'a mut Outbox,
        requests: &'a mut Requests,
        counters: &'a mut Counters,
        link: &'a mut Link,
    ) -> Self {
        Self { id, window, outbox, requests, counters, link, touched: Vec::new(), rescan: false }
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

    // Members.

    /// Returns the state of a member, and creates it at first use.
    pub(crate) fn member(&mut self, rank: WorldRank) -> &mut Member {
        let link = &mut *self.link;
        self.window.members.entry(rank).or_insert_with(|| {
            let peer = link.find_or_meet(rank).expect("members of a window are ranks of the job");
            let mut member = Member::new(peer);
            member.failure = link.peer(peer).failure().map(Box::new);
            member
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
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.queued -= 1;
        }
        self.drop_operation(number, rank, operation, error);
        self.check_party(number, rank);
    }

    /// Ends an operation that is not sent. If it has no request, its epoch gets the error.
    fn drop_operation(&mut self, number: u64, rank: WorldRank, operation: Operation, error: Error) {
        self.requests.recorded -= operation.cost();
        let epoch = self.window.epoch(number);
        match (operation.request, epoch) {
            (Some(id), epoch) => {
                if operation.action.has_reply()
                    && let Some(party) = epoch.and_then(|epoch| epoch.parties.get_mut(&rank))
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

    /// Notes the traits of a member, and sends the packets that waited for them.
    pub(crate) fn met(&mut self, rank: WorldRank, traits: Traits) {
        let member = self.member(rank);
        member.contact = Contact::Known(traits);
        for item in std::mem::take(&mut member.held) {
            self.push(rank, traits, item);
        }
        self.touch_active();
    }

    // Steps of access epochs.

    /// Adds a step to an access epoch.
    pub(crate) fn record(&mut self, number: u64, rank: WorldRank, step: Step) {
        let failure = self.member(rank).failure.clone();
        let Some(epoch) = self.window.epoch(number) else { return };
        let mut is_new = false;
        let party = epoch.parties.entry(rank).or_insert_with(|| {
            is_new = true;
            Default::default()
        });
        epoch.left += usize::from(is_new);
        if let Step::Operation(operation) = &step {
            party.unanswered += usize::from(operation.action.has_reply());
        }
        // The target has aborted the access.
        let is_over =
            party.state == State::Over || party.closing != Closing::No && !matches!(step, Step::Close(_));
        let is_active = epoch.is_active;
        if is_over && failure.is_none() {
            let error = Error::Aborted { rank, fate: Fate::NotDelivered };
            return self.drop_step(number, rank, step, &error);
        }
        party.steps.push_back(step);
        if let Some(cause) = failure {
            self.fail_party(number, rank, &cause);
        } else if is_active {
            self.ask(number, rank);
            self.release(number, rank);
        }
    }

    /// Asks a target for its permission, unless that was done, or is given already.
    fn ask(&mut self, number: u64, rank: WorldRank) {
        let (kind, ordinal) = {
            let Some(epoch) = self.window.epoch(number) else { return };
            let Some(party) = epoch.parties.get(&rank).filter(|party| party.state == State::Idle) else {
                return;
            };
            (epoch.kind.clone(), party.ordinal)
        };
        let member = self.member(rank);
        let mut asked = (State::Asked, ordinal);
        match kind {
            Kind::Start(_) if member.revoked.take(ordinal) => return self.end_access(number, rank),
            Kind::Start(_) if member.granted >= ordinal => asked.0 = State::Granted,
            Kind::Start(_) => self.contact(rank),
            Kind::Lock { .. } | Kind::LockAll => {
                let kind = if let Kind::Lock { kind, .. } = kind { kind } else { LockKind::Shared };
                member.locks += 1;
                asked.1 = member.locks;
                let note = Note::new(asked.1, 0).flagged(kind == LockKind::Exclusive);
                self.note(rank, kind::LOCK, note);
            }
            Kind::Fence { word } if member.opened >= word => asked.0 = State::Granted,
            Kind::Fence { word } => self.note(rank, kind::ASK, Note::new(word, 0)),
            Kind::Post(_) | Kind::Free => unreachable!("they have no steps"),
        }
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            (party.state, party.ordinal) = asked;
        }
    }

    /// Passes on the steps to a target that has given its permission.
    fn release(&mut self, number: u64, rank: WorldRank) {
        loop {
            let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
                return;
            };
            if party.state != State::Granted {
                return;
            }
            let Some(step) = party.steps.pop_front() else { return };
            self.pass(number, rank, step);
        }
    }

    /// Passes a step on, to be sent.
    fn pass(&mut self, number: u64, rank: WorldRank, step: Step) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.queued += 1;
        }
        let window = self.id;
        self.send(rank, Item::Step { window, to: rank, epoch: number, step });
    }

    /// Notes that all packets of a step were sent.
    pub(crate) fn sent(&mut self, number: u64, rank: WorldRank, step: Step) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.queued -= 1;
            if let Step::Close(_) = step {
                party.closing = Closing::Sent;
            }
        }
        if let Step::Operation(operation) = step {
            self.requests.recorded -= operation.cost();
            self.counters.operations += 1;
            if let Some(id) = operation.request
                && !operation.action.has_reply()
            {
                self.requests.give_back(id, operation.memory);
                self.requests.end(id, Ok(()));
            }
        }
        self.check_party(number, rank);
    }

    /// Notes that all replies to an operation have arrived.
    pub(crate) fn answered(&mut self, number: u64, rank: WorldRank) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.unanswered -= 1;
        }
        self.check_party(number, rank);
    }

    /// Notes that a party is over, if it is.
    fn check_party(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_start = matches!(epoch.kind, Kind::Start(_));
        let Some(party) = epoch.parties.get_mut(&rank) else { return };
        let is_closed = party.closing == Closing::Answered || is_start && party.closing == Closing::Sent;
        if is_closed && party.unanswered == 0 && party.queued == 0 && party.state != State::Over {
            party.state = State::Over;
            epoch.left -= 1;
            self.touch(number);
        }
    }

    /// Ends a party in any state.
    fn end_party(&mut self, number: u64, rank: WorldRank, error: Option<Error>) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(&rank).filter(|party| party.state != State::Over) else {
            return;
        };
        party.state = State::Over;
        epoch.left -= 1;
        if let Some(error) = error {
            epoch.error.get_or_insert(error);
        }
        self.touch(number);
    }

    // Epochs.

    /// Activates the deferred epochs that may be activated.
    fn activate_deferred(&mut self) {
        let end = self.window.first + self.window.epochs.len() as u64;
        let mut number = self.window.deferred;
        while number < end {
            let is_deferred = self.window.epoch(number).is_some_and(|epoch| !epoch.is_active);
            if is_deferred && self.window.may_activate(number) {
                self.activate(number);
            } else if is_deferred && !self.window.hints.overtake {
                return;
            }
            let is_past = self.window.epoch(number).is_none_or(|epoch| epoch.is_active);
            if is_past && number == self.window.deferred {
                self.window.deferred += 1;
            }
            number += 1;
        }
    }

    fn activate(&mut self, number: u64) {
        self.window.active.insert(number);
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.is_active = true;
        let is_exposure = matches!(epoch.kind, Kind::Post(_));
        let word = if let Kind::Fence { word } = epoch.kind { word } else { 0 };
        let ranks: Vec<_> = epoch.parties.keys().copied().collect();
        if word > 0 {
            self.open_fence(word);
        }
        for rank in ranks {
            if is_exposure {
                self.expose(number, rank);
            } else {
                self.ask(number, rank);
                self.release(number, rank);
            }
        }
        self.touch(number);
    }

    /// Notes that an opening fence is activated, and answers the members that wait for it.
    pub(crate) fn open_fence(&mut self, word: u64) {
        self.window.fences.opened = self.window.fences.opened.max(word);
        let word = self.window.fences.opened;
        let is_waiting = |member: &Member| member.asked > 0 && member.asked <= word;
        let waiting = self.window.members.iter_mut().filter(|(_, member)| is_waiting(member));
        let waiting: Vec<_> = waiting.map(|(rank, member)| (*rank, member.asked = 0)).collect();
        for (rank, ()) in waiting {
            self.note(rank, kind::OPENED, Note::new(word, 0));
        }
    }

    /// Begins the exposure of an epoch to one member.
    fn expose(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(&rank).filter(|party| party.state == State::Idle) else {
            return;
        };
        party.state = State::Asked;
        let ordinal = party.ordinal;
        let member = self.member(rank);
        if let Some(cause) = member.failure.as_deref().cloned() {
            return self.end_party(number, rank, Some(Error::peer_failed(rank, cause, Fate::Unknown)));
        }
        if member.exposed.begin(ordinal, number) {
            self.note(rank, kind::GRANT, Note::new(ordinal, 0));
        } else {
            self.end_party(number, rank, Some(Error::Aborted { rank, fate: Fate::NotDelivered }));
        }
    }

    /// Closes an epoch. Its request ends when the epoch completes.
    pub(crate) fn close(&mut self, number: u64, request: Option<RequestId>) {
        self.window.calls += 1;
        let calls = self.window.calls;
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.closed = Some(calls);
        epoch.request = request;
        let has_steps = !matches!(epoch.kind, Kind::Post(_));
        if has_steps {
            for rank in self.living_parties(number) {
                self.queue_close(number, rank, false);
            }
        }
        self.touch(number);
        self.rescan();
    }

    fn living_parties(&mut self, number: u64) -> Vec<WorldRank> {
        let Some(epoch) = self.window.epoch(number) else { return Vec::new() };
        let living = epoch.parties.iter().filter(|(_, party)| party.state != State::Over);
        living.map(|(rank, _)| *rank).collect()
    }

    fn queue_close(&mut self, number: u64, rank: WorldRank, is_aborted: bool) {
        let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
            return;
        };
        if party.closing == Closing::No {
            party.closing = Closing::Queued;
            self.record(number, rank, Step::Close(is_aborted));
        }
    }

    /// Completes an epoch if all its parties are over, and its barrier.
    fn check_completion(&mut self, number: u64) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_last = matches!(epoch.kind, Kind::Free);
        if epoch.closed.is_none() || !epoch.is_active || epoch.left > 0 || !self.pass_barrier(number) {
            return;
        }
        // The packets to members whose traits are not known would be lost with the window.
        if is_last && self.window.members.values().any(|member| !member.held.is_empty()) {
            return;
        }
        self.complete(number);
    }

    fn complete(&mut self, number: u64) {
        let failed = self.window.failed;
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.is_complete = true;
        epoch.parties.clear();
        let has_barrier = epoch.barrier.is_some();
        let (request, error) = (epoch.request.take(), epoch.error.take());
        let error = error.or_else(|| {
            let rank = failed.filter(|_| has_barrier)?;
            let known = self.window.members.get(&rank).and_then(|member| member.failure.as_deref().cloned());
            let cause = known.unwrap_or_else(|| Cause::Died("reported by another member".into()));
            Some(Error::peer_failed(rank, cause, Fate::Unknown))
        });
        if let Some(id) = request {
            self.requests.end(id, error.map_or(Ok(()), Err));
        }
        self.counters.epochs += 1;
        self.window.active.remove(&number);
        self.window.trim();
        self.rescan();
    }

    /// Takes the next steps of an epoch's barrier. Returns true if it has ended, or if there is none.
    fn pass_barrier(&mut self, number: u64) -> bool {
        loop {
            let Some(barrier) = self.window.epoch(number).and_then(|epoch| epoch.barrier) else {
                return true;
            };
            let size = self.window.group.len();
            let next = match barrier.round {
                None => 0,
                Some(round) if self.has_heard_all(barrier.space, barrier.number, round) => round + 1,
                Some(_) => return false,
            };
            if let Some(barrier) = self.window.epoch(number).and_then(|epoch| epoch.barrier.as_mut()) {
                barrier.round = Some(next);
            }
            if next >= barrier::rounds(size) {
                return true;
            }
            let token = self.window.failed.map_or(0, |rank| u64::from(rank.0) + 1);
            let note = Note::new(barrier.number, token).flagged(barrier.space == Space::Free);
            for partner in self.partners(barrier::successors, next) {
                self.note(partner, kind::FENCED, note);
            }
            for partner in self.partners(barrier::predecessors, next) {
                self.contact(partner);
            }
        }
    }

    /// Returns true if the messages of a round have arrived. That of a member which has failed never arrives.
    fn has_heard_all(&mut self, space: Space, number: u64, round: u32) -> bool {
        self.partners(barrier::predecessors, round).into_iter().all(|rank| {
            let member = self.member(rank);
            let is_heard = member.fenced[space as usize] >= number;
            if !is_heard && member.failure.is_some() {
                self.window.failed.get_or_insert(rank);
                return true;
            }
            is_heard
        })
    }

    fn partners<I: Iterator<Item = u32>>(&self, of: fn(u32, u32, u32) -> I, round: u32) -> Vec<WorldRank> {
        let group = &self.window.group;
        let own = group.index(self.link.identity().rank).expect("this process is a member");
        of(own, group.len(), round).filter_map(|index| group.rank(index)).collect()
    }

    // Packets of synchronization.

    /// Handles the message of a member's barrier.
    pub(crate) fn fenced(&mut self, rank: WorldRank, note: &Note) -> Result<(), Violation> {
        let space = if note.flag.get() == 0 { Space::Fence } else { Space::Free };
        let heard = &mut self.member(rank).fenced[space as usize];
        if note.number.get() != *heard + 1 {
            return Err(Violation("number of a barrier"));
        }
        *heard += 1;
        if let Some(failed) = note.token.get().checked_sub(1) {
            let failed = WorldRank(u32::try_from(failed).unwrap_or(u32::MAX));
            if !self.window.group.contains(failed) {
                return Err(Violation("failed member"));
            }
            self.window.failed.get_or_insert(failed);
        }
        self.touch_active();
        Ok(())
    }

    pub(crate) fn touch_active(&mut self) {
        self.touched.extend(&self.window.active);
    }

    /// Handles a lock that was granted.
    pub(crate) fn locked(&mut self, rank: WorldRank, ordinal: u64) -> Result<(), Violation> {
        let is_of = |kind: &Kind| matches!(kind, Kind::Lock { .. } | Kind::LockAll);
        if ordinal == 0 || ordinal > self.member(rank).locks {
            return Err(Violation("number of a lock"));
        }
        for number in self.waiting(rank, is_of, |party_ordinal| party_ordinal == ordinal) {
            self.grant(number, rank);
        }
        Ok(())
    }

    /// Handles the news of an exposure.
    pub(crate) fn granted(
        &mut self,
        rank: WorldRank,
        ordinal: u64,
        is_revoked: bool,
    ) -> Result<(), Violation> {
        let is_of = |kind: &Kind| matches!(kind, Kind::Start(_));
        let member = self.member(rank);
        if is_revoked {
            return self.revoked(rank, ordinal);
        }
        if ordinal <= member.granted {
            return Err(Violation("number of an exposure"));
        }
        member.granted = ordinal;
        for number in self.waiting(rank, is_of, |party_ordinal| party_ordinal <= ordinal) {
            self.grant(number, rank);
        }
        Ok(())
    }

    /// Handles the news that an exposure was aborted. If it had begun, the member awaits the end of the access, which
    /// may not have begun here.
    fn revoked(&mut self, rank: WorldRank, ordinal: u64) -> Result<(), Violation> {
        let member = self.member(rank);
        let is_opened = ordinal <= member.accesses;
        let is_awaited = !is_opened && ordinal <= member.granted;
        if !is_opened && !member.revoked.insert(ordinal) {
            return Err(Violation("number of an exposure"));
        }
        if is_awaited {
            self.note(rank, kind::DONE, Note::new(ordinal, 0).flagged(true));
        }
        let numbers = (self.window.first..).take(self.window.epochs.len());
        let access =
            is_opened.then(|| numbers.into_iter().find(|number| self.is_access(*number, rank, ordinal)));
        if let Some(number) = access.flatten() {
            self.end_access(number, rank);
        }
        Ok(())
    }

    /// Returns true if this is the epoch of an access to a member.
    fn is_access(&mut self, number: u64, rank: WorldRank, ordinal: u64) -> bool {
        let Some(epoch) = self.window.epoch(number) else { return false };
        let party = epoch.parties.get(&rank);
        matches!(epoch.kind, Kind::Start(_)) && party.is_some_and(|party| party.ordinal == ordinal)
    }

    /// Handles the news that a member has activated an opening fence.
    pub(crate) fn opened(&mut self, rank: WorldRank, word: u64) {
        let member = self.member(rank);
        member.opened = member.opened.max(word);
        let opened = member.opened;
        let is_of = |kind: &Kind| matches!(kind, Kind::Fence { word } if *word <= opened);
        for number in self.waiting(rank, is_of, |_| true) {
            self.grant(number, rank);
        }
    }

    /// Returns the active epochs that wait for the permission of a member.
    fn waiting(
        &mut self,
        rank: WorldRank,
        is_of: impl Fn(&Kind) -> bool,
        has_ordinal: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let numbers: Vec<_> = self.window.active.iter().copied().collect();
        let is_waiting = |number: &u64| {
            self.window.epoch(*number).is_some_and(|epoch| {
                let party = epoch.parties.get(&rank);
                is_of(&epoch.kind)
                    && party.is_some_and(|party| party.state == State::Asked && has_ordinal(party.ordinal))
            })
        };
        numbers.into_iter().filter(is_waiting).collect()
    }

    fn grant(&mut self, number: u64, rank: WorldRank) {
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            party.state = State::Granted;
        }
        self.release(number, rank);
    }

    /// Handles the answer to the end of an access.
    pub(crate) fn closed(&mut self, rank: WorldRank, number: u64) -> Result<(), Violation> {
        let Some(epoch) = self.window.epoch(number) else {
            self.link.note_stale();
            return Ok(());
        };
        match epoch.parties.get_mut(&rank) {
            Some(party) if party.closing == Closing::Sent => party.closing = Closing::Answered,
            Some(party) if party.state == State::Over => {}
            _ => return Err(Violation("end of an epoch")),
        }
        self.check_party(number, rank);
        Ok(())
    }

    /// Handles the end of a member's access to an exposure.
    pub(crate) fn done(&mut self, rank: WorldRank, ordinal: u64, is_aborted: bool) -> Result<(), Violation> {
        match self.member(rank).exposed.end(ordinal, is_aborted) {
            Over::Of(number) => {
                let error = is_aborted.then_some(Error::Aborted { rank, fate: Fate::Unknown });
                self.end_party(number, rank, error);
                Ok(())
            }
            Over::Early | Over::Stale => Ok(()),
            Over::Invalid => Err(Violation("number of an access")),
        }
    }

    /// Handles the request of this process's lock.
    pub(crate) fn lock_requested(&mut self, rank: WorldRank, note: &Note) -> Result<(), Violation> {
        let kind = if note.flag.get() == 0 { LockKind::Shared } else { LockKind::Exclusive };
        let member = self.member(rank);
        if note.number.get() != member.lock + 1 {
            return Err(Violation("number of a lock"));
        }
        member.lock += 1;
        if !self.window.lock.request(rank, kind) {
            return Err(Violation("second lock"));
        }
        self.grant_locks();
        Ok(())
    }

    /// Handles the release of this process's lock, or the withdrawal of a request for it.
    pub(crate) fn unlocked(&mut self, rank: WorldRank, note: &Note) -> Result<(), Violation> {
        if note.number.get() != self.member(rank).lock || !self.release_lock(rank) {
            return Err(Violation("release of a lock"));
        }
        Ok(())
    }

    /// Ends a member's lock or its request. Returns false if it has none.
    fn release_lock(&mut self, rank: WorldRank) -> bool {
        let released = self.window.lock.release(rank);
        self.grant_locks();
        self.rescan();
        released != Released::Neither
    }

    fn grant_locks(&mut self) {
        while let Some(rank) = self.window.lock.grant() {
            let ordinal = self.member(rank).lock;
            self.counters.locks += 1;
            self.note(rank, kind::LOCKED, Note::new(ordinal, 0));
        }
    }

    /// Handles the question for an opening fence.
    pub(crate) fn asked(&mut self, rank: WorldRank, word: u64) {
        let opened = self.window.fences.opened;
        if opened >= word {
            self.note(rank, kind::OPENED, Note::new(opened, 0));
        } else {
            self.member(rank).asked = word;
        }
    }

    // Early ends.

    /// Ends the open epoch of a fence, which has no operations and no request.
    pub(crate) fn discard_fence(&mut self, number: u64) {
        let Some(epoch) = self.window.epoch(number) else { return };
        if let Kind::Fence { word } = epoch.kind
            && word > 0
        {
            self.open_fence(word);
        }
        self.complete(number);
    }

    /// Ends an access that the target has aborted.
    fn end_access(&mut self, number: u64, rank: WorldRank) {
        let party = self.window.epoch(number).and_then(|epoch| epoch.parties.get(&rank));
        if party.is_none_or(|party| party.state == State::Over) {
            return;
        }
        self.drop_steps(number, rank, &Error::Aborted { rank, fate: Fate::NotDelivered });
        if let Some(epoch) = self.window.epoch(number) {
            epoch.error.get_or_insert(Error::Aborted { rank, fate: Fate::Unknown });
        }
        self.abort_party(number, rank);
    }

    /// Drops the steps of a party that wait for permission. Their requests end with an error.
    fn drop_steps(&mut self, number: u64, rank: WorldRank, error: &Error) {
        let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
            return;
        };
        let steps = std::mem::take(&mut party.steps);
        if matches!(steps.back(), Some(Step::Close(_))) {
            party.closing = Closing::No;
        }
        for step in steps {
            self.drop_step(number, rank, step, error);
        }
    }

    fn drop_step(&mut self, number: u64, rank: WorldRank, step: Step, error: &Error) {
        match step {
            Step::Operation(operation) => self.drop_operation(number, rank, *operation, error.clone()),
            Step::Flush(id) => self.requests.end(id, Err(error.clone())),
            Step::Close(_) => {}
        }
    }

    /// Ends the access of a party whose steps were dropped: withdraws it if it was not granted, otherwise ends it as
    /// aborted.
    fn abort_party(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let (is_start, is_active) = (matches!(epoch.kind, Kind::Start(_)), epoch.is_active);
        let Some(party) = epoch.parties.get_mut(&rank) else { return };
        if party.closing != Closing::No || party.state == State::Over {
            return;
        }
        match party.state {
            State::Idle if is_start => {
                let note = Note::new(party.ordinal, 0).flagged(true);
                self.note(rank, kind::DONE, note);
                self.end_party(number, rank, None);
            }
            State::Idle => self.end_party(number, rank, None),
            State::Asked | State::Granted => {
                assert!(is_active, "only active epochs ask");
                party.closing = Closing::Queued;
                self.pass(number, rank, Step::Close(true));
            }
            State::Over => {}
        }
    }

    /// Ends an epoch early. Its request has ended with `error`. Operations that were sent run to their end.
    pub(crate) fn abort(&mut self, number: u64, error: &Error) {
        let Some(epoch) = self.window.epoch(number) else { return };
        epoch.request = None;
        if epoch.closed.is_none() {
            self.close(number, None);
        }
        let Some(epoch) = self.window.epoch(number) else { return };
        let (is_exposure, is_active) = (matches!(epoch.kind, Kind::Post(_)), epoch.is_active);
        let has_barrier = epoch.barrier.is_some();
        for rank in self.living_parties(number) {
            if is_exposure {
                self.abort_exposure(number, rank);
                continue;
            }
            self.drop_steps(number, rank, error);
            if has_barrier {
                self.queue_close(number, rank, false);
            } else {
                self.abort_party(number, rank);
            }
        }
        // The other members wait for this process's barrier, so an epoch with a barrier completes after the epochs before it.
        if !is_active && !has_barrier && self.window.epoch(number).is_some_and(|epoch| epoch.left == 0) {
            self.complete(number);
        }
        self.touch(number);
    }

    /// Ends the exposure to a member early. If it has begun, the member's answer is awaited.
    fn abort_exposure(&mut self, number: u64, rank: WorldRank) {
        let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
            return;
        };
        let note = Note::new(party.ordinal, 0).flagged(true);
        let has_begun = party.state != State::Idle;
        self.note(rank, kind::GRANT, note);
        if !has_begun {
            self.end_party(number, rank, None);
        }
    }

    /// Ends a party whose member has failed.
    pub(crate) fn fail_party(&mut self, number: u64, rank: WorldRank, cause: &Cause) {
        let error = |fate| Error::peer_failed(rank, cause.clone(), fate);
        let id = self.epoch_id(number);
        let Some(epoch) = self.window.epoch(number) else { return };
        let Some(party) = epoch.parties.get_mut(&rank) else { return };
        let was_granted = party.state == State::Granted;
        let fate = if was_granted { Fate::Unknown } else { Fate::NotDelivered };
        for step in std::mem::take(&mut party.steps) {
            self.drop_step(number, rank, step, &error(Fate::NotDelivered));
        }
        for request in self.requests.operations(id, rank) {
            self.requests.end(request, Err(error(Fate::Unknown)));
        }
        if let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) {
            (party.unanswered, party.queued) = (0, 0);
        }
        self.end_party(number, rank, Some(error(fate)));
    }

    /// Handles the end of a member.
    pub(crate) fn fail_member(&mut self, rank: WorldRank, cause: &Cause) {
        let member = self.member(rank);
        if member.failure.is_some() {
            return;
        }
        member.failure = Some(Box::new(cause.clone()));
        let held = std::mem::take(&mut member.held);
        for item in held {
            self.drop_item(rank, item, cause);
        }
        let numbers: Vec<_> = (self.window.first..).take(self.window.epochs.len()).collect();
        for number in numbers {
            let takes_part = |epoch: &&mut crate::window::Epoch| epoch.parties.contains_key(&rank);
            if self.window.epoch(number).filter(takes_part).is_some() {
                self.fail_party(number, rank, cause);
            }
        }
        for id in self.requests.flushes(self.id, rank) {
            self.requests.end(id, Err(Error::peer_failed(rank, cause.clone(), Fate::Unknown)));
        }
        self.release_lock(rank);
        if !matches!(cause, Cause::Left) {
            self.window.failed.get_or_insert(rank);
        }
        self.touch_active();
    }

    /// Ends the step of an item that was queued for a member which has failed.
    pub(crate) fn drop_item(&mut self, rank: WorldRank, item: Item, cause: &Cause) {
        if let Item::Step { epoch, step, .. } = item {
            let fate = match &step {
                Step::Operation(operation) if operation.sent > 0 => Fate::Unknown,
                _ => Fate::NotDelivered,
            };
            self.drop_step(epoch, rank, step, &Error::peer_failed(rank, cause.clone(), fate));
        }
    }

    /// Drops the operations to a member that are not sent. Synchronization with the member stays queued.
    pub(crate) fn drop_operations(&mut self, rank: WorldRank, error: &Error) {
        let Some(member) = self.window.members.get_mut(&rank) else { return };
        let held = std::mem::take(&mut member.held);
        let mut kept = std::collections::VecDeque::new();
        for item in held {
            match item {
                Item::Step { epoch, step: Step::Operation(operation), .. } => {
                    self.refuse(epoch, rank, *operation, error.clone());
                }
                item => kept.push_back(item),
            }
        }
        self.member(rank).held = kept;
        for number in (self.window.first..).take(self.window.epochs.len()).collect::<Vec<_>>() {
            let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
                continue;
            };
            for step in std::mem::take(&mut party.steps) {
                match step {
                    Step::Operation(operation) => {
                        self.drop_operation(number, rank, *operation, error.clone())
                    }
                    step => {
                        if let Some(party) =
                            self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank))
                        {
                            party.steps.push_back(step);
                        }
                    }
                }
            }
        }
    }

    /// Removes an operation that is recorded. Returns false if it was passed on.
    pub(crate) fn withdraw(&mut self, number: u64, rank: WorldRank, id: RequestId, error: &Error) -> bool {
        let Some(party) = self.window.epoch(number).and_then(|epoch| epoch.parties.get_mut(&rank)) else {
            return false;
        };
        let is_that = |step: &Step| match step {
            Step::Operation(operation) => operation.request == Some(id),
            Step::Flush(flush) => *flush == id,
            Step::Close(_) => false,
        };
        let Some(place) = party.steps.iter().position(is_that) else { return false };
        if let Some(step) = party.steps.remove(place) {
            self.drop_step(number, rank, step, error);
        }
        true
    }

    /// Returns the request kind of the end of an epoch.
    pub(crate) fn begin_close(&mut self, number: u64, deadline: samite_fabric::link::Time) -> RequestId {
        let epoch = self.epoch_id(number);
        self.requests.begin(self.link, epoch, requests::Kind::Close, deadline)
    }
}

/// Checks that an operation stays in a member's part, and returns the offset of its first byte.
pub(crate) fn check_place(rank: WorldRank, traits: Traits, operation: &Operation) -> Result<u64, Error> {
    let (size, len) = (traits.len.get(), operation.len as u64);
    let at = operation.displacement.checked_mul(traits.unit.get().into());
    let Some(at) = at.filter(|at| at.checked_add(len).is_some_and(|end| end <= size)) else {
        return Err(Error::OutOfBounds { rank, at: at.unwrap_or(u64::MAX), len, size });
    };
    match operation.action.element() {
        Some(element) if !is_aligned(at, element) => Err(Error::Misaligned { rank, at, element }),
        _ => Ok(at),
    }
}

/// Returns true if elements may begin at this offset.
pub(crate) fn is_aligned(at: u64, element: ElementType) -> bool {
    at.is_multiple_of(element.size().min(8) as u64)
}
