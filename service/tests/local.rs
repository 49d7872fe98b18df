//! Ranks as threads.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use samite::reduction::commuting;
use samite::{Cause, Done, Error, Rank, Source};

#[test]
fn results_come_by_rank() {
    let results = samite::local(5, |world| (world.comm().rank().0, world.comm().size()));
    assert_eq!(results, [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
}

#[test]
fn a_rank_sends_to_itself() {
    let received = samite::local(1, |world| {
        let comm = world.comm();
        comm.send(&[1_u8, 2, 3], Rank(0), 7)?;
        comm.recv_vec::<u8>(Rank(0), 7).map(|message| message.buffer)
    });
    assert_eq!(received, [Ok(vec![1, 2, 3])]);
}

#[test]
fn a_tuning_file_decides_how_messages_travel() {
    let file = std::env::temp_dir().join(format!("samite-local-{}", std::process::id()));
    std::fs::write(&file, "[\"loopback\"]\nsamite = \"0\"\neager_max = 10\nstream_max = 0\n").unwrap();
    let mut settings = samite::Settings::default();
    settings.set_tuning(&file.display().to_string()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let counts = |settings: samite::Settings| {
        let counts = settings.local(2, |world| {
            let comm = world.comm();
            let other = Rank(1 - comm.rank().0);
            for length in [10, 11] {
                comm.sendrecv(&vec![1_u8; length], other, 7, &mut vec![0_u8; length], other, 7).unwrap();
            }
            let stats = comm.stats();
            let peer = stats.peers.iter().find(|peer| peer.rank == other).unwrap();
            (peer.eager_sent, peer.rendezvous_sent)
        });
        counts[0]
    };
    assert_eq!(counts(settings.clone()), (1, 1));
    settings.set_eager_max(11).unwrap();
    assert_eq!(counts(settings), (2, 0), "the program's value counts more than the file's");
}

#[test]
fn a_ring_of_many_goes_round() {
    let sums = samite::local(16, |world| {
        let comm = world.comm();
        let (left, right) = (Rank((comm.rank().0 + 15) % 16), Rank((comm.rank().0 + 1) % 16));
        let mut sum = [0];
        for _ in 0..100 {
            let sent = sum[0] + u64::from(comm.rank().0);
            comm.sendrecv(&[sent], right, 1, &mut sum, left, 1)?;
        }
        Ok::<_, Error>(sum[0])
    });
    // Each of the 100 hops has added a rank to the token: all 16 ranks six times, and then the four ranks before its
    // holder.
    for (rank, sum) in (0..16_u64).zip(sums) {
        let met = (1..=100).map(|hops| (rank + 16 * 100 - hops) % 16);
        assert_eq!(sum, Ok(met.sum()));
    }
}

#[test]
fn a_panic_ends_what_waits_for_it_and_goes_on_in_the_caller() {
    let told = std::sync::Mutex::new(Vec::new());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        samite::local(3, |world| {
            let comm = world.comm();
            if comm.rank() == 1 {
                panic!("as the test wants");
            }
            let error = comm.with_timeout(Duration::from_secs(60)).recv(&mut [0_u8], Rank(1), 1).unwrap_err();
            told.lock().unwrap().push(error);
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as the test wants"));
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), 2);
    for error in told {
        // The launcher reports the cause. Before that, the loss of the connection may become known.
        assert!(
            matches!(error, Error::PeerFailed { rank: Rank(1), cause: Cause::Died(_) | Cause::Lost, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_wait_for_a_rank_that_has_left_ends_with_an_error() {
    let results = samite::local(2, |world| match world.comm().rank() {
        Rank(0) => {
            world.comm().with_timeout(Duration::from_secs(60)).recv(&mut [0_u8], Rank(1), 1).map(|_| ())
        }
        _ => Ok(()),
    });
    assert!(
        matches!(results[0], Err(Error::PeerFailed { rank: Rank(1), cause: Cause::Left, .. })),
        "{results:?}"
    );
}

#[test]
fn what_was_sent_before_leaving_arrives() {
    let results = samite::local(4, |world| {
        let comm = world.comm();
        if comm.rank() != 0 {
            return comm.send(&vec![comm.rank().0; 100_000], Rank(0), 1).map(|()| 0);
        }
        let mut sum = 0;
        for _ in 1..comm.size() {
            let Done { buffer: data, status } = comm.recv_vec::<u32>(Source::ANY, 1)?;
            assert!(data.len() == 100_000 && data.iter().all(|&rank| rank == status.peer));
            sum += status.peer.0;
        }
        Ok(sum)
    });
    assert_eq!(results, [Ok(6), Ok(0), Ok(0), Ok(0)]);
}

/// In a ring of three ranks, the last rank has left. The exchanges of both other ranks end: the exchange of one rank
/// because its partner has left, and then the exchange of the other rank, because the first rank has cancelled the
/// operation between the two. Then the two ranks exchange messages with each other.
#[test]
fn a_ring_with_a_hole_ends_and_its_rest_recovers() {
    let results = samite::local(3, |world| {
        let comm = world.comm();
        if comm.rank() == 2 {
            return Ok(());
        }
        // Wait until rank 2 has left: a short message to it succeeds before that.
        let gone = comm.recv(&mut [0_u8], Rank(2), 9).unwrap_err();
        assert!(matches!(gone, Error::PeerFailed { rank: Rank(2), .. }), "{gone}");
        for bytes in [8, 1 << 20] {
            let (data, mut buffer) = (vec![1_u8; bytes], vec![0_u8; bytes]);
            let (next, last) = ((comm.rank().0 + 1) % 3, (comm.rank().0 + 2) % 3);
            let error = comm.sendrecv(&data, Rank(next), 1, &mut buffer, Rank(last), 1).unwrap_err();
            assert!(matches!(error, Error::PeerFailed { rank: Rank(2), .. }), "{error}");
            comm.sendrecv(&data, Rank(1 - comm.rank().0), 2, &mut buffer, Rank(1 - comm.rank().0), 2)?;
        }
        Ok::<(), Error>(())
    });
    assert_eq!(results, vec![Ok(()); 3]);
}

#[test]
fn a_body_that_fails_cancels_the_rest() {
    let failed = samite::local(1, |world| {
        let mut buffer = [0_u8];
        world.comm().scope(|scope| {
            scope.irecv(&mut buffer, Rank(0), 1)?;
            Err::<(), Error>(Error::NoSuchRequest)
        })
    });
    assert_eq!(failed, [Err(Error::NoSuchRequest)]);
}

#[test]
fn an_exchange_with_a_rank_that_is_not_there_posts_nothing() {
    samite::local(1, |world| {
        let comm = world.comm();
        let mut buffer = [0_u8];
        let error = comm.sendrecv(&[1_u8], Rank(1), 1, &mut buffer, Rank(0), 1).unwrap_err();
        assert_eq!(error, Error::InvalidRank { rank: Rank(1), size: 1 });
        let error = comm.sendrecv(&[1_u8], Rank(0), 1, &mut buffer, Rank(1), 1).unwrap_err();
        assert_eq!(error, Error::InvalidRank { rank: Rank(1), size: 1 });
        // The failed calls posted neither the send nor the receive.
        assert_eq!(comm.try_probe(Rank(0), 1), Ok(None));
        comm.sendrecv(&[2_u8], Rank(0), 1, &mut buffer, Rank(0), 1).unwrap();
        assert_eq!(buffer, [2]);
    });
}

/// A reduction that calls Samite panics, because it would wait for itself. The runtime works afterwards.
#[test]
fn a_reduction_that_calls_samite_panics() {
    samite::local(2, |world| {
        let comm = world.comm();
        let panics = || {
            let inner = comm.clone();
            let calls = commuting(move |_: &[u64], _: &mut [u64]| inner.barrier().unwrap());
            let panic = catch_unwind(AssertUnwindSafe(|| comm.allreduce(&[1], &mut [0], calls)));
            assert!(panic.unwrap_err().downcast_ref::<&str>().is_some_and(|text| text.contains("lock")));
        };
        panics();
        // The lock works otherwise when several threads have used it.
        for _ in 0..2 {
            std::thread::scope(|scope| scope.spawn(|| comm.is_revoked()).join().unwrap());
        }
        panics();
        comm.send(&[1_u8], Rank(1 - comm.rank().0), 1).unwrap();
        comm.recv(&mut [0_u8], Rank(1 - comm.rank().0), 1).unwrap();
    });
}

/// A test whose error is not final keeps the operation, and the operation then receives a message that arrives later.
#[test]
fn a_test_that_tells_of_a_failure_keeps_the_operation() {
    let told = std::sync::Barrier::new(2);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        samite::local(3, |world| {
            let comm = world.comm();
            if comm.rank() == 0 {
                let mut buffer = [0_u8];
                let status = comm.scope(|scope| {
                    let mut posted = scope.irecv(&mut buffer, Source::ANY, 1)?;
                    let error = loop {
                        match scope.test(&mut posted) {
                            None => {}
                            Some(Ok(status)) => panic!("{status:?}"),
                            Some(Err(error)) => break error,
                        }
                    };
                    assert!(matches!(error, Error::FailurePending { rank: Rank(2), .. }), "{error}");
                    told.wait();
                    scope.wait(posted)
                });
                assert_eq!((status.unwrap().peer, buffer), (Rank(1), [7]));
            } else if comm.rank() == 1 {
                told.wait();
                comm.send(&[7_u8], Rank(0), 1).unwrap();
            } else {
                panic!("as the test wants");
            }
        })
    }));
    // A panic of rank 0 would be returned first, so rank 0 has not panicked.
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as the test wants"));
}

#[test]
fn part_of_an_element_is_an_error_everywhere() {
    samite::local(1, |world| {
        let comm = world.comm();
        let partial = |result: Result<(), Error>| {
            let error = result.unwrap_err();
            let is_partial =
                matches!(&error, Error::PartialElement { status, element: 4 } if status.bytes == 3);
            assert!(is_partial, "{error}");
        };
        let send = || comm.isend(vec![1_u8; 3], Rank(0), 1).unwrap();
        let mut buffer = [0_u32; 2];

        let sent = send();
        partial(comm.recv(&mut buffer, Rank(0), 1).map(drop));
        sent.wait().unwrap();
        let sent = send();
        partial(comm.recv_vec::<u32>(Rank(0), 1).map(drop));
        sent.wait().unwrap();
        let sent = send();
        partial(comm.claim(Rank(0), 1).unwrap().recv::<u32>().map(drop));
        sent.wait().unwrap();
        let posted = comm.irecv(vec![0_u32; 2], Rank(0), 1).unwrap();
        let sent = send();
        partial(posted.wait().map(drop).map_err(Error::from));
        sent.wait().unwrap();
        partial(comm.sendrecv(&[1_u8; 3], Rank(0), 1, &mut buffer, Rank(0), 1).map(drop));
        partial(comm.scope(|scope| {
            let posted = scope.irecv(&mut buffer, Rank(0), 1)?;
            scope.isend(&[1_u8; 3], Rank(0), 1)?;
            scope.wait(posted).map(drop)
        }));
        partial(comm.scope(|scope| {
            let mut posted = scope.irecv(&mut buffer, Rank(0), 1)?;
            scope.isend(&[1_u8; 3], Rank(0), 1)?;
            while scope.test(&mut posted).transpose()?.is_none() {}
            Ok(())
        }));
        assert_eq!(comm.try_probe(Rank(0), 1), Ok(None), "each is used up");
    });
}

/// The last rank may still send to itself, from this thread and from others.
#[test]
fn a_rank_that_all_others_have_left_receives_from_itself() {
    samite::local(2, |world| {
        let comm = world.comm();
        if comm.rank() == 1 {
            return world.leave().unwrap();
        }
        let gone = comm.recv(&mut [0_u8], Rank(1), 0).unwrap_err();
        assert!(matches!(gone, Error::PeerFailed { rank: Rank(1), .. }), "{gone}");
        let mut number = [0];
        assert_eq!(comm.recv(&mut number, Source::ANY, 0), Err(Error::Deserted));
        for length in [1, 500_000] {
            // The receive is posted before there is anything to receive.
            let (sent, mut received) = (vec![7_u32; length], vec![0; length]);
            comm.sendrecv(&sent, Rank(0), 1, &mut received, Source::ANY, 1).unwrap();
            assert_eq!(sent, received);
            let posted = comm.irecv(vec![0_u32; length], Source::ANY, 1).unwrap();
            let under_way = comm.isend(sent, Rank(0), 1).unwrap();
            assert_eq!(posted.wait().unwrap().buffer, received);
            under_way.wait().unwrap();
            assert_eq!(comm.recv(&mut number, Source::ANY, 0), Err(Error::Deserted), "nothing is on its way");
        }
        // A receive that names this rank as its source waits, because another thread may still send the message.
        std::thread::scope(|threads| {
            let receiver = threads.spawn(|| comm.recv(&mut number, Rank(0), 2).map(|status| status.peer));
            assert_eq!(comm.recv(&mut [0], Source::ANY, 0), Err(Error::Deserted));
            comm.send(&[5_u32], Rank(0), 2).unwrap();
            assert_eq!(receiver.join().unwrap(), Ok(Rank(0)));
        });
        assert_eq!(number, [5]);
    });
}

/// Every call that names a rank which the job does not have is refused, and leaves nothing behind.
#[test]
fn a_rank_that_the_job_does_not_have_is_refused_by_every_call() {
    const NOBODY: Rank = Rank(2);
    samite::local(2, |world| {
        let comm = world.comm();
        let mut buffer = [0_u8];
        let soon = Duration::from_secs(60);
        let owned = |failed: samite::Failed<Vec<u8>>| {
            assert_eq!(failed.buffer.as_deref(), Some(&[7_u8][..]), "the buffer is given back");
            failed.error
        };
        let errors = [
            ("send", comm.send(&[1_u8], NOBODY, 1).unwrap_err()),
            ("recv", comm.recv(&mut buffer, NOBODY, 1).unwrap_err()),
            ("recv_vec", comm.recv_vec::<u8>(NOBODY, 1).unwrap_err()),
            ("sendrecv to", comm.sendrecv(&[1_u8], NOBODY, 1, &mut buffer, Rank(0), 1).unwrap_err()),
            ("sendrecv from", comm.sendrecv(&[1_u8], Rank(0), 1, &mut buffer, NOBODY, 1).unwrap_err()),
            ("sendrecv both", comm.sendrecv(&[1_u8], NOBODY, 1, &mut buffer, NOBODY, 1).unwrap_err()),
            ("sendrecv any", comm.sendrecv(&[1_u8], NOBODY, 1, &mut buffer, Source::ANY, 1).unwrap_err()),
            ("isend", owned(comm.isend(vec![7_u8], NOBODY, 1).unwrap_err())),
            ("irecv", owned(comm.irecv(vec![7_u8], NOBODY, 1).unwrap_err())),
            ("scope isend", comm.scope(|scope| scope.isend(&[1_u8], NOBODY, 1).map(drop)).unwrap_err()),
            ("scope irecv", comm.scope(|scope| scope.irecv(&mut buffer, NOBODY, 1).map(drop)).unwrap_err()),
            ("probe", comm.probe(NOBODY, 1).unwrap_err()),
            ("try_probe", comm.try_probe(NOBODY, 1).unwrap_err()),
            ("claim", comm.claim(NOBODY, 1).unwrap_err()),
            ("try_claim", comm.try_claim(NOBODY, 1).unwrap_err()),
            ("incarnation", comm.incarnation(NOBODY).unwrap_err()),
            ("wait_for_restart", comm.wait_for_restart(NOBODY, soon).unwrap_err()),
        ];
        for (call, error) in errors {
            assert_eq!(error, Error::InvalidRank { rank: NOBODY, size: 2 }, "{call}");
        }
        assert_eq!((comm.transport(NOBODY), comm.explain(NOBODY)), (None, None));
        // No call has posted a receive or sent a message.
        for from in [0, 1] {
            assert_eq!(comm.try_probe(Rank(from), 1), Ok(None));
        }
        assert_eq!(comm.stats().requests, 0);
        let other = Rank(1 - comm.rank().0);
        comm.sendrecv(&[comm.rank().0 as u8], other, 2, &mut buffer, other, 2).unwrap();
        assert_eq!(buffer, [other.0 as u8]);
    });
}

#[test]
fn a_failure_gives_the_buffer_back_of_a_receive_from_any_source() {
    let told = std::sync::Mutex::new(None);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        samite::local(3, |world| match world.comm().rank() {
            Rank(0) => {
                let receive = world.comm().irecv(vec![7_u8; 3], Source::ANY, 1).unwrap();
                *told.lock().unwrap() = Some(receive.wait().unwrap_err());
                // The ended receive takes no message any more.
                world.comm().send(&[1_u8], Rank(2), 2).unwrap();
                world.comm().recv(&mut [0_u8], Rank(2), 1).unwrap();
            }
            Rank(1) => panic!("as the test wants"),
            _ => {
                // Rank 0 knows of the failure before there is a message for its receive.
                world.comm().recv(&mut [0_u8], Rank(0), 2).unwrap();
                world.comm().send(&[1_u8], Rank(0), 1).unwrap();
            }
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as the test wants"));
    let failed = told.into_inner().unwrap().unwrap();
    assert!(matches!(failed.error, Error::FailurePending { rank: Rank(1), .. }), "{failed}");
    assert_eq!(failed.buffer, Some(vec![7; 3]));
}

const MANY: u64 = 1000;

type End = (usize, Result<samite::Done<Vec<u8>>, samite::Failed<Vec<u8>>>);

/// Receives with many tags, whose messages come in the reverse order.
#[test]
fn the_ends_of_a_set_come_in_their_order() {
    samite::local(2, |world| {
        let comm = world.comm();
        if comm.rank() == 1 {
            comm.recv(&mut [0_u8], Rank(0), MANY).unwrap();
            for tag in (0..MANY).rev() {
                comm.send(&[tag], Rank(0), tag).unwrap();
            }
            return;
        }
        let mut receives = comm.request_set();
        let mut tags = HashMap::new();
        for tag in 0..MANY {
            let key = receives.insert(comm.irecv(vec![0_u64], Rank(1), tag).unwrap()).unwrap();
            assert_eq!(tags.insert(key, tag), None, "each has a key of its own");
        }
        assert_eq!(receives.test_any().map(|(key, _)| key), None, "no message was sent");
        comm.send(&[0_u8], Rank(1), MANY).unwrap();
        for expected in (0..MANY).rev() {
            assert_eq!(receives.len() as u64, expected + 1);
            let (key, received) = receives.wait_any().expect("it is not empty");
            let done = received.unwrap();
            assert_eq!((tags[&key], done.status.tag, done.buffer), (expected, expected, vec![expected]));
        }
        assert!(receives.is_empty() && receives.wait_any().is_none());
        assert!(receives.wait_some().is_empty() && receives.wait_all().is_empty());
    });
}

#[test]
fn requests_go_into_a_set_ended_or_not_and_come_out_once() {
    samite::local(1, |world| {
        let comm = world.comm();
        let mut set = comm.request_set();
        let mut ended = comm.irecv(vec![0_u8; 1], Rank(0), 1).unwrap();
        comm.send(&[1_u8], Rank(0), 1).unwrap();
        let done = loop {
            if let Some(result) = ended.test() {
                break result.unwrap();
            }
        };
        assert_eq!((done.buffer, done.status.tag), (vec![1], 1));
        // The request returns its result once.
        assert_eq!(ended.test().unwrap().unwrap_err().error, Error::NoSuchRequest);
        let unasked = comm.irecv(vec![0_u8; 1], Rank(0), 2).unwrap();
        comm.send(&[2_u8], Rank(0), 2).unwrap();
        let pending = comm.irecv(vec![0_u8; 1], Rank(0), 3).unwrap();
        let keys = [ended, unasked, pending].map(|request| set.insert(request).unwrap());
        let mut ends = set.wait_some();
        while ends.len() < 2 {
            ends.extend(set.test_some());
        }
        let bytes = |ends: Vec<End>| {
            let mut bytes: Vec<_> =
                ends.into_iter().map(|(key, end)| (key, end.unwrap().buffer[0])).collect();
            bytes.sort_unstable();
            bytes
        };
        let (finished, ends) = ends.into_iter().partition::<Vec<End>, _>(|&(key, _)| key == keys[0]);
        let [(_, Err(finished))] = &finished[..] else { panic!("{finished:?}") };
        assert_eq!(finished.error, Error::NoSuchRequest);
        assert_eq!(bytes(ends), [(keys[1], 2)]);
        // A request that was taken out is not reported any more.
        let request = set.remove(keys[2]).unwrap();
        assert!(set.remove(keys[2]).is_none() && set.is_empty());
        comm.send(&[3_u8], Rank(0), 3).unwrap();
        assert_eq!(request.wait().unwrap().buffer, [3]);
        assert!(set.test_any().is_none());
        // A cancelled request ends with `Cancelled`, and the other requests continue.
        let [first, second] =
            [4, 5].map(|tag| set.insert(comm.irecv(vec![0_u8; 1], Rank(0), tag).unwrap()).unwrap());
        set.cancel(first);
        let (key, end) = set.wait_any().unwrap();
        assert!(key == first && matches!(end.unwrap_err().error, Error::Cancelled { .. }));
        comm.send(&[5_u8], Rank(0), 5).unwrap();
        assert_eq!(bytes(set.wait_all()), [(second, 5)]);
        drop(set.insert(comm.irecv(vec![0_u8; 1], Rank(0), 6).unwrap()));
        drop(set);
        comm.send(&[6_u8], Rank(0), 6).unwrap();
        assert_eq!(comm.probe(Rank(0), 6).unwrap().bytes, 1, "the receive was cancelled with its set");
    });
}

/// The engine knows the end of a request before the request is moved.
#[test]
fn a_request_that_was_moved_to_another_set_is_reported_there() {
    samite::local(1, |world| {
        let comm = world.comm();
        let (mut former, mut latter) = (comm.request_set(), comm.request_set());
        let [stays, moves] =
            [1, 2].map(|tag| former.insert(comm.irecv(vec![0_u8; 1], Rank(0), tag).unwrap()).unwrap());
        comm.send(&[2_u8], Rank(0), 2).unwrap();
        comm.send(&[3_u8], Rank(0), 3).unwrap();
        comm.recv(&mut [0_u8], Rank(0), 3).unwrap();
        let moved = latter.insert(former.remove(moves).unwrap()).unwrap();
        assert!(former.test_any().is_none() && former.len() == 1);
        let (key, end) = latter.wait_any().unwrap();
        assert_eq!((key, end.unwrap().buffer), (moved, vec![2]));
        comm.send(&[1_u8], Rank(0), 1).unwrap();
        let (key, end) = former.wait_any().unwrap();
        assert_eq!((key, end.unwrap().buffer), (stays, vec![1]));
    });
}

#[test]
fn a_set_reports_failures_to_receives_from_any_source_and_time_outs() {
    let told = std::sync::Mutex::new(Vec::new());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        samite::local(3, |world| match world.comm().rank() {
            Rank(0) => {
                let mut set = world.comm().request_set();
                set.insert(world.comm().irecv(vec![7_u8; 3], Source::ANY, 1).unwrap()).unwrap();
                let brief = world.comm().with_timeout(Duration::from_millis(1));
                set.insert(brief.irecv(vec![8_u8; 3], Rank(2), 1).unwrap()).unwrap();
                *told.lock().unwrap() = set.wait_all();
                world.comm().send(&[1_u8], Rank(2), 2).unwrap();
            }
            Rank(1) => panic!("as the test wants"),
            _ => _ = world.comm().recv(&mut [0_u8], Rank(0), 2).unwrap(),
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as the test wants"));
    let mut told: Vec<_> =
        told.into_inner().unwrap().into_iter().map(|(key, end)| (key, end.unwrap_err())).collect();
    told.sort_by_key(|(key, _)| *key);
    assert!(matches!(&told[0].1.error, Error::FailurePending { rank: Rank(1), .. }), "{}", told[0].1);
    assert!(matches!(&told[1].1.error, Error::TimedOut { .. }), "{}", told[1].1);
    assert_eq!(
        told.into_iter().map(|(_, failed)| failed.buffer).collect::<Vec<_>>(),
        [Some(vec![7; 3]), Some(vec![8; 3])]
    );
}

#[test]
fn a_set_takes_requests_of_its_own_world_only() {
    let foreign = std::sync::Mutex::new(None);
    samite::local(2, |world| {
        let comm = world.comm();
        let request = comm.irecv(vec![0_u8; 1], Rank(0), 1).unwrap();
        if comm.rank() == 0 {
            *foreign.lock().unwrap() = Some(request);
            comm.send(&[0_u8], Rank(1), 2).unwrap();
            comm.recv(&mut [0_u8], Rank(1), 3).unwrap();
        } else {
            comm.recv(&mut [0_u8], Rank(0), 2).unwrap();
            let request = foreign.lock().unwrap().take().unwrap();
            assert!(comm.request_set().insert(request).is_err());
            comm.send(&[0_u8], Rank(0), 3).unwrap();
        }
    });
}

#[test]
fn a_wait_for_the_restart_of_a_rank_that_has_left_ends() {
    let results = samite::local(2, |world| {
        let comm = world.comm();
        let peer = Rank(1 - comm.rank().0);
        comm.sendrecv(&[0_u8], peer, 1, &mut [0_u8], peer, 1)?;
        if comm.rank() == 1 {
            return Ok(());
        }
        match comm.wait_for_restart(peer, Duration::MAX) {
            // It still took part.
            Ok(1) => {}
            other => assert!(matches!(other, Err(Error::PeerFailed { .. })), "{other:?}"),
        }
        let left = comm.recv(&mut [0_u8], peer, 2);
        assert!(matches!(left, Err(Error::PeerFailed { .. })), "{left:?}");
        comm.wait_for_restart(peer, Duration::MAX).map(drop)
    });
    assert!(matches!(results[0], Err(Error::PeerFailed { .. })), "{results:?}");
    assert_eq!(results[1], Ok(()));
}
