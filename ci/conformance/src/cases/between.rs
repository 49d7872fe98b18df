//! Collective operations on intercommunicators.

use samite::reduction::{Max, Sum, in_rank_order};
use samite::{Comm, Error, InPlace, Layout, Neighbourhood, Rank, Root, consecutive};

use crate::case::{Cases, Job, SHORT, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    for [low, high] in [[1, 1], [1, 2], [2, 1], [3, 2], [2, 4]] {
        rooted(cases, low, high);
        between_all(cases, low, high);
    }
    nonblocking(cases);
    misuse(cases);
    ends(cases);
}

/// Two groups, and this rank's place in them.
struct Groups {
    comm: Comm,
    /// True in the group of the job's first ranks.
    is_low: bool,
    /// The ranks of the job in the other group.
    remote: Vec<u32>,
    /// This rank of the job.
    me: u32,
}

/// Creates an intercommunicator between the first `low` ranks and the others.
fn groups(job: &Job, low: u32) -> Result<Groups, Error> {
    let is_low = job.rank() < low;
    let mine = job.comm.split(Some(u32::from(is_low)), 0)?.expect("it has a colour");
    let (remote, leader) = if is_low { (low..job.size(), low) } else { (0..low, 0) };
    let comm = mine.create_intercomm(Rank(0), &job.comm, Rank(leader), 3)?;
    Ok(Groups { comm, is_low, remote: remote.collect(), me: job.rank() })
}

/// Calls `check` for each rank of the job as the root, with the value that this rank passes as the root. Its last
/// argument is the root's rank in the job.
fn each_root(
    job: &Job,
    low: u32,
    check: impl Fn(&Groups, Root, u32) -> Result<(), Error>,
) -> Result<(), Error> {
    let groups = groups(job, low)?;
    for root in 0..job.size() {
        let number = if root < low { root } else { root - low };
        let value = match (root == groups.me, (root < low) == groups.is_low) {
            (true, _) => Root::This,
            (false, true) => Root::Beside,
            (false, false) => Root::Rank(Rank(number)),
        };
        check(&groups, value, root)?;
    }
    Ok(())
}

fn rooted(cases: &mut Cases, low: u32, high: u32) {
    let n = low + high;
    cases.section("6.4");
    cases.add(
        format!("inter.bcast.{low}.{high}"),
        n,
        "the root's data gets to the other group alone",
        move |job| {
            for len in [0, 3, 5000] {
                each_root(job, low, |groups, value, root| {
                    let mut data = vec![if value == Root::This { root } else { 99 }; len];
                    groups.comm.bcast(&mut data, value)?;
                    assert_eq!(data, vec![if value == Root::Beside { 99 } else { root }; len]);
                    Ok(())
                })?;
            }
            Ok(())
        },
    );
    cases.section("6.5");
    cases.add(
        format!("inter.gather.{low}.{high}"),
        n,
        "the root gets the blocks of the other group",
        move |job| {
            each_root(job, low, |groups, value, _| {
                let mut all = vec![99; if value == Root::This { 2 * groups.remote.len() } else { 0 }];
                groups.comm.gather(&[groups.me, 7], &mut all, value)?;
                let expected: Vec<_> = groups.remote.iter().flat_map(|&rank| [rank, 7]).collect();
                assert!(value != Root::This || all == expected, "{all:?}");
                // The blocks of a gatherv have different lengths, and lie in reverse order.
                let lens = groups.remote.iter().map(|&rank| rank as usize);
                let mut blocks = consecutive(lens.rev());
                blocks.reverse();
                let mut all = vec![99; blocks[0].end];
                groups.comm.gatherv(&vec![groups.me; groups.me as usize], &mut all, &blocks, value)?;
                if value == Root::This {
                    for (&rank, block) in groups.remote.iter().zip(blocks) {
                        assert!(all[block].iter().all(|element| *element == rank));
                    }
                }
                Ok(())
            })
        },
    );
    cases.section("6.6");
    cases.add(
        format!("inter.scatter.{low}.{high}"),
        n,
        "each rank of the other group gets its block",
        move |job| {
            each_root(job, low, |groups, value, root| {
                let all: Vec<u32> = groups.remote.iter().flat_map(|&rank| [10 * root + rank; 2]).collect();
                let mut mine = [99; 2];
                groups.comm.scatter(&all, &mut mine, value)?;
                let is_given = matches!(value, Root::Rank(_));
                assert_eq!(mine, [if is_given { 10 * root + groups.me } else { 99 }; 2]);
                let lens = groups.remote.iter().map(|&rank| rank as usize);
                let blocks = consecutive(lens);
                let all: Vec<u32> =
                    groups.remote.iter().flat_map(|&rank| vec![rank + root; rank as usize]).collect();
                let mut mine = vec![99; groups.me as usize];
                groups.comm.scatterv(&all, &blocks, &mut mine, value)?;
                assert_eq!(mine, vec![if is_given { groups.me + root } else { 99 }; groups.me as usize]);
                Ok(())
            })
        },
    );
    cases.section("6.9.1");
    cases.add(
        format!("inter.reduce.{low}.{high}"),
        n,
        "the root gets the reduction of the other group",
        move |job| {
            each_root(job, low, |groups, value, _| {
                let mut sum = vec![99; if value == Root::This { 2 } else { 0 }];
                groups.comm.reduce(&[groups.me, 1], &mut sum, Sum, value)?;
                let expected = [groups.remote.iter().sum(), groups.remote.len() as u32];
                assert!(value != Root::This || sum == expected, "{sum:?}");
                Ok(())
            })
        },
    );
}

/// The list of the numbers of the ranks that were reduced, in their order, as decimal digits.
fn digits(groups: &Groups) -> u64 {
    groups.remote.iter().fold(0, |digits, &rank| 10 * digits + u64::from(rank) + 1)
}

/// Appends the digits of the right operand, which has `[number, power of 10]`.
fn append() -> impl samite::reduction::ReduceOp<[u64; 2]> {
    in_rank_order(|from: &[[u64; 2]], into: &mut [[u64; 2]]| {
        for (left, right) in from.iter().zip(into) {
            *right = [left[0] * right[1] + right[0], left[1] * right[1]];
        }
    })
}

fn between_all(cases: &mut Cases, low: u32, high: u32) {
    let n = low + high;
    cases.section("6.3");
    cases.add(
        format!("inter.barrier.{low}.{high}"),
        n,
        "no rank leaves before the other group has entered",
        move |job| {
            let groups = groups(job, low)?;
            for round in 0..5_u64 {
                let last = (job.size() - 1 - (round as u32 % 2) * (job.size() - 1)) % job.size();
                if job.rank() == last {
                    let comm = job.comm.with_mode(samite::Mode::Synchronous);
                    groups.remote.iter().try_for_each(|&rank| comm.send(&[round], Rank(rank), 1))?;
                    groups.comm.barrier()?;
                } else if groups.remote.contains(&last) {
                    let receive = job.comm.irecv(vec![99_u64], Rank(last), 1)?;
                    groups.comm.barrier()?;
                    receive.cancel();
                    assert_eq!(receive.wait()?.buffer, [round]);
                } else {
                    groups.comm.barrier()?;
                }
            }
            Ok(())
        },
    );
    cases.section("6.7");
    cases.add(
        format!("inter.allgather.{low}.{high}"),
        n,
        "each rank gets the blocks of the other group",
        move |job| {
            let groups = groups(job, low)?;
            // The blocks of the two groups have different lengths.
            let len = |is_low| if is_low { 3 } else { 1 };
            let mut all = vec![99; groups.remote.len() * len(!groups.is_low)];
            groups.comm.allgather(&vec![groups.me; len(groups.is_low)], &mut all)?;
            let expected: Vec<u32> =
                groups.remote.iter().flat_map(|&rank| vec![rank; len(!groups.is_low)]).collect();
            assert_eq!(all, expected);
            let blocks = consecutive(groups.remote.iter().map(|&rank| rank as usize));
            let mut all = vec![99; groups.remote.iter().sum::<u32>() as usize];
            groups.comm.allgatherv(&vec![groups.me; groups.me as usize], &mut all, &blocks)?;
            let expected: Vec<u32> =
                groups.remote.iter().flat_map(|&rank| vec![rank; rank as usize]).collect();
            assert_eq!(all, expected);
            Ok(())
        },
    );
    cases.section("6.8");
    cases.add(
        format!("inter.alltoall.{low}.{high}"),
        n,
        "each rank exchanges blocks with the other group",
        move |job| {
            let groups = groups(job, low)?;
            let to: Vec<u32> = groups.remote.iter().flat_map(|&rank| [10 * groups.me + rank; 2]).collect();
            let from: Vec<u32> = groups.remote.iter().flat_map(|&rank| [10 * rank + groups.me; 2]).collect();
            let mut received = vec![99; to.len()];
            groups.comm.alltoall(&to, &mut received)?;
            assert_eq!(received, from);
            let blocks = consecutive(vec![2; groups.remote.len()]);
            received.fill(99);
            groups.comm.alltoallv(&to, &blocks, &mut received, &blocks)?;
            assert_eq!(received, from);
            received.fill(99);
            let layouts: Result<Vec<_>, _> =
                blocks.iter().map(|block| Layout::indexed([(block.start as isize, 2)])).collect();
            let layouts = layouts?;
            groups.comm.alltoallw(&to, &layouts, &mut received, &layouts)?;
            assert_eq!(received, from);
            Ok(())
        },
    );
    cases.section("6.9.6");
    cases.add(
        format!("inter.allreduce.{low}.{high}"),
        n,
        "each rank gets the reduction of the other group",
        move |job| {
            let groups = groups(job, low)?;
            let mut sum = [99; 2];
            groups.comm.allreduce(&[groups.me, 1], &mut sum, Sum)?;
            assert_eq!(sum, [groups.remote.iter().sum(), groups.remote.len() as u32]);
            let mut order = [[0; 2]];
            groups.comm.allreduce(&[[u64::from(groups.me) + 1, 10]], &mut order, append())?;
            assert_eq!(order[0][0], digits(&groups), "the operands are in the order of ranks");
            Ok(())
        },
    );
    cases.section("6.10");
    cases.add(
        format!("inter.reduce_scatter.{low}.{high}"),
        n,
        "the reduction is scattered over the other group",
        move |job| {
            let groups = groups(job, low)?;
            let (own, remote) = (groups.comm.size() as usize, groups.remote.len());
            // Both groups pass the same number of elements.
            let all: Vec<u32> = (0..own * remote).map(|index| groups.me + 100 * index as u32).collect();
            let mut block = vec![0; remote];
            groups.comm.reduce_scatter(&all, &mut block, Sum)?;
            let first = groups.comm.rank().0 as usize * remote;
            let sum = |index: usize| groups.remote.iter().sum::<u32>() + 100 * (index * remote) as u32;
            let expected: Vec<u32> = (first..first + remote).map(sum).collect();
            assert_eq!(block, expected);
            // The last rank of a group gets all elements behind the first ones.
            let mut lens = vec![1; own];
            lens[own - 1] = own * remote - (own - 1);
            let block_of = consecutive(lens.iter().copied())[groups.comm.rank().0 as usize].clone();
            let mut block = vec![0; block_of.len()];
            groups.comm.reduce_scatterv(&all, &mut block, &lens, Sum)?;
            let expected: Vec<u32> = block_of.map(sum).collect();
            assert_eq!(block, expected);
            Ok(())
        },
    );
}

fn nonblocking(cases: &mut Cases) {
    cases.section("6.12");
    cases.add("inter.icoll", 5, "nonblocking operations between groups are under way together", |job| {
        each_root(job, 2, |groups, value, root| {
            let comm = &groups.comm;
            let mine = vec![groups.me; 2];
            let room = |len: usize| vec![99; len];
            let remote = groups.remote.len();
            let (sum, all) = (groups.remote.iter().sum::<u32>(), groups.remote.clone());
            let barrier = comm.ibarrier()?;
            let bcast = comm.ibcast(vec![if value == Root::This { root } else { 99 }], value)?;
            let gather = comm.igather(vec![groups.me], room(remote), value)?;
            let scatter = comm.iscatter(all.clone(), room(1), value)?;
            let reduce = comm.ireduce(mine.clone(), room(2), Sum, value)?;
            let gatherv =
                comm.igatherv(vec![groups.me], room(remote), &consecutive(vec![1; remote]), value)?;
            let scatterv = comm.iscatterv(all.clone(), &consecutive(vec![1; remote]), room(1), value)?;
            let allgather = comm.iallgather(vec![groups.me], room(remote))?;
            let alltoall = comm.ialltoall(all.clone(), room(remote))?;
            let allreduce = comm.iallreduce(mine, room(2), Max)?;
            let largest = groups.remote.iter().copied().max().expect("a group has a rank");
            assert_eq!(allreduce.wait()?.buffer.1, [largest; 2]);
            assert_eq!(alltoall.wait()?.buffer.1, vec![groups.me; remote]);
            assert_eq!(allgather.wait()?.buffer.1, all);
            let is_root = value == Root::This;
            let given = if matches!(value, Root::Rank(_)) { groups.me } else { 99 };
            assert_eq!(scatterv.wait()?.buffer.1, [given]);
            let gathered = if is_root { all } else { room(remote) };
            assert_eq!(gatherv.wait()?.buffer.1, gathered);
            assert_eq!(reduce.wait()?.buffer.1, [if is_root { sum } else { 99 }; 2]);
            assert_eq!(scatter.wait()?.buffer.1, [given]);
            assert_eq!(gather.wait()?.buffer.1, gathered);
            assert_eq!(bcast.wait()?.buffer, [if value == Root::Beside { 99 } else { root }]);
            barrier.wait()?;
            Ok(())
        })
    });
    cases.section("6.13");
    cases.add("inter.coll_init", 4, "persistent operations between groups are started many times", |job| {
        let groups = groups(job, 1)?;
        let mut sum = groups.comm.allreduce_init(vec![0_u32], vec![0], Sum)?;
        let root = match (job.rank(), groups.is_low) {
            (2, _) => Root::This,
            (_, true) => Root::Rank(Rank(1)),
            _ => Root::Beside,
        };
        let mut bcast = groups.comm.bcast_init(vec![0_u32], root)?;
        for round in 0..10 {
            sum.input_mut()?[0] = round;
            bcast.output_mut()?[0] = if root == Root::This { round } else { 99 };
            samite::start_all(&mut [&mut sum, &mut bcast])?;
            bcast.wait()?;
            sum.wait()?;
            assert_eq!(*sum.output()?, [round * groups.remote.len() as u32]);
            assert_eq!(*bcast.output()?, [if root == Root::Beside { 99 } else { round }]);
        }
        Ok(())
    });
}

fn misuse(cases: &mut Cases) {
    cases.section("6.2.3");
    cases.add("inter.coll.misuse", 3, "calls in place and scans need one group, and roots exist", |job| {
        let groups = groups(job, 1)?;
        let comm = &groups.comm;
        let remote = groups.remote.len() as u32;
        expect_error!(comm.allreduce_in_place(&mut [1], Sum), Error::NeedsOneGroup);
        expect_error!(comm.allgather_in_place(&mut [1]), Error::NeedsOneGroup);
        expect_error!(comm.alltoall_in_place(&mut [1]), Error::NeedsOneGroup);
        expect_error!(comm.scan(&[1], &mut [1], Sum), Error::NeedsOneGroup);
        expect_error!(comm.exscan_in_place(&mut [1], Sum), Error::NeedsOneGroup);
        let none = Neighbourhood::default();
        expect_error!(comm.neighbour_alltoall::<u8>(&none, &[], &mut []), Error::NeedsOneGroup);
        let in_place = comm.iallreduce(InPlace, vec![1], Sum).map_err(|failed| failed.error);
        expect_error!(in_place, Error::NeedsOneGroup);
        let size = remote;
        expect_error!(comm.bcast(&mut [1], Rank(remote)), Error::InvalidRank { size: found, .. } if found == size);
        if remote == 2 {
            expect_error!(comm.allgather(&[1], &mut [0; 3]), Error::WrongLength { what: "output", .. });
        }
        let wrong = comm.alltoallv(&[1], &[], &mut [1], &[]);
        expect_error!(wrong, Error::WrongBlocks { what: "input", .. });
        Ok(())
    });
}

fn ends(cases: &mut Cases) {
    cases.section("6.2.3");
    cases.add(
        "inter.coll.timeout",
        4,
        "a rank of the other group that does not call ends the call at its time-out",
        |job| {
            let groups = groups(job, 2)?;
            if job.rank() != 3 {
                let ended = groups.comm.with_timeout(SHORT).allreduce(&[1], &mut [0], Sum);
                let is_end = matches!(ended, Err(Error::TimedOut { .. } | Error::Abandoned { .. }));
                assert!(is_end || ended.is_ok(), "{ended:?}");
            }
            job.barrier()?;
            if job.rank() == 3 {
                let late = groups.comm.allreduce(&[1], &mut [0], Sum);
                assert!(matches!(late, Ok(()) | Err(Error::Abandoned { .. })), "{late:?}");
            }
            job.barrier()?;
            let mut sum = [0];
            groups.comm.allreduce(&[1], &mut sum, Sum)?;
            assert_eq!(sum, [2]);
            Ok(())
        },
    );
    cases.failure("inter.coll.failure", 4, "the failure of a member of either group ends the call", |job| {
        let groups = groups(job, 2)?;
        if job.rank() == 3 {
            job.die();
        }
        let ended = groups.comm.allreduce(&[1], &mut [0], Sum);
        let failed = Rank(1);
        expect_error!(ended, Error::PeerFailed { rank, .. } if rank == failed);
        job.comm.create_from_group(&job.comm.group().exclude([3]), 1)?.barrier()
    });
}
