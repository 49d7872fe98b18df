//! The check of types: a message that is received as elements of other types is an error of its receive.

use std::sync::Arc;

use samite::zerocopy::{FromBytes, Immutable, IntoBytes, TryFromBytes};
use samite::{Check, CheckedVec, Comm, Element, Error, Field, Layout, Mode, Rank, Settings, Source, Status};

const TAG: u64 = 7;

/// Runs `body` as ranks that check types.
fn checked<R: Send>(ranks: u32, body: impl Fn(&Comm) -> R + Sync) -> Vec<R> {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Types]).unwrap();
    settings.local(ranks, |world| body(world.comm()))
}

/// A call that receives a message, into the given buffer unless the call makes its own.
type Receive<'a> = &'a dyn Fn(&mut [f32]) -> Result<Status, Error>;

/// Checks the error of a receive of `f32` that gets a message of 3 elements of `u32` from this rank itself.
#[track_caller]
fn assert_differs(call: &str, result: Result<Status, Error>) {
    match result {
        Err(Error::TypesDiffer { status, call: named, types }) => {
            assert_eq!((status.peer, status.tag, status.bytes, named), (Rank(0), TAG, 12, call));
            assert_eq!((&types.sent[..], &types.expected[..]), ("u32", "f32"), "{call}");
        }
        other => panic!("{call}: {other:?}"),
    }
}

#[test]
fn every_receive_finds_a_wrong_type() {
    checked(1, |comm| {
        let me = comm.rank();
        let send = || comm.isend(vec![1u32, 2, 3], me, TAG).unwrap();
        let floats = || vec![-1.0f32; 4];
        let layout = Layout::<f32>::contiguous(4).unwrap();
        let mut room = floats();

        let sent = send();
        assert_differs("recv", comm.recv(&mut room, me, TAG));
        assert_eq!(room, floats(), "the buffer is unchanged");
        sent.wait().unwrap();
        let calls: [(&str, Receive<'_>); 12] = [
            ("recv", &|room| comm.recv(room, Source::ANY, TAG)),
            ("recv_checked", &|room| comm.recv_checked(room, me, TAG)),
            ("recv_vec", &|_| comm.recv_vec::<f32>(me, TAG).map(|done| done.status)),
            ("recv_view", &|room| comm.recv_view(&mut layout.of_mut(room).unwrap(), me, TAG)),
            ("irecv", &|_| Ok(comm.irecv(floats(), me, TAG)?.wait()?.status)),
            ("irecv", &|_| Ok(comm.irecv(floats(), me, TAG)?.into_any().wait()?.status)),
            ("irecv", &|_| Ok(comm.irecv(CheckedVec::new(&floats()), me, TAG)?.wait()?.status)),
            ("irecv", &|_| Ok(comm.irecv(layout.of_owned(floats())?, me, TAG)?.wait()?.status)),
            ("Scope::irecv", &|room| {
                let mut status = None;
                comm.scope(|scope| {
                    let pending = scope.irecv(room, me, TAG)?;
                    status = Some(scope.wait(pending)?);
                    Ok(())
                })?;
                Ok(status.unwrap())
            }),
            ("Scope::irecv_view", &|room| {
                let view = layout.of_mut(room).unwrap();
                comm.scope(|scope| scope.irecv_view(view, me, TAG).map(drop)).map(|()| unreachable!())
            }),
            ("Message::recv", &|_| comm.claim(me, TAG)?.recv::<f32>().map(|done| done.status)),
            ("Message::irecv", &|_| Ok(comm.claim(me, TAG)?.irecv(floats())?.wait()?.status)),
        ];
        for (call, receive) in calls {
            let sent = send();
            assert_differs(call, receive(&mut room));
            assert_eq!(room, floats(), "{call}");
            sent.wait().unwrap();
        }
        let mut persistent = comm.recv_init(floats(), me, TAG).unwrap();
        persistent.start().unwrap();
        let sent = send();
        assert_differs("PersistentRecv::start", persistent.wait());
        sent.wait().unwrap();

        assert_differs("sendrecv", comm.sendrecv(&[1u32, 2, 3], me, TAG, &mut room, me, TAG));
        let exchange = comm.isendrecv(vec![1u32, 2, 3], me, TAG, floats(), me, TAG).unwrap();
        let end = exchange.wait().map(|exchanged| exchanged.status);
        assert_differs("isendrecv", end.map_err(|failed| failed.error));
        // Nothing is left of all these messages.
        assert!(comm.try_probe(Source::ANY, samite::Tag::ANY).unwrap().is_none());
    });
}

#[test]
fn every_send_tells_its_type() {
    checked(1, |comm| {
        let me = comm.rank();
        let numbers = || vec![1u32, 2, 3];
        let layout = Layout::<u32>::contiguous(3).unwrap();
        let receive = || comm.recv(&mut [0f32; 3], me, TAG);
        let lent = numbers();

        let sent = comm.isend(numbers(), me, TAG).unwrap();
        assert_differs("recv", receive());
        sent.wait().unwrap();
        let sent = comm.isend(Arc::<[u32]>::from(numbers()), me, TAG).unwrap();
        assert_differs("recv", receive());
        sent.wait().unwrap();
        let sent = comm.isend(numbers().into_boxed_slice(), me, TAG).unwrap();
        assert_differs("recv", receive());
        sent.wait().unwrap();
        let sent = comm.isend(CheckedVec::new(&numbers()), me, TAG).unwrap();
        assert_differs("recv", receive());
        sent.wait().unwrap();
        let sent = comm.isend(layout.of_owned(numbers()).unwrap(), me, TAG).unwrap();
        assert_differs("recv", receive());
        let view = sent.wait().unwrap().buffer;
        // A view keeps its types when it comes back.
        let sent = comm.isend(view, me, TAG).unwrap().into_any();
        assert_differs("recv", receive());
        // Such a buffer keeps its type too.
        let view = sent.wait().unwrap().buffer.downcast::<samite::OwnedView<Vec<u32>>>().unwrap();
        let sent = comm.isend(view, me, TAG).unwrap();
        assert_differs("recv", receive());
        sent.wait().unwrap();

        for mode in [Mode::Standard, Mode::Buffered] {
            comm.with_mode(mode).send(&lent, me, TAG).unwrap();
            assert_differs("recv", receive());
            comm.with_mode(mode).send_view(layout.of(&lent).unwrap(), me, TAG).unwrap();
            assert_differs("recv", receive());
        }
        for mode in [Mode::Standard, Mode::Buffered, Mode::Synchronous, Mode::Ready] {
            let modal = comm.with_mode(mode);
            let receive = comm.irecv(vec![0f32; 3], me, TAG).unwrap();
            modal.send(&lent, me, TAG).unwrap();
            assert_differs("irecv", receive.wait().map(|done| done.status).map_err(Error::from));
            let mut send = modal.send_init(numbers(), me, TAG).unwrap();
            let receive = comm.irecv(vec![0f32; 3], me, TAG).unwrap();
            send.start().unwrap();
            assert_differs("irecv", receive.wait().map(|done| done.status).map_err(Error::from));
            send.wait().unwrap();
            let receive = comm.irecv(vec![0f32; 3], me, TAG).unwrap();
            modal.scope(|scope| scope.isend_view(layout.of(&lent)?, me, TAG).map(drop)).unwrap();
            assert_differs("irecv", receive.wait().map(|done| done.status).map_err(Error::from));
        }
    });
}

#[test]
fn partitions_have_types() {
    checked(2, |comm| match comm.rank() {
        Rank(0) => {
            let mut wrong = comm.psend_init(vec![1u32; 4], 2, Rank(1), TAG).unwrap();
            wrong.start().unwrap();
            let _ = wrong.ready(0..2);
            assert!(matches!(wrong.wait(), Err(Error::Abandoned { rank: Rank(1), .. })));
            let mut right = comm.psend_init(vec![1.5f32; 4], 2, Rank(1), TAG).unwrap();
            right.start().unwrap();
            right.ready(0..2).unwrap();
            right.wait().unwrap();
        }
        _ => {
            let mut wrong = comm.precv_init(vec![0f32; 4], 2, Rank(0), TAG).unwrap();
            let end = wrong.start().and_then(|()| wrong.wait());
            let Err(Error::TypesDiffer { status, call: "precv_init", types }) = end else {
                panic!("{end:?}")
            };
            assert_eq!((status.peer, status.bytes), (Rank(0), 16));
            assert_eq!((&types.sent[..], &types.expected[..]), ("u32", "f32"));
            let mut right = comm.precv_init(vec![0f32; 4], 1, Rank(0), TAG).unwrap();
            right.start().unwrap();
            right.wait().unwrap();
            assert_eq!(right.buffer_mut().unwrap(), [1.5; 4]);
        }
    });
}

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "samite::zerocopy")]
#[repr(C)]
struct Particle {
    place: [f32; 3],
    charge: u16,
    kind: u16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "samite::zerocopy")]
#[repr(C)]
struct Other([f32; 4]);

#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "samite::zerocopy")]
#[repr(u8)]
enum Phase {
    Solid = 1,
    Gas,
}

/// Sends `data` to this rank itself, and receives it as elements of type `R`. Returns true if the types agree.
fn crosses<S: Element, R: Element>(comm: &Comm, data: &[S], room: &mut [R]) -> bool {
    match comm.sendrecv(data, comm.rank(), TAG, room, comm.rank(), TAG) {
        Ok(status) => {
            assert_eq!(status.bytes, size_of_val(data));
            true
        }
        Err(Error::TypesDiffer { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The rules of MPI 4.1, section 3.3.1, with elements in place of datatypes.
#[test]
fn types_agree_whatever_the_number_of_elements() {
    checked(1, |comm| {
        let particle = Particle { place: [0.5; 3], charge: 1, kind: 2 };
        assert!(crosses(comm, &[0.5f64; 4], &mut [0f64; 10]));
        assert!(crosses(comm, &[[0.5f64; 2]; 2], &mut [0f64; 4]));
        assert!(crosses(comm, &[0.5f64; 4], &mut [[[0f64; 2]; 2]; 1]));
        assert!(crosses(comm, &[1usize], &mut [0u64]));
        assert!(crosses(comm, &[particle; 2], &mut [particle; 3]));
        assert!(crosses(comm, &[1u8; 8], &mut [0f64]) && crosses(comm, &[1f64], &mut [0u8; 8]));
        assert!(crosses(comm, &[particle], &mut [0u8; 16]) && crosses(comm, &[[1u8; 4]], &mut [0u32]));
        assert!(crosses(comm, &[0u32; 0], &mut [0f32]), "there are no elements to compare");
        assert!(!crosses(comm, &[1i32], &mut [0u32]) && !crosses(comm, &[1i8], &mut [0u16]));
        assert!(
            !crosses(comm, &[particle], &mut [Other([0.0; 4])])
                && !crosses(comm, &[particle], &mut [0f32; 4])
        );

        comm.send(&[true, false], comm.rank(), TAG).unwrap();
        comm.recv_checked(&mut [false; 2], comm.rank(), TAG).unwrap();
        comm.send(&[Phase::Gas], comm.rank(), TAG).unwrap();
        let error = comm.recv_checked(&mut [false], comm.rank(), TAG).unwrap_err();
        let Error::TypesDiffer { types, .. } = error else { panic!("{error}") };
        assert!(types.sent.ends_with("Phase") && types.expected == "bool", "{types:?}");
        comm.send(&[Phase::Gas], comm.rank(), TAG).unwrap();
        let mut phase = [Phase::Solid];
        comm.recv_checked(&mut phase, comm.rank(), TAG).unwrap();
        assert_eq!(phase, [Phase::Gas]);
    });
}

#[test]
fn layouts_have_the_types_of_what_they_select() {
    use std::mem::offset_of;
    checked(1, |comm| {
        let me = comm.rank();
        let place = Field::new(offset_of!(Particle, place), &Layout::<f32>::contiguous(3).unwrap());
        let charge = Field::new(offset_of!(Particle, charge), &Layout::<u16>::contiguous(1).unwrap());
        let kind = Field::new(offset_of!(Particle, kind), &Layout::<u16>::contiguous(1).unwrap());
        let both = [charge.clone(), kind.clone()];
        let particles = [Particle { place: [1.0, 2.0, 3.0], charge: 4, kind: 5 }; 2];
        let layout = |fields: &[Field]| {
            Layout::<Particle>::fields(fields.iter().cloned()).unwrap().repeated(2).unwrap()
        };
        let send = |fields: &[Field]| {
            comm.send_view(layout(fields).of(&particles).unwrap(), me, TAG).unwrap();
        };
        // A layout of one basic type agrees with this type, also if it selects fields of structs.
        send(&both);
        let mut numbers = [0u16; 9];
        assert_eq!(comm.recv(&mut numbers, me, TAG).unwrap().bytes, 8);
        assert_eq!(numbers[..4], [4, 5, 4, 5]);
        send(std::slice::from_ref(&place));
        let every_second = Layout::<f32>::vector(6, 1, 2).unwrap();
        let mut floats = [0f32; 12];
        comm.recv_view(&mut every_second.of_mut(&mut floats).unwrap(), me, TAG).unwrap();
        assert_eq!(floats[..6], [1.0, 0.0, 2.0, 0.0, 3.0, 0.0]);
        // A layout of several types agrees with layouts that have the same types in the same order.
        let all = [place.clone(), charge.clone(), kind.clone()];
        send(&all);
        let mut copy = [Particle { place: [0.0; 3], charge: 0, kind: 0 }; 2];
        comm.recv_view(&mut layout(&all).of_mut(&mut copy).unwrap(), me, TAG).unwrap();
        assert_eq!(copy, particles);
        for other in [&[kind.clone(), charge.clone(), place.clone()][..], &[place.clone(), charge.clone()]] {
            send(&all);
            let error = comm.recv_view(&mut layout(other).of_mut(&mut copy).unwrap(), me, TAG).unwrap_err();
            let Error::TypesDiffer { types, call: "recv_view", .. } = error else { panic!("{error}") };
            assert_eq!(types.sent, "(12 bytes of f32, 2 bytes of u16, 2 bytes of u16)");
        }
        send(&all);
        let error = comm.recv(&mut floats, me, TAG).unwrap_err();
        assert!(matches!(error, Error::TypesDiffer { .. }), "{error}");
        // Packed data is bytes, which may be received as elements of any type.
        comm.send(&layout(&both).of(&particles).unwrap().pack(), me, TAG).unwrap();
        comm.recv(&mut numbers, me, TAG).unwrap();
    });
}

#[cfg(feature = "serde")]
#[test]
fn serialized_values_are_no_elements() {
    checked(1, |comm| {
        let me = comm.rank();
        comm.send_value("text", me, TAG).unwrap();
        assert_eq!(comm.recv_value::<String>(100, me, TAG).unwrap().0, "text");
        comm.send_value("text", me, TAG).unwrap();
        assert_eq!(comm.recv_vec::<u8>(me, TAG).unwrap().buffer, b"\x04text");
        comm.send_value(&[1u32, 2], me, TAG).unwrap();
        let error = comm.recv_vec::<u16>(me, TAG).unwrap_err();
        let Error::TypesDiffer { types, .. } = error else { panic!("{error}") };
        assert_eq!((&types.sent[..], &types.expected[..]), ("a serialized value", "u16"));
        comm.send(&[1u32], me, TAG).unwrap();
        let error = comm.recv_value::<u32>(100, me, TAG).unwrap_err();
        assert!(matches!(error, Error::TypesDiffer { call: "recv_value", .. }), "{error}");
        comm.send(&[1u32], me, TAG).unwrap();
        let error = comm.irecv_value::<u32>(4, me, TAG).unwrap().wait().unwrap_err();
        assert!(matches!(error, Error::TypesDiffer { call: "irecv_value", .. }), "{error}");
        comm.send(&[1u32], me, TAG).unwrap();
        let error = comm.claim(me, TAG).unwrap().recv_value::<u32>(100).unwrap_err();
        assert!(matches!(error, Error::TypesDiffer { call: "Message::recv_value", .. }), "{error}");
        let sent = comm.isend_value(&5u32, me, TAG).unwrap();
        assert_eq!(comm.irecv_value::<u32>(100, me, TAG).unwrap().wait().unwrap().0, 5);
        sent.wait().unwrap();
    });
}

/// The check concerns derived communicators too, and the error has their ranks.
#[test]
fn an_error_has_the_ranks_of_its_communicator() {
    checked(2, |comm| {
        let reversed = comm.split(Some(0), -i64::from(comm.rank().0)).unwrap().unwrap();
        if reversed.rank() == 0 {
            reversed.send(&[1u32], Rank(1), TAG).unwrap();
        } else {
            let error = reversed.recv(&mut [0f32], Source::ANY, TAG).unwrap_err();
            assert!(matches!(error, Error::TypesDiffer { status, .. } if status.peer == 0), "{error}");
        }
    });
}

#[test]
fn without_the_check_types_are_not_compared() {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Modes, Check::Hints]).unwrap();
    settings.local(1, |world| assert!(crosses(world.comm(), &[1u32], &mut [0f32])));
}
