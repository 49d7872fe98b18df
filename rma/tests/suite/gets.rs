//! Long reads that are gets of the port, or that the target answers by puts.

use samite_fabric::layout::{Elements, Form};
use samite_fabric::link::{RequestId, Time};
use samite_fabric::sim::SimPort;
use samite_fabric::{Body as _, Memory, Sink as _, SplitMix64};
use samite_rma::{Action, Assertions, EpochId, Error, LockKind};

use crate::failures::{GET_INTO, LANDED, ends_with_failure, forged_of, kill, sender};
use crate::puts::{WORDS, free_all, is_at_rest, part, the_lock_of_a_dead_origin_passes_on, values};
use crate::world::{NEVER, World, on_gets, on_put_backs, rank};

/// Fills the part of a rank.
fn fill(w: &mut World<SimPort>, at: usize, values: &[u64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let window = w.window;
    w.engines[at].parts().1.write(window, 0, &bytes).unwrap();
}

/// Reads the whole part of rank `to` to every second word of a vector.
fn get_scattered(w: &mut World<SimPort>, at: usize, epoch: EpochId, to: usize) -> RequestId {
    let form = Form::block(8).and_then(|word| word.strided(WORDS, 16)).expect("a form of every second word");
    let memory = Memory::new(vec![0_u64; 2 * WORDS]);
    let memory = Memory::scattered::<Vec<u64>>(memory, form, 8, Elements::BYTES).unwrap();
    w.operate(at, epoch, (to, 0), Action::Get, memory, Some(NEVER)).unwrap().unwrap()
}

/// Waits for a read to scattered memory, and returns its words.
fn scattered_values(w: &mut World<SimPort>, at: usize, request: RequestId) -> Vec<u64> {
    let completion = w.complete(at, request);
    assert_eq!(completion.result, Ok(()), "rank {at}");
    let memory = completion.memory.unwrap();
    let mut bytes = vec![0; memory.len()];
    memory.readable().copy_to(&mut bytes);
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[test]
fn every_kind_of_epoch_completes_when_its_gets_have_arrived() {
    on_gets(200, 2, usize::MAX, |w| {
        fill(w, 1, &values(1));
        let exposure = w.post(1, &[0]);
        let access = w.start(0, &[1]);
        let get = w.get(0, access, (1, 0), WORDS);
        let closes = [(1, w.close(1, exposure)), (0, w.close(0, access))];
        w.wait(1, closes[0].1);
        fill(w, 1, &values(2));
        w.wait(0, closes[1].1);
        assert_eq!(w.values(0, get), values(1), "post and start");
        let fences = w.fence_all(Assertions::NO_PRECEDE);
        let get = w.get(0, fences[0].unwrap(), (1, 0), WORDS);
        w.fence_all(Assertions::NO_SUCCEED);
        fill(w, 1, &values(3));
        assert_eq!(w.values(0, get), values(2), "fence");
        let lock = w.lock(0, 1, LockKind::Exclusive);
        let get = w.get(0, lock, (1, 0), WORDS);
        let flush = w.flush(0, lock, Some(1));
        w.wait(0, flush);
        fill(w, 1, &values(4));
        assert_eq!(w.values(0, get), values(3), "flush");
        let get = w.get(0, lock, (1, 0), WORDS);
        let close = w.close(0, lock);
        w.wait(0, close);
        fill(w, 1, &values(5));
        assert_eq!(w.values(0, get), values(4), "lock");
        assert_eq!(w.engines[0].stack().counters().got, 4);
        assert_eq!(w.engines[1].stack().counters().read, 0, "no packet has carried bytes");
        free_all(w, &[0, 1]);
    });
}

#[test]
fn flushes_separate_gets_from_puts_and_packets() {
    on_gets(200, 2, usize::MAX, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        w.put(0, lock, (1, 0), &[7, 8, 9]);
        let flush = w.flush(0, lock, Some(1));
        let first = w.get(0, lock, (1, 0), WORDS);
        let second = w.flush(0, lock, Some(1));
        w.put(0, lock, (1, 0), &values(9));
        let third = w.flush(0, lock, Some(1));
        let last = w.get(0, lock, (1, 0), WORDS);
        let found = w.values(0, first);
        assert_eq!((&found[..3], &found[3..]), (&[7, 8, 9][..], &vec![0; WORDS - 3][..]));
        assert_eq!(w.values(0, last), values(9));
        let close = w.close(0, lock);
        [flush, second, third, close].into_iter().for_each(|request| w.wait(0, request));
        free_all(w, &[0, 1]);
    });
}

#[test]
fn a_local_flush_waits_for_gets() {
    on_gets(100, 2, usize::MAX, |w| {
        fill(w, 1, &values(3));
        let lock = w.lock_all(0);
        w.settle();
        let get = w.get(0, lock, (1, 0), WORDS);
        let flush = w.call(0, |windows, link| windows.flush_local(link, lock, None, NEVER)).unwrap();
        w.wait(0, flush);
        assert!(!w.is_pending(0, get));
        assert_eq!(w.values(0, get), values(3));
        let close = w.close(0, lock);
        w.wait(0, close);
    });
}

#[test]
fn a_lock_passes_on_after_the_gets_of_its_holder() {
    on_gets(200, 3, usize::MAX, |w| {
        fill(w, 0, &values(1));
        let held = w.lock(1, 0, LockKind::Exclusive);
        w.settle();
        let next = w.lock(2, 0, LockKind::Exclusive);
        w.put(2, next, (0, 0), &values(2));
        let get = w.get(1, held, (0, 0), WORDS);
        let closes = [(1, w.close(1, held)), (2, w.close(2, next))];
        closes.into_iter().for_each(|(at, close)| w.wait(at, close));
        assert_eq!(w.values(1, get), values(1));
        assert_eq!(part(w, 0), values(2));
        free_all(w, &[0, 1, 2]);
    });
}

#[test]
fn scattered_memory_is_filled_from_slabs() {
    on_gets(200, 2, usize::MAX, |w| {
        fill(w, 1, &values(5));
        let lock = w.lock(0, 1, LockKind::Shared);
        let gets = [0; 3].map(|_| get_scattered(w, 0, lock, 1));
        let flush = w.flush(0, lock, None);
        for get in gets {
            assert_eq!(scattered_values(w, 0, get), values(5));
        }
        w.wait(0, flush);
        is_at_rest(w, 0);
        assert!(w.engines[0].stack().counters().got > 0, "the first read gets slabs");
        let close = w.close(0, lock);
        w.wait(0, close);
        free_all(w, &[0, 1]);
    });
}

#[test]
fn reads_take_another_way_without_registrations() {
    for registrations_max in 0..4 {
        on_gets(60, 2, registrations_max, |w| {
            fill(w, 1, &values(5));
            let lock = w.lock(0, 1, LockKind::Shared);
            let contiguous = [0; 3].map(|_| w.get(0, lock, (1, 0), WORDS));
            let scattered = [0; 3].map(|_| get_scattered(w, 0, lock, 1));
            for get in contiguous {
                assert_eq!(w.values(0, get), values(5));
            }
            for get in scattered {
                assert_eq!(scattered_values(w, 0, get), values(5));
            }
            let close = w.close(0, lock);
            w.wait(0, close);
            let counters = w.engines[0].stack().counters();
            assert_eq!(counters.got + counters.operations, 6);
            free_all(w, &[0, 1]);
        });
    }
}

#[test]
fn a_get_leaves_the_bounds_of_no_part() {
    on_gets(50, 2, usize::MAX, |w| {
        let lock = w.lock(0, 1, LockKind::Shared);
        let early = w.get(0, lock, (1, 1), WORDS);
        w.settle();
        assert!(matches!(w.complete(0, early).result, Err(Error::OutOfBounds { .. })));
        let memory = Memory::new(values(1));
        let late = w.operate(0, lock, (1, 1), Action::Get, memory, None);
        assert!(matches!(late, Err(Error::OutOfBounds { .. })), "{late:?}");
        let close = w.close(0, lock);
        w.wait(0, close);
        free_all(w, &[0, 1]);
    });
}

#[test]
fn gets_from_a_dead_target_end_and_leave_nothing() {
    on_gets(200, 3, usize::MAX, |w| {
        fill(w, 2, &values(3));
        let lock = w.lock_all(0);
        let warm = [1, 2].map(|to| w.get(0, lock, (to, 0), 1));
        warm.into_iter().for_each(|get| drop(w.values(0, get)));
        let gets = [w.get(0, lock, (1, 0), WORDS), get_scattered(w, 0, lock, 1)];
        let other = w.get(0, lock, (2, 0), WORDS);
        for _ in 0..w.now.as_nanos() % 7 {
            w.step();
        }
        let pending = gets.map(|get| w.is_pending(0, get));
        kill(w, 1);
        for (get, is_pending) in gets.into_iter().zip(pending) {
            if is_pending {
                ends_with_failure(w, 0, get, 1);
            }
        }
        assert_eq!(w.values(0, other), values(3));
        let close = w.close(0, lock);
        ends_with_failure(w, 0, close, 1);
        w.settle();
        free_all(w, &[0, 2]);
    });
}

#[test]
fn gets_of_a_dead_origin_disturb_nobody() {
    on_gets(200, 3, usize::MAX, |w| {
        the_lock_of_a_dead_origin_passes_on(w, |w, held| _ = w.get(1, held, (0, 0), WORDS));
    });
}

#[test]
fn gets_of_a_cancelled_epoch_run_to_their_end() {
    on_gets(200, 2, usize::MAX, |w| {
        fill(w, 1, &values(1));
        let lock = w.lock(0, 1, LockKind::Exclusive);
        w.settle();
        let get = w.get(0, lock, (1, 0), WORDS);
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
        assert_eq!(w.values(0, get), values(1), "the get of the earlier epoch came first");
        free_all(w, &[0, 1]);
    });
}

#[test]
fn a_deadline_ends_a_request_before_its_gets() {
    on_gets(200, 2, usize::MAX, |w| {
        fill(w, 1, &values(4));
        let lock = w.lock(0, 1, LockKind::Shared);
        w.settle();
        let due = Time::from_nanos(w.now.as_nanos() + 1);
        let memory = Memory::new(vec![0_u64; WORDS]);
        let get = w.operate(0, lock, (1, 0), Action::Get, memory, Some(due)).unwrap().unwrap();
        let completion = w.complete(0, get);
        match completion.result {
            Ok(()) => assert_eq!(completion.memory.unwrap().into_vec::<u64>().unwrap(), values(4)),
            Err(Error::TimedOut { .. }) => assert!(completion.memory.is_none(), "the port writes to it"),
            Err(error) => panic!("{error}"),
        }
        let close = w.close(0, lock);
        w.wait(0, close);
        is_at_rest(w, 0);
        free_all(w, &[0, 1]);
    });
}

#[test]
fn a_rank_gets_from_its_own_part() {
    on_gets(100, 2, usize::MAX, |w| {
        fill(w, 0, &values(6));
        let lock = w.lock(0, 0, LockKind::Shared);
        let get = w.get(0, lock, (0, 0), WORDS);
        assert_eq!(w.values(0, get), values(6));
        let close = w.close(0, lock);
        w.wait(0, close);
        free_all(w, &[0, 1]);
    });
}

#[test]
fn memory_stays_registered_until_its_stopped_target_is_cut_off() {
    on_put_backs(200, 3, usize::MAX, |w| {
        fill(w, 2, &values(3));
        let lock = w.lock_all(0);
        let warm = [1, 2].map(|to| w.get(0, lock, (to, 0), 1));
        warm.into_iter().for_each(|get| drop(w.values(0, get)));
        w.settle();
        w.stopped.insert(1);
        let idle = w.engines[0].port().registrations();
        let due = Time::from_nanos(w.now.as_nanos() + 5_000);
        let memory = Memory::new(vec![0_u64; WORDS]);
        let get = w.operate(0, lock, (1, 0), Action::Get, memory, Some(due)).unwrap().unwrap();
        let scattered = get_scattered(w, 0, lock, 1);
        let completion = w.complete(0, get);
        assert!(matches!(completion.result, Err(Error::TimedOut { .. })), "{:?}", completion.result);
        assert!(completion.memory.is_none(), "the target may write to it");
        // The ranks do not come to rest while packets wait for the stopped rank.
        for _ in 0..300 {
            w.step();
        }
        assert!(w.engines[0].port().registrations() > idle, "the target has the key");
        let other = w.get(0, lock, (2, 0), WORDS);
        assert_eq!(w.values(0, other), values(3), "another target answers");
        kill(w, 1);
        ends_with_failure(w, 0, scattered, 1);
        let close = w.close(0, lock);
        ends_with_failure(w, 0, close, 1);
        w.settle();
        free_all(w, &[0, 2]);
    });
}

#[test]
fn forged_reads_and_answers_disturb_nobody_else() {
    let seed = std::cell::Cell::new(0);
    on_put_backs(300, 3, usize::MAX, |w| {
        let mut rng = SplitMix64::new(seed.replace(seed.get() + 1));
        fill(w, 2, &values(3));
        let held = w.lock(1, 0, LockKind::Shared);
        let word = w.get(1, held, (0, 0), 1);
        w.values(1, word);
        let lock = w.lock_all(0);
        let warm = [1, 2].map(|to| w.get(0, lock, (to, 0), 1));
        warm.into_iter().for_each(|get| drop(w.values(0, get)));
        w.settle();
        w.stopped.insert(1);
        let gets = [w.get(0, lock, (1, 0), WORDS), get_scattered(w, 0, lock, 1)];
        let others = [w.get(0, lock, (2, 0), WORDS), w.get(0, lock, (2, 0), WORDS)];
        let (mut sequence, number) = sender(w);
        for _ in 0..1 + rng.below(12) {
            let kind = [GET_INTO, LANDED][rng.below(2) as usize];
            let packet = forged_of(&mut rng, kind, sequence, number, w);
            w.engines[0].sink(&mut ()).packet(&packet);
            if rng.below(2) == 0 {
                w.step();
            }
            sequence += 1;
        }
        kill(w, 1);
        for get in gets {
            w.complete(0, get);
        }
        for other in others {
            assert_eq!(w.values(0, other), values(3));
        }
        let close = w.close(0, lock);
        w.complete(0, close);
        let next = w.lock(2, 0, LockKind::Exclusive);
        w.put(2, next, (0, 0), &values(4));
        let flush = w.flush(2, next, Some(0));
        let get = w.get(2, next, (0, 0), WORDS);
        assert_eq!(w.values(2, get), values(4));
        let close = w.close(2, next);
        [flush, close].into_iter().for_each(|request| w.wait(2, request));
        w.settle();
        free_all(w, &[0, 2]);
    });
}

#[test]
fn a_member_has_a_limited_number_of_reads() {
    on_put_backs(20, 2, usize::MAX, |w| {
        let held = w.lock(1, 0, LockKind::Shared);
        let word = w.get(1, held, (0, 0), 1);
        w.values(1, word);
        w.settle();
        let (sequence, number) = sender(w);
        for index in 0..17 {
            assert!(w.engines[0].failure(rank(1)).is_none(), "{index} reads");
            let mut packet = forged_of(&mut SplitMix64::new(1), GET_INTO, sequence + index, number, w);
            let body = packet.len() - 48;
            packet[body..].fill(0);
            // The generation of the window, and the number of bytes.
            (packet[body], packet[body + 24]) = (1, 8);
            w.engines[0].sink(&mut ()).packet(&packet);
        }
        assert!(w.engines[0].failure(rank(1)).is_some());
    });
}

#[test]
fn ranks_that_read_from_each_other_do_not_wait_for_each_other() {
    on_gets(200, 2, usize::MAX, |w| {
        (0..2).for_each(|at| fill(w, at, &values(10 * at as u64)));
        let locks = [0, 1].map(|at| w.lock(at, 1 - at, LockKind::Shared));
        let gets = [0, 1].map(|at| [0; 20].map(|_| w.get(at, locks[at], (1 - at, 0), WORDS)));
        let flushes = [0, 1].map(|at| w.flush(at, locks[at], None));
        let closes = [0, 1].map(|at| w.close(at, locks[at]));
        for at in [0, 1] {
            gets[at].into_iter().for_each(|get| assert_eq!(w.values(at, get), values(10 * (1 - at as u64))));
            w.wait(at, flushes[at]);
            w.wait(at, closes[at]);
        }
        assert_eq!(w.engines[0].stack().counters().got, 20);
        free_all(w, &[0, 1]);
    });
}
