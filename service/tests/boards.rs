//! Collective calls while the members of a communicator create its board.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use samite::reduction::Sum;
use samite::{CancelToken, Check, Comm, Error, Mode, Progress, Rank, Settings};

/// Runs ranks that may share boards, and must all succeed. No thread of the library makes progress for them.
fn all(n: u32, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let mut settings = Settings::default();
    settings.set_transport("samite-shm").unwrap();
    settings.set_progress(Progress::Off).unwrap();
    settings.local(n, |world| body(world.comm())).into_iter().for_each(Result::unwrap);
}

/// Several threads wait for the board. The one whose call has the first number may be the last that begins its
/// operation.
#[test]
fn threads_may_make_the_first_calls_at_the_same_time() {
    all(3, |comm| {
        (0..30).try_for_each(|_| {
            let fresh = comm.dup()?.with_timeout(Duration::from_secs(30));
            let call = || -> Result<(), Error> {
                for _ in 0..3 {
                    let mut sum = [1];
                    fresh.allreduce_in_place(&mut sum, Sum)?;
                    assert_eq!(sum, [3]);
                }
                Ok(())
            };
            thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(call));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })
        })
    });
}

/// Rank 2 gives up before it knows if there is a board. Rank 1 waits for rank 2 at the board, although the two exchange no
/// message in an operation by messages.
#[test]
fn all_members_learn_that_one_gave_up_before_it_knew_of_the_board() {
    let turn = Barrier::new(4);
    all(4, |comm| {
        let comm = &comm.with_timeout(Duration::from_secs(30));
        let fresh = comm.dup()?;
        let allreduce = |comm: &Comm| comm.allreduce_in_place(&mut [1_u8; 8191], Sum);
        if comm.rank() == 2 {
            // The others have not begun, so the call ends by the time-out.
            let early = allreduce(&fresh.with_timeout(Duration::ZERO));
            turn.wait();
            assert!(matches!(early, Err(Error::TimedOut { .. })), "{early:?}");
        } else {
            turn.wait();
            let end = allreduce(&fresh);
            assert!(matches!(end, Err(Error::Abandoned { .. })), "{end:?}");
        }
        comm.barrier()?;
        allreduce(&fresh)
    });
}

/// A rank gives up its first call and drops the communicator, before or after the others have begun their calls.
#[test]
fn all_members_learn_that_one_dropped_the_communicator_before_it_knew_of_the_board() {
    for (n, is_first) in [(2, true), (2, false), (3, true), (5, true), (5, false), (8, true)] {
        let turn = Barrier::new(n as usize);
        all(n, |comm| {
            let comm = &comm.with_timeout(Duration::from_secs(30));
            let fresh = comm.dup()?;
            if comm.rank() == 0 {
                if !is_first {
                    turn.wait();
                }
                let end = fresh.with_timeout(Duration::ZERO).barrier();
                drop(fresh);
                if is_first {
                    turn.wait();
                }
                assert!(
                    matches!(end, Ok(()) | Err(Error::TimedOut { .. } | Error::Abandoned { .. })),
                    "{end:?}"
                );
            } else {
                turn.wait();
                let end = fresh.barrier();
                assert!(
                    matches!(end, Ok(()) | Err(Error::Abandoned { .. })) && !(is_first && end.is_ok()),
                    "{end:?}"
                );
            }
            comm.barrier()
        });
    }
}

/// A broadcast of more elements than an operation on the board has pieces. They have no bytes.
#[test]
fn elements_without_bytes_need_no_board() {
    all(2, |comm| {
        comm.barrier()?;
        comm.bcast(&mut [[0_u8; 0]; 1 << 40], Rank(0))
    });
}

/// Rank 1 has sent the address of its slot and makes no further call, so rank 0 does not learn if there is a board.
/// Each of its calls ends by the time-out, and counts as an operation of the communicator.
#[test]
fn a_nonblocking_call_that_does_not_learn_of_the_board_counts_as_an_operation() {
    let turn = Barrier::new(2);
    all(2, |comm| {
        let fresh = comm.dup()?;
        let bounded = |ms| fresh.with_timeout(Duration::from_millis(ms));
        // No assertion may fail between the turns, because the other rank would wait for ever.
        let late = if comm.rank().0 == 1 {
            let late = vec![bounded(0).barrier().err()];
            turn.wait();
            turn.wait();
            late
        } else {
            turn.wait();
            let late = vec![
                bounded(20).barrier().err(),
                bounded(0).ibarrier().err().map(|failed| failed.error),
                bounded(0).iallreduce(vec![1], vec![0], Sum).err().map(|failed| failed.error),
                bounded(0).barrier_init().err(),
            ];
            turn.wait();
            late
        };
        assert!(late.iter().all(|error| matches!(error, Some(Error::TimedOut { .. }))), "{late:?}");
        let fresh = fresh.with_timeout(Duration::from_secs(30));
        if comm.rank().0 == 1 {
            // Rank 0 has given up both operations.
            let ends = [
                fresh.ibarrier()?.wait().err().map(|failed| failed.error),
                fresh.iallreduce(vec![1], vec![0], Sum)?.wait().err().map(|failed| failed.error),
            ];
            let gave_up = |end: &Option<Error>| matches!(end, Some(Error::Abandoned { rank: Rank(0), .. }));
            assert!(ends.iter().all(gave_up), "{ends:?}");
        }
        let mut sum = [1];
        fresh.allreduce_in_place(&mut sum, Sum)?;
        assert_eq!(sum, [2]);
        Ok(())
    });
}

/// The ranks learn at different times of the board, because some calls end by a time-out while it is being created. Calls
/// that match do so also under the check.
#[test]
fn calls_match_although_some_ranks_know_of_the_board() {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Collectives]).unwrap();
    settings.set_transport("samite-shm").unwrap();
    settings.set_progress(Progress::Off).unwrap();
    let ends = settings.local(3, |world| {
        let comm = world.comm();
        let mut state = u64::from(comm.rank().0) + 1;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..60 {
            let fresh = comm.dup()?;
            for _ in 0..=round % 3 {
                let bound = Duration::from_micros([0, 50, 200, 1000, 5_000_000][random(5) as usize]);
                let _ = fresh.with_timeout(bound).allreduce_in_place(&mut [1], Sum);
            }
            comm.barrier()?;
            let fresh = fresh.with_timeout(Duration::from_secs(30));
            for _ in 0..2 {
                let mut sum = [1];
                fresh.allreduce_in_place(&mut sum, Sum)?;
                assert_eq!(sum, [3]);
            }
        }
        Ok::<_, Error>(())
    });
    ends.into_iter().for_each(Result::unwrap);
}

/// Rank 0 broadcasts behind a reduction for which rank 2 is late. Rank 1 has done its part in both, and leaves.
#[test]
fn an_operation_behind_another_one_does_not_wait_for_a_rank_that_has_left() {
    /// After some polls an operation at the board watches a rank.
    const POLLS: usize = 1000;
    all(4, |comm| {
        let comm = &comm.with_timeout(Duration::from_secs(30));
        comm.barrier()?;
        let mine = [1_u64];
        let mut data = [u64::from(comm.rank().0)];
        match comm.rank().0 {
            0 => {
                let seen = (0..POLLS).map(|_| comm.irecv(vec![0_u8], Rank(2), 1));
                let seen = seen.collect::<Result<Vec<_>, _>>()?;
                let sum = comm.ireduce(vec![1_u64], vec![0], Sum, Rank(0))?;
                comm.bcast(&mut data, Rank(3))?;
                assert_eq!((data, sum.wait()?.buffer.1), ([3], vec![4]));
                seen.into_iter().try_for_each(|receive| receive.wait().map(drop).map_err(Error::from))
            }
            2 => {
                let left = comm.recv(&mut [0_u8], Rank(1), 2);
                assert!(matches!(left, Err(Error::PeerFailed { rank: Rank(1), .. })), "{left:?}");
                // Rank 0 polls in its broadcast, and learns of the end of rank 1 too.
                let certain = comm.with_mode(Mode::Synchronous);
                (0..POLLS).try_for_each(|_| certain.send(&[0_u8], Rank(0), 1))?;
                comm.reduce(&mine, &mut [], Sum, Rank(0))?;
                comm.bcast(&mut data, Rank(3))
            }
            _ => {
                comm.reduce(&mine, &mut [], Sum, Rank(0))?;
                comm.bcast(&mut data, Rank(3))
            }
        }
    });
}

/// Rank 1 gives up each broadcast. Rank 0 needs nothing from it, so it does not look for the notice.
#[test]
fn notices_that_arrive_after_the_end_are_discarded() {
    let mut settings = Settings::default();
    settings.set_transport("samite-shm").unwrap();
    settings.set_board_max(0).unwrap();
    let waiting = settings.local(2, |world| {
        let comm = world.comm();
        let cancelled = CancelToken::new();
        cancelled.cancel();
        let mut most = 0;
        for _ in 0..5000 {
            // Rank 1 gives up before rank 0 begins.
            if comm.rank() == 1 {
                assert!(comm.with_cancel(&cancelled).bcast(&mut [0_u64], Rank(0)).is_err());
            }
            let other = Rank(1 - comm.rank().0);
            comm.sendrecv(&[1_u8], other, 5, &mut [0_u8], other, 5)?;
            if comm.rank() == 0 {
                match comm.bcast(&mut [1_u64], Rank(0)) {
                    // The message waited for credit, which the messages that rank 1 did not take had used.
                    Ok(()) | Err(Error::Abandoned { rank: Rank(1), .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            most = most.max(comm.stats().unexpected_messages);
        }
        Ok::<_, Error>(most)
    });
    let waiting: Vec<_> = waiting.into_iter().map(Result::unwrap).collect();
    assert!(waiting[0] <= 2 * 1024, "{waiting:?} messages");
}
