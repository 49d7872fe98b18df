//! Schedules for large groups. `ci/schedules.sh` verifies them for groups so large that it takes minutes and some
//! gigabytes.

use super::*;

/// Returns `large` in `ci/schedules.sh`, and otherwise `usual`.
#[expect(clippy::disallowed_methods, reason = "this is how the script tells the tests to take long")]
fn size(usual: u32, large: u32) -> u32 {
    if std::env::var_os("SAMITE_LARGE_SCHEDULES").is_some() { large } else { usual }
}

/// Returns the size of a group in which `n * n` values take too much memory.
fn without_values() -> u32 {
    size(1 << 12, 1 << 16)
}

/// Returns the plans whose schedules move a number of elements, or take a number of rounds, that grows faster than the
/// number of ranks, each with the number of rounds that the sources give.
fn large(size: u32) -> Vec<(Plan, u32)> {
    let (root, in_place, n) = (77, false, size as usize);
    let (one, fold) = (Blocks::Equal(1), if size.is_power_of_two() { 0 } else { 2 });
    let allgather = |algorithm| Plan::Allgather { algorithm, blocks: one.clone(), in_place };
    let alltoall =
        |algorithm, in_place| Plan::Alltoall { algorithm, from: one.clone(), into: one.clone(), in_place };
    let allreduce = |algorithm, commutes| Plan::Allreduce { algorithm, len: n, commutes, in_place };
    let scattered = |algorithm, commutes| {
        let blocks = one.clone();
        Plan::ReduceScatter { algorithm, blocks, commutes, in_place }
    };
    let mut plans = vec![
        (
            Plan::Bcast { algorithm: bcast::Algorithm::ScatterAllgather, root, len: n },
            log(2, size) + size - 1,
        ),
        (Plan::Bcast { algorithm: bcast::Algorithm::Chain { piece: 1 }, root, len: 97 }, size - 1 + 96),
        (allgather(allgather::Algorithm::Ring), size - 1),
        (allgather(allgather::Algorithm::Bruck), log(2, size)),
        (alltoall(alltoall::Algorithm::Pairwise, false), size - 1),
        (alltoall(alltoall::Algorithm::Bruck, false), log(2, size)),
        (alltoall(alltoall::Algorithm::Bruck, true), log(2, size)),
        (allreduce(allreduce::Algorithm::Ring, true), 2 * (size - 1)),
        (scattered(reduce_scatter::Algorithm::Pairwise, true), size - 1),
        (scattered(reduce_scatter::Algorithm::Pairwise, false), size - 1),
        (scattered(reduce_scatter::Algorithm::RecursiveHalving, true), size.ilog2() + fold),
    ];
    for commutes in [true, false] {
        plans.push((allreduce(allreduce::Algorithm::RecursiveDoubling, commutes), size.ilog2() + fold));
        plans.push((allreduce(allreduce::Algorithm::Rabenseifner, commutes), 2 * size.ilog2() + fold));
        let reduce =
            Plan::Reduce { algorithm: reduce::Algorithm::Rabenseifner, root, len: n, commutes, in_place };
        plans.push((reduce, 2 * size.ilog2() + fold / 2));
    }
    if size.is_power_of_two() {
        plans.push((allgather(allgather::Algorithm::RecursiveDoubling), log(2, size)));
    }
    plans
}

#[test]
fn schedules_with_a_value_for_each_pair_of_ranks() {
    let most = size(1 << 7, 1 << 12);
    for (size, (plan, rounds)) in
        [most, most - 1].into_iter().flat_map(|size| large(size).into_iter().map(move |plan| (size, plan)))
    {
        assert_eq!(cost(size, &plan).rounds, rounds, "{plan:?}, {size} ranks");
    }
}

#[test]
fn trees_of_many_ranks() {
    let (size, root, in_place) = (without_values(), 77, false);
    for k in [2, 3, 4, 8] {
        let plan = Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k }, root, len: 3 };
        assert!(cost(size, &plan).rounds <= (k - 1) * log(k.into(), size));
    }
    let blocks = Blocks::Equal(1);
    let algorithm = gather::Algorithm::Binomial;
    let gather = Plan::Gather { algorithm, root, blocks: blocks.clone(), len: 1, in_place };
    let algorithm = scatter::Algorithm::Binomial;
    let scatter = Plan::Scatter { algorithm, root, blocks, len: 1, in_place };
    for plan in [gather, scatter] {
        let rounds = cost(size, &plan).rounds;
        assert!((log(2, size)..=log(2, size) + 1).contains(&rounds), "{rounds} rounds: {plan:?}");
    }
}

/// These schedules have `n * n` values. Their messages, and so their rounds, are verified without them. Bruck's alltoall
/// also has `n * n` copies, so only some ranks and their partners are verified.
#[test]
fn messages_of_many_ranks() {
    let size = without_values();
    let is_logarithmic = |rounds: u32| rounds <= 2 * log(2, size) + 2;
    for (plan, rounds) in large(size).into_iter().filter(|(_, rounds)| is_logarithmic(*rounds)) {
        if matches!(plan, Plan::Alltoall { .. }) {
            for rank in (0..16).map(|number| number * 4099 % size) {
                assert_eq!(
                    verify_partners(size, rank, |_| plan.clone()),
                    Ok(2 * rounds as usize),
                    "{plan:?}"
                );
            }
        } else {
            let found = super::super::cost(size, |_| plan.clone());
            assert_eq!(found.map(|cost| cost.rounds), Ok(rounds), "{plan:?}");
        }
    }
}

/// Returns plans whose schedules have O(log n) steps, for large groups.
fn logarithmic() -> Vec<Plan> {
    let (root, len, in_place) = (77, 1000, false);
    let mut plans = vec![
        Plan::Barrier(barrier::Algorithm::Dissemination),
        Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root, len },
        Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 4 }, root, len },
        Plan::Gather {
            algorithm: gather::Algorithm::Binomial,
            root,
            blocks: Blocks::Equal(3),
            len: 3,
            in_place,
        },
        Plan::Scatter {
            algorithm: scatter::Algorithm::Binomial,
            root,
            blocks: Blocks::Equal(3),
            len: 3,
            in_place,
        },
        Plan::Allgather { algorithm: allgather::Algorithm::Bruck, blocks: Blocks::Equal(3), in_place },
        Plan::Scan { len, in_place },
        Plan::Exscan { len, in_place },
    ];
    for commutes in [true, false] {
        for algorithm in [reduce::Algorithm::Binomial, reduce::Algorithm::Rabenseifner] {
            plans.push(Plan::Reduce { algorithm, root, len, commutes, in_place });
        }
        let algorithm = allreduce::Algorithm::RecursiveDoubling;
        plans.push(Plan::Allreduce { algorithm, len, commutes, in_place });
        let algorithm = allreduce::Algorithm::Rabenseifner;
        plans.push(Plan::Allreduce { algorithm, len, commutes, in_place });
    }
    let (algorithm, blocks) = (reduce_scatter::Algorithm::RecursiveHalving, Blocks::Equal(3));
    plans.push(Plan::ReduceScatter { algorithm, blocks, commutes: true, in_place });
    plans
}

#[test]
fn partners_agree_among_a_million_ranks() {
    let samples = size(500, 10_000);
    for (size, plan) in [1 << 20, (1 << 20) - 3]
        .into_iter()
        .flat_map(|size| logarithmic().into_iter().map(move |plan| (size, plan)))
    {
        // Ranks from the whole group, ranks near its ends, and the root with its neighbours.
        let spread = (0..samples).map(|number| (u64::from(number) * 2099 % u64::from(size)) as u32);
        let sample = spread.chain([1, 76, 77, 78, size - 2, size - 1]);
        for rank in sample {
            let messages = verify_partners(size, rank, |_| plan.clone())
                .unwrap_or_else(|violation| panic!("{plan:?}: {violation:?}"));
            assert!(messages <= 4 * 21, "{messages} messages of rank {rank}: {plan:?}");
        }
    }
}
