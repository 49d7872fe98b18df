//! Collective calls while the members of a communicator create its board.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use samite::reduction::Sum;
use samite::{Comm, Error, Progress, Rank, Settings};

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
