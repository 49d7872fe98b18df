//! Collective operations, compared with results that the tests compute without messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use samite::reduction::{BinnedSum, BitXor, Max, Min, ReduceOp, Sum, in_rank_order, reproducible};
use samite::{CancelToken, Cause, Comm, Error, Rank, Settings, World};

/// Runs ranks that must all succeed.
fn all<R: Send + std::fmt::Debug>(n: u32, body: impl Fn(&Comm) -> Result<R, Error> + Sync) -> Vec<R> {
    let results = samite::local(n, |world: World| body(world.comm()));
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// An element whose size is not a power of two, so that wrong offsets show.
type Odd = [u16; 3];

fn of(rank: u32, index: usize) -> Odd {
    [rank as u16 + 1, index as u16, (rank as usize * 31 + index * 7) as u16]
}

/// Composes two affine functions, and adds the third numbers. The operation is associative and does not commute.
fn compose(left: Odd, right: Odd) -> Odd {
    let [m, c, x] = left;
    let [n, d, y] = right;
    [m.wrapping_mul(n), c.wrapping_mul(n).wrapping_add(d), x.wrapping_add(y)]
}

fn ordered() -> impl ReduceOp<Odd> {
    in_rank_order(|from: &[Odd], into: &mut [Odd]| {
        from.iter().zip(into).for_each(|(left, right)| *right = compose(*left, *right));
    })
}

fn mine(rank: u32, len: usize) -> Vec<Odd> {
    (0..len).map(|index| of(rank, index)).collect()
}

const NONE: Odd = [9; 3];

/// The lengths are on both sides of the limits at which the algorithms change: see `samite_coll::Table`.
const LENGTHS: [usize; 6] = [0, 1, 7, 100, 3000, 30_000];

fn everything(comm: &Comm, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    let blocks = n as usize;
    let gathered: Vec<Odd> = (0..n).flat_map(|from| mine(from, len)).collect();
    comm.barrier()?;
    for root in [0, n / 2, n - 1] {
        let mut buffer = if rank == root { mine(root, len) } else { vec![NONE; len] };
        comm.bcast(&mut buffer, Rank(root))?;
        assert_eq!(buffer, mine(root, len));
        let mut output = vec![NONE; if rank == root { len * blocks } else { 0 }];
        comm.gather(&mine(rank, len), &mut output, Rank(root))?;
        assert!(rank != root || output == gathered);
        let input = if rank == root { mine(root, len * blocks) } else { vec![] };
        let mut output = vec![NONE; len];
        comm.scatter(&input, &mut output, Rank(root))?;
        assert_eq!(output, mine(root, len * blocks)[rank as usize * len..][..len]);
        let mut output = vec![NONE; if rank == root { len } else { 0 }];
        comm.reduce(&mine(rank, len), &mut output, ordered(), Rank(root))?;
        assert!(rank != root || output == reduced(0..n, 0, len));
        in_place_at(comm, Rank(root), len)?;
    }
    let mut output = vec![NONE; len * blocks];
    comm.allgather(&mine(rank, len), &mut output)?;
    assert_eq!(output, gathered);
    let block = |from| mine(from, len * blocks)[rank as usize * len..][..len].to_vec();
    let exchanged: Vec<Odd> = (0..n).flat_map(block).collect();
    comm.alltoall(&mine(rank, len * blocks), &mut output)?;
    assert_eq!(output, exchanged);
    let mut buffer = mine(rank, len * blocks);
    comm.alltoall_in_place(&mut buffer)?;
    assert_eq!(buffer, exchanged);
    let mut buffer = vec![NONE; len * blocks];
    buffer[rank as usize * len..][..len].copy_from_slice(&mine(rank, len));
    comm.allgather_in_place(&mut buffer)?;
    assert_eq!(buffer, gathered);
    reductions(comm, len)
}

/// Returns the compositions of the elements of these ranks, for `len` indices from `start` on.
fn reduced(ranks: std::ops::Range<u32>, start: usize, len: usize) -> Vec<Odd> {
    let element = |index| ranks.clone().map(|rank| of(rank, start + index)).reduce(compose).unwrap();
    (0..len).map(element).collect()
}

fn in_place_at(comm: &Comm, root: Rank, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    if comm.rank() != root {
        comm.gather(&mine(rank, len), &mut [], root)?;
        let mut output = vec![NONE; len];
        comm.scatter(&[], &mut output, root)?;
        assert_eq!(output, mine(root.0, len * n as usize)[rank as usize * len..][..len]);
        return comm.reduce(&mine(rank, len), &mut [], ordered(), root);
    }
    let mut buffer = vec![NONE; len * n as usize];
    buffer[rank as usize * len..][..len].copy_from_slice(&mine(rank, len));
    comm.gather_in_place(&mut buffer)?;
    assert_eq!(buffer, (0..n).flat_map(|from| mine(from, len)).collect::<Vec<_>>());
    comm.scatter_in_place(&mine(rank, len * n as usize))?;
    let mut buffer = mine(rank, len);
    comm.reduce_in_place(&mut buffer, ordered())?;
    assert_eq!(buffer, reduced(0..n, 0, len));
    Ok(())
}

fn reductions(comm: &Comm, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    let numbers: Vec<u64> = (0..len as u64).map(|index| (index + 1) * u64::from(rank + 3)).collect();
    let factor: u64 = (0..n).map(|rank| u64::from(rank + 3)).sum();
    let sums: Vec<u64> = (0..len as u64).map(|index| (index + 1) * factor).collect();
    let mut output = vec![0; len];
    comm.allreduce(&numbers, &mut output, Sum)?;
    assert_eq!(output, sums);
    let mut buffer = numbers.clone();
    comm.allreduce_in_place(&mut buffer, Sum)?;
    assert_eq!(buffer, sums);
    let mut output = vec![NONE; len];
    comm.allreduce(&mine(rank, len), &mut output, ordered())?;
    assert_eq!(output, reduced(0..n, 0, len));
    comm.scan(&mine(rank, len), &mut output, ordered())?;
    assert_eq!(output, reduced(0..rank + 1, 0, len));
    let mut buffer = mine(rank, len);
    comm.scan_in_place(&mut buffer, ordered())?;
    assert_eq!(buffer, output);
    let before = |kept: Vec<Odd>| if rank == 0 { kept } else { reduced(0..rank, 0, len) };
    let mut output = vec![NONE; len];
    comm.exscan(&mine(rank, len), &mut output, ordered())?;
    assert_eq!(output, before(vec![NONE; len]));
    let mut buffer = mine(rank, len);
    comm.exscan_in_place(&mut buffer, ordered())?;
    assert_eq!(buffer, before(mine(0, len)));
    let total = len * n as usize;
    let mut output = vec![NONE; len];
    comm.reduce_scatter(&mine(rank, total), &mut output, ordered())?;
    assert_eq!(output, reduced(0..n, rank as usize * len, len));
    let mut buffer = mine(rank, total);
    comm.reduce_scatter_in_place(&mut buffer, ordered())?;
    assert_eq!(buffer[..len], output);
    // A reduction that commutes uses another algorithm.
    let mut block = vec![0; len];
    comm.reduce_scatter(&numbers.repeat(n as usize), &mut block, Sum)?;
    assert_eq!(block, sums);
    Ok(())
}

#[test]
fn every_call_has_the_result_that_is_computed_directly() {
    for n in 1..=9 {
        for len in LENGTHS.into_iter().filter(|len| n < 5 || *len < 10_000) {
            all(n, |comm| everything(comm, len));
        }
    }
}

/// Returns blocks of these lengths with an element between them, in descending order of ranks.
fn descending(lens: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut end = 0;
    let mut blocks: Vec<_> = lens
        .iter()
        .rev()
        .map(|len| {
            let start = end + 1;
            end = start + len;
            start..end
        })
        .collect();
    blocks.reverse();
    blocks
}

/// Makes the calls with blocks of different lengths. `len` is a factor of all lengths.
fn uneven(comm: &Comm, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    let own = rank as usize;
    let lens: Vec<usize> = (0..n as usize).map(|rank| rank * 5 % 3 * len).collect();
    let blocks = descending(&lens);
    let room = lens.iter().sum::<usize>() + n as usize + 3;
    let mut expected = vec![NONE; room];
    for (from, block) in (0..n).zip(&blocks) {
        expected[block.clone()].copy_from_slice(&mine(from, block.len()));
    }
    let mut in_place = vec![NONE; room];
    in_place[blocks[own].clone()].copy_from_slice(&mine(rank, lens[own]));
    for root in (0..n).map(Rank) {
        let mut output = vec![NONE; room];
        comm.gatherv(&mine(rank, lens[own]), &mut output, &blocks, root)?;
        assert_eq!(output, if comm.rank() == root { expected.clone() } else { vec![NONE; room] });
        let mut output = vec![NONE; lens[own]];
        comm.scatterv(&mine(root.0, room), &blocks, &mut output, root)?;
        assert_eq!(output, mine(root.0, room)[blocks[own].clone()]);
        if comm.rank() == root {
            let mut buffer = in_place.clone();
            comm.gatherv_in_place(&mut buffer, &blocks)?;
            assert_eq!(buffer, expected);
            comm.scatterv_in_place(&mine(rank, room), &blocks)?;
        } else {
            comm.gatherv(&mine(rank, lens[own]), &mut [], &[], root)?;
            comm.scatterv(&[], &[], &mut output, root)?;
            assert_eq!(output, mine(root.0, room)[blocks[own].clone()]);
        }
    }
    let mut output = vec![NONE; room];
    comm.allgatherv(&mine(rank, lens[own]), &mut output, &blocks)?;
    assert_eq!(output, expected);
    comm.allgatherv_in_place(&mut in_place, &blocks)?;
    assert_eq!(in_place, expected);
    let total: usize = lens.iter().sum();
    let mut output = vec![NONE; lens[own]];
    comm.reduce_scatterv(&mine(rank, total), &mut output, &lens, ordered())?;
    let start = lens[..own].iter().sum();
    assert_eq!(output, reduced(0..n, start, lens[own]));
    let mut buffer = mine(rank, total);
    comm.reduce_scatterv_in_place(&mut buffer, &lens, ordered())?;
    assert_eq!(buffer[..lens[own]], output);
    uneven_exchange(comm, len)
}

fn uneven_exchange(comm: &Comm, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    for symmetric in [false, true] {
        let between = |from: u32, to: u32| match symmetric {
            false => (from * 2 + to) as usize % 4 * len,
            true => (from + to) as usize % 3 * len,
        };
        let sent_by = |from| descending(&(0..n).map(|to| between(from, to)).collect::<Vec<_>>());
        let received = descending(&(0..n).map(|from| between(from, rank)).collect::<Vec<_>>());
        let room =
            |blocks: &[std::ops::Range<usize>]| blocks.iter().map(|block| block.end).max().unwrap() + 2;
        let mut expected = vec![NONE; room(&received)];
        for (from, block) in (0..n).zip(&received) {
            let sent = sent_by(from);
            let data = &mine(from, room(&sent))[sent[rank as usize].clone()];
            expected[block.clone()].copy_from_slice(data);
        }
        let (sent, mut output) = (sent_by(rank), vec![NONE; expected.len()]);
        comm.alltoallv(&mine(rank, room(&sent)), &sent, &mut output, &received)?;
        assert_eq!(output, expected);
        if symmetric {
            let mut buffer = mine(rank, expected.len());
            comm.alltoallv_in_place(&mut buffer, &received)?;
            for block in received {
                assert_eq!(buffer[block.clone()], expected[block]);
            }
        }
    }
    Ok(())
}

#[test]
fn blocks_of_different_lengths() {
    for n in 1..=9 {
        all(n, |comm| [0, 1, 40, 2000].into_iter().try_for_each(|len| uneven(comm, len)));
    }
}

#[test]
fn wrong_blocks_are_an_error_before_anything_is_sent() {
    all(2, |comm| {
        let (me, bytes) = (comm.rank(), [0_u8; 4]);
        let wrong = |call, what, why| Err(Error::WrongBlocks { call, what, why });
        let (one_each, overlap, outside) = (
            "there must be one for each rank",
            "two of them overlap",
            "one of them ends before its start, or behind the slice",
        );
        let mut output = bytes;
        assert_eq!(
            comm.allgatherv(&[0], &mut output, &[0..1, 1..2, 2..3]),
            wrong("allgatherv", "output", one_each)
        );
        assert_eq!(
            comm.allgatherv(&[0, 0], &mut output, &[0..2, 1..3]),
            wrong("allgatherv", "output", overlap)
        );
        assert_eq!(comm.allgatherv(&[0], &mut output, &[0..1, 4..5]), wrong("allgatherv", "output", outside));
        #[expect(clippy::reversed_empty_ranges, reason = "the call must refuse it")]
        let reversed = comm.allgatherv(&[0], &mut output, &[0..1, 3..2]);
        assert_eq!(reversed, wrong("allgatherv", "output", outside));
        assert_eq!(comm.gatherv(&[0], &mut output, &[0..1, 3..5], me), wrong("gatherv", "output", outside));
        assert_eq!(
            comm.scatterv(&bytes, &[0..1, 0..1, 0..1], &mut [0], me),
            wrong("scatterv", "input", one_each)
        );
        assert_eq!(
            comm.reduce_scatterv(&bytes, &mut [0], &[1, 9], Max),
            wrong("reduce_scatterv", "input", outside)
        );
        assert_eq!(
            comm.reduce_scatterv_in_place(&mut [0; 4], &[1, 9], Max),
            wrong("reduce_scatterv_in_place", "output", outside)
        );
        let all_of = [0..1, 1..2];
        let length = |call, what, len, expected| Err(Error::WrongLength { call, what, len, expected });
        assert_eq!(comm.gatherv(&[0; 3], &mut output, &all_of, me), length("gatherv", "input", 3, 1));
        assert_eq!(comm.scatterv(&bytes, &all_of, &mut [], me), length("scatterv", "output", 0, 1));
        assert_eq!(
            comm.reduce_scatterv(&bytes, &mut [0], &[1, 1], Max),
            length("reduce_scatterv", "input", 4, 2)
        );
        assert_eq!(
            comm.reduce_scatterv_in_place(&mut [0; 4], &[1, 1], Max),
            length("reduce_scatterv_in_place", "output", 4, 2)
        );
        let invalid = comm.gatherv(&[0], &mut output, &all_of, Rank(2));
        assert_eq!(invalid, Err(Error::InvalidRank { rank: Rank(2), size: 2 }));
        uneven(comm, 1)
    });
}

#[test]
fn communicators_keep_collective_calls_apart() {
    all(6, |comm| {
        let (copy, part) = (comm.dup()?, comm.split(Some(comm.rank().0 % 2), -i64::from(comm.rank().0))?);
        let part = part.expect("it has a colour");
        let mut total = [0];
        part.allreduce(&[comm.rank().0], &mut total, Sum)?;
        assert_eq!(total, [if comm.rank().0.is_multiple_of(2) { 6 } else { 9 }]);
        for comm in [&copy, &part, comm] {
            everything(comm, 10)?;
        }
        // The root is rank 0 of `part`, which is rank 4 or 5 of `comm`.
        let mut rank = [comm.rank().0];
        part.bcast(&mut rank, Rank(0))?;
        assert_eq!(rank, [4 + comm.rank().0 % 2]);
        Ok(())
    });
}

/// Messages of collective calls match no receive of the program, even with wildcards.
#[test]
fn wildcards_do_not_see_collective_calls() {
    all(4, |comm| {
        comm.barrier()?;
        assert!(comm.try_probe(samite::Source::ANY, samite::Tag::ANY)?.is_none());
        let mut buffer = [0u8];
        let to = Rank((comm.rank().0 + 1) % 4);
        comm.scope(|scope| {
            let receive = scope.irecv(&mut buffer, samite::Source::ANY, samite::Tag::ANY)?;
            comm.allreduce(&[1], &mut [0], Sum)?;
            scope.isend(&[7u8], to, u64::MAX)?;
            scope.wait(receive).map(drop)
        })?;
        assert_eq!(buffer, [7]);
        Ok(())
    });
}

#[test]
fn lanes_have_collective_calls_of_their_own() {
    let mut settings = Settings::default();
    settings.set_lanes(3).unwrap();
    let results = settings.local(3, |world| {
        let comm = world.comm().dup()?;
        std::thread::scope(|threads| {
            let lanes: Vec<_> = (0..3)
                .map(|number| {
                    let lane = comm.lane(number).unwrap();
                    threads.spawn(move || (0..50).try_for_each(|_| everything(&lane, number * 10)))
                })
                .collect();
            lanes.into_iter().try_for_each(|lane| lane.join().unwrap())
        })
    });
    assert_eq!(results, vec![Ok(()); 3]);
}

/// A usual sum differs between these algorithms, and a reproducible or a binned sum does not.
#[test]
fn a_selected_algorithm_does_not_change_a_reproducible_sum() {
    for n in [1, 2, 3, 5, 6, 8] {
        all(n, |comm| {
            let mine: Vec<f64> =
                (0..200).map(|i| (f64::from(comm.rank().0) - 1.3) / (f64::from(i) + 0.1)).collect();
            let binned: Vec<BinnedSum> = mine.iter().map(|number| [*number].into_iter().collect()).collect();
            let (mut expected, mut expected_binned) = (vec![0.0; 200], vec![BinnedSum::new(); 200]);
            comm.allreduce(&mine, &mut expected, reproducible(Sum))?;
            comm.allreduce(&binned, &mut expected_binned, Sum)?;
            for algorithm in ["recursive-doubling", "rabenseifner", "ring"] {
                let selected = comm.with_coll_algorithms(&format!("allreduce={algorithm}"))?;
                let (mut sums, mut binned_sums) = (vec![0.0; 200], vec![BinnedSum::new(); 200]);
                selected.allreduce(&mine, &mut sums, reproducible(Sum))?;
                selected.allreduce(&binned, &mut binned_sums, Sum)?;
                let bits = |sums: &[f64]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&sums), bits(&expected), "{algorithm}");
                assert_eq!(binned_sums, expected_binned, "{algorithm}");
            }
            Ok(())
        });
    }
}

/// Each algorithm carries out the calls, or leaves those that it cannot carry out to the table.
#[test]
fn every_algorithm_can_be_selected() {
    let selections = [
        "bcast=knomial:2,gather=binomial,scatter=binomial,allgather=bruck,alltoall=bruck",
        "bcast=knomial:4,gather=linear,scatter=linear,allgather=ring,alltoall=pairwise,allreduce=ring",
        "bcast=scatter-allgather,allgather=recursive-doubling,allreduce=rabenseifner,reduce_scatter=pairwise",
        "bcast=chain:100,reduce=rabenseifner,allreduce=recursive-doubling,reduce_scatter=recursive-halving",
    ];
    for (n, selection) in [1, 2, 3, 4, 7].into_iter().flat_map(|n| selections.map(|of| (n, of))) {
        all(n, |comm| {
            let comm = comm.with_coll_algorithms(selection)?;
            [0, 3, 200].into_iter().try_for_each(|len| everything(&comm, len))?;
            uneven(&comm, 10)?;
            // A communicator that is created on the handle has the selection too.
            everything(&comm.dup()?, 30)
        });
    }
    all(1, |comm| {
        let error = comm.with_coll_algorithms("bcast=fast").map(drop);
        assert_eq!(error, Err(Error::NoSuchAlgorithm { selection: "bcast=fast".into() }));
        Ok(())
    });
    let mut settings = Settings::default();
    assert!(settings.set_coll_algorithms("barrier=ring").is_err());
    settings.set_coll_algorithms("allreduce=ring").unwrap();
    let results = settings.local(3, |world| {
        let comm = world.comm().with_coll_algorithms("bcast=chain:8")?;
        everything(&comm, 50)
    });
    assert_eq!(results, vec![Ok(()); 3]);
}

#[test]
fn misuse_is_an_error_before_anything_is_sent() {
    all(3, |comm| {
        let (here, all) = (comm.rank(), 3);
        let no_rank = Err(Error::InvalidRank { rank: Rank(3), size: 3 });
        assert_eq!(comm.bcast(&mut [0u8], Rank(3)), no_rank);
        assert_eq!(comm.gather(&[0u8], &mut [], Rank(3)), no_rank);
        assert_eq!(comm.reduce(&[0u8], &mut [], Max, Rank(3)), no_rank);
        let wrong = |call, what, len, expected| Err(Error::WrongLength { call, what, len, expected });
        assert_eq!(comm.gather(&[0u8; 2], &mut [0; 5], here), wrong("gather", "output", 5, 2 * all));
        assert_eq!(comm.scatter(&[0u8; 7], &mut [0; 2], here), wrong("scatter", "input", 7, 2 * all));
        assert_eq!(comm.allgather(&[0u8; 2], &mut [0; 7]), wrong("allgather", "output", 7, 2 * all));
        assert_eq!(comm.allgather_in_place(&mut [0u8; 4]), wrong("allgather_in_place", "output", 4, 3));
        assert_eq!(comm.alltoall(&[0u8; 4], &mut [0; 3]), wrong("alltoall", "input", 4, 3));
        assert_eq!(comm.alltoall(&[0u8; 3], &mut [0; 6]), wrong("alltoall", "output", 6, 3));
        assert_eq!(comm.allreduce(&[0u8; 2], &mut [0; 3], Min), wrong("allreduce", "output", 3, 2));
        assert_eq!(comm.reduce(&[0u8; 2], &mut [], Min, here), wrong("reduce", "output", 0, 2));
        let scattered = comm.reduce_scatter(&[0u8; 4], &mut [0; 2], BitXor);
        assert_eq!(scattered, wrong("reduce_scatter", "input", 4, 2 * all));
        assert_eq!(comm.scan(&[0u8; 2], &mut [0], Min), wrong("scan", "output", 1, 2));
        // The other ranks have sent nothing either, so the next call succeeds.
        everything(comm, 3)
    });
}

#[test]
fn scans_and_calls_in_place_need_one_group() {
    all(2, |comm| {
        let alone = comm.self_comm()?;
        let inter = alone.create_intercomm(Rank(0), comm, Rank(1 - comm.rank().0), 0)?;
        assert_eq!(inter.scan(&[1u8], &mut [0], Sum), Err(Error::NeedsOneGroup));
        assert_eq!(inter.allreduce_in_place(&mut [1u8], Sum), Err(Error::NeedsOneGroup));
        let mut sum = [0];
        inter.allreduce(&[comm.rank().0 + 7], &mut sum, Sum)?;
        assert_eq!(sum, [8 - comm.rank().0], "the contribution of the other group");
        Ok(())
    });
}

/// Rank 1 calls only after the calls of the other ranks have ended by a time-out or a cancel. Afterwards the
/// communicator can be used again.
#[test]
fn time_outs_and_cancels_end_a_call() {
    all(3, |comm| {
        let work = comm.dup()?;
        if comm.rank() != 1 {
            let bounded = work.with_timeout(Duration::from_millis(20));
            let ended = bounded.barrier();
            assert!(matches!(ended, Err(Error::TimedOut { .. } | Error::Abandoned { .. })), "{ended:?}");
            let cancel = CancelToken::new();
            cancel.cancel();
            let ended = work.with_cancel(&cancel).allreduce(&[1], &mut [0], Sum);
            assert!(matches!(ended, Err(Error::Cancelled { .. } | Error::Abandoned { .. })), "{ended:?}");
        } else {
            // The other ranks give up their calls before this barrier.
            comm.barrier()?;
            // These calls succeed if the other ranks had sent all messages that this rank needs.
            for late in [work.barrier(), work.allreduce(&[1], &mut [0], Sum)] {
                assert!(matches!(late, Ok(()) | Err(Error::Abandoned { .. })), "{late:?}");
            }
        }
        if comm.rank() != 1 {
            comm.barrier()?;
        }
        (0..20).try_for_each(|_| everything(&work, 9))
    });
}

#[test]
fn a_cancel_from_another_thread_ends_a_call() {
    all(2, |comm| {
        if comm.rank() == 0 {
            let cancel = CancelToken::new();
            std::thread::scope(|threads| {
                let waiting = threads.spawn(|| comm.with_cancel(&cancel).barrier());
                cancel.cancel();
                assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled { .. })));
            });
            comm.send(&[0u8], Rank(1), 1)?;
            comm.recv(&mut [0u8], Rank(1), 1).map(drop)
        } else {
            comm.recv(&mut [0u8], Rank(0), 1)?;
            // Rank 0 had sent its message of the barrier before it gave up, so this rank finishes the barrier.
            comm.barrier()?;
            comm.send(&[0u8], Rank(0), 1)
        }
    });
}

#[test]
fn a_member_that_has_left_ends_the_calls_that_need_it() {
    let results = samite::local(4, |world| {
        let comm = world.comm();
        let part = comm.split(Some(0), -i64::from(comm.rank().0))?.expect("it has a colour");
        comm.barrier()?;
        if comm.rank() == 2 {
            return world.leave();
        }
        let mut total = [0];
        match part.allreduce(&[1], &mut total, Sum) {
            Err(Error::PeerFailed { rank, world_rank, cause, .. }) => {
                assert_eq!((rank, world_rank, cause), (Rank(1), Rank(2), Cause::Left));
            }
            ended => panic!("{ended:?}"),
        }
        Ok(())
    });
    assert_eq!(results, vec![Ok(()); 4]);
}

/// A rank may leave when its part of a call is done, although other ranks have not finished.
#[test]
fn ranks_may_leave_after_the_last_call() {
    for _ in 0..50 {
        all(7, |comm| {
            let mut total = [0];
            comm.allreduce(&[1], &mut total, Sum)?;
            assert_eq!(total, [7]);
            Ok(())
        });
    }
}

#[test]
fn a_panic_of_the_operation_unwinds_in_its_caller_and_ends_the_call_elsewhere() {
    all(4, |comm| {
        let work = comm.dup()?;
        let rank = comm.rank().0;
        let op = samite::reduction::commuting(move |from: &[u32], into: &mut [u32]| {
            assert!(rank != 0, "the operation fails at rank 0");
            from.iter().zip(into).for_each(|(a, b)| *b += a);
        });
        let mut total = [0];
        let ended = catch_unwind(AssertUnwindSafe(|| work.allreduce(&[1], &mut total, op)));
        match (rank, ended) {
            (0, Err(payload)) => {
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"the operation fails at rank 0"));
            }
            (1..=3, Ok(Ok(()))) => assert_eq!(total, [4]),
            (1..=3, Ok(Err(Error::Abandoned { rank: Rank(0), .. }))) => {}
            (_, ended) => panic!("rank {rank}: {:?}", ended.map_err(|_| "a panic")),
        }
        comm.barrier()?;
        everything(&work, 5)
    });
}

/// The ranks pass lengths that differ. No call overruns a slice, and each ends within its time-out.
#[test]
fn lengths_that_differ_are_an_error() {
    static LENGTHS_DIFFER: AtomicU32 = AtomicU32::new(0);
    all(2, |comm| {
        let work = comm.with_timeout(Duration::from_millis(200));
        let len = 3 + comm.rank().0 as usize;
        let mut output = vec![0; len];
        if let Err(error) = work.allreduce(&vec![1; len], &mut output, Sum) {
            let differ = matches!(error, Error::LengthsDiffer { ours, theirs, .. } if (ours, theirs) == (4 * len, 28 - 4 * len));
            LENGTHS_DIFFER.fetch_add(u32::from(differ), Ordering::Relaxed);
        }
        Ok(())
    });
    assert!(LENGTHS_DIFFER.load(Ordering::Relaxed) >= 1);
}
