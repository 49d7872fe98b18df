//! Requests with buffers of every type, and sets of them.

use std::sync::Arc;
use std::sync::mpsc::channel;

use samite::{AnyBuffer, Comm, Error, Rank, Source};

/// Long enough to need the receiver's answer.
const LONG: usize = 1 << 17;

#[test]
fn each_type_of_buffer_comes_back_as_it_was_given() {
    samite::local(2, |world| {
        let comm = world.comm();
        for len in [0, 3, LONG] {
            let data: Vec<u64> = (0..len as u64).collect();
            if comm.rank() == Rank(0) {
                let (boxed, shared): (Box<[u64]>, Arc<[u64]>) = (data.clone().into(), data.clone().into());
                let addresses = [boxed.as_ptr(), shared.as_ptr()];
                let sends = (
                    comm.isend(boxed, Rank(1), 1).unwrap(),
                    comm.isend(shared.clone(), Rank(1), 2).unwrap(),
                    comm.isend(shared.clone(), Rank(1), 3).unwrap(),
                );
                assert_eq!(shared[..], data, "it is readable meanwhile");
                let sent = (sends.0.wait().unwrap().buffer, sends.1.wait().unwrap().buffer);
                assert_eq!((&sent.0[..], &sent.1[..]), (&data[..], &data[..]));
                if len > 0 {
                    assert_eq!([sent.0.as_ptr(), sent.1.as_ptr()], addresses, "not copied");
                }
                drop(sends.2.wait().unwrap());
                // The receiver has all messages, so no port holds a reference.
                drop(sent);
                assert_eq!(Arc::strong_count(&shared), 1);
            } else {
                let receives = [1, 2, 3].map(|tag| comm.irecv(vec![0; len].into_boxed_slice(), Rank(0), tag));
                for receive in receives {
                    let done = receive.unwrap().wait().unwrap();
                    assert_eq!((&done.buffer[..], done.status.bytes), (&data[..], len * 8));
                }
            }
        }
    });
}

#[test]
fn a_refused_send_returns_the_very_reference() {
    samite::local(1, |world| {
        let shared: Arc<[u8]> = Arc::from([1, 2]);
        let group = world.comm().split(Some(0), 0).unwrap().unwrap();
        let failed = group.isend(shared.clone(), Rank(1), 7).unwrap_err();
        assert!(matches!(failed.error, Error::InvalidRank { rank: Rank(1), size: 1 }));
        assert!(Arc::ptr_eq(&failed.buffer.unwrap(), &shared));
    });
}

#[test]
fn a_set_of_any_buffers_tells_their_types_and_checks_their_elements() {
    samite::local(1, |world| {
        let comm = world.comm();
        let mut set = comm.request_set::<AnyBuffer>();
        let mut add = |request: samite::Request<AnyBuffer>| set.insert(request).expect("of this world");
        let whole = add(comm.irecv(vec![0u16; 2], comm.rank(), 1).unwrap().into_any());
        let in_part = add(comm.irecv(vec![0u32; 2].into_boxed_slice(), Source::ANY, 2).unwrap().into_any());
        let sent = add(comm.isend(Arc::<[u8]>::from([1, 0, 2]), comm.rank(), 2).unwrap().into_any());
        let also = add(comm.isend(vec![[1u8, 0]; 2], comm.rank(), 1).unwrap().into_any());
        let mut keys = Vec::new();
        while let Some((key, result)) = set.wait_any() {
            keys.push(key);
            match result {
                Ok(done) if key == whole => {
                    let other = done.buffer.downcast::<Vec<u32>>().unwrap_err();
                    assert_eq!(other.downcast::<Vec<u16>>().unwrap(), [1, 1]);
                }
                Ok(done) if key == sent => {
                    let other = done.buffer.downcast::<Vec<u8>>().unwrap_err();
                    assert_eq!(other.downcast::<Arc<[u8]>>().unwrap()[..], [1, 0, 2]);
                }
                Ok(done) => {
                    assert_eq!((key, done.buffer.downcast::<Vec<[u8; 2]>>().unwrap().len()), (also, 2))
                }
                Err(failed) => {
                    assert_eq!(key, in_part);
                    assert!(matches!(failed.error, Error::PartialElement { element: 4, .. }));
                    assert_eq!(failed.buffer.unwrap().downcast::<Box<[u32]>>().unwrap().len(), 2);
                }
            }
        }
        keys.sort_unstable();
        assert_eq!(keys, [whole, in_part, sent, also]);
    });
}

#[test]
fn a_look_takes_no_result() {
    samite::local(1, |world| {
        let comm = world.comm();
        let mut request = comm.irecv(vec![0_u8; 1], comm.rank(), 7).unwrap();
        assert!(!request.is_finished());
        comm.send(&[5_u8], comm.rank(), 7).unwrap();
        while !request.is_finished() {}
        assert!(request.is_finished());
        assert_eq!(request.test().expect("it has ended").unwrap().buffer, [5]);
        assert!(request.is_finished());
    });
}

#[test]
fn an_end_that_comes_again_and_again_keeps_no_other_waiting() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm(), world.comm().rank());
        let mut set = comm.request_set();
        let receive = |tag| comm.irecv(vec![0_u8; 1], me, tag).unwrap();
        let [mut busy, once] = [1, 2].map(|tag| set.insert(receive(tag)).expect("of this world"));
        for round in 0..100 {
            comm.send(&[0_u8], me, 1).unwrap();
            if round == 50 {
                comm.send(&[0_u8], me, 2).unwrap();
            }
            let (key, end) = set.wait_any().unwrap();
            end.unwrap();
            if key == once {
                // Ends are reported in order: in round 50 the request of tag 1 ended first.
                assert_eq!(round, 51);
                return;
            }
            assert_eq!(key, busy);
            busy = set.insert(receive(1)).expect("of this world");
        }
        panic!("one has ended, and was not returned");
    });
}

#[test]
fn callbacks_run_once_call_the_library_and_may_panic() {
    samite::local(1, |world| {
        let (comm, me) = (world.comm().clone(), world.comm().rank());
        let (sender, ends) = channel();
        let receive = |tag| comm.irecv(vec![0_u8; 1], me, tag).unwrap();
        receive(1).on_end(|_| panic!("a callback panics, as intended"));
        let (inner, told) = (comm.clone(), sender.clone());
        receive(2).on_end(move |end| {
            // A callback may make calls that wait, and may set another callback.
            inner.sendrecv(&[end.unwrap().buffer[0] + 1], me, 3, &mut [0_u8], me, 3).unwrap();
            let receive = inner.irecv(vec![0_u8; 1], me, 4).unwrap();
            receive.on_end(move |end| told.send(end.map(|done| done.buffer[0])).unwrap());
        });
        comm.send(&[1_u8], me, 1).unwrap();
        comm.send(&[2_u8], me, 2).unwrap();
        comm.send(&[3_u8], me, 4).unwrap();
        assert_eq!(ends.recv().unwrap().unwrap(), 3);
        // The request has ended, so this thread runs the callback.
        comm.send(&[9_u8], me, 5).unwrap();
        let (ended, this) = (receive(5), std::thread::current().id());
        while !ended.is_finished() {}
        ended.on_end(move |_| assert_eq!(std::thread::current().id(), this));
        receive(6).on_end(move |end| sender.send(end.map(|done| done.buffer[0])).unwrap());
        drop(world);
        assert!(matches!(ends.recv().unwrap().unwrap_err().error, Error::Closed { .. }));
        assert!(ends.recv().is_err(), "each is called once");
    });
}

/// Asserts at compile time that a type can be moved to threads and shared by them.
const fn is_send_and_sync<T: Send + Sync>() {}

const _: () = {
    is_send_and_sync::<samite::World>();
    is_send_and_sync::<Comm>();
    is_send_and_sync::<samite::Message>();
    is_send_and_sync::<samite::CancelToken>();
    is_send_and_sync::<samite::Group>();
    is_send_and_sync::<samite::Request<Vec<u8>>>();
    is_send_and_sync::<samite::Request<Arc<[u8]>>>();
    is_send_and_sync::<samite::Request<AnyBuffer>>();
    is_send_and_sync::<samite::RequestSet<AnyBuffer>>();
    is_send_and_sync::<samite::Done<AnyBuffer>>();
    is_send_and_sync::<samite::Failed<AnyBuffer>>();
    is_send_and_sync::<samite::Scope<'_, '_>>();
    is_send_and_sync::<samite::Pending<'_>>();
    is_send_and_sync::<samite::PendingSet<'_>>();
};
