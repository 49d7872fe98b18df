//! Collective operations while ranks are killed. All ranks make the same calls, which follow from the job's seed, until
//! one of them fails. Then the survivors create a communicator of their own, and finish an operation there.

use std::error::Error as StdError;
use std::fs;
use std::path::Path;

use samite::reduction::{Max, Sum};
use samite::{Comm, Error, InPlace, Rank};
use samite_fabric::SplitMix64;

use crate::report::{End, Report, Verdict, now_ns};
use crate::watchdog::Watchdog;

/// The rest of an operation that was started. It returns true if the result is right.
type Rest = Box<dyn FnOnce() -> Result<bool, Error>>;

/// The numbers of elements of the operations.
const LENGTHS: [usize; 6] = [0, 1, 20, 1000, 5000, 30_000];

/// Makes collective calls until one fails. Then waits for the driver's file `end`, and goes on with the survivors.
///
/// # Errors
/// If the driver's file is malformed.
pub(crate) fn run(
    comm: &Comm,
    watchdog: &Watchdog,
    seed: u64,
    end: &Path,
) -> Result<Report, Box<dyn StdError>> {
    let mut rng = SplitMix64::new(seed);
    let mut report = Report { rank: comm.rank().0, ..Report::default() };
    let mut rounds = 0;
    while report.verdicts.is_empty() && report.troubles.is_empty() {
        rounds += 1;
        watchdog.now(format_args!("round {rounds}"));
        round(comm, &mut rng, &mut report);
    }
    watchdog.now(format_args!("waiting for the end of the faults"));
    while !end.exists() {
        comm.try_probe(Rank((report.rank + 1) % comm.size()), 0).err();
    }
    let End { killed } = serde_json::from_slice(&fs::read(end)?)?;
    watchdog.now(format_args!("going on after round {rounds}"));
    if let Err(error) = go_on(comm, &killed) {
        report.troubles.push(format!("the survivors cannot go on: {error}"));
    }
    Ok(report)
}

/// Creates a communicator of the survivors, and checks a sum there.
fn go_on(comm: &Comm, killed: &[u32]) -> Result<(), Error> {
    let survivors = comm.create_from_group(&comm.group().exclude(killed.iter().copied()), 1)?;
    let mut sum = [0];
    survivors.allreduce(&[1], &mut sum, Sum)?;
    assert_eq!(sum, [survivors.size()], "each survivor counts once");
    // No survivor leaves before the others have finished.
    survivors.barrier()
}

/// Starts some operations, and waits for all of them.
fn round(comm: &Comm, rng: &mut SplitMix64, report: &mut Report) {
    let started: Vec<_> = (0..=rng.below(4)).map(|_| start(comm, rng)).collect();
    for operation in started {
        let ended = operation.and_then(|rest| rest());
        match ended {
            Ok(true) => report.received += 1,
            Ok(false) => report.troubles.push("an operation has a wrong result".to_owned()),
            Err(Error::PeerFailed { world_rank, cause, .. }) => {
                report.errors += 1;
                let verdict = Verdict { rank: world_rank.0, at_ns: now_ns(), cause: cause.to_string() };
                report.verdicts.push(verdict);
            }
            Err(error) => report.troubles.push(format!("an operation ended with: {error}")),
        }
    }
}

/// Returns element `index` of a rank's contribution to the operation with this key.
fn of(key: u64, rank: u32, index: usize) -> u64 {
    (key ^ u64::from(rank) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64) >> 8
}

fn contribution(key: u64, rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|index| of(key, rank, index)).collect()
}

fn sum(key: u64, ranks: std::ops::Range<u32>, len: usize) -> Vec<u64> {
    (0..len).map(|index| ranks.clone().map(|rank| of(key, rank, index)).sum()).collect()
}

/// Starts the next operation, or carries out a blocking one.
fn start(comm: &Comm, rng: &mut SplitMix64) -> Result<Rest, Error> {
    let (kind, root, key) = (rng.below(14), rng.below(comm.size().into()) as u32, rng.next_u64());
    let len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
    let (me, n) = (comm.rank().0, comm.size());
    let (own, is_root, root) = (me as usize * len, me == root, Rank(root));
    let (mine, total) = (contribution(key, me, len), move || sum(key, 0..n, len));
    let all = move || (0..n).flat_map(|rank| contribution(key, rank, len)).collect::<Vec<_>>();
    let whole = |rank| contribution(key, rank, len * n as usize);
    let at_root = |len| vec![0; if is_root { len } else { 0 }];
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
        _ => {
            let mut buffer = mine;
            let largest = |index| (0..n).map(|rank| of(key, rank, index)).max().unwrap_or(0);
            let ended = comm.allreduce_in_place(&mut buffer, Max);
            blocking(ended.map(|()| buffer == (0..len).map(largest).collect::<Vec<_>>()))
        }
    })
}

/// Returns the rest of a blocking call, which has ended.
fn blocking(ended: Result<bool, Error>) -> Rest {
    Box::new(move || ended)
}
