//! Type matching: a message is received as the types that it was sent as. The check `types` is on.

use samite::zerocopy::{FromBytes, Immutable, IntoBytes};
use samite::{Element, Error, Field, Layout, Mode, Source, Status};

use crate::case::{Cases, Job, barrier, expect, expect_error};

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "samite::zerocopy")]
#[repr(C)]
struct Sample {
    value: f32,
    count: u32,
}

/// Returns the layout of one field of some samples.
fn field<U: Element>(offset: usize, samples: usize) -> Layout<Sample> {
    let field = Field::new(offset, &Layout::<U>::contiguous(1).expect("it is short"));
    Layout::fields([field]).and_then(|one| one.repeated(samples)).expect("it is short")
}

/// Exchanges messages with the other rank: `data` is sent, and received as elements of `R`.
fn exchange<S: Element, R: Element>(job: &Job, data: &[S], room: &mut [R]) -> Result<Status, Error> {
    job.comm.sendrecv(data, job.other(), 7, room, job.other(), 7)
}

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.3.1");
    cases.add(
        "types.same",
        2,
        "types match if elements are sent and received as one type, any number of them",
        |job| {
            for len in [1, 4, job.long / 8] {
                let mut room = vec![0.0; len + 6];
                let status = exchange(job, &vec![0.5; len], &mut room)?;
                expect(status, job.other().0, 7, 8 * len);
                assert!(room[..len].iter().all(|&number| number == 0.5) && room[len..] == [0.0; 6]);
            }
            exchange(job, &[[1u16; 2]; 3], &mut [0u16; 6]).map(drop)
        },
    );
    cases.add(
        "types.other",
        2,
        "a receive as another type is an error, and its buffer is unchanged",
        |job| {
            for len in [1, 300, job.long / 4] {
                let mut room = vec![7.0f32; len];
                let sent = job.comm.isend(vec![1u32; len], job.other(), 7)?;
                let refused = job.comm.recv(&mut room, job.other(), 7);
                expect_error!(refused, Error::TypesDiffer { status, call: "recv", ref types }
                if (status.bytes, status.tag, status.peer) == (4 * len, 7, job.other())
                    && (&types.sent[..], &types.expected[..]) == ("u32", "f32"));
                assert!(room.iter().all(|&number| number == 7.0));
                sent.wait()?;
            }
            Ok(())
        },
    );
    cases.add("types.unexpected", 2, "a message that arrives before its receive keeps its types", |job| {
        let sends = [5u64, 6].map(|tag| job.comm.isend(vec![1i16; 100], job.other(), tag));
        let sends = sends.into_iter().collect::<Result<Vec<_>, _>>()?;
        job.comm.probe(job.other(), 6)?;
        expect_error!(job.comm.recv(&mut [0u16; 100], job.other(), 6), Error::TypesDiffer { .. });
        expect(job.comm.recv(&mut [0i16; 100], Source::ANY, 5)?, job.other().0, 5, 200);
        sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
    });
    cases.add("types.modes", 2, "a send in any mode has the type of its elements", |job| {
        for mode in [Mode::Standard, Mode::Synchronous, Mode::Buffered] {
            for len in [1, job.long / 2] {
                let comm = job.comm.with_mode(mode);
                let wrong = job.comm.irecv(vec![0i16; len], job.other(), 7)?;
                let right = job.comm.irecv(vec![0u16; len], job.other(), 7)?;
                let sends = [
                    comm.isend(vec![1u16; len], job.other(), 7)?,
                    comm.isend(vec![2u16; len], job.other(), 7)?,
                ];
                let refused = wrong.wait().map_err(Error::from);
                expect_error!(refused, Error::TypesDiffer { call: "irecv", .. });
                assert!(right.wait()?.buffer == vec![2u16; len]);
                sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))?;
            }
        }
        Ok(())
    });
    cases.add("types.bytes", 2, "bytes match every type, on either side (MPI_BYTE, MPI_PACKED)", |job| {
        exchange(job, &[1.5f64, 2.5], &mut [0u8; 16])?;
        let mut numbers = [0.0f64; 2];
        exchange(job, [1.5f64, 2.5].as_bytes(), &mut numbers)?;
        assert_eq!(numbers, [1.5, 2.5]);
        let samples = [Sample { value: 0.5, count: 3 }; 4];
        let counts = field::<u32>(4, 4);
        let mut packed = [0u32; 4];
        exchange(job, &counts.of(&samples)?.pack(), &mut packed)?;
        assert_eq!(packed, [3; 4]);
        Ok(())
    });
    cases.add("types.claims", 2, "a matched receive checks types", |job| {
        let sends = [1u8, 2].map(|_| job.comm.isend(vec![1u64; 9], job.other(), 7));
        let sends = sends.into_iter().collect::<Result<Vec<_>, _>>()?;
        let refused = job.comm.claim(job.other(), 7)?.recv::<f64>();
        expect_error!(refused, Error::TypesDiffer { call: "Message::recv", .. });
        assert_eq!(job.comm.claim(job.other(), 7)?.irecv(vec![0u64; 9])?.wait()?.buffer, [1; 9]);
        sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
    });
    cases.add("types.persistent", 2, "each round of a persistent receive checks types", |job| {
        let mut recv = job.comm.recv_init(vec![0f32; 3], job.other(), 7)?;
        for round in 0..4 {
            recv.start()?;
            match round % 2 {
                0 => {
                    job.comm.send(&[1u32; 3], job.other(), 7)?;
                    expect_error!(recv.wait(), Error::TypesDiffer { .. });
                }
                _ => {
                    job.comm.send(&[1f32; 3], job.other(), 7)?;
                    recv.wait()?;
                }
            }
        }
        Ok(())
    });
    cases.add("types.empty", 2, "a message without elements matches every type", |job| {
        expect(exchange(job, &[0u32; 0], &mut [0f64])?, job.other().0, 7, 0);
        Ok(())
    });

    cases.section("5.1.11");
    let rule = "a layout of one type matches this type, and a layout of several types matches their sequence";
    cases.add("types.layouts", 2, rule, |job| {
        let samples = [Sample { value: 0.5, count: 3 }; 4];
        let (values, counts) = (field::<f32>(0, 4), field::<u32>(4, 4));
        let send = |layout: &Layout<Sample>| {
            let view = layout.of_owned(samples.to_vec())?;
            job.comm.isend(view, job.other(), 7).map_err(Error::from)
        };
        let (mut floats, mut copy) = ([0f32; 4], [Sample { value: 0.0, count: 0 }; 4]);
        let sent = send(&values)?;
        job.comm.recv(&mut floats, job.other(), 7)?;
        assert_eq!(floats, [0.5; 4]);
        sent.wait()?;
        let sent = send(&counts)?;
        expect_error!(job.comm.recv(&mut floats, job.other(), 7), Error::TypesDiffer { call: "recv", .. });
        sent.wait()?;
        let value = Field::new(0, &Layout::<f32>::contiguous(1)?);
        let count = Field::new(4, &Layout::<u32>::contiguous(1)?);
        let both = Layout::fields([value, count])?.repeated(4)?;
        let sent = send(&both)?;
        job.comm.recv_view(&mut both.of_mut(&mut copy)?, job.other(), 7)?;
        assert_eq!(copy, samples);
        sent.wait()?;
        let sent = send(&both)?;
        let refused = job.comm.recv_view(&mut values.of_mut(&mut copy)?, job.other(), 7);
        expect_error!(refused, Error::TypesDiffer { call: "recv_view", .. });
        sent.wait()?;
        Ok(())
    });

    cases.section("4.2.1");
    cases.add("types.partitioned", 2, "the two sides of a partitioned message have one type", |job| {
        let _send = job.comm.psend_init(vec![1u32; 4], 2, job.other(), 7)?;
        let mut recv = job.comm.precv_init(vec![0f32; 4], 2, job.other(), 7)?;
        let end = recv.start().and_then(|()| recv.wait());
        expect_error!(end, Error::TypesDiffer { call: "precv_init", .. });
        // Neither side is dropped before the other rank has seen the error.
        barrier(&job.comm)
    });
}
