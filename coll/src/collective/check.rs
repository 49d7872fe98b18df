//! The check that all members have made the same call.

use std::sync::Arc;

use samite_fabric::Memory;

use super::buffers::{OwnedBuffers, Reduction};
use crate::algorithms::{bcast, reduce};
use crate::schedule::{Place, Plan, Ranks, Stage};

/// A check that the members of a communicator make calls that match. It takes place before the operation: the records
/// of all members are merged along a tree, and the result is sent to all members. So each member sends and receives two
/// short messages on average. If there is a difference, the operation ends at every member and sends nothing.
#[derive(Clone)]
pub struct Check {
    /// This member's record. All records have the same length.
    pub record: Vec<u8>,
    /// Merges two records: the first operand is that of lower ranks. The result replaces the second operand.
    pub merge: fn(&[u8], &mut [u8]),
    /// Returns the difference between the members that the merged record describes, if there is one.
    pub difference: fn(&[u8]) -> Option<Box<str>>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").finish_non_exhaustive()
    }
}

impl Check {
    /// Returns the operation that compares the records of all members. A record is one element.
    pub(super) fn plan(size: u32) -> Plan {
        let reduce = Plan::Reduce {
            algorithm: reduce::Algorithm::Binomial,
            root: 0,
            len: 1,
            commutes: false,
            in_place: false,
        };
        let bcast = Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len: 1 };
        let stage = |plan| Stage::new(plan, Ranks::Consecutive(0..size), Stage::WHOLE);
        Plan::Stages(Arc::new([stage(reduce), stage(bcast)]))
    }

    /// Returns the buffers of the comparison.
    pub(super) fn buffers(&self, at: Place) -> OwnedBuffers {
        let len = self.record.len();
        let reduce: Reduction = Arc::new(self.merge);
        OwnedBuffers {
            input: Memory::new(self.record.clone()),
            output: Memory::zeroed(len),
            scratch: Memory::zeroed(len * Self::plan(at.size()).scratch(at)),
            lens: [len, len],
            reduce,
            layouts: None,
        }
    }
}
