//! Floating-point sums have the same bits whatever the algorithm, if the reduction is not said to commute.

use std::collections::{HashMap, VecDeque};

use samite_coll::algorithms::{allreduce, reduce, reduce_scatter};
use samite_coll::{Blocks, Buffer, Place, Plan, Span, Step, Steps};

/// The buffers of a rank and its remaining steps.
struct Rank {
    buffers: [Vec<f64>; 3],
    steps: std::iter::Peekable<Steps>,
    /// The messages that the rank will receive at its next wait.
    awaited: Vec<(u32, u32, Span)>,
}

/// The messages under way, by sender, receiver and round.
type Messages = HashMap<(u32, u32, u32), VecDeque<Vec<f64>>>;

impl Rank {
    fn new(plan: &Plan, at: Place, contribution: &[f64]) -> Self {
        let mut buffers = [plan.input(at), plan.output(at), plan.scratch(at)].map(|len| vec![f64::NAN; len]);
        let own = if buffers[0].is_empty() { Buffer::Output } else { Buffer::Input };
        buffers[own as usize].copy_from_slice(contribution);
        Self { buffers, steps: plan.steps(at).peekable(), awaited: Vec::new() }
    }

    fn read(&self, span: Span) -> Vec<f64> {
        self.buffers[span.buffer as usize][span.start..span.end()].to_vec()
    }

    fn write(&mut self, span: Span, data: &[f64]) {
        self.buffers[span.buffer as usize][span.start..span.end()].copy_from_slice(data);
    }

    /// Takes steps until the rank must wait for a message that was not sent yet. Returns true if it took any step.
    fn advance(&mut self, rank: u32, messages: &mut Messages) -> bool {
        let mut has_moved = false;
        while let Some(step) = self.steps.peek().copied() {
            match step {
                Step::Send { to, round, from } => {
                    messages.entry((rank, to, round)).or_default().push_back(self.read(from));
                }
                Step::Receive { from, round, into } => self.awaited.push((from, round, into)),
                Step::Copy { from, into } => self.write(into, &self.read(from)),
                Step::Reduce { from, into } => {
                    let pairs = self.read(from).into_iter().zip(self.read(into));
                    let sums: Vec<f64> = pairs.map(|(left, right)| left + right).collect();
                    self.write(into, &sums);
                }
                Step::Wait { .. } => {
                    while let Some(&(from, round, into)) = self.awaited.first() {
                        let arrived = messages.get_mut(&(from, rank, round)).and_then(VecDeque::pop_front);
                        let Some(data) = arrived else { return has_moved };
                        self.write(into, &data);
                        self.awaited.remove(0);
                        has_moved = true;
                    }
                }
            }
            self.steps.next();
            has_moved = true;
        }
        has_moved
    }
}

/// Carries out an operation and returns the outputs of all ranks.
fn run(plan: &Plan, contributions: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let size = contributions.len() as u32;
    let mut ranks: Vec<_> = (0..size)
        .map(|rank| Rank::new(plan, Place::new(rank, size), &contributions[rank as usize]))
        .collect();
    let mut messages = Messages::new();
    while (0..)
        .zip(&mut ranks)
        .fold(false, |moved, (number, rank)| rank.advance(number, &mut messages) | moved)
    {}
    assert!(ranks.iter_mut().all(|rank| rank.steps.peek().is_none()), "{plan:?} does not end");
    ranks.into_iter().map(|rank| rank.buffers.into_iter().nth(Buffer::Output as usize).unwrap()).collect()
}

/// Returns numbers of very different size, most of which nearly cancel a number of another rank.
fn contributions(size: u32, len: usize) -> Vec<Vec<f64>> {
    let mut state = u64::from(size);
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    let mut all = vec![Vec::new(); size as usize];
    for _ in 0..len {
        let mut column: Vec<f64> = Vec::new();
        for rank in 0..size as usize {
            let number = (random() as f64 - (1_u64 << 52) as f64) * 2_f64.powi((random() % 60) as i32);
            let cancelled = -column.get(random() as usize % size as usize).unwrap_or(&number);
            column.push(if random().is_multiple_of(3) { number } else { cancelled * (1.0 + f64::EPSILON) });
            all[rank].push(column[rank]);
        }
    }
    all
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn every_algorithm_has_the_same_bits() {
    let commutes = false;
    let mut inexact = 0;
    for size in 1..=33_u32 {
        // Each element is a random input. The elements can be divided among the ranks.
        let len = 1000_usize.next_multiple_of(size as usize);
        let all = contributions(size, len);
        let algorithm = allreduce::Algorithm::RecursiveDoubling;
        let expected = run(&Plan::Allreduce { algorithm, len, commutes, in_place: false }, &all);
        inexact += (0..len)
            .filter(|index| {
                let in_order: f64 = all.iter().map(|numbers| numbers[*index]).sum();
                in_order.to_bits() != expected[0][*index].to_bits()
            })
            .count();
        let expected = bits(&expected[0]);
        for in_place in [false, true] {
            for algorithm in [allreduce::Algorithm::RecursiveDoubling, allreduce::Algorithm::Rabenseifner] {
                let found = run(&Plan::Allreduce { algorithm, len, commutes, in_place }, &all);
                assert!(found.iter().all(|found| bits(found) == expected), "{algorithm:?}, {size} ranks");
            }
            let algorithm = reduce_scatter::Algorithm::Pairwise;
            let blocks = Blocks::Equal(len / size as usize);
            let mut found = run(&Plan::ReduceScatter { algorithm, blocks, commutes, in_place }, &all);
            found.iter_mut().for_each(|output| output.truncate(len / size as usize));
            assert!(bits(&found.concat()) == expected, "{algorithm:?}, {size} ranks");
        }
        for root in 0..size {
            let algorithm = reduce::Algorithm::Binomial;
            let plan = Plan::Reduce { algorithm, root, len, commutes, in_place: false };
            assert!(bits(&run(&plan, &all)[root as usize]) == expected, "{size} ranks, root {root}");
        }
    }
    assert!(inexact > 1000, "{inexact} sums depend on the order of their elements");
}
