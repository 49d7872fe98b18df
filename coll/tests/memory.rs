//! The memory that an operation of a million ranks takes at one of them, besides its buffers.

use std::alloc::System;
use std::sync::Arc;

use samite_coll::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};
use samite_coll::{Blocks, Call, Collective, OwnedBuffers, Place, Plan, Series, Steps};
use samite_fabric::Memory;
use samite_fabric::loopback::Hub;
use samite_p2p::{Config, Engine, Group, Identity, Time, WorldRank};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZE: u32 = 1 << 20;
const ROOT: u32 = 77;
/// The bounds, in bytes.
const STATE_MAX: usize = 16 << 10;
const FIRST_USE_MAX: usize = 64 << 10;

/// Returns the bytes that are allocated since the beginning of the region.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

/// Returns a plan for each algorithm, besides those on a board, which has fewer ranks.
fn plans() -> Vec<Plan> {
    let (root, len, in_place, blocks) = (ROOT, 1000, false, Blocks::Equal(3));
    let mut plans = vec![
        Plan::Barrier(barrier::Algorithm::Dissemination),
        Plan::Scan { len, in_place },
        Plan::Exscan { len, in_place },
    ];
    for algorithm in [gather::Algorithm::Binomial, gather::Algorithm::Linear] {
        plans.push(Plan::Gather { algorithm, root, blocks: blocks.clone(), len: 3, in_place });
    }
    for algorithm in [scatter::Algorithm::Binomial, scatter::Algorithm::Linear] {
        plans.push(Plan::Scatter { algorithm, root, blocks: blocks.clone(), len: 3, in_place });
    }
    let bcasts = [
        bcast::Algorithm::KNomial { k: 2 },
        bcast::Algorithm::KNomial { k: 4 },
        bcast::Algorithm::ScatterAllgather,
        bcast::Algorithm::Chain { piece: 10 },
    ];
    plans.extend(bcasts.map(|algorithm| Plan::Bcast { algorithm, root, len }));
    let allgathers =
        [allgather::Algorithm::Bruck, allgather::Algorithm::Ring, allgather::Algorithm::RecursiveDoubling];
    plans.extend(allgathers.map(|algorithm| Plan::Allgather { algorithm, blocks: blocks.clone(), in_place }));
    let alltoalls = [alltoall::Algorithm::Pairwise, alltoall::Algorithm::Bruck];
    plans.extend(alltoalls.map(|algorithm| {
        let (from, into) = (blocks.clone(), blocks.clone());
        Plan::Alltoall { algorithm, from, into, in_place }
    }));
    let scattered = [reduce_scatter::Algorithm::RecursiveHalving, reduce_scatter::Algorithm::Pairwise];
    plans.extend(scattered.map(|algorithm| {
        let blocks = blocks.clone();
        Plan::ReduceScatter { algorithm, blocks, commutes: true, in_place }
    }));
    let allreduces = [
        allreduce::Algorithm::RecursiveDoubling,
        allreduce::Algorithm::Rabenseifner,
        allreduce::Algorithm::Ring,
    ];
    plans.extend(allreduces.map(|algorithm| Plan::Allreduce { algorithm, len, commutes: true, in_place }));
    for algorithm in [reduce::Algorithm::Binomial, reduce::Algorithm::Rabenseifner] {
        plans.push(Plan::Reduce { algorithm, root, len, commutes: true, in_place });
    }
    plans
}

/// Returns the largest number of bytes that the schedule of a rank holds while its steps are taken.
fn of_schedule(plan: &Plan, rank: u32) -> usize {
    let region = Region::new(HEAP);
    let mut most = 0;
    for _ in plan.steps(Place::new(rank, SIZE)) {
        most = most.max(held(&region));
    }
    most + size_of::<Steps>()
}

/// Returns the bytes that the beginning of a rank's first operation on a communicator takes, with the states of the
/// partners of its first steps.
fn of_first_use(plan: &Plan, rank: u32) -> usize {
    let port = Hub::new().port();
    let identity = Identity { rank: WorldRank(rank), size: SIZE, incarnation: 0, secret: [3; 16] };
    let incarnation = identity.first_incarnation(WorldRank(rank)).get();
    let mut engine: Engine<_> = Engine::new(port, Identity { incarnation, ..identity }, Config::default());
    let group = Group::range(WorldRank(0), SIZE);
    let at = Place::new(rank, SIZE);
    let buffers = OwnedBuffers {
        input: Memory::zeroed(plan.input(at)),
        output: Memory::zeroed(plan.output(at)),
        scratch: Memory::zeroed(plan.scratch(at)),
        lens: [plan.input(at), plan.output(at)],
        reduce: Arc::new(|_, _| {}),
        layouts: None,
    };
    let region = Region::new(HEAP);
    let call = Call {
        plan,
        group,
        context: 0,
        series: Series::Program,
        number: 0,
        element: 1,
        deadline: Time::NEVER,
        check: None,
        checked_ends: None,
    };
    let mut collective = Collective::begin(&mut engine, Time::ZERO, call, WorldRank(rank), buffers);
    let bytes = held(&region) + size_of_val(&collective);
    // It waits, or its messages wait for the addresses of its partners.
    let end = collective.take_result();
    assert!(matches!(end, None | Some(Ok(()))), "{end:?}");
    bytes
}

#[test]
fn a_rank_of_a_million_needs_little_memory() {
    for plan in plans() {
        for rank in [0, 5, ROOT, SIZE / 2, SIZE - 1] {
            let bytes = of_schedule(&plan, rank);
            assert!(bytes < STATE_MAX, "{bytes} bytes of rank {rank}: {plan:?}");
        }
    }
    // The root has 20 partners in its first steps, and the other rank has two.
    let algorithm = bcast::Algorithm::KNomial { k: 2 };
    for (plan, rank) in [
        (Plan::Barrier(barrier::Algorithm::Dissemination), 5),
        (Plan::Bcast { algorithm, root: ROOT, len: 8 }, ROOT),
    ] {
        let bytes = of_first_use(&plan, rank);
        assert!(bytes < FIRST_USE_MAX, "{bytes} bytes of rank {rank}: {plan:?}");
    }
}
