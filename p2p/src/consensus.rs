//! Consensus: the surviving members of a group decide on one value, although members may fail meanwhile.
//!
//! This is the algorithm of D. Buntinas, "Scalable Distributed Consensus to Support MPI Fault Tolerance" (IPDPS 2012).
//! The first member that has not failed is the *root*. It carries out four rounds. In each round a message travels from
//! the root down a binomial tree of the living members, and the answers travel up:
//!
//! 1. [`Stage::Voting`]: the members vote. The root merges the votes to a value.
//! 2. [`Stage::Agreed`]: the members keep this value. A member that has it accepts no other value.
//! 3. [`Stage::Committed`]: all living members keep the value, so each member that learns that can use it.
//! 4. [`Stage::Settled`]: all living members know the result, so no member needs to be asked for it any more.
//!
//! If a member fails before its parent in the tree has its answer, the round is incomplete. The root then repeats it
//! with a tree without that member, except for the last round. If the root fails, the next living member becomes the
//! root and begins with the stage that it has reached. If it is still voting, each member that already keeps a value
//! answers with that value instead of a vote. The root then adopts that value. All living members keep a value before
//! one of them uses it, so no two members use different values. Each failure costs at most one more round at each
//! stage: O(log n) messages one after the other.
//!
//! The failures that a member knows must be final, and each failure must become known to all members in the end.
//!
//! A [`Consensus`] is a pure state machine: its owner passes messages and failures, and sends the messages that it
//! returns. They may arrive in any order.

use samite_fabric::link::{Group, WorldRank};

/// A value, or a vote for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// The bits that are set in the flags of all voters.
    pub(crate) flags: u64,
    /// The largest number of the voters.
    pub(crate) number: u64,
    /// The members that a voter knew to have failed.
    pub(crate) failed: Group,
    /// The failed members that all voters have acknowledged.
    pub(crate) acknowledged: Group,
}

/// The stage that a member has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Voting,
    Agreed,
    Committed,
    Settled,
}

/// A message between two members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsensusMessage {
    /// The round to which it belongs.
    round: RoundId,
    stage: Stage,
    /// True if the message travels to the root.
    is_answer: bool,
    /// In an answer: true if all members of the sender's subtree have answered.
    is_complete: bool,
    /// In an answer to a vote: true if a member keeps the value already, so that no other value can be chosen.
    is_bound: bool,
    /// The members that are not in the tree. In an answer: the members that the subtree knows to have failed.
    failed: Group,
    /// The value that the members keep; in an answer, the merged votes or the value that is kept already.
    value: Option<Value>,
}

/// A round. Later rounds are larger: a root numbers its rounds, and the next root is a later member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RoundId {
    /// The root's index in the group.
    root: u32,
    /// The root counts from 1.
    number: u32,
}

/// The state of one member.
#[derive(Debug)]
pub(crate) struct Consensus {
    members: Group,
    mine: WorldRank,
    stage: Stage,
    /// This member's vote and, from [`Stage::Agreed`] on, the value.
    value: Value,
    /// The members that this member knows to have failed.
    failed: Group,
    /// The latest round in which this member has taken part.
    latest: RoundId,
    /// The members that are not in the tree of that round.
    outside: Group,
    /// See [`is_disrupted`](Self::is_disrupted).
    is_disrupted: bool,
    /// The round in which this member awaits answers.
    round: Option<OpenRound>,
    /// The messages to send.
    out: Vec<(WorldRank, ConsensusMessage)>,
}

/// A round whose answers are awaited.
#[derive(Debug)]
struct OpenRound {
    stage: Stage,
    /// `None` at the root.
    parent: Option<WorldRank>,
    /// The children that have not answered.
    awaited: Vec<WorldRank>,
    /// False if a child has failed before its answer.
    is_complete: bool,
    is_bound: bool,
    /// The merged votes of the children.
    votes: Option<Value>,
}

impl Consensus {
    /// Returns the state of the member `mine`, which votes for `flags` and `number`, and has acknowledged these
    /// failures. Call [`know_failed`](Self::know_failed) next.
    ///
    /// # Panics
    /// If `mine` is not a member.
    pub(crate) fn new(
        members: Group,
        mine: WorldRank,
        (flags, number): (u64, u64),
        acknowledged: Group,
    ) -> Self {
        assert!(members.contains(mine), "this rank takes part");
        let value = Value { flags, number, failed: Group::EMPTY, acknowledged };
        Self {
            members,
            mine,
            stage: Stage::Voting,
            value,
            failed: Group::EMPTY,
            latest: RoundId::default(),
            outside: Group::EMPTY,
            is_disrupted: false,
            round: None,
            out: Vec::new(),
        }
    }

    /// Returns the value that all members use, once it is known.
    pub(crate) fn decision(&self) -> Option<&Value> {
        (self.stage >= Stage::Committed).then_some(&self.value)
    }

    /// Returns true if no member needs this one any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.stage == Stage::Settled && self.round.is_none()
    }

    /// Returns true if this member has the value, and a member has failed that may not have passed on that the run is
    /// settled. Then this member may never learn that.
    pub(crate) fn is_disrupted(&self) -> bool {
        self.is_disrupted && !self.is_settled()
    }

    /// Returns a member for which this one waits: a child, or else the root.
    pub(crate) fn awaited(&self) -> WorldRank {
        let child = self.round.as_ref().and_then(|round| round.awaited.first().copied());
        child.or_else(|| self.living().rank(0)).unwrap_or(self.mine)
    }

    /// Returns the messages to send, in order.
    pub(crate) fn take_messages(&mut self) -> Vec<(WorldRank, ConsensusMessage)> {
        std::mem::take(&mut self.out)
    }

    /// Notes that members have failed.
    pub(crate) fn know_failed(&mut self, failed: &Group) {
        self.learn(failed);
        if let Some(round) = &mut self.round {
            round.awaited.retain(|child| {
                let has_failed = failed.contains(*child);
                round.is_complete &= !has_failed;
                !has_failed
            });
        }
        self.note_disruption();
        self.advance();
        let leads = self.round.as_ref().is_some_and(|round| round.parent.is_none());
        if !leads && self.stage < Stage::Settled && self.living().rank(0) == Some(self.mine) {
            self.begin_round();
            self.advance();
        }
    }

    /// Takes a message of a member. Returns false if no member that follows the protocol can have sent it.
    #[must_use]
    pub(crate) fn receive(&mut self, from: WorldRank, message: ConsensusMessage) -> bool {
        match message.is_answer {
            true => self.take_answer(from, message),
            false => self.take_part(from, message),
        }
    }

    /// Takes part in a round, in which `from` is this member's parent in the tree.
    fn take_part(&mut self, from: WorldRank, message: ConsensusMessage) -> bool {
        let ConsensusMessage { round, stage, failed, value, .. } = message;
        let living = self.members.difference(&failed);
        let Some(index) = living.index(self.mine).filter(|index| *index > 0) else { return false };
        let is_valid = living.rank(parent(index)) == Some(from)
            && self.members.rank(round.root) == living.rank(0)
            && value.is_some() == (stage > Stage::Voting);
        if !is_valid {
            return false;
        }
        if round <= self.latest {
            return true;
        }
        self.latest = round;
        self.learn(&failed);
        if let Some(value) = value.filter(|_| self.stage == Stage::Voting) {
            self.value = value;
        }
        self.stage = self.stage.max(stage);
        self.is_disrupted = false;
        self.send_down(stage, Some(from), &failed);
        self.note_disruption();
        self.advance();
        true
    }

    fn take_answer(&mut self, from: WorldRank, message: ConsensusMessage) -> bool {
        let current = self.latest == message.round;
        let Some(round) = self.round.as_mut().filter(|_| current) else { return true };
        let Some(at) = round.awaited.iter().position(|child| *child == from) else { return true };
        if message.stage != round.stage || message.value.is_some() != (message.stage == Stage::Voting) {
            return false;
        }
        round.awaited.remove(at);
        round.is_complete &= message.is_complete;
        if let Some(theirs) = message.value {
            match &mut round.votes {
                Some(_) if round.is_bound && !message.is_bound => {}
                Some(votes) if !message.is_bound => votes.merge(&theirs),
                votes => *votes = Some(theirs),
            }
            round.is_bound |= message.is_bound;
        }
        // Other members may have given up this one, although it takes part. If this member agreed with them, it could
        // not begin another round.
        self.learn(&message.failed.difference(&Group::range(self.mine, 1)));
        self.advance();
        true
    }

    /// Ends the round if all answers have arrived: answers the parent, or begins the next round as the root.
    fn advance(&mut self) {
        while let Some(round) = self.round.take_if(|round| round.awaited.is_empty()) {
            match round.parent {
                Some(parent) => return self.answer(parent, round),
                None if !self.conclude(round) => return,
                None => self.begin_round(),
            }
        }
    }

    /// Sends the answer of this member and its subtree to the parent.
    fn answer(&mut self, parent: WorldRank, round: OpenRound) {
        let OpenRound { stage, is_complete, .. } = round;
        let (value, is_bound) = match (stage, self.merged(round)) {
            (Stage::Voting, (value, is_bound)) => (Some(value), is_bound),
            _ => (None, false),
        };
        let failed = self.failed.clone();
        let round = self.latest;
        self.send(
            parent,
            ConsensusMessage { round, stage, is_answer: true, is_complete, is_bound, failed, value },
        );
    }

    /// Returns the votes of this member and its subtree. Returns the value and true if a member keeps it already.
    fn merged(&self, round: OpenRound) -> (Value, bool) {
        if self.stage > Stage::Voting {
            return (self.value.clone(), true);
        }
        match round.votes {
            Some(value) if round.is_bound => (value, true),
            votes => {
                let mut mine = self.vote();
                votes.iter().for_each(|votes| mine.merge(votes));
                (mine, false)
            }
        }
    }

    /// Returns this member's vote.
    fn vote(&self) -> Value {
        Value { failed: self.failed.clone(), ..self.value.clone() }
    }

    /// At the root: notes the end of a round. Returns false if it was the last one.
    fn conclude(&mut self, round: OpenRound) -> bool {
        let is_complete = round.is_complete;
        let next = match round.stage {
            Stage::Voting => {
                let (value, is_bound) = self.merged(round);
                if !(is_complete || is_bound) {
                    return true;
                }
                self.value = value;
                Stage::Agreed
            }
            // This round is not repeated, because members that have taken part in it do not answer any more.
            Stage::Settled => return false,
            _ if !is_complete => return true,
            Stage::Agreed => Stage::Committed,
            Stage::Committed => Stage::Settled,
        };
        self.stage = self.stage.max(next);
        true
    }

    /// Begins a round for the stage that this member has reached, with this member as the root. Does nothing if this
    /// member counts as failed, because then it is in no tree.
    fn begin_round(&mut self) {
        if self.failed.contains(self.mine) {
            return;
        }
        let root = self.members.index(self.mine).expect("this rank is a member");
        let number = if self.latest.root == root { self.latest.number + 1 } else { 1 };
        self.latest = RoundId { root, number };
        self.send_down(self.stage, None, &self.failed.clone());
    }

    /// Begins to take part in the round [`latest`](Self::latest): sends its message to the children.
    fn send_down(&mut self, stage: Stage, parent: Option<WorldRank>, failed: &Group) {
        self.outside = failed.clone();
        let living = self.members.difference(failed);
        let index = living.index(self.mine).expect("a member that takes part has not failed");
        let (mut awaited, mut is_complete) = (Vec::new(), true);
        // The child with the largest subtree comes first.
        for child in children(index, living.len()).into_iter().rev().filter_map(|child| living.rank(child)) {
            if self.failed.contains(child) {
                is_complete = false;
                continue;
            }
            awaited.push(child);
            let value = (stage > Stage::Voting).then(|| self.value.clone());
            let (round, failed) = (self.latest, failed.clone());
            let (is_answer, is_complete, is_bound) = (false, false, false);
            self.send(
                child,
                ConsensusMessage { round, stage, is_answer, is_complete, is_bound, failed, value },
            );
        }
        self.round = Some(OpenRound { stage, parent, awaited, is_complete, is_bound: false, votes: None });
    }

    fn send(&mut self, to: WorldRank, message: ConsensusMessage) {
        self.out.push((to, message));
    }

    fn learn(&mut self, failed: &Group) {
        if !failed.difference(&self.failed).is_empty() {
            self.failed = self.failed.union(&failed.intersection(&self.members));
        }
    }

    fn note_disruption(&mut self) {
        self.is_disrupted |=
            self.stage >= Stage::Committed && !self.failed.difference(&self.outside).is_empty();
    }

    fn living(&self) -> Group {
        self.members.difference(&self.failed)
    }
}

/// Returns the parent of a member in the binomial tree.
fn parent(index: u32) -> u32 {
    index & (index - 1)
}

/// Returns the children of a member in the binomial tree of `len` members, in ascending order.
fn children(index: u32, len: u32) -> Vec<u32> {
    let levels = if index == 0 { u32::BITS } else { index.trailing_zeros() };
    (0..levels).map_while(|level| index.checked_add(1 << level).filter(|child| *child < len)).collect()
}

impl Value {
    /// Merges votes.
    fn merge(&mut self, other: &Self) {
        self.flags &= other.flags;
        self.number = self.number.max(other.number);
        self.failed = self.failed.union(&other.failed);
        self.acknowledged = self.acknowledged.intersection(&other.acknowledged);
    }
}

impl ConsensusMessage {
    /// Returns the message as words: its kind; its round; the failed members; the value if there is one.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let bits = [self.is_answer, self.is_complete, self.is_bound, self.value.is_some()];
        let bits = bits.into_iter().rev().fold(0, |bits, bit| bits << 1 | u64::from(bit));
        let RoundId { root, number } = self.round;
        let mut words = vec![(self.stage as u64) << 4 | bits, u64::from(root) << 32 | u64::from(number)];
        write_group(&mut words, &self.failed);
        if let Some(Value { flags, number, failed, acknowledged }) = &self.value {
            words.extend([*flags, *number]);
            write_group(&mut words, failed);
            write_group(&mut words, acknowledged);
        }
        words
    }

    /// Returns the message that [`to_words`](Self::to_words) has written, between ranks of a job of `size` ranks.
    /// Returns `None` if the words are something else.
    pub(crate) fn from_words(words: &[u64], size: u32) -> Option<Self> {
        let (&[kind, round], mut rest) = words.split_first_chunk()?;
        let stage = match kind >> 4 {
            0 => Stage::Voting,
            1 => Stage::Agreed,
            2 => Stage::Committed,
            3 => Stage::Settled,
            _ => return None,
        };
        let [is_answer, is_complete, is_bound, has_value] = [0, 1, 2, 3].map(|bit| kind >> bit & 1 == 1);
        let failed = read_group(&mut rest, size)?;
        let value = match has_value {
            true => {
                let (&[flags, number], groups) = rest.split_first_chunk()?;
                rest = groups;
                let (failed, acknowledged) = (read_group(&mut rest, size)?, read_group(&mut rest, size)?);
                Some(Value { flags, number, failed, acknowledged })
            }
            false => None,
        };
        let round = RoundId { root: (round >> 32) as u32, number: round as u32 };
        let message = Self { round, stage, is_answer, is_complete, is_bound, failed, value };
        (rest.is_empty() && round.number > 0).then_some(message)
    }

    /// Returns the largest number of words of a message about `members` members.
    pub(crate) fn words_max(members: u32) -> usize {
        // A group has at most two words for each member, and one for their number.
        4 + 3 * (1 + 2 * members as usize)
    }
}

fn write_group(words: &mut Vec<u64>, group: &Group) {
    let of_group = group.to_words();
    words.push(of_group.len() as u64);
    words.extend(of_group);
}

fn read_group(words: &mut &[u64], size: u32) -> Option<Group> {
    let (&len, rest) = words.split_first()?;
    let (group, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *words = rest;
    Group::from_words(group, size)
}

#[cfg(test)]
mod tests;
