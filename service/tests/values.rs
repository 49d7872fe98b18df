//! Values of any type that serde serializes, and hostile bytes in their place.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use samite::{Comm, DecodeError, Error, ErrorHandler, Rank, Source, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const TAG: u64 = 7;
/// The limit of the receives that need no other limit.
const MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f64),
    Line([i16; 2], (u8, i128)),
    Polygon { corners: Vec<(f32, f32)>, name: Option<String> },
    Group(Vec<Shape>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Meters(u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Scene {
    shapes: Vec<Shape>,
    by_name: BTreeMap<String, Shape>,
    letters: Vec<char>,
    size: Option<Meters>,
    nothing: (),
}

/// A list that contains itself.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum List {
    End,
    Item(Box<List>),
}

/// A list with two nested parts per item: a struct and an option.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Chain(Option<Box<Chain>>);

/// A tree. The type does not limit its depth.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Tree(Vec<Tree>);

/// A value of this type takes no bytes in a message, and many in memory.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Hidden {
    #[serde(skip)]
    numbers: Option<[u64; 16]>,
}

fn scene() -> Scene {
    let polygon = Shape::Polygon { corners: vec![(0.0, -0.5), (1.5, 2.5)], name: Some("ß".into()) };
    let line = Shape::Line([-1, i16::MAX], (255, i128::MIN));
    Scene {
        shapes: vec![Shape::Point, Shape::Group(vec![Shape::Circle(f64::MAX), line.clone()]), polygon],
        by_name: [("a".into(), line), (String::new(), Shape::Point)].into(),
        letters: vec!['a', '\0', char::MAX],
        size: Some(Meters(u64::MAX)),
        nothing: (),
    }
}

/// Runs a case on two ranks, and passes it the communicator and the other rank.
fn on_two(case: impl Fn(&Comm, Rank) -> Result<(), Error> + Sync) {
    let results = samite::local(2, |world| {
        let comm = world.comm();
        case(comm, Rank(1 - comm.rank().0))
    });
    results.into_iter().for_each(Result::unwrap);
}

fn alone(case: impl Fn(&Comm) + Sync) {
    samite::local(1, |world| case(world.comm()));
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    smol::block_on(future.into_future())
}

/// Sends bytes to oneself, and returns the reason why they are no value of `T`. Checks that the message is consumed.
fn refused<T: DeserializeOwned>(comm: &Comm, bytes: &[u8], max_bytes: usize) -> DecodeError {
    let me = comm.rank();
    let send = comm.isend(bytes.to_vec(), me, TAG).unwrap();
    let Err(error) = comm.recv_value::<T>(max_bytes, me, TAG) else { panic!("{bytes:?} is no value") };
    send.wait().unwrap();
    assert_eq!(comm.try_probe(me, TAG).unwrap(), None);
    let text = error.to_string();
    let Error::Undecodable { status, value, why } = error else { panic!("{error}") };
    assert_eq!(status, Status { peer: me, tag: TAG, bytes: bytes.len() });
    assert_eq!(value, std::any::type_name::<T>());
    assert!(text.contains("from rank 0 with tag 7") && text.contains(value), "{text}");
    *why
}

#[test]
fn values_cross_in_every_call() {
    on_two(|comm, other| {
        // The longest message takes a rendezvous.
        for copies in [0, 1, 100, 20_000] {
            let scenes = vec![scene(); copies];
            if comm.rank() == 0 {
                for _ in 0..7 {
                    comm.send_value(&scenes, other, TAG)?;
                }
                continue;
            }
            let max = 200 * copies + 10;
            let claim = || comm.claim(other, TAG);
            let mut tested = comm.irecv_value::<Vec<Scene>>(max, other, TAG)?;
            let first = loop {
                if let Some(end) = tested.test() {
                    break end?;
                }
            };
            assert_eq!(tested.test().unwrap().unwrap_err(), Error::NoSuchRequest);
            let status = first.1;
            assert_eq!((status.peer, status.tag), (other, TAG));
            let rest = [
                comm.recv_value(max, Source::ANY, TAG)?,
                comm.irecv_value(max, other, TAG)?.wait()?,
                block_on(comm.irecv_value(max, other, TAG)?)?,
                claim()?.recv_value(max)?,
                claim()?.irecv_value(max)?.wait()?,
                // The length of the message is permitted.
                claim()?.recv_value(status.bytes)?,
            ];
            for received in [first].iter().chain(&rest) {
                assert!(received == &(scenes.clone(), status), "{copies} copies");
            }
        }
        Ok(())
    });
}

#[test]
fn values_of_one_rank_keep_their_order_with_slices() {
    on_two(|comm, other| {
        if comm.rank() == 0 {
            comm.isend_value(&1u8, other, TAG)?.wait()?;
            comm.send(&[2u8], other, TAG)?;
            return comm.send_value(&(3u8, "three"), other, TAG);
        }
        assert_eq!(comm.recv_value::<u8>(MAX, other, TAG)?.0, 1);
        // A byte is its own encoding.
        assert_eq!(comm.recv_value::<u8>(MAX, other, TAG)?.0, 2);
        assert_eq!(comm.recv_vec::<u8>(other, TAG)?.buffer, [3, 5, b't', b'h', b'r', b'e', b'e']);
        Ok(())
    });
}

#[test]
fn a_message_that_is_too_long_is_consumed() {
    on_two(|comm, other| {
        for bytes in [101, 10_000_000] {
            let text = "a".repeat(bytes);
            if comm.rank() == 0 {
                for _ in 0..4 {
                    comm.send_value(text.as_bytes(), other, TAG)?;
                }
                comm.send_value("next", other, TAG)?;
                continue;
            }
            let errors = [
                comm.recv_value::<Vec<u8>>(100, other, TAG).unwrap_err(),
                comm.irecv_value::<Vec<u8>>(100, other, TAG)?.wait().unwrap_err(),
                comm.claim(other, TAG)?.recv_value::<Vec<u8>>(100).unwrap_err(),
                comm.claim(other, TAG)?.irecv_value::<Vec<u8>>(100).unwrap_err(),
            ];
            for error in errors {
                let Error::Truncated { status, room: 100 } = error else { panic!("{error}") };
                assert_eq!((status.peer, status.tag), (other, TAG));
                assert!(status.bytes > bytes, "{status:?}");
            }
            assert_eq!(comm.recv_value::<String>(100, other, TAG)?.0, "next");
        }
        Ok(())
    });
}

#[test]
fn bytes_that_are_no_value_are_an_error() {
    alone(|comm| {
        let malformed = |why: DecodeError| assert!(matches!(why, DecodeError::Malformed(_)), "{why}");
        malformed(refused::<bool>(comm, &[2], MAX));
        malformed(refused::<u32>(comm, &[], MAX));
        malformed(refused::<u8>(comm, &[], MAX));
        malformed(refused::<u32>(comm, &[0xff; 5], MAX));
        malformed(refused::<u64>(comm, &[0xff; 100], MAX));
        malformed(refused::<char>(comm, &[3, 0xed, 0xa0, 0x80], MAX));
        malformed(refused::<String>(comm, &[2, 0xff, 0xff], MAX));
        malformed(refused::<Option<u8>>(comm, &[2, 1], MAX));
        malformed(refused::<Shape>(comm, &[5], MAX));
        malformed(refused::<Result<(), ()>>(comm, &[0xff, 0xff, 0xff, 0xff, 0x0f], MAX));
        // A type that refuses a part.
        malformed(refused::<std::num::NonZeroU8>(comm, &[0], MAX));
        // A type that needs a self-describing format.
        malformed(refused::<serde_json::Value>(comm, &[1], MAX));
    });
}

#[test]
fn errors_say_what_happened() {
    alone(|comm| {
        let me = comm.rank();
        let text = |bytes: &[u8]| {
            comm.send(bytes, me, TAG).unwrap();
            comm.recv_value::<Vec<bool>>(MAX, me, TAG).unwrap_err().to_string()
        };
        let what = "are no value of `alloc::vec::Vec<bool>`";
        let fix = "receive it as the type it was sent as, or as bytes";
        assert_eq!(
            text(&[1, 1, 1]),
            format!(
                "the message from rank 0 with tag 7 has 3 bytes, which {what}: 1 bytes follow the value; {fix}"
            )
        );
        assert!(text(&[2, 1]).contains("the decoder reports: "), "{}", text(&[2, 1]));
        let reasons = [DecodeError::TooDeep { max: 128 }, DecodeError::TooManyElements { max: 9 }];
        let reasons = reasons.map(|reason| reason.to_string());
        assert_eq!(reasons[0], "its parts are nested more than 128 deep");
        assert_eq!(
            reasons[1],
            "its lists and maps have more than 9 elements, each of which counts as a byte of the limit"
        );
    });
}

#[test]
fn bytes_after_a_value_are_an_error() {
    alone(|comm| {
        assert_eq!(refused::<u8>(comm, &[1, 2, 3], MAX), DecodeError::Trailing { bytes: 2 });
        assert_eq!(refused::<()>(comm, &[0], MAX), DecodeError::Trailing { bytes: 1 });
        assert_eq!(refused::<Vec<u8>>(comm, &[1, 2, 3], MAX), DecodeError::Trailing { bytes: 1 });
        // The bytes of a buffer behind the message do not count as trailing bytes.
        let receive = comm.irecv_value::<u8>(MAX, comm.rank(), TAG).unwrap();
        comm.send_value(&5u8, comm.rank(), TAG).unwrap();
        assert_eq!(receive.wait().unwrap().0, 5);
        let receive = comm.irecv_value::<Vec<u8>>(MAX, comm.rank(), TAG).unwrap();
        comm.send(&[2u8, 9], comm.rank(), TAG).unwrap();
        let error = receive.wait().unwrap_err();
        assert!(matches!(error, Error::Undecodable { status, .. } if status.bytes == 2), "{error}");
    });
}

/// The largest length that the format can announce.
const HUGE: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];

#[test]
fn announced_lengths_take_no_memory() {
    alone(|comm| {
        let malformed = |why: DecodeError| assert!(matches!(why, DecodeError::Malformed(_)), "{why}");
        malformed(refused::<Vec<[u64; 32]>>(comm, &HUGE, MAX));
        malformed(refused::<String>(comm, &HUGE, MAX));
        malformed(refused::<HashMap<u64, [u64; 32]>>(comm, &HUGE, MAX));
        malformed(refused::<Vec<Vec<Vec<u8>>>>(comm, &[&[1, 1][..], &HUGE].concat(), MAX));
    });
}

/// A list that allocates for as many elements as the format announces.
#[derive(Debug)]
struct Trusting;

impl<'de> Deserialize<'de> for Trusting {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Trusting;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Trusting, A::Error> {
                let announced = map.size_hint().expect("the format announces it");
                assert!(announced <= 10, "{announced} elements are announced in 10 bytes");
                Err(serde::de::Error::custom("enough"))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[test]
fn types_that_trust_an_announced_length_get_one_within_the_message() {
    alone(|comm| {
        let why = refused::<Trusting>(comm, &HUGE, 1 << 40);
        assert!(matches!(why, DecodeError::Malformed(_)), "{why}");
    });
}

#[test]
fn elements_without_bytes_count() {
    alone(|comm| {
        let max = 1000;
        let too_many = DecodeError::TooManyElements { max };
        assert_eq!(refused::<Vec<()>>(comm, &HUGE, max), too_many);
        assert_eq!(refused::<Vec<Hidden>>(comm, &HUGE, max), too_many);
        assert_eq!(refused::<HashMap<(), ()>>(comm, &HUGE, max), too_many);
        assert_eq!(refused::<(u8, Vec<[(); 3]>)>(comm, &[&[1][..], &HUGE].concat(), max), too_many);
        // Two lists of 600 elements each.
        assert_eq!(refused::<[Vec<()>; 2]>(comm, &[0xd8, 4, 0xd8, 4], max), too_many);
        // The limit itself is permitted: 1000 elements.
        comm.send_value(&vec![(); max], comm.rank(), TAG).unwrap();
        assert_eq!(comm.recv_value::<Vec<()>>(max, comm.rank(), TAG).unwrap().0.len(), max);
        // If each element takes a byte, a value has no more elements than its message has bytes. Here they are 6
        // elements and 7 bytes.
        comm.send_value(&vec![vec![vec![1u8], vec![2]], vec![]], comm.rank(), TAG).unwrap();
        let (_, status) = comm.recv_value::<Vec<Vec<Vec<u8>>>>(7, comm.rank(), TAG).unwrap();
        assert_eq!(status.bytes, 7);
    });
}

#[test]
fn a_type_that_swallows_errors_gets_no_further() {
    #[derive(Debug)]
    struct Lenient;
    impl<'de> Deserialize<'de> for Lenient {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let _ = Vec::<()>::deserialize(deserializer);
            Ok(Self)
        }
    }
    alone(|comm| {
        assert_eq!(refused::<Lenient>(comm, &HUGE, 10), DecodeError::TooManyElements { max: 10 });
    });
}

#[test]
fn values_nested_too_deep_are_an_error() {
    alone(|comm| {
        let too_deep = DecodeError::TooDeep { max: 128 };
        for bytes in [128, 1000, 1_000_000] {
            assert_eq!(refused::<List>(comm, &vec![1; bytes], bytes), too_deep, "{bytes} bytes");
            assert_eq!(refused::<Chain>(comm, &vec![1; bytes], bytes), too_deep, "{bytes} bytes");
            assert_eq!(refused::<Tree>(comm, &vec![1; bytes], bytes), too_deep, "{bytes} bytes");
        }
        // 127 items, and the end.
        let longest = (0..127).fold(List::End, |list, _| List::Item(Box::new(list)));
        comm.send_value(&longest, comm.rank(), TAG).unwrap();
        assert_eq!(comm.recv_value::<List>(MAX, comm.rank(), TAG).unwrap().0, longest);
        // Only the depth is limited, and not the number of parts: 1000 lists beside each other are permitted.
        comm.send_value(&vec![List::Item(Box::new(List::End)); 1000], comm.rank(), TAG).unwrap();
        assert_eq!(comm.recv_value::<Vec<List>>(MAX, comm.rank(), TAG).unwrap().0.len(), 1000);
    });
}

impl Clone for List {
    fn clone(&self) -> Self {
        match self {
            Self::End => Self::End,
            Self::Item(rest) => Self::Item(rest.clone()),
        }
    }
}

#[test]
fn a_value_that_cannot_be_serialized_is_not_sent() {
    struct Secret;
    impl Serialize for Secret {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it is secret"))
        }
    }
    alone(|comm| {
        let me = comm.rank();
        let errors = [comm.send_value(&Secret, me, TAG).err(), comm.isend_value(&Secret, me, TAG).err()];
        for error in errors.into_iter().flatten() {
            assert!(
                matches!(&error, Error::Unencodable { value, .. } if value.ends_with("Secret")),
                "{error}"
            );
        }
        assert_eq!(comm.try_probe(me, TAG).unwrap(), None);
    });
}

#[test]
fn an_absent_partner_gives_no_value() {
    alone(|comm| {
        comm.send_value(&1, None::<Rank>, TAG).unwrap();
        comm.isend_value(&1, None::<Rank>, TAG).unwrap().wait().unwrap();
        let is_absent = |error: Error| match error {
            Error::Undecodable { status, .. } => {
                assert_eq!(status, Status { peer: Rank::ABSENT, tag: TAG, bytes: 0 });
            }
            error => panic!("{error}"),
        };
        is_absent(comm.recv_value::<u8>(MAX, None::<Rank>, TAG).unwrap_err());
        is_absent(comm.irecv_value::<u8>(MAX, None::<Rank>, TAG).unwrap().wait().unwrap_err());
        assert_eq!(comm.recv_value::<()>(MAX, None::<Rank>, TAG).unwrap().0, ());
    });
}

#[test]
fn errors_name_ranks_of_the_communicator() {
    let results = samite::local(3, |world| {
        // In reverse order, without rank 1.
        let comm = world.comm();
        let colour = (comm.rank() != Rank(1)).then_some(0);
        let Some(comm) = comm.split(colour, -i64::from(comm.rank().0))? else { return Ok(()) };
        if comm.rank() == Rank(0) {
            comm.send(&[2u8], Rank(1), TAG)?;
            return comm.send(&[2u8], Rank(1), TAG);
        }
        for error in [
            comm.recv_value::<bool>(MAX, Source::ANY, TAG).unwrap_err(),
            comm.irecv_value::<bool>(MAX, Source::ANY, TAG)?.wait().unwrap_err(),
        ] {
            assert!(matches!(error, Error::Undecodable { status, .. } if status.peer == Rank(0)), "{error}");
        }
        Ok::<(), Error>(())
    });
    results.into_iter().for_each(Result::unwrap);
}

#[test]
fn each_error_is_reported_once() {
    alone(|plain| {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&reports);
        let comm = plain.with_error_handler(ErrorHandler::call(move |raised| {
            log.lock().unwrap().push((raised.call.to_owned(), raised.error.clone()));
        }));
        let (me, none) = (comm.rank(), Rank(9));
        let took = |call: &str, error: Error| {
            assert_eq!(std::mem::take(&mut *reports.lock().unwrap()), [(call.to_owned(), error)]);
        };
        took("send_value", comm.send_value(&1, none, TAG).unwrap_err());
        took("isend_value", comm.isend_value(&1, none, TAG).unwrap_err());
        took("recv_value", comm.recv_value::<u8>(MAX, none, TAG).unwrap_err());
        took("irecv_value", comm.irecv_value::<u8>(MAX, none, TAG).unwrap_err());
        took("irecv_value", comm.irecv_value::<u8>(usize::MAX, me, TAG).unwrap_err());
        let soon = comm.with_timeout(Duration::from_millis(1));
        took("recv_value", soon.recv_value::<u8>(MAX, me, TAG).unwrap_err());
        took("ValueRequest::wait", soon.irecv_value::<u8>(MAX, me, TAG).unwrap().wait().unwrap_err());
        took("ValueRequest::await", block_on(soon.irecv_value::<u8>(MAX, me, TAG).unwrap()).unwrap_err());

        let send = || comm.send_value(&(1u8, 2u8), me, TAG).unwrap();
        let claimed = || {
            send();
            comm.claim(me, TAG).unwrap()
        };
        for max in [1, MAX] {
            send();
            took("recv_value", comm.recv_value::<bool>(max, me, TAG).unwrap_err());
            let request = comm.irecv_value::<bool>(max, me, TAG).unwrap();
            send();
            took("ValueRequest::wait", request.wait().unwrap_err());
            let request = comm.irecv_value::<bool>(max, me, TAG).unwrap();
            send();
            took("ValueRequest::await", block_on(request).unwrap_err());
            let mut request = comm.irecv_value::<bool>(max, me, TAG).unwrap();
            send();
            while !request.is_finished() {}
            took("ValueRequest::test", request.test().unwrap().unwrap_err());
            took("Message::recv_value", claimed().recv_value::<bool>(max).unwrap_err());
        }
        took("Message::irecv_value", claimed().irecv_value::<bool>(1).unwrap_err());
        let request = claimed().irecv_value::<bool>(MAX).unwrap();
        took("ValueRequest::wait", request.wait().unwrap_err());
        // A cancelled receive is no error of the program's.
        let request = comm.irecv_value::<bool>(MAX, me, TAG).unwrap();
        request.cancel();
        assert!(matches!(request.wait(), Err(Error::Cancelled { .. })));
        assert!(reports.lock().unwrap().is_empty());
    });
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Point),
        any::<i32>().prop_map(|radius| Shape::Circle(radius.into())),
        any::<([i16; 2], (u8, i128))>().prop_map(|(ends, style)| Shape::Line(ends, style)),
        (prop::collection::vec((0f32..1.0, 0f32..1.0), 0..5), any::<Option<String>>())
            .prop_map(|(corners, name)| Shape::Polygon { corners, name }),
    ];
    leaf.prop_recursive(8, 64, 8, |inner| prop::collection::vec(inner, 0..8).prop_map(Shape::Group))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A value arrives unchanged. A shorter message is an error, and a message with a changed byte is an error or
    /// another value.
    #[test]
    fn damaged_values_end(shape in shapes(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        samite::local(1, |world| {
            let (comm, me) = (world.comm(), Rank(0));
            let request = comm.isend_value(&shape, me, TAG).unwrap();
            let (received, status) = comm.recv_value::<Shape>(100_000, me, TAG).unwrap();
            assert_eq!(received, shape);
            let mut bytes = request.wait().unwrap().buffer;
            assert_eq!(bytes.len(), status.bytes);
            let cut = &bytes[..at.index(bytes.len())];
            refused::<Shape>(comm, cut, 100_000);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let send = comm.isend(bytes, me, TAG).unwrap();
            match comm.recv_value::<Shape>(100_000, me, TAG) {
                Ok(_) | Err(Error::Undecodable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            send.wait().unwrap();
        });
    }

    #[test]
    fn any_bytes_end(bytes in prop::collection::vec(prop_oneof![Just(1), Just(255), any::<u8>()], 0..64)) {
        samite::local(1, |world| {
            let comm = world.comm();
            fn end<T: DeserializeOwned>(comm: &Comm, bytes: &[u8]) {
                comm.send(bytes, Rank(0), TAG).unwrap();
                match comm.recv_value::<T>(1000, Rank(0), TAG) {
                    Ok(_) | Err(Error::Undecodable { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            end::<Scene>(comm, &bytes);
            end::<Tree>(comm, &bytes);
            end::<Vec<Hidden>>(comm, &bytes);
            end::<HashMap<u8, Vec<()>>>(comm, &bytes);
        });
    }
}
