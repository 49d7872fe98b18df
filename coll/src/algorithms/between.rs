//! Operations between the two groups of an intercommunicator (MPI 4.1, section 6.2.2).
//!
//! Each group has a leader, its first rank. Operations with many short contributions run in stages: within a group,
//! then between the leaders, then within the other group. With blocks of different lengths, whose lengths only some
//! ranks know, the ranks exchange the blocks directly.

use std::ops::Range;
use std::sync::Arc;

use super::exchange::Transfer;
use super::{bcast, gather, reduce, scatter};
use crate::schedule::{Blocks, Buffer, Place, Plan, Ranks, Stage};

/// The two groups, as ranges of the ranks of both groups together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Between {
    /// This rank's group.
    pub own: Range<u32>,
    /// The other group.
    pub remote: Range<u32>,
    /// This rank.
    pub at: Place,
}

/// The buffers of an exchange that sends from the scratch buffer.
const FROM_SCRATCH: [(Buffer, usize); 3] = [(Buffer::Scratch, 0), (Buffer::Output, 0), (Buffer::Scratch, 0)];

/// The buffers of an exchange that receives into the scratch buffer.
const INTO_SCRATCH: [(Buffer, usize); 3] = [(Buffer::Input, 0), (Buffer::Scratch, 0), (Buffer::Scratch, 0)];

impl Between {
    /// Returns the groups of a rank whose group has the ranks `own`.
    ///
    /// # Panics
    /// If the rank is not in the group, or the two groups do not have all ranks.
    #[must_use]
    pub fn new(own: Range<u32>, remote: Range<u32>, at: Place) -> Self {
        assert!(own.contains(&at.rank()), "a rank is in its group");
        let ends = [own.start.min(remote.start), own.end.max(remote.end)];
        assert_eq!((ends, own.len() + remote.len()), ([0, at.size()], at.size() as usize), "two groups");
        Self { own, remote, at }
    }

    fn is_leader(&self) -> bool {
        self.at.rank() == self.own.start
    }

    /// Returns a stage of the ranks of this rank's group.
    fn within(&self, plan: Plan, buffers: [(Buffer, usize); 3]) -> Stage {
        Stage::new(plan, Ranks::Consecutive(self.own.clone()), buffers)
    }

    /// Returns a stage in which this rank exchanges messages with ranks of the other group.
    fn across(
        &self,
        sends: Vec<(u32, Range<usize>)>,
        receives: Vec<(u32, Range<usize>)>,
        buffers: [(Buffer, usize); 3],
    ) -> Stage {
        let listed = |messages: Vec<(u32, Range<usize>)>| -> Arc<[Transfer]> {
            let transfer = |(partner, elements)| Transfer { partner, round: 0, elements };
            messages.into_iter().map(transfer).collect()
        };
        let plan = Plan::Exchange { sends: listed(sends), receives: listed(receives) };
        Stage::new(plan, Ranks::Consecutive(0..self.at.size()), buffers)
    }

    /// Returns the stage in which the leaders exchange `sent` elements for `received` elements.
    fn leaders(&self, sent: usize, received: usize, buffers: [(Buffer, usize); 3]) -> Option<Stage> {
        let other = self.remote.start;
        self.is_leader().then(|| self.across(vec![(other, 0..sent)], vec![(other, 0..received)], buffers))
    }

    /// Returns the operation of a rank that takes no part.
    #[must_use]
    pub fn nothing() -> Plan {
        Plan::Stages(Arc::new([]))
    }

    /// Returns the broadcast of `len` elements at its root: they are in the output.
    #[must_use]
    pub fn bcast_from(&self, len: usize) -> Plan {
        let buffers = [(Buffer::Output, 0), (Buffer::Output, 0), (Buffer::Scratch, 0)];
        stages([self.across(vec![(self.remote.start, 0..len)], vec![], buffers)])
    }

    /// Returns the broadcast from rank `root` of the other group. The leader gets the elements and broadcasts them in
    /// its group. Cost: one round more than the broadcast of a group.
    #[must_use]
    pub fn bcast(&self, root: u32, len: usize, algorithm: bcast::Algorithm) -> Plan {
        let receive = self.is_leader().then(|| {
            let from = self.remote.start + root;
            self.across(vec![], vec![(from, 0..len)], Stage::WHOLE)
        });
        let bcast = self.within(Plan::Bcast { algorithm, root: 0, len }, Stage::WHOLE);
        stages(receive.into_iter().chain([bcast]))
    }

    /// Returns the gather of blocks of the same length to rank `root` of the other group. The leader gathers the blocks
    /// of its group and sends them in one message. Cost: one round more than the gather of a group.
    #[must_use]
    pub fn gather(&self, root: u32, len: usize, algorithm: gather::Algorithm) -> Plan {
        let all = len * self.own.len();
        let send = self.is_leader().then(|| {
            let to = self.remote.start + root;
            self.across(vec![(to, 0..all)], vec![], FROM_SCRATCH)
        });
        stages([self.gather_here(len, algorithm)].into_iter().chain(send))
    }

    /// Returns the stage that gathers the blocks of this rank's group at the start of the leader's scratch buffer.
    fn gather_here(&self, len: usize, algorithm: gather::Algorithm) -> Stage {
        let blocks = Blocks::Equal(len);
        let gather = Plan::Gather { algorithm, root: 0, blocks, len, in_place: false };
        self.within(
            gather,
            [(Buffer::Input, 0), (Buffer::Scratch, 0), (Buffer::Scratch, len * self.own.len())],
        )
    }

    /// Returns the gather of blocks of the same length from the other group, at the root.
    #[must_use]
    pub fn gather_to(&self, len: usize) -> Plan {
        let all = len * self.remote.len();
        stages([self.across(vec![], vec![(self.remote.start, 0..all)], Stage::WHOLE)])
    }

    /// Returns the scatter of blocks of the same length from rank `root` of the other group. The leader gets the blocks
    /// of its group in one message and scatters them. Cost: one round more than the scatter of a group.
    #[must_use]
    pub fn scatter(&self, root: u32, len: usize, algorithm: scatter::Algorithm) -> Plan {
        let all = len * self.own.len();
        let receive = self.is_leader().then(|| {
            let from = self.remote.start + root;
            self.across(vec![], vec![(from, 0..all)], INTO_SCRATCH)
        });
        let scatter = self.scatter_here(Blocks::Equal(len), len, algorithm, 0);
        stages(receive.into_iter().chain([scatter]))
    }

    /// Returns the stage that scatters blocks, which begin at `start` in the leader's scratch buffer.
    fn scatter_here(&self, blocks: Blocks, len: usize, algorithm: scatter::Algorithm, start: usize) -> Stage {
        let end = start + blocks.end(self.own.len() as u32);
        let scatter = Plan::Scatter { algorithm, root: 0, blocks, len, in_place: false };
        self.within(scatter, [(Buffer::Scratch, start), (Buffer::Output, 0), (Buffer::Scratch, end)])
    }

    /// Returns the scatter of blocks of the same length to the other group, at the root.
    #[must_use]
    pub fn scatter_from(&self, len: usize) -> Plan {
        let all = len * self.remote.len();
        stages([self.across(vec![(self.remote.start, 0..all)], vec![], Stage::WHOLE)])
    }

    /// Returns an exchange in which this rank sends these elements to ranks of the other group, and receives these
    /// elements from them. Cost: the largest number of messages that a rank sends or receives.
    #[must_use]
    pub fn exchange(&self, sent: &[(u32, Range<usize>)], received: &[(u32, Range<usize>)]) -> Plan {
        let partners = |messages: &[(u32, Range<usize>)]| {
            let partner =
                |(rank, elements): &(u32, Range<usize>)| (self.remote.start + rank, elements.clone());
            messages.iter().map(partner).collect()
        };
        self.across(partners(sent), partners(received), Stage::WHOLE).plan
    }

    /// Returns the exchange of all ranks with all ranks of the other group. The elements are given by the rank in the
    /// other group. In each round, a rank sends at most one message and receives at most one.
    #[must_use]
    pub fn all_pairs(
        &self,
        sent: impl Fn(u32) -> Range<usize>,
        received: impl Fn(u32) -> Range<usize>,
    ) -> Plan {
        let rounds = Place::new(0, self.own.len().max(self.remote.len()) as u32);
        let mine = Place::new(self.at.rank() - self.own.start, rounds.size());
        let exists = |rank: &u32| (*rank as usize) < self.remote.len();
        let each = |partner: &dyn Fn(u32) -> u32| (0..rounds.size()).map(partner).filter(exists).collect();
        let (to, from): (Vec<_>, Vec<_>) = (each(&|round| mine.up(round)), each(&|round| mine.down(round)));
        let sent: Vec<_> = to.into_iter().map(|rank| (rank, sent(rank))).collect();
        let received: Vec<_> = from.into_iter().map(|rank| (rank, received(rank))).collect();
        self.exchange(&sent, &received)
    }

    /// Returns the allgather of blocks of `sent` elements in this rank's group and of `received` elements in the other
    /// group. Cost: the rounds of a gather, a message and a broadcast.
    #[must_use]
    pub fn allgather(
        &self,
        [sent, received]: [usize; 2],
        gather: gather::Algorithm,
        bcast: bcast::Algorithm,
    ) -> Plan {
        let (ours, theirs) = (sent * self.own.len(), received * self.remote.len());
        let swap = self.leaders(ours, theirs, FROM_SCRATCH);
        let bcast = self.within(Plan::Bcast { algorithm: bcast, root: 0, len: theirs }, Stage::WHOLE);
        stages([self.gather_here(sent, gather)].into_iter().chain(swap).chain([bcast]))
    }

    /// Returns the stage that reduces the elements of this rank's group to the start of the leader's scratch buffer.
    fn reduce_here(&self, len: usize, commutes: bool) -> Stage {
        let algorithm = reduce::Algorithm::Binomial;
        let plan = Plan::Reduce { algorithm, root: 0, len, commutes, in_place: false };
        self.within(plan, [(Buffer::Input, 0), (Buffer::Scratch, 0), (Buffer::Scratch, len)])
    }

    /// Returns the reduction of the elements of this rank's group to rank `root` of the other group. Cost: one round
    /// more than the reduction of a group.
    #[must_use]
    pub fn reduce(&self, root: u32, len: usize, commutes: bool) -> Plan {
        let send = self.is_leader().then(|| {
            let to = self.remote.start + root;
            self.across(vec![(to, 0..len)], vec![], FROM_SCRATCH)
        });
        stages([self.reduce_here(len, commutes)].into_iter().chain(send))
    }

    /// Returns the reduction of the elements of the other group, at the root.
    #[must_use]
    pub fn reduce_to(&self, len: usize) -> Plan {
        stages([self.across(vec![], vec![(self.remote.start, 0..len)], Stage::WHOLE)])
    }

    /// Returns the reduction of the elements of each group to all ranks of the other group. Cost: the rounds of a
    /// reduction, a message and a broadcast.
    #[must_use]
    pub fn allreduce(&self, len: usize, commutes: bool, bcast: bcast::Algorithm) -> Plan {
        let swap = self.leaders(len, len, FROM_SCRATCH);
        let bcast = self.within(Plan::Bcast { algorithm: bcast, root: 0, len }, Stage::WHOLE);
        stages([self.reduce_here(len, commutes)].into_iter().chain(swap).chain([bcast]))
    }

    /// Returns the reduction of the elements of each group, whose results are scattered in blocks over the ranks of the
    /// other group. `blocks` are the blocks of this rank's group. Cost: the rounds of a reduction, a message and a
    /// scatter.
    #[must_use]
    pub fn reduce_scatter(&self, blocks: Blocks, commutes: bool, scatter: scatter::Algorithm) -> Plan {
        let all = blocks.end(self.own.len() as u32);
        let len = blocks.get(self.at.rank() - self.own.start).len();
        let swap =
            self.leaders(all, all, [(Buffer::Scratch, 0), (Buffer::Scratch, all), (Buffer::Scratch, 0)]);
        let scatter = self.scatter_here(blocks, len, scatter, all);
        stages([self.reduce_here(all, commutes)].into_iter().chain(swap).chain([scatter]))
    }
}

fn stages(stages: impl IntoIterator<Item = Stage>) -> Plan {
    Plan::Stages(stages.into_iter().collect())
}
