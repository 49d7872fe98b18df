//! Operations with a form at the target.

use samite_fabric::layout::{Elements, Form};
use samite_fabric::link::RequestId;
use samite_fabric::sim::SimPort;
use samite_fabric::{Body as _, Memory, Port, SplitMix64};
use samite_rma::{Action, ElementType, EpochId, Error, Hints, LockKind, Reduction};

use crate::world::{
    NEVER, PART, World, on_gets, on_loopback, on_mapped_or_put, on_puts, on_shm, on_sim, place, rank,
};

/// A form, and the places of its units as they follow from the description of the form.
struct Case {
    form: Form,
    places: Vec<isize>,
}

impl Case {
    fn block(unit: usize, len: usize) -> Self {
        let places = (0..len).map(|index| (index * unit) as isize).collect();
        Self { form: Form::block(unit * len).unwrap(), places }
    }

    fn strided(&self, count: usize, stride: isize) -> Self {
        let items = 0..count as isize;
        let places = items.flat_map(|item| self.places.iter().map(move |place| item * stride + place));
        Self { form: self.form.strided(count, stride).unwrap(), places: places.collect() }
    }

    fn list(items: &[(isize, Self)]) -> Self {
        let places = items.iter().flat_map(|(at, item)| item.places.iter().map(move |place| at + place));
        let form = Form::list(items.iter().map(|(at, item)| (*at, &item.form))).unwrap();
        Self { form, places: places.collect() }
    }

    /// Returns a form without overlaps.
    fn random(rng: &mut SplitMix64, unit: usize) -> Self {
        let below = |rng: &mut SplitMix64, limit: usize| rng.below(limit as u64) as usize;
        let size = unit as isize;
        let sign = |rng: &mut SplitMix64| if rng.below(2) == 0 { 1 } else { -1 };
        match rng.below(5) {
            0 => {
                let (len, gap) = (1 + below(rng, 3), below(rng, 3));
                let stride = (len + gap) as isize * size * sign(rng);
                Self::block(unit, len).strided(1 + below(rng, 20), stride)
            }
            1 => {
                let mut at = rng.below(5) as isize * size - 2 * size;
                let mut items = Vec::new();
                for _ in 0..1 + below(rng, 12) {
                    let len = 1 + below(rng, 4);
                    items.push((at, Self::block(unit, len)));
                    at += (len + below(rng, 4)) as isize * size;
                }
                (1..items.len()).rev().for_each(|index| items.swap(index, below(rng, index + 1)));
                Self::list(&items)
            }
            2 => {
                let inner = [(3 * size, Self::block(unit, 1)), (0, Self::block(unit, 2))];
                let inner = Self::list(&inner).strided(1 + below(rng, 4), 5 * size);
                inner.strided(1 + below(rng, 4), (21 + rng.below(3) as isize) * size * sign(rng))
            }
            // Runs that need several packets, or that are put.
            3 => {
                let len = PART / 2 / unit - below(rng, 100);
                Self::block(unit, len)
                    .strided(2, (len as isize + rng.below(10) as isize - 5).max(len as isize) * size)
            }
            _ => Self::block(unit, 1 + below(rng, 300 * 8 / unit)),
        }
    }

    /// Returns a random form, and a displacement in words at which it lies in a part.
    fn placed(rng: &mut SplitMix64, unit: usize) -> (Self, u64) {
        let case = Self::random(rng, unit);
        let [first, end] = case.form.true_bounds();
        let (lowest, highest) =
            ((first.min(0).unsigned_abs()).div_ceil(8) as isize, (PART as isize - end).div_euclid(8));
        match u64::try_from(highest - lowest) {
            Ok(span) => (case, lowest as u64 + rng.below(span + 1)),
            Err(_) => (Self::block(unit, 1), 0),
        }
    }
}

/// Memory of these bytes, contiguous or scattered.
fn memory(rng: &mut SplitMix64, bytes: &[u8]) -> Memory {
    if rng.below(2) == 0 {
        return Memory::new(bytes.to_vec());
    }
    let form = Form::block(4).and_then(|block| block.strided(bytes.len() / 4, 12)).unwrap();
    let whole = Memory::new(vec![0xee_u8; bytes.len() * 3]);
    let mut memory = Memory::scattered::<Vec<u8>>(whole, form, 1, Elements::BYTES).unwrap();
    samite_fabric::layout::Room::put(&mut memory.writable(), 0, bytes);
    memory
}

fn bytes_of(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.readable().copy_to(&mut bytes);
    bytes
}

/// The expected bytes of a part.
struct Oracle(Vec<u8>);

impl Oracle {
    fn read(&self, case: &Case, displacement: u64, unit: usize) -> Vec<u8> {
        let base = displacement as isize * 8;
        let at = |place: &isize| (base + place) as usize;
        case.places.iter().flat_map(|place| self.0[at(place)..][..unit].to_vec()).collect()
    }

    fn change(
        &mut self,
        case: &Case,
        displacement: u64,
        unit: usize,
        data: &[u8],
        change: impl Fn(&[u8], &[u8]) -> Vec<u8>,
    ) {
        let base = displacement as isize * 8;
        for (place, data) in case.places.iter().zip(data.chunks(unit)) {
            let element = &mut self.0[(base + place) as usize..][..unit];
            let changed = change(element, data);
            element.copy_from_slice(&changed);
        }
    }
}

fn sum(element: &[u8], operand: &[u8]) -> Vec<u8> {
    let words = |bytes: &[u8]| match bytes.len() {
        8 => u128::from(u64::from_ne_bytes(bytes.try_into().unwrap())),
        _ => u128::from_ne_bytes(bytes.try_into().unwrap()),
    };
    let sum = words(element).wrapping_add(words(operand));
    if element.len() == 8 { (sum as u64).to_ne_bytes().to_vec() } else { sum.to_ne_bytes().to_vec() }
}

/// Compares random operations of rank 0 on the part of `target` with those on an array.
fn matches_an_oracle<P: Port>(w: &mut World<P>, target: usize, rounds: usize) {
    let seed = w.now.as_nanos() + rounds as u64;
    let rng = &mut SplitMix64::new(seed);
    let mut oracle = Oracle(vec![0; PART]);
    let epoch = w.lock(0, target, LockKind::Exclusive);
    for _ in 0..rounds {
        let mut ends: Vec<(RequestId, Vec<u8>)> = Vec::new();
        match rng.below(4) {
            0 => {
                let (case, displacement) = Case::placed(rng, 4);
                let data: Vec<u8> = (0..case.form.size()).map(|_| rng.below(256) as u8).collect();
                let places = place((target, displacement)).with_form(&case.form);
                let deadline = (rng.below(2) == 0).then_some(NEVER);
                let memory = memory(rng, &data);
                let put = w.operate_at(0, epoch, places, Action::Put, memory, deadline).unwrap();
                ends.extend(put.map(|put| (put, data.clone())));
                oracle.change(&case, displacement, 4, &data, |_, data| data.to_vec());
            }
            1 => {
                let (case, displacement) = Case::placed(rng, 4);
                let places = place((target, displacement)).with_form(&case.form);
                let memory = memory(rng, &vec![0; case.form.size()]);
                let get = w.operate_at(0, epoch, places, Action::Get, memory, None).unwrap();
                ends.push((get.unwrap(), oracle.read(&case, displacement, 4)));
            }
            // Accumulates of one origin on elements of one type keep their order, also without a flush.
            _ => {
                let (unit, element) = [(8, ElementType::U64), (16, ElementType::U128)][rng.below(2) as usize];
                for _ in 0..1 + rng.below(4) {
                    let (case, displacement) = Case::placed(rng, unit);
                    let data: Vec<u8> = (0..case.form.size()).map(|_| rng.below(256) as u8).collect();
                    let places = place((target, displacement)).with_form(&case.form);
                    let op = [Reduction::Sum, Reduction::Replace, Reduction::NoOp][rng.below(3) as usize];
                    let fetches = rng.below(2) == 0;
                    let action = match fetches {
                        true => Action::GetAccumulate { op, element },
                        false => Action::Accumulate { op, element },
                    };
                    let memory = memory(rng, &data);
                    let started = w.operate_at(0, epoch, places, action, memory, None).unwrap();
                    assert_eq!(started.is_some(), fetches);
                    ends.extend(started.map(|fetch| (fetch, oracle.read(&case, displacement, unit))));
                    oracle.change(&case, displacement, unit, &data, |element, data| match op {
                        Reduction::Sum => sum(element, data),
                        Reduction::Replace => data.to_vec(),
                        _ => element.to_vec(),
                    });
                }
            }
        }
        let flush = w.flush(0, epoch, Some(target));
        for (request, expected) in ends {
            let completion = w.complete(0, request);
            assert_eq!(completion.result, Ok(()));
            assert_eq!(bytes_of(&completion.memory.unwrap()), expected);
        }
        w.wait(0, flush);
        let mut part = vec![0; PART];
        w.engines[target].stack().read(w.window, 0, &mut part).unwrap();
        assert!(part == oracle.0, "the part differs from the array");
    }
    let close = w.close(0, epoch);
    w.wait(0, close);
    let stack = w.engines[0].stack();
    assert_eq!((stack.pending(), stack.recorded()), (0, 0));
}

#[test]
fn operations_with_forms_match_an_oracle() {
    on_loopback(2, Hints::default(), |w| {
        matches_an_oracle(w, 1, 300);
        matches_an_oracle(w, 0, 100);
    });
    on_sim(300, 2, Hints::default(), |w| matches_an_oracle(w, 1, 12));
    on_mapped_or_put(100, 2, |w| matches_an_oracle(w, 1, 12));
}

#[test]
fn long_runs_are_put_and_got() {
    on_puts(300, 2, |w| matches_an_oracle(w, 1, 12));
    for registrations_max in [3, usize::MAX] {
        on_gets(100, 2, registrations_max, |w| matches_an_oracle(w, 1, 12));
    }
    let form = Form::block(PART / 4).and_then(|block| block.strided(2, PART as isize / 2)).unwrap();
    let operate = |w: &mut World<SimPort>, action| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        let (places, memory) = (place((1, 0)).with_form(&form), Memory::new(vec![7_u8; PART / 2]));
        let request = w.operate_at(0, epoch, places, action, memory, Some(NEVER)).unwrap().unwrap();
        w.wait(0, request);
        let close = w.close(0, epoch);
        w.wait(0, close);
        let counters = w.engines[0].stack().counters();
        (counters.put + counters.got, counters.operations)
    };
    on_puts(10, 2, |w| assert_eq!(operate(w, Action::Put), (1, 0)));
    on_gets(10, 2, usize::MAX, |w| assert_eq!(operate(w, Action::Get), (1, 0)));
}

#[test]
fn forms_work_over_shared_memory() {
    for is_shared in [false, true] {
        on_shm(2, Hints::default(), is_shared, |w| matches_an_oracle(w, 1, 200));
    }
}

/// Returns every second one of `count` words.
fn every_second(count: usize) -> Form {
    Form::block(8).and_then(|word| word.strided(count, 16)).unwrap()
}

fn words(count: usize) -> Memory {
    Memory::new(vec![1_u64; count])
}

#[test]
fn a_form_that_does_not_suit_is_a_typed_error() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        let add = |element| Action::Accumulate { op: Reduction::Sum, element };
        let mut start = |form: &Form, action, memory| {
            w.operate_at(0, epoch, place((1, 4)).with_form(form), action, memory, None).map(drop)
        };
        let form = every_second(3);
        assert_eq!(start(&form, Action::Put, words(2)), Err(Error::FormLength { form: 24, len: 16 }));
        let overlapping = Form::block(8).and_then(|word| word.strided(3, 4)).unwrap();
        assert_eq!(start(&overlapping, Action::Put, words(3)), Err(Error::FormOverlap));
        assert_eq!(start(&overlapping, Action::Get, words(3)), Ok(()), "a byte can be read twice");
        let element = ElementType::F64;
        let halves = Form::block(4).and_then(|half| half.strided(2, 12)).unwrap();
        assert_eq!(start(&halves, Action::Put, words(1)), Ok(()));
        assert_eq!(start(&halves, add(element), words(1)), Err(Error::PartialElements { element }));
        let apart = Form::block(8).and_then(|word| word.strided(2, 12)).unwrap();
        assert_eq!(start(&apart, add(element), words(2)), Err(Error::PartialElements { element }));
        let swap = Action::CompareSwap { element: ElementType::U64 };
        assert_eq!(start(&form, swap, words(2)), Err(Error::FormLength { form: 24, len: 8 }));
        assert_eq!(start(&every_second(1), swap, words(2)), Ok(()));
        let empty = Form::block(0).unwrap();
        assert_eq!(start(&empty, Action::Put, words(0)), Ok(()));
        let close = w.close(0, epoch);
        w.wait(0, close);
    });
}

#[test]
fn a_form_that_leaves_the_part_sends_nothing() {
    const LAST: u64 = PART as u64 / 8 - 1;
    let (form, size) = (every_second(3), PART as u64);
    let outside = |at, len| Error::OutOfBounds { rank: rank(1), at, len, size };
    let backwards = Form::block(8).and_then(|word| word.strided(3, -16)).unwrap();
    let cases = [
        (&form, LAST - 3, outside(size - 32, 40)),
        (&form, u64::MAX / 8, outside(u64::MAX - 7, 40)),
        (&form, u64::MAX / 2, outside(u64::MAX, 40)),
        (&backwards, 3, outside(u64::MAX, 40)),
        (&backwards, LAST + 1, outside(size - 32, 40)),
    ];
    on_loopback(2, Hints::default(), |w| {
        // The part of the target is not known in the first round, so the errors come later.
        for is_known in [false, true] {
            let epoch = w.lock(0, 1, LockKind::Exclusive);
            for (form, displacement, error) in &cases {
                let places = place((1, *displacement)).with_form(form);
                let put = w.operate_at(0, epoch, places, Action::Put, words(3), Some(NEVER));
                let result = match (is_known, put) {
                    (false, put) => w.complete(0, put.unwrap().unwrap()).result,
                    (true, put) => put.map(drop),
                };
                // A first contact makes the part known.
                assert_eq!(result, Err(error.clone()), "{displacement}");
                if !is_known {
                    break;
                }
            }
            let close = w.close(0, epoch);
            w.wait(0, close);
        }
        for (form, displacement) in [(&form, LAST - 4), (&backwards, LAST), (&backwards, 4)] {
            let epoch = w.lock(0, 1, LockKind::Exclusive);
            let places = place((1, displacement)).with_form(form);
            w.operate_at(0, epoch, places, Action::Put, words(3), None).unwrap();
            let close = w.close(0, epoch);
            w.wait(0, close);
        }
        let ones = (0..=LAST as usize).filter(|index| w.word(1, *index) == 1);
        let last = LAST as usize;
        assert_eq!(ones.collect::<Vec<_>>(), [0, 2, 4, last - 4, last - 2, last]);
    });
}

#[test]
fn an_operation_with_a_form_has_one_request_and_one_end() {
    on_loopback(2, Hints::default(), |w| {
        let epoch = w.lock(0, 1, LockKind::Shared);
        let form = every_second(100);
        let get = |w: &mut World<_>, epoch: EpochId| {
            let places = place((1, 0)).with_form(&form);
            w.operate_at(0, epoch, places, Action::Get, words(100), None).unwrap().unwrap()
        };
        let first = get(w, epoch);
        assert_eq!(w.engines[0].stack().pending(), 1);
        w.call(0, |windows, link| windows.cancel(link, first));
        let second = get(w, epoch);
        assert_eq!(w.values(0, second), [0; 100]);
        assert!(w.complete(0, first).result.is_err());
        let close = w.close(0, epoch);
        w.wait(0, close);
        w.settle();
        assert_eq!((w.engines[0].stack().pending(), w.engines[0].stack().recorded()), (0, 0));
    });
}
