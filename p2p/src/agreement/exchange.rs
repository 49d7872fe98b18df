//! The messages of an agreement with one other rank, on a channel whose tag may be used again.
//!
//! After an agreement that failed, the same ranks may try again with the same tag. The messages of the earlier attempt
//! may still arrive, and would be taken for messages of the later one. Two ranks could then agree on different names.
//! So each message contains the number of its sender's *attempt*, and the number of the receiver's attempt that it
//! answers. When a rank takes the first message of the other rank, it *pairs* its own attempt with the attempt of that
//! message. From then on it takes only messages of that attempt.
//!
//! A message that a rank sends before it has paired its attempt answers no attempt. If first messages of several such
//! attempts have arrived, the last one counts: the earlier attempts have ended. A rank that ends an attempt after its
//! first message, and before it has paired the attempt, sends another message. That makes the first message void.

use samite_fabric::link::WorldRank;

use super::{Answer, HEAD, Vote};

/// The part of a message that shows to which attempts of its sender and its receiver it belongs, and its place among
/// the messages of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The number of the sender's attempt; 0 if the agreement has a number instead.
    pub(super) attempt: u64,
    /// The number of the receiver's attempt with which the sender's attempt is paired; 0 if it is not paired.
    pub(super) answered: u64,
    /// The number of messages that the sender has sent to the receiver earlier in this attempt.
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
    /// The number ([`Stamp::number`]) of the next message of that attempt.
    heard: u64,
    /// The number of messages that were sent.
    sent: u64,
    /// A message that has arrived, and whose answer was not returned yet.
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

    /// Takes a message that has arrived from the rank `from`. `mine` is the number of this rank's attempt. Returns the
    /// next answer, or `None` if the message is dropped or held. If the message shows that the other rank has ended its
    /// attempt, or violates the protocol, the answer is [`Vote::GaveUp`].
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
            // The message after the held one, in the same attempt, which its sender has paired with this one. The
            // leader of the other group sends its first message without waiting for this rank's first message, so that
            // message was held.
            (answered, _) if answered == mine && is_of_held => {
                let held = self.held.replace(message)?;
                Some(self.pair(mine, held))
            }
            (answered, 0) if answered == mine => {
                self.held = None;
                Some(self.pair(mine, message))
            }
            // The first message of an attempt that is not paired, or (in the next arm) a later message, which ends such
            // an attempt.
            (0, 0) => {
                self.held = Some(message);
                None
            }
            (0, _) if is_of_held => {
                self.held = Some(message);
                None
            }
            // The message answers an earlier attempt of this rank. If it is the first message of its attempt, the
            // attempt of the held message has ended. If it is a later message of the attempt of the held message (in
            // the next arm), that attempt was paired with the earlier attempt of this rank. In both cases the held
            // message is void.
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

    /// Pairs the attempts by the held message, and returns its answer; `None` if no message is held. Call this function
    /// when no later message has arrived. `is_parent` is true if the rank sends only answers to messages of this rank.
    /// Such a rank sends a first message that answers no attempt only if it has given up. If the message has another
    /// vote, the returned answer is [`Vote::GaveUp`].
    pub(super) fn settle(&mut self, mine: u64, from: WorldRank, is_parent: bool) -> Option<Answer> {
        let held = self.held.take()?;
        let answer = self.pair(mine, held);
        let is_forged = is_parent && matches!(answer.vote, Vote::Yes | Vote::Again);
        Some(if is_forged { Answer::of_vote(Vote::GaveUp(from)) } else { answer })
    }

    /// Returns the answer of the message that has been held since the attempts were paired, if there is one and it is
    /// the next message.
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
        // A message that does not answer this attempt is valid only if its sender has given up: then the sender may not
        // have taken this rank's first message. The first message of another attempt shows that the other rank has
        // ended the attempt with which this one is paired.
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

    /// Lets attempt 5 take messages. Of each message the attempt, the answered attempt, the number and the vote are
    /// given. Returns the votes that were taken, with the vote of the held message at the end.
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
            // An earlier attempt of this rank has taken the first message of the sender's attempt. So later messages of
            // that attempt are dropped.
            (&[(1, 0, 0, yes), (1, 4, 1, GAVE_UP)], &[]),
            (&[(1, 0, 1, GAVE_UP)], &[]),
            (&[(1, 4, 1, yes), (1, 4, 2, GAVE_UP), (2, 0, 0, yes)], &[yes]),
            (&[(1, 0, 0, GAVE_UP), (2, 4, 0, yes)], &[]),
            // The other leader sends its second message after it has taken the first message of this rank.
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
