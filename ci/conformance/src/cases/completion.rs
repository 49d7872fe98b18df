//! Completion of several operations: any, some, all, by waiting and by testing.

use std::collections::BTreeMap;
use std::sync::Arc;

use samite::{
    AnyBuffer, Done, Error, Failed, Owned, PartitionedRecv, PartitionedSend, PendingSet, PersistentRecv,
    Rank, RequestSet, Scope, Source, Status, start_all,
};

use crate::case::{Cases, Job, SHORT, bytes, expect, until};

type End = (usize, Result<Done<Vec<u8>>, Failed<Vec<u8>>>);
type ScopedEnd = (usize, Result<Status, Error>);

/// The calls that complete owned requests.
type Complete = fn(&mut RequestSet<Vec<u8>>) -> Vec<End>;
const CALLS: &[(&str, Complete)] = &[
    ("wait-any", |set| set.wait_any().into_iter().collect()),
    ("wait-some", |set| set.wait_some()),
    ("wait-all", |set| set.wait_all()),
    ("test-any", |set| set.test_any().into_iter().collect()),
    ("test-some", |set| set.test_some()),
    ("test-all", |set| set.test_all().unwrap_or_default()),
];

/// The calls that complete operations of a scope.
type CompleteScoped = for<'scope> fn(&mut Scope<'scope, '_>, &mut PendingSet<'scope>) -> Vec<ScopedEnd>;
const SCOPED: &[(&str, CompleteScoped)] = &[
    ("scope-wait-any", |scope, set| scope.wait_any(set).into_iter().collect()),
    ("scope-wait-some", |scope, set| scope.wait_some(set)),
    ("scope-wait-all", |scope, set| scope.wait_all(set)),
    ("scope-test-any", |scope, set| scope.test_any(set).into_iter().collect()),
    ("scope-test-some", |scope, set| scope.test_some(set)),
    ("scope-test-all", |scope, set| scope.test_all(set).unwrap_or_default()),
];

/// The length of message `number`.
fn len(job: &Job, number: u64) -> usize {
    [5, 2_000, 0, job.long / 3][number as usize % 4] + number as usize
}

const MESSAGES: u64 = 12;

pub(crate) fn add(cases: &mut Cases) {
    cases.section("3.7.5");
    for &(name, complete) in CALLS {
        owned(cases, name, complete);
    }
    for &(name, complete) in SCOPED {
        scoped(cases, name, complete);
    }
    members(cases);
    single(cases);
    for &(name, complete) in MIXED {
        mixed(cases, name, complete);
        rounds(cases, name, complete);
    }
    members_with_rounds(cases);
}

/// The calls that complete requests of different types.
type CompleteAny = fn(&mut RequestSet<AnyBuffer>) -> Vec<(usize, Result<Done<AnyBuffer>, Failed<AnyBuffer>>)>;
const MIXED: &[(&str, CompleteAny)] = &[
    ("wait-any", |set| set.wait_any().into_iter().collect()),
    ("wait-some", |set| set.wait_some()),
    ("wait-all", |set| set.wait_all()),
    ("test-any", |set| set.test_any().into_iter().collect()),
    ("test-some", |set| set.test_some()),
    ("test-all", |set| set.test_all().unwrap_or_default()),
];

fn mixed(cases: &mut Cases, name: &'static str, complete: CompleteAny) {
    let rule =
        "sends, receives and claimed messages of different types complete in one set, each with its buffer";
    cases.add(format!("{name}.mixed"), 2, rule, move |job| {
        let other = job.other();
        let twin = job.comm.dup()?;
        let shared: Arc<[f64]> = Arc::from(vec![1.5; 40]);
        let mut set = job.comm.request_set();
        let mut keys = BTreeMap::new();
        let mut insert = |what, request| keys.insert(set.insert(request).expect("of this world"), what);
        insert("doubles", twin.irecv(vec![0.0_f64; 40], other, 1)?.into_any());
        insert("bytes", job.comm.irecv(vec![0_u8; 7].into_boxed_slice(), Source::ANY, 2)?.into_any());
        insert("shared", twin.isend(Arc::clone(&shared), other, 1)?.into_any());
        insert("sent", job.comm.isend(bytes(3, 7), other, 2)?.into_any());
        insert("claim", job.comm.isend(bytes(4, len(job, 3)), other, 3)?.into_any());
        let claimed = job.comm.claim(other, 3)?;
        insert("claimed", claimed.irecv(vec![0_u8; len(job, 3)])?.into_any());
        insert("absent", job.comm.irecv(vec![5_u16], None, 4)?.into_any());
        let late = job.comm.with_timeout(SHORT).irecv(vec![6_u32], Rank(job.rank()), 5)?;
        insert("late", late.into_any());
        while !keys.is_empty() {
            let ends = until(job, || Ok(Some(complete(&mut set)).filter(|ends| !ends.is_empty())))?;
            for (key, end) in ends {
                let what = keys.remove(&key).expect("a key ends once");
                if what == "late" {
                    assert!(matches!(end, Err(Failed { error: Error::TimedOut { .. }, .. })), "{end:?}");
                    continue;
                }
                let Done { buffer, status } = end?;
                match what {
                    "doubles" => assert_eq!(buffer.downcast::<Vec<f64>>().ok(), Some(vec![1.5; 40])),
                    "shared" => {
                        assert!(buffer.downcast::<Arc<[f64]>>().is_ok_and(|back| Arc::ptr_eq(&back, &shared)))
                    }
                    "bytes" => {
                        assert_eq!(buffer.downcast::<Box<[u8]>>().ok().as_deref(), Some(&bytes(3, 7)[..]))
                    }
                    "sent" => assert_eq!(buffer.downcast::<Vec<u8>>().ok(), Some(bytes(3, 7))),
                    "absent" => assert_eq!(status.peer, Rank::ABSENT),
                    _ => assert_eq!(buffer.downcast::<Vec<u8>>().ok(), Some(bytes(4, len(job, 3)))),
                }
            }
        }
        Ok(())
    });
}

const ROUNDS: u64 = 3;

/// Completes the requests of a set, and returns their buffers and operations in the order of the keys.
fn back<const N: usize>(
    job: &Job,
    set: &mut RequestSet<AnyBuffer>,
    complete: CompleteAny,
    keys: [usize; N],
) -> Result<[Done<AnyBuffer>; N], Error> {
    let mut ended = BTreeMap::new();
    while !set.is_empty() {
        for (key, end) in until(job, || Ok(Some(complete(set)).filter(|ends| !ends.is_empty())))? {
            assert!(ended.insert(key, end?).is_none(), "a key ends once");
        }
    }
    Ok(keys.map(|key| ended.remove(&key).expect("each ends")))
}

/// Returns an operation with its type.
fn typed<O: Owned>(done: Done<AnyBuffer>) -> O {
    done.buffer.downcast().expect("the operation that was inserted")
}

fn rounds(cases: &mut Cases, name: &'static str, complete: CompleteAny) {
    let rule = "rounds of persistent operations complete in a set beside other requests, and start again";
    cases.add(format!("{name}.persistent"), 2, rule, move |job| {
        let (other, len) = (job.other(), job.long / 3);
        let mut set = job.comm.request_set();
        let mut send = job.comm.send_init(vec![0; len], other, 1)?;
        let mut receive = job.comm.recv_init(vec![0; len], Source::ANY, 1)?;
        for round in 0..ROUNDS {
            *send.buffer_mut()? = bytes(round, len);
            start_all(&mut [&mut receive, &mut send])?;
            let keys = [
                receive.into_request().into_any(),
                job.comm.irecv(vec![0u64], other, 2)?.into_any(),
                send.into_request().into_any(),
                job.comm.isend(vec![round], other, 2)?.into_any(),
            ];
            let keys = keys.map(|request| set.insert(request).expect("of this world"));
            let [received, number, sent, _] = back(job, &mut set, complete, keys)?;
            expect(received.status, other.0, 1, len);
            expect(sent.status, other.0, 1, len);
            (send, receive) = (typed(sent), typed(received));
            assert_eq!(*receive.buffer()?, bytes(round, len));
            assert_eq!(typed::<Vec<u64>>(number), [round]);
        }
        Ok(())
    });
    let rule = "rounds of partitioned operations complete in a set beside other requests, and start again";
    cases.add(format!("{name}.partitioned"), 2, rule, move |job| {
        let (other, len) = (job.other(), job.long / 12 * 12);
        let mut set = job.comm.request_set();
        let mut send = job.comm.psend_init(vec![0; len], 6, other, 1)?;
        let mut receive = job.comm.precv_init(vec![0; len], 4, other, 1)?;
        for round in 0..ROUNDS {
            send.start()?;
            receive.start()?;
            let parts: Vec<_> = send.parts()?.collect();
            let keys = [
                receive.into_request().into_any(),
                send.into_request().into_any(),
                job.comm.irecv(vec![0u64], other, 1)?.into_any(),
                job.comm.isend(vec![round], other, 1)?.into_any(),
            ];
            let keys = keys.map(|request| set.insert(request).expect("of this world"));
            let message = bytes(round + u64::from(job.rank()), len);
            for mut part in parts.into_iter().rev() {
                let start = part.index() * (len / 6);
                part.copy_from_slice(&message[start..start + len / 6]);
                part.ready();
            }
            let [received, sent, number, _] = back(job, &mut set, complete, keys)?;
            expect(received.status, other.0, 1, len);
            (send, receive) = (typed(sent), typed(received));
            assert_eq!(receive.buffer_mut()?, bytes(round + u64::from(other.0), len));
            assert_eq!(typed::<Vec<u64>>(number), [round]);
        }
        Ok(())
    });
    let rule = "a failed round of a set fails alone, and its operation starts again";
    cases.add(format!("{name}.round-error"), 2, rule, move |job| {
        if job.rank() == 1 {
            return [(1, 60), (0, 50), (1, 50)]
                .into_iter()
                .try_for_each(|(tag, len)| job.comm.send(&bytes(tag, len), Rank(0), tag));
        }
        let mut set = job.comm.request_set();
        let mut keys = BTreeMap::new();
        for tag in 0..2 {
            let mut receive = job.comm.recv_init(vec![0u8; 50], Rank(1), tag)?;
            receive.start()?;
            keys.insert(set.insert(receive.into_request().into_any()).expect("of this world"), tag);
        }
        while !set.is_empty() {
            for (key, end) in until(job, || Ok(Some(complete(&mut set)).filter(|ends| !ends.is_empty())))? {
                let (tag, buffer) = match (keys[&key], end) {
                    (1, Err(Failed { error: Error::Truncated { room: 50, .. }, buffer })) => (1, buffer),
                    (1, end) => panic!("expected Truncated, got {end:?}"),
                    (tag, end) => (tag, Some(end?.buffer)),
                };
                let operation = buffer.expect("it comes back").downcast::<PersistentRecv<Vec<u8>>>();
                let mut receive = operation.expect("it is this operation");
                if tag == 1 {
                    receive.start()?;
                    receive.wait()?;
                }
                assert_eq!(*receive.buffer()?, bytes(tag, 50));
            }
        }
        Ok(())
    });
}

/// Adds the cases in which rounds are cancelled in a set, or dropped with it, or were not started.
fn members_with_rounds(cases: &mut Cases) {
    cases.section("3.8.4");
    let rule = "a round that is cancelled in a set comes back, and starts again";
    cases.add("set.round-cancelled", 2, rule, |job| {
        if job.rank() == 1 {
            job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
            return job.comm.send(&[5u8], Rank(0), 7);
        }
        let mut set = job.comm.request_set();
        let mut receive = job.comm.recv_init(vec![0u8], Rank(1), 7)?;
        receive.start()?;
        let key = set.insert(receive.into_request()).expect("of this world");
        set.cancel(key);
        let (_, end) = set.wait_any().expect("it has a member");
        let Failed { error, buffer } = end.expect_err("it was cancelled");
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        job.comm.send(&[0u8; 0], Rank(1), 1)?;
        let mut receive = buffer.expect("it comes back");
        receive.start()?;
        receive.wait()?;
        assert_eq!(*receive.buffer()?, [5]);
        Ok(())
    });
    cases.section("3.9");
    cases.add("set.rounds-dropped", 2, "the rounds of a dropped set take no messages", |job| {
        if job.rank() == 1 {
            job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
            return job.comm.send(&[6u8], Rank(0), 7);
        }
        let mut set = job.comm.request_set();
        for _ in 0..3 {
            let mut receive = job.comm.recv_init(vec![0u8], Rank(1), 7)?;
            receive.start()?;
            set.insert(receive.into_request()).expect("of this world");
        }
        drop(set);
        job.comm.send(&[0u8; 0], Rank(1), 1)?;
        let mut byte = [0u8];
        job.comm.recv(&mut byte, Rank(1), 7)?;
        assert_eq!(byte, [6]);
        Ok(())
    });
    cases.add("set.round-inactive", 1, "an operation that was not started completes at once", |job| {
        let mut set = job.comm.request_set();
        let receive = job.comm.recv_init(vec![0u8], Rank(0), 7)?;
        set.insert(receive.into_request()).expect("of this world");
        let (_, end) = set.wait_any().expect("it has a member");
        let Failed { error, buffer } = end.expect_err("it was not started");
        assert_eq!(error, Error::Inactive);
        assert!(buffer.is_some_and(|receive| !receive.is_active()));
        Ok(())
    });
    cases.section("4.2");
    let rule = "partitions are marked and tested while their rounds are in a set";
    cases.add("set.partitions", 2, rule, |job| {
        let mut set = job.comm.request_set::<AnyBuffer>();
        if job.rank() == 0 {
            let mut send = job.comm.psend_init(bytes(1, 60), 6, Rank(1), 7)?;
            send.start()?;
            let key = set.insert(send.into_request().into_any()).expect("of this world");
            let send = set.operation::<PartitionedSend<u8>>(key).expect("it is in the set");
            send.ready(3..6)?;
            job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
            send.ready(0..3)?;
        } else {
            let mut receive = job.comm.precv_init(vec![0u8; 60], 2, Rank(0), 7)?;
            receive.start()?;
            let key = set.insert(receive.into_request().into_any()).expect("of this world");
            let receive = set.operation::<PartitionedRecv<u8>>(key).expect("it is in the set");
            until(job, || Ok(receive.arrived(1..2)?.then_some(())))?;
            assert_eq!(receive.partition(1)?.expect("it has arrived"), &bytes(1, 60)[30..]);
            assert!(!receive.arrived(0..1)?);
            job.comm.send(&[0u8; 0], Rank(0), 1)?;
        }
        let (_, end) = set.wait_any().expect("it has a member");
        if job.rank() == 1 {
            assert_eq!(typed::<PartitionedRecv<u8>>(end?).buffer_mut()?, bytes(1, 60));
        }
        Ok(())
    });
    cases.section("3.7.5");
}

fn owned(cases: &mut Cases, name: &'static str, complete: Complete) {
    let rule = "each receive of a set completes once, with its own bytes";
    cases.add(format!("{name}.receives"), 3, rule, move |job| {
        if job.rank() > 0 {
            let numbers = (0..MESSAGES).filter(|number| number % 2 == u64::from(job.rank() - 1));
            return numbers
                .rev()
                .try_for_each(|number| job.comm.send(&bytes(number, len(job, number)), Rank(0), number));
        }
        let mut set = job.comm.request_set::<Vec<u8>>();
        let mut keys = BTreeMap::new();
        for number in 0..MESSAGES {
            let request = job.comm.irecv(vec![0; len(job, number)], Source::ANY, number)?;
            keys.insert(set.insert(request).expect("of this world"), number);
        }
        drain(job, &mut keys, &mut set, complete, |number, end| {
            let done = end.expect("it is received");
            expect(done.status, 1 + number as u32 % 2, number, len(job, number));
            assert_eq!(done.buffer, bytes(number, len(job, number)));
        })
    });
    let rule = "each send of a set completes once, and returns its data";
    cases.add(format!("{name}.sends"), 2, rule, move |job| {
        if job.rank() == 1 {
            for number in (0..MESSAGES).rev() {
                let done = job.comm.recv_vec::<u8>(Rank(0), number)?;
                assert_eq!(done.buffer, bytes(number, len(job, number)));
            }
            return Ok(());
        }
        let mut set = job.comm.request_set::<Vec<u8>>();
        let mut keys = BTreeMap::new();
        for number in 0..MESSAGES {
            let request = job.comm.isend(bytes(number, len(job, number)), Rank(1), number)?;
            keys.insert(set.insert(request).expect("of this world"), number);
        }
        drain(job, &mut keys, &mut set, complete, |number, end| {
            assert_eq!(end.expect("it is sent").buffer, bytes(number, len(job, number)));
        })
    });
    let rule = "a failed operation of a set fails alone";
    cases.add(format!("{name}.error"), 2, rule, move |job| {
        if job.rank() == 1 {
            return (0..6u64).try_for_each(|number| job.comm.send(&bytes(number, 100), Rank(0), number));
        }
        let mut set = job.comm.request_set::<Vec<u8>>();
        let mut keys = BTreeMap::new();
        for number in 0..6u64 {
            let room = if number == 3 { 10 } else { 100 };
            let request = job.comm.irecv(vec![0; room], Rank(1), number)?;
            keys.insert(set.insert(request).expect("of this world"), number);
        }
        drain(job, &mut keys, &mut set, complete, |number, end| match (number, end) {
            (3, Err(Failed { error: Error::Truncated { room: 10, status }, .. })) => {
                expect(status, 1, 3, 100)
            }
            (3, end) => panic!("expected Truncated, got {end:?}"),
            (_, end) => assert_eq!(end.expect("it is received").buffer, bytes(number, 100)),
        })
    });
    cases.add(format!("{name}.empty"), 1, "an empty set has no ends", move |job| {
        let mut set = job.comm.request_set::<Vec<u8>>();
        assert!(complete(&mut set).is_empty());
        Ok(())
    });
    let rule = "an operation that was cancelled completes as cancelled, the others as ever";
    cases.add(format!("{name}.cancelled"), 2, rule, move |job| {
        if job.rank() == 1 {
            return job.comm.send(&[1u8], Rank(0), 1);
        }
        let mut set = job.comm.request_set::<Vec<u8>>();
        let mut keys = BTreeMap::new();
        for number in 0..2u64 {
            let request = job.comm.irecv(vec![0], Rank(1), number)?;
            keys.insert(set.insert(request).expect("of this world"), number);
        }
        let cancelled = *keys.iter().find(|(_, number)| **number == 0).expect("it is there").0;
        set.cancel(cancelled);
        drain(job, &mut keys, &mut set, complete, |number, end| match (number, end) {
            (0, Err(Failed { error: Error::Cancelled { .. }, buffer: Some(buffer) })) => {
                assert_eq!(buffer.len(), 1)
            }
            (0, end) => panic!("expected Cancelled, got {end:?}"),
            (_, end) => assert_eq!(end.expect("it is received").buffer, [1]),
        })
    });
}

/// Completes all requests of a set. `keys` contains the number of the message for each key of the set.
fn drain(
    job: &Job,
    keys: &mut BTreeMap<usize, u64>,
    set: &mut RequestSet<Vec<u8>>,
    complete: Complete,
    mut check: impl FnMut(u64, Result<Done<Vec<u8>>, Failed<Vec<u8>>>),
) -> Result<(), Error> {
    while !keys.is_empty() {
        let ends = until(job, || Ok(Some(complete(set)).filter(|ends| !ends.is_empty())))?;
        for (key, end) in ends {
            check(keys.remove(&key).expect("a key ends once"), end);
        }
        assert_eq!(set.len(), keys.len());
    }
    assert!(set.is_empty());
    Ok(())
}

fn scoped(cases: &mut Cases, name: &'static str, complete: CompleteScoped) {
    let rule = "sends and receives of a scope complete once each, with bytes in the borrowed buffers";
    cases.add(format!("{name}.exchange"), 2, rule, move |job| {
        let mine: Vec<_> = (0..MESSAGES).map(|number| bytes(number, len(job, number))).collect();
        let mut theirs: Vec<_> = (0..MESSAGES).map(|number| vec![0; len(job, number)]).collect();
        job.comm.scope(|scope| {
            let mut set = PendingSet::default();
            let mut keys = BTreeMap::new();
            for (number, buffer) in (0..MESSAGES).zip(&mut theirs) {
                keys.insert(set.insert(scope.irecv(buffer, job.other(), number)?), number);
            }
            for (number, data) in mine.iter().enumerate().rev() {
                let number = number as u64;
                keys.insert(set.insert(scope.isend(data, job.other(), number)?), number);
            }
            assert_eq!(set.len(), 2 * MESSAGES as usize);
            while !keys.is_empty() {
                let ends =
                    until(job, || Ok(Some(complete(scope, &mut set)).filter(|ends| !ends.is_empty())))?;
                for (key, end) in ends {
                    let number = keys.remove(&key).expect("a key ends once");
                    expect(end?, job.other().0, number, len(job, number));
                }
            }
            assert!(set.is_empty());
            Ok(())
        })?;
        assert_eq!(theirs, mine);
        Ok(())
    });
    cases.add(format!("{name}.empty"), 1, "an empty set has no ends", move |job| {
        job.comm.scope(|scope| {
            assert!(complete(scope, &mut PendingSet::default()).is_empty());
            Ok(())
        })
    });
    cases.add(format!("{name}.error"), 2, "a failed operation of a set fails alone", move |job| {
        if job.rank() == 1 {
            // If a message that is too long had arrived before its receive, the start of the receive would fail.
            job.comm.recv(&mut [0u8; 0], Rank(0), 9)?;
            return (0..4u64).try_for_each(|number| job.comm.send(&bytes(number, 50), Rank(0), number));
        }
        let mut buffers: Vec<_> = (0..4).map(|number| vec![0u8; if number == 2 { 49 } else { 50 }]).collect();
        job.comm.scope(|scope| {
            let mut set = PendingSet::default();
            let mut keys = BTreeMap::new();
            for (number, buffer) in buffers.iter_mut().enumerate() {
                keys.insert(set.insert(scope.irecv(buffer, Rank(1), number as u64)?), number);
            }
            job.comm.send(&[0u8; 0], Rank(1), 9)?;
            while !keys.is_empty() {
                let ends =
                    until(job, || Ok(Some(complete(scope, &mut set)).filter(|ends| !ends.is_empty())))?;
                for (key, end) in ends {
                    match (keys.remove(&key).expect("a key ends once"), end) {
                        (2, Err(Error::Truncated { room: 49, .. })) => {}
                        (2, end) => panic!("expected Truncated, got {end:?}"),
                        (number, end) => expect(end?, 1, number as u64, 50),
                    }
                }
            }
            Ok(())
        })
    });
}

/// Adds the cases in which requests are added to a set, taken out of it, or dropped with it.
fn members(cases: &mut Cases) {
    cases.add("set.remove", 2, "a request that is taken out continues", |job| {
        if job.rank() == 1 {
            job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
            return job.comm.send(&[5u8], Rank(0), 7);
        }
        let mut set = job.comm.request_set::<Vec<u8>>();
        let key = set.insert(job.comm.irecv(vec![0], Rank(1), 7)?).expect("of this world");
        let request = set.remove(key).expect("it is in the set");
        assert!(set.is_empty() && set.remove(key).is_none());
        job.comm.send(&[0u8; 0], Rank(1), 1)?;
        assert_eq!(request.wait()?.buffer, [5]);
        assert!(set.wait_any().is_none());
        Ok(())
    });
    cases.add(
        "set.refilled",
        2,
        "a set that is refilled while it is emptied delivers each message once",
        |job| {
            const ALL: u64 = 40;
            if job.rank() == 1 {
                return (0..ALL).try_for_each(|number| job.comm.send(&bytes(number, 64), Rank(0), 7));
            }
            let mut set = job.comm.request_set::<Vec<u8>>();
            let mut keys = BTreeMap::new();
            let mut posted = 0;
            let mut got = 0;
            while got < ALL {
                while posted < ALL && set.len() < 5 {
                    let key = set.insert(job.comm.irecv(vec![0; 64], Rank(1), 7)?).expect("of this world");
                    assert!(keys.insert(key, posted).is_none(), "a key stands for one request at a time");
                    posted += 1;
                }
                let (key, end) = set.wait_any().expect("it has members");
                let number = keys.remove(&key).expect("a key ends once");
                assert_eq!(end?.buffer, bytes(number, 64), "receives take messages in the order of posting");
                got += 1;
            }
            Ok(())
        },
    );
    cases.add(
        "set.fair",
        3,
        "none of a set's operations starves while another one completes again and again",
        |job| {
            const EACH: usize = 30;
            if job.rank() > 0 {
                return (0..EACH).try_for_each(|_| job.comm.send(&[job.rank() as u8], Rank(0), 7));
            }
            let mut set = job.comm.request_set::<Vec<u8>>();
            let mut sources = BTreeMap::new();
            let mut counts = [0usize; 3];
            let mut left = [0, EACH, EACH];
            for rank in 1..3u32 {
                sources.insert(
                    set.insert(job.comm.irecv(vec![0], Rank(rank), 7)?).expect("of this world"),
                    rank,
                );
            }
            while let Some((key, end)) = set.wait_any() {
                let rank = sources.remove(&key).expect("a key ends once");
                assert_eq!(end?.buffer, [rank as u8]);
                counts[rank as usize] += 1;
                left[rank as usize] -= 1;
                if left[rank as usize] > 0 {
                    let request = job.comm.irecv(vec![0], Rank(rank), 7)?;
                    sources.insert(set.insert(request).expect("of this world"), rank);
                }
            }
            assert_eq!(counts, [0, EACH, EACH]);
            Ok(())
        },
    );
    cases.add("set.dropped", 2, "the receives of a dropped set take no messages", |job| {
        if job.rank() == 1 {
            job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
            return job.comm.send(&[6u8], Rank(0), 7);
        }
        let mut set = job.comm.request_set::<Vec<u8>>();
        for _ in 0..3 {
            set.insert(job.comm.irecv(vec![0], Rank(1), 7)?).expect("of this world");
        }
        drop(set);
        job.comm.send(&[0u8; 0], Rank(1), 1)?;
        let mut byte = [0u8];
        job.comm.recv(&mut byte, Rank(1), 7)?;
        assert_eq!(byte, [6]);
        Ok(())
    });
}

fn single(cases: &mut Cases) {
    cases.section("3.7.3");
    cases.add("test.not-yet", 2, "a test returns at once, and the request stays", |job| {
        if job.rank() == 1 {
            job.comm.recv(&mut [0u8; 0], Rank(0), 1)?;
            return job.comm.send(&[5u8], Rank(0), 7);
        }
        let mut request = job.comm.irecv(vec![0u8], Rank(1), 7)?;
        for _ in 0..20 {
            assert!(request.test().is_none());
        }
        job.comm.send(&[0u8; 0], Rank(1), 1)?;
        assert_eq!(request.wait()?.buffer, [5]);
        Ok(())
    });
    cases.add("test.once", 2, "a test that returned the result returns no other one", |job| {
        if job.rank() == 1 {
            return job.comm.send(&[5u8], Rank(0), 7);
        }
        let mut request = job.comm.irecv(vec![0u8], Rank(1), 7)?;
        let done = until(job, || Ok(request.test()))??;
        assert_eq!(done.buffer, [5]);
        let again = request.wait().expect_err("the result was returned");
        assert!(matches!(again.error, Error::NoSuchRequest), "{}", again.error);
        Ok(())
    });
    cases.add("wait.any-order", 2, "requests are waited for in any order", |job| {
        let receives = (0..8u64).map(|tag| job.comm.irecv(vec![0u64], job.other(), tag));
        let receives = receives.collect::<Result<Vec<_>, _>>()?;
        let sends = (0..8u64).rev().map(|tag| job.comm.isend(vec![tag], job.other(), tag));
        let sends = sends.collect::<Result<Vec<_>, _>>()?;
        for (tag, receive) in receives.into_iter().enumerate().rev() {
            assert_eq!(receive.wait()?.buffer, [tag as u64]);
        }
        for send in sends {
            send.wait()?;
        }
        Ok(())
    });
    cases.add("scope.end-completes", 2, "the end of a scope completes what was not waited for", |job| {
        let (mine, mut theirs) = (bytes(u64::from(job.rank()), job.long), vec![0; job.long]);
        job.comm.scope(|scope| {
            scope.irecv(&mut theirs, job.other(), 7)?;
            scope.isend(&mine, job.other(), 7)?;
            Ok(())
        })?;
        assert_eq!(theirs, bytes(u64::from(job.other().0), job.long));
        Ok(())
    });
    cases.section("3.7.2");
    cases.add("isend.many", 2, "many sends may be under way to a rank that receives later", |job| {
        const MANY: u64 = 150;
        if job.rank() == 0 {
            let sends = (0..MANY).map(|number| job.comm.isend(bytes(number, 40), Rank(1), number));
            let sends = sends.collect::<Result<Vec<_>, _>>()?;
            for send in sends {
                send.wait()?;
            }
        } else {
            for number in (0..MANY).rev() {
                let mut buffer = [0u8; 40];
                expect(job.comm.recv(&mut buffer, Rank(0), number)?, 0, number, 40);
                assert_eq!(buffer[..], bytes(number, 40));
            }
        }
        Ok(())
    });
    cases.add("irecv.many", 2, "many receives may be posted before their messages come", |job| {
        const MANY: u64 = 150;
        if job.rank() == 0 {
            job.comm.recv(&mut [0u8; 0], Rank(1), MANY)?;
            return (0..MANY).rev().try_for_each(|number| job.comm.send(&bytes(number, 40), Rank(1), number));
        }
        let receives = (0..MANY).map(|number| job.comm.irecv(vec![0u8; 40], Rank(0), number));
        let receives = receives.collect::<Result<Vec<_>, _>>()?;
        job.comm.send(&[0u8; 0], Rank(0), MANY)?;
        for (number, receive) in (0..MANY).zip(receives) {
            assert_eq!(receive.wait()?.buffer, bytes(number, 40));
        }
        Ok(())
    });
}
