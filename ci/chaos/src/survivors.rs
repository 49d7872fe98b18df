//! Ranks that make the same calls, which follow from the job's seed, while ranks are killed. After each round they
//! agree if all have succeeded. If not, the survivors make a communicator of their own, check it, and go on there.

use std::error::Error as StdError;
use std::fs;
use std::path::Path;

use samite::reduction::{Max, Sum};
use samite::{Comm, Error, Rank};
use samite_fabric::SplitMix64;

use crate::report::{End, Report, Verdict, now_ns};
use crate::watchdog::Watchdog;

/// The calls of a job.
pub(crate) trait Calls {
    /// Makes the calls of one round, which follow from `rng`. Returns false if one of them failed.
    fn round(&mut self, ranks: &mut Survivors<'_>, rng: &mut SplitMix64) -> bool;

    /// Ends a round at all ranks that have made it. `is_well` is true if all of them have succeeded.
    fn settle(&mut self, ranks: &mut Survivors<'_>, is_well: bool) -> Result<(), Error>;

    /// Prepares the calls on a new communicator.
    fn renew(&mut self, ranks: &mut Survivors<'_>) -> Result<(), Error>;
}

/// The ranks that go on together.
pub(crate) struct Survivors<'a> {
    pub(crate) comm: Comm,
    pub(crate) seed: u64,
    /// The number of communicators of survivors that were made.
    pub(crate) made: u64,
    watchdog: &'a Watchdog,
    pub(crate) report: Report,
}

/// Makes calls, and goes on with the survivors after each failure, until the driver's file `end` exists at all ranks.
/// Then checks that exactly the living ranks are left.
///
/// # Errors
/// If the driver's file is malformed.
pub(crate) fn run(
    comm: &Comm,
    watchdog: &Watchdog,
    seed: u64,
    end: &Path,
    calls: &mut impl Calls,
) -> Result<Report, Box<dyn StdError>> {
    let report = Report { rank: comm.rank().0, ..Report::default() };
    let mut ranks = Survivors { comm: comm.clone(), seed, made: 0, watchdog, report };
    if let Err(error) = ranks.make_calls(end, calls) {
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
    fn make_calls(&mut self, end: &Path, calls: &mut impl Calls) -> Result<(), Error> {
        let mut rng = SplitMix64::new(self.seed);
        calls.renew(self)?;
        for number in 1.. {
            self.watchdog.now(format_args!("round {number} with communicator {}", self.made));
            let has_failed = !calls.round(self, &mut rng);
            if has_failed {
                // The other ranks may wait for operations that this rank has not begun.
                self.comm.revoke()?;
            }
            // One flag says that this rank has seen the end, the other one that it has seen no failure.
            let flags = u64::from(end.exists()) | u64::from(!has_failed) << 1;
            let agreement = self.comm.agree(flags)?;
            self.note_failures();
            let is_well = agreement.flags & 2 == 2 && agreement.failed.is_empty();
            self.watchdog.now(format_args!("ending round {number} with communicator {}", self.made));
            calls.settle(self, is_well)?;
            if !is_well || rng.below(10) == 0 {
                self.go_on()?;
                // All ranks continue with the same calls, although some have seen the failure earlier.
                rng = SplitMix64::new(self.seed ^ self.made << 32);
                calls.renew(self)?;
            }
            if agreement.flags & 1 == 1 {
                break;
            }
        }
        Ok(())
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

    /// Notes the failure of a rank of the job.
    pub(crate) fn note(&mut self, rank: Rank, cause: &str) {
        if self.report.verdicts.iter().all(|known| known.rank != rank.0) {
            let verdict = Verdict { rank: rank.0, at_ns: now_ns(), cause: cause.to_owned() };
            self.report.verdicts.push(verdict);
        }
    }
}
