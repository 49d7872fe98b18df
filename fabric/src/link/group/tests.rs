//! Tests of groups, against lists of ranks.

use proptest::prelude::*;

use super::*;

fn list(group: &Group) -> Vec<u32> {
    group.iter().map(|rank| rank.0).collect()
}

/// Lists of ranks of all shapes: random, ranges with holes, progressions, and a few ranks near the largest possible
/// rank.
fn ranks() -> impl Strategy<Value = Vec<u32>> {
    let distinct = |ranks: Vec<u32>| {
        let mut seen = std::collections::HashSet::new();
        ranks.into_iter().filter(|rank| seen.insert(*rank)).collect::<Vec<_>>()
    };
    prop_oneof![
        prop::collection::vec(0u32..40, 0..20).prop_map(distinct),
        (0u32..30, 0u32..20).prop_map(|(first, len)| (first..first + len).collect()),
        (0u32..30, 0u32..20, 0u32..50)
            .prop_map(|(first, len, hole)| (first..first + len).filter(|rank| *rank != hole).collect()),
        (0u32..10, 1usize..5, any::<bool>()).prop_map(|(first, step, down)| {
            let mut ranks: Vec<u32> = (first..40).step_by(step).collect();
            if down {
                ranks.reverse();
            }
            ranks
        }),
        prop::collection::vec(u32::MAX - 6..u32::MAX, 0..5).prop_map(distinct),
        // Several progressions that may overlap, in any order.
        prop::collection::vec((0u32..40, 1usize..6, 1usize..12, any::<bool>()), 0..6).prop_map(
            move |parts| {
                let part = |(first, step, len, down): (u32, usize, usize, bool)| {
                    let mut ranks: Vec<u32> = (first..).step_by(step).take(len).collect();
                    if down {
                        ranks.reverse();
                    }
                    ranks
                };
                distinct(parts.into_iter().flat_map(part).collect())
            }
        ),
        // The ranks that leave some remainders when divided by `period`, all ranks of one remainder before those of the
        // next.
        (2u32..6, prop::collection::vec(0u32..6, 1..6), 10u32..60).prop_map(move |(period, offsets, end)| {
            let of = |offset: u32| (offset % period..end).step_by(period as usize);
            distinct(offsets.into_iter().flat_map(of).collect())
        }),
    ]
}

proptest! {
    #[test]
    fn every_operation_agrees_with_a_list(a in ranks(), b in ranks(), indices in ranks()) {
        let (group, other) = (Group::new(a.iter().copied().map(WorldRank)).unwrap(), Group::new(b.iter().copied().map(WorldRank)).unwrap());
        prop_assert_eq!(list(&group), a.clone());
        prop_assert_eq!(group.len() as usize, a.len());
        for index in 0..a.len() as u32 + 2 {
            prop_assert_eq!(group.rank(index), a.get(index as usize).copied().map(WorldRank));
            let found = a.get(index as usize).and_then(|rank| b.iter().position(|other| other == rank));
            prop_assert_eq!(group.translate(index, &other), found.map(|found| found as u32));
        }
        for rank in (0..110).chain(u32::MAX - 7..=u32::MAX) {
            let found = a.iter().position(|member| *member == rank);
            prop_assert_eq!(group.index(WorldRank(rank)), found.map(|found| found as u32));
        }
        let without: Vec<u32> = b.iter().copied().filter(|rank| !a.contains(rank)).collect();
        prop_assert_eq!(list(&group.union(&other)), [a.clone(), without].concat());
        let common: Vec<u32> = a.iter().copied().filter(|rank| b.contains(rank)).collect();
        prop_assert_eq!(list(&group.intersection(&other)), common);
        let rest: Vec<u32> = a.iter().copied().filter(|rank| !b.contains(rank)).collect();
        prop_assert_eq!(list(&group.difference(&other)), rest);
        let chosen: Option<Vec<u32>> = indices.iter().map(|index| a.get(*index as usize).copied()).collect();
        let bounds = a.iter().min().zip(a.iter().max()).map(|(low, high)| (WorldRank(*low), WorldRank(*high)));
        prop_assert_eq!(group.bounds(), bounds);
        prop_assert_eq!(Group::from_words(&group.to_words(), u32::MAX), Some(group.clone()));
        let included = group.include(indices.iter().copied()).unwrap();
        prop_assert_eq!(included.map(|group| list(&group)), chosen);
        let remaining = (0..).zip(&a).filter(|(index, _)| !indices.contains(index)).map(|(_, rank)| *rank);
        prop_assert_eq!(list(&group.exclude(indices.iter().copied())), remaining.collect::<Vec<_>>());
        let sorted = |mut ranks: Vec<u32>| { ranks.sort_unstable(); ranks };
        let comparison = match () {
            () if a == b => Comparison::Identical,
            () if sorted(a.clone()) == sorted(b.clone()) => Comparison::Similar,
            () => Comparison::Unequal,
        };
        prop_assert_eq!(group.compare(&other), comparison);
    }

    #[test]
    fn any_words_are_a_group_or_none(words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..4, (0u64..9, 0u64..9).prop_map(|(first, len)| len << 32 | first)], 0..7)) {
        if let Some(group) = Group::from_words(&words, 10) {
            prop_assert!(group.iter().all(|rank| rank.0 < 10));
            prop_assert_eq!(Group::new(group.iter()), Ok(group.clone()));
            prop_assert_eq!(Group::from_words(&group.to_words(), 10), Some(group));
        }
    }

    #[test]
    fn a_group_is_represented_in_one_way(a in ranks(), b in ranks()) {
        let group = Group::new(a.iter().copied().map(WorldRank)).unwrap();
        let other = Group::new(b.iter().copied().map(WorldRank)).unwrap();
        prop_assert_eq!(group.union(&other).intersection(&group), group.clone());
        prop_assert_eq!(group.difference(&other).union(&other).compare(&group.union(&other)) == Comparison::Unequal, false);
        prop_assert_eq!(group == other, a == b);
    }

    #[test]
    fn indices_in_progression_pick_members(a in ranks(), picks in prop::collection::vec((0u32..40, -5i64..6, 0u32..9), 0..4)) {
        let group = Group::new(a.iter().copied().map(WorldRank)).unwrap();
        let picks: Vec<Indices> = picks.into_iter().map(|(first, step, len)| Indices { first, step, len }).collect();
        let indices = |pick: &Indices| {
            let Indices { first, step, len } = *pick;
            (0..i64::from(len)).map(move |number| i64::from(first) + number * step)
        };
        let member = |index: i64| usize::try_from(index).ok().and_then(|index| a.get(index)).copied();
        let expected: Option<Vec<u32>> = picks.iter().flat_map(indices).map(member).collect();
        let is_once = |ranks: &Vec<u32>| (0..ranks.len()).all(|at| !ranks[..at].contains(&ranks[at]));
        let has_step = picks.iter().all(|pick| pick.step != 0 || pick.len == 0);
        let expected = expected.filter(is_once).filter(|_| has_step);
        prop_assert_eq!(group.pick(picks).map(|group| list(&group)), expected);
    }

    #[test]
    fn a_rank_that_occurs_twice_is_refused(a in ranks(), index in any::<prop::sample::Index>()) {
        prop_assume!(!a.is_empty());
        let twice = a[index.index(a.len())];
        let refused = Group::new(a.iter().copied().chain([twice]).map(WorldRank));
        prop_assert_eq!(refused, Err(NoGroup::Duplicate(WorldRank(twice))));
    }
}

#[test]
fn what_is_regular_takes_no_memory() {
    let world = Group::range(WorldRank(0), 1 << 20);
    for group in [world.stride(2), world.exclude([0]), world.filter(|rank| rank >= WorldRank(1 << 19))] {
        assert!(matches!(group.0, Shape::Progression { .. }), "{group:?}");
    }
    let holes = world.exclude([5, 70_000, 900_000]);
    assert_eq!(
        (holes.part_count(), holes.rank(5), holes.index(WorldRank(900_001))),
        (4, Some(WorldRank(6)), Some(899_998))
    );
    assert!(size_of::<Group>() <= 24);
}

/// The time of a set operation depends on the number of progressions of the groups, and not on the number of ranks.
#[test]
fn set_operations_do_not_list_ranks() {
    let all = Group::range(WorldRank(0), u32::MAX);
    let half = Group::range(WorldRank(0), 1 << 31);
    let other_half = Group::range(WorldRank(1 << 31), (1 << 31) - 1);
    assert_eq!(half.union(&other_half), all);
    assert_eq!(all.difference(&half), other_half);
    assert_eq!((all.union(&half), half.intersection(&all)), (all.clone(), half.clone()));

    let even = all.stride(2);
    let odd = all.difference(&even);
    assert_eq!((even.len(), odd.len(), odd.part_count()), (1 << 31, (1 << 31) - 1, 1));
    let both = even.union(&odd);
    assert_eq!((both.len(), both.part_count(), both.compare(&all)), (u32::MAX, 2, Comparison::Similar));
    assert_eq!(
        (both.index(WorldRank(7)), both.rank((1 << 31) + 3)),
        (Some((1 << 31) + 3), Some(WorldRank(7)))
    );
    assert_eq!((all.intersection(&both), both.intersection(&all)), (all.clone(), both.clone()));
    assert_eq!((all.difference(&both), both.difference(&half).len()), (Group::EMPTY, (1 << 31) - 1));
    assert_eq!(Group::from_words(&both.to_words(), u32::MAX), Some(both.clone()));

    let quarter = |offset| {
        let indices = Indices { first: offset, step: 4, len: (u32::MAX - offset).div_ceil(4) };
        all.pick([indices]).unwrap()
    };
    let three = quarter(2).union(&quarter(0)).union(&quarter(1));
    assert_eq!((three.part_count(), all.difference(&three)), (3, quarter(3)));
    assert_eq!((three.difference(&even), three.intersection(&odd)), (quarter(1), quarter(1)));

    let holes = all.exclude([7, 1 << 20, 4_000_000_000]);
    assert_eq!((holes.part_count(), holes.len()), (4, u32::MAX - 3));
    assert_eq!(holes.intersection(&even).len(), (1 << 31) - 2);
    assert_eq!(even.difference(&holes), Group::new([1 << 20, 4_000_000_000].map(WorldRank)).unwrap());
    // The progressions of 0, 6, 12... and of 1, 4, 7... have no rank in common.
    let (sixth, third) = (all.stride(6), all.difference(&Group::range(WorldRank(0), 1)).stride(3));
    assert_eq!(sixth.union(&third).part_count(), 2);
    assert!(sixth.intersection(&third).is_empty());
}

#[test]
fn words_that_name_a_rank_twice_are_refused_without_a_list() {
    let words = |parts: &[(u32, u32, i64)]| -> Vec<u64> {
        let word =
            |&(first, len, step): &(u32, u32, i64)| [u64::from(len) << 32 | u64::from(first), step as u64];
        parts.iter().flat_map(word).collect()
    };
    let half = 1 << 31;
    for (parts, is_group) in [
        (&[(0, half - 1, 2), (1, half - 1, 2)][..], true),
        (&[(0, half - 1, 2), (u32::MAX - 1, half - 1, -2)], false),
        (&[(0, half - 1, 2), (2, 1 << 20, 4095)], false),
        (&[(0, half - 1, 2), (1, 1 << 20, 4094)], true),
        (&[(0, half, 1), (half - 1, 1, 1)], false),
    ] {
        let group = Group::from_words(&words(parts), u32::MAX);
        assert_eq!(group.is_some(), is_group, "{parts:?}");
    }
}

/// If many progressions of a group overlap, its ranks are compared one by one. To compare the progressions pair by pair
/// would take longer.
#[test]
fn many_progressions_that_overlap_are_still_a_group() {
    let grid: Vec<WorldRank> =
        (0..1000).flat_map(|column| (0..1000).map(move |row| WorldRank(1000 * row + column))).collect();
    let transposed = Group::new(grid.iter().copied()).unwrap();
    assert_eq!(transposed.part_count(), 1000);
    assert!((0..1_000_000).step_by(997).all(|index| transposed.index(grid[index]) == Some(index as u32)));
    let all = Group::range(WorldRank(0), 1_000_000);
    assert_eq!(all.intersection(&transposed), all);
    assert_eq!(transposed.intersection(&all), transposed);
    assert_eq!(Group::from_words(&transposed.to_words(), 1_000_000), Some(transposed));
}

#[test]
fn the_largest_number_is_not_a_rank() {
    assert_eq!(Group::new([0, u32::MAX].map(WorldRank)), Err(NoGroup::NotARank));
}

#[test]
fn a_group_prints_its_progressions() {
    let shown = |ranks: &[u32]| format!("{:?}", Group::new(ranks.iter().copied().map(WorldRank)).unwrap());
    assert_eq!(shown(&[]), "Group {}");
    assert_eq!(shown(&[4, 5, 6]), "Group {4..=6}");
    assert_eq!(shown(&[7, 5, 3]), "Group {7..=3 by -2}");
    assert_eq!(shown(&[0, 1, 2, 9, 7, 5]), "Group {0..=2, 9..=5 by -2, 6 members}");
}
