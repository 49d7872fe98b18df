//! The updates in virtual time: the windows of all ranks in one thread, over a simulated network. The program takes no
//! time, so a round takes as long as its messages travel and wait for locks. Everything follows from the numbers of
//! ranks and rounds.

use samite_fabric::link::{
    Config as LinkConfig, Engine, Group, Identity, RequestId, Time, WorldRank, first_incarnation,
};
use samite_fabric::sim::{Config as NetConfig, Costs, Net, SimPort};
use samite_fabric::{Memory, Region, SplitMix64};
use samite_rma::{
    Action, Config, ElementType, Hints, LockKind, Name, Part, Reduction, Reorder, Target, WindowId, Windows,
};

use super::{NUMBERS, UPDATES, VARIANTS, Variant, targets};

/// The network of [`super::SIMULATED`]. The processor time of a message is about the time that Samite takes.
const COSTS: Costs =
    Costs { latency_ns: 100_000, overhead_ns: 500, gap_ns: 500, gap_per_byte_ps: 330, registration_ns: 0 };

const SECRET: [u8; 16] = [7; 16];

/// Returns the times of the rounds of each variant, in microseconds.
pub(super) fn times(ranks: u32, rounds: u32) -> Vec<Vec<f64>> {
    VARIANTS.iter().map(|variant| Job::new(ranks, variant).measure(rounds)).collect()
}

/// A job with one window.
struct Job {
    net: Net,
    ranks: Vec<Rank>,
}

/// A rank, and its program: the updates of a round.
struct Rank {
    engine: Engine<SimPort, Windows>,
    window: WindowId,
    part: Region,
    is_blocking: bool,
    /// The ranks that it has to update, the next one last.
    targets: Vec<u32>,
    /// The ends of its epochs that it waits for.
    ends: Vec<RequestId>,
}

impl Job {
    fn new(ranks: u32, variant: &Variant) -> Self {
        let net = Net::new(0, NetConfig { costs: COSTS, channel_depth: usize::MAX, ..NetConfig::default() });
        let ranks = (0..ranks).map(|rank| Rank::new(&net, rank, ranks, variant)).collect();
        Self { net, ranks }
    }

    /// Runs the rounds, and returns their times.
    fn measure(&mut self, rounds: u32) -> Vec<f64> {
        let ranks = self.ranks.len() as u32;
        // In the first round, which is not measured, each rank meets all others.
        self.round(|rank| (1..ranks).map(|distance| (rank + distance) % ranks).collect());
        let mut rngs: Vec<_> = (0..ranks).map(|rank| SplitMix64::new(rank.into())).collect();
        let times = (0..rounds).map(|_| self.round(|rank| targets(rank, ranks, &mut rngs[rank as usize])));
        let times = times.collect();
        let sums = self.ranks.iter().map(Rank::sum);
        let all = u64::from(ranks) * u64::from(rounds * UPDATES as u32 + ranks - 1);
        assert_eq!(sums.sum::<u64>(), all, "no update is lost");
        times
    }

    /// Lets each rank update the parts of its targets. Returns the time until the last update has ended.
    fn round(&mut self, mut targets: impl FnMut(u32) -> Vec<u32>) -> f64 {
        let begin_ns = self.net.now_ns();
        for (rank, at) in self.ranks.iter_mut().zip(0..) {
            rank.targets = targets(at);
            rank.targets.reverse();
            rank.advance(Time::from_nanos(begin_ns));
        }
        while self.ranks.iter().any(|rank| !rank.has_ended()) {
            if self.step() == 0 {
                let next_ns = self.next_ns().expect("a message travels, or a rank has something to do");
                self.net.advance_to(next_ns);
            }
        }
        (self.net.now_ns() - begin_ns) as f64 / 1e3
    }

    /// Polls the ranks that have something to do, and returns the number of events.
    fn step(&mut self) -> usize {
        let (now, mut events) = (Time::from_nanos(self.net.now_ns()), 0);
        for (rank, at) in self.ranks.iter_mut().zip(0..) {
            if !self.net.has_events(at) && rank.engine.due() > now {
                continue;
            }
            events += rank.engine.poll(now, &mut ()).expect("a simulated port does not fail");
            for wanted in rank.engine.wanted().collect::<Vec<_>>() {
                let (incarnation, address) = (first_incarnation(&SECRET, wanted), self.net.address(wanted.0));
                rank.engine.introduce(wanted, incarnation, address).expect("the rank exists");
                events += 1;
            }
            rank.advance(now);
        }
        events
    }

    /// Returns the time of the next event.
    fn next_ns(&self) -> Option<u64> {
        let now = Time::from_nanos(self.net.now_ns());
        let dues = self.ranks.iter().map(|rank| rank.engine.due());
        let due = dues.filter(|due| *due > now && *due != Time::NEVER).min();
        self.net.next_ns().into_iter().chain(due.map(Time::as_nanos)).min()
    }
}

impl Rank {
    fn new(net: &Net, rank: u32, ranks: u32, variant: &Variant) -> Self {
        let rank = WorldRank(rank);
        let incarnation = first_incarnation(&SECRET, rank);
        let identity = Identity { rank, size: ranks, incarnation, secret: SECRET };
        let windows = Windows::new(Config::default());
        let mut engine = Engine::new(net.start(rank.0), identity, link_config(), windows);
        let part = Region::new(Memory::new(vec![0_u64; NUMBERS]));
        let reorder = if variant.reorders { Reorder::ACCESS_AFTER_ACCESS } else { Reorder::empty() };
        let hints = Hints { reorder, aggregate: variant.aggregates, ..Hints::default() };
        let name = Name { communicator: 1, number: 1 };
        let (out, windows) = engine.parts();
        let members = Group::range(WorldRank(0), ranks);
        let whole = Part::whole(part.clone(), size_of::<u64>() as u32);
        let window = windows.create(out.link, name, members, whole, hints).expect("the first window");
        let (targets, ends) = (Vec::new(), Vec::new());
        Self { engine, window, part, is_blocking: variant.is_blocking, targets, ends }
    }

    /// Returns true if all updates have ended.
    fn has_ended(&self) -> bool {
        self.targets.is_empty() && self.ends.is_empty()
    }

    /// Starts the next update or, with nonblocking calls, all updates.
    fn advance(&mut self, now: Time) {
        let windows = self.engine.stack_mut();
        self.ends.retain(|end| match windows.collect(*end) {
            Some(completion) => {
                completion.result.expect("no rank fails");
                false
            }
            None => true,
        });
        while (!self.is_blocking || self.ends.is_empty())
            && let Some(target) = self.targets.pop()
        {
            self.update(now, WorldRank(target));
        }
    }

    fn update(&mut self, now: Time, rank: WorldRank) {
        let (mut out, windows) = self.engine.parts();
        out.link.set_now(now);
        let lock = windows.lock(out.link, self.window, rank, LockKind::Exclusive);
        let epoch = lock.expect("no other epoch of the target is open");
        let action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };
        let (target, ones) = (Target { rank, displacement: 0 }, Memory::new(vec![1_u64; NUMBERS]));
        windows.operate(&mut out, epoch, target, action, ones, None).expect("the part has these numbers");
        self.ends.push(windows.close(out.link, epoch, Time::NEVER).expect("the epoch is open"));
        self.engine.drive(&mut ());
    }

    /// Returns the number of updates of this rank's part.
    fn sum(&self) -> u64 {
        let mut bytes = [0; NUMBERS * size_of::<u64>()];
        self.part.copy_out(0, &mut bytes).expect("the part has these bytes");
        let numbers = bytes.as_chunks().0.iter().map(|number| u64::from_ne_bytes(*number));
        let numbers: Vec<_> = numbers.collect();
        assert!(numbers.iter().all(|number| *number == numbers[0]), "an update changes all numbers");
        numbers[0]
    }
}

fn link_config() -> LinkConfig {
    LinkConfig {
        credit_max: 256 << 20,
        window_min: 64 << 10,
        window_max: 64 << 20,
        questions_max: 1024,
        answers_max: 1 << 20,
        quarantine_max: 0,
        registered_max: 0,
        gathered_max: 0,
        gathered_ns: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_take_the_round_trips_of_their_calls() {
        let times = times(2, 3);
        let round_trip = 2.0 * COSTS.latency_ns as f64 / 1e3;
        // Each of the two ranks updates the other one's part, so no lock is awaited. All updates of a rank have one
        // target, so they keep their order.
        let trips: Vec<Vec<f64>> = times
            .iter()
            .map(|times| times.iter().map(|time| time / round_trip / UPDATES as f64).collect())
            .collect();
        for (variant, trips) in VARIANTS.iter().zip(&trips) {
            let expected = if variant.aggregates { 1.0..1.05 } else { 2.0..2.05 };
            assert!(trips.iter().all(|trips| expected.contains(trips)), "{}: {trips:?}", variant.name);
        }
    }

    #[test]
    fn a_simulation_repeats_itself() {
        assert_eq!(times(5, 2), times(5, 2));
    }

    #[test]
    fn the_bounds_are_kept() {
        let times = times(16, 3);
        for (variant, of_variant) in VARIANTS.iter().zip(&times) {
            for (time, blocking) in of_variant.iter().zip(&times[0]) {
                let ratio = blocking / time;
                assert!(variant.bound.is_none_or(|bound| bound.keeps(ratio)), "{}: {ratio}", variant.name);
            }
        }
    }
}
