//! Operations between two groups: each result against a direct computation.

use super::*;
use crate::algorithms::between::Between;

/// The sizes of two groups. The ranks of the first group come first.
#[derive(Clone, Copy, Debug)]
struct Groups {
    sizes: [u32; 2],
}

impl Groups {
    fn size(self) -> u32 {
        self.sizes[0] + self.sizes[1]
    }

    fn ranks(self, group: usize) -> Range<u32> {
        if group == 0 { 0..self.sizes[0] } else { self.sizes[0]..self.size() }
    }

    /// Returns the group of a rank, and its number in the group.
    fn of(self, rank: u32) -> (usize, u32) {
        if rank < self.sizes[0] { (0, rank) } else { (1, rank - self.sizes[0]) }
    }

    fn at(self, rank: u32) -> Between {
        let (group, _) = self.of(rank);
        Between::new(self.ranks(group), self.ranks(1 - group), Place::new(rank, self.size()))
    }

    /// Runs the plans of all ranks, and checks each output. `expected` returns the origin of an element: ranks that
    /// contributed it, in order, and the index of their element.
    fn check(
        self,
        plan: impl Fn(u32, Between) -> Plan,
        expected: impl Fn(u32) -> Vec<(Range<u32>, usize)>,
    ) -> u32 {
        let plans: Vec<Plan> = (0..self.size()).map(|rank| plan(rank, self.at(rank))).collect();
        let run = run_steps(&plans, |at| plans[at.rank() as usize].steps(at));
        let run = run.unwrap_or_else(|violation| panic!("{self:?}: {violation:?} of {plans:?}"));
        for (number, rank) in (0..).zip(&run.ranks) {
            let output = &rank.buffers.as_ref().unwrap()[Buffer::Output as usize];
            let expected = expected(number);
            assert_eq!(output.len(), expected.len(), "{self:?}: rank {number} of {plans:?}");
            for (value, (from, index)) in output.iter().zip(expected) {
                let values = from.map(|rank| Value::of(rank, index));
                let right = values.reduce(Value::before).unwrap();
                assert!(value.unwrap().is(right, Same::Order), "{self:?}: rank {number} of {plans:?}");
            }
        }
        run.cost().rounds
    }
}

fn groups() -> impl Iterator<Item = Groups> {
    (1..=8).chain([13, 16, 33]).flat_map(|low| [1, 2, 3, 5, 8, 17].map(|high| Groups { sizes: [low, high] }))
}

/// Returns the elements of one rank.
fn from(rank: u32, elements: Range<usize>) -> impl Iterator<Item = (Range<u32>, usize)> {
    elements.map(move |index| (rank..rank + 1, index))
}

/// Calls `check` for each rank as the root. It gets the group and the number of the root in its group.
fn each_root(check: impl Fn(Groups, u32, usize, u32)) {
    for groups in groups() {
        for root in (0..groups.size()).filter(|root| groups.size() < 12 || root % 5 == 1) {
            let (group, number) = groups.of(root);
            check(groups, root, group, number);
        }
    }
}

#[test]
fn broadcasts() {
    let algorithm = bcast::Algorithm::KNomial { k: 2 };
    each_root(|groups, root, group, number| {
        let plan = |rank, at: Between| match groups.of(rank).0 == group {
            false => at.bcast(number, 3, algorithm),
            true if rank == root => at.bcast_from(3),
            true => Between::nothing(),
        };
        let got = |rank| {
            let has = rank == root || groups.of(rank).0 != group;
            from(root, 0..if has { 3 } else { 0 }).collect()
        };
        assert_eq!(groups.check(plan, got), 1 + log(2, groups.sizes[1 - group]));
    });
}

#[test]
fn gathers_and_scatters() {
    each_root(|groups, root, group, number| {
        let remote = groups.ranks(1 - group);
        let rounds = 1 + log(2, groups.sizes[1 - group]);
        let plan = |rank, at: Between| match groups.of(rank).0 == group {
            false => at.gather(number, 2, gather::Algorithm::Binomial),
            true if rank == root => at.gather_to(2),
            true => Between::nothing(),
        };
        let all = |rank| remote.clone().filter(|_| rank == root).flat_map(|rank| from(rank, 0..2)).collect();
        assert_eq!(groups.check(plan, all), rounds);
        let plan = |rank, at: Between| match groups.of(rank).0 == group {
            false => at.scatter(number, 2, scatter::Algorithm::Binomial),
            true if rank == root => at.scatter_from(2),
            true => Between::nothing(),
        };
        let own = |rank| {
            let first = 2 * groups.of(rank).1 as usize;
            from(root, if remote.contains(&rank) { first..first + 2 } else { 0..0 }).collect()
        };
        assert_eq!(groups.check(plan, own), rounds);
    });
}

#[test]
fn gathers_and_scatters_of_blocks() {
    each_root(|groups, root, group, number| {
        let remote = groups.ranks(1 - group);
        let blocks: Vec<_> = {
            let mut end = 0;
            let mut block = |number: u32| {
                let start = end;
                end += number as usize % 4;
                (number, start..end)
            };
            (0..groups.sizes[1 - group]).map(&mut block).collect()
        };
        let mine = |rank: u32| vec![(number, 0..groups.of(rank).1 as usize % 4)];
        let plan = |rank, at: Between| match groups.of(rank).0 == group {
            false => at.exchange(&mine(rank), &[]),
            true if rank == root => at.exchange(&[], &blocks),
            true => Between::nothing(),
        };
        let each = |rank: u32| from(rank, 0..groups.of(rank).1 as usize % 4);
        groups.check(plan, |rank| remote.clone().filter(|_| rank == root).flat_map(each).collect());
        let plan = |rank, at: Between| match groups.of(rank).0 == group {
            false => at.exchange(&[], &mine(rank)),
            true if rank == root => at.exchange(&blocks, &[]),
            true => Between::nothing(),
        };
        let block = |rank: u32| blocks[groups.of(rank).1 as usize].1.clone();
        let own = |rank| from(root, if remote.contains(&rank) { block(rank) } else { 0..0 }).collect();
        groups.check(plan, own);
    });
}

#[test]
fn exchanges_of_all_ranks() {
    for groups in groups() {
        // The blocks of the two groups have different lengths.
        let lens = [2, 3];
        let plan = |rank, at: Between| {
            let group = groups.of(rank).0;
            let lens = [lens[group], lens[1 - group]];
            at.allgather(lens, gather::Algorithm::Binomial, bcast::Algorithm::KNomial { k: 2 })
        };
        let all = |rank| {
            let other = 1 - groups.of(rank).0;
            groups.ranks(other).flat_map(|rank| from(rank, 0..lens[other])).collect()
        };
        let [low, high] = groups.sizes.map(|size| log(2, size));
        assert!(groups.check(plan, all) <= 2 * low.max(high) + 1);

        // The block from rank i to rank j of the other group has i elements of the first group, or j of the second.
        let plan = |rank, at: Between| {
            let (group, number) = groups.of(rank);
            let len = |other: u32| if group == 0 { number } else { other } as usize;
            let start = |other: u32| (0..other).map(len).sum::<usize>();
            let block = |other: u32| start(other)..start(other) + len(other);
            at.all_pairs(block, block)
        };
        let each = |rank| {
            let (group, number) = groups.of(rank);
            let block = |other: u32| {
                let len = |of: u32| if group == 0 { of } else { groups.of(other).1 } as usize;
                let start: usize = (0..number).map(len).sum();
                // Both directions have the same lengths.
                let len = if group == 0 { number } else { groups.of(other).1 } as usize;
                from(other, start..start + len)
            };
            groups.ranks(1 - group).flat_map(block).collect::<Vec<_>>()
        };
        let rounds = groups.check(plan, each);
        assert!(rounds <= groups.sizes[0].max(groups.sizes[1]));
    }
}

#[test]
fn reductions() {
    each_root(|groups, root, group, number| {
        let remote = groups.ranks(1 - group);
        let plan = |rank, at: Between| match groups.of(rank).0 == group {
            false => at.reduce(number, 2, false),
            true if rank == root => at.reduce_to(2),
            true => Between::nothing(),
        };
        let whole = |rank| (0..2).filter(|_| rank == root).map(|index| (remote.clone(), index)).collect();
        groups.check(plan, whole);
    });
    let bcast = bcast::Algorithm::KNomial { k: 2 };
    for groups in groups() {
        let whole = |rank, elements: Range<usize>| {
            let remote = groups.ranks(1 - groups.of(rank).0);
            elements.map(|index| (remote.clone(), index)).collect::<Vec<_>>()
        };
        groups.check(|_, at| at.allreduce(3, false, bcast), |rank| whole(rank, 0..3));
        // Both groups have the same number of elements.
        let all = 2 * (groups.sizes[0] * groups.sizes[1]) as usize;
        let block = |rank: u32| {
            let (group, number) = groups.of(rank);
            Blocks::Equal(all / groups.sizes[group] as usize).get(number)
        };
        let plan = |rank, at: Between| {
            let blocks = Blocks::Equal(block(rank).len());
            at.reduce_scatter(blocks, false, scatter::Algorithm::Binomial)
        };
        groups.check(plan, |rank| whole(rank, block(rank)));
    }
}
