//! Tests of long messages whose buffers a scope lends to every call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

use crate::{Comm, Error, Layout, PendingSet, Progress, Rank, Settings};

/// Longer than any packet and than `overlap_min`, so each message takes several steps of both ranks.
const LONG: usize = 300_000;

fn settings(progress: Progress) -> Settings {
    let mut settings = Settings::default();
    settings.set_eager_max(1000).unwrap();
    settings.set_stream_max(0).unwrap();
    settings.set_progress(progress).unwrap();
    settings
}

fn other(comm: &Comm) -> Rank {
    Rank(1 - comm.rank().0)
}

/// Runs `body` on two ranks, over the loopback port.
fn on_two_ranks(progress: Progress, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let ends = settings(progress).local(2, |world| body(world.comm()));
    assert_eq!(ends, [Ok(()), Ok(())]);
}

fn is_under_way(comm: &Comm) -> bool {
    comm.runtime.peek(|engine| engine.needs_progress()).unwrap()
}

/// Waits, without a call that makes progress, until all long messages have travelled.
fn travel_alone(comm: &Comm) {
    let begun = comm.runtime.now();
    while is_under_way(comm) {
        assert!(comm.runtime.now().since(begun) < 60_000_000_000, "the message does not travel");
        std::thread::yield_now();
    }
}

#[test]
fn long_messages_travel_between_the_calls_of_a_scope() {
    on_two_ranks(Progress::Needed, |comm| {
        let every_second = Layout::<u8>::vector(LONG / 2, 1, 2)?;
        for number in 0..10 {
            let (sent, mut received, mut view) = (vec![number; LONG], vec![0; LONG], vec![0; LONG]);
            comm.scope(|scope| {
                let mut all = PendingSet::default();
                all.insert(scope.irecv(&mut received, other(comm), 7)?);
                all.insert(scope.irecv_view(every_second.of_mut(&mut view)?, other(comm), 8)?);
                all.insert(scope.isend(&sent, other(comm), 7)?);
                all.insert(scope.isend_view(every_second.of(&sent)?, other(comm), 8)?);
                travel_alone(comm);
                for (_, end) in scope.wait_all(&mut all) {
                    end?;
                }
                Ok(())
            })?;
            assert_eq!(received, sent);
            let is_right = |(at, byte): (usize, &u8)| *byte == if at % 2 == 0 { number } else { 0 };
            assert!(view.iter().enumerate().all(is_right));
        }
        Ok(())
    });
}

/// The receiver answers only when it has the long message, so the sender's bytes must move in the sender's receive.
#[test]
fn other_calls_of_the_thread_move_the_bytes_of_a_scope() {
    on_two_ranks(Progress::Off, |comm| {
        let mut buffer = vec![comm.rank().0 as u8; LONG];
        if comm.rank() == 0 {
            comm.scope(|scope| {
                let sent = scope.isend(&buffer, other(comm), 7)?;
                comm.recv(&mut [0_u8], other(comm), 8)?;
                scope.wait(sent).map(drop)
            })?;
            comm.send(&[0_u8], other(comm), 9)
        } else {
            comm.recv(&mut buffer, other(comm), 7)?;
            assert!(buffer.iter().all(|byte| *byte == 0));
            comm.send(&[0_u8], other(comm), 8)?;
            comm.recv(&mut [1_u8], other(comm), 9).map(drop)
        }
    });
}

#[test]
fn a_waiting_thread_moves_the_bytes_of_another_threads_scope() {
    let received = Barrier::new(2);
    on_two_ranks(Progress::Off, |comm| {
        if comm.rank() == 0 {
            comm.send(&vec![3_u8; LONG], other(comm), 7)?;
            return comm.send(&[0_u8], other(comm), 8);
        }
        let mut buffer = vec![0_u8; LONG];
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| {
                received.wait();
                comm.recv(&mut [1_u8], other(comm), 8)
            });
            comm.scope(|scope| {
                let receive = scope.irecv(&mut buffer, other(comm), 7)?;
                received.wait();
                // The other thread returns when the message behind the long one has arrived.
                waits.join().unwrap()?;
                assert!(!is_under_way(comm));
                scope.wait(receive).map(drop)
            })
        })?;
        assert!(buffer.iter().all(|byte| *byte == 3));
        Ok(())
    });
}

/// After a panic or an error in the body of a scope, no thread writes to the scope's buffers any more.
#[test]
fn a_scope_that_fails_takes_its_buffers_back() {
    for panics in [false, true] {
        on_two_ranks(Progress::Always, |comm| {
            if comm.rank() == 0 {
                comm.recv(&mut [1_u8], other(comm), 8)?;
                // The receive of the scope was abandoned, so this message waits for another receive.
                comm.send(&vec![5_u8; LONG], other(comm), 7)?;
                return Ok(());
            }
            let mut buffer = vec![0_u8; LONG];
            let ended = catch_unwind(AssertUnwindSafe(|| {
                comm.scope(|scope| {
                    scope.irecv(&mut buffer, other(comm), 7)?;
                    if panics {
                        panic!("in the scope");
                    }
                    Err::<(), _>(Error::Deserted)
                })
            }));
            assert_eq!(ended.ok(), (!panics).then_some(Err(Error::Deserted)));
            assert!(comm.runtime.loans.is_empty());
            let before = buffer.clone();
            comm.send(&[0_u8], other(comm), 8)?;
            let mut second = vec![0_u8; LONG];
            comm.recv(&mut second, other(comm), 7)?;
            assert!(second.iter().all(|byte| *byte == 5));
            assert_eq!(buffer, before);
            Ok(())
        });
    }
}

/// A deadline ends the operations of a scope whose long messages are under way or never arrive, and so the scope.
#[test]
fn a_deadline_ends_an_operation_whose_buffer_is_always_lent() {
    on_two_ranks(Progress::Needed, |comm| {
        let hurried = comm.with_timeout(std::time::Duration::from_millis(20));
        let mut buffer = vec![0_u8; LONG];
        let sent = vec![1_u8; LONG];
        let ended = hurried.scope(|scope| {
            scope.irecv(&mut buffer, other(comm), 7)?;
            scope.isend(&sent, other(comm), 9)?;
            Ok(())
        });
        assert!(matches!(ended, Err(Error::TimedOut { .. })), "{ended:?}");
        assert!(comm.runtime.loans.is_empty());
        comm.sendrecv(&sent, other(comm), 10, &mut buffer, other(comm), 10)?;
        assert_eq!(buffer, sent);
        Ok(())
    });
}
