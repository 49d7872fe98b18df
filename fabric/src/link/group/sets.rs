//! Intersections and differences of groups, by their parts.
//!
//! A part is an arithmetic progression of ranks, and the parts of a group have no rank in common. If some ranks of a
//! part are also in another part, their indices in the first part form an arithmetic progression too
//! ([`Part::common`]). So the ranks of a part that are also in a group have indices in several progressions, which have
//! no index in common. This module merges these progressions in ascending order. If all progressions in a range of
//! indices have the same step and together form one progression with a smaller step, that one replaces them. Then the
//! work and the result for this range depend on the number of parts, and not on the number of ranks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Group;
use super::part::{Builder, Part};

/// Appends to `result`, in their order, the ranks of `part` that are in `other`, if `wanted` is true, or those that are
/// not, if it is false.
pub(super) fn select(part: Part, other: &Group, wanted: bool, result: &mut Builder) {
    if part.len as usize <= other.part_count() {
        return select_each(part, other, wanted, result);
    }
    let mut common: Vec<Part> = other.parts().filter_map(|other| part.common(&other)).collect();
    common.sort_unstable_by_key(|common| common.first);
    let overlap = common.windows(2).any(|pair| pair[0].last() > pair[1].first);
    // Each stage visits all progressions that overlap in it, so the work grows with the square of their number.
    let work = if overlap { (common.len() as u64).pow(2) } else { 0 };
    if work > part.len.into() {
        return select_each(part, other, wanted, result);
    }
    let mut at = 0;
    let mut pending = common.into_iter().peekable();
    let mut active: Vec<Part> = Vec::new();
    while at < part.len {
        while let Some(begun) = pending.next_if(|next| next.first <= at) {
            active.push(begun);
        }
        let next = pending.peek().map_or(part.len, |next| next.first);
        let end = active.iter().map(|active| active.last() + 1).fold(next, u32::min);
        stage(&active, at, end, wanted, |indices| {
            result.extend(part.slice(indices.first, indices.step, indices.len));
        });
        active = active.into_iter().filter_map(|active| rest_from(active, end)).collect();
        at = end;
    }
}

/// Does the same as [`select`], with one search for each rank of `part`.
fn select_each(part: Part, other: &Group, wanted: bool, result: &mut Builder) {
    let ranks = (0..part.len).map(|index| part.rank(index));
    for rank in ranks.filter(|&rank| other.contains(super::WorldRank(rank)) == wanted) {
        result.push(rank);
    }
}

/// Passes to `emit`, in ascending order, the indices from `at` to `end - 1` that are in a progression of `active`, if
/// `wanted` is true, or those that are in none, if it is false. Each progression of `active` begins at `at` or less
/// than its step behind `at`, and its last index is at least `end - 1`.
fn stage(active: &[Part], at: u32, end: u32, wanted: bool, mut emit: impl FnMut(Part)) {
    let chosen: Vec<Part> = active.iter().filter(|active| active.first < end).copied().collect();
    if wanted {
        return merge(chosen, end, emit);
    }
    let period = active.first().map_or(1, |active| active.step);
    let is_dense = active.iter().all(|active| active.step == period) && period <= 2 * active.len() as i64;
    if is_dense && !active.is_empty() {
        let mut is_chosen = vec![false; period as usize];
        active.iter().for_each(|active| is_chosen[(active.first - at) as usize] = true);
        let others = (0..period as u32).filter(|offset| !is_chosen[*offset as usize]);
        let others = others.filter_map(|offset| upto(at.checked_add(offset)?, period, end)).collect();
        return merge(others, end, emit);
    }
    let mut free = at;
    let mut skip = |chosen: Part| {
        let single = if chosen.step == 1 { chosen.len } else { 1 };
        for index in (0..chosen.len).step_by(single as usize) {
            let gap = chosen.rank(index);
            upto(free, 1, gap).into_iter().for_each(&mut emit);
            free = gap + single;
        }
    };
    merge(chosen, end, &mut skip);
    upto(free, 1, end).into_iter().for_each(emit);
}

/// Passes the indices before `end` in the parts to `emit`, in ascending order. No part may end before `end`. If the
/// parts together form one progression, `emit` gets that one. Otherwise it gets as long a piece of one part as possible
/// each time.
fn merge(mut parts: Vec<Part>, end: u32, mut emit: impl FnMut(Part)) {
    parts.sort_unstable_by_key(|part| part.first);
    if let Some(all) = even(&parts, end) {
        return emit(all);
    }
    let mut heads: BinaryHeap<_> = parts.iter().map(|part| Reverse((part.first, part.step))).collect();
    while let Some(Reverse((first, step))) = heads.pop() {
        let limit = heads.peek().map_or(end, |Reverse((first, _))| *first);
        let run = upto(first, step, limit).expect("the other progressions do not contain `first`");
        emit(run);
        let next = i64::from(run.last()) + step;
        if next < i64::from(end) {
            heads.push(Reverse((next as u32, step)));
        }
    }
}

/// Returns the progression of the indices before `end` that the given ones form together, if all have the same step and
/// begin at equal distances from each other.
fn even(parts: &[Part], end: u32) -> Option<Part> {
    let (first, step) = parts.first().map(|part| (part.first, part.step))?;
    let distance = step / parts.len() as i64;
    let expected = (0..).map(|number: i64| i64::from(first) + number * distance);
    let are_even =
        parts.iter().zip(expected).all(|(part, at)| part.step == step && i64::from(part.first) == at);
    if are_even && distance * parts.len() as i64 == step { upto(first, distance, end) } else { None }
}

/// Returns the indices of `part` from `end` on, or `None` if there are none.
fn rest_from(part: Part, end: u32) -> Option<Part> {
    let passed = upto(part.first, part.step, end).map_or(0, |passed| passed.len);
    let len = part.len.checked_sub(passed).filter(|len| *len > 0)?;
    Some(Part { first: part.rank(passed), len, ..part })
}

/// Returns the progression of the indices `first`, `first + step`, and so on before `end`, or `None` if it is empty.
fn upto(first: u32, step: i64, end: u32) -> Option<Part> {
    let room = i64::from(end.checked_sub(first)?);
    let len = room / step + i64::from(room % step != 0);
    (len > 0).then_some(Part { first, step, len: len as u32 })
}
