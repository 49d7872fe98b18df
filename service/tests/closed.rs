//! Objects that outlive their `World`: every call ends with an error at once, and so do calls that wait when the
//! `World` is dropped.

use std::thread;
use std::time::Duration;

use calls::refusals;
use samite::{CancelToken, Comm, Error, Fate, Message, Pending, PendingSet, Rank, Request, Source};

mod calls;

fn is_closed<T>(result: Result<T, impl Into<Error>>, fate: Fate) -> bool {
    matches!(result.map_err(Into::into), Err(Error::Closed { fate: told }) if told == fate)
}

/// Tries every call on a communicator of two ranks, at rank 0, which has dropped its `World`.
fn refuses_all(comm: &Comm) {
    for (call, error) in refusals(comm) {
        assert_eq!(error, Error::Closed { fate: Fate::NotDelivered }, "{call}");
    }
}

#[test]
fn every_call_on_what_outlives_its_world_ends_at_once() {
    samite::local(2, |world| {
        if world.comm().rank() == 1 {
            world.comm().send(&[1_u8], Rank(0), 1).unwrap();
            world.comm().send(&[2_u8], Rank(0), 2).unwrap();
            let data = world.comm().recv_vec::<u8>(Rank(0), 3).unwrap().buffer;
            assert_eq!(data, vec![3; 1 << 10], "a short message is on its way");
            let mut never = [0_u8];
            assert!(matches!(world.comm().recv(&mut never, Rank(0), 4), Err(Error::PeerFailed { .. })));
            return;
        }
        let (comm, cancel) = (Comm::clone(world.comm()), CancelToken::new());
        let bounded = world.comm().with_cancel(&cancel).with_timeout(Duration::from_secs(600));
        let (message, dropped): (Message, Message) =
            (world.comm().claim(Rank(1), 1).unwrap(), world.comm().claim(Rank(1), 2).unwrap());
        let mut receive: Request<Vec<u8>> = world.comm().irecv(vec![0], Rank(1), 9).unwrap();
        let unused = world.comm().irecv(vec![0_u8], Rank(1), 9).unwrap();
        let send = world.comm().isend(vec![3_u8; 1 << 10], Rank(1), 3).unwrap();
        let mut set = world.comm().request_set();
        for _ in 0..2 {
            set.insert(world.comm().irecv(vec![0_u8], Rank(1), 9).unwrap()).unwrap();
        }
        let before = world.comm().stats();
        let mut kept = Some(world);
        let (mut first, mut second, mut third) = ([0_u8], [0_u8], [0_u8]);
        let of_scope = comm.scope(|scope| {
            let (mut first, second): (Pending<'_>, Pending<'_>) =
                (scope.irecv(&mut first, Rank(1), 9)?, scope.irecv(&mut second, Rank(1), 9)?);
            let third = scope.irecv(&mut third, Rank(1), 9)?;
            drop(kept.take());
            assert!(is_closed(scope.test(&mut first).unwrap(), Fate::Unknown));
            let mut set = PendingSet::default();
            set.insert(third);
            assert!(is_closed(scope.test_any(&mut set).unwrap().1, Fate::Unknown));
            assert!(set.is_empty());
            scope.cancel(&first);
            assert!(is_closed(scope.wait(first), Fate::Unknown));
            scope.wait(second)
        });
        assert!(is_closed(of_scope, Fate::Unknown));
        for comm in [&comm, &bounded] {
            refuses_all(comm);
        }
        assert!(is_closed(message.recv::<u8>(), Fate::NotDelivered));
        drop(dropped);
        assert!(is_closed(receive.test().unwrap(), Fate::Unknown));
        receive.cancel();
        assert!(is_closed(receive.wait(), Fate::Unknown));
        drop(unused);
        assert!(is_closed(send.wait(), Fate::Unknown));
        assert!(is_closed(set.test_any().unwrap().1, Fate::Unknown));
        assert!(is_closed(set.test_some().pop().unwrap().1, Fate::Unknown));
        assert!(set.is_empty() && set.test_any().is_none());
        cancel.cancel();
        refuses_all(&bounded);
        assert_eq!(comm.stats().peers[0].eager_received, before.peers[0].eager_received);
        let again = comm.clone();
        drop((comm, bounded));
        refuses_all(&again);
    });
}

#[test]
fn threads_that_wait_hear_of_the_end() {
    for others_come in [false, true] {
        samite::local(2, |world| {
            if world.comm().rank() == 1 {
                // Rank 0 sends no message with this tag. The receive keeps this rank polling until rank 0 has left, and
                // then fails.
                assert!(world.comm().recv_vec::<u8>(Rank(0), 5).is_err());
                return;
            }
            let long = vec![1_u8; 4 << 20];
            let comm = Comm::clone(world.comm());
            let calls: [&(dyn Fn() -> Result<(), Error> + Sync); 7] = [
                &|| comm.send(&long, Rank(1), 4),
                &|| comm.recv(&mut [0_u8], Rank(1), 9).map(drop),
                &|| comm.recv(&mut [0_u8], Source::ANY, 9).map(drop),
                &|| comm.with_timeout(Duration::from_secs(600)).recv(&mut [0_u8], Rank(1), 9).map(drop),
                &|| comm.with_cancel(&CancelToken::new()).recv(&mut [0_u8], Rank(1), 9).map(drop),
                &|| Ok(comm.irecv(vec![0_u8], Rank(1), 9)?.wait().map(drop)?),
                &|| comm.sendrecv(&long, Rank(1), 4, &mut [0_u8], Rank(1), 9).map(drop),
            ];
            let probes: [&(dyn Fn() -> Result<(), Error> + Sync); 2] =
                [&|| comm.probe(Rank(1), 9).map(drop), &|| comm.claim(Source::ANY, 9).map(drop)];
            thread::scope(|scope| {
                let calls = calls.map(|call| scope.spawn(call));
                let probes =
                    if others_come { probes.map(|call| scope.spawn(call)).into() } else { Vec::new() };
                // A sendrecv has two requests.
                while world.comm().stats().requests < calls.len() + 1 {
                    thread::yield_now();
                }
                drop(world);
                for call in calls {
                    let ended = call.join().unwrap();
                    assert!(is_closed(ended.clone(), Fate::Unknown), "{ended:?}");
                }
                for call in probes {
                    assert!(is_closed(call.join().unwrap(), Fate::NotDelivered));
                }
            });
            refuses_all(&comm);
        });
    }
}

#[test]
fn a_rank_that_panics_leaves_no_thread_waiting() {
    let ended = samite::local(2, |world| {
        if world.comm().rank() == 1 {
            return world.comm().recv(&mut [0_u8], Rank(0), 9).map(drop);
        }
        let comm = Comm::clone(world.comm());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| comm.recv(&mut [0_u8], Rank(1), 9).map(drop));
            while world.comm().stats().requests == 0 {
                thread::yield_now();
            }
            let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _world = world;
                std::panic::resume_unwind(Box::new("unwinds without a message"));
            }));
            assert!(panics.is_err());
            waiting.join().unwrap()
        })
    });
    assert!(is_closed(ended[0].clone(), Fate::Unknown), "{ended:?}");
    assert!(matches!(ended[1], Err(Error::PeerFailed { rank: Rank(0), .. })), "{ended:?}");
}
