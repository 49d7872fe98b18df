//! The choice of a core for each rank.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use samite_p2p::WorldRank;

/// Moves this thread to the core that it gets if ranks are distributed round robin, in the order of their numbers, over
/// the cores that they may use. The system is free to move it again.
///
/// Without this, cores are not equally loaded: the scheduler corrects an 11:5 split slowly and a 9:7 split never,
/// because a core that several ranks share is busy however many they are. A message waits until the ranks before its
/// receiver have run, so that most of them wait for the fuller core.
pub(crate) fn to_core_of(rank: WorldRank) {
    // A thread that may not choose stays on its core.
    let _ = deal(rank);
}

fn deal(rank: WorldRank) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[rank.index() % cores.len()]);
    sched_setaffinity(None, &one)?;
    sched_setaffinity(None, &allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_run_where_it_might_before() {
        let allowed = || sched_getaffinity(None).unwrap();
        let before = allowed();
        for rank in (0..3).map(WorldRank) {
            deal(rank).unwrap();
            assert_eq!(allowed(), before);
        }
    }
}
