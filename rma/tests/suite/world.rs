//! Ranks with windows, driven by one thread.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use samite_fabric::link::{
    Config as LinkConfig, Engine, Group, Identity, Link, Outcome, RequestId, Time, WorldRank,
    first_incarnation,
};
use samite_fabric::loopback::{Hub, Loopback};
use samite_fabric::shm::Shm;
use samite_fabric::sim::{Config as SimConfig, Net, SimPort};
use samite_fabric::{Address, Memory, Port, Reach, Region, SplitMix64};
use samite_rma::{
    Action, Assertions, Completion, Config, EpochId, Error, Fenced, Hints, LockKind, Name, Part, Places,
    Target, WindowId, Windows,
};

pub(crate) const NEVER: Time = Time::NEVER;
const SECRET: [u8; 16] = [9; 16];

/// The ranks of a job, and one window of all of them.
pub(crate) struct World<P> {
    pub(crate) engines: Vec<Engine<P, Windows>>,
    addresses: Vec<Address>,
    /// Lets the medium make progress, and returns the time.
    rest: Box<dyn FnMut() -> Time>,
    pub(crate) now: Time,
    /// Ranks that are not polled.
    pub(crate) stopped: BTreeSet<usize>,
    pub(crate) window: WindowId,
    windows: u64,
    /// True if the parts of windows are in memory that the ranks share.
    is_shared: bool,
    /// The number of polls.
    polls: usize,
}

/// The invariants are checked after each poll that brings an event, and after one in this many polls in any case.
const CHECK_EVERY: usize = 8;

/// Runs a test on the loopback port.
pub(crate) fn on_loopback(size: usize, hints: Hints, mut test: impl FnMut(&mut World<Loopback>)) {
    let hub = Hub::new();
    let mut now = 0;
    let rest = move || {
        now += 1_000;
        Time::from_nanos(now)
    };
    let ports = (0..size).map(|_| hub.port()).collect();
    test(&mut World::new(ports, hints, false, rest));
}

/// Runs a test over shared memory, in real time. `is_shared` is true if the parts are in memory that the ranks map.
#[expect(clippy::disallowed_methods, reason = "shared memory is in the real world")]
pub(crate) fn on_shm(size: usize, hints: Hints, is_shared: bool, test: impl FnOnce(&mut World<Shm>)) {
    let begin = std::time::Instant::now();
    let rest = move || Time::from_nanos(begin.elapsed().as_nanos() as u64);
    let ports = (0..size).map(|_| Shm::open(&Default::default()).unwrap()).collect();
    test(&mut World::new(ports, hints, is_shared, rest));
}

/// Runs a test in simulated networks. In half of them the ranks map the memory of others.
pub(crate) fn on_sim(seeds: u64, size: usize, hints: Hints, test: impl Fn(&mut World<SimPort>)) {
    on_networks(seeds, size, hints, |_| {}, test);
}

/// Runs a test in simulated networks in which the ranks put into the memory of others, and do not map it.
pub(crate) fn on_puts(seeds: u64, size: usize, test: impl Fn(&mut World<SimPort>)) {
    on_networks(seeds, size, Hints::default(), |config| enable_puts(config, false), test);
}

/// Runs a test in simulated networks in which the ranks map the memory of others, and could put into it.
pub(crate) fn on_mapped_or_put(seeds: u64, size: usize, test: impl Fn(&mut World<SimPort>)) {
    on_networks(seeds, size, Hints::default(), |config| enable_puts(config, true), test);
}

/// Runs a test in simulated networks in which the ranks get from the memory of others, and do not map it, and in
/// networks in which they can only put into it. A port has at most `registrations_max` registrations.
pub(crate) fn on_gets(seeds: u64, size: usize, registrations_max: usize, test: impl Fn(&mut World<SimPort>)) {
    let enable = |config: &mut SimConfig| {
        let put = config.caps.put;
        enable_puts(config, false);
        (config.caps.put, config.caps.get) = (put, Reach::Any);
        config.registrations_max = registrations_max;
    };
    on_networks(seeds, size, Hints::default(), enable, &test);
    on_put_backs(seeds, size, registrations_max, test);
}

/// Runs a test in simulated networks in which the ranks can only put into the memory of others, so that a target
/// answers long reads by puts.
pub(crate) fn on_put_backs(
    seeds: u64,
    size: usize,
    registrations_max: usize,
    test: impl Fn(&mut World<SimPort>),
) {
    let enable = |config: &mut SimConfig| {
        enable_puts(config, false);
        config.caps.get = Reach::None;
        config.registrations_max = registrations_max;
    };
    on_networks(seeds, size, Hints::default(), enable, test);
}

fn enable_puts(config: &mut SimConfig, map: bool) {
    config.registrations_max = usize::MAX;
    let caps = &mut config.caps;
    (caps.put, caps.fence, caps.map) = (Reach::Any, true, map);
    caps.packet_max = caps.packet_max.min(1024);
    caps.fragment_max = caps.fragment_max.min(caps.packet_max);
    caps.rma_max = caps.rma_max.max(1000);
    caps.rma_depth = caps.rma_depth.max(1);
}

fn on_networks(
    seeds: u64,
    size: usize,
    hints: Hints,
    change: impl Fn(&mut SimConfig),
    test: impl Fn(&mut World<SimPort>),
) {
    for seed in 0..seeds {
        let mut rng = SplitMix64::new(seed);
        let mut config = SimConfig::adverse(&mut rng);
        change(&mut config);
        let is_shared = config.caps.map;
        let net = Net::new(seed, config);
        let ports = (0..size).map(|rank| net.start(rank as u32)).collect();
        let of_world = net.clone();
        let rest = move || {
            if !of_world.advance() {
                of_world.advance_to(of_world.now_ns() + 1_000);
            }
            Time::from_nanos(of_world.now_ns())
        };
        let run = std::panic::AssertUnwindSafe(|| test(&mut World::new(ports, hints, is_shared, rest)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            panic!("seed {seed}: {text}");
        }
    }
}

/// The bytes of each rank's part.
pub(crate) const PART: usize = 4096;

pub(crate) fn rank(index: usize) -> WorldRank {
    WorldRank(index as u32)
}

pub(crate) fn place((at, displacement): (usize, u64)) -> Target {
    Target { rank: rank(at), displacement }
}

pub(crate) fn group(ranks: impl IntoIterator<Item = usize>) -> Group {
    Group::new(ranks.into_iter().map(rank)).unwrap()
}

pub(crate) fn link_config() -> LinkConfig {
    LinkConfig {
        credit_max: 1 << 20,
        window_min: 1 << 16,
        window_max: 1 << 20,
        questions_max: 50,
        answers_max: 100,
        quarantine_max: 0,
        gathered_max: 0,
        registered_max: 8 << 10,
        gathered_ns: 0,
    }
}

/// Puts and gets are short and few at a time, so that operations consist of several.
fn config() -> Config {
    Config { put_chunk: 1000, copy_chunk: 700, puts_max: 3, ..Config::default() }
}

impl<P: Port> World<P> {
    fn new(ports: Vec<P>, hints: Hints, is_shared: bool, rest: impl FnMut() -> Time + 'static) -> Self {
        let size = ports.len();
        let addresses = ports.iter().map(P::address).collect();
        let engine = |(index, port)| {
            let incarnation = first_incarnation(&SECRET, rank(index));
            let identity = Identity { rank: rank(index), size: size as u32, incarnation, secret: SECRET };
            Engine::new(port, identity, link_config(), Windows::new(config()))
        };
        let engines = ports.into_iter().enumerate().map(engine).collect();
        let window = WindowId::default();
        let (now, stopped, rest) = (Time::ZERO, BTreeSet::new(), Box::new(rest));
        let mut world =
            Self { engines, addresses, rest, now, stopped, window, windows: 0, is_shared, polls: 0 };
        world.window = world.create(hints);
        world
    }

    /// Creates a window of all ranks, with zeros. Its id is the same everywhere, since all create the same windows.
    pub(crate) fn create(&mut self, hints: Hints) -> WindowId {
        self.windows += 1;
        let number = self.windows;
        let ids = (0..self.engines.len()).map(|at| self.create_at(at, number, hints)).collect::<Vec<_>>();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
        ids[0]
    }

    /// Creates a dynamic window of all ranks.
    pub(crate) fn create_dynamic(&mut self, hints: Hints) -> WindowId {
        self.windows += 1;
        let name = Name { communicator: 1 << 40, number: self.windows };
        let size = self.engines.len();
        let create = |at| {
            let members = Group::range(rank(0), size as u32);
            self.call(at, |windows, link| windows.create_dynamic(link, name, members, hints)).unwrap()
        };
        let ids = (0..size).map(create).collect::<Vec<_>>();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
        ids[0]
    }

    pub(crate) fn create_at(&mut self, at: usize, number: u64, hints: Hints) -> WindowId {
        let members = Group::range(rank(0), self.engines.len() as u32);
        let region = match self.is_shared {
            true if !hints.takes_part => Region::shared(PART + 8).unwrap(),
            true => Region::shared(PART).unwrap(),
            false => Region::new(Memory::new(vec![0_u64; PART / 8])),
        };
        let lock = NonZeroUsize::new(PART).filter(|_| self.is_shared && !hints.takes_part);
        let part = Part { len: PART, lock, ..Part::whole(region, 8) };
        let name = Name { communicator: 1 << 40, number };
        self.call(at, |windows, link| windows.create(link, name, members, part, hints)).unwrap()
    }

    pub(crate) fn call<R>(&mut self, at: usize, body: impl FnOnce(&mut Windows, &mut Link) -> R) -> R {
        let now = self.now;
        let (out, windows) = self.engines[at].parts();
        out.link.set_now(now);
        let result = body(windows, out.link);
        self.engines[at].drive(&mut ());
        result
    }

    /// Polls all ranks once. Returns true if something happened.
    pub(crate) fn step(&mut self) -> bool {
        self.now = (self.rest)();
        let mut has_events = false;
        for at in 0..self.engines.len() {
            if self.stopped.contains(&at) {
                continue;
            }
            let wanted: Vec<_> = self.engines[at].wanted().collect();
            for of in wanted {
                let address = self.addresses[of.index()].clone();
                self.engines[at].introduce(of, first_incarnation(&SECRET, of), address).unwrap();
                has_events = true;
            }
            let (out, windows) = self.engines[at].parts();
            windows.urge(out.link);
            let events = self.engines[at].poll(self.now, &mut ()).unwrap();
            self.polls += 1;
            if events > 0 || self.polls.is_multiple_of(CHECK_EVERY) {
                self.engines[at].check_invariants();
                self.engines[at].stack().check_invariants();
            }
            has_events |= events > 0 || self.engines[at].link().has_work();
        }
        has_events
    }

    /// Polls all ranks until nothing happens.
    pub(crate) fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..100_000 {
            idle = if self.step() { 0 } else { idle + 1 };
            // A storm of a simulated port ends within 100 µs, that is 100 idle steps.
            if idle > 250 {
                return;
            }
        }
        panic!("the ranks do not come to rest");
    }

    /// Waits for a request, and returns its result.
    #[track_caller]
    pub(crate) fn complete(&mut self, at: usize, request: RequestId) -> Completion {
        for _ in 0..100_000 {
            if let Some(completion) = self.engines[at].stack_mut().collect(request) {
                return completion;
            }
            self.step();
        }
        panic!("the request of rank {at} does not end");
    }

    #[track_caller]
    pub(crate) fn wait(&mut self, at: usize, request: RequestId) {
        assert_eq!(self.complete(at, request).result, Ok(()), "rank {at}");
    }

    pub(crate) fn is_pending(&self, at: usize, request: RequestId) -> bool {
        self.engines[at].stack().outcome(request) == Outcome::Pending
    }

    // Calls on the window.

    #[track_caller]
    pub(crate) fn start(&mut self, at: usize, targets: &[usize]) -> EpochId {
        let (window, targets) = (self.window, group(targets.iter().copied()));
        self.call(at, |windows, link| windows.start(link, window, &targets)).unwrap()
    }

    #[track_caller]
    pub(crate) fn post(&mut self, at: usize, origins: &[usize]) -> EpochId {
        let (window, origins) = (self.window, group(origins.iter().copied()));
        self.call(at, |windows, link| windows.post(link, window, &origins)).unwrap()
    }

    #[track_caller]
    pub(crate) fn lock(&mut self, at: usize, target: usize, kind: LockKind) -> EpochId {
        let window = self.window;
        self.call(at, |windows, link| windows.lock(link, window, rank(target), kind)).unwrap()
    }

    #[track_caller]
    pub(crate) fn lock_all(&mut self, at: usize) -> EpochId {
        let window = self.window;
        self.call(at, |windows, link| windows.lock_all(link, window)).unwrap()
    }

    #[track_caller]
    pub(crate) fn close(&mut self, at: usize, epoch: EpochId) -> RequestId {
        self.call(at, |windows, link| windows.close(link, epoch, NEVER)).unwrap()
    }

    #[track_caller]
    pub(crate) fn fence(&mut self, at: usize, assertions: Assertions) -> Fenced {
        let window = self.window;
        self.call(at, |windows, link| windows.fence(link, window, assertions, NEVER)).unwrap()
    }

    /// Fences at all ranks, and waits.
    #[track_caller]
    pub(crate) fn fence_all(&mut self, assertions: Assertions) -> Vec<Option<EpochId>> {
        let all: Vec<_> = (0..self.engines.len()).map(|at| self.fence(at, assertions)).collect();
        for (at, fenced) in all.iter().enumerate() {
            if let Some(request) = fenced.completion {
                self.wait(at, request);
            }
        }
        all.into_iter().map(|fenced| fenced.epoch).collect()
    }

    pub(crate) fn operate(
        &mut self,
        at: usize,
        epoch: EpochId,
        target: (usize, u64),
        action: Action,
        memory: Memory,
        deadline: Option<Time>,
    ) -> Result<Option<RequestId>, Error> {
        self.operate_at(at, epoch, place(target), action, memory, deadline)
    }

    pub(crate) fn operate_at<'f>(
        &mut self,
        at: usize,
        epoch: EpochId,
        places: impl Into<Places<'f>>,
        action: Action,
        memory: Memory,
        deadline: Option<Time>,
    ) -> Result<Option<RequestId>, Error> {
        let now = self.now;
        let (mut out, windows) = self.engines[at].parts();
        out.link.set_now(now);
        let started = windows.operate(&mut out, epoch, places, action, memory, deadline);
        self.engines[at].drive(&mut ());
        started
    }

    #[track_caller]
    pub(crate) fn put(&mut self, at: usize, epoch: EpochId, target: (usize, u64), values: &[u64]) {
        let memory = Memory::new(values.to_vec());
        assert_eq!(self.operate(at, epoch, target, Action::Put, memory, None), Ok(None));
    }

    #[track_caller]
    pub(crate) fn get(&mut self, at: usize, epoch: EpochId, target: (usize, u64), len: usize) -> RequestId {
        let memory = Memory::new(vec![0_u64; len]);
        self.operate(at, epoch, target, Action::Get, memory, None).unwrap().unwrap()
    }

    /// Waits for an operation, and returns its memory.
    #[track_caller]
    pub(crate) fn values(&mut self, at: usize, request: RequestId) -> Vec<u64> {
        let completion = self.complete(at, request);
        assert_eq!(completion.result, Ok(()), "rank {at}");
        completion.memory.unwrap().into_vec::<u64>().unwrap()
    }

    /// Returns a word of a rank's own part.
    pub(crate) fn word(&self, at: usize, displacement: usize) -> u64 {
        let mut bytes = [0; 8];
        self.engines[at].stack().read(self.window, displacement * 8, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[track_caller]
    pub(crate) fn flush(&mut self, at: usize, epoch: EpochId, target: Option<usize>) -> RequestId {
        self.call(at, |windows, link| windows.flush(link, epoch, target.map(rank), NEVER)).unwrap()
    }
}
