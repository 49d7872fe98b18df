//! The rules on nonblocking epochs (Zounmevo 2014, section 5.6), a test for each, and the cases in which a direct
//! reading of them fails. "Late" ranks take part in the communication but have not made a call.

use samite_fabric::link::RequestId;
use samite_fabric::{Memory, Port};
use samite_rma::{Action, Assertions, ElementType, EpochId, Error, Hints, LockKind, Reduction, Reorder};

use crate::world::{NEVER, PART, World, group, on_loopback, on_sim, rank};

macro_rules! rule {
    ($name:ident, $size:expr, $hints:expr, $test:ident) => {
        #[test]
        fn $name() {
            on_loopback($size, $hints, $test);
            on_sim(1000, $size, $hints, $test);
        }
    };
}

fn plain() -> Hints {
    Hints::default()
}

fn reordered(reorder: Reorder) -> Hints {
    Hints { reorder, ..Hints::default() }
}

/// Opens an access epoch of `start`, puts one word to each target, and closes the epoch.
fn access<P: Port>(w: &mut World<P>, at: usize, targets: &[usize], place: u64, value: u64) -> RequestId {
    let epoch = w.start(at, targets);
    for target in targets {
        w.put(at, epoch, (*target, place), &[value]);
    }
    w.close(at, epoch)
}

fn expose<P: Port>(w: &mut World<P>, at: usize, origins: &[usize]) -> RequestId {
    let epoch = w.post(at, origins);
    w.close(at, epoch)
}

/// Locks, puts one word, and unlocks.
fn transact<P: Port>(w: &mut World<P>, at: usize, target: usize, place: u64, value: u64) -> RequestId {
    let epoch = w.lock(at, target, LockKind::Exclusive);
    w.put(at, epoch, (target, place), &[value]);
    w.close(at, epoch)
}

#[track_caller]
fn pending<P: Port>(w: &mut World<P>, requests: &[(usize, RequestId)]) {
    w.settle();
    for (at, request) in requests {
        assert!(w.is_pending(*at, *request), "the request of rank {at} has ended");
    }
}

#[track_caller]
fn wait_all<P: Port>(w: &mut World<P>, requests: &[(usize, RequestId)]) {
    for (at, request) in requests {
        w.wait(*at, *request);
    }
}

rule!(rule_01_operations_have_the_rules_of_blocking_epochs, 3, plain(), rule_01);
fn rule_01<P: Port>(w: &mut World<P>) {
    let epoch = w.start(0, &[1]);
    let word = || Memory::new(vec![1_u64]);
    let outside = w.operate(0, epoch, (2, 0), Action::Put, word(), None);
    assert_eq!(outside, Err(Error::NotATarget { rank: rank(2) }));
    let window = w.window;
    let inner = w.call(0, |windows, link| windows.start(link, window, &group([2])));
    assert!(matches!(inner, Err(Error::WrongState { .. })), "no epoch in an epoch");
    let close = w.close(0, epoch);
    let late = w.operate(0, epoch, (1, 0), Action::Put, word(), None);
    assert_eq!(late, Err(Error::NoSuchEpoch));
    let exposure = w.post(1, &[0]);
    let through = w.operate(1, exposure, (0, 0), Action::Put, word(), None);
    assert_eq!(through, Err(Error::NotATarget { rank: rank(0) }), "an exposure is no access");
    let wait = w.close(1, exposure);
    wait_all(w, &[(0, close), (1, wait)]);
}

rule!(rule_02_closing_is_not_completion, 2, plain(), rule_02);
fn rule_02<P: Port>(w: &mut World<P>) {
    let epoch = w.start(0, &[1]);
    let get = w.get(0, epoch, (1, 5), 1);
    let close = w.close(0, epoch);
    pending(w, &[(0, get), (0, close)]);
    let window = w.window;
    w.call(1, |windows, _| windows.write(window, 40, &7_u64.to_ne_bytes())).unwrap();
    let wait = expose(w, 1, &[0]);
    wait_all(w, &[(0, close), (1, wait)]);
    assert!(!w.is_pending(0, get), "the epoch completes after its operations");
    assert_eq!(w.values(0, get), [7]);
}

rule!(rule_03_an_operation_belongs_to_its_epoch, 3, plain(), rule_03);
fn rule_03<P: Port>(w: &mut World<P>) {
    let first = access(w, 0, &[1], 0, 1);
    let second = w.start(0, &[1, 2]);
    w.put(0, second, (1, 0), &[2]);
    w.put(0, second, (2, 0), &[3]);
    let waits = [1, 2].map(|at| (at, expose(w, at, &[0])));
    // Rank 2 has one exposure, which matches the second epoch. That is not activated before the first has completed.
    wait_all(w, &[(0, first), waits[0]]);
    let [one, two] = [1, 2].map(|at| w.word(at, 0));
    assert_eq!((one, two), (1, two));
    let close = w.close(0, second);
    let again = expose(w, 1, &[0]);
    wait_all(w, &[(0, close), (1, again), waits[1]]);
    assert_eq!([w.word(1, 0), w.word(2, 0)], [2, 3]);
}

rule!(rule_04_waiting_and_not_waiting_may_be_combined, 2, plain(), rule_04);
fn rule_04<P: Port>(w: &mut World<P>) {
    let mut earlier: Option<RequestId> = None;
    for round in 0..4 {
        let close = access(w, 0, &[1], 0, round);
        let exposure = w.post(1, &[0]);
        if round % 2 == 0 {
            // Blocking at the origin; a loop of tests at the target.
            w.wait(0, close);
            while !w.call(1, |windows, link| windows.is_exposure_over(link, exposure)).unwrap() {
                w.step();
            }
            let wait = w.close(1, exposure);
            assert!(!w.is_pending(1, wait), "a successful test ends the epoch");
            w.wait(1, wait);
        } else {
            let wait = w.close(1, exposure);
            w.wait(1, wait);
            earlier = Some(close);
        }
        assert_eq!(w.word(1, 0), round);
        if let Some(close) = earlier.take() {
            w.wait(0, close);
        }
    }
}

rule!(rule_05_flushes_do_not_wait, 3, plain(), rule_05);
fn rule_05<P: Port>(w: &mut World<P>) {
    let holder = w.lock(2, 1, LockKind::Exclusive);
    let held = w.flush(2, holder, None);
    w.put(2, holder, (1, 0), &[8]);
    w.settle();
    w.wait(2, held);
    let epoch = w.lock(0, 1, LockKind::Shared);
    w.put(0, epoch, (1, 0), &[9]);
    let get = w.get(0, epoch, (1, 0), 1);
    let flush = w.flush(0, epoch, Some(1));
    let local = w.call(0, |windows, link| windows.flush_local(link, epoch, None, NEVER)).unwrap();
    let close = w.close(0, epoch);
    pending(w, &[(0, flush), (0, local), (0, close), (0, get)]);
    let unlock = w.close(2, holder);
    wait_all(w, &[(2, unlock), (0, flush), (0, local)]);
    assert_eq!(w.values(0, get), [9]);
    w.wait(0, close);
}

rule!(rule_06_operations_keep_their_order, 2, plain(), rule_06);
fn rule_06<P: Port>(w: &mut World<P>) {
    let epoch = w.start(0, &[1]);
    let replace = Action::Accumulate { op: Reduction::Replace, element: ElementType::U64 };
    let fetch = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };
    let mut fetched = Vec::new();
    for value in 0..20_u64 {
        let words = vec![10 * value; PART / 8];
        w.operate(0, epoch, (1, 0), replace, Memory::new(words), None).unwrap();
        fetched.push(w.operate(0, epoch, (1, 0), fetch, Memory::new(vec![1_u64]), None).unwrap().unwrap());
    }
    let close = w.close(0, epoch);
    let wait = expose(w, 1, &[0]);
    for (value, request) in fetched.into_iter().enumerate() {
        assert_eq!(w.values(0, request), [10 * value as u64]);
    }
    wait_all(w, &[(0, close), (1, wait)]);
    assert_eq!([w.word(1, 0), w.word(1, PART / 8 - 1)], [191, 190]);
}

rule!(rule_07_epochs_match_first_in_first_out, 3, plain(), rule_07);
fn rule_07<P: Port>(w: &mut World<P>) {
    // Rank 0 is five epochs ahead of rank 1, and rank 1 is three ahead of rank 2.
    let closes: Vec<_> = (1..=5).map(|value| (0, access(w, 0, &[1], 0, value))).collect();
    let waits: Vec<_> = (0..3).map(|_| (1, expose(w, 1, &[2]))).collect();
    for value in 1..=5 {
        let wait = if value < 3 { None } else { Some(expose(w, 1, &[0])) };
        if value == 3 {
            pending(w, &[closes[0], (1, wait.unwrap())]);
            let late: Vec<_> = (1..=3).map(|value| (2, access(w, 2, &[1], 1, value))).collect();
            wait_all(w, &waits);
            wait_all(w, &late);
            assert_eq!(w.word(1, 1), 3);
        }
        if let Some(wait) = wait {
            w.wait(1, wait);
            assert_eq!(w.word(1, 0), value - 2, "exposure {} matches access {}", value - 2, value - 2);
        }
    }
    let rest: Vec<_> = (0..2).map(|_| (1, expose(w, 1, &[0]))).collect();
    wait_all(w, &rest);
    wait_all(w, &closes);
    assert_eq!(w.word(1, 0), 5);
}

rule!(rule_08_epochs_are_activated_in_order, 3, plain(), rule_08);
fn rule_08<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let ready = access(w, 0, &[2], 0, 2);
    let lock = transact(w, 0, 2, 1, 3);
    let wait = expose(w, 2, &[0]);
    pending(w, &[(0, late), (0, ready), (0, lock), (2, wait)]);
    assert_eq!([w.word(2, 0), w.word(2, 1)], [0, 0]);
    let end = expose(w, 1, &[0]);
    wait_all(w, &[(0, late), (0, ready), (0, lock), (2, wait), (1, end)]);
    assert_eq!([w.word(1, 0), w.word(2, 0), w.word(2, 1)], [1, 2, 3]);
}

rule!(rule_09_a_fence_that_ends_an_epoch_is_a_barrier, 4, plain(), rule_09);
fn rule_09<P: Port>(w: &mut World<P>) {
    let epochs: Vec<_> = w.fence_all(Assertions::empty()).into_iter().map(Option::unwrap).collect();
    for (at, epoch) in epochs.iter().enumerate() {
        w.put(at, *epoch, ((at + 1) % 4, 0), &[at as u64 + 1]);
    }
    let mut ends = Vec::new();
    let mut next = Vec::new();
    for at in 0..3 {
        let fenced = w.fence(at, Assertions::empty());
        ends.push((at, fenced.completion.unwrap()));
        next.push(fenced.epoch.unwrap());
    }
    w.put(0, next[0], (1, 0), &[100]);
    pending(w, &ends);
    assert_eq!(w.word(1, 0), 1, "the next epoch is not activated");
    let last = w.fence(3, Assertions::NO_SUCCEED).completion.unwrap();
    ends.push((3, last));
    wait_all(w, &ends);
    assert_eq!([w.word(0, 0), w.word(2, 0), w.word(3, 0)], [4, 2, 3]);
    w.settle();
    assert_eq!(w.word(1, 0), 100);
}

rule!(rule_10_requests_that_are_dropped_free_themselves, 2, plain(), rule_10);
fn rule_10<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, epoch, (1, 0), &[1]);
    let get = w.get(0, epoch, (1, 0), 1);
    let (flush, other) = (w.flush(0, epoch, None), w.flush(0, epoch, Some(1)));
    for request in [get, flush] {
        w.engines[0].stack_mut().detach(request);
    }
    let close = w.close(0, epoch);
    w.wait(0, close);
    assert!(!w.is_pending(0, other), "the end of the epoch implies its flushes");
    w.wait(0, other);
    assert_eq!(w.engines[0].stack().pending(), 0);
    let dropped = transact(w, 0, 1, 1, 2);
    w.engines[0].stack_mut().detach(dropped);
    let window = w.window;
    let frees = [0, 1].map(|at| (at, w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap()));
    wait_all(w, &frees);
    assert!((0..2).all(|at| w.engines[at].stack().pending() == 0), "all epochs have completed");
}

rule!(rule_11_windows_are_independent, 2, plain(), rule_11);
fn rule_11<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let first = w.window;
    w.window = w.create(plain());
    let other = transact(w, 0, 1, 0, 2);
    w.wait(0, other);
    assert_eq!(w.word(1, 0), 2);
    w.window = first;
    assert!(w.is_pending(0, late));
    let wait = expose(w, 1, &[0]);
    wait_all(w, &[(0, late), (1, wait)]);
}

rule!(rule_12_start_after_access, 3, reordered(Reorder::ACCESS_AFTER_ACCESS), rule_12);
fn rule_12<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let ready = access(w, 0, &[2], 0, 2);
    let wait = expose(w, 2, &[0]);
    wait_all(w, &[(0, ready), (2, wait)]);
    assert!(w.is_pending(0, late));
    // After an exposure the flag has no effect.
    let exposure = expose(w, 0, &[2]);
    let held = access(w, 0, &[2], 0, 3);
    let wait = expose(w, 2, &[0]);
    pending(w, &[(0, late), (0, exposure), (0, held), (2, wait)]);
    let ends = [(1, expose(w, 1, &[0])), (2, access(w, 2, &[0], 0, 4))];
    // Rank 2 activates its access after its exposure to rank 0, which waits for rank 0's exposure: open it by a cancel
    // of the wait on rank 2.
    w.call(2, |windows, link| windows.cancel(link, wait));
    wait_all(w, &[(0, late), (0, exposure), ends[0], ends[1]]);
    assert!(matches!(w.complete(0, held).result, Err(Error::Aborted { .. })));
}

rule!(rule_13_lock_after_access, 3, reordered(Reorder::ACCESS_AFTER_ACCESS), rule_13);
fn rule_13<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let lock = transact(w, 0, 2, 0, 2);
    w.wait(0, lock);
    // The late rank is a target, so it is not locked.
    let same = transact(w, 0, 1, 0, 3);
    pending(w, &[(0, late), (0, same)]);
    assert_eq!([w.word(1, 0), w.word(2, 0)], [0, 2]);
    let wait = expose(w, 1, &[0]);
    wait_all(w, &[(0, late), (1, wait), (0, same)]);
    assert_eq!(w.word(1, 0), 3);
}

rule!(rule_14_start_after_exposure, 3, reordered(Reorder::ACCESS_AFTER_EXPOSURE), rule_14);
fn rule_14<P: Port>(w: &mut World<P>) {
    let late = expose(w, 0, &[1]);
    let ready = access(w, 0, &[2], 0, 2);
    let wait = expose(w, 2, &[0]);
    wait_all(w, &[(0, ready), (2, wait)]);
    let next = access(w, 0, &[1], 0, 3);
    let second = access(w, 0, &[2], 0, 4);
    let wait = expose(w, 2, &[0]);
    pending(w, &[(0, late), (0, next), (0, second), (2, wait)]);
    let ends = [(1, access(w, 1, &[0], 0, 5)), (1, expose(w, 1, &[0]))];
    wait_all(w, &[(0, late), (0, next), (0, second), (2, wait), ends[0], ends[1]]);
}

rule!(rule_15_lock_after_exposure, 3, reordered(Reorder::ACCESS_AFTER_EXPOSURE), rule_15);
fn rule_15<P: Port>(w: &mut World<P>) {
    let late = expose(w, 0, &[1]);
    let lock = transact(w, 0, 2, 0, 2);
    w.wait(0, lock);
    assert!(w.is_pending(0, late));
    let end = access(w, 1, &[0], 0, 1);
    wait_all(w, &[(0, late), (1, end)]);
}

rule!(rule_16_exposure_after_exposure, 3, reordered(Reorder::EXPOSURE_AFTER_EXPOSURE), rule_16);
fn rule_16<P: Port>(w: &mut World<P>) {
    let late = expose(w, 0, &[1]);
    let ready = expose(w, 0, &[2]);
    let end = access(w, 2, &[0], 0, 2);
    wait_all(w, &[(0, ready), (2, end)]);
    assert!(w.is_pending(0, late));
    // While the memory is locked, it is not exposed.
    let holder = w.lock(2, 0, LockKind::Shared);
    let held = w.flush(2, holder, None);
    w.wait(2, held);
    let locked = expose(w, 0, &[1]);
    pending(w, &[(0, late), (0, locked)]);
    let unlock = w.close(2, holder);
    let ends = [(1, access(w, 1, &[0], 0, 3)), (1, access(w, 1, &[0], 0, 4))];
    wait_all(w, &[(2, unlock), (0, late), (0, locked), ends[0], ends[1]]);
    assert_eq!(w.word(0, 0), 4);
}

rule!(rule_17_exposure_after_access, 3, reordered(Reorder::EXPOSURE_AFTER_ACCESS), rule_17);
fn rule_17<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let ready = expose(w, 0, &[2]);
    let end = access(w, 2, &[0], 0, 2);
    wait_all(w, &[(0, ready), (2, end)]);
    assert!(w.is_pending(0, late));
    let wait = expose(w, 1, &[0]);
    wait_all(w, &[(0, late), (1, wait)]);
}

rule!(rule_18_fences_are_alone, 2, reordered(Reorder::all()), rule_18);
fn rule_18<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let epoch = w.fence(0, Assertions::NO_PRECEDE).epoch.unwrap();
    w.fence(1, Assertions::NO_PRECEDE);
    w.put(0, epoch, (1, 1), &[2]);
    w.settle();
    assert_eq!(w.word(1, 1), 0, "the fence waits for the epoch before it");
    let fenced = w.fence(0, Assertions::NO_SUCCEED).completion.unwrap();
    let lock = transact(w, 0, 1, 2, 3);
    pending(w, &[(0, late), (0, fenced), (0, lock)]);
    assert_eq!(w.word(1, 2), 0, "the lock waits for the fence");
    // Rank 1 ends the epoch of its fence, then exposes.
    let end = w.fence(1, Assertions::NO_SUCCEED).completion.unwrap();
    let wait = expose(w, 1, &[0]);
    // Rank 1's fence waits for rank 0's, which waits for rank 1's exposure: the program is wrong, and a cancel ends it.
    pending(w, &[(0, late), (1, end), (1, wait)]);
    w.call(0, |windows, link| windows.cancel(link, late));
    wait_all(w, &[(0, fenced), (1, end), (0, lock)]);
    assert_eq!([w.word(1, 1), w.word(1, 2)], [2, 3]);
    assert!(matches!(w.complete(1, wait).result, Err(Error::Aborted { .. })));
}

rule!(rule_19_lock_all_is_alone, 3, reordered(Reorder::all()), rule_19);
fn rule_19<P: Port>(w: &mut World<P>) {
    let late = access(w, 0, &[1], 0, 1);
    let epoch = w.lock_all(0);
    w.put(0, epoch, (2, 0), &[2]);
    let all = w.close(0, epoch);
    let lock = transact(w, 0, 2, 1, 3);
    pending(w, &[(0, late), (0, all), (0, lock)]);
    assert_eq!([w.word(2, 0), w.word(2, 1)], [0, 0]);
    let wait = expose(w, 1, &[0]);
    wait_all(w, &[(0, late), (1, wait), (0, all), (0, lock)]);
    assert_eq!([w.word(2, 0), w.word(2, 1)], [2, 3]);
}

rule!(rule_trap_exposure_beside_access, 2, plain(), beside);
fn beside<P: Port>(w: &mut World<P>) {
    // Each rank opens its exposure first, and closes its access first.
    let mut all = Vec::new();
    for at in 0..2 {
        let exposure = w.post(at, &[1 - at]);
        let epoch = w.start(at, &[1 - at]);
        w.put(at, epoch, (1 - at, 0), &[at as u64 + 1]);
        all.push((at, w.close(at, epoch)));
        all.push((at, w.close(at, exposure)));
    }
    wait_all(w, &all);
    assert_eq!([w.word(0, 0), w.word(1, 0)], [2, 1]);
    // Locks of distinct targets are open at the same time.
    let (first, second) = (w.lock(0, 1, LockKind::Exclusive), w.lock(0, 0, LockKind::Exclusive));
    w.put(0, second, (0, 1), &[5]);
    let close = w.close(0, second);
    w.wait(0, close);
    let close = w.close(0, first);
    w.wait(0, close);
}

rule!(rule_trap_flags_count_for_every_active_epoch, 4, reordered(Reorder::ACCESS_AFTER_ACCESS), every_active);
fn every_active<P: Port>(w: &mut World<P>) {
    // The second epoch stands beside the exposure, because that was open. The third one was opened later.
    let exposure = w.post(0, &[1]);
    let beside = access(w, 0, &[2], 0, 1);
    let wait = w.close(0, exposure);
    let third = access(w, 0, &[3], 0, 2);
    let end = expose(w, 3, &[0]);
    pending(w, &[(0, beside), (0, wait), (0, third), (3, end)]);
    assert_eq!(w.word(3, 0), 0, "the flag permits access after access, and an exposure is active");
    let ends = [(1, access(w, 1, &[0], 0, 1)), (2, expose(w, 2, &[0]))];
    wait_all(w, &[(0, beside), (0, wait), (0, third), (3, end), ends[0], ends[1]]);
}

rule!(rule_trap_a_trailing_fence_opens_nothing, 2, plain(), trailing);
fn trailing<P: Port>(w: &mut World<P>) {
    w.fence_all(Assertions::empty());
    let lock = transact(w, 0, 1, 0, 1);
    w.wait(0, lock);
    // The next fence is a barrier at both ranks, although rank 0 has opened another epoch in between.
    let first = w.fence(0, Assertions::empty());
    let completion = first.completion.unwrap();
    pending(w, &[(0, completion)]);
    w.put(0, first.epoch.unwrap(), (1, 1), &[2]);
    let second = w.fence(1, Assertions::empty());
    wait_all(w, &[(0, completion), (1, second.completion.unwrap())]);
    w.fence_all(Assertions::NO_SUCCEED);
    assert_eq!([w.word(1, 0), w.word(1, 1)], [1, 2]);
}

rule!(rule_trap_exposures_and_locks_are_counted_apart, 3, plain(), apart);
fn apart<P: Port>(w: &mut World<P>) {
    // Rank 1 exposes twice to rank 0, which has not started. Then rank 0 wants a lock at rank 2 and at rank 1.
    let holder = w.lock(2, 2, LockKind::Exclusive);
    let held = w.flush(2, holder, None);
    w.wait(2, held);
    let early = expose(w, 2, &[0]);
    // Its own lock is active, so the exposure waits for it: the lock was open.
    let lock = w.lock(0, 2, LockKind::Exclusive);
    w.put(0, lock, (2, 0), &[1]);
    let close = w.close(0, lock);
    pending(w, &[(0, close), (2, early)]);
    assert_eq!(w.word(2, 0), 0, "the exposure is no lock");
    let unlock = w.close(2, holder);
    wait_all(w, &[(2, unlock), (0, close)]);
    let end = access(w, 0, &[2], 0, 2);
    wait_all(w, &[(0, end), (2, early)]);
    assert_eq!(w.word(2, 0), 2);
}

rule!(rule_trap_after_an_opening_fence_operations_wait_for_the_target, 2, plain(), opening);
fn opening<P: Port>(w: &mut World<P>) {
    let epoch: EpochId = w.fence(0, Assertions::NO_PRECEDE).epoch.unwrap();
    w.put(0, epoch, (1, 0), &[1]);
    w.settle();
    assert_eq!(w.word(1, 0), 0, "rank 1 may still use its memory");
    w.fence(1, Assertions::NO_PRECEDE);
    w.settle();
    assert_eq!(w.word(1, 0), 1);
    w.fence_all(Assertions::NO_SUCCEED);
    // The same again: both fences only begin epochs.
    let epoch = w.fence(0, Assertions::NO_PRECEDE).epoch.unwrap();
    w.put(0, epoch, (1, 0), &[2]);
    w.settle();
    assert_eq!(w.word(1, 0), 1);
    w.fence(1, Assertions::NO_PRECEDE);
    w.fence_all(Assertions::NO_SUCCEED);
    assert_eq!(w.word(1, 0), 2);
}

/// Begins the reads of ranks 0 and 1 in epochs of `lock_all`, each of the part of `target`.
fn read<P: Port>(
    w: &mut World<P>,
    epochs: [EpochId; 2],
    target: fn(usize) -> usize,
) -> [(usize, RequestId); 2] {
    [0, 1].map(|at| (at, w.get(at, epochs[at], (target(at), 0), 1)))
}

/// Two ranks read from each other in epochs of `lock_all`, while others wait for the exclusive locks.
fn shared_locks_wait_for_no_one_who_waits<P: Port>(w: &mut World<P>) {
    let epochs = [0, 1].map(|at| w.lock_all(at));
    let own = read(w, epochs, |at| at);
    wait_all(w, &own);
    let exclusive = [2, 3].map(|at| (at, transact(w, at, at - 2, 0, 7)));
    pending(w, &exclusive);
    let crossed = read(w, epochs, |at| 1 - at);
    wait_all(w, &crossed);
    pending(w, &exclusive);
    let closed = [0, 1].map(|at| (at, w.close(at, epochs[at])));
    wait_all(w, &closed);
    wait_all(w, &exclusive);
}

rule!(shared_locks_pass_exclusive_ones, 4, plain(), shared_locks_wait_for_no_one_who_waits);
rule!(
    shared_locks_pass_exclusive_ones_if_locks_are_aggregated,
    4,
    Hints { aggregate: true, ..plain() },
    shared_locks_wait_for_no_one_who_waits
);

fn shared_locks_pass_later<P: Port>(w: &mut World<P>) {
    let held = [0, 1].map(|target| w.lock(4, target, LockKind::Exclusive));
    for target in [0, 1] {
        w.put(4, held[target], (target, 0), &[1]);
    }
    w.settle();
    let epochs = [0, 1].map(|at| w.lock_all(at));
    let own = read(w, epochs, |at| at);
    w.settle();
    let exclusive = [2, 3].map(|at| (at, transact(w, at, at - 2, 0, 7)));
    w.settle();
    let crossed = read(w, epochs, |at| 1 - at);
    pending(w, &[own, exclusive, crossed].concat());
    let closed = held.map(|epoch| (4, w.close(4, epoch)));
    wait_all(w, &closed);
    wait_all(w, &[own, crossed].concat());
    let closed = [0, 1].map(|at| (at, w.close(at, epochs[at])));
    wait_all(w, &[closed, exclusive].concat());
}

rule!(shared_locks_pass_when_another_one_is_granted, 5, plain(), shared_locks_pass_later);
