//! Absent partners.

use samite::{Error, Rank, Source, Status, Tag};

use crate::case::{Cases, SHORT};

const NONE: Option<Rank> = None;

/// Returns the status of an operation with an absent rank.
fn absent(tag: u64) -> Status {
    Status { peer: Rank::ABSENT, tag, bytes: 0 }
}

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.10");
    let rule = "a call with an absent partner ends at once, transfers nothing, and leaves its buffer";
    cases.add("absent.send", 1, rule, |job| {
        job.comm.send(&[1u8], NONE, 7)?;
        assert_eq!(job.comm.isend(vec![1u8], NONE, 7)?.wait()?.status, absent(7));
        job.comm.scope(|scope| {
            let send = scope.isend(&[1u8], NONE, 7)?;
            scope.wait(send).map(|_| ())
        })
    });
    cases.add("absent.recv", 1, rule, |job| {
        let mut buffer = [9u8; 2];
        assert_eq!(job.comm.recv(&mut buffer, NONE, 7)?, absent(7));
        assert_eq!(job.comm.recv(&mut buffer, NONE, Tag::ANY)?.peer, Rank::ABSENT);
        assert_eq!(buffer, [9; 2]);
        let done = job.comm.irecv(vec![9u8; 2], NONE, 7)?.wait()?;
        assert_eq!((done.buffer, done.status), (vec![9; 2], absent(7)));
        assert!(job.comm.recv_vec::<u64>(NONE, 7)?.buffer.is_empty());
        let mut scoped = [9u8; 2];
        job.comm.scope(|scope| scope.irecv(&mut scoped, NONE, 7).map(|_| ()))?;
        assert_eq!(scoped, [9; 2]);
        Ok(())
    });
    cases.add("absent.sendrecv", 1, rule, |job| {
        assert_eq!(job.comm.sendrecv(&[1u8], NONE, 7, &mut [0u8], NONE, 8)?, absent(8));
        let mut both = [5u8];
        job.comm.sendrecv_replace(&mut both, NONE, 7, NONE, 8)?;
        assert_eq!(both, [5]);
        let exchange = job.comm.isendrecv(vec![1u8], NONE, 7, vec![2u8], NONE, 8)?.wait()?;
        assert_eq!((exchange.data, exchange.buffer), (vec![1], vec![2]));
        Ok(())
    });
    cases.add("absent.half", 2, "the other half of an exchange with one absent partner takes place", |job| {
        let mut theirs = [0u8];
        let to = (job.rank() == 0).then_some(Rank(1));
        let from = (job.rank() == 1).then_some(Rank(0));
        let status = job.comm.sendrecv(&[7u8], to, 1, &mut theirs, from, 1)?;
        let expected = if job.rank() == 0 { (Rank::ABSENT, [0]) } else { (Rank(0), [7]) };
        assert_eq!((status.peer, theirs), expected);
        Ok(())
    });
    cases.add("absent.probe", 1, rule, |job| {
        assert_eq!(job.comm.probe(NONE, 7)?, absent(7));
        assert_eq!(job.comm.try_probe(NONE, 7)?, Some(absent(7)));
        assert!(job.comm.claim(NONE, 7)?.recv::<u8>()?.buffer.is_empty());
        let message = job.comm.try_claim(NONE, 7)?.expect("it is there at once");
        assert_eq!(message.irecv(vec![3u8])?.wait()?.buffer, [3]);
        Ok(())
    });
    cases.add("absent.persistent", 1, rule, |job| {
        let mut send = job.comm.send_init(vec![1u8], NONE, 7)?;
        let mut receive = job.comm.recv_init(vec![2u8], NONE, 7)?;
        for _ in 0..3 {
            samite::start_all(&mut [&mut send, &mut receive])?;
            send.wait()?;
            assert_eq!(receive.wait()?, absent(7));
            assert_eq!(*receive.buffer()?, [2]);
        }
        Ok(())
    });
    cases.add("absent.set", 1, "an operation with an absent partner ends in a set too", |job| {
        let mut set = job.comm.request_set();
        let waits = set.insert(job.comm.irecv(vec![0u8], Source::ANY, 1)?).expect("of this world");
        let ends = set.insert(job.comm.isend(vec![1u8], NONE, 7)?).expect("of this world");
        assert_eq!(set.wait_any().expect("one has ended").0, ends);
        assert!(set.test_any().is_none());
        job.comm.send(&[5u8], Rank(0), 1)?;
        assert_eq!(set.wait_any().expect("the other").0, waits);
        Ok(())
    });
    cases.add("absent.bounds", 1, "a time-out that has passed does not change that", |job| {
        let late = job.comm.with_timeout(std::time::Duration::ZERO);
        late.send(&[1u8], NONE, 7)?;
        assert_eq!(late.recv(&mut [0u8], NONE, 7)?, absent(7));
        Ok(())
    });
    let rule = "no wildcard matches a message to an absent rank";
    cases.add("absent.wildcard", 1, rule, |job| {
        job.comm.send(&[1u8], NONE, 7)?;
        let nothing = job.comm.with_timeout(SHORT).recv(&mut [0u8], Source::ANY, Tag::ANY);
        crate::case::expect_error!(nothing, Error::TimedOut { .. });
        Ok(())
    });
}
