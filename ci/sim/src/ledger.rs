//! The oracle: records sends and receives, and checks that each result is permitted.

use std::collections::BTreeSet;

use crate::parts::Sides;
use samite_p2p::{Awaited, Error, Fate, Pattern, Status, Typed, WorldRank};

/// One incarnation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    /// The rank.
    pub(crate) rank: u32,
    /// The number of its incarnation.
    pub(crate) incarnation: u32,
}

/// All operations, in the order of their posting.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) messages: Vec<Message>,
    pub(crate) receives: Vec<Receive>,
    /// The messages in partitions.
    pub(crate) sides: Sides,
}

/// A message. Its index in the ledger is part of its tag, so a receive knows which message it got.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: Process,
    pub(crate) to: u32,
    /// The receiver's incarnation that the sender addressed, if the sender knew it.
    pub(crate) to_incarnation: Option<u32>,
    pub(crate) context: u32,
    /// The name of the context, which no other context of the run has; 0 for the contexts of the job.
    pub(crate) name: u64,
    pub(crate) class: u64,
    pub(crate) bytes: usize,
    pub(crate) mode: Mode,
    /// The types of the elements, if the sender checks types.
    pub(crate) typed: Option<Typed>,
    pub(crate) end: Option<SendEnd>,
    /// The index of the receive that got the message.
    pub(crate) receive: Option<usize>,
    /// The receiver's incarnation, if the whole message is known to have arrived before its sender ended.
    pub(crate) arrived: Option<Process>,
}

/// The mode of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
    Buffered,
    Ready,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    Sent,
    NotDelivered,
    Unknown,
}

/// A receive or a claim. A claim takes a message that waits, and is received or discarded later.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) at: Process,
    pub(crate) pattern: Pattern,
    /// The name of the pattern's context, as in [`Message`].
    pub(crate) name: u64,
    pub(crate) room: usize,
    /// The index of the claimed message; `None` for a receive that is not a claim.
    pub(crate) claims: Option<usize>,
    /// The types of the elements, if the receiver checks types.
    pub(crate) typed: Option<Typed>,
    pub(crate) end: Option<RecvEnd>,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvEnd {
    /// The receive got this message, whole, truncated, or refused for its types. `told_ns` is the time at which the
    /// rank knew that.
    Got { message: usize, told_ns: u64 },
    /// The receive had matched no message until this time.
    Unmatched { until_ns: u64 },
    /// The receive may have matched a message that was lost with its sender.
    Lost,
    /// The rank of the receive has given the receive up. It may have matched a message, which is then lost.
    GivenUp,
}

/// The ends of incarnations and the network cuts, as far as they excuse the loss of messages.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// True if all incarnations of a rank share one address. If another rank cuts off one incarnation, it may also cut
    /// off the next incarnation at the same address, and must then treat the next one as failed.
    pub(crate) reused: bool,
    /// Killed incarnations.
    pub(crate) killed: BTreeSet<Process>,
    /// Incarnations that left in good order.
    pub(crate) left: BTreeSet<Process>,
    /// Incarnations that were followed by a later incarnation of the same rank.
    pub(crate) followed: BTreeSet<Process>,
    /// The communicators that are open at the end, each as a rank and the communicator's name. A rank that has closed a
    /// communicator, or has given up its creation at the last moment, drops the messages in the communicator.
    pub(crate) open: BTreeSet<(u32, u64)>,
    /// Pairs of incarnations, the smaller first, between which packets were lost.
    pub(crate) cut: BTreeSet<(Process, Process)>,
}

impl Losses {
    /// Returns true if `a` may take `b` for failed.
    pub(crate) fn between(&self, a: Process, b: Process) -> bool {
        let hit = self.reused && (self.has_ended(a.rank) || self.has_ended(b.rank));
        self.is_over(b) || self.killed.contains(&a) || self.is_cut(a, b) || hit
    }

    pub(crate) fn is_over(&self, process: Process) -> bool {
        self.killed.contains(&process) || self.left.contains(&process)
    }

    /// Returns true if any incarnation of a rank has ended.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        let processes = Process { rank, incarnation: 0 }..=Process { rank, incarnation: u32::MAX };
        self.killed.range(processes.clone()).next().is_some() || self.left.range(processes).next().is_some()
    }

    /// Returns true if packets between any incarnations of two ranks were lost.
    pub(crate) fn are_cut(&self, a: u32, b: u32) -> bool {
        self.cut.iter().any(|(one, other)| (one.rank, other.rank) == (a.min(b), a.max(b)))
    }

    fn is_cut(&self, a: Process, b: Process) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Returns true if the loss of a sent message is excused. The messages of a rank that left are not lost. A message
    /// that has arrived whole is lost only with its receiver, or if its sender has failed and another incarnation
    /// follows.
    fn of_message(&self, message: &Message) -> bool {
        let Message { from, to: rank, to_incarnation, name, .. } = *message;
        if name != 0 && !self.open.contains(&(rank, name)) {
            return true;
        }
        if let Some(at) = message.arrived {
            let may_have_failed = self.reused || self.killed.contains(&from) || self.is_cut(from, at);
            return self.is_over(at) || self.followed.contains(&from) && may_have_failed;
        }
        self.killed.contains(&from)
            || self.reused && self.has_ended(from.rank)
            || match to_incarnation.filter(|_| !self.reused) {
                Some(incarnation) => {
                    let to = Process { rank, incarnation };
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

/// The number of low bits of a tag that hold the message's class, which receives compare. The other bits hold the
/// message's index in the ledger.
pub(crate) const CLASS_BITS: u32 = 8;

impl Message {
    pub(crate) fn tag(&self, index: usize) -> u64 {
        (index as u64) << CLASS_BITS | self.class
    }

    /// Returns true if both sides check types, the elements of the message and of the receive have different types, and
    /// the message is not empty. An empty message agrees with every receive.
    pub(crate) fn differs(&self, receive: &Receive) -> bool {
        let (Some(sent), Some(expected)) = (self.typed, receive.typed) else { return false };
        self.bytes > 0 && !sent.signature.agrees_with(expected.signature)
    }

    /// Returns true if a receive may get this message.
    fn matches(&self, index: usize, receive: &Receive) -> bool {
        let pattern = &receive.pattern;
        (self.context, self.name) == (pattern.context, receive.name)
            && pattern.source.accepts(self.from.rank)
            && (self.tag(index) ^ pattern.tag) & pattern.mask == 0
    }
}

/// Returns the bytes of a message.
pub(crate) fn content(index: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (index.wrapping_mul(151) + at.wrapping_mul(31) + at / 255) as u8).collect()
}

/// The initial content of receive buffers.
pub(crate) const UNTOUCHED: u8 = 0xee;

impl Ledger {
    /// Records the result of a send.
    pub(crate) fn sent(&mut self, index: usize, result: &Result<Status, Error>) -> Result<(), String> {
        let message = &self.messages[index];
        let end = match result {
            Ok(status) => {
                let is_matched = matches!(message.mode, Mode::Standard | Mode::Buffered)
                    || self.receives.iter().any(|receive| {
                        let may_have_got = match receive.end {
                            Some(RecvEnd::Got { message, .. }) => message == index,
                            Some(RecvEnd::Unmatched { .. }) => false,
                            Some(RecvEnd::Lost | RecvEnd::GivenUp) | None => true,
                        };
                        may_have_got
                            && receive.at.rank == message.to
                            && receive.claims.is_none_or(|claimed| claimed == index)
                            && message.matches(index, receive)
                    });
                require(is_matched, || format!("message {index}: {:?}, and no receive", message.mode))?;
                let expected =
                    Status { source: WorldRank(message.to), tag: message.tag(index), bytes: message.bytes };
                require(*status == expected, || format!("message {index}: sent {status:?}"))?;
                SendEnd::Sent
            }
            Err(Error::NotPosted { .. }) if message.mode == Mode::Ready => SendEnd::NotDelivered,
            Err(error) => match fate(error) {
                Some(Fate::NotDelivered) => SendEnd::NotDelivered,
                Some(Fate::Unknown) => SendEnd::Unknown,
                None => return Err(format!("message {index}: a send cannot end with: {error:?}")),
            },
        };
        let before = self.messages[index].end.replace(end);
        require(before.is_none(), || format!("message {index}: its send ended twice"))
    }

    /// Records the result of a receive and checks the received bytes. `buffer` is the present content of its memory, if
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
            Ok(status) | Err(Error::Truncated { status, .. } | Error::TypesDiffer { status, .. }) => {
                let message = (status.tag >> CLASS_BITS) as usize;
                let sent =
                    self.messages.get_mut(message).ok_or_else(|| format!("receive {index}: {status:?}"))?;
                let expected =
                    Status { source: WorldRank(sent.from.rank), tag: sent.tag(message), bytes: sent.bytes };
                let place = || format!("receive {index} got message {message}: {result:?}");
                require(*status == expected && sent.to == receive.at.rank, place)?;
                require(receive.claims.is_none_or(|claimed| claimed == message), place)?;
                require(sent.matches(message, receive), place)?;
                let is_fit = match result {
                    Err(Error::TypesDiffer { sent: theirs, expected, .. }) => {
                        let signature = |typed: Option<Typed>| typed.map(|typed| typed.signature);
                        sent.differs(receive)
                            && (signature(sent.typed), signature(receive.typed))
                                == (Some(*theirs), Some(*expected))
                    }
                    _ => !sent.differs(receive) && (sent.bytes <= receive.room) == result.is_ok(),
                };
                require(is_fit, place)?;
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
            Err(error) => return Err(format!("receive {index}: a receive cannot end with: {error:?}")),
        };
        let before = self.receives[index].end.replace(end);
        require(before.is_none(), || format!("receive {index} ended twice"))
    }

    /// Checks everything that can only be judged at the end.
    pub(crate) fn audit(&self, losses: &Losses) -> Result<(), String> {
        for (index, message) in self.messages.iter().enumerate() {
            self.audit_message(index, message, losses)?;
        }
        for (index, receive) in self.receives.iter().enumerate() {
            self.audit_receive(index, receive)?;
        }
        self.sides.audit(losses)
    }

    /// Checks that a message was received if its send has reported success, unless its loss is excused, and that it was
    /// not received if its send has reported that it was not delivered.
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
                    may_have_matched && receive.at.rank == message.to && message.matches(index, receive)
                });
                require(excuse, || format!("message {index} was sent and never received"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a receive got the message that it had to get: no earlier message matched the receive, and no earlier
    /// receive waited for the message. A claimed message that had arrived whole must be received, even if its sender
    /// has failed.
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
            if same_way && sent.matches(earlier, receive) && sent.receive.is_some_and(|other| other > index) {
                return Err(format!("message {message} overtook {earlier} to receive {index}"));
            }
        }
        for (other, before) in self.receives[..index].iter().enumerate() {
            let passed_over = match before.end {
                Some(RecvEnd::Unmatched { until_ns }) => told_ns < until_ns,
                None => true,
                _ => false,
            };
            if passed_over && before.at == receive.at && self.messages[message].matches(message, before) {
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

/// Returns an error with this text unless `holds`.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
