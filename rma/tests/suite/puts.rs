//! Long operations that travel by puts of the port.

use samite_fabric::Memory;
use samite_fabric::link::Time;
use samite_fabric::sim::SimPort;
use samite_rma::{Action, Assertions, EpochId, Error, LockKind, Target};

use crate::failures::{ends_with_failure, kill};
use crate::operations::free;
use crate::world::{NEVER, PART, World, on_mapped_or_put, on_puts, rank};

pub(crate) const WORDS: usize = PART / 8;

pub(crate) fn values(first: u64) -> Vec<u64> {
    (first..first + WORDS as u64).collect()
}

pub(crate) fn part(w: &World<SimPort>, at: usize) -> Vec<u64> {
    (0..WORDS).map(|word| w.word(at, word)).collect()
}

/// Writes a slice to the part of rank `to`. Returns false if the call could not take the slice.
fn write(w: &mut World<SimPort>, at: usize, epoch: EpochId, to: usize, values: &[u64]) -> bool {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let now = w.now;
    let (mut out, windows) = w.engines[at].parts();
    out.link.set_now(now);
    let target = Target { rank: rank(to), displacement: 0 };
    let written = windows.try_write(&mut out, epoch, target, Action::Put, &bytes).unwrap();
    w.engines[at].drive(&mut ());
    written
}

/// Checks that no operation has left memory to the port, except slabs for later ones.
pub(crate) fn is_at_rest(w: &World<SimPort>, at: usize) {
    let engine = &w.engines[at];
    assert_eq!(engine.stack().recorded(), 0, "rank {at}");
    assert_eq!((engine.link().registered().used, engine.link().quarantined().1), (0, 0), "rank {at}");
}

pub(crate) fn free_all(w: &mut World<SimPort>, ranks: &[usize]) {
    let frees: Vec<_> = ranks.iter().map(|at| free(w, *at)).collect();
    for (at, free) in ranks.iter().zip(frees) {
        w.complete(*at, free);
    }
    w.settle();
    for at in ranks {
        is_at_rest(w, *at);
        let engine = &w.engines[*at];
        assert_eq!(engine.port().registrations(), engine.link().registered().idle, "rank {at}");
    }
}

#[test]
fn every_kind_of_epoch_completes_when_its_puts_have_landed() {
    on_puts(300, 2, |w| {
        let exposure = w.post(1, &[0]);
        let access = w.start(0, &[1]);
        w.put(0, access, (1, 0), &values(1));
        let closes = [(1, w.close(1, exposure)), (0, w.close(0, access))];
        w.wait(1, closes[0].1);
        assert_eq!(part(w, 1), values(1), "post and start");
        w.wait(0, closes[1].1);
        let fences = w.fence_all(Assertions::NO_PRECEDE);
        w.put(0, fences[0].unwrap(), (1, 0), &values(2));
        w.fence_all(Assertions::NO_SUCCEED);
        assert_eq!(part(w, 1), values(2), "fence");
        let lock = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, lock, (1, 0), &values(3));
        let flush = w.flush(0, lock, Some(1));
        w.wait(0, flush);
        assert_eq!(part(w, 1), values(3), "flush");
        w.put(0, lock, (1, 0), &values(4));
        let close = w.close(0, lock);
        w.wait(0, close);
        assert_eq!(part(w, 1), values(4), "lock");
        assert_eq!(w.engines[0].stack().counters().put, 4);
        assert_eq!(w.engines[1].stack().counters().written, 0, "no packet has carried bytes");
        free_all(w, &[0, 1]);
    });
}

#[test]
fn a_put_does_not_overtake_packets_before_a_flush() {
    on_puts(300, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        w.put(0, lock, (1, 0), &[1, 2, 3]);
        let get = w.get(0, lock, (1, 0), 4);
        let flush = w.flush(0, lock, Some(1));
        w.put(0, lock, (1, 0), &values(9));
        let again = w.flush(0, lock, Some(1));
        if !write(w, 0, lock, 1, &values(20)[..WORDS / 2]) {
            w.put(0, lock, (1, 0), &values(20)[..WORDS / 2]);
        }
        assert_eq!(w.values(0, get), [1, 2, 3, 0], "the end of the flush was not awaited");
        let close = w.close(0, lock);
        [flush, again, close].into_iter().for_each(|request| w.wait(0, request));
        assert_eq!(part(w, 1)[..WORDS / 2], values(20)[..WORDS / 2]);
        assert_eq!(part(w, 1)[WORDS / 2..], values(9)[WORDS / 2..]);
    });
}

#[test]
fn a_short_write_after_a_flush_needs_no_answer() {
    on_puts(300, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        w.put(0, lock, (1, 0), &[1]);
        let flush = w.flush(0, lock, Some(1));
        w.wait(0, flush);
        let puts = |w: &World<SimPort>| w.engines[0].stack().counters().put;
        for value in 2..12 {
            let before = puts(w);
            assert!(write(w, 0, lock, 1, &[value]), "there is a slab");
            // The second one is under way beside the first one, and travels in a packet.
            let is_second = value % 3 == 0;
            if is_second && !write(w, 0, lock, 1, &[value, value + 1]) {
                w.put(0, lock, (1, 0), &[value, value + 1]);
            }
            let flush = w.flush(0, lock, Some(1));
            w.wait(0, flush);
            assert_eq!((w.word(1, 0), puts(w)), (value, before + 1));
            assert!(!is_second || w.word(1, 1) == value + 1);
        }
        assert!(write(w, 0, lock, 1, &[50]));
        let close = w.close(0, lock);
        w.wait(0, close);
        assert_eq!(w.word(1, 0), 50);
        free_all(w, &[0, 1]);
    });
}

#[test]
fn memory_comes_back_when_its_puts_have_ended() {
    on_puts(200, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        let memory = Memory::new(values(7));
        let put = w.operate(0, lock, (1, 0), Action::Put, memory, Some(NEVER)).unwrap().unwrap();
        assert_eq!(w.values(0, put), values(7));
        is_at_rest(w, 0);
        assert_eq!(part(w, 1), values(7), "the end of a put means that its bytes are at the target");
        let close = w.close(0, lock);
        w.wait(0, close);
    });
}

#[test]
fn slices_are_put_from_slabs() {
    on_puts(200, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        assert!(!write(w, 0, lock, 1, &values(1)), "the lock is not granted");
        w.settle();
        let some = &values(5)[..WORDS / 2];
        assert!(write(w, 0, lock, 1, some));
        assert!(!write(w, 0, lock, 1, &values(6)), "that needs more slabs than one peer may use");
        let flush = w.flush(0, lock, None);
        w.wait(0, flush);
        w.settle();
        is_at_rest(w, 0);
        assert_eq!(part(w, 1)[..WORDS / 2], *some);
        let close = w.close(0, lock);
        w.wait(0, close);
        assert_eq!(w.engines[0].stack().counters().put, 1);
        free_all(w, &[0, 1]);
    });
}

#[test]
fn a_slice_takes_one_of_two_ways() {
    on_mapped_or_put(100, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        w.settle();
        // The part is not mapped before the first operation, which waits behind another item.
        let flush = w.flush(0, lock, None);
        let some = &values(5)[..WORDS / 2];
        if !write(w, 0, lock, 1, some) {
            w.put(0, lock, (1, 0), some);
        }
        let close = w.close(0, lock);
        w.wait(0, flush);
        w.wait(0, close);
        assert_eq!(part(w, 1)[..WORDS / 2], *some);
        let counters = w.engines[0].stack().counters();
        // A simulated port may refuse to map memory.
        assert_eq!(counters.put + counters.mapped, 1);
    });
}

#[test]
fn a_put_leaves_the_bounds_of_no_part() {
    on_puts(50, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        w.put(0, lock, (1, 1), &values(1));
        w.settle();
        let late = w.operate(0, lock, (1, 1), Action::Put, Memory::new(values(1)), None);
        assert!(matches!(late, Err(Error::OutOfBounds { .. })), "{late:?}");
        let close = w.close(0, lock);
        assert!(matches!(w.complete(0, close).result, Err(Error::OutOfBounds { .. })));
        assert_eq!(part(w, 1), [0; WORDS]);
    });
}

#[test]
fn puts_to_a_dead_target_end_and_leave_nothing() {
    on_puts(300, 3, |w| {
        let lock = w.lock_all(0);
        let flush = w.flush(0, lock, None);
        w.wait(0, flush);
        let memory = Memory::new(values(1));
        let put = w.operate(0, lock, (1, 0), Action::Put, memory, Some(NEVER)).unwrap().unwrap();
        w.put(0, lock, (1, 0), &values(2));
        w.put(0, lock, (2, 0), &values(3));
        for _ in 0..w.now.as_nanos() % 7 {
            w.step();
        }
        let has_ended = !w.is_pending(0, put);
        kill(w, 1);
        if !has_ended {
            ends_with_failure(w, 0, put, 1);
        }
        let close = w.close(0, lock);
        ends_with_failure(w, 0, close, 1);
        assert_eq!(part(w, 2), values(3));
        w.settle();
        free_all(w, &[0, 2]);
    });
}

#[test]
fn no_put_of_a_dead_origin_lands_after_its_lock_has_passed_on() {
    on_puts(300, 3, |w| {
        the_lock_of_a_dead_origin_passes_on(w, |w, held| {
            w.put(1, held, (0, 0), &values(1));
            w.put(1, held, (0, 0), &values(2));
        });
    });
}

/// Rank 1 starts operations on the part of rank 0 under its exclusive lock, and dies. Rank 2, which gets the lock,
/// writes the part, and nothing changes it afterwards.
pub(crate) fn the_lock_of_a_dead_origin_passes_on(
    w: &mut World<SimPort>,
    start: impl FnOnce(&mut World<SimPort>, EpochId),
) {
    let held = w.lock(1, 0, LockKind::Exclusive);
    w.settle();
    start(w, held);
    let waiting = w.lock(2, 0, LockKind::Exclusive);
    w.put(2, waiting, (0, 0), &values(3));
    let close = w.close(2, waiting);
    for _ in 0..w.now.as_nanos() % 7 {
        w.step();
    }
    kill(w, 1);
    w.wait(2, close);
    assert_eq!(part(w, 0), values(3));
    w.settle();
    assert_eq!(part(w, 0), values(3));
    free_all(w, &[0, 2]);
}

#[test]
fn puts_of_a_cancelled_epoch_run_to_their_end() {
    on_puts(300, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Exclusive);
        w.settle();
        w.put(0, lock, (1, 0), &values(1));
        let close = w.close(0, lock);
        w.call(0, |windows, link| {
            windows.cancel(link, close);
            Ok::<_, Error>(())
        })
        .unwrap();
        let next = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, next, (1, 0), &values(2));
        let close = w.close(0, next);
        w.wait(0, close);
        assert_eq!(part(w, 1), values(2), "the puts of the earlier epoch came first");
        free_all(w, &[0, 1]);
    });
}

#[test]
fn a_deadline_ends_a_request_before_its_puts() {
    on_puts(200, 2, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        w.settle();
        let due = Time::from_nanos(w.now.as_nanos() + 1);
        let memory = Memory::new(values(4));
        let put = w.operate(0, lock, (1, 0), Action::Put, memory, Some(due)).unwrap().unwrap();
        let completion = w.complete(0, put);
        let is_late = matches!(completion.result, Err(Error::TimedOut { .. }));
        assert!(is_late || completion.result == Ok(()), "{:?}", completion.result);
        let close = w.close(0, lock);
        w.wait(0, close);
        assert_eq!(part(w, 1), values(4), "posted puts run to their end");
        free_all(w, &[0, 1]);
    });
}
