//! MPI's matching order when wildcard and exact receives are mixed, on every structure.

use samite_matching::{
    Adaptive, Arrival, BTree, Config, Envelope, FourD, LinkedList, Matcher, Pattern, Posting, RankArray,
    Structure,
};

/// Runs the same test on every structure.
macro_rules! on_every_structure {
    ($($test:ident),* $(,)?) => {
        mod adaptive { $(#[test] fn $test() { super::$test::<super::Adaptive>(); })* }
        mod btree { $(#[test] fn $test() { super::$test::<super::BTree>(); })* }
        mod four_d { $(#[test] fn $test() { super::$test::<super::FourD>(); })* }
        mod rank_array { $(#[test] fn $test() { super::$test::<super::RankArray>(); })* }
        mod linked_list { $(#[test] fn $test() { super::$test::<super::LinkedList>(); })* }
    };
}

on_every_structure! {
    receives_in_posted_order,
    any_source_between_exact_receives,
    messages_in_order_of_arrival,
    masks_and_tags,
    stale_handles_name_nothing,
    a_refused_send_goes_first,
}

/// Posts the receives of (Zounmevo 2014, section 4.3.3): from rank 0, rank 0, any source, rank 0.
fn posted_as_in_the_thesis<S: Structure>() -> Matcher<u32, (), S> {
    let mut matcher = Matcher::new(&Config::default());
    let from_zero = Pattern::exact(7, 0, 5);
    for (number, pattern) in [from_zero, from_zero, from_zero.any_source(), from_zero].into_iter().enumerate()
    {
        assert!(matches!(matcher.post(pattern, number as u32), Posting::Queued(_)));
    }
    matcher
}

fn matches_of<S: Structure>(matcher: &mut Matcher<u32, (), S>, sources: [u32; 4]) -> [u32; 4] {
    sources.map(|source| match matcher.arrive(Envelope::new(7, source, 5), || ()) {
        Arrival::Matched(receive) => receive,
        other => panic!("{other:?}"),
    })
}

fn receives_in_posted_order<S: Structure>() {
    let mut matcher = posted_as_in_the_thesis::<S>();
    assert_eq!(matches_of(&mut matcher, [0, 0, 0, 0]), [0, 1, 2, 3]);
}

fn any_source_between_exact_receives<S: Structure>() {
    let mut matcher = posted_as_in_the_thesis::<S>();
    assert_eq!(matches_of(&mut matcher, [0, 8, 0, 0]), [0, 2, 1, 3]);
}

fn messages_in_order_of_arrival<S: Structure>() {
    let mut matcher: Matcher<(), u32, S> = Matcher::new(&Config::default());
    for (number, source) in [9, 4, 9, 4].into_iter().enumerate() {
        let arrival = matcher.arrive(Envelope::new(0, source, number as u64 / 2), || number as u32);
        assert!(matches!(arrival, Arrival::Queued(_)));
    }
    let mut take = |pattern: Pattern| matcher.take(&pattern).map(|(_, number)| number);
    assert_eq!(take(Pattern::exact(0, 4, 0).any_tag()), Some(1));
    assert_eq!(take(Pattern::exact(0, 4, 1).any_source()), Some(2));
    assert_eq!(take(Pattern::any(1)), None);
    assert_eq!(take(Pattern::any(0)), Some(0));
    assert_eq!(take(Pattern::any(0)), Some(3));
    assert_eq!(take(Pattern::any(0)), None);
}

fn masks_and_tags<S: Structure>() {
    let mut matcher: Matcher<u32, (), S> = Matcher::new(&Config::default());
    let even = Pattern::exact(0, 1, 0).masked(1);
    assert!(matches!(matcher.post(even.any_source(), 0), Posting::Queued(_)));
    assert!(matches!(matcher.post(Pattern::exact(0, 1, 4), 1), Posting::Queued(_)));
    assert_eq!(matcher.arrive(Envelope::new(0, 1, 4), || ()), Arrival::Matched(0));
    assert!(matches!(matcher.arrive(Envelope::new(0, 1, 6), || ()), Arrival::Queued(_)));
    assert_eq!(matcher.arrive(Envelope::new(0, 1, 4), || ()), Arrival::Matched(1));
    let odd = Pattern::exact(0, 1, 1).masked(1);
    assert_eq!(matcher.take(&odd), None);
    assert_eq!(matcher.take(&even), Some((Envelope::new(0, 1, 6), ())));
}

fn stale_handles_name_nothing<S: Structure>() {
    let mut matcher: Matcher<u32, u32, S> = Matcher::new(&Config::default());
    let Posting::Queued(first) = matcher.post(Pattern::exact(0, 1, 2), 10) else {
        panic!("nothing to match")
    };
    assert_eq!(matcher.cancel(first), Some(10));
    let Posting::Queued(second) = matcher.post(Pattern::exact(0, 1, 2), 11) else {
        panic!("nothing to match")
    };
    assert_eq!(matcher.cancel(first), None);
    assert_eq!(matcher.posted(second), Some((Pattern::exact(0, 1, 2), &11)));
}

fn a_refused_send_goes_first<S: Structure>() {
    let mut sends: Matcher<(), &str, S> = Matcher::new(&Config::default());
    let receiver = 3;
    for (tag, name) in [(1, "a"), (2, "b"), (1, "c")] {
        assert!(matches!(sends.arrive(Envelope::new(0, receiver, tag), || name), Arrival::Queued(_)));
    }
    let awaits = [9, 2, 1].map(|tag| Pattern::exact(0, receiver, tag));
    let (id, index) = sends.select_send(&awaits).expect("b and a match");
    assert_eq!((sends.remove(id), index), (Some((Envelope::new(0, receiver, 2), "b")), 1));
    let (id, index) = sends.select_send(&awaits).expect("a matches");
    assert_eq!((sends.remove(id), index), (Some((Envelope::new(0, receiver, 1), "a")), 2));
}
