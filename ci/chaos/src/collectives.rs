//! Collective operations while ranks are killed. All ranks make the same calls, which follow from the job's seed. After
//! each round they agree if all have succeeded. If not, the survivors make a communicator of their own, check it, and
//! go on there.

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

/// The ranks that go on together.
struct Survivors<'a> {
    comm: Comm,
    seed: u64,
    /// The number of communicators of survivors that were made.
    made: u64,
    watchdog: &'a Watchdog,
    report: Report,
}

/// Makes collective calls, and goes on with the survivors after each failure, until the driver's file `end` exists at
/// all ranks. Then checks that exactly the living ranks are left.
///
/// # Errors
/// If the driver's file is malformed.
pub(crate) fn run(
    comm: &Comm,
    watchdog: &Watchdog,
    seed: u64,
    end: &Path,
) -> Result<Report, Box<dyn StdError>> {
    let report = Report { rank: comm.rank().0, ..Report::default() };
    let mut ranks = Survivors { comm: comm.clone(), seed, made: 0, watchdog, report };
    if let Err(error) = ranks.make_calls(end) {
        ranks.report.troubles.push(format!("the survivors cannot go on: {error}"));
        return Ok(ranks.report);
    }
    let End { killed } = serde_json::from_slice(&fs::read(end)?)?;
    watchdog.now(format_args!("checking the survivors"));
    if let Err(error) = ranks.finish(&killed) {
        ranks.report.troubles.push(format!("the survivors cannot finish: {error}"));
    }
    Ok(ranks.report)
}

impl Survivors<'_> {
    /// Makes calls until the file exists at all ranks.
    fn make_calls(&mut self, end: &Path) -> Result<(), Error> {
        let mut rng = SplitMix64::new(self.seed);
        for number in 1.. {
            self.watchdog.now(format_args!("round {number} with communicator {}", self.made));
            let has_failed = !self.round(&mut rng);
            if has_failed {
                // The other ranks may wait for operations that this rank has not begun.
                self.comm.revoke()?;
            }
            // One flag says that this rank has seen the end, the other one that it has seen no failure.
            let flags = u64::from(end.exists()) | u64::from(!has_failed) << 1;
            let agreement = self.comm.agree(flags)?;
            self.note_failures();
            if agreement.flags & 2 == 0 || !agreement.failed.is_empty() || rng.below(10) == 0 {
                self.go_on()?;
                // All ranks continue with the same calls, although some have seen the failure earlier.
                rng = SplitMix64::new(self.seed ^ self.made << 32);
            }
            if agreement.flags & 1 == 1 {
                break;
            }
        }
        Ok(())
    }

    /// Starts some operations, and waits for all of them. Returns false if one of them failed.
    fn round(&mut self, rng: &mut SplitMix64) -> bool {
        let started: Vec<_> = (0..=rng.below(4)).map(|_| start(&self.comm, rng)).collect();
        let mut is_well = true;
        for operation in started {
            match operation.and_then(|rest| rest()) {
                Ok(true) => self.report.received += 1,
                Ok(false) => self.report.troubles.push("an operation has a wrong result".to_owned()),
                Err(error) => {
                    self.report.errors += 1;
                    is_well = false;
                    match error {
                        Error::PeerFailed { world_rank, cause, .. } => {
                            self.note(world_rank, &cause.to_string())
                        }
                        Error::Revoked => {}
                        error => self.report.troubles.push(format!("an operation ended with: {error}")),
                    }
                }
            }
        }
        is_well
    }

    /// Replaces the communicator by one of the survivors that all of them could use.
    fn go_on(&mut self) -> Result<(), Error> {
        loop {
            self.watchdog.now(format_args!("making communicator {} of survivors", self.made + 1));
            let survivors = self.comm.shrink()?;
            self.note_failures();
            self.comm = survivors;
            self.made += 1;
            self.report.comms += 1;
            let is_usable = self.check();
            if is_usable.is_err() {
                self.comm.revoke()?;
            }
            if self.comm.agree(is_usable.is_ok().into())?.flags == 1 {
                return Ok(());
            }
        }
    }

    /// Checks that all ranks of the communicator have the same group, and that a reduction has the right result.
    fn check(&self) -> Result<(), Error> {
        let group = self.comm.group();
        let digest = group.iter().fold(self.made, |digest, rank| digest.wrapping_mul(31) ^ u64::from(rank.0));
        let mine = [digest, !digest];
        let mut largest = mine;
        self.comm.allreduce_in_place(&mut largest, Max)?;
        assert_eq!(largest, mine, "all survivors have the same group, and not only {group:?}");
        let mut sum = [0];
        self.comm.allreduce(&[1], &mut sum, Sum)?;
        assert_eq!(sum, [self.comm.size()], "each survivor counts once");
        Ok(())
    }

    /// Checks that the survivors agree on the living ranks.
    fn finish(&mut self, killed: &[u32]) -> Result<(), Error> {
        while killed.iter().any(|rank| self.comm.group().contains(Rank(*rank))) {
            self.go_on()?;
        }
        self.check()?;
        // No survivor leaves before the others have finished.
        self.comm.barrier()
    }

    /// Notes the failures that this rank knows.
    fn note_failures(&mut self) {
        let failed = self.comm.failed().map_or_else(|_| Vec::new(), |failed| failed.iter().collect());
        failed.into_iter().for_each(|rank| self.note(rank, "it is known to have failed"));
    }

    fn note(&mut self, rank: Rank, cause: &str) {
        if self.report.verdicts.iter().all(|known| known.rank != rank.0) {
            let verdict = Verdict { rank: rank.0, at_ns: now_ns(), cause: cause.to_owned() };
            self.report.verdicts.push(verdict);
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
