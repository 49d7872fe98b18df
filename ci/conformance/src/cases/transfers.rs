//! Every way to send, to every way to receive: bytes, status, lengths.

use samite::{CheckedVec, Comm, Done, Error, Rank, Source, Status, Tag};

use crate::case::{Cases, Job, SHORT, bytes, expect, expect_error, until};

/// A way to send.
#[derive(Clone, Copy)]
pub(crate) struct SendBy {
    pub(crate) name: &'static str,
    pub(crate) section: &'static str,
    pub(crate) send: fn(&Comm, &[u8], Rank, u64) -> Result<(), Error>,
}

type Receive = fn(&Job, usize, Source, Tag) -> Result<Done<Vec<u8>>, Error>;

/// A way to receive at most `room` bytes from a source.
#[derive(Clone, Copy)]
pub(crate) struct RecvBy {
    pub(crate) name: &'static str,
    pub(crate) recv: Receive,
}

pub(crate) const SENDS: &[SendBy] = &[
    SendBy { name: "send", section: "3.2.1", send: |comm, data, to, tag| comm.send(data, to, tag) },
    SendBy {
        name: "isend",
        section: "3.7.2",
        send: |comm, data, to, tag| {
            let done = comm.isend(data.to_vec(), to, tag)?.wait()?;
            assert_eq!(done.buffer, data, "the request returns its data");
            Ok(())
        },
    },
    SendBy {
        name: "scope-isend",
        section: "3.7.2",
        send: |comm, data, to, tag| {
            comm.scope(|scope| {
                let send = scope.isend(data, to, tag)?;
                let status = scope.wait(send)?;
                assert_eq!((status.tag, status.bytes), (tag, data.len()));
                Ok(())
            })
        },
    },
    SendBy {
        name: "sendrecv",
        section: "3.10",
        send: |comm, data, to, tag| {
            let myself = comm.rank();
            let mut echo = [0u8; 3];
            let to_myself = comm.isend(vec![7u8, 8, 9], myself, ECHO)?;
            comm.sendrecv(data, to, tag, &mut echo, myself, ECHO)?;
            to_myself.wait()?;
            assert_eq!(echo, [7, 8, 9]);
            Ok(())
        },
    },
];

/// The tag of a rank's message to itself.
const ECHO: u64 = 1 << 40;

pub(crate) const RECVS: &[RecvBy] = &[
    RecvBy {
        name: "recv",
        recv: |job, room, from, tag| {
            let mut buffer = vec![0; room];
            let status = job.comm.recv(&mut buffer, from, tag)?;
            Ok(Done { buffer, status })
        },
    },
    RecvBy {
        name: "irecv",
        recv: |job, room, from, tag| Ok(job.comm.irecv(vec![0; room], from, tag)?.wait()?),
    },
    RecvBy {
        name: "irecv-test",
        recv: |job, room, from, tag| {
            let mut request = job.comm.irecv(vec![0; room], from, tag)?;
            let ended = until(job, || Ok(request.test()))?;
            Ok(ended?)
        },
    },
    RecvBy {
        name: "scope-irecv",
        recv: |job, room, from, tag| {
            let mut buffer = vec![0; room];
            let status = job.comm.scope(|scope| {
                let receive = scope.irecv(&mut buffer, from, tag)?;
                scope.wait(receive)
            })?;
            Ok(Done { buffer, status })
        },
    },
    RecvBy {
        name: "scope-test",
        recv: |job, room, from, tag| {
            let mut buffer = vec![0; room];
            let status = job.comm.scope(|scope| {
                let mut receive = scope.irecv(&mut buffer, from, tag)?;
                until(job, || scope.test(&mut receive).transpose())
            })?;
            Ok(Done { buffer, status })
        },
    },
    RecvBy {
        name: "probe-recv",
        recv: |job, _, from, tag| {
            let status = job.comm.probe(from, tag)?;
            let mut buffer = vec![0; status.bytes];
            let received = job.comm.recv(&mut buffer, status.peer, status.tag)?;
            assert_eq!(received, status);
            Ok(Done { buffer, status })
        },
    },
    RecvBy {
        name: "try-probe-recv",
        recv: |job, _, from, tag| {
            let status = until(job, || job.comm.try_probe(from, tag))?;
            let mut buffer = vec![0; status.bytes];
            let received = job.comm.recv(&mut buffer, status.peer, status.tag)?;
            assert_eq!(received, status);
            Ok(Done { buffer, status })
        },
    },
    RecvBy {
        name: "claim",
        recv: |job, _, from, tag| {
            let message = job.comm.claim(from, tag)?;
            let status = message.status();
            let done = message.recv()?;
            assert_eq!(done.status, status);
            Ok(done)
        },
    },
    RecvBy {
        name: "try-claim",
        recv: |job, _, from, tag| until(job, || job.comm.try_claim(from, tag))?.recv(),
    },
    RecvBy { name: "recv-vec", recv: |job, _, from, tag| job.comm.recv_vec(from, tag) },
];

type Length = fn(&Job) -> usize;

/// The lengths of messages that the cases use, with their names. A message of the length `packets` needs several
/// packets on some ports, and one packet on others. No port sends a message of the length `long` in one packet.
pub(crate) const SIZES: &[(&str, Length)] =
    &[("empty", |_| 0), ("short", |_| 33), ("packets", |_| 9_000), ("long", |job| job.long)];

pub(crate) fn add(cases: &mut Cases) {
    for &SendBy { name, section, send } in SENDS {
        for &RecvBy { name: by, recv } in RECVS {
            for &(size, len) in SIZES {
                cases.section(section);
                let rule = "the message arrives whole, with source, tag and length in the status";
                cases.add(format!("transfer.{name}.{by}.{size}"), 2, rule, move |job| {
                    let len = len(job);
                    // The tag of another message, which the receive must not match.
                    let other_tag = 6;
                    if job.rank() == 0 {
                        job.comm.scope(|scope| {
                            scope.isend(&[1u8], Rank(1), other_tag)?;
                            send(&job.comm, &bytes(7, len), Rank(1), 7)
                        })
                    } else {
                        let done = recv(job, len + 5, Rank(0).into(), 7.into())?;
                        expect(done.status, 0, 7, len);
                        assert_eq!(done.buffer[..len], bytes(7, len));
                        assert!(done.buffer[len..].iter().all(|&byte| byte == 0), "the rest is untouched");
                        let mut one = [0u8];
                        expect(job.comm.recv(&mut one, Rank(0), Tag::ANY)?, 0, other_tag, 1);
                        assert_eq!(one, [1]);
                        Ok(())
                    }
                });
            }
        }
    }
    truncation(cases);
    elements(cases);
    to_oneself(cases);
    invalid(cases);
}

fn truncation(cases: &mut Cases) {
    cases.section("3.2.4");
    // The ways to receive after a probe are left out: a probe reports the length, so the receive has room.
    for &RecvBy { name, recv } in RECVS[..5].iter() {
        for &(size, len) in &SIZES[1..] {
            let rule = "a message longer than the buffer is an error, and consumed; the next one is received";
            cases.add(format!("truncation.{name}.{size}"), 2, rule, move |job| {
                let len = len(job);
                if job.rank() == 0 {
                    job.comm.send(&bytes(1, len), Rank(1), 7)?;
                    job.comm.send(&bytes(2, len), Rank(1), 7)
                } else {
                    match recv(job, len - 1, Rank(0).into(), 7.into()) {
                        Err(Error::Truncated { status, room }) => {
                            expect(status, 0, 7, len);
                            assert_eq!(room, len - 1);
                        }
                        other => panic!("expected Truncated, got {other:?}"),
                    }
                    let done = recv(job, len, Rank(0).into(), 7.into())?;
                    assert_eq!(done.buffer, bytes(2, len));
                    Ok(())
                }
            });
        }
    }
    let rule = "no bytes beyond the buffer are changed when a message is longer";
    cases.add("truncation.neighbouring-bytes", 2, rule, |job| {
        if job.rank() == 0 {
            return job.comm.send(&[9u8; 64], Rank(1), 7);
        }
        let mut memory = [1u8; 64];
        expect_error!(job.comm.recv(&mut memory[..16], Rank(0), 7), Error::Truncated { room: 16, .. });
        assert_eq!(memory[16..], [1; 48]);
        Ok(())
    });
    cases.add("truncation.empty-buffer", 2, "an empty buffer has no room for a byte", |job| {
        if job.rank() == 0 {
            return job.comm.send(&[9u8], Rank(1), 7);
        }
        expect_error!(job.comm.recv(&mut [0u8; 0], Rank(0), 7), Error::Truncated { room: 0, .. });
        Ok(())
    });
    cases.add("truncation.sender", 2, "the sender of a message that is too long succeeds", |job| {
        if job.rank() == 0 {
            job.comm.send(&bytes(1, job.long), Rank(1), 7)?;
            expect(job.comm.recv(&mut [0u8], Rank(1), 8)?, 1, 8, 1);
        } else {
            expect_error!(job.comm.recv(&mut [0u8; 10], Rank(0), 7), Error::Truncated { .. });
            job.comm.send(&[1u8], Rank(0), 8)?;
        }
        Ok(())
    });
}

fn elements(cases: &mut Cases) {
    cases.section("3.2.2");
    cases.add(
        "elements.words",
        2,
        "elements of 8 bytes arrive with their values; the status counts bytes",
        |job| {
            let words: Vec<u64> = (0..500).map(|word| word << 40 | word).collect();
            if job.rank() == 0 {
                return job.comm.send(&words, Rank(1), 7);
            }
            let done = job.comm.recv_vec::<u64>(Rank(0), 7)?;
            expect(done.status, 0, 7, 4000);
            assert_eq!(done.buffer, words);
            Ok(())
        },
    );
    cases.add("elements.floats", 2, "floating-point values keep all bits, of NaN and -0 too", |job| {
        let values = [f64::NAN, -0.0, f64::INFINITY, f64::MIN_POSITIVE / 4.0, 1.0 / 3.0];
        if job.rank() == 0 {
            return job.comm.send(&values, Rank(1), 7);
        }
        let mut received = [0.0f64; 5];
        job.comm.recv(&mut received, Rank(0), 7)?;
        assert_eq!(received.map(f64::to_bits), values.map(f64::to_bits));
        Ok(())
    });
    cases.add("elements.checked", 2, "values that do not permit all bits arrive as they are", |job| {
        let (flags, letters) = ([true, false, true], ['a', 'ß', '\u{10ffff}']);
        if job.rank() == 0 {
            job.comm.send(&flags, Rank(1), 7)?;
            return job
                .comm
                .isend(CheckedVec::new(&letters), Rank(1), 7)?
                .wait()
                .map(drop)
                .map_err(Error::from);
        }
        let mut received = [false; 4];
        expect(job.comm.recv_checked(&mut received, Rank(0), 7)?, 0, 7, 3);
        assert_eq!(received, [true, false, true, false]);
        let done = job.comm.irecv(CheckedVec::new(&['-'; 3]), Rank(0), 7)?.wait()?;
        assert_eq!(done.buffer.to_vec(), letters);
        Ok(())
    });
    let rule = "values that do not permit all bits are received into borrowed buffers, several at a time";
    cases.add("elements.checked.scope", 2, rule, |job| {
        let (flags, letters) = (vec![true; job.long], ['a', 'ß', '\u{10ffff}']);
        let (mut theirs, mut received) = (vec![false; job.long + 1], ['-'; 4]);
        job.comm.scope(|scope| {
            let receives = [
                scope.irecv_checked(&mut theirs, job.other(), 7)?,
                scope.irecv_checked(&mut received, job.other(), 8)?,
            ];
            scope.isend(&letters, job.other(), 8)?;
            scope.isend(&flags, job.other(), 7)?;
            for (receive, (tag, bytes)) in receives.into_iter().zip([(7, job.long), (8, 12)]) {
                expect(scope.wait(receive)?, job.other().0, tag, bytes);
            }
            Ok(())
        })?;
        assert!(theirs[..job.long].iter().all(|flag| *flag) && !theirs[job.long]);
        assert_eq!(received, ['a', 'ß', '\u{10ffff}', '-']);
        Ok(())
    });
    let rule = "an invalid value ends a scope with an error, and the buffer is unchanged";
    cases.add("elements.invalid.scope", 2, rule, |job| {
        let (bytes, mut flags) = ([1u8, 0, 2], [true; 3]);
        let sent = job.comm.isend(bytes.to_vec(), job.other(), 7)?;
        let end = job.comm.scope(|scope| scope.irecv_checked(&mut flags, job.other(), 7).map(drop));
        match end {
            Err(Error::InvalidValue { status, index: 2, element: "bool" }) => {
                expect(status, job.other().0, 7, 3)
            }
            other => panic!("expected InvalidValue, got {other:?}"),
        }
        assert_eq!(flags, [true; 3]);
        sent.wait()?;
        Ok(())
    });
    cases.add(
        "elements.invalid",
        2,
        "bytes that are no value of the receiving type are an error, and the buffer is unchanged",
        |job| {
            if job.rank() == 0 {
                return job.comm.send(&[1u8, 0, 2], Rank(1), 7);
            }
            let mut flags = [true; 3];
            match job.comm.recv_checked(&mut flags, Rank(0), 7) {
                Err(Error::InvalidValue { status, index: 2, element: "bool" }) => expect(status, 0, 7, 3),
                other => panic!("expected InvalidValue, got {other:?}"),
            }
            assert_eq!(flags, [true; 3]);
            Ok(())
        },
    );
    cases.section("3.2.5");
    cases.add(
        "elements.partial",
        2,
        "bytes that are no whole number of elements are an error that tells the length",
        |job| {
            if job.rank() == 0 {
                return job.comm.send(&[1u8; 12], Rank(1), 7);
            }
            match job.comm.recv(&mut [0u64; 4], Rank(0), 7) {
                Err(Error::PartialElement { status, element: 8 }) => expect(status, 0, 7, 12),
                other => panic!("expected PartialElement, got {other:?}"),
            }
            Ok(())
        },
    );
    cases.add("elements.fewer", 2, "a message may have fewer elements than the buffer", |job| {
        if job.rank() == 0 {
            return job.comm.send(&[1u32, 2], Rank(1), 7);
        }
        let mut numbers = [9u32; 5];
        expect(job.comm.recv(&mut numbers, Rank(0), 7)?, 0, 7, 8);
        assert_eq!(numbers, [1, 2, 9, 9, 9]);
        Ok(())
    });
}

fn to_oneself(cases: &mut Cases) {
    cases.section("3.2.4");
    for &(size, len) in SIZES {
        cases.add(
            format!("self.irecv-first.{size}"),
            1,
            "a rank sends to itself after it has posted the receive",
            move |job| {
                let (len, me) = (len(job), job.comm.rank());
                let request = job.comm.irecv(vec![0u8; len], me, 7)?;
                job.comm.send(&bytes(3, len), me, 7)?;
                let done = request.wait()?;
                expect(done.status, 0, 7, len);
                assert_eq!(done.buffer, bytes(3, len));
                Ok(())
            },
        );
        cases.add(
            format!("self.isend-first.{size}"),
            1,
            "a rank receives what it has started to send to itself",
            move |job| {
                let (len, me) = (len(job), job.comm.rank());
                let request = job.comm.isend(bytes(3, len), me, 7)?;
                let done = job.comm.recv_vec::<u8>(Source::ANY, 7)?;
                assert_eq!(done.buffer, bytes(3, len));
                assert_eq!(request.wait()?.buffer, bytes(3, len));
                Ok(())
            },
        );
        cases.add(format!("self.sendrecv.{size}"), 1, "a rank exchanges with itself", move |job| {
            let (len, me) = (len(job), job.comm.rank());
            let mut back = vec![0u8; len];
            expect(job.comm.sendrecv(&bytes(3, len), me, 7, &mut back, me, 7)?, 0, 7, len);
            assert_eq!(back, bytes(3, len));
            Ok(())
        });
    }
    cases.section("3.5");
    cases.add("self.order", 1, "a rank's messages to itself keep their order", |job| {
        let me = job.comm.rank();
        let sends: Vec<_> =
            (0..20u8).map(|number| job.comm.isend(vec![number], me, 7)).collect::<Result<_, _>>()?;
        for number in 0..20u8 {
            let mut byte = [0u8];
            job.comm.recv(&mut byte, Source::ANY, Tag::ANY)?;
            assert_eq!(byte, [number]);
        }
        for send in sends {
            send.wait()?;
        }
        Ok(())
    });
    cases.add("self.never-deserted", 1, "a receive from itself waits, and ends by its time-out", |job| {
        let error = job.comm.with_timeout(SHORT).recv(&mut [0u8], job.comm.rank(), 7);
        expect_error!(error, Error::TimedOut { .. });
        Ok(())
    });
}

fn invalid(cases: &mut Cases) {
    cases.section("3.2.3");
    let rule = "a rank outside of the communicator is an error, and no message is sent or taken";
    for (name, rank) in [("next", 2), ("largest", u32::MAX)] {
        cases.add(format!("invalid-rank.{name}"), 2, rule, move |job| {
            let (comm, bad) = (&job.comm, Rank(rank));
            let is_it = |error: &Error| matches!(error, Error::InvalidRank { rank, size: 2 } if *rank == bad);
            let failed = [
                comm.send(&[1u8], bad, 7).unwrap_err(),
                comm.recv(&mut [0u8], bad, 7).unwrap_err(),
                comm.isend(vec![1u8], bad, 7).expect_err("it is outside").into(),
                comm.irecv(vec![1u8], bad, 7).expect_err("it is outside").into(),
                comm.probe(bad, 7).unwrap_err(),
                comm.try_probe(bad, 7).unwrap_err(),
                comm.claim(bad, 7).map(|_| ()).unwrap_err(),
                comm.try_claim(bad, 7).map(|_| ()).unwrap_err(),
                comm.sendrecv(&[1u8], bad, 7, &mut [0u8], job.other(), 7).unwrap_err(),
                comm.sendrecv(&[1u8], job.other(), 7, &mut [0u8], bad, 7).unwrap_err(),
            ];
            for error in failed {
                assert!(is_it(&error), "{error:?}");
            }
            let failed = comm.isend(vec![1u8, 2], bad, 7).expect_err("it is outside");
            assert_eq!(failed.buffer, Some(vec![1, 2]), "the data comes back");
            job.barrier()?;
            assert_eq!(comm.try_probe(Source::ANY, 7)?, None::<Status>);
            job.barrier()
        });
    }
}
