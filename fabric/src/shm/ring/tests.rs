use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A ring on the heap.
#[derive(Debug)]
struct Heap {
    lines: Box<[Line]>,
    read: AtomicU64,
}

impl Place for Arc<Heap> {
    type Word = AtomicU64;

    fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn read(&self) -> &AtomicU64 {
        &self.read
    }
}

const LINES: usize = 32;

fn heap() -> Arc<Heap> {
    Arc::new(Heap { lines: (0..LINES).map(|_| Line::default()).collect(), read: AtomicU64::new(0) })
}

fn ring() -> (Producer<Arc<Heap>>, Consumer<Arc<Heap>>, Arc<Heap>) {
    let heap = heap();
    (Producer::new(heap.clone()), Consumer::new(heap.clone()), heap)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed * 13 + 1) as u8).collect()
}

#[test]
fn packets_of_every_length_and_split_arrive() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    for len in (0..=packet_max(LINES)).step_by(if cfg!(miri) { 11 } else { 1 }) {
        for split in [0, 1, 7, 8, 31, 40, len].into_iter().filter(|&split| split <= len) {
            let packet = bytes(len, split);
            assert_eq!(producer.push(&packet[..split], &packet[split..]), Push::Done);
            assert_eq!(consumer.pop(&mut into), Pop::Packet { len });
            assert_eq!(into.as_bytes()[..len], packet);
            assert_eq!(consumer.pop(&mut into), Pop::Empty);
        }
    }
}

#[test]
fn a_full_ring_takes_more_once_a_quarter_is_read() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    for _ in 0..LINES - 1 {
        assert_eq!(producer.push(&[], &[]), Push::Done);
    }
    for _ in 0..LINES / 4 {
        assert_eq!(producer.push(&[], &[]), Push::Full);
        assert_eq!(consumer.pop(&mut into), Pop::Packet { len: 0 });
    }
    assert_eq!(producer.push(&[], &[]), Push::Done);
}

#[test]
fn payload_never_passes_for_a_word() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    // Every cell looks like the word of an 8-byte packet of the next laps.
    for lap in 1..10u64 {
        let packet: Vec<u8> =
            (0..packet_max(LINES) / 8).flat_map(|_| (lap << 16 | 8).to_le_bytes()).collect();
        for _ in 0..9 {
            assert_eq!(producer.push(&packet, &[]), Push::Done);
            assert_eq!(consumer.pop(&mut into), Pop::Packet { len: packet.len() });
            assert_eq!(consumer.pop(&mut into), Pop::Empty);
        }
    }
}

#[test]
fn a_shut_ring_says_so() {
    let (mut producer, consumer, _) = ring();
    consumer.shut();
    for _ in 0..LINES - 1 {
        assert_eq!(producer.push(&[], &[]), Push::Done, "room that was known before is used");
    }
    assert_eq!(producer.push(&[], &[]), Push::Shut);
}

#[test]
fn an_impossible_length_is_garbage() {
    let (_, mut consumer, heap) = ring();
    heap.lines[0].word.store(1 << 16 | (packet_max(LINES) as u64 + 1), Ordering::Relaxed);
    assert_eq!(consumer.pop(&mut scratch(LINES)), Pop::Garbled);
}

#[test]
fn a_consumer_that_lies_gives_no_room() {
    for lie in [u64::MAX - 1, LINES as u64, 1 << 63] {
        let (mut producer, _, heap) = ring();
        for _ in 0..LINES - 1 {
            assert_eq!(producer.push(&[], &[]), Push::Done);
        }
        heap.read.store(lie, Ordering::Relaxed);
        assert_eq!(producer.push(&[], &[]), Push::Full);
    }
}

#[test]
fn two_threads_exchange_packets_in_order() {
    let (mut producer, mut consumer, _) = ring();
    let packets = if cfg!(miri) { 100 } else { 20_000 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..packets {
                let packet = bytes(i % packet_max(LINES), i);
                while producer.push(&packet[..packet.len() / 2], &packet[packet.len() / 2..]) == Push::Full {
                    std::thread::yield_now();
                }
            }
        });
        let mut into = scratch(LINES);
        for i in 0..packets {
            let len = loop {
                match consumer.pop(&mut into) {
                    Pop::Packet { len } => break len,
                    Pop::Empty => std::thread::yield_now(),
                    other => panic!("packet {i}: {other:?}"),
                }
            };
            assert_eq!(into.as_bytes()[..len], bytes(i % packet_max(LINES), i));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..Default::default() })]

    /// Against a queue: whatever is written to the ring and read from it, in whatever turns.
    #[test]
    fn the_ring_is_a_queue(turns in prop::collection::vec((0..=packet_max(LINES), 0usize..100, 0usize..4), 1..200)) {
        let (mut producer, mut consumer, _) = ring();
        let mut into = scratch(LINES);
        let mut queue = std::collections::VecDeque::new();
        for (len, split, reads) in turns {
            let packet = bytes(len, split);
            let split = len * split / 100;
            if producer.push(&packet[..split], &packet[split..]) == Push::Done {
                queue.push_back(packet);
            } else {
                prop_assert!(!queue.is_empty(), "an empty ring has room for any packet");
            }
            for _ in 0..reads {
                match (consumer.pop(&mut into), queue.pop_front()) {
                    (Pop::Packet { len }, Some(packet)) => prop_assert_eq!(&into.as_bytes()[..len], packet),
                    (Pop::Empty, None) => {}
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }

    /// Whatever another process writes to the ring, the consumer neither panics nor leaves its buffer.
    #[test]
    fn garbage_is_survived(words in prop::collection::vec((0..LINES, 0u64..4, any::<u16>()), 0..64)) {
        let (_, mut consumer, heap) = ring();
        for (line, lap, len) in words {
            heap.lines[line].word.store(lap << 16 | u64::from(len), Ordering::Relaxed);
        }
        let mut into = scratch(LINES);
        while let Pop::Packet { len } = consumer.pop(&mut into) {
            prop_assert!(len <= packet_max(LINES));
        }
    }
}
