//! Ranks that fork: a child is not a rank, and nothing that it does affects the parent.
//!
//! Each test runs a job of its own binary: as a rank of that job, the same test function plays the rank's part.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use samite::{CancelToken, Comm, Error, Message, Rank, Request, World};
use samite_os::fork::in_a_child;

use crate::calls::refusals;
use crate::ranks::{PATIENCE, TRANSPORTS, is_rank, job_of_test, output_of};

/// The objects that a rank holds when it forks.
struct Belongings {
    world: RefCell<Option<World>>,
    comm: Comm,
    receive: RefCell<Option<Request<Vec<u8>>>>,
    dropped: RefCell<Option<Request<Vec<u8>>>>,
    message: RefCell<Option<Message>>,
    claimed: RefCell<Option<Message>>,
    cancel: CancelToken,
}

/// Tries in the child every call that could affect the rank. Returns true if all are refused.
fn misuse(of: &Belongings) -> bool {
    let bounded = of.comm.with_cancel(&of.cancel).with_timeout(PATIENCE);
    for comm in [&of.comm, &bounded] {
        for (call, error) in refusals(comm) {
            assert_eq!(error, Error::Forked, "{call}");
        }
    }
    let mut receive = of.receive.take().unwrap();
    receive.cancel();
    assert_eq!(receive.test().unwrap().unwrap_err().error, Error::Forked);
    assert_eq!(receive.wait().unwrap_err().error, Error::Forked);
    assert_eq!(of.message.take().unwrap().recv::<u8>().unwrap_err(), Error::Forked);
    of.cancel.cancel();
    drop(of.dropped.take());
    drop(of.claimed.take());
    drop(of.world.take());
    assert!(refusals(&of.comm).iter().all(|(_, error)| *error == Error::Forked));
    true
}

const TO_CHILD: u64 = 1;
const NEVER: u64 = 2;
const NUMBERS: u64 = 3;
const THREADS: u64 = 100;

/// Exchanges each of the `numbers` with the other rank, which sends the same numbers in the same order.
fn count(comm: &Comm, tag: u64, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut from = [u64::MAX];
        comm.sendrecv(&[number], Rank(comm.rank().0 ^ 1), tag, &mut from, Rank(comm.rank().0 ^ 1), tag)
            .unwrap();
        assert_eq!(from, [number], "in order and unaltered");
    }
}

/// Rank 0 forks children while `threads` other threads exchange messages with rank 1.
fn forks(threads: u64) {
    let world = samite::init().unwrap();
    let comm = world.comm().with_timeout(PATIENCE);
    let peer = Rank(comm.rank().0 ^ 1);
    count(&comm, NUMBERS, 0..10);
    comm.send(&[1_u8], peer, TO_CHILD).unwrap();
    comm.send(&[2_u8], peer, TO_CHILD).unwrap();
    let cancel = CancelToken::new();
    let belongings = Belongings {
        message: RefCell::new(Some(comm.claim(peer, TO_CHILD).unwrap())),
        claimed: RefCell::new(Some(comm.claim(peer, TO_CHILD).unwrap())),
        receive: RefCell::new(Some(comm.irecv(vec![0], peer, NEVER).unwrap())),
        dropped: RefCell::new(Some(comm.irecv(vec![0], peer, NEVER).unwrap())),
        comm: comm.clone(),
        cancel: cancel.clone(),
        world: RefCell::new(Some(world)),
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (comm, is_over) = (&comm, &is_over);
            scope.spawn(move || {
                let mut begun = 0;
                // Rank 0 announces before each exchange whether it takes place, so both ranks end after the same
                // exchange.
                loop {
                    let goes_on = u64::from(!is_over.load(Ordering::Relaxed));
                    let mut told = [goes_on];
                    match comm.rank() {
                        Rank(0) => comm.send(&told, Rank(1), THREADS + thread).unwrap(),
                        _ => drop(comm.recv(&mut told, Rank(0), THREADS + thread).unwrap()),
                    }
                    if told == [0] {
                        break;
                    }
                    count(comm, THREADS + thread, begun..begun + 10);
                    begun += 10;
                }
            });
        }
        if comm.rank() == 0 {
            let forks = if threads == 0 { 2 } else { 20 };
            let mut refused = Vec::new();
            for fork in 0..forks {
                count(&comm.with_cancel(&cancel), NUMBERS, 10 + 20 * fork..20 + 20 * fork);
                refused.push(in_a_child(|| misuse(&belongings)).unwrap());
                // Exit handlers of libraries in the child must not affect the parent.
                refused.push(in_a_child(|| std::process::exit(i32::from(!misuse(&belongings)))).unwrap());
                count(&comm.with_cancel(&cancel), NUMBERS, 20 + 20 * fork..30 + 20 * fork);
            }
            is_over.store(true, Ordering::Relaxed);
            comm.send(&[10 + 20 * forks], Rank(1), NUMBERS + 1).unwrap();
            assert!(refused.into_iter().all(|refused| refused));
        } else {
            let forks = if threads == 0 { 2 } else { 20 };
            count(&comm, NUMBERS, 10..10 + 20 * forks);
            let mut all = [0];
            comm.recv(&mut all, Rank(0), NUMBERS + 1).unwrap();
            assert_eq!(all, [10 + 20 * forks]);
        }
    });
    // The objects that the rank held when it forked are unchanged.
    for number in [1, 2] {
        let message = [&belongings.message, &belongings.claimed][number - 1].take().unwrap();
        assert_eq!(message.recv::<u8>().unwrap().buffer, [number as u8]);
    }
    comm.send(&[9_u8], peer, NEVER).unwrap();
    let done = belongings.receive.take().unwrap().wait().unwrap();
    assert_eq!(done.buffer, [9]);
    drop(belongings);
}

#[test]
fn a_child_of_a_rank_changes_nothing_of_it() {
    if is_rank() {
        return forks(0);
    }
    for transport in TRANSPORTS {
        let arguments = format!("-n 2 --timeout 100 {transport}");
        output_of(job_of_test("forked::a_child_of_a_rank_changes_nothing_of_it", &arguments));
    }
}

#[test]
fn a_child_of_a_rank_of_several_threads_changes_nothing_of_it() {
    if is_rank() {
        return forks(3);
    }
    for transport in TRANSPORTS {
        let arguments = format!("-n 2 --timeout 100 {transport}");
        let test = "forked::a_child_of_a_rank_of_several_threads_changes_nothing_of_it";
        output_of(job_of_test(test, &arguments));
    }
}
