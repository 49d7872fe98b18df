//! Groups, which are values.

use samite::{Comparison, Group, GroupError, Rank};

use crate::case::Cases;

fn group(ranks: &[u32]) -> Group {
    Group::new(ranks.iter().map(|&rank| Rank(rank))).expect("each rank is given once")
}

fn ranks(group: &Group) -> Vec<u32> {
    group.iter().map(|rank| rank.0).collect()
}

/// The name of a case, two groups, and their union, intersection and difference.
type Algebra = (&'static str, &'static [u32], &'static [u32], &'static [u32], &'static [u32], &'static [u32]);
const ALGEBRA: &[Algebra] = &[
    ("disjoint", &[0, 2], &[1, 3], &[0, 2, 1, 3], &[], &[0, 2]),
    ("overlapping", &[4, 1, 3], &[3, 7, 4], &[4, 1, 3, 7], &[4, 3], &[1]),
    ("equal", &[5, 6], &[5, 6], &[5, 6], &[5, 6], &[]),
    ("reversed", &[5, 6], &[6, 5], &[5, 6], &[5, 6], &[]),
    ("contained", &[0, 1, 2, 3], &[2, 1], &[0, 1, 2, 3], &[1, 2], &[0, 3]),
    ("empty-first", &[], &[3, 1], &[3, 1], &[], &[]),
    ("empty-second", &[3, 1], &[], &[3, 1], &[], &[3, 1]),
    ("ranges", &[10, 11, 12, 13], &[12, 13, 14], &[10, 11, 12, 13, 14], &[12, 13], &[10, 11]),
    ("strides", &[0, 3, 6, 9], &[0, 2, 4, 6], &[0, 3, 6, 9, 2, 4], &[0, 6], &[3, 9]),
];

pub(crate) fn add(cases: &mut Cases) {
    cases.section("7.3.2");
    for &(name, first, second, union, intersection, difference) in ALGEBRA {
        cases.value(
            format!("group.union.{name}"),
            "the ranks of the first in its order, then those of the second",
            move || {
                assert_eq!(ranks(&group(first).union(&group(second))), union);
            },
        );
        cases.value(
            format!("group.intersection.{name}"),
            "the common ranks in the order of the first",
            move || {
                assert_eq!(ranks(&group(first).intersection(&group(second))), intersection);
            },
        );
        cases.value(
            format!("group.difference.{name}"),
            "the ranks of the first alone, in its order",
            move || {
                assert_eq!(ranks(&group(first).difference(&group(second))), difference);
            },
        );
    }
    cases.value("group.include", "the members with the given numbers, in the given order", || {
        assert_eq!(ranks(&group(&[7, 5, 3, 1]).include([3, 0, 2]).expect("below its length")), [1, 7, 3]);
        assert_eq!(
            group(&[7, 5]).include([2]).map(|group| ranks(&group)),
            Err(GroupError::NoMember { index: 2, len: 2 })
        );
        assert_eq!(
            group(&[7, 5]).include([1, 1]).map(|group| ranks(&group)),
            Err(GroupError::Duplicate { rank: Rank(5) })
        );
        assert!(group(&[7, 5]).include([]).expect("it is empty").is_empty());
    });
    cases.value("group.exclude", "all members but those with the given numbers, in their order", || {
        assert_eq!(ranks(&group(&[7, 5, 3, 1]).exclude([2, 0])), [5, 1]);
        assert_eq!(ranks(&group(&[7, 5]).exclude([])), [7, 5]);
        assert!(group(&[7, 5]).exclude([0, 1]).is_empty());
    });
    cases.value("group.range-include", "ranges with strides, as of MPI_Group_range_incl", || {
        let all = Group::range(Rank(10), 20);
        assert_eq!(ranks(&all.stride(7).expect("the stride is not 0")), [10, 17, 24]);
        let last_to_first = all.include((0..20).rev().step_by(6)).expect("below its length");
        assert_eq!(ranks(&last_to_first), [29, 23, 17, 11]);
        assert_eq!(all.stride(0).map(|group| ranks(&group)), Err(GroupError::ZeroStride));
    });
    cases.value("group.duplicate", "a rank is a member once", || {
        assert_eq!(
            Group::new([Rank(4), Rank(2), Rank(4)]).map(|group| ranks(&group)),
            Err(GroupError::Duplicate { rank: Rank(4) })
        );
    });
    cases.value("group.absent", "the peer of no message is no member", || {
        let ranks = [Rank(4), Rank::ABSENT];
        assert_eq!(Group::new(ranks).map(|group| group.len()), Err(GroupError::Absent));
        assert_eq!(Group::range(Rank(7), u32::MAX).len(), u32::MAX - 7);
        assert!(Group::range(Rank::ABSENT, 1).is_empty());
    });
    cases.value("group.huge", "sets of 2^32 ranks in a few progressions", || {
        let all = Group::range(Rank(0), u32::MAX);
        let even = all.stride(2).expect("the stride is not 0");
        let odd = all.difference(&even);
        let both = even.union(&odd);
        assert_eq!((both.len(), both.compare(&all)), (u32::MAX, Comparison::Similar));
        assert_eq!((both.index(Rank(3)), both.rank(1)), (Some((1 << 31) + 1), Some(Rank(2))));
        assert_eq!((all.difference(&both).len(), all.intersection(&odd)), (0, odd));
    });
    cases.section("7.3.1");
    cases.value("group.size", "the number of members, and the empty group", || {
        assert_eq!((group(&[4, 9]).len(), Group::EMPTY.len()), (2, 0));
        assert!(Group::EMPTY.is_empty() && !group(&[0]).is_empty());
        assert_eq!(Group::range(Rank(3), 1 << 20).len(), 1 << 20);
    });
    cases.value("group.rank", "the member with a number, and the number of a member", || {
        let some = group(&[8, 2, 5]);
        assert_eq!(
            [0, 1, 2, 3].map(|index| some.rank(index)),
            [Some(Rank(8)), Some(Rank(2)), Some(Rank(5)), None]
        );
        assert_eq!([8, 2, 5, 3].map(|rank| some.index(Rank(rank))), [Some(0), Some(1), Some(2), None]);
        assert!(some.contains(Rank(5)) && !some.contains(Rank(0)));
    });
    cases.value("group.translate", "the number of a member in another group", || {
        let (one, other) = (group(&[8, 2, 5]), group(&[5, 9, 8]));
        assert_eq!([0, 1, 2, 3].map(|index| one.translate(index, &other)), [Some(2), None, Some(0), None]);
    });
    cases.value("group.compare", "identical, similar or unequal", || {
        let some = group(&[8, 2, 5]);
        assert_eq!(some.compare(&group(&[8, 2, 5])), Comparison::Identical);
        assert_eq!(some.compare(&group(&[2, 5, 8])), Comparison::Similar);
        assert_eq!(some.compare(&group(&[8, 2])), Comparison::Unequal);
        assert_eq!(some.compare(&group(&[8, 2, 6])), Comparison::Unequal);
        assert_eq!(Group::EMPTY.compare(&group(&[])), Comparison::Identical);
        assert_eq!(Group::range(Rank(0), 3).compare(&group(&[0, 1, 2])), Comparison::Identical);
    });
    cases.value("group.filter", "the members that a function keeps", || {
        assert_eq!(ranks(&Group::range(Rank(0), 10).filter(|rank| rank.0 % 3 == 1)), [1, 4, 7]);
    });
    cases.value("group.inverse", "rank and index are inverse, on ranges, strides and lists", || {
        let all = Group::range(Rank(100), 1000);
        let kinds = [
            all.clone(),
            all.stride(3).expect("the stride is not 0"),
            all.exclude([5, 500, 999]),
            group(&[9, 1, 8, 2, 7]),
        ];
        for kind in kinds {
            for index in 0..kind.len() {
                let rank = kind.rank(index).expect("below its length");
                assert_eq!(kind.index(rank), Some(index));
            }
            assert_eq!(kind.iter().count(), kind.len() as usize);
            assert_eq!(kind.rank(kind.len()), None);
        }
    });
}
