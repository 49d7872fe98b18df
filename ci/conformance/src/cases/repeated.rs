//! Operations that repeat: persistent operations, and messages in partitions.

use samite::{Error, Rank, Source, Tag, start_all};

use super::transfers::SIZES;
use crate::case::{Cases, Job, SHORT, bytes, expect, expect_error, until};

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.9");
    persistent(cases);
    cases.section("4.2");
    partitioned(cases);
}

const ROUNDS: u64 = 4;

fn persistent(cases: &mut Cases) {
    for &(size, length) in SIZES {
        let rule = "each round of a persistent operation is a message of its own, with the present contents";
        cases.add(format!("persistent.{size}"), 2, rule, move |job| {
            let len = length(job);
            let mut send = job.comm.send_init(vec![0; len], job.other(), 7)?;
            let mut receive = job.comm.recv_init(vec![0; len], Source::ANY, Tag::ANY)?;
            for round in 0..ROUNDS {
                *send.buffer_mut()? = bytes(round, len);
                start_all(&mut [&mut receive, &mut send])?;
                expect(receive.wait()?, job.other().0, 7, len);
                send.wait()?;
                assert_eq!(*receive.buffer()?, bytes(round, len));
            }
            Ok(())
        });
        let rule = "a persistent operation matches an ordinary one, in the order of the starts";
        cases.add(format!("persistent.mixed.{size}"), 2, rule, move |job| {
            let len = length(job);
            if job.rank() == 0 {
                let mut send = job.comm.send_init(bytes(1, len), Rank(1), 7)?;
                send.start()?;
                let plain = job.comm.isend(bytes(2, len), Rank(1), 7)?;
                send.wait()?;
                send.start()?;
                plain.wait()?;
                return send.wait().map(|_| ());
            }
            for seed in [1, 2, 1] {
                assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(seed, len));
            }
            Ok(())
        });
    }
    cases.add("persistent.test", 2, "a test completes a round, which is inactive afterwards", |job| {
        let mut send = job.comm.send_init(vec![job.rank()], job.other(), 7)?;
        let mut receive = job.comm.recv_init(vec![0], job.other(), 7)?;
        for _ in 0..ROUNDS {
            start_all(&mut [&mut send, &mut receive])?;
            until(job, || send.test().transpose())?;
            until(job, || receive.test().transpose())?;
            assert!(!send.is_active() && !receive.is_active());
            assert_eq!(*receive.buffer()?, [job.other().0]);
        }
        Ok(())
    });
    cases.add("persistent.active", 1, "an active operation cannot be started, and keeps its buffer", |job| {
        let mut receive = job.comm.recv_init(vec![0u8], Rank(0), 7)?;
        let mut idle = job.comm.recv_init(vec![0u8], Rank(0), 8)?;
        expect_error!(receive.wait(), Error::Inactive);
        receive.start()?;
        expect_error!(receive.start(), Error::Active { .. });
        expect_error!(start_all(&mut [&mut idle, &mut receive]), Error::Active { .. });
        assert!(!idle.is_active(), "none was started");
        expect_error!(receive.buffer(), Error::Active { .. });
        job.comm.send(&[5u8], Rank(0), 7)?;
        receive.wait()?;
        assert_eq!(*receive.buffer()?, [5]);
        Ok(())
    });
    cases.add("persistent.cancel", 1, "a cancelled round ends, and the next one is a new operation", |job| {
        let mut receive = job.comm.recv_init(vec![0u8], Rank(0), 7)?;
        receive.start()?;
        receive.cancel();
        expect_error!(receive.wait(), Error::Cancelled { .. });
        receive.start()?;
        job.comm.send(&[5u8], Rank(0), 7)?;
        receive.wait()?;
        assert_eq!(*receive.buffer()?, [5]);
        Ok(())
    });
    cases.add("persistent.time-out", 1, "each round has a time-out of its own", |job| {
        let mut receive = job.comm.with_timeout(SHORT).recv_init(vec![0u8], Rank(0), 7)?;
        for _ in 0..2 {
            receive.start()?;
            expect_error!(receive.wait(), Error::TimedOut { .. });
        }
        Ok(())
    });
    cases.add("persistent.truncated", 2, "a message that is too long fails its round alone", |job| {
        if job.rank() == 0 {
            return [3, 2]
                .into_iter()
                .try_for_each(|len| job.comm.send(&bytes(len, len as usize), Rank(1), 7));
        }
        let mut receive = job.comm.recv_init(vec![0u8; 2], Rank(0), 7)?;
        receive.start()?;
        expect_error!(receive.wait(), Error::Truncated { room: 2, .. });
        receive.start()?;
        expect(receive.wait()?, 0, 7, 2);
        assert_eq!(*receive.buffer()?, bytes(2, 2));
        Ok(())
    });
}

/// The name of a case, and the numbers of partitions of the sender and of the receiver.
const CUTS: &[(&str, usize, usize)] =
    &[("one", 1, 1), ("alike", 6, 6), ("finer", 12, 4), ("coarser", 3, 12), ("across", 4, 6)];

fn partitioned(cases: &mut Cases) {
    for &(name, theirs, ours) in CUTS {
        let rule = "each round carries the whole message, however it is cut and in any order of the marks";
        cases.add(format!("partitioned.{name}"), 2, rule, move |job| {
            let len = job.long / 12 * 12;
            if job.rank() == 0 {
                let mut send = job.comm.psend_init(vec![0; len], theirs, Rank(1), 7)?;
                for round in 0..ROUNDS {
                    let message = bytes(round, len);
                    send.start()?;
                    let mut parts: Vec<_> = send.parts()?.collect();
                    parts.rotate_left(round as usize % theirs);
                    for mut part in parts {
                        let start = part.index() * (len / theirs);
                        part.copy_from_slice(&message[start..start + len / theirs]);
                        part.ready();
                    }
                    expect(send.wait()?, 1, 7, len);
                }
                return Ok(());
            }
            let mut receive = job.comm.precv_init(vec![0; len], ours, Rank(0), 7)?;
            for round in 0..ROUNDS {
                receive.start()?;
                until(job, || Ok(receive.arrived(0..1)?.then_some(())))?;
                assert_eq!(receive.partition(0)?.expect("it has arrived"), &bytes(round, len)[..len / ours]);
                expect(receive.wait()?, 0, 7, len);
                assert_eq!(receive.buffer_mut()?, bytes(round, len));
            }
            Ok(())
        });
    }
    let rule = "sends and receives are paired in the order of their initialization, not of their starts";
    cases.add("partitioned.order", 2, rule, |job| {
        if job.rank() == 0 {
            let mut sends = Vec::new();
            for seed in 0..5 {
                sends.push(job.comm.psend_init(bytes(seed, 100), 2, Rank(1), 7)?);
            }
            for send in sends.iter_mut().rev() {
                send.start()?;
                send.ready(0..2)?;
            }
            return sends.iter_mut().try_for_each(|send| send.wait().map(|_| ()));
        }
        let mut receives = Vec::new();
        for _ in 0..5 {
            receives.push(job.comm.precv_init(vec![0; 100], 5, Rank(0), 7)?);
        }
        receives.iter_mut().try_for_each(|receive| receive.start())?;
        for (seed, receive) in (0..).zip(&mut receives) {
            receive.wait()?;
            assert_eq!(receive.buffer_mut()?, bytes(seed, 100));
        }
        Ok(())
    });
    let rule = "a side that was dropped before it met its partner keeps its place in the order";
    for (name, drops) in [("partitioned.dropped-send", 0), ("partitioned.dropped-receive", 1)] {
        cases.add(name, 2, rule, move |job| {
            if job.rank() == drops {
                match drops {
                    0 => drop(job.comm.psend_init(vec![0u8; 4], 2, Rank(1), 7)?),
                    _ => drop(job.comm.precv_init(vec![0u8; 4], 2, Rank(0), 7)?),
                }
            } else if drops == 0 {
                let mut lonely = job.comm.precv_init(vec![0u8; 4], 2, Rank(0), 7)?;
                expect_error!(lonely.start().and_then(|()| lonely.wait()), Error::Abandoned { .. });
            } else {
                let mut lonely = job.comm.psend_init(vec![0u8; 4], 2, Rank(1), 7)?;
                let end = lonely.start().and_then(|()| lonely.ready(0..2)).and_then(|()| lonely.wait());
                expect_error!(end, Error::Abandoned { .. });
            }
            one_round(job)
        });
    }
    cases.add("partitioned.apart", 2, "messages in partitions match no other receive or send", |job| {
        if job.rank() == 0 {
            let mut send = job.comm.psend_init(bytes(1, 8), 2, Rank(1), 7)?;
            send.start()?;
            send.ready(0..2)?;
            job.comm.send(&[9u8], Rank(1), 7)?;
            return send.wait().map(|_| ());
        }
        expect(job.comm.recv(&mut [0u8; 8], Source::ANY, Tag::ANY)?, 0, 7, 1);
        let mut receive = job.comm.precv_init(vec![0; 8], 2, Rank(0), 7)?;
        receive.start()?;
        receive.wait()?;
        assert_eq!(receive.buffer_mut()?, bytes(1, 8));
        Ok(())
    });
    cases.add("partitioned.lengths", 2, "sides of different lengths end with an error", |job| {
        let end = if job.rank() == 0 {
            let mut send = job.comm.psend_init(vec![0u8; 8], 2, Rank(1), 7)?;
            send.start().and_then(|()| send.ready(0..2)).and_then(|()| send.wait())
        } else {
            let mut receive = job.comm.precv_init(vec![0u8; 6], 2, Rank(0), 7)?;
            receive.start().and_then(|()| receive.wait())
        };
        expect_error!(end, Error::LengthsDiffer { .. });
        Ok(())
    });
    cases.add("partitioned.misuse", 1, "a partition is marked once in a round, and only in a round", |job| {
        let mut send = job.comm.psend_init(vec![0u8; 8], 4, Rank(0), 7)?;
        expect_error!(send.ready(0..1), Error::Inactive);
        send.start()?;
        expect_error!(send.start(), Error::RoundActive);
        expect_error!(send.ready(3..5), Error::NoSuchPartition { .. });
        send.ready(1..3)?;
        expect_error!(send.ready(0..2), Error::PartitionTaken { .. });
        expect_error!(send.part(2), Error::PartitionTaken { .. });
        drop(send.part(0)?);
        send.ready(0..1)?;
        expect_error!(send.buffer_mut(), Error::RoundActive);
        expect_error!(
            job.comm.psend_init(vec![0u8; 8], 3, Rank(0), 8).map_err(Error::from),
            Error::UnevenPartitions { .. }
        );
        Ok(())
    });
    for len in [0, 1] {
        let rule = "partitions may have no bytes or one";
        cases.add(format!("partitioned.tiny-{len}"), 1, rule, move |job| {
            let mut send = job.comm.psend_init(vec![3u8; 4 * len], 4, Rank(0), 7)?;
            let mut receive = job.comm.precv_init(vec![0u8; 4 * len], 2, Rank(0), 7)?;
            for _ in 0..ROUNDS {
                send.start()?;
                receive.start()?;
                (0..4).rev().try_for_each(|part| send.ready(part..part + 1))?;
                send.wait()?;
                receive.wait()?;
                assert_eq!(receive.buffer_mut()?, vec![3; 4 * len]);
            }
            Ok(())
        });
    }
}

/// Sends a partitioned message from rank 0 to rank 1.
fn one_round(job: &Job) -> Result<(), Error> {
    if job.rank() == 0 {
        let mut send = job.comm.psend_init(bytes(9, 100), 4, Rank(1), 7)?;
        send.start()?;
        send.ready(0..4)?;
        return send.wait().map(|_| ());
    }
    let mut receive = job.comm.precv_init(vec![0; 100], 5, Rank(0), 7)?;
    receive.start()?;
    receive.wait()?;
    assert_eq!(receive.buffer_mut()?, bytes(9, 100));
    Ok(())
}
