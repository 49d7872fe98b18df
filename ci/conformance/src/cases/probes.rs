//! Probes and claims.

use samite::{Error, Rank, Source, Tag};

use crate::case::{Cases, SHORT, bytes, expect, expect_error, until};
use crate::cases::transfers::SIZES;

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.8.1");
    for &(size, len) in SIZES {
        cases.add(
            format!("probe.status.{size}"),
            2,
            "a probe tells what the receive gets, and takes nothing",
            move |job| {
                let len = len(job);
                if job.rank() == 0 {
                    job.comm.send(&bytes(1, len), Rank(1), 7)?;
                    return job.wait_for_release_from(1);
                }
                for _ in 0..3 {
                    expect(job.comm.probe(Source::ANY, Tag::ANY)?, 0, 7, len);
                    assert_eq!(job.comm.try_probe(Rank(0), 7)?.map(|status| status.bytes), Some(len));
                }
                let mut buffer = vec![0; len];
                expect(job.comm.recv(&mut buffer, Rank(0), 7)?, 0, 7, len);
                assert_eq!(buffer, bytes(1, len));
                assert_eq!(job.comm.try_probe(Source::ANY, 7)?, None);
                job.wait_for_release_from(1)
            },
        );
    }
    cases.add("probe.first-match", 2, "a probe finds the message that the receive would take", |job| {
        if job.rank() == 0 {
            let sends =
                (1..=4u64).map(|number| job.comm.isend(vec![0u8; number as usize], Rank(1), number % 2));
            for send in sends.collect::<Result<Vec<_>, _>>()? {
                send.wait()?;
            }
            return Ok(());
        }
        for (tag, lens) in [(0, [2, 4]), (1, [1, 3])] {
            for len in lens {
                expect(job.comm.probe(Rank(0), tag)?, 0, tag, len);
                expect(job.comm.recv(&mut [0u8; 9], Rank(0), tag)?, 0, tag, len);
            }
        }
        Ok(())
    });
    cases.add("probe.by-source", 3, "a probe of any source, then a receive from the rank it names", |job| {
        if job.rank() > 0 {
            return (0..8u64).try_for_each(|number| job.comm.send(&[number; 3], Rank(0), 7));
        }
        let mut next = [0u64; 3];
        for _ in 0..16 {
            let status = job.comm.probe(Source::ANY, 7)?;
            let mut words = vec![0u64; status.bytes / 8];
            assert_eq!(job.comm.recv(&mut words, status.peer, status.tag)?, status);
            assert_eq!(words, [next[status.peer.index()]; 3]);
            next[status.peer.index()] += 1;
        }
        Ok(())
    });
    cases.add("probe.none", 2, "a probe that does not wait finds nothing while there is nothing", |job| {
        if job.rank() == 0 {
            assert_eq!(job.comm.try_probe(Source::ANY, Tag::ANY)?, None);
            expect_error!(job.comm.with_timeout(SHORT).probe(Rank(1), Tag::ANY), Error::TimedOut { .. });
        }
        job.wait_for_release_from(0)
    });
    cases.add(
        "probe.posted-first",
        2,
        "a message that a posted receive takes is not found by a probe",
        |job| {
            if job.rank() == 0 {
                job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                job.comm.send(&[1u8], Rank(1), 7)?;
                return job.comm.send(&[2u8, 3], Rank(1), 7);
            }
            let posted = job.comm.irecv(vec![0u8; 4], Rank(0), 7)?;
            job.comm.send(&[0u8; 0], Rank(0), 1)?;
            expect(job.comm.probe(Rank(0), 7)?, 0, 7, 2);
            expect(posted.wait()?.status, 0, 7, 1);
            job.comm.recv(&mut [0u8; 2], Rank(0), 7)?;
            Ok(())
        },
    );
    cases.add("probe.progress", 2, "a loop of probes that do not wait finds the message in the end", |job| {
        if job.rank() == 0 {
            return job.comm.send(&bytes(5, job.long), Rank(1), 7);
        }
        let status = until(job, || job.comm.try_probe(Rank(0), 7))?;
        expect(status, 0, 7, job.long);
        assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(5, job.long));
        Ok(())
    });
    claims(cases);
}

fn claims(cases: &mut Cases) {
    cases.section("3.8.2");
    for &(size, len) in SIZES {
        let rule = "a claimed message is matched by no other receive or probe";
        cases.add(format!("claim.exclusive.{size}"), 2, rule, move |job| {
            let len = len(job);
            if job.rank() == 0 {
                let first = job.comm.isend(bytes(1, len), Rank(1), 7)?;
                job.comm.send(&bytes(2, len + 1), Rank(1), 7)?;
                first.wait()?;
                return Ok(());
            }
            let claimed = job.comm.claim(Rank(0), 7)?;
            expect(claimed.status(), 0, 7, len);
            expect(job.comm.probe(Rank(0), 7)?, 0, 7, len + 1);
            assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(2, len + 1));
            assert_eq!(claimed.recv::<u8>()?.buffer, bytes(1, len));
            Ok(())
        });
        let rule = "claimed messages are received in any order";
        cases.add(format!("claim.reversed.{size}"), 2, rule, move |job| {
            let len = len(job);
            if job.rank() == 0 {
                let sends = (0..4).map(|number| job.comm.isend(bytes(number, len), Rank(1), 7));
                for send in sends.collect::<Result<Vec<_>, _>>()? {
                    send.wait()?;
                }
                return Ok(());
            }
            let claimed =
                (0..4).map(|_| job.comm.claim(Source::ANY, Tag::ANY)).collect::<Result<Vec<_>, _>>()?;
            for (number, message) in claimed.into_iter().enumerate().rev() {
                assert_eq!(message.recv::<u8>()?.buffer, bytes(number as u64, len), "message {number}");
            }
            Ok(())
        });
        let rule = "a claimed message that is dropped is consumed, and its sender goes on";
        cases.add(format!("claim.dropped.{size}"), 2, rule, move |job| {
            let len = len(job);
            if job.rank() == 0 {
                // The receiver claims this message and drops the claim. The send ends all the same, with an error if
                // the receiver has not taken its bytes.
                match job.comm.send(&bytes(1, len), Rank(1), 7) {
                    Ok(()) | Err(Error::Abandoned { rank: Rank(1), .. }) => {}
                    Err(error) => return Err(error),
                }
                return job.comm.send(&[9u8], Rank(1), 7);
            }
            drop(job.comm.claim(Rank(0), 7)?);
            let mut byte = [0u8];
            expect(job.comm.recv(&mut byte, Rank(0), 7)?, 0, 7, 1);
            assert_eq!(byte, [9]);
            Ok(())
        });
    }
    cases.add("claim.none", 2, "a claim that does not wait finds nothing while there is nothing", |job| {
        if job.rank() == 0 {
            assert!(job.comm.try_claim(Source::ANY, Tag::ANY)?.is_none());
            expect_error!(job.comm.with_timeout(SHORT).claim(Rank(1), Tag::ANY), Error::TimedOut { .. });
        }
        job.wait_for_release_from(0)
    });
    cases.add(
        "claim.elements",
        2,
        "a claimed message that is not made of whole elements is an error",
        |job| {
            if job.rank() == 0 {
                return job.comm.send(&[1u8; 10], Rank(1), 7);
            }
            expect_error!(
                job.comm.claim(Rank(0), 7)?.recv::<u32>(),
                Error::PartialElement { element: 4, .. }
            );
            Ok(())
        },
    );
    cases.add("claim.by-source", 4, "claims of any source take each message once", |job| {
        if job.rank() > 0 {
            (0..6u64).try_for_each(|number| job.comm.send(&[number], Rank(0), 7))?;
            return job.wait_for_release_from(0);
        }
        let mut counts = [0u64; 4];
        for _ in 0..18 {
            let message = job.comm.claim(Source::ANY, 7)?;
            let peer = message.status().peer;
            let done = message.recv::<u64>()?;
            assert_eq!((done.status.peer, &done.buffer[..]), (peer, &[counts[peer.index()]][..]));
            counts[peer.index()] += 1;
        }
        assert_eq!(counts, [0, 6, 6, 6]);
        assert!(job.comm.try_claim(Source::ANY, Tag::ANY)?.is_none());
        job.wait_for_release_from(0)
    });
    cases.add("claim.many-held", 2, "messages stay whole while many are claimed", |job| {
        const HELD: u64 = 24;
        if job.rank() == 0 {
            let sends =
                (0..HELD).map(|number| job.comm.isend(bytes(number, 200 * number as usize), Rank(1), number));
            for send in sends.collect::<Result<Vec<_>, _>>()? {
                send.wait()?;
            }
            return Ok(());
        }
        let held = (0..HELD).rev().map(|tag| job.comm.claim(Rank(0), tag)).collect::<Result<Vec<_>, _>>()?;
        for message in held {
            let tag = message.status().tag;
            assert_eq!(message.recv::<u8>()?.buffer, bytes(tag, 200 * tag as usize));
        }
        Ok(())
    });
}
