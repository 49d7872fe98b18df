//! The choice of a core for each lane of each rank.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Moves this thread to a core by the number of its lane, counted over the lanes of all ranks: lanes are distributed
/// round robin over the cores that this thread may use. The system is free to move the thread again.
///
/// Without this, cores are not equally loaded. Of 16 threads on two cores, the scheduler corrects a split of 11 and 5
/// slowly and a split of 9 and 7 never, because both cores are busy all the time. A message waits until the threads
/// before its receiver have run, so the core with more threads delays most messages.
pub(crate) fn to_core_of(number: usize) {
    // If the system does not permit the move, the thread stays on its core.
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
