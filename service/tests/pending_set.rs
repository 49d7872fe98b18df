//! Sets of operations with borrowed buffers: each end is reported once, by its key, in any mix of calls.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use samite::{Error, PendingSet, Rank, Source, Status};

/// Messages of each sender: short messages, and some that travel by rendezvous.
const MESSAGES: usize = 60;

fn length(number: usize) -> usize {
    if number.is_multiple_of(7) { 100_000 } else { 8 + number }
}

fn tag(sender: u32, number: usize) -> u64 {
    u64::from(sender) * 1000 + number as u64
}

/// Takes results by all calls in turn, until the set is empty.
fn drain<'scope>(
    scope: &mut samite::Scope<'scope, '_>,
    set: &mut PendingSet<'scope>,
    mut took: impl FnMut(usize, Result<Status, Error>),
) {
    for round in 0.. {
        if set.is_empty() {
            return;
        }
        let before = set.len();
        let ends = match round % 4 {
            0 => scope.wait_any(set).into_iter().collect(),
            1 => scope.test_any(set).into_iter().collect(),
            2 => scope.wait_some(set),
            _ => scope.test_some(set),
        };
        assert_eq!(set.len(), before - ends.len());
        assert!(round % 2 == 1 || !ends.is_empty(), "a wait returns an end");
        ends.into_iter().for_each(|(key, result)| took(key, result));
    }
}

fn exchange(world: &samite::World) {
    if world.comm().rank() != 0 {
        let data: Vec<_> = (0..MESSAGES).map(|number| vec![number as u8; length(number)]).collect();
        let result = world.comm().scope(|scope| {
            let mut sends = PendingSet::default();
            // The messages are not sent in the order in which their receives are posted.
            for number in (0..MESSAGES).map(|index| index * 17 % MESSAGES) {
                sends.insert(scope.isend(&data[number], Rank(0), tag(world.comm().rank().0, number))?);
            }
            assert_eq!(sends.len(), MESSAGES);
            let mut keys = BTreeSet::new();
            drain(scope, &mut sends, |key, sent| {
                sent.unwrap();
                assert!(keys.insert(key), "{key} twice");
            });
            Ok(())
        });
        return result.unwrap();
    }
    let mut buffers: Vec<_> = (0..2 * MESSAGES).map(|index| vec![255_u8; length(index / 2)]).collect();
    let result = world.comm().scope(|scope| {
        let mut sets = [PendingSet::default(), PendingSet::default()];
        for (index, buffer) in buffers.iter_mut().enumerate() {
            let (sender, number) = (1 + (index % 2) as u32, index / 2);
            let source = if number.is_multiple_of(3) { Source::ANY } else { Rank(sender).into() };
            // Both sets have operations from both senders.
            let set = &mut sets[usize::from(number.is_multiple_of(2))];
            set.insert(scope.irecv(buffer, source, tag(sender, number))?);
        }
        let expected = sets.each_ref().map(PendingSet::len);
        let mut got = [BTreeSet::new(), BTreeSet::new()];
        let mut tags = BTreeSet::new();
        for (set, got) in sets.iter_mut().zip(&mut got) {
            drain(scope, set, |key, received| {
                assert!(got.insert(key), "{key} twice");
                assert!(tags.insert(received.unwrap().tag));
            });
        }
        assert_eq!(got.each_ref().map(BTreeSet::len), expected);
        assert_eq!(tags.len(), 2 * MESSAGES);
        Ok(())
    });
    result.unwrap();
    for (index, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|&byte| byte == (index / 2) as u8), "message {index}");
    }
}

#[test]
fn every_end_is_reported_once() {
    samite::local(3, |world| exchange(&world));
}

/// The other thread receives packets without the buffers of the scope, so the messages are staged.
#[test]
fn messages_that_another_thread_received_are_reported() {
    samite::local(3, |world| {
        let comm = world.comm();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            if comm.rank() == 0 {
                threads.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(comm.try_probe(Source::ANY, 999_999), Ok(None));
                        std::thread::yield_now();
                    }
                });
            }
            exchange(&world);
            is_over.store(true, Ordering::Relaxed);
        });
        // Ranks 1 and 2 stay until the thread of rank 0 has stopped: if one of them left earlier, the thread's probe
        // from any source could return an error.
        match comm.rank() {
            Rank(0) => [1, 2].iter().for_each(|&to| comm.send(&[0_u8], Rank(to), 5).unwrap()),
            _ => drop(comm.recv(&mut [0_u8], Rank(0), 5).unwrap()),
        }
    });
}

#[test]
fn an_operation_that_had_ended_is_in_the_set() {
    samite::local(1, |world| {
        let comm = world.comm();
        let (mut first, mut second, mut third) = ([0_u8], [0_u8], [0_u8]);
        let result = comm.scope(|scope| {
            let mut set = PendingSet::default();
            // The receive ends while the scope waits for another operation, before the receive is added to the set.
            let early = scope.irecv(&mut first, Rank(0), 1)?;
            let sent = [scope.isend(&[1_u8], Rank(0), 1)?, scope.isend(&[2_u8], Rank(0), 2)?];
            let other = scope.irecv(&mut second, Rank(0), 2)?;
            scope.wait(other)?;
            let early = set.insert(early);
            let sends = sent.map(|sent| set.insert(sent));
            let mut keys: Vec<_> =
                scope.wait_all(&mut set).into_iter().map(|(key, end)| (key, end.is_ok())).collect();
            keys.sort_unstable();
            let mut expected = [(early, true), (sends[0], true), (sends[1], true)];
            expected.sort_unstable();
            assert_eq!(keys, expected);
            assert!(set.is_empty() && scope.wait_any(&mut set).is_none());
            // A cancelled operation ends. The end of the scope waits for an operation that stays in the set.
            let key = set.insert(scope.irecv(&mut third, Rank(0), 3)?);
            scope.cancel(set.get(key).expect("it is under way"));
            let (cancelled, result) = scope.wait_any(&mut set).expect("there is one");
            assert!(cancelled == key && matches!(result, Err(Error::Cancelled { .. })), "{result:?}");
            set.insert(scope.isend(&[3_u8], Rank(0), 4)?);
            Ok(())
        });
        result.unwrap();
        comm.recv(&mut third, Rank(0), 4).unwrap();
        assert_eq!((first, second, third), ([1], [2], [3]));
    });
}

#[test]
fn a_failure_ends_the_operations_with_that_rank_alone() {
    let ends = std::sync::Mutex::new(Vec::new());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        samite::local(3, |world| {
            let comm = world.comm();
            assert!(comm.rank() != 2, "as the test wants");
            if comm.rank() == 1 {
                comm.recv(&mut [0_u8], Rank(0), 2).unwrap();
                return comm.send(&[7_u8], Rank(0), 1).unwrap();
            }
            let mut buffers = [[0_u8]; 2];
            let [one, two] = &mut buffers;
            let result = comm.scope(|scope| {
                let mut set = PendingSet::default();
                set.insert(scope.irecv(one, Rank(1), 1)?);
                set.insert(scope.irecv(two, Rank(2), 1)?);
                let failed = scope.wait_any(&mut set).expect("there are two");
                scope.isend(&[1_u8], Rank(1), 2)?;
                let received = scope.wait_any(&mut set).expect("there is one more");
                ends.lock().unwrap().extend([failed, received]);
                Ok(())
            });
            result.unwrap();
        });
    }));
    assert!(panic.is_err());
    match &ends.into_inner().unwrap()[..] {
        [(1, Err(Error::PeerFailed { rank: Rank(2), .. })), (0, Ok(Status { peer: Rank(1), .. }))] => {}
        other => panic!("{other:?}"),
    }
}

/// Messages arrive while a failure ends receives from any source. Each receive ends once, with a message or with the
/// failure, and its key comes once.
#[test]
fn a_failure_and_a_message_end_a_receive_once() {
    const RECEIVES: usize = 20_000;
    let panic = catch_unwind(AssertUnwindSafe(|| {
        samite::local(3, |world| match world.comm().rank().0 {
            0 => {
                let mut buffers = [[0_u8]; RECEIVES];
                let result = world.comm().scope(|scope| {
                    let mut set = PendingSet::default();
                    for buffer in &mut buffers {
                        set.insert(scope.irecv(buffer, Source::ANY, 1)?);
                    }
                    (1..3).try_for_each(|to| world.comm().send(&[0_u8], Rank(to), 2))?;
                    let mut keys = BTreeSet::new();
                    while !set.is_empty() {
                        for (key, end) in scope.test_some(&mut set) {
                            assert!(keys.insert(key), "{key} twice: {end:?}");
                            assert!(matches!(end, Ok(_) | Err(Error::FailurePending { .. })), "{end:?}");
                        }
                    }
                    Ok(keys.len())
                });
                assert_eq!(result, Ok(RECEIVES));
            }
            1 => {
                world.comm().recv(&mut [0_u8], Rank(0), 2).unwrap();
                resume_unwind(Box::new("a failure"));
            }
            _ => {
                world.comm().recv(&mut [0_u8], Rank(0), 2).unwrap();
                // Messages are sent slowly, so that some of them arrive after the failure. Rank 0 may leave before the
                // last message is sent.
                let send = || {
                    (0..20).for_each(|_| std::thread::yield_now());
                    world.comm().send(&[1_u8], Rank(0), 1)
                };
                _ = (0..2000).try_for_each(|_| send());
            }
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"a failure"));
}

/// Received messages stay received when the world closes, and each key comes once.
#[test]
fn a_closed_world_ends_the_rest_of_a_set() {
    for calls in 0..3 {
        samite::local(1, |world| {
            let comm = world.comm().clone();
            let mut world = Some(world);
            let (mut buffers, mut other) = ([[0_u8]; 6], [0_u8]);
            let result = comm.scope(|scope| {
                let mut set = PendingSet::default();
                for (tag, buffer) in (0..).zip(&mut buffers) {
                    set.insert(scope.irecv(buffer, Rank(0), tag)?);
                }
                assert!(scope.test_any(&mut set).is_none());
                // The messages arrive within another operation's wait.
                let last = scope.irecv(&mut other, Rank(0), 99)?;
                [3, 1, 4, 99].into_iter().try_for_each(|tag| comm.send(&[tag as u8], Rank(0), tag))?;
                scope.wait(last)?;
                drop(world.take());
                let mut ends = Vec::new();
                while !set.is_empty() {
                    match calls {
                        0 => ends.extend(scope.wait_any(&mut set)),
                        1 => ends.extend(scope.test_some(&mut set)),
                        _ => ends.extend(scope.wait_some(&mut set)),
                    }
                }
                Ok(ends)
            });
            let (received, mut rest): (Vec<_>, Vec<_>) =
                result.unwrap().into_iter().partition(|(_, end)| end.is_ok());
            rest.sort_unstable_by_key(|(key, _)| *key);
            assert_eq!(received.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [3, 1, 4]);
            assert!(rest.iter().all(|(_, end)| matches!(end, Err(Error::Closed { .. }))), "{rest:?}");
            assert_eq!(rest.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [0, 2, 5]);
        });
    }
}
