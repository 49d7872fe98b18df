//! A parallel radix sort of 64-bit keys by collective operations. The example `radix` is the same sort by messages.
//!
//! Each rank holds an equal part of the keys. In each pass it sorts its part by one digit. The ranks collect their
//! counts of each digit (`allgather`), so each of them knows the final place of each key, and send the keys there
//! (`alltoallv`). At the end a reduction compares checksums of the keys before and after the sort.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/radix_collectives [NUMBER_OF_KEYS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;

use samite::reduction::{Sum, in_rank_order};
use samite::{Comm, consecutive};

const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

fn main() -> Result<(), Box<dyn Error>> {
    let total: usize = std::env::args().nth(1).unwrap_or_else(|| "1000000".to_owned()).parse()?;
    let world = samite::init()?;
    let comm = world.comm();
    let mut keys: Vec<u64> = part(total, comm, comm.rank().0).map(|index| generate(index as u64)).collect();
    let before = checksum(&keys);
    for shift in (0..u64::BITS).step_by(DIGIT_BITS as usize) {
        keys = pass(comm, keys, total, shift)?;
    }
    verify(comm, before, &keys)?;
    if comm.rank() == 0 {
        println!("radix_collectives: ranks={} keys={total} verified", comm.size());
    }
    Ok(())
}

/// Runs one pass. Returns the keys that belong to this rank when all keys are sorted by the digit at `shift`. Keys of
/// equal digit keep their order.
fn pass(comm: &Comm, mut keys: Vec<u64>, total: usize, shift: u32) -> Result<Vec<u64>, samite::Error> {
    let digit = |key: u64| (key >> shift) as usize % DIGITS;
    keys.sort_by_key(|key| digit(*key));
    let mut counts = vec![0_u64; DIGITS];
    keys.iter().for_each(|key| counts[digit(*key)] += 1);
    let mut all = vec![0; DIGITS * comm.size() as usize];
    comm.allgather(&counts, &mut all)?;

    // The keys of each digit and each rank are a run in the sorted whole.
    let runs = runs(&all);
    let lengths = |from: usize, to: u32| -> usize {
        moves(&runs[from], part(total, comm, to)).map(|run| run.len()).sum()
    };
    let (rank, size) = (comm.rank().index(), comm.size());
    // The keys that go to one rank are adjacent.
    let sent = consecutive((0..size).map(|to| lengths(rank, to)));
    let received = consecutive((0..size as usize).map(|from| lengths(from, comm.rank().0)));
    let own = part(total, comm, comm.rank().0);
    let mut incoming = vec![0; own.len()];
    comm.alltoallv(&keys, &sent, &mut incoming, &received)?;

    let mut merged = vec![0; own.len()];
    for (from, block) in received.into_iter().enumerate() {
        let mut next = block.start;
        for run in moves(&runs[from], own.clone()) {
            let place = run.start - own.start..run.end - own.start;
            merged[place.clone()].copy_from_slice(&incoming[next..next + place.len()]);
            next += place.len();
        }
    }
    Ok(merged)
}

/// Returns the places of the keys in the sorted whole, by rank and then by digit. `counts` contains the number of keys
/// of each digit at each rank.
fn runs(counts: &[u64]) -> Vec<Vec<Range<usize>>> {
    let mut runs = vec![Vec::with_capacity(DIGITS); counts.len() / DIGITS];
    let mut position = 0;
    for digit in 0..DIGITS {
        for (rank, runs) in runs.iter_mut().enumerate() {
            let end = position + counts[rank * DIGITS + digit] as usize;
            runs.push(position..end);
            position = end;
        }
    }
    runs
}

/// Returns the parts of a rank's runs that are within a range.
fn moves(runs: &[Range<usize>], within: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let cut = move |run: &Range<usize>| run.start.max(within.start)..run.end.min(within.end);
    runs.iter().map(cut).filter(|run| !run.is_empty())
}

/// Checks that the keys are in order within ranks and from rank to rank, and that they are the keys before the sort.
fn verify(comm: &Comm, before: [u64; 3], keys: &[u64]) -> Result<(), Box<dyn Error>> {
    let mut sums = [before, checksum(keys)];
    comm.allreduce_in_place(sums.as_flattened_mut(), Sum)?;
    // Four numbers: 1 if the keys are in order, 1 if there are keys, the first key and the last key.
    let edges = |keys: &[u64]| match keys {
        [first, .., last] => [1, *first, *last],
        [key] => [1, *key, *key],
        [] => [0, 0, 0],
    };
    let [exists, first, last] = edges(keys);
    let mut order = [[u64::from(keys.is_sorted()), exists, first, last]];
    let join = |[a, b]: [[u64; 4]; 2]| match (a[1], b[1]) {
        (0, _) => [a[0] & b[0], b[1], b[2], b[3]],
        (_, 0) => [a[0] & b[0], a[1], a[2], a[3]],
        _ => [a[0] & b[0] & u64::from(a[3] <= b[2]), 1, a[2], b[3]],
    };
    let joined = in_rank_order(move |from: &[[u64; 4]], into: &mut [[u64; 4]]| {
        from.iter().zip(into).for_each(|(low, high)| *high = join([*low, *high]));
    });
    comm.allreduce_in_place(&mut order, joined)?;
    match sums[0] == sums[1] && order[0][0] == 1 {
        true => Ok(()),
        false => Err(format!("the keys are out of order, or not those before: {sums:?}, {order:?}").into()),
    }
}

/// Returns a checksum that does not depend on the order of the keys, and their number.
fn checksum(keys: &[u64]) -> [u64; 3] {
    let sum = |of: fn(u64) -> u64| keys.iter().fold(0_u64, |sum, key| sum.wrapping_add(of(*key)));
    [sum(|key| key), sum(|key| key.wrapping_mul(key)), keys.len() as u64]
}

/// Returns key number `index`: SplitMix64 (Steele, Lea and Flood 2014), where about one key in four is reduced to less
/// than 1000.
fn generate(index: u64) -> u64 {
    let mut bits = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    if bits.is_multiple_of(4) { bits % 1000 } else { bits }
}

/// Returns the part of a rank of `total` keys that are divided as evenly as possible.
fn part(total: usize, comm: &Comm, rank: u32) -> Range<usize> {
    let cut = |rank: u32| (total as u128 * u128::from(rank) / u128::from(comm.size())) as usize;
    cut(rank)..cut(rank + 1)
}
