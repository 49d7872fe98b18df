//! Tests of choices, against lists of pairs.

use proptest::prelude::*;

use super::*;

/// Parts of sequences: lines, rows of lines that are repeated, and any pairs.
fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    let number = || prop_oneof![0i64..4, -3i64..4, any::<i64>(), Just(i64::MIN), Just(1i64 << 62)];
    let pair = || (number(), number()).prop_map(|(colour, key)| Pair { colour: colour as u64, key });
    let line = || {
        (pair(), pair(), 1u32..9).prop_map(|(first, step, len)| {
            (0..len).map(|number| first.plus(step.times(number))).collect::<Vec<_>>()
        })
    };
    let tile = (prop::collection::vec(line(), 1..5), pair(), 1u32..9).prop_map(|(row, shift, rows)| {
        let shifted = move |row: Vec<Pair>, number: u32| {
            row.into_iter().map(move |pair| pair.plus(shift.times(number)))
        };
        let row: Vec<Pair> = row.concat();
        (0..rows).flat_map(|number| shifted(row.clone(), number)).collect::<Vec<_>>()
    });
    let part = prop_oneof![line(), tile, prop::collection::vec(pair(), 0..6)];
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.concat())
}

/// Returns the choices of `pairs`: divides the pairs in two parts where `cut` says, and appends the choices of the
/// second part to those of the first. The choices of the parts are put together in the same way.
fn gathered(pairs: &[Pair], cut: &mut impl FnMut(usize) -> usize) -> Choices {
    match pairs {
        [] => Choices::default(),
        &[pair] => Choices::of(pair),
        _ => {
            let (first, second) = pairs.split_at(cut(pairs.len() - 1) + 1);
            let mut all = gathered(first, cut);
            let second = gathered(second, cut);
            all.append(if cut(2) == 0 { second } else { sent(&second, pairs.len() - first.len()) });
            all
        }
    }
}

/// Returns the choices as a receiver reads them.
fn sent(choices: &Choices, len: usize) -> Choices {
    let words = choices.to_words();
    assert!(words.len() <= Choices::words_max(len as u32), "{} words for {len} ranks", words.len());
    Choices::from_words(&words, len as u32).expect("it reads what was written")
}

fn listed(choices: &Choices) -> Vec<Pair> {
    (0..).map_while(|index| choices.get(index)).collect()
}

fn indices_by_list(pairs: &[Pair], colour: u64) -> Vec<u32> {
    let mut found: Vec<(i64, u32)> = (0..)
        .zip(pairs)
        .filter(|(_, pair)| pair.colour == colour)
        .map(|(index, pair)| (pair.key, index))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, index)| index).collect()
}

fn indices(choices: &Choices, colour: u64) -> Vec<u32> {
    let each = |indices: Indices| {
        (0..indices.len)
            .map(move |number| (i64::from(indices.first) + indices.step * i64::from(number)) as u32)
    };
    choices.indices_of(colour).into_iter().flat_map(each).collect()
}

proptest! {
    #[test]
    fn choices_agree_with_a_list(pairs in pairs(), cuts in prop::collection::vec(any::<usize>(), 1..20)) {
        let mut cuts = cuts.into_iter().cycle();
        let choices = gathered(&pairs, &mut |below| cuts.next().unwrap() % below.max(1));
        prop_assert_eq!(listed(&choices), pairs.clone());
        let read = sent(&choices, pairs.len());
        prop_assert_eq!(listed(&read), pairs.clone());
        for colour in pairs.iter().map(|pair| pair.colour).chain([77]) {
            let expected = indices_by_list(&pairs, colour);
            prop_assert_eq!(indices(&choices, colour), expected.clone());
            prop_assert_eq!(indices(&read, colour), expected);
        }
    }

    #[test]
    fn any_words_are_choices_or_none(
        words in prop::collection::vec(prop_oneof![0u64..4, (0u64..4, 0u64..4).prop_map(|(rows, lines)| rows << 32 | lines), any::<u64>()], 0..20),
        len in 0u32..12,
    ) {
        if let Some(choices) = Choices::from_words(&words, len) {
            let pairs = listed(&choices);
            prop_assert_eq!(pairs.len(), len as usize);
            for colour in 0..4 {
                prop_assert_eq!(indices(&choices, colour), indices_by_list(&pairs, colour));
            }
            let mut behind = Choices::of(Pair { colour: 1, key: 1 });
            behind.append(choices);
            prop_assert_eq!(&listed(&behind)[1..], &pairs[..]);
        }
    }

    #[test]
    fn an_equation_is_solved(factor in prop_oneof![0u64..20, any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)], number in 0u32..60, any_product in any::<u64>()) {
        for product in [factor.wrapping_mul(number.into()), any_product] {
            let solved = Numbers::solve(factor, product, 50);
            let found: Vec<u32> = (0..solved.len).map(|number| solved.get(number)).collect();
            let expected: Vec<u32> = (0..50).filter(|number| factor.wrapping_mul((*number).into()) == product).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

/// Words describe at most as many ranks as are expected, so nothing is allocated for more.
#[test]
fn words_for_other_numbers_of_ranks_are_refused() {
    let choices = Choices::of(Pair { colour: 1, key: 2 });
    assert!(Choices::from_words(&choices.to_words(), 1).is_some());
    assert!(Choices::from_words(&choices.to_words(), 2).is_none());
    let huge = u64::from(u32::MAX);
    assert!(Choices::from_words(&[huge << 32 | 1, 0, 0, huge, 0, 0, 0, 0], u32::MAX).is_none());
    assert!(Choices::from_words(&[huge << 32 | 1, 0, 0, 1, 0, 0], u32::MAX).is_some());
    assert!(Choices::from_words(&[1 << 32 | huge, 1, 0, 0], 1).is_none());
}

/// Fixes a part of the meaning of the wire's version: if this test must change, so must the version.
#[test]
fn version_6_has_these_words() {
    assert_eq!(samite_fabric::wire::VERSION, 6);
    let remainder = |rank: u32| Pair { colour: (rank % 3).into(), key: 7 };
    let mut choices = Choices::default();
    (0..20).for_each(|rank| choices.append(Choices::of(remainder(rank))));
    let (rows, line) = (6 << 32 | 1, [3, 0, 7, 1, 0]);
    assert_eq!(choices.to_words(), [&[rows, 0, 0][..], &line, &[1 << 32 | 1, 2, 0, 7, 1, 0]].concat());
}
