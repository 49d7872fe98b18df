//! Messages between two engines in one thread over the loopback port: the cost of engine and link, without a network.

#![allow(missing_docs, reason = "criterion's macros make items without")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use samite_fabric::loopback::{Hub, Loopback};
use samite_fabric::{Memory, Port};
use samite_p2p::{Config, Engine, Identity, Outcome, Pattern, RequestId, Time, WorldRank};

const NEVER: Time = Time::NEVER;
const CONTEXT: u32 = 1;
const TAG: u64 = 5;

type Pair = [Engine<Loopback>; 2];

/// Sends messages of four lengths from rank 0 to a posted receive of rank 1, eager or by rendezvous.
fn cross(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("message");
    for bytes in [8, 1 << 10, 64 << 10, 1 << 20] {
        let mut pair = pair();
        let mut memory = [Some(Memory::zeroed(bytes)), Some(Memory::zeroed(bytes))];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter(|| memory = exchange(&mut pair, memory.each_mut().map(Option::take)));
        });
    }
    group.finish();
}

/// Polls an engine that has nothing to do.
fn poll(criterion: &mut Criterion) {
    let [mut engine, _other] = pair();
    criterion.bench_function("poll, idle", |bencher| {
        bencher.iter(|| engine.poll(Time::ZERO, &mut ()).expect("the port works"));
    });
}

fn exchange(pair: &mut Pair, memory: [Option<Memory>; 2]) -> [Option<Memory>; 2] {
    let [from, into] = memory.map(|memory| memory.expect("it came back"));
    let into = pair[1].irecv(Time::ZERO, Pattern::exact(CONTEXT, 0, TAG), into, NEVER).expect("it is posted");
    let from = pair[0].isend(Time::ZERO, WorldRank(1), CONTEXT, TAG, from, NEVER).expect("it is posted");
    let into = end(pair, 1, into);
    [end(pair, 0, from), into]
}

fn end(pair: &mut Pair, rank: usize, request: RequestId) -> Option<Memory> {
    while pair[rank].outcome(request) == Outcome::Pending {
        for engine in &mut *pair {
            engine.poll(Time::ZERO, &mut ()).expect("the port works");
        }
    }
    let completion = pair[rank].collect(request, &mut ()).expect("it has ended");
    completion.result.expect("it has succeeded");
    completion.memory
}

fn pair() -> Pair {
    let hub = Hub::new();
    let ports = [hub.port(), hub.port()];
    let addresses = ports.each_ref().map(Port::address);
    let mut rank = 0;
    ports.map(|port| {
        let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 1, secret: [9; 16] };
        rank += 1;
        let mut engine = Engine::new(port, identity, Config::default());
        for (rank, address) in (0..).zip(&addresses) {
            engine.introduce(WorldRank(rank), 1, address.clone()).expect("it is a rank");
        }
        engine
    })
}

criterion_group!(messages, cross, poll);
criterion_main!(messages);
