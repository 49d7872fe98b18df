//! Collective operations while ranks are killed.

use samite::reduction::{Max, Sum, in_rank_order, reproducible};
use samite::{Cartesian, Comm, Dimension, Error, InPlace, Rank, consecutive};
use samite_fabric::SplitMix64;

use crate::survivors::{Calls, Survivors};

/// The rest of an operation that was started. It returns true if the result is right.
type Rest = Box<dyn FnOnce() -> Result<bool, Error>>;

/// The numbers of elements of the operations.
const LENGTHS: [usize; 6] = [0, 1, 20, 1000, 5000, 30_000];

/// Starts collective operations, and waits for all of them.
pub(crate) struct Collectives;

impl Calls for Collectives {
    /// Starts some operations, and waits for all of them. Returns false if one of them failed.
    fn round(&mut self, ranks: &mut Survivors<'_>, rng: &mut SplitMix64) -> bool {
        let started: Vec<_> = (0..=rng.below(4)).map(|_| start(&ranks.comm, rng)).collect();
        let mut is_well = true;
        for operation in started {
            match operation.and_then(|rest| rest()) {
                Ok(true) => ranks.report.received += 1,
                Ok(false) => ranks.report.troubles.push("an operation has a wrong result".to_owned()),
                Err(error) => {
                    ranks.report.errors += 1;
                    is_well = false;
                    match error {
                        Error::PeerFailed { world_rank, cause, .. } => {
                            ranks.note(world_rank, &cause.to_string())
                        }
                        Error::Revoked => {}
                        error => ranks.report.troubles.push(format!("an operation ended with: {error}")),
                    }
                }
            }
        }
        is_well
    }

    fn settle(&mut self, _: &mut Survivors<'_>, _: bool) -> Result<(), Error> {
        Ok(())
    }

    fn renew(&mut self, _: &mut Survivors<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns element `index` of a rank's contribution to the operation with this key.
fn of(key: u64, rank: u32, index: usize) -> u64 {
    (key ^ u64::from(rank) << 32).wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

fn contribution(key: u64, rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|index| of(key, rank, index)).collect()
}

fn sum(key: u64, ranks: std::ops::Range<u32>, len: usize) -> Vec<u64> {
    (0..len).map(|index| ranks.clone().map(|rank| of(key, rank, index)).sum()).collect()
}

/// Starts the next operation, or carries out a blocking one.
fn start(comm: &Comm, rng: &mut SplitMix64) -> Result<Rest, Error> {
    let (kind, root, key) = (rng.below(24), rng.below(comm.size().into()) as u32, rng.next_u64());
    let len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
    let (me, n) = (comm.rank().0, comm.size());
    let (own, is_root, root) = (me as usize * len, me == root, Rank(root));
    let (mine, total) = (contribution(key, me, len), move || sum(key, 0..n, len));
    let all = move || (0..n).flat_map(|rank| contribution(key, rank, len)).collect::<Vec<_>>();
    let whole = |rank| contribution(key, rank, len * n as usize);
    let at_root = |len| vec![0; if is_root { len } else { 0 }];
    if kind >= FIRST_UNEVEN {
        return start_uneven(comm, kind, (root, key, len));
    }
    Ok(match kind {
        0 => {
            let barrier = comm.ibarrier()?;
            Box::new(move || barrier.wait().map(|_| true).map_err(Error::from))
        }
        1 => {
            let data = if is_root { mine } else { vec![0; len] };
            let bcast = comm.ibcast(data, root)?;
            Box::new(move || Ok(bcast.wait()?.buffer == contribution(key, root.0, len)))
        }
        2 => {
            let gather = comm.igather(mine, at_root(len * n as usize), root)?;
            Box::new(move || Ok(gather.wait()?.buffer.1 == all() || !is_root))
        }
        3 => {
            let input = if is_root { whole(root.0) } else { vec![] };
            let expected = whole(root.0)[own..][..len].to_vec();
            let scatter = comm.iscatter(input, vec![0; len], root)?;
            Box::new(move || Ok(scatter.wait()?.buffer.1 == expected))
        }
        4 => {
            let gather = comm.iallgather(mine, vec![0; len * n as usize])?;
            Box::new(move || Ok(gather.wait()?.buffer.1 == all()))
        }
        5 => {
            let expected: Vec<_> = (0..n).flat_map(|rank| whole(rank)[own..][..len].to_vec()).collect();
            let exchange = comm.ialltoall(InPlace, whole(me))?;
            Box::new(move || Ok(exchange.wait()?.buffer.1 == expected))
        }
        6 => {
            let reduce = comm.ireduce(mine, at_root(len), Sum, root)?;
            Box::new(move || Ok(reduce.wait()?.buffer.1 == total() || !is_root))
        }
        7 => {
            let reduce = comm.iallreduce(mine, vec![0; len], Sum)?;
            Box::new(move || Ok(reduce.wait()?.buffer.1 == total()))
        }
        8 => {
            let expected = sum(key, 0..n, len * n as usize)[own..][..len].to_vec();
            let reduce = comm.ireduce_scatter(whole(me), vec![0; len], Sum)?;
            Box::new(move || Ok(reduce.wait()?.buffer.1 == expected))
        }
        9 => {
            let scan = comm.iscan(InPlace, mine, Sum)?;
            Box::new(move || Ok(scan.wait()?.buffer.1 == sum(key, 0..me + 1, len)))
        }
        10 => blocking(comm.barrier().map(|()| true)),
        11 => {
            let mut data = if is_root { mine } else { vec![0; len] };
            blocking(comm.bcast(&mut data, root).map(|()| data == contribution(key, root.0, len)))
        }
        12 => {
            let mut output = vec![0; len * n as usize];
            blocking(comm.allgather(&mine, &mut output).map(|()| output == all()))
        }
        13 => {
            let mut repeated = comm.allreduce_init(mine, vec![0; len], Sum)?;
            let mut run = || -> Result<bool, Error> {
                let mut is_right = true;
                for _ in 0..3 {
                    repeated.output_mut()?.fill(0);
                    repeated.start()?;
                    repeated.wait()?;
                    is_right &= *repeated.output()? == total();
                }
                Ok(is_right)
            };
            blocking(run())
        }
        14 => {
            // The operand of the lowest rank remains.
            let first = in_rank_order(|from: &[u64], into: &mut [u64]| into.copy_from_slice(from));
            let reduce = comm.iallreduce(mine, vec![0; len], first)?;
            Box::new(move || Ok(reduce.wait()?.buffer.1 == contribution(key, 0, len)))
        }
        15 => {
            let reduce = comm.iallreduce(mine, vec![0; len], reproducible(Sum))?;
            Box::new(move || Ok(reduce.wait()?.buffer.1 == total()))
        }
        16 => {
            let scan = comm.iexscan(mine, vec![0; len], Sum)?;
            Box::new(move || Ok(scan.wait()?.buffer.1 == sum(key, 0..me, len) || me == 0))
        }
        _ => {
            let mut buffer = mine;
            let largest = |index| (0..n).map(|rank| of(key, rank, index)).max().unwrap_or(0);
            let ended = comm.allreduce_in_place(&mut buffer, Max);
            blocking(ended.map(|()| buffer == (0..len).map(largest).collect::<Vec<_>>()))
        }
    })
}

/// The operations from this number on have blocks of different lengths.
const FIRST_UNEVEN: u64 = 18;

/// Starts an operation whose blocks have different lengths.
fn start_uneven(comm: &Comm, kind: u64, (root, key, len): (Rank, u64, usize)) -> Result<Rest, Error> {
    let (me, n, is_root) = (comm.rank().0, comm.size(), comm.rank() == root);
    let of_rank = move |rank: u32| len / (1 + rank as usize % 3);
    let between = move |from: u32, to: u32| contribution(key ^ u64::from(to), from, of_rank(from + to));
    let lens: Vec<_> = (0..n).map(of_rank).collect();
    let (blocks, whole) = (consecutive(lens.iter().copied()), lens.iter().sum());
    let all = move || (0..n).flat_map(|rank| contribution(key, rank, of_rank(rank))).collect::<Vec<_>>();
    let mine = contribution(key, me, of_rank(me));
    Ok(match kind {
        FIRST_UNEVEN => {
            let output = vec![0; if is_root { whole } else { 0 }];
            let gather = comm.igatherv(mine, output, if is_root { &blocks } else { &[] }, root)?;
            Box::new(move || Ok(gather.wait()?.buffer.1 == all() || !is_root))
        }
        19 => {
            let input = contribution(key, root.0, whole);
            let expected = input[blocks[me as usize].clone()].to_vec();
            let (input, blocks) = if is_root { (input, &blocks[..]) } else { (vec![], &[][..]) };
            let scatter = comm.iscatterv(input, blocks, vec![0; expected.len()], root)?;
            Box::new(move || Ok(scatter.wait()?.buffer.1 == expected))
        }
        20 => {
            let gather = comm.iallgatherv(mine, vec![0; whole], &blocks)?;
            Box::new(move || Ok(gather.wait()?.buffer.1 == all()))
        }
        21 => {
            // Ranks exchange blocks of the same length.
            let blocks = consecutive((0..n).map(|other| of_rank(me + other)));
            let input: Vec<_> = (0..n).flat_map(|to| between(me, to)).collect();
            let exchange = comm.ialltoallv(input.clone(), &blocks, vec![0; input.len()], &blocks)?;
            let expected = move || (0..n).flat_map(|from| between(from, me)).collect::<Vec<_>>();
            Box::new(move || Ok(exchange.wait()?.buffer.1 == expected()))
        }
        22 => {
            let expected = sum(key, 0..n, whole)[blocks[me as usize].clone()].to_vec();
            let input = contribution(key, me, whole);
            let reduce = comm.ireduce_scatterv(input, vec![0; expected.len()], &lens, Sum)?;
            Box::new(move || Ok(reduce.wait()?.buffer.1 == expected))
        }
        _ => {
            let ring =
                Cartesian::new(&[Dimension::periodic(n)]).and_then(|ring| ring.neighbourhood(Rank(me)));
            let ring = ring.expect("all ranks are in it");
            let (lower, upper) = ((me + n - 1) % n, (me + 1) % n);
            // The first block goes to the lower neighbour, for which it comes from the upper one.
            let block =
                |from: u32, is_upper: u32| contribution(key ^ u64::from(is_upper), from, of_rank(from));
            let input = [block(me, 0), block(me, 1)].concat();
            let expected = [block(lower, 1), block(upper, 0)].concat();
            let sent = consecutive([of_rank(me); 2]);
            let received = consecutive([of_rank(lower), of_rank(upper)]);
            let output = vec![0; expected.len()];
            let exchange = comm.ineighbour_alltoallv(&ring, input, &sent, output, &received)?;
            Box::new(move || Ok(exchange.wait()?.buffer.1 == expected))
        }
    })
}

/// Returns the rest of a blocking call, which has ended.
fn blocking(ended: Result<bool, Error>) -> Rest {
    Box::new(move || ended)
}
