//! Sums of 1 MiB that have the same bits again, beside usual sums: by one thread, and by two ranks of a process.

#![allow(missing_docs, reason = "criterion's macros make items without")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use samite::Element;
use samite::reduction::{BinnedSum, ReduceOp, Sum, reproducible};

const BYTES: usize = 1 << 20;

fn numbers() -> Vec<f64> {
    (0..BYTES / size_of::<f64>()).map(|index| 1.0 / (index as f64 + 0.5)).collect()
}

/// Adds numbers without a communicator.
fn one_thread(criterion: &mut Criterion) {
    let numbers = numbers();
    let mut group = criterion.benchmark_group("sum of 1 MiB");
    group.bench_function("usual", |bencher| bencher.iter(|| numbers.iter().sum::<f64>()));
    group.bench_function("binned", |bencher| {
        bencher.iter(|| numbers.iter().copied().collect::<BinnedSum>().value());
    });
    group.finish();
}

/// Reduces slices of 1 MiB.
fn two_ranks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allreduce of 1 MiB");
    group.bench_function("usual", |bencher| bencher.iter_custom(|count| allreduce(count, &numbers(), Sum)));
    group.bench_function("reproducible", |bencher| {
        bencher.iter_custom(|count| allreduce(count, &numbers(), reproducible(Sum)));
    });
    let sums: Vec<_> = numbers().into_iter().map(|number| BinnedSum::from_iter([number])).collect();
    let sums = &sums[..BYTES / size_of::<BinnedSum>()];
    group.bench_function("binned", |bencher| bencher.iter_custom(|count| allreduce(count, sums, Sum)));
    group.finish();
}

/// Returns the time that `count` reductions of `numbers` take at two ranks.
fn allreduce<T: Element>(count: u64, numbers: &[T], op: impl ReduceOp<T> + Copy) -> Duration {
    let numbers = numbers.to_vec();
    let times = samite::local(2, move |world| {
        let comm = world.comm();
        let mut results = numbers.clone();
        comm.barrier()?;
        #[expect(clippy::disallowed_methods, reason = "this is where time is measured")]
        let start = Instant::now();
        for _ in 0..count {
            comm.allreduce(&numbers, &mut results, op)?;
        }
        Ok::<_, samite::Error>(start.elapsed())
    });
    times.into_iter().map(|time| time.expect("no rank fails")).max().expect("there are ranks")
}

criterion_group!(benches, one_thread, two_ranks);
criterion_main!(benches);
