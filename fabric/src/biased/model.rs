//! A model of how the bias is taken away, under every interleaving: two that are in together are two accesses to one
//! cell, which loom reports.
//!
//! Take either fence out, or the owner's second look, and it fails.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};

use super::*;

/// The lock, with cells and a mutex of loom's.
struct Model {
    bias: Bias,
    mutex: Mutex<()>,
    value: UnsafeCell<u64>,
}

impl Model {
    fn add(&self, me: u64) {
        let add = || self.value.with_mut(|value| unsafe { *value += 1 });
        if self.bias.enter(me) {
            add();
            return self.bias.leave();
        }
        let mutex = self.mutex.lock().unwrap();
        match self.bias.owner() {
            FREE => {
                self.bias.give(me);
                drop(mutex);
                add();
                return self.bias.leave();
            }
            SHARED => {}
            _ => self.bias.revoke(),
        }
        add();
    }
}

/// So many threads that lock it so often.
fn run(times: &'static [u64], owner: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let model = Model { bias: Bias::new(owner), mutex: Mutex::new(()), value: UnsafeCell::new(0) };
        let model = Arc::new(model);
        let threads: Vec<_> = (1..)
            .zip(times)
            .map(|(me, &times)| {
                let model = model.clone();
                loom::thread::spawn(move || (0..times).for_each(|_| model.add(me)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        model.add(9);
        let all = times.iter().sum::<u64>() + 1;
        model.value.with(|value| assert_eq!(unsafe { *value }, all));
    });
}

#[test]
fn the_owner_and_another_are_never_in_together() {
    run(&[2, 1], 1);
}

#[test]
fn two_may_come_first() {
    run(&[2, 2], FREE);
}
