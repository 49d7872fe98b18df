//! Objects that outlive their `World`: every call ends with an error at once, and so do calls that wait when it is
//! dropped.

use std::thread;
use std::time::Duration;

use calls::refusals;
use samite::{Cancel, Comm, Error, Fate, Message, Pending, Request, Source};

mod calls;

fn is_closed<T>(result: Result<T, impl Into<Error>>, fate: Fate) -> bool {
    matches!(result.map_err(Into::into), Err(Error::Closed { fate: told }) if told == fate)
}

/// Tries every call on a communicator of rank 0 of two whose world was dropped.
fn refuses_all(comm: &Comm) {
    for (call, error) in refusals(comm) {
        assert_eq!(error, Error::Closed { fate: Fate::NotDelivered }, "{call}");
    }
}

#[test]
fn every_call_on_what_outlives_its_world_ends_at_once() {
    samite::local(2, |world| {
        if world.rank() == 1 {
            world.send(&[1_u8], 0, 1).unwrap();
            world.send(&[2_u8], 0, 2).unwrap();
            let (data, _) = world.recv_vec::<u8>(0, 3).unwrap();
            assert_eq!(data, vec![3; 1 << 10], "a short message is on its way");
            let mut never = [0_u8];
            assert!(matches!(world.recv(&mut never, 0, 4), Err(Error::PeerFailed { .. })));
            return;
        }
        let (comm, cancel) = (Comm::clone(&world), Cancel::new());
        let bounded = world.until(&cancel).within(Duration::from_secs(600));
        let (message, dropped): (Message, Message) = (world.claim(1, 1).unwrap(), world.claim(1, 2).unwrap());
        let mut receive: Request<u8> = world.irecv(vec![0], 1, 9).unwrap();
        let unused = world.irecv(vec![0_u8], 1, 9).unwrap();
        let send = world.isend(vec![3_u8; 1 << 10], 1, 3).unwrap();
        let before = world.stats();
        let mut kept = Some(world);
        let (mut first, mut second) = ([0_u8], [0_u8]);
        let of_scope = comm.scope(|scope| {
            let (mut first, second): (Pending<'_>, Pending<'_>) =
                (scope.irecv(&mut first, 1, 9)?, scope.irecv(&mut second, 1, 9)?);
            drop(kept.take());
            assert!(is_closed(scope.test(&mut first), Fate::Unknown));
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
        assert!(is_closed(receive.is_done(), Fate::Unknown));
        receive.cancel();
        assert!(is_closed(receive.wait(), Fate::Unknown));
        drop(unused);
        assert!(is_closed(send.wait(), Fate::Unknown));
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
            if world.rank() == 1 {
                // A message whose bytes it did not get ends with an error too.
                assert!(world.recv_vec::<u8>(0, 5).is_err());
                return;
            }
            let long = vec![1_u8; 4 << 20];
            let comm = Comm::clone(&world);
            let calls: [&(dyn Fn() -> Result<(), Error> + Sync); 7] = [
                &|| comm.send(&long, 1, 4),
                &|| comm.recv(&mut [0_u8], 1, 9).map(drop),
                &|| comm.recv(&mut [0_u8], Source::ANY, 9).map(drop),
                &|| comm.within(Duration::from_secs(600)).recv(&mut [0_u8], 1, 9).map(drop),
                &|| comm.until(&Cancel::new()).recv(&mut [0_u8], 1, 9).map(drop),
                &|| Ok(comm.irecv(vec![0_u8], 1, 9)?.wait().map(drop)?),
                &|| comm.sendrecv(&long, 1, 4, &mut [0_u8], 1, 9).map(drop),
            ];
            let probes: [&(dyn Fn() -> Result<(), Error> + Sync); 2] =
                [&|| comm.probe(1, 9).map(drop), &|| comm.claim(Source::ANY, 9).map(drop)];
            thread::scope(|scope| {
                let calls = calls.map(|call| scope.spawn(call));
                let probes =
                    if others_come { probes.map(|call| scope.spawn(call)).into() } else { Vec::new() };
                // A sendrecv has two requests.
                while world.stats().requests < calls.len() + 1 {
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
        if world.rank() == 1 {
            return world.recv(&mut [0_u8], 0, 9).map(drop);
        }
        let comm = Comm::clone(&world);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| comm.recv(&mut [0_u8], 1, 9).map(drop));
            while world.stats().requests == 0 {
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
    assert!(matches!(ended[1], Err(Error::PeerFailed { rank: 0, .. })), "{ended:?}");
}
