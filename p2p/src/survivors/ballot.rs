//! One agreement of survivors: its runs of [`Consensus`], its messages, and its result.

use samite_fabric::link::{
    Awaited, Cause, Error, Fate, Group, Operation, Outcome, Report, RequestId, Time, WorldRank,
};
use samite_fabric::{Memory, Port, SplitMix64};
use samite_matching::{Pattern, Source};

use super::{Decision, NUMBERS, SURVIVORS_TAG};
use crate::Engine;
use crate::agreement::{Agreed, AgreementId, LAST};
use crate::consensus::{Consensus, ConsensusMessage, Value};
use crate::contexts::FIRST;
use crate::tagged::HasTagged;

/// An agreement of survivors that is under way, or whose result was not taken.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) id: AgreementId,
    pub(super) control: u32,
    pub(super) members: Group,
    pub(super) mine: WorldRank,
    pub(super) number: u32,
    /// The runs, from the first on.
    pub(super) runs: Vec<Consensus>,
    pub(super) goal: Goal,
    /// The knowledge about failed members.
    pub(super) known: Known,
    /// The messages that are being received: the request, the sender, and the run.
    pub(super) incoming: Vec<(RequestId, WorldRank, usize)>,
    pub(super) begun: Time,
    pub(super) deadline: Time,
    pub(super) result: Option<Result<End, Error>>,
    /// True if the result was taken, or if the caller does not want it.
    pub(super) is_unwanted: bool,
    /// The first name that was tried.
    pub(super) first: Option<u64>,
    pub(super) opened: Option<Box<Agreed>>,
}

/// The result of an agreement of survivors.
#[derive(Debug)]
pub(super) enum End {
    Decision(Decision),
    Context(Box<Agreed>),
}

/// The purpose of the last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The members agree on flags.
    Agreeing,
    /// The members agree on the members and the name of contexts.
    Choosing,
    /// The members agree if all have opened the contexts.
    Opening,
    Over,
}

/// The members that have failed.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) failed: Group,
    /// If this member counts as failed: the reason.
    pub(super) excluded: Option<Error>,
    /// The time at which more will be known.
    pub(super) again: Time,
    /// The value of [`Engine::ends`] to which this refers.
    pub(super) ends: u64,
}

/// The flag that a member has a name for the contexts, and in the second run the flag that it has opened them.
const DONE: u64 = 1;

/// The flag that a member may have more contexts.
const HAS_ROOM: u64 = 2;

/// The number of names among which a new choice skips a random number: see the module `agreement`.
const SKIPS: u64 = 4;

impl Ballot {
    pub(super) fn is_settled(&self) -> bool {
        self.goal == Goal::Over && self.runs.iter().all(Consensus::is_settled)
    }

    /// Returns true if neither the caller nor another member needs this agreement any more.
    pub(super) fn is_done(&self) -> bool {
        self.is_settled() && self.is_unwanted && self.incoming.is_empty()
    }

    pub(super) fn advance<P: Port, S: HasTagged>(
        &mut self,
        engine: &mut Engine<P, S>,
        now: Time,
        events: usize,
    ) {
        if self.known.ends != engine.ends() || now >= self.known.again {
            self.known = engine.known(self.control, &self.members, self.mine);
            let failed = &self.known.failed;
            self.runs.iter_mut().for_each(|run| run.know_failed(failed));
            if let Some(error) = self.known.excluded.clone() {
                self.fail(error);
            }
        }
        loop {
            self.begin_receives(engine, now);
            self.take_received(engine);
            self.decide(engine, now);
            if !self.send(engine, now) {
                break;
            }
        }
        self.check_deadline(engine, now, events);
    }

    /// Begins another run.
    pub(super) fn begin_run<P: Port, S: HasTagged>(&mut self, engine: &Engine<P, S>, vote: (u64, u64)) {
        let acknowledged = engine.survivors.acknowledged.get(&self.control).cloned().unwrap_or(Group::EMPTY);
        let mut run = Consensus::new(self.members.clone(), self.mine, vote, acknowledged);
        run.know_failed(&self.known.failed);
        self.runs.push(run);
        if let Some(error) = self.known.excluded.clone() {
            self.fail(error);
        }
    }

    /// Begins to receive the messages that have arrived.
    fn begin_receives<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time) {
        for run in 0..self.runs.len() {
            if self.runs[run].is_settled() {
                continue;
            }
            let pattern =
                Pattern { context: self.control, source: Source::ANY, tag: self.tag(run), mask: !0 };
            while let Some((bytes, from, claimed)) = engine.take_message(&pattern) {
                if bytes > ConsensusMessage::words_max(self.members.len()) * size_of::<u64>() {
                    engine.discard(now, claimed);
                    engine.refuse_sender(from);
                    continue;
                }
                let memory = Memory::new(vec![0u64; bytes.div_ceil(size_of::<u64>())]);
                let request = engine.recv_claimed(now, claimed, Ok(memory), Time::NEVER);
                self.incoming.push((request, from, run));
            }
        }
    }

    /// Takes the messages that have been received.
    fn take_received<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>) {
        let size = engine.inner.link().identity().size;
        for (request, from, run) in std::mem::take(&mut self.incoming) {
            if engine.outcome(request) == Outcome::Pending {
                self.incoming.push((request, from, run));
                continue;
            }
            // A message that cannot be received has no effect: its sender has failed.
            let Some(received) = engine.collect(request, &mut ()) else { continue };
            let (Ok(status), Some(memory)) = (received.result, received.memory) else { continue };
            let (words, rest) = memory.as_bytes()[..status.bytes].as_chunks();
            let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let message = ConsensusMessage::from_words(&words, size).filter(|_| rest.is_empty());
            if !message.is_some_and(|message| self.runs[run].receive(from, message)) {
                engine.refuse_sender(from);
            }
        }
    }

    /// Sends the messages of all runs. Returns true if there were any.
    fn send<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time) -> bool {
        let mut has_sent = false;
        for run in 0..self.runs.len() {
            let tag = self.tag(run);
            for (to, message) in self.runs[run].take_messages() {
                has_sent = true;
                let memory = Memory::new(message.to_words().into_iter().map(u64::to_le).collect::<Vec<_>>());
                // A failed peer needs no message.
                if let Ok(request) = engine.isend_agreement(now, to, self.control, tag, memory) {
                    engine.agreements.note_send(request, to, self.id);
                }
            }
        }
        has_sent
    }

    /// Takes the next step if the last run has a decision.
    fn decide<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time) {
        while self.goal != Goal::Over {
            let Some(value) = self.runs.last().and_then(Consensus::decision).cloned() else { return };
            let decided = engine.survivors.decided.entry(self.control).or_insert(Group::EMPTY);
            *decided = decided.union(&value.failed);
            match self.goal {
                Goal::Agreeing => {
                    let failed = value.failed.difference(&value.acknowledged);
                    self.end(Ok(End::Decision(Decision { flags: value.flags, failed })));
                }
                Goal::Choosing => self.open(engine, now, &value),
                Goal::Opening => self.confirm(engine, now, &value),
                Goal::Over => unreachable!("the loop has ended"),
            }
        }
    }

    /// Begins the run in which the members choose the name of contexts.
    pub(super) fn choose<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time) {
        let skipped = if self.runs.is_empty() { 0 } else { self.skipped_names(engine.contexts_max()) };
        let name = engine.propose_name(now, true, skipped);
        self.goal = Goal::Choosing;
        self.begin_run(engine, (if name.is_some() { DONE } else { 0 }, name.unwrap_or(0)));
    }

    /// Opens the contexts that the members have chosen.
    fn open<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time, value: &Value) {
        let name = value.number;
        let tried = name.saturating_sub(*self.first.get_or_insert(name));
        let is_possible = (FIRST.into()..LAST).contains(&name) && name.is_multiple_of(2);
        if value.flags & DONE == 0 || !is_possible || tried > 2 * engine.contexts_max() {
            return self.end(Err(exhausted()));
        }
        let members = self.members.difference(&value.failed);
        if !members.contains(self.mine) {
            let (rank, fate) = (self.mine, Fate::NotDelivered);
            return self.end(Err(Error::PeerFailed { rank, cause: Cause::Lost, fate, report: None }));
        }
        let has_room = !engine.has_all_contexts();
        let incarnations = engine.incarnations_of(self.control, &members);
        let is_open = has_room && engine.open_agreed(now, name, &members, None, &incarnations) == Ok(true);
        let context = engine.context_of(name);
        self.opened = is_open.then(|| Box::new(Agreed { name, context, members, remote: None }));
        self.goal = Goal::Opening;
        let flags = if is_open { DONE } else { 0 } | if has_room { HAS_ROOM } else { 0 };
        self.begin_run(engine, (flags, 0));
    }

    /// Ends the agreement if all members have opened the contexts. Otherwise closes them, and begins again.
    fn confirm<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time, value: &Value) {
        match self.opened.take() {
            Some(opened) if value.flags & DONE != 0 => {
                if self.is_unwanted || self.result.is_some() {
                    engine.leave_agreed(now, Ok(Some(*opened)));
                    return self.end(Err(Error::Cancelled { fate: Fate::NotDelivered }));
                }
                return self.end(Ok(End::Context(opened)));
            }
            Some(opened) => {
                engine.withdraw_contexts(now, opened.context);
                engine.others().for_each(|others| others.withdraw(opened.context));
            }
            None => {}
        }
        match value.flags & HAS_ROOM {
            0 => self.end(Err(exhausted())),
            _ => self.choose(engine, now),
        }
    }

    /// Ends the last step.
    fn end(&mut self, result: Result<End, Error>) {
        self.goal = Goal::Over;
        if self.result.is_none() && !self.is_unwanted {
            self.result = Some(result);
        }
    }

    /// Gives the caller an error. This member still answers the others.
    pub(super) fn fail(&mut self, error: Error) {
        if self.goal != Goal::Over && !self.is_unwanted {
            self.result.get_or_insert(Err(error));
        }
    }

    fn check_deadline<P: Port, S: HasTagged>(&mut self, engine: &mut Engine<P, S>, now: Time, events: usize) {
        // While polls deliver events, the awaited message may be among the next ones.
        let slack_ns = if events > 0 { SLACK_NS } else { 0 };
        if self.deadline == Time::NEVER || now < self.deadline.after(slack_ns) || self.result.is_some() {
            return;
        }
        let rank = self.awaited();
        let report = Report {
            operation: Operation::Agreement,
            peer: Some(rank),
            tag: self.tag(self.runs.len() - 1),
            mask: !0,
            bytes: 0,
            age_ns: now.since(self.begun),
            awaited: Awaited::Message,
            other_tags: None,
            is_stopped: engine.is_stopped(rank),
            members: None,
        };
        self.fail(Error::TimedOut { fate: Fate::NotDelivered, report: Box::new(report) });
    }

    /// Returns a member for which this one waits.
    pub(super) fn awaited(&self) -> WorldRank {
        self.runs.last().map_or(self.mine, Consensus::awaited)
    }

    pub(super) fn tag(&self, run: usize) -> u64 {
        SURVIVORS_TAG | u64::from(self.number & NUMBERS) << 32 | run as u64
    }

    /// Returns the number of free names that this agreement skips when it begins again: see the module `agreement`.
    fn skipped_names(&self, space: u64) -> u64 {
        SplitMix64::new(self.tag(self.runs.len()) ^ u64::from(self.control)).below(SKIPS.min(space / 16))
    }
}

fn exhausted() -> Error {
    Error::Exhausted {
        what: "contexts for communicators",
        hint: "drop communicators that are no longer used, or set a larger communicators_max at all ranks"
            .into(),
    }
}

/// The longest time in nanoseconds by which a deadline is put off while polls deliver events: see the module
/// `agreement`.
const SLACK_NS: u64 = 1_000_000;
