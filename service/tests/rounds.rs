//! Rounds of persistent and partitioned operations as requests: in sets beside other requests, awaited, with callbacks.

use std::sync::mpsc::channel;
use std::time::Duration;

use samite::{
    AnyBuffer, CancelToken, Comm, Error, ErrorHandler, Failed, PartitionedRecv, PartitionedSend,
    PersistentRecv, PersistentSend, Rank, Request, RequestSet, Source, start_all,
};

/// Long enough to need the receiver's answer.
const LONG: usize = 1 << 17;
const SHORT: Duration = Duration::from_millis(20);

type Receive = PersistentRecv<Vec<u8>>;

fn insert<B: samite::Owned>(set: &mut RequestSet<AnyBuffer>, request: Request<B>) -> usize {
    set.insert(request.into_any()).expect("a request of this world")
}

/// Takes the ends of a set until it is empty. Returns the operations and buffers in the order of `keys`.
fn drain<const N: usize>(set: &mut RequestSet<AnyBuffer>, keys: [usize; N]) -> [AnyBuffer; N] {
    let mut ends: Vec<_> = std::iter::from_fn(|| set.wait_any()).collect();
    keys.map(|key| {
        let at = ends.iter().position(|(ended, _)| *ended == key).expect("each has one end");
        ends.swap_remove(at).1.unwrap().buffer
    })
}

#[test]
fn rounds_of_all_kinds_and_other_requests_complete_in_one_set_again_and_again() {
    samite::local(2, |world| {
        let comm = world.comm();
        let other = Rank(1 - comm.rank().0);
        let (mine, theirs) = (comm.rank().0 as u8, other.0 as u8);
        let mut send = comm.send_init(vec![0u8; LONG], other, 1).unwrap();
        let mut short = comm.send_init(Box::<[u8]>::from([0u8; 3]), other, 2).unwrap();
        let mut receive = comm.recv_init(vec![0u8; LONG], other, 1).unwrap();
        let mut any = comm.recv_init(vec![0u8; 3], Source::ANY, 2).unwrap();
        let mut parts = comm.psend_init(vec![0u32; LONG], 8, other, 3).unwrap();
        let mut whole = comm.precv_init(vec![0u32; LONG], 2, other, 3).unwrap();
        let mut set = comm.request_set();
        for round in 0..5 {
            send.buffer_mut().unwrap().fill(10 * round + mine);
            short.buffer_mut().unwrap().fill(10 * round + mine);
            start_all(&mut [&mut receive, &mut any, &mut send, &mut short]).unwrap();
            parts.start().unwrap();
            whole.start().unwrap();
            let marks: Vec<_> = parts.parts().unwrap().collect();
            let keys = [
                insert(&mut set, whole.into_request()),
                insert(&mut set, parts.into_request()),
                insert(&mut set, receive.into_request()),
                insert(&mut set, comm.irecv(vec![0u16; 1], other, 4).unwrap()),
                insert(&mut set, any.into_request()),
                insert(&mut set, send.into_request()),
                insert(&mut set, comm.isend(vec![u16::from(round)], other, 4).unwrap()),
                insert(&mut set, short.into_request()),
            ];
            assert_eq!(set.operation::<PartitionedSend<u32>>(keys[1]).unwrap().partitions(), 8);
            assert!(set.operation::<PartitionedSend<u32>>(keys[0]).is_none(), "another type");
            assert!(set.operation::<Vec<u16>>(keys[3]).is_none(), "no operation");
            for mut part in marks.into_iter().rev() {
                part.fill(u32::from(10 * round + mine));
                part.ready();
            }
            let back = drain(&mut set, keys);
            let [all, cut, got, number, some, sent, _, little] = back;
            whole = all.downcast::<PartitionedRecv<u32>>().unwrap();
            parts = cut.downcast::<PartitionedSend<u32>>().unwrap();
            receive = got.downcast::<Receive>().unwrap();
            any = some.downcast::<Receive>().unwrap();
            send = sent.downcast::<PersistentSend<Vec<u8>>>().unwrap();
            let little = little.downcast::<PersistentSend<Vec<u8>>>().expect_err("it has a box");
            short = little.downcast::<PersistentSend<Box<[u8]>>>().unwrap();
            assert_eq!(number.downcast::<Vec<u16>>().unwrap(), [u16::from(round)]);
            assert!(receive.buffer().unwrap().iter().all(|&byte| byte == 10 * round + theirs));
            assert_eq!(*any.buffer().unwrap(), [10 * round + theirs; 3]);
            let all = whole.buffer_mut().unwrap();
            assert!(all.iter().all(|&element| element == u32::from(10 * round + theirs)));
        }
    });
}

#[test]
fn a_set_of_one_kind_of_rounds_needs_no_types_at_run_time() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let mut set: RequestSet<Receive> = comm.request_set();
        for tag in 0..4 {
            let mut receive = comm.recv_init(vec![0u8], me, tag).unwrap();
            receive.start().unwrap();
            set.insert(receive.into_request()).unwrap();
        }
        for round in 0..3 {
            (0..4).for_each(|tag| comm.send(&[10 * round + tag as u8], me, tag).unwrap());
            for (_, end) in set.wait_all() {
                let done = end.unwrap();
                assert_eq!(*done.buffer.buffer().unwrap(), [10 * round + done.status.tag as u8]);
                let mut receive = done.buffer;
                receive.start().unwrap();
                set.insert(receive.into_request()).unwrap();
            }
            assert_eq!(set.len(), 4);
        }
        // One that is taken out continues, and keeps its operation.
        let request = set.remove(2).unwrap();
        (0..4).for_each(|tag| comm.send(&[9u8], me, tag).unwrap());
        let mut receive = request.wait().unwrap().buffer;
        assert_eq!(*receive.buffer().unwrap(), [9]);
        receive.start().unwrap();
    });
}

/// One receive is started again after each end of its round, and the new round has ended before the next call of
/// `wait_any`. The round of a second receive ends once, after the 51st end of the first. The next call must return the
/// second receive: ends are returned in their order, so the busy receive does not keep the other one waiting.
#[test]
fn a_round_that_comes_again_and_again_keeps_no_other_waiting() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let mut set = comm.request_set();
        let [mut busy, once] = [1, 2].map(|tag| {
            let mut receive = comm.recv_init(vec![0_u8], me, tag).unwrap();
            receive.start().unwrap();
            set.insert(receive.into_request()).unwrap()
        });
        for round in 0..100 {
            comm.send(&[0_u8], me, 1).unwrap();
            if round == 50 {
                comm.send(&[0_u8], me, 2).unwrap();
            }
            let (key, end) = set.wait_any().unwrap();
            if key == once {
                assert_eq!(round, 51, "ends are returned in their order");
                return;
            }
            assert_eq!(key, busy);
            let mut receive = end.unwrap().buffer;
            receive.start().unwrap();
            busy = set.insert(receive.into_request()).unwrap();
        }
        panic!("one has ended, and was not returned");
    });
}

#[test]
fn a_failed_round_names_its_error_and_returns_its_operation() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let (sender, raised) = channel();
        let told = comm.with_error_handler(ErrorHandler::call(move |error| {
            sender.send((error.call.to_owned(), error.error.clone())).unwrap();
        }));
        let mut set = comm.request_set();
        let mut short = told.recv_init(vec![0u8; 1], me, 1).unwrap();
        let mut late = told.with_timeout(SHORT).recv_init(vec![0u8; 1], me, 2).unwrap();
        let mut fine = told.recv_init(vec![0u8; 2], me, 3).unwrap();
        start_all(&mut [&mut short, &mut late, &mut fine]).unwrap();
        let idle = told.recv_init(vec![0u8; 1], me, 4).unwrap();
        let keys = [short, late, fine, idle].map(|receive| set.insert(receive.into_request()).unwrap());
        comm.send(&[1u8, 2], me, 1).unwrap();
        comm.send(&[3u8, 4], me, 3).unwrap();
        for (key, end) in set.wait_all() {
            let at = keys.iter().position(|other| *other == key).unwrap();
            let (error, mut receive) = match end {
                Ok(done) => (None, done.buffer),
                Err(Failed { error, buffer }) => (Some(error), buffer.expect("it comes back")),
            };
            let is_expected = matches!(
                (at, &error),
                (0, Some(Error::Truncated { room: 1, .. }))
                    | (1, Some(Error::TimedOut { .. }))
                    | (2, None)
                    | (3, Some(Error::Inactive))
            );
            assert!(is_expected, "{at}: {error:?}");
            if let Some(error) = error {
                assert_eq!(raised.try_recv().unwrap(), ("RequestSet::wait_all".to_owned(), error));
            }
            // Each can be started again.
            assert!(!receive.is_active() && receive.buffer().is_ok());
            receive.start().unwrap();
            comm.send(&[7u8], me, 1 + at as u64).unwrap();
            receive.wait().unwrap();
            assert_eq!(receive.buffer().unwrap()[0], 7);
        }
        assert!(raised.try_recv().is_err());
    });
}

#[test]
fn a_cancelled_round_comes_back_and_a_pair_ends_with_it() {
    samite::local(2, |world| {
        let comm = world.comm();
        let other = Rank(1 - comm.rank().0);
        if comm.rank() == 1 {
            let mut parts = comm.psend_init(vec![1u8; 8], 2, other, 3).unwrap();
            parts.start().unwrap();
            parts.ready(0..2).unwrap();
            // The first two rounds end with the cancel, the third one was never matched.
            let request = parts.into_request();
            comm.recv(&mut [0u8; 0], other, 9).unwrap();
            let failed = request.wait().unwrap_err();
            assert!(matches!(failed.error, Error::Abandoned { rank: Rank(0), .. }), "{}", failed.error);
            let mut parts = failed.buffer.expect("it comes back");
            assert!(parts.start().is_err());
            assert_eq!(parts.into_buffer().unwrap(), [1; 8]);
            return comm.send(&[5u8], other, 1).unwrap();
        }
        let cancel = CancelToken::new();
        let mut set = comm.request_set::<AnyBuffer>();
        let mut own = comm.with_cancel(&cancel).recv_init(vec![0u8], other, 2).unwrap();
        let mut receive = comm.recv_init(vec![0u8], other, 1).unwrap();
        // The partner sends half of the message, so the round cannot end before its cancel.
        let mut whole = comm.precv_init(vec![0u8; 8], 1, other, 3).unwrap();
        start_all(&mut [&mut own, &mut receive]).unwrap();
        whole.start().unwrap();
        whole.cancel();
        let keys = [
            insert(&mut set, receive.into_request()),
            insert(&mut set, whole.into_request()),
            insert(&mut set, own.into_request()),
        ];
        set.cancel(keys[0]);
        cancel.cancel();
        let mut back = set.wait_all();
        assert_eq!(back.len(), 3);
        back.sort_by_key(|(key, _)| keys.iter().position(|other| other == key));
        let mut back = back.into_iter().map(|(_, end)| {
            let failed = end.expect_err("it was cancelled");
            assert!(matches!(failed.error, Error::Cancelled { .. }), "{}", failed.error);
            failed.buffer.expect("it comes back")
        });
        let mut receive = back.next().unwrap().downcast::<Receive>().unwrap();
        let mut whole = back.next().unwrap().downcast::<PartitionedRecv<u8>>().unwrap();
        assert!(matches!(whole.start(), Err(Error::Cancelled { .. })), "the pair has ended");
        comm.send(&[0u8; 0], other, 9).unwrap();
        receive.start().unwrap();
        let receive = receive.into_request().wait().unwrap().buffer;
        assert_eq!(*receive.buffer().unwrap(), [5]);
    });
}

#[test]
fn a_dropped_set_cancels_its_rounds() {
    samite::local(2, |world| {
        let comm = world.comm();
        let other = Rank(1 - comm.rank().0);
        if comm.rank() == 1 {
            comm.recv(&mut [0u8; 0], other, 9).unwrap();
            let mut whole = comm.precv_init(vec![0u8; 8], 2, other, 3).unwrap();
            let ended = whole.start().and_then(|()| whole.wait().map(drop));
            assert!(matches!(ended, Err(Error::Abandoned { rank: Rank(0), .. })), "{ended:?}");
            return comm.send(&[6u8], other, 1).unwrap();
        }
        let mut set = comm.request_set::<AnyBuffer>();
        let mut receive = comm.recv_init(vec![0u8], other, 1).unwrap();
        receive.start().unwrap();
        let mut parts = comm.psend_init(vec![1u8; 8], 2, other, 3).unwrap();
        parts.start().unwrap();
        let mut part = parts.part(1).unwrap();
        insert(&mut set, receive.into_request());
        insert(&mut set, parts.into_request());
        drop(set);
        // The memory of the partition lives on.
        part.fill(9);
        part.ready();
        comm.send(&[0u8; 0], other, 9).unwrap();
        let mut byte = [0u8];
        comm.recv(&mut byte, other, 1).unwrap();
        assert_eq!(byte, [6], "the round takes no message any more");
    });
}

#[test]
fn partitions_are_marked_and_tested_while_their_rounds_are_in_a_set() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let mut set = comm.request_set::<AnyBuffer>();
        let mut parts = comm.psend_init((0..8).collect::<Vec<u8>>(), 4, me, 3).unwrap();
        let mut whole = comm.precv_init(vec![0u8; 8], 2, me, 3).unwrap();
        parts.start().unwrap();
        whole.start().unwrap();
        let [parts, whole] = [insert(&mut set, parts.into_request()), insert(&mut set, whole.into_request())];
        let sending = set.operation::<PartitionedSend<u8>>(parts).unwrap();
        let receiving = set.operation::<PartitionedRecv<u8>>(whole).unwrap();
        sending.ready(2..4).unwrap();
        while !receiving.arrived(1..2).unwrap() {}
        assert_eq!(receiving.partition(1).unwrap(), Some(&[4u8, 5, 6, 7][..]));
        assert!(!receiving.arrived(0..1).unwrap());
        assert!(set.test_any().is_none() && set.test_all().is_none());
        set.operation::<PartitionedSend<u8>>(parts).unwrap().ready(0..2).unwrap();
        let [_, whole] = drain(&mut set, [parts, whole]);
        let mut whole = whole.downcast::<PartitionedRecv<u8>>().unwrap();
        assert_eq!(whole.buffer_mut().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    });
}

#[test]
fn a_round_is_awaited_tested_and_calls_back() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let mut receive = comm.recv_init(vec![0u8], me, 1).unwrap();
        receive.start().unwrap();
        let mut request = receive.into_request();
        assert!(request.test().is_none() && !request.is_finished());
        assert!(request.operation::<Receive>().is_some_and(PersistentRecv::is_active));
        comm.send(&[1u8], me, 1).unwrap();
        let done = std::iter::from_fn(|| Some(request.test())).flatten().next().unwrap().unwrap();
        assert!(request.operation::<Receive>().is_none(), "it was returned");
        let again = request.wait().unwrap_err();
        assert!(matches!(again, Failed { error: Error::NoSuchRequest, buffer: None }), "{again:?}");

        let mut receive = done.buffer;
        receive.start().unwrap();
        comm.send(&[2u8], me, 1).unwrap();
        let mut receive = smol::block_on(receive.into_request().into_future()).unwrap().buffer;
        assert_eq!(*receive.buffer().unwrap(), [2]);

        receive.start().unwrap();
        let (sender, ends) = channel();
        receive.into_request().on_end(move |end| sender.send(end.unwrap().buffer).unwrap());
        comm.send(&[3u8], me, 1).unwrap();
        let mut receive = ends.recv().unwrap();
        assert_eq!(*receive.buffer().unwrap(), [3]);

        // A dropped request cancels the round.
        receive.start().unwrap();
        drop(receive.into_request());
        comm.send(&[4u8], me, 1).unwrap();
        assert_eq!(comm.recv_vec::<u8>(me, 1).unwrap().buffer, [4]);
    });
}

#[test]
fn rounds_come_back_after_the_end_of_the_world() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm().clone(), world.comm().rank());
        let mut set = comm.request_set::<AnyBuffer>();
        let mut receive = comm.recv_init(vec![0u8], me, 1).unwrap();
        receive.start().unwrap();
        let mut whole = comm.precv_init(vec![0u8], 1, me, 3).unwrap();
        whole.start().unwrap();
        let keys = [insert(&mut set, receive.into_request()), insert(&mut set, whole.into_request())];
        drop(world);
        let ends = set.test_all().unwrap();
        assert_eq!(ends.len(), keys.len());
        for (key, end) in ends {
            let Failed { error, buffer } = end.unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
            let operation = buffer.expect("it comes back");
            match key == keys[0] {
                true => assert!(operation.downcast::<Receive>().is_ok_and(|receive| !receive.is_active())),
                false => assert!(operation.downcast::<PartitionedRecv<u8>>().is_ok()),
            }
        }
    });
}

/// Asserts at compile time that a type can be moved to threads and shared by them.
const fn is_send_and_sync<T: Send + Sync>() {}

const _: () = {
    is_send_and_sync::<Request<Receive>>();
    is_send_and_sync::<RequestSet<PartitionedSend<f64>>>();
    is_send_and_sync::<samite::RequestFuture<PersistentSend<Box<[u8]>>>>();
    is_send_and_sync::<Comm>();
};
