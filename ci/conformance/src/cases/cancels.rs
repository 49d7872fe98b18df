//! Cancels, time-outs and dropped requests: a message is received as a whole or not at all.

use samite::{CancelToken, Error, Rank, Source, Tag};

use crate::case::{Cases, SHORT, bytes, expect, expect_error};
use crate::cases::transfers::SIZES;

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.8.4");
    cases.add("cancel.receive", 2, "a cancelled receive ends, and returns its buffer unchanged", |job| {
        let request = job.comm.irecv(vec![3u8; 9], job.other(), 7)?;
        request.cancel();
        let failed = request.wait().expect_err("no message was sent");
        assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
        assert_eq!(failed.buffer, Some(vec![3; 9]));
        job.barrier()
    });
    cases.add(
        "cancel.takes-no-message",
        2,
        "a cancelled receive takes no message; the next receive gets it",
        |job| {
            if job.rank() == 0 {
                job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                return job.comm.send(&[5u8], Rank(1), 7);
            }
            let cancelled = job.comm.irecv(vec![0u8], Rank(0), 7)?;
            let kept = job.comm.irecv(vec![0u8], Rank(0), 7)?;
            cancelled.cancel();
            assert!(cancelled.wait().is_err());
            job.comm.send(&[0u8; 0], Rank(0), 1)?;
            assert_eq!(kept.wait()?.buffer, [5]);
            Ok(())
        },
    );
    for &(size, len) in SIZES {
        let rule = "a cancel that comes with the message ends the receive whole or not at all";
        cases.add(format!("cancel.race.{size}"), 2, rule, move |job| {
            let len = len(job);
            for round in 0..6u64 {
                if job.rank() == 0 {
                    job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                    match job.comm.send(&bytes(round, len), Rank(1), 7) {
                        // The receiver may give up in the middle of a long message.
                        Ok(()) | Err(Error::Abandoned { rank: Rank(1), .. }) => {}
                        Err(error) => return Err(error),
                    }
                    job.comm.recv(&mut [0u8; 0], Rank(1), 2)?;
                    continue;
                }
                let mut request = job.comm.irecv(vec![0xee; len], Rank(0), 7)?;
                job.comm.send(&[0u8; 0], Rank(0), 1)?;
                let mut ended = None;
                for _ in 0..round * 3 {
                    ended = ended.or_else(|| request.test());
                }
                let ended = ended.unwrap_or_else(|| {
                    request.cancel();
                    request.wait()
                });
                match ended {
                    Ok(done) => {
                        expect(done.status, 0, 7, len);
                        assert_eq!(done.buffer, bytes(round, len));
                    }
                    Err(failed) => {
                        assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
                        assert_eq!(failed.buffer, Some(vec![0xee; len]), "no byte was received");
                        assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(round, len));
                    }
                }
                job.comm.send(&[0u8; 0], Rank(0), 2)?;
            }
            Ok(())
        });
        let rule = "a cancelled send arrives whole or not at all, and the next message is received";
        cases.add(format!("cancel.send.{size}"), 2, rule, move |job| {
            let len = len(job);
            if job.rank() == 0 {
                let request = job.comm.isend(bytes(1, len), Rank(1), 7)?;
                request.cancel();
                let is_sent = match request.wait() {
                    Ok(done) => {
                        assert_eq!(done.buffer, bytes(1, len));
                        true
                    }
                    Err(failed) => {
                        assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
                        false
                    }
                };
                return job.comm.send(&[u8::from(is_sent)], Rank(1), 8);
            }
            let mut is_sent = [0u8];
            job.comm.recv(&mut is_sent, Rank(0), 8)?;
            match job.comm.try_probe(Rank(0), 7) {
                Ok(Some(status)) => {
                    expect(status, 0, 7, len);
                    // If only the envelope of the cancelled message has arrived, the message cannot be received.
                    match job.comm.recv_vec::<u8>(Rank(0), 7) {
                        Ok(done) => assert_eq!(done.buffer, bytes(1, len)),
                        Err(Error::Abandoned { .. } | Error::PeerFailed { .. }) if is_sent == [0] => {}
                        Err(error) => return Err(error),
                    }
                }
                _ => assert_eq!(is_sent, [0], "a message that was sent is there"),
            }
            Ok(())
        });
    }
    cases.add("cancel.twice", 1, "a second cancel changes nothing", |job| {
        let request = job.comm.irecv(vec![1u8], Source::ANY, 7)?;
        request.cancel();
        request.cancel();
        let failed = request.wait().expect_err("it was cancelled");
        assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
        Ok(())
    });
    cases.add("cancel.completed", 1, "a cancel after the end changes nothing", |job| {
        let me = job.comm.rank();
        let send = job.comm.isend(vec![4u8], me, 7)?;
        let receive = job.comm.irecv(vec![0u8], me, 7)?;
        expect(job.comm.sendrecv(&[1u8], me, 8, &mut [0u8], me, 8)?, me.0, 8, 1);
        send.wait()?;
        receive.cancel();
        assert_eq!(receive.wait()?.buffer, [4]);
        Ok(())
    });
    cases.add("cancel.scope", 2, "an operation of a scope is cancelled alone", |job| {
        if job.rank() == 0 {
            return job.comm.send(&[5u8], Rank(1), 8);
        }
        let (mut first, mut second) = ([1u8], [0u8]);
        job.comm.scope(|scope| {
            let cancelled = scope.irecv(&mut first, Rank(0), 7)?;
            let kept = scope.irecv(&mut second, Rank(0), 8)?;
            scope.cancel(&cancelled);
            expect_error!(scope.wait(cancelled), Error::Cancelled { .. } | Error::PeerFailed { .. });
            scope.wait(kept)?;
            Ok(())
        })?;
        assert_eq!((first, second), ([1], [5]));
        Ok(())
    });
    cases.add("cancel.drop", 2, "a receive that is dropped takes no message", |job| {
        if job.rank() == 0 {
            job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
            return job.comm.send(&[5u8], Rank(1), 7);
        }
        drop(job.comm.irecv(vec![0u8], Rank(0), Tag::ANY)?);
        drop(job.comm.irecv(vec![0u8], Source::ANY, 7)?);
        job.comm.send(&[0u8; 0], Rank(0), 1)?;
        let mut byte = [0u8];
        job.comm.recv(&mut byte, Rank(0), 7)?;
        assert_eq!(byte, [5]);
        Ok(())
    });
    cases.add(
        "cancel.handle",
        2,
        "a used cancel ends the calls of its communicator at once, and no others",
        |job| {
            let cancel = CancelToken::new();
            let bounded = job.comm.with_cancel(&cancel);
            cancel.cancel();
            expect_error!(bounded.recv(&mut [0u8], job.other(), 7), Error::Cancelled { .. });
            expect_error!(bounded.probe(job.other(), 7), Error::Cancelled { .. });
            expect_error!(bounded.claim(job.other(), 7), Error::Cancelled { .. });
            job.barrier()
        },
    );
    bounded(cases);
}

fn bounded(cases: &mut Cases) {
    cases.section("3.5");
    cases.add("timeout.receive", 2, "a receive that timed out takes no message", |job| {
        if job.rank() == 0 {
            job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
            return job.comm.send(&[5u8], Rank(1), 7);
        }
        expect_error!(job.comm.with_timeout(SHORT).recv(&mut [0u8], Rank(0), 7), Error::TimedOut { .. });
        let late = job.comm.with_timeout(SHORT).irecv(vec![8u8], Rank(0), 7)?.wait().expect_err("it is late");
        assert!(matches!(late.error, Error::TimedOut { .. }), "{}", late.error);
        assert_eq!(late.buffer, Some(vec![8]));
        job.comm.send(&[0u8; 0], Rank(0), 1)?;
        let mut byte = [0u8];
        job.comm.recv(&mut byte, Rank(0), 7)?;
        assert_eq!(byte, [5]);
        Ok(())
    });
    cases.add(
        "timeout.long-send",
        2,
        "a send that times out before its receive is not received in part",
        |job| {
            if job.rank() == 0 {
                let is_sent = match job.comm.with_timeout(SHORT).send(&bytes(1, job.long), Rank(1), 7) {
                    Ok(()) => true,
                    Err(Error::TimedOut { .. }) => false,
                    Err(error) => return Err(error),
                };
                job.comm.send(&[u8::from(is_sent)], Rank(1), 8)?;
                return job.wait_for_release_from(1);
            }
            let mut is_sent = [0u8];
            job.comm.recv(&mut is_sent, Rank(0), 8)?;
            let mut buffer = vec![0u8; job.long];
            match job.comm.with_timeout(SHORT).recv(&mut buffer, Rank(0), 7) {
                Ok(status) => {
                    expect(status, 0, 7, job.long);
                    assert_eq!(buffer, bytes(1, job.long));
                }
                Err(error) => assert_eq!(is_sent, [0], "a message that was sent is received: {error}"),
            }
            job.wait_for_release_from(1)
        },
    );
    cases.add(
        "timeout.scope",
        2,
        "a scope ends when one of its operations times out, and cancels the rest",
        |job| {
            if job.rank() == 1 {
                return job.wait_for_release_from(0);
            }
            let (mut first, mut second) = ([0u8], [0u8]);
            let bounded = job.comm.with_timeout(SHORT);
            let ended = bounded.scope(|scope| {
                scope.irecv(&mut first, Rank(1), 7)?;
                scope.irecv(&mut second, Source::ANY, 8)?;
                Ok(())
            });
            expect_error!(ended, Error::TimedOut { .. });
            job.wait_for_release_from(0)
        },
    );
    cases.threads("cancel.from-a-thread", 2, "a cancel by another thread ends a waiting receive", |job| {
        let cancel = CancelToken::new();
        let bounded = job.comm.with_cancel(&cancel);
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| bounded.recv(&mut [0u8], job.other(), 7));
            cancel.cancel();
            expect_error!(waits.join().expect("it does not panic"), Error::Cancelled { .. });
        });
        job.barrier()
    });
    cases.threads("threads.each-its-own", 2, "threads of a rank send and receive at the same time", |job| {
        std::thread::scope(|threads| {
            let all: Vec<_> = (0..3u64)
                .map(|thread| {
                    threads.spawn(move || {
                        for round in 0..30 {
                            let (mine, mut theirs) = (bytes(thread + round, 500), vec![0u8; 500]);
                            job.comm.sendrecv(
                                &mine,
                                job.other(),
                                thread,
                                &mut theirs,
                                job.other(),
                                thread,
                            )?;
                            assert_eq!(theirs, mine);
                        }
                        Ok::<(), Error>(())
                    })
                })
                .collect();
            all.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
        })
    });
}
