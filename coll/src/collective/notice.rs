//! Notices: the messages by which a rank that gives up an operation informs its partners.

use samite_fabric::{Memory, Port};
use samite_p2p::{
    Cause, Engine, Error, Fate, Group, HasTagged, Pattern, RequestId, Source, Status, Time, WorldRank,
};

use super::Failed;

/// The content of a notice: the reason why its sender gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The named rank gave up for a reason of its own: a deadline, a cancel, a misuse, a panic.
    GaveUp(WorldRank),
    /// The named rank has failed.
    Failed(WorldRank),
}

impl Notice {
    /// The round in the tag of a notice. No step has this round.
    pub(super) const ROUND: u32 = u32::MAX;

    /// The round in the tag of a message that wakes its receiver.
    pub(super) const WAKE: u32 = u32::MAX - 1;

    /// Returns the notice that the rank `mine` sends about its failure. If this rank gives up because of a notice or a
    /// failed rank, it names the same rank. So all notices name the rank at which the failure began.
    pub(super) fn of(failed: &Failed, mine: WorldRank) -> Self {
        match failed {
            Failed::Error(Error::PeerFailed { rank, .. }) => Self::Failed(*rank),
            Failed::Error(Error::Abandoned { rank, .. }) => Self::GaveUp(*rank),
            _ => Self::GaveUp(mine),
        }
    }

    /// Returns the notice as words of 32 bits, little-endian: the kind, and the rank.
    pub(super) fn to_memory(self) -> Memory {
        let (kind, rank): (u32, _) = match self {
            Self::GaveUp(rank) => (0, rank),
            Self::Failed(rank) => (1, rank),
        };
        Memory::new([kind.to_le_bytes(), rank.0.to_le_bytes()].concat())
    }

    /// Returns the notice that these bytes contain. Returns `None` if they are not a notice, or if the notice names a
    /// rank that is not in the group.
    fn of_bytes(bytes: &[u8], group: &Group) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let [kind, rank] = *words else { return None };
        let rank = WorldRank(u32::from_le_bytes(rank));
        match u32::from_le_bytes(kind) {
            _ if !group.contains(rank) => None,
            0 => Some(Self::GaveUp(rank)),
            1 => Some(Self::Failed(rank)),
            _ => None,
        }
    }

    /// Starts to receive a notice from a partner if one has arrived.
    pub(super) fn claim<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        context: u32,
        partner: WorldRank,
        tag: u64,
        deadline: Time,
    ) -> Option<RequestId> {
        let pattern = Pattern { context, source: Source::rank(partner.0), tag, mask: !0 };
        // An error means that no notice can come. The message for which this rank waits ends with the same error.
        let (_, claimed) = engine.claim(&pattern).ok()??;
        Some(engine.recv_claimed(engine.now(), claimed, Ok(Memory::zeroed(LEN)), deadline))
    }

    /// Starts to receive a notice of any rank if one has arrived. Returns the rank too.
    pub(super) fn claim_any<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        context: u32,
        tag: u64,
        deadline: Time,
    ) -> Option<(RequestId, WorldRank)> {
        let pattern = Pattern { context, source: Source::ANY, tag, mask: !0 };
        let (status, claimed) = engine.claim(&pattern).ok()??;
        let receive = engine.recv_claimed(engine.now(), claimed, Ok(Memory::zeroed(LEN)), deadline);
        Some((receive, status.source))
    }

    /// Starts to receive a notice from a partner. Returns an error if none can come.
    pub(super) fn post<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        context: u32,
        partner: WorldRank,
        tag: u64,
        deadline: Time,
    ) -> Result<RequestId, Error> {
        let pattern = Pattern { context, source: Source::rank(partner.0), tag, mask: !0 };
        engine.irecv(engine.now(), pattern, Memory::zeroed(LEN), deadline).map_err(|(error, _)| error)
    }

    /// Returns the error of a receive that has ended, or the error of the notice that it has received.
    pub(super) fn end<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        receive: RequestId,
        partner: WorldRank,
        group: &Group,
    ) -> Option<Error> {
        Self::received(engine, receive, partner, group).map(|end| end.unwrap_or_else(|error| error))
    }

    /// Returns the error of the notice that a receive has taken, or the error of the receive, if it has ended.
    fn received<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        receive: RequestId,
        partner: WorldRank,
        group: &Group,
    ) -> Option<Result<Error, Error>> {
        let received = engine.collect(receive, &mut ())?;
        let error_in = |status: Status| Self::error_in(engine, received.memory, status.bytes, partner, group);
        Some(received.result.map(error_in))
    }

    /// Returns the error with which this rank gives up, after the receive of a notice has ended: the reason in the
    /// notice, or [`Error::Abandoned`] if the notice is invalid. If no notice has arrived because the partner has
    /// failed or the communicator is revoked, returns that error. Returns `None` if no notice has arrived for another
    /// reason.
    pub(super) fn collect<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        receive: RequestId,
        partner: WorldRank,
        group: &Group,
    ) -> Option<Error> {
        match Self::received(engine, receive, partner, group)? {
            Ok(error) => Some(error),
            Err(Error::Truncated { .. }) => Some(abandoned(partner)),
            // The partner has failed. That explains its end better than the end of its message.
            Err(error @ Error::PeerFailed { .. }) if !is_leave(&error) => Some(error),
            Err(Error::Revoked) => Some(Error::Revoked),
            Err(_) => None,
        }
    }

    /// Returns the error with which this rank gives up because of a received notice.
    fn error_in<P: Port, S: HasTagged>(
        engine: &mut Engine<P, S>,
        memory: Option<Memory>,
        bytes: usize,
        partner: WorldRank,
        group: &Group,
    ) -> Error {
        let received = memory.as_ref().and_then(|memory| memory.as_bytes().get(..bytes));
        match received.and_then(|bytes| Self::of_bytes(bytes, group)) {
            None => abandoned(partner),
            Some(Self::GaveUp(rank)) => abandoned(rank),
            Some(Self::Failed(rank)) => {
                let cause = engine.latest_failure(rank).unwrap_or(Cause::Lost);
                Error::PeerFailed { rank, cause, fate: Fate::Unknown, report: None }
            }
        }
    }
}

/// The number of bytes of a notice.
const LEN: usize = 8;

fn is_leave(error: &Error) -> bool {
    matches!(error, Error::PeerFailed { cause: Cause::Left, .. })
}

fn abandoned(rank: WorldRank) -> Error {
    Error::Abandoned { rank, fate: Fate::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_what_was_sent() {
        let group = Group::range(WorldRank(3), 4);
        for notice in [Notice::GaveUp(WorldRank(3)), Notice::Failed(WorldRank(6))] {
            let memory = notice.to_memory();
            assert_eq!(memory.len(), LEN);
            assert_eq!(Notice::of_bytes(memory.as_bytes(), &group), Some(notice));
        }
        let invalid: [&[u8]; 4] = [&[], &[0; 7], &[0, 0, 0, 0, 9, 0, 0, 0], &[2, 0, 0, 0, 4, 0, 0, 0]];
        assert!(invalid.iter().all(|bytes| Notice::of_bytes(bytes, &group).is_none()));
    }
}
