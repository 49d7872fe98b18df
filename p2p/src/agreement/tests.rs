//! Tests of agreements without an engine.

use super::*;

/// Returns an agreement of ranks at the rank with this index.
fn agreement(ranks: Group, index: u32) -> Agreement {
    let mine = ranks.rank(index).expect("a rank that takes part");
    let proposal = Proposal { ranks, control: 0, tag: None, choice: Choice::Group(Group::EMPTY) };
    Agreement::new(AgreementId(1), proposal, mine, 0, Time::ZERO, Time::NEVER)
}

/// Each rank except the first is among the children of its parent, and the depth of the tree is the logarithm of
/// its size.
#[test]
fn the_tree_of_a_million_ranks_has_twenty_levels() {
    for (n, deepest) in [(1, 0), (2, 1), (3, 1), (1000, 9), (1 << 20, 20)] {
        let ranks = Group::range(WorldRank(5), n);
        let mut depths = vec![0; n as usize];
        let mut children = 0;
        for index in 0..n {
            let of = agreement(ranks.clone(), index);
            let mine = of.world_rank(index);
            if let Some(parent) = of.parent() {
                let parent = ranks.index(parent).unwrap();
                assert!(parent < index);
                depths[index as usize] = depths[parent as usize] + 1;
                let siblings = agreement(ranks.clone(), parent);
                assert!((0..=20).any(|number| siblings.child(number) == Some(mine)));
            }
            children += (0..).map_while(|number| of.child(number)).count() as u32;
        }
        assert_eq!(children, n - 1, "each rank has one parent");
        assert_eq!(depths.into_iter().max(), Some(deepest));
    }
}

/// The state of an agreement does not grow with the number of ranks in a range that take part.
#[test]
fn an_agreement_of_a_million_ranks_is_small() {
    assert!(size_of::<Agreement>() < 1024, "{} bytes", size_of::<Agreement>());
}

#[test]
fn answers_are_read_as_they_were_written() {
    for vote in [Vote::Yes, Vote::Again, Vote::GaveUp(WorldRank(7)), Vote::Exhausted] {
        let stamp = Stamp { attempt: 4, answered: 5, number: 6 };
        let words = stamp.words_of(&Answer { vote, next: 8, words: vec![1, 2, 3] });
        let Message { stamp: read_stamp, answer: read } = Message::of(&words).unwrap();
        assert_eq!((read.vote, read.next, read.words, read_stamp), (vote, 8, vec![1, 2, 3], stamp));
    }
    assert!(Message::of(&[1, 2, 3, 4]).is_none());
    assert!(Vote::Yes < Vote::Again && Vote::Again < Vote::GaveUp(WorldRank(0)));
    assert!(Vote::GaveUp(WorldRank(9)) < Vote::Failed(WorldRank(0)));
}

#[test]
fn choices_are_those_of_the_ranks_that_answer() {
    let mut root = agreement(Group::range(WorldRank(0), 7), 0);
    root.choice = Choice::Colour(Some(5), -1);
    assert_eq!([0, 1, 2].map(|number| root.below(number)), [1..2, 2..4, 4..7]);
    let answer = |vote, words: &[u64]| Answer { vote, next: 2, words: [&[0], words].concat() };
    let minus_one = -1_i64 as u64;
    let one_row = |lines: u64| 1 << 32 | lines;
    for (words, of, is_valid) in [
        (&[one_row(1), 1, 9, 9][..], 1..2, true),
        (&[one_row(2), 1, 9, 9, 1, u64::MAX, 0], 2..4, true),
        (&[one_row(1), 2, 9, 9, 1, 1], 2..4, true),
        (&[], 1..2, false),
        (&[one_row(1), 1, 9], 1..2, false),
        (&[one_row(2), 1, 9, 9, 1, 9, 9], 1..2, false),
        (&[one_row(1), 1, 9, 9], 2..4, false),
        (&[one_row(2), 1, 5, minus_one, 1, 9, 9], 0..2, true),
        (&[one_row(2), 1, u64::MAX, minus_one, 1, 9, 9], 0..2, false),
    ] {
        assert_eq!(root.choices_in(&answer(Vote::Yes, words), of).is_some(), is_valid, "{words:?}");
    }
    // When a rank gives up, no rank gets a communicator, so an answer without choices is valid.
    assert!(root.choices_in(&answer(Vote::GaveUp(WorldRank(1)), &[]), 1..2).is_some());
    assert!(root.choices_in(&answer(Vote::Again, &[]), 1..2).is_none());
    root.round = Round::Opening;
    assert!(root.choices_in(&answer(Vote::Again, &[]), 1..2).is_some());
    let mut same = agreement(Group::range(WorldRank(0), 2), 0);
    assert!(same.choices_in(&answer(Vote::Yes, &[]), 1..2).is_some());
    assert!(same.choices_in(&answer(Vote::Yes, &[one_row(1), 1, 2, 3]), 1..2).is_none());
    same.choice = Choice::Colour(None, 0);
    assert!(same.choices_in(&answer(Vote::Yes, &[one_row(2), 1, u64::MAX, 0, 1, 1, 1]), 0..2).is_some());
}

/// An answer contains incarnations of the ranks that answer alone, and a decision contains the receiver's own.
#[test]
fn incarnations_are_those_of_the_ranks_that_answer() {
    let incarnations = |entries: &[(u32, u32)]| -> Incarnations {
        entries.iter().map(|(rank, number)| (WorldRank(*rank), *number)).collect()
    };
    let ranks = Group::range(WorldRank(5), 7);
    for (mine, entries, of, is_valid) in [
        (&[][..], &[][..], 3..4, true),
        (&[], &[(8, 3)], 3..4, true),
        (&[], &[(7, 3)], 3..4, false),
        (&[], &[(4, 3)], 3..4, false),
        (&[], &[(12, 3)], 3..4, false),
        (&[], &[], 0..7, true),
        (&[], &[(5, 1), (11, 3)], 0..7, true),
        (&[], &[(12, 3)], 0..7, false),
        (&[], &[(7, 3)], 0..7, false),
        (&[(7, 3)], &[(7, 3), (8, 4)], 0..7, true),
        (&[(7, 3)], &[(7, 2)], 0..7, false),
        (&[(7, 3)], &[], 0..7, false),
    ] {
        let mut rank_7 = agreement(ranks.clone(), 2);
        rank_7.incarnations = incarnations(mine);
        let answer =
            Answer { words: write_incarnations(&incarnations(entries)), ..Answer::of_vote(Vote::Yes) };
        let found = rank_7.choices_in(&answer, of);
        assert_eq!(found.map(|(found, _)| found), is_valid.then(|| incarnations(entries)), "{entries:?}");
    }
}

#[test]
fn incarnations_are_read_as_they_were_written() {
    for entries in [&[][..], &[(WorldRank(3), 7)], &[(WorldRank(0), 0), (WorldRank(u32::MAX), u32::MAX)]] {
        let incarnations: Incarnations = entries.iter().copied().collect();
        let words = [&write_incarnations(&incarnations)[..], &[1, 2, 3]].concat();
        assert_eq!(read_incarnations(&words), Some((incarnations, &[1, 2, 3][..])));
    }
    for words in [&[][..], &[1], &[u64::MAX], &[2, 1, 1], &[2, 2 << 32, 1 << 32], &[2, 1 << 32, 1 << 32 | 1]]
    {
        assert_eq!(read_incarnations(words), None, "{words:?}");
    }
}

/// Fixes a part of the meaning of the wire's version: if this test must change, so must the version.
#[test]
fn version_6_has_these_words_of_incarnations() {
    assert_eq!(samite_fabric::wire::VERSION, 6);
    let incarnations = Incarnations::from([(WorldRank(9), 2), (WorldRank(3), 7)]);
    assert_eq!(write_incarnations(&incarnations), [2, 3 << 32 | 7, 9 << 32 | 2]);
}

/// A creation by some ranks, without an engine: each rank sends its answer up the tree, and the root's answer down.
struct Simulated<'a> {
    ranks: Group,
    choice: &'a dyn Fn(u32) -> Choice,
    /// The largest number of words in an answer.
    longest: usize,
}

impl Simulated<'_> {
    fn agreement(&self, index: u32) -> Agreement {
        let mut of = agreement(self.ranks.clone(), index);
        of.choice = (self.choice)(index);
        of.propose(Some(2), None);
        of
    }

    /// Returns the merged answer of a rank and its subtree, and the number of rounds until the answer is complete. In a
    /// round, a rank sends at most one message and receives at most one.
    fn answer(&mut self, index: u32) -> (Answer, usize) {
        let (mut of, mut rounds) = (self.agreement(index), 0);
        for number in 0..of.children() {
            let (answer, ready) = self.answer(of.below(number).start);
            rounds = rounds.max(ready) + 1;
            let (_, choices) = of.choices_in(&answer, of.below(number)).expect("it is valid");
            of.choices.append(choices);
            of.answer.merge(&answer);
        }
        of.answer.words = [write_incarnations(&of.incarnations), of.choices.to_words()].concat();
        self.longest = self.longest.max(Stamp::default().words_of(&of.answer).len());
        (of.answer, rounds)
    }

    /// Returns the number of rounds in which the root's decision reaches the whole subtree of a rank that has it.
    fn rounds_down(&self, index: u32) -> usize {
        let of = agreement(self.ranks.clone(), index);
        let children = (0..of.children()).rev().map(|number| of.below(number).start);
        (1..).zip(children).map(|(sent, child)| sent + self.rounds_down(child)).max().unwrap_or(0)
    }

    /// Returns the new group of which a rank becomes a member by the root's decision.
    fn group(&self, index: u32, decision: &Answer) -> Option<Group> {
        let mut of = self.agreement(index);
        (_, of.choices) = of.choices_in(decision, 0..self.ranks.len()).expect("it is valid");
        let Choice::Colour(colour, _) = of.choice else { unreachable!() };
        colour.map(|colour| of.members_of(colour))
    }
}

/// A regular split: its name, and a function that returns a rank's colour and key. The arguments of the function are
/// the rank, and the number of ranks.
type Regular = (&'static str, fn(u32, u32) -> (Option<u64>, i64));

/// Splits that programs make of large communicators.
const REGULAR: &[Regular] = &[
    ("one colour", |_, _| (Some(7), 0)),
    ("one colour, reversed", |rank, _| (Some(7), -i64::from(rank))),
    ("halves", |rank, n| (Some(u64::from(rank >= n / 2)), 0)),
    ("blocks", |rank, _| (Some(u64::from(rank / 48)), rank.into())),
    ("blocks that are named by their first rank", |rank, _| (Some(u64::from(rank / 100 * 100)), 0)),
    ("remainders", |rank, _| (Some(u64::from(rank % 48)), rank.into())),
    ("remainders, reversed", |rank, _| (Some(u64::from(rank % 7)), -i64::from(rank))),
    ("even and odd", |rank, _| (Some(u64::from(rank % 2)), 0)),
    ("a colour for each rank", |rank, _| (Some(rank.into()), 0)),
    ("a colour for each pair of ranks that face each other", |rank, n| {
        (Some(rank.min(n - 1 - rank).into()), 0)
    }),
    ("the first rank of each host", |rank, _| ((rank % 64 == 0).then_some(0), 0)),
    ("the first rank apart", |rank, _| (Some(u64::from(rank > 0)), 0)),
    ("hosts, whose numbers are not in order", |rank, _| (Some([9, 4, 1 << 60, 17, 3][rank as usize % 5]), 0)),
    ("rows of a grid", |rank, n| (Some(u64::from(rank / n.isqrt())), i64::from(rank % n.isqrt()))),
    ("columns of a grid", |rank, n| (Some(u64::from(rank % n.isqrt())), i64::from(rank / n.isqrt()))),
];

/// Returns the groups of every `step`th rank in a split, by lists of all choices.
fn by_lists(ranks: &Group, choices: &[(Option<u64>, i64)], step: usize) -> HashMap<u64, Group> {
    let colours = choices.iter().step_by(step).filter_map(|(colour, _)| *colour);
    let mut lists: HashMap<u64, Vec<(i64, u32)>> = colours.map(|colour| (colour, Vec::new())).collect();
    for (index, &(colour, key)) in (0..).zip(choices) {
        if let Some(list) = colour.and_then(|colour| lists.get_mut(&colour)) {
            list.push((key, index));
        }
    }
    let group = |mut members: Vec<(i64, u32)>| {
        members.sort_unstable();
        ranks.include(members.into_iter().map(|(_, index)| index)).unwrap().unwrap()
    };
    lists.into_iter().map(|(colour, members)| (colour, group(members))).collect()
}

/// Splits these ranks, compares the groups of every `step`th rank with groups made by lists, and checks that messages
/// are short and rounds few. Returns the largest number of words in a message.
fn check_regular(ranks: &Group, step: usize, are_checked: impl Fn(&str) -> bool) -> usize {
    let (n, mut longest) = (ranks.len(), 0);
    for &(name, choice) in REGULAR.iter().filter(|(name, _)| are_checked(name)) {
        let choices: Vec<_> = (0..n).map(|index| choice(index, n)).collect();
        let of = |index: u32| Choice::Colour(choices[index as usize].0, choices[index as usize].1);
        let mut split = Simulated { ranks: ranks.clone(), choice: &of, longest: 0 };
        let (decision, up) = split.answer(0);
        let levels = (n - 1).ilog2() as usize + 1;
        assert_eq!((up, split.rounds_down(0)), (levels, levels), "{name}");
        assert!(split.longest <= 64, "{name}: {} words", split.longest);
        longest = longest.max(split.longest);
        let groups = by_lists(ranks, &choices, step);
        for index in (0..n).step_by(step) {
            let expected = choices[index as usize].0.map(|colour| groups[&colour].clone());
            assert_eq!(split.group(index, &decision), expected, "{name}: rank {index}");
        }
    }
    longest
}

#[test]
fn regular_splits_are_short_and_right() {
    check_regular(&Group::range(WorldRank(5), 1 << 12), 1, |_| true);
    check_regular(&Group::range(WorldRank(5), 3000), 7, |_| true);
    let odd_and_even = Group::range(WorldRank(0), 999).stride(2).union(&Group::range(WorldRank(0), 999));
    check_regular(&odd_and_even, 7, |_| true);
}

#[test]
fn regular_splits_of_a_million_ranks_take_twenty_rounds_and_short_messages() {
    let names = ["blocks", "remainders", "a colour for each rank", "the first rank of each host"];
    let longest = check_regular(&Group::range(WorldRank(5), 1 << 20), 99_991, |name| names.contains(&name));
    // A rank keeps an answer and the choices in it.
    let state = size_of::<Agreement>() + 2 * longest * size_of::<u64>();
    assert!(state < 1024, "{state} bytes");
}

#[test]
fn a_duplicate_of_a_million_ranks_takes_twenty_rounds_and_short_messages() {
    let ranks = Group::range(WorldRank(0), 1 << 20);
    let choice = |_| Choice::Group(ranks.clone());
    let mut duplicate = Simulated { ranks: ranks.clone(), choice: &choice, longest: 0 };
    let (_, up) = duplicate.answer(0);
    assert_eq!((up, duplicate.rounds_down(0), duplicate.longest), (20, 20, HEAD + 1));
}
