//! Errors of windows.

use samite_rma::Error as Rma;

use crate::error::{Error, Fate, Public};
use crate::select::Rank;

/// The reason why a call on a [`Window`](crate::Window), or a request of one, has failed: the content of
/// [`Error::Window`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Misuse: the window or the epoch has ended.
    #[error("the window was freed, or the epoch was closed")]
    Ended,
    /// Misuse: the call is not permitted while this epoch is open.
    #[error("{call} is not permitted while {open} is open: close that epoch first")]
    WrongState {
        /// The call.
        call: &'static str,
        /// The open epoch.
        open: &'static str,
    },
    /// Misuse: the epoch permits no operations with this rank.
    #[error("rank {rank} is no target of the epoch: open the epoch for it")]
    NotATarget {
        /// The rank in the window's communicator.
        rank: Rank,
    },
    /// Misuse: the operation leaves the target's part of the window, or its region. Nothing was sent. The bytes of an
    /// operation with a layout at the target are those from its first to its last element.
    #[error(
        "{bytes} bytes at byte {at} are not in the part of rank {rank}, which has {size} bytes: correct the index or \
         the length"
    )]
    OutOfBounds {
        /// The target.
        rank: Rank,
        /// The first byte, or `u64::MAX` if the first element is no element of a part.
        at: u64,
        /// The number of bytes.
        bytes: u64,
        /// The number of bytes of the part or the region.
        size: u64,
    },
    /// The elements are not in memory that the rank has attached to a dynamic window: the region was detached, or is no
    /// region of this window and rank. The operation has no effect, or only on the elements that arrived before the memory
    /// was detached.
    #[error(
        "rank {rank} has not attached region {region:#x} of the window, or has detached it: access a region before its \
         rank detaches it"
    )]
    NotAttached {
        /// The target.
        rank: Rank,
        /// The number of the region: [`WindowRegion::id`](crate::WindowRegion::id).
        region: u64,
    },
    /// Misuse: the layout at the target does not select as many bytes as the data has.
    #[error(
        "the layout at the target selects {layout} bytes, and the data has {data}: pass as many elements as the layout \
         selects"
    )]
    LayoutLength {
        /// The bytes of the layout.
        layout: usize,
        /// The bytes of the data, or of the buffer for the result.
        data: usize,
    },
    /// Misuse: the layout at the target of an operation that changes elements selects a byte twice.
    #[error(
        "the layout at the target selects a byte twice, so its value would be undefined: use a layout without overlaps"
    )]
    LayoutOverlap,
    /// The rank's part is not in memory that this rank can map: the rank runs on another host, the transport shares no
    /// memory, or the window was made from a vector, is dynamic, or has the hint for slices.
    #[error(
        "the part of rank {rank} is not in memory that this rank can map: get its elements in an epoch, or allocate the \
         window on ranks of one host that share memory, without the hint for slices"
    )]
    NotShared {
        /// The rank.
        rank: Rank,
    },
    /// Misuse: the operation is not defined for elements of this type, or the window does not permit the call or the
    /// place. A dynamic window needs a region in a place, and other windows refuse one.
    #[error("{0}")]
    Unsuitable(String),
    /// The rank has ended its epoch early, by a cancel or a deadline.
    #[error("rank {rank} has ended its epoch early; the operations with that rank {}", have_been(*.fate))]
    Aborted {
        /// The rank.
        rank: Rank,
        /// The fate of the operations with that rank.
        fate: Fate,
    },
    /// The deadline passed.
    #[error("the deadline has passed{}; the operations {}", named(.awaited), have_been(*.fate))]
    TimedOut {
        /// The fate of the operations.
        fate: Fate,
        /// The awaited ranks, at most 64.
        awaited: Vec<AwaitedRank>,
    },
}

/// A rank for which an epoch waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AwaitedRank {
    /// The rank.
    pub rank: Rank,
    /// The event for which the epoch waits there.
    pub event: WindowEvent,
    /// True if the process of the rank was stopped (by SIGSTOP, for example), as the launcher last saw it.
    pub is_stopped: bool,
}

/// An event at a rank for which an epoch waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowEvent {
    /// The end of an earlier epoch of this rank, which the program has not closed.
    EarlierEpoch,
    /// The creation of the window, or the answer to this rank's first packet.
    Window,
    /// The lock.
    Lock,
    /// The exposure epoch or the fence.
    Exposure,
    /// The end of the access epoch.
    Completion,
    /// The data of operations.
    Data,
    /// The call of the fence, or of free.
    Barrier,
}

/// Returns the fate of operations. [`Fate`] itself is displayed as the fate of a message.
fn have_been(fate: Fate) -> &'static str {
    match fate {
        Fate::NotDelivered => "were not carried out",
        Fate::Unknown => "may or may not have been carried out",
    }
}

fn named(awaited: &[AwaitedRank]) -> String {
    let name = |&AwaitedRank { rank, event, is_stopped }: &AwaitedRank| {
        let event = match event {
            WindowEvent::EarlierEpoch => "has not closed an earlier epoch",
            WindowEvent::Window => "has not created the window, or has not answered the first packet",
            WindowEvent::Lock => "has not granted the lock (another rank may hold it)",
            WindowEvent::Exposure => "has not exposed its part or called the fence",
            WindowEvent::Completion => "has not opened its access, or has not closed it",
            WindowEvent::Data => "has not answered",
            WindowEvent::Barrier => "has not made the same call, or waits in it",
        };
        let state = if is_stopped { ", and its process is stopped" } else { "" };
        format!("; rank {rank} {event}{state}")
    };
    awaited.iter().map(name).collect()
}

impl WindowError {
    /// Translates the ranks in the error from ranks of the job to ranks of a communicator.
    pub(crate) fn in_comm(self, local: impl Fn(Rank) -> Rank) -> Self {
        match self {
            Self::NotATarget { rank } => Self::NotATarget { rank: local(rank) },
            Self::OutOfBounds { rank, at, bytes, size } => {
                Self::OutOfBounds { rank: local(rank), at, bytes, size }
            }
            Self::NotAttached { rank, region } => Self::NotAttached { rank: local(rank), region },
            Self::NotShared { rank } => Self::NotShared { rank: local(rank) },
            Self::Aborted { rank, fate } => Self::Aborted { rank: local(rank), fate },
            Self::TimedOut { fate, awaited } => {
                let local = |awaited: AwaitedRank| AwaitedRank { rank: local(awaited.rank), ..awaited };
                let awaited = awaited.into_iter().map(local).collect();
                Self::TimedOut { fate, awaited }
            }
            other => other,
        }
    }
}

impl Public for Rma {
    type Type = Error;
    #[cold]
    fn public(self) -> Error {
        Error::Window(Box::new(match self {
            Rma::Link(error) => return error.public(),
            Rma::NoSuchWindow | Rma::NoSuchEpoch => WindowError::Ended,
            Rma::WrongState { call, open } => WindowError::WrongState { call, open },
            Rma::NotATarget { rank } | Rma::NotAMember { rank } => {
                WindowError::NotATarget { rank: Rank(rank.0) }
            }
            Rma::OutOfBounds { rank, at, len, size } => {
                WindowError::OutOfBounds { rank: Rank(rank.0), at, bytes: len, size }
            }
            Rma::NotMapped { rank } => WindowError::NotShared { rank: Rank(rank.0) },
            Rma::NotAttached { rank, region } => WindowError::NotAttached { rank: Rank(rank.0), region },
            Rma::FormLength { form, len } => WindowError::LayoutLength { layout: form, data: len },
            Rma::FormOverlap => WindowError::LayoutOverlap,
            Rma::Aborted { rank, fate } => WindowError::Aborted { rank: Rank(rank.0), fate: fate.public() },
            Rma::TimedOut { fate, awaited } => {
                let public = |&samite_rma::Awaiting { rank, event: of, is_stopped }| AwaitedRank {
                    rank: Rank(rank.0),
                    event: event(of),
                    is_stopped,
                };
                let awaited = awaited.iter().map(public).collect();
                WindowError::TimedOut { fate: fate.public(), awaited }
            }
            error => WindowError::Unsuitable(error.to_string()),
        }))
    }
}

fn event(event: samite_rma::Event) -> WindowEvent {
    match event {
        samite_rma::Event::EarlierEpoch => WindowEvent::EarlierEpoch,
        samite_rma::Event::Window => WindowEvent::Window,
        samite_rma::Event::Lock => WindowEvent::Lock,
        samite_rma::Event::Exposure => WindowEvent::Exposure,
        samite_rma::Event::Completion => WindowEvent::Completion,
        samite_rma::Event::Data => WindowEvent::Data,
        samite_rma::Event::Barrier => WindowEvent::Barrier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_awaited_events_and_the_fate_of_the_operations() {
        let awaited = vec![
            AwaitedRank { rank: Rank(2), event: WindowEvent::Lock, is_stopped: true },
            AwaitedRank { rank: Rank(3), event: WindowEvent::Barrier, is_stopped: false },
        ];
        let late = WindowError::TimedOut { fate: Fate::NotDelivered, awaited };
        assert_eq!(
            late.to_string(),
            "the deadline has passed; rank 2 has not granted the lock (another rank may hold it), and its process is \
             stopped; rank 3 has not made the same call, or waits in it; the operations were not carried out"
        );
        let aborted = WindowError::Aborted { rank: Rank(1), fate: Fate::Unknown };
        assert_eq!(
            aborted.to_string(),
            "rank 1 has ended its epoch early; the operations with that rank may or may not have been carried out"
        );
    }
}
