//! The choice of a core for each lane of each rank.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Moves this thread to the core that it gets if lanes are distributed round robin, in the order of their numbers, over
/// the cores that they may use. The system is free to move it again.
///
/// Without this, cores are not equally loaded: the scheduler corrects an 11:5 split slowly and a 9:7 split never,
/// because a core that several threads share is busy however many they are. A message waits until the threads before its
/// receiver have run, so that most of them wait for the fuller core.
pub(crate) fn to_core_of(number: usize) {
    // A thread that may not choose stays on its core.
    let _ = deal(number);
}

fn deal(number: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[number % cores.len()]);
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
        for number in 0..3 {
            deal(number).unwrap();
            assert_eq!(allowed(), before);
        }
    }
}
