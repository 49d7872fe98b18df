//! Which core a rank takes turns on.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Moves this thread to the core whose turn it is if ranks are dealt out in the order of their numbers, over the cores
/// that they may use. The system is free to move it again.
///
/// It keeps cores equally busy, and one on which ranks take turns is busy however many they are: it corrects 11 to 5, but
/// neither soon nor 9 to 7. A message waits until the ranks before its receiver have had their turn, so that most of them
/// wait for the fuller core.
pub(crate) fn to_core_of(rank: u32) {
    // One that may not choose stays where it is.
    let _ = deal(rank);
}

fn deal(rank: u32) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[rank as usize % cores.len()]);
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
        for rank in 0..3 {
            deal(rank).unwrap();
            assert_eq!(allowed(), before);
        }
    }
}
