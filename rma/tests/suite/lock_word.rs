//! Tests of locks that are taken by their word, in memory that the ranks map.

use samite_fabric::link::Cause;
use samite_fabric::{Memory, Port};
use samite_rma::{Action, ElementType, EpochId, Hints, LockKind, Reduction, Reorder};

use super::failures::{end, ends_with_failure, kill};
use super::world::{NEVER, PART, World, on_mapped_or_put, on_shm};

/// Declares a test over shared memory, and in simulated networks in which the ranks map the memory of others.
macro_rules! case {
    ($name:ident, $size:literal, $test:ident) => {
        #[test]
        fn $name() {
            on_shm($size, Hints::default(), true, $test);
            on_mapped_or_put(100, $size, $test);
        }
    };
}

/// Puts to a rank under its lock. The ranks then know each other, and the first rank maps the part of the other one.
fn meet<P: Port>(w: &mut World<P>, at: usize, target: usize) {
    let epoch = w.lock(at, target, LockKind::Exclusive);
    w.put(at, epoch, (target, 7), &[0]);
    let close = w.close(at, epoch);
    w.wait(at, close);
}

/// Returns the number of locks that a rank has taken by their words, and that it has granted by messages.
fn locks<P: Port>(w: &World<P>, at: usize) -> (u64, u64) {
    let counters = w.engines[at].stack().counters();
    (counters.mapped_locks, counters.locks)
}

/// Takes a lock by its word.
#[track_caller]
fn take<P: Port>(w: &mut World<P>, at: usize, target: usize) -> EpochId {
    let (before, _) = locks(w, at);
    let epoch = w.lock(at, target, LockKind::Exclusive);
    assert_eq!(locks(w, at).0, before + 1, "rank {at} has not taken the lock of rank {target}");
    epoch
}

case!(a_free_lock_is_taken_without_a_message, 2, alone);
fn alone<P: Port>(w: &mut World<P>) {
    meet(w, 0, 1);
    w.settle();
    let granted = locks(w, 1).1;
    for value in 1..100 {
        let epoch = take(w, 0, 1);
        w.put(0, epoch, (1, 3), &[value]);
        let close = w.close(0, epoch);
        assert!(!w.is_pending(0, close) && w.word(1, 3) == value);
        w.wait(0, close);
    }
    assert_eq!(locks(w, 1).1, granted);
}

/// Closes an epoch as a program does: within the call if it is bare.
fn close_bare<P: Port>(w: &mut World<P>, at: usize, epoch: EpochId) -> bool {
    w.call(at, |windows, link| windows.close_bare(link, epoch))
}

case!(a_bare_lock_is_given_back_within_the_call, 3, bare);
fn bare<P: Port>(w: &mut World<P>) {
    (1..3).for_each(|at| meet(w, at, 0));
    w.settle();
    let epochs = |w: &World<P>| w.engines[1].stack().counters().epochs;
    for _ in 0..3 {
        let (epoch, before) = (take(w, 1, 0), epochs(w));
        assert!(w.engines[1].stack().is_bare(epoch));
        assert!(close_bare(w, 1, epoch) && !close_bare(w, 1, epoch));
        assert_eq!(epochs(w), before + 1);
        let again = w.call(1, |windows, link| windows.close(link, epoch, NEVER));
        assert_eq!(again, Err(samite_rma::Error::NoSuchEpoch));
        // The other rank can take the lock. This rank then asks for it, and the word is suspended.
        let held = take(w, 2, 0);
        let waiting = w.lock(1, 0, LockKind::Exclusive);
        assert!(!w.engines[1].stack().is_bare(waiting) && !close_bare(w, 1, waiting));
        w.settle();
        assert!(w.engines[2].stack().is_bare(held) && !close_bare(w, 2, held));
        let close = w.close(2, held);
        w.wait(2, close);
        let close = w.close(1, waiting);
        w.wait(1, close);
        w.settle();
    }
}

case!(a_bare_epoch_is_recorded_when_another_one_begins, 3, recorded);
fn recorded<P: Port>(w: &mut World<P>) {
    [0, 2].into_iter().for_each(|target| meet(w, 1, target));
    w.settle();
    let first = take(w, 1, 0);
    let again = w.call(1, |windows, link| {
        windows.lock(link, first.window(), super::world::rank(0), LockKind::Exclusive)
    });
    assert!(matches!(again, Err(samite_rma::Error::WrongState { .. })), "{again:?}");
    assert!(!w.engines[1].stack().is_bare(first) && !close_bare(w, 1, first));
    let second = take(w, 1, 2);
    w.put(1, second, (2, 0), &[2]);
    w.put(1, first, (0, 0), &[1]);
    for epoch in [first, second] {
        let close = w.close(1, epoch);
        w.wait(1, close);
    }
    assert_eq!([w.word(0, 0), w.word(2, 0)], [1, 2]);
    // The program may lose the name of an epoch.
    take(w, 1, 0);
    let window = w.window;
    w.call(1, |windows, link| windows.close_all(link, window)).unwrap();
    w.settle();
    let epoch = take(w, 1, 0);
    assert!(close_bare(w, 1, epoch));
}

case!(a_bare_epoch_ends_with_its_target, 2, bare_at_end);
fn bare_at_end<P: Port>(w: &mut World<P>) {
    meet(w, 1, 0);
    w.settle();
    let epoch = take(w, 1, 0);
    kill(w, 0);
    assert!(!close_bare(w, 1, epoch));
    let close = w.close(1, epoch);
    ends_with_failure(w, 1, close, 0);
}

case!(a_word_stays_suspended_if_a_member_that_was_given_up_may_live, 3, given_up);
fn given_up<P: Port>(w: &mut World<P>) {
    (1..3).for_each(|at| meet(w, at, 0));
    w.settle();
    w.engines[0].peer_failed(super::world::rank(1), None, Cause::Lost).unwrap();
    let before = locks(w, 2).0;
    for value in 1..4 {
        let epoch = w.lock(2, 0, LockKind::Exclusive);
        w.put(2, epoch, (0, 0), &[value]);
        let close = w.close(2, epoch);
        w.wait(2, close);
        assert_eq!(w.word(0, 0), value);
    }
    assert_eq!(locks(w, 2).0, before);
    // The owner takes no packet of this member any more.
    let before = locks(w, 1).0;
    w.lock(1, 0, LockKind::Exclusive);
    assert_eq!(locks(w, 1).0, before);
}

case!(the_owner_locks_its_own_part_without_a_message, 2, own);
fn own<P: Port>(w: &mut World<P>) {
    meet(w, 1, 1);
    w.settle();
    let epoch = take(w, 1, 1);
    let waiting = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, waiting, (1, 0), &[5]);
    let waiting = w.close(0, waiting);
    w.settle();
    assert!(w.is_pending(0, waiting) && w.word(1, 0) == 0);
    w.put(1, epoch, (1, 1), &[6]);
    let close = w.close(1, epoch);
    w.wait(1, close);
    w.wait(0, waiting);
    assert_eq!((w.word(1, 0), w.word(1, 1)), (5, 6));
}

case!(requests_wait_for_the_holder_of_the_word, 4, contended);
fn contended<P: Port>(w: &mut World<P>) {
    (1..4).for_each(|at| meet(w, at, 0));
    w.settle();
    for kind in [LockKind::Exclusive, LockKind::Shared] {
        let held = take(w, 1, 0);
        let epochs = [2, 3].map(|at| (at, w.lock(at, 0, kind)));
        let closes = epochs.map(|(at, epoch)| {
            w.put(at, epoch, (0, at as u64), &[1]);
            (at, w.close(at, epoch))
        });
        w.settle();
        assert!(closes.iter().all(|(at, close)| w.is_pending(*at, *close) && w.word(0, *at) == 0));
        w.put(1, held, (0, 1), &[1]);
        let close = w.close(1, held);
        w.wait(1, close);
        closes.into_iter().for_each(|(at, close)| w.wait(at, close));
        assert_eq!([1, 2, 3].map(|at| w.word(0, at)), [1; 3]);
        // Nobody holds or awaits the lock, so it can be taken by the word again.
        w.settle();
        for at in 1..4 {
            let epoch = take(w, at, 0);
            w.put(at, epoch, (0, 1), &[0, 0, 0]);
            let close = w.close(at, epoch);
            w.wait(at, close);
        }
    }
}

case!(a_lock_of_all_waits_for_the_holder_of_a_word, 3, all);
fn all<P: Port>(w: &mut World<P>) {
    meet(w, 1, 0);
    w.settle();
    let held = take(w, 1, 0);
    let epoch = w.lock_all(2);
    let get = w.get(2, epoch, (0, 0), 1);
    w.settle();
    assert!(w.is_pending(2, get));
    w.put(1, held, (0, 0), &[8]);
    let close = w.close(1, held);
    w.wait(1, close);
    assert_eq!(w.values(2, get), [8]);
    // The shared lock is held, so this one is not taken by the word.
    let epoch_of_1 = w.lock(1, 0, LockKind::Exclusive);
    let flush = w.flush(1, epoch_of_1, None);
    w.settle();
    assert!(w.is_pending(1, flush));
    let close = w.close(2, epoch);
    w.wait(2, close);
    w.wait(1, flush);
    let close = w.close(1, epoch_of_1);
    w.wait(1, close);
}

case!(the_lock_of_a_dead_holder_of_the_word_passes_on, 4, dead);
fn dead<P: Port>(w: &mut World<P>) {
    (1..4).for_each(|at| meet(w, at, 0));
    w.settle();
    for (at, cause) in [(1, Cause::Died("killed".into())), (2, Cause::Left)] {
        take(w, at, 0);
        end(w, at, &cause);
        let epoch = w.lock(3, 0, LockKind::Exclusive);
        w.put(3, epoch, (0, 0), &[at as u64]);
        let close = w.close(3, epoch);
        w.wait(3, close);
        assert_eq!(w.word(0, 0), at as u64);
        w.settle();
    }
}

case!(a_request_behind_a_dead_holder_of_the_word_is_granted, 3, dead_before);
fn dead_before<P: Port>(w: &mut World<P>) {
    (1..3).for_each(|at| meet(w, at, 0));
    w.settle();
    take(w, 1, 0);
    let epoch = w.lock(2, 0, LockKind::Exclusive);
    w.put(2, epoch, (0, 0), &[5]);
    let close = w.close(2, epoch);
    w.settle();
    assert!(w.is_pending(2, close));
    kill(w, 1);
    w.wait(2, close);
    assert_eq!(w.word(0, 0), 5);
    let epoch = take(w, 2, 0);
    let close = w.close(2, epoch);
    w.wait(2, close);
}

case!(a_dead_owner_ends_the_epoch_of_the_holder_of_its_word, 2, dead_owner);
fn dead_owner<P: Port>(w: &mut World<P>) {
    meet(w, 1, 0);
    w.settle();
    let epoch = take(w, 1, 0);
    w.put(1, epoch, (0, 0), &[5]);
    kill(w, 0);
    let close = w.close(1, epoch);
    ends_with_failure(w, 1, close, 0);
}

case!(packets_under_a_lock_of_the_word_are_applied_before_its_end, 3, long);
/// Elements of 16 bytes travel in packets.
fn long<P: Port>(w: &mut World<P>) {
    (1..3).for_each(|at| meet(w, at, 0));
    w.settle();
    let sum = Action::Accumulate { op: Reduction::Sum, element: ElementType::U128 };
    for round in 1..10 {
        for at in [1, 2] {
            let epoch = take(w, at, 0);
            w.operate(at, epoch, (0, 2), sum, Memory::new(vec![1_u128 << 64 | 1]), None).unwrap();
            let close = w.close(at, epoch);
            w.wait(at, close);
            w.settle();
        }
        assert_eq!([w.word(0, 2), w.word(0, 3)], [2 * round; 2]);
    }
}

case!(an_epoch_that_ends_early_gives_the_word_back, 3, early);
fn early<P: Port>(w: &mut World<P>) {
    (1..3).for_each(|at| meet(w, at, 0));
    w.settle();
    let epoch = take(w, 1, 0);
    let long = Action::GetAccumulate { op: Reduction::NoOp, element: ElementType::U128 };
    let get = w.operate(1, epoch, (0, 0), long, Memory::new(vec![0_u128]), Some(NEVER)).unwrap().unwrap();
    let close = w.close(1, epoch);
    w.call(1, |windows, link| windows.cancel(link, close));
    w.complete(1, close).result.unwrap_err();
    let _ = w.complete(1, get);
    for _ in 0..3 {
        let epoch = w.lock(2, 0, LockKind::Exclusive);
        w.put(2, epoch, (0, 0), &[5]);
        let close = w.close(2, epoch);
        w.wait(2, close);
        w.settle();
    }
    assert!(locks(w, 2).0 >= 2);
}

#[test]
fn a_member_is_not_blamed_for_a_word_that_another_one_has_overwritten() {
    on_shm(3, Hints::default(), true, |w| {
        (1..3).for_each(|at| meet(w, at, 0));
        w.settle();
        let epoch = w.lock(1, 0, LockKind::Shared);
        let close = w.close(1, epoch);
        w.wait(1, close);
        w.settle();
        let window = w.window;
        let overwrite = |w: &mut World<_>, word: u64| {
            let written =
                w.call(0, |windows, _| windows.part(window).unwrap().copy_in(PART, &word.to_ne_bytes()));
            written.unwrap();
        };
        // Rank 2 holds nothing, holds the lock, and holds it beside a rank that does not.
        for word in [3_u64, 3 | 1 << 63] {
            overwrite(w, word);
            meet(w, 2, 0);
            w.settle();
        }
        for word in [0, u64::MAX, 9] {
            let epoch = take(w, 2, 0);
            overwrite(w, word);
            let close = w.close(2, epoch);
            w.wait(2, close);
            w.settle();
            meet(w, 1, 0);
            w.settle();
        }
    });
}

#[test]
fn a_window_whose_exposures_pass_others_has_no_word() {
    for reorder in [Reorder::EXPOSURE_AFTER_ACCESS, Reorder::EXPOSURE_AFTER_EXPOSURE] {
        on_shm(2, Hints { reorder, ..Hints::default() }, true, |w| {
            (0..3).for_each(|_| meet(w, 0, 1));
            assert_eq!((locks(w, 0).0, locks(w, 1).1), (0, 3));
        });
    }
}

case!(counters_under_exclusive_locks_lose_nothing, 4, counters);
/// Each rank reads a counter and writes it back under the lock, 200 times, while the others do so too.
fn counters<P: Port>(w: &mut World<P>) {
    let mut open: [Option<EpochId>; 4] = [None; 4];
    let mut reads = [None; 4];
    let mut ends = [None; 4];
    let mut left = [200_u32; 4];
    while left.iter().any(|left| *left > 0) || (0..4).any(|at| open[at].is_some() || ends[at].is_some()) {
        for at in 0..4 {
            match (open[at], reads[at], ends[at]) {
                (None, _, None) if left[at] > 0 => {
                    left[at] -= 1;
                    let target = left[at] as usize % 2;
                    let epoch = w.lock(at, target, LockKind::Exclusive);
                    reads[at] = Some((target, w.get(at, epoch, (target, 0), 1)));
                    open[at] = Some(epoch);
                }
                (Some(epoch), Some((target, get)), _) if !w.is_pending(at, get) => {
                    let value = w.values(at, get)[0];
                    w.put(at, epoch, (target, 0), &[value + 1]);
                    ends[at] = Some(w.close(at, epoch));
                    (open[at], reads[at]) = (None, None);
                }
                (None, _, Some(end)) if !w.is_pending(at, end) => {
                    w.wait(at, end);
                    ends[at] = None;
                }
                _ => {}
            }
        }
        w.step();
    }
    assert_eq!([w.word(0, 0), w.word(1, 0)], [400; 2]);
    let taken: u64 = (0..4).map(|at| locks(w, at).0).sum();
    assert!(taken > 0);
}
