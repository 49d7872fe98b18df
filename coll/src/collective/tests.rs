//! Operations of several engines over the loopback port, in one thread.

mod board;

use std::cell::Cell;

use samite_fabric::loopback::{Hub, Loopback};
use samite_p2p::{Config, Identity};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};
use crate::schedule::Blocks;

/// An element: the affine function x → m x + c, modulo 2^64.
type Affine = [u64; 2];

/// Returns the composition of two functions, which applies the left function first. Composition does not commute.
fn compose([m, c]: Affine, [n, d]: Affine) -> Affine {
    [m.wrapping_mul(n), c.wrapping_mul(n).wrapping_add(d)]
}

fn sum([m, c]: Affine, [n, d]: Affine) -> Affine {
    [m.wrapping_add(n), c.wrapping_add(d)]
}

fn reduce_by(op: fn(Affine, Affine) -> Affine) -> impl Fn(&[u8], &mut [u8]) {
    move |from, into| {
        let from = <[Affine]>::ref_from_bytes(from).unwrap();
        let into = <[Affine]>::mut_from_bytes(into).unwrap();
        for (left, right) in from.iter().zip(into) {
            *right = op(*left, *right);
        }
    }
}

/// Returns element `index` of a rank's contribution.
fn of(rank: u32, index: usize) -> Affine {
    [u64::from(rank) * 2 + 3, index as u64 * 7 + u64::from(rank)]
}

const ELEMENT: usize = size_of::<Affine>();
const CONTROL: u32 = 0;

fn engines(n: u32) -> Vec<Engine<Loopback>> {
    engines_with(n, &Config::default())
}

fn engines_with(n: u32, config: &Config) -> Vec<Engine<Loopback>> {
    let hub = Hub::new();
    engines_on((0..n).map(|_| hub.port()).collect(), config)
}

/// Returns engines that know each other.
fn engines_on<P: Port>(ports: Vec<P>, config: &Config) -> Vec<Engine<P>> {
    let n = ports.len() as u32;
    let addresses: Vec<_> = ports.iter().map(Port::address).collect();
    let identity = |rank| {
        let identity = Identity { rank: WorldRank(rank), size: n, incarnation: 0, secret: [9; 16] };
        Identity { incarnation: identity.first_incarnation(WorldRank(rank)).get(), ..identity }
    };
    let engine = |(rank, port)| {
        let mut engine = Engine::new(port, identity(rank), config.clone());
        for (other, address) in (0..).zip(&addresses) {
            engine.introduce(WorldRank(other), identity(other).incarnation, address.clone()).unwrap();
        }
        engine
    };
    (0..).zip(ports).map(engine).collect()
}

/// The buffers of one rank.
struct Memory {
    input: Vec<Affine>,
    output: Vec<Affine>,
    scratch: Vec<Affine>,
}

/// Stands for elements that an operation has not written.
const UNTOUCHED: Affine = [0xdead, 0xbeef];

impl Memory {
    fn new(plan: &Plan, at: Place) -> Self {
        let contribution = |len| (0..len).map(|index| of(at.rank(), index)).collect::<Vec<_>>();
        let mut memory = Self {
            input: contribution(plan.input(at)),
            output: vec![UNTOUCHED; plan.output(at)],
            scratch: vec![UNTOUCHED; plan.scratch(at)],
        };
        if let Some(range) = in_output(plan, at) {
            let contribution = contribution(range.len());
            memory.output[range].copy_from_slice(&contribution);
        }
        memory
    }

    fn buffers<'a>(&'a mut self, reduce: &'a dyn Fn(&[u8], &mut [u8])) -> BorrowedBuffers<'a> {
        let Self { input, output, scratch } = self;
        BorrowedBuffers {
            input: input.as_bytes(),
            output: output.as_mut_bytes(),
            scratch: scratch.as_mut_bytes(),
            reduce,
            layouts: None,
        }
    }
}

/// Returns the part of the output that contains the rank's contribution.
fn in_output(plan: &Plan, at: Place) -> Option<std::ops::Range<usize>> {
    let plan = plan.operation();
    match plan {
        Plan::Bcast { root, len, .. } => (*root == at.rank()).then_some(0..*len),
        Plan::Gather { root, blocks, in_place: true, .. } if *root == at.rank() => {
            Some(blocks.get(at.rank()))
        }
        Plan::Allgather { blocks, in_place: true, .. } => Some(blocks.get(at.rank())),
        Plan::Scatter { .. } | Plan::Gather { .. } => None,
        _ => (plan.input(at) == 0).then_some(0..plan.output(at)),
    }
}

/// Returns the arguments with which each rank begins one operation.
fn calls(plan: &Plan, n: u32, number: u32) -> Call<'_> {
    let group = Group::range(WorldRank(0), n);
    let deadline = Time::NEVER;
    let (context, series, element) = (CONTROL, Series::Program, ELEMENT);
    Call { plan, group, context, series, number, element, deadline, check: None, checked_ends: None }
}

/// Drives all operations until each has ended.
fn drive<P: Port>(engines: &mut [Engine<P>], operations: &mut [Collective<BorrowedBuffers<'_>>]) {
    for _ in 0..100_000 {
        step(engines, operations, Time::ZERO);
        if operations.iter().all(Collective::has_ended) {
            return;
        }
    }
    panic!("the operations do not end: {operations:?}");
}

/// Drives the operations at the time 0, then at the time [`LATER`], and then at the time at which no rank waits for
/// answers of the others any more. Each time it polls so often that nothing more happens at the end.
fn drive_until_later<P: Port>(engines: &mut [Engine<P>], operations: &mut [Collective<BorrowedBuffers<'_>>]) {
    (0..100).for_each(|_| step(engines, operations, Time::ZERO));
    (0..100).for_each(|_| step(engines, operations, LATER));
    (0..100).for_each(|_| step(engines, operations, LATER.after(1_000_000_000)));
}

fn step<P: Port>(engines: &mut [Engine<P>], operations: &mut [Collective<BorrowedBuffers<'_>>], now: Time) {
    for (engine, operation) in engines.iter_mut().zip(operations.iter_mut()) {
        engine.poll(now, operation).unwrap();
        operation.advance(engine);
        operation.attend(engine);
    }
}

/// Begins an operation by [`Collective::begin`] or by [`Collective::begin_on_board`], depending on the rank and the
/// number of the operation.
fn begin<'a, P: Port>(
    engine: &mut Engine<P>,
    call: Call<'_>,
    rank: WorldRank,
    buffers: BorrowedBuffers<'a>,
) -> Collective<BorrowedBuffers<'a>> {
    let choice = rank.0 + call.number;
    if choice.is_multiple_of(2) {
        return Collective::begin(engine, Time::ZERO, call, rank, buffers);
    }
    let (same, at) = (call.clone(), call.place(rank));
    let call = Call { checked_ends: Some(engine.ends()), ..call };
    match Collective::begin_on_board(engine, Time::ZERO, call, rank, buffers, choice % 5) {
        Begun::UnderWay(collective) => *collective,
        Begun::Ended { buffers, leaves_messages } => {
            let steps = same.plan.steps(at);
            let mut collective = Collective::new(engine, Time::ZERO, same, at, steps, buffers);
            collective.leaves_messages = leaves_messages;
            collective.result = Some(Ok(()));
            collective
        }
    }
}

const LATER: Time = Time::ZERO.after(500_000_000);

/// A deadline that has passed at [`LATER`].
const SOON: Time = Time::ZERO.after(1_000_000);

/// Runs an operation, and returns the outputs.
fn run<P: Port>(engines: &mut [Engine<P>], plan: &Plan, number: u32) -> Vec<Vec<Affine>> {
    let n = engines.len() as u32;
    let reduce = reduce_by(if plan.commutes() { sum } else { compose });
    let mut memories: Vec<_> = (0..n).map(|rank| Memory::new(plan, Place::new(rank, n))).collect();
    let at_rank = |((rank, engine), memory): ((u32, &mut Engine<P>), _)| {
        let buffers = Memory::buffers(memory, &reduce);
        begin(engine, calls(plan, n, number), WorldRank(rank), buffers)
    };
    let mut operations: Vec<_> = (0..).zip(engines.iter_mut()).zip(&mut memories).map(at_rank).collect();
    drive(engines, &mut operations);
    for operation in &mut operations {
        assert!(matches!(operation.take_result(), Some(Ok(()))));
    }
    memories.into_iter().map(|memory| memory.output).collect()
}

/// Runs an operation, and compares its outputs with the results that this function computes without messages.
fn check<P: Port>(engines: &mut [Engine<P>], plan: &Plan, number: &mut u32) {
    let n = engines.len() as u32;
    let outputs = run(engines, plan, *number);
    *number += 1;
    let reduced = |ranks: std::ops::Range<u32>, index: usize| {
        let op = if plan.commutes() { sum } else { compose };
        ranks.map(|rank| of(rank, index)).reduce(op).unwrap()
    };
    for (rank, output) in (0..n).zip(&outputs) {
        let expected: Vec<Affine> = match plan.operation() {
            Plan::Barrier(_) => Vec::new(),
            Plan::Bcast { root, len, .. } => (0..*len).map(|index| of(*root, index)).collect(),
            Plan::Gather { root, .. } | Plan::Reduce { root, .. } if *root != rank => Vec::new(),
            Plan::Gather { len, .. } | Plan::Allgather { blocks: Blocks::Equal(len), .. } => {
                (0..n).flat_map(|from| (0..*len).map(move |index| of(from, index))).collect()
            }
            Plan::Scatter { root, in_place: true, .. } if *root == rank => Vec::new(),
            Plan::Scatter { root, len, .. } => {
                (0..*len).map(|index| of(*root, rank as usize * len + index)).collect()
            }
            Plan::Alltoall { into: Blocks::Equal(len), .. } => {
                let block = |from| (0..*len).map(move |index| of(from, rank as usize * len + index));
                (0..n).flat_map(block).collect()
            }
            Plan::Reduce { len, .. } | Plan::Allreduce { len, .. } => {
                (0..*len).map(|index| reduced(0..n, index)).collect()
            }
            Plan::ReduceScatter { blocks: Blocks::Equal(len), .. } => {
                (0..*len).map(|index| reduced(0..n, rank as usize * len + index)).collect()
            }
            Plan::Scan { len, .. } => (0..*len).map(|index| reduced(0..rank + 1, index)).collect(),
            Plan::Exscan { len, in_place } if rank == 0 => {
                (0..*len).map(|index| if *in_place { of(0, index) } else { UNTOUCHED }).collect()
            }
            Plan::Exscan { len, .. } => (0..*len).map(|index| reduced(0..rank, index)).collect(),
            _ => unreachable!("the tests have equal blocks"),
        };
        assert_eq!(output[..expected.len()], expected, "rank {rank} of {n}, {plan:?}");
    }
}

/// Returns the plans of all operations with all algorithms that `n` ranks can use.
fn plans(n: u32, root: u32, len: usize, in_place: bool) -> Vec<Plan> {
    let blocks = || Blocks::Equal(len);
    let mut plans = vec![
        Plan::Barrier(barrier::Algorithm::Dissemination),
        Plan::Scan { len, in_place },
        Plan::Exscan { len, in_place },
    ];
    let (tree, wide) = (bcast::Algorithm::KNomial { k: 2 }, bcast::Algorithm::KNomial { k: 3 });
    for algorithm in [tree, wide, bcast::Algorithm::ScatterAllgather, bcast::Algorithm::Chain { piece: 3 }] {
        plans.push(Plan::Bcast { algorithm, root, len });
    }
    for algorithm in [gather::Algorithm::Binomial, gather::Algorithm::Linear] {
        plans.push(Plan::Gather { algorithm, root, blocks: blocks(), len, in_place });
    }
    for algorithm in [scatter::Algorithm::Binomial, scatter::Algorithm::Linear] {
        plans.push(Plan::Scatter { algorithm, root, blocks: blocks(), len, in_place });
    }
    let doubling = n.is_power_of_two().then_some(allgather::Algorithm::RecursiveDoubling);
    for algorithm in [allgather::Algorithm::Bruck, allgather::Algorithm::Ring].into_iter().chain(doubling) {
        plans.push(Plan::Allgather { algorithm, blocks: blocks(), in_place });
    }
    for algorithm in [alltoall::Algorithm::Bruck, alltoall::Algorithm::Pairwise] {
        plans.push(Plan::Alltoall { algorithm, from: blocks(), into: blocks(), in_place });
    }
    let pairwise = reduce_scatter::Algorithm::Pairwise;
    for commutes in [true, false] {
        for algorithm in [reduce::Algorithm::Binomial, reduce::Algorithm::Rabenseifner] {
            plans.push(Plan::Reduce { algorithm, root, len, commutes, in_place });
        }
        let algorithm = allreduce::Algorithm::RecursiveDoubling;
        plans.push(Plan::Allreduce { algorithm, len, commutes, in_place });
        let algorithm = allreduce::Algorithm::Rabenseifner;
        plans.push(Plan::Allreduce { algorithm, len, commutes, in_place });
        plans.push(Plan::ReduceScatter { algorithm: pairwise, blocks: blocks(), commutes, in_place });
    }
    let (commutes, halving) = (true, reduce_scatter::Algorithm::RecursiveHalving);
    plans.push(Plan::ReduceScatter { algorithm: halving, blocks: blocks(), commutes, in_place });
    plans.push(Plan::Allreduce { algorithm: allreduce::Algorithm::Ring, len, commutes, in_place });
    plans
}

/// Returns the plans of all operations that `n` ranks can carry out on their board.
fn plans_on_board(n: u32, root: u32, len: usize, in_place: bool, piece: usize) -> Vec<Plan> {
    let blocks = || Blocks::Equal(len);
    let mut plans = vec![
        Plan::Barrier(barrier::Algorithm::Board),
        Plan::Bcast { algorithm: bcast::Algorithm::Board { piece }, root, len },
        Plan::Allgather { algorithm: allgather::Algorithm::Board { piece }, blocks: blocks(), in_place },
        Plan::Gather { algorithm: gather::Algorithm::Board { piece }, root, blocks: blocks(), len, in_place },
    ];
    for commutes in [true, false] {
        let algorithm = reduce::Algorithm::Board { piece };
        plans.push(Plan::Reduce { algorithm, root, len, commutes, in_place });
        let algorithm = allreduce::Algorithm::Board { piece };
        plans.push(Plan::Allreduce { algorithm, len, commutes, in_place });
    }
    if len * n as usize <= piece {
        let algorithm = alltoall::Algorithm::Board { piece };
        plans.push(Plan::Alltoall { algorithm, from: blocks(), into: blocks(), in_place });
    }
    plans
}

fn at_rest<P: Port>(engines: &mut [Engine<P>]) {
    for _ in 0..10 {
        for engine in engines.iter_mut() {
            engine.poll(Time::ZERO, &mut ()).unwrap();
        }
    }
    for engine in engines {
        engine.check_invariants();
        let usage = engine.usage();
        assert_eq!((usage.requests, usage.queued, usage.unexpected_messages), (0, 0, 0), "{usage:?}");
    }
}

#[test]
fn every_operation_has_the_result_that_is_computed_directly() {
    for n in 1..=9 {
        let (mut engines, mut number) = (engines(n), 0);
        for root in [0, n / 2, n - 1] {
            for (len, in_place) in [(0, false), (1, true), (5, false), (97, true)] {
                for plan in plans(n, root, len, in_place) {
                    check(&mut engines, &plan, &mut number);
                }
            }
        }
        at_rest(&mut engines);
    }
}

/// Messages that are longer than a packet.
#[test]
fn long_messages() {
    for n in [2, 5] {
        let (mut engines, mut number) = (engines(n), 0);
        for (len, in_place) in [(3000, true), (40_000, false)] {
            let longer =
                |plan: &Plan| !matches!(plan, Plan::Bcast { algorithm: bcast::Algorithm::Chain { .. }, .. });
            for plan in plans(n, 1, len, in_place).iter().filter(|plan| longer(plan)) {
                check(&mut engines, plan, &mut number);
            }
            let algorithm = bcast::Algorithm::Chain { piece: 7000 };
            check(&mut engines, &Plan::Bcast { algorithm, root: 1, len }, &mut number);
        }
        at_rest(&mut engines);
    }
}

/// The group is not a range of the job's ranks, and has another order than the job.
#[test]
fn ranks_of_a_group_are_translated() {
    let engines = engines(5);
    let ranks = [4, 0, 3];
    let group = Group::new(ranks.map(WorldRank)).unwrap();
    let plan =
        Plan::Allgather { algorithm: allgather::Algorithm::Ring, blocks: Blocks::Equal(2), in_place: false };
    let reduce = reduce_by(sum);
    let mut memories: Vec<_> = (0..3).map(|rank| Memory::new(&plan, Place::new(rank, 3))).collect();
    let mut engines: Vec<_> = engines.into_iter().map(Some).collect();
    let mut members: Vec<_> = ranks.iter().filter_map(|rank| engines[*rank as usize].take()).collect();
    let begin = |((rank, engine), memory): ((&u32, &mut Engine<Loopback>), _)| {
        let call = Call { group: group.clone(), ..calls(&plan, 3, 0) };
        Collective::begin(engine, Time::ZERO, call, WorldRank(*rank), Memory::buffers(memory, &reduce))
    };
    let mut operations: Vec<_> = ranks.iter().zip(&mut members).zip(&mut memories).map(begin).collect();
    drive(&mut members, &mut operations);
    let expected: Vec<Affine> = (0..3).flat_map(|rank| [of(rank, 0), of(rank, 1)]).collect();
    assert!(memories.iter().all(|memory| memory.output == expected));
}

/// Begins an operation at all ranks, lets `disturb` act, and returns the results.
fn disturbed<P: Port>(
    engines: &mut [Engine<P>],
    plans: &[Plan],
    number: u32,
    deadline: Time,
    reduce: &dyn Fn(&[u8], &mut [u8]),
    disturb: impl FnOnce(&mut [Engine<P>], &mut [Collective<BorrowedBuffers<'_>>]),
) -> Vec<Result<(), Failed>> {
    let n = engines.len() as u32;
    let mut memories: Vec<_> =
        (0..n).zip(plans).map(|(rank, plan)| Memory::new(plan, Place::new(rank, n))).collect();
    let mut operations = Vec::new();
    for ((rank, plan), memory) in (0..).zip(plans).zip(&mut memories) {
        let call = Call { deadline, ..calls(plan, n, number) };
        let engine = &mut engines[rank as usize];
        operations.push(begin(engine, call, WorldRank(rank), memory.buffers(reduce)));
    }
    disturb(engines, &mut operations);
    operations.iter_mut().map(|operation| operation.take_result().expect("it has ended")).collect()
}

fn tree(len: usize) -> Plan {
    Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len }
}

/// Rank 2 gives up before it has received anything, so rank 3 below it in the tree cannot finish. Ranks 0 and 1 finish.
#[test]
fn a_rank_that_gives_up_ends_the_operation_where_it_is_needed() {
    let mut engines = engines(4);
    let quits = |engines: &mut [Engine<Loopback>], operations: &mut [Collective<BorrowedBuffers<'_>>]| {
        operations[2].quit(&mut engines[2], Error::Cancelled { fate: samite_p2p::Fate::NotDelivered });
        drive(engines, operations);
    };
    let results = disturbed(&mut engines, &vec![tree(1); 4], 0, Time::NEVER, &reduce_by(sum), quits);
    assert!(matches!(results[..2], [Ok(()), Ok(())]), "{results:?}");
    assert!(matches!(results[2], Err(Failed::Error(Error::Cancelled { .. }))), "{results:?}");
    let abandoned = |result: &Result<(), Failed>| {
        matches!(result, Err(Failed::Error(Error::Abandoned { rank: WorldRank(2), .. })))
    };
    assert!(abandoned(&results[3]), "{results:?}");
    // The next operation does not receive the message that rank 2 has not received in this operation.
    engines.iter_mut().for_each(|engine| discard_before(engine, CONTROL, 1));
    check(&mut engines, &tree(1), &mut 1);
    discard_before(&mut engines[2], CONTROL, 2);
    at_rest(&mut engines);
}

/// The root of a broadcast waits for no other rank, so it may have begun later operations.
#[test]
fn the_messages_of_later_operations_remain_when_the_numbers_begin_again() {
    let (mut engines, plan, reduce) = (engines(2), tree(1), reduce_by(sum));
    check(&mut engines, &plan, &mut 0);
    let begins = |engine: &mut Engine<Loopback>, rank, number: u32| {
        let mut memory = Memory::new(&plan, Place::new(rank, 2));
        let buffers = memory.buffers(&reduce);
        let call = calls(&plan, 2, number);
        Collective::begin(engine, Time::ZERO, call, WorldRank(rank), buffers).has_ended()
    };
    let last = NUMBERS;
    // Rank 1 receives the message of operation `last - 1` and one of operation `last` in no operation.
    for number in [last - 1, last, last, last + 1, last + 2] {
        assert!(begins(&mut engines[0], 0, number));
    }
    while engines[1].poll(Time::ZERO, &mut ()).unwrap() > 0 {}
    for number in [last, last + 1, last + 2] {
        discard_before(&mut engines[1], CONTROL, number);
        assert!(begins(&mut engines[1], 1, number), "the message of operation {number} has arrived");
    }
    at_rest(&mut engines);
}

/// Rank 2 fails, and rank 0 knows that. Rank 1 learns it from the notice of rank 0. The envelope of the notice arrives
/// without its bytes, because rank 0 has no credit for them.
#[test]
fn a_notice_without_credit_names_the_failed_rank() {
    let mut config = Config::default();
    (config.unexpected_max, config.window_min) = (10_000, 4_000);
    let mut engines = engines_with(3, &config);
    for tag in 0..100 {
        let data = samite_fabric::Memory::zeroed(1000);
        engines[0].isend(Time::ZERO, WorldRank(1), 1, tag, data, Time::NEVER).unwrap();
    }
    let chain = Plan::Bcast { algorithm: bcast::Algorithm::Chain { piece: 1 }, root: 2, len: 1 };
    let reduce = reduce_by(sum);
    let mut memories: Vec<_> = (0..2).map(|rank| Memory::new(&chain, Place::new(rank, 3))).collect();
    let mut operations: Vec<_> = (0..2)
        .zip(&mut memories)
        .map(|(rank, memory)| {
            let (engine, call) = (&mut engines[rank as usize], calls(&chain, 3, 0));
            Collective::begin(engine, Time::ZERO, call, WorldRank(rank), memory.buffers(&reduce))
        })
        .collect();
    (0..100).for_each(|_| step(&mut engines[..2], &mut operations, Time::ZERO));
    engines[0].peer_failed(WorldRank(2), None, Cause::Died("killed".into())).unwrap();
    drive(&mut engines[..2], &mut operations);
    for operation in &mut operations {
        let result = operation.take_result();
        let is_of_2 = |result: &_| {
            matches!(result, Some(Err(Failed::Error(Error::PeerFailed { rank: WorldRank(2), .. }))))
        };
        assert!(is_of_2(&result), "{result:?}");
    }
}

/// Rank 1 gives up, and so does not receive a long message of rank 0. Rank 0 learns that.
#[test]
fn the_sender_of_a_long_message_learns_that_its_receiver_has_given_up() {
    let mut engines = engines(2);
    let quits = |engines: &mut [Engine<Loopback>], operations: &mut [Collective<BorrowedBuffers<'_>>]| {
        operations[1].quit(&mut engines[1], Error::Cancelled { fate: samite_p2p::Fate::NotDelivered });
        drive(engines, operations);
    };
    let results = disturbed(&mut engines, &vec![tree(200_000); 2], 5, Time::NEVER, &reduce_by(sum), quits);
    assert!(
        matches!(results[0], Err(Failed::Error(Error::Abandoned { rank: WorldRank(1), .. }))),
        "{results:?}"
    );
}

/// Rank 3 fails before it has begun, so no other rank can finish the barrier.
#[test]
fn the_death_of_a_member_ends_the_operation_at_all_ranks() {
    let mut engines = engines(4);
    let plan = Plan::Barrier(barrier::Algorithm::Dissemination);
    let reduce = reduce_by(sum);
    let died = || Cause::Died("killed".into());
    let mut call = calls(&plan, 4, 0);
    let buffers =
        || BorrowedBuffers { input: &[], output: &mut [], scratch: &mut [], reduce: &reduce, layouts: None };
    let mut operations: Vec<_> = (0..3)
        .map(|rank| {
            Collective::begin(
                &mut engines[rank as usize],
                Time::ZERO,
                call.clone(),
                WorldRank(rank),
                buffers(),
            )
        })
        .collect();
    for engine in &mut engines[..3] {
        engine.peer_failed(WorldRank(3), None, died()).unwrap();
    }
    drive(&mut engines[..3], &mut operations);
    for operation in &mut operations {
        let result = operation.take_result();
        let Some(Err(Failed::Error(Error::PeerFailed { rank: WorldRank(3), cause, .. }))) = result else {
            panic!("{result:?}");
        };
        assert_eq!(cause, died());
    }
    // A later operation fails at once.
    call.number = 1;
    let mut late = Collective::begin(&mut engines[0], Time::ZERO, call, WorldRank(0), buffers());
    assert!(matches!(
        late.take_result(),
        Some(Err(Failed::Error(Error::PeerFailed { rank: WorldRank(3), .. })))
    ));
}

/// A rank gives up because of a failure that only it knows, and revokes the communicator, as a program does that goes
/// on without the failed rank. At any moment this ends the operation at each rank with one of these two reasons.
#[test]
fn a_revocation_ends_the_operation_at_all_ranks() {
    for len in [1, 100_000] {
        for moment in 0..30 {
            let mut engines = engines(5);
            let revokes = |engines: &mut [Engine<Loopback>],
                           operations: &mut [Collective<BorrowedBuffers<'_>>]| {
                (0..moment).for_each(|_| step(engines, operations, Time::ZERO));
                let (rank, cause) = (WorldRank(3), Cause::Died("killed".into()));
                let fate = samite_p2p::Fate::Unknown;
                operations[1].quit(&mut engines[1], Error::PeerFailed { rank, cause, fate, report: None });
                engines[1].revoke(Time::ZERO, CONTROL);
                drive(engines, operations);
            };
            let algorithm = allreduce::Algorithm::RecursiveDoubling;
            let plan = Plan::Allreduce { algorithm, len, commutes: true, in_place: false };
            let results = disturbed(&mut engines, &vec![plan; 5], 0, Time::NEVER, &reduce_by(sum), revokes);
            for result in &results {
                let is_expected = matches!(
                    result,
                    Ok(())
                        | Err(Failed::Error(Error::Revoked | Error::PeerFailed { rank: WorldRank(3), .. }))
                );
                assert!(is_expected, "{len} elements, after {moment} polls: {results:?}");
            }
        }
    }
}

/// Returns the members in the error of an operation that has timed out.
fn members_in(result: Option<Result<(), Failed>>) -> samite_p2p::Members {
    match result {
        Some(Err(Failed::Error(Error::TimedOut { report, .. }))) => {
            assert_eq!(report.operation, samite_p2p::Operation::Collective);
            *report.members.expect("the members were asked")
        }
        other => panic!("{other:?}"),
    }
}

/// Ranks 1 and 3 of 5 do not begin the barrier. Rank 3 polls, and rank 1 does not. Only rank 0 has a deadline.
#[test]
fn at_a_deadline_the_members_are_asked() {
    let plan = Plan::Barrier(barrier::Algorithm::Dissemination);
    let mut engines = engines(5);
    let reduce = reduce_by(sum);
    let mut memories: Vec<_> = (0..3).map(|rank| Memory::new(&plan, Place::new(rank, 5))).collect();
    let mut operations: Vec<_> = [0, 2, 4]
        .into_iter()
        .zip(&mut memories)
        .map(|(rank, memory)| {
            let deadline = if rank == 0 { SOON } else { Time::NEVER };
            let call = Call { deadline, ..calls(&plan, 5, 7) };
            let buffers = memory.buffers(&reduce);
            Collective::begin(&mut engines[rank as usize], Time::ZERO, call, WorldRank(rank), buffers)
        })
        .collect();
    let mut poll = |now: Time, operations: &mut [Collective<BorrowedBuffers<'_>>]| {
        for _ in 0..100 {
            for (operation, rank) in operations.iter_mut().zip([0, 2, 4]) {
                engines[rank].poll(now, operation).unwrap();
                operation.advance(&mut engines[rank]);
                operation.attend(&mut engines[rank]);
            }
            engines[3].poll(now, &mut ()).unwrap();
        }
    };
    poll(Time::ZERO, &mut operations);
    assert!(!operations[0].has_ended());
    poll(SOON, &mut operations);
    assert!(!operations[0].has_ended(), "rank 1 may still answer");
    poll(SOON.after(10_000_000), &mut operations);
    let members = members_in(operations[0].take_result());
    assert_eq!((members.absent, members.silent), (vec![WorldRank(3)], vec![WorldRank(1)]));
    assert_eq!((members.closed, members.unasked), (vec![], 0));
    for operation in &mut operations[1..] {
        let result = operation.take_result();
        let is_abandoned =
            matches!(result, None | Some(Err(Failed::Error(Error::Abandoned { rank: WorldRank(0), .. }))));
        assert!(is_abandoned, "{result:?}");
    }
}

/// While the members are asked, a cancel and the failure of a member end the operation, and no later answer matters.
#[test]
fn an_operation_ends_while_the_members_are_asked() {
    let plan = Plan::Barrier(barrier::Algorithm::Dissemination);
    let reduce = reduce_by(sum);
    for fails in [false, true] {
        let mut engines = engines(3);
        let mut memory = Memory::new(&plan, Place::new(0, 3));
        let call = Call { deadline: SOON, ..calls(&plan, 3, 0) };
        let buffers = memory.buffers(&reduce);
        let mut operation = Collective::begin(&mut engines[0], Time::ZERO, call, WorldRank(0), buffers);
        for _ in 0..10 {
            engines[0].poll(SOON, &mut operation).unwrap();
            operation.advance(&mut engines[0]);
        }
        assert!(!operation.attend(&mut engines[0]));
        if fails {
            engines[0].peer_failed(WorldRank(1), None, Cause::Lost).unwrap();
            assert!(operation.attend(&mut engines[0]));
        } else {
            operation.quit(&mut engines[0], Error::Cancelled { fate: Fate::Unknown });
        }
        match (fails, operation.take_result()) {
            (true, Some(Err(Failed::Error(Error::PeerFailed { rank: WorldRank(1), .. })))) => {}
            (false, Some(Err(Failed::Error(Error::Cancelled { .. })))) => {}
            (_, other) => panic!("{other:?}"),
        }
        for _ in 0..10 {
            for engine in &mut engines {
                engine.poll(LATER, &mut ()).unwrap();
            }
        }
        assert_eq!(engines[0].usage().requests, 0);
    }
}

/// Rank 2 calls after the deadline of rank 0 has passed. Rank 2 still needs a message of rank 0. Rank 1 has received
/// the only message that it needs of rank 0.
#[test]
fn the_deadline_of_one_rank_ends_the_operation_where_the_rank_is_needed() {
    let mut engines = engines(3);
    let plan = Plan::Barrier(barrier::Algorithm::Dissemination);
    let reduce = reduce_by(sum);
    let begin = |engine: &mut Engine<Loopback>, rank| {
        let buffers =
            BorrowedBuffers { input: &[], output: &mut [], scratch: &mut [], reduce: &reduce, layouts: None };
        let deadline = if rank == 0 { SOON } else { Time::NEVER };
        Collective::begin(
            engine,
            Time::ZERO,
            Call { deadline, ..calls(&plan, 3, 0) },
            WorldRank(rank),
            buffers,
        )
    };
    let mut operations = vec![begin(&mut engines[0], 0), begin(&mut engines[1], 1)];
    drive_until_later(&mut engines[..2], &mut operations);
    assert_eq!([0, 1].map(|rank: usize| operations[rank].has_ended()), [true, false]);
    operations.push(begin(&mut engines[2], 2));
    drive(&mut engines, &mut operations);
    let results: Vec<_> = operations.iter_mut().map(|operation| operation.take_result().unwrap()).collect();
    assert!(matches!(results[0], Err(Failed::Error(Error::TimedOut { .. }))), "{results:?}");
    assert!(results[1].is_ok(), "{results:?}");
    let is_abandoned = matches!(results[2], Err(Failed::Error(Error::Abandoned { rank: WorldRank(0), .. })));
    assert!(is_abandoned, "{results:?}");
}

#[test]
fn different_lengths_are_an_error_and_overrun_no_buffer() {
    for (sent, received) in [(2, 5), (5, 2), (0, 3), (3, 0), (2, 100_000), (100_000, 2)] {
        let mut engines = engines(2);
        let plans = [tree(sent), tree(received)];
        // A rank that has passed the length 0 exchanges no message and finishes. A receiver then waits for the other
        // rank until its deadline.
        let results = disturbed(&mut engines, &plans, 0, SOON, &reduce_by(sum), drive_until_later);
        let lengths = |result: &Result<(), Failed>| {
            matches!(result, Err(Failed::Error(Error::LengthsDiffer { rank: WorldRank(0), ours, theirs }))
                if (*ours, *theirs) == (received * ELEMENT, sent * ELEMENT))
        };
        let timed_out =
            |result: &Result<(), Failed>| matches!(result, Err(Failed::Error(Error::TimedOut { .. })));
        match (sent, received) {
            (0, _) => assert!(results[0].is_ok() && timed_out(&results[1]), "{results:?}"),
            (_, 0) => assert!(results[1].is_ok(), "{results:?}"),
            _ => assert!(lengths(&results[1]), "{results:?}"),
        }
    }
}

#[test]
fn a_panic_of_the_reduction_ends_the_operation() {
    let mut engines = engines(4);
    let algorithm = allreduce::Algorithm::RecursiveDoubling;
    let plan = Plan::Allreduce { algorithm, len: 1, commutes: true, in_place: false };
    let panics = Cell::new(true);
    let reduce = |_: &[u8], _: &mut [u8]| {
        if panics.replace(false) {
            panic!("the first call of the operation");
        }
    };
    let results = disturbed(&mut engines, &vec![plan; 4], 0, Time::NEVER, &reduce, drive);
    // Ranks 1 and 3 have the elements of ranks 0 and 2 from the first round, and exchange them in the second round.
    let is_abandoned = matches!(results[2], Err(Failed::Error(Error::Abandoned { rank: WorldRank(0), .. })));
    assert!(matches!(results[0], Err(Failed::Panicked(_))) && is_abandoned, "{results:?}");
    assert!(results[1].is_ok() && results[3].is_ok(), "{results:?}");
}

/// A rank may finish operations in another order than they were begun.
#[test]
fn several_operations_are_under_way_at_the_same_time() {
    let (n, mut engines) = (3_u32, engines(3));
    let algorithm = allreduce::Algorithm::RecursiveDoubling;
    let plan = Plan::Allreduce { algorithm, len: 4, commutes: true, in_place: false };
    let reduce = reduce_by(sum);
    let mut memories: Vec<Vec<_>> =
        (0..2).map(|_| (0..n).map(|rank| Memory::new(&plan, Place::new(rank, n))).collect()).collect();
    let mut all = Vec::new();
    for (number, memories) in (0..).zip(&mut memories) {
        let begin = |((rank, engine), memory): ((u32, &mut Engine<Loopback>), _)| {
            Collective::begin(
                engine,
                Time::ZERO,
                calls(&plan, n, number),
                WorldRank(rank),
                Memory::buffers(memory, &reduce),
            )
        };
        all.push((0..).zip(&mut engines).zip(memories).map(begin).collect::<Vec<_>>());
    }
    // While only one operation is driven, bytes of the other operation arrive, although the buffers of the other
    // operation are not lent. The engine stages these bytes.
    for operations in all.iter_mut().rev() {
        for _ in 0..100 {
            for (engine, operation) in engines.iter_mut().zip(operations.iter_mut()) {
                engine.poll(Time::ZERO, operation).unwrap();
                operation.advance(engine);
            }
        }
        assert!(operations.iter().all(Collective::has_ended));
    }
    drop(all);
    let expected: Vec<Affine> =
        (0..4).map(|index| (0..n).map(|rank| of(rank, index)).reduce(sum).unwrap()).collect();
    assert!(memories.iter().flatten().all(|memory| memory.output == expected));
    at_rest(&mut engines);
}

/// Merges records of one byte: the result is 255 if they differ.
fn merge(from: &[u8], into: &mut [u8]) {
    if from != into {
        into[0] = 255;
    }
}

fn difference(record: &[u8]) -> Option<Box<str>> {
    (record == [255]).then(|| "they differ".into())
}

/// Begins a barrier with a check at each rank. `record` returns the record of a rank.
fn checked<'a>(
    engines: &mut [Engine<Loopback>],
    record: impl Fn(u32) -> u8,
    number: u32,
    memories: &'a mut [[u8; 0]],
) -> Vec<Collective<BorrowedBuffers<'a>>> {
    let n = engines.len() as u32;
    let plan = Plan::Barrier(barrier::Algorithm::Dissemination);
    let begin = |(rank, (engine, memory)): (u32, (&mut Engine<Loopback>, &'a mut [u8; 0]))| {
        let check = Some(Check { record: vec![record(rank)], merge, difference });
        let call = Call { check, ..calls(&plan, n, number) };
        let reduce: ReduceBytes<'static> = &|_, _| unreachable!("a barrier has no reduction");
        let buffers = BorrowedBuffers { input: &[], output: memory, scratch: &mut [], reduce, layouts: None };
        Collective::begin(engine, Time::ZERO, call, WorldRank(rank), buffers)
    };
    (0..).zip(engines.iter_mut().zip(memories)).map(begin).collect()
}

#[test]
fn a_check_ends_the_operation_at_every_member_if_their_calls_differ() {
    for n in 1..=9 {
        let mut engines = engines(n);
        let mut memories = vec![[]; n as usize];
        for (number, odd) in (0..).zip((0..n).map(Some).chain([None, None])) {
            let record = |rank| u8::from(Some(rank) == odd);
            let mut operations = checked(&mut engines, record, number, &mut memories);
            drive(&mut engines, &mut operations);
            for operation in &mut operations {
                match operation.take_result().expect("it has ended") {
                    Ok(()) => assert!(n == 1 || odd.is_none()),
                    Err(Failed::Error(Error::CallsDiffer { difference })) => {
                        assert!(n > 1 && odd.is_some() && &*difference == "they differ");
                    }
                    Err(failed) => panic!("{failed:?}"),
                }
            }
        }
    }
}

#[test]
fn a_member_that_gives_up_during_the_check_ends_it_at_the_others() {
    let mut engines = engines(5);
    let mut memories = vec![[]; 5];
    let mut operations = checked(&mut engines, |_| 0, 0, &mut memories);
    operations[3].quit(&mut engines[3], Error::Cancelled { fate: Fate::Unknown });
    drive(&mut engines, &mut operations);
    for (rank, operation) in operations.iter_mut().enumerate() {
        let failed = operation.take_result().expect("it has ended").expect_err("rank 3 takes no part");
        match failed {
            Failed::Error(Error::Cancelled { .. }) => assert_eq!(rank, 3),
            Failed::Error(Error::Abandoned { rank: WorldRank(3), .. }) => {}
            failed => panic!("rank {rank}: {failed:?}"),
        }
    }
}
