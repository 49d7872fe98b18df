//! The program as the driver of its futures, on tokio and smol.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use samite::{CancelToken, Comm, Driver, Error, Rank, Source, Tag};
use samite_os::fork::in_a_child;
use tokio::io::unix::AsyncFd;

/// Longer than any test lasts.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

/// Returns a driver for whose descriptor tokio can wait.
#[allow(deprecated, reason = "its successor in tokio 1.54 is unsafe")]
fn on_tokio(driver: Driver) -> AsyncFd<Driver> {
    AsyncFd::new(driver).unwrap()
}

/// Drives on tokio until the world ends. tokio's epoll instance registers the descriptor as edge-triggered.
async fn drive_on_tokio(driver: Driver) -> Result<(), Error> {
    let driver = on_tokio(driver);
    loop {
        driver.get_ref().drive()?;
        driver.readable().await.unwrap().clear_ready();
    }
}

/// Drives on smol until the world ends. smol's epoll instance registers the descriptor as level-triggered, for one
/// event at a time.
async fn drive_on_smol(driver: Driver) -> Result<(), Error> {
    let driver = smol::Async::new(driver).unwrap();
    loop {
        driver.get_ref().drive()?;
        driver.readable().await.unwrap();
    }
}

fn tokio_of_one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn tokio_of_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Exchanges messages with the other rank, with lengths that travel eagerly and by rendezvous. Probes for and claims
/// some of them before it receives them.
async fn exchange(comm: Comm) -> Result<(), Error> {
    let (me, other) = (comm.rank().0, Rank(1 - comm.rank().0));
    for round in 0..20 {
        for len in [0, 1, 1000, 100_000] {
            let receive = comm.irecv(vec![0; len], other, round)?;
            comm.isend(vec![me; len], other, round)?.await?;
            assert_eq!(receive.await?.buffer, vec![other.0; len]);
        }
        let probe = comm.probe_async(Source::ANY, Tag::ANY);
        comm.isend(vec![me], other, round)?.await?;
        assert_eq!(probe.await?.tag, round);
        let message = comm.claim_async(other, round).await?;
        assert_eq!(message.irecv(vec![0; 1])?.await?.buffer, [other.0]);
    }
    Ok(())
}

#[test]
fn tokio_and_smol_drive() {
    samite::local(2, |world| {
        let comm = world.comm().with_timeout(LONG);
        for tokio in [tokio_of_one_thread(), tokio_of_threads()] {
            tokio.block_on(async {
                let driving = tokio::spawn(drive_on_tokio(comm.driver().unwrap()));
                tokio::spawn(exchange(comm.clone())).await.unwrap().unwrap();
                driving.abort();
                assert!(driving.await.unwrap_err().is_cancelled());
            });
        }
        smol::block_on(async {
            let executor = smol::LocalExecutor::new();
            let driving = executor.spawn(drive_on_smol(comm.driver().unwrap()));
            executor.run(exchange(comm.clone())).await.unwrap();
            assert!(executor.run(driving.cancel()).await.is_none());
        });
    });
}

/// Awaits this many receives, whose messages the other rank sends once all of them wait.
async fn await_many(comm: Comm, count: u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for tag in 0..count {
        let receive = comm.irecv(vec![0_u64; 1], Rank(1), tag).unwrap();
        tasks.spawn(async move { assert_eq!(receive.await.unwrap().buffer, [tag]) });
    }
    comm.isend(vec![0_u8], Rank(1), count).unwrap().await.unwrap();
    assert_eq!(tasks.join_all().await.len(), count as usize);
}

fn send_many(comm: &Comm, count: u64) {
    comm.recv(&mut [0_u8], Rank(0), count).unwrap();
    for tag in (0..count).rev() {
        comm.send(&[tag], Rank(0), tag).unwrap();
    }
}

#[test]
fn thousands_of_futures_end() {
    const FUTURES: u64 = 5_000;
    samite::local(2, |world| {
        let comm = world.comm();
        for tokio in [tokio_of_one_thread(), tokio_of_threads()] {
            if comm.rank() == Rank(1) {
                send_many(comm, FUTURES);
                continue;
            }
            tokio.block_on(async {
                let driving = tokio::spawn(drive_on_tokio(comm.driver().unwrap()));
                tokio::spawn(await_many(comm.clone(), FUTURES)).await.unwrap();
                driving.abort();
                let _ = driving.await;
            });
        }
    });
}

#[test]
fn a_thread_takes_over_when_the_driver_is_dropped_at_any_time() {
    const FUTURES: u64 = 200;
    samite::local(2, |world| {
        let comm = world.comm();
        // The driver is dropped after this number of turns.
        for turns in 0..20 {
            if comm.rank() == Rank(1) {
                send_many(comm, FUTURES);
                continue;
            }
            let driver = comm.driver().unwrap();
            tokio_of_one_thread().block_on(async {
                let driving = tokio::spawn(async move {
                    let driver = on_tokio(driver);
                    for _ in 0..turns {
                        driver.get_ref().drive().unwrap();
                        driver.readable().await.unwrap().clear_ready();
                    }
                });
                await_many(comm.clone(), FUTURES).await;
                driving.abort();
                let _ = driving.await;
            });
        }
    });
}

/// Futures that were polled without a driver wait for a thread, and then for the program.
#[test]
fn the_program_takes_over_from_a_thread() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        tokio_of_one_thread().block_on(async {
            for tag in 0..50 {
                let mut receive = comm.irecv(vec![0_u64; 1], me, tag).unwrap().into_future();
                let mut context = Context::from_waker(Waker::noop());
                assert!(pin!(&mut receive).poll(&mut context).is_pending());
                let driving = tokio::spawn(drive_on_tokio(comm.driver().unwrap()));
                let receive = tokio::spawn(receive);
                tokio::task::yield_now().await;
                comm.send(&[tag], me, tag).unwrap();
                assert_eq!(receive.await.unwrap().unwrap().buffer, [tag]);
                driving.abort();
                let _ = driving.await;
            }
        });
    });
}

#[test]
fn selects_time_outs_and_cancels_end_futures() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let all = async {
            let mut kept = comm.irecv(vec![0_u8; 1], me, 1).unwrap().into_future();
            for round in 0..3 {
                let sent = comm.irecv(vec![0_u8; 1], me, 2).unwrap();
                comm.isend(vec![round], me, 2).unwrap().await.unwrap();
                tokio::select! {
                    _ = &mut kept => panic!("nothing was sent"),
                    done = sent.into_future() => assert_eq!(done.unwrap().buffer, [round]),
                }
                let dropped = comm.irecv(vec![0_u8; 1], me, 3).unwrap();
                assert!(tokio::time::timeout(SHORT, dropped.into_future()).await.is_err());
                assert!(tokio::time::timeout(SHORT, comm.claim_async(me, 3)).await.is_err());
            }
            // The task of the driver already waits for the descriptor, with a later deadline.
            let bounded = comm.with_timeout(SHORT);
            let end = bounded.irecv(vec![0_u8; 1], me, 4).unwrap().await.unwrap_err().error;
            assert!(matches!(end, Error::TimedOut { .. }), "{end}");
            let end = bounded.probe_async(me, 4).await.unwrap_err();
            assert!(matches!(end, Error::TimedOut { .. }), "{end}");

            let cancel = CancelToken::new();
            let cancelled = comm.with_cancel(&cancel);
            let receive = cancelled.irecv(vec![0_u8; 1], me, 5).unwrap().into_future();
            let (receive, probe) = (tokio::spawn(receive), tokio::spawn(cancelled.probe_async(me, 5)));
            tokio::task::yield_now().await;
            tokio::task::spawn_blocking(move || cancel.cancel()).await.unwrap();
            assert!(matches!(receive.await.unwrap().unwrap_err().error, Error::Cancelled { .. }));
            assert!(matches!(probe.await.unwrap().unwrap_err(), Error::Cancelled { .. }));
            comm.isend(vec![9_u8], me, 1).unwrap().await.unwrap();
            assert_eq!(kept.await.unwrap().buffer, [9]);
        };
        tokio_of_one_thread().block_on(async {
            tokio::select! {
                end = drive_on_tokio(comm.driver().unwrap()) => panic!("{end:?}"),
                () = all => {}
            }
        });
    });
}

/// The executor's only thread blocks in a call of the library while the program's driver is armed. The call makes
/// progress itself.
#[test]
fn a_call_that_blocks_the_executor_does_not_wait_for_the_driver() {
    samite::local(2, |world| {
        let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
        tokio_of_one_thread().block_on(async {
            let driving = tokio::spawn(drive_on_tokio(comm.driver().unwrap()));
            let receive = tokio::spawn(comm.irecv(vec![0_u8; 1], other, 1).unwrap().into_future());
            for round in 0..20_u64 {
                tokio::task::yield_now().await;
                // The messages are so long that both ranks sleep while they wait.
                let mut from_other = vec![0; 50_000];
                if comm.rank() == Rank(0) {
                    std::iter::repeat_with(|| comm.try_probe(other, 3).unwrap()).take(1000).for_each(drop);
                    comm.send(&vec![round; 50_000], other, 2).unwrap();
                    comm.recv(&mut from_other, other, 2).unwrap();
                } else {
                    comm.recv(&mut from_other, other, 2).unwrap();
                    comm.send(&vec![round; 50_000], other, 2).unwrap();
                }
                assert_eq!(from_other, vec![round; 50_000]);
            }
            comm.isend(vec![7_u8], other, 1).unwrap().await.unwrap();
            assert_eq!(receive.await.unwrap().unwrap().buffer, [7]);
            driving.abort();
            let _ = driving.await;
        });
    });
}

/// Another thread waits in a blocking call and makes progress for the futures, whose driver must be called.
#[test]
fn a_future_ends_while_another_thread_waits() {
    samite::local(2, |world| {
        let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
        thread::scope(|threads| {
            let waits = threads.spawn(|| comm.recv(&mut [0_u8], other, 1000).unwrap());
            tokio_of_one_thread().block_on(async {
                let driving = tokio::spawn(drive_on_tokio(comm.driver().unwrap()));
                exchange(comm.clone()).await.unwrap();
                let receive = comm.irecv(vec![0_u8; 1], other, 2).unwrap();
                comm.isend(vec![2_u8], other, 2).unwrap().await.unwrap();
                assert_eq!(receive.await.unwrap().buffer, [2]);
                comm.isend(vec![1_u8], other, 1000).unwrap().await.unwrap();
                driving.abort();
                let _ = driving.await;
            });
            assert_eq!(waits.join().unwrap().bytes, 1);
        });
    });
}

#[test]
fn a_lane_has_one_driver() {
    let mut settings = samite::Settings::default();
    settings.set_lanes(2).unwrap();
    let ends = settings.local(2, |world| {
        let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
        let lane = comm.lane(1).unwrap();
        let first = comm.driver().unwrap();
        assert!(matches!(comm.driver(), Err(Error::DriverExists)));
        let second = lane.driver().unwrap();
        drop(first);
        let first = comm.driver().unwrap();
        tokio_of_one_thread().block_on(async {
            let driving = [first, second].map(|driver| tokio::spawn(drive_on_tokio(driver)));
            for comm in [comm, &lane] {
                let receive = comm.irecv(vec![0; 1], other, 1).unwrap();
                comm.isend(vec![comm.rank().0], other, 1).unwrap().await.unwrap();
                assert_eq!(receive.await.unwrap().buffer, [other.0]);
            }
            driving.iter().for_each(tokio::task::JoinHandle::abort);
        });
    });
    assert_eq!(ends.len(), 2);
}

#[test]
fn the_driver_ends_with_its_world_and_in_a_child() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm().clone(), world.comm().rank());
        let driver = comm.driver().unwrap();
        let forked = in_a_child(|| matches!(driver.drive(), Err(Error::Forked)));
        assert!(forked.unwrap());
        let (sender, driving) = channel();
        thread::scope(|threads| {
            let end = threads.spawn(move || {
                tokio_of_one_thread().block_on(async {
                    let driving = tokio::spawn(drive_on_tokio(driver));
                    let receive = tokio::spawn(comm.irecv(vec![0_u8; 1], me, 1).unwrap().into_future());
                    tokio::task::yield_now().await;
                    sender.send(()).unwrap();
                    let end = receive.await.unwrap().unwrap_err().error;
                    (driving.await.unwrap(), end, comm.driver())
                })
            });
            driving.recv().unwrap();
            drop(world);
            let (driven, awaited, late) = end.join().unwrap();
            assert!(matches!(driven, Err(Error::Closed { .. })), "{driven:?}");
            assert!(matches!(awaited, Error::Closed { .. }), "{awaited}");
            assert!(matches!(late, Err(Error::Closed { .. })));
        });
    });
}

#[test]
fn a_failure_of_a_peer_ends_futures() {
    samite::local(2, |world| {
        let comm = world.comm();
        if comm.rank() == Rank(1) {
            comm.recv(&mut [0_u8], Rank(0), 1).unwrap();
            return;
        }
        tokio_of_one_thread().block_on(async {
            let driving = tokio::spawn(drive_on_tokio(comm.driver().unwrap()));
            let receive = tokio::spawn(comm.irecv(vec![0_u8; 1], Rank(1), 1).unwrap().into_future());
            tokio::task::yield_now().await;
            comm.isend(vec![0_u8], Rank(1), 1).unwrap().await.unwrap();
            let end = receive.await.unwrap().unwrap_err().error;
            assert!(matches!(end, Error::PeerFailed { rank: Rank(1), .. }), "{end}");
            driving.abort();
            let _ = driving.await;
        });
    });
}

/// A callback runs in `drive`, and may drive itself.
#[test]
fn a_callback_runs_in_the_program() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let driver = Arc::new(comm.driver().unwrap());
        let called = Arc::new(AtomicBool::new(false));
        let (inner, calls, this) = (Arc::clone(&driver), Arc::clone(&called), thread::current().id());
        comm.irecv(vec![0_u8; 1], me, 1).unwrap().on_end(move |end| {
            assert_eq!((end.unwrap().buffer, thread::current().id()), (vec![3], this));
            inner.drive().unwrap();
            calls.store(true, Ordering::Relaxed);
        });
        comm.send(&[3_u8], me, 1).unwrap();
        while !called.load(Ordering::Relaxed) {
            driver.drive().unwrap();
        }
    });
}

/// Asserts at compile time that a driver can be moved to threads and shared by them.
const fn is_send_and_sync<T: Send + Sync>() {}

const _: () = is_send_and_sync::<Driver>();

/// A blocking call makes progress in place of a driver of the program that is never driven again.
#[test]
fn a_driver_that_is_never_driven_holds_up_no_blocking_call() {
    samite::local(2, |world| {
        let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
        let driver = comm.driver().unwrap();
        driver.drive().unwrap();
        for round in 0..100_u64 {
            let mut from_other = [0];
            comm.sendrecv(&[round], other, 1, &mut from_other, other, 1).unwrap();
            assert_eq!(from_other, [round]);
        }
        drop(driver);
    });
}
