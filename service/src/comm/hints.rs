//! Hints: promises of a program about its use of a communicator (MPI 4.1, section 7.4.4).

use std::fmt;

use super::{Comm, Creation, Derived};
use crate::error::{Error, Status};
use crate::select::{Accepted, Rank, Source, Tag};

/// Promises of a program about its use of a communicator: see [`Comm::dup_with`].
///
/// Samite checks the promises, but does not become faster by them. The support of wildcards costs little where no
/// receive uses them: 4 bytes and a store for each message that waits in a queue of more than 64 messages (see the
/// crate `samite-matching`). And a message carries its length in any case.
///
/// ```
/// use samite::Hints;
///
/// let hints = Hints::NONE.no_any_source().exact_length();
/// assert!(hints.contains(Hints::NONE.exact_length()) && !hints.contains(Hints::NONE.no_any_tag()));
/// assert_eq!(format!("{hints:?}"), "no_any_source, exact_length");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Hints(u8);

impl Hints {
    /// No hint.
    pub const NONE: Self = Self(0);
    const NO_ANY_SOURCE: Self = Self(1);
    const NO_ANY_TAG: Self = Self(2);
    const EXACT_LENGTH: Self = Self(4);
    const OVERTAKING: Self = Self(8);
    const NAMES: [(Self, &str); 4] = [
        (Self::NO_ANY_SOURCE, "no_any_source"),
        (Self::NO_ANY_TAG, "no_any_tag"),
        (Self::EXACT_LENGTH, "exact_length"),
        (Self::OVERTAKING, "overtaking"),
    ];

    /// Adds the promise that this rank names the source of each receive, probe and claim (`mpi_assert_no_any_source`).
    /// A call with [`Source::ANY`] ends with [`Error::BrokenHint`].
    #[must_use]
    pub const fn no_any_source(self) -> Self {
        self.and(Self::NO_ANY_SOURCE)
    }

    /// Adds the promise that this rank names one tag for each receive, probe and claim (`mpi_assert_no_any_tag`). A
    /// call with [`Tag::ANY`] or a [mask](Tag::masked) ends with [`Error::BrokenHint`].
    #[must_use]
    pub const fn no_any_tag(self) -> Self {
        self.and(Self::NO_ANY_TAG)
    }

    /// Adds the promise that each message that this rank receives is as long as the buffer (`mpi_assert_exact_length`).
    /// Under the check `hints` ([`Settings::set_check`](crate::Settings::set_check)) a receive of a shorter message
    /// ends with [`Error::NotExact`]. [`Comm::recv_vec`] and [`Message::recv`](crate::Message::recv) always fulfil the
    /// promise.
    #[must_use]
    pub const fn exact_length(self) -> Self {
        self.and(Self::EXACT_LENGTH)
    }

    /// Adds the permission for messages to overtake other messages of their sender (`mpi_assert_allow_overtaking`). It
    /// has no effect: messages keep their order, because each path delivers packets in order. It exists for programs
    /// that are translated from MPI.
    #[must_use]
    pub const fn overtaking(self) -> Self {
        self.and(Self::OVERTAKING)
    }

    /// Returns true if these hints include all of `others`.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn promise_exact_length(self) -> bool {
        self.contains(Self::EXACT_LENGTH)
    }

    /// Returns the hint that a receive, probe or claim with this source and this tag breaks.
    fn broken_by(self, from: Source, tag: Tag) -> Option<Self> {
        let broken = [
            (Self::NO_ANY_SOURCE, from.0 == Accepted::Any),
            (Self::NO_ANY_TAG, tag.is_wildcard() && from.0 != Accepted::Absent),
        ];
        broken.into_iter().find(|(hint, is_broken)| *is_broken && self.contains(*hint)).map(|(hint, _)| hint)
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The names of the hints, separated by commas; `none` if there are none.
impl fmt::Display for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(hint, _)| self.contains(*hint)).map(|(_, name)| *name);
        match self.0 {
            0 => f.write_str("none"),
            _ => f.write_str(&names.collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Comm {
    /// Creates a communicator as [`dup`](Self::dup) does, with hints (`MPI_Comm_dup_with_info`; MPI 4.1, section
    /// 7.4.4).
    ///
    /// The hints are promises of this rank; other ranks may give other hints. They apply to all handles of the new
    /// communicator on this rank. Communicators that are created on the new communicator have no hints, duplicates
    /// included. Partitioned messages and the creation of communicators have no wildcards, and no hint applies to them.
    ///
    /// # Errors
    /// Returns the errors of [`dup`](Self::dup).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Error, Hints, Rank, Source};
    ///
    /// let exchange = comm.dup_with(Hints::NONE.no_any_source())?;
    /// let other = Rank(1 - comm.rank().0);
    /// exchange.sendrecv(&[1u8], other, 7, &mut [0u8], other, 7)?;
    /// let refused = exchange.recv(&mut [0u8], Source::ANY, 7);
    /// assert!(matches!(refused, Err(Error::BrokenHint { call: "recv", .. })));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn dup_with(&self, hints: Hints) -> Result<Self, Error> {
        self.handle_result("dup_with", self.begin_dup(hints).and_then(Creation::finish))
    }

    /// Starts to create a communicator as [`dup_with`](Self::dup_with) does, without waiting for the other ranks
    /// (`MPI_Comm_idup_with_info`).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`]. [`Creation::wait`] returns the other errors of
    /// [`dup_with`](Self::dup_with).
    pub fn idup_with(&self, hints: Hints) -> Result<Creation<Self>, Error> {
        self.handle_result("idup_with", self.begin_dup(hints))
    }

    /// Returns the hints with which this rank has created the communicator (`MPI_Comm_get_info`).
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// use samite::Hints;
    ///
    /// let exact = world.comm().dup_with(Hints::NONE.exact_length())?;
    /// assert_eq!(exact.hints(), Hints::NONE.exact_length());
    /// assert_eq!(exact.dup()?.hints(), Hints::NONE);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub fn hints(&self) -> Hints {
        self.derived.as_ref().map_or(Hints::NONE, |derived| derived.hints)
    }

    /// Checks the length of a message for a buffer of `room` bytes.
    #[inline(always)]
    pub(crate) fn exact(&self, status: Status, room: usize) -> Result<Status, Error> {
        match &self.derived {
            // Most messages are as long as their buffers, and need no other check.
            Some(derived) if status.bytes != room => derived.exact(status, room),
            _ => Ok(status),
        }
    }
}

impl Derived {
    /// Checks that the hints permit the wildcards of a receive, probe or claim.
    #[inline]
    pub(super) fn check_wildcards(&self, call: &'static str, from: Source, tag: Tag) -> Result<(), Error> {
        if self.hints == Hints::NONE {
            return Ok(());
        }
        match self.hints.broken_by(from, tag) {
            None => Ok(()),
            Some(hint) => Err(Error::BrokenHint { call, hint }),
        }
    }

    /// Checks the length of a message for a buffer of `room` bytes, if the communicator has the hint `exact_length` and
    /// the program has enabled the check `hints`.
    #[inline(always)]
    pub(crate) fn exact(&self, status: Status, room: usize) -> Result<Status, Error> {
        match self.is_exact && status.bytes != room && status.peer != Rank::ABSENT {
            false => Ok(status),
            true => Err(Error::NotExact { status, room }),
        }
    }
}
