//! Hints of communicators: the promises of a program are checked.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use samite::{
    Check, CheckedVec, Comm, Error, Hints, Layout, Locality, PendingSet, Rank, Settings, Source, Tag,
    start_all,
};

const NO_ANY_SOURCE: Hints = Hints::NONE.no_any_source();
const NO_ANY_TAG: Hints = Hints::NONE.no_any_tag();
const EXACT_LENGTH: Hints = Hints::NONE.exact_length();

/// The result of a future that is ready.
fn ready<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Runs `body` as the only rank of a job, with a duplicate that has hints. The check `hints` is on, so the lengths of
/// messages are checked.
fn with_hints(hints: Hints, body: impl Fn(&Comm) + Sync) {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Hints]).unwrap();
    settings.local(1, |world| body(&world.comm().dup_with(hints).unwrap()));
}

/// Tries each call that takes a source and a tag.
fn searches(comm: &Comm, from: Source, tag: Tag) -> Vec<(&'static str, Result<(), Error>)> {
    let me = comm.rank();
    let (mut room, mut byte) = ([0u8; 3], [0u8]);
    let layout = Layout::contiguous(1).unwrap();
    vec![
        ("recv", comm.recv(&mut room, from, tag).map(drop)),
        ("recv_vec", comm.recv_vec::<u8>(from, tag).map(drop)),
        ("recv_checked", comm.recv_checked(&mut [true], from, tag).map(drop)),
        ("recv_view", comm.recv_view(&mut layout.of_mut(&mut room).unwrap(), from, tag).map(drop)),
        ("sendrecv", comm.sendrecv(&[1u8], me, 7, &mut room, from, tag).map(drop)),
        ("sendrecv_replace", comm.sendrecv_replace(&mut room, me, 7, from, tag).map(drop)),
        ("isendrecv", comm.isendrecv(vec![1u8], me, 7, vec![0u8], from, tag).map(drop).map_err(Error::from)),
        (
            "isendrecv_replace",
            comm.isendrecv_replace(vec![1u8], me, 7, from, tag).map(drop).map_err(Error::from),
        ),
        ("irecv", comm.irecv(vec![0u8], from, tag).map(drop).map_err(Error::from)),
        ("Scope::irecv", comm.scope(|scope| scope.irecv(&mut room, from, tag).map(drop))),
        (
            "Scope::irecv_view",
            comm.scope(|scope| scope.irecv_view(layout.of_mut(&mut byte).unwrap(), from, tag).map(drop)),
        ),
        ("probe", comm.probe(from, tag).map(drop)),
        ("try_probe", comm.try_probe(from, tag).map(drop)),
        ("claim", comm.claim(from, tag).map(drop)),
        ("try_claim", comm.try_claim(from, tag).map(drop)),
        ("probe_async", ready(comm.probe_async(from, tag)).map(drop)),
        ("claim_async", ready(comm.claim_async(from, tag)).map(drop)),
        ("recv_init", comm.recv_init(vec![0u8], from, tag).map(drop)),
    ]
}

#[test]
fn every_call_with_a_wildcard_is_refused() {
    let one = Source::from(Rank(0));
    for (promised, from, tag, broken) in [
        (NO_ANY_SOURCE, Source::ANY, Tag::from(7), NO_ANY_SOURCE),
        (NO_ANY_TAG, one, Tag::ANY, NO_ANY_TAG),
        (NO_ANY_TAG, one, Tag::masked(6, !1), NO_ANY_TAG),
        (NO_ANY_TAG.no_any_source().exact_length(), one, Tag::ANY, NO_ANY_TAG),
        (NO_ANY_TAG.no_any_source().overtaking(), Source::ANY, Tag::ANY, NO_ANY_SOURCE),
    ] {
        // Without checks too.
        samite::local(1, |world| {
            let comm = world.comm().dup_with(promised).unwrap();
            for handle in [comm.clone(), comm.lane(0).unwrap()] {
                for (call, refused) in searches(&handle, from, tag) {
                    assert_eq!(refused, Err(Error::BrokenHint { call, hint: broken }), "{call}");
                }
            }
            // Nothing was posted, sent or received.
            assert_eq!(comm.stats().requests, 0);
            comm.send(&[5u8], Rank(0), 9).unwrap();
            assert_eq!(comm.recv_vec::<u8>(Rank(0), 9).unwrap().buffer, [5]);
            assert!(comm.try_probe(Rank(0), 7).unwrap().is_none());
        });
    }
}

#[test]
fn an_error_names_the_call_and_the_hint() {
    with_hints(NO_ANY_SOURCE, |comm| {
        let error = comm.probe(Source::ANY, 7).unwrap_err();
        let text = "`probe` has a wildcard, and its communicator has the hint no_any_source";
        assert!(error.to_string().starts_with(text), "{error}");
    });
}

#[test]
fn wildcards_that_no_hint_concerns_are_allowed() {
    let overtaking = Hints::NONE.overtaking();
    for (promised, from, tag) in [
        (NO_ANY_SOURCE, Source::from(Rank(0)), Tag::ANY),
        (NO_ANY_TAG, Source::ANY, Tag::from(7)),
        (overtaking, Source::ANY, Tag::ANY),
        // A mask of all bits is one tag.
        (NO_ANY_TAG, Source::ANY, Tag::masked(7, !0)),
    ] {
        with_hints(promised, |comm| {
            for byte in 0..10u8 {
                comm.send(&[byte], comm.rank(), 7).unwrap();
            }
            // The messages keep their order, also with the permission to overtake.
            for byte in 0..10u8 {
                let mut received = [0u8];
                comm.recv(&mut received, from, tag).unwrap();
                assert_eq!(received, [byte]);
            }
        });
    }
    // A receive from an absent source receives nothing, with any tag.
    with_hints(NO_ANY_TAG.no_any_source().exact_length(), |comm| {
        for (call, end) in searches(comm, None.into(), Tag::ANY) {
            assert_eq!(end, Ok(()), "{call}");
        }
        let request = comm.irecv(vec![0u8; 3], None, Tag::ANY).unwrap();
        assert_eq!(request.wait().unwrap().status.bytes, 0);
    });
}

#[test]
fn hints_are_not_inherited() {
    let all = NO_ANY_SOURCE.no_any_tag().exact_length().overtaking();
    with_hints(all, |comm| {
        assert_eq!(comm.hints(), all);
        assert_eq!(comm.lane(0).unwrap().with_timeout(std::time::Duration::from_secs(9)).hints(), all);
        let made = [
            comm.dup().unwrap(),
            comm.idup().unwrap().wait().unwrap(),
            comm.split(Some(0), 0).unwrap().unwrap(),
            comm.split_by(Locality::Host, 0).unwrap().unwrap(),
            comm.create_from_group(&comm.group(), 0).unwrap(),
            comm.self_comm().unwrap(),
        ];
        for made in &made {
            assert_eq!(made.hints(), Hints::NONE);
            made.send(&[1u8], Rank(0), 7).unwrap();
            made.recv(&mut [0u8; 2], Source::ANY, Tag::ANY).unwrap();
        }
        assert_eq!(comm.dup_with(NO_ANY_TAG).unwrap().hints(), NO_ANY_TAG);
        assert_eq!(comm.idup_with(NO_ANY_TAG).unwrap().wait().unwrap().hints(), NO_ANY_TAG);
    });
    samite::local(1, |world| assert_eq!(world.comm().hints(), Hints::NONE));
}

/// Each rank promises for itself, and an intercommunicator has hints too.
#[test]
fn ranks_may_have_different_hints() {
    samite::local(2, |world| {
        let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
        let mine = if comm.rank() == 0 { NO_ANY_SOURCE } else { Hints::NONE };
        let groups = comm.self_comm().unwrap().create_intercomm(Rank(0), comm, other, 7).unwrap();
        for apart in [comm.dup_with(mine).unwrap(), groups.dup_with(mine).unwrap()] {
            let to = if apart.remote_size().is_some() { Rank(0) } else { other };
            let exchanged = apart.sendrecv(&[1u8], to, 7, &mut [0u8], Source::ANY, 7);
            if comm.rank() == 0 {
                assert!(matches!(exchanged, Err(Error::BrokenHint { call: "sendrecv", .. })));
                apart.sendrecv(&[1u8], to, 7, &mut [0u8], to, 7).unwrap();
            } else {
                exchanged.unwrap();
            }
        }
    });
}

/// Sends 3 bytes and receives them into a buffer of `room` bytes, once by each of the calls named in the result.
/// Returns the results. Also asserts that receives succeed that make their buffer themselves.
fn receives(comm: &Comm, room: usize) -> Vec<(&'static str, Result<(), Error>)> {
    let (me, tag) = (comm.rank(), 7);
    let send = || comm.send(&[1u8, 0, 1], me, tag).unwrap();
    let mut ends = Vec::new();
    let mut buffer = vec![0u8; room];
    send();
    ends.push(("recv", comm.recv(&mut buffer, me, tag).map(drop)));
    send();
    ends.push(("recv_checked", comm.recv_checked(&mut vec![false; room], me, tag).map(drop)));
    let layout = Layout::vector(room, 1, 2).unwrap();
    send();
    let mut wide = vec![0u8; 2 * room];
    ends.push(("recv_view", comm.recv_view(&mut layout.of_mut(&mut wide).unwrap(), me, tag).map(drop)));
    let exchanged = comm.sendrecv(&[1u8, 0, 1], me, tag, &mut buffer, me, tag);
    ends.push(("sendrecv", exchanged.map(drop)));
    let exchange = comm.isendrecv(vec![1u8, 0, 1], me, tag, vec![0u8; room], me, tag).unwrap();
    ends.push(("isendrecv", exchange.wait().map(drop).map_err(Error::from)));
    send();
    let request = comm.irecv(vec![0u8; room], me, tag).unwrap();
    ends.push(("irecv", request.wait().map(drop).map_err(Error::from)));
    send();
    let request = comm.irecv(CheckedVec::new(&vec![true; room]), me, tag).unwrap();
    ends.push(("irecv of checked values", request.wait().map(drop).map_err(Error::from)));
    send();
    let request = comm.irecv(layout.of_owned(vec![0u8; 2 * room]).unwrap(), me, tag).unwrap();
    ends.push(("irecv of a view", request.wait().map(drop).map_err(Error::from)));
    send();
    let request = comm.claim(me, tag).unwrap().irecv(vec![0u8; room]).unwrap();
    ends.push(("Message::irecv", request.wait().map(drop).map_err(Error::from)));
    let mut set = comm.request_set();
    set.insert(comm.irecv(vec![0u8; room], me, tag).unwrap()).unwrap();
    send();
    ends.push(("RequestSet", set.wait_any().unwrap().1.map(drop).map_err(Error::from)));
    let data = [1u8, 0, 1];
    let scoped = comm.scope(|scope| {
        let receive = scope.irecv(&mut buffer, me, tag)?;
        scope.isend(&data, me, tag)?;
        scope.wait(receive).map(drop)
    });
    ends.push(("Scope::wait", scoped));
    let scoped = comm.scope(|scope| {
        scope.irecv(&mut buffer, me, tag)?;
        scope.isend(&data, me, tag).map(drop)
    });
    ends.push(("scope", scoped));
    let scoped = comm.scope(|scope| {
        let mut set = PendingSet::default();
        set.insert(scope.irecv(&mut buffer, me, tag)?);
        scope.isend(&data, me, tag)?;
        scope.wait_any(&mut set).unwrap().1.map(drop)
    });
    ends.push(("PendingSet", scoped));
    let mut send = comm.send_init(data.to_vec(), me, tag).unwrap();
    let mut receive = comm.recv_init(vec![0u8; room], me, tag).unwrap();
    start_all(&mut [&mut receive, &mut send]).unwrap();
    ends.push(("PersistentRecv", receive.wait().map(drop)));
    send.wait().unwrap();
    // These calls make a buffer of the message's length.
    comm.send(&data, me, tag).unwrap();
    comm.recv_vec::<u8>(me, tag).unwrap();
    comm.send(&data, me, tag).unwrap();
    comm.claim(me, tag).unwrap().recv::<u8>().unwrap();
    // The check does not apply to sends.
    let sent = comm.isend(data.to_vec(), me, tag).unwrap();
    let strided = comm.isend(layout.of_owned(vec![0u8; 2 * room]).unwrap(), me, tag).unwrap();
    comm.recv_vec::<u8>(me, tag).unwrap();
    comm.recv_vec::<u8>(me, tag).unwrap();
    assert!(sent.wait().is_ok() && strided.wait().is_ok());
    ends
}

#[test]
fn a_shorter_message_is_an_error_under_the_check() {
    with_hints(EXACT_LENGTH, |comm| {
        for (call, end) in receives(comm, 3) {
            assert_eq!(end, Ok(()), "{call}");
        }
        for (call, end) in receives(comm, 4) {
            assert!(
                matches!(end, Err(Error::NotExact { status, room: 4 }) if status.bytes == 3 && status.tag == 7),
                "{call}: {end:?}"
            );
        }
        assert_eq!(comm.stats().requests, 0);
    });
    // Without the hint, and without the check.
    with_hints(Hints::NONE, |comm| {
        assert!(receives(comm, 4).into_iter().all(|(_, end)| end.is_ok()));
    });
    samite::local(1, |world| {
        let comm = world.comm().dup_with(EXACT_LENGTH).unwrap();
        assert!(receives(&comm, 4).into_iter().all(|(_, end)| end.is_ok()));
    });
}

/// A scope checks each receive that its body did not wait for, in whichever wait its message has arrived.
#[test]
fn a_scope_checks_receives_that_end_in_the_wait_for_another() {
    with_hints(EXACT_LENGTH, |comm| {
        let (me, data) = (comm.rank(), [1u8, 0, 1]);
        for short in 0..3 {
            for waits in [false, true] {
                let mut rooms = [vec![0u8; 3], vec![0u8; 3], vec![0u8; 3]];
                rooms[short].push(0);
                let mut last = [0u8; 3];
                let end = comm.scope(|scope| {
                    for (tag, room) in (0..).zip(&mut rooms) {
                        scope.irecv(room, me, tag)?;
                    }
                    let receive = scope.irecv(&mut last, me, 3)?;
                    for tag in 0..4 {
                        scope.isend(&data, me, tag)?;
                    }
                    if waits { scope.wait(receive).map(drop) } else { Ok(()) }
                });
                let broken =
                    matches!(end, Err(Error::NotExact { status, room: 4 }) if status.tag == short as u64);
                assert!(broken, "{short} {waits}: {end:?}");
            }
        }
        // Without the hint, a scope still checks that each message is made of whole elements.
        let comm = comm.dup().unwrap();
        for waits in [false, true] {
            let (mut room, mut numbers, mut last) = ([0u8; 3], [0u16; 2], [0u8; 3]);
            let end = comm.scope(|scope| {
                scope.irecv(&mut room, me, 0)?;
                scope.irecv(&mut numbers, me, 1)?;
                let receive = scope.irecv(&mut last, me, 2)?;
                for tag in 0..3 {
                    scope.isend(&data, me, tag)?;
                }
                if waits { scope.wait(receive).map(drop) } else { Ok(()) }
            });
            let broken = matches!(end, Err(Error::PartialElement { status, element: 2 }) if status.tag == 1);
            assert!(broken, "{waits}: {end:?}");
        }
        assert_eq!(comm.stats().requests, 0);
    });
}

/// The end of a scope finds a message of a wrong length, although an operation that began earlier never ends.
#[test]
fn an_operation_that_never_ends_hides_no_wrong_length() {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Hints]).unwrap();
    for is_posted in [false, true] {
        settings.clone().local(2, |world| {
            let comm = world.comm().dup_with(EXACT_LENGTH).unwrap();
            let other = Rank(1 - comm.rank().0);
            let bounded = comm.with_timeout(std::time::Duration::from_secs(60));
            if comm.rank() == 1 {
                if is_posted {
                    bounded.recv(&mut [0u8; 0], other, 9).unwrap();
                }
                bounded.send(&[1u8, 2, 3], other, 7).unwrap();
                // Rank 0 sends this once its scope has failed.
                bounded.recv(&mut [0u8; 1], other, 8).unwrap();
                return;
            }
            let (mut never, mut longer, mut last) = ([0u8; 1], [0u8; 4], [0u8; 1]);
            let end = bounded.scope(|scope| {
                scope.irecv(&mut never, other, 1)?;
                scope.irecv(&mut longer, other, 7)?;
                scope.irecv(&mut last, other, 2)?;
                if is_posted { scope.isend(&[0u8; 0], other, 9).map(drop) } else { Ok(()) }
            });
            assert!(matches!(end, Err(Error::NotExact { room: 4, .. })), "{is_posted}: {end:?}");
            bounded.send(&[0u8], other, 8).unwrap();
        });
    }
}

#[test]
fn the_sender_of_a_shorter_message_has_its_rank_in_the_communicator() {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Hints]).unwrap();
    settings.local(3, |world| {
        let reversed = world.comm().split(Some(0), -i64::from(world.comm().rank().0)).unwrap().unwrap();
        let comm = reversed.dup_with(EXACT_LENGTH).unwrap();
        match comm.rank() {
            Rank(0) => {
                for _ in 0..3 {
                    comm.send(&[1u8], Rank(2), 7).unwrap();
                }
            }
            Rank(2) => {
                let from = Source::ANY;
                let mut room = [0u8; 2];
                let errors = [
                    comm.recv(&mut [0u8; 2], from, 7).unwrap_err(),
                    comm.irecv(vec![0u8; 2], from, 7).unwrap().wait().unwrap_err().error,
                    comm.scope(|scope| scope.irecv(&mut room, from, 7).map(drop)).unwrap_err(),
                ];
                for error in errors {
                    assert!(
                        matches!(error, Error::NotExact { status, room: 2 } if status.peer == 0),
                        "{error}"
                    );
                }
            }
            _ => {}
        }
    });
}

#[test]
fn hints_have_names() {
    assert_eq!(Hints::NONE.to_string(), "none");
    let all = Hints::NONE.overtaking().exact_length().no_any_tag().no_any_source();
    assert_eq!(format!("{all:?}"), "no_any_source, no_any_tag, exact_length, overtaking");
    assert!(all.contains(NO_ANY_TAG) && !NO_ANY_TAG.contains(all) && NO_ANY_TAG.contains(Hints::NONE));
}
