//! Wildcards and masks.

use samite::{Error, Rank, Source, Tag};

use crate::case::{Cases, SHORT, expect, expect_error};

/// The name of a case, a message's tag, the tag and the mask of a pattern, and whether the pattern matches the message.
const MASKS: &[(&str, u64, u64, u64, bool)] = &[
    ("exact", 7, 7, u64::MAX, true),
    ("one-bit-differs", 7, 6, u64::MAX, false),
    ("highest-bit", 1 << 63, 1 << 63, 1 << 63, true),
    ("highest-bit-missing", 7, 1 << 63, 1 << 63, false),
    ("low-half", 0xffff_ffff_0000_0007, 7, 0xffff_ffff, true),
    ("low-half-differs", 0xffff_ffff_0000_0007, 8, 0xffff_ffff, false),
    ("high-half", 5 << 32 | 9, 5 << 32, u64::MAX << 32, true),
    ("high-half-differs", 6 << 32 | 9, 5 << 32, u64::MAX << 32, false),
    ("no-bits", 0x1234, 0x4321, 0, true),
    ("bits-outside-the-mask", 0x12, 0xf2, 0x0f, true),
    ("alternating", 0xaaaa_aaaa_aaaa_aaaa, 0xaaaa_aaaa_aaaa_aaaa, 0xaaaa_aaaa_aaaa_aaaa, true),
    ("zero-tag", 0, 0, u64::MAX, true),
    ("largest-tag", u64::MAX, u64::MAX, u64::MAX, true),
    ("largest-is-not-zero", u64::MAX, 0, u64::MAX, false),
];

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.2.4");
    for &(name, tag, of, mask, matches) in MASKS {
        for posted in [false, true] {
            let when = if posted { "posted" } else { "waiting" };
            let rule = "a receive takes the messages whose tags agree with its own in the bits of its mask";
            cases.add(format!("mask.{name}.{when}"), 2, rule, move |job| {
                let fallback = Tag::ANY;
                if job.rank() == 0 {
                    if posted {
                        job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                        job.comm.send(&[5u8], Rank(1), tag)?;
                    } else {
                        let send = job.comm.isend(vec![5u8], Rank(1), tag)?;
                        job.comm.send(&[0u8; 0], Rank(1), 1)?;
                        send.wait()?;
                    }
                    return job.wait_for_release_from(1);
                }
                if !posted {
                    job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
                }
                let mut request = job.comm.irecv(vec![0u8], Rank(0), Tag::masked(of, mask))?;
                if posted {
                    job.comm.send(&[0u8; 0], Rank(0), 1)?;
                }
                if matches {
                    let done = request.wait()?;
                    expect(done.status, 0, tag, 1);
                    assert_eq!(done.buffer, [5]);
                } else {
                    // The message does not match the first receive, so it reaches the receive that is posted second.
                    expect(job.comm.recv(&mut [0u8], Rank(0), fallback)?, 0, tag, 1);
                    assert!(request.test().is_none());
                    request.cancel();
                    let failed = request.wait().expect_err("nothing matches it");
                    assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
                }
                job.wait_for_release_from(1)
            });
        }
    }
    let rule = "a wildcard receive tells source and tag of its message in the status";
    cases.add("wildcard.status", 4, rule, |job| {
        if job.rank() > 0 {
            let rank = job.rank();
            return job.comm.send(&vec![1u8; rank as usize], Rank(0), u64::from(rank) * 100);
        }
        let mut seen = [false; 4];
        for _ in 1..4 {
            let mut buffer = [0u8; 8];
            let status = job.comm.recv(&mut buffer, Source::ANY, Tag::ANY)?;
            let rank = status.peer.0;
            expect(status, rank, u64::from(rank) * 100, rank as usize);
            assert!(!std::mem::replace(&mut seen[rank as usize], true));
        }
        assert_eq!(seen, [false, true, true, true]);
        Ok(())
    });
    cases.add("wildcard.named-source", 3, "a receive from one rank takes nothing of another", |job| {
        match job.rank() {
            0 => {
                // The message of rank 1 has arrived before rank 2 sends its message.
                job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                let mut receive = job.comm.irecv(vec![0u8], Rank(2), Tag::ANY)?;
                assert!(receive.test().is_none());
                job.comm.send(&[0u8; 0], Rank(2), 1)?;
                assert_eq!(receive.wait()?.buffer, [20]);
                let mut byte = [0u8];
                expect(job.comm.recv(&mut byte, Source::ANY, Tag::ANY)?, 1, 7, 1);
                assert_eq!(byte, [10]);
            }
            1 => {
                let send = job.comm.isend(vec![10u8], Rank(0), 7)?;
                job.comm.send(&[0u8; 0], Rank(0), 1)?;
                send.wait()?;
            }
            _ => {
                job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
                job.comm.send(&[20u8], Rank(0), 7)?;
            }
        }
        Ok(())
    });
    cases.add(
        "wildcard.any-source-includes-self",
        2,
        "a receive from any source takes a rank's own message",
        |job| {
            let me = job.comm.rank();
            let send = job.comm.isend(vec![42u8], me, 9)?;
            let mut byte = [0u8];
            expect(job.comm.recv(&mut byte, Source::ANY, 9)?, me.0, 9, 1);
            assert_eq!(byte, [42]);
            send.wait()?;
            job.barrier()
        },
    );
    cases.add("wildcard.no-message", 2, "a wildcard receive does not end without a message", |job| {
        if job.rank() == 0 {
            let waits = job.comm.with_timeout(SHORT).recv(&mut [0u8], Source::ANY, Tag::ANY);
            expect_error!(waits, Error::TimedOut { .. });
        }
        job.wait_for_release_from(0)
    });
    let rule =
        "receives from named ranks and from any take the messages in the order of posting, over all sources";
    cases.add("wildcard.mixed", 3, rule, |job| {
        if job.rank() > 0 {
            job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
            (0..2u32).try_for_each(|number| job.comm.send(&[job.rank() * 10 + number], Rank(0), 7))?;
            return job.wait_for_release_from(0);
        }
        // For rank 1, post the receive that names it before the receives from any source. For rank 2, post them in the
        // other order.
        let of_one = job.comm.irecv(vec![0u32], Rank(1), 7)?;
        let any = [job.comm.irecv(vec![0u32], Source::ANY, 7)?, job.comm.irecv(vec![0u32], Source::ANY, 7)?];
        let of_two = job.comm.irecv(vec![0u32], Rank(2), 7)?;
        job.comm.send(&[0u8; 0], Rank(1), 1)?;
        job.comm.send(&[0u8; 0], Rank(2), 1)?;
        assert_eq!(of_one.wait()?.buffer, [10]);
        let first = any.into_iter().map(|request| Ok(request.wait()?.buffer[0]));
        let mut got = first.collect::<Result<Vec<u32>, Error>>()?;
        // If the two wildcard receives took one message of rank 2, the receive that names rank 2 gets the other message
        // of rank 2. If they took both, the receive that names rank 2 is cancelled, and a later receive gets the last
        // message of rank 1.
        let mut rest = Vec::new();
        if got.contains(&20) && !got.contains(&21) {
            rest.push(of_two.wait()?.buffer[0]);
            assert_eq!(rest, [21]);
        } else if got.contains(&21) {
            of_two.cancel();
            assert!(of_two.wait().is_err());
        } else {
            panic!("both wildcards took messages of rank 1, which sent one more only: {got:?}");
        }
        got.extend(rest);
        while got.len() < 3 {
            let mut number = [0u32];
            job.comm.recv(&mut number, Source::ANY, 7)?;
            got.push(number[0]);
        }
        got.sort_unstable();
        assert_eq!(got, [11, 20, 21]);
        job.wait_for_release_from(0)
    });
}
