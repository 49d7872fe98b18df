//! Every algorithm for many sizes: the result, the rules of [`Violation`], and the costs that the sources give.

mod between;
mod hosts;
mod large;

use super::*;
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, exchange, gather, reduce, reduce_scatter, scatter,
};

/// Returns the cost of an operation with one plan for all ranks.
#[track_caller]
fn cost(size: u32, plan: &Plan) -> Cost {
    verify(size, |_| plan.clone()).unwrap_or_else(|violation| panic!("{plan:?}, {size} ranks: {violation:?}"))
}

/// Returns the logarithm to a base, rounded up.
fn log(base: u64, size: u32) -> u32 {
    (0..).find(|exponent| base.pow(*exponent) >= u64::from(size)).unwrap()
}

/// The sizes that are checked with all arguments.
fn sizes() -> impl Iterator<Item = u32> {
    1..=33
}

/// Larger sizes, below, at and above powers of two, and a prime.
const LARGER: [u32; 7] = [63, 64, 65, 100, 127, 255, 521];

/// Sizes for schedules whose cost does not grow with the square of the number of ranks.
const LARGEST: [u32; 4] = [1000, 2048, 4095, 4096];

const LENGTHS: [usize; 5] = [0, 1, 2, 5, 97];

/// Returns blocks of different lengths, some of which are empty. They lie in descending order of ranks, with an unused
/// element before each block.
fn uneven(size: u32) -> Blocks {
    let mut end = 0;
    let mut blocks: Vec<_> = (0..size)
        .rev()
        .map(|number| {
            let start = end + 1;
            end = start + (number as usize * 7) % 4;
            start..end
        })
        .collect();
    blocks.reverse();
    Blocks::Listed(blocks.into())
}

#[test]
fn barriers() {
    let plan = Plan::Barrier(barrier::Algorithm::Dissemination);
    for size in sizes().chain(LARGER).chain(LARGEST).chain([1 << 16]) {
        assert_eq!(cost(size, &plan).rounds, log(2, size));
    }
}

/// A rank depends on another rank if a chain of messages leads from the other rank to it. After a barrier each rank
/// depends on all ranks.
#[test]
fn no_rank_leaves_a_barrier_before_all_ranks_have_entered_it() {
    for size in sizes() {
        // The ranks on which each rank depends, as bits, after each round of a barrier.
        let mut known: Vec<u64> = (0..size).map(|rank| 1 << rank).collect();
        let steps_of = |rank| Plan::Barrier(barrier::Algorithm::Dissemination).steps(Place::new(rank, size));
        for round in 0..log(2, size) {
            let before = known.clone();
            for rank in 0..size {
                let from = steps_of(rank).find_map(|step| match step {
                    Step::Receive { from, round: of, .. } if of == round => Some(from),
                    _ => None,
                });
                known[rank as usize] |= before[from.unwrap() as usize];
            }
        }
        assert!(known.iter().all(|ranks| ranks.count_ones() == size));
    }
}

#[test]
fn broadcasts_along_trees() {
    for (size, k) in sizes().chain(LARGER).flat_map(|size| [2, 3, 4, 8].map(|k| (size, k))) {
        for root in (0..size).filter(|root| size <= 33 || root % 100 == 7) {
            let plan = |len| Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k }, root, len };
            let Cost { rounds, sent } = cost(size, &plan(3));
            assert!(rounds <= (k - 1) * log(k.into(), size), "{rounds} rounds");
            assert!(k > 2 || rounds == log(2, size), "the minimum is reached");
            assert_eq!(sent.iter().sum::<usize>(), 3 * (size as usize - 1));
            assert_eq!(cost(size, &plan(0)).rounds, 0);
        }
    }
    for size in LARGEST.into_iter().chain([1 << 16]) {
        let algorithm = bcast::Algorithm::KNomial { k: 2 };
        assert_eq!(cost(size, &Plan::Bcast { algorithm, root: 77, len: 1 }).rounds, log(2, size));
    }
}

#[test]
fn broadcasts_by_scatter_and_allgather() {
    for size in sizes().chain(LARGER) {
        for root in (0..size).filter(|root| size <= 33 || *root == 7) {
            for len in LENGTHS.into_iter().chain([2 * size as usize]) {
                let plan = Plan::Bcast { algorithm: bcast::Algorithm::ScatterAllgather, root, len };
                let Cost { rounds, sent } = cost(size, &plan);
                assert!(rounds < log(2, size) + size);
                if len == 2 * size as usize {
                    assert_eq!(rounds, log(2, size) + size - 1);
                    // The root sends n - 1 parts of two elements in each of the two phases.
                    assert_eq!(sent[root as usize], 2 * 2 * (size as usize - 1));
                }
            }
        }
    }
}

#[test]
fn broadcasts_along_chains() {
    for size in sizes().chain(LARGER) {
        for root in (0..size).filter(|root| size <= 33 || *root == 7) {
            for (len, piece) in
                LENGTHS.into_iter().flat_map(|len| [1, 3, 97, 1000, usize::MAX].map(|piece| (len, piece)))
            {
                let plan = Plan::Bcast { algorithm: bcast::Algorithm::Chain { piece }, root, len };
                let Cost { rounds, sent } = cost(size, &plan);
                let pieces = len.div_ceil(piece) as u32;
                let expected = if size == 1 || len == 0 { 0 } else { size - 1 + pieces - 1 };
                assert_eq!(rounds, expected, "{plan:?}, {size} ranks");
                assert_eq!(sent.iter().sum::<usize>(), len * (size as usize - 1));
            }
        }
    }
}

#[test]
fn gathers_and_scatters_along_trees() {
    for size in sizes().chain(LARGER) {
        for root in (0..size).filter(|root| size <= 33 || root % 100 == 7) {
            for (len, in_place) in [(0, false), (1, false), (3, false), (3, true)] {
                let (blocks, all) = (Blocks::Equal(len), len * (size as usize - 1));
                let algorithm = gather::Algorithm::Binomial;
                let gather = Plan::Gather { algorithm, root, blocks: blocks.clone(), len, in_place };
                let algorithm = scatter::Algorithm::Binomial;
                let scatter = Plan::Scatter { algorithm, root, blocks, len, in_place };
                let (gathered, scattered) = (cost(size, &gather), cost(size, &scatter));
                for rounds in [gathered.rounds, scattered.rounds] {
                    let least = if len == 0 { 0 } else { log(2, size) };
                    assert!((least..=least + 1).contains(&rounds), "{rounds} rounds for {size} ranks");
                    assert!(root > 0 || rounds == least);
                }
                assert_eq!(scattered.sent[root as usize], all);
                assert_eq!(gathered.sent[root as usize], 0);
                // Both use the same tree, in opposite directions.
                assert_eq!(gathered.sent.iter().sum::<usize>(), scattered.sent.iter().sum());
            }
        }
    }
}

#[test]
fn linear_gathers_and_scatters() {
    for size in sizes().chain(LARGER) {
        for root in (0..size).filter(|root| size <= 33 || *root == 7) {
            for in_place in [false, true] {
                // Only the root knows the blocks.
                let plan = |blocks: Blocks, rank: u32, is_gather: bool| {
                    let len = blocks.get(rank).len();
                    let blocks = if rank == root { blocks } else { Blocks::Equal(0) };
                    let (gather, scatter) = (gather::Algorithm::Linear, scatter::Algorithm::Linear);
                    match is_gather {
                        true => Plan::Gather { algorithm: gather, root, blocks, len, in_place },
                        false => Plan::Scatter { algorithm: scatter, root, blocks, len, in_place },
                    }
                };
                for is_gather in [true, false] {
                    verify(size, |rank| plan(uneven(size), rank, is_gather)).unwrap();
                    let even = verify(size, |rank| plan(Blocks::Equal(2), rank, is_gather)).unwrap();
                    assert_eq!(even.rounds, size - 1);
                }
            }
        }
    }
}

#[test]
fn allgathers() {
    for size in sizes().chain(LARGER) {
        for (len, in_place) in [(0, false), (1, true), (1, false), (3, false), (3, true)] {
            let plan = |algorithm| Plan::Allgather { algorithm, blocks: Blocks::Equal(len), in_place };
            let sends_all = |algorithm, rounds| {
                let Cost { rounds: found, sent } = cost(size, &plan(algorithm));
                assert_eq!(found, if len == 0 { 0 } else { rounds }, "{algorithm:?}, {size} ranks");
                assert!(sent.iter().all(|sent| *sent == len * (size as usize - 1)));
            };
            sends_all(allgather::Algorithm::Bruck, log(2, size));
            sends_all(allgather::Algorithm::Ring, size - 1);
            if size.is_power_of_two() {
                sends_all(allgather::Algorithm::RecursiveDoubling, log(2, size));
            }
            let blocks = uneven(size);
            cost(size, &Plan::Allgather { algorithm: allgather::Algorithm::Ring, blocks, in_place });
        }
    }
}

#[test]
fn alltoalls() {
    for size in sizes().chain(LARGER) {
        for (len, in_place) in [(0, false), (1, true), (1, false), (3, false), (3, true)] {
            let blocks = Blocks::Equal(len);
            let plan = |algorithm| Plan::Alltoall {
                algorithm,
                from: blocks.clone(),
                into: blocks.clone(),
                in_place,
            };
            let Cost { rounds, sent } = cost(size, &plan(alltoall::Algorithm::Bruck));
            assert_eq!(rounds, if len == 0 { 0 } else { log(2, size) });
            // A block travels as often as its distance has bits that are set.
            let bits: u32 = (0..size).map(u32::count_ones).sum();
            assert!(sent.iter().all(|sent| *sent == len * bits as usize));
            let Cost { rounds, sent } = cost(size, &plan(alltoall::Algorithm::Pairwise));
            assert!(sent.iter().all(|sent| *sent == len * (size as usize - 1)));
            match in_place {
                _ if len == 0 => assert_eq!(rounds, 0),
                false => assert_eq!(rounds, size - 1),
                true => assert!(rounds <= size, "{rounds} rounds for {size} ranks"),
            }
        }
    }
}

/// The length of a block depends on its sender and its receiver. In place, the two blocks of a pair of ranks have the
/// same length.
#[test]
fn alltoalls_with_blocks_of_different_lengths() {
    for size in sizes() {
        let blocks = |len_of: &dyn Fn(u32) -> usize| {
            let mut end = 0;
            let blocks = (0..size).map(|number| {
                let start = end;
                end += len_of(number);
                start..end
            });
            Blocks::Listed(blocks.collect())
        };
        let len = |from: u32, to: u32| ((from * 5 + to * 3) % 4) as usize;
        verify(size, |rank| Plan::Alltoall {
            algorithm: alltoall::Algorithm::Pairwise,
            from: blocks(&|to| len(rank, to)),
            into: blocks(&|from| len(from, rank)),
            in_place: false,
        })
        .unwrap();
        let symmetric = |from: u32, to: u32| ((from + to) % 4) as usize;
        verify(size, |rank| Plan::Alltoall {
            algorithm: alltoall::Algorithm::Pairwise,
            from: blocks(&|to| symmetric(rank, to)),
            into: blocks(&|from| symmetric(from, rank)),
            in_place: true,
        })
        .unwrap();
    }
}

#[test]
fn reductions_along_trees() {
    for size in sizes().chain(LARGER) {
        for root in (0..size).filter(|root| size <= 33 || root % 100 == 7) {
            for (len, commutes, in_place) in
                [(0, true, false), (2, true, false), (2, true, true), (2, false, false), (2, false, true)]
            {
                let algorithm = reduce::Algorithm::Binomial;
                let Cost { rounds, sent } =
                    cost(size, &Plan::Reduce { algorithm, root, len, commutes, in_place });
                let sent_on = u32::from(!commutes && root > 0);
                assert_eq!(rounds, if len == 0 { 0 } else { log(2, size) + sent_on });
                assert!(sent.iter().all(|sent| *sent <= len));
            }
        }
    }
    for size in LARGEST.into_iter().chain([1 << 16]) {
        let plan = |commutes| {
            let algorithm = reduce::Algorithm::Binomial;
            Plan::Reduce { algorithm, root: 77, len: 1, commutes, in_place: false }
        };
        assert_eq!(cost(size, &plan(true)).rounds, log(2, size));
        assert_eq!(cost(size, &plan(false)).rounds, log(2, size) + 1);
    }
}

#[test]
fn reductions_by_parts() {
    let algorithm = reduce::Algorithm::Rabenseifner;
    for size in sizes().chain(LARGER) {
        let (actors, fold) = (1 << size.ilog2(), usize::from(!size.is_power_of_two()));
        for root in (0..size).filter(|root| size <= 33 || root % 100 == 7) {
            for commutes in [true, false] {
                for (len, in_place) in
                    LENGTHS.into_iter().flat_map(|len| [false, true].map(|place| (len, place)))
                {
                    let plan = Plan::Reduce { algorithm, root, len, commutes, in_place };
                    let Cost { rounds, sent } = cost(size, &plan);
                    assert!(rounds <= 2 * size.ilog2() + fold as u32);
                    assert!(sent.iter().all(|sent| *sent <= 2 * len));
                }
                // The acting ranks divide this length equally.
                let len = 2 * actors;
                let plan = Plan::Reduce { algorithm, root, len, commutes, in_place: commutes };
                let Cost { rounds, sent } = cost(size, &plan);
                assert_eq!(rounds, 2 * size.ilog2() + fold as u32);
                let halved = len - len / actors;
                assert_eq!(sent[root as usize], halved, "the root sends nothing in the gather");
                if size > 1 {
                    let most = halved + len / 2;
                    assert_eq!(*sent.iter().max().unwrap(), most.max(fold * len));
                    assert_eq!(received(size, root, &plan), 2 * halved + received_before(size, root, len));
                }
            }
        }
    }
    for size in LARGEST.into_iter().chain([1 << 16]) {
        for commutes in [true, false] {
            cost(size, &Plan::Reduce { algorithm, root: 77, len: 3, commutes, in_place: false });
        }
    }
}

/// Returns the number of elements that a rank receives.
fn received(size: u32, rank: u32, plan: &Plan) -> usize {
    let len = |step| if let Step::Receive { into, .. } = step { into.len } else { 0 };
    plan.steps(Place::new(rank, size)).map(len).sum()
}

/// Returns the number of elements that a rank of a pair receives before the halving.
fn received_before(size: u32, rank: u32, len: usize) -> usize {
    let pairs = size - (1 << size.ilog2());
    if rank < 2 * pairs { len } else { 0 }
}

#[test]
fn reductions_to_all_ranks() {
    use allreduce::Algorithm::{Rabenseifner, RecursiveDoubling, Ring};

    for size in sizes().chain(LARGER) {
        let fold = if size.is_power_of_two() { 0 } else { 2 };
        for (len, in_place) in LENGTHS.into_iter().flat_map(|len| [false, true].map(|place| (len, place))) {
            let plan = |algorithm, commutes| Plan::Allreduce { algorithm, len, commutes, in_place };
            for commutes in [true, false] {
                let Cost { rounds, sent } = cost(size, &plan(RecursiveDoubling, commutes));
                let expected = size.ilog2() + fold;
                assert_eq!(rounds, if len == 0 { 0 } else { expected });
                assert!(sent.iter().all(|sent| *sent <= len * (size.ilog2() + 1) as usize));
            }
            for commutes in [true, false] {
                cost(size, &plan(Rabenseifner, commutes));
            }
            cost(size, &plan(Ring, true));
        }
        // Lengths that can be divided equally.
        let (len, in_place, commutes) = (size as usize * size.ilog2().max(1) as usize * 4, false, true);
        let plan = |algorithm, len| Plan::Allreduce { algorithm, len, commutes, in_place };
        let Cost { rounds, sent } = cost(size, &plan(Ring, len));
        assert_eq!(rounds, 2 * (size - 1));
        assert!(sent.iter().all(|sent| *sent == 2 * (len - len / size as usize)));
        let actors = 1 << size.ilog2();
        let len = 3 * actors;
        for commutes in [true, false] {
            let algorithm = Rabenseifner;
            let found = cost(size, &Plan::Allreduce { algorithm, len, commutes, in_place });
            assert_eq!(found.rounds, 2 * size.ilog2() + fold);
            assert_eq!(found.most_sent(), 2 * (len - 3) + if fold > 0 { len } else { 0 });
        }
    }
    for size in LARGEST.into_iter().chain([1 << 16]) {
        for (algorithm, commutes) in [RecursiveDoubling, Rabenseifner]
            .into_iter()
            .flat_map(|algorithm| [true, false].map(|commutes| (algorithm, commutes)))
        {
            cost(size, &Plan::Allreduce { algorithm, len: 3, commutes, in_place: false });
        }
    }
}

#[test]
fn scattered_reductions() {
    use reduce_scatter::Algorithm::{Pairwise, RecursiveHalving};

    /// Blocks of different lengths, one behind the other.
    fn consecutive(size: u32) -> Blocks {
        let mut end = 0;
        let blocks = (0..size).map(|number| {
            let start = end;
            end += (number as usize * 7) % 4;
            start..end
        });
        Blocks::Listed(blocks.collect())
    }

    for size in sizes().chain([63, 64, 65, 100]) {
        for in_place in [false, true] {
            for blocks in [Blocks::Equal(0), Blocks::Equal(1), Blocks::Equal(3), consecutive(size)] {
                let plan = |algorithm, commutes| {
                    let blocks = blocks.clone();
                    Plan::ReduceScatter { algorithm, blocks, commutes, in_place }
                };
                let halved = cost(size, &plan(RecursiveHalving, true));
                let pairs = cost(size, &plan(Pairwise, true));
                let ordered = cost(size, &plan(Pairwise, false));
                let Blocks::Equal(len @ 1..) = blocks else { continue };
                let fold = if size.is_power_of_two() { 0 } else { 2 };
                assert_eq!(halved.rounds, size.ilog2() + fold);
                if fold == 0 {
                    assert!(halved.sent.iter().all(|sent| *sent == len * (size as usize - 1)));
                }
                for pairwise in [pairs, ordered] {
                    assert_eq!(pairwise.rounds, size - 1);
                    assert!(pairwise.sent.iter().all(|sent| *sent == len * (size as usize - 1)));
                }
            }
        }
    }
}

#[test]
fn scans() {
    for size in sizes().chain(LARGER).chain(LARGEST).chain([1 << 16]) {
        for (len, in_place) in [(0, false), (2, false), (2, true)] {
            for plan in [Plan::Scan { len, in_place }, Plan::Exscan { len, in_place }] {
                let Cost { rounds, sent } = cost(size, &plan);
                assert_eq!(rounds, if len == 0 { 0 } else { log(2, size) });
                assert!(sent.iter().all(|sent| *sent <= len * log(2, size) as usize));
            }
        }
    }
}

/// Returns the sizes of groups that share a board.
fn sizes_of_boards() -> impl Iterator<Item = u32> {
    sizes().chain([48, samite_fabric::shm::board::RANKS_MAX])
}

#[test]
fn operations_on_the_board() {
    for size in sizes_of_boards() {
        let others = size as usize - 1;
        let barrier = cost(size, &Plan::Barrier(barrier::Algorithm::Board));
        assert_eq!((barrier.rounds, barrier.most_sent()), (u32::from(size > 1), 0));
        for (len, piece, in_place) in LENGTHS
            .into_iter()
            .flat_map(|len| [1, 3, 97, 1000].map(|piece| (len, piece)))
            .flat_map(|(len, piece)| [true, false].map(|in_place| (len, piece, in_place)))
        {
            let pieces = if others > 0 { len.div_ceil(piece) as u32 } else { 0 };
            let published = if others > 0 { len } else { 0 };
            for root in [0, size / 2, size - 1] {
                let plan = Plan::Bcast { algorithm: bcast::Algorithm::Board { piece }, root, len };
                let Cost { rounds, sent } = cost(size, &plan);
                assert_eq!((rounds, sent.iter().sum()), (pieces, published), "{plan:?}, {size} ranks");
                let (blocks, algorithm) = (Blocks::Equal(len), gather::Algorithm::Board { piece });
                let Cost { rounds, sent } =
                    cost(size, &Plan::Gather { algorithm, root, blocks, len, in_place });
                assert_eq!((rounds, sent.iter().sum()), (pieces, len * others));
                for commutes in [true, false] {
                    let algorithm = reduce::Algorithm::Board { piece };
                    let plan = Plan::Reduce { algorithm, root, len, commutes, in_place };
                    let Cost { rounds, sent } = cost(size, &plan);
                    assert_eq!((rounds, sent.iter().sum()), (pieces, len * others), "{plan:?}, {size} ranks");
                }
            }
            for commutes in [true, false] {
                let algorithm = allreduce::Algorithm::Board { piece };
                let Cost { rounds, sent } =
                    cost(size, &Plan::Allreduce { algorithm, len, commutes, in_place });
                assert_eq!(rounds, pieces);
                assert!(sent.iter().all(|sent| *sent == published));
            }
            if size <= 33 {
                let (blocks, algorithm) = (Blocks::Equal(len), allgather::Algorithm::Board { piece });
                let Cost { rounds, sent } = cost(size, &Plan::Allgather { algorithm, blocks, in_place });
                assert_eq!(rounds, pieces);
                assert!(sent.iter().all(|sent| *sent == published));
            }
        }
        for (len, in_place) in [(0, false), (1, true), (3, false)] {
            let algorithm = alltoall::Algorithm::Board { piece: 3 * size as usize };
            let (from, into) = (Blocks::Equal(len), Blocks::Equal(len));
            let Cost { rounds, sent } = cost(size, &Plan::Alltoall { algorithm, from, into, in_place });
            assert_eq!(rounds, u32::from(len > 0 && others > 0));
            assert!(sent.iter().all(|sent| *sent == if others > 0 { len * size as usize } else { 0 }));
        }
    }
}

#[test]
fn wrong_steps_on_the_board_are_found() {
    let algorithm = allreduce::Algorithm::Board { piece: 2 };
    let plans = vec![Plan::Allreduce { algorithm, len: 20, commutes: true, in_place: false }; 3];
    let changed = |change: fn(u32, Step) -> Option<Step>| {
        verify_steps(&plans, |at| {
            Steps::new(plans[0].steps(at).filter_map(move |step| change(at.rank(), step)))
        })
    };
    assert!(changed(|_, step| Some(step)).is_ok());
    let without_publication = changed(|rank, step| match step {
        Step::Publish { piece: 4, .. } if rank == 1 => None,
        step => Some(step),
    });
    assert!(matches!(without_publication, Err(Violation::Stuck(_))), "{without_publication:?}");
    let twice = changed(|_, step| match step {
        Step::Publish { from, .. } => Some(Step::Publish { piece: 0, from }),
        step => Some(step),
    });
    assert!(matches!(twice, Err(Violation::Pieces(..))), "{twice:?}");
    let longer = changed(|rank, step| match step {
        Step::Fetch { from, piece, whole, start, into } if rank == 2 => {
            Some(Step::Fetch { from, piece, whole: whole + 1, start, into })
        }
        step => Some(step),
    });
    assert!(matches!(longer, Err(Violation::Publication(2, _))), "{longer:?}");
    // A rank that takes no more steps has finished all pieces, but a rank that has not begun has not.
    let backwards = changed(|rank, step| match step {
        Step::Fetch { from, piece, whole, start, into } if rank == 0 => {
            Some(Step::Fetch { from, piece: 9 - piece, whole, start, into })
        }
        step => Some(step),
    });
    assert!(matches!(backwards, Err(Violation::Pieces(..) | Violation::Stuck(_))), "{backwards:?}");
}

#[test]
fn violations_are_found() {
    let plan = |len| Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len };
    assert_eq!(
        verify(2, |rank| plan(2 + rank as usize)),
        Err(Violation::Length { from: 0, to: 1, round: 0 })
    );
    // The two ranks name different roots.
    let roots = |root| Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root, len: 1 };
    assert_eq!(verify(2, roots), Err(Violation::Stuck(0)));
    assert_eq!(verify_partners(2, 0, roots), Err(Violation::Partners(0, 1)));
}

/// Changes the steps of a correct schedule.
#[test]
fn wrong_steps_are_found() {
    let (commutes, in_place) = (false, false);
    let algorithm = allreduce::Algorithm::RecursiveDoubling;
    let plans = vec![Plan::Allreduce { algorithm, len: 3, commutes, in_place }; 4];
    let changed = |change: fn(u32, Step) -> Option<Step>| {
        verify_steps(&plans, |at| {
            Steps::new(plans[0].steps(at).filter_map(move |step| change(at.rank(), step)))
        })
    };
    assert!(changed(|_, step| Some(step)).is_ok());
    let without_waits = changed(|_, step| (step != Step::WAIT).then_some(step));
    assert!(matches!(without_waits, Err(Violation::Races(..))), "{without_waits:?}");
    let without_copies = changed(|_, step| (!matches!(step, Step::Copy { .. })).then_some(step));
    assert!(matches!(without_copies, Err(Violation::Undefined(..))), "{without_copies:?}");
    let without_sum = changed(|rank, step| {
        let is_left_out = rank == 2 && matches!(step, Step::Reduce { .. });
        (!is_left_out).then_some(step)
    });
    assert!(matches!(without_sum, Err(Violation::Result(..))), "{without_sum:?}");
    let in_wrong_order = changed(|_, step| match step {
        Step::Reduce { from, into } => Some(Step::Reduce { from: into, into: from }),
        step => Some(step),
    });
    assert!(matches!(in_wrong_order, Err(Violation::Result(..))), "{in_wrong_order:?}");
    let to_input = changed(|_, step| match step {
        Step::Receive { from, round, into } => {
            Some(Step::Receive { from, round, into: Span { buffer: Buffer::Input, ..into } })
        }
        step => Some(step),
    });
    assert!(matches!(to_input, Err(Violation::WritesInput(..))), "{to_input:?}");
    let too_long = changed(|_, step| match step {
        Step::Copy { from, into } => {
            Some(Step::Copy { from: Span { len: 4, ..from }, into: Span { len: 4, ..into } })
        }
        step => Some(step),
    });
    assert!(matches!(too_long, Err(Violation::OutOfBounds(..))), "{too_long:?}");
}

/// A message that no step waits for may still be under way when the caller uses its buffers again.
#[test]
fn messages_without_a_wait_are_found() {
    let plans = vec![Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len: 1 }; 2];
    let steps =
        |at: Place| plans[0].steps(at).filter(move |step| at != Place::new(0, 2) || *step != Step::WAIT);
    assert_eq!(verify_steps(&plans, |at| Steps::new(steps(at))), Err(Violation::NotAwaited(0)));
}

#[test]
fn orders_of_operands_are_told_apart() {
    let of = |rank| Value::of(rank, 0);
    let (ascending, descending) = (of(0).before(of(1)), of(1).before(of(0)));
    assert!(ascending.is(descending, Same::Elements) && !ascending.is(descending, Same::Order));
    assert!(!ascending.before(of(2)).is(ascending, Same::Elements));
    let (left, right) = (ascending.before(of(2)), of(0).before(of(1).before(of(2))));
    assert!(left.is(right, Same::Order) && !left.is(right, Same::Tree));
}

/// A message of an exchange: the sender, the receiver, the round and the length.
type Listed = (u32, u32, u32, usize);

/// Returns the plans of an exchange with these messages. The spans of received messages lie in reverse order.
fn exchange(size: u32, messages: &[Listed]) -> Vec<Plan> {
    let lists = |rank: u32| {
        let (mut sends, mut receives, mut end) = (Vec::new(), Vec::new(), [0, 0]);
        for &(from, to, round, len) in messages {
            for (is_mine, partner, side) in [(from == rank, to, 0), (to == rank, from, 1)] {
                if is_mine {
                    let elements = end[side]..end[side] + len;
                    end[side] += len;
                    let list = if side == 0 { &mut sends } else { &mut receives };
                    list.push(Transfer { partner, round, elements });
                }
            }
        }
        for transfer in &mut receives {
            let elements = transfer.elements.clone();
            transfer.elements = end[1] - elements.end..end[1] - elements.start;
        }
        Plan::Exchange { sends: sends.into(), receives: receives.into() }
    };
    (0..size).map(lists).collect()
}

#[test]
fn exchanges_of_listed_messages() {
    let mut word = 1_u32;
    let mut next = |below: u32| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 16) % below
    };
    for size in sizes() {
        for number in 0..20 {
            let messages: Vec<_> =
                (0..number * 3).map(|_| (next(size), next(size), next(2), next(4) as usize)).collect();
            let plans = exchange(size, &messages);
            let Cost { rounds, sent } = verify(size, |rank| plans[rank as usize].clone()).unwrap();
            let sum = messages.iter().map(|message| message.3).sum::<usize>();
            assert_eq!(sent.iter().sum::<usize>(), sum);
            let of = |end: fn(&Listed) -> u32| {
                let most =
                    |rank| messages.iter().filter(|message| message.3 > 0 && end(message) == rank).count();
                (0..size).map(most).max().unwrap() as u32
            };
            let busiest = of(|message| message.0).max(of(|message| message.1));
            assert!(rounds >= busiest && rounds as usize <= messages.len());
        }
    }
}

#[test]
fn exchanges_of_all_pairs_have_a_message_in_each_round() {
    for size in sizes().chain(LARGER) {
        let plan = |rank| {
            let sent = |to: u32| to as usize * 2..to as usize * 2 + 2;
            let [sends, receives] = exchange::all_pairs(Place::new(rank, size), sent, sent);
            Plan::Exchange { sends, receives }
        };
        assert_eq!(verify(size, plan).unwrap().rounds, size);
    }
}

/// The cost without values is the cost of the verified schedule.
#[test]
fn the_cost_needs_no_values() {
    for size in [1, 2, 7, 16] {
        let chain = bcast::Algorithm::Chain { piece: 3 };
        let plans = [
            Plan::Bcast { algorithm: chain, root: size / 2, len: 20 },
            Plan::Allreduce {
                algorithm: allreduce::Algorithm::Rabenseifner,
                len: 32,
                commutes: true,
                in_place: false,
            },
        ];
        for plan in plans {
            assert_eq!(super::cost(size, |_| plan.clone()), verify(size, |_| plan.clone()));
        }
    }
    let plan = Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len: 1 << 40 };
    assert_eq!(super::cost(4, |_| plan.clone()).unwrap().most_sent(), 2 << 40);
}
