//! Communicators of the ranks that share a host or a part of it.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};
use samite_os::process;
use samite_p2p::Choice;

use super::Comm;
use crate::error::Error;

/// The part of a machine that the ranks of a new communicator share: see [`Comm::split_by`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locality {
    /// A host: one kernel, with all containers on it.
    Host,
    /// A NUMA node, to which the ranks are bound (`samite run --bind numa`).
    NumaNode,
    /// A core, to which the ranks are bound (`samite run --bind core`).
    Core,
}

impl Comm {
    /// Creates a communicator of the ranks that share a host, a NUMA node or a core (`MPI_Comm_split_type`). Ranks are
    /// ordered by key; ranks with equal keys keep their order in this communicator. A rank that is not bound to one
    /// NUMA node or core gets `None` for that locality.
    ///
    /// All ranks of this communicator call it, with the same locality and under the rules of [`dup`](Self::dup).
    ///
    /// # Errors
    /// Returns the errors of [`split`](Self::split); [`Error::Exhausted`] if the system does not identify its host, for
    /// example because /proc is not mounted.
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// let here = comm.split_by(samite::Locality::Host, 0)?.expect("each rank has a host");
    /// assert_eq!(here.size(), 3);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn split_by(&self, locality: Locality, key: i64) -> Result<Option<Self>, Error> {
        self.handle_result("split_by", self.split_by_locality(locality, key))
    }

    fn split_by_locality(&self, locality: Locality, key: i64) -> Result<Option<Self>, Error> {
        self.check_one_group()?;
        // A rank that does not know its host takes part without a colour, so that the other ranks do not wait for it.
        let host = host();
        let choice = Choice::Colour(host, key);
        let here = self.begin_creation(self.members(), None, choice, |comm, made| Ok(comm.derive(made)))?;
        let here = here.finish()?;
        let Some(here) = here else {
            return Err(Error::Exhausted {
                what: "knowledge of the host",
                hint: "mount /proc, where its boot id is read".into(),
            });
        };
        let part = match locality {
            Locality::Host => return Ok(Some(here)),
            Locality::NumaNode => part_of("/sys/devices/system/node", "node", "cpulist"),
            Locality::Core => part_of("/sys/devices/system/cpu", "cpu", "topology/core_cpus_list"),
        };
        here.begin_split(part, key)?.finish()
    }
}

/// Returns a number for this host: eight bytes of the random id that its kernel has chosen at boot.
fn host() -> Option<u64> {
    let place = process::Place::current().ok()?;
    let low = u64::from_ne_bytes(*place.boot.last_chunk()?);
    // `u64::MAX` means that a rank has no colour.
    Some(low.min(u64::MAX - 1))
}

/// Returns the first processor of a part of this host, a NUMA node or a core, if the thread is bound to that part. Each
/// part has a folder in `folder`, whose name begins with `prefix`. The file `list` in it lists the part's processors.
fn part_of(folder: &str, prefix: &str, list: &str) -> Option<u32> {
    let allowed = sched_getaffinity(None).ok()?;
    let mine: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let parts = fs::read_dir(folder).ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.strip_prefix(prefix)?.parse::<u32>().ok()?;
        Some(processors(fs::read_to_string(entry.path().join(list)).ok()?.trim()))
    });
    let part = parts.into_iter().find(|part| mine.iter().all(|cpu| part.contains(cpu)))?;
    u32::try_from(*part.first()?).ok()
}

/// Returns the processors of a list like `0-3,8`, up to the first part that is malformed.
fn processors(list: &str) -> Vec<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').map_while(part).flatten().take(CpuSet::MAX_CPU).collect()
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_setaffinity;

    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(processors("7"), [7]);
        assert_eq!(processors("1,x,3"), [1]);
        assert_eq!(processors(""), [] as [usize; 0]);
    }

    #[test]
    fn ranks_bound_to_a_core_share_it() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let sizes = crate::local(4, |world| {
            // Each rank is a thread. This test does not bind the last rank's thread.
            if world.comm().rank() != 3 {
                let mut one = CpuSet::new();
                one.set(cpu);
                sched_setaffinity(None, &one).unwrap();
            }
            let core = world.comm().split_by(Locality::Core, 0).unwrap();
            core.map(|core| core.size())
        });
        // If the machine has only one core, the last rank is bound to it too.
        let expected = match part_of("/sys/devices/system/cpu", "cpu", "topology/core_cpus_list") {
            Some(_) => [Some(4); 4],
            None => [Some(3), Some(3), Some(3), None],
        };
        assert_eq!(sizes, expected);
    }
}
