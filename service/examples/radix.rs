//! A parallel radix sort of 64-bit keys, least significant digit first.
//!
//! Each rank holds an equal part of the keys. In each pass it sorts its part by one digit. From all ranks' counts of
//! each digit, every rank computes the final place of each key, and sends the key there. Rank 0 checks the order, and
//! checks by checksums that the sorted keys are the initial keys.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/radix [NUMBER_OF_KEYS | FILE_OF_LITTLE_ENDIAN_KEYS]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::time::Instant;

use samite::{Comm, Rank};

const COUNTS: u64 = 1;
const KEYS: u64 = 2;
const SUMMARY: u64 = 3;

const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

fn main() -> Result<(), Box<dyn Error>> {
    let source = std::env::args().nth(1).unwrap_or_else(|| "1000000".to_owned());
    let world = samite::init()?;
    let comm = world.comm();
    let (total, mut keys) = read_keys(&source, comm.rank().0, comm.size())?;
    let before = Checksum::of(&keys);

    let start = now();
    for shift in (0..u64::BITS).step_by(DIGIT_BITS as usize) {
        keys = pass(comm, &keys, total, shift)?;
    }
    let seconds = start.elapsed().as_secs_f64();

    verify(comm, before, &keys, total)?;
    if comm.rank() == 0 {
        println!("radix: ranks={} keys={total} seconds={seconds:.3} verified", comm.size());
    }
    Ok(())
}

/// Runs one pass. Returns the keys that belong to this rank when all keys are sorted by the digit at `shift`. Keys of
/// equal digit keep their order.
fn pass(world: &Comm, keys: &[u64], total: usize, shift: u32) -> Result<Vec<u64>, samite::Error> {
    let (rank, size) = (world.rank().index(), world.size());
    let counts = count(keys, shift);
    let sorted = sort_by_digit(keys, &counts, shift);
    let counts_of = exchange_counts(world, counts)?;
    let layout = Layout::new(&counts_of);

    // The keys that go to one rank are adjacent in `sorted`.
    let mut outgoing = Vec::new();
    let mut sent = 0;
    for to in 0..size {
        let length = layout.moves(rank, part(total, size, to)).map(|(_, length)| length).sum::<usize>();
        outgoing.push(&sorted[sent..sent + length]);
        sent += length;
    }
    let own = part(total, size, world.rank().0);
    let mut incoming: Vec<Vec<u64>> = (0..size as usize)
        .map(|from| vec![0; layout.moves(from, own.clone()).map(|(_, length)| length).sum()])
        .collect();
    incoming[rank].copy_from_slice(outgoing[rank]);
    exchange(world, KEYS, &outgoing, &mut incoming)?;

    let mut merged = vec![0; own.len()];
    for (from, received) in incoming.iter().enumerate() {
        let mut taken = 0;
        for (position, length) in layout.moves(from, own.clone()) {
            let place = position - own.start;
            merged[place..place + length].copy_from_slice(&received[taken..taken + length]);
            taken += length;
        }
    }
    Ok(merged)
}

/// Returns the number of keys of each digit at each rank.
fn exchange_counts(world: &Comm, counts: Vec<u32>) -> Result<Vec<Vec<u32>>, samite::Error> {
    let mut counts_of = vec![vec![0; DIGITS]; world.size() as usize];
    let outgoing: Vec<&[u32]> = (0..world.size()).map(|_| &counts[..]).collect();
    exchange(world, COUNTS, &outgoing, &mut counts_of)?;
    counts_of[world.rank().index()] = counts;
    Ok(counts_of)
}

/// Sends `outgoing[r]` to each other rank r, and fills `incoming[r]` with that rank's data.
fn exchange<T: samite::Element>(
    world: &Comm,
    tag: u64,
    outgoing: &[&[T]],
    incoming: &mut [Vec<T>],
) -> Result<(), samite::Error> {
    world.scope(|scope| {
        for (from, buffer) in (0..).map(Rank).zip(incoming).filter(|(from, _)| *from != world.rank()) {
            scope.irecv(buffer, from, tag)?;
        }
        for (to, data) in (0..).map(Rank).zip(outgoing).filter(|(to, _)| *to != world.rank()) {
            scope.isend(data, to, tag)?;
        }
        Ok(())
    })
}

/// The places of the keys of each digit and each rank in the sorted whole.
struct Layout {
    /// By rank, then by digit: the position of the first of these keys, and their number.
    runs: Vec<Vec<(usize, usize)>>,
}

impl Layout {
    fn new(counts_of: &[Vec<u32>]) -> Layout {
        let mut runs: Vec<_> = counts_of.iter().map(|counts| Vec::with_capacity(counts.len())).collect();
        let mut position = 0;
        for digit in 0..DIGITS {
            for (runs, counts) in runs.iter_mut().zip(counts_of) {
                let length = counts[digit] as usize;
                runs.push((position, length));
                position += length;
            }
        }
        Layout { runs }
    }

    /// Returns the runs of keys of rank `from` that belong within `range`, in the order of their digits: the position
    /// and the length of each run.
    fn moves(&self, from: usize, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        self.runs[from].iter().filter_map(move |&(position, length)| {
            let start = position.max(range.start);
            let end = (position + length).min(range.end);
            (start < end).then(|| (start, end - start))
        })
    }
}

fn count(keys: &[u64], shift: u32) -> Vec<u32> {
    let mut counts = vec![0; DIGITS];
    for &key in keys {
        counts[digit(key, shift)] += 1;
    }
    counts
}

fn sort_by_digit(keys: &[u64], counts: &[u32], shift: u32) -> Vec<u64> {
    let mut next: Vec<usize> = counts
        .iter()
        .scan(0, |position, &count| Some(std::mem::replace(position, *position + count as usize)))
        .collect();
    let mut sorted = vec![0; keys.len()];
    for &key in keys {
        let position = &mut next[digit(key, shift)];
        sorted[*position] = key;
        *position += 1;
    }
    sorted
}

fn digit(key: u64, shift: u32) -> usize {
    (key >> shift) as usize % DIGITS
}

/// Returns the total number of keys, and this rank's part of them.
fn read_keys(source: &str, rank: u32, size: u32) -> Result<(usize, Vec<u64>), Box<dyn Error>> {
    if let Ok(total) = source.parse() {
        return Ok((total, part(total, size, rank).map(|index| generate(index as u64)).collect()));
    }
    let mut file = File::open(source).map_err(|error| format!("cannot open {source}: {error}"))?;
    let total = usize::try_from(file.metadata()?.len())? / size_of::<u64>();
    let own = part(total, size, rank);
    let mut bytes = vec![0; own.len() * size_of::<u64>()];
    file.seek(SeekFrom::Start((own.start * size_of::<u64>()) as u64))?;
    file.read_exact(&mut bytes)?;
    let (keys, _) = bytes.as_chunks();
    Ok((total, keys.iter().map(|&key| u64::from_le_bytes(key)).collect()))
}

/// Returns key number `index` of a generated input: SplitMix64 (Steele, Lea and Flood 2014), where about one key in
/// four is reduced to less than 1000.
fn generate(index: u64) -> u64 {
    let mut bits = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    if bits.is_multiple_of(4) { bits % 1000 } else { bits }
}

/// A checksum that does not depend on the order of the keys.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Checksum {
    sum: u64,
    xor: u64,
    /// Differs for some sets of keys that have an equal sum and an equal exclusive or.
    squares: u64,
}

impl Checksum {
    fn of(keys: &[u64]) -> Checksum {
        keys.iter().fold(Checksum::default(), |sum, &key| {
            sum.with(Checksum { sum: key, xor: key, squares: key.wrapping_mul(key) })
        })
    }

    fn with(self, other: Checksum) -> Checksum {
        Checksum {
            sum: self.sum.wrapping_add(other.sum),
            xor: self.xor ^ other.xor,
            squares: self.squares.wrapping_add(other.squares),
        }
    }
}

/// Checks at rank 0 that the keys are in order within ranks and from rank to rank, and that they are the keys before
/// the sort.
fn verify(world: &Comm, before: Checksum, keys: &[u64], total: usize) -> Result<(), Box<dyn Error>> {
    let after = Checksum::of(keys);
    let own = [
        before.sum,
        before.xor,
        before.squares,
        after.sum,
        after.xor,
        after.squares,
        keys.len() as u64,
        u64::from(keys.is_sorted()),
        keys.first().copied().unwrap_or_default(),
        keys.last().copied().unwrap_or_default(),
    ];
    if world.rank() != 0 {
        return Ok(world.send(&own, Rank(0), SUMMARY)?);
    }
    let (mut sums, mut number, mut last_key) = ([Checksum::default(); 2], 0, 0);
    for rank in 0..world.size() {
        let mut summary = own;
        if rank > 0 {
            world.recv(&mut summary, Rank(rank), SUMMARY)?;
        }
        let [sum, xor, squares, sum_after, xor_after, squares_after, length, is_sorted, first, last] =
            summary;
        sums[0] = sums[0].with(Checksum { sum, xor, squares });
        sums[1] = sums[1].with(Checksum { sum: sum_after, xor: xor_after, squares: squares_after });
        number += length;
        if is_sorted == 0 {
            return Err(format!("the keys of rank {rank} are out of order").into());
        }
        if length > 0 {
            if first < last_key {
                return Err(
                    format!("rank {rank} begins with a smaller key than the rank before ends with").into()
                );
            }
            last_key = last;
        }
    }
    if number != total as u64 || sums[0] != sums[1] {
        return Err(format!("{number} keys came out of {total}, or others than went in").into());
    }
    Ok(())
}

/// Returns part `index` of `total` keys that are cut into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| (total as u128 * u128::from(index) / u128::from(parts)) as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
