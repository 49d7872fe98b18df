//! Ends before the time: dead members, deadlines, cancels, forged packets, budgets.

use samite_fabric::link::{Cause, Error as LinkError, Fate, RequestId, Time, WorldRank};
use samite_fabric::wire::{Flags, Header, Numbers, Protocol};
use samite_fabric::{Memory, Port, Sink, SplitMix64};
use samite_rma::{
    Action, Assertions, Awaiting, Config, ElementType, Error, Event, Hints, LockKind, Name, Part, Reduction,
    Windows,
};
use zerocopy::IntoBytes as _;

use crate::world::{NEVER, PART, World, group, on_loopback, on_puts, on_sim, rank};

/// The kinds of packets of reads that the target answers by puts.
pub(crate) const GET_INTO: u8 = 20;
pub(crate) const LANDED: u8 = 21;
pub(crate) const REFUSED: u8 = 26;
/// The kinds of packets by which members ask each other if they free the window.
const ASK_FREED: u8 = 22;
const FREED: u8 = 23;

macro_rules! case {
    ($name:ident, $size:expr, $test:ident) => {
        #[test]
        fn $name() {
            on_loopback($size, Hints::default(), $test);
            on_sim(200, $size, Hints::default(), $test);
        }
    };
}

/// Ends a rank: it is not polled any more, and all others learn that it has died.
pub(crate) fn kill<P: Port>(w: &mut World<P>, victim: usize) {
    end(w, victim, &Cause::Died("killed".into()));
}

pub(crate) fn end<P: Port>(w: &mut World<P>, of: usize, cause: &Cause) {
    w.stopped.insert(of);
    for at in (0..w.engines.len()).filter(|at| *at != of) {
        w.engines[at].peer_failed(rank(of), None, cause.clone()).unwrap();
    }
}

/// Lets all ranks put to the next one in an epoch of fences, and the first `closing` ranks close it.
fn put_around<P: Port>(w: &mut World<P>, closing: usize) -> Vec<RequestId> {
    let epochs = w.fence_all(Assertions::empty());
    for (at, epoch) in epochs.iter().enumerate() {
        w.put(at, epoch.unwrap(), ((at + 1) % epochs.len(), 0), &[at as u64 + 1]);
    }
    (0..closing).map(|at| w.fence(at, Assertions::NO_SUCCEED).completion.unwrap()).collect()
}

#[track_caller]
pub(crate) fn ends_with_failure<P: Port>(w: &mut World<P>, at: usize, request: RequestId, of: usize) {
    let result = w.complete(at, request).result;
    let names = matches!(&result, Err(Error::Link(LinkError::PeerFailed { rank: failed, .. })) if *failed == rank(of));
    assert!(names, "rank {at}: {result:?}");
}

case!(the_lock_of_a_dead_rank_passes_on, 3, dead_holder);
fn dead_holder<P: Port>(w: &mut World<P>) {
    let held = w.lock(1, 0, LockKind::Exclusive);
    let flush = w.flush(1, held, None);
    w.wait(1, flush);
    let waiting = w.lock(2, 0, LockKind::Exclusive);
    w.put(2, waiting, (0, 0), &[5]);
    let close = w.close(2, waiting);
    w.settle();
    assert!(w.is_pending(2, close));
    kill(w, 1);
    w.wait(2, close);
    assert_eq!(w.word(0, 0), 5);
}

case!(a_dead_target_ends_its_part_alone, 4, dead_target);
fn dead_target<P: Port>(w: &mut World<P>) {
    let epoch = w.start(0, &[1, 2, 3]);
    for target in [1, 2, 3] {
        w.put(0, epoch, (target, 0), &[7]);
    }
    let get = w.get(0, epoch, (2, 0), 1);
    let close = w.close(0, epoch);
    let waits = [1, 3].map(|at| {
        let exposure = w.post(at, &[0]);
        (at, w.close(at, exposure))
    });
    w.settle();
    kill(w, 2);
    ends_with_failure(w, 0, get, 2);
    ends_with_failure(w, 0, close, 2);
    for (at, wait) in waits {
        w.wait(at, wait);
        assert_eq!(w.word(at, 0), 7);
    }
    // Later epochs with the dead rank end, and others work.
    let lock = w.lock(0, 2, LockKind::Shared);
    let dead = w.operate(0, lock, (2, 0), Action::Put, Memory::new(vec![1_u64]), None);
    assert!(matches!(dead, Err(Error::Link(LinkError::PeerFailed { fate: Fate::NotDelivered, .. }))));
    let close = w.close(0, lock);
    ends_with_failure(w, 0, close, 2);
    let lock = w.lock(0, 3, LockKind::Exclusive);
    w.put(0, lock, (3, 0), &[8]);
    let close = w.close(0, lock);
    w.wait(0, close);
    assert_eq!(w.word(3, 0), 8);
}

case!(a_dead_origin_ends_its_exposure, 3, dead_origin);
fn dead_origin<P: Port>(w: &mut World<P>) {
    let exposure = w.post(0, &[1, 2]);
    let wait = w.close(0, exposure);
    let epoch = w.start(1, &[0]);
    w.put(1, epoch, (0, 0), &[3]);
    let close = w.close(1, epoch);
    w.wait(1, close);
    assert!(w.is_pending(0, wait));
    kill(w, 2);
    let result = w.complete(0, wait).result;
    let Err(Error::Link(LinkError::PeerFailed { rank: WorldRank(2), fate, .. })) = result else {
        panic!("{result:?}")
    };
    assert_eq!((fate, w.word(0, 0)), (Fate::Unknown, 3), "rank 2 may have written");
}

case!(a_fence_and_a_free_end_at_all_survivors, 10, dead_in_fence);
fn dead_in_fence<P: Port>(w: &mut World<P>) {
    let ends = put_around(w, 9);
    w.settle();
    kill(w, 9);
    for (at, end) in ends.into_iter().enumerate() {
        ends_with_failure(w, at, end, 9);
    }
    assert!((1..9).all(|at| w.word(at, 0) == at as u64));
    let window = w.window;
    let frees: Vec<_> =
        (0..9).map(|at| w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap()).collect();
    for (at, free) in frees.into_iter().enumerate() {
        ends_with_failure(w, at, free, 9);
        assert!(w.engines[at].stack().is_empty());
    }
}

case!(a_fence_after_a_failure_waits_for_nobody, 4, fence_alone);
/// The survivors learn of the failure in different fences, so rank 0 calls one more than the others.
fn fence_alone<P: Port>(w: &mut World<P>) {
    w.fence_all(Assertions::empty());
    w.settle();
    kill(w, 3);
    let mut open = Vec::new();
    for at in 0..3 {
        let fence = w.fence(at, Assertions::empty());
        ends_with_failure(w, at, fence.completion.unwrap(), 3);
        open.push(fence.epoch.unwrap());
    }
    // Nothing shows that rank 1 has begun this epoch.
    let put = w.operate(0, open[0], (1, 0), Action::Put, Memory::new(vec![7_u64]), Some(NEVER));
    ends_with_failure(w, 0, put.unwrap().unwrap(), 3);
    let last = w.fence(0, Assertions::NO_SUCCEED).completion.unwrap();
    ends_with_failure(w, 0, last, 3);
    for (origin, target) in [(0, 0), (0, 1), (0, 2)] {
        let epoch = w.lock(origin, target, LockKind::Exclusive);
        w.put(origin, epoch, (target, 0), &[9]);
        let close = w.close(origin, epoch);
        w.wait(origin, close);
        assert_eq!(w.word(target, 0), 9);
    }
}

case!(a_fence_does_not_wait_for_ranks_that_know_of_one_that_has_left, 3, fence_beside_leaver);
/// Rank 2 leaves, and rank 1 calls no fence any more. Rank 0 puts to rank 1 in a new epoch of fences.
fn fence_beside_leaver<P: Port>(w: &mut World<P>) {
    let ends = put_around(w, 3);
    ends.into_iter().enumerate().for_each(|(at, end)| w.wait(at, end));
    end(w, 2, &Cause::Left);
    let epoch = w.fence(0, Assertions::empty()).epoch.unwrap();
    let put = w.operate(0, epoch, (1, 0), Action::Put, Memory::new(vec![7_u64]), Some(NEVER));
    ends_with_failure(w, 0, put.unwrap().unwrap(), 2);
    let close = w.fence(0, Assertions::NO_SUCCEED).completion.unwrap();
    ends_with_failure(w, 0, close, 2);
}

case!(a_leaver_ends_the_operations_that_wait_for_a_fence, 3, leaver_in_fence);
/// As before, but rank 2 leaves when the operation waits already.
fn leaver_in_fence<P: Port>(w: &mut World<P>) {
    let epoch = w.fence(0, Assertions::empty()).epoch.unwrap();
    let get = w.get(0, epoch, (1, 0), 1);
    w.settle();
    assert!(w.is_pending(0, get));
    end(w, 2, &Cause::Left);
    ends_with_failure(w, 0, get, 2);
    let close = w.fence(0, Assertions::NO_SUCCEED).completion.unwrap();
    ends_with_failure(w, 0, close, 2);
}

case!(a_fence_succeeds_if_a_member_leaves_after_it, 10, leaver_after_fence);
fn leaver_after_fence<P: Port>(w: &mut World<P>) {
    let ends = put_around(w, 10);
    w.wait(3, ends[3]);
    w.settle();
    end(w, 3, &Cause::Left);
    for at in (0..10).filter(|at| *at != 3) {
        w.wait(at, ends[at]);
        assert_eq!(w.word(at, 0), (at as u64 + 9) % 10 + 1);
    }
}

case!(an_absence_reaches_members_although_nobody_else_has_an_epoch, 10, leaver_between);
/// As in the next test, but ranks 1 to 8 have closed their last epoch when rank 0 leaves.
fn leaver_between<P: Port>(w: &mut World<P>) {
    let ends = put_around(w, 10);
    ends.into_iter().enumerate().for_each(|(at, end)| w.wait(at, end));
    w.settle();
    end(w, 0, &Cause::Left);
    w.fence(9, Assertions::empty());
    let close = w.fence(9, Assertions::NO_SUCCEED).completion.unwrap();
    ends_with_failure(w, 9, close, 0);
}

case!(an_absence_ends_a_fence_while_others_free_the_window, 10, leaver_before_free);
fn leaver_before_free<P: Port>(w: &mut World<P>) {
    let ends = put_around(w, 10);
    ends.into_iter().enumerate().for_each(|(at, end)| w.wait(at, end));
    w.settle();
    let window = w.window;
    let free = |w: &mut World<P>, at| w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap();
    let mut frees: Vec<_> = (1..9).map(|at| (at, free(w, at))).collect();
    w.fence(9, Assertions::empty());
    let close = w.fence(9, Assertions::NO_SUCCEED).completion.unwrap();
    w.settle();
    end(w, 0, &Cause::Left);
    ends_with_failure(w, 9, close, 0);
    frees.push((9, free(w, 9)));
    frees.into_iter().for_each(|(at, request)| ends_with_failure(w, at, request, 0));
}

case!(an_absence_reaches_members_that_hear_of_it_from_nobody_else, 10, leaver_of_others);
/// Rank 0 leaves, and ranks 1 to 8 call no fence any more. Rank 9 is no partner of rank 0 in the barrier.
fn leaver_of_others<P: Port>(w: &mut World<P>) {
    let ends = put_around(w, 10);
    ends.into_iter().enumerate().for_each(|(at, end)| w.wait(at, end));
    for at in 1..10 {
        w.fence(at, Assertions::empty());
    }
    w.settle();
    end(w, 0, &Cause::Left);
    let close = w.fence(9, Assertions::NO_SUCCEED).completion.unwrap();
    ends_with_failure(w, 9, close, 0);
}

#[test]
fn a_leaver_tells_a_member_that_it_does_not_know_of_its_fence() {
    for steps in 0..60 {
        on_sim(4, 10, Hints::default(), |w| leaver_unmet(w, steps));
    }
}
/// Rank 0 leaves when it has completed a fence. Rank 1 stops some steps after it has called the fence, and goes on when
/// rank 0 has waited for it: in some runs rank 1 has not answered the introduction of rank 0 before.
fn leaver_unmet<P: Port>(w: &mut World<P>, steps: usize) {
    (0..10).for_each(|at| _ = w.fence(at, Assertions::empty()));
    let close = |w: &mut World<P>, at| w.fence(at, Assertions::NO_SUCCEED).completion.unwrap();
    let ends: Vec<_> = (1..10).map(|at| (at, close(w, at))).collect();
    (0..steps).for_each(|_| _ = w.step());
    w.stopped.insert(1);
    let end = close(w, 0);
    (0..2000).for_each(|_| _ = w.step());
    if w.is_pending(0, end) {
        // A message of rank 1 is missing.
        w.stopped.remove(&1);
        w.wait(0, end);
    }
    let now = w.now;
    w.engines[0].close(now);
    (0..300).for_each(|_| _ = w.step());
    w.stopped.remove(&1);
    ends.into_iter().for_each(|(at, end)| w.wait(at, end));
}

#[test]
fn a_fence_that_all_have_called_succeeds_although_a_leaver_misses_the_next_one() {
    on_sim(50, 10, Hints::default(), leaver_before_next);
}
/// The messages of rank 7 for the last fence are late. Rank 9 completes it before rank 5, and leaves, and rank 5 calls
/// another fence.
fn leaver_before_next<P: Port>(w: &mut World<P>) {
    (0..3).for_each(|_| drop(w.fence_all(Assertions::empty())));
    w.settle();
    let call = |w: &mut World<P>, at| w.fence(at, Assertions::empty()).completion.unwrap();
    let first = call(w, 7);
    (0..300).for_each(|_| _ = w.step());
    w.stopped.insert(7);
    let ends: Vec<_> = (0..10).map(|at| if at == 7 { first } else { call(w, at) }).collect();
    w.wait(9, ends[9]);
    // A rank that leaves waits until its packets have arrived.
    w.settle();
    assert!(w.is_pending(5, ends[5]), "it waits for rank 7");
    w.stopped.insert(9);
    for at in (0..9).filter(|at| *at != 7) {
        w.engines[at].peer_failed(rank(9), None, Cause::Left).unwrap();
    }
    let next = call(w, 5);
    (0..300).for_each(|_| _ = w.step());
    w.stopped.remove(&7);
    for at in (0..10).filter(|at| *at != 9) {
        w.wait(at, ends[at]);
    }
    ends_with_failure(w, 5, next, 9);
}

/// With 17 members, rank 0 hears of rank 8 only by the message of rank 9, which has failed.
#[test]
fn no_window_is_freed_while_a_living_member_uses_it() {
    on_loopback(17, Hints::default(), freed_late);
    on_sim(30, 17, Hints::default(), freed_late);
}
fn freed_late<P: Port>(w: &mut World<P>) {
    let (window, others) = (w.window, (0..17).filter(|at| ![8, 9].contains(at)));
    kill(w, 9);
    let free = |w: &mut World<P>, at| w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap();
    let frees: Vec<_> = others.map(|at| (at, free(w, at))).collect();
    w.settle();
    for (at, request) in &frees {
        assert!(w.is_pending(*at, *request), "rank {at} has freed the window before rank 8");
    }
    // Rank 8 still uses the parts of the others.
    for target in [0, 5, 16] {
        let epoch = w.lock(8, target, LockKind::Exclusive);
        w.put(8, epoch, (target, 0), &[7]);
        let close = w.close(8, epoch);
        w.wait(8, close);
        assert_eq!(w.word(target, 0), 7);
    }
    let last = free(w, 8);
    for (at, request) in frees.into_iter().chain([(8, last)]) {
        ends_with_failure(w, at, request, 9);
        assert!(w.engines[at].stack().is_empty());
    }
}

/// Two threads of a rank may create windows at the same time.
#[test]
fn a_window_may_be_created_after_a_later_one() {
    on_loopback(2, Hints::default(), |w| {
        w.window = w.create_at(0, 2, Hints::default());
        let later = w.create_at(1, 3, Hints::default());
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, epoch, (1, 0), &[7]);
        let close = w.close(0, epoch);
        w.settle();
        assert!(w.is_pending(0, close) && !w.engines[1].stack().is_empty(), "{later:?}");
        w.window = w.create_at(1, 2, Hints::default());
        w.wait(0, close);
        assert_eq!(w.word(1, 0), 7);
    });
}

/// A member that has freed the window answers the questions of others, which have learnt of a failure only afterwards.
#[test]
fn a_member_that_has_freed_the_window_answers_others() {
    for steps in 0..40 {
        on_loopback(17, Hints::default(), |w| freed_before(w, steps));
        on_sim(2, 17, Hints::default(), |w| freed_before(w, 5 * steps));
    }
}
fn freed_before<P: Port>(w: &mut World<P>, steps: usize) {
    let window = w.window;
    let free = |w: &mut World<P>, at| w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap();
    let frees: Vec<_> = (0..17).map(|at| free(w, at)).collect();
    // After some of these steps, some ranks have freed the window and others have not.
    for _ in 0..steps {
        w.step();
    }
    kill(w, 9);
    for (at, request) in frees.into_iter().enumerate().filter(|(at, _)| *at != 9) {
        let result = w.complete(at, request).result;
        let names = |error: &Error| matches!(error, Error::Link(LinkError::PeerFailed { rank: failed, .. }) if *failed == rank(9));
        assert!(result.as_ref().err().is_none_or(names), "rank {at}: {result:?}");
        assert!(w.engines[at].stack().is_empty());
    }
}

case!(a_deadline_names_all_awaited, 4, deadline);
fn deadline<P: Port>(w: &mut World<P>) {
    let exposure = w.post(2, &[0]);
    let wait = w.close(2, exposure);
    w.settle();
    // The longest delay of a message is 1 ms.
    let due = w.now.after(5_000_000);
    let epoch = w.start(0, &[1, 2, 3]);
    for target in [1, 2, 3] {
        w.put(0, epoch, (target, 0), &[7]);
    }
    let close = w.call(0, |windows, link| windows.close(link, epoch, due)).unwrap();
    w.wait(2, wait);
    let Err(Error::TimedOut { awaited, .. }) = w.complete(0, close).result else { panic!("it timed out") };
    let is_expected = |(awaiting, of): (&Awaiting, usize)| {
        awaiting.rank == rank(of) && matches!(awaiting.event, Event::Exposure | Event::Window)
    };
    assert!(awaited.len() == 2 && awaited.iter().zip([1, 3]).all(is_expected), "{awaited:?}");
    assert!(w.now >= due);
    // The accesses that were not granted are skipped: the next ones match the next exposures.
    for target in [1, 3] {
        let exposure = w.post(target, &[0]);
        let wait = w.close(target, exposure);
        let result = w.complete(target, wait).result;
        assert!(matches!(result, Err(Error::Aborted { rank: WorldRank(0), .. })), "{result:?}");
        assert_eq!(w.word(target, 0), 0);
        let epoch = w.start(0, &[target]);
        w.put(0, epoch, (target, 0), &[9]);
        let close = w.close(0, epoch);
        let exposure = w.post(target, &[0]);
        let wait = w.close(target, exposure);
        w.wait(0, close);
        w.wait(target, wait);
        assert_eq!(w.word(target, 0), 9);
    }
    assert_eq!(w.word(2, 0), 7);
}

case!(an_epoch_that_has_timed_out_holds_up_no_other_members, 3, timed_out_at_a_stopped_rank);
fn timed_out_at_a_stopped_rank<P: Port>(w: &mut World<P>) {
    if w.engines[0].port().caps().map {
        // The memory of a stopped rank is reached without it.
        return;
    }
    // The ranks know each other's windows.
    let all = w.lock_all(0);
    w.put(0, all, (1, 1), &[1]);
    w.put(0, all, (2, 1), &[1]);
    let close = w.close(0, all);
    w.wait(0, close);
    w.stopped.insert(1);
    let times_out = |w: &mut World<P>, epoch| {
        let due = w.now.after(5_000_000);
        let close = w.call(0, |windows, link| windows.close(link, epoch, due)).unwrap();
        let result = w.complete(0, close).result;
        assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
    };
    for round in 1..4 {
        let late = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, late, (1, 0), &[7]);
        times_out(w, late);
        let late = w.lock_all(0);
        w.put(0, late, (2, 2), &[round]);
        w.put(0, late, (1, 2), &[round]);
        times_out(w, late);
        let epoch = w.lock(0, 2, LockKind::Exclusive);
        w.put(0, epoch, (2, 0), &[round]);
        let close = w.close(0, epoch);
        w.wait(0, close);
        assert_eq!(w.word(2, 0), round);
        let (exposure, access) = (w.post(0, &[2]), w.start(2, &[0]));
        w.put(2, access, (0, 0), &[round]);
        let ends = [(2, w.close(2, access)), (0, w.close(0, exposure))];
        ends.into_iter().for_each(|(at, request)| w.wait(at, request));
        assert_eq!(w.word(0, 0), round);
    }
    // An epoch with all members waits until the stopped rank has answered.
    let all = w.lock_all(0);
    w.put(0, all, (2, 1), &[2]);
    let close = w.close(0, all);
    // The port of the stopped rank may be full, so the others do not come to rest.
    for _ in 0..1000 {
        w.step();
    }
    assert!(w.is_pending(0, close));
    w.stopped.remove(&1);
    w.wait(0, close);
    let next = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, next, (1, 0), &[8]);
    let close = w.close(0, next);
    w.wait(0, close);
    assert_eq!((w.word(1, 0), w.word(2, 1)), (8, 2));
    w.settle();
    w.engines.iter().for_each(|engine| assert!(engine.stack().pending() == 0));
}

case!(an_epoch_goes_on_when_the_members_that_it_shares_with_an_aborted_one_have_answered, 3, partly_answered);
fn partly_answered<P: Port>(w: &mut World<P>) {
    let both = w.post(0, &[1, 2]);
    let wait = w.close(0, both);
    w.settle();
    w.stopped.insert(1);
    w.call(0, |windows, link| windows.cancel(link, wait));
    assert!(w.complete(0, wait).result.is_err());
    // Rank 2 has not learned of that.
    let next = w.post(0, &[2]);
    let wait = w.close(0, next);
    for _ in 0..2 {
        // The first access is skipped, or ends as aborted.
        let access = w.start(2, &[0]);
        w.put(2, access, (0, 0), &[5]);
        let close = w.close(2, access);
        w.complete(2, close);
    }
    w.wait(0, wait);
    assert_eq!(w.word(0, 0), 5);
}

case!(a_member_that_has_left_gets_no_answer, 3, left_before_the_answer);
fn left_before_the_answer<P: Port>(w: &mut World<P>) {
    let all = w.lock_all(2);
    w.put(2, all, (0, 0), &[1]);
    let close = w.close(2, all);
    w.wait(2, close);
    kill(w, 1);
    // Because of the death rank 2 asks if the others free the window too, and leaves before rank 0 does.
    let (window, due) = (w.window, w.now.after(5_000_000));
    let freed = w.call(2, |windows, link| windows.free(link, window, due)).unwrap();
    assert!(w.complete(2, freed).result.is_err());
    end(w, 2, &Cause::Left);
    let freed = w.call(0, |windows, link| windows.free(link, window, NEVER)).unwrap();
    assert!(w.complete(0, freed).result.is_err());
    let link = w.engines[0].link();
    // A packet that can never leave would hold up the goodbye.
    assert!(link.peers().all(|(_, peer)| peer.is_alive() || peer.has_no_packets_queued()));
}

case!(an_access_that_never_began_was_not_carried_out, 2, never_begun);
fn never_begun<P: Port>(w: &mut World<P>) {
    let epoch = w.start(0, &[1]);
    w.put(0, epoch, (1, 0), &[7]);
    let due = w.now.after(5_000_000);
    let close = w.call(0, |windows, link| windows.close(link, epoch, due)).unwrap();
    let late = w.complete(0, close).result;
    assert!(matches!(late, Err(Error::TimedOut { fate: Fate::NotDelivered, .. })), "{late:?}");
    let exposure = w.post(1, &[0]);
    let wait = w.close(1, exposure);
    let result = w.complete(1, wait).result;
    assert!(matches!(result, Err(Error::Aborted { .. })), "{result:?}");
    assert_eq!(w.word(1, 0), 0);
}

case!(a_cancelled_lock_is_withdrawn, 3, cancelled_lock);
fn cancelled_lock<P: Port>(w: &mut World<P>) {
    let held = w.lock(1, 0, LockKind::Exclusive);
    let flush = w.flush(1, held, None);
    w.wait(1, flush);
    let waiting = w.lock(2, 0, LockKind::Exclusive);
    let put = w.operate(2, waiting, (0, 0), Action::Put, Memory::new(vec![1_u64]), Some(NEVER));
    let (put, close) = (put.unwrap().unwrap(), w.close(2, waiting));
    w.settle();
    w.call(2, |windows, link| windows.cancel(link, close));
    let cancelled = |fate| Err(Error::Link(LinkError::Cancelled { fate }));
    let ended = w.complete(2, put);
    assert_eq!(ended.result, cancelled(Fate::NotDelivered));
    assert_eq!(ended.memory.unwrap().into_vec::<u64>().unwrap(), [1], "the memory comes back");
    assert_eq!(w.complete(2, close).result, cancelled(Fate::NotDelivered));
    let next = w.lock(2, 0, LockKind::Shared);
    w.put(2, next, (0, 0), &[2]);
    let close = w.close(2, next);
    w.settle();
    assert!(w.is_pending(2, close));
    let unlock = w.close(1, held);
    w.wait(1, unlock);
    w.wait(2, close);
    assert_eq!(w.word(0, 0), 2);
}

case!(a_cancelled_exposure_ends_on_both_sides, 3, cancelled_exposure);
fn cancelled_exposure<P: Port>(w: &mut World<P>) {
    let exposure = w.post(0, &[1, 2]);
    let wait = w.close(0, exposure);
    let used = w.start(1, &[0]);
    w.put(1, used, (0, 0), &[4]);
    w.settle();
    w.call(0, |windows, link| windows.cancel(link, wait));
    w.settle();
    let unknown = Error::Link(LinkError::Cancelled { fate: Fate::Unknown });
    assert_eq!(w.complete(0, wait).result, Err(unknown));
    // The access of rank 1 had begun, and that of rank 2 begins later.
    let late = w.operate(1, used, (0, 0), Action::Get, Memory::new(vec![0_u64]), None).unwrap().unwrap();
    assert_eq!(w.complete(1, late).result, Err(Error::Aborted { rank: rank(0), fate: Fate::NotDelivered }));
    let close = w.close(1, used);
    assert!(matches!(w.complete(1, close).result, Err(Error::Aborted { .. })));
    let unused = w.start(2, &[0]);
    w.put(2, unused, (0, 1), &[5]);
    let close = w.close(2, unused);
    assert!(matches!(w.complete(2, close).result, Err(Error::Aborted { .. })));
    assert_eq!([w.word(0, 0), w.word(0, 1)], [4, 0]);
    // The next ones match.
    let exposure = w.post(0, &[1, 2]);
    let wait = w.close(0, exposure);
    for origin in [1, 2] {
        let epoch = w.start(origin, &[0]);
        w.put(origin, epoch, (0, origin as u64), &[6]);
        let close = w.close(origin, epoch);
        w.wait(origin, close);
    }
    w.wait(0, wait);
    assert_eq!([w.word(0, 1), w.word(0, 2)], [6, 6]);
}

case!(a_read_that_times_out_keeps_its_memory_until_the_end, 2, late_read);
fn late_read<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Shared);
    let flush = w.flush(0, epoch, None);
    w.wait(0, flush);
    w.stopped.insert(1);
    let due = w.now.after(500_000);
    let memory = Memory::new(vec![0_u64; PART / 8]);
    // Elements of 16 bytes are read by packets, even if the part is mapped.
    let read = Action::GetAccumulate { op: Reduction::NoOp, element: ElementType::U128 };
    let get = w.operate(0, epoch, (1, 0), read, memory, Some(due)).unwrap().unwrap();
    let ended = w.complete(0, get);
    assert!(matches!(ended.result, Err(Error::TimedOut { .. })), "{:?}", ended.result);
    assert!(ended.memory.is_none(), "replies may still arrive");
    w.stopped.clear();
    let close = w.close(0, epoch);
    w.wait(0, close);
    assert_eq!(w.engines[0].stack().pending(), 0);
}

#[test]
fn budgets_are_kept() {
    on_loopback(2, Hints::default(), |w| {
        let config = Config {
            recorded_max: 1 << 20,
            epochs_max: 10,
            windows_max: 3,
            early_max: 2,
            ..Config::default()
        };
        for engine in &mut w.engines {
            *engine.stack_mut() = Windows::new(config.clone());
        }
        let exhausted = |error: Error| matches!(error, Error::Link(LinkError::Exhausted { .. }));
        // Rank 0 asks for three windows that rank 1 has not created: the third request is refused, and found later.
        let closes = [1, 2, 3].map(|number| {
            w.window = w.create_at(0, number, Hints::default());
            let epoch = w.lock(0, 1, LockKind::Exclusive);
            w.put(0, epoch, (1, 0), &[number]);
            w.close(0, epoch)
        });
        let part = Part::whole(samite_fabric::Region::new(Memory::zeroed(8)), 8);
        let name = Name { communicator: 1 << 40, number: 4 };
        let fourth =
            w.call(0, |windows, link| windows.create(link, name, group([0, 1]), part, Hints::default()));
        assert!(exhausted(fourth.unwrap_err()));
        w.settle();
        assert_eq!(w.engines[1].stack().counters().refused, 1);
        for number in [3, 2, 1] {
            w.window = w.create_at(1, number, Hints::default());
            w.wait(0, closes[number as usize - 1]);
            assert_eq!(w.word(1, 0), number);
        }
        let epoch = w.start(0, &[1]);
        let mut recorded = 0;
        let error = loop {
            let memory = Memory::new(vec![0_u8; PART]);
            match w.operate(0, epoch, (1, 0), Action::Put, memory, None) {
                Ok(_) => recorded += PART,
                Err(error) => break error,
            }
        };
        assert!(exhausted(error) && recorded > (1 << 20) / 2 && recorded < 1 << 20);
        w.close(0, epoch);
        let window = w.window;
        let mut epochs = 1;
        let error = loop {
            match w.call(0, |windows, link| windows.start(link, window, &group([1]))) {
                Ok(epoch) => w.close(0, epoch),
                Err(error) => break error,
            };
            epochs += 1;
        };
        assert!(exhausted(error) && epochs == 10, "{epochs} epochs");
    });
}

/// Any packets of a member, in any order, end that member or are ignored. Nothing panics, and others go on.
#[test]
fn forged_packets_disturb_nobody_else() {
    let mut failed = 0;
    for seed in 0..3000 {
        on_loopback(3, Hints::default(), |w| {
            let mut rng = SplitMix64::new(seed);
            let epoch = w.lock(1, 0, LockKind::Shared);
            let flush = w.flush(1, epoch, None);
            w.wait(1, flush);
            let exposure = w.post(0, &[1, 2]);
            w.settle();
            let (mut sequence, number) = sender(w);
            for _ in 0..1 + rng.below(12) {
                let packet = forged(&mut rng, sequence, number, w);
                w.engines[0].sink(&mut ()).packet(&packet);
                w.engines[0].drive(&mut ());
                w.engines[0].stack().check_invariants();
                sequence += 1;
            }
            failed += u32::from(w.engines[0].failure(rank(1)).is_some());
            // Rank 2 goes on.
            kill(w, 1);
            let access = w.start(2, &[0]);
            w.put(2, access, (0, 1), &[11]);
            let close = w.close(2, access);
            w.wait(2, close);
            let lock = w.lock(2, 0, LockKind::Exclusive);
            w.put(2, lock, (0, 0), &[12]);
            let close = w.close(2, lock);
            w.wait(2, close);
            // A forged packet may have ended the access of rank 1.
            let wait = w.close(0, exposure);
            w.complete(0, wait);
            assert_eq!([w.word(0, 0), w.word(0, 1)], [12, 11]);
        });
    }
    assert!((500..3000).contains(&failed), "{failed} runs had an invalid packet");
}

/// Returns the sequence number that rank 0 expects from rank 1, and the number that it has given to that rank.
pub(crate) fn sender<P: Port>(w: &mut World<P>) -> (u32, u32) {
    let peer = w.engines[0].link_mut().find(rank(1)).unwrap();
    (w.engines[0].link().peer(peer).expected(), peer.index() as u32)
}

/// Passes packets to rank 0 that rank 1 might have sent, and does not let rank 0 send anything in between. Each packet
/// is given by its kind and the 32-bit words after the header.
pub(crate) fn arrive<P: Port>(w: &mut World<P>, packets: &[(u8, &[u32])]) {
    let (first, sender) = sender(w);
    let [to, incarnation] = [0, 1].map(|at: usize| w.engines[at].link().identity().incarnation);
    for (sequence, (kind, words)) in (first..).zip(packets) {
        let to = to as u16;
        let numbers = Numbers { sender, incarnation, sequence, ack: 1, grant: 0, to, context: 0 };
        let mut packet = Header::with(Protocol::Rma, *kind, Flags::empty(), numbers).as_bytes().to_vec();
        packet.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        w.engines[0].sink(&mut ()).packet(&packet);
    }
}

/// Returns the text of the violation for which rank 1 has failed at rank 0.
#[track_caller]
pub(crate) fn violation<P: Port>(w: &mut World<P>) -> String {
    match w.engines[0].failure(rank(1)) {
        Some(Cause::Protocol(text)) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

const MEET: u8 = 0;
const GET: u8 = 4;
const REPLY: u8 = 7;
const ASK: u8 = 18;

/// Rank 1 replies to a get that waits for the lock of rank 1.
#[test]
fn a_reply_to_an_operation_that_was_not_sent_ends_its_sender() {
    on_loopback(3, Hints::default(), |w| {
        let held = w.lock(2, 1, LockKind::Exclusive);
        w.settle();
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        let get = w.get(0, epoch, (1, 0), 1);
        w.settle();
        let name = get.to_wire();
        arrive(w, &[(REPLY, &[name as u32, (name >> 32) as u32, 0, 0, 7, 7])]);
        assert!(violation(w).contains("reply"));
        w.engines[0].drive(&mut ());
        ends_with_failure(w, 0, get, 1);
        let close = w.close(0, epoch);
        ends_with_failure(w, 0, close, 1);
        let close = w.close(2, held);
        w.wait(2, close);
        w.engines[0].stack().check_invariants();
    });
}

#[test]
fn a_get_of_more_bytes_than_a_reply_can_have_ends_its_sender() {
    on_puts(20, 2, |w| {
        let epoch = w.lock(1, 0, LockKind::Shared);
        let flush = w.flush(1, epoch, None);
        w.wait(1, flush);
        let len = PART as u32;
        arrive(w, &[(GET, &[1, 0, 0, 0, 0, 0, 0, 0, len])]);
        assert!(violation(w).contains("length"));
    });
}

/// Questions that have one answer are answered once, however often a member asks.
#[test]
fn repeated_questions_do_not_fill_the_memory() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(1, 0, LockKind::Shared);
        let close = w.close(1, epoch);
        w.wait(1, close);
        w.fence_all(Assertions::empty());
        w.settle();
        let (_, peer) = sender(w);
        let last_sent = |w: &World<_>| {
            let mut peers = w.engines[0].link().peers();
            peers.find(|(of, _)| of.index() as u32 == peer).map(|(_, state)| state.last_sent()).unwrap()
        };
        let before = last_sent(w);
        arrive(w, &[(ASK, &[1, 0, 1, 0, 0, 0][..]); 100]);
        w.engines[0].drive(&mut ());
        assert!(last_sent(w) - before <= 1, "{} packets", last_sent(w) - before);
        assert_eq!(w.engines[0].failure(rank(1)), None);
        // The introduction of a member has one answer too, and a member introduces itself once.
        let mut traits = [0_u32; 16];
        (traits[1], traits[2], traits[9]) = (1 << 8, 1, 1024);
        arrive(w, &[(MEET, &traits[..]); 2]);
        assert!(violation(w).contains("window"));
    });
}

fn forged<P: Port>(rng: &mut SplitMix64, sequence: u32, number: u32, w: &World<P>) -> Vec<u8> {
    let kind = rng.below(29) as u8;
    forged_of(rng, kind, sequence, number, w)
}

/// Returns a forged packet of rank 1 to rank 0, of this kind.
pub(crate) fn forged_of<P: Port>(
    rng: &mut SplitMix64,
    kind: u8,
    sequence: u32,
    number: u32,
    w: &World<P>,
) -> Vec<u8> {
    let small = |rng: &mut SplitMix64| match rng.below(6) {
        0 => rng.next_u64(),
        1 => u64::MAX - rng.below(3),
        _ => rng.below(4),
    };
    let identity = |at: usize| w.engines[at].link().identity().incarnation;
    let numbers = Numbers {
        sender: number,
        incarnation: identity(1),
        sequence,
        ack: 1,
        grant: 0,
        to: identity(0) as u16,
        context: if rng.below(10) == 0 { small(rng) as u32 } else { 0 },
    };
    let mut packet = Header::with(Protocol::Rma, kind, Flags::empty(), numbers).as_bytes().to_vec();
    if let ASK_FREED | FREED = kind {
        let communicator = if rng.below(10) == 0 { small(rng) } else { 1 << 40 };
        for word in [communicator, small(rng), small(rng)] {
            packet.extend(word.to_le_bytes());
        }
        return packet;
    }
    // The first word is the generation of the window in most kinds of packets, and part of a name in `LANDED`.
    let is_random = kind == LANDED || rng.below(10) == 0;
    packet.extend(if is_random { small(rng) as u32 } else { 1 }.to_le_bytes());
    packet.extend([
        rng.below(if kind == LANDED { 4 } else { 16 }) as u8,
        if kind == LANDED { 0 } else { rng.below(22) as u8 },
        0,
        0,
    ]);
    let words = match kind {
        0 | 1 => 6,
        2..=6 => 1 + rng.below(6),
        7 => 1 + rng.below(3),
        GET_INTO => 5,
        LANDED => 0,
        REFUSED => 1,
        _ => 2,
    };
    for _ in 0..words {
        packet.extend(small(rng).to_le_bytes());
    }
    if kind == REFUSED {
        packet.extend((small(rng) as u32).to_le_bytes());
    }
    if rng.below(20) == 0 {
        packet.truncate(Header::LEN + rng.below(24) as usize);
    }
    packet
}

#[test]
fn a_window_of_many_ranks_is_small_until_it_is_used() {
    use samite_fabric::link::{Config as LinkConfig, Engine, Group, Identity};
    let link: LinkConfig = crate::world::link_config();
    let port = samite_fabric::loopback::Hub::new().port();
    let identity = Identity { rank: WorldRank(5), size: 1 << 20, incarnation: 1, secret: [0; 16] };
    let mut engine = Engine::new(port, identity, link, Windows::new(Config::default()));
    let (out, windows) = engine.parts();
    let part = Part::whole(samite_fabric::Region::new(Memory::zeroed(64)), 1);
    let all = Group::range(WorldRank(0), 1 << 20);
    for number in 0..1000 {
        let (name, part) = (Name { communicator: 1, number }, part.clone());
        windows.create(out.link, name, all.clone(), part, Hints::default()).unwrap();
    }
    assert_eq!(out.link.peers().count(), 0, "no state for members");
    assert_eq!(windows.counters(), &Default::default());
}

case!(a_target_that_says_goodbye_ends_its_part, 2, goodbye);
fn goodbye<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Shared);
    let action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };
    let sum = w.operate(0, epoch, (1, 0), action, Memory::new(vec![1_u64]), None).unwrap().unwrap();
    assert_eq!(w.values(0, sum), [0]);
    w.settle();
    let now: Time = w.now;
    w.engines[1].close(now);
    w.settle();
    let close = w.close(0, epoch);
    let result = w.complete(0, close).result;
    assert!(
        matches!(result, Err(Error::Link(LinkError::PeerFailed { cause: Cause::Left, .. }))),
        "{result:?}"
    );
}

case!(answers_after_a_goodbye_are_ignored, 2, late_answers);
/// The answers to some reads arrive after the goodbye to their sender has ended the reads.
fn late_answers<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Shared);
    let get = w.get(0, epoch, (1, 0), 1);
    w.values(0, get);
    for _ in 0..20 {
        w.get(0, epoch, (1, 0), 4);
    }
    let now = w.now;
    w.engines[0].close(now);
    w.settle();
}

case!(a_cancelled_flush_does_not_slow_later_ones, 2, cancelled_flush);
fn cancelled_flush<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Shared);
    w.put(0, epoch, (1, 0), &[1]);
    let flush = w.flush(0, epoch, Some(1));
    w.call(0, |windows, link| windows.cancel(link, flush));
    let _ = w.complete(0, flush);
    w.put(0, epoch, (1, 0), &[2]);
    let flush = w.flush(0, epoch, Some(1));
    w.wait(0, flush);
    assert_eq!(w.word(1, 0), 2);
    assert_eq!(w.call(0, |windows, link| windows.is_flushed(link, epoch, Some(rank(1)))), Ok(true));
    let close = w.close(0, epoch);
    w.wait(0, close);
}

/// A rank aborts each second of many epochs, so its aborts are as many ranges of numbers.
#[test]
fn thousands_of_cancelled_epochs_are_no_violation() {
    const EPOCHS: u64 = 5000;
    for starts_first in [true, false] {
        on_loopback(2, Hints::default(), |w| {
            let open = |w: &mut World<_>, is_access: bool, value: u64| {
                if !is_access {
                    let exposure = w.post(1, &[0]);
                    return w.close(1, exposure);
                }
                let epoch = w.start(0, &[1]);
                w.put(0, epoch, (1, 0), &[value]);
                w.close(0, epoch)
            };
            let (first, second) = if starts_first { (0, 1) } else { (1, 0) };
            let ends: Vec<_> = (0..EPOCHS).map(|value| open(w, starts_first, value)).collect();
            w.settle();
            for end in ends.iter().skip(1).step_by(2) {
                w.call(first, |windows, link| windows.cancel(link, *end));
            }
            w.settle();
            for value in 0..EPOCHS {
                let end = open(w, !starts_first, value);
                let result = w.complete(second, end).result;
                match value % 2 {
                    0 => assert_eq!((result, w.word(1, 0)), (Ok(()), value)),
                    _ => assert!(matches!(result, Err(Error::Aborted { .. })), "{result:?}"),
                }
            }
        });
    }
}

#[test]
fn completed_epochs_take_no_room_beside_an_open_one() {
    on_loopback(3, Hints::default(), |w| {
        for engine in &mut w.engines {
            *engine.stack_mut() = Windows::new(Config { epochs_max: 4, ..Config::default() });
        }
        w.window = w.create(Hints::default());
        let held = w.lock(0, 1, LockKind::Shared);
        for value in 1..=20 {
            let epoch = w.lock(0, 2, LockKind::Exclusive);
            w.put(0, epoch, (2, 0), &[value]);
            let close = w.close(0, epoch);
            w.wait(0, close);
        }
        w.put(0, held, (1, 0), &[21]);
        let close = w.close(0, held);
        w.wait(0, close);
        assert_eq!([w.word(1, 0), w.word(2, 0)], [21, 20]);
    });
}

#[test]
fn a_flush_of_all_operations_reports_a_dead_target() {
    on_loopback(3, Hints::default(), |w| {
        let epoch = w.lock_all(0);
        let flush = w.flush(0, epoch, None);
        w.wait(0, flush);
        for target in [1, 2] {
            w.put(0, epoch, (target, 0), &[7]);
        }
        kill(w, 2);
        let lost = w.call(0, |windows, link| windows.flush(link, epoch, None, NEVER));
        assert!(
            matches!(lost, Err(Error::Link(LinkError::PeerFailed { rank: WorldRank(2), .. }))),
            "{lost:?}"
        );
        let flush = w.flush(0, epoch, Some(1));
        w.wait(0, flush);
        assert_eq!(w.word(1, 0), 7);
        let close = w.close(0, epoch);
        ends_with_failure(w, 0, close, 2);
    });
}

/// The operations before a flush may have been delivered, also if the flush was not sent.
#[test]
fn the_fate_of_a_flush_to_a_dead_target_is_unknown() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        let flush = w.flush(0, epoch, None);
        w.wait(0, flush);
        w.stopped.insert(1);
        w.put(0, epoch, (1, 0), &[7]);
        let unanswered = 2 * Config::default().questions_max;
        let flushes: Vec<_> = (0..unanswered).map(|_| w.flush(0, epoch, None)).collect();
        w.settle();
        kill(w, 1);
        for flush in flushes {
            let result = w.complete(0, flush).result;
            let failed =
                matches!(result, Err(Error::Link(LinkError::PeerFailed { fate: Fate::Unknown, .. })));
            assert!(failed, "{result:?}");
        }
    });
}

#[test]
fn an_operation_may_be_longer_than_the_budget() {
    on_loopback(2, Hints::default(), |w| {
        for engine in &mut w.engines {
            *engine.stack_mut() = Windows::new(Config { recorded_max: PART / 2, ..Config::default() });
        }
        w.window = w.create(Hints::default());
        let epoch = w.lock(0, 1, LockKind::Shared);
        w.put(0, epoch, (1, 0), &[3; PART / 8]);
        let second = w.operate(0, epoch, (1, 0), Action::Put, Memory::new(vec![4_u64]), None);
        assert!(matches!(second, Err(Error::Link(LinkError::Exhausted { .. }))), "{second:?}");
        let close = w.close(0, epoch);
        w.wait(0, close);
        assert_eq!((w.word(1, PART / 8 - 1), w.word(1, 0)), (3, 3));
    });
}
