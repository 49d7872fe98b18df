//! Generated operations, over domains that are small enough for matches.

use proptest::prelude::*;
use samite_matching::{Envelope, Pattern, Source};

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Arrive(Envelope),
    Post(Pattern),
    /// The arrival of many messages in sequence, so that queues become long enough for all parts of a structure.
    ArriveMany {
        first: Envelope,
        count: u32,
        rank_step: u32,
        tag_step: u64,
    },
    PostMany {
        first: Pattern,
        count: u32,
        rank_step: u32,
        tag_step: u64,
    },
    /// A number of matched probes with the same pattern.
    Take {
        pattern: Pattern,
        times: u32,
    },
    Probe(Pattern),
    SelectSend(Vec<Pattern>),
    /// The cancellation of one of all the receives that were ever queued. The index selects the receive.
    Cancel(prop::sample::Index),
    /// The removal of one of all the messages that were ever queued.
    Remove(prop::sample::Index),
    PurgeSource(u32),
    PurgeContext(u32),
    VisitAnySource,
}

pub(crate) fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(), 1..250)
}

/// Generates a budget: no limit, or a limit between 0 bytes and the size of several hundred entries.
pub(crate) fn budget() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![3 => Just(None), 1 => (0usize..40_000).prop_map(Some)]
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        30 => envelope().prop_map(Arrive),
        30 => pattern().prop_map(Post),
        4 => (envelope(), count(), rank_step(), tag_step())
            .prop_map(|(first, count, rank_step, tag_step)| ArriveMany { first, count, rank_step, tag_step }),
        4 => (pattern(), count(), rank_step(), tag_step())
            .prop_map(|(first, count, rank_step, tag_step)| PostMany { first, count, rank_step, tag_step }),
        6 => (pattern(), prop_oneof![1u32..3, 1u32..60]).prop_map(|(pattern, times)| Take { pattern, times }),
        4 => pattern().prop_map(Probe),
        3 => prop::collection::vec(pattern(), 0..5).prop_map(SelectSend),
        10 => any::<prop::sample::Index>().prop_map(Cancel),
        10 => any::<prop::sample::Index>().prop_map(Remove),
        2 => rank().prop_map(PurgeSource),
        1 => context().prop_map(PurgeContext),
        1 => Just(VisitAnySource),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (context(), rank(), tag()).prop_map(|(context, source, tag)| Envelope { context, source, tag })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let source = prop_oneof![3 => rank().prop_map(Source::rank), 1 => Just(Source::ANY)];
    (context(), source, tag(), mask()).prop_map(|(context, source, tag, mask)| Pattern {
        context,
        source,
        tag,
        mask,
    })
}

fn context() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(0u32), 3 => Just(1), 1 => Just(u32::MAX)]
}

/// Generates ranks that are neighbours, share blocks of 16 or 64, or are far apart, and `u32::MAX`, which is no rank.
fn rank() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 0u32..4,
        2 => prop::sample::select(vec![15, 16, 17, 31, 63, 64, 65, 4096, 1 << 20, (1 << 20) + 1, u32::MAX - 1]),
        1 => 0u32..300,
        1 => Just(u32::MAX),
    ]
}

fn tag() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..4, 2 => 0u64..70, 1 => Just(u64::MAX), 1 => Just(1 << 63)]
}

fn mask() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(!0u64), 2 => Just(0), 1 => prop::sample::select(vec![1, 2, !1, 1 << 63, 0xf0])]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1u32..10, 2 => 10u32..80, 1 => 80u32..300]
}

fn rank_step() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0u32, 0, 1, 1, 2, 16, 64, u32::MAX])
}

fn tag_step() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0u64, 0, 1, 3, u64::MAX])
}
