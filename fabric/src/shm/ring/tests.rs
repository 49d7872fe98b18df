use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Rings on the heap.
#[derive(Debug)]
struct Heap {
    lines: [Box<[Line]>; RINGS],
    read: [AtomicU64; RINGS],
}

/// The producer's or the consumer's view of the rings.
struct End {
    heap: Arc<Heap>,
    ring: usize,
}

impl Place for End {
    type Word = AtomicU64;

    fn lines(&self) -> &[Line] {
        &self.heap.lines[self.ring]
    }

    fn ring(&self, ring: usize) -> (&[Line], &AtomicU64) {
        (&self.heap.lines[ring], &self.heap.read[ring])
    }

    fn go_to(&mut self, ring: usize) {
        self.ring = ring;
    }
}

const LINES: usize = 128;

/// The word that publishes a packet of 8 bytes.
const WORD: u64 = 9;

fn ring() -> (Producer<End>, Consumer<End>, Arc<Heap>) {
    rings_of([LINES, LINES, 2 * LINES])
}

fn rings_of(lines: [usize; RINGS]) -> (Producer<End>, Consumer<End>, Arc<Heap>) {
    let lines = lines.map(|lines| (0..lines).map(|_| Line::default()).collect());
    let heap = Arc::new(Heap { lines, read: Default::default() });
    let end = || End { heap: heap.clone(), ring: 0 };
    (Producer::new(end()), Consumer::new(end()), heap)
}

/// Returns the next packet in one piece, if there is one. The ring must not be garbled.
fn pop(consumer: &mut Consumer<End>, into: &mut [Payload]) -> Option<Vec<u8>> {
    match consumer.pop(into) {
        Pop::Packet { len } => Some(into.as_bytes()[..len].to_vec()),
        Pop::Long { head, body } => {
            let mut packet = into.as_bytes()[..head].to_vec();
            packet.resize(head + body, 0);
            crate::Body::copy_to(&consumer.body(body), &mut packet[head..]);
            consumer.skip(body);
            Some(packet)
        }
        Pop::Moved { ring } => {
            consumer.move_to(ring);
            pop(consumer, into)
        }
        Pop::Empty => None,
        other => panic!("{other:?}"),
    }
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
            assert_eq!(pop(&mut consumer, &mut into), Some(packet));
            assert_eq!(consumer.pop(&mut into), Pop::Empty);
        }
    }
}

#[test]
fn a_full_ring_takes_more_once_half_is_read() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    for _ in 0..LINES - 1 {
        assert_eq!(producer.push(&[], [].as_slice()), Push::Done);
    }
    for _ in 0..LINES / 2 {
        assert_eq!(producer.push(&[], [].as_slice()), Push::Full);
        assert_eq!(consumer.pop(&mut into), Pop::Packet { len: 0 });
    }
    assert_eq!(producer.push(&[], [].as_slice()), Push::Done);
}

#[test]
fn payload_never_passes_for_a_word() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    // Every cell, and every word of a long packet, has the value of the word that publishes an 8-byte packet. Packets
    // of all forms follow each other, so that each packet begins in lines that contain the bytes of others.
    for _ in 0..10 {
        for (head, body) in
            [(packet_max(LINES), 0), (48, 512), (40, 0), (8, packet_max(LINES) - 8), (48, 256)]
        {
            for _ in 0..3 {
                let packet: Vec<u8> = (0..(head + body) / 8).flat_map(|_| WORD.to_ne_bytes()).collect();
                assert_eq!(producer.push(&packet[..head], &packet[head..]), Push::Done);
                assert_eq!(pop(&mut consumer, &mut into), Some(packet));
                assert_eq!(consumer.pop(&mut into), Pop::Empty);
                assert!(producer.has_room());
                producer.notify(WORD);
                assert_eq!(consumer.pop(&mut into), Pop::Notice { number: WORD });
                assert_eq!(consumer.pop(&mut into), Pop::Empty);
                for ring in [2, 0] {
                    assert!(producer.move_to(ring));
                    assert_eq!(consumer.pop(&mut into), Pop::Moved { ring });
                    consumer.move_to(ring);
                    assert_eq!(consumer.pop(&mut into), Pop::Empty);
                }
            }
        }
    }
}

#[test]
fn lines_that_are_free_are_clear() {
    let (mut producer, mut consumer, heap) = ring();
    let mut into = scratch(LINES);
    for turn in 0..40 {
        for (head, body) in [(48, 8), (48, 600), (300, 0), (48, 3000 + turn)] {
            let packet = [0xff; 4096];
            assert_eq!(producer.push(&packet[..head], &packet[..body]), Push::Done);
            assert!(pop(&mut consumer, &mut into).is_some());
        }
        if turn % 3 == 0 {
            let next = turn / 3 % RINGS;
            assert!(next == producer.ring() || producer.move_to(next));
        }
        assert_eq!(pop(&mut consumer, &mut into), None);
        // All packets are read, and the consumer has looked for more, so all lines are cleared.
        for ring in 0..RINGS {
            assert!(heap.lines[ring].iter().all(|line| line.word.load(Ordering::Relaxed) == 0), "{ring}");
        }
    }
}

#[test]
fn a_shut_ring_says_so() {
    let (mut producer, consumer, _) = ring();
    consumer.shut();
    for _ in 0..LINES - 1 {
        assert_eq!(producer.push(&[], [].as_slice()), Push::Done, "room that was known before is used");
    }
    assert_eq!(producer.push(&[], [].as_slice()), Push::Shut);
}

#[test]
fn an_impossible_length_is_garbage() {
    let (_, mut consumer, heap) = ring();
    for len in [packet_max(LINES) + 1, MOVED + 1, usize::MAX - 1] {
        heap.lines[0][0].publish(len);
        assert_eq!(consumer.pop(&mut scratch(LINES)), Pop::Garbled);
    }
    heap.lines[0][0].publish(LONG);
    for lengths in [packet_max(LINES) as u64 + 1, u64::from(u32::MAX), (HEAD_MAX as u64 + 1) << 32, u64::MAX]
    {
        heap.lines[0][0].cells[CELLS - 1].store(lengths, Ordering::Relaxed);
        assert_eq!(consumer.pop(&mut scratch(LINES)), Pop::Garbled);
    }
}

#[test]
fn a_consumer_that_lies_gives_no_room() {
    let (mut producer, _, heap) = ring();
    for (read, more) in [(0, false), (2, true), (1, false), (2, false), (3, true), (4, false), (SHUT, false)]
    {
        while producer.position() < 3 {
            assert_eq!(producer.push(&[], [].as_slice()), Push::Done);
        }
        heap.read[0].store(read, Ordering::Relaxed);
        assert_eq!(producer.look(), more, "{read}");
    }
    for lie in [u64::MAX - 1, LINES as u64, 1 << 63] {
        let (mut producer, _, heap) = ring();
        for _ in 0..LINES - 1 {
            assert_eq!(producer.push(&[], [].as_slice()), Push::Done);
        }
        heap.read[0].store(lie, Ordering::Relaxed);
        assert_eq!(producer.push(&[], [].as_slice()), Push::Full);
    }
}

#[test]
fn a_producer_goes_between_rings_as_it_likes() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    let mut count = 0u64;
    let mut fill = |producer: &mut Producer<End>| {
        let first = count;
        while producer.push(&count.to_ne_bytes(), [].as_slice()) == Push::Done {
            count += 1;
        }
        first..count
    };
    for _ in 0..50 {
        // The producer leaves each ring when it is full. It cannot leave the last ring for one that has not been read.
        let first = fill(&mut producer);
        assert!(producer.move_to(1));
        let second = fill(&mut producer);
        assert!(!producer.move_to(0));
        for i in first {
            assert_eq!(pop(&mut consumer, &mut into), Some(i.to_ne_bytes().to_vec()));
        }
        assert!(producer.move_to(0));
        let third = fill(&mut producer);
        for i in second.chain(third) {
            assert_eq!(pop(&mut consumer, &mut into), Some(i.to_ne_bytes().to_vec()));
        }
        assert_eq!(pop(&mut consumer, &mut into), None);
    }
}

#[test]
fn a_producer_says_when_it_is_due_and_what_is_too_long() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = scratch(LINES);
    assert_eq!(producer.push(&[], [0; LINES / 2 * LINE].as_slice()), Push::TooLong);
    producer.set_check_at(3);
    for len in [8, 8, 600] {
        assert_eq!(producer.push(&[], vec![0; len].as_slice()), Push::Done);
        assert!(pop(&mut consumer, &mut into).is_some());
    }
    for len in [8, 8, 600] {
        assert_eq!(producer.push(&[], vec![0; len].as_slice()), Push::AtCheck);
    }
    producer.set_check_at(u64::MAX);
    assert_eq!(producer.push(&[], [0; 8].as_slice()), Push::Done);
    producer.set_check_at(0);
    assert_eq!(producer.push(&[], [0; 8].as_slice()), Push::AtCheck);
    assert!(producer.move_to(2));
    assert_eq!(
        producer.push(&[], [0; 8].as_slice()),
        Push::Done,
        "nothing is due in a ring that was just entered"
    );
    assert_eq!(pop(&mut consumer, &mut into), Some(vec![0; 8]));
    assert_eq!(pop(&mut consumer, &mut into), Some(vec![0; 8]));
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
            let packet = loop {
                match pop(&mut consumer, &mut into) {
                    Some(packet) => break packet,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(packet, bytes(i % packet_max(LINES), i));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..Default::default() })]

    /// Writes to the rings and reads from them in random order, and compares the results with those of a queue.
    #[test]
    fn the_rings_are_a_queue(
        turns in prop::collection::vec(
            (0..=packet_max(LINES), prop_oneof![Just(0), 0usize..100], 0usize..4, prop::option::weighted(0.2, 0..RINGS)),
            1..200,
        ),
    ) {
        let (mut producer, mut consumer, _) = ring();
        let mut into = scratch(LINES);
        let mut queue = std::collections::VecDeque::new();
        for (len, split, reads, next) in turns {
            if let Some(next) = next.filter(|&next| next != producer.ring()) {
                let moved = producer.move_to(next);
                prop_assert!(moved || !queue.is_empty(), "a ring that was read has room");
            }
            let packet = bytes(len, len + split);
            let split = len * split / 100;
            match producer.push(&packet[..split], &packet[split..]) {
                Push::Done => queue.push_back(packet),
                Push::TooLong => prop_assert!(len > packet_max(producer.lines() as usize) - PAYLOAD),
                other => {
                    prop_assert_eq!(other, Push::Full);
                    prop_assert!(!queue.is_empty(), "an empty ring has room for any packet");
                }
            }
            for _ in 0..reads {
                prop_assert_eq!(pop(&mut consumer, &mut into), queue.pop_front());
            }
        }
    }

    /// For any bytes that another process writes to the ring, the consumer neither panics nor leaves its buffer.
    #[test]
    fn garbage_is_survived(
        words in prop::collection::vec((0..LINES, prop_oneof![0..=u64::from(u16::MAX) + 2, Just(LONG as u64 + 1), any::<u64>()], any::<u64>()), 0..64),
    ) {
        let (_, mut consumer, heap) = ring();
        for (line, word, lengths) in words {
            heap.lines[0][line].cells[CELLS - 1].store(lengths & 0x3f_0000_07ff, Ordering::Relaxed);
            heap.lines[0][line].word.store(word, Ordering::Relaxed);
        }
        let mut into = scratch(LINES);
        loop {
            match consumer.pop(&mut into) {
                Pop::Packet { len } => prop_assert!(len <= packet_max(LINES)),
                Pop::Long { head, body } => {
                    crate::Body::copy_to(&consumer.body(body), &mut vec![0; body]);
                    prop_assert!(head <= HEAD_MAX);
                    consumer.skip(body);
                }
                Pop::Notice { .. } => {}
                Pop::Empty | Pop::Moved { .. } | Pop::Garbled => break,
            }
        }
    }
}

/// Tests each of the rings: the first is smaller than a buffer, and the last is larger.
#[test]
fn a_length_that_the_ring_cannot_hold_is_garbage() {
    let sizes = [16, 64, 256];
    let mut into = scratch(sizes[1]);
    let into_bytes = size_of_val(&*into);
    for (ring, lines) in sizes.into_iter().enumerate() {
        let (_, _, heap) = rings_of(sizes);
        let mut check = |len: usize, lengths: u64, expected: Pop| {
            let mut consumer = Consumer::new(End { heap: heap.clone(), ring: 0 });
            if ring > 0 {
                consumer.move_to(ring);
            }
            let first = &heap.lines[ring][0];
            first.forge_number(lengths);
            first.publish(len);
            assert_eq!(consumer.pop(&mut into), expected, "{len} {lengths:x} in {lines} lines");
            match expected {
                Pop::Garbled => {}
                Pop::Long { body, .. } => {
                    consumer.skip(body);
                    assert_eq!(consumer.pop(&mut into), Pop::Empty);
                }
                _ => assert_eq!(consumer.pop(&mut into), Pop::Empty),
            }
        };
        let packet_max = packet_max(lines).min(into_bytes);
        for len in (0..1 << 16).filter(|len| ![LONG, NOTICE, MOVED].contains(len)) {
            check(len, 0, if len <= packet_max { Pop::Packet { len } } else { Pop::Garbled });
        }
        let body_max = ((lines / 2 - 1) * LINE).min(into_bytes);
        for head in [0, 1, HEAD_MAX, HEAD_MAX + 1, u32::MAX as usize] {
            let is_sound = |body: usize| head <= HEAD_MAX && (BODY_MIN..=body_max).contains(&body);
            for body in (0..2 * into_bytes).chain([u32::MAX as usize]) {
                let lengths = (head as u64) << 32 | body as u64;
                check(LONG, lengths, if is_sound(body) { Pop::Long { head, body } } else { Pop::Garbled });
            }
        }
    }
}
