//! The collective calls of a simulated job: the plan of each rank in a round, its elements, and the result that is
//! computed without messages.

use std::ops::Range;
use std::sync::Arc;

use samite_coll::algorithms::hosts::{Hosts, TwoLevels};
use samite_coll::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, exchange, gather, reduce, reduce_scatter, scatter,
};
use samite_coll::{Blocks, Buffer, Place, Plan};
use samite_fabric::SplitMix64;
use samite_p2p::{Group, WorldRank};

/// The call of one rank in a round of its program.
pub(super) struct RoundCall {
    pub(super) plan: Plan,
    pub(super) at: Place,
    round: u64,
    /// The seed of the lengths of uneven blocks; 0 if all blocks have the same length.
    uneven: u64,
    /// The length of a block, or the largest length of uneven blocks.
    len: usize,
}

impl RoundCall {
    /// Returns the call of `rank` in a round. All members of the group make the same call.
    pub(super) fn new(seed: u64, round: u64, context: u32, group: &Group, rank: WorldRank) -> Self {
        let mut rng = SplitMix64::new(seed ^ round << 20 ^ u64::from(context) << 40);
        let at = Place::new(group.index(rank).expect("it is a member"), group.len());
        let len = *pick(&mut rng, &[0, 1, 7, 300, 5_000]);
        let hosts = hosts(&mut rng, group);
        let has_uneven_blocks = rng.below(3) == 0;
        let uneven = if has_uneven_blocks { rng.next_u64() | 1 } else { 0 };
        let mut call = Self { plan: Plan::Scan { len, in_place: false }, at, round, uneven, len };
        call.plan = call.draw(&mut rng, hosts.as_ref());
        let is_equal = matches!(call.plan, Plan::Allgather { blocks: Blocks::Equal(_), .. });
        let has_two_levels = match call.plan {
            Plan::Barrier(_) | Plan::Bcast { .. } => true,
            Plan::Reduce { commutes, .. } | Plan::Allreduce { commutes, .. } => commutes,
            _ => is_equal,
        };
        if let Some(hosts) = hosts.filter(|_| has_two_levels) {
            let operation = Box::new(call.plan);
            call.plan = Plan::TwoLevels(TwoLevels { operation, hosts, piece: None });
        }
        call
    }

    /// Draws an operation and an algorithm. `hosts` are the hosts of an operation on two levels.
    fn draw(&self, rng: &mut SplitMix64, hosts: Option<&Arc<Hosts>>) -> Plan {
        let (len, n, mine) = (self.len, self.at.size(), self.at.rank());
        let (commutes, in_place) = (rng.below(2) == 0, rng.below(2) == 0);
        let root = rng.below(n.into()) as u32;
        let blocks = self.blocks();
        let is_equal = self.uneven == 0;
        match rng.below(12) {
            0 => Plan::Barrier(barrier::Algorithm::Dissemination),
            1 => {
                let algorithm = match rng.below(3) {
                    0 => bcast::Algorithm::KNomial { k: 2 + rng.below(3) as u32 },
                    1 => bcast::Algorithm::Chain { piece: 1 + len / (1 + rng.below(8) as usize) },
                    _ => bcast::Algorithm::ScatterAllgather,
                };
                Plan::Bcast { algorithm, root, len }
            }
            2 => {
                let along_tree = is_equal && rng.below(2) == 0;
                let algorithm =
                    if along_tree { gather::Algorithm::Binomial } else { gather::Algorithm::Linear };
                Plan::Gather { algorithm, root, len: blocks.get(mine).len(), blocks, in_place }
            }
            3 => {
                let along_tree = is_equal && rng.below(2) == 0;
                let algorithm =
                    if along_tree { scatter::Algorithm::Binomial } else { scatter::Algorithm::Linear };
                Plan::Scatter { algorithm, root, len: blocks.get(mine).len(), blocks, in_place }
            }
            4 => {
                let (participants, is_even) =
                    hosts.map_or((n, true), |hosts| (hosts.count(), hosts.is_even()));
                let algorithm = match rng.below(3) {
                    0 if is_equal && is_even => allgather::Algorithm::Bruck,
                    1 if is_equal && is_even && participants.is_power_of_two() => {
                        allgather::Algorithm::RecursiveDoubling
                    }
                    _ => allgather::Algorithm::Ring,
                };
                Plan::Allgather { algorithm, blocks, in_place }
            }
            5 => {
                let by_bruck = is_equal && rng.below(2) == 0;
                let algorithm =
                    if by_bruck { alltoall::Algorithm::Bruck } else { alltoall::Algorithm::Pairwise };
                let blocks = self.blocks_of_pairs(mine);
                Plan::Alltoall { algorithm, from: blocks.clone(), into: blocks, in_place }
            }
            6 => {
                let algorithms = [reduce::Algorithm::Binomial, reduce::Algorithm::Rabenseifner];
                Plan::Reduce { algorithm: *pick(rng, &algorithms), root, len, commutes, in_place }
            }
            7 => {
                let algorithm = match rng.below(3) {
                    0 if commutes => allreduce::Algorithm::Ring,
                    1 => allreduce::Algorithm::Rabenseifner,
                    _ => allreduce::Algorithm::RecursiveDoubling,
                };
                Plan::Allreduce { algorithm, len, commutes, in_place }
            }
            8 => {
                let halves = commutes && rng.below(2) == 0;
                let algorithm = match halves {
                    true => reduce_scatter::Algorithm::RecursiveHalving,
                    false => reduce_scatter::Algorithm::Pairwise,
                };
                Plan::ReduceScatter { algorithm, blocks, commutes, in_place }
            }
            9 => Plan::Scan { len, in_place },
            10 => Plan::Exscan { len, in_place },
            _ => {
                let of_pair = self.blocks_of_pairs(mine);
                let block = |partner| of_pair.get(partner);
                let [sends, receives] = exchange::all_pairs(self.at, block, block);
                Plan::Exchange { sends, receives }
            }
        }
    }

    /// Returns a block for each rank, one behind the other.
    fn blocks(&self) -> Blocks {
        self.consecutive(|rank| self.uneven_len(rank.into()))
    }

    /// Returns the blocks that a rank exchanges with each rank. The blocks of a pair have the same length.
    fn blocks_of_pairs(&self, rank: u32) -> Blocks {
        let of = |other: u32| u64::from(rank.min(other)) << 32 | u64::from(rank.max(other));
        self.consecutive(|other| self.uneven_len(of(other)))
    }

    fn uneven_len(&self, salt: u64) -> usize {
        SplitMix64::new(self.uneven ^ salt << 8).below(self.len as u64 + 1) as usize
    }

    fn consecutive(&self, len_of: impl Fn(u32) -> usize) -> Blocks {
        if self.uneven == 0 {
            return Blocks::Equal(self.len);
        }
        let mut end = 0;
        let blocks = (0..self.at.size()).map(|rank| {
            let start = end;
            end += len_of(rank);
            start..end
        });
        Blocks::Listed(blocks.collect())
    }

    /// Returns the input and the output before the call.
    pub(super) fn buffers(&self) -> [Vec<u64>; 2] {
        let (input, output) = (self.plan.input(self.at), self.plan.output(self.at));
        let (buffer, range) = self.contribution();
        let mine = self.elements(self.at.rank(), 0..range.len());
        let mut buffers = [vec![UNTOUCHED; input], vec![UNTOUCHED; output]];
        buffers[usize::from(buffer == Buffer::Output)][range].copy_from_slice(&mine);
        buffers
    }

    /// Returns the buffer with this rank's elements before the call, and their indices in it.
    fn contribution(&self) -> (Buffer, Range<usize>) {
        let (plan, mine) = (self.plan.operation(), self.at.rank());
        let in_output = match plan {
            Plan::Bcast { root, len, .. } if *root == mine => Some(0..*len),
            Plan::Gather { root, blocks, in_place: true, .. } if *root == mine => Some(blocks.get(mine)),
            Plan::Allgather { blocks, in_place: true, .. } => Some(blocks.get(mine)),
            Plan::Reduce { root, len, in_place: true, .. } if *root == mine => Some(0..*len),
            Plan::Alltoall { in_place: true, .. }
            | Plan::Allreduce { in_place: true, .. }
            | Plan::ReduceScatter { in_place: true, .. }
            | Plan::Scan { in_place: true, .. }
            | Plan::Exscan { in_place: true, .. } => Some(0..plan.output(self.at)),
            _ => None,
        };
        in_output.map_or_else(|| (Buffer::Input, 0..plan.input(self.at)), |range| (Buffer::Output, range))
    }

    /// Returns true if the operation has a reduction that keeps the order of ranks.
    pub(super) fn keeps_order(&self) -> bool {
        !self.plan.commutes()
    }

    /// Returns the elements at the start of the output that this rank must have after the call.
    pub(super) fn expected(&self) -> Vec<u64> {
        let (n, mine) = (self.at.size(), self.at.rank());
        match self.plan.operation() {
            Plan::Barrier(_) => Vec::new(),
            Plan::Bcast { root, len, .. } => self.elements(*root, 0..*len),
            Plan::Gather { root, .. } | Plan::Reduce { root, .. } if *root != mine => Vec::new(),
            Plan::Gather { blocks, .. } | Plan::Allgather { blocks, .. } => {
                (0..n).flat_map(|from| self.elements(from, 0..blocks.get(from).len())).collect()
            }
            Plan::Scatter { root, in_place: true, .. } if *root == mine => Vec::new(),
            Plan::Scatter { root, blocks, .. } => self.elements(*root, blocks.get(mine)),
            Plan::Alltoall { .. } | Plan::Exchange { .. } => {
                let block = |from| self.elements(from, self.blocks_of_pairs(from).get(mine));
                (0..n).flat_map(block).collect()
            }
            Plan::Reduce { len, .. } | Plan::Allreduce { len, .. } => self.reduced(0..n, 0..*len),
            Plan::ReduceScatter { blocks, .. } => self.reduced(0..n, blocks.get(mine)),
            Plan::Scan { len, .. } => self.reduced(0..mine + 1, 0..*len),
            // The output of rank 0 is not defined.
            Plan::Exscan { .. } if mine == 0 => Vec::new(),
            Plan::Exscan { len, .. } => self.reduced(0..mine, 0..*len),
            Plan::Stages(_) | Plan::TwoLevels(_) => unreachable!("no such operation is drawn"),
        }
    }

    /// Returns elements of the reduction of the contributions of ranks.
    fn reduced(&self, ranks: Range<u32>, elements: Range<usize>) -> Vec<u64> {
        let op = operation(self.keeps_order());
        let reduced = |index| ranks.clone().map(|rank| element(self.round, rank, index)).reduce(op);
        elements.map(|index| reduced(index).expect("there is a rank")).collect()
    }

    /// Returns elements of a rank's contribution.
    fn elements(&self, rank: u32, elements: Range<usize>) -> Vec<u64> {
        elements.map(|index| element(self.round, rank, index)).collect()
    }
}

/// Stands for an element that no step has written.
const UNTOUCHED: u64 = 0xdead_beef;

/// Returns the reduction: a sum, or if the order is kept, a composition, which does not commute.
pub(super) fn operation(keeps_order: bool) -> fn(u64, u64) -> u64 {
    if keeps_order { compose } else { u64::wrapping_add }
}

/// Composes two functions x → m x + c modulo 2^32, with `m` and `c` in one number. The left one is applied first.
fn compose(left: u64, right: u64) -> u64 {
    let of = |function: u64| ((function >> 32) as u32, function as u32);
    let ((m, c), (n, d)) = (of(left), of(right));
    u64::from(m.wrapping_mul(n)) << 32 | u64::from(c.wrapping_mul(n).wrapping_add(d))
}

/// Returns element `index` of a rank's contribution to the operation of a round. As a function for [`compose`] it can
/// be inverted, so no contribution is lost in a composition.
fn element(round: u64, rank: u32, index: usize) -> u64 {
    (round << 40 ^ u64::from(rank) << 20 ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 32
}

/// Draws the hosts of the members, which have some of the ranks in no order. Returns `None` for an operation on one
/// level.
fn hosts(rng: &mut SplitMix64, group: &Group) -> Option<Arc<Hosts>> {
    let (hosts, salt) = (1 + rng.below(4), rng.next_u64());
    let host_of = |rank: WorldRank| SplitMix64::new(salt ^ u64::from(rank.0)).below(hosts) as u32;
    (rng.below(2) == 0).then(|| Arc::new(Hosts::new(group.iter().map(host_of))))
}

fn pick<'a, T>(rng: &mut SplitMix64, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the names of the operation and its algorithm.
    fn name(plan: &Plan) -> String {
        let text = format!("{plan:?}");
        let mut words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        let operation = words.next().expect("a plan has a name");
        match (plan, words.nth(usize::from(!matches!(plan, Plan::Barrier(_))))) {
            (Plan::Scan { .. } | Plan::Exscan { .. } | Plan::Exchange { .. }, _) | (_, None) => {
                operation.into()
            }
            (_, Some(algorithm)) => format!("{operation} {algorithm}"),
        }
    }

    #[test]
    fn every_algorithm_by_messages_is_drawn() {
        let group = Group::range(WorldRank(0), 8);
        let (mut drawn, mut in_order, mut on_two_levels) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..3000 {
            let call = RoundCall::new(seed, 1, 1, &group, WorldRank(3));
            let name = name(call.plan.operation());
            if call.keeps_order() {
                in_order.insert(name.clone());
            }
            if matches!(call.plan, Plan::TwoLevels(_)) {
                on_two_levels.insert(name.clone());
            }
            drawn.insert(name);
        }
        let by_messages = [
            "Allgather Bruck",
            "Allgather RecursiveDoubling",
            "Allgather Ring",
            "Allreduce Rabenseifner",
            "Allreduce RecursiveDoubling",
            "Allreduce Ring",
            "Alltoall Bruck",
            "Alltoall Pairwise",
            "Barrier Dissemination",
            "Bcast Chain",
            "Bcast KNomial",
            "Bcast ScatterAllgather",
            "Exchange",
            "Exscan",
            "Gather Binomial",
            "Gather Linear",
            "Reduce Binomial",
            "Reduce Rabenseifner",
            "ReduceScatter Pairwise",
            "ReduceScatter RecursiveHalving",
            "Scan",
            "Scatter Binomial",
            "Scatter Linear",
        ];
        assert!(drawn.iter().eq(&by_messages), "{drawn:?}");
        assert_eq!(in_order.len(), 7, "{in_order:?}");
        assert_eq!(on_two_levels.len(), 12, "{on_two_levels:?}");
    }

    /// The plans of all ranks are those of one correct operation.
    #[test]
    fn the_plans_of_the_ranks_agree() {
        for (size, seed) in (1..=9).flat_map(|size| (0..200).map(move |seed| (size, seed))) {
            let group = Group::range(WorldRank(0), size);
            let call = |rank| RoundCall::new(seed, 1, 1, &group, WorldRank(rank));
            if call(0).len <= 7 {
                let verified = samite_coll::check::verify(size, |rank| call(rank).plan);
                assert!(verified.is_ok(), "{verified:?}: {:?}", call(0).plan);
            }
        }
    }
}
