//! A hostile member that sends forged and arbitrary messages of collective operations, beside two honest ranks that
//! carry out such operations with each other and with it.

use std::sync::Arc;

use samite_coll::algorithms::exchange::{Transfer, all_pairs};
use samite_coll::algorithms::{allgather, allreduce, barrier, bcast, gather};
use samite_coll::{Blocks, Call, Check, Collective, Failed, OwnedBuffers, Place, Plan};
use samite_fabric::loopback::{Hub, Loopback};
use samite_fabric::{Memory, Port};
use samite_p2p::{COLLECTIVE_TAG, Config, Engine, Fate, Group, Identity, Time, WorldRank};

use crate::forge::SECRET;
use crate::input::Input;

const HOSTILE: usize = 0;
const HONEST: [usize; 2] = [1, 2];
const SIZE: u32 = 3;
const CONTEXT: u32 = 0;
/// The bytes of an element.
const ELEMENT: usize = 4;
/// The number of elements of each rank.
const LEN: usize = 3;
/// The number of polls within which an operation of the honest ranks must have ended.
const POLLS_MAX: usize = 1000;

/// Runs the program of `bytes`.
///
/// # Panics
/// If an operation of the honest ranks alone fails or has a wrong result, or an operation with the hostile rank panics.
pub fn collective(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new();
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.finish();
}

struct Run {
    engines: Vec<Engine<Loopback>>,
    /// The operation under way at each honest rank.
    operations: Vec<Collective<OwnedBuffers>>,
    /// True if the hostile rank takes part in it.
    has_hostile: bool,
    /// The number of the next operation.
    number: u32,
}

impl Run {
    fn new() -> Self {
        let hub = Hub::new();
        let ports: Vec<_> = (0..SIZE).map(|_| hub.port()).collect();
        let addresses: Vec<_> = ports.iter().map(Port::address).collect();
        // The context of the world has members in their first incarnation.
        let identity = |rank| {
            let identity = Identity { rank: WorldRank(rank), size: SIZE, incarnation: 0, secret: SECRET };
            Identity { incarnation: identity.first_incarnation(WorldRank(rank)).get(), ..identity }
        };
        let engine = |(rank, port)| {
            let mut engine = Engine::new(port, identity(rank), Config::default());
            for (other, address) in (0..).zip(&addresses) {
                engine
                    .introduce(WorldRank(other), identity(other).incarnation, address.clone())
                    .expect("a rank of the job");
            }
            engine
        };
        let engines = (0..).zip(ports).map(engine).collect();
        Self { engines, operations: Vec::new(), has_hostile: false, number: 0 }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0..=3 => self.forge(input),
            4 => self.begin(false, input.byte()),
            5 => self.begin(true, input.byte()),
            _ => (0..=input.below(8)).for_each(|_| self.poll()),
        }
    }

    /// Sends a message of a collective operation from the hostile rank. Its number, round, length and content may be
    /// right.
    fn forge(&mut self, input: &mut Input<'_>) {
        let to = WorldRank(HONEST[input.below(2)] as u32);
        let number = self.number.wrapping_add(2).wrapping_sub(input.below(4) as u32);
        let round = [0, 1, 2, u32::MAX, u32::MAX - 1, 7][input.below(6)];
        let tag = COLLECTIVE_TAG | u64::from(number & ((1 << 29) - 1)) << 32 | u64::from(round);
        let len = [0, ELEMENT, 2 * ELEMENT, LEN * ELEMENT, 8, 7, 200][input.below(7)];
        let mut content = input.take(len).to_vec();
        content.resize(len, 0);
        let engine = &mut self.engines[HOSTILE];
        let _ = engine.send_detached(Time::ZERO, to, CONTEXT, tag, Memory::new(content));
    }

    /// Ends the operation under way, and begins another one at both honest ranks.
    fn begin(&mut self, has_hostile: bool, kind: u8) {
        self.finish();
        let group =
            if has_hostile { Group::range(WorldRank(0), SIZE) } else { Group::range(WorldRank(1), SIZE - 1) };
        self.has_hostile = has_hostile;
        for rank in HONEST {
            let mine = WorldRank(rank as u32);
            let at = Place::new(group.index(mine).expect("a member"), group.len());
            let (plan, check) = (plan(kind, at), (kind & 64 != 0).then(check));
            let buffers = buffers(&plan, at);
            let (group, number) = (group.clone(), self.number);
            let (context, element, deadline) = (CONTEXT, ELEMENT, Time::NEVER);
            let series = samite_coll::Series::Program;
            let call = Call {
                plan: &plan,
                group,
                context,
                series,
                number,
                element,
                deadline,
                check,
                checked_ends: None,
            };
            let engine = &mut self.engines[rank];
            self.operations.push(Collective::begin(engine, Time::ZERO, call, mine, buffers));
        }
        self.number += 1;
    }

    fn poll(&mut self) {
        self.engines[HOSTILE].poll(Time::ZERO, &mut ()).expect("the port works");
        for rank in HONEST {
            let engine = &mut self.engines[rank];
            match self.operations.get_mut(rank - HONEST[0]) {
                None => drop(engine.poll(Time::ZERO, &mut ()).expect("the port works")),
                Some(operation) => {
                    engine.poll(Time::ZERO, operation).expect("the port works");
                    operation.advance(engine);
                    operation.attend(engine);
                }
            }
        }
    }

    /// Ends the operation under way. Without the hostile rank it succeeds.
    fn finish(&mut self) {
        for _ in 0..POLLS_MAX {
            if self.has_hostile || self.operations.iter().all(Collective::has_ended) {
                break;
            }
            self.poll();
        }
        let ended = std::mem::take(&mut self.operations);
        for (rank, mut operation) in HONEST.into_iter().zip(ended) {
            operation.quit(&mut self.engines[rank], samite_p2p::Error::Cancelled { fate: Fate::Unknown });
            let result = operation.take_result().expect("it has ended");
            if self.has_hostile {
                assert!(matches!(result, Ok(()) | Err(Failed::Error(_))), "no reduction panics");
                continue;
            }
            assert!(matches!(result, Ok(())), "an operation of honest ranks: {result:?}");
            let output = operation.into_buffers().output;
            // Each element of the honest ranks has the same value.
            assert!(output.as_bytes().iter().all(|byte| *byte == 1 || *byte == 2), "{output:?}");
        }
    }
}

/// Returns the operation of a rank.
fn plan(kind: u8, at: Place) -> Plan {
    let (blocks, len, in_place) = (Blocks::Equal(LEN), LEN, false);
    match kind % 6 {
        0 => Plan::Barrier(barrier::Algorithm::Dissemination),
        1 => Plan::Bcast { algorithm: bcast::Algorithm::KNomial { k: 2 }, root: 0, len },
        2 => Plan::Allgather { algorithm: allgather::Algorithm::Bruck, blocks, in_place },
        3 => {
            let algorithm = allreduce::Algorithm::RecursiveDoubling;
            Plan::Allreduce { algorithm, len, commutes: false, in_place }
        }
        4 => Plan::Gather { algorithm: gather::Algorithm::Binomial, root: 1, blocks, len, in_place },
        _ => {
            let block = |rank: u32| rank as usize..rank as usize + 1;
            let [sends, receives]: [Arc<[Transfer]>; 2] = all_pairs(at, block, block);
            Plan::Exchange { sends, receives }
        }
    }
}

/// Returns buffers whose bytes are 1.
fn buffers(plan: &Plan, at: Place) -> OwnedBuffers {
    let bytes = [plan.input(at), plan.output(at), plan.scratch(at)].map(|len| len * ELEMENT);
    let [input, output, scratch] = bytes.map(|len| Memory::new(vec![1_u8; len]));
    let reduce = |from: &[u8], into: &mut [u8]| {
        for (from, into) in from.iter().zip(into) {
            *into = 2.min(from.saturating_add(*into));
        }
    };
    let lens = [bytes[0], bytes[1]];
    OwnedBuffers { input, output, scratch, lens, reduce: Arc::new(reduce), layouts: None }
}

/// Returns a check in which all honest ranks agree.
fn check() -> Check {
    fn merge(from: &[u8], into: &mut [u8]) {
        if from != into {
            into.fill(9);
        }
    }
    Check { record: vec![5; 8], merge, difference: |record| (record != [5; 8]).then(|| "different".into()) }
}
