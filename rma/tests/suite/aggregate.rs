//! Epochs that travel as one packet ([`Hints::aggregate`]).

use samite_fabric::layout::Form;
use samite_fabric::link::{Error as LinkError, Fate, RequestId};
use samite_fabric::loopback::Loopback;
use samite_fabric::{Memory, Port};
use samite_rma::{Action, Config, ElementType, EpochId, Error, Hints, LockKind, Reduction, Reorder, Windows};

use crate::failures::{arrive, ends_with_failure, kill, violation};
use crate::world::{NEVER, PART, World, on_loopback, on_sim, place, rank};

const AGGREGATE: Hints = Hints {
    reorder: Reorder::empty(),
    overtake: false,
    aggregate: true,
    takes_part: false,
    unshared_accumulates: false,
};
const ADD: Action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };
const SUM: Action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };

macro_rules! case {
    ($name:ident, $size:expr, $test:ident) => {
        #[test]
        fn $name() {
            on_loopback($size, AGGREGATE, $test);
            on_sim(300, $size, AGGREGATE, $test);
        }
    };
}

/// Locks, puts one word, and unlocks.
fn transact<P: Port>(w: &mut World<P>, at: usize, target: usize, place: u64, value: u64) -> RequestId {
    let epoch = w.lock(at, target, LockKind::Exclusive);
    w.put(at, epoch, (target, place), &[value]);
    w.close(at, epoch)
}

/// Locks the part of `target`, and waits for the lock.
fn hold<P: Port>(w: &mut World<P>, at: usize, target: usize) -> EpochId {
    let epoch = w.lock(at, target, LockKind::Exclusive);
    let flush = w.flush(at, epoch, None);
    w.wait(at, flush);
    epoch
}

fn release<P: Port>(w: &mut World<P>, at: usize, epoch: EpochId) {
    let close = w.close(at, epoch);
    w.wait(at, close);
}

fn aggregated<P: Port>(w: &World<P>, at: usize) -> u64 {
    w.engines[at].stack().counters().aggregated
}

/// Returns the number of packets that a rank has sent to another one.
fn packets<P: Port>(w: &mut World<P>, from: usize, to: usize) -> u32 {
    let peer = w.engines[from].link_mut().find(rank(to)).expect("they have met");
    w.engines[from].link().peer(peer).last_sent()
}

/// Returns the numbers of packets that ranks 0 and 1 send to each other until they come to rest.
fn exchanged(w: &mut World<Loopback>, run: impl FnOnce(&mut World<Loopback>)) -> (u32, u32) {
    let before = [packets(w, 0, 1), packets(w, 1, 0)];
    run(w);
    w.settle();
    (packets(w, 0, 1) - before[0], packets(w, 1, 0) - before[1])
}

/// Opens two epochs that are closed at once. The second one waits for the first one, and has results.
fn two_epochs<P: Port>(w: &mut World<P>) {
    let first = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, first, (1, 0), &[5, 6]);
    w.operate(0, first, (1, 1), SUM, Memory::new(vec![10_u64]), None).unwrap();
    let first = w.close(0, first);
    let second = w.lock(0, 1, LockKind::Shared);
    let get = w.get(0, second, (1, 0), 3);
    let fetch = w.operate(0, second, (1, 1), ADD, Memory::new(vec![1_u64]), None).unwrap().unwrap();
    let swap = Action::CompareSwap { element: ElementType::U64 };
    let swap = w.operate(0, second, (1, 2), swap, Memory::new(vec![0_u64, 9]), None).unwrap().unwrap();
    let put = w.operate(0, second, (1, 3), Action::Put, Memory::new(vec![8_u64]), Some(NEVER));
    let put = put.unwrap().unwrap();
    let second = w.close(0, second);
    w.wait(0, first);
    w.wait(0, second);
    assert_eq!(w.values(0, get), [5, 16, 0]);
    assert_eq!((w.values(0, fetch), w.values(0, swap)), (vec![16], vec![0, 9]));
    assert_eq!(w.values(0, put), [8], "the memory comes back");
    assert_eq!([0, 1, 2, 3].map(|word| w.word(1, word)), [5, 17, 9, 8]);
    assert_eq!((w.engines[0].stack().pending(), w.engines[0].stack().recorded()), (0, 0));
}

#[test]
fn an_epoch_is_one_packet_and_its_answer_another() {
    for (hints, expected) in [(AGGREGATE, (2, 2)), (Hints::default(), (4 + 6, 2 + 5))] {
        on_loopback(2, hints, |w| {
            let meet = w.lock(0, 1, LockKind::Shared);
            let (flush, back) = (w.flush(0, meet, None), w.lock(1, 0, LockKind::Shared));
            w.wait(0, flush);
            release(w, 0, meet);
            release(w, 1, back);
            w.settle();
            assert_eq!(exchanged(w, two_epochs), expected);
            let counters = w.engines[0].stack().counters();
            assert_eq!((counters.operations, counters.aggregated), (6, if hints.aggregate { 2 } else { 0 }));
        });
    }
}

case!(results_are_those_of_plain_epochs, 2, results);
fn results<P: Port>(w: &mut World<P>) {
    two_epochs(w);
    assert_eq!(aggregated(w, 0), 2);
}

#[test]
fn an_epoch_is_recorded_until_the_program_waits_for_it() {
    on_loopback(2, AGGREGATE, |w| {
        let first = transact(w, 0, 1, 0, 1);
        w.wait(0, first);
        w.settle();
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        let sent = exchanged(w, |w| {
            w.put(0, epoch, (1, 0), &[2]);
        });
        assert_eq!((sent, w.word(1, 0)), ((0, 0), 1), "the epoch is recorded");
        let flush = w.flush(0, epoch, None);
        w.wait(0, flush);
        assert_eq!(w.word(1, 0), 2);
        release(w, 0, epoch);
        // The program does not wait for this read before it closes the epoch.
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, epoch, (1, 1), &[5]);
        let get = w.get(0, epoch, (1, 0), 2);
        let sent = exchanged(w, |w| release(w, 0, epoch));
        assert_eq!((sent, w.values(0, get)), ((1, 1), vec![2, 5]));
        // The program waits for this one.
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, epoch, (1, 1), &[3]);
        let get = w.get(0, epoch, (1, 0), 1);
        assert_eq!(w.values(0, get), [2]);
        release(w, 0, epoch);
        // Operations that do not fit in a packet.
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        let packet = w.engines[0].port().caps().packet_max;
        for _ in 0..=packet / 1024 {
            w.put(0, epoch, (1, 2), &[4; 128]);
        }
        w.settle();
        assert_eq!(w.word(1, 2), 4);
        release(w, 0, epoch);
        // An epoch without operations.
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        release(w, 0, epoch);
        assert_eq!((w.word(1, 1), aggregated(w, 0)), (3, 2));
    });
}

case!(operations_may_have_a_form_at_the_target, 2, form);
fn form<P: Port>(w: &mut World<P>) {
    // Every second word, from the fifth one to the first one.
    let form = Form::block(8).unwrap().strided(3, -16).unwrap();
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    let places = || place((1, 4)).with_form(&form);
    w.operate_at(0, epoch, places(), Action::Put, Memory::new(vec![1_u64, 2, 3]), None).unwrap();
    w.operate_at(0, epoch, places(), SUM, Memory::new(vec![10_u64; 3]), None).unwrap();
    let fetch = w.operate_at(0, epoch, places(), ADD, Memory::new(vec![100_u64; 3]), None).unwrap();
    let close = w.close(0, epoch);
    w.wait(0, close);
    assert_eq!(w.values(0, fetch.unwrap()), [11, 12, 13]);
    assert_eq!([0, 1, 2, 3, 4].map(|word| w.word(1, word)), [113, 0, 112, 0, 111]);
    // Nine operations need not fit in the shortest packets.
    let is_long = w.engines[0].port().caps().packet_max >= 1024;
    assert!(aggregated(w, 0) == 1 || !is_long);
}

case!(locks_are_granted_in_the_order_of_requests, 4, order);
fn order<P: Port>(w: &mut World<P>) {
    let held = hold(w, 1, 0);
    let whole = transact(w, 2, 0, 0, 5);
    w.settle();
    let plain = w.lock(3, 0, LockKind::Exclusive);
    let fetch = w.operate(3, plain, (0, 0), ADD, Memory::new(vec![1_u64]), None).unwrap().unwrap();
    w.settle();
    assert!(w.is_pending(2, whole) && w.is_pending(3, fetch));
    assert_eq!(w.word(0, 0), 0);
    release(w, 1, held);
    w.wait(2, whole);
    assert_eq!(w.values(3, fetch), [5]);
    // The lock is free for rank 2 only after rank 3.
    let again = transact(w, 2, 0, 0, 7);
    w.settle();
    assert!(w.is_pending(2, again));
    assert_eq!(w.word(0, 0), 6);
    release(w, 3, plain);
    w.wait(2, again);
    assert_eq!((w.word(0, 0), aggregated(w, 2)), (7, 2));
}

case!(other_epochs_may_be_open_beside_a_recorded_one, 3, beside);
fn beside<P: Port>(w: &mut World<P>) {
    let recorded = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, recorded, (1, 0), &[1]);
    let other = w.lock(0, 2, LockKind::Exclusive);
    let get = w.get(0, other, (2, 0), 1);
    assert_eq!(w.values(0, get), [0]);
    release(w, 0, other);
    release(w, 0, recorded);
    assert_eq!((w.word(1, 0), aggregated(w, 0)), (1, 1));
}

case!(operations_without_room_are_sent_again, 4, without_room);
fn without_room<P: Port>(w: &mut World<P>) {
    for engine in &mut w.engines {
        *engine.stack_mut() = Windows::new(Config { attached_max: 100, ..Config::default() });
    }
    w.window = w.create(AGGREGATE);
    let held = hold(w, 1, 0);
    let closes = [2, 3].map(|at| {
        let epoch = w.lock(at, 0, LockKind::Exclusive);
        w.put(at, epoch, (0, at as u64), &[at as u64; 4]);
        let close = w.close(at, epoch);
        w.settle();
        (at, close)
    });
    release(w, 1, held);
    for (at, close) in closes {
        w.wait(at, close);
        assert_eq!(w.word(0, at), at as u64);
    }
    assert_eq!([2, 3].map(|at| aggregated(w, at)), [1, 0]);
    // A read that is sent again arrives once.
    let first = transact(w, 2, 0, 0, 6);
    let epoch = w.lock(2, 0, LockKind::Shared);
    let get = w.get(2, epoch, (0, 0), 20);
    let close = w.close(2, epoch);
    w.wait(2, first);
    w.wait(2, close);
    assert_eq!((w.values(2, get)[0], aggregated(w, 2)), (6, 2));
}

case!(an_operation_outside_of_the_part_ends_alone, 2, outside);
fn outside<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, epoch, (1, 0), &[1]);
    w.put(0, epoch, (1, PART as u64 / 8), &[2]);
    w.put(0, epoch, (1, 1), &[3]);
    let close = w.close(0, epoch);
    let result = w.complete(0, close).result;
    assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{result:?}");
    assert_eq!((w.word(1, 0), w.word(1, 1)), (1, 3));
}

case!(a_dead_origin_writes_nothing, 4, dead_origin);
fn dead_origin<P: Port>(w: &mut World<P>) {
    let held = hold(w, 1, 0);
    let lost = transact(w, 2, 0, 0, 5);
    w.settle();
    let next = transact(w, 3, 0, 1, 6);
    w.settle();
    kill(w, 2);
    release(w, 1, held);
    w.wait(3, next);
    assert_eq!((w.word(0, 0), w.word(0, 1)), (0, 6), "{lost:?}");
}

case!(the_fate_of_operations_to_a_dead_target_is_unknown, 3, dead_target);
fn dead_target<P: Port>(w: &mut World<P>) {
    let held = hold(w, 1, 0);
    let epoch = w.lock(2, 0, LockKind::Exclusive);
    let put = w.operate(2, epoch, (0, 0), Action::Put, Memory::new(vec![1_u64]), None).unwrap();
    assert_eq!(put, None);
    let close = w.close(2, epoch);
    w.settle();
    kill(w, 0);
    let result = w.complete(2, close).result;
    let is_unknown = matches!(result, Err(Error::Link(LinkError::PeerFailed { fate: Fate::Unknown, .. })));
    assert!(is_unknown, "{result:?}");
    let close = w.close(1, held);
    ends_with_failure(w, 1, close, 0);
}

case!(a_cancelled_epoch_is_withdrawn, 3, cancelled);
fn cancelled<P: Port>(w: &mut World<P>) {
    let held = hold(w, 1, 0);
    let close = transact(w, 2, 0, 0, 5);
    w.settle();
    w.call(2, |windows, link| windows.cancel(link, close));
    let cancelled = Err(Error::Link(LinkError::Cancelled { fate: Fate::Unknown }));
    assert_eq!(w.complete(2, close).result, cancelled);
    w.settle();
    release(w, 1, held);
    let next = transact(w, 2, 0, 1, 6);
    w.wait(2, next);
    assert_eq!((w.word(0, 0), w.word(0, 1)), (0, 6));
}

case!(an_epoch_may_be_cancelled_after_it_was_applied, 3, applied_before);
fn applied_before<P: Port>(w: &mut World<P>) {
    let first = transact(w, 2, 0, 0, 1);
    w.wait(2, first);
    let first = w.lock(2, 0, LockKind::Exclusive);
    w.put(2, first, (0, 0), &[4]);
    let first = w.close(2, first);
    let epoch = w.lock(2, 0, LockKind::Exclusive);
    let fetch = w.operate(2, epoch, (0, 0), ADD, Memory::new(vec![1_u64]), None).unwrap().unwrap();
    let close = w.close(2, epoch);
    w.wait(2, first);
    // The answer to the second epoch waits, and rank 2 gives up.
    w.stopped.insert(2);
    for step in 0..4000 {
        w.step();
        if step == 2000 {
            w.call(2, |windows, link| windows.cancel(link, close));
        }
    }
    w.stopped.clear();
    // On some networks rank 2 has not sent the epoch before it was stopped.
    let Err(Error::Link(LinkError::Cancelled { fate })) = w.complete(2, close).result else {
        panic!("cancelled")
    };
    assert!(fate == Fate::Unknown || w.word(0, 0) == 4, "{fate:?}, and the word is {}", w.word(0, 0));
    assert!(w.complete(2, fetch).result.is_err());
    for value in 6..9 {
        let next = transact(w, 2, 0, 0, value);
        w.wait(2, next);
        assert_eq!(w.word(0, 0), value);
    }
    assert_eq!(w.engines[2].stack().pending(), 0);
}

const EPOCH: u32 = 24;
const APPLIED: u8 = 25;
/// A request for the lock with number 2, behind which operations follow.
const REQUEST: [u32; 6] = [1, 1, 2, 0, 7, 0];
/// A put of a word at offset 8: an entry, and the place.
const WORD_PUT: [u32; 8] = [2, 24, 1, 0, 8, 0, 9, 9];

#[test]
fn forged_epochs_end_their_sender() {
    let put = |change: &dyn Fn(&mut [u32; 8])| {
        let mut words = WORD_PUT;
        change(&mut words);
        words.to_vec()
    };
    let nested = [vec![EPOCH, 56], REQUEST.to_vec(), WORD_PUT.to_vec()].concat();
    let cases: [(&str, Vec<u32>); 9] = [
        ("operations", Vec::new()),
        ("kind", nested),
        ("too few", put(&|words| words[1] = 28)),
        ("too few", put(&|words| words[1] = 8)),
        ("too few", vec![2]),
        ("generation", put(&|words| words[2] = 2)),
        ("place", put(&|words| words[4] = PART as u32 - 4)),
        ("kind", put(&|words| words[0] = 7)),
        // The second operation is no accumulate of any type.
        (
            "element",
            [WORD_PUT, put(&|words| (words[0], words[3]) = (3, 0xffff)).try_into().unwrap()].concat(),
        ),
    ];
    for (text, operations) in cases {
        on_loopback(3, Hints::default(), |w| {
            let first = transact(w, 1, 0, 0, 1);
            w.wait(1, first);
            arrive(w, &[(EPOCH as u8, &[&REQUEST[..], &operations].concat())]);
            let violation = violation(w);
            assert!(violation.contains(text), "{violation:?} for {operations:?}");
            assert_eq!(w.word(0, 1), 0);
            kill(w, 1);
            let other = transact(w, 2, 0, 0, 3);
            w.wait(2, other);
        });
    }
    // The same packet without a fault is applied, and a second one before the answer is sent is none that a member
    // sends.
    on_loopback(2, Hints::default(), |w| {
        let first = transact(w, 1, 0, 0, 1);
        w.wait(1, first);
        let mut packet = [&REQUEST[..], &WORD_PUT].concat();
        arrive(w, &[(EPOCH as u8, &packet)]);
        assert_eq!((w.engines[0].failure(rank(1)), w.word(0, 1)), (None, 9 << 32 | 9));
        packet[2] = 3;
        arrive(w, &[(EPOCH as u8, &packet)]);
        assert!(violation(w).contains("lock"));
    });
}

#[test]
fn forged_answers_to_epochs_end_their_sender() {
    // The numbers of the lock and of the epoch, the number of words of results, and the text of the violation.
    let cases = [(1, 0, 0, None), (1, 0, 2, Some("results")), (2, 0, 0, Some("end of")), (1, 9, 0, None)];
    for (lock, epoch, words, expected) in cases {
        on_loopback(3, AGGREGATE, |w| {
            let held = hold(w, 2, 1);
            let close = transact(w, 0, 1, 0, 1);
            w.settle();
            let mut answer = vec![1, 0, lock, 0, epoch, 0];
            answer.extend([7, 7].repeat(words));
            arrive(w, &[(APPLIED, &answer)]);
            match expected {
                Some(text) => {
                    let violation = violation(w);
                    assert!(violation.contains(text), "{violation:?}");
                    w.engines[0].drive(&mut ());
                    ends_with_failure(w, 0, close, 1);
                }
                None => {
                    assert_eq!(w.engines[0].failure(rank(1)), None);
                    assert_eq!(w.is_pending(0, close), epoch == 9, "there is no such epoch");
                }
            }
            w.engines[0].stack().check_invariants();
            let _ = held;
        });
    }
    // An answer to an epoch that has sent no operations.
    on_loopback(3, AGGREGATE, |w| {
        let held = hold(w, 2, 1);
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        let flush = w.flush(0, epoch, None);
        w.settle();
        arrive(w, &[(APPLIED, &[1, 0, 1, 0, 0, 0])]);
        assert!(violation(w).contains("end of"), "{flush:?} {held:?}");
    });
}
