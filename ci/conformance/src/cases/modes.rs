//! Modes of sends, over every way to send.

use samite::{BUFFERED_OVERHEAD, CancelToken, Comm, Error, Failed, Mode, Rank, Source};

use crate::case::{Cases, Job, SHORT, bytes, expect, expect_error, until};
use crate::cases::transfers::{SENDS, SIZES, SendBy};

/// The tag of messages by which a rank informs the other rank about the state of a case.
const GO: u64 = 1;

pub(crate) fn add(cases: &mut Cases) {
    for way in ways() {
        for &(size, len) in &SIZES[1..] {
            each_mode(cases, way, size, len);
        }
        synchronous(cases, way);
        buffered(cases, way);
        ready(cases, way);
    }
    buffers(cases);
    mixed(cases);
}

/// Returns the ways to send one message in the mode of a handle.
fn ways() -> impl Iterator<Item = SendBy> {
    let persistent = SendBy {
        name: "persistent",
        section: "3.9",
        send: |comm, data, to, tag| {
            let mut send = comm.send_init(data.to_vec(), to, tag)?;
            send.start()?;
            let status = send.wait()?;
            assert_eq!((status.tag, status.bytes), (tag, data.len()));
            assert_eq!(send.buffer()?, data);
            Ok(())
        },
    };
    // `sendrecv` is left out, since a message to this rank itself would need a receive that is posted already.
    SENDS.iter().filter(|way| way.name != "sendrecv").copied().chain([persistent])
}

fn each_mode(cases: &mut Cases, way: SendBy, size: &str, len: fn(&Job) -> usize) {
    let SendBy { name, send, .. } = way;
    for (mode, word) in
        [(Mode::Synchronous, "synchronous"), (Mode::Buffered, "buffered"), (Mode::Ready, "ready")]
    {
        cases.section(if name == "persistent" { "3.9" } else { "3.4" });
        let rule = format!("a {word} {name} transfers its bytes to a receive that is posted");
        cases.add(format!("mode.{word}.{name}.{size}"), 2, rule, move |job| {
            let len = len(job);
            if job.rank() == 0 {
                let comm = job.comm.with_mode(mode);
                for round in 0..2 {
                    job.comm.recv(&mut [0u8; 0], Rank(1), GO)?;
                    send(&comm, &bytes(round, len), Rank(1), 7)?;
                }
                return comm.flush_buffer();
            }
            for round in 0..2 {
                let receive = job.comm.irecv(vec![0u8; len], Rank(0), 7)?;
                job.comm.send(&[0u8; 0], Rank(0), GO)?;
                let done = receive.wait()?;
                expect(done.status, 0, 7, len);
                assert_eq!(done.buffer, bytes(round, len));
            }
            Ok(())
        });
    }
}

fn synchronous(cases: &mut Cases, SendBy { name, send, .. }: SendBy) {
    cases.section("3.4");
    for (size, long) in [("short", false), ("long", true)] {
        let rule = "a synchronous send does not end before its receive has begun";
        cases.add(format!("mode.synchronous.waits.{name}.{size}"), 2, rule, move |job| {
            let data = bytes(1, if long { job.long } else { 33 });
            if job.rank() == 0 {
                let comm = job.comm.with_mode(Mode::Synchronous);
                expect_error!(send(&comm.with_timeout(SHORT), &data, Rank(1), 7), Error::TimedOut { .. });
                return job.comm.send(&[0u8; 0], Rank(1), GO);
            }
            job.comm.recv(&mut [0u8; 0], Rank(0), GO)?;
            // The message was withdrawn. If it is long and was matched before, its remaining bytes never arrive.
            match job.comm.try_probe(Rank(0), 7) {
                Ok(None) | Err(Error::PeerFailed { .. }) => Ok(()),
                other => panic!("{other:?}"),
            }
        });
    }
    let rule = "a synchronous send ends when its message is received, in the order of the messages";
    cases.add(format!("mode.synchronous.order.{name}"), 2, rule, move |job| {
        if job.rank() == 0 {
            let comm = job.comm.with_mode(Mode::Synchronous);
            job.comm.send(&[0u8], Rank(1), 7)?;
            send(&comm, &[1], Rank(1), 7)?;
            return job.comm.send(&[2u8], Rank(1), 7);
        }
        for number in 0..3 {
            assert_eq!(job.comm.recv_vec::<u8>(Source::ANY, 7)?.buffer, [number]);
        }
        Ok(())
    });
}

fn buffered(cases: &mut Cases, SendBy { name, send, .. }: SendBy) {
    cases.section("3.6");
    for (size, long) in [("short", false), ("long", true)] {
        let rule = "buffered sends end without their receives, and their messages keep their order";
        cases.add(format!("mode.buffered.at-once.{name}.{size}"), 2, rule, move |job| {
            let len = if long { job.long } else { 33 };
            if job.rank() == 0 {
                let comm = job.comm.with_buffer(3 * (len + BUFFERED_OVERHEAD)).with_mode(Mode::Buffered);
                (0..3).try_for_each(|number| send(&comm, &bytes(number, len), Rank(1), 7))?;
                job.comm.send(&[0u8; 0], Rank(1), GO)?;
                return comm.flush_buffer();
            }
            let last = job.comm.irecv(vec![0u8; 0], Rank(0), GO)?;
            for number in 0..3 {
                assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(number, len));
            }
            last.wait()?;
            Ok(())
        });
    }
    let rule = "a buffered send without room in the buffer is an error, and sends nothing";
    cases.add(format!("mode.buffered.no-room.{name}"), 2, rule, move |job| {
        if job.rank() == 0 {
            let comm = job.comm.with_buffer(0).with_mode(Mode::Buffered);
            // A message that is too long to be sent at once needs the buffer.
            let sent = send(&comm, &bytes(1, job.long), Rank(1), 7);
            expect_error!(sent, Error::Exhausted { .. });
            comm.flush_buffer()?;
            return job.comm.send(&[9u8], Rank(1), 7);
        }
        assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, [9]);
        Ok(())
    });
}

fn ready(cases: &mut Cases, SendBy { name, send, .. }: SendBy) {
    cases.section("3.4");
    for (size, long) in [("short", false), ("long", true)] {
        let rule = "under a check, a ready send without its receive is an error, and its message is dropped";
        cases.add(format!("mode.ready.unposted.{name}.{size}"), 2, rule, move |job| {
            if job.rank() == 0 {
                let comm = job.comm.with_mode(Mode::Ready);
                let data = bytes(1, if long { job.long } else { 33 });
                expect_error!(send(&comm, &data, Rank(1), 7), Error::NotPosted { rank: Rank(1) });
                return job.comm.send(&[9u8], Rank(1), 7);
            }
            assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, [9]);
            Ok(())
        });
    }
}

fn buffers(cases: &mut Cases) {
    cases.section("3.6");
    cases.add("buffer.flush", 2, "after a flush the buffer is empty, and holds as much as before", |job| {
        let len = job.long;
        if job.rank() == 0 {
            let comm = job.comm.with_buffer(len + BUFFERED_OVERHEAD).with_mode(Mode::Buffered);
            for round in 0..3 {
                comm.send(&bytes(round, len), Rank(1), 7)?;
                comm.flush_buffer()?;
            }
            return Ok(());
        }
        for round in 0..3 {
            assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(round, len));
        }
        Ok(())
    });
    cases.add("buffer.flush-of-nothing", 1, "a flush of an empty buffer returns", |job| {
        job.comm.flush_buffer()?;
        job.comm.with_buffer(7).flush_buffer()
    });
    cases.add("buffer.flush-bounded", 2, "a flush of a message that is not received has bounds", |job| {
        if job.rank() == 0 {
            let comm = job.comm.with_buffer(2 * job.long).with_mode(Mode::Buffered);
            comm.send(&bytes(1, job.long), Rank(1), 7)?;
            let cancel = CancelToken::new();
            cancel.cancel();
            // The bytes of a streamed message follow its envelope without a request, and may have been sent already.
            // Then a flush succeeds.
            let flushed = [comm.with_timeout(SHORT).flush_buffer(), comm.with_cancel(&cancel).flush_buffer()];
            for (end, is_cancelled) in flushed.into_iter().zip([false, true]) {
                match end {
                    Ok(()) => {}
                    Err(Error::TimedOut { .. }) if !is_cancelled => {}
                    Err(Error::Cancelled { .. }) if is_cancelled => {}
                    Err(error) => return Err(error),
                }
            }
            job.comm.send(&[0u8; 0], Rank(1), GO)?;
            return comm.flush_buffer();
        }
        let go = job.comm.irecv(vec![0u8; 0], Rank(0), GO)?;
        go.wait()?;
        assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(1, job.long));
        Ok(())
    });
    cases.add("buffer.apart", 2, "communicators with buffers of their own do not share them", |job| {
        let len = job.long;
        if job.rank() == 0 {
            let first = job.comm.with_buffer(len + BUFFERED_OVERHEAD).with_mode(Mode::Buffered);
            let second = job.comm.with_buffer(len + BUFFERED_OVERHEAD).with_mode(Mode::Buffered);
            first.send(&bytes(1, len), Rank(1), 7)?;
            second.send(&bytes(2, len), Rank(1), 7)?;
            first.flush_buffer()?;
            return second.flush_buffer();
        }
        for number in 1..3 {
            assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(number, len));
        }
        Ok(())
    });
    cases.add(
        "buffer.outlives-its-handle",
        2,
        "messages in a buffer are sent after its last handle",
        |job| {
            if job.rank() == 0 {
                let comm = job.comm.with_buffer(2 * job.long).with_mode(Mode::Buffered);
                comm.send(&bytes(1, job.long), Rank(1), 7)?;
                drop(comm);
                return job.comm.recv(&mut [0u8; 0], Rank(1), GO).map(drop);
            }
            assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(1, job.long));
            job.comm.send(&[0u8; 0], Rank(0), GO)
        },
    );
    cases.add("buffer.default", 2, "without a buffer of its own a communicator uses the process's", |job| {
        if job.rank() == 0 {
            let comm = job.comm.with_mode(Mode::Buffered);
            comm.send(&bytes(1, job.long), Rank(1), 7)?;
            return job.comm.flush_buffer();
        }
        assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(1, job.long));
        Ok(())
    });
}

fn mixed(cases: &mut Cases) {
    cases.section("3.5");
    cases.add("mode.order", 2, "messages of all modes are received in the order they were sent", |job| {
        if job.rank() == 0 {
            let modes = [Mode::Standard, Mode::Synchronous, Mode::Buffered];
            let sends: Vec<_> = (0..24u64)
                .map(|number| {
                    let comm = job.comm.with_mode(modes[number as usize % 3]);
                    comm.isend(bytes(number, 1 << (number / 2)), Rank(1), 7)
                })
                .collect::<Result<_, _>>()?;
            for send in sends {
                send.wait()?;
            }
            return Ok(());
        }
        for number in 0..24 {
            assert_eq!(job.comm.recv_vec::<u8>(Rank(0), 7)?.buffer, bytes(number, 1 << (number / 2)));
        }
        Ok(())
    });
    cases.section("3.4");
    cases.add("mode.handle", 1, "a mode concerns its handle alone, and what is derived from that", |job| {
        let me = job.comm.rank();
        let comm = job.comm.with_mode(Mode::Synchronous);
        let apart = comm.dup()?;
        for comm in [&comm, &comm.clone(), &apart] {
            let mut send = comm.isend(vec![1u8], me, 7)?;
            assert!(send.test().is_none(), "it is synchronous");
            comm.recv(&mut [0u8], me, 7)?;
            send.wait()?;
        }
        let standard = job.comm.isend(vec![1u8], me, 7)?;
        job.comm.recv(&mut [0u8], me, 7)?;
        standard.wait()?;
        Ok(())
    });
    cases.add(
        "mode.synchronous.probe",
        2,
        "a probe does not end a synchronous send, a receive does",
        |job| {
            if job.rank() == 0 {
                let mut send = job.comm.with_mode(Mode::Synchronous).isend(vec![3u8], Rank(1), 7)?;
                job.comm.recv(&mut [0u8; 0], Rank(1), GO)?;
                assert!(send.test().is_none(), "it was probed only");
                job.comm.send(&[0u8; 0], Rank(1), GO)?;
                send.wait()?;
                return Ok(());
            }
            expect(job.comm.probe(Rank(0), 7)?, 0, 7, 1);
            job.comm.send(&[0u8; 0], Rank(0), GO)?;
            job.comm.recv(&mut [0u8; 0], Rank(0), GO)?;
            job.comm.recv(&mut [0u8], Rank(0), 7)?;
            Ok(())
        },
    );
    cases.section("3.8.2");
    cases.add("mode.synchronous.claim", 2, "a synchronous send ends with the receive of a claim", |job| {
        if job.rank() == 0 {
            let mut send = job.comm.with_mode(Mode::Synchronous).isend(vec![3u8], Rank(1), 7)?;
            job.comm.recv(&mut [0u8; 0], Rank(1), GO)?;
            assert!(send.test().is_none(), "it was claimed only");
            job.comm.send(&[0u8; 0], Rank(1), GO)?;
            send.wait()?;
            return Ok(());
        }
        let message = job.comm.claim(Rank(0), 7)?;
        job.comm.send(&[0u8; 0], Rank(0), GO)?;
        job.comm.recv(&mut [0u8; 0], Rank(0), GO)?;
        assert_eq!(message.recv::<u8>()?.buffer, [3]);
        Ok(())
    });
    cases.section("3.8.4");
    cases.add(
        "mode.synchronous.cancel",
        2,
        "a cancelled synchronous send arrives whole or not at all",
        |job| {
            for round in 0..6u64 {
                if job.rank() == 0 {
                    let mut send =
                        job.comm.with_mode(Mode::Synchronous).isend(bytes(round, 60), Rank(1), 7)?;
                    let mut ended = None;
                    for _ in 0..round * 3 {
                        ended = ended.or_else(|| send.test());
                    }
                    let ended = ended.unwrap_or_else(|| {
                        send.cancel();
                        send.wait()
                    });
                    let is_sent = match ended {
                        Ok(_) => true,
                        Err(failed) => {
                            assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
                            assert_eq!(failed.buffer, Some(bytes(round, 60)));
                            false
                        }
                    };
                    job.comm.send(&[u8::from(is_sent)], Rank(1), 8)?;
                    job.comm.recv(&mut [0u8; 0], Rank(1), GO)?;
                    continue;
                }
                let mut receive = job.comm.irecv(vec![0xeeu8; 60], Rank(0), 7)?;
                let mut is_sent = [0u8];
                job.comm.recv(&mut is_sent, Rank(0), 8)?;
                let ended = receive.test().unwrap_or_else(|| {
                    receive.cancel();
                    receive.wait()
                });
                match ended {
                    Ok(done) => assert_eq!(done.buffer, bytes(round, 60)),
                    // The send was given up after the match, and the receive reports that.
                    Err(Failed { error: Error::Abandoned { .. }, .. }) => assert_eq!(is_sent, [0]),
                    Err(Failed { error, buffer }) => {
                        assert_eq!((is_sent, buffer), ([0], Some(vec![0xee; 60])), "{error}");
                    }
                }
                job.comm.send(&[0u8; 0], Rank(0), GO)?;
            }
            Ok(())
        },
    );
    cases.section("3.10");
    cases.add("mode.exchange", 2, "both halves of an exchange are in the mode of its handle", |job| {
        let comm = job.comm.with_mode(Mode::Synchronous);
        let mut theirs = [0u8; 3];
        comm.sendrecv(&[job.rank() as u8; 3], job.other(), 7, &mut theirs, job.other(), 7)?;
        assert_eq!(theirs, [1 - job.rank() as u8; 3]);
        let exchange = comm.isendrecv(vec![4u8], job.other(), 8, vec![0u8], job.other(), 8)?;
        assert_eq!(exchange.wait()?.buffer, [4]);
        Ok(())
    });
    cases.section("3.11");
    cases.add("mode.absent", 1, "sends of every mode to an absent partner end at once", |job| {
        for mode in [Mode::Standard, Mode::Synchronous, Mode::Buffered, Mode::Ready] {
            let comm: Comm = job.comm.with_mode(mode);
            comm.send(&[1u8], None, 7)?;
            assert_eq!(comm.isend(vec![1u8], None, 7)?.wait()?.buffer, [1]);
            let mut send = comm.send_init(vec![1u8], None, 7)?;
            send.start()?;
            send.wait()?;
        }
        Ok(())
    });
    cases.section("3.4");
    cases.add("mode.many", 3, "many synchronous sends to one rank end, each with its receive", |job| {
        const EACH: u64 = 20;
        if job.rank() > 0 {
            let comm = job.comm.with_mode(Mode::Synchronous);
            let mut set = comm.request_set();
            for number in 0..EACH {
                let _ = set.insert(comm.isend(bytes(number, 100), Rank(0), number)?);
            }
            for (_, end) in set.wait_all() {
                end?;
            }
            return Ok(());
        }
        for number in (0..EACH).rev() {
            for from in 1..3 {
                let done = until(job, || {
                    Ok(job.comm.try_claim(Rank(from), number)?.map(samite::Message::recv::<u8>))
                })??;
                assert_eq!(done.buffer, bytes(number, 100));
            }
        }
        Ok(())
    });
}
