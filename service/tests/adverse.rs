//! Programs that use the library in odd ways: none of them may hang, abort, or get a wrong result.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use samite::{Awaited, CancelToken, Comm, Error, Group, Operation, PendingSet, Rank, Source};

/// Longer than any test lasts.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

/// Calls `test` until it returns a result, which must be [`Error::Cancelled`].
fn ends_by_cancel<T>(mut test: impl FnMut() -> Option<Result<T, Error>>) {
    loop {
        match test() {
            None => {}
            Some(Err(Error::Cancelled { .. })) => return,
            Some(Err(error)) => panic!("{error}"),
            Some(Ok(_)) => panic!("nothing was sent"),
        }
    }
}

/// A loop that ignored the cancel token would end by the time-out of the handle, with another error.
#[test]
fn a_cancel_ends_every_loop_that_tests() {
    samite::local(1, |world| {
        let comm = world.comm().with_timeout(LONG);
        let me = comm.rank();
        let long = || vec![1_u8; 1 << 20];
        for is_late in [false, true] {
            let cancel = CancelToken::new();
            let bounded = comm.with_cancel(&cancel);
            if !is_late {
                cancel.cancel();
            }
            let mut receive = bounded.irecv(vec![0_u8], me, 1).unwrap();
            let mut send = bounded.isend(long(), me, 2).unwrap();
            let mut exchange = bounded.isendrecv(long(), me, 3, vec![0_u8], me, 4).unwrap();
            let mut persistent = bounded.recv_init(vec![0_u8], me, 5).unwrap();
            persistent.start().unwrap();
            let mut psend = bounded.psend_init(vec![0_u8; 4], 2, me, 6).unwrap();
            psend.start().unwrap();
            let mut precv = bounded.precv_init(vec![0_u8; 4], 2, me, 7).unwrap();
            precv.start().unwrap();
            let looked_at = bounded.irecv(vec![0_u8], me, 8).unwrap();
            let mut set = bounded.request_set();
            for tag in [9, 10] {
                set.insert(bounded.irecv(vec![0_u8], me, tag).unwrap()).unwrap();
            }
            let mut buffers = [[0_u8]; 2];
            let [first, second] = &mut buffers;
            bounded
                .scope(|scope| {
                    let mut pending = scope.irecv(first, me, 11)?;
                    let mut pendings = PendingSet::default();
                    pendings.insert(scope.irecv(second, me, 12)?);
                    cancel.cancel();
                    ends_by_cancel(|| scope.test(&mut pending));
                    ends_by_cancel(|| scope.test_any(&mut pendings).map(|(_, end)| end));
                    Ok(())
                })
                .unwrap();
            ends_by_cancel(|| receive.test().map(|end| end.map_err(Error::from)));
            ends_by_cancel(|| send.test().map(|end| end.map_err(Error::from)));
            ends_by_cancel(|| exchange.test().map(|end| end.map_err(Error::from)));
            ends_by_cancel(|| persistent.test());
            ends_by_cancel(|| psend.test());
            ends_by_cancel(|| precv.arrived(0..1).map(|has_arrived| has_arrived.then_some(())).transpose());
            ends_by_cancel(|| precv.test());
            while !looked_at.is_finished() {}
            assert!(matches!(Error::from(looked_at.wait().unwrap_err()), Error::Cancelled { .. }));
            for _ in 0..2 {
                ends_by_cancel(|| set.test_any().map(|(_, end)| end.map_err(Error::from)));
            }
        }
    });
}

#[test]
fn a_request_in_a_set_keeps_its_own_cancel() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        let cancels = [CancelToken::new(), CancelToken::new()];
        let mut set = comm.request_set();
        let mut insert = |cancel: Option<&CancelToken>, tag| {
            let comm = cancel.map_or(comm.clone(), |cancel| comm.with_cancel(cancel));
            set.insert(comm.irecv(vec![0_u8], me, tag).unwrap()).unwrap()
        };
        let keys = [insert(Some(&cancels[0]), 1), insert(Some(&cancels[1]), 2), insert(None, 3)];
        let also_first = insert(Some(&cancels[0]), 4);
        let taken = insert(Some(&cancels[1]), 5);
        // A request that is taken out of the set keeps its cancel token too.
        let taken = set.remove(taken).unwrap();
        let is_cancelled = |end: Result<_, samite::Failed<Vec<u8>>>| {
            matches!(end.map_err(Error::from), Err(Error::Cancelled { .. }))
        };
        std::thread::scope(|threads| {
            threads.spawn(|| cancels[0].cancel());
            let mut ended = [set.wait_any().unwrap(), set.wait_any().unwrap()];
            ended.sort_unstable_by_key(|(key, _)| *key);
            let [(first, one), (second, two)] = ended;
            assert_eq!([first, second], [keys[0], also_first]);
            assert!(is_cancelled(one) && is_cancelled(two));
        });
        // A request that is started after its token was cancelled ends too.
        let late = set.insert(comm.with_cancel(&cancels[0]).irecv(vec![0_u8], me, 6).unwrap()).unwrap();
        let (key, end) = set.wait_any().unwrap();
        assert!(key == late && is_cancelled(end));
        assert!(set.test_any().is_none());
        cancels[1].cancel();
        let (key, end) = std::iter::from_fn(|| Some(set.test_any())).flatten().next().unwrap();
        assert!(key == keys[1] && is_cancelled(end) && is_cancelled(taken.wait()));
        comm.send(&[7_u8], me, 3).unwrap();
        assert_eq!(set.wait_any().unwrap().1.unwrap().buffer, [7]);
    });
}

/// Receives messages 0, 1, and so on, each in the callback of the receive before it.
fn receive_from(comm: Comm, number: u32, until: u32, over: Sender<u32>) {
    let next = comm.clone();
    comm.irecv(vec![0_u32], comm.rank(), 1).unwrap().on_end(move |end| {
        assert_eq!(end.unwrap().buffer, [number]);
        match number + 1 == until {
            true => over.send(number).unwrap(),
            false => receive_from(next, number + 1, until, over),
        }
    });
}

#[test]
fn a_chain_of_callbacks_needs_no_stack() {
    const LENGTH: u32 = 50_000;
    samite::local(1, |world| {
        let comm = world.comm();
        for number in 0..LENGTH {
            comm.send(&[number], comm.rank(), 1).unwrap();
        }
        let (sender, over) = channel();
        receive_from(comm.clone(), 0, LENGTH, sender);
        assert_eq!(over.recv(), Ok(LENGTH - 1));
    });
}

#[test]
fn a_callback_in_a_callback_runs_after_it_and_after_its_panic() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        let order = Arc::new(Mutex::new(Vec::new()));
        let ended = |tag| {
            comm.send(&[1_u8], me, tag).unwrap();
            let request = comm.irecv(vec![0_u8], me, tag).unwrap();
            assert!(request.is_finished());
            request
        };
        let (outer, inner, last) = (ended(1), ended(2), ended(3));
        let noted = Arc::clone(&order);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            outer.on_end(move |_| {
                let (of_inner, of_last) = (Arc::clone(&noted), Arc::clone(&noted));
                inner.on_end(move |_| {
                    of_inner.lock().unwrap().push("inner");
                    last.on_end(move |_| of_last.lock().unwrap().push("last"));
                });
                noted.lock().unwrap().push("outer");
                panic!("the callbacks after this one run all the same");
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(*order.lock().unwrap(), ["outer", "inner", "last"]);
    });
}

/// The payload of a panic; its drop panics too.
struct Explosive;

impl Drop for Explosive {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

#[test]
fn a_panic_that_panics_does_not_end_the_driver() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        let (sender, called) = channel();
        for tag in 0..4 {
            let sender = sender.clone();
            comm.irecv(vec![0_u8], me, tag).unwrap().on_end(move |_| {
                sender.send(tag).unwrap();
                if tag < 3 {
                    std::panic::panic_any(Explosive);
                }
            });
        }
        for tag in 0..4 {
            comm.send(&[1_u8], me, tag).unwrap();
            assert_eq!(called.recv_timeout(LONG), Ok(tag));
        }
    });
}

/// A waker that calls Samite when it is woken and when it is dropped.
struct Nosy {
    comm: Comm,
    calls: AtomicUsize,
}

impl Nosy {
    fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // The driver may wake it after the future has ended, and so after the world has.
        let probed = self.comm.try_probe(self.comm.rank(), 99);
        assert!(matches!(probed, Ok(None) | Err(Error::Closed { .. })), "{probed:?}");
        drop(self.comm.irecv(vec![0_u8], self.comm.rank(), 98));
    }
}

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        self.call();
    }
}

#[test]
fn wakers_may_call_the_library() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        let nosy = Arc::new(Nosy { comm: comm.clone(), calls: AtomicUsize::new(0) });
        let mut receive = comm.irecv(vec![0_u8], me, 1).unwrap().into_future();
        let mut claim = comm.claim_async(me, 2);
        for _ in 0..2 {
            // Each poll has a waker that nothing else holds.
            let nosy = Arc::new(Nosy { comm: comm.clone(), calls: AtomicUsize::new(0) });
            let waker = Waker::from(nosy);
            let context = &mut Context::from_waker(&waker);
            assert!(Pin::new(&mut receive).poll(context).is_pending());
            assert!(Pin::new(&mut claim).poll(context).is_pending());
        }
        let waker = Waker::from(Arc::clone(&nosy));
        let context = &mut Context::from_waker(&waker);
        assert!(Pin::new(&mut receive).poll(context).is_pending());
        assert!(Pin::new(&mut claim).poll(context).is_pending());
        comm.send(&[1_u8], me, 1).unwrap();
        comm.send(&[1_u8], me, 2).unwrap();
        let received = loop {
            if let Poll::Ready(end) = Pin::new(&mut receive).poll(context) {
                break end;
            }
        };
        assert_eq!(received.unwrap().buffer, [1]);
        let claimed = loop {
            if let Poll::Ready(end) = Pin::new(&mut claim).poll(context) {
                break end;
            }
        };
        claimed.unwrap().recv::<u8>().unwrap();
    });
}

#[test]
fn a_group_larger_than_the_job_is_refused_at_once() {
    samite::local(2, |world| {
        let comm = world.comm();
        for group in [Group::range(Rank(0), u32::MAX), Group::range(Rank(0), 3)] {
            let refused = comm.create_from_group(&group, 1);
            assert!(matches!(refused, Err(Error::NotAMember { world_rank: Rank(2) })), "{:?}", refused.err());
        }
    });
}

#[test]
fn the_error_of_a_time_out_names_the_operation() {
    let errors = samite::local(2, |world| {
        let comm = world.comm().with_timeout(SHORT);
        if comm.rank() == 1 {
            // Leaves after rank 0 is ready.
            return world.comm().recv(&mut [0_u8], Rank(0), 9).map(|_| Vec::new());
        }
        let probed = comm.probe(Source::ANY, 1).unwrap_err();
        let claimed = comm.claim(Rank(1), 1).unwrap_err();
        let received = comm.recv_vec::<u8>(Rank(1), 1).unwrap_err();
        let created = comm.dup().unwrap_err();
        world.comm().send(&[1_u8], Rank(1), 9)?;
        Ok(vec![probed, claimed, received, created])
    });
    let errors = errors[0].as_ref().unwrap();
    for (error, operation) in
        errors.iter().zip([Operation::Search; 3].into_iter().chain([Operation::Creation]))
    {
        let Error::TimedOut { report, .. } = error else { panic!("{error}") };
        assert_eq!((report.operation, report.awaited), (operation, Awaited::Message), "{error}");
        assert!(!error.to_string().contains("0 bytes"), "{error}");
    }
    assert!(errors[3].to_string().contains("creation of a communicator, with the next step from rank 1"));
}

#[test]
fn partitions_without_bytes_have_their_elements_and_are_few() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        let mut send = comm.psend_init(vec![(); 10], 5, me, 1).unwrap();
        let mut recv = comm.precv_init(vec![(); 10], 2, me, 1).unwrap();
        for _ in 0..2 {
            send.start().unwrap();
            recv.start().unwrap();
            for part in send.parts().unwrap() {
                assert_eq!(part.len(), 2);
                part.ready();
            }
            assert_eq!((send.wait().unwrap().bytes, recv.wait().unwrap().bytes), (0, 0));
            assert_eq!(recv.partition(1).unwrap().unwrap().len(), 5);
            assert_eq!((send.buffer_mut().unwrap().len(), recv.buffer_mut().unwrap().len()), (10, 10));
        }
        assert_eq!(recv.into_buffer().unwrap().len(), 10);
        for partitions in [usize::MAX, (1 << 16) + 1] {
            let refused = comm.psend_init(Vec::<u8>::new(), partitions, me, 2).unwrap_err();
            assert_eq!(refused.error, Error::UnevenPartitions { elements: 0, partitions });
            assert_eq!(refused.buffer, Some(Vec::new()));
            assert!(comm.precv_init(Vec::<u8>::new(), partitions, me, 2).is_err());
        }
        assert!(comm.psend_init(vec![(); usize::MAX], usize::MAX, me, 2).is_err());
        assert!(comm.psend_init(vec![0_u8; 8], usize::MAX, me, 2).is_err());
    });
}

/// The peers may not have met when one of them drops its side.
#[test]
fn a_dropped_side_of_a_partitioned_message_ends_the_other() {
    samite::local(2, |world| {
        let comm = world.comm().with_timeout(LONG);
        let other = Rank(1 - comm.rank().0);
        for tag in 0..50 {
            let mut send = comm.psend_init(vec![1_u8; 4], 2, other, tag).unwrap();
            drop(comm.precv_init(vec![1_u8; 4], 2, other, tag).unwrap());
            if send.start().is_ok() {
                send.ready(0..2).unwrap();
                assert!(matches!(send.wait(), Err(Error::Abandoned { .. })));
            }
            assert!(matches!(send.start(), Err(Error::Abandoned { .. })));
            let mut recv = comm.precv_init(vec![1_u8; 4], 2, other, 100 + tag).unwrap();
            drop(comm.psend_init(vec![1_u8; 4], 2, other, 100 + tag).unwrap());
            if recv.start().is_ok() {
                assert!(matches!(recv.wait(), Err(Error::Abandoned { .. })));
            }
            // The pairs above count in the order of pairing at both ranks, even if one rank has dropped its side. So
            // this send and this receive are paired with those that the other rank makes in the same turn of the loop.
            let mut send = comm.psend_init(vec![tag as u8; 4], 2, other, tag).unwrap();
            let mut recv = comm.precv_init(vec![0_u8; 4], 2, other, tag).unwrap();
            send.start().unwrap();
            recv.start().unwrap();
            send.ready(0..2).unwrap();
            send.wait().unwrap();
            recv.wait().unwrap();
            assert_eq!(recv.buffer_mut().unwrap(), [tag as u8; 4]);
        }
    });
}

#[test]
fn a_partitioned_round_ends_with_the_world() {
    samite::local(1, |world| {
        let comm = world.comm().clone();
        let me = comm.rank();
        let mut send = comm.psend_init(vec![1_u8; 4], 2, me, 1).unwrap();
        let mut recv = comm.precv_init(vec![1_u8; 4], 2, me, 2).unwrap();
        send.start().unwrap();
        recv.start().unwrap();
        drop(world);
        assert!(matches!(send.test(), Some(Err(Error::Closed { .. }))));
        assert!(matches!(send.test(), Some(Err(Error::Inactive))));
        assert!(matches!(recv.test(), Some(Err(Error::Closed { .. }))));
        assert!(matches!(recv.start(), Err(Error::Closed { .. })));
        assert_eq!((send.into_buffer().unwrap(), recv.into_buffer().unwrap()), (vec![1; 4], vec![1; 4]));
    });
}

/// The two ranks call different creations, so neither gets a communicator.
#[test]
fn a_split_does_not_agree_with_a_duplicate() {
    samite::local(2, |world| {
        let comm = world.comm();
        let error = match comm.rank() {
            Rank(0) => comm.dup().map(|_| ()),
            _ => comm.split(Some(1), 0).map(|_| ()),
        };
        assert!(matches!(error, Err(Error::PeerFailed { .. })), "{error:?}");
        comm.dup().unwrap();
    });
}

/// In a set of finished requests no request is under way that the cancel could end.
#[test]
fn a_set_of_requests_that_were_finished_before_ends_with_a_cancel_too() {
    samite::local(1, |world| {
        let comm = world.comm();
        let cancel = CancelToken::new();
        let mut set = comm.with_cancel(&cancel).request_set();
        cancel.cancel();
        for _ in 0..2 {
            let mut finished = comm.isend(vec![1_u8], comm.rank(), 1).unwrap();
            while finished.test().is_none() {}
            set.insert(finished).unwrap();
            comm.recv(&mut [0_u8], comm.rank(), 1).unwrap();
        }
        assert!(matches!(set.test_any(), Some((_, Err(failed))) if failed.error == Error::NoSuchRequest));
        assert!(
            matches!(set.test_all().as_deref(), Some([(_, Err(failed))]) if failed.error == Error::NoSuchRequest)
        );
        assert!(set.test_any().is_none() && set.test_all().is_some_and(|ends| ends.is_empty()));
    });
}

#[test]
fn a_test_of_all_takes_all_or_none() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        let mut set = comm.request_set();
        for tag in 0..5 {
            set.insert(comm.irecv(vec![0_u64], me, tag).unwrap()).unwrap();
        }
        let mut buffers = [[0_u64]; 5];
        comm.scope(|scope| {
            let mut pending = PendingSet::default();
            for (tag, buffer) in (10..).zip(&mut buffers) {
                pending.insert(scope.irecv(buffer, me, tag)?);
            }
            for tag in [3, 1, 0, 4, 2] {
                assert!(set.test_all().is_none() && scope.test_all(&mut pending).is_none());
                comm.send(&[tag], me, tag)?;
                comm.send(&[tag], me, 10 + tag)?;
                assert_eq!((set.len(), pending.len()), (5, 5));
            }
            let ends = std::iter::from_fn(|| Some(set.test_all())).flatten().next().unwrap();
            let tags: Vec<_> = ends.into_iter().map(|(_, end)| end.unwrap().buffer[0]).collect();
            assert_eq!(tags, [3, 1, 0, 4, 2], "in the order of their ends");
            let ends = std::iter::from_fn(|| Some(scope.test_all(&mut pending))).flatten().next().unwrap();
            assert_eq!(ends.len(), 5);
            assert!(set.is_empty() && pending.is_empty());
            Ok(())
        })
        .unwrap();
        assert_eq!(buffers, [[0], [1], [2], [3], [4]]);
        // After the end of the world all requests fail.
        let mut late = comm.request_set();
        for tag in 0..3 {
            late.insert(comm.irecv(vec![0_u64], me, tag).unwrap()).unwrap();
        }
        drop(world);
        let ends = late.test_all().unwrap();
        assert!(ends.len() == 3 && ends.iter().all(|(_, end)| end.is_err()) && late.is_empty());
    });
}
