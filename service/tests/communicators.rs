//! Communicators that their members create.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use samite::{
    Attribute, CancelToken, Cause, Comm, Error, Group, Inherited, Locality, Rank, Source, Tag, World,
};

/// Runs ranks that must all succeed.
fn all<R: Send + std::fmt::Debug>(n: u32, body: impl Fn(&Comm) -> Result<R, Error> + Sync) -> Vec<R> {
    let results = samite::local(n, |world: World| body(world.comm()));
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// Passes one number of each rank around the communicator. Every rank adds its rank to each number. Returns the sum.
fn ring(comm: &Comm) -> Result<u32, Error> {
    let (rank, size) = (comm.rank().0, comm.size());
    let (left, right) = (Rank((rank + size - 1) % size), Rank((rank + 1) % size));
    let mut sum = [0];
    for _ in 0..size {
        let sent = sum[0] + rank;
        let status = comm.sendrecv(&[sent], right, 1, &mut sum, left, 1)?;
        assert_eq!((status.peer, status.bytes), (left, 4));
    }
    Ok(sum[0])
}

#[test]
fn duplicates_keep_messages_apart() {
    all(3, |comm| {
        let comms = [comm.clone(), comm.dup()?, comm.dup()?];
        let (rank, to) = (comm.rank(), Rank((comm.rank().0 + 1) % 3));
        for (number, comm) in (0u8..).zip(&comms) {
            assert_eq!((comm.rank(), comm.size()), (rank, 3));
            comm.send(&[number], to, 7)?;
        }
        for (number, comm) in (0u8..3).zip(&comms).rev() {
            let message = comm.recv_vec::<u8>(Source::ANY, Tag::ANY)?;
            assert_eq!((message.buffer, message.status.peer), (vec![number], Rank((rank.0 + 2) % 3)));
        }
        Ok(())
    });
}

#[test]
fn a_split_orders_by_key_and_then_by_rank() {
    for n in [1, 2, 3, 8, 13] {
        all(n, |comm| {
            let rank = comm.rank().0;
            // The ranks choose one of three colours or none, and several choose the same key.
            let colour = Some(rank % 4).filter(|colour| *colour < 3);
            let key = |rank: u32| -i64::from(rank / 8);
            let Some(part) = comm.split(colour, key(rank))? else {
                assert_eq!(colour, None);
                return Ok(());
            };
            let mut expected: Vec<u32> = (0..n).filter(|other| Some(other % 4) == colour).collect();
            expected.sort_by_key(|rank| key(*rank));
            let group = Group::new(expected.iter().copied().map(Rank)).unwrap();
            assert_eq!(part.group(), group);
            assert_eq!(Some(part.rank().0), group.index(Rank(rank)));
            assert_eq!(ring(&part)?, (0..part.size()).sum::<u32>());
            // A communicator of a communicator.
            let half = part.split(Some(part.rank().0 % 2), 0)?.expect("it has a colour");
            assert_eq!(half.size(), (part.size() + 1 - part.rank().0 % 2) / 2);
            ring(&half)?;
            ring(&part.dup()?)?;
            Ok(())
        });
    }
}

#[test]
fn a_group_creates_its_communicator_alone() {
    all(6, |comm| {
        let rank = comm.rank();
        let outer = Group::new([5, 1, 3].map(Rank)).unwrap();
        let not_mine = comm.create_from_group(&Group::new([Rank((rank.0 + 1) % 6)]).unwrap(), 0);
        assert_eq!(not_mine.unwrap_err(), Error::NotAMember { world_rank: rank });
        let alone = comm.create_from_group(&Group::new([rank]).unwrap(), 0)?;
        assert_eq!((alone.rank(), alone.size(), ring(&alone)?), (Rank(0), 1, 0));
        if outer.contains(rank) {
            let part = comm.create_from_group(&outer, 0)?;
            assert_eq!(part.rank().0, outer.index(rank).unwrap());
            ring(&part)?;
            let stranger = part.create_from_group(&Group::new([rank, Rank(0)]).unwrap(), 1);
            assert_eq!(stranger.unwrap_err(), Error::NotAMember { world_rank: Rank(0) });
        }
        Ok(())
    });
}

/// Every call takes and returns ranks of its communicator.
#[test]
fn every_call_names_ranks_of_its_communicator() {
    all(4, |comm| {
        let world_rank = comm.rank().0;
        let back = comm.split(Some(0), -i64::from(world_rank))?.expect("it has a colour");
        assert_eq!(back.rank().0, 3 - world_rank);
        let (me, other) = (back.rank(), Rank(back.rank().0 ^ 1));
        back.incarnation(other)?;
        let short = Duration::from_secs(30);
        back.wait_for_restart(other, short)?;

        back.send(&[me.0], other, 1)?;
        assert_eq!(back.probe(other, 1)?.peer, other);
        assert_eq!(back.claim(Source::ANY, 1)?.recv::<u32>()?.status.peer, other);
        back.send(&[me.0], other, 1)?;
        while back.try_probe(other, 1)?.is_none_or(|status| status.peer != other) {}
        let message = back.try_claim(other, 1)?.expect("it has arrived");
        assert_eq!(message.status().peer, other);
        assert_eq!(message.recv::<u32>()?.buffer, [other.0]);
        let received = back.irecv(vec![0u32], other, 2)?;
        let sent = back.isend(vec![me.0], other, 2)?;
        assert_eq!(received.wait()?.status.peer, other);
        assert_eq!(sent.wait()?.status.peer, other);
        let mut theirs = [0];
        let mine = [me.0];
        back.scope(|scope| {
            let received = scope.irecv(&mut theirs, Source::ANY, 3)?;
            let mut sent = scope.isend(&mine, other, 3)?;
            while scope.test(&mut sent).is_none() {}
            assert_eq!(scope.wait(received)?.peer, other);
            assert_eq!(scope.wait(sent)?.peer, other);
            Ok(())
        })?;
        // A set has requests of several communicators.
        let mut set = comm.request_set::<Vec<u32>>();
        let in_back = set.insert(back.irecv(vec![0], other, 4)?).unwrap();
        let in_world = set.insert(comm.irecv(vec![0], Source::ANY, 4)?).unwrap();
        back.send(&[me.0], other, 4)?;
        comm.send(&[me.0], Rank(world_rank ^ 2), 4)?;
        for (key, done) in set.wait_all() {
            let peer = done?.status.peer;
            assert_eq!(peer, if key == in_back { other } else { Rank(world_rank ^ 2) });
            assert!(key == in_back || key == in_world);
        }

        let refused = Error::InvalidRank { rank: Rank(4), size: 4 };
        assert_eq!(back.send(&[0u8], Rank(4), 1), Err(refused.clone()));
        assert_eq!(back.recv(&mut [0u8], Rank(4), 1), Err(refused.clone()));
        assert_eq!(back.isend(vec![0u8], Rank(4), 1).unwrap_err().error, refused);
        assert_eq!(back.irecv(vec![0u8], Rank(4), 1).unwrap_err().error, refused);
        assert_eq!(back.probe(Rank(4), 1), Err(refused.clone()));
        assert_eq!(back.scope(|scope| scope.isend(&[0u8], Rank(4), 1).map(drop)), Err(refused));
        let brief = back.with_timeout(Duration::from_millis(1));
        let Err(Error::TimedOut { report, .. }) = brief.recv(&mut [0u8], other, 9) else {
            panic!("it times out")
        };
        assert_eq!((report.peer, report.world_peer), (Some(other), Some(Rank(world_rank ^ 1))));
        back.send(&[0u32], other, 5)?;
        let Err(Error::Truncated { status, .. }) = back.recv(&mut [0u8], other, 5) else {
            panic!("too long")
        };
        assert_eq!(status.peer, other);
        ring(&back)?;
        Ok(())
    });
}

#[test]
fn a_failure_is_named_by_both_ranks() {
    let errors = samite::local(4, |world| {
        let comm = world.comm();
        let back = comm.split(Some(0), -i64::from(comm.rank().0)).unwrap().unwrap();
        if comm.rank() == 0 {
            return None;
        }
        let named = back.recv(&mut [0u8], Rank(3), 1).unwrap_err();
        // No rank may leave before all ranks have these errors.
        let rest = back.create_from_group(&back.group().exclude([3]), 1).unwrap();
        ring(&rest).unwrap();
        Some(named)
    });
    for named in errors.into_iter().flatten() {
        let Error::PeerFailed { rank: Rank(3), world_rank: Rank(0), cause: Cause::Left, .. } = &named else {
            panic!("{named}")
        };
        assert!(named.to_string().starts_with("rank 3 (rank 0 of the job) has left the job"), "{named}");
    }
}

/// The unexpected messages of a communicator are dropped with its last handle, as are messages that arrive later.
#[test]
fn dropped_communicators_leave_nothing() {
    all(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        for round in 0..200u64 {
            let apart = comm.dup()?;
            apart.send(&[0u8; 100], other, round)?;
            let request = apart.isend(vec![0u8; 100_000], other, round)?;
            if round % 4 != 1 + 2 * u64::from(comm.rank().0) {
                drop(request);
            } else {
                // The request keeps the communicator. The send ends when the message has left, or when the other rank
                // drops its last handle.
                let receive = apart.irecv(vec![0u8; 10], other, 5000)?;
                drop(apart);
                drop(receive);
                let end = request.wait().map_err(Error::from);
                assert!(matches!(end, Ok(_) | Err(Error::Abandoned { .. })), "{end:?}");
            }
        }
        comm.sendrecv(&[0u8], other, 1, &mut [0u8], other, 1)?;
        let stats = comm.stats();
        assert_eq!(stats.unexpected_messages, 0, "{stats:?}");
        Ok(())
    });
}

/// A rank that leaves before it takes part ends the creation at all other ranks, with the same error.
#[test]
fn a_creation_that_a_rank_does_not_survive_fails_at_all() {
    for n in [2, 3, 5, 8, 13] {
        for victim in 0..n {
            let errors = samite::local(n, |world| {
                let comm = world.comm();
                if comm.rank() == victim {
                    return None;
                }
                let dup = comm.dup().err();
                let survivors = comm.create_from_group(&comm.group().exclude([victim]), 3).unwrap();
                ring(&survivors).unwrap();
                Some(dup)
            });
            for error in errors.into_iter().flatten() {
                let Some(Error::PeerFailed { rank, cause: Cause::Left, .. }) = &error else {
                    panic!("{error:?}")
                };
                assert_eq!(rank.0, victim);
            }
        }
    }
}

/// If a rank gives up a creation, before or after it has taken part, the other ranks get an error too. Later creations
/// succeed.
#[test]
fn a_creation_that_a_rank_gives_up_fails_at_all() {
    for n in [2, 5, 8] {
        for quitter in 0..n {
            all(n, |comm| {
                let result = if comm.rank() == quitter {
                    let cancel = CancelToken::new();
                    cancel.cancel();
                    let result = comm.with_cancel(&cancel).dup();
                    assert!(
                        matches!(result, Err(Error::Cancelled { .. }) | Err(Error::PeerFailed { .. }))
                            || n == 1
                    );
                    result
                } else {
                    comm.dup()
                };
                match result {
                    Err(Error::PeerFailed { rank, cause: Cause::LeftComm, .. }) => {
                        assert_eq!(rank.0, quitter)
                    }
                    Err(Error::Cancelled { .. }) => assert_eq!(comm.rank(), quitter),
                    // The quitter gave up after this rank had received the communicator: operations with the quitter in
                    // it report that.
                    Ok(apart) => {
                        let error = apart.recv(&mut [0u8], Rank(quitter), 1).unwrap_err();
                        assert!(matches!(error, Error::PeerFailed { cause: Cause::LeftComm, .. }), "{error}");
                    }
                    Err(other) => panic!("{other}"),
                }
                ring(&comm.dup()?)
            });
        }
    }
}

#[test]
fn a_creation_that_some_do_not_call_times_out() {
    let barrier = Barrier::new(3);
    all(3, |comm| {
        if comm.rank() != 1 {
            let error = comm.with_timeout(Duration::from_millis(20)).dup().unwrap_err();
            assert!(
                matches!(error, Error::TimedOut { .. } | Error::PeerFailed { cause: Cause::LeftComm, .. }),
                "{error}"
            );
        }
        barrier.wait();
        if comm.rank() == 1 {
            let error = comm.dup().unwrap_err();
            assert!(matches!(error, Error::PeerFailed { cause: Cause::LeftComm, .. }), "{error}");
        }
        ring(&comm.dup()?)?;
        // Messages of a creation that was given up may arrive late. The next creation drops them.
        comm.dup()?;
        barrier.wait();
        assert_eq!(comm.stats().unexpected_messages, 0);
        Ok(())
    });
}

/// Threads of three ranks create communicators of pairs at the same time, so that agreements cross.
#[test]
fn creations_that_cross_get_contexts_of_their_own() {
    const ROUNDS: u32 = 50;
    all(3, |comm| {
        let me = comm.rank().0;
        let pairs = [0u32, 1, 2].map(|first| [first, (first + 1) % 3]);
        std::thread::scope(|threads| {
            let mine = pairs.iter().enumerate().filter(|(_, pair)| pair.contains(&me));
            let spawned: Vec<_> = mine
                .map(|(number, pair)| {
                    threads.spawn(move || {
                        for round in 0..ROUNDS {
                            let group = Group::new(pair.map(Rank)).unwrap();
                            let two = comm.create_from_group(&group, number as u32 * ROUNDS + round)?;
                            let (mine, other) = (number as u32 * 1000 + round, Rank(1 - two.rank().0));
                            let mut theirs = [0];
                            two.sendrecv(&[mine], other, 1, &mut theirs, Source::ANY, Tag::ANY)?;
                            assert_eq!(theirs, [mine]);
                        }
                        Ok::<(), Error>(())
                    })
                })
                .collect();
            spawned.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    });
}

#[test]
fn a_communicator_outlives_its_world() {
    let kept = samite::local(2, |world| {
        let apart = world.comm().dup().unwrap();
        ring(&apart).unwrap();
        apart
    });
    for comm in kept {
        assert!(matches!(comm.send(&[0u8], Rank(0), 1), Err(Error::Closed { .. })));
        assert!(matches!(comm.dup(), Err(Error::Closed { .. })));
    }
}

/// Several communicators are created from one communicator at the same time, and the results are taken in another order
/// than that in which the creations began.
#[test]
fn several_creations_are_under_way_at_once() {
    for n in [1, 2, 5, 8] {
        all(n, |comm| {
            let me = comm.rank().0;
            let duplicates: Vec<_> = (0..4).map(|_| comm.idup()).collect::<Result<_, _>>()?;
            let mut half = comm.isplit(Some(me % 2), 0)?;
            let pair = Group::new([Rank(0), Rank(n - 1)]).ok();
            let pair =
                pair.filter(|pair| pair.contains(comm.rank())).map(|pair| comm.icreate_from_group(&pair, 7));
            let pair = pair.transpose()?;
            let half = loop {
                if let Some(half) = half.test() {
                    break half?.expect("it has a colour");
                }
                std::thread::yield_now();
            };
            let mut comms = vec![half];
            comms.extend(pair.map(|pair| pair.wait()).transpose()?);
            for creation in duplicates.into_iter().rev() {
                comms.push(creation.wait()?);
            }
            for (tag, apart) in (0..).zip(&comms) {
                apart.send(&[tag], apart.rank(), tag)?;
            }
            for (tag, apart) in (0..).zip(&comms) {
                let message = apart.recv_vec::<u64>(apart.rank(), Tag::ANY)?;
                assert_eq!(message.buffer, [tag]);
                ring(apart)?;
            }
            Ok(())
        });
    }
}

/// A creation makes progress while its rank waits for another message.
#[test]
fn any_waiting_call_drives_creations() {
    all(3, |comm| {
        let (me, n) = (comm.rank().0, comm.size());
        let creation = comm.idup()?;
        if me == 1 {
            // For the agreement rank 1 exchanges messages with rank 0 only, and rank 0 answers when rank 2 has sent its
            // message too. So the creation cannot end unless the ranks that wait in `recv` make progress with it.
            creation.wait()?;
            (0..n).filter(|rank| *rank != me).try_for_each(|rank| comm.send(&[0u8], Rank(rank), 1))?;
        } else {
            comm.recv(&mut [0u8], Rank(1), 1)?;
            creation.wait()?;
        }
        Ok(())
    });
}

/// Dropping a creation gives it up: it fails at the other ranks, or their operations with this rank fail.
#[test]
fn a_dropped_creation_fails_at_the_others() {
    for n in [2, 3, 8] {
        for quitter in 0..n {
            all(n, |comm| {
                let creation = comm.idup()?;
                if comm.rank() == quitter {
                    drop(creation);
                } else {
                    let error = match creation.wait() {
                        Err(error) => error,
                        Ok(apart) => apart.recv(&mut [0u8], Rank(quitter), 1).unwrap_err(),
                    };
                    let Error::PeerFailed { rank, cause: Cause::LeftComm, .. } = error else {
                        panic!("{error}")
                    };
                    assert_eq!(rank.0, quitter);
                }
                // If the dropped creation has already succeeded, the rank leaves the new communicator. A probe makes
                // progress, and does not take the result. (A `test` would return the communicator, and the drop of a
                // communicator tells the other ranks nothing.)
                let creation = comm.idup()?;
                if comm.rank() == quitter {
                    comm.sendrecv(&[0u8], comm.rank(), 1, &mut [0u8], comm.rank(), 1)?;
                    comm.try_probe(comm.rank(), 1)?;
                    drop(creation);
                } else if let Ok(apart) = creation.wait() {
                    let error = apart.recv(&mut [0u8], Rank(quitter), 1).unwrap_err();
                    assert!(matches!(error, Error::PeerFailed { cause: Cause::LeftComm, .. }), "{error}");
                }
                ring(&comm.dup()?)
            });
        }
    }
}

/// The deadline of a creation applies even if no call waits for the creation.
#[test]
fn a_creation_has_the_deadline_of_its_start() {
    let barrier = Barrier::new(2);
    all(2, |comm| {
        if comm.rank() == 0 {
            let creation = comm.with_timeout(Duration::from_millis(1)).idup()?;
            let brief = comm.with_timeout(Duration::from_millis(20));
            brief.recv(&mut [0u8], Rank(1), 1).unwrap_err();
            barrier.wait();
            let error = creation.wait().unwrap_err();
            let Error::TimedOut { report, .. } = error else { panic!("{error}") };
            assert_eq!(report.peer, Some(Rank(1)));
        } else {
            barrier.wait();
            let error = comm.dup().unwrap_err();
            assert!(matches!(error, Error::PeerFailed { cause: Cause::LeftComm, .. }), "{error}");
        }
        ring(&comm.dup()?)
    });
}

/// Ranks that are threads share a host. Keys order them.
#[test]
fn ranks_of_a_host_get_a_communicator() {
    all(5, |comm| {
        let here = comm.split_by(Locality::Host, -i64::from(comm.rank().0))?.expect("each rank has a host");
        assert_eq!((here.size(), here.rank().0), (5, 4 - comm.rank().0));
        ring(&here)
    });
}

#[test]
fn a_rank_alone_needs_no_other() {
    all(3, |comm| {
        if comm.rank() == 1 {
            let (first, second) = (comm.self_comm()?, comm.self_comm()?);
            first.send(&[1u8], Rank(0), 7)?;
            assert_eq!(second.try_probe(Source::ANY, Tag::ANY), Ok(None));
            assert_eq!(first.recv_vec::<u8>(Source::ANY, Tag::ANY)?.buffer, [1]);
            assert_eq!(first.dup()?.size(), 1);
        }
        Ok(())
    });
}

/// An attribute that counts how many of its values exist.
struct Counted(Arc<AtomicUsize>, Inherited<()>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, passes: Inherited<()>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count), passes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attribute for Counted {
    fn duplicate(&self) -> Inherited<Self> {
        match self.1 {
            Inherited::Nothing => Inherited::Nothing,
            Inherited::Shared => Inherited::Shared,
            Inherited::Own(()) => Inherited::Own(Self::new(&self.0, self.1)),
        }
    }
}

#[test]
fn attributes_are_passed_to_duplicates_and_dropped_with_the_last_handle() {
    for (passes, values) in [(Inherited::Nothing, 1), (Inherited::Shared, 1), (Inherited::Own(()), 2)] {
        all(2, |comm| {
            let count = Arc::default();
            let first = comm.dup()?;
            first.set_attribute(Counted::new(&count, passes));
            // This value replaces the first value, which is dropped.
            first.set_attribute(Counted::new(&count, passes));
            assert_eq!(count.load(Ordering::Relaxed), 1);
            let second = first.dup()?;
            assert_eq!(count.load(Ordering::Relaxed), values);
            let split = first.split(Some(0), 0)?.expect("it has a colour");
            assert!(split.attribute::<Counted>().is_none(), "only duplicates get attributes");
            let passed = second.attribute::<Counted>();
            assert_eq!(passed.is_some(), passes != Inherited::Nothing);
            drop(passed);
            let other_handle = first.clone();
            drop(first);
            assert!(other_handle.attribute::<Counted>().is_some());
            drop(other_handle);
            assert_eq!(count.load(Ordering::Relaxed), usize::from(passes != Inherited::Nothing));
            assert_eq!(second.remove_attribute::<Counted>().is_some(), passes != Inherited::Nothing);
            assert!(second.attribute::<Counted>().is_none());
            assert_eq!(count.load(Ordering::Relaxed), 0);
            Ok(())
        });
    }
}

#[test]
fn names_are_of_one_communicator() {
    all(2, |comm| {
        comm.set_name("all");
        let apart = comm.dup()?;
        assert_eq!((comm.name().as_deref(), apart.name()), (Some("all"), None));
        apart.clone().set_name("apart");
        assert!(format!("{apart:?}").contains("apart") && !format!("{apart:?}").contains("all"));
        Ok(())
    });
}

/// Runs two ranks that may have `max` communicators each.
fn with_budget(max: usize, lanes: usize, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let mut settings = samite::Settings::default();
    settings.set_communicators_max(max).unwrap();
    settings.set_lanes(lanes).unwrap();
    let results = settings.local(2, |world: World| body(world.comm()));
    results.into_iter().for_each(|result| result.unwrap());
}

fn is_exhausted<R>(result: &Result<R, Error>) -> bool {
    matches!(result, Err(Error::Exhausted { hint, .. }) if hint.contains("communicators_max"))
}

/// A creation beyond the budget ends with an error, and all communicators can still be used.
#[test]
fn a_rank_has_no_more_communicators_than_its_budget() {
    for lanes in [1, 2] {
        with_budget(5, lanes, |comm| {
            let mut comms: Vec<Comm> = (0..5).map(|_| comm.dup()).collect::<Result<_, _>>()?;
            for turn in 0..10 {
                assert!(is_exhausted(&comm.dup()) && is_exhausted(&comms[turn % 5].dup()));
                assert!(is_exhausted(&comm.split(Some(0), 0)) && is_exhausted(&comm.self_comm()));
                assert_eq!(comm.split(None, 0)?.map(|comm| comm.size()), None, "it needs no communicator");
                for comm in &comms {
                    assert_eq!(ring(comm)?, 1);
                }
                comms.swap_remove(turn % 5);
                comms.push(comm.dup()?);
            }
            Ok(())
        });
    }
}

/// If one rank has as many communicators as it may have, no rank gets a new one, and the failed creations take nothing
/// of the budget.
#[test]
fn a_full_rank_refuses_a_communicator_for_all() {
    with_budget(3, 1, |comm| {
        let is_first = comm.rank() == 0;
        let own: Vec<Comm> =
            (0..if is_first { 3 } else { 0 }).map(|_| comm.self_comm()).collect::<Result<_, _>>()?;
        for _ in 0..5 {
            assert!(is_exhausted(&comm.dup()));
        }
        // The full rank takes part in splits in which it has no colour.
        let part = comm.split((!is_first).then_some(7), 0)?;
        assert_eq!(part.is_some(), !is_first);
        drop((own, part));
        assert_eq!(ring(&comm.dup()?)?, 1);
        Ok(())
    });
}

/// Creations that are under way at the same time share the rest of the budget, and those that are refused take nothing of
/// it. Two ranks may find room for them in different orders. If one of them then has room for a creation, and the other
/// one for another, both are refused, so fewer may be made than there is room for.
#[test]
fn creations_at_the_same_time_share_the_budget() {
    with_budget(4, 1, |comm| {
        let under_way: Vec<_> = (0..10).map(|_| comm.idup()).collect::<Result<_, _>>()?;
        let (made, refused): (Vec<_>, Vec<_>) =
            under_way.into_iter().map(|creation| creation.wait()).partition(|made| made.is_ok());
        assert!(made.len() <= 4 && refused.iter().all(is_exhausted), "{} made", made.len());
        let mut comms: Vec<Comm> = made.into_iter().collect::<Result<_, _>>()?;
        while comms.len() < 4 {
            comms.push(comm.dup()?);
        }
        assert!(is_exhausted(&comm.dup()));
        for comm in &comms {
            assert_eq!(ring(comm)?, 1);
        }
        drop(comms);
        assert_eq!(ring(&comm.dup()?)?, 1);
        Ok(())
    });
}

/// The end of a communicator ends its own receives, and no receive of another communicator.
#[test]
fn the_end_of_a_communicator_concerns_its_own_receives() {
    all(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let (kept, closed) = (comm.dup()?, comm.dup()?);
        let post = |comm: &Comm, from: Source, tag: Tag| {
            comm.irecv(vec![0u64], from, tag).map_err(|failed| failed.error)
        };
        let (mut pending, mut ended) = (Vec::new(), Vec::new());
        for tag in 0..50u64 {
            pending.push(post(&kept, other.into(), tag.into())?);
            ended.push(post(&closed, if tag % 2 == 0 { Source::ANY } else { other.into() }, tag.into())?);
        }
        drop((closed, ended));
        for tag in (0..50u64).rev() {
            kept.send(&[tag + 7], other, tag)?;
        }
        for (tag, request) in (0..50u64).zip(pending) {
            let received = request.wait().map_err(|failed| failed.error)?;
            assert_eq!((received.buffer, received.status.tag), (vec![tag + 7], tag));
        }
        Ok(())
    });
}

/// An error of a creation from an intercommunicator names the rank that has ended by its rank in its own group, at the
/// ranks of both groups.
#[test]
fn a_failed_creation_between_groups_names_a_rank_of_its_group() {
    samite::local(5, |world| {
        let (comm, in_first) = (world.comm(), world.comm().rank().0 < 2);
        let rank = comm.rank().0;
        // The groups are 1, 0 and 4, 3, 2.
        let own = comm.split(Some(u32::from(in_first)), -i64::from(rank)).unwrap().expect("it has a colour");
        let leader = Rank(if in_first { 4 } else { 1 });
        let both = own.create_intercomm(Rank(0), comm, leader, 7).unwrap();
        let rest = comm.split(Some(u32::from(rank != 1)), 0).unwrap().expect("it has a colour");
        if rank == 1 {
            return;
        }
        for error in [both.dup().unwrap_err(), both.split(Some(0), 0).unwrap_err()] {
            let Error::PeerFailed { rank, world_rank, .. } = error else { panic!("{error}") };
            assert_eq!((rank, world_rank), (Rank(0), Rank(1)));
        }
        // A rank that left before the others have their errors would be named too.
        rest.barrier().unwrap();
    });
}
