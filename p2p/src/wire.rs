//! The packets of the protocol of tagged messages: what follows the header in each kind of packet.
//!
//! ```text
//!  sender                                   receiver
//!  EAGER tag, bytes ──────────────────────▶ matched or kept                 against credit
//!
//!  SYNC tag, bytes ───────────────────────▶ matched or kept                 against credit
//!             ◀──────────────── FIN ─────── at the match                      synchronous and ready sends
//!
//!  SYNC(silent) tag, signature, bytes ────▶ matched or kept, no answer        standard sends with a signature
//!
//!  RTS tag, length ───────────────────────▶ matched or kept                 against credit
//!  STREAM offset, bytes ──────────────────▶ … to the end of the message
//!
//!  RTS tag, length, key, address ─────────▶ matched
//!             ◀──────── get or read ─────── in pieces
//!             ◀──────────────── FIN ─────── the sender's memory is free     if the receiver can get or read
//!
//!  RTS tag, length ───────────────────────▶ matched
//!             ◀──────── CTS offset, length  a window
//!  DATA offset, bytes ────────────────────▶ … until the window is used, then the next CTS
//!             ◀──────────────── FIN ───────                                  if it cannot
//!
//!  RTS(put) tag, length ──────────────────▶ matched
//!             ◀── PLACE offset, length, key, address   the receiver's memory for a part
//!  puts ──────────────────────────────────▶ … into that memory
//!  LANDED end ────────────────────────────▶ the bytes before `end` are there       where the sender can put
//!                                           if `end` is 0, it cannot: CTS follows
//!
//!  RTS(confirm) ──────────────────────────▶ kept: the next message waits for the answer
//!             ◀──────────────── FIN(waits) ─
//!
//!  RTS(agreement) ────────────────────────▶ kept, also beyond the budget        messages of agreements
//!
//!  SYNC(drop) or RTS(drop) ───────────────▶ dropped unless it is matched
//!             ◀──────────────── FIN(unposted)                                 ready sends
//!
//!  REVOKE ────────────────────────────────▶ an unmatched message is dropped: FIN(withdrawn)
//!                                           a matched message continues
//!                                           a stream ends, matched or not: its other bytes will not be sent
//!
//!  ABORT ─────────────────────────────────▶ the receive ends: the bytes that a CTS or PLACE requested will not be sent
//!
//!  LEAVE name ────────────────────────────▶ the sender has given up creating the contexts, and does not use them
//!
//!  VOID name ─────────────────────────────▶ a member has revoked the contexts. The receiver passes this on: see
//!                                           `tagged/revocation.rs`
//!
//!  RETIRE name ───────────────────────────▶ the sender takes part in no agreement of survivors there any more
//!
//!  ROLL_CALL name ────────────────────────▶ how many collective operations has the receiver begun there?
//!             ◀─ PRESENT name, begun        see `tagged/roll_call.rs`
//!
//!  INQUIRE from, until ───────────────────▶ see `names.rs`
//!             ◀─ CONFIRM from, until, used
//! ```
//! The packets PART_… belong to partitioned communication: see `tagged/partitioned.rs`.
//!
//! SYNC, RTS and PART_INIT carry the signature of the message's types (see `signatures.rs`). It is
//! [`Signature::BYTES`] if the sender does not check types.
//!
//! Each rank gives a number to each of its operations: in this protocol, the sender's or the receiver's *name* for the
//! operation. It is the field `send` or `recv` of a packet, and a packet that answers another packet contains it. The
//! number contains a generation, so a packet about an operation that has ended is recognized and ignored.

use samite_fabric::Remote;
use samite_fabric::layout::Signature;
use samite_fabric::wire::{Header, Protocol, WireError};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Kinds of packets of [`Protocol::P2p`](samite_fabric::wire::Protocol::P2p).
pub(crate) mod kind {
    pub(crate) const EAGER: u8 = 0;
    pub(crate) const RTS: u8 = 1;
    pub(crate) const CTS: u8 = 2;
    pub(crate) const DATA: u8 = 3;
    pub(crate) const FIN: u8 = 4;
    pub(crate) const REVOKE: u8 = 5;
    pub(crate) const ABORT: u8 = 6;
    pub(crate) const STREAM: u8 = 7;
    pub(crate) const LEAVE: u8 = 8;
    pub(crate) const PART_INIT: u8 = 9;
    pub(crate) const PART_ACCEPT: u8 = 10;
    pub(crate) const PART_START: u8 = 11;
    pub(crate) const PART_DATA: u8 = 12;
    pub(crate) const PART_END: u8 = 13;
    pub(crate) const INQUIRE: u8 = 14;
    pub(crate) const CONFIRM: u8 = 15;
    pub(crate) const SYNC: u8 = 16;
    pub(crate) const PLACE: u8 = 17;
    pub(crate) const LANDED: u8 = 18;
    pub(crate) const VOID: u8 = 19;
    pub(crate) const RETIRE: u8 = 20;
    pub(crate) const ROLL_CALL: u8 = 21;
    pub(crate) const PRESENT: u8 = 22;
}

/// Begins a message whose bytes follow in the same packet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Eager {
    pub(crate) tag: U64,
}

/// The header of an eager packet and the start of its body: 40 bytes. With up to 16 bytes of data, and the 8 bytes that
/// a ring of shared memory adds, the packet fits in one cache line.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct EagerHead {
    pub(crate) header: Header,
    pub(crate) eager: Eager,
}

impl EagerHead {
    /// Splits a [plain](Header::is_plain) eager packet into its head and the data. Returns `None` if the packet is not
    /// eager, not plain, of another version, or too short for its head.
    #[inline]
    pub(crate) fn split(packet: &[u8]) -> Option<(&Self, &[u8])> {
        let (head, data) = Self::ref_from_prefix(packet).ok()?;
        head.header.is_plain(Protocol::P2p, kind::EAGER).then_some((head, data))
    }
}

/// Begins a message of a synchronous or ready send, or of a standard send with a signature. The bytes follow in the
/// same packet. A synchronous or ready send ends when the message is matched.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Synchronous {
    pub(crate) tag: U64,
    /// The sender's name for the operation.
    pub(crate) send: U64,
    pub(crate) unmatched: u8,
    /// 0: the sender awaits the match. 1: it awaits no answer.
    pub(crate) is_silent: u8,
    pub(crate) signature: [u8; 6],
}

impl Synchronous {
    /// `answered` is the treatment of the message by the receiver if the sender awaits the match; `None` if the sender
    /// awaits no answer.
    pub(crate) fn new(tag: u64, send: u64, answered: Option<Unmatched>, signature: Signature) -> Self {
        Self {
            tag: tag.into(),
            send: send.into(),
            unmatched: answered.unwrap_or(Unmatched::Waits) as u8,
            is_silent: answered.is_none().into(),
            signature: signature.digest(),
        }
    }

    /// Returns the sender's name for the operation if the sender awaits the match.
    pub(crate) fn awaits_match(&self) -> Result<Option<u64>, WireError> {
        match self.is_silent {
            0 => Ok(Some(self.send.get())),
            1 => Ok(None),
            _ => Err(WireError::Value { field: "is_silent" }),
        }
    }

    pub(crate) fn unmatched(&self) -> Result<Unmatched, WireError> {
        match Unmatched::read(self.unmatched)? {
            // `Confirm` and `Agreement` are for envelopes without data. This message was sent against credit, so the
            // receiver has room for it.
            Unmatched::Confirm | Unmatched::Agreement => Err(WireError::Value { field: "unmatched" }),
            // Only a sender that awaits an answer can learn that its message was dropped.
            Unmatched::Drop if self.is_silent != 0 => Err(WireError::Value { field: "unmatched" }),
            unmatched => Ok(unmatched),
        }
    }
}

/// Ready to send: starts a message whose bytes do not come in the same packet.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Rts {
    pub(crate) tag: U64,
    pub(crate) len: U64,
    /// The sender's name for the operation.
    pub(crate) send: U64,
    /// The key of the sender's memory, if the receiver is to get or read the bytes there; otherwise 0.
    pub(crate) key: U64,
    /// The address of the bytes in that memory; 0 if there is no key.
    pub(crate) address: U64,
    pub(crate) mode: u8,
    pub(crate) unmatched: u8,
    pub(crate) signature: [u8; 6],
}

/// The treatment of a message for which no receive is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmatched {
    /// The message waits for a receive. If it is an envelope without data and the budget for envelopes is used up, it
    /// is refused.
    Waits,
    /// The message waits for a receive, and is not refused for lack of budget. The receiver confirms it by FIN(waits)
    /// once the budget for envelopes has room. Until then the sender sends no other message, so each sender exceeds the
    /// budget by one envelope at most.
    Confirm,
    /// The message is dropped.
    Drop,
    /// The message belongs to an agreement. It waits for a receive, and is not refused for lack of budget, so that an
    /// agreement makes progress even if messages of the program use up the budget. At most [`AGREEMENTS_MAX`] such
    /// envelopes of a sender wait at a receiver. The sender sends further envelopes of agreements with
    /// [`Unmatched::Waits`].
    Agreement,
}

/// The largest number of envelopes with [`Unmatched::Agreement`] of one sender that wait at one receiver. An agreement
/// has at most a few messages to a rank under way at a time.
pub(crate) const AGREEMENTS_MAX: usize = 1024;

impl Unmatched {
    fn read(number: u8) -> Result<Self, WireError> {
        Ok(match number {
            0 => Self::Waits,
            1 => Self::Confirm,
            2 => Self::Drop,
            3 => Self::Agreement,
            _ => return Err(WireError::Value { field: "unmatched" }),
        })
    }

    /// Returns the verdict on a message in a context that its receiver has closed.
    pub(crate) fn when_closed(self) -> Verdict {
        match self {
            Self::Waits | Self::Confirm | Self::Agreement => Verdict::Abandoned,
            Self::Drop => Verdict::Unposted,
        }
    }
}

/// How the bytes of a message travel whose envelope is an [`Rts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferMode {
    /// The receiver requests the bytes by CTS, and the sender sends them in DATA packets.
    Push,
    /// The receiver fetches the bytes by gets from this place in the sender's memory.
    Pull(Remote),
    /// The bytes follow the envelope in STREAM packets, against credit and without a request by the receiver.
    Stream,
    /// The receiver reads the bytes at this place in the sender's memory, which the sender exposes until its send ends.
    Read(Remote),
    /// The receiver offers memory by PLACE, and the sender puts the bytes there. A receiver that cannot do this
    /// requests the bytes by CTS.
    Put,
}

impl Rts {
    pub(crate) fn new(tag: u64, len: usize, send: u64, mode: TransferMode) -> Self {
        let (number, at) = match mode {
            TransferMode::Push => (0, None),
            TransferMode::Pull(remote) => (1, Some(remote)),
            TransferMode::Stream => (2, None),
            TransferMode::Read(remote) => (3, Some(remote)),
            TransferMode::Put => (4, None),
        };
        Self {
            tag: tag.into(),
            len: (len as u64).into(),
            send: send.into(),
            key: at.map_or(0, |remote| remote.key).into(),
            address: at.map_or(0, |remote| remote.address).into(),
            mode: number,
            unmatched: Unmatched::Waits as u8,
            signature: Signature::BYTES.digest(),
        }
    }

    /// Sets the signature.
    pub(crate) fn of(self, signature: Signature) -> Self {
        Self { signature: signature.digest(), ..self }
    }

    /// Sets the treatment of the envelope if no receive is posted.
    pub(crate) fn unless_matched(self, unmatched: Unmatched) -> Self {
        Self { unmatched: unmatched as u8, ..self }
    }

    pub(crate) fn unmatched(&self) -> Result<Unmatched, WireError> {
        Unmatched::read(self.unmatched)
    }

    pub(crate) fn mode(&self) -> Result<TransferMode, WireError> {
        let at = Remote { key: self.key.get(), address: self.address.get() };
        Ok(match self.mode {
            0 => TransferMode::Push,
            1 => TransferMode::Pull(at),
            2 => TransferMode::Stream,
            3 => TransferMode::Read(at),
            4 => TransferMode::Put,
            _ => return Err(WireError::Value { field: "mode" }),
        })
    }
}

/// Clear to send: requests `len` bytes of the message from `offset` on.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Cts {
    pub(crate) send: U64,
    /// The receiver's name for the operation.
    pub(crate) recv: U64,
    pub(crate) offset: U64,
    pub(crate) len: U64,
}

/// Offers memory of the receiver for `len` bytes of the message from `offset` on. The sender puts the bytes there. It
/// may write to the memory until it has reported these bytes by LANDED, or sent ABORT.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Place {
    pub(crate) send: U64,
    /// The receiver's name for the operation.
    pub(crate) recv: U64,
    pub(crate) offset: U64,
    pub(crate) len: U64,
    /// The place of the first of these bytes, for puts.
    pub(crate) key: U64,
    pub(crate) address: U64,
}

/// All bytes of the message before `end` are in the memory that the receiver has offered. If `end` is 0, the sender
/// cannot put the bytes, because it cannot register its memory. The receiver then requests them by CTS.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Landed {
    /// The receiver's name for the operation.
    pub(crate) recv: U64,
    pub(crate) end: U64,
}

/// Begins a packet with bytes of a message: in DATA the bytes that a CTS requested, in STREAM the bytes that follow
/// their envelope without a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Data {
    /// In DATA the receiver's name for the operation, in STREAM the sender's.
    pub(crate) operation: U64,
    pub(crate) offset: U64,
}

/// The receiver's report on a message that started with an RTS or a SYNC: see [`Verdict`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Fin {
    pub(crate) send: U64,
    pub(crate) verdict: u8,
    pub(crate) reserved: [u8; 7],
}

/// The fate of a message, in a [`Fin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The receiver has matched the message and needs no more bytes: it has them all, it has dropped the message, or
    /// its receive has ended with an error, because its buffer was too short or the types of the message differ.
    Delivered,
    /// The receiver has dropped the message before it was matched, because the sender has withdrawn it.
    Withdrawn,
    /// The receiver gave up the message before all its bytes had arrived: its receive has ended with an error, or it
    /// will not match the message, because it leaves or has closed the communicator.
    Abandoned,
    /// The receiver has refused the message, because its budget for envelopes or its memory for matching is used up.
    Refused,
    /// The message has no fate yet: it waits for its receive, and the receiver has room, so the sender may send the
    /// next message.
    Waits,
    /// The receiver has dropped the message of a ready send, since no receive was posted for it.
    Unposted,
}

impl Fin {
    pub(crate) fn new(send: u64, verdict: Verdict) -> Self {
        Self { send: send.into(), verdict: verdict as u8, reserved: [0; 7] }
    }

    pub(crate) fn verdict(&self) -> Result<Verdict, WireError> {
        Ok(match self.verdict {
            0 => Verdict::Delivered,
            1 => Verdict::Withdrawn,
            2 => Verdict::Abandoned,
            3 => Verdict::Refused,
            4 => Verdict::Waits,
            5 => Verdict::Unposted,
            _ => return Err(WireError::Value { field: "verdict" }),
        })
    }
}

/// The sender withdraws a message that started with an RTS or a SYNC. If the message has been matched, it continues,
/// unless it is a stream: a stream ends in any case.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Revoke {
    pub(crate) send: U64,
}

/// The sender has given up a message before it had sent all the bytes that a CTS requested.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Abort {
    pub(crate) recv: U64,
}

/// The sender leaves the contexts with this name: it sends and receives nothing in them any more.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Leave {
    pub(crate) name: U64,
}

/// A member has revoked the communicator whose contexts have this name. The name 0 stands for the contexts of the job.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Void {
    pub(crate) name: U64,
}

/// The sender takes part in no agreement of survivors of the contexts with this name any more. Its messages there are
/// not affected.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Retire {
    pub(crate) name: U64,
}

/// Asks how many collective operations the receiver has begun in the contexts with this name. The name 0 stands for the
/// contexts of the job.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RollCall {
    pub(crate) name: U64,
}

/// Answers [`RollCall`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Present {
    pub(crate) name: U64,
    /// The number of collective operations that the sender has begun in these contexts.
    pub(crate) begun: U32,
    /// 1 if the sender has closed the contexts. Then it does not know the number.
    is_closed: U32,
}

impl Present {
    /// `begun` is `None` if the contexts are closed.
    pub(crate) fn new(name: U64, begun: Option<u32>) -> Self {
        Self { name, begun: begun.unwrap_or(0).into(), is_closed: u32::from(begun.is_none()).into() }
    }

    /// Returns the number of operations, or `None` if the contexts are closed.
    ///
    /// # Errors
    /// [`WireError::Value`].
    pub(crate) fn begun(&self) -> Result<Option<u32>, WireError> {
        match self.is_closed.get() {
            0 => Ok(Some(self.begun.get())),
            1 => Ok(None),
            _ => Err(WireError::Value { field: "is_closed" }),
        }
    }
}

/// Asks if the rank that receives this packet may still send messages to the rank that asks. The question is about the
/// contexts with the names from `from` on and before `until`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Inquire {
    pub(crate) from: U64,
    pub(crate) until: U64,
}

/// Answers an [`Inquire`] with the same `from` and `until`: the rank that answers sends nothing any more in the
/// contexts with the names from `from` on and before `used`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Confirm {
    pub(crate) from: U64,
    pub(crate) until: U64,
    pub(crate) used: U64,
}

/// Initializes a partitioned send.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PartInit {
    pub(crate) tag: U64,
    /// The sender's name for its half.
    pub(crate) send: U64,
    pub(crate) len: U64,
    /// The number of partitions, which divides the length.
    pub(crate) partitions: U64,
    pub(crate) signature: [u8; 6],
    pub(crate) reserved: [u8; 2],
}

/// Answers a [`PartInit`]: a partitioned receive that matches the send was initialized. The two are a pair if they have
/// the same length.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PartAccept {
    pub(crate) send: U64,
    /// The receiver's name for its half.
    pub(crate) recv: U64,
    pub(crate) len: U64,
}

/// The receiver has begun a round. Rounds are counted from 1.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PartStart {
    pub(crate) send: U64,
    pub(crate) round: U64,
}

/// Bytes of partitions that are ready.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PartData {
    pub(crate) recv: U64,
    pub(crate) round: U64,
    pub(crate) offset: U64,
}

/// One half of a pair has ended, or was dropped.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PartEnd {
    /// The sender's name for its half, in packets from the sender and in those from the receiver.
    pub(crate) send: U64,
    /// 0: the sender's half has ended. 1: the receiver's half has ended. 2: the receiver refused the send, because its
    /// budget for waiting initializations is used up.
    pub(crate) reason: u8,
    pub(crate) reserved: [u8; 7],
}

impl PartEnd {
    pub(crate) fn of_sender(send: u64) -> Self {
        Self { send: send.into(), reason: 0, reserved: [0; 7] }
    }

    pub(crate) fn of_receiver(send: u64, is_refused: bool) -> Self {
        Self { send: send.into(), reason: 1 + u8::from(is_refused), reserved: [0; 7] }
    }

    /// Returns two flags: true if the packet is from the receiver, and true if the receiver refused the send.
    pub(crate) fn read(&self) -> Result<(bool, bool), WireError> {
        match self.reason {
            reason @ 0..=2 => Ok((reason > 0, reason > 1)),
            _ => Err(WireError::Value { field: "reason" }),
        }
    }
}

const _: () = {
    assert!(
        size_of::<Eager>() == 8
            && size_of::<Rts>() == 48
            && size_of::<Cts>() == 32
            && size_of::<Data>() == 16
    );
    assert!(size_of::<Synchronous>() == 24 && size_of::<Fin>() == 16);
    assert!(size_of::<Revoke>() == 8 && size_of::<Abort>() == 8);
    assert!(size_of::<Place>() == 48 && size_of::<Landed>() == 16);
};

#[cfg(test)]
mod tests {
    use samite_fabric::wire::VERSION;

    use super::*;

    /// Returns 8 bytes: `first`, and the next 7 numbers.
    fn from(first: u8) -> U64 {
        U64::from_bytes(std::array::from_fn(|index| first + u8::try_from(index).unwrap()))
    }

    /// Fixes the meaning of the version: if this test must change, so must [`VERSION`].
    #[test]
    fn version_6_is_laid_out_like_this() {
        assert_eq!(VERSION, 6);
        let kinds = [kind::EAGER, kind::RTS, kind::CTS, kind::DATA, kind::FIN, kind::REVOKE, kind::ABORT];
        assert_eq!((kinds, kind::STREAM, kind::LEAVE), ([0, 1, 2, 3, 4, 5, 6], 7, 8));
        assert_eq!((kind::INQUIRE, kind::CONFIRM), (14, 15));
        let verdicts = [
            Verdict::Delivered,
            Verdict::Withdrawn,
            Verdict::Abandoned,
            Verdict::Refused,
            Verdict::Waits,
            Verdict::Unposted,
        ];
        assert_eq!(verdicts.map(|verdict| verdict as u8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(verdicts.map(|verdict| Fin::new(0, verdict).verdict().unwrap()), verdicts);

        let up_to = |last: u8| (0..=last).collect::<Vec<u8>>();
        let (key, address, signature) = (from(24), from(32), [42, 43, 44, 45, 46, 47]);
        let (tag, len, send) = (from(0), from(8), from(16));
        assert_eq!(Leave { name: from(0) }.as_bytes(), up_to(7));
        assert_eq!((kind::VOID, kind::RETIRE), (19, 20));
        assert_eq!(Retire { name: from(0) }.as_bytes(), up_to(7));
        assert_eq!((kind::ROLL_CALL, kind::PRESENT), (21, 22));
        assert_eq!(RollCall { name: from(0) }.as_bytes(), up_to(7));
        let [begun, is_closed] = [8, 12].map(|at| U32::from_bytes([at, at + 1, at + 2, at + 3]));
        assert_eq!(Present { name: from(0), begun, is_closed }.as_bytes(), up_to(15));
        assert_eq!(Void { name: from(0) }.as_bytes(), up_to(7));
        assert_eq!(Inquire { from: from(0), until: from(8) }.as_bytes(), up_to(15));
        assert_eq!(Confirm { from: from(0), until: from(8), used: from(16) }.as_bytes(), up_to(23));
        let rts = Rts { tag, len, send, key, address, mode: 40, unmatched: 41, signature };
        assert_eq!(rts.as_bytes(), up_to(47));
        let at = Remote { key: 1, address: 2 };
        let modes = [
            TransferMode::Push,
            TransferMode::Pull(at),
            TransferMode::Stream,
            TransferMode::Read(at),
            TransferMode::Put,
        ];
        let rts = |mode, unmatched| Rts::new(0, 0, 0, mode).unless_matched(unmatched);
        let number = |mode| rts(mode, Unmatched::Waits).mode;
        assert_eq!(modes.map(number), [0, 1, 2, 3, 4]);
        assert_eq!(modes.map(|mode| rts(mode, Unmatched::Waits).mode().unwrap()), modes);
        let kinds = [Unmatched::Waits, Unmatched::Confirm, Unmatched::Drop, Unmatched::Agreement];
        assert_eq!(kinds.map(|kind| rts(TransferMode::Push, kind).unmatched), [0, 1, 2, 3]);
        assert_eq!(kinds.map(|kind| rts(TransferMode::Push, kind).unmatched().unwrap()), kinds);
        assert_eq!(kind::SYNC, 16);
        let sync = Synchronous {
            tag: from(0),
            send: from(8),
            unmatched: 16,
            is_silent: 17,
            signature: [18, 19, 20, 21, 22, 23],
        };
        assert_eq!(sync.as_bytes(), up_to(23));
        assert!(sync.awaits_match().is_err());
        let sync = |answered| Synchronous::new(0, 5, answered, Signature::BYTES);
        for (kind, is_valid) in kinds.into_iter().zip([true, false, true]) {
            assert_eq!(sync(Some(kind)).unmatched().is_ok(), is_valid, "{kind:?}");
            assert_eq!(sync(Some(kind)).awaits_match().unwrap(), Some(5));
        }
        assert_eq!((sync(None).is_silent, sync(None).awaits_match().unwrap()), (1, None));
        assert_eq!(sync(None).unmatched().unwrap(), Unmatched::Waits);
        let dropped = Synchronous { unmatched: Unmatched::Drop as u8, ..sync(None) };
        assert!(dropped.unmatched().is_err());
        let cts = Cts { send: from(0), recv: from(8), offset: from(16), len: from(24) };
        assert_eq!(cts.as_bytes(), up_to(31));
        let place = Place {
            send: from(0),
            recv: from(8),
            offset: from(16),
            len: from(24),
            key: from(32),
            address: from(40),
        };
        assert_eq!(place.as_bytes(), up_to(47));
        assert_eq!(Landed { recv: from(0), end: from(8) }.as_bytes(), up_to(15));
        assert_eq!((kind::PLACE, kind::LANDED), (17, 18));
        assert_eq!(Data { operation: from(0), offset: from(8) }.as_bytes(), up_to(15));
        let reserved = [9, 10, 11, 12, 13, 14, 15];
        assert_eq!(Fin { send: from(0), verdict: 8, reserved }.as_bytes(), up_to(15));

        let kinds = [kind::PART_INIT, kind::PART_ACCEPT, kind::PART_START, kind::PART_DATA, kind::PART_END];
        assert_eq!(kinds, [9, 10, 11, 12, 13]);
        let (tag, send, len, partitions) = (from(0), from(8), from(16), from(24));
        let (signature, ends) = ([32, 33, 34, 35, 36, 37], [38, 39]);
        let init = PartInit { tag, send, len, partitions, signature, reserved: ends };
        assert_eq!(init.as_bytes(), up_to(39));
        assert_eq!(PartAccept { send: from(0), recv: from(8), len: from(16) }.as_bytes(), up_to(23));
        assert_eq!(PartStart { send: from(0), round: from(8) }.as_bytes(), up_to(15));
        assert_eq!(PartData { recv: from(0), round: from(8), offset: from(16) }.as_bytes(), up_to(23));
        assert_eq!(PartEnd { send: from(0), reason: 8, reserved }.as_bytes(), up_to(15));
        let ends = [PartEnd::of_sender(0), PartEnd::of_receiver(0, false), PartEnd::of_receiver(0, true)];
        assert_eq!(ends.map(|end| end.read().unwrap()), [(false, false), (true, false), (true, true)]);
    }
}
