//! Communicators: their creation and members, the messages that they keep apart, their attributes and names, and their
//! lifetimes.

use samite::{Attribute, Comparison, Error, Inherited, Mode, Rank, Source, Tag};

use crate::case::{Cases, SHORT, barrier, bytes, expect, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    dup(cases);
    split(cases);
    create(cases);
    nonblocking(cases);
    attributes(cases);
    lifetimes(cases);
}

fn nonblocking(cases: &mut Cases) {
    cases.section("7.4.2");
    cases.add("comm.idup.crossing", 3, "nonblocking duplicates may be waited for in any order", |job| {
        let creations = (0..4).map(|_| job.comm.idup()).collect::<Result<Vec<_>, _>>()?;
        // Each rank waits in another order.
        let mut created: Vec<_> = creations.into_iter().map(Some).collect();
        created.rotate_left(job.rank() as usize);
        let mut twins = created
            .iter_mut()
            .map(|creation| creation.take().expect("it is taken once").wait())
            .collect::<Result<Vec<_>, _>>()?;
        twins.rotate_right(job.rank() as usize);
        twins.iter().try_for_each(barrier)
    });
    cases.add("comm.isplit.crossing", 4, "nonblocking splits and duplicates cross", |job| {
        let half = job.comm.isplit(Some(job.rank() / 2), 0)?;
        let twin = job.comm.idup()?;
        let parity = job.comm.isplit((job.rank() != 3).then_some(job.rank() % 2), 0)?;
        let (parity, twin, half) = (parity.wait()?, twin.wait()?, half.wait()?);
        assert_eq!(half.expect("it has a colour").size(), 2);
        assert_eq!(
            parity.map(|parity| parity.size()),
            [Some(2), Some(1), Some(2), None][job.rank() as usize]
        );
        barrier(&twin)
    });
    cases.add(
        "comm.icreate.tags",
        2,
        "creations of one group at the same time differ by their tags",
        |job| {
            let group = job.comm.group();
            let tags = if job.rank() == 0 { [1, 2] } else { [2, 1] };
            let creations = tags.map(|tag| job.comm.icreate_from_group(&group, tag));
            let mut comms = Vec::new();
            for creation in creations {
                comms.push(creation?.wait()?);
            }
            if job.rank() == 1 {
                comms.reverse();
            }
            let sends = comms.iter().zip(1u8..).map(|(comm, value)| comm.isend(vec![value], job.other(), 7));
            let sends = sends.collect::<Result<Vec<_>, _>>()?;
            for (comm, value) in [(&comms[1], 2u8), (&comms[0], 1)] {
                let mut byte = [0];
                comm.recv(&mut byte, Source::ANY, Tag::ANY)?;
                assert_eq!(byte, [value]);
            }
            sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
        },
    );
    cases.add("comm.idup.test", 3, "a creation that is tested again and again ends", |job| {
        let mut creation = job.comm.idup()?;
        let twin = loop {
            if let Some(created) = creation.test() {
                break created?;
            }
        };
        expect_error!(creation.test().expect("it has ended"), Error::NoSuchRequest);
        barrier(&twin)
    });
    cases.add("comm.idup.traffic", 2, "messages pass while a communicator is created", |job| {
        let creation = job.comm.idup()?;
        let mut theirs = [9];
        job.comm.sendrecv(&[job.rank()], job.other(), 7, &mut theirs, job.other(), 7)?;
        assert_eq!(theirs, [job.other().0]);
        barrier(&creation.wait()?)
    });
}

/// An attribute that counts how often its communicator was duplicated on the way from the first communicator.
struct Copies(u32);

impl Attribute for Copies {
    fn duplicate(&self) -> Inherited<Self> {
        Inherited::Own(Self(self.0 + 1))
    }
}

/// An attribute that all duplicates share.
struct Common(u32);

impl Attribute for Common {
    fn duplicate(&self) -> Inherited<Self> {
        Inherited::Shared
    }
}

/// An attribute that duplicates do not get.
struct Private;

impl Attribute for Private {}

fn attributes(cases: &mut Cases) {
    cases.section("7.7.2");
    cases.add("comm.attribute.dup", 2, "the attribute decides what a duplicate gets", |job| {
        job.comm.set_attribute(Copies(0));
        job.comm.set_attribute(Common(5));
        job.comm.set_attribute(Private);
        let twin = job.comm.dup()?.dup()?;
        assert_eq!(twin.attribute::<Copies>().map(|copies| copies.0), Some(2));
        assert_eq!(twin.attribute::<Common>().map(|common| common.0), Some(5));
        assert!(twin.attribute::<Private>().is_none() && job.comm.attribute::<Private>().is_some());
        assert_eq!(job.comm.attribute::<Copies>().map(|copies| copies.0), Some(0));
        job.comm.remove_attribute::<Copies>();
        job.comm.remove_attribute::<Common>();
        job.comm.remove_attribute::<Private>();
        Ok(())
    });
    cases.add("comm.attribute.split", 2, "communicators other than duplicates get no attribute", |job| {
        let twin = job.comm.dup()?;
        twin.set_attribute(Common(5));
        let split = twin.split(Some(0), 0)?.expect("it has a colour");
        let created = twin.create_from_group(&twin.group(), 0)?;
        assert!(split.attribute::<Common>().is_none() && created.attribute::<Common>().is_none());
        Ok(())
    });
    cases.add("comm.attribute.replace", 1, "a communicator has one attribute of each type", |job| {
        let twin = job.comm.dup()?;
        twin.set_attribute(Common(5));
        twin.set_attribute(Common(6));
        assert_eq!(twin.attribute::<Common>().map(|common| common.0), Some(6));
        assert_eq!(twin.remove_attribute::<Common>().map(|common| common.0), Some(6));
        assert!(twin.attribute::<Common>().is_none());
        Ok(())
    });
    cases.section("7.8");
    cases.add("comm.name", 1, "a name is that of all handles, and not of a duplicate", |job| {
        let twin = job.comm.dup()?;
        assert_eq!(twin.name(), None);
        twin.clone().set_name("rows");
        assert_eq!(twin.name().as_deref(), Some("rows"));
        assert_eq!(twin.dup()?.name(), None);
        Ok(())
    });
}

fn dup(cases: &mut Cases) {
    cases.section("7.4.2");
    cases.add("comm.dup.members", 3, "a duplicate has the same ranks in the same order", |job| {
        let twin = job.comm.dup()?;
        assert_eq!((twin.rank(), twin.size()), (job.comm.rank(), job.comm.size()));
        assert_eq!(twin.group().compare(&job.comm.group()), Comparison::Identical);
        barrier(&twin)
    });
    let rule = "a message in one communicator is received in no other one";
    for twin_first in [false, true] {
        cases.add(
            format!("comm.dup.apart.{}", if twin_first { "twin" } else { "parent" }),
            2,
            rule,
            move |job| {
                let twin = job.comm.dup()?;
                if job.rank() == 0 {
                    let one = job.comm.isend(vec![1u8], Rank(1), 7)?;
                    let two = twin.isend(vec![2u8], Rank(1), 7)?;
                    one.wait()?;
                    two.wait()?;
                    return Ok(());
                }
                let order =
                    if twin_first { [(&twin, 2), (&job.comm, 1)] } else { [(&job.comm, 1), (&twin, 2)] };
                for (comm, value) in order {
                    let mut byte = [0u8];
                    expect(comm.recv(&mut byte, Source::ANY, Tag::ANY)?, 0, 7, 1);
                    assert_eq!(byte, [value]);
                }
                Ok(())
            },
        );
    }
    cases.add("comm.dup.probe", 2, "a probe finds only messages of its communicator", |job| {
        let twin = job.comm.dup()?;
        if job.rank() == 0 {
            job.comm.send(&[1u8], Rank(1), 7)?;
            twin.recv(&mut [0u8; 0], Rank(1), 1)?;
            return Ok(());
        }
        expect(job.comm.probe(Source::ANY, Tag::ANY)?, 0, 7, 1);
        assert_eq!(twin.try_probe(Source::ANY, Tag::ANY)?, None);
        assert!(twin.try_claim(Source::ANY, Tag::ANY)?.is_none());
        job.comm.recv(&mut [0u8], Rank(0), 7)?;
        twin.send(&[0u8; 0], Rank(0), 1)
    });
    cases.add("comm.dup.posted", 2, "a posted receive takes only messages of its communicator", |job| {
        let twin = job.comm.dup()?;
        if job.rank() == 0 {
            job.comm.recv(&mut [0u8; 0], Rank(1), 1)?;
            let other = job.comm.isend(vec![1u8], Rank(1), 7)?;
            twin.send(&[2u8], Rank(1), 7)?;
            other.wait()?;
            return Ok(());
        }
        let posted = twin.irecv(vec![0u8], Source::ANY, Tag::ANY)?;
        job.comm.send(&[0u8; 0], Rank(0), 1)?;
        assert_eq!(posted.wait()?.buffer, [2]);
        let mut byte = [0u8];
        job.comm.recv(&mut byte, Rank(0), 7)?;
        assert_eq!(byte, [1]);
        Ok(())
    });
    cases.add("comm.dup.nested", 3, "a duplicate of a duplicate is apart from both", |job| {
        let first = job.comm.dup()?;
        let second = first.dup()?;
        let (next, previous) = job.ring();
        let sends = [&job.comm, &first, &second]
            .into_iter()
            .zip(0u8..)
            .map(|(comm, number)| comm.isend(vec![number], next, 7));
        let sends = sends.collect::<Result<Vec<_>, _>>()?;
        for (comm, number) in [(&second, 2), (&job.comm, 0), (&first, 1)] {
            let mut byte = [9u8];
            comm.recv(&mut byte, previous, 7)?;
            assert_eq!(byte, [number]);
        }
        for send in sends {
            send.wait()?;
        }
        Ok(())
    });
    cases.add(
        "comm.dup.pending",
        2,
        "a communicator is created while messages of the parent are under way",
        |job| {
            let receive = job.comm.irecv(vec![0u8; job.long], job.other(), 7)?;
            let send = job.comm.isend(bytes(u64::from(job.rank()), job.long), job.other(), 7)?;
            let twin = job.comm.dup()?;
            barrier(&twin)?;
            assert_eq!(receive.wait()?.buffer, bytes(u64::from(job.other().0), job.long));
            send.wait()?;
            Ok(())
        },
    );
}

fn split(cases: &mut Cases) {
    cases.section("7.4.2");
    cases.add("comm.split.colours", 4, "ranks with the same colour are together, in their order", |job| {
        let half = job.comm.split(Some(job.rank() % 2), 0)?.expect("it has a colour");
        assert_eq!((half.rank().0, half.size()), (job.rank() / 2, 2));
        let mut theirs = [0u32];
        let other = Rank(1 - half.rank().0);
        expect(half.sendrecv(&[job.rank()], other, 7, &mut theirs, other, 7)?, other.0, 7, 4);
        assert_eq!(theirs, [job.rank() ^ 2]);
        Ok(())
    });
    cases.add("comm.split.no-colour", 4, "a rank without a colour gets no communicator", |job| {
        let part = job.comm.split((job.rank() != 2).then_some(5), 0)?;
        match part {
            None => assert_eq!(job.rank(), 2),
            Some(part) => {
                assert_eq!(part.group().iter().map(|rank| rank.0).collect::<Vec<_>>().len(), 3);
                assert_eq!(part.rank().0, [0, 1, 9, 2][job.rank() as usize]);
                barrier(&part)?;
            }
        }
        Ok(())
    });
    cases.add("comm.split.keys", 4, "the key orders the ranks, negative ones first", |job| {
        let keys = [3, -1, 7, 0];
        let whole = job.comm.split(Some(0), keys[job.rank() as usize])?.expect("it has a colour");
        assert_eq!(whole.rank().0, [2, 0, 3, 1][job.rank() as usize]);
        let (next, previous) = (Rank((whole.rank().0 + 1) % 4), Rank((whole.rank().0 + 3) % 4));
        let mut from = [9u32];
        expect(whole.sendrecv(&[job.rank()], next, 7, &mut from, previous, 7)?, previous.0, 7, 4);
        assert_eq!(from, [[1, 3, 0, 2][previous.index()]]);
        Ok(())
    });
    cases.add(
        "comm.split.extreme-keys",
        3,
        "keys are compared as numbers, the least and the greatest too",
        |job| {
            let keys = [i64::MAX, i64::MIN, 0];
            let whole = job.comm.split(Some(u32::MAX), keys[job.rank() as usize])?.expect("it has a colour");
            assert_eq!(whole.rank().0, [2, 0, 1][job.rank() as usize]);
            barrier(&whole)
        },
    );
    cases.add("comm.split.equal-keys", 4, "ranks with the same key keep the order of the parent", |job| {
        let reversed = job.comm.split(Some(0), -i64::from(job.rank()))?.expect("it has a colour");
        let again = reversed.split(Some(0), 0)?.expect("it has a colour");
        assert_eq!(again.rank(), reversed.rank());
        assert_eq!(again.rank().0, 3 - job.rank());
        barrier(&again)
    });
    cases.add("comm.split.alone", 3, "a rank with a colour of its own is alone", |job| {
        let own = job.comm.split(Some(job.rank()), 0)?.expect("it has a colour");
        assert_eq!((own.rank().0, own.size()), (0, 1));
        let mut byte = [0u8];
        expect(own.sendrecv(&[9u8], Rank(0), 7, &mut byte, Source::ANY, 7)?, 0, 7, 1);
        expect_error!(own.send(&[1u8], Rank(1), 7), Error::InvalidRank { rank: Rank(1), size: 1 });
        Ok(())
    });
    cases.add("comm.split.status", 4, "status and errors name ranks of the communicator", |job| {
        let upper = job.comm.split(Some(job.rank() / 2), -i64::from(job.rank()))?.expect("it has a colour");
        let other = Rank(1 - upper.rank().0);
        let send = upper.isend(vec![1u8], other, 7)?;
        expect(upper.probe(Source::ANY, 7)?, other.0, 7, 1);
        expect(upper.recv(&mut [0u8], Source::ANY, 7)?, other.0, 7, 1);
        send.wait()?;
        expect_error!(upper.recv(&mut [0u8], Rank(2), 7), Error::InvalidRank { rank: Rank(2), size: 2 });
        match upper.with_timeout(SHORT).recv(&mut [0u8], other, 9) {
            Err(Error::TimedOut { report, .. }) => {
                assert_eq!(report.peer, Some(other));
                assert_eq!(report.world_peer.map(|rank| rank.0 % 2), Some(1 - job.rank() % 2));
            }
            end => panic!("expected TimedOut, got {end:?}"),
        }
        barrier(&upper)
    });
    cases.add("comm.split.any-source", 4, "any source is any rank of the communicator", |job| {
        let pair = job.comm.split(Some(job.rank() / 2), 0)?.expect("it has a colour");
        if pair.rank() == 1 {
            return pair.send(&[job.rank()], Rank(0), 7);
        }
        let mut from = [0u32];
        expect(pair.recv(&mut from, Source::ANY, Tag::ANY)?, 1, 7, 4);
        assert_eq!(from, [job.rank() + 1]);
        Ok(())
    });
    cases.add(
        "comm.split.rows-and-columns",
        4,
        "two communicators that cross keep their messages apart",
        |job| {
            let (row, column) = (job.rank() / 2, job.rank() % 2);
            let rows = job.comm.split(Some(row), 0)?.expect("it has a colour");
            let columns = job.comm.split(Some(column), 0)?.expect("it has a colour");
            let mut got = [[9u32]; 2];
            let others = [Rank(1 - rows.rank().0), Rank(1 - columns.rank().0)];
            let sends =
                [rows.isend(vec![job.rank()], others[0], 7)?, columns.isend(vec![job.rank()], others[1], 7)?];
            columns.recv(&mut got[1], Source::ANY, 7)?;
            rows.recv(&mut got[0], Source::ANY, 7)?;
            assert_eq!(got, [[job.rank() ^ 1], [job.rank() ^ 2]]);
            sends.into_iter().try_for_each(|send| send.wait().map(|_| ()).map_err(Error::from))
        },
    );
}

fn create(cases: &mut Cases) {
    cases.section("7.4.2");
    cases.add("comm.create.members-only", 4, "only the members of the group take part", |job| {
        let outer = job.comm.group().include([3, 0]).expect("below its length");
        if outer.contains(job.comm.rank()) {
            let pair = job.comm.create_from_group(&outer, 0)?;
            assert_eq!((pair.rank().0, pair.size()), (u32::from(job.rank() == 0), 2));
            let mut theirs = [9u32];
            let other = Rank(1 - pair.rank().0);
            pair.sendrecv(&[job.rank()], other, 7, &mut theirs, other, 7)?;
            assert_eq!(theirs, [3 - job.rank()]);
        }
        Ok(())
    });
    cases.add("comm.create.disjoint", 4, "disjoint groups create their communicators independently", |job| {
        let mine = job.comm.group().filter(|rank| rank.0 % 2 == job.rank() % 2);
        let half = job.comm.create_from_group(&mine, 0)?;
        assert_eq!((half.rank().0, half.size()), (job.rank() / 2, 2));
        barrier(&half)
    });
    cases.add("comm.create.overlapping", 3, "groups that overlap are created one after the other", |job| {
        for (tag, members) in [(0, [0, 1]), (1, [1, 2]), (2, [0, 2])] {
            let group = job.comm.group().include(members).expect("below its length");
            if group.contains(job.comm.rank()) {
                let pair = job.comm.create_from_group(&group, tag)?;
                let (me, other) = (pair.rank().0, Rank(1 - pair.rank().0));
                assert_eq!(members[me as usize], job.rank());
                let mut theirs = [9u32];
                pair.sendrecv(&[job.rank()], other, 7, &mut theirs, other, 7)?;
                assert_eq!(theirs, [members[other.index()]]);
            }
        }
        Ok(())
    });
    cases.add(
        "comm.create.not-a-member",
        3,
        "a rank outside of the group, or a stranger in it, is an error",
        |job| {
            let group = job.comm.group().include([0, 1]).expect("below its length");
            if job.rank() == 2 {
                expect_error!(job.comm.create_from_group(&group, 0), Error::NotAMember { .. });
            } else {
                let pair = job.comm.create_from_group(&group, 0)?;
                let all = job.comm.group();
                expect_error!(pair.create_from_group(&all, 1), Error::NotAMember { .. });
            }
            Ok(())
        },
    );
    cases.add("comm.create.alone", 2, "a group of one needs no other rank", |job| {
        let me = job.comm.group().filter(|rank| rank == job.comm.rank());
        let own = job.comm.create_from_group(&me, 0)?;
        assert_eq!((own.rank().0, own.size()), (0, 1));
        expect(own.sendrecv(&[1u8], Rank(0), 7, &mut [0u8], Rank(0), 7)?, 0, 7, 1);
        Ok(())
    });
    cases.add("comm.create.subset-of-split", 4, "a group of a derived communicator", |job| {
        let reversed = job.comm.split(Some(0), -i64::from(job.rank()))?.expect("it has a colour");
        // The group has the last three ranks in the reversed order: ranks 2, 1 and 0 of the job.
        let group = reversed.group().exclude([0]);
        if job.rank() < 3 {
            let three = reversed.create_from_group(&group, 4)?;
            assert_eq!(three.rank().0, 2 - job.rank());
            barrier(&three)?;
        }
        Ok(())
    });
}

fn lifetimes(cases: &mut Cases) {
    cases.section("7.4.3");
    cases.add("comm.free.again", 3, "communicators are created and dropped again and again", |job| {
        for round in 0..10u32 {
            let twin = job.comm.dup()?;
            let (next, previous) = job.ring();
            let mut theirs = [0u32];
            twin.sendrecv(&[round * 10 + job.rank()], next, 7, &mut theirs, previous, Tag::ANY)?;
            assert_eq!(theirs, [round * 10 + previous.0]);
        }
        Ok(())
    });
    let rule = "a message that was not received in a dropped communicator reaches no later one";
    cases.add("comm.free.unreceived", 2, rule, |job| {
        for round in 0..4u8 {
            let twin = job.comm.dup()?;
            if job.rank() == 0 {
                twin.send(&[100 + round], Rank(1), 7).or_else(gone)?;
            }
            drop(twin);
            let next = job.comm.dup()?;
            if job.rank() == 0 {
                next.send(&[round], Rank(1), 7)?;
            } else {
                let mut byte = [0u8];
                next.recv(&mut byte, Source::ANY, Tag::ANY)?;
                assert_eq!(byte, [round]);
            }
        }
        Ok(())
    });
    let rule = "a synchronous send whose message is dropped with its communicator does not succeed";
    cases.add("comm.free.synchronous", 2, rule, |job| {
        for len in [1, job.long] {
            let twin = job.comm.dup()?;
            if job.rank() == 0 {
                let sent = twin.with_mode(Mode::Synchronous).send(&bytes(1, len), Rank(1), 7);
                assert!(matches!(sent, Err(Error::Abandoned { .. })), "{sent:?}");
                job.comm.send(&[1u8], Rank(1), 8)?;
            } else {
                drop(twin);
                job.comm.recv(&mut [0u8], Rank(0), 8)?;
            }
        }
        Ok(())
    });
    cases.add("comm.free.request", 2, "a request outlives the handle of its communicator", |job| {
        let twin = job.comm.dup()?;
        let receive = twin.irecv(vec![0u8; job.long], job.other(), 7)?;
        let send = twin.isend(bytes(u64::from(job.rank()), job.long), job.other(), 7)?;
        drop(twin);
        assert_eq!(receive.wait()?.buffer, bytes(u64::from(job.other().0), job.long));
        send.wait()?;
        Ok(())
    });
    cases.add("comm.free.claimed", 2, "a claimed message outlives the handle of its communicator", |job| {
        let twin = job.comm.dup()?;
        if job.rank() == 0 {
            twin.send(&bytes(1, 3_000), Rank(1), 7)?;
            return job.wait_for_release_from(1);
        }
        let message = twin.claim(Rank(0), 7)?;
        drop(twin);
        assert_eq!(message.recv::<u8>()?.buffer, bytes(1, 3_000));
        job.wait_for_release_from(1)
    });
    cases.add("comm.clone", 2, "a clone is the same communicator", |job| {
        let clone = job.comm.clone();
        let send = clone.isend(vec![3u8], job.other(), 7)?;
        let mut byte = [0u8];
        job.comm.recv(&mut byte, job.other(), 7)?;
        assert_eq!(byte, [3]);
        send.wait()?;
        Ok(())
    });
    cases.add("comm.many", 2, "many communicators exist at the same time", |job| {
        let all = (0..12).map(|_| job.comm.dup()).collect::<Result<Vec<_>, _>>()?;
        let sends = all.iter().zip(0u8..).map(|(comm, number)| comm.isend(vec![number], job.other(), 7));
        let sends = sends.collect::<Result<Vec<_>, _>>()?;
        for (comm, number) in all.iter().zip(0..12u8).rev() {
            let mut byte = [99u8];
            comm.recv(&mut byte, Source::ANY, Tag::ANY)?;
            assert_eq!(byte, [number]);
        }
        sends.into_iter().try_for_each(|send| send.wait().map(|_| ()).map_err(Error::from))
    });
    cases.section("7.4.1");
    cases.add("comm.group", 4, "the group of a communicator holds its ranks in its order", |job| {
        let reversed = job.comm.split(Some(0), -i64::from(job.rank()))?.expect("it has a colour");
        let (world, group) = (job.comm.group(), reversed.group());
        assert_eq!(world.compare(&group), Comparison::Similar);
        assert_eq!(
            (0..4).map(|rank| group.translate(rank, &world)).collect::<Vec<_>>(),
            [3, 2, 1, 0].map(Some)
        );
        barrier(&reversed)
    });
}

/// Accepts the two possible results of a send in a communicator that the receiver has dropped: the message counts as
/// received, or the receiver has left.
fn gone(error: Error) -> Result<(), Error> {
    match error {
        Error::PeerFailed { .. } | Error::Abandoned { .. } => Ok(()),
        error => Err(error),
    }
}
