//! A model of the ring under every interleaving: `RUSTFLAGS="--cfg loom" cargo test -p samite-fabric --lib
//! ring::model`.
//!
//! Weaken an order at the publishing word, and it fails. The orders at the consumer's position it cannot
//! judge: they keep loads before later stores, and loom never executes a load after a store that follows it.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

struct Model {
    lines: Vec<Line<AtomicU64>>,
    read: AtomicU64,
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

impl Place for Arc<Model> {
    type Word = AtomicU64;

    fn lines(&self) -> &[Line<AtomicU64>] {
        &self.lines
    }

    fn read(&self) -> &AtomicU64 {
        &self.read
    }
}

/// Three packets through a ring of two lines: every line is used again, so that both the publishing of a
/// packet and the giving back of its room are exercised. A packet read too early, or overwritten before it
/// was read, would have another's payload.
#[test]
fn packets_are_read_whole_and_once_under_every_interleaving() {
    loom::model(|| {
        let place =
            Arc::new(Model { lines: (0..2).map(|_| Line::default()).collect(), read: AtomicU64::new(0) });
        let mut producer = Producer::new(place.clone());
        let mut consumer = Consumer::new(place);
        let sender = loom::thread::spawn(move || {
            for i in 1..=3u64 {
                while producer.push(&i.to_ne_bytes(), &[]) == Push::Full {
                    loom::thread::yield_now();
                }
            }
        });
        let mut into = scratch(2);
        for i in 1..=3 {
            while consumer.pop(&mut into) == Pop::Empty {
                loom::thread::yield_now();
            }
            assert_eq!(into[0][0], i);
        }
        sender.join().unwrap();
    });
}
