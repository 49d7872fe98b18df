//! Intercommunicators: messages between two groups, and the union of both.

use std::time::Duration;

use samite::{Cause, Comm, Comparison, Error, Group, Locality, Rank, Source, Tag};

use crate::case::{Cases, Job, barrier, bytes, expect, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    creation(cases);
    messages(cases);
    derived(cases);
    split(cases);
    merge(cases);
    misuse(cases);
    failures(cases);
}

/// Returns the communicator of this rank's half of the job, and the intercommunicator to the other half. The leader of
/// each half is its first rank.
fn halves(job: &Job) -> Result<(Comm, Comm), Error> {
    let middle = job.size() / 2;
    let is_low = job.rank() < middle;
    let mine = job.comm.split(Some(u32::from(is_low)), 0)?.expect("it has a colour");
    let other = if is_low { Rank(middle) } else { Rank(0) };
    let both = mine.create_intercomm(Rank(0), &job.comm, other, 3)?;
    Ok((mine, both))
}

fn is_low(job: &Job) -> bool {
    job.rank() < job.size() / 2
}

fn creation(cases: &mut Cases) {
    cases.section("7.6.2");
    cases.add("inter.groups", 5, "it has the rank's own group and a remote one", |job| {
        let (mine, both) = halves(job)?;
        assert_eq!((both.rank(), both.size()), (mine.rank(), mine.size()));
        assert_eq!(both.group().compare(&mine.group()), Comparison::Identical);
        assert_eq!((mine.remote_size(), mine.remote_group()), (None, None));
        let remote = if is_low(job) { Group::range(Rank(2), 3) } else { Group::range(Rank(0), 2) };
        assert_eq!((both.remote_size(), both.remote_group()), (Some(remote.len()), Some(remote)));
        Ok(())
    });
    cases.add("inter.alone", 2, "groups of one rank each", |job| {
        let both = job.comm.self_comm()?.create_intercomm(Rank(0), &job.comm, job.other(), 3)?;
        assert_eq!((both.size(), both.remote_size()), (1, Some(1)));
        let mut theirs = [9];
        both.sendrecv(&[job.rank()], Rank(0), 7, &mut theirs, Rank(0), 7)?;
        assert_eq!(theirs, [job.other().0]);
        Ok(())
    });
    cases.add("inter.leaders", 5, "any rank of a group can lead it", |job| {
        let is_low = is_low(job);
        let mine = job.comm.split(Some(u32::from(is_low)), 0)?.expect("it has a colour");
        // The leader of each half is its last rank.
        let (leader, other) = if is_low { (Rank(1), Rank(4)) } else { (Rank(2), Rank(1)) };
        let both = mine.create_intercomm(leader, &job.comm, other, 3)?;
        ring(&both)
    });
    cases.add("inter.order", 4, "each group keeps the order of its communicator", |job| {
        let is_low = is_low(job);
        let mine = job.comm.split(Some(u32::from(is_low)), -i64::from(job.rank()))?.expect("it has a colour");
        let both = mine.create_intercomm(Rank(0), &job.comm, Rank(if is_low { 3 } else { 1 }), 3)?;
        let remote = Group::new(if is_low { [3, 2] } else { [1, 0] }.map(Rank)).expect("they differ");
        assert_eq!(both.remote_group(), Some(remote));
        ring(&both)
    });
    cases.add("inter.bridge", 4, "only the leaders need to be in the bridge", |job| {
        let is_low = is_low(job);
        let mine = job.comm.split(Some(u32::from(is_low)), 0)?.expect("it has a colour");
        let leaders = Group::new([0, 2].map(Rank)).expect("they differ");
        let bridge = match leaders.contains(job.comm.rank()) {
            true => job.comm.create_from_group(&leaders, 9)?,
            false => job.comm.self_comm()?,
        };
        ring(&mine.create_intercomm(Rank(0), &bridge, Rank(u32::from(is_low)), 3)?)
    });
    cases.add("inter.bridge.inter", 4, "an intercommunicator can be the bridge of another one", |job| {
        let (mine, both) = halves(job)?;
        ring(&mine.create_intercomm(Rank(1), &both, Rank(1), 4)?)
    });
    cases.add("inter.tags", 4, "creations between the same leaders differ by their tags", |job| {
        let (mine, _) = halves(job)?;
        let other = if is_low(job) { Rank(2) } else { Rank(0) };
        let (first, second) = (
            mine.icreate_intercomm(Rank(0), &job.comm, other, 5)?,
            mine.icreate_intercomm(Rank(0), &job.comm, other, 6)?,
        );
        let (second, first) = (second.wait()?, first.wait()?);
        ring(&first)?;
        ring(&second)
    });
    cases.add("inter.three", 3, "three groups with an intercommunicator between each two", |job| {
        let alone = job.comm.self_comm()?;
        let (next, previous) = job.ring();
        // Each rank takes part in two creations, one with each neighbour. All ranks begin the creation with the lower
        // neighbour first, so the order is the same everywhere.
        let others = if next < previous { [next, previous] } else { [previous, next] };
        let pairs = others.map(|other| alone.icreate_intercomm(Rank(0), &job.comm, other, 3));
        for (pair, other) in pairs.into_iter().zip(others) {
            let pair = pair?.wait()?;
            let mut theirs = [9];
            pair.sendrecv(&[job.rank()], Rank(0), 7, &mut theirs, Rank(0), 7)?;
            assert_eq!(theirs, [other.0]);
        }
        Ok(())
    });
}

/// Each rank sends its rank to each rank of the remote group, and receives the ranks of the remote group.
fn ring(both: &Comm) -> Result<(), Error> {
    let remote = both.remote_size().expect("it has two groups");
    let sends = (0..remote).map(|to| both.isend(vec![both.rank().0], Rank(to), 7));
    let sends = sends.collect::<Result<Vec<_>, _>>()?;
    for from in (0..remote).rev() {
        let mut theirs = [u32::MAX];
        expect(both.recv(&mut theirs, Rank(from), 7)?, from, 7, 4);
        assert_eq!(theirs, [from]);
    }
    sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
}

fn messages(cases: &mut Cases) {
    cases.section("7.6");
    for ranks in [2, 3, 5, 8] {
        let rule = "destinations and sources are ranks of the remote group";
        cases.add(format!("inter.messages.{ranks}"), ranks, rule, |job| ring(&halves(job)?.1));
    }
    cases.add("inter.any-source", 5, "any source is any rank of the remote group", |job| {
        let (mine, both) = halves(job)?;
        if is_low(job) {
            return both.send(&[job.rank()], Rank(2), 7);
        }
        if mine.rank() == 2 {
            let mut seen = [false; 2];
            for _ in 0..2 {
                let status = both.recv(&mut [9u32], Source::ANY, Tag::ANY)?;
                seen[status.peer.0 as usize] = true;
            }
            assert_eq!(seen, [true; 2]);
        }
        Ok(())
    });
    cases.add("inter.apart", 4, "its messages are apart from those of the bridge and the groups", |job| {
        let (mine, both) = halves(job)?;
        let twin = Rank((job.rank() + 2) % 4);
        let sends = [
            mine.isend(vec![1u8], mine.rank(), 7)?,
            job.comm.isend(vec![2u8], twin, 7)?,
            both.isend(vec![3u8], both.rank(), 7)?,
        ];
        for (comm, from, value) in [(&both, both.rank(), 3), (&job.comm, twin, 2), (&mine, mine.rank(), 1)] {
            let mut byte = [0u8];
            expect(comm.recv(&mut byte, Source::ANY, Tag::ANY)?, from.0, 7, 1);
            assert_eq!(byte, [value]);
        }
        sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
    });
    cases.add("inter.long", 4, "messages of any length in both directions", |job| {
        let (_, both) = halves(job)?;
        let twin = both.rank();
        for len in [0, 1, 2000, job.long] {
            let mut theirs = vec![0u8; len];
            both.sendrecv(&bytes(len as u64, len), twin, 7, &mut theirs, twin, 7)?;
            assert_eq!(theirs, bytes(len as u64, len));
        }
        Ok(())
    });
    cases.add("inter.probe", 4, "probes and claims name ranks of the remote group", |job| {
        let (_, both) = halves(job)?;
        let twin = both.rank();
        let send = both.isend(vec![5u8; 3], twin, 7)?;
        expect(both.probe(Source::ANY, Tag::ANY)?, twin.0, 7, 3);
        let message = both.claim(twin, 7)?;
        expect(message.status(), twin.0, 7, 3);
        assert_eq!(message.recv::<u8>()?.buffer, [5; 3]);
        send.wait()?;
        Ok(())
    });
    cases.add("inter.persistent", 4, "persistent operations between the groups", |job| {
        let (_, both) = halves(job)?;
        let twin = both.rank();
        let (mut send, mut recv) = (both.send_init(vec![0u8], twin, 7)?, both.recv_init(vec![0u8], twin, 7)?);
        for round in 0..3 {
            send.buffer_mut()?[0] = round;
            recv.start()?;
            send.start()?;
            send.wait()?;
            expect(recv.wait()?, twin.0, 7, 1);
            assert_eq!(*recv.buffer()?, [round]);
        }
        Ok(())
    });
}

fn derived(cases: &mut Cases) {
    cases.section("7.4.2");
    cases.add("inter.dup", 5, "a duplicate has the same groups, and its messages are apart", |job| {
        let (_, both) = halves(job)?;
        let twin = both.dup()?;
        assert_eq!((twin.group(), twin.remote_group()), (both.group(), both.remote_group()));
        let to = Rank(both.rank().0 % both.remote_size().expect("it has two groups"));
        let sends = [both.isend(vec![1u8], to, 7)?, twin.isend(vec![2u8], to, 7)?];
        let remote = both.remote_size().expect("it has two groups");
        let from = (0..remote).filter(|from| from % both.size() == both.rank().0);
        for from in from {
            for (comm, value) in [(&twin, 2), (&both, 1)] {
                let mut byte = [0u8];
                expect(comm.recv(&mut byte, Rank(from), Tag::ANY)?, from, 7, 1);
                assert_eq!(byte, [value]);
            }
        }
        sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
    });
    cases.add("inter.dup.crossing", 4, "nonblocking duplicates and mergers cross", |job| {
        let (_, both) = halves(job)?;
        let creations = (both.idup()?, both.imerge(is_low(job))?, both.idup()?);
        let (third, second, first) = (creations.2.wait()?, creations.1.wait()?, creations.0.wait()?);
        ring(&third)?;
        barrier(&second)?;
        ring(&first)
    });
}

fn split(cases: &mut Cases) {
    cases.section("7.4.2");
    cases.add("inter.split", 5, "the ranks of a colour in both groups, each group ordered by key", |job| {
        let (mine, both) = halves(job)?;
        let colour = mine.rank().0 % 2;
        let part = both.split(Some(colour), -i64::from(mine.rank().0))?.expect("both groups have it");
        let groups = match colour {
            0 => [&[0][..], &[4, 2]],
            _ => [&[1][..], &[3]],
        };
        let [low, high] =
            groups.map(|ranks| Group::new(ranks.iter().copied().map(Rank)).expect("they differ"));
        let (own, remote) = if is_low(job) { (low, high) } else { (high, low) };
        assert_eq!((part.group(), part.remote_group()), (own, Some(remote)));
        ring(&part)?;
        ring(&both)
    });
    cases.add("inter.split.one-sided", 5, "a colour of one group alone gives no communicator", |job| {
        let (mine, both) = halves(job)?;
        let colour = if is_low(job) || mine.rank() == 1 { Some(0) } else { mine.rank().0.checked_sub(1) };
        let part = both.split(colour, 0)?;
        assert_eq!(part.is_some(), colour == Some(0));
        if let Some(part) = part {
            let sizes = if is_low(job) { (2, Some(1)) } else { (1, Some(2)) };
            assert_eq!((part.size(), part.remote_size()), sizes);
            ring(&part)?;
        }
        assert!(both.split(is_low(job).then_some(3), 0)?.is_none());
        ring(&both)
    });
    cases.add("inter.split.again", 4, "a part can be split, duplicated and merged", |job| {
        let (mine, both) = halves(job)?;
        let twins = both.isplit(Some(mine.rank().0), 0)?.wait()?.expect("both groups have it");
        ring(&twins.dup()?)?;
        let alone = twins.split(Some(7), 0)?.expect("both groups have it");
        assert_eq!((alone.size(), alone.remote_size()), (1, Some(1)));
        let merged = alone.merge(is_low(job))?;
        assert_eq!((merged.size(), merged.rank()), (2, Rank(u32::from(is_low(job)))));
        barrier(&merged)
    });
    cases.add("inter.create", 5, "the communicator of a group that all ranks of a group give", |job| {
        let (_, both) = halves(job)?;
        let chosen = if is_low(job) { &[1][..] } else { &[4, 2] };
        let chosen = Group::new(chosen.iter().copied().map(Rank)).expect("they differ");
        let place = chosen.index(job.comm.rank());
        let part = both.split(place.map(|_| 0), place.unwrap_or(0).into())?;
        assert_eq!(part.as_ref().map(Comm::group), place.map(|_| chosen));
        part.map_or(Ok(()), |part| {
            assert_eq!(Some(part.rank().0), place);
            ring(&part)
        })
    });
}

fn merge(cases: &mut Cases) {
    cases.section("7.6.2");
    for low_is_high in [false, true] {
        let rule = "the group that gives high comes behind the other one";
        let name = if low_is_high { "inter.merge.high" } else { "inter.merge.low" };
        cases.add(name, 5, rule, move |job| {
            let (mine, both) = halves(job)?;
            let merged = both.merge(is_low(job) == low_is_high)?;
            let before = match (is_low(job), low_is_high) {
                (true, true) => 3,
                (false, false) => 2,
                _ => 0,
            };
            assert_eq!((merged.size(), merged.rank()), (5, Rank(before + mine.rank().0)));
            assert_eq!(merged.remote_size(), None);
            barrier(&merged)
        });
    }
    cases.add(
        "inter.merge.equal",
        4,
        "groups that give the same value are in one order at all ranks",
        |job| {
            let (_, both) = halves(job)?;
            for high in [false, true] {
                let merged = both.merge(high)?;
                assert_eq!(merged.group(), job.comm.group());
                barrier(&merged)?;
            }
            Ok(())
        },
    );
    cases.add("inter.merge.apart", 4, "the merged communicator is apart from its parent", |job| {
        let (_, both) = halves(job)?;
        let merged = both.merge(!is_low(job))?;
        let twin = Rank((job.rank() + 2) % 4);
        let sends = [both.isend(vec![1u8], both.rank(), 7)?, merged.isend(vec![2u8], twin, 7)?];
        for (comm, from, value) in [(&merged, twin, 2), (&both, both.rank(), 1)] {
            let mut byte = [0u8];
            expect(comm.recv(&mut byte, Source::ANY, Tag::ANY)?, from.0, 7, 1);
            assert_eq!(byte, [value]);
        }
        sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
    });
    cases.add("inter.merge.split", 4, "the merged communicator can be split", |job| {
        let (_, both) = halves(job)?;
        let merged = both.merge(!is_low(job))?;
        drop(both);
        let parity = merged.split(Some(merged.rank().0 % 2), 0)?.expect("it has a colour");
        assert_eq!(parity.size(), 2);
        barrier(&parity)
    });
}

fn misuse(cases: &mut Cases) {
    cases.section("7.6.2");
    cases.add("inter.invalid-rank", 5, "there are no ranks behind the remote group", |job| {
        let (_, both) = halves(job)?;
        let size = both.remote_size().expect("it has two groups");
        let behind = |error: &Error| matches!(error, Error::InvalidRank { size: of, .. } if *of == size);
        let sent = both.send(&[0u8], Rank(size), 7).expect_err("there is no such rank");
        let received = both.recv(&mut [0u8], Rank(size), 7).expect_err("there is no such rank");
        assert!(behind(&sent) && behind(&received), "{sent}, {received}");
        Ok(())
    });
    cases.add("inter.one-group", 4, "calls for one group refuse an intercommunicator", |job| {
        let (_, both) = halves(job)?;
        expect_error!(both.split_by(Locality::Host, 0), Error::NeedsOneGroup);
        expect_error!(both.create_from_group(&both.group(), 0), Error::NeedsOneGroup);
        expect_error!(both.create_intercomm(Rank(0), &job.comm, Rank(0), 0), Error::NeedsOneGroup);
        expect_error!(job.comm.merge(false), Error::NeedsTwoGroups);
        ring(&both)
    });
    cases.add("inter.overlap", 3, "groups with a common rank get the same error", |job| {
        let members = |first| Group::range(Rank(first), 2);
        let mut creations = Vec::new();
        for (first, leader, other) in [(0, Rank(0), Rank(2)), (1, Rank(1), Rank(0))] {
            if members(first).contains(job.comm.rank()) {
                let mine = job.comm.create_from_group(&members(first), first)?;
                creations.push(mine.icreate_intercomm(leader, &job.comm, other, 3)?);
            }
        }
        for creation in creations {
            expect_error!(creation.wait(), Error::InBothGroups { world_rank: Rank(1) });
        }
        Ok(())
    });
    cases.add("inter.no-leader", 3, "a leader that names no leader fails, and so do the others", |job| {
        let mine = job.comm.dup()?;
        let created = mine.create_intercomm(Rank(1), &job.comm, Rank(3), 3);
        if job.rank() == 1 {
            expect_error!(created, Error::InvalidRank { rank: Rank(3), size: 3 });
        } else {
            expect_error!(created, Error::PeerFailed { rank: Rank(1), cause: Cause::LeftComm, .. });
        }
        expect_error!(mine.create_intercomm(Rank(3), &job.comm, Rank(0), 3), Error::InvalidRank { .. });
        barrier(&mine)
    });
    cases.add("inter.time-out", 3, "a group that waits in vain for the other one gives up", |job| {
        let is_first = job.rank() == 0;
        let mine = job.comm.split(Some(u32::from(is_first)), 0)?.expect("it has a colour");
        if !is_first {
            let bounded = mine.with_timeout(Duration::from_millis(20));
            let created = bounded.create_intercomm(Rank(0), &job.comm, Rank(0), 3);
            let error = created.expect_err("the other group does not create it");
            assert!(matches!(error, Error::TimedOut { .. } | Error::PeerFailed { .. }), "{error}");
        }
        job.barrier()
    });
    cases.add("inter.dropped", 4, "a creation that one rank drops fails at the others", |job| {
        let is_low = is_low(job);
        let mine = job.comm.split(Some(u32::from(is_low)), 0)?.expect("it has a colour");
        let other = if is_low { Rank(2) } else { Rank(0) };
        let creation = mine.icreate_intercomm(Rank(0), &job.comm, other, 3)?;
        if job.rank() == 3 {
            // This rank gives up the creation, and the first rank of its group waits for the creation.
            drop(creation);
        } else {
            let failed = creation.wait().and_then(|both| both.recv(&mut [0u8], Rank(1), 7));
            let error = failed.expect_err("one rank has given up");
            // The error may name any rank: a rank that gets the error leaves, and another rank may learn of that exit
            // first.
            assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
        }
        Ok(())
    });
}

/// Ends rank `dead` when all other ranks have made this call.
fn die_after_all(job: &Job, dead: u32) -> Result<(), Error> {
    if job.rank() != dead {
        return match job.comm.send(&[0u8; 0], Rank(dead), 99) {
            // The dead rank may have received the message and ended before it acknowledged the message.
            Ok(()) | Err(Error::PeerFailed { .. }) => Ok(()),
            Err(error) => Err(error),
        };
    }
    let others = (0..job.size()).filter(|rank| *rank != dead);
    others.map(|rank| job.comm.recv(&mut [0u8; 0], Rank(rank), 99)).collect::<Result<Vec<_>, _>>()?;
    job.die()
}

fn failures(cases: &mut Cases) {
    cases.section("7.6.2");
    for dead in [1, 2, 3, 4] {
        let rule = "a creation that a rank of either group does not survive fails at all others";
        cases.failure(format!("inter.failure.creation.{dead}"), 5, rule, move |job| {
            let is_low = is_low(job);
            let mine = job.comm.split(Some(u32::from(is_low)), 0)?.expect("it has a colour");
            die_after_all(job, dead)?;
            let created = mine.create_intercomm(Rank(0), &job.comm, Rank(if is_low { 2 } else { 0 }), 3);
            let error = created.expect_err("a rank has failed");
            // The error may name any rank: a rank that gets the error leaves, and another rank may learn of that exit
            // first.
            assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
            Ok(())
        });
    }
    cases.section("3.7.3");
    cases.failure("inter.failure.receive", 4, "operations with a remote rank that fails end", |job| {
        let (_, both) = halves(job)?;
        die_after_all(job, 3)?;
        if is_low(job) {
            let failed = both.recv(&mut [0u8], Rank(1), 7);
            expect_error!(failed, Error::PeerFailed { rank: Rank(1), world_rank: Rank(3), .. });
            expect_error!(both.recv(&mut [0u8], Source::ANY, 7), Error::FailurePending { rank: Rank(1), .. });
        }
        Ok(())
    });
    cases.failure(
        "inter.failure.own-group",
        4,
        "a receive from any source of the remote group does not report the own group's failures",
        |job| {
            let (_, both) = halves(job)?;
            die_after_all(job, 1)?;
            match job.rank() {
                0 => {
                    // The failure is known.
                    expect_error!(job.comm.recv(&mut [0u8], Rank(1), 7), Error::PeerFailed { .. });
                    both.send(&[0u8; 0], Rank(0), 1)?;
                    expect(both.recv(&mut [0u8], Source::ANY, Tag::ANY)?, 0, 7, 1);
                    Ok(())
                }
                2 => {
                    both.recv(&mut [0u8; 0], Rank(0), 1)?;
                    both.send(&[5u8], Rank(0), 7)
                }
                _ => Ok(()),
            }
        },
    );
    cases.failure(
        "inter.failure.deserted",
        3,
        "a receive from any source ends when no remote rank is left",
        |job| {
            let is_dead = job.rank() == 2;
            let mine = job.comm.split(Some(u32::from(is_dead)), 0)?.expect("it has a colour");
            let both = mine.create_intercomm(Rank(0), &job.comm, Rank(if is_dead { 0 } else { 2 }), 3)?;
            die_after_all(job, 2)?;
            expect_error!(both.recv(&mut [0u8], Source::ANY, 7), Error::FailurePending { rank: Rank(0), .. });
            expect_error!(both.recv(&mut [0u8], Source::ANY, 7), Error::Deserted);
            Ok(())
        },
    );
}
