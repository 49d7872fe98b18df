//! The messages of an agreement with one other rank, on a channel whose tag may be used again.
//!
//! After an agreement that failed, the same ranks may try again with the same tag. The messages of the earlier attempt
//! may still arrive, and would be taken for messages of the later one. Two ranks could then agree on different names. So
//! each message contains the number of its sender's *attempt*, and the number of the receiver's attempt that it answers.
//! When a rank takes the first message, its attempt is *paired* with that attempt of the other rank. From then on each
//! takes only the messages of the other attempt.
//!
//! The first message of a rank answers none. If several of them have arrived, the last one counts: the earlier attempts
//! have ended. A rank that ends an attempt after its first message and before it was paired sends another message, which
//! makes the first one void.

use samite_fabric::link::WorldRank;

use super::{Answer, HEAD, Vote};

/// The place of a message among the messages of two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The number of the sender's attempt; 0 if the agreement has a number instead.
    pub(super) attempt: u64,
    /// The number of the receiver's attempt with which the sender's attempt is paired; 0 if it is not paired.
    pub(super) answered: u64,
    /// The number of messages that the sender has sent to the receiver before in this attempt.
    pub(super) number: u64,
}

/// A message of an agreement.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) stamp: Stamp,
    pub(super) answer: Answer,
}

/// The state of the exchange with one rank in one attempt.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The number of the other rank's attempt; 0 until the attempts are paired.
    theirs: u64,
    /// The number of messages of that attempt that were taken.
    heard: u64,
    /// The number of messages that were sent.
    sent: u64,
    /// A message that has arrived and was not taken.
    held: Option<Message>,
    /// True if the other rank has paired its attempt with this one.
    pub(super) is_answered: bool,
}

impl Stamp {
    /// Returns the words of a message with this stamp.
    pub(super) fn words_of(self, answer: &Answer) -> Vec<u64> {
        let Self { attempt, answered, number } = self;
        let head: [u64; HEAD] = [answer.vote.to_word(), answer.next, attempt, answered, number];
        head.into_iter().chain(answer.words.iter().copied()).collect()
    }
}

impl Message {
    /// Returns the message with these words, or `None` if there are too few.
    pub(super) fn of(words: &[u64]) -> Option<Self> {
        let (&[vote, next, attempt, answered, number], words) = words.split_first_chunk::<HEAD>()?;
        let answer = Answer { vote: Vote::from_word(vote), next, words: words.to_vec() };
        Some(Self { stamp: Stamp { attempt, answered, number }, answer })
    }
}

impl Exchange {
    /// Returns the stamp of the next message of the attempt `mine`, and counts the message.
    pub(super) fn stamp(&mut self, mine: u64) -> Stamp {
        self.sent += 1;
        Stamp { attempt: mine, answered: self.theirs, number: self.sent - 1 }
    }

    /// Takes a message that has arrived from a rank for the attempt `mine`. Returns its answer; `None` if the message is
    /// dropped or held.
    pub(super) fn take(&mut self, mine: u64, from: WorldRank, message: Message) -> Option<Answer> {
        let stamp = message.stamp;
        if stamp.attempt == 0 {
            return Some(Answer::of_vote(Vote::GaveUp(from)));
        }
        if self.theirs != 0 {
            return self.take_next(mine, from, message);
        }
        let is_of_held = self.held.as_ref().is_some_and(|held| held.stamp.attempt == stamp.attempt);
        match (stamp.answered, stamp.number) {
            // The message behind the held one. The leader of the other group sends its first message without
            // waiting for this rank's.
            (answered, _) if answered == mine && is_of_held => {
                let held = self.held.replace(message)?;
                Some(self.pair(mine, held))
            }
            (answered, 0) if answered == mine => {
                self.held = None;
                Some(self.pair(mine, message))
            }
            // The first message of an attempt, or another one behind it, which ends the attempt.
            (0, 0) => {
                self.held = Some(message);
                None
            }
            (0, _) if is_of_held => {
                self.held = Some(message);
                None
            }
            // An attempt that was paired with an earlier one of this rank, and so is not the held one's successor.
            (_, 0) => {
                self.held = None;
                None
            }
            (_, _) if is_of_held => {
                self.held = None;
                None
            }
            _ => None,
        }
    }

    /// Returns the answer of the message that is held, if no later message has arrived. The attempts are paired then.
    /// `is_parent` is true if the rank can only answer, so that its first message must be the answer to one of this
    /// rank, unless it has given up.
    pub(super) fn settle(&mut self, mine: u64, from: WorldRank, is_parent: bool) -> Option<Answer> {
        let held = self.held.take()?;
        let answer = self.pair(mine, held);
        let is_forged = is_parent && matches!(answer.vote, Vote::Yes | Vote::Again);
        Some(if is_forged { Answer::of_vote(Vote::GaveUp(from)) } else { answer })
    }

    /// Returns the answer of the message that was held when the attempts were paired, if it is the next one.
    pub(super) fn take_held(&mut self, mine: u64, from: WorldRank) -> Option<Answer> {
        let held = self.held.take_if(|_| self.theirs != 0)?;
        self.take_next(mine, from, held)
    }

    fn pair(&mut self, mine: u64, Message { stamp, answer }: Message) -> Answer {
        (self.theirs, self.heard) = (stamp.attempt, stamp.number.saturating_add(1));
        self.is_answered = stamp.answered == mine;
        answer
    }

    /// Takes the next message of the attempt with which this one is paired.
    fn take_next(
        &mut self,
        mine: u64,
        from: WorldRank,
        Message { stamp, answer }: Message,
    ) -> Option<Answer> {
        let is_next = (stamp.attempt, stamp.number) == (self.theirs, self.heard);
        if !is_next && stamp.number != 0 {
            return None;
        }
        self.heard += u64::from(is_next);
        // A rank that has given up may not have taken this rank's first message. A message of another attempt shows that
        // the other rank has ended the attempt with which this one is paired.
        let is_valid = stamp.answered == mine || !matches!(answer.vote, Vote::Yes | Vote::Again);
        Some(if is_next && is_valid { answer } else { Answer::of_vote(Vote::GaveUp(from)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: WorldRank = WorldRank(7);
    const GAVE_UP: Vote = Vote::GaveUp(RANK);

    fn message(attempt: u64, answered: u64, number: u64, vote: Vote) -> Message {
        Message { stamp: Stamp { attempt, answered, number }, answer: Answer::of_vote(vote) }
    }

    /// Takes messages for attempt 5. Returns their votes, with the vote of the held message at the end.
    fn taken(is_parent: bool, messages: &[(u64, u64, u64, Vote)]) -> Vec<Vote> {
        let (mut exchange, mut taken) = (Exchange::default(), Vec::new());
        for &(attempt, answered, number, vote) in messages {
            taken.extend(exchange.take(5, RANK, message(attempt, answered, number, vote)));
            taken.extend(exchange.take_held(5, RANK));
        }
        taken.extend(exchange.settle(5, RANK, is_parent));
        taken.into_iter().map(|answer| answer.vote).collect()
    }

    #[test]
    fn a_rank_takes_the_messages_of_the_last_attempt() {
        let (yes, again) = (Vote::Yes, Vote::Again);
        for (messages, expected) in [
            (&[(1, 0, 0, yes)][..], &[yes][..]),
            (&[(1, 0, 0, yes), (1, 0, 1, GAVE_UP)], &[GAVE_UP]),
            (&[(1, 0, 0, yes), (1, 0, 1, GAVE_UP), (2, 0, 0, yes)], &[yes]),
            // It was ended by an earlier attempt of this rank, or its first message was taken by one.
            (&[(1, 0, 0, yes), (1, 4, 1, GAVE_UP)], &[]),
            (&[(1, 0, 1, GAVE_UP)], &[]),
            (&[(1, 4, 1, yes), (1, 4, 2, GAVE_UP), (2, 0, 0, yes)], &[yes]),
            (&[(1, 0, 0, GAVE_UP), (2, 4, 0, yes)], &[]),
            // The other leader sends its second message when it has taken the first one of this rank.
            (&[(1, 0, 0, yes), (1, 5, 1, again), (1, 5, 2, yes)], &[yes, again, yes]),
            (&[(0, 0, 0, yes)], &[GAVE_UP]),
        ] {
            assert_eq!(taken(false, messages), expected, "{messages:?}");
        }
    }

    #[test]
    fn a_child_takes_the_answers_to_its_attempt() {
        let (yes, again) = (Vote::Yes, Vote::Again);
        for (messages, expected) in [
            (&[(1, 5, 0, yes), (1, 5, 1, again), (1, 5, 2, yes)][..], &[yes, again, yes][..]),
            (&[(1, 4, 0, yes), (1, 4, 1, GAVE_UP), (2, 5, 0, yes)], &[yes]),
            (&[(1, 0, 0, GAVE_UP)], &[GAVE_UP]),
            (&[(1, 0, 0, GAVE_UP), (2, 5, 0, yes)], &[yes]),
            (&[(1, 0, 0, yes)], &[GAVE_UP]),
            (&[(1, 5, 0, yes), (1, 4, 1, yes)], &[yes, GAVE_UP]),
            (&[(1, 5, 0, yes), (2, 0, 0, yes)], &[yes, GAVE_UP]),
        ] {
            assert_eq!(taken(true, messages), expected, "{messages:?}");
        }
    }
}
