//! Memory of a part that the program takes out of its window for a while.

use samite_fabric::{Memory, Port, Region};
use samite_rma::{Action, Assertions, EpochId, Error, Hints, LockKind};

use crate::world::{World, on_loopback, on_puts, on_sim};

const SLICES: Hints = Hints { takes_part: true, aggregate: false, ..plain() };

const fn plain() -> Hints {
    Hints {
        reorder: samite_rma::Reorder::empty(),
        overtake: false,
        aggregate: false,
        takes_part: false,
        unshared_accumulates: false,
    }
}

/// Locks the part of rank 0 for itself, and waits for the lock.
fn hold<P: Port>(w: &mut World<P>) -> EpochId {
    let epoch = w.lock(0, 0, LockKind::Exclusive);
    let flush = w.flush(0, epoch, None);
    w.wait(0, flush);
    epoch
}

fn take<P: Port>(w: &mut World<P>, epoch: EpochId) -> Result<Region, Error> {
    w.call(0, |windows, link| windows.take_part(link, epoch))
}

fn put<P: Port>(w: &mut World<P>, region: Region) {
    let window = w.window;
    w.call(0, |windows, link| windows.put_part(link, window, region)).unwrap();
}

/// Two ranks ask for the lock, one of them with its operations, and an exposure begins, while the memory is taken.
fn deferred<P: Port>(w: &mut World<P>) {
    // The part was accessed before, also between fences.
    let epochs = w.fence_all(Assertions::NO_PRECEDE);
    w.put(1, epochs[1].unwrap(), (0, 0), &[1]);
    w.fence_all(Assertions::NO_SUCCEED);
    for round in 0..3 {
        let epoch = hold(w);
        w.put(0, epoch, (0, 1), &[10 + round]);
        let flush = w.flush(0, epoch, None);
        w.wait(0, flush);
        let region = take(w, epoch).unwrap();
        let mut word = [0; 8];
        region.copy_out(8, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 10 + round);
        let closes = [1, 2].map(|at| {
            let epoch = w.lock(at, 0, LockKind::Exclusive);
            w.put(at, epoch, (0, 1 + at as u64), &[20 + round]);
            (at, w.close(at, epoch))
        });
        let (exposure, access) = (w.post(0, &[1]), w.start(1, &[0]));
        w.put(1, access, (0, 4), &[30 + round]);
        let ends = [(0, w.close(0, exposure)), (1, w.close(1, access))];
        w.settle();
        assert!(closes.iter().chain(&ends).all(|(at, request)| w.is_pending(*at, *request)));
        region.copy_in(40, &[7; 8]).unwrap();
        put(w, region);
        let close = w.close(0, epoch);
        w.wait(0, close);
        closes.into_iter().chain(ends).for_each(|(at, request)| w.wait(at, request));
        let words = [0, 1, 2, 3, 4].map(|word| w.word(0, word));
        assert_eq!(words, [1, 10 + round, 20 + round, 20 + round, 30 + round]);
        assert_eq!(w.word(0, 5), 0x0707_0707_0707_0707);
    }
}

#[test]
fn no_other_rank_has_access_while_the_memory_is_taken() {
    for hints in [SLICES, Hints { aggregate: true, ..SLICES }] {
        on_loopback(3, hints, deferred);
        on_sim(200, 3, hints, deferred);
    }
}

#[test]
fn taken_memory_has_no_other_holder() {
    let taken = |w: &mut World<_>| {
        w.window = w.create(SLICES);
        // An operation that would be put, if the port had the memory.
        let words = vec![3; crate::world::PART / 8];
        for at in [1, 0] {
            let epoch = w.lock(at, 1 - at, LockKind::Exclusive);
            w.put(at, epoch, (1 - at, 0), &words);
            let close = w.close(at, epoch);
            w.wait(at, close);
        }
        let epoch = hold(w);
        let memory = take(w, epoch).unwrap().reclaim().expect("no port has the memory");
        assert_eq!(memory.into_vec::<u64>().unwrap(), words);
        put(w, Region::new(Memory::new(vec![4_u64; crate::world::PART / 8])));
        let close = w.close(0, epoch);
        w.wait(0, close);
        assert_eq!(w.word(0, 1), 4);
    };
    on_puts(50, 2, taken);
}

#[test]
fn only_the_holder_of_the_exclusive_lock_takes_memory() {
    on_loopback(2, SLICES, |w| {
        let refused = |w: &mut World<_>, epoch| matches!(take(w, epoch), Err(Error::WrongState { .. }));
        for (target, kind) in [(0, LockKind::Shared), (1, LockKind::Exclusive)] {
            let epoch = w.lock(0, target, kind);
            let flush = w.flush(0, epoch, None);
            w.wait(0, flush);
            assert!(refused(w, epoch));
            let close = w.close(0, epoch);
            w.wait(0, close);
        }
        let other = w.lock(1, 0, LockKind::Exclusive);
        let flush = w.flush(1, other, None);
        w.wait(1, flush);
        let waiting = w.lock(0, 0, LockKind::Exclusive);
        w.settle();
        assert!(refused(w, waiting), "another rank has the lock");
        let close = w.close(1, other);
        w.wait(1, close);
        let exposure = w.post(0, &[1]);
        w.settle();
        let access = w.start(1, &[0]);
        w.put(1, access, (0, 0), &[5]);
        assert!(refused(w, waiting), "the part is exposed");
        let ends = [(1, w.close(1, access)), (0, w.close(0, exposure))];
        ends.into_iter().for_each(|(at, request)| w.wait(at, request));
        let region = take(w, waiting).unwrap();
        assert!(refused(w, waiting), "it is taken");
        let window = w.window;
        assert!(w.engines[0].stack().part(window).is_err());
        put(w, region);
        let close = w.close(0, waiting);
        w.wait(0, close);
        assert_eq!(take(w, waiting).map(drop), Err(Error::NoSuchEpoch));
        w.window = w.create(plain());
        let epoch = hold(w);
        assert_eq!(take(w, epoch).map(drop), Err(Error::NotTakeable));
        w.operate(0, epoch, (0, 0), Action::Put, Memory::new(vec![1_u64]), None).unwrap();
        let close = w.close(0, epoch);
        w.wait(0, close);
    });
}
