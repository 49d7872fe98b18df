//! Ranks as threads of one process, for doctests and for testing programs.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use samite_control::Place;
use samite_fabric::Port;
use samite_fabric::loopback::Hub;
use samite_os::alarm::Alarm;
use samite_p2p::{Config, Engine, Identity};

use crate::init::first_life;
use crate::runtime::{Bounds, Directory, Notice, Runtime};
use crate::world::{CONTEXT, World};
use crate::{Comm, transport};

/// Runs `body` as `n` ranks, each a thread of this process, and returns what they returned, by rank. They
/// send to each other through memory; nothing else differs from ranks that are processes.
///
/// # Panics
/// If a rank panics: then for the others it has failed, and when all have ended, its panic goes on here. If the system has
/// no memory for a rank, or is older than Linux 4.14.
///
/// ```
/// let sums = samite::local(3, |world| {
///     let next = (world.rank() + 1) % world.size();
///     world.send(&[world.rank()], next, 0)?;
///     let mut from = [0];
///     world.recv(&mut from, samite::Source::ANY, 0)?;
///     Ok::<u32, samite::Error>(from[0])
/// });
/// assert_eq!(sums, [Ok(2), Ok(0), Ok(1)]);
/// ```
pub fn local<R: Send>(n: u32, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    let hub = Hub::new();
    let ports: Vec<_> = (0..n).map(|_| transport::local(hub.port())).collect();
    let addresses: Vec<_> = ports.iter().map(Port::address).collect();
    let board = Board((0..n).map(|_| News::new()).collect::<Vec<_>>().into());
    let worlds = (0..n).zip(ports).map(|(rank, port)| {
        let identity = Identity { rank, size: n, incarnation: first_life(rank), secret: [0; 16] };
        let mut engine = Engine::new(port, identity.clone(), Config::default());
        for (rank, address) in (0..n).zip(&addresses) {
            // Every rank is below `n`.
            let _ = engine.introduce(rank, first_life(rank), address.clone());
        }
        let directory = Box::new(Member { rank, board: board.clone() });
        let place = Place { neighbours: n, ..Place::ALONE };
        let runtime = Runtime::new(engine, directory, &identity, &place).expect("there is memory for a rank");
        World::new(Comm { runtime: Arc::new(runtime), context: CONTEXT, bounds: Bounds::default() })
    });
    let worlds: Vec<_> = worlds.collect();
    let ended: Vec<_> = std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(move || body(world))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    ended.into_iter().map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

/// Where the threads tell each other of their ends: for each rank those it has not heard of, and whether by a
/// panic.
#[derive(Clone)]
struct Board(Arc<[News]>);

struct News {
    ends: Mutex<VecDeque<(u32, bool)>>,
    /// Wakes the rank; none at the limit of open files.
    alarm: Option<Alarm>,
}

impl News {
    fn new() -> Self {
        Self { ends: Mutex::default(), alarm: Alarm::new().ok() }
    }

    fn ends(&self) -> MutexGuard<'_, VecDeque<(u32, bool)>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn post(&self, rank: u32, failed: bool) {
        for news in self.0.iter() {
            let mut ends = news.ends();
            ends.push_back((rank, failed));
            if let Some(alarm) = &news.alarm {
                alarm.ring();
            }
        }
    }
}

struct Member {
    rank: u32,
    board: Board,
}

impl Directory for Member {
    fn request_address(&mut self, _: u32) {
        // All were introduced at the start.
    }

    fn poll(&mut self) -> Option<Notice> {
        let news = &self.board.0[self.rank as usize];
        let mut ends = news.ends();
        let end = ends.pop_front();
        if let Some(alarm) = &news.alarm
            && ends.is_empty()
            && end.is_some()
        {
            alarm.silence();
        }
        drop(ends);
        let (rank, failed) = end?;
        Some(if failed {
            Notice::Failed {
                rank,
                incarnation: first_life(rank),
                how: "its thread panicked".into(),
                returns: false,
            }
        } else {
            Notice::Left { rank, incarnation: first_life(rank) }
        })
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
