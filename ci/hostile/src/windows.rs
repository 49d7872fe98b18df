//! A hostile member of a window that sends forged packets to an honest rank, which makes calls on the window, and which
//! another honest rank uses.

use samite_fabric::layout::Form;
use samite_fabric::link::{
    Cause, Config as LinkConfig, Engine, Group, Identity, RequestId, Time, WorldRank, first_incarnation,
};
use samite_fabric::loopback::{Hub, Loopback};
use samite_fabric::wire::{Flags, Header, Numbers, Protocol};
use samite_fabric::{Memory, Port, Region, Sink};
use samite_rma::{
    Action, Assertions, Attached, Completion, Config, ElementType, EpochId, Hints, LockKind, Name, Part,
    Places, Reduction, Target, WindowId, Windows,
};
use zerocopy::IntoBytes;

use crate::forge::SECRET;
use crate::input::Input;

/// The rank that gets the forged packets.
const HONEST: usize = 0;
const HOSTILE: usize = 1;
const OTHER: usize = 2;
const SIZE: u32 = 3;
/// The number of words of a part: so many that reads and writes of it need more than one packet.
const WORDS: usize = 1100;
/// The number of kinds of packets, and one more.
const KINDS: usize = 29;
/// The kind of the packet of a whole epoch.
const EPOCH: u8 = 24;
/// The number of polls within which the honest ranks must have completed an epoch.
const POLLS_MAX: usize = 1000;

/// Runs the program of `bytes`.
///
/// # Panics
/// If an invariant of the honest ranks is broken, or if they cannot use the window together afterwards.
pub fn windows(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let hints = Hints { aggregate: input.below(2) == 0, ..Hints::default() };
    let mut run = Run::new(hints, input.below(3) == 0);
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.finish();
}

struct Run {
    engines: Vec<Engine<Loopback, Windows>>,
    window: WindowId,
    /// The memory of each rank, if the window is dynamic.
    attached: Option<Attached>,
    /// Memory that the honest rank detaches.
    detached: Option<Attached>,
    /// The sequence number of the next forged packet.
    sequence: u32,
    /// The open epochs and the requests of the honest rank.
    epochs: Vec<EpochId>,
    requests: Vec<RequestId>,
    fence: Option<EpochId>,
}

impl Run {
    fn new(hints: Hints, is_dynamic: bool) -> Self {
        let hub = Hub::new();
        let ports: Vec<_> = (0..SIZE).map(|_| hub.port()).collect();
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        let link = LinkConfig {
            credit_max: 1 << 20,
            window_min: 1 << 16,
            window_max: 1 << 20,
            questions_max: 50,
            answers_max: 100,
            quarantine_max: 0,
            gathered_max: 0,
            registered_max: 0,
            gathered_ns: 0,
        };
        let first = |rank| first_incarnation(&SECRET, WorldRank(rank));
        let (mut window, mut attached) = (WindowId::default(), None);
        let engine = |(rank, port)| {
            let (incarnation, rank) = (first(rank), WorldRank(rank));
            let identity = Identity { rank, size: SIZE, incarnation, secret: SECRET };
            let mut engine = Engine::new(port, identity, link.clone(), Windows::new(Config::default()));
            for (other, address) in (0..SIZE).zip(&addresses) {
                engine.introduce(WorldRank(other), first(other), address.clone()).expect("it is a rank");
            }
            let (out, windows) = engine.parts();
            let region = Region::new(Memory::new(vec![0_u64; WORDS]));
            let (name, all) = (Name { communicator: 1, number: 1 }, Group::range(WorldRank(0), SIZE));
            let created = match is_dynamic {
                true => windows.create_dynamic(out.link, name, all, hints),
                false => windows.create(out.link, name, all, Part::whole(region.clone(), 8), hints),
            };
            window = created.expect("the first window");
            // It has the same name at all ranks.
            attached =
                is_dynamic.then(|| windows.attach_memory(window, region).expect("the window is dynamic"));
            engine
        };
        let engines = (0..SIZE).zip(ports).map(engine).collect();
        let (sequence, detached, fence) = (0, None, None);
        let (epochs, requests) = (Vec::new(), Vec::new());
        let mut run = Self { engines, window, attached, detached, sequence, epochs, requests, fence };
        // The hostile rank has met the honest one.
        run.transact(HOSTILE);
        let peer = run.engines[HONEST].link_mut().find(WorldRank(HOSTILE as u32)).expect("they have met");
        run.sequence = run.engines[HONEST].link().peer(peer).expected();
        run
    }

    /// Polls ranks once.
    fn poll(&mut self, ranks: &[usize]) {
        for at in ranks {
            let engine = &mut self.engines[*at];
            let (out, windows) = engine.parts();
            windows.urge(out.link);
            engine.poll(Time::ZERO, &mut ()).expect("loopback does not break");
            engine.check_invariants();
            engine.stack().check_invariants();
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(4) {
            0 | 1 => self.forge(input),
            2 => self.call(input),
            _ => self.poll(&[HONEST, OTHER]),
        }
        self.engines[HONEST].check_invariants();
        self.engines[HONEST].stack().check_invariants();
    }

    /// Passes a forged packet to the honest rank.
    fn forge(&mut self, input: &mut Input<'_>) {
        let first = |rank: usize| first_incarnation(&SECRET, WorldRank(rank as u32));
        let peer = self.engines[HONEST].link_mut().find(WorldRank(HOSTILE as u32)).expect("they have met");
        let numbers = Numbers {
            sender: peer.index() as u32,
            incarnation: first(HOSTILE),
            sequence: self.sequence,
            ack: 1,
            grant: 0,
            to: first(HONEST) as u16,
            context: if input.below(16) == 0 { input.u32() } else { 0 },
        };
        let kind = input.below(KINDS) as u8;
        let mut packet = Header::with(Protocol::Rma, kind, Flags::empty(), numbers).as_bytes().to_vec();
        // Most packets begin with the generation of the window.
        let generation = if input.below(16) == 0 { input.u32() } else { 1 };
        packet.extend(generation.to_le_bytes());
        packet.extend(input.take(4));
        for _ in 0..input.below(8) {
            let requests = self.requests.len();
            let word = match input.below(4) {
                0 => input.u64(),
                1 if requests > 0 => self.requests[input.below(requests)].to_wire(),
                2 if input.below(2) == 0 => self.start_of_memory() + 8 * input.below(4) as u64,
                _ => input.below(5) as u64,
            };
            packet.extend(word.to_le_bytes());
        }
        if kind == EPOCH {
            add_operations(input, self.start_of_memory(), &mut packet);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.engines[HONEST].sink(&mut ()).packet(&packet);
        self.engines[HONEST].drive(&mut ());
    }

    /// Returns the place of the first byte of a rank's memory.
    fn start_of_memory(&self) -> u64 {
        self.attached.map_or(0, |attached| attached.place)
    }

    /// Returns a place of an operation, given by its word.
    fn place(&self, rank: WorldRank, word: u64) -> Places<'static> {
        match self.attached {
            None => Target { rank, displacement: word }.into(),
            Some(attached) => Places::from(Target { rank, displacement: word * 8 }).within(attached),
        }
    }

    /// Detaches memory of the honest rank, or attaches it.
    fn change_memory(&mut self) {
        let window = self.window;
        let (out, windows) = self.engines[HONEST].parts();
        match self.detached.take() {
            Some(attached) => {
                let region = windows.detach_memory(out.link, window, attached).expect("it is attached");
                region.reclaim().expect("no other holder of the memory exists");
            }
            None => {
                let region = Region::new(Memory::new(vec![0_u64; WORDS]));
                self.detached = windows.attach_memory(window, region).ok();
            }
        }
    }

    /// Makes a call at the honest rank. Calls that are not permitted return errors.
    fn call(&mut self, input: &mut Input<'_>) {
        let window = self.window;
        let rank = WorldRank([HOSTILE, OTHER][input.below(2)] as u32);
        let group = Group::range(WorldRank(HOSTILE as u32), 1 + input.below(2) as u32);
        let number = input.below(self.epochs.len().max(1));
        if self.attached.is_some() && input.below(8) == 0 {
            return self.change_memory();
        }
        let word = self.place(rank, input.below(WORDS + 1) as u64);
        let (mut out, windows) = self.engines[HONEST].parts();
        let link = &mut *out.link;
        match input.below(10) {
            0 => self.epochs.extend(windows.start(link, window, &group)),
            1 => self.epochs.extend(windows.post(link, window, &group)),
            2 => self.epochs.extend(windows.lock(link, window, rank, LockKind::Exclusive)),
            3 => self.epochs.extend(windows.lock_all(link, window)),
            4 => {
                let assertions = Assertions::from_bits_truncate(input.below(4) as u8);
                if let Ok(fenced) = windows.fence(link, window, assertions, Time::NEVER) {
                    self.requests.extend(fenced.completion);
                    self.fence = fenced.epoch;
                }
            }
            5 if number < self.epochs.len() => {
                let epoch = self.epochs.swap_remove(number);
                self.requests.extend(windows.close(link, epoch, Time::NEVER));
            }
            6 => {
                if let Some(request) = self.requests.get(input.below(self.requests.len().max(1))) {
                    windows.cancel(link, *request);
                }
            }
            7 => {
                if let Some(request) = self.requests.pop() {
                    windows.detach(request);
                }
            }
            _ => {
                let epoch = self.epochs.get(number).copied().or(self.fence);
                let (op, element) = (Reduction::Sum, ElementType::U64);
                let action =
                    [Action::Put, Action::Get, Action::GetAccumulate { op, element }][input.below(3)];
                if let Some(epoch) = epoch {
                    let count = [2, WORDS][input.below(2)];
                    let memory = Memory::new(vec![1_u64; count]);
                    let form =
                        Form::block(8).and_then(|word| word.strided(count, [8, 16, -8][input.below(3)]));
                    let places = word.with_form(form.as_ref().expect("a form of few words"));
                    let started = windows.operate(&mut out, epoch, places, action, memory, None);
                    self.requests.extend(started.ok().flatten());
                }
            }
        }
        self.engines[HONEST].drive(&mut ());
    }

    /// Writes a word of the honest rank's part under an exclusive lock, and waits.
    fn transact(&mut self, at: usize) {
        let (window, target) = (self.window, WorldRank(HONEST as u32));
        let (place, word) = (self.place(target, at as u64), Memory::new(vec![at as u64]));
        let (mut out, windows) = self.engines[at].parts();
        let epoch = windows.lock(out.link, window, target, LockKind::Exclusive).expect("no epoch is open");
        windows.operate(&mut out, epoch, place, Action::Put, word, None).expect("a word of the part");
        let close = windows.close(out.link, epoch, Time::NEVER).expect("the epoch is open");
        self.engines[at].drive(&mut ());
        for _ in 0..POLLS_MAX {
            if let Some(Completion { result, .. }) = self.engines[at].stack_mut().collect(close) {
                return assert_eq!(result, Ok(()), "rank {at}");
            }
            self.poll(if at == HOSTILE { &[HONEST, HOSTILE] } else { &[HONEST, OTHER] });
        }
        panic!("the epoch of rank {at} does not complete");
    }

    /// Ends the hostile rank, and lets the other honest rank use the window.
    fn finish(mut self) {
        for at in [HONEST, OTHER] {
            let cause = Cause::Died("it was hostile".into());
            self.engines[at].peer_failed(WorldRank(HOSTILE as u32), None, cause).expect("it is a rank");
        }
        self.transact(OTHER);
        let mut word = [0; 8];
        let (window, attached) = (self.window, self.attached);
        let (out, windows) = self.engines[HONEST].parts();
        match attached {
            None => windows.read(window, OTHER * 8, &mut word).expect("a word of the part"),
            Some(attached) => {
                let region = windows.attached(out.link, window, attached).expect("it is attached");
                region.copy_out(OTHER * 8, &mut word).expect("a word of the region");
            }
        }
        assert_eq!(u64::from_ne_bytes(word), OTHER as u64);
    }
}

/// Makes a packet an epoch with operations, most of which are valid.
fn add_operations(input: &mut Input<'_>, start: u64, packet: &mut Vec<u8>) {
    packet.truncate(Header::LEN + size_of::<u64>());
    for _ in 0..2 {
        packet.extend((input.below(5) as u64).to_le_bytes());
    }
    for _ in 0..input.below(4) {
        let kind = 2 + input.below(6) as u32;
        // The place, the wanted bytes, and the operands of a word, each only in packets of some kinds.
        let (wanted, operands) = [(0, 8), (0, 8), (20, 0), (20, 8), (20, 16), (0, 0)][kind as usize - 2];
        let len = 16 + wanted + operands + if input.below(16) == 0 { input.below(64) as u32 } else { 0 };
        let generation = if input.below(16) == 0 { input.u32() } else { 1 };
        let (op, element) = (input.below(16) as u8, input.below(22) as u8);
        let at = start + 8 * input.below(WORDS + 1) as u64;
        packet.extend([kind, len, generation].iter().flat_map(|word| word.to_le_bytes()));
        packet.extend([op, element, 0, 0]);
        packet.extend(at.to_le_bytes());
        if wanted > 0 {
            packet.extend([0; 16]);
            packet.extend(8_u32.to_le_bytes());
        }
        packet.extend(input.take(operands as usize));
    }
}
