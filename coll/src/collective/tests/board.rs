//! Operations on the board of several engines over shared memory, in one thread.

use std::sync::Arc;

use samite_fabric::port::Sleep;
use samite_fabric::shm::board::{Board, PIECE, Slot};
use samite_fabric::shm::{self, Shm};

use super::*;
use crate::algorithms::hosts::{Hosts, TwoLevels};

/// Returns engines with a board.
fn engines(n: u32) -> Vec<Engine<Shm>> {
    let ports = (0..n).map(|_| Shm::open(&shm::Config::default()).unwrap()).collect();
    let mut engines = engines_on(ports, &Config::default());
    let slots: Vec<_> = engines.iter_mut().map(|engine| engine.port_mut().open_slot().unwrap()).collect();
    let addresses: Vec<_> = slots.iter().map(Slot::address).collect();
    for (rank, (engine, slot)) in engines.iter_mut().zip(slots).enumerate() {
        engine.boards_mut().insert(CONTROL, Board::open(slot, rank, &addresses).unwrap());
    }
    engines
}

/// Returns engines of ranks on two hosts, each of which has a board. The boards are those of the even and of the odd
/// ranks, except the last one, which is alone.
fn engines_on_hosts(n: u32) -> (Vec<Engine<Shm>>, Arc<Hosts>) {
    let ports = (0..n).map(|_| Shm::open(&shm::Config::default()).unwrap()).collect();
    let mut engines = engines_on(ports, &Config::default());
    let hosts = Hosts::new((0..n).map(|rank| if rank + 1 == n { 2 } else { rank % 2 }));
    let slots: Vec<_> = engines.iter_mut().map(|engine| engine.port_mut().open_slot().unwrap()).collect();
    let addresses: Vec<_> = slots.iter().map(Slot::address).collect();
    for (rank, (engine, slot)) in (0..).zip(engines.iter_mut().zip(slots)) {
        let members = hosts.beside(rank);
        if members.len() > 1 {
            let board = Board::open_some(slot, rank, members, &addresses).unwrap();
            engine.boards_mut().insert(CONTROL, board);
        }
    }
    (engines, Arc::new(hosts))
}

/// Returns the operations on two levels.
fn plans_on_hosts(hosts: &Arc<Hosts>, n: u32, root: u32, len: usize, piece: Option<usize>) -> Vec<Plan> {
    let (commutes, in_place) = (true, len % 2 == 1);
    let operations = [
        Plan::Barrier(barrier::Algorithm::Dissemination),
        Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: root % n, len },
        Plan::Reduce { algorithm: reduce::Algorithm::Binomial, root: root % n, len, commutes, in_place },
        Plan::Allreduce { algorithm: allreduce::Algorithm::RecursiveDoubling, len, commutes, in_place },
        Plan::Allgather { algorithm: allgather::Algorithm::Ring, blocks: Blocks::Equal(len), in_place },
    ];
    let on_hosts = |plan| TwoLevels { operation: Box::new(plan), hosts: Arc::clone(hosts), piece };
    operations.map(on_hosts).map(Plan::TwoLevels).into()
}

#[test]
fn operations_on_two_levels_have_the_result_that_is_computed_directly() {
    for n in 2..=8 {
        let ((mut engines, hosts), mut number) = (engines_on_hosts(n), 0);
        for root in 0..n {
            for (len, piece) in [(0, Some(8)), (1, Some(8)), (20, Some(3)), (5, None), (700, Some(LONGEST))] {
                for plan in plans_on_hosts(&hosts, n, root, len, piece) {
                    check(&mut engines, &plan, &mut number);
                }
            }
        }
        at_rest(&mut engines);
    }
}

/// A rank fails in each part of an operation on two levels. All other ranks get an error that names it, and the boards
/// can be used afterwards.
#[test]
fn a_rank_that_gives_up_ends_an_operation_on_two_levels() {
    let n = 6;
    for quitter in 0..n as usize {
        let (mut engines, hosts) = engines_on_hosts(n);
        for (number, steps) in [(0, 0), (20, 1), (40, 5), (60, 50), (80, 90), (100, 120), (120, 200)] {
            let plans = vec![plans_on_hosts(&hosts, n, 1, 900, Some(2)).swap_remove(3); n as usize];
            let quits = |engines: &mut [Engine<Shm>], operations: &mut [Collective<BorrowedBuffers<'_>>]| {
                (0..steps).for_each(|_| step(engines, operations, Time::ZERO));
                operations[quitter]
                    .quit(&mut engines[quitter], Error::Cancelled { fate: Fate::NotDelivered });
                drive(engines, operations);
            };
            let results = disturbed(&mut engines, &plans, number, Time::NEVER, &sum_by(), quits);
            for (rank, result) in results.iter().enumerate() {
                match result {
                    Err(Failed::Error(Error::Cancelled { .. })) if rank == quitter => {}
                    Err(Failed::Error(Error::Abandoned { rank: named, .. })) if named.index() == quitter => {}
                    // It does not need the rest of that rank's part.
                    Ok(()) if steps >= 50 => {}
                    _ => panic!("rank {quitter} gives up after {steps} steps, rank {rank}: {results:?}"),
                }
            }
            for engine in &mut engines {
                crate::discard_before(engine, CONTROL, number + 1);
            }
            let mut next = number + 1;
            for plan in plans_on_hosts(&hosts, n, 0, 5, Some(LONGEST)) {
                check(&mut engines, &plan, &mut next);
            }
        }
    }
}

/// A rank gives up before it knows that there are boards, so its plan is another one than that of the others. They take
/// none of its data, and all of them learn that it gave up.
#[test]
fn a_rank_that_does_not_know_the_plan_gives_up_without_a_step() {
    let n = 6;
    for quitter in 0..n {
        let (mut engines, hosts) = engines_on_hosts(n);
        let on_hosts = plans_on_hosts(&hosts, n, 0, 7, Some(LONGEST)).swap_remove(3);
        let reduce = sum_by();
        let flat = [allreduce::Algorithm::RecursiveDoubling, allreduce::Algorithm::Ring]
            .map(|algorithm| Plan::Allreduce { algorithm, len: 7, commutes: true, in_place: true });
        for (number, flat) in (0..).zip(&flat) {
            let plans = (0..n).map(|rank| if rank == quitter { flat } else { &on_hosts });
            let mut memories: Vec<_> =
                (0..).zip(plans.clone()).map(|(rank, plan)| Memory::new(plan, Place::new(rank, n))).collect();
            let (mut others, mut operations, mut gone) = (Vec::new(), Vec::new(), None);
            for ((engine, plan), (rank, memory)) in
                engines.iter_mut().zip(plans).zip((0..).zip(&mut memories))
            {
                let (call, buffers) = (calls(plan, n, number), memory.buffers(&reduce));
                if rank == quitter {
                    let error = Error::Cancelled { fate: Fate::Unknown };
                    Collective::give_up(engine, Time::ZERO, call, WorldRank(rank), buffers, error);
                    gone = Some(engine);
                } else {
                    operations.push(Collective::begin(engine, Time::ZERO, call, WorldRank(rank), buffers));
                    others.push(engine);
                }
            }
            let gone = gone.expect("a rank gives up");
            for _ in 0..1000 {
                gone.poll(Time::ZERO, &mut ()).unwrap();
                for (engine, operation) in others.iter_mut().zip(&mut operations) {
                    engine.poll(Time::ZERO, operation).unwrap();
                    operation.advance(engine);
                    operation.attend(engine);
                }
            }
            for operation in &mut operations {
                let result = operation.take_result();
                let Some(Err(Failed::Error(Error::Abandoned { rank, .. }))) = result else {
                    panic!("rank {quitter} gives up: {result:?}");
                };
                assert_eq!(rank, WorldRank(quitter));
            }
            for engine in &mut engines {
                crate::discard_before(engine, CONTROL, number + 1);
            }
        }
    }
}

/// The leader's wait for the other leader is not a wait at its board, where the other member has left.
#[test]
fn a_member_that_leaves_after_its_part_is_not_missed_between_the_hosts() {
    let (mut engines, hosts) = engines_on_hosts(5);
    let plan = plans_on_hosts(&hosts, 5, 0, 3, Some(LONGEST)).swap_remove(2);
    let reduce = sum_by();
    let mut memories: Vec<_> = (0..5).map(|rank| Memory::new(&plan, Place::new(rank, 5))).collect();
    let [root, first, second, ..] = &mut memories[..] else { unreachable!("there are five") };
    let begin = |engine: &mut Engine<Shm>, rank, memory| {
        Collective::begin(engine, Time::ZERO, calls(&plan, 5, 0), WorldRank(rank), memory)
    };
    let mut waits = begin(&mut engines[0], 0, root.buffers(&reduce));
    waits.attend(&mut engines[0]);
    assert!(waits.at_board().is_some(), "it waits for rank 2");
    assert!(begin(&mut engines[2], 2, second.buffers(&reduce)).has_ended(), "rank 2 has published");
    engines[0].poll(Time::ZERO, &mut waits).unwrap();
    waits.advance(&mut engines[0]);
    assert!(waits.at_board().is_none() && !waits.has_ended(), "it waits for the other hosts");
    engines[0].peer_left(WorldRank(2), None).unwrap();
    let mut others: Vec<_> =
        [(1, first)].map(|(rank, memory)| begin(&mut engines[rank], 1, memory.buffers(&reduce))).into();
    assert!(!others[0].has_ended(), "it waits for rank 3");
    for _ in 0..20 {
        engines[0].poll(Time::ZERO, &mut waits).unwrap();
        waits.attend(&mut engines[0]);
        waits.advance(&mut engines[0]);
    }
    assert!(!waits.has_ended(), "the end of a rank that has done its part ends no operation");
    others[0].quit(&mut engines[1], Error::Cancelled { fate: Fate::NotDelivered });
}

/// The number of elements in the longest piece.
const LONGEST: usize = PIECE / ELEMENT;

#[test]
fn every_operation_has_the_result_that_is_computed_directly() {
    for n in 1..=9 {
        let (mut engines, mut number) = (engines(n), 0);
        for root in [0, n / 2, n - 1] {
            for (len, in_place, piece) in [
                (0, false, 8),
                (1, true, 8),
                (1, false, LONGEST),
                (5, false, 2),
                (20, true, 3),
                (40, true, LONGEST),
            ] {
                for plan in plans_on_board(n, root, len, in_place, piece) {
                    check(&mut engines, &plan, &mut number);
                    // Operations with messages have numbers too.
                    if number % 7 == 3 {
                        check(&mut engines, &Plan::Barrier(barrier::Algorithm::Dissemination), &mut number);
                    }
                }
            }
        }
        at_rest(&mut engines);
    }
}

#[test]
fn long_data_is_published_in_pieces() {
    for n in [2, 5] {
        let (mut engines, mut number) = (engines(n), 0);
        for (len, in_place) in [(3000, true), (10 * LONGEST, false)] {
            for plan in plans_on_board(n, 1, len, in_place, LONGEST) {
                check(&mut engines, &plan, &mut number);
            }
        }
        at_rest(&mut engines);
    }
}

fn board_barrier() -> Plan {
    Plan::Barrier(barrier::Algorithm::Board)
}

fn board_bcast(len: usize) -> Plan {
    Plan::Bcast { algorithm: bcast::Algorithm::Board { piece: LONGEST }, root: 0, len }
}

fn sum_by() -> impl Fn(&[u8], &mut [u8]) {
    reduce_by(sum)
}

/// Checks that the engines can use their board after an operation has failed.
fn goes_on(engines: &mut [Engine<Shm>], number: u32) {
    for engine in engines.iter_mut() {
        crate::discard_before(engine, CONTROL, number);
    }
    let mut next = number;
    let n = engines.len() as u32;
    for plan in plans_on_board(n, 0, 5, false, LONGEST) {
        check(engines, &plan, &mut next);
    }
}

#[test]
fn a_rank_that_gives_up_ends_the_operation_at_the_others() {
    let mut engines = engines(4);
    let quits = |engines: &mut [Engine<Shm>], operations: &mut [Collective<BorrowedBuffers<'_>>]| {
        operations[2].quit(&mut engines[2], Error::Cancelled { fate: Fate::NotDelivered });
        drive(engines, operations);
    };
    let allreduce = |len| Plan::Allreduce {
        algorithm: allreduce::Algorithm::Board { piece: 1 },
        len,
        commutes: true,
        in_place: false,
    };
    for (number, plan) in [(0, allreduce(9)), (20, board_bcast(9 * LONGEST))] {
        // The ranks have begun, and need further pieces.
        let plans = vec![plan.clone(); 4];
        let results = disturbed(&mut engines, &plans, number, Time::NEVER, &sum_by(), quits);
        let gave_up = |result: &Result<(), Failed>| {
            matches!(result, Err(Failed::Error(Error::Abandoned { rank: WorldRank(2), .. })))
        };
        assert!(matches!(results[2], Err(Failed::Error(Error::Cancelled { .. }))), "{results:?}");
        assert!([0, 1, 3].iter().all(|rank| gave_up(&results[*rank])), "{results:?}");
        goes_on(&mut engines, number + 1);
    }
}

#[test]
fn the_death_of_a_member_ends_the_operation_at_all_ranks() {
    let mut engines = engines(4);
    let dies = |engines: &mut [Engine<Shm>], operations: &mut [Collective<BorrowedBuffers<'_>>]| {
        (0..10).for_each(|_| step(&mut engines[..3], &mut operations[..3], Time::ZERO));
        for engine in &mut engines[..3] {
            engine.peer_failed(WorldRank(3), None, Cause::Died("killed".into())).unwrap();
        }
        drive(&mut engines[..3], &mut operations[..3]);
        operations[3].quit(&mut engines[3], Error::Cancelled { fate: Fate::Unknown });
    };
    let mut plans = vec![board_barrier(); 4];
    // The last rank carries out another operation, which publishes nothing.
    plans[3] = board_bcast(1);
    let results = disturbed(&mut engines, &plans, 0, Time::NEVER, &sum_by(), dies);
    for result in &results[..3] {
        assert!(
            matches!(result, Err(Failed::Error(Error::PeerFailed { rank: WorldRank(3), .. }))),
            "{results:?}"
        );
    }
}

/// Rank 1 has published before it leaves, so rank 0 can finish. Rank 0 learns of the end first.
#[test]
fn a_member_that_leaves_after_its_part_is_not_missed() {
    for published in [true, false] {
        let mut engines = engines(2);
        let plan = board_barrier();
        let reduce = sum_by();
        let mut memories: Vec<_> = (0..2).map(|rank| Memory::new(&plan, Place::new(rank, 2))).collect();
        let [one, two] = &mut memories[..] else { unreachable!("there are two") };
        let begin = |engine: &mut Engine<Shm>, rank, memory| {
            Collective::begin(engine, Time::ZERO, calls(&plan, 2, 0), WorldRank(rank), memory)
        };
        let mut first = begin(&mut engines[0], 0, one.buffers(&reduce));
        first.attend(&mut engines[0]);
        assert_ne!(first.awaited(), RequestId::PENDING, "the wait can be observed");
        if published {
            let mut second = begin(&mut engines[1], 1, two.buffers(&reduce));
            assert!(matches!(second.take_result(), Some(Ok(()))));
        }
        engines[0].peer_left(WorldRank(1), None).unwrap();
        engines[0].poll(Time::ZERO, &mut first).unwrap();
        first.advance(&mut engines[0]);
        match (published, first.take_result()) {
            (true, Some(Ok(()))) => {}
            (false, Some(Err(Failed::Error(Error::PeerFailed { cause: Cause::Left, .. })))) => {}
            (_, result) => panic!("{published} {result:?}"),
        }
    }
}

#[test]
fn a_deadline_ends_a_wait_at_the_board() {
    let mut engines = engines(3);
    let reduce = sum_by();
    let plan = board_barrier();
    let mut memories: Vec<_> = (0..2).map(|rank| Memory::new(&plan, Place::new(rank, 3))).collect();
    let mut operations: Vec<_> = (0..2)
        .zip(&mut memories)
        .map(|(rank, memory)| {
            let call = Call { deadline: SOON, ..calls(&plan, 3, 0) };
            let engine = &mut engines[rank as usize];
            Collective::begin(engine, Time::ZERO, call, WorldRank(rank), memory.buffers(&reduce))
        })
        .collect();
    drive_until_later(&mut engines[..2], &mut operations);
    for operation in &mut operations {
        match operation.take_result() {
            Some(Err(Failed::Error(Error::Abandoned { .. }))) => {}
            result => assert_eq!(members_in(result).silent, [WorldRank(2)]),
        }
    }
    assert!(operations.iter().all(|operation| operation.at_board().is_none()));
}

#[test]
fn other_lengths_are_detected_and_no_slice_is_overrun() {
    let mut engines = engines(3);
    let plans = [4, 5, 4].map(|len| Plan::Reduce {
        algorithm: reduce::Algorithm::Board { piece: LONGEST },
        root: 0,
        len,
        commutes: true,
        in_place: false,
    });
    let results = disturbed(&mut engines, &plans, 0, Time::NEVER, &sum_by(), |engines, operations| {
        drive(engines, operations)
    });
    assert!(
        matches!(
            results[0],
            Err(Failed::Error(Error::LengthsDiffer { rank: WorldRank(1), ours: 64, theirs: 80 }))
        ),
        "{results:?}"
    );
    goes_on(&mut engines, 1);
}

/// A rank that waits for a slow reader has all its banks in use.
#[test]
fn a_root_waits_for_the_slowest_reader() {
    let mut engines = engines(3);
    let reduce = sum_by();
    let plan = board_bcast(1);
    let of_rank = |rank| (0..5).map(|_| Memory::new(&plan, Place::new(rank, 3))).collect::<Vec<_>>();
    let mut memories: Vec<_> = (0..3).map(of_rank).collect();
    let [roots, readers, slow] = &mut memories[..] else { unreachable!("there are three") };
    let begin = |engines: &mut [Engine<Shm>], rank: u32, number, memory| {
        let engine = &mut engines[rank as usize];
        Collective::begin(engine, Time::ZERO, calls(&plan, 3, number), WorldRank(rank), memory)
    };
    let mut last = None;
    for (number, (root, reader)) in (0..).zip(roots.iter_mut().zip(readers)) {
        let root = begin(&mut engines, 0, number, root.buffers(&reduce));
        let reader = begin(&mut engines, 1, number, reader.buffers(&reduce));
        assert_eq!((root.has_ended(), reader.has_ended()), (number < 4, number < 4), "bank {number}");
        last = Some((root, reader));
    }
    // The slow reader takes the first value, and so the root can go on.
    for (number, memory) in (0..4).zip(slow) {
        assert!(begin(&mut engines, 2, number, memory.buffers(&reduce)).has_ended());
    }
    let (mut root, mut reader) = last.unwrap();
    root.advance(&mut engines[0]);
    assert!(root.has_ended());
    reader.advance(&mut engines[1]);
    assert!(reader.has_ended());
}

#[test]
fn a_sleeping_rank_is_woken() {
    let mut engines = engines(2);
    let reduce = sum_by();
    let plan = board_barrier();
    let mut memories: Vec<_> = (0..2).map(|rank| Memory::new(&plan, Place::new(rank, 2))).collect();
    let [one, two] = &mut memories[..] else { unreachable!("there are two") };
    let [first, second] = &mut engines[..] else { unreachable!("there are two") };
    // The ranks are in contact, so that the message that wakes is sent at once.
    for _ in 0..2 {
        let memory = samite_fabric::Memory::zeroed(1);
        second.send_detached(Time::ZERO, WorldRank(0), CONTROL, COLLECTIVE_TAG, memory).unwrap();
        (0..20).for_each(|_| {
            first.poll(Time::ZERO, &mut ()).unwrap();
            second.poll(Time::ZERO, &mut ()).unwrap();
        });
    }
    let mut sleeps =
        Collective::begin(first, Time::ZERO, calls(&plan, 2, 0), WorldRank(0), one.buffers(&reduce));
    while first.poll(Time::ZERO, &mut sleeps).unwrap() > 0 {}
    sleeps.advance(first);
    assert!(!sleeps.attend(first));
    assert!(first.seems_idle());
    let arm = |engine: &mut Engine<Shm>| engine.arm() != Sleep::NotNow;
    while !arm(first) {
        first.poll(Time::ZERO, &mut sleeps).unwrap();
    }
    let late = Collective::begin(second, Time::ZERO, calls(&plan, 2, 0), WorldRank(1), two.buffers(&reduce));
    assert!(late.has_ended());
    assert!(!first.seems_idle(), "there are news");
    first.disarm();
    assert_eq!(first.arm(), Sleep::NotNow, "there are news");
    assert!(first.poll(Time::ZERO, &mut sleeps).unwrap() > 0, "a message has come too");
    sleeps.advance(first);
    assert!(sleeps.has_ended() && sleeps.leaves_messages() && !late.leaves_messages());
    crate::discard_before(first, CONTROL, 1);
    at_rest(&mut engines);
}

/// No rank can finish the barrier, because rank 3 carries out another operation. So the revocation ends it.
#[test]
fn a_revocation_ends_a_wait_at_the_board() {
    let mut engines = engines(4);
    let mut plans = vec![board_barrier(); 4];
    plans[3] = board_bcast(1);
    let revokes = |engines: &mut [Engine<Shm>], operations: &mut [Collective<BorrowedBuffers<'_>>]| {
        (0..5).for_each(|_| step(engines, operations, Time::ZERO));
        engines[1].revoke(Time::ZERO, CONTROL);
        drive(engines, operations);
    };
    let results = disturbed(&mut engines, &plans, 0, Time::NEVER, &sum_by(), revokes);
    let is_revoked = |result: &_| matches!(result, Err(Failed::Error(Error::Revoked)));
    assert!(results[..3].iter().all(is_revoked), "{results:?}");
}
