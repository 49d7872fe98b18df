//! Loom models of the ring, which `ci/loom.sh` runs under every interleaving of their threads.
//!
//! The models fail if a memory order at the publishing word is weakened. They cannot detect a weakened order at the
//! consumer's position: that order keeps loads before later stores, and loom never moves a load behind a later store.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// The rings of one sender.
struct Model {
    lines: [Vec<Line<AtomicU64>>; RINGS],
    read: [AtomicU64; RINGS],
}

impl Model {
    fn new() -> Arc<Self> {
        let lines = [2, 4, 4].map(|lines| (0..lines).map(|_| Line::default()).collect());
        Arc::new(Self { lines, read: Default::default() })
    }
}

/// The producer's or the consumer's view of the rings.
struct End {
    model: Arc<Model>,
    ring: usize,
}

impl Place for End {
    type Word = AtomicU64;

    fn lines(&self) -> &[Line<AtomicU64>] {
        &self.model.lines[self.ring]
    }

    fn ring(&self, ring: usize) -> (&[Line<AtomicU64>], &AtomicU64) {
        (&self.model.lines[ring], &self.model.read[ring])
    }

    fn go_to(&mut self, ring: usize) {
        self.ring = ring;
    }
}

fn ends() -> (Producer<End>, Consumer<End>) {
    let model = Model::new();
    let end = || End { model: model.clone(), ring: 0 };
    (Producer::new(end()), Consumer::new(end()))
}

fn receive(consumer: &mut Consumer<End>) -> u64 {
    let mut into = scratch(2);
    loop {
        match consumer.pop(&mut into) {
            Pop::Packet { len: 8 } => return into[0][0],
            Pop::Moved { ring } => consumer.move_to(ring),
            Pop::Empty => loom::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

/// Sends three packets through a ring of two lines, of which at most one is in use at a time. Lines are reused, so the
/// model covers both the publishing of a packet and the return of its room. A packet that was read too early, or
/// overwritten before it was read, would have the payload of another packet.
#[test]
fn packets_are_read_whole_and_once_under_every_interleaving() {
    loom::model(|| {
        let (mut producer, mut consumer) = ends();
        let sender = loom::thread::spawn(move || {
            for i in 1..=3u64 {
                while producer.push(&i.to_ne_bytes(), [].as_slice()) == Push::Full {
                    loom::thread::yield_now();
                }
            }
        });
        for i in 1..=3 {
            assert_eq!(receive(&mut consumer), i);
        }
        sender.join().unwrap();
    });
}

/// The producer continues in the second ring while the first is full, and comes back while the second may still hold
/// a packet.
#[test]
fn moving_between_rings_keeps_order_under_every_interleaving() {
    loom::model(|| {
        let (mut producer, mut consumer) = ends();
        let sender = loom::thread::spawn(move || {
            for i in 1..=3u64 {
                let mut ring = 1;
                while producer.push(&i.to_ne_bytes(), [].as_slice()) == Push::Full {
                    if producer.move_to(ring) {
                        ring = 0;
                    } else {
                        loom::thread::yield_now();
                    }
                }
                if producer.ring() == 1 {
                    producer.move_to(0);
                }
            }
        });
        for i in 1..=3 {
            assert_eq!(receive(&mut consumer), i);
        }
        sender.join().unwrap();
    });
}

/// The body of a long packet contains values that would be valid as the first words of lines. Short packets follow
/// until the consumer waits at a line that held the body. It must not read those values as a packet.
#[test]
fn a_body_never_passes_for_a_word() {
    loom::model(|| {
        let model = Model::new();
        let end = || End { model: model.clone(), ring: 0 };
        let (mut producer, mut consumer) = (Producer::new(end()), Consumer::new(end()));
        assert!(producer.move_to(1));
        assert_eq!(consumer.pop(&mut scratch(4)), Pop::Moved { ring: 1 });
        consumer.move_to(1);
        let forged = [9u64.to_ne_bytes(); CELLS].concat();
        let bytes = forged.clone();
        let sender = loom::thread::spawn(move || {
            for body in [BODY, 0, 0, 0].map(|len| &bytes[..len]) {
                while producer.push(&7u64.to_ne_bytes(), body) == Push::Full {
                    loom::thread::yield_now();
                }
            }
        });
        let mut into = scratch(4);
        for is_long in [true, false, false, false] {
            let popped = loop {
                match consumer.pop(&mut into) {
                    Pop::Empty => loom::thread::yield_now(),
                    popped => break popped,
                }
            };
            assert_eq!(into[0][0], 7);
            if is_long {
                assert_eq!(popped, Pop::Long { head: 8, body: BODY });
                let mut body = [0; BODY];
                crate::Body::copy_to(&consumer.body(BODY), &mut body);
                assert_eq!(body, forged[..]);
                consumer.skip(BODY);
            } else {
                assert_eq!(popped, Pop::Packet { len: 8 });
            }
        }
        assert_eq!(consumer.pop(&mut into), Pop::Empty);
        sender.join().unwrap();
    });
}

/// The shortest body that does not fit with its head in one line.
const BODY: usize = PAYLOAD;
