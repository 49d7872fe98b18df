//! Going on after failures: revoked communicators, communicators and agreements of the survivors.

use samite::reduction::{Max, Min, Sum};
use samite::{CancelToken, Comm, Error, Group, Rank, Source, Tag};

use crate::case::{Cases, Job, bytes, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    // MPI 4.1 has no such calls. The rules are those of "User Level Failure Mitigation", the proposal for MPI.
    cases.section("ULFM");
    revocations(cases);
    shrinks(cases);
    agreements(cases);
}

fn group(ranks: impl IntoIterator<Item = u32>) -> Group {
    Group::new(ranks.into_iter().map(Rank)).expect("each rank is there once")
}

/// Checks that the communicator works, and that all its members have the same group.
fn use_it(comm: &Comm) -> Result<(), Error> {
    let group = comm.group();
    let digest = group.iter().fold(17_u64, |digest, rank| digest.wrapping_mul(31) ^ u64::from(rank.0));
    let mut bounds = [digest, u64::from(comm.size())];
    comm.allreduce_in_place(&mut bounds, Max)?;
    assert_eq!(bounds, [digest, u64::from(comm.size())]);
    comm.allreduce_in_place(&mut bounds, Min)?;
    assert_eq!(bounds, [digest, u64::from(comm.size())]);
    let mut sum = vec![u64::from(comm.rank().0); 100];
    comm.allreduce_in_place(&mut sum, Sum)?;
    let size = u64::from(comm.size());
    assert_eq!(sum, vec![size * (size - 1) / 2; 100]);
    Ok(())
}

/// Shrinks until the members of the new communicator could use it: a member that fails late may be in the group.
fn shrink_until_usable(comm: &Comm) -> Result<Comm, Error> {
    let mut comm = comm.clone();
    loop {
        let next = comm.shrink()?;
        let is_usable = use_it(&next).is_ok();
        if next.agree(is_usable.into())?.flags == 1 {
            return Ok(next);
        }
        comm = next;
    }
}

/// Duplicates the communicator. Returns only when all members have the duplicate.
fn dup_for_all(job: &Job) -> Result<Comm, Error> {
    let duplicate = job.comm.dup()?;
    job.comm.agree(0).map(|_| duplicate)
}

fn revocations(cases: &mut Cases) {
    for n in [2, 3, 5] {
        cases.add(
            format!("revoke.pending.{n}"),
            n,
            "a revocation ends pending and later operations at all members",
            |job| {
                let work = job.comm.dup()?;
                if job.rank() == 0 {
                    work.revoke()?;
                } else {
                    let posted = work.irecv(vec![0u8; 8], Source::ANY, 7);
                    let ended = posted
                        .map_err(|failed| failed.error)
                        .and_then(|posted| posted.wait().map(drop).map_err(|failed| failed.error));
                    expect_error!(ended, Error::Revoked);
                }
                let other = Rank((job.rank() + 1) % job.size());
                expect_error!(work.send(&bytes(1, job.long), other, 7), Error::Revoked);
                expect_error!(work.recv(&mut [0u8], other, 7), Error::Revoked);
                expect_error!(work.recv(&mut [0u8], Source::ANY, Tag::ANY), Error::Revoked);
                expect_error!(work.barrier(), Error::Revoked);
                expect_error!(work.dup().map(drop), Error::Revoked);
                assert!(work.is_revoked() && !job.comm.is_revoked());
                use_it(&work.shrink()?)?;
                use_it(&job.comm)
            },
        );
    }
    cases.add("revoke.collective", 4, "a revocation ends a collective operation at all members", |job| {
        let work = job.comm.dup()?;
        let end = match job.rank() {
            3 => work.revoke().and(Err(Error::Revoked)),
            _ => work.allreduce_in_place(&mut vec![1_u64; job.long / 8], Sum),
        };
        expect_error!(end, Error::Revoked);
        use_it(&work.shrink()?)
    });
    cases.failure(
        "revoke.revoker-fails",
        5,
        "a revocation that one survivor knows gets to all, although the revoker fails",
        |job| {
            let work = dup_for_all(job)?;
            if job.rank() == 2 {
                work.revoke()?;
                job.die();
            }
            // The operation ends by the failure or by the revocation.
            let end = work.recv(&mut [0u8], Rank(2), 7);
            assert!(matches!(end, Err(Error::Revoked | Error::PeerFailed { .. })), "{end:?}");
            let knows = work.agree(work.is_revoked().into())?;
            if knows.flags == 1 {
                expect_error!(work.barrier(), Error::Revoked);
            }
            use_it(&shrink_until_usable(&work)?)
        },
    );
    cases.failure("revoke.world", 3, "the communicator of all ranks can be revoked", |job| {
        let apart = dup_for_all(job)?;
        if job.rank() == 1 {
            job.comm.revoke()?;
        }
        expect_error!(job.comm.recv(&mut [0u8], Source::ANY, 7), Error::Revoked);
        use_it(&apart)?;
        use_it(&job.comm.shrink()?)
    });
}

fn shrinks(cases: &mut Cases) {
    for (n, dead) in [(2, 1), (3, 0), (5, 2), (8, 5)] {
        cases.failure(
            format!("shrink.{n}.{dead}"),
            n,
            "the survivors get a communicator without the failed ranks",
            move |job| {
                if job.rank() == dead {
                    job.die();
                }
                let survivors = job.comm.shrink()?;
                assert_eq!(survivors.group(), group((0..job.size()).filter(|rank| *rank != dead)));
                use_it(&survivors)
            },
        );
    }
    cases.failure(
        "shrink.during",
        6,
        "ranks that fail while the survivors shrink do not prevent that",
        |job| {
            match job.rank() {
                0 | 4 => {
                    // It has begun, and its messages may or may not be received.
                    let _begun = job.comm.ishrink()?;
                    job.die();
                }
                5 => {
                    let _ = job.comm.shrink();
                    job.die();
                }
                _ => use_it(&shrink_until_usable(&job.comm)?),
            }
        },
    );
    cases.add("shrink.cancelled", 3, "a member that cancels its shrink leaves the others in peace", |job| {
        if job.rank() == 1 {
            let token = CancelToken::new();
            token.cancel();
            expect_error!(job.comm.with_cancel(&token).shrink().map(drop), Error::Cancelled { .. });
        } else {
            let survivors = job.comm.shrink()?;
            assert_eq!(survivors.size(), job.size());
            expect_error!(survivors.recv(&mut [0u8], Rank(1), 7), Error::PeerFailed { rank: Rank(1), .. });
        }
        job.comm.barrier()
    });
}

fn agreements(cases: &mut Cases) {
    for n in [1, 2, 3, 5, 8] {
        cases.add(format!("agree.flags.{n}"), n, "the members agree on the flags that all have set", |job| {
            for round in 0..5 {
                let flags = !(1_u64 << (job.rank() + round));
                let pending = job.comm.iagree(flags)?;
                let expected = !(((1 << job.size()) - 1) << round);
                assert_eq!(job.comm.agree(flags)?.flags, expected);
                let agreement = pending.wait()?;
                assert_eq!((agreement.flags, agreement.failed.len()), (expected, 0));
            }
            Ok(())
        });
    }
    cases.failure(
        "agree.failed",
        5,
        "the survivors agree on the failed members, and report them until all have acknowledged them",
        |job| {
            if job.rank() == 3 {
                job.die();
            }
            // Each survivor learns of the failure before it takes part.
            expect_error!(job.comm.recv(&mut [0u8], Rank(3), 7), Error::PeerFailed { .. });
            assert_eq!(job.comm.failed()?, group([3]));
            if job.rank() != 1 {
                assert_eq!(job.comm.acknowledge()?, group([3]));
            }
            let agreement = job.comm.agree(1 << job.rank())?;
            assert_eq!((agreement.flags, agreement.failed), (0, group([3])));
            job.comm.acknowledge()?;
            assert_eq!(job.comm.agree(6)?.failed.len(), 0);
            // A receive from any source waits again.
            match job.rank() {
                0 => assert_eq!(job.comm.recv(&mut [0u8], Source::ANY, 9)?.peer, Rank(4)),
                4 => job.comm.send(&[1u8], Rank(0), 9)?,
                _ => {}
            }
            Ok(())
        },
    );
    cases.failure("agree.during", 6, "the survivors get one result, although members fail", |job| {
        let comm = dup_for_all(job)?;
        let mine = !(1_u64 << job.rank());
        if job.rank() % 3 == 0 {
            let _begun = comm.iagree(mine)?;
            job.die();
        }
        let agreement = comm.agree(mine)?;
        let survivors = shrink_until_usable(&comm)?;
        let mut flags = [agreement.flags, !agreement.flags];
        survivors.allreduce_in_place(&mut flags, Max)?;
        assert_eq!(flags, [agreement.flags, !agreement.flags], "all have the same result");
        Ok(())
    });
}
