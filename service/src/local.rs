//! Ranks as threads of one process, for doctests and for testing programs.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use samite_control::Place;
use samite_fabric::Port;
use samite_fabric::loopback::Hub;
use samite_os::alarm::Alarm;
use samite_p2p::{Identity, WorldRank};

use crate::Settings;
use crate::init::first_incarnation;
use crate::lanes::{self, Lane, Lanes};
use crate::runtime::{Directory, Notice, Runtime};
use crate::stack::engine;
use crate::transport::{self, Transport};
use crate::world::World;

/// Runs `body` as `n` ranks, each a thread of this process, and returns the results of all ranks, by rank. The ranks
/// exchange messages through memory of the process. They read no `SAMITE_*` variables: [`Settings::local`] takes
/// settings, also those of [`Settings::from_environment`]. Otherwise they use the same engine and interface as ranks
/// that are processes, but no launcher observes or restarts them.
///
/// # Panics
/// This panics if a rank panics: the other ranks see it as failed, and the panic continues in the caller when all ranks
/// have ended. It panics also if there is no memory for a rank, or the kernel is older than Linux 4.14.
///
/// ```
/// let sums = samite::local(3, |world| {
///     let comm = world.comm();
///     let rank = comm.rank().0;
///     let (right, mut from) = (samite::Rank((rank + 1) % comm.size()), [0]);
///     comm.sendrecv(&[rank], right, 0, &mut from, samite::Source::ANY, 0)?;
///     Ok::<u32, samite::Error>(from[0])
/// });
/// assert_eq!(sums, [Ok(2), Ok(0), Ok(1)]);
/// ```
pub fn local<R: Send>(n: u32, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    Settings::default().local(n, body)
}

impl Settings {
    /// Runs `body` as `n` ranks as [`local`] does, with these settings. If the selected transport is `samite-shm`, the
    /// ranks exchange messages as ranks in processes of one host do, and have boards. Other settings of transports have
    /// no effect.
    ///
    /// # Panics
    /// As [`local`].
    ///
    /// ```
    /// let mut settings = samite::Settings::default();
    /// settings.set_lanes(2)?;
    /// let sizes = settings.local(3, |world| world.comm().lane(1).map(|lane| lane.size()));
    /// assert_eq!(sizes, [Ok(3), Ok(3), Ok(3)]);
    /// # Ok::<(), samite::SettingError>(())
    /// ```
    pub fn local<R: Send>(self, n: u32, body: impl Fn(World) -> R + Sync) -> Vec<R> {
        let place = Place { neighbours: n, ..Place::ALONE };
        let lanes = (0..self.0.lanes).map(|_| match transport::local_shm(&self.0, &place, n) {
            Some(shm) => shm.expect("there is memory to share"),
            None => {
                let hub = Hub::new();
                (0..n).map(|_| transport::local(hub.port())).collect()
            }
        });
        run(lanes.collect(), &self.0, &place, body)
    }
}

/// Runs `body` as ranks. Each lane has a port for each rank.
pub(crate) fn run<R: Send>(
    lanes: Vec<Vec<Transport>>,
    settings: &samite_control::Settings,
    place: &Place,
    body: impl Fn(World) -> R + Sync,
) -> Vec<R> {
    let (of, n) = (lanes.len(), lanes.first().map_or(0, Vec::len) as u32);
    let addresses: Vec<Vec<_>> =
        lanes.iter().map(|ports| ports.iter().map(Port::address).collect()).collect();
    let board = Board((0..n).map(|_| News::new()).collect::<Vec<_>>().into());
    let mut ranks: Vec<Vec<_>> = (0..n).map(|_| Vec::new()).collect();
    for ports in lanes {
        ranks.iter_mut().zip(ports).for_each(|(rank, port)| rank.push(port));
    }
    let worlds = (0..n).zip(ranks).map(|(rank, ports)| {
        let identity = Identity {
            rank: WorldRank(rank),
            size: n,
            incarnation: first_incarnation(rank),
            secret: [0; 16],
        };
        let directory = Box::new(Member { rank, board: board.clone() });
        let directories = lanes::share(directory, of).expect("there are descriptors for a rank");
        let config = &settings.engine;
        let lanes = ports.into_iter().zip(directories).zip(&addresses).enumerate();
        let runtimes = lanes.map(|(number, ((port, directory), addresses))| {
            let mut engine = engine(port, identity.clone(), lanes::engine_config(config, of));
            for (rank, address) in (0..n).zip(addresses) {
                // This cannot fail, since every rank is below `n`.
                let _ = engine.introduce(WorldRank(rank), first_incarnation(rank), address.clone());
            }
            let runtime = Runtime::new(engine, directory, &identity, place, Lane { number, of }, settings);
            Arc::new(runtime.expect("there is memory for a rank"))
        });
        World::new(Lanes::new(runtimes.collect()))
    });
    let worlds: Vec<_> = worlds.collect();
    let ended: Vec<_> = std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(move || body(world))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    ended.into_iter().map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

/// The notices for all ranks, which take the place of a launcher's reports. A rank that leaves or panics posts a notice
/// to all ranks. A rank that gives up another rank posts a notice to that rank.
#[derive(Clone)]
struct Board(Arc<[News]>);

/// The notices that one rank has not polled yet.
struct News {
    notices: Mutex<VecDeque<Notice>>,
    /// Wakes the rank. `None` if the process had no free descriptor; the rank then only polls.
    alarm: Option<Alarm>,
}

impl News {
    fn new() -> Self {
        Self { notices: Mutex::default(), alarm: Alarm::new().ok() }
    }

    fn notices(&self) -> MutexGuard<'_, VecDeque<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, notice: Notice) {
        let mut notices = self.notices();
        notices.push_back(notice);
        if let Some(alarm) = &self.alarm {
            alarm.ring();
        }
    }
}

impl Board {
    fn post(&self, rank: u32, failed: bool) {
        let incarnation = first_incarnation(rank);
        for news in self.0.iter() {
            news.post(match failed {
                true => {
                    Notice::Failed { rank, incarnation, how: "its thread panicked".into(), returns: false }
                }
                false => Notice::Left { rank, incarnation },
            });
        }
    }
}

struct Member {
    rank: u32,
    board: Board,
}

impl Directory for Member {
    fn request_address(&mut self, _: u32) {
        // `run` introduces all ranks to each other before they start.
    }

    fn poll(&mut self) -> Option<Notice> {
        let news = &self.board.0[self.rank as usize];
        let mut notices = news.notices();
        let notice = notices.pop_front();
        if let Some(alarm) = &news.alarm
            && notices.is_empty()
            && notice.is_some()
        {
            alarm.silence();
        }
        notice
    }

    fn give_up(&mut self, rank: u32, incarnation: u32, why: String) {
        if let Some(news) = self.board.0.get(rank as usize) {
            let by = self.rank;
            news.post(Notice::GaveUp {
                rank: by,
                incarnation: first_incarnation(by),
                verdict_on: incarnation,
                why,
            });
        }
    }

    fn tells_deaths(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.board.0[self.rank as usize].alarm.as_ref().map(AsFd::as_fd)
    }

    fn leave(&mut self) {
        self.board.post(self.rank, false);
    }

    fn panicked(&mut self) {
        self.board.post(self.rank, true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Error, Rank};

    #[test]
    fn only_a_rank_that_is_given_up_is_informed() {
        let board = Board((0..3).map(|_| News::new()).collect::<Vec<_>>().into());
        let mut members = [0, 1, 2].map(|rank| Member { rank, board: board.clone() });
        members[2].give_up(0, 7, "packets were lost".to_owned());
        let Some(Notice::GaveUp { rank: 2, incarnation, verdict_on: 7, why }) = members[0].poll() else {
            panic!("it is told")
        };
        assert_eq!((incarnation, &why[..]), (first_incarnation(2), "packets were lost"));
        assert!(members.iter_mut().all(|member| member.poll().is_none()));
    }

    /// A wait for a rank that the launcher restarts ends when the time-out of the communicator or that of the call has
    /// passed. A wait for a rank that is not restarted ends with [`Error::PeerFailed`].
    #[test]
    fn a_wait_for_a_restart_that_does_not_come_ends_at_its_bounds() {
        let (hub, settings) = (Hub::new(), samite_control::Settings::default());
        let board = Board((0..2).map(|_| News::new()).collect::<Vec<_>>().into());
        let incarnation = first_incarnation(0);
        let identity = Identity { rank: WorldRank(0), size: 2, incarnation, secret: [0; 16] };
        let engine = engine(transport::local(hub.port()), identity.clone(), settings.engine.clone());
        let directory = Box::new(Member { rank: 0, board: board.clone() });
        let (place, lane) = (Place::ALONE, Lane { number: 0, of: 1 });
        let runtime = Runtime::new(engine, directory, &identity, &place, lane, &settings).unwrap();
        let world = World::new(Lanes::new(vec![Arc::new(runtime)]));
        let failed = |returns| {
            let (rank, incarnation) = (1, first_incarnation(1));
            board.0[0].post(Notice::Failed { rank, incarnation, how: "it was killed".into(), returns });
        };
        failed(true);
        let (soon, far) = (Duration::from_millis(20), Duration::from_secs(3600));
        for (bound, timeout) in [(soon, far), (far, soon)] {
            let waited = world.comm().with_timeout(bound).wait_for_restart(Rank(1), timeout);
            assert!(matches!(waited, Err(Error::TimedOut { .. })), "{waited:?}");
        }
        failed(false);
        let waited = world.comm().wait_for_restart(Rank(1), far);
        assert!(matches!(waited, Err(Error::PeerFailed { rank: Rank(1), .. })), "{waited:?}");
    }
}
