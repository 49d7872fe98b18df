//! Dynamic windows: memory that is attached and detached while others access it.

use std::collections::BTreeMap;

use samite_fabric::layout::Form;
use samite_fabric::link::{Error as LinkError, RequestId};
use samite_fabric::loopback::Loopback;
use samite_fabric::wire::Header;
use samite_fabric::{Memory, Port, Region, Sink as _, SplitMix64};
use samite_rma::{
    Action, Assertions, Attached, Config, ElementType, EpochId, Error, Hints, LockKind, Places, Reduction,
    Reorder, Windows,
};

use crate::failures::{REFUSED, arrive, forged_of, kill, sender, violation};
use crate::world::{NEVER, World, on_loopback, on_shm, on_sim, place, rank};

const PLAIN: Hints = Hints {
    reorder: Reorder::empty(),
    overtake: false,
    aggregate: false,
    takes_part: false,
    unshared_accumulates: false,
};
const AGGREGATE: Hints = Hints { aggregate: true, ..PLAIN };
const ADD: Action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };
const SUM: Action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };
const SWAP: Action = Action::CompareSwap { element: ElementType::U64 };

/// So many words that an operation on them needs several packets of every port.
const LONG: usize = 2000;

/// Runs a test on a dynamic window, with two kinds of locks.
fn everywhere(
    size: usize,
    on_hub: impl Fn(&mut World<Loopback>),
    on_net: impl Fn(&mut World<samite_fabric::sim::SimPort>),
) {
    for hints in [PLAIN, AGGREGATE] {
        on_loopback(size, hints, |w| {
            w.window = w.create_dynamic(hints);
            on_hub(w);
        });
        on_sim(100, size, hints, |w| {
            w.window = w.create_dynamic(hints);
            on_net(w);
        });
    }
}

macro_rules! case {
    ($name:ident, $size:expr, $test:ident) => {
        #[test]
        fn $name() {
            everywhere($size, $test, $test);
        }
    };
}

/// Replaces the windows of all ranks by a dynamic one.
fn restart<P: Port>(w: &mut World<P>, config: Config) {
    for engine in &mut w.engines {
        *engine.stack_mut() = Windows::new(config.clone());
    }
    w.window = w.create_dynamic(PLAIN);
}

#[track_caller]
fn attach<P: Port>(w: &mut World<P>, at: usize, words: Vec<u64>) -> Attached {
    let (window, region) = (w.window, Region::new(Memory::new(words)));
    w.call(at, |windows, _| windows.attach_memory(window, region)).unwrap()
}

#[track_caller]
fn detach<P: Port>(w: &mut World<P>, at: usize, region: Attached) -> Vec<u64> {
    let window = w.window;
    let region = w.call(at, |windows, link| windows.detach_memory(link, window, region)).unwrap();
    region.reclaim().expect("nothing else holds it").into_vec().unwrap()
}

/// Returns the places from a word of a region of a rank on.
fn within((at, region, word): (usize, Attached, u64)) -> Places<'static> {
    Places::from(place((at, word * 8))).within(region)
}

fn operate<P: Port>(
    w: &mut World<P>,
    epoch: EpochId,
    target: (usize, Attached, u64),
    action: Action,
    words: &[u64],
) -> Option<RequestId> {
    w.operate_at(0, epoch, within(target), action, Memory::new(words.to_vec()), None).unwrap()
}

fn get<P: Port>(w: &mut World<P>, epoch: EpochId, target: (usize, Attached, u64), len: usize) -> RequestId {
    operate(w, epoch, target, Action::Get, &vec![0; len]).unwrap()
}

/// Closes an epoch of rank 0, and returns its result.
fn end<P: Port>(w: &mut World<P>, epoch: EpochId) -> Result<(), Error> {
    let close = w.close(0, epoch);
    w.complete(0, close).result
}

fn missed(target: usize, region: Attached) -> Result<(), Error> {
    Err(Error::NotAttached { rank: rank(target), region: region.place })
}

case!(operations_have_their_effects, 2, effects);
fn effects<P: Port>(w: &mut World<P>) {
    let (short, long) = (attach(w, 1, vec![1, 2, 3, 4]), attach(w, 1, vec![5; LONG]));
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    operate(w, epoch, (1, short, 1), Action::Put, &[20]);
    operate(w, epoch, (1, short, 2), SUM, &[100, 100]);
    let fetch = operate(w, epoch, (1, short, 0), ADD, &[6]).unwrap();
    let swap = operate(w, epoch, (1, short, 3), SWAP, &[104, 9]).unwrap();
    let words: Vec<u64> = (0..LONG as u64).collect();
    operate(w, epoch, (1, long, 0), Action::Put, &words);
    let read = get(w, epoch, (1, long, 0), LONG);
    // Every second word, backwards.
    let form = Form::block(8).unwrap().strided(LONG / 2, -16).unwrap();
    let places = place((1, (LONG as u64 - 2) * 8)).with_form(&form).within(long);
    let memory = Memory::new(vec![0_u64; LONG / 2]);
    let some = w.operate_at(0, epoch, places, Action::Get, memory, None).unwrap().unwrap();
    assert_eq!(end(w, epoch), Ok(()));
    assert_eq!((w.values(0, fetch), w.values(0, swap)), (vec![1], vec![104, 9]));
    assert_eq!(w.values(0, read), words);
    let expected: Vec<u64> = (0..LONG as u64).rev().filter(|word| word % 2 == 0).collect();
    assert_eq!(w.values(0, some), expected);
    assert_eq!(detach(w, 1, short), [7, 20, 103, 9]);
    assert_eq!(detach(w, 1, long), words);
    let windows = w.engines[1].stack();
    assert_eq!((windows.attached_count(), windows.counters().missed), (0, 0));
}

#[test]
fn dynamic_windows_work_over_shared_memory() {
    for is_shared in [false, true] {
        on_shm(3, PLAIN, is_shared, |w| {
            w.window = w.create_dynamic(PLAIN);
            effects(w);
            kinds(w);
        });
    }
}

/// The kinds of epochs of access to rank 1.
#[derive(Clone, Copy, Debug)]
enum Opening {
    Fence,
    Start,
    Lock,
    LockAll,
}

/// Opens an epoch of rank 0 for an access to rank 1. The second epoch is one that rank 1 closes.
fn open<P: Port>(w: &mut World<P>, kind: Opening) -> (EpochId, Option<EpochId>) {
    match kind {
        Opening::Fence => {
            let epochs = w.fence_all(Assertions::NO_PRECEDE);
            (epochs[0].unwrap(), None)
        }
        Opening::Start => {
            let exposure = w.post(1, &[0]);
            (w.start(0, &[1]), Some(exposure))
        }
        Opening::Lock => (w.lock(0, 1, LockKind::Shared), None),
        Opening::LockAll => (w.lock_all(0), None),
    }
}

/// Closes what `open` has opened, and returns the result at rank 0.
fn shut<P: Port>(
    w: &mut World<P>,
    kind: Opening,
    (epoch, exposure): (EpochId, Option<EpochId>),
) -> Result<(), Error> {
    if let Opening::Fence = kind {
        let fenced: Vec<_> =
            (0..w.engines.len()).map(|at| w.fence(at, Assertions::NO_SUCCEED).completion.unwrap()).collect();
        for (at, request) in fenced.iter().enumerate().skip(1) {
            w.wait(at, *request);
        }
        return w.complete(0, fenced[0]).result;
    }
    let result = end(w, epoch);
    if let Some(exposure) = exposure {
        let request = w.close(1, exposure);
        w.wait(1, request);
    }
    result
}

case!(each_kind_of_epoch_reports_memory_that_is_not_attached, 3, kinds);
fn kinds<P: Port>(w: &mut World<P>) {
    for kind in [Opening::Fence, Opening::Start, Opening::Lock, Opening::LockAll] {
        let (kept, gone) = (attach(w, 1, vec![0; 4]), attach(w, 1, vec![0; LONG]));
        detach(w, 1, gone);
        // Only a read.
        let epoch = open(w, kind);
        let (read, good) = (get(w, epoch.0, (1, gone, 0), LONG), get(w, epoch.0, (1, kept, 0), 4));
        assert_eq!(shut(w, kind, epoch), Ok(()), "{kind:?}");
        assert_eq!(w.complete(0, read).result, missed(1, gone), "{kind:?}");
        assert_eq!(w.values(0, good), [0; 4]);
        // Writes, also behind each other and of several packets.
        let epoch = open(w, kind);
        operate(w, epoch.0, (1, kept, 1), Action::Put, &[5]);
        operate(w, epoch.0, (1, gone, 7), SUM, &[1]);
        operate(w, epoch.0, (1, gone, 0), Action::Put, &[1; LONG]);
        let swap = operate(w, epoch.0, (1, gone, 3), SWAP, &[0, 1]).unwrap();
        operate(w, epoch.0, (1, kept, 2), SUM, &[6]);
        assert_eq!(shut(w, kind, epoch), missed(1, gone), "{kind:?}");
        assert_eq!(w.complete(0, swap).result, missed(1, gone));
        // The next epoch has no error.
        let epoch = open(w, kind);
        operate(w, epoch.0, (1, kept, 3), Action::Put, &[7]);
        assert_eq!(shut(w, kind, epoch), Ok(()), "{kind:?}");
        assert_eq!(detach(w, 1, kept), [0, 5, 6, 7], "{kind:?}");
        assert_eq!((w.engines[0].stack().pending(), w.engines[0].stack().recorded()), (0, 0));
        assert!(w.engines[1].stack().counters().missed > 0);
    }
}

case!(a_flush_tells_of_a_write_once, 3, flushes);
fn flushes<P: Port>(w: &mut World<P>) {
    let (kept, gone) = (attach(w, 1, vec![0; 4]), attach(w, 1, vec![0; 4]));
    let other = attach(w, 2, vec![0; 4]);
    let epoch = w.lock_all(0);
    let flush = |w: &mut World<P>, target| {
        let flush = w.flush(0, epoch, target);
        w.complete(0, flush).result
    };
    operate(w, epoch, (1, gone, 0), Action::Put, &[1]);
    assert_eq!(flush(w, None), Ok(()));
    assert_eq!(detach(w, 1, gone), [1, 0, 0, 0]);
    operate(w, epoch, (1, gone, 0), Action::Put, &[2]);
    operate(w, epoch, (2, other, 0), Action::Put, &[3]);
    assert_eq!(flush(w, Some(2)), Ok(()));
    assert_eq!(flush(w, None), missed(1, gone));
    assert_eq!(flush(w, None), Ok(()));
    // The next flush reports the next write.
    operate(w, epoch, (1, gone, 1), Action::Put, &[2]);
    assert_eq!(flush(w, None), missed(1, gone));
    operate(w, epoch, (1, kept, 0), Action::Put, &[4]);
    assert_eq!(flush(w, Some(1)), Ok(()));
    assert_eq!(end(w, epoch), missed(1, gone));
    assert_eq!((detach(w, 1, kept)[0], detach(w, 2, other)[0]), (4, 3));
    // After a cancelled flush, the end of the epoch still reports the write.
    let epoch = w.lock(0, 1, LockKind::Shared);
    operate(w, epoch, (1, gone, 0), Action::Put, &[2]);
    let flush = w.flush(0, epoch, None);
    w.call(0, |windows, link| windows.cancel(link, flush));
    assert!(w.complete(0, flush).result.is_err());
    assert_eq!(end(w, epoch), missed(1, gone));
}

/// Accesses of one rank to several exposures of another one are apart.
#[test]
fn an_epoch_has_only_its_own_errors() {
    let hints = Hints { reorder: Reorder::all(), ..PLAIN };
    on_loopback(2, hints, |w| {
        w.window = w.create_dynamic(hints);
        let (kept, gone) = (attach(w, 1, vec![0; 4]), attach(w, 1, vec![0; 4]));
        detach(w, 1, gone);
        let mut closes = Vec::new();
        for value in 0..6 {
            let exposure = w.post(1, &[0]);
            closes.push((1, w.close(1, exposure), Ok(())));
            let epoch = w.start(0, &[1]);
            let (region, result) = if value % 3 == 1 { (gone, missed(1, gone)) } else { (kept, Ok(())) };
            operate(w, epoch, (1, region, 0), SUM, &[1]);
            closes.push((0, w.close(0, epoch), result));
        }
        for (at, close, expected) in closes {
            assert_eq!(w.complete(at, close).result, expected);
        }
        assert_eq!(detach(w, 1, kept)[0], 4);
    });
}

case!(memory_may_be_detached_while_operations_wait_for_a_lock, 3, while_waiting);
fn while_waiting<P: Port>(w: &mut World<P>) {
    let (kept, gone) = (attach(w, 1, vec![0; 4]), attach(w, 1, vec![0; 4]));
    let held = w.lock(2, 1, LockKind::Exclusive);
    let flush = w.flush(2, held, None);
    w.wait(2, flush);
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    operate(w, epoch, (1, kept, 0), Action::Put, &[1]);
    operate(w, epoch, (1, gone, 0), Action::Put, &[2]);
    let fetches = [kept, gone].map(|region| operate(w, epoch, (1, region, 1), ADD, &[3]).unwrap());
    let close = w.close(0, epoch);
    w.settle();
    assert!(w.is_pending(0, close));
    assert_eq!(detach(w, 1, gone), [0; 4]);
    let release = w.close(2, held);
    w.wait(2, release);
    assert_eq!(w.complete(0, close).result, missed(1, gone));
    assert_eq!(w.values(0, fetches[0]), [0]);
    assert_eq!(w.complete(0, fetches[1]).result, missed(1, gone));
    assert_eq!(detach(w, 1, kept), [1, 3, 0, 0]);
    // The lock is free.
    let again = w.lock(2, 1, LockKind::Exclusive);
    let close = w.close(2, again);
    w.wait(2, close);
}

case!(memory_may_be_detached_in_the_midst_of_an_operation, 2, in_the_midst);
fn in_the_midst<P: Port>(w: &mut World<P>) {
    for steps in 0..12 {
        let region = attach(w, 1, vec![0; LONG]);
        let epoch = w.lock(0, 1, LockKind::Shared);
        operate(w, epoch, (1, region, 0), Action::Put, &[1; LONG]);
        let read = get(w, epoch, (1, region, 0), LONG);
        let close = w.close(0, epoch);
        for _ in 0..steps * steps {
            w.step();
        }
        let part = detach(w, 1, region);
        let result = w.complete(0, close).result;
        let read = w.complete(0, read);
        assert!(part.iter().all(|word| *word <= 1));
        match result {
            Ok(()) => assert_eq!(part, [1; LONG]),
            Err(_) => assert_eq!(result, missed(1, region)),
        }
        match read.result {
            Ok(()) => assert_eq!(read.memory.unwrap().into_vec::<u64>().unwrap().len(), LONG),
            Err(_) => assert_eq!(read.result, missed(1, region)),
        }
        assert_eq!(w.engines[0].stack().pending(), 0);
    }
}

case!(random_accesses_find_the_memory_that_is_attached, 3, random);
/// Accesses random regions, some of which were detached, and compares with a model.
fn random<P: Port>(w: &mut World<P>) {
    // The time depends on the network.
    let epoch = w.lock(0, 1, LockKind::Shared);
    let flush = w.flush(0, epoch, None);
    w.wait(0, flush);
    assert_eq!(end(w, epoch), Ok(()));
    let mut rng = SplitMix64::new(w.now.as_nanos());
    let mut model: [BTreeMap<u64, Vec<u64>>; 3] = Default::default();
    let mut known: Vec<(usize, Attached)> = Vec::new();
    for round in 0..60 {
        let target = 1 + rng.below(2) as usize;
        if known.is_empty() || rng.below(4) == 0 {
            let most = if rng.below(4) == 0 { LONG as u64 } else { 9 };
            let words = vec![round; 1 + rng.below(most) as usize];
            let region = attach(w, target, words.clone());
            assert!(model[target].insert(region.place, words).is_none());
            known.push((target, region));
            continue;
        }
        let (target, region) = known[rng.below(known.len() as u64) as usize];
        if rng.below(4) == 0 {
            match model[target].remove(&region.place) {
                Some(words) => assert_eq!(detach(w, target, region), words),
                None => {
                    let window = w.window;
                    let gone = w.call(target, |windows, link| windows.detach_memory(link, window, region));
                    assert_eq!(gone.map(|_| ()), missed(target, region));
                }
            }
            continue;
        }
        let first = rng.below(region.len / 8);
        let count = 1 + rng.below(region.len / 8 - first);
        let range = first as usize..(first + count) as usize;
        let words = model[target].get_mut(&region.place);
        let expected = if words.is_some() { Ok(()) } else { missed(target, region) };
        let epoch = w.lock(0, target, LockKind::Exclusive);
        let place = (target, region, first);
        match rng.below(3) {
            0 => {
                operate(w, epoch, place, Action::Put, &vec![round + 100; range.len()]);
                assert_eq!(end(w, epoch), expected);
                words.into_iter().for_each(|words| words[range.clone()].fill(round + 100));
            }
            1 => {
                operate(w, epoch, place, SUM, &vec![round; range.len()]);
                assert_eq!(end(w, epoch), expected);
                words.into_iter().for_each(|words| words[range.clone()].iter_mut().for_each(|a| *a += round));
            }
            _ => {
                let read = get(w, epoch, place, range.len());
                assert_eq!(end(w, epoch), Ok(()));
                match words {
                    Some(words) => assert_eq!(w.values(0, read), words[range]),
                    None => assert_eq!(w.complete(0, read).result, expected),
                }
            }
        }
    }
    for (target, region) in known {
        if let Some(words) = model[target].remove(&region.place) {
            assert_eq!(detach(w, target, region), words);
        }
    }
}

case!(the_bounds_of_a_region_are_checked_at_both_sides, 2, bounds);
fn bounds<P: Port>(w: &mut World<P>) {
    let region = attach(w, 1, vec![0; 5]);
    let behind = attach(w, 1, vec![0; 5]);
    let epoch = w.lock(0, 1, LockKind::Shared);
    let size = 40;
    let mut refused = |places: Places<'_>, action, words: usize| {
        w.operate_at(0, epoch, places, action, Memory::new(vec![1_u64; words]), None).unwrap_err()
    };
    let outside = |at, len| Error::OutOfBounds { rank: rank(1), at, len, size };
    assert_eq!(refused(within((1, region, 4)), Action::Put, 2), outside(32, 16));
    assert_eq!(refused(within((1, region, u64::MAX / 8)), Action::Put, 1), outside(u64::MAX - 7, 8));
    let form = Form::block(8).unwrap().strided(3, -16).unwrap();
    let backwards = place((1, 24)).with_form(&form).within(region);
    assert!(matches!(refused(backwards, Action::Get, 3), Error::OutOfBounds { size: 40, .. }));
    let odd = Places::from(place((1, 12))).within(region);
    let element = ElementType::U64;
    assert_eq!(refused(odd, SUM, 1), Error::Misaligned { rank: rank(1), at: 12, element });
    // Names that no rank has given out.
    let forged = Attached { len: 1 << 20, ..region };
    assert_eq!(Err(refused(within((1, forged, 0)), Action::Put, 1)), missed(1, forged));
    assert_eq!(
        Err(refused(within((1, Attached::default(), 0)), Action::Put, 1)),
        missed(1, Attached::default())
    );
    // A name with the room of its class: the target refuses the bytes behind its memory.
    let wide = Attached { len: 64, ..region };
    operate(w, epoch, (1, wide, 5), Action::Put, &[9]);
    let read = get(w, epoch, (1, wide, 4), 2);
    assert_eq!(end(w, epoch), missed(1, region));
    assert_eq!(w.complete(0, read).result, missed(1, region));
    assert_eq!((detach(w, 1, region), detach(w, 1, behind)), (vec![0; 5], vec![0; 5]));
}

#[test]
fn dynamic_and_other_windows_are_told_apart() {
    on_loopback(2, PLAIN, |w| {
        let fixed = w.window;
        let region = Region::new(Memory::new(vec![0_u64; 1]));
        let refused = w.call(0, |windows, _| windows.attach_memory(fixed, region.clone()));
        assert_eq!(refused, Err(Error::NotDynamic));
        let epoch = w.lock(0, 1, LockKind::Shared);
        let name = Attached { place: 8, len: 8 };
        let one = || Memory::new(vec![1_u64]);
        let refused = w.operate_at(0, epoch, within((1, name, 0)), Action::Put, one(), None);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(end(w, epoch), Ok(()));
        w.window = w.create_dynamic(PLAIN);
        let name = attach(w, 1, vec![0; 1]);
        let epoch = w.lock(0, 1, LockKind::Shared);
        let refused = w.operate(0, epoch, (1, 0), Action::Put, one(), None);
        assert_eq!(refused, Err(Error::NoRegion));
        operate(w, epoch, (1, name, 0), Action::Put, &[8]);
        assert_eq!(end(w, epoch), Ok(()));
        let window = w.window;
        let mut bytes = [0; 8];
        let own = w.call(1, |windows, link| {
            windows.attached(link, window, name).map(|region| region.copy_out(0, &mut bytes))
        });
        assert_eq!((own, u64::from_ne_bytes(bytes)), (Ok(Ok(())), 8));
        w.window = fixed;
        let epoch = w.lock(0, 1, LockKind::Shared);
        let refused = w.operate_at(0, epoch, within((1, name, 0)), Action::Put, one(), None);
        assert_eq!(refused, Err(Error::NotDynamic));
        assert_eq!(end(w, epoch), Ok(()));
    });
}

#[test]
fn the_number_of_regions_is_limited_and_freeing_drops_them() {
    on_loopback(2, PLAIN, |w| {
        restart(w, Config { regions_max: 2, ..Config::default() });
        let first = attach(w, 0, vec![1]);
        attach(w, 0, vec![2]);
        let window = w.window;
        let region = Region::new(Memory::new(vec![0_u64; 1]));
        let third = w.call(0, |windows, _| windows.attach_memory(window, region.clone()));
        assert!(matches!(third, Err(Error::Link(LinkError::Exhausted { .. }))), "{third:?}");
        assert_eq!(detach(w, 0, first), [1]);
        attach(w, 0, vec![3]);
        let freed =
            [0, 1].map(|at| (at, w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap()));
        for (at, request) in freed {
            w.wait(at, request);
        }
        assert_eq!(w.engines[0].stack().attached_count(), 0);
    });
}

case!(a_dead_origin_leaves_no_refusals, 3, dead_origin);
fn dead_origin<P: Port>(w: &mut World<P>) {
    let (kept, gone) = (attach(w, 1, vec![0; 1]), attach(w, 1, vec![0; 1]));
    detach(w, 1, gone);
    let lost = w.lock_all(2);
    let memory = Memory::new(vec![1_u64]);
    w.operate_at(2, lost, within((1, gone, 0)), Action::Put, memory, None).unwrap();
    w.settle();
    kill(w, 2);
    let epoch = w.lock(0, 1, LockKind::Exclusive);
    operate(w, epoch, (1, kept, 0), Action::Put, &[1]);
    assert_eq!(end(w, epoch), Ok(()));
    assert_eq!(detach(w, 1, kept), [1]);
}

const PUT: u8 = 2;
const CLOSED: u8 = 14;

/// Rank 1 writes to memory that is not attached, in more epochs than a rank has.
#[test]
fn the_number_of_refused_writes_is_limited() {
    on_loopback(3, PLAIN, |w| {
        restart(w, Config::default());
        let kept = attach(w, 0, vec![0; 1]);
        let epoch = w.lock(1, 0, LockKind::Shared);
        let flush = w.flush(1, epoch, None);
        w.wait(1, flush);
        w.settle();
        for epoch in 0..=4096_u32 {
            assert_eq!(w.engines[0].failure(rank(1)), None, "{epoch}");
            arrive(w, &[(PUT, &[1, epoch << 16, 8, 0, 7, 7])]);
        }
        assert!(violation(w).contains("refused writes"));
        kill(w, 1);
        let epoch = w.lock(2, 0, LockKind::Exclusive);
        let memory = Memory::new(vec![5_u64]);
        w.operate_at(2, epoch, within((0, kept, 0)), Action::Put, memory, None).unwrap();
        let close = w.close(2, epoch);
        w.wait(2, close);
        assert_eq!(detach(w, 0, kept), [5]);
    });
}

/// Any packets of a member of a dynamic window, in any order, end that member or are ignored.
#[test]
fn forged_packets_disturb_nobody_else() {
    let mut failed = 0;
    for seed in 0..1000 {
        on_loopback(3, PLAIN, |w| {
            restart(w, Config::default());
            let mut rng = SplitMix64::new(seed);
            let (kept, theirs) = (attach(w, 0, vec![0; 2]), attach(w, 1, vec![0; LONG]));
            let (own, epoch) = (w.lock(0, 1, LockKind::Shared), w.lock(1, 0, LockKind::Shared));
            let flushes = [(0, w.flush(0, own, None)), (1, w.flush(1, epoch, None))];
            flushes.into_iter().for_each(|(at, flush)| w.wait(at, flush));
            w.post(0, &[1, 2]);
            w.settle();
            let read = get(w, own, (1, theirs, 0), LONG);
            operate(w, own, (1, theirs, 0), Action::Put, &[1]);
            w.close(0, own);
            for _ in 0..1 + rng.below(12) {
                let ((sequence, number), kind) = (sender(w), rng.below(29) as u8);
                let mut packet = forged_of(&mut rng, kind, sequence, number, w);
                let at = Header::LEN;
                if kind == REFUSED && rng.below(2) == 0 && packet.len() >= at + 8 {
                    packet[at..at + 8].copy_from_slice(&read.to_wire().to_le_bytes());
                }
                w.engines[0].sink(&mut ()).packet(&packet);
                w.engines[0].drive(&mut ());
                w.engines[0].stack().check_invariants();
            }
            failed += u32::from(w.engines[0].failure(rank(1)).is_some());
            kill(w, 1);
            let lock = w.lock(2, 0, LockKind::Exclusive);
            let word = Memory::new(vec![12_u64]);
            w.operate_at(2, lock, within((0, kept, 1)), Action::Put, word, None).unwrap();
            let close = w.close(2, lock);
            w.wait(2, close);
            assert_eq!(detach(w, 0, kept)[1], 12);
        });
    }
    assert!((200..1000).contains(&failed), "{failed} runs had an invalid packet");
}

/// Only a rank with a dynamic window refuses writes.
#[test]
fn a_forged_refusal_ends_its_sender() {
    on_loopback(3, PLAIN, |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        w.put(0, epoch, (1, 0), &[1]);
        w.settle();
        w.stopped.insert(1);
        w.close(0, epoch);
        w.settle();
        arrive(w, &[(CLOSED, &[1, 0, 5, 0, 0, 0])]);
        assert!(violation(w).contains("refused write"));
    });
}
