//! Operations: their effects, their lengths, their bounds.

use samite_fabric::link::{Out, RequestId};
use samite_fabric::{Memory, Port};
use samite_rma::{Action, Assertions, ElementType, Error, Hints, LockKind, Reduction, Target, Windows};

use crate::world::{NEVER, PART, World, group, on_loopback, on_shm, on_sim, rank};

fn everywhere(
    size: usize,
    seeds: u64,
    test: impl Fn(&mut World<samite_fabric::loopback::Loopback>),
    on_sim_test: impl Fn(&mut World<samite_fabric::sim::SimPort>),
) {
    on_loopback(size, Hints::default(), test);
    on_sim(seeds, size, Hints::default(), on_sim_test);
}

#[test]
fn operations_have_their_effects() {
    everywhere(2, 200, effects, effects);
}

fn effects<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, epoch, (1, 3), &[5, 6, 7]);
    let (element, sum) = (ElementType::U64, Reduction::Sum);
    let one = |value: u64| Memory::new(vec![value]);
    w.operate(0, epoch, (1, 3), Action::Accumulate { op: sum, element }, one(10), None).unwrap();
    let fetch =
        w.operate(0, epoch, (1, 3), Action::GetAccumulate { op: sum, element }, one(1), None).unwrap();
    let no_op = Action::GetAccumulate { op: Reduction::NoOp, element };
    let read = w.operate(0, epoch, (1, 3), no_op, one(99), None).unwrap();
    let swap = |expected: u64, new: u64| Memory::new(vec![expected, new]);
    let won = w.operate(0, epoch, (1, 4), Action::CompareSwap { element }, swap(6, 60), None).unwrap();
    let lost = w.operate(0, epoch, (1, 4), Action::CompareSwap { element }, swap(6, 61), None).unwrap();
    let get = w.get(0, epoch, (1, 2), 5);
    let written = w.operate(0, epoch, (1, 0), Action::Put, one(4), Some(NEVER)).unwrap().unwrap();
    assert_eq!(w.values(0, written), [4], "the memory comes back");
    let mut first = |request: Option<RequestId>| w.values(0, request.unwrap())[0];
    assert_eq!([first(fetch), first(read), first(won), first(lost)], [15, 16, 6, 60]);
    assert_eq!(w.values(0, get), [0, 16, 60, 7, 0]);
    let close = w.close(0, epoch);
    w.wait(0, close);
    assert_eq!([w.word(1, 0), w.word(1, 3), w.word(1, 4), w.word(1, 5)], [4, 16, 60, 7]);
    assert_eq!((w.engines[0].stack().pending(), w.engines[0].stack().recorded()), (0, 0));
}

#[test]
fn operations_work_over_shared_memory() {
    for is_shared in [false, true] {
        for test in [effects, lengths, many_reads, long_elements] {
            on_shm(2, Hints::default(), is_shared, test);
        }
        on_shm(4, Hints::default(), is_shared, sums);
    }
}

/// Elements of 16 bytes travel in packets even if the part is mapped, and a flush waits for them.
fn long_elements<P: Port>(w: &mut World<P>) {
    let epoch = w.lock(0, 1, LockKind::Shared);
    let action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U128 };
    for _ in 0..10 {
        w.operate(0, epoch, (1, 2), action, Memory::new(vec![1_u128 << 65 | 1]), None).unwrap();
        w.put(0, epoch, (1, 0), &[7]);
    }
    let flush = w.flush(0, epoch, Some(1));
    w.wait(0, flush);
    assert_eq!([0, 2, 3].map(|word| w.word(1, word)), [7, 10, 20]);
    let close = w.close(0, epoch);
    w.wait(0, close);
}

#[test]
fn elements_of_16_bytes_are_added() {
    everywhere(2, 200, long_elements, long_elements);
}

/// Calls the windows of rank 0 without a drive of its engine.
fn undriven<P: Port, R>(w: &mut World<P>, call: impl FnOnce(&mut Windows, &mut Out<'_, P>) -> R) -> R {
    let (mut out, windows) = w.engines[0].parts();
    call(windows, &mut out)
}

const ADD: Action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };

#[test]
fn short_operations_leave_within_the_call() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        let (place, one) = (Target { rank: rank(1), displacement: 0 }, 1_u64.to_ne_bytes());
        let early = undriven(w, |windows, out| windows.try_write(out, epoch, place, Action::Put, &one));
        assert_eq!(early, Ok(false), "the lock is not granted");
        w.settle();
        w.stopped.insert(0);
        let fetch = undriven(w, |windows, out| {
            assert_eq!(windows.try_write(out, epoch, place, Action::Put, &one), Ok(true));
            assert_eq!(windows.try_read(out, epoch, place, ADD, &mut [0; 8]), Ok(false), "nothing is mapped");
            let fetch = windows.operate(out, epoch, place, ADD, Memory::new(vec![5_u64]), None);
            let outside = Target { displacement: PART as u64 / 8, ..place };
            let refused = windows.try_write(out, epoch, outside, Action::Put, &one);
            assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
            assert_eq!((windows.recorded(), windows.counters().operations), (0, 2));
            assert_eq!(windows.is_flushed(out.link, epoch, None), Ok(false));
            fetch.unwrap().unwrap()
        });
        w.settle();
        assert_eq!(w.word(1, 0), 6);
        w.stopped.clear();
        assert_eq!(w.values(0, fetch), [1]);
        // A long operation waits in the queue, and a short one does not overtake it.
        let long = Memory::new(vec![2_u8; PART]);
        let queued = undriven(w, |windows, out| {
            for _ in 0..100 {
                windows.operate(out, epoch, place, Action::Put, long_copy(&long), None).unwrap();
            }
            let written = windows.try_write(out, epoch, place, Action::Put, &one).unwrap();
            (written, windows.recorded() > 0)
        });
        assert!(queued.1 && !queued.0, "the port has room for 64 of them");
        let close = w.close(0, epoch);
        w.wait(0, close);
        assert_eq!(w.word(1, 0), u64::from_ne_bytes([2; 8]));
    });
}

fn long_copy(memory: &Memory) -> Memory {
    Memory::new(memory.as_bytes().to_vec())
}

#[test]
fn operations_on_mapped_memory_need_no_target() {
    on_shm(2, Hints::default(), true, |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        w.put(0, epoch, (1, 9), &[90]);
        let flush = w.flush(0, epoch, None);
        w.wait(0, flush);
        w.stopped.insert(1);
        let place = |displacement| Target { rank: rank(1), displacement };
        undriven(w, |windows, out| {
            let words = [10_u64, 20, 30];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(windows.try_write(out, epoch, place(3), Action::Put, &bytes), Ok(true));
            let mut before = 5_u64.to_ne_bytes();
            assert_eq!(windows.try_read(out, epoch, place(4), ADD, &mut before), Ok(true));
            assert_eq!(u64::from_ne_bytes(before), 20);
            let mut all = [0; 24];
            assert_eq!(windows.try_read(out, epoch, place(3), Action::Get, &mut all), Ok(true));
            assert_eq!([all[0], all[8], all[16]], [10, 25, 30]);
            let swap = Action::CompareSwap { element: ElementType::U64 };
            let memory = Memory::new(vec![25_u64, 99]);
            let swapped = windows.operate(out, epoch, place(4), swap, memory, None).unwrap().unwrap();
            let completion = windows.collect(swapped).expect("it has ended in the call");
            assert_eq!(completion.memory.unwrap().into_vec::<u64>().unwrap(), [25, 99]);
            let put = Memory::new(vec![7_u64]);
            let written = windows.operate(out, epoch, place(0), Action::Put, put, Some(NEVER)).unwrap();
            assert!(windows.collect(written.unwrap()).expect("it has ended").memory.is_some());
            let outside = windows.try_write(out, epoch, place(PART as u64 / 8 - 2), Action::Put, &bytes);
            assert!(matches!(outside, Err(Error::OutOfBounds { .. })), "{outside:?}");
            assert_eq!(windows.is_flushed(out.link, epoch, Some(rank(1))), Ok(true));
            assert_eq!((windows.counters().mapped, windows.counters().operations), (6, 0));
        });
        let words = [0, 3, 4, 5, 9].map(|word| w.word(1, word));
        assert_eq!(words, [7, 10, 99, 30, 90]);
        w.stopped.clear();
        let close = w.close(0, epoch);
        w.wait(0, close);
        let frees: Vec<_> = (0..2).map(|at| free(w, at)).collect();
        for (at, free) in frees.into_iter().enumerate() {
            w.wait(at, free);
        }
    });
}

#[test]
fn a_window_that_is_freed_is_not_registered_any_more() {
    on_sim(300, 3, Hints::default(), |w| {
        let fences = w.fence_all(Assertions::NO_PRECEDE);
        for (at, epoch) in fences.iter().enumerate() {
            w.put(at, epoch.unwrap(), ((at + 1) % 3, 0), &[1]);
        }
        w.fence_all(Assertions::NO_SUCCEED);
        let frees: Vec<_> = (0..3).map(|at| free(w, at)).collect();
        for (at, free) in frees.into_iter().enumerate() {
            w.wait(at, free);
        }
        w.settle();
        assert!(w.engines.iter().all(|engine| engine.port().registrations() == 0));
    });
}

#[test]
fn operations_have_any_length() {
    everywhere(2, 200, lengths, lengths);
}

fn lengths<P: Port>(w: &mut World<P>) {
    let values: Vec<u64> = (0..PART as u64 / 8).map(|index| index * index).collect();
    for target in [1, 0] {
        let epoch = w.lock(0, target, LockKind::Shared);
        w.put(0, epoch, (target, 0), &values);
        // The operations behind a flush come after those before it, also if its end is not awaited.
        let flush = w.flush(0, epoch, Some(target));
        let action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };
        let sums = w.operate(0, epoch, (target, 0), action, Memory::new(values.clone()), None).unwrap();
        let second = w.flush(0, epoch, Some(target));
        let get = w.get(0, epoch, (target, 0), values.len());
        let empty = w.get(0, epoch, (target, PART as u64 / 8), 0);
        assert_eq!(w.values(0, sums.unwrap()), values);
        let doubled: Vec<u64> = values.iter().map(|value| 2 * value).collect();
        assert_eq!(w.values(0, get), doubled);
        assert_eq!(w.values(0, empty), []);
        let close = w.close(0, epoch);
        [flush, second, close].into_iter().for_each(|request| w.wait(0, request));
    }
}

#[test]
fn reads_of_many_packets_stay_within_the_limit_on_answers() {
    everywhere(2, 50, many_reads, many_reads);
}

fn many_reads<P: Port>(w: &mut World<P>) {
    let epoch = w.lock_all(0);
    let gets: Vec<_> = (0..300).map(|_| w.get(0, epoch, (1, 0), PART / 8)).collect();
    for get in gets {
        assert_eq!(w.values(0, get).len(), PART / 8);
    }
    let close = w.close(0, epoch);
    w.wait(0, close);
}

#[test]
fn atomic_operations_of_all_ranks_add_up() {
    everywhere(4, 100, sums, sums);
}

fn sums<P: Port>(w: &mut World<P>) {
    let action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };
    let epochs: Vec<_> = (0..4).map(|at| w.lock_all(at)).collect();
    for round in 0..10 {
        for (at, epoch) in epochs.iter().enumerate() {
            for target in 0..4 {
                let memory = Memory::new(vec![1_u64, round]);
                w.operate(at, *epoch, (target, 0), action, memory, None).unwrap();
            }
        }
    }
    let flushes: Vec<_> = (0..4).map(|at| w.flush(at, epochs[at], None)).collect();
    for (at, flush) in flushes.into_iter().enumerate() {
        w.wait(at, flush);
    }
    for (at, epoch) in epochs.into_iter().enumerate() {
        assert_eq!([w.word(at, 0), w.word(at, 1)], [40, 180]);
        let close = w.close(at, epoch);
        w.wait(at, close);
    }
}

#[test]
fn misuse_is_a_typed_error() {
    on_loopback(3, Hints::default(), |w| {
        let (window, stranger) = (w.window, samite_fabric::link::WorldRank(3));
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        let word = || Memory::new(vec![1_u64]);
        let not = w.operate(0, epoch, (2, 0), Action::Put, word(), None);
        assert_eq!(not, Err(Error::NotATarget { rank: rank(2) }));
        let element = ElementType::F64;
        let action = Action::Accumulate { op: Reduction::BitAnd, element };
        let undefined = w.operate(0, epoch, (1, 0), action, word(), None);
        assert_eq!(undefined, Err(Error::Undefined { op: Reduction::BitAnd, element }));
        let action = Action::Accumulate { op: Reduction::Sum, element };
        let partial = w.operate(0, epoch, (1, 0), action, Memory::new(vec![1_u8; 9]), None);
        assert_eq!(partial, Err(Error::WrongLength { len: 9, element }));
        let locked = w.call(0, |windows, link| windows.lock(link, window, stranger, LockKind::Shared));
        assert_eq!(locked, Err(Error::NotAMember { rank: stranger }));
        // The target's part is not known yet.
        let size = PART as u64;
        let outside = Error::OutOfBounds { rank: rank(1), at: size - 8, len: 16, size };
        let at_end = (1, size / 8 - 1);
        let late = w.operate(0, epoch, at_end, Action::Put, Memory::new(vec![0_u64; 2]), Some(NEVER));
        let late = late.unwrap().unwrap();
        assert_eq!(w.complete(0, late).result, Err(outside.clone()));
        let early = w.operate(0, epoch, at_end, Action::Put, Memory::new(vec![0_u64; 2]), Some(NEVER));
        assert_eq!(early, Err(outside));
        let far = w.operate(0, epoch, (1, u64::MAX / 4), Action::Put, word(), None);
        assert!(matches!(far, Err(Error::OutOfBounds { at: u64::MAX, .. })), "{far:?}");
        let close = w.close(0, epoch);
        w.wait(0, close);
        let closed = w.operate(0, epoch, (1, 0), Action::Put, word(), None);
        assert_eq!(closed, Err(Error::NoSuchEpoch));
        let again = w.call(0, |windows, link| windows.start(link, window, &group([0, 1])));
        assert!(again.is_ok());
        for call in [
            w.call(0, |windows, link| windows.start(link, window, &group([1]))),
            w.call(0, |windows, link| windows.lock(link, window, rank(1), LockKind::Shared)),
            w.call(0, |windows, link| windows.lock_all(link, window)),
        ] {
            assert!(matches!(call, Err(Error::WrongState { open: "an access epoch", .. })), "{call:?}");
        }
        let freed = w.call(0, |windows, link| windows.free(link, window, NEVER));
        assert!(matches!(freed, Err(Error::WrongState { .. })));
    });
}

#[test]
fn an_operation_without_a_request_reports_its_bounds_at_the_end_of_the_epoch() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(0, 1, LockKind::Exclusive);
        w.put(0, epoch, (1, PART as u64), &[1]);
        let close = w.close(0, epoch);
        assert!(matches!(w.complete(0, close).result, Err(Error::OutOfBounds { .. })));
    });
}

#[test]
fn a_request_precedes_its_window() {
    everywhere(3, 100, early, early);
}

fn early<P: Port>(w: &mut World<P>) {
    let hints = Hints::default();
    w.window = w.create_at(0, 2, hints);
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    w.put(0, epoch, (1, 0), &[77]);
    let close = w.close(0, epoch);
    w.settle();
    assert!(w.is_pending(0, close));
    assert_eq!(w.create_at(1, 2, hints), w.window);
    w.wait(0, close);
    assert_eq!(w.word(1, 0), 77);
    let frees: Vec<_> = [0, 1].map(|at| free(w, at)).into();
    w.settle();
    assert!(frees.iter().enumerate().all(|(at, free)| w.is_pending(at, *free)), "a member has not freed it");
    w.create_at(2, 2, hints);
    let last = free(w, 2);
    for (at, free) in frees.into_iter().chain([last]).enumerate() {
        w.wait(at, free);
    }
    w.settle();
    let window = w.window;
    assert!((0..3).all(|at| w.engines[at].stack().len(window) == Err(Error::NoSuchWindow)));
}

pub(crate) fn free<P: Port>(w: &mut World<P>, at: usize) -> RequestId {
    let window = w.window;
    w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap()
}

#[test]
fn the_ends_of_watched_requests_are_reported_once() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        let get = w.get(0, epoch, (1, 0), 1);
        w.engines[0].stack_mut().watch(get, 7);
        assert_eq!(w.engines[0].stack_mut().next_ended(), None);
        w.values(0, get);
        let ends = [(); 2].map(|()| w.engines[0].stack_mut().next_ended());
        assert_eq!(ends, [Some(7), None]);
        let flush = w.flush(0, epoch, None);
        w.settle();
        w.engines[0].stack_mut().watch(flush, 8);
        assert_eq!(w.engines[0].stack_mut().next_ended(), Some(8), "it had ended");
        w.wait(0, flush);
        let close = w.close(0, epoch);
        w.engines[0].stack_mut().watch(close, 9);
        w.call(0, |windows, link| windows.cancel(link, close));
        w.settle();
        let ends = [(); 2].map(|()| w.engines[0].stack_mut().next_ended());
        assert_eq!(ends, [Some(9), None], "a cancelled request ends once");
    });
}
