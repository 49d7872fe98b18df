//! Lanes, and futures.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use samite::{CancelToken, Error, Rank, Source, Tag};

use super::transfers::SIZES;
use crate::case::{Cases, SHORT, bytes, expect, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    // The rules of order in this section also apply to each thread that uses a communicator.
    cases.section("11.6");
    lanes(cases);
    cases.section("3.7.3");
    futures(cases);
}

fn lanes(cases: &mut Cases) {
    for &(size, length) in SIZES {
        cases.threads(
            format!("lanes.{size}"),
            2,
            "messages of one lane do not match in another",
            move |job| {
                let lane = job.comm.lane(1)?;
                let len = length(job);
                let (first, second) = (bytes(1, len), bytes(2, len));
                let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
                let mut receive = lane.irecv(vec![0; len], Source::ANY, Tag::ANY)?;
                job.comm.sendrecv(&first, job.other(), 7, &mut ours, Source::ANY, Tag::ANY)?;
                job.barrier()?;
                assert!(receive.test().is_none());
                job.barrier()?;
                let sent = lane.isend(second.clone(), job.other(), 7)?;
                theirs.copy_from_slice(&receive.wait()?.buffer);
                sent.wait()?;
                assert_eq!((ours, theirs), (first, second));
                Ok(())
            },
        );
    }
    cases.threads("lanes.order", 2, "each lane keeps its own order, with a thread for each", |job| {
        let lanes = [job.comm.lane(0)?, job.comm.lane(1)?];
        thread::scope(|threads| {
            for (number, lane) in (0..).zip(&lanes) {
                threads.spawn(move || {
                    for round in 0..200_u32 {
                        let mut theirs = [0; 2];
                        lane.sendrecv(&[number, round], job.other(), 7, &mut theirs, Source::ANY, 7).unwrap();
                        assert_eq!(theirs, [number, round]);
                    }
                });
            }
        });
        Ok(())
    });
    cases.threads(
        "lanes.created",
        2,
        "a created communicator has all lanes, whichever the call was made on",
        |job| {
            for creator in [job.comm.lane(0)?, job.comm.lane(1)?] {
                let created = creator.dup()?;
                for number in [1, 0] {
                    let lane = created.lane(number)?;
                    let mut theirs = [0];
                    lane.sendrecv(&[number as u8], job.other(), 7, &mut theirs, job.other(), 7)?;
                    assert_eq!(theirs, [number as u8]);
                }
            }
            Ok(())
        },
    );
    cases.threads("lanes.persistent", 2, "persistent and partitioned operations stay in their lane", |job| {
        let lane = job.comm.lane(1)?;
        let mut send = lane.send_init(vec![1u8], job.other(), 7)?;
        let mut receive = lane.recv_init(vec![0u8], job.other(), 7)?;
        let mut psend = lane.psend_init(vec![2u8; 8], 4, job.other(), 7)?;
        let mut precv = lane.precv_init(vec![0u8; 8], 2, job.other(), 7)?;
        for _ in 0..3 {
            samite::start_all(&mut [&mut send, &mut receive])?;
            psend.start()?;
            precv.start()?;
            psend.ready(0..4)?;
            receive.wait()?;
            send.wait()?;
            psend.wait()?;
            precv.wait()?;
            assert_eq!((&receive.buffer()?[..], &precv.buffer_mut()?[..]), (&[1][..], &[2; 8][..]));
        }
        Ok(())
    });
    cases.threads("lanes.missing", 1, "a lane that does not exist is an error", |job| {
        expect_error!(job.comm.lane(2), Error::NoSuchLane { lane: 2, lanes: 2 });
        Ok(())
    });
}

/// Polls a future in this thread until it is ready. The thread sleeps between the polls.
fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn futures(cases: &mut Cases) {
    for &(size, length) in SIZES {
        let rule = "an awaited request returns what a wait for it would return";
        cases.threads(format!("await.{size}"), 2, rule, move |job| {
            let len = length(job);
            for round in 0..4 {
                let receive = job.comm.irecv(vec![0; len], job.other(), round)?;
                let send = job.comm.isend(bytes(round, len), job.other(), round)?;
                let received = block_on(receive)?;
                expect(received.status, job.other().0, round, len);
                assert_eq!((received.buffer, block_on(send)?.buffer), (bytes(round, len), bytes(round, len)));
            }
            Ok(())
        });
        let rule = "an awaited claim takes one message, which no other receive gets";
        cases.threads(format!("await.claim.{size}"), 2, rule, move |job| {
            let len = length(job);
            let sends = [1, 2].map(|seed| job.comm.isend(bytes(seed, len), job.other(), 7));
            expect(block_on(job.comm.probe_async(Source::ANY, Tag::ANY))?, job.other().0, 7, len);
            let first = block_on(job.comm.claim_async(job.other(), 7))?;
            assert_eq!(job.comm.recv_vec::<u8>(job.other(), 7)?.buffer, bytes(2, len));
            assert_eq!(block_on(first.irecv(vec![0; len])?)?.buffer, bytes(1, len));
            sends.into_iter().try_for_each(|send| send?.wait().map(|_| ()).map_err(Error::from))
        });
    }
    cases.threads("await.time-out", 1, "a time-out ends each future", |job| {
        let bounded = job.comm.with_timeout(SHORT);
        expect_error!(
            block_on(bounded.irecv(vec![0u8], Rank(0), 7)?).map_err(Error::from),
            Error::TimedOut { .. }
        );
        expect_error!(block_on(bounded.probe_async(Rank(0), 7)), Error::TimedOut { .. });
        expect_error!(block_on(bounded.claim_async(Source::ANY, 7)), Error::TimedOut { .. });
        Ok(())
    });
    cases.threads("await.cancel", 1, "a cancel ends each future", |job| {
        let cancel = CancelToken::new();
        let bounded = job.comm.with_cancel(&cancel);
        thread::scope(|threads| {
            threads.spawn(|| cancel.cancel());
            expect_error!(
                block_on(bounded.irecv(vec![0u8], Rank(0), 7)?).map_err(Error::from),
                Error::Cancelled { .. }
            );
            expect_error!(block_on(bounded.probe_async(Rank(0), 7)), Error::Cancelled { .. });
            expect_error!(block_on(bounded.claim_async(Source::ANY, 7)), Error::Cancelled { .. });
            Ok(())
        })
    });
    cases.threads("await.dropped", 1, "a future that is dropped takes no message", |job| {
        for _ in 0..3 {
            let mut claim = Box::pin(job.comm.claim_async(Rank(0), 7));
            let mut receive = Box::pin(job.comm.irecv(vec![0u8], Rank(0), 7)?.into_future());
            let context = &mut Context::from_waker(Waker::noop());
            assert!(claim.as_mut().poll(context).is_pending() && receive.as_mut().poll(context).is_pending());
        }
        job.comm.send(&[5u8], Rank(0), 7)?;
        assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, [5]);
        Ok(())
    });
    cases.threads(
        "await.callback",
        2,
        "a callback gets the result once, and may begin the next operation",
        |job| {
            let (sender, ended) = std::sync::mpsc::channel();
            for number in 0..20_u64 {
                let (sender, comm, other) = (sender.clone(), job.comm.clone(), job.other());
                job.comm.irecv(vec![0u64], job.other(), number)?.on_end(move |end| {
                    let _ = comm.send(&end.map_or([0], |done| [done.buffer[0] + 1]), other, 100 + number);
                    let _ = sender.send(number);
                });
            }
            (0..20_u64).try_for_each(|number| job.comm.send(&[number], job.other(), number))?;
            for number in 0..20_u64 {
                let mut next = [0];
                job.comm.recv(&mut next, job.other(), 100 + number)?;
                assert_eq!(next, [number + 1]);
            }
            let mut numbers: Vec<_> = ended.iter().take(20).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..20));
            Ok(())
        },
    );
}
