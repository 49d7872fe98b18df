use core::mem;

use super::*;
use crate::{Arrival, Config, Counting, Envelope, Matcher, Pattern, Posting};

/// Checks the sizes that the documentation of [`Adaptive`] states.
#[test]
fn objects_have_the_documented_sizes() {
    assert_eq!(mem::size_of::<AdaptiveLinks>(), 16);
    assert_eq!((leaves::LEAF_BYTES, tags::NODE_BYTES), (84, 40));
    assert_eq!(mem::size_of::<Option<Lone>>(), 8);
}

fn full(messages: u32, envelope: fn(u32) -> Envelope) -> Matcher<u32, u32, Adaptive, Counting> {
    let mut matcher = Matcher::new(&Config::default());
    for number in 0..messages {
        assert!(matches!(matcher.arrive(envelope(number), || number), Arrival::Queued(_)));
    }
    matcher
}

/// Checks that receives from any source do not each compare all waiting messages: only the first search is long.
#[test]
fn the_tag_index_shortens_the_second_search() {
    let mut matcher = full(1000, |number| Envelope::new(0, number, u64::from(number)));
    for number in (0..1000).rev() {
        let posting = matcher.post(Pattern::exact(0, 0, u64::from(number)).any_source(), number);
        assert!(matches!(posting, Posting::Matched { unexpected, .. } if unexpected == number));
    }
    let stats = matcher.stats().unexpected;
    assert_eq!((stats.matched(), stats.any_source), (1000, 1000));
    assert!(stats.compared_max <= queue::LOG_SCAN_MAX as u64 + 1, "{stats:?}");
    assert!(stats.compared_average() < 2.0, "{stats:?}");
}

/// Checks that receives by rank find their message in three steps at any position.
#[test]
fn a_rank_is_reached_in_three_steps() {
    let mut matcher = full(10_000, |number| Envelope::new(0, number, 0));
    for number in (0..10_000).rev() {
        assert!(matches!(matcher.post(Pattern::exact(0, number, 0), number), Posting::Matched { .. }));
    }
    assert!(matcher.stats().unexpected.hops_max <= 3 + 10, "three steps, and a list of at most 10 entries");
}

/// Checks that a search is correct, and exceeds no budget, if the budget has no room for the tag index.
#[test]
fn a_budget_without_room_for_the_tag_index_is_kept() {
    let bytes_max = full(1000, |number| Envelope::new(0, number, u64::from(number))).memory().in_use();
    let mut matcher: Matcher<u32, u32> =
        Matcher::new(&Config { bytes_max: Some(bytes_max + 1000), ..Config::default() });
    for number in 0..900 {
        let arrival = matcher.arrive(Envelope::new(0, number, u64::from(number)), || number);
        assert!(matches!(arrival, Arrival::Queued(_)));
    }
    for number in (0..900).rev() {
        let taken = matcher.take(&Pattern::exact(0, 0, u64::from(number)).any_source());
        assert_eq!(taken.map(|(_, number)| number), Some(number));
    }
    assert!(matcher.memory().peak <= bytes_max + 1000);
}

/// Checks that contexts that come and go leave no memory behind without a purge.
#[test]
fn empty_contexts_are_forgotten() {
    let mut matcher: Matcher<(), ()> = Matcher::new(&Config::default());
    for context in 0..100_000 {
        for tag in 0..2 {
            assert!(matches!(matcher.arrive(Envelope::new(context, 1, tag), || ()), Arrival::Queued(_)));
        }
        for tag in 0..2 {
            assert!(matcher.take(&Pattern::exact(context, 1, tag)).is_some());
        }
    }
    assert!(matcher.memory().reserved < 16 << 10, "{:?}", matcher.memory());
}

/// Checks that a queue that is never empty, with a changing set of ranks, keeps no memory for former ranks.
#[test]
fn empty_leaves_are_freed() {
    const WAITING: u32 = 16;
    let rank = |number: u32| number % 10_000 * 100;
    let mut matcher: Matcher<(), ()> = Matcher::new(&Config::default());
    for number in 0..20_000 {
        assert!(matches!(matcher.arrive(Envelope::new(0, rank(number), 0), || ()), Arrival::Queued(_)));
        if let Some(first) = number.checked_sub(WAITING) {
            assert!(matcher.take(&Pattern::exact(0, rank(first), 0)).is_some());
            assert!(matcher.probe(&Pattern::exact(0, rank(first), 0)).is_none());
        }
    }
    let leaves = matcher.memory().structure / leaves::LEAF_BYTES;
    assert!(leaves <= 3 * WAITING as usize, "{leaves}");
    assert!(matcher.memory().reserved < 16 << 10, "{:?}", matcher.memory());
}

/// Checks that each of many contexts keeps its own messages while others are removed, by a purge or by their last
/// message, and when contexts are added again.
#[test]
fn contexts_are_found_while_others_are_removed() {
    const CONTEXTS: u32 = 200;
    let mut matcher: Matcher<(), u32> = Matcher::new(&Config::default());
    let mut contexts: Vec<u32> = (0..CONTEXTS).map(|n| if n % 2 == 0 { n } else { n << 20 }).collect();
    for _ in 0..2 {
        for source in 0..2 {
            for &context in &contexts {
                let arrival = matcher.arrive(Envelope::new(context, source, 0), || context);
                assert!(matches!(arrival, Arrival::Queued(_)));
            }
        }
        // The numbers 77 and 200 have no common factor, so each context is removed once.
        let removals: Vec<u32> = (0..CONTEXTS).map(|n| contexts[(n * 77 % CONTEXTS) as usize]).collect();
        for (removed, &context) in removals.iter().enumerate() {
            if removed % 3 == 0 {
                let mut purged = 0;
                matcher.purge_context(context, |_| purged += 1);
                assert_eq!(purged, 2);
            } else {
                for source in 0..2 {
                    let taken = matcher.take(&Pattern::any(context));
                    assert_eq!(taken, Some((Envelope::new(context, source, 0), context)));
                }
            }
            for (at, &other) in removals.iter().enumerate() {
                let found = matcher.probe(&Pattern::any(other)).map(|(_, _, &payload)| payload);
                assert_eq!(found, (at > removed).then_some(other));
            }
        }
        for &context in &contexts {
            matcher.purge_context(context, |item| panic!("{item:?} was taken out"));
        }
        contexts.reverse();
    }
    assert_eq!(matcher.memory().in_use(), 0);
}
