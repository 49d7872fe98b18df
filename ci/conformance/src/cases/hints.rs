//! Hints of communicators.

use samite::{Error, Hints, Source, Tag};

use crate::case::{Cases, expect, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    cases.section("7.4.4");
    cases.add("hints.any-source", 2, "a broken promise to name sources is an error, and nothing is received", |job| {
        let comm = job.comm.dup_with(Hints::NONE.no_any_source())?;
        let sent = comm.isend(vec![5u8], job.other(), 7)?;
        let refused = comm.recv(&mut [0u8], Source::ANY, 7);
        expect_error!(refused, Error::BrokenHint { call: "recv", hint } if hint == Hints::NONE.no_any_source());
        expect(comm.recv(&mut [0u8], job.other(), Tag::ANY)?, job.other().0, 7, 1);
        sent.wait()?;
        Ok(())
    });
    cases.add(
        "hints.any-tag",
        2,
        "a broken promise to name tags is an error, and nothing is received",
        |job| {
            let comm = job.comm.dup_with(Hints::NONE.no_any_tag())?;
            let sent = comm.isend(vec![5u8], job.other(), 7)?;
            for tag in [Tag::ANY, Tag::masked(0, 1 << 63)] {
                expect_error!(comm.probe(job.other(), tag), Error::BrokenHint { call: "probe", .. });
            }
            expect(comm.recv(&mut [0u8], Source::ANY, 7)?, job.other().0, 7, 1);
            sent.wait()?;
            Ok(())
        },
    );
    cases.add("hints.exact-length", 2, "a message that is shorter than promised is an error", |job| {
        let comm = job.comm.dup_with(Hints::NONE.exact_length())?;
        for len in [1, job.long] {
            let (data, room) = (vec![5u8; len], vec![0u8; len + 1]);
            let request = comm.irecv(room, job.other(), 7)?;
            let sent = comm.isend(data.clone(), job.other(), 7)?;
            let end = request.wait().map_err(Error::from);
            sent.wait()?;
            expect_error!(end, Error::NotExact { status, room } if (status.bytes, room) == (len, len + 1));
            comm.sendrecv(&data, job.other(), 8, &mut vec![0u8; len], job.other(), 8)?;
        }
        Ok(())
    });
    cases.add("hints.overtaking", 2, "messages that may overtake each other are all received", |job| {
        let comm = job.comm.dup_with(Hints::NONE.overtaking())?;
        let sends = (0..9u8).map(|byte| comm.isend(vec![byte; job.long], job.other(), 7));
        let sends = sends.collect::<Result<Vec<_>, _>>()?;
        let mut left: u32 = (0..9).sum();
        for _ in 0..9 {
            left -= u32::from(comm.recv_vec::<u8>(job.other(), 7)?.buffer[0]);
        }
        assert_eq!(left, 0);
        sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
    });
    cases.add("hints.dup", 2, "hints are not those of a duplicate", |job| {
        let hints = Hints::NONE.no_any_source().no_any_tag().exact_length();
        let comm = job.comm.dup_with(hints)?;
        let twin = comm.dup()?;
        assert_eq!((comm.hints(), twin.hints()), (hints, Hints::NONE));
        let sent = twin.isend(vec![5u8], job.other(), 7)?;
        expect(twin.recv(&mut [0u8; 2], Source::ANY, Tag::ANY)?, job.other().0, 7, 1);
        sent.wait()?;
        Ok(())
    });
    cases.add("hints.local", 2, "each rank has the hints that it gives", |job| {
        let hints = if job.rank() == 0 { Hints::NONE.no_any_source() } else { Hints::NONE };
        let comm = job.comm.idup_with(hints)?.wait()?;
        assert_eq!(comm.hints(), hints);
        let sent = comm.isend(vec![5u8], job.other(), 7)?;
        let from = if job.rank() == 0 { job.other().into() } else { Source::ANY };
        comm.recv(&mut [0u8], from, 7)?;
        sent.wait()?;
        Ok(())
    });
}
