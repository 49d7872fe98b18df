//! The turns of simulated ranks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use samite_fabric::SplitMix64;
use samite_fabric::sim::Net;

/// Gives the turn to one rank at a time. A rank that polls may lose its turn. The next rank is chosen at random from
/// the ranks that have something to do. If all ranks wait, the clock advances to the next event of the network or the
/// end of a sleep.
pub(crate) struct Stage {
    net: Net,
    /// The rank whose turn it is.
    turn: AtomicU32,
    state: Mutex<State>,
}

struct State {
    rng: SplitMix64,
    /// The probability, per million, that a poll with events passes the turn on.
    switches_per_million: u32,
    actors: Vec<Actor>,
}

struct Actor {
    thread: Option<Thread>,
    does: Does,
}

#[derive(Clone, Copy)]
enum Does {
    /// The rank has something to do.
    Run,
    /// The rank waits until its port has events, at most until this time.
    Doze(u64),
    /// The rank waits until this time, which simulates a computation.
    Compute(u64),
    /// The rank has ended.
    Nothing,
}

impl Stage {
    pub(super) fn new(net: Net, ranks: u32, mut rng: SplitMix64) -> Self {
        let actors = (0..ranks).map(|_| Actor { thread: None, does: Does::Run }).collect();
        let switches_per_million = [20_000, 200_000, 700_000][rng.below(3) as usize];
        let first = rng.below(u64::from(ranks.max(1))) as u32;
        let state = Mutex::new(State { rng, switches_per_million, actors });
        Self { net, turn: AtomicU32::new(first), state }
    }

    /// Waits for the first turn of a rank.
    pub(super) fn enter(&self, rank: u32) {
        self.state().actors[rank as usize].thread = Some(thread::current());
        self.await_turn(rank);
    }

    /// Ends the part of a rank in the simulation. It must be the turn of this rank.
    pub(super) fn leave(&self, rank: u32) {
        self.pass(self.state(), rank, Does::Nothing);
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }

    pub(super) fn kill(&self, rank: u32) {
        self.net.kill(rank);
    }

    pub(super) fn sleep(&self, rank: u32, time_ns: u64) {
        let until_ns = self.now_ns().saturating_add(time_ns.max(1));
        self.pass(self.state(), rank, Does::Doze(until_ns));
        self.await_turn(rank);
    }

    /// Advances the virtual time by the duration of a poll, and may pass the turn on. A poll without events lasts until
    /// the next event, up to a limit, in place of the many polls that a real wait would make in that time.
    pub(super) fn polled(&self, rank: u32, came: bool) {
        let mut state = self.state();
        let now_ns = self.now_ns() + POLL_NS;
        self.net.advance_to(now_ns);
        let does = match came {
            _ if state.rng.happens(COMPUTES_PER_MILLION) => {
                Does::Compute(now_ns + state.rng.below(COMPUTE_NS_MAX))
            }
            true if !{
                let odds = state.switches_per_million;
                state.rng.happens(odds)
            } =>
            {
                return;
            }
            true => Does::Run,
            false => Does::Doze(now_ns + state.rng.below(IDLE_NS_MAX)),
        };
        self.pass(state, rank, does);
        self.await_turn(rank);
    }

    /// Passes the turn of `rank` on to a rank that has something to do, which may be `rank` again.
    fn pass(&self, mut state: MutexGuard<'_, State>, rank: u32, does: Does) {
        state.actors[rank as usize].does = does;
        let next = loop {
            let now_ns = self.now_ns();
            let can_run = |(rank, actor): (usize, &Actor)| {
                let can = match actor.does {
                    Does::Run => true,
                    Does::Doze(until_ns) => now_ns >= until_ns || self.net.has_events(rank as u32),
                    Does::Compute(until_ns) => now_ns >= until_ns,
                    Does::Nothing => false,
                };
                can.then_some(rank)
            };
            let able: Vec<_> = state.actors.iter().enumerate().filter_map(can_run).collect();
            if !able.is_empty() {
                break able[state.rng.below(able.len() as u64) as usize];
            }
            let ends = state.actors.iter().filter_map(|actor| match actor.does {
                Does::Doze(until_ns) | Does::Compute(until_ns) => Some(until_ns),
                _ => None,
            });
            let Some(end_ns) = ends.min() else { return };
            self.net.advance_to(self.net.next_ns().map_or(end_ns, |next_ns| next_ns.min(end_ns)));
        };
        state.actors[next].does = Does::Run;
        let thread = state.actors[next].thread.clone();
        // Store the turn while the lock is held. A rank that enters later then finds its turn, and a rank that waits
        // already is woken.
        self.turn.store(next as u32, Ordering::Release);
        drop(state);
        if next as u32 != rank
            && let Some(thread) = thread
        {
            thread.unpark();
        }
    }

    fn await_turn(&self, rank: u32) {
        while self.turn.load(Ordering::Acquire) != rank {
            thread::park();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duration of a poll.
const POLL_NS: u64 = 100;
/// The longest duration of a poll without events. It is well below the time after which a waiting rank sleeps.
const IDLE_NS_MAX: u64 = 1_000_000;
/// How often, in a million polls, a rank computes for a while, so that messages to it wait.
const COMPUTES_PER_MILLION: u32 = 10_000;
/// The longest time for which a rank computes.
const COMPUTE_NS_MAX: u64 = 5_000_000;
