//! Ranks in a simulated network, for Samite's own tests: without a stable interface.
//!
//! Each rank is a thread, and only one of them runs at a time: see `Stage`. Time is virtual. So a seed determines the
//! interleaving of the ranks, the network and its faults, if the program reads no clock, starts no threads and waits
//! only in Samite's calls.

mod stage;
mod transport;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use samite_control::{Checks, Place, Progress, Settings};
use samite_fabric::SplitMix64;
use samite_fabric::sim::{Config as NetConfig, Net};
use samite_p2p::Config;

use crate::local::run;
use crate::world::World;
use stage::Stage;
pub(crate) use transport::{Either, Staged};

/// The results of a simulated job.
#[derive(Debug, PartialEq, Eq)]
pub struct Simulated<R> {
    /// By rank.
    pub results: Vec<R>,
    /// A hash of all events of the network.
    pub trace_hash: u64,
}

/// Runs `body` as `n` ranks in a network whose limits, capabilities and faults follow from `seed`, within the contract
/// of a port.
pub fn simulate<R: Send>(seed: u64, n: u32, body: impl Fn(World) -> R + Sync) -> Simulated<R> {
    let mut rng = SplitMix64::new(seed);
    let net_config = NetConfig::adverse(&mut rng);
    let mut engine = engine_config(&mut rng, net_config.caps.packet_max);
    choose_puts(&mut engine, &mut SplitMix64::new(seed ^ 0x0070_7574));
    let mut settings = Settings::default();
    (settings.engine, settings.checks) =
        (engine, Checks { modes: true, hints: true, types: true, collectives: false });
    // A driver thread would run in real time, and not in its turn.
    settings.progress = Progress::Off;
    let net = Net::new(rng.next_u64(), net_config);
    let stage = Arc::new(Stage::new(net.clone(), n, rng));
    let ports = (0..n).map(|rank| Either::Staged(Staged::new(net.start(rank), Arc::clone(&stage)))).collect();
    // `ALONE` means that no other rank is on this host. Otherwise, with more ranks than cores, a waiting rank would
    // yield its core at once. That is useless here, because only one rank's thread can run at a time.
    let results = run(vec![ports], &settings, &Place::ALONE, |world: World| {
        let _turn = Turn::await_first(&stage, world.comm().rank().0);
        body(world)
    });
    Simulated { results, trace_hash: net.trace_hash() }
}

/// Ends the calling rank's port as SIGKILL does: its last messages may be lost. The caller must then end the rank by a
/// panic. Returns false in a thread that is not a simulated rank.
pub fn kill() -> bool {
    with_turn(|turn| turn.stage.kill(turn.rank)).is_some()
}

/// Returns the virtual time, or `None` in a thread that is not a simulated rank.
pub(crate) fn now_ns() -> Option<u64> {
    with_turn(|turn| turn.stage.now_ns())
}

/// Lets a simulated rank sleep in virtual time. Returns false, without a sleep, in other threads.
pub(crate) fn sleep(time: Duration) -> bool {
    with_turn(|turn| turn.stage.sleep(turn.rank, time.as_nanos() as u64)).is_some()
}

/// Returns random limits for all engines. The limit for envelopes keeps its default, because a send fails when it is
/// reached.
fn engine_config(rng: &mut SplitMix64, packet_max: usize) -> Config {
    let mut pick = |choices: &[usize]| choices[rng.below(choices.len() as u64) as usize];
    let mut config = Config::default();
    config.eager_max = pick(&[0, 64, 500, packet_max, 16 << 10]);
    config.stream_max = pick(&[0, 700, 5_000, 128 << 10]);
    config.read_min = pick(&[0, 2_000]);
    config.unexpected_max = pick(&[0, 1_000, 20_000, 256 << 20]);
    config.window_min = pick(&[0, 300, 64 << 10]);
    config.window_max = pick(&[1_000, 64 << 20]);
    config.pull_chunk = pick(&[300, 1_000, 1 << 20]);
    config.pull_depth = pick(&[1, 2, 4]);
    config.push_window = pick(&[300, 700, 5_000, 1 << 20]);
    config
}

/// Sets random limits for puts. They come from numbers of their own, so that a seed still has the run that it had
/// without puts.
fn choose_puts(config: &mut Config, rng: &mut SplitMix64) {
    let mut pick = |choices: &[usize]| choices[rng.below(choices.len() as u64) as usize];
    config.put_min = pick(&[0, 600, 5_000, 1 << 40]);
    config.put_chunk = pick(&[300, 1_000, 1 << 20]);
    config.put_depth = pick(&[1, 2, 4]);
    config.registered_max = pick(&[0, 1_000, 10_000, 64 << 20]);
}

/// A rank's part in a simulation, which ends when this value is dropped.
struct Turn;

struct Part {
    stage: Arc<Stage>,
    rank: u32,
}

thread_local! {
    static PART: RefCell<Option<Part>> = const { RefCell::new(None) };
}

impl Turn {
    /// Waits until the calling thread may run as `rank`.
    fn await_first(stage: &Arc<Stage>, rank: u32) -> Self {
        PART.set(Some(Part { stage: Arc::clone(stage), rank }));
        stage.enter(rank);
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(Part { stage, rank }) = PART.take() {
            stage.leave(rank);
        }
    }
}

fn with_turn<R>(act: impl FnOnce(&Part) -> R) -> Option<R> {
    // A value may be dropped after this thread's thread-local variables were destroyed.
    PART.try_with(|part| part.borrow().as_ref().map(act)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rank, Source};

    fn ring(seed: u64) -> Simulated<(u64, u64)> {
        simulate(seed, 4, |world| {
            let comm = world.comm().with_timeout(Duration::from_secs(60));
            let (rank, size) = (comm.rank().0, comm.size());
            let mut sum = 0;
            for round in 0..5 {
                let data = vec![u64::from(rank) + round; 300];
                let mut theirs = vec![0; 300];
                let (to, from) = (Rank((rank + 1) % size), Source::ANY);
                comm.sendrecv(&data, to, round, &mut theirs, from, round).unwrap();
                assert!(theirs.iter().all(|&word| word == theirs[0]));
                sum += theirs[0];
            }
            (sum, now_ns().unwrap())
        })
    }

    #[test]
    fn a_seed_repeats_its_run() {
        let mut hashes = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let (first, second) = (ring(seed), ring(seed));
            assert_eq!(first, second, "seed {seed}");
            let sums: Vec<_> = first.results.iter().map(|(sum, _)| *sum).collect();
            assert_eq!(sums, [25, 10, 15, 20], "seed {seed}");
            hashes.insert(first.trace_hash);
        }
        assert_eq!(hashes.len(), 20);
    }

    #[test]
    fn a_wait_without_a_message_takes_virtual_time() {
        let ended = simulate(7, 1, |world| {
            let comm = world.comm().with_timeout(Duration::from_secs(60));
            let error = comm.recv(&mut [0u8], comm.rank(), 7).unwrap_err();
            (matches!(error, crate::Error::TimedOut { .. }), now_ns().unwrap() / 1_000_000_000)
        });
        assert_eq!(ended.results, [(true, 60)]);
    }
}
