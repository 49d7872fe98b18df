//! Schedules for groups so large that the tests take minutes and some gigabytes. `ci/schedules.sh` runs them.

use super::*;

/// The largest groups whose schedules are verified with all values, at and below a power of two.
const IN_FULL: [u32; 2] = [4096, 4095];

/// A group in which `n * n` values take too much memory.
const WITHOUT_VALUES: u32 = 1 << 16;

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
    }
    if size.is_power_of_two() {
        plans.push((allgather(allgather::Algorithm::RecursiveDoubling), log(2, size)));
    }
    plans
}

#[test]
#[ignore = "it takes minutes: ci/schedules.sh runs it"]
fn schedules_of_4096_ranks() {
    for (size, (plan, rounds)) in
        IN_FULL.into_iter().flat_map(|size| large(size).into_iter().map(move |plan| (size, plan)))
    {
        assert_eq!(cost(size, &plan).rounds, rounds, "{plan:?}, {size} ranks");
    }
}

#[test]
#[ignore = "it takes minutes: ci/schedules.sh runs it"]
fn trees_of_65536_ranks() {
    let (size, root, in_place) = (WITHOUT_VALUES, 77, false);
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
#[ignore = "it takes minutes: ci/schedules.sh runs it"]
fn messages_of_65536_ranks() {
    let size = WITHOUT_VALUES;
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

#[test]
#[ignore = "it takes minutes: ci/schedules.sh runs it"]
fn partners_of_ten_thousand_ranks_of_a_million_agree() {
    partners_agree(10_000);
}
