//! Awaited operations, on several executors.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use samite::{CancelToken, Comm, Error, Rank, Source, Tag};
use samite_os::fork::in_a_child;

/// Longer than any test lasts.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

/// The smallest executor: the thread sleeps until its waker is called.
fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn tokio_of_one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn tokio_of_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// Sends to the other rank and receives from it, with lengths that travel eagerly and by rendezvous.
async fn exchange(comm: Comm) -> Result<(), Error> {
    let other = Rank(1 - comm.rank().0);
    for round in 0..20 {
        for len in [0, 1, 1000, 100_000] {
            let receive = comm.irecv(vec![0; len], other, round)?;
            let sent = comm.isend(vec![comm.rank().0; len], other, round)?.await?;
            let received = receive.await?;
            assert_eq!(sent.buffer, vec![comm.rank().0; len]);
            assert_eq!((received.buffer, received.status.peer), (vec![other.0; len], other));
        }
    }
    Ok(())
}

/// Finds and claims messages that are sent later.
async fn find(comm: Comm) -> Result<(), Error> {
    let other = Rank(1 - comm.rank().0);
    for round in 0..20_u64 {
        let probe = comm.probe_async(Source::ANY, Tag::ANY);
        if comm.rank() == Rank(0) {
            let status = probe.await?;
            assert_eq!((status.peer, status.tag, status.bytes), (other, round, 8));
            let message = comm.claim_async(other, round).await?;
            assert_eq!(message.irecv(vec![0; 1])?.await?.buffer, [round]);
            comm.isend(vec![round], other, round)?.await?;
        } else {
            // Dropping the probe, which was not polled, has no effect on later messages.
            drop(probe);
            comm.isend(vec![round], other, round)?.await?;
            let message = comm.claim_async(Source::ANY, round).await?;
            assert_eq!(message.recv::<u64>()?.buffer, [round]);
        }
    }
    Ok(())
}

#[test]
fn every_executor_awaits() {
    samite::local(2, |world| {
        let comm = world.comm().with_timeout(LONG);
        block_on(exchange(comm.clone())).unwrap();
        block_on(find(comm.clone())).unwrap();
        smol::block_on(exchange(comm.clone())).unwrap();
        smol::block_on(find(comm.clone())).unwrap();
        tokio_of_one_thread().block_on(exchange(comm.clone())).unwrap();
        tokio_of_one_thread().block_on(find(comm.clone())).unwrap();
        let threads = tokio_of_threads();
        threads.block_on(threads.spawn(exchange(comm.clone()))).unwrap().unwrap();
        threads.block_on(threads.spawn(find(comm.clone()))).unwrap().unwrap();
    });
}

/// Counts the polls of a future.
struct Counted<F>(F, usize);

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = (F::Output, usize);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.1 += 1;
        let polls = self.1;
        Pin::new(&mut self.0).poll(context).map(|output| (output, polls))
    }
}

#[test]
fn ten_thousand_futures_are_polled_three_times_at_most() {
    const FUTURES: u64 = 10_000;
    samite::local(2, |world| {
        let comm = world.comm().clone();
        if comm.rank() == Rank(1) {
            // Rank 0 sends this message when all of its futures wait.
            comm.recv(&mut [0_u8], Rank(0), FUTURES).unwrap();
            for tag in (0..FUTURES).rev() {
                comm.send(&[tag], Rank(0), tag).unwrap();
            }
            return;
        }
        tokio_of_threads().block_on(async {
            let waiting = Arc::new(AtomicUsize::new(0));
            let mut tasks = tokio::task::JoinSet::new();
            for tag in 0..FUTURES {
                let (comm, waiting) = (comm.clone(), waiting.clone());
                tasks.spawn(async move {
                    let future = comm.irecv(vec![0; 1], Rank(1), tag).unwrap().into_future();
                    waiting.fetch_add(1, Ordering::Relaxed);
                    let (done, polls) = Counted(future, 0).await;
                    assert_eq!(done.unwrap().buffer, [tag]);
                    polls
                });
            }
            while waiting.load(Ordering::Relaxed) < FUTURES as usize {
                tokio::task::yield_now().await;
            }
            comm.isend(vec![0_u8], Rank(1), FUTURES).unwrap().await.unwrap();
            let polls = tasks.join_all().await;
            assert_eq!(polls.len(), FUTURES as usize);
            assert!(polls.iter().all(|polls| *polls <= 3), "{:?}", polls.iter().max());
        });
    });
}

#[test]
fn a_select_leaves_the_other_future_usable_or_drops_it() {
    samite::local(1, |world| {
        let comm = world.comm();
        let me = comm.rank();
        tokio_of_one_thread().block_on(async {
            let mut kept = comm.irecv(vec![0_u8; 1], me, 1).unwrap().into_future();
            for round in 0..3 {
                let sent = comm.irecv(vec![0_u8; 1], me, 2).unwrap();
                comm.send(&[round], me, 2).unwrap();
                tokio::select! {
                    _ = &mut kept => panic!("nothing was sent"),
                    done = sent.into_future() => assert_eq!(done.unwrap().buffer, [round]),
                }
            }
            // The dropped receives and claims do not take the message that is sent afterwards.
            for _ in 0..3 {
                let receive = comm.irecv(vec![0_u8; 1], me, 3).unwrap();
                assert!(tokio::time::timeout(SHORT, receive.into_future()).await.is_err());
                let search = comm.claim_async(me, 3);
                assert!(tokio::time::timeout(SHORT, search).await.is_err());
            }
            comm.send(&[9_u8], me, 3).unwrap();
            comm.send(&[8_u8], me, 1).unwrap();
            assert_eq!(comm.recv_vec::<u8>(Source::ANY, 3).unwrap().buffer, [9]);
            assert_eq!(kept.await.unwrap().buffer, [8]);
        });
    });
}

/// Polls a future up to `polls` times, and drops it.
fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if poll.is_ready() {
            break;
        }
        thread::yield_now();
    }
}

#[test]
fn a_future_can_be_dropped_at_every_point() {
    const LEN: usize = 1 << 17;
    samite::local(2, |world| {
        let comm = world.comm();
        let other = Rank(1 - comm.rank().0);
        let part = async |tag| {
            let receive = comm.irecv(vec![0_u8; LEN], other, tag)?;
            comm.isend(vec![7_u8; LEN], other, tag)?.await?;
            receive.await.map(drop)?;
            comm.claim_async(other, tag + 1000).await.map(drop)
        };
        for polls in 0..40 {
            poll_and_drop(part(polls as u64), polls);
        }
        // The dropped operations have no effect on later messages.
        block_on(exchange(comm.dup().unwrap())).unwrap();
    });
}

#[test]
fn deadlines_and_cancels_end_futures() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm().with_timeout(SHORT), world.comm().rank());
        let timed_out = |error| assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        timed_out(block_on(comm.irecv(vec![0_u8; 1], me, 1).unwrap()).unwrap_err().error);
        timed_out(block_on(comm.probe_async(me, 1)).unwrap_err());
        timed_out(block_on(comm.claim_async(Source::ANY, 1)).unwrap_err());

        let cancel = CancelToken::new();
        let comm = world.comm().with_cancel(&cancel);
        let futures = (comm.irecv(vec![0_u8; 1], me, 1).unwrap(), comm.probe_async(me, 1));
        thread::scope(|threads| {
            let request = threads.spawn(|| block_on(futures.0).unwrap_err().error);
            let probe = threads.spawn(|| block_on(futures.1).unwrap_err());
            cancel.cancel();
            for thread in [request, probe] {
                assert!(matches!(thread.join().unwrap(), Error::Cancelled { .. }));
            }
        });
        // The token was cancelled before this receive was started.
        let late = block_on(comm.irecv(vec![0_u8; 1], me, 1).unwrap()).unwrap_err();
        assert!(matches!(late.error, Error::Cancelled { .. }));

        let future = world.comm().irecv(vec![0_u8; 1], me, 1).unwrap().into_future();
        future.cancel();
        assert!(matches!(block_on(future).unwrap_err().error, Error::Cancelled { .. }));
    });
}

#[test]
fn futures_end_with_their_world_and_their_peer() {
    samite::local(2, |world| {
        let comm = world.comm().clone();
        if comm.rank() == Rank(1) {
            return;
        }
        let failed = block_on(comm.irecv(vec![0_u8; 1], Rank(1), 1).unwrap()).unwrap_err();
        assert!(matches!(failed.error, Error::PeerFailed { rank: Rank(1), .. }), "{}", failed.error);
        assert!(matches!(block_on(comm.probe_async(Rank(1), 1)), Err(Error::PeerFailed { .. })));
        assert_eq!(block_on(comm.probe_async(Source::ANY, 1)), Err(Error::Deserted));

        let me = comm.rank();
        let futures = (comm.irecv(vec![0_u8; 1], me, 1).unwrap(), comm.claim_async(me, 1));
        let forked = in_a_child(|| {
            let request = comm.irecv(vec![0_u8; 1], me, 2).unwrap_err();
            let probe = block_on(comm.probe_async(me, 1)).unwrap_err();
            (request.error, probe) == (Error::Forked, Error::Forked)
        });
        assert!(forked.unwrap());
        thread::scope(|threads| {
            let request = threads.spawn(|| block_on(futures.0).unwrap_err().error);
            let claim = threads.spawn(|| block_on(futures.1).unwrap_err());
            drop(world);
            for thread in [request, claim] {
                assert!(matches!(thread.join().unwrap(), Error::Closed { .. }));
            }
        });
        assert!(matches!(block_on(comm.probe_async(me, 1)), Err(Error::Closed { .. })));
    });
}

#[test]
fn a_panic_of_a_waker_harms_no_other() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics, as intended");
        }
    }
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let mut first = pin!(comm.irecv(vec![0_u8; 1], me, 1).unwrap().into_future());
        let waker = Waker::from(Arc::new(Panics));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let second = comm.irecv(vec![0_u8; 1], me, 2).unwrap().into_future();
        thread::scope(|threads| {
            let waits = threads.spawn(|| block_on(second).unwrap().buffer);
            comm.send(&[1_u8], me, 1).unwrap();
            comm.send(&[2_u8], me, 2).unwrap();
            assert_eq!(waits.join().unwrap(), [2]);
        });
        assert_eq!(block_on(first).unwrap().buffer, [1]);
    });
}

#[test]
fn a_failure_ends_all_futures_that_it_concerns() {
    samite::local(3, |world| {
        let comm = world.comm();
        if comm.rank() != Rank(0) {
            return;
        }
        tokio_of_one_thread().block_on(async {
            let mut ends = tokio::task::JoinSet::new();
            for from in [1, 2].map(Rank) {
                let receive = comm.irecv(vec![0_u8; 1], from, 1).unwrap();
                ends.spawn(async move { receive.await.unwrap_err().error });
            }
            let ends = ends.join_all().await;
            let ranks: BTreeSet<_> = ends
                .into_iter()
                .map(|error| match error {
                    Error::PeerFailed { rank, .. } => rank,
                    error => panic!("{error}"),
                })
                .collect();
            assert_eq!(ranks, BTreeSet::from([1, 2].map(Rank)));
        });
    });
}

/// Asserts at compile time that a type can be moved to threads and shared by them.
const fn is_send_and_sync<T: Send + Sync>() {}

const _: () = {
    is_send_and_sync::<samite::RequestFuture<Vec<u8>>>();
    is_send_and_sync::<samite::RequestFuture<Arc<[u8]>>>();
    is_send_and_sync::<samite::ProbeFuture>();
    is_send_and_sync::<samite::ClaimFuture>();
};
