//! Operations of the matching engine, on its default structure. Each function counts the instructions of one operation,
//! which it executes `operations` times.

use samite_matching::{Arrival, Config, Envelope, Matcher, Pattern, PostedId, Posting};

use super::Scenario;
use crate::callgrind::counted;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "match_alone_posted", run: arrive_alone },
    Scenario { name: "match_alone_unexpected", run: post_alone },
    Scenario {
        name: "match_ranks_posted",
        run: |operations| arrive(operations, |number| (number as u32, 0)),
    },
    Scenario {
        name: "match_ranks_unexpected",
        run: |operations| post(operations, |number| (number as u32, 0)),
    },
    Scenario { name: "match_tags_posted", run: |operations| arrive(operations, |number| (0, number)) },
    Scenario { name: "match_tags_unexpected", run: |operations| post(operations, |number| (0, number)) },
    Scenario { name: "match_any_source_unexpected", run: post_any_source },
    Scenario { name: "match_any_source_few_unexpected", run: post_any_source_few },
    Scenario { name: "match_queue_posted", run: queue_receives },
    Scenario { name: "match_queue_unexpected", run: queue_messages },
    Scenario { name: "match_cancel", run: cancel },
    Scenario { name: "match_probe_in_vain", run: probe_in_vain },
];

type Engine = Matcher<u64, u64>;

const CONTEXT: u32 = 1;

/// Counts the instructions of the arrival of a message that matches the only posted receive.
fn arrive_alone(operations: u64) {
    let mut engine = engine();
    for number in 0..operations {
        queue_receive(&mut engine, Pattern::exact(CONTEXT, 3, 7), number);
        let arrival = counted(|| engine.arrive(Envelope::new(CONTEXT, 3, 7), || number));
        assert_eq!(arrival, Arrival::Matched(number));
    }
}

/// Counts the instructions of posting a receive that matches the only message.
fn post_alone(operations: u64) {
    let mut engine = engine();
    for number in 0..operations {
        queue_message(&mut engine, Envelope::new(CONTEXT, 3, 7), number);
        let posting = counted(|| engine.post(Pattern::exact(CONTEXT, 3, 7), number));
        assert!(matches!(posting, Posting::Matched { .. }));
    }
}

/// Counts the arrival of a message while many receives are posted. The messages match the receives in the reverse order
/// of posting.
fn arrive(operations: u64, key: fn(u64) -> (u32, u64)) {
    let mut engine = engine();
    for number in 0..operations {
        let (source, tag) = key(number);
        queue_receive(&mut engine, Pattern::exact(CONTEXT, source, tag), number);
    }
    for number in (0..operations).rev() {
        let (source, tag) = key(number);
        let arrival = counted(|| engine.arrive(Envelope::new(CONTEXT, source, tag), || number));
        assert_eq!(arrival, Arrival::Matched(number));
    }
}

/// Counts the posting of a receive while many messages wait. The receives match the messages in the reverse order of
/// arrival.
fn post(operations: u64, key: fn(u64) -> (u32, u64)) {
    let mut engine = engine();
    for number in 0..operations {
        let (source, tag) = key(number);
        queue_message(&mut engine, Envelope::new(CONTEXT, source, tag), number);
    }
    for number in (0..operations).rev() {
        let (source, tag) = key(number);
        let posting = counted(|| engine.post(Pattern::exact(CONTEXT, source, tag), number));
        assert!(matches!(posting, Posting::Matched { unexpected, .. } if unexpected == number));
    }
}

/// Counts the posting of a receive from any source, with the tag of the message that arrived last. So many messages
/// wait that the structure does not compare them one by one.
fn post_any_source(operations: u64) {
    let mut engine = engine();
    for number in 0..operations + 300 {
        queue_message(&mut engine, Envelope::new(CONTEXT, number as u32, number), number);
    }
    for number in (300..operations + 300).rev() {
        let posting = counted(|| engine.post(Pattern::exact(CONTEXT, 0, number).any_source(), number));
        assert!(matches!(posting, Posting::Matched { unexpected, .. } if unexpected == number));
    }
}

/// Counts the posting of a receive from any source, with the tag of the last of 16 messages. They are so few that the
/// structure compares them one by one.
fn post_any_source_few(operations: u64) {
    const WAITING: u32 = 15;
    let mut engine = engine();
    for source in 0..WAITING {
        queue_message(&mut engine, Envelope::new(CONTEXT, source, 0), 0);
    }
    for number in 1..=operations {
        queue_message(&mut engine, Envelope::new(CONTEXT, WAITING, number), number);
        let posting = counted(|| engine.post(Pattern::exact(CONTEXT, 0, number).any_source(), number));
        assert!(matches!(posting, Posting::Matched { unexpected, .. } if unexpected == number));
    }
}

/// Counts the posting of a receive that matches no message.
fn queue_receives(operations: u64) {
    let mut engine = engine();
    for number in 0..operations {
        let posting = counted(|| engine.post(Pattern::exact(CONTEXT, number as u32, 0), number));
        assert!(matches!(posting, Posting::Queued(_)));
    }
}

/// Counts the arrival of a message that matches no receive.
fn queue_messages(operations: u64) {
    let mut engine = engine();
    for number in 0..operations {
        let arrival = counted(|| engine.arrive(Envelope::new(CONTEXT, number as u32, 0), || number));
        assert!(matches!(arrival, Arrival::Queued(_)));
    }
}

/// Counts the cancellation of a receive among many.
fn cancel(operations: u64) {
    let mut engine = engine();
    let ids: Vec<_> = (0..operations)
        .map(|number| queue_receive(&mut engine, Pattern::exact(CONTEXT, number as u32, 0), number))
        .collect();
    for (id, number) in ids.into_iter().zip(0..) {
        assert_eq!(counted(|| engine.cancel(id)), Some(number));
    }
}

/// Counts a probe without a match, beside messages of neighbouring sources.
fn probe_in_vain(operations: u64) {
    let mut engine = engine();
    for number in 0..64 {
        queue_message(&mut engine, Envelope::new(CONTEXT, 2 * number as u32, 0), number);
    }
    for _ in 0..operations {
        assert_eq!(counted(|| engine.probe(&Pattern::exact(CONTEXT, 33, 0))), None);
    }
}

fn engine() -> Engine {
    Matcher::new(&Config::default())
}

fn queue_receive(engine: &mut Engine, pattern: Pattern, number: u64) -> PostedId {
    let Posting::Queued(id) = engine.post(pattern, number) else {
        panic!("no message waits for {pattern:?}")
    };
    id
}

fn queue_message(engine: &mut Engine, envelope: Envelope, number: u64) {
    assert!(matches!(engine.arrive(envelope, || number), Arrival::Queued(_)));
}
