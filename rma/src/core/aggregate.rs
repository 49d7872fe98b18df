//! Epochs that travel as one packet: the operations go with the request for the lock.
//!
//! With [`Hints::aggregate`](crate::Hints::aggregate) the request for a lock waits until its epoch is closed. If the
//! operations then fit in a packet, they are attached to the request. The target applies them when it grants the lock,
//! releases the lock at once, and sends their results in one answer. The origin keeps the steps until then: a target
//! without room for them grants the lock as for a plain request, and they are sent as those of any other epoch.

use samite_fabric::Body as _;
use samite_fabric::link::WorldRank;
use zerocopy::IntoBytes;

use super::{Core, Violation, check_place};
use crate::activation::Kind;
use crate::outbox::Item;
use crate::window::{Attached, Attachment, Closing, Contact, Step};
use crate::windows::packet_of;
use crate::wire::{EPOCH_HEAD, Entry, Note, REPLY_HEAD, Traits};

impl Core<'_> {
    /// Returns true if the request for the lock of an epoch waits, because the operations may still travel with it.
    pub(super) fn is_recording(&mut self, number: u64, rank: WorldRank) -> bool {
        if !self.may_attach(number, rank) {
            return false;
        }
        let peer = self.member(rank).peer;
        let packet_max = match self.outbox.of(peer).limits.packet_max {
            0 => PACKET_MAX_UNKNOWN,
            known => known,
        };
        self.window.party(number, rank).is_some_and(|party| {
            party.closing == Closing::No && !party.is_urged && party.recorded <= packet_max - EPOCH_HEAD
        })
    }

    /// Requests the lock of an epoch although the epoch is open.
    pub(crate) fn urge(&mut self, number: u64, rank: WorldRank) {
        let Some(epoch) = self.window.epoch(number) else { return };
        let is_active = epoch.is_active;
        let Some(party) = epoch.parties.get_mut(rank) else { return };
        party.is_urged = true;
        if is_active {
            self.ask(number, rank);
        }
    }

    /// Returns true if the operations of an epoch may travel with the request for its lock.
    pub(super) fn may_attach(&mut self, number: u64, rank: WorldRank) -> bool {
        self.window.hints.aggregate
            && self
                .window
                .epoch(number)
                .is_some_and(|epoch| matches!(epoch.kind, Kind::Lock { .. }) && epoch.parties.contains(rank))
    }

    /// Returns the request for the lock of an epoch, and the operations to attach if the whole epoch fits in a packet.
    pub(crate) fn lock_request(
        &mut self,
        number: u64,
        rank: WorldRank,
        traits: Traits,
        packet_max: usize,
    ) -> Option<(Note, Option<Vec<u8>>)> {
        self.refuse_misplaced(number, rank, traits);
        let attached = self.attachment(number, rank, traits, packet_max);
        let epoch = self.window.epochs.get(number)?;
        let flag = self.window.lock_flag(&epoch.kind);
        let ordinal = epoch.parties.get(rank).map_or(0, |party| party.ordinal);
        let token = if attached.is_some() { number } else { 0 };
        let note = Note::new(ordinal, token).flagged(flag);
        Some((Note { generation: traits.generation, ..note }, attached))
    }

    /// Ends the recorded operations of an epoch that leave the target's part.
    fn refuse_misplaced(&mut self, number: u64, rank: WorldRank, traits: Traits) {
        let Some(party) = self.window.party(number, rank) else { return };
        let mut refused = Vec::new();
        for step in std::mem::take(&mut party.steps) {
            let checked = match &step {
                Step::Operation(operation) => check_place(rank, traits, operation).map(|_| ()),
                _ => Ok(()),
            };
            match checked {
                Ok(()) => party.steps.push_back(step),
                Err(error) => refused.push((step, error)),
            }
        }
        for (step, error) in refused {
            self.drop_step(number, rank, step, &error);
        }
    }

    /// Returns the operations of an epoch as in an `EPOCH`, or `None` if they do not fit in a packet, if there is none,
    /// or if the epoch has other steps.
    fn attachment(
        &mut self,
        number: u64,
        rank: WorldRank,
        traits: Traits,
        packet_max: usize,
    ) -> Option<Vec<u8>> {
        let party = self.window.epoch(number)?.parties.get(rank)?;
        let ends = matches!(party.steps.back(), Some(Step::Close(false)));
        let count = party.steps.len().checked_sub(1).filter(|count| ends && *count > 0)?;
        // The traits have the number of bytes behind the head of a reply.
        let answer_max = traits.reply_max.get() as usize + REPLY_HEAD;
        let (mut bytes, mut wanted) = (Vec::new(), 0);
        for step in party.steps.iter().take(count) {
            let Step::Operation(operation) = step else { return None };
            let data = self.requests.data_of(operation).readable();
            wanted += if operation.action.has_reply() { operation.len } else { 0 };
            if EPOCH_HEAD + wanted > answer_max {
                return None;
            }
            let mut done = 0;
            while done < operation.len {
                let (_, run) = operation.run(done);
                let (kind, head, data) = packet_of(traits, number, operation, data, done, run);
                done += run;
                let len = head.as_bytes().len() + data.len();
                if EPOCH_HEAD + bytes.len() + size_of::<Entry>() + len > packet_max {
                    return None;
                }
                bytes.extend(Entry { kind, reserved: [0; 3], len: (len as u32).into() }.as_bytes());
                bytes.extend(head.as_bytes());
                let at = bytes.len();
                bytes.resize(at + data.len(), 0);
                data.copy_to(&mut bytes[at..]);
            }
        }
        Some(bytes)
    }

    /// Handles the answer to an epoch that has travelled as one packet: all its operations are applied, and the lock is
    /// released. `results` are the former bytes that they ask for.
    pub(crate) fn applied(&mut self, rank: WorldRank, note: &Note, results: &[u8]) -> Result<(), Violation> {
        let number = note.token.get();
        let party = self.window.epoch(number).map(|epoch| epoch.parties.get_mut(rank));
        let party = match party {
            None => {
                self.link.note_stale();
                return Ok(());
            }
            Some(party) => party.filter(|party| party.ordinal == note.number.get()),
        };
        let Some(party) = party.filter(|party| party.attached != Attached::No) else {
            return Err(Violation("end of an epoch"));
        };
        if party.attached == Attached::Withdrawn {
            self.link.note_stale();
            return Ok(());
        }
        let wanted = party.steps.iter().map(|step| match step {
            Step::Operation(operation) if operation.action.has_reply() => operation.len,
            _ => 0,
        });
        if wanted.sum::<usize>() != results.len() {
            return Err(Violation("results of an epoch"));
        }
        (party.attached, party.closing) = (Attached::No, Closing::Answered);
        let mut results = results;
        for step in std::mem::take(&mut party.steps) {
            let Step::Operation(operation) = step else { continue };
            self.requests.recorded -= operation.cost();
            self.counters.operations += 1;
            match operation.request.filter(|_| operation.action.has_reply()) {
                Some(id) => {
                    let (result, rest) = results.split_at(operation.len);
                    results = rest;
                    self.requests.note_sent(&operation, operation.len);
                    let replied = self.requests.reply(id, rank, 0, result);
                    assert!(replied.is_some_and(|(_, is_last)| is_last), "no packet has asked for it before");
                    self.requests.end(id, Ok(()));
                    self.answered(number, rank);
                }
                None => self.end_sending(*operation),
            }
        }
        self.counters.aggregated += 1;
        self.check_party(number, rank);
        Ok(())
    }

    /// Keeps the operations that came with a member's request for the lock, if the budget permits it.
    pub(super) fn attach(&mut self, rank: WorldRank, attached: Attachment) {
        let cost = attached.cost();
        if self.outbox.attached + cost <= self.config.attached_max {
            self.outbox.attached += cost;
            self.member(rank).attached = Some(attached);
        }
    }

    /// Applies the operations that came with the request for the lock, which the member has now, and answers.
    pub(super) fn apply_attached(&mut self, rank: WorldRank, attached: Attachment) {
        let member = self.member(rank);
        (member.is_applied, member.is_answering) = (true, true);
        let (peer, ordinal) = (member.peer, member.lock);
        let Contact::Known(traits) = member.contact else {
            unreachable!("packets of unknown members are refused")
        };
        let results = self.apply_all(peer, &attached);
        assert_eq!(results.len(), attached.wanted, "the operations were checked");
        let note = Note { generation: traits.generation, ..Note::new(ordinal, attached.epoch) };
        let (window, cost, slot) = (self.id, attached.cost(), traits.slot.get());
        let item = Item::Applied { window, to: rank, slot, note, results, cost };
        self.outbox.push(self.link, peer, item);
    }
}

/// The bytes that an epoch records if the length of the target's packets is not known yet.
const PACKET_MAX_UNKNOWN: usize = 8 << 10;
