//! Reductions that have the same bits for every algorithm, carried out without messages.

use std::collections::{HashMap, VecDeque};
use std::iter::Peekable;

use samite_coll::algorithms::{allreduce, reduce, reduce_scatter};
use samite_coll::{Blocks, Buffer, Place, Plan, Span, Step, Steps};

use super::{BinnedSum, ReduceOp, Sum, reproducible};

/// The buffers of a rank and its remaining steps.
struct Rank<T> {
    buffers: [Vec<T>; 3],
    steps: Peekable<Steps>,
    /// The messages that the rank receives at its next wait: their senders, rounds and places.
    awaited: VecDeque<(u32, u32, Span)>,
}

/// The messages under way, by sender, receiver and round.
type Messages<T> = HashMap<(u32, u32, u32), VecDeque<Vec<T>>>;

impl<T: Copy + Default> Rank<T> {
    fn new(plan: &Plan, at: Place, contribution: &[T]) -> Self {
        let lens = [plan.input(at), plan.output(at), plan.scratch(at)];
        let mut buffers = lens.map(|len| vec![T::default(); len]);
        let own = if lens[0] == 0 { Buffer::Output } else { Buffer::Input };
        buffers[own as usize].copy_from_slice(contribution);
        Self { buffers, steps: plan.steps(at).peekable(), awaited: VecDeque::new() }
    }

    fn read(&self, span: Span) -> Vec<T> {
        self.buffers[span.buffer as usize][span.start..span.end()].to_vec()
    }

    fn place(&mut self, span: Span) -> &mut [T] {
        &mut self.buffers[span.buffer as usize][span.start..span.end()]
    }

    /// Takes steps until the rank must wait for a message that was not sent yet. Returns true if it took any step.
    fn advance(&mut self, rank: u32, messages: &mut Messages<T>, op: &impl ReduceOp<T>) -> bool {
        let mut has_moved = false;
        while let Some(step) = self.steps.peek().copied() {
            match step {
                Step::Send { to, round, from } => {
                    messages.entry((rank, to, round)).or_default().push_back(self.read(from));
                }
                // A publication is a message to no rank, and is not taken out.
                Step::Publish { piece, from } => {
                    messages.entry((rank, u32::MAX, piece)).or_default().push_back(self.read(from));
                }
                Step::Fetch { from, piece, whole, start, into } => {
                    let published = messages.get(&(from, u32::MAX, piece)).and_then(VecDeque::front);
                    let Some(data) = published else { return has_moved };
                    assert_eq!(data.len(), whole);
                    self.place(into).copy_from_slice(&data[start..start + into.len]);
                }
                Step::Receive { from, round, into } => self.awaited.push_back((from, round, into)),
                Step::Copy { from, into } => {
                    let data = self.read(from);
                    self.place(into).copy_from_slice(&data);
                }
                Step::Reduce { from, into } => op.reduce(&self.read(from), self.place(into)),
                Step::Wait { .. } => {
                    while let Some(&(from, round, into)) = self.awaited.front() {
                        let arrived = messages.get_mut(&(from, rank, round)).and_then(VecDeque::pop_front);
                        let Some(data) = arrived else { return has_moved };
                        self.place(into).copy_from_slice(&data);
                        self.awaited.pop_front();
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
fn run<T: Copy + Default>(plan: &Plan, all: &[Vec<T>], op: &impl ReduceOp<T>) -> Vec<Vec<T>> {
    let size = all.len() as u32;
    let rank = |(rank, own): (u32, &Vec<T>)| Rank::new(plan, Place::new(rank, size), own);
    let mut ranks: Vec<_> = (0..).zip(all).map(rank).collect();
    let mut messages = Messages::new();
    loop {
        let mut has_moved = false;
        for (number, rank) in (0..).zip(&mut ranks) {
            has_moved |= rank.advance(number, &mut messages, op);
        }
        if !has_moved {
            break;
        }
    }
    assert!(ranks.iter_mut().all(|rank| rank.steps.peek().is_none()), "{plan:?} does not end");
    ranks.into_iter().map(|rank| rank.buffers).map(|[_, output, _]| output).collect()
}

/// Asserts that every algorithm that suits the operation has the results that `expected` returns, in all operations
/// that give the results of all ranks.
#[track_caller]
fn check<T: Copy + Default + PartialEq>(expected: &[T], all: &[Vec<T>], op: &impl ReduceOp<T>) {
    let (size, len, commutes) = (all.len() as u32, expected.len(), op.commutes());
    for in_place in [false, true] {
        let ring = commutes.then_some(allreduce::Algorithm::Ring);
        let board = allreduce::Algorithm::Board { piece: 7 };
        let others = [allreduce::Algorithm::RecursiveDoubling, allreduce::Algorithm::Rabenseifner, board];
        for algorithm in others.into_iter().chain(ring) {
            let found = run(&Plan::Allreduce { algorithm, len, commutes, in_place }, all, op);
            assert!(found.iter().all(|found| found == expected), "{algorithm:?}, {size} ranks");
        }
        let halving = commutes.then_some(reduce_scatter::Algorithm::RecursiveHalving);
        for algorithm in [reduce_scatter::Algorithm::Pairwise].into_iter().chain(halving) {
            let block = len / size as usize;
            let blocks = Blocks::Equal(block);
            let mut found = run(&Plan::ReduceScatter { algorithm, blocks, commutes, in_place }, all, op);
            found.iter_mut().for_each(|output| output.truncate(block));
            assert!(found.concat() == expected, "{algorithm:?}, {size} ranks");
        }
    }
    for root in [0, size / 2, size - 1] {
        let board = reduce::Algorithm::Board { piece: 7 };
        for algorithm in [reduce::Algorithm::Binomial, reduce::Algorithm::Rabenseifner, board] {
            let plan = Plan::Reduce { algorithm, root, len, commutes, in_place: root % 2 == 0 };
            assert!(
                run(&plan, all, op)[root as usize] == expected,
                "{algorithm:?}, {size} ranks, root {root}"
            );
        }
    }
}

/// Random numbers of Knuth's linear congruential generator.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns numbers of very different size, most of which nearly cancel one of the others. The exponents lie within
    /// `exponents`.
    pub(super) fn cancelling(&mut self, count: usize, exponents: std::ops::Range<i32>) -> Vec<f64> {
        let mut numbers: Vec<f64> = Vec::new();
        for _ in 0..count {
            let exponent = exponents.start + self.below(exponents.len()) as i32;
            let significand = (self.next() as f64 - (1_u64 << 52) as f64) / (1_u64 << 52) as f64;
            let number = significand * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2);
            let cancelled = numbers.get(self.below(count)).map(|other| -other * (1.0 + f64::EPSILON));
            numbers.push(if self.below(3) == 0 { number } else { cancelled.unwrap_or(number) });
        }
        numbers
    }
}

/// Each element is one of at least 1000 random inputs.
const INPUTS: usize = 1000;

#[test]
fn a_reproducible_sum_has_the_same_bits_by_every_algorithm() {
    let mut random = Random(1);
    let mut depending = 0;
    for size in 1..=33_usize {
        let len = INPUTS.next_multiple_of(size);
        let mut all = vec![Vec::new(); size];
        for _ in 0..len {
            let column = random.cancelling(size, 0..60);
            all.iter_mut().zip(&column).for_each(|(numbers, number)| numbers.push(*number));
        }
        let algorithm = allreduce::Algorithm::RecursiveDoubling;
        let plan = Plan::Allreduce { algorithm, len, commutes: false, in_place: false };
        let op = reproducible(Sum);
        let expected = run(&plan, &all, &op).swap_remove(0);
        check(&expected, &all, &op);
        let by_rank = (0..len).map(|index| all.iter().map(|numbers| numbers[index]).sum::<f64>());
        depending += by_rank.zip(&expected).filter(|(in_order, expected)| in_order != *expected).count();
    }
    assert!(depending > INPUTS, "only {depending} sums depend on the order of their numbers");
}

/// The numbers of each input are divided among the ranks at random.
#[test]
fn a_binned_sum_has_the_same_bits_by_every_algorithm_for_every_division() {
    let mut random = Random(2);
    let inputs: Vec<Vec<f64>> = (0..INPUTS).map(|_| random.cancelling(48, -60..60)).collect();
    let of_all: Vec<BinnedSum> = inputs.iter().map(|input| input.iter().copied().collect()).collect();
    for size in 1..=33_usize {
        let len = INPUTS.next_multiple_of(size);
        let mut all = vec![vec![BinnedSum::new(); len]; size];
        for (index, input) in inputs.iter().enumerate() {
            for number in input {
                all[random.below(size)][index].add(*number);
            }
        }
        let expected = [of_all.clone(), vec![BinnedSum::new(); len - INPUTS]].concat();
        check(&expected, &all, &Sum);
        check(&expected, &all, &reproducible(Sum));
    }
}
