//! The packets of windows. Each begins with the link's header. Its `context` is the slot of the window at the receiver,
//! except in introductions (`MEET`, `MET`) and answers (`REPLY`, `REFUSED`, `FLUSHED`, `CLOSED`, `LANDED`). All fields
//! are little-endian; element values are in the byte order of the machine.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Name;
use crate::regions::SPACE;

/// Kinds of packets.
pub(crate) mod kind {
    /// [`Traits`](super::Traits): the sender wants to use the receiver's part of a window, and describes its own part.
    pub(crate) const MEET: u8 = 0;
    /// [`Traits`](super::Traits): the answer to `MEET`.
    pub(crate) const MET: u8 = 1;
    /// [`Place`](super::Place) and bytes.
    pub(crate) const PUT: u8 = 2;
    /// [`Place`](super::Place) and operands.
    pub(crate) const ACCUMULATE: u8 = 3;
    /// [`Place`](super::Place) and [`Wanted`](super::Wanted).
    pub(crate) const GET: u8 = 4;
    /// [`Place`](super::Place), [`Wanted`](super::Wanted) and operands.
    pub(crate) const FETCH: u8 = 5;
    /// [`Place`](super::Place), [`Wanted`](super::Wanted), the expected element and the new one.
    pub(crate) const COMPARE_SWAP: u8 = 6;
    /// [`Reply`](super::Reply) and the former bytes.
    pub(crate) const REPLY: u8 = 7;
    // The packets from here to `OPENED` are a `Note`, and so is `ABSENT`.
    /// Asks for an answer when all earlier packets are applied. `token` names the request, and `number` is the epoch.
    pub(crate) const FLUSH: u8 = 8;
    /// Answers `FLUSH`. `number` is 0, or 1 more than the place of the first write of the epoch, since the last flush, on
    /// memory that is not attached.
    pub(crate) const FLUSHED: u8 = 9;
    /// Requests lock `number`. `flag` is 0 for a shared lock, 1 for an exclusive one, and 2 for a shared one if the sender
    /// holds another lock of the window: such a request passes those for exclusive locks. A sender that gets another lock
    /// while its request for a shared one waits sends that request again, with 2.
    pub(crate) const LOCK: u8 = 10;
    /// Grants lock `number`.
    pub(crate) const LOCKED: u8 = 11;
    /// Releases lock `number`, or withdraws its request. If `flag` is 1, the sender has taken the lock by its
    /// [word](crate::lock_word), and `number` is 0. `token` is the epoch.
    pub(crate) const UNLOCK: u8 = 12;
    /// Asks for an answer when all operations of a fence's epoch are applied. `token` is the epoch. It is not sent if no
    /// operation was sent as a packet, and the puts and gets of the port have ended.
    pub(crate) const FINISH: u8 = 13;
    /// Answers `UNLOCK`, `FINISH` and `DONE`. `token` is the epoch, and `flag` the slot of the window at the receiver.
    /// `number` is 0, or 1 more than the place of the first write of the epoch on memory that is not attached.
    pub(crate) const CLOSED: u8 = 14;
    /// Exposure `number` begins for the receiver. If `flag` is 1, the exposure was aborted instead.
    pub(crate) const GRANT: u8 = 15;
    /// Access `number` is over. If `flag` is 1, it was aborted. `token` is 0, or 1 more than the epoch if the sender
    /// waits for `CLOSED`: if the receiver's window is dynamic.
    pub(crate) const DONE: u8 = 16;
    /// The sender has completed a round of barrier `number`. `flag` is 0 for fences, and 1 for the barrier that frees
    /// the window. `token` is 0, or 1 more than the rank of a member that takes no part: it has died or, if `flag` also
    /// has [`HAS_LEFT`](super::HAS_LEFT), has left before this barrier.
    pub(crate) const FENCED: u8 = 17;
    /// Asks for `OPENED` when the receiver has activated opening fence `number`. Members of a window with one round of a
    /// barrier send `OPENED` to all others without this question.
    pub(crate) const ASK: u8 = 18;
    /// The sender has activated opening fence `number`.
    pub(crate) const OPENED: u8 = 19;
    // The packets of the other kinds are no `Note`.
    /// [`Place`](super::Place) and [`Landing`](super::Landing): asks the receiver to put bytes of its part into memory
    /// of the sender. A sender that waits for more than [`SERVES_MAX`](crate::serves::SERVES_MAX) answers fails.
    pub(crate) const GET_INTO: u8 = 20;
    /// [`Landed`](super::Landed): answers `GET_INTO`, when all puts have ended.
    pub(crate) const LANDED: u8 = 21;
    /// [`Named`](super::Named): asks for `FREED` when the receiver has entered the barrier that frees the window. A
    /// member asks if another one has failed.
    pub(crate) const ASK_FREED: u8 = 22;
    /// [`Named`](super::Named): the sender has entered that barrier, or has freed the window.
    pub(crate) const FREED: u8 = 23;
    /// [`Note`](super::Note) and operations, each behind an [`Entry`](super::Entry): a whole epoch. Requests lock
    /// `number`. `flag` is 1 for an exclusive lock, and `token` the epoch. The receiver applies the operations when it
    /// grants the lock, and releases the lock. If it has no room for them, it ignores them, and answers with `LOCKED`.
    pub(crate) const EPOCH: u8 = 24;
    /// [`Note`](super::Note) and the former bytes that the operations of an `EPOCH` ask for, in the order of the
    /// operations: all of them are applied. `number` is the lock, and `token` the epoch.
    pub(crate) const APPLIED: u8 = 25;
    /// [`Refused`](super::Refused): answers `GET`, `FETCH` and `COMPARE_SWAP` in place of `REPLY`, if the memory is not
    /// attached to a dynamic window.
    pub(crate) const REFUSED: u8 = 26;
    /// No body: puts or gets of the sender on the receiver's memory are under way. They bring the receiver no event, and
    /// a port may move their bytes only in the receiver's polls, which become rare while nothing comes.
    pub(crate) const UNDER_WAY: u8 = 27;
    /// The member of rank `token` has left, and the closing fence `number` is the first one that it has not called.
    pub(crate) const ABSENT: u8 = 28;
}

/// A window's name, and the sender's part of it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Traits {
    /// The communicator of the name.
    pub(crate) communicator: U64,
    /// The window's number on the communicator.
    pub(crate) number: U64,
    /// Bytes of the part; [`SPACE`](crate::regions::SPACE) for a dynamic window.
    pub(crate) len: U64,
    /// Bytes of a displacement unit; 1 for a dynamic window.
    pub(crate) unit: U32,
    /// The slot of the window: later packets carry it in `context`.
    pub(crate) slot: U32,
    /// The generation of the window in that slot.
    pub(crate) generation: U32,
    /// The largest number of bytes in a [`Reply`] to the receiver.
    pub(crate) reply_max: U32,
    /// The key by which the receiver maps the part, puts into it or gets from it; 0 if it cannot. The part is mapped in
    /// whole words of 8 bytes.
    pub(crate) key: U64,
    /// The address of the part for the receiver's port.
    pub(crate) address: U64,
    /// The distance of the [word](crate::lock_word) of the lock from the first byte of the part, or 0. It is mapped with the
    /// part.
    pub(crate) lock: U64,
}

impl Traits {
    /// Returns the distance of the word of the lock from the first byte of the part.
    pub(crate) fn lock_distance(&self) -> Option<usize> {
        usize::try_from(self.lock.get()).ok().filter(|distance| *distance > 0)
    }

    /// Returns true if the member's window is dynamic.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.len.get() == SPACE
    }
}

/// A window's name. A member may have freed the window that it names.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Named {
    /// The communicator of the name.
    pub(crate) communicator: U64,
    /// The window's number on the communicator.
    pub(crate) number: U64,
    /// 1 if the sender has freed the window, otherwise 0.
    pub(crate) is_gone: U64,
}

impl Named {
    pub(crate) fn new(Name { communicator, number }: Name, is_gone: bool) -> Self {
        let is_gone = u64::from(is_gone).into();
        Self { communicator: communicator.into(), number: number.into(), is_gone }
    }

    pub(crate) fn name(&self) -> Name {
        Name { communicator: self.communicator.get(), number: self.number.get() }
    }
}

/// The place of an operation in a window.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Place {
    /// The generation of the receiver's window.
    pub(crate) generation: U32,
    /// The number of the [`Reduction`](crate::Reduction).
    pub(crate) op: u8,
    /// The number of the [`ElementType`](crate::ElementType).
    pub(crate) element: u8,
    /// The low bits of the epoch's number at the origin. An answer to the end of the epoch reports by them that a write
    /// was on memory that is not attached.
    pub(crate) epoch: U16,
    /// The offset of the first byte, or its place in a dynamic window.
    pub(crate) at: U64,
}

/// An operation in an `EPOCH`. The bytes behind it are those of a packet of this kind behind the header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Entry {
    /// `PUT`, `ACCUMULATE`, `GET`, `FETCH` or `COMPARE_SWAP`.
    pub(crate) kind: u8,
    pub(crate) reserved: [u8; 3],
    /// The number of bytes.
    pub(crate) len: U32,
}

/// The wish for the former bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wanted {
    /// The name of the request at the origin.
    pub(crate) request: U64,
    /// The place of the bytes in the request's memory.
    pub(crate) offset: U64,
    /// The number of bytes.
    pub(crate) len: U32,
}

/// The answer to [`Wanted`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Reply {
    pub(crate) request: U64,
    pub(crate) offset: U64,
}

/// The answer to [`Wanted`] if the bytes are not in memory that is attached to a dynamic window.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Refused {
    pub(crate) request: U64,
    /// The place of the first byte.
    pub(crate) at: U64,
    /// The number of bytes.
    pub(crate) len: U32,
}

/// The place for the bytes of a read in the origin's memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Landing {
    /// The origin's name for the read.
    pub(crate) name: U64,
    /// The number of bytes.
    pub(crate) len: U64,
    /// The key by which the receiver puts into the memory.
    pub(crate) key: U64,
    /// The address of the memory for the receiver's port.
    pub(crate) address: U64,
}

/// The answer to [`Landing`]: all bytes are in the memory, and the receiver of the answer may withdraw the key.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Landed {
    pub(crate) name: U64,
}

/// A packet of synchronization.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Note {
    /// The generation of the receiver's window.
    pub(crate) generation: U32,
    pub(crate) flag: U32,
    pub(crate) number: U64,
    pub(crate) token: U64,
}

impl Note {
    /// Returns a note whose generation is filled in when it is sent.
    pub(crate) fn new(number: u64, token: u64) -> Self {
        Self { number: number.into(), token: token.into(), ..Self::default() }
    }

    pub(crate) fn flagged(self, flag: impl Into<u32>) -> Self {
        Self { flag: flag.into().into(), ..self }
    }
}

/// The flag of a request for a shared lock that passes those for exclusive ones: see [`kind::LOCK`].
pub(crate) const PASSES: u32 = 2;

/// The flag of a barrier's message that names a member which has left: see [`kind::FENCED`].
pub(crate) const HAS_LEFT: u32 = 2;

/// The flag of the release of a lock that was taken by its word: see [`kind::UNLOCK`].
pub(crate) const BY_WORD: u32 = 1;

/// Bytes of a packet before the bytes of a reply.
pub(crate) const REPLY_HEAD: usize = samite_fabric::wire::Header::LEN + size_of::<Reply>();
/// Bytes of an `EPOCH` before its operations, and of an `APPLIED` before the former bytes.
pub(crate) const EPOCH_HEAD: usize = samite_fabric::wire::Header::LEN + size_of::<Note>();
/// Bytes of a packet before the bytes of an operation, at most.
pub(crate) const OPERATION_HEAD: usize =
    samite_fabric::wire::Header::LEN + size_of::<Place>() + size_of::<Wanted>();

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the layout that the version number identifies: if it must change, so must
    /// [`VERSION`](samite_fabric::wire::VERSION).
    #[test]
    fn version_6_is_laid_out_like_this() {
        assert_eq!(samite_fabric::wire::VERSION, 6);
        let word = |at: u8| u64::from_le_bytes(std::array::from_fn(|index| at + index as u8));
        let half = |at: u8| u32::from_le_bytes(std::array::from_fn(|index| at + index as u8));
        let traits = Traits {
            communicator: word(0).into(),
            number: word(8).into(),
            len: word(16).into(),
            unit: half(24).into(),
            slot: half(28).into(),
            generation: half(32).into(),
            reply_max: half(36).into(),
            key: word(40).into(),
            address: word(48).into(),
            lock: word(56).into(),
        };
        let epoch = [6, 7].into();
        let place = Place { generation: half(0).into(), op: 4, element: 5, epoch, at: word(8).into() };
        let wanted = Wanted { request: word(0).into(), offset: word(8).into(), len: half(16).into() };
        let reply = Reply { request: word(0).into(), offset: word(8).into() };
        let refused = Refused { request: word(0).into(), at: word(8).into(), len: half(16).into() };
        let note = Note {
            generation: half(0).into(),
            flag: half(4).into(),
            number: word(8).into(),
            token: word(16).into(),
        };
        let landing = Landing {
            name: word(0).into(),
            len: word(8).into(),
            key: word(16).into(),
            address: word(24).into(),
        };
        let landed = Landed { name: word(0).into() };
        let entry = Entry { kind: 0, reserved: [1, 2, 3], len: half(4).into() };
        let laid_out = [
            traits.as_bytes(),
            place.as_bytes(),
            wanted.as_bytes(),
            reply.as_bytes(),
            refused.as_bytes(),
            note.as_bytes(),
            landing.as_bytes(),
            landed.as_bytes(),
            entry.as_bytes(),
        ];
        for (bytes, len) in laid_out.into_iter().zip([64, 16, 20, 16, 20, 24, 32, 8, 8]) {
            assert_eq!(bytes, (0..len).collect::<Vec<u8>>());
        }
    }
}
