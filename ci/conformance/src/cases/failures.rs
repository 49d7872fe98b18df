//! Ranks that end: every operation that another rank has with them ends too.

use samite::{Error, Failed, Rank, Source, Tag};

use crate::case::{Cases, bytes, expect, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.7.3");
    cases.failure("failure.receive", 2, "a receive from a rank that fails ends with that failure", |job| {
        if job.rank() == 1 {
            job.die();
        }
        expect_error!(job.comm.recv(&mut [0u8], Rank(1), 7), Error::PeerFailed { rank: Rank(1), .. });
        Ok(())
    });
    cases.failure(
        "failure.posted",
        2,
        "posted receives from a rank that fails end with that failure",
        |job| {
            if job.rank() == 1 {
                job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
                job.die();
            }
            let posted = (0..4u64).map(|tag| job.comm.irecv(vec![0u8; 8], Rank(1), tag));
            let posted = posted.collect::<Result<Vec<_>, _>>()?;
            // The result is ignored: the receiver may end before it acknowledges the message.
            let _ = job.comm.send(&[0u8; 0], Rank(1), 1);
            for request in posted {
                let failed = request.wait().expect_err("its source has failed");
                assert!(matches!(failed.error, Error::PeerFailed { rank: Rank(1), .. }), "{}", failed.error);
                assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(8), "the buffer comes back");
            }
            Ok(())
        },
    );
    cases.failure("failure.send", 2, "sends to a rank that has failed end with that failure", |job| {
        if job.rank() == 1 {
            job.die();
        }
        // Repeat the send until it reports the failure, which becomes known after some time.
        let failed = (0..).find_map(|_| job.comm.send(&bytes(1, job.long), Rank(1), 7).err());
        assert!(matches!(failed, Some(Error::PeerFailed { rank: Rank(1), .. })), "{failed:?}");
        Ok(())
    });
    cases.failure(
        "failure.any-source",
        3,
        "a receive from any source reports a failure once, then goes on",
        |job| match job.rank() {
            1 => job.die(),
            2 => {
                job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
                job.comm.send(&[5u8], Rank(0), 7)
            }
            _ => {
                let reported = job.comm.recv(&mut [0u8], Source::ANY, Tag::ANY);
                expect_error!(reported, Error::FailurePending { rank: Rank(1), .. });
                job.comm.send(&[0u8; 0], Rank(2), 1)?;
                let mut byte = [0u8];
                expect(job.comm.recv(&mut byte, Source::ANY, Tag::ANY)?, 2, 7, 1);
                assert_eq!(byte, [5]);
                Ok(())
            }
        },
    );
    cases.failure(
        "failure.deserted",
        3,
        "a receive from any source ends when no rank is left that could send",
        |job| {
            if job.rank() > 0 {
                job.die();
            }
            let mut reported = Vec::new();
            loop {
                match job.comm.recv(&mut [0u8], Source::ANY, Tag::ANY) {
                    Err(Error::FailurePending { rank, .. }) => reported.push(rank),
                    Err(Error::Deserted) => break,
                    other => panic!("expected FailurePending or Deserted, got {other:?}"),
                }
            }
            reported.sort_unstable_by_key(|rank| rank.0);
            assert_eq!(reported, [Rank(1), Rank(2)]);
            Ok(())
        },
    );
    cases.failure(
        "failure.other-ranks",
        3,
        "the failure of one rank leaves the messages of others alone",
        |job| {
            if job.rank() == 2 {
                job.die();
            }
            for round in 0..10 {
                let mut theirs = vec![0u8; 4_000];
                let mine = bytes(round, 4_000);
                expect(
                    job.comm.sendrecv(&mine, job.other(), 7, &mut theirs, job.other(), 7)?,
                    job.other().0,
                    7,
                    4_000,
                );
                assert_eq!(theirs, mine);
            }
            Ok(())
        },
    );
    cases.failure(
        "failure.set",
        3,
        "in a set the operations with a failed rank fail, the others complete",
        |job| {
            match job.rank() {
                1 => job.die(),
                2 => return job.comm.send(&[5u8], Rank(0), 7),
                _ => {}
            }
            let mut set = job.comm.request_set::<Vec<u8>>();
            let dead = set.insert(job.comm.irecv(vec![0], Rank(1), 7)?).expect("of this world");
            let alive = set.insert(job.comm.irecv(vec![0], Rank(2), 7)?).expect("of this world");
            for (key, end) in set.wait_all() {
                match end {
                    Ok(done) => assert_eq!((key, &done.buffer[..]), (alive, &[5][..])),
                    Err(failed) => {
                        assert_eq!(key, dead);
                        assert!(
                            matches!(failed.error, Error::PeerFailed { rank: Rank(1), .. }),
                            "{}",
                            failed.error
                        );
                    }
                }
            }
            Ok(())
        },
    );
    let rule = "in a set the rounds with a failed rank fail, and their operations come back";
    cases.failure("failure.set-rounds", 3, rule, |job| {
        match job.rank() {
            1 => job.die(),
            2 => return job.comm.send(&[5u8], Rank(0), 7),
            _ => {}
        }
        let mut set = job.comm.request_set();
        let mut alive = job.comm.recv_init(vec![0u8], Rank(2), 7)?;
        alive.start()?;
        let alive = set.insert(alive.into_request()).expect("of this world");
        let mut dead = job.comm.recv_init(vec![0u8], Rank(1), 7)?;
        // If the failure is known already, no round can be started.
        let started = dead.start();
        let dead = set.insert(dead.into_request()).expect("of this world");
        let mut ends = set.wait_all();
        ends.sort_by_key(|(key, _)| *key == dead);
        let [(first, received), (_, failed)] = ends.try_into().expect("both have ended");
        assert_eq!(first, alive);
        assert_eq!(*received?.buffer.buffer()?, [5]);
        let Failed { error, buffer } = failed.expect_err("rank 1 has ended");
        let error = started.err().unwrap_or(error);
        assert!(matches!(error, Error::PeerFailed { rank: Rank(1), .. }), "{error}");
        expect_error!(buffer.expect("it comes back").start(), Error::PeerFailed { .. });
        Ok(())
    });
    cases.failure("failure.probe", 2, "probe and claim of a rank that fails end with that failure", |job| {
        if job.rank() == 1 {
            job.die();
        }
        expect_error!(job.comm.probe(Rank(1), 7), Error::PeerFailed { rank: Rank(1), .. });
        expect_error!(job.comm.claim(Rank(1), 7), Error::PeerFailed { rank: Rank(1), .. });
        Ok(())
    });
    cases.failure(
        "failure.left",
        2,
        "a rank that leaves sends what it has sent, and then ends receives from it",
        |job| {
            if job.rank() == 1 {
                return job.comm.send(&bytes(3, job.long), Rank(0), 7);
            }
            let done = job.comm.recv_vec::<u8>(Rank(1), 7)?;
            assert_eq!(done.buffer, bytes(3, job.long));
            expect_error!(job.comm.recv(&mut [0u8], Rank(1), 8), Error::PeerFailed { rank: Rank(1), .. });
            Ok(())
        },
    );
    cases.section("7.4.2");
    cases.failure(
        "failure.creation",
        4,
        "a creation that a member does not survive ends at all others",
        |job| {
            if job.rank() == 3 {
                job.die();
            }
            match job.comm.dup() {
                Err(Error::PeerFailed { .. }) => {}
                // A creation may succeed at some ranks and fail at others only if a rank fails while the creation ends.
                // The dead rank took no part in this creation, so the creation must fail.
                other => panic!("expected PeerFailed, got {other:?}"),
            }
            Ok(())
        },
    );
    cases.failure(
        "failure.survivors",
        4,
        "the survivors of a failure create a communicator of their own",
        |job| {
            if job.rank() == 1 {
                job.die();
            }
            expect_error!(job.comm.recv(&mut [0u8], Rank(1), 7), Error::PeerFailed { rank: Rank(1), .. });
            let survivors = job.comm.group().exclude([1]);
            let comm = job.comm.create_from_group(&survivors, 1)?;
            assert_eq!((comm.rank().0, comm.size()), ([0, 9, 1, 2][job.rank() as usize], 3));
            crate::case::barrier(&comm)
        },
    );
    cases.failure(
        "failure.derived-names",
        3,
        "errors name a failed rank in the communicator and in the world",
        |job| {
            let reversed = job.comm.split(Some(0), -i64::from(job.rank()))?.expect("it has a colour");
            if job.rank() == 0 {
                // When these messages have arrived, the other ranks have the communicator.
                for rank in [0, 1] {
                    reversed.recv(&mut [0u8; 0], Rank(rank), 1)?;
                }
                job.die();
            }
            // The result is ignored: the receiver may end before it acknowledges the message.
            let _ = reversed.send(&[0u8; 0], Rank(2), 1);
            let failed = reversed.recv(&mut [0u8], Rank(2), 7);
            expect_error!(failed, Error::PeerFailed { rank: Rank(2), world_rank: Rank(0), .. });
            Ok(())
        },
    );
}
