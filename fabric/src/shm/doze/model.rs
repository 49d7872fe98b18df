//! A loom model of the steps by which the owner goes to sleep, run under the interleavings of its threads with a
//! limited number of preemptions. A lost wake-up is a deadlock in the model, and loom reports deadlocks.
//!
//! The model fails if the fence on either side is removed, or if the owner looks for packets before it announces its
//! sleep.

use super::*;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct Model {
    rings: [Ring; SENDERS],
    word: AtomicU64,
    alarm: Mutex<bool>,
    rung: Condvar,
}

#[derive(Default)]
struct Ring {
    published: AtomicU64,
    quiet: AtomicU64,
    marked: AtomicU64,
}

impl Model {
    fn ring(&self) {
        *self.alarm.lock().unwrap() = true;
        self.rung.notify_one();
    }

    /// Sleeps until the alarm rings, and resets it.
    fn sleep(&self) {
        let mut rung = self.alarm.lock().unwrap();
        while !*rung {
            rung = self.rung.wait(rung).unwrap();
        }
        *rung = false;
    }

    fn published(&self) -> u64 {
        self.rings.iter().map(|ring| ring.published.load(Ordering::Acquire)).sum()
    }

    fn is_marked(&self) -> bool {
        self.rings.iter().any(|ring| ring.marked.load(Ordering::Acquire) != 0)
    }
}

/// Replaces `samite_os::barrier` in the model by the minimum that `samite_os::barrier` guarantees: a full fence on
/// either side.
pub(super) mod barrier {
    pub(in super::super) fn light() {
        loom::sync::atomic::fence(super::Ordering::SeqCst);
    }
}

fn send(model: &Model, sender: usize, packets: u64) {
    let (ring, waker) = (&model.rings[sender], Waker::default());
    for packet in 1..=packets {
        ring.published.store(packet, Ordering::Release);
        barrier::light();
        if ring.quiet.load(Ordering::Relaxed) != 0 {
            ring.marked.store(1, Ordering::Release);
            if waker.must_ring(&model.word) {
                model.ring();
            }
        }
    }
}

fn receive(model: &Model, packets: u64) {
    let mut sleeper = Sleeper::default();
    while model.published() < packets {
        for ring in &model.rings {
            ring.quiet.store(1, Ordering::Relaxed);
        }
        sleeper.lie_down(&model.word);
        fence(Ordering::SeqCst);
        if model.published() < packets && !model.is_marked() {
            model.sleep();
        }
        sleeper.get_up(&model.word);
        for ring in &model.rings {
            ring.marked.store(0, Ordering::Relaxed);
            ring.quiet.store(0, Ordering::Relaxed);
        }
    }
}

/// Runs senders, each of which publishes the given number of packets, and an owner that receives all of them. The model
/// tries only interleavings with at most `preemption_bound` preemptions, because there are too many with more.
fn run(packets: [u64; SENDERS], preemption_bound: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemption_bound);
    builder.check(move || {
        let model = Arc::new(Model::default());
        let senders: Vec<_> = (0..SENDERS)
            .filter(|&sender| packets[sender] > 0)
            .map(|sender| {
                let model = model.clone();
                loom::thread::spawn(move || send(&model, sender, packets[sender]))
            })
            .collect();
        receive(&model, packets.iter().sum());
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_packet_is_seen_or_its_sender_rings() {
    run([2, 0], 3);
}

#[test]
fn one_sender_does_not_ring_for_another() {
    run([1, 1], 2);
}

const SENDERS: usize = 2;
