//! Matching at several depths, on every structure.

#![allow(missing_docs, reason = "criterion's macros make items without")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use samite_matching::{
    Adaptive, Arrival, BTree, Config, Envelope, FourD, LinkedList, Matcher, Pattern, Posting, RankArray,
    Structure,
};

const DEPTHS: [u32; 4] = [1, 16, 256, 4096];

/// Queues one message from each rank. Receives take the messages in reverse order.
fn ranks<S: Structure>(criterion: &mut Criterion, structure: &str) {
    reverse::<S>(criterion, &format!("ranks/{structure}"), |number| (number, 0));
}

/// Queues messages of one rank, each with its own tag. Receives take the messages in reverse order.
fn tags<S: Structure>(criterion: &mut Criterion, structure: &str) {
    reverse::<S>(criterion, &format!("tags/{structure}"), |number| (0, u64::from(number)));
}

fn reverse<S: Structure>(criterion: &mut Criterion, name: &str, key: fn(u32) -> (u32, u64)) {
    let mut group = criterion.benchmark_group(name);
    for depth in DEPTHS {
        group.throughput(Throughput::Elements(u64::from(depth)));
        group.bench_function(BenchmarkId::from_parameter(depth), |bencher| {
            bencher.iter_batched_ref(
                || full::<S>(depth, key),
                |matcher| empty(matcher, depth, key),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn full<S: Structure>(depth: u32, key: fn(u32) -> (u32, u64)) -> Matcher<u32, u32, S> {
    let mut matcher = Matcher::new(&Config { ranks: depth, ..Config::default() });
    for number in 0..depth {
        let (source, tag) = key(number);
        assert!(matches!(matcher.arrive(Envelope::new(0, source, tag), || number), Arrival::Queued(_)));
    }
    matcher
}

fn empty<S: Structure>(matcher: &mut Matcher<u32, u32, S>, depth: u32, key: fn(u32) -> (u32, u64)) {
    for number in (0..depth).rev() {
        let (source, tag) = key(number);
        assert!(matches!(matcher.post(Pattern::exact(0, source, tag), number), Posting::Matched { .. }));
    }
}

fn all(criterion: &mut Criterion) {
    ranks::<LinkedList>(criterion, "LinkedList");
    ranks::<RankArray>(criterion, "RankArray");
    ranks::<BTree>(criterion, "BTree");
    ranks::<FourD>(criterion, "FourD");
    ranks::<Adaptive>(criterion, "Adaptive");
    tags::<LinkedList>(criterion, "LinkedList");
    tags::<Adaptive>(criterion, "Adaptive");
}

criterion_group!(benches, all);
criterion_main!(benches);
