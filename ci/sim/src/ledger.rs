//! The oracle: what was sent and received, and what may be.

use std::collections::BTreeSet;

use samite_p2p::{Awaited, Error, Fate, Pattern, Status};

/// One life of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life {
    /// The rank.
    pub(crate) rank: u32,
    /// Which of its lives.
    pub(crate) incarnation: u32,
}

/// Everything that was asked for, in the order it was asked.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) messages: Vec<Message>,
    pub(crate) receives: Vec<Receive>,
}

/// A message. Its place in the ledger is part of its tag, so a receive tells which one it got.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: Life,
    pub(crate) to: u32,
    /// Which of the receiver's lives it is for; none if its sender had not heard of the one that was.
    pub(crate) to_incarnation: Option<u32>,
    pub(crate) context: u32,
    pub(crate) class: u64,
    pub(crate) bytes: usize,
    pub(crate) end: Option<SendEnd>,
    /// The receive that got it.
    pub(crate) receive: Option<usize>,
    /// The incarnation of the receiver where it is known to have arrived whole, before its sender came to its end.
    pub(crate) arrived: Option<Life>,
}

/// How a send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    Sent,
    NotDelivered,
    Unknown,
}

/// A receive, or a message claimed, which is a receive that takes what is there or nothing.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) at: Life,
    pub(crate) pattern: Pattern,
    pub(crate) room: usize,
    /// The message that it has claimed.
    pub(crate) claims: Option<usize>,
    pub(crate) end: Option<RecvEnd>,
}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvEnd {
    /// It got the message, whole or not, and told so at that time.
    Got { message: usize, told_ns: u64 },
    /// It matched none until this time.
    Unmatched { until_ns: u64 },
    /// It may have matched one, which was lost with its sender.
    Lost,
    /// The same, but its own rank gave it up.
    GivenUp,
}

/// What became of the ranks' lives, as far as it excuses the loss of messages.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Whether a rank's lives have one address: then cutting off one may hit the next, which has to be taken for
    /// failed by whoever did so.
    pub(crate) reused: bool,
    /// Lives that were killed.
    pub(crate) killed: BTreeSet<Life>,
    /// Lives that were left in good order.
    pub(crate) left: BTreeSet<Life>,
    /// Lives that another one of their rank has followed.
    pub(crate) followed: BTreeSet<Life>,
    /// Pairs of lives, the smaller first, between which packets were lost.
    pub(crate) cut: BTreeSet<(Life, Life)>,
}

impl Losses {
    /// Whether `a` may take `b` for gone.
    pub(crate) fn between(&self, a: Life, b: Life) -> bool {
        let hit = self.reused && (self.has_ended(a.rank) || self.has_ended(b.rank));
        self.is_over(b) || self.killed.contains(&a) || self.is_cut(a, b) || hit
    }

    pub(crate) fn is_over(&self, life: Life) -> bool {
        self.killed.contains(&life) || self.left.contains(&life)
    }

    /// Whether any life of a rank is over.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        let lives = Life { rank, incarnation: 0 }..=Life { rank, incarnation: u32::MAX };
        self.killed.range(lives.clone()).next().is_some() || self.left.range(lives).next().is_some()
    }

    fn is_cut(&self, a: Life, b: Life) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Whether a message sent may not have come. What a rank sent before it left comes. A message that has arrived whole is
    /// lost with its receiver, or when the sender has failed and another life follows.
    fn of_message(&self, message: &Message) -> bool {
        let Message { from, to: rank, to_incarnation, .. } = *message;
        if let Some(at) = message.arrived {
            let may_have_failed = self.reused || self.killed.contains(&from) || self.is_cut(from, at);
            return self.is_over(at) || self.followed.contains(&from) && may_have_failed;
        }
        self.killed.contains(&from)
            || self.reused && self.has_ended(from.rank)
            || match to_incarnation.filter(|_| !self.reused) {
                Some(incarnation) => {
                    let to = Life { rank, incarnation };
                    self.is_over(to) || self.is_cut(from, to)
                }
                None => {
                    self.has_ended(rank)
                        || self
                            .cut
                            .iter()
                            .any(|&(a, b)| (a, b.rank) == (from, rank) || (b, a.rank) == (from, rank))
                }
            }
    }
}

/// The low bits of a tag are what receives ask for, the others the message's place in the ledger.
pub(crate) const CLASS_BITS: u32 = 8;

impl Message {
    pub(crate) fn tag(&self, index: usize) -> u64 {
        (index as u64) << CLASS_BITS | self.class
    }

    /// Whether a receive may get it.
    fn matches(&self, index: usize, pattern: &Pattern) -> bool {
        self.context == pattern.context
            && pattern.source.accepts(self.from.rank)
            && (self.tag(index) ^ pattern.tag) & pattern.mask == 0
    }
}

/// The bytes of a message.
pub(crate) fn content(index: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (index.wrapping_mul(151) + at.wrapping_mul(31) + at / 255) as u8).collect()
}

/// What buffers hold before.
pub(crate) const UNTOUCHED: u8 = 0xee;

impl Ledger {
    /// Notes how a send ended.
    pub(crate) fn sent(&mut self, index: usize, result: &Result<Status, Error>) -> Result<(), String> {
        let message = &mut self.messages[index];
        let end = match result {
            Ok(status) => {
                let expected = Status { source: message.to, tag: message.tag(index), bytes: message.bytes };
                require(*status == expected, || format!("message {index}: sent {status:?}"))?;
                SendEnd::Sent
            }
            Err(error) => match fate(error) {
                Some(Fate::NotDelivered) => SendEnd::NotDelivered,
                Some(Fate::Unknown) => SendEnd::Unknown,
                None => return Err(format!("message {index}: a send cannot end with: {error}")),
            },
        };
        let before = message.end.replace(end);
        require(before.is_none(), || format!("message {index}: its send ended twice"))
    }

    /// Notes how a receive ended, and checks what it got. `buffer` is what its memory holds now, if that is
    /// known.
    pub(crate) fn received(
        &mut self,
        index: usize,
        result: &Result<Status, Error>,
        buffer: Option<&[u8]>,
        deadline_ns: u64,
        now_ns: u64,
    ) -> Result<(), String> {
        let receive = &self.receives[index];
        let end = match result {
            Ok(status) | Err(Error::Truncated { status, .. }) => {
                let message = (status.tag >> CLASS_BITS) as usize;
                let sent =
                    self.messages.get_mut(message).ok_or_else(|| format!("receive {index}: {status:?}"))?;
                let expected = Status { source: sent.from.rank, tag: sent.tag(message), bytes: sent.bytes };
                let place = || format!("receive {index} got message {message}: {result:?}");
                require(*status == expected && sent.to == receive.at.rank, place)?;
                require(receive.claims.is_none_or(|claimed| claimed == message), place)?;
                require(sent.matches(message, &receive.pattern), place)?;
                require((sent.bytes <= receive.room) == result.is_ok(), place)?;
                require(sent.receive.is_none(), || format!("message {message} was received twice"))?;
                sent.receive = Some(index);
                if let Some(buffer) = buffer {
                    let arrived = if result.is_ok() { sent.bytes } else { 0 };
                    require(buffer.len() == receive.room, place)?;
                    require(buffer[..arrived] == content(message, arrived), || {
                        format!("receive {index}: wrong bytes in message {message}")
                    })?;
                    require(buffer[arrived..].iter().all(|&byte| byte == UNTOUCHED), || {
                        format!("receive {index}: written beyond message {message}")
                    })?;
                }
                RecvEnd::Got { message, told_ns: now_ns }
            }
            Err(Error::Cancelled { .. } | Error::Deserted) => RecvEnd::Unmatched { until_ns: now_ns },
            Err(Error::TimedOut { report, .. }) if report.awaited == Awaited::Message => {
                RecvEnd::Unmatched { until_ns: deadline_ns }
            }
            Err(Error::TimedOut { .. }) => RecvEnd::GivenUp,
            Err(Error::PeerFailed { .. } | Error::Abandoned { .. }) => RecvEnd::Lost,
            Err(error) => return Err(format!("receive {index}: a receive cannot end with: {error}")),
        };
        let before = self.receives[index].end.replace(end);
        require(before.is_none(), || format!("receive {index} ended twice"))
    }

    /// Checks all that can only be said at the end.
    pub(crate) fn audit(&self, losses: &Losses) -> Result<(), String> {
        for (index, message) in self.messages.iter().enumerate() {
            self.audit_message(index, message, losses)?;
        }
        for (index, receive) in self.receives.iter().enumerate() {
            self.audit_receive(index, receive)?;
        }
        Ok(())
    }

    /// A message arrived if it was said to be sent, and did not if it was said not to.
    fn audit_message(&self, index: usize, message: &Message, losses: &Losses) -> Result<(), String> {
        match (message.end, message.receive) {
            (Some(SendEnd::NotDelivered), Some(receive)) => {
                Err(format!("message {index} was said not to be delivered, and was to receive {receive}"))
            }
            (Some(SendEnd::Sent), None) if !losses.of_message(message) => {
                let excuse = self.receives.iter().any(|receive| {
                    let may_have_matched = match receive.claims {
                        Some(claimed) => claimed == index && receive.end == Some(RecvEnd::GivenUp),
                        None => matches!(receive.end, Some(RecvEnd::Lost | RecvEnd::GivenUp)),
                    };
                    may_have_matched
                        && receive.at.rank == message.to
                        && message.matches(index, &receive.pattern)
                });
                require(excuse, || format!("message {index} was sent and never received"))
            }
            _ => Ok(()),
        }
    }

    /// What a receive got was its to take: no earlier message was, and no earlier receive waited for it. What a claim had
    /// of a message that had arrived whole is received, whatever became of the sender.
    fn audit_receive(&self, index: usize, receive: &Receive) -> Result<(), String> {
        if let (Some(claimed), Some(RecvEnd::Lost)) = (receive.claims, receive.end) {
            require(self.messages[claimed].arrived.is_none(), || {
                format!("message {claimed} had arrived, and its claim {index} lost it")
            })?;
        }
        let Some(RecvEnd::Got { message, told_ns }) = receive.end else { return Ok(()) };
        let from = self.messages[message].from;
        for (earlier, sent) in self.messages[..message].iter().enumerate() {
            let same_way = sent.from == from && sent.to == receive.at.rank;
            if same_way
                && sent.matches(earlier, &receive.pattern)
                && sent.receive.is_some_and(|other| other > index)
            {
                return Err(format!("message {message} overtook {earlier} to receive {index}"));
            }
        }
        for (other, before) in self.receives[..index].iter().enumerate() {
            let passed_over = match before.end {
                Some(RecvEnd::Unmatched { until_ns }) => told_ns < until_ns,
                None => true,
                _ => false,
            };
            if passed_over
                && before.at == receive.at
                && self.messages[message].matches(message, &before.pattern)
            {
                return Err(format!(
                    "receive {other} ({before:?}) was passed over: {index} got message {message} at {told_ns}"
                ));
            }
        }
        Ok(())
    }
}

fn fate(error: &Error) -> Option<Fate> {
    match error {
        Error::Cancelled { fate }
        | Error::TimedOut { fate, .. }
        | Error::PeerFailed { fate, .. }
        | Error::Abandoned { fate, .. } => Some(*fate),
        // The receiver had no room for the envelope.
        Error::Exhausted { .. } => Some(Fate::NotDelivered),
        _ => None,
    }
}

/// `Ok` if it holds.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
