use proptest::prelude::*;

use super::*;

/// A form that was made from a generated description, and the places of its bytes as the oracle computes them from the
/// same description.
#[derive(Clone, Debug)]
struct Case {
    form: Form,
    places: Vec<isize>,
    bounds: [isize; 2],
}

impl Case {
    fn block(len: usize) -> Self {
        let end = len as isize;
        Self { form: Form::block(len).unwrap(), places: (0..end).collect(), bounds: [0, end] }
    }

    fn strided(&self, count: usize, stride: isize) -> Self {
        let items: Vec<_> = (0..count).map(|index| (index as isize * stride, self)).collect();
        let (places, bounds) = Self::places(&items);
        Self { form: self.form.strided(count, stride).unwrap(), places, bounds }
    }

    fn list(items: &[(isize, Self)]) -> Self {
        let (places, bounds) = Self::places(&items.iter().map(|(at, case)| (*at, case)).collect::<Vec<_>>());
        let form = Form::list(items.iter().map(|(at, case)| (*at, &case.form))).unwrap();
        Self { form, places, bounds }
    }

    fn places(items: &[(isize, &Self)]) -> (Vec<isize>, [isize; 2]) {
        let places = items.iter().flat_map(|(at, item)| item.places.iter().map(move |place| at + place));
        let bounds = items
            .iter()
            .map(|(at, item)| item.bounds.map(|bound| bound + at))
            .reduce(|one, other| hull(one, other).unwrap());
        (places.collect(), bounds.unwrap_or([0, 0]))
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let block = (0..40_usize).prop_map(Case::block);
    block.prop_recursive(4, 64, 5, |inner| {
        prop_oneof![
            (inner.clone(), 0..6_usize, -70..140_isize)
                .prop_map(|(case, count, stride)| case.strided(count, stride)),
            (inner.clone(), 0..6_usize).prop_map(|(case, count)| {
                let extent = case.bounds[1] - case.bounds[0];
                case.strided(count, extent)
            }),
            prop::collection::vec((-100..300_isize, inner.clone()), 0..6)
                .prop_map(|items| Case::list(&items)),
            (inner, -50..50_isize, -50..150_isize).prop_map(|(case, lower, upper)| Case {
                form: case.form.resized(lower, upper),
                bounds: [lower, upper],
                ..case
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 1500 }))]

    #[test]
    fn a_form_is_its_list_of_places(case in cases(), cuts in prop::collection::vec(0.0..1.0_f64, 0..5)) {
        let Case { form, places, bounds } = case;
        prop_assert_eq!(form.size(), places.len());
        prop_assert_eq!(form.bounds(), bounds);
        let true_bounds = places.iter().fold(None, |hull: Option<[isize; 2]>, &place| {
            Some(hull.map_or([place, place + 1], |[low, high]| [low.min(place), high.max(place + 1)]))
        });
        if let Some(true_bounds) = true_bounds {
            prop_assert_eq!(form.true_bounds(), true_bounds);
        }
        let mut sorted = places.clone();
        sorted.sort_unstable();
        let is_disjoint = sorted.array_windows().all(|[one, next]| one != next);
        prop_assert_eq!(form.is_disjoint(), is_disjoint);

        let (mut at, mut runs) = (0, Vec::new());
        while at < places.len() {
            let (place, len) = form.run(at);
            let expected: Vec<_> = (place..place + len as isize).collect();
            prop_assert_eq!(&places[at..at + len], &expected);
            prop_assert_eq!(form.run(at + len / 2), (place + len as isize / 2, len - len / 2));
            runs.push((place, len));
            at += len;
        }
        prop_assert_eq!(form.shortest_block(), runs.iter().map(|(_, len)| *len).min().unwrap_or(0));
        let is_even = |(place, len): &(isize, usize)| place % 2 == 0 && len % 2 == 0;
        prop_assert!(form.consists_of(1) && (!form.consists_of(2) || runs.iter().all(is_even)));
        let of_words = form.nested(1, &Form::block(8).unwrap()).unwrap();
        prop_assert!(of_words.consists_of(8) && (places.is_empty() || !of_words.consists_of(16) || of_words.size() % 16 == 0));

        // Shifts the form so that it begins within a slice.
        let [low, high] = true_bounds.unwrap_or([0, 0]);
        let shift = 3 - low;
        let form = Form::list([(shift, &form)]).unwrap();
        let memory: Vec<u8> = (0..high - low + 6).map(|i| (i % 251) as u8).collect();
        let expected: Vec<u8> = places.iter().map(|place| memory[(place + shift) as usize]).collect();
        prop_assert!(places.is_empty() || form.read(&memory[..memory.len() - 4]).is_none(), "it ends 3 earlier");
        let bytes = form.read(&memory).unwrap();
        prop_assert_eq!(bytes.len(), expected.len());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| (cut * expected.len() as f64) as usize).collect();
        cuts.extend([0, expected.len()]);
        cuts.sort_unstable();
        let mut packed = vec![0xff; expected.len()];
        for &[start, end] in cuts.array_windows() {
            bytes.part(start, end).copy_to(&mut packed[start..end]);
        }
        prop_assert_eq!(&packed, &expected);

        if is_disjoint {
            let mut unpacked = vec![0xee; memory.len()];
            let mut room = form.write(&mut unpacked).unwrap();
            for &[start, end] in cuts.array_windows() {
                room.put(start, &packed[start..end]);
            }
            let mut expected = vec![0xee; memory.len()];
            places.iter().for_each(|place| expected[(place + shift) as usize] = memory[(place + shift) as usize]);
            prop_assert_eq!(unpacked, expected);
        }
    }

    #[test]
    fn a_nested_form_has_an_item_for_each_unit(
        (count, block, stride) in (1..5_usize, 1..4_usize, -6..9_isize),
        inner in cases(),
    ) {
        const UNIT: usize = 8;
        let outer = Case::block(block * UNIT).strided(count, stride * UNIT as isize);
        let extent = inner.bounds[1] - inner.bounds[0];
        let units = outer.places.iter().filter(|place| place.rem_euclid(UNIT as isize) == 0);
        let places: Vec<_> = units
            .flat_map(|unit| inner.places.iter().map(move |place| unit / UNIT as isize * extent + place))
            .collect();
        let form = outer.form.nested(UNIT, &inner.form).unwrap();
        prop_assert_eq!(form.size(), places.len());
        let Some(low) = places.iter().min() else { return Ok(()) };
        let form = Form::list([(-low, &form)]).unwrap();
        let memory: Vec<u8> = (0..form.true_bounds()[1]).map(|i| (i % 251) as u8).collect();
        let expected: Vec<u8> = places.iter().map(|place| memory[(place - low) as usize]).collect();
        let mut packed = vec![0; expected.len()];
        form.read(&memory).unwrap().copy_to(&mut packed);
        prop_assert_eq!(packed, expected);
    }
}

#[test]
fn regular_forms_are_small() {
    let column = Form::block(8).unwrap().strided(1000, 8000).unwrap().resized(0, 8);
    let matrix = column.strided(1000, 8).unwrap();
    assert!(matches!(&matrix.node, Node::Strided { item, .. } if matches!(**item, Node::Strided { .. })));
    assert!(matches!(matrix.is_disjoint, Disjoint::Yes), "known without a look at each block");
    // A list of blocks at equal distances is simplified to a loop, and a loop without gaps to a block. Two nested loops
    // become one if each round of the outer loop begins where the inner loop would have continued.
    let block = Form::block(8).unwrap();
    let list = Form::list((0..100).map(|index| (index * 16, &block))).unwrap();
    assert!(matches!(list.node, Node::Strided { count: 100, stride: 16, .. }));
    assert!(matches!(list.strided(10, 1600).unwrap().node, Node::Strided { count: 1000, stride: 16, .. }));
    assert!(matches!(block.strided(100, 8).unwrap().node, Node::Block(800)));
    let adjacent = Form::list([(0, &block), (8, &block), (16, &block)]).unwrap();
    assert!(matches!(adjacent.node, Node::Block(24)));
}

/// Returns a list of blocks that together have most of the bytes that a form may have.
fn huge() -> Form {
    let block = Form::block(isize::MAX.cast_unsigned() / 4).unwrap();
    Form::list([(0, &block), (5, &block), (2, &block)]).unwrap()
}

#[test]
fn a_far_origin_changes_nothing() {
    let byte = Form::block(1).unwrap();
    let far =
        Form::list([(isize::MAX - 8, &byte), (isize::MAX - 4, &byte), (isize::MAX - 1, &byte)]).unwrap();
    let both = far.strided(2, -100).unwrap();
    // The origin of the inner list lies outside of the address space, but its bytes lie inside.
    let near = Form::list([(108 - isize::MAX, &both), (300, &byte)]).unwrap();
    let low = Form::list([(-1000, &near), (0, &byte)]).unwrap();
    assert!(low.is_disjoint());
    assert!(!Form::list([(-1000, &near), (-900, &byte)]).unwrap().is_disjoint());
    let low = Form::list([(1000, &low)]).unwrap();
    let memory: [u8; 1001] = std::array::from_fn(|place| (place % 251) as u8);
    let mut packed = [0; 8];
    low.read(&memory).unwrap().copy_to(&mut packed);
    assert_eq!(packed, [100, 104, 107, 0, 4, 7, 49, 247]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert_eq!(Form::block(usize::MAX).unwrap_err(), FormError::Overflow);
    let block = Form::block(1 << 40).unwrap();
    assert_eq!(block.strided(1 << 30, 0).unwrap_err(), FormError::Overflow);
    assert_eq!(block.strided(3, isize::MAX / 2).unwrap_err(), FormError::Overflow);
    assert_eq!(Form::list([(isize::MAX, &block)]).unwrap_err(), FormError::Overflow);
    let sum = [(0, &huge()), (1, &huge()), (2, &huge())];
    assert_eq!(Form::list(sum).unwrap_err(), FormError::Overflow, "too many bytes, although few places");
    let far = [(isize::MIN / 2 - 2, &block), (isize::MAX / 2, &block)];
    assert_eq!(Form::list(far).unwrap_err(), FormError::Overflow, "no extent");
    let least = block.resized(0, isize::MIN);
    let backwards = Form::block(8).unwrap().strided(2, -8).unwrap();
    assert_eq!(backwards.nested(8, &least).unwrap_err(), FormError::Overflow);
    let mut form = Form::block(1).unwrap();
    let deep = (0..100).try_for_each(|_| {
        form = Form::list([(0, &form), (form.true_bounds()[1] + 1, &Form::block(1)?.strided(2, 3)?)])?;
        Ok(())
    });
    assert_eq!(deep, Err(FormError::TooDeep));
}
