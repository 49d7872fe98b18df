//! A loom model of the revocation of the bias. If two threads are inside together, they access one cell at the same
//! time, and loom reports this.
//!
//! The model fails if either fence or the owner's second look is removed.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};

use super::*;

/// The lock, with loom's cells and mutex.
struct Model {
    bias: Bias,
    mutex: Mutex<()>,
    value: UnsafeCell<u64>,
}

impl Model {
    fn add(&self, me: u64) -> bool {
        self.add_and_give_back(me, None)
    }

    /// Increments the value. Gives the bias to the thread `to` if this thread has entered with the mutex. Returns false
    /// if the lock is closed.
    fn add_and_give_back(&self, me: u64, to: Option<u64>) -> bool {
        let add = || self.value.with_mut(|value| unsafe { *value += 1 });
        if self.bias.enter(me) {
            add();
            self.bias.leave();
            return true;
        }
        let mutex = self.mutex.lock().unwrap();
        match self.bias.owner() {
            CLOSED => return false,
            owner if owner == FREE || owner == me => {
                self.bias.give(me);
                drop(mutex);
                add();
                self.bias.leave();
                return true;
            }
            SHARED => {}
            _ => self.bias.revoke(),
        }
        add();
        if let Some(owner) = to {
            self.bias.give_back(owner);
        }
        true
    }

    /// Closes the lock, and takes the value out.
    fn close(&self) -> u64 {
        let _mutex = self.mutex.lock().unwrap();
        match self.bias.owner() {
            FREE => self.bias.share(),
            SHARED => {}
            _ => self.bias.revoke(),
        }
        self.bias.close();
        self.value.with_mut(|value| unsafe { std::mem::replace(&mut *value, u64::MAX) })
    }
}

/// Runs one thread for each element of `times`. Each thread locks the model as often as its element says.
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
                loom::thread::spawn(move || (0..times).for_each(|_| assert!(model.add(me))))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(model.add(9));
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

/// Thread 1 has the bias, and thread 2 gives it back each time. Thread 3 locks the mutex meanwhile.
#[test]
fn a_bias_that_is_given_back_lets_one_thread_in() {
    for third in [false, true] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(if third { 2 } else { 3 });
        builder.check(move || {
            let model = Model { bias: Bias::new(1), mutex: Mutex::new(()), value: UnsafeCell::new(0) };
            let model = Arc::new(model);
            let mut threads = vec![
                {
                    let model = model.clone();
                    loom::thread::spawn(move || (0..2).for_each(|_| assert!(model.add(1))))
                },
                {
                    let (model, times) = (model.clone(), if third { 1 } else { 2 });
                    loom::thread::spawn(move || {
                        (0..times).for_each(|_| assert!(model.add_and_give_back(2, Some(1))));
                    })
                },
            ];
            if third {
                let model = model.clone();
                threads.push(loom::thread::spawn(move || assert!(model.add(3))));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(model.add(9));
            model.value.with(|value| assert_eq!(unsafe { *value }, 5));
        });
    }
}

#[test]
fn no_thread_is_inside_after_the_close() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model { bias: Bias::new(FREE), mutex: Mutex::new(()), value: UnsafeCell::new(0) };
        let model = Arc::new(model);
        let threads = [1, 2].map(|me| {
            let model = model.clone();
            loom::thread::spawn(move || (0..2).filter(|_| model.add(me)).count() as u64)
        });
        let value = model.close();
        let all: u64 = threads.map(|thread| thread.join().unwrap()).iter().sum();
        assert_eq!(value, all);
        assert!(!model.add(9));
    });
}

/// Each thread makes a change before it asks. For each change there is a call that sees it, regardless of when the
/// holder releases the lock, and no asking thread waits.
#[test]
fn no_errand_is_lost() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        struct Errands {
            errand: Errand,
            mutex: Mutex<()>,
            asked: [AtomicU64; 2],
            seen: UnsafeCell<[u64; 2]>,
        }
        impl Errands {
            fn call(&self) {
                let asked = std::array::from_fn(|index| self.asked[index].load(Ordering::Relaxed));
                self.seen.with_mut(|seen| unsafe { *seen = asked });
            }
        }
        let seen = UnsafeCell::new([0; 2]);
        let (errand, asked) = (Errand::default(), [AtomicU64::new(0), AtomicU64::new(0)]);
        let all = Arc::new(Errands { errand, mutex: Mutex::new(()), asked, seen });
        let threads = [0, 1].map(|index| {
            let all = all.clone();
            loom::thread::spawn(move || {
                all.asked[index].store(1, Ordering::Relaxed);
                all.errand.ask(|| all.mutex.try_lock().ok(), |_| all.call());
            })
        });
        drop(all.mutex.lock().unwrap());
        all.errand.released(|| all.mutex.try_lock().ok(), |_| all.call());
        threads.map(|thread| thread.join().unwrap());
        let _held = all.mutex.lock().unwrap();
        all.seen.with(|seen| assert_eq!(unsafe { *seen }, [1; 2]));
    });
}
