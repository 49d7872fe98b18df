//! Absent partners, and exchanges with two partners.

use std::time::Duration;

use samite::{Comm, Error, Rank, Source, Status, Tag};

/// A status of an operation whose partner is absent.
fn absent(tag: u64) -> Status {
    Status { peer: Rank::ABSENT, tag, bytes: 0 }
}

/// Each operation ends at once though no other rank makes a call, and leaves its buffer as it was.
fn ends_at_once(comm: &Comm) -> Result<(), Error> {
    let none: Option<Rank> = None;
    let data = [1_u32, 2];
    comm.send(&data, none, 7)?;
    let mut buffer = [8_u32, 9];
    assert_eq!(comm.recv(&mut buffer, none, 7)?, absent(7));
    assert_eq!(comm.recv(&mut buffer, None, Tag::ANY)?, absent(0));
    assert_eq!(comm.sendrecv(&data, None, 7, &mut buffer, None, 8)?, absent(8));
    assert!(comm.recv_vec::<u32>(None, 7)?.buffer.is_empty());
    assert_eq!(comm.probe(None, 7)?, absent(7));
    assert_eq!(comm.try_probe(None, 7)?, Some(absent(7)));
    let message = comm.claim(None, 7)?;
    assert_eq!(message.status(), absent(7));
    assert_eq!(message.recv::<u32>()?.status, absent(7));
    drop(comm.try_claim(None, 7)?.expect("it is there"));

    let sent = comm.isend(vec![1_u32, 2], None, 7)?.wait()?;
    assert_eq!((sent.buffer, sent.status), (vec![1, 2], absent(7)));
    let mut receive = comm.irecv(vec![8_u32, 9], None, 7)?;
    let received = receive.test().expect("it has ended")?;
    assert_eq!((received.buffer, received.status), (vec![8, 9], absent(7)));
    let mut set = comm.request_set();
    let keys = [comm.irecv(vec![8_u32], None, 1)?, comm.isend(vec![9_u32], None, 2)?]
        .map(|request| set.insert(request).expect("it is of this world"));
    for (key, done) in set.wait_all() {
        let done = done?;
        let number = keys.iter().position(|own| *own == key).expect("it was inserted");
        assert_eq!((done.buffer, done.status), (vec![8 + number as u32], absent(1 + number as u64)));
    }
    let status = comm.scope(|scope| {
        scope.isend(&data, None, 7)?;
        let mut tested = scope.irecv(&mut buffer, None, 7)?;
        assert_eq!(scope.test(&mut tested), Some(Ok(absent(7))));
        scope.wait(tested)
    })?;
    assert_eq!((status, buffer), (absent(7), [8, 9]));
    Ok(())
}

#[test]
fn an_operation_without_a_partner_ends_at_once() {
    let results = samite::local(3, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        if comm.rank() == 0 {
            ends_at_once(&comm)?;
        }
        // The calls on a derived communicator translate ranks.
        let derived = comm.split(Some(comm.rank().0 % 2), 0)?.expect("it has a colour");
        ends_at_once(&derived)?;
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn one_half_of_an_exchange_may_lack_its_partner() {
    let results = samite::local(3, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        let rank = comm.rank().0;
        let left = rank.checked_sub(1).map(Rank);
        let right = Some(Rank(rank + 1)).filter(|right| right.0 < comm.size());
        let mut from_left = [9];
        let status = comm.sendrecv(&[rank], right, 7, &mut from_left, left, 7)?;
        Ok::<_, Error>((status.peer, from_left[0]))
    });
    let expected = [(Rank::ABSENT, 9), (Rank(0), 0), (Rank(1), 1)];
    assert_eq!(results, expected.map(Ok));
}

#[test]
fn the_absent_rank_is_no_rank() {
    let results = samite::local(1, |world| {
        let comm = world.comm();
        let sent = comm.send(&[1_u8], Rank::ABSENT, 7);
        assert!(matches!(sent, Err(Error::InvalidRank { rank: Rank::ABSENT, size: 1 })), "{sent:?}");
        // The failed send has sent nothing, not even to this rank.
        assert_eq!(comm.try_probe(Source::ANY, Tag::ANY), Ok(None));
        assert_eq!(
            comm.recv(&mut [0_u8], Rank::ABSENT, 7).err(),
            Some(Error::InvalidRank { rank: Rank::ABSENT, size: 1 })
        );
    });
    assert_eq!(results.len(), 1);
}

/// Longer than any message that is sent without its receiver's help.
const LONG: usize = 1 << 20;

#[test]
fn one_buffer_goes_round_a_ring() {
    let results = samite::local(3, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        let rank = comm.rank().0;
        let (left, right) = (Rank((rank + 2) % 3), Rank((rank + 1) % 3));
        for len in [1, 1 << 10, LONG] {
            let mut buffer = vec![rank; len];
            for step in 1..=3 {
                let status = comm.sendrecv_replace(&mut buffer, right, 7, left, 7)?;
                assert_eq!((status.peer, status.bytes), (left, 4 * len));
                assert!(buffer.iter().all(|&value| value == (rank + 3 - step) % 3), "{len} {step}");
            }
            let exchanged = comm.isendrecv_replace(buffer, right, 7, left, 7)?.wait()?;
            assert_eq!((exchanged.data, exchanged.buffer), (vec![rank; len], vec![left.0; len]));
        }
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_replacement_may_lack_either_partner() {
    let results = samite::local(1, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        let myself = comm.rank();
        let mut buffer = [1_u8, 2];
        assert_eq!(comm.sendrecv_replace(&mut buffer, myself, 7, None, 8)?, absent(8));
        assert_eq!(buffer, [1, 2]);
        buffer = [3, 4];
        comm.sendrecv_replace(&mut buffer, None, 8, myself, 7)?;
        assert_eq!(buffer, [1, 2]);
        let exchanged = comm.isendrecv(vec![1_u8], None, 7, vec![2_u8], None, 8)?.wait()?;
        assert_eq!((exchanged.data, exchanged.buffer, exchanged.status), (vec![1], vec![2], absent(8)));
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(())]);
}

#[test]
fn a_receive_that_fails_cancels_its_send() {
    let results = samite::local(2, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        if comm.rank() == 1 {
            comm.send(&[1_u64; 2], Rank(0), 7)?;
            // This rank never receives the long message, but the exchange of rank 0 ends. Then rank 0 sends the message
            // that this call receives.
            return comm.recv(&mut [0_u8], Rank(0), 9).map(drop);
        }
        let exchange = comm.isendrecv(vec![5_u8; LONG], Rank(1), 8, vec![6_u64], Rank(1), 7)?;
        let failed = exchange.wait().expect_err("the message is too long");
        assert!(matches!(failed.error, Error::Truncated { room: 8, .. }), "{failed}");
        assert_eq!((failed.data, failed.buffer), (Some(vec![5; LONG]), Some(vec![6])));
        comm.send(&[0_u8], Rank(1), 9)
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[test]
fn a_send_that_fails_cancels_its_receive() {
    let results = samite::local(2, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        if comm.rank() == 1 {
            comm.recv(&mut [0_u8], Rank(0), 9)?;
            return Ok(());
        }
        let mut exchange = comm.isendrecv(vec![5_u8; LONG], Rank(1), 8, vec![6_u8], Rank(0), 7)?;
        comm.send(&[0_u8], Rank(1), 9)?;
        let failed = loop {
            if let Some(end) = exchange.test() {
                break end.expect_err("rank 1 leaves");
            }
        };
        assert!(matches!(failed.error, Error::PeerFailed { rank: Rank(1), .. }), "{failed}");
        assert_eq!(failed.buffer, Some(vec![6]));
        let again = exchange.test().expect("it has ended").expect_err("its result was returned");
        assert_eq!((again.error, again.data, again.buffer), (Error::NoSuchRequest, None, None));
        // Rank 1 has left, so the send cannot start. The receive is cancelled, and takes no message.
        let exchange = comm.isendrecv(vec![5_u8; LONG], Rank(1), 8, vec![6_u8], Rank(0), 7)?;
        let failed = exchange.wait().expect_err("rank 1 has left");
        assert!(matches!(failed.error, Error::PeerFailed { rank: Rank(1), .. }), "{failed}");
        assert_eq!((failed.data, failed.buffer), (Some(vec![5; LONG]), Some(vec![6])));
        comm.sendrecv(&[1_u8], Rank(0), 7, &mut [0_u8], Rank(0), 7).map(drop)
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[test]
fn a_dropped_or_cancelled_exchange_takes_no_message() {
    let results = samite::local(1, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        let myself = comm.rank();
        drop(comm.isendrecv(vec![1_u8], None, 7, vec![0_u8], myself, 8)?);
        let exchange = comm.isendrecv(vec![1_u8], None, 7, vec![0_u8], myself, 8)?;
        exchange.cancel();
        let failed = exchange.wait().expect_err("it was cancelled");
        assert!(matches!(failed.error, Error::Cancelled { .. }), "{failed}");
        assert_eq!((failed.data, failed.buffer), (Some(vec![1]), Some(vec![0])));
        let refused =
            comm.isendrecv(vec![1_u8], Rank(1), 7, vec![0_u8], myself, 8).expect_err("no such rank");
        assert_eq!(refused.error, Error::InvalidRank { rank: Rank(1), size: 1 });
        assert_eq!((refused.data, refused.buffer), (Some(vec![1]), Some(vec![0])));
        let mut buffer = [0_u8];
        comm.sendrecv(&[3_u8], myself, 8, &mut buffer, myself, 8)?;
        assert_eq!(buffer, [3]);
        Ok::<_, Error>(())
    });
    assert_eq!(results, [Ok(())]);
}
