//! Errors, by cause.

use samite_fabric::link::{self, Cause, Fate, WorldRank};

use crate::{ElementType, Reduction};

/// The reason why a call or a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Misuse: the window was freed, or belongs to another process.
    #[error("there is no such window: it was freed, or belongs to another process")]
    NoSuchWindow,
    /// Misuse: a window with this name exists, or has existed.
    #[error("there is or was a window with this name: give each window of a communicator the next number")]
    NameInUse,
    /// Misuse: the epoch was closed.
    #[error("there is no such epoch: it was closed")]
    NoSuchEpoch,
    /// Misuse: the call is not permitted while this epoch is open.
    #[error("{call} is not permitted while {open} is open: close that epoch first")]
    WrongState {
        /// The call.
        call: &'static str,
        /// The open epoch.
        open: &'static str,
    },
    /// Misuse: the epoch does not permit operations to this rank.
    #[error("rank {rank} is no target of the epoch")]
    NotATarget {
        /// The rank in the job.
        rank: WorldRank,
    },
    /// Misuse: the rank is no member of the window.
    #[error("rank {rank} is no member of the window")]
    NotAMember {
        /// The rank in the job.
        rank: WorldRank,
    },
    /// Misuse: the operation leaves the target's part of the window. Nothing was sent. If the operation has a form at
    /// the target, the bytes are those from its first to its last place.
    #[error(
        "{len} bytes at offset {at} are not in the part of rank {rank}, which has {size} bytes: correct the \
         displacement or the length"
    )]
    OutOfBounds {
        /// The target.
        rank: WorldRank,
        /// The offset of the first byte, or `u64::MAX` if that is no offset of a part.
        at: u64,
        /// The number of bytes.
        len: u64,
        /// Bytes in the part.
        size: u64,
    },
    /// The bytes are not in memory that the target has attached to the dynamic window. A part of the operation may have
    /// been carried out, on the bytes that were attached.
    #[error(
        "rank {rank} has no such memory attached, of the region at {region:#x}: it was detached, or never attached: \
         access memory before it is detached"
    )]
    NotAttached {
        /// The rank in the job.
        rank: WorldRank,
        /// The place of the region ([`Attached::place`](crate::Attached::place)).
        region: u64,
    },
    /// Misuse: the window is not dynamic, so it has no regions.
    #[error(
        "the window is not dynamic: attach memory to a dynamic window, and name places by their index alone"
    )]
    NotDynamic,
    /// Misuse: the memory of the part cannot be taken out of the window, because the window does not have the hint, or is
    /// dynamic.
    #[error(
        "the window was not made for slices of its part: give the hint for slices, or detach dynamic memory"
    )]
    NotTakeable,
    /// This process cannot map the member's part: the member runs on another host, the transport shares no memory, or the
    /// part was not allocated for that.
    #[error(
        "the part of rank {rank} is not in memory that this process can map: use a get, or allocate the window on ranks \
         of one host that share memory, without the hint for slices"
    )]
    NotMapped {
        /// The rank in the job.
        rank: WorldRank,
    },
    /// Misuse: a processor does not change such long elements in one step.
    #[error("elements of {element:?} are longer than a word of 8 bytes: change them in an epoch")]
    NotAWord {
        /// The type.
        element: ElementType,
    },
    /// Misuse: the window is dynamic, so a place is in a region.
    #[error("the window is dynamic: name a place by a region and an index in it")]
    NoRegion,
    /// Misuse: the place of an accumulate is no multiple of the size of an element, or of 8 bytes if that is less.
    #[error(
        "offset {at} in the part of rank {rank} is not aligned for elements of {element:?}: use a multiple of their size"
    )]
    Misaligned {
        /// The target.
        rank: WorldRank,
        /// The offset of the first byte.
        at: u64,
        /// The type.
        element: ElementType,
    },
    /// Misuse: the data does not have the length that the operation needs.
    #[error(
        "{len} bytes are not a whole number of elements of {element:?}, or not as many as the operation needs: pass whole \
         elements, and two for a swap"
    )]
    WrongLength {
        /// The number of bytes.
        len: usize,
        /// The type.
        element: ElementType,
    },
    /// Misuse: the form at the target does not have as many bytes as the data.
    #[error(
        "the layout at the target has {form} bytes, and the data has {len}: pass as many bytes as the layout has"
    )]
    FormLength {
        /// Bytes of the form.
        form: usize,
        /// Bytes of the data.
        len: usize,
    },
    /// Misuse: the form at the target of an operation that changes it has a byte twice.
    #[error(
        "the layout at the target has a byte twice, so its value would be undefined: use a layout without overlaps"
    )]
    FormOverlap,
    /// Misuse: the form at the target of an atomic operation has parts of elements.
    #[error(
        "the layout at the target does not consist of whole elements of {element:?}: use a layout of such elements"
    )]
    PartialElements {
        /// The type.
        element: ElementType,
    },
    /// Misuse: the operation is not defined for the type.
    #[error(
        "{op:?} is not defined for elements of {element:?}: use another operation, or elements of another type"
    )]
    Undefined {
        /// The operation.
        op: Reduction,
        /// The type.
        element: ElementType,
    },
    /// The other side ended its epoch early, by a cancel or a deadline.
    #[error("rank {rank} has ended its epoch early")]
    Aborted {
        /// The rank.
        rank: WorldRank,
        /// The fate of the operations with that rank.
        fate: Fate,
    },
    /// The deadline passed.
    #[error("the deadline has passed; awaited: {awaited:?}")]
    TimedOut {
        /// The fate of the operations.
        fate: Fate,
        /// The awaited ranks, at most [`AWAITED_MAX`].
        awaited: Box<[Awaiting]>,
    },
    /// An error that all protocols share: failure of a peer, exhaustion, cancel.
    #[error("{0:?}")]
    Link(link::Error),
}

/// The largest number of ranks that [`Error::TimedOut`] names.
pub const AWAITED_MAX: usize = 64;

impl From<link::Error> for Error {
    fn from(error: link::Error) -> Self {
        Self::Link(error)
    }
}

impl Error {
    pub(crate) fn peer_failed(rank: WorldRank, cause: Cause, fate: Fate) -> Self {
        Self::Link(link::Error::PeerFailed { rank, cause, fate, report: None })
    }

    pub(crate) fn exhausted(what: &'static str, hint: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::Link(link::Error::Exhausted { what, hint: hint.into() })
    }
}

/// A rank, and the event for which a request waits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaiting {
    /// The rank.
    pub rank: WorldRank,
    /// The event.
    pub event: Event,
    /// True if the process of the rank was stopped (by SIGSTOP, for example), as far as the link knows.
    pub is_stopped: bool,
}

/// The event for which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An earlier epoch of this process must complete first.
    EarlierEpoch,
    /// The rank has not created the window, or its first answer has not arrived.
    Window,
    /// The rank has not granted the lock.
    Lock,
    /// The rank has not begun the exposure epoch or the fence.
    Exposure,
    /// The rank has not completed its access epoch.
    Completion,
    /// The rank has not sent or applied the data of operations.
    Data,
    /// The rank has not called the fence, or has not freed the window.
    Barrier,
}
