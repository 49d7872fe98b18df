//! Persistent operations.

use std::time::Duration;

use samite::{CancelToken, Comm, Error, Persistent, Rank, Source, Status, Tag, start_all};

/// Longer than any message that is sent without its receiver's help.
const LONG: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn rounds_carry_what_the_buffer_has_at_their_start() {
    let results = samite::local(3, |world| {
        let comm = world.comm().with_timeout(LIMIT);
        let rank = comm.rank().0;
        let (left, right) = (Rank((rank + 2) % 3), Rank((rank + 1) % 3));
        for len in [1, 1 << 10, LONG] {
            let mut send = comm.send_init(vec![0_u32; len], right, 7)?;
            let mut receive = comm.recv_init(vec![0_u32; len], left, 7)?;
            let mut from_any = comm.recv_init(vec![0_u8; 4], Source::ANY, 8)?;
            for round in 0..20 {
                send.buffer_mut()?.fill(100 * rank + round);
                let begun: &mut [&mut dyn Persistent] = match round % 2 {
                    0 => &mut [&mut from_any, &mut receive, &mut send],
                    _ => &mut [&mut send, &mut receive, &mut from_any],
                };
                start_all(begun)?;
                comm.send(&[round as u8], left, 8)?;
                assert_eq!(send.wait()?, Status { peer: right, tag: 7, bytes: 4 * len });
                assert_eq!(receive.wait()?, Status { peer: left, tag: 7, bytes: 4 * len });
                assert_eq!(from_any.wait()?, Status { peer: right, tag: 8, bytes: 1 });
                assert!(
                    receive.buffer()?.iter().all(|value| *value == 100 * left.0 + round),
                    "{len} {round}"
                );
                assert_eq!(from_any.buffer()?[0], round as u8);
            }
        }
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_length_may_change_between_rounds() {
    let results = samite::local(1, |world| {
        let comm = world.comm().with_timeout(LIMIT);
        let mut send = comm.send_init(vec![1_u8; 3], comm.rank(), 7)?;
        let mut receive = comm.recv_init(vec![0_u8; 8], comm.rank(), 7)?;
        for len in [3, 0, 5] {
            send.buffer_mut()?.resize(len, len as u8);
            start_all(&mut [&mut send, &mut receive])?;
            while send.test().transpose()?.is_none() {}
            assert_eq!(receive.wait()?.bytes, len);
        }
        assert_eq!(receive.replace_buffer(vec![0; 2])?.expect("it is there")[..5], [5, 5, 5, 5, 5][..]);
        start_all(&mut [&mut send, &mut receive])?;
        assert!(matches!(receive.wait(), Err(Error::Truncated { room: 2, .. })));
        assert_eq!(*receive.buffer()?, [0, 0]);
        send.wait().map(drop)
    });
    assert_eq!(results, [Ok(())]);
}

#[test]
fn misuse_names_the_call_and_changes_nothing() {
    let results = samite::local(1, |world| {
        let comm = world.comm().with_timeout(LIMIT);
        let myself = comm.rank();
        let mut send = comm.send_init(vec![1_u8], myself, 7)?;
        let mut receive = comm.recv_init(vec![0_u8], myself, 7)?;
        assert_eq!(send.wait(), Err(Error::Inactive));
        assert_eq!(receive.test(), Some(Err(Error::Inactive)));
        receive.cancel();
        send.start()?;
        for call in ["start", "buffer", "buffer_mut", "replace_buffer"] {
            let error = match call {
                "start" => send.start().unwrap_err(),
                "buffer" => send.buffer().map(drop).unwrap_err(),
                "buffer_mut" => send.buffer_mut().map(drop).unwrap_err(),
                _ => send.replace_buffer(vec![2]).unwrap_err(),
            };
            assert_eq!(error, Error::Active { call });
            assert!(error.to_string().ends_with(&format!("before {call}")), "{error}");
        }
        // `start_all` starts nothing if one operation is active.
        assert_eq!(start_all(&mut [&mut receive, &mut send]), Err(Error::Active { call: "start_all" }));
        assert!(send.is_active() && !receive.is_active());
        send.wait()?;
        // Only one message was sent, so the failed calls have sent none.
        let mut buffer = [0_u8];
        comm.recv(&mut buffer, myself, 7)?;
        assert_eq!((buffer, comm.try_probe(Source::ANY, Tag::ANY)?), ([1], None));
        assert_eq!(
            comm.send_init(vec![1_u8], Rank(1), 7).err(),
            Some(Error::InvalidRank { rank: Rank(1), size: 1 })
        );
        assert_eq!(
            comm.recv_init(vec![1_u8], Rank(1), 7).err(),
            Some(Error::InvalidRank { rank: Rank(1), size: 1 })
        );
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(())]);
}

#[test]
fn an_absent_partner_ends_each_round_at_once() {
    let results = samite::local(1, |world| {
        let comm = world.comm();
        let mut send = comm.send_init(vec![1_u8], None, 7)?;
        let mut receive = comm.recv_init(vec![5_u8], None, Tag::ANY)?;
        for _ in 0..3 {
            start_all(&mut [&mut send, &mut receive])?;
            assert_eq!(send.wait()?, Status { peer: Rank::ABSENT, tag: 7, bytes: 0 });
            assert_eq!(receive.wait()?, Status { peer: Rank::ABSENT, tag: 0, bytes: 0 });
            assert_eq!((&send.buffer()?[..], &receive.buffer()?[..]), (&[1][..], &[5][..]));
        }
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(())]);
}

#[test]
fn each_round_has_the_bounds_of_its_communicator() {
    let results = samite::local(2, |world| {
        let comm = world.comm().with_timeout(LIMIT);
        let other = Rank(1 - comm.rank().0);
        if comm.rank() == 0 {
            let cancel = CancelToken::new();
            let mut late =
                comm.with_timeout(Duration::from_millis(5)).recv_init(vec![0_u8; LONG], other, 7)?;
            for _ in 0..3 {
                late.start()?;
                assert!(matches!(late.wait(), Err(Error::TimedOut { .. })));
                assert_eq!(late.buffer()?.len(), LONG);
            }
            let mut cancelled = comm.with_cancel(&cancel).recv_init(vec![0_u8], other, 7)?;
            cancelled.start()?;
            cancel.cancel();
            assert!(matches!(cancelled.wait(), Err(Error::Cancelled { .. })));
            let mut receive = comm.recv_init(vec![0_u8], other, 7)?;
            receive.start()?;
            receive.cancel();
            assert!(matches!(receive.wait(), Err(Error::Cancelled { .. })));
            // A receive that is dropped during a round takes no message.
            receive.start()?;
            drop(receive);
            comm.send(&[0_u8], other, 9)?;
            comm.recv(&mut [0_u8], other, 7)?;
            return comm.send(&[0_u8], other, 9);
        }
        // The other rank does not receive these messages, so each round ends by a cancel or a time-out.
        comm.recv(&mut [0_u8], other, 9)?;
        let mut send = comm.send_init(vec![3_u8; LONG], other, 8)?;
        let mut late = comm.with_timeout(Duration::from_millis(5)).send_init(vec![3_u8; LONG], other, 8)?;
        for round in 0..4 {
            let send = if round < 2 { &mut send } else { &mut late };
            if send.buffer() == Err(Error::BufferKept) {
                assert_eq!(send.start(), Err(Error::BufferKept));
                assert_eq!(send.replace_buffer(vec![3; LONG])?, None);
            }
            send.start()?;
            if round < 2 {
                send.cancel();
            }
            match send.wait() {
                Err(Error::Cancelled { .. }) if round < 2 => {}
                Err(Error::TimedOut { .. }) if round >= 2 => {}
                result => panic!("{round}: {result:?}"),
            }
        }
        comm.send(&[1_u8], other, 7)?;
        comm.recv(&mut [0_u8], other, 9).map(drop)
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[test]
fn a_failure_ends_the_round_and_refuses_later_ones() {
    let results = samite::local(2, |world| {
        let comm = world.comm().with_timeout(LIMIT);
        if comm.rank() == 1 {
            return comm.recv(&mut [0_u8], Rank(0), 9).map(drop);
        }
        let mut send = comm.send_init(vec![1_u8; LONG], Rank(1), 7)?;
        let mut receive = comm.recv_init(vec![2_u8], Rank(1), 7)?;
        let mut from_any = comm.recv_init(vec![3_u8], Source::ANY, 7)?;
        start_all(&mut [&mut send, &mut receive])?;
        comm.send(&[0_u8], Rank(1), 9)?;
        assert!(matches!(receive.wait(), Err(Error::PeerFailed { rank: Rank(1), .. })));
        assert!(matches!(send.wait(), Err(Error::PeerFailed { rank: Rank(1), .. })));
        assert!(matches!(receive.start(), Err(Error::PeerFailed { rank: Rank(1), .. })));
        assert_eq!(*receive.buffer()?, [2]);
        if send.buffer().is_err() {
            send.replace_buffer(vec![1; LONG])?;
        }
        assert!(matches!(send.start(), Err(Error::PeerFailed { rank: Rank(1), .. })));
        assert!(!send.is_active() && send.buffer()?.len() == LONG);
        from_any.start()?;
        assert!(matches!(from_any.wait(), Err(Error::Deserted)));
        assert_eq!(*from_any.buffer()?, [3]);
        Ok(())
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[test]
fn a_dropped_world_ends_rounds_and_starts() {
    samite::local(2, |world| {
        let comm = Comm::clone(world.comm());
        if comm.rank() == 1 {
            return;
        }
        let mut waits = comm.recv_init(vec![0_u8], Rank(0), 7).unwrap();
        let mut tested = comm.recv_init(vec![0_u8], Rank(0), 7).unwrap();
        let mut later = comm.send_init(vec![1_u8], Rank(1), 7).unwrap();
        start_all(&mut [&mut waits, &mut tested]).unwrap();
        drop(world);
        assert!(matches!(waits.wait(), Err(Error::Closed { .. })));
        assert!(matches!(tested.test(), Some(Err(Error::Closed { .. }))));
        assert!(matches!(later.start(), Err(Error::Closed { .. })));
        assert_eq!(later.buffer(), Ok(&vec![1]), "it was given back");
    });
}
