//! A call of several steps has one bound for all of them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use samite::{Error, Progress, Rank, Settings};

use crate::turn;

const BOUND: Duration = Duration::from_millis(600);

fn timed<R>(call: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let result = call();
    (result, start.elapsed())
}

/// The message's envelope arrives after two thirds of the bound. Its bytes never arrive, because the sender does not
/// poll and has no thread that does.
#[test]
fn a_receive_of_unknown_length_has_one_bound_for_both_its_steps() {
    let _turn = turn();
    let (begun, ended) = (Barrier::new(2), Barrier::new(2));
    let mut settings = Settings::default();
    settings.set_progress(Progress::Off).unwrap();
    settings.local(2, |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            let data = vec![1_u8; 4 << 20];
            // The two ranks have communicated.
            comm.send(&[1_u8], Rank(1), 1).unwrap();
            comm.recv(&mut [0_u8], Rank(1), 1).unwrap();
            begun.wait();
            thread::sleep(BOUND * 2 / 3);
            let sent = comm.scope(|scope| {
                scope.isend(&data, Rank(1), 2)?;
                ended.wait();
                Ok(())
            });
            assert!(matches!(sent, Err(Error::Abandoned { rank: Rank(1), .. })), "{sent:?}");
        } else {
            comm.recv(&mut [0_u8], Rank(0), 1).unwrap();
            comm.send(&[1_u8], Rank(0), 1).unwrap();
            begun.wait();
            let (result, took) = timed(|| comm.with_timeout(BOUND).recv_vec::<u8>(Rank(0), 2));
            ended.wait();
            assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
            assert!(took >= BOUND && took < BOUND * 3 / 2, "{took:?}");
        }
    });
}

/// A call receives a message that has arrived even if nothing of the call's bound is left.
#[test]
fn a_bound_of_nothing_receives_what_has_arrived() {
    let _turn = turn();
    let sent = AtomicU32::new(0);
    // Without an outbox, so that a message has arrived when its send has returned.
    let mut settings = Settings::default();
    settings.set_outbox_max(0).unwrap();
    settings.local(2, |world| {
        let comm = world.comm();
        // Sends of longer messages may wait for their receive.
        const LENGTHS: [usize; 3] = [0, 1, 1000];
        let now = comm.with_timeout(Duration::ZERO);
        let mut count = 0;
        for length in LENGTHS {
            for tag in 0..6 {
                if comm.rank() == 0 {
                    comm.send(&vec![1_u8; length], Rank(1), tag).unwrap();
                    sent.fetch_add(1, Ordering::Release);
                    comm.recv(&mut [0_u8], Rank(1), 9).unwrap();
                } else {
                    // Make calls while waiting: the sender may need credit, which this rank returns in its calls.
                    count += 1;
                    while sent.load(Ordering::Acquire) < count {
                        comm.try_probe(Rank(0), 9).unwrap();
                    }
                    let mut buffer = vec![0_u8; length];
                    let received = match tag {
                        0 => now.recv(&mut buffer, Rank(0), tag).map(|status| status.bytes),
                        1 => now.recv_vec::<u8>(Rank(0), tag).map(|message| message.buffer.len()),
                        2 => {
                            now.claim(Rank(0), tag).and_then(|message| Ok(message.recv::<u8>()?.buffer.len()))
                        }
                        3 => now
                            .irecv(vec![0_u8; length], Rank(0), tag)
                            .map_err(Error::from)
                            .and_then(|request| Ok(request.wait()?.buffer.len())),
                        4 => now.recv_init(vec![0_u8; length], Rank(0), tag).and_then(|mut round| {
                            round.start()?;
                            round.wait().map(|status| status.bytes)
                        }),
                        _ => now.scope(|scope| {
                            let posted = scope.irecv(&mut buffer, Rank(0), tag)?;
                            scope.wait(posted).map(|status| status.bytes)
                        }),
                    };
                    assert_eq!(received, Ok(length), "call {tag}");
                    comm.send(&[1_u8], Rank(0), 9).unwrap();
                }
            }
        }
    });
}
