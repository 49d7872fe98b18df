//! Messages do not overtake each other.

use samite::{Error, Rank, Source, Tag};

use crate::case::{Cases, Job, bytes, expect};

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.5");
    type Length = fn(&Job, u64) -> usize;
    let sizes: &[(&str, Length)] = &[
        ("short", |_, number| number as usize),
        ("packets", |_, number| 5_000 + number as usize),
        ("long", |job, number| job.long / 4 + number as usize),
        ("mixed", |job, number| [3, job.long / 4, 0, 5_000][number as usize % 4] + number as usize),
    ];
    for &(size, len) in sizes {
        let sources = [("rank", Source::from(Rank(0))), ("any-source", Source::ANY)];
        for (source, from) in sources {
            for (tags, tag) in
                [("tag", Tag::from(7)), ("any-tag", Tag::ANY), ("masked", Tag::masked(7, 0xff))]
            {
                let rule = "messages that match a receive are received in the order of their sends";
                cases.add(format!("order.{size}.{source}.{tags}"), 2, rule, move |job| {
                    for number in 0..12 {
                        if job.rank() == 0 {
                            job.comm.send(&bytes(number, len(job, number)), Rank(1), 7)?;
                        } else {
                            let done = job.comm.recv_vec::<u8>(from, tag)?;
                            expect(done.status, 0, 7, len(job, number));
                            assert_eq!(done.buffer, bytes(number, len(job, number)), "message {number}");
                        }
                    }
                    Ok(())
                });
            }
        }
        let rule = "receives are matched in the order in which they were posted";
        cases.add(format!("order.{size}.posted"), 2, rule, move |job| {
            if job.rank() == 0 {
                // When this message arrives, all receives are posted.
                job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                return (0..12)
                    .try_for_each(|number| job.comm.send(&bytes(number, len(job, number)), Rank(1), 7));
            }
            let room = len(job, 11).max(len(job, 9));
            let posted = (0..12).map(|_| job.comm.irecv(vec![0u8; room], Rank(0), 7));
            let posted: Vec<_> = posted.collect::<Result<_, _>>()?;
            job.comm.send(&[0u8; 0], Rank(0), 1)?;
            for (number, request) in (0..12).zip(posted) {
                let done = request.wait()?;
                expect(done.status, 0, 7, len(job, number));
                assert_eq!(
                    done.buffer[..done.status.bytes],
                    bytes(number, len(job, number)),
                    "message {number}"
                );
            }
            Ok(())
        });
        let rule =
            "nonblocking sends are matched in the order in which they were started, whenever they complete";
        cases.add(format!("order.{size}.started"), 2, rule, move |job| {
            if job.rank() == 0 {
                let sends = (0..12).map(|number| job.comm.isend(bytes(number, len(job, number)), Rank(1), 7));
                let mut sends: Vec<_> = sends.collect::<Result<_, _>>()?;
                sends.reverse();
                for send in sends {
                    send.wait()?;
                }
            } else {
                for number in 0..12 {
                    let done = job.comm.recv_vec::<u8>(Source::ANY, Tag::ANY)?;
                    assert_eq!(done.buffer, bytes(number, len(job, number)), "message {number}");
                }
            }
            Ok(())
        });
    }
    selections(cases);
    several(cases);
}

fn selections(cases: &mut Cases) {
    cases.add(
        "order.tags-overtake",
        2,
        "a receive takes the message with its tag, past earlier ones",
        |job| {
            if job.rank() == 0 {
                let sends = (0..8u64).map(|tag| job.comm.isend(vec![tag], Rank(1), tag));
                for send in sends.collect::<Result<Vec<_>, _>>()? {
                    send.wait()?;
                }
            } else {
                for tag in (0..8u64).rev() {
                    let mut word = [0u64];
                    expect(job.comm.recv(&mut word, Rank(0), tag)?, 0, tag, 8);
                    assert_eq!(word, [tag]);
                }
            }
            Ok(())
        },
    );
    let rule = "a message goes to the first matching receive, be it posted with a wildcard or not";
    for (name, wild_first) in [("wildcard-first", true), ("wildcard-last", false)] {
        cases.add(format!("order.{name}"), 2, rule, move |job| {
            if job.rank() == 0 {
                job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
                job.comm.send(&[10u8], Rank(1), 7)?;
                return job.comm.send(&[20u8], Rank(1), 7);
            }
            let wild = |job: &Job| job.comm.irecv(vec![0u8], Source::ANY, Tag::ANY);
            let exact = |job: &Job| job.comm.irecv(vec![0u8], Rank(0), 7);
            let (first, second) = match wild_first {
                true => (wild(job)?, exact(job)?),
                false => (exact(job)?, wild(job)?),
            };
            job.comm.send(&[0u8; 0], Rank(0), 1)?;
            assert_eq!(first.wait()?.buffer, [10]);
            assert_eq!(second.wait()?.buffer, [20]);
            Ok(())
        });
    }
    cases.add("order.other-tag-waits", 2, "a message passes a posted receive for another tag", |job| {
        if job.rank() == 0 {
            job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
            job.comm.send(&[20u8], Rank(1), 8)?;
            job.comm.recv(&mut [0u8; 0], Rank(1), 2)?;
            return job.comm.send(&[10u8], Rank(1), 7);
        }
        let mut first = job.comm.irecv(vec![0u8], Rank(0), 7)?;
        let second = job.comm.irecv(vec![0u8], Rank(0), 8)?;
        job.comm.send(&[0u8; 0], Rank(0), 1)?;
        assert_eq!(second.wait()?.buffer, [20]);
        assert!(first.test().is_none(), "it has no message yet");
        job.comm.send(&[0u8; 0], Rank(0), 2)?;
        assert_eq!(first.wait()?.buffer, [10]);
        Ok(())
    });
    cases.add("order.blocking-and-nonblocking", 2, "blocking and nonblocking sends have one order", |job| {
        if job.rank() == 0 {
            for number in (0..10u8).step_by(2) {
                let request = job.comm.isend(vec![number], Rank(1), 7)?;
                job.comm.send(&[number + 1], Rank(1), 7)?;
                request.wait()?;
            }
        } else {
            for number in 0..10u8 {
                let mut byte = [0u8];
                job.comm.recv(&mut byte, Rank(0), 7)?;
                assert_eq!(byte, [number]);
            }
        }
        Ok(())
    });
    cases.add(
        "order.unposted-and-posted",
        2,
        "messages that came before a receive come before later ones",
        |job| {
            if job.rank() == 0 {
                let early = (0..5u8).map(|number| job.comm.isend(vec![number], Rank(1), 7));
                let early = early.collect::<Result<Vec<_>, _>>()?;
                job.comm.send(&[0u8; 0], Rank(1), 1)?;
                for number in 5..10u8 {
                    job.comm.send(&[number], Rank(1), 7)?;
                }
                for send in early {
                    send.wait()?;
                }
            } else {
                job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
                for number in 0..10u8 {
                    let mut byte = [0u8];
                    job.comm.recv(&mut byte, Rank(0), 7)?;
                    assert_eq!(byte, [number]);
                }
            }
            Ok(())
        },
    );
}

fn several(cases: &mut Cases) {
    cases.add(
        "order.by-source",
        4,
        "messages of each source keep their order among those of others",
        |job| {
            if job.rank() > 0 {
                return (0..10u64).try_for_each(|number| job.comm.send(&[number], Rank(0), 7));
            }
            let mut next = [0u64; 4];
            for _ in 0..30 {
                let mut number = [0];
                let status = job.comm.recv(&mut number, Source::ANY, 7)?;
                assert_eq!(number, [next[status.peer.index()]], "from rank {}", status.peer);
                next[status.peer.index()] += 1;
            }
            assert_eq!(next, [0, 10, 10, 10]);
            Ok(())
        },
    );
    cases.add(
        "order.transitive",
        3,
        "a message that another one's receipt has caused comes later for each pair",
        |job| {
            // Only messages between the same two ranks have an order. Rank 2 must get both messages, in either order.
            match job.rank() {
                0 => {
                    job.comm.send(&[1u8], Rank(2), 7)?;
                    job.comm.send(&[2u8], Rank(1), 7)
                }
                1 => {
                    job.comm.recv(&mut [0u8], Rank(0), 7)?;
                    job.comm.send(&[3u8], Rank(2), 7)
                }
                _ => {
                    let mut got = Vec::new();
                    for _ in 0..2 {
                        got.extend(job.comm.recv_vec::<u8>(Source::ANY, 7)?.buffer);
                    }
                    got.sort_unstable();
                    assert_eq!(got, [1, 3]);
                    Ok(())
                }
            }
        },
    );
    cases.add(
        "progress.two-sends",
        2,
        "of two matching operations one completes, whatever the others do",
        |job| {
            // Rank 1 receives rank 0's second message first. The first message, which no receive has matched, must not
            // delay the second (section 3.5, progress).
            if job.rank() == 0 {
                let first = job.comm.isend(bytes(1, job.long), Rank(1), 1)?;
                job.comm.send(&bytes(2, job.long), Rank(1), 2)?;
                first.wait()?;
            } else {
                assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 2)?.buffer, bytes(2, job.long));
                assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 1)?.buffer, bytes(1, job.long));
            }
            Ok(())
        },
    );
    cases.add(
        "progress.exchange",
        2,
        "two ranks that receive before they send nonblocking messages go on",
        |job| {
            let send = job.comm.isend(bytes(u64::from(job.rank()), job.long), job.other(), 7)?;
            let done = job.comm.recv_vec::<u8>(job.other(), 7)?;
            assert_eq!(done.buffer, bytes(u64::from(job.other().0), job.long));
            send.wait()?;
            Ok(())
        },
    );
    cases.add(
        "progress.ring",
        4,
        "a ring of exchanges does not deadlock, with messages of any length",
        |job| {
            let (next, previous) = job.ring();
            for len in [0, 100, job.long] {
                let mut theirs = vec![0u8; len];
                let mine = bytes(u64::from(job.rank()), len);
                expect(job.comm.sendrecv(&mine, next, 7, &mut theirs, previous, 7)?, previous.0, 7, len);
                assert_eq!(theirs, bytes(u64::from(previous.0), len));
            }
            Ok(())
        },
    );
    cases.add(
        "fairness.any-source",
        3,
        "each of two senders is received from, though the other one never pauses",
        |job| {
            const EACH: usize = 60;
            if job.rank() > 0 {
                return (0..EACH).try_for_each(|_| job.comm.send(&[job.rank()], Rank(0), 7));
            }
            let mut counts = [0; 3];
            for _ in 0..2 * EACH {
                let mut from = [0u32];
                let status = job.comm.recv(&mut from, Source::ANY, 7)?;
                assert_eq!(status.peer, Rank(from[0]));
                counts[from[0] as usize] += 1;
            }
            assert_eq!(counts, [0, EACH, EACH]);
            Ok::<(), Error>(())
        },
    );
}
