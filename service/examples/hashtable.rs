//! A hash table that is distributed over all ranks, and that no rank serves: each rank counts words in it by atomic
//! operations on the parts of the others.
//!
//! A place of the table is a key and a count. A rank takes an empty place for its key by compare-and-swap. If another
//! key has the place, the rank tries the next one. Then it adds 1 to the count. Several ranks insert the same keys at
//! the same time. Rank 0 counts all words again, and compares.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/hashtable [WORDS_OF_EACH_RANK]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

use samite::{Comm, Epoch, Lock, Rank, Window, WindowOp};

/// The tag of a rank's part of the table.
const PART: u64 = 1;

/// The key of no word.
const EMPTY: u64 = 0;

fn main() -> Result<(), Box<dyn Error>> {
    let words: usize = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    // A third of the words are different, so at most half of the places get a key.
    let places = 2 * words.div_ceil(3).max(1);
    let table = Table { window: comm.allocate_window(2 * places)?, places };

    let start = now();
    let epoch = table.window.lock_all()?;
    for word in words_of(comm.rank(), comm.size(), words) {
        table.count(&epoch, word)?;
    }
    epoch.close()?;
    let seconds = start.elapsed().as_secs_f64();

    let part = table.window.free()?;
    if comm.rank() != 0 {
        comm.send(&part, Rank(0), PART)?;
        return Ok(());
    }
    let distinct = verify(comm, part, words)?;
    let ranks = comm.size();
    println!("hashtable: ranks={ranks} words={words} distinct={distinct} seconds={seconds:.3} verified");
    Ok(())
}

/// The table. Each rank has `places` places of two numbers: a key, and its count.
struct Table {
    window: Window<u64>,
    places: usize,
}

impl Table {
    /// Adds 1 to the count of a word, and the word if it is not in the table.
    fn count(&self, epoch: &Epoch<'_, u64, Lock>, word: u64) -> Result<(), samite::Error> {
        let all = self.places as u64 * u64::from(self.window.comm().size());
        let mut place = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) % all;
        loop {
            let rank = Rank((place / self.places as u64) as u32);
            let at = 2 * (place % self.places as u64) as usize;
            let found = epoch.compare_swap(rank, at, EMPTY, word)?;
            if found == EMPTY || found == word {
                return epoch.accumulate(rank, at + 1, &[1], WindowOp::Sum);
            }
            place = (place + 1) % all;
        }
    }
}

/// Returns the words of a rank. Each word appears about three times among those of all ranks.
fn words_of(rank: Rank, size: u32, words: usize) -> impl Iterator<Item = u64> {
    let distinct = (words as u64 * u64::from(size)).div_ceil(3).max(1);
    let mut state = u64::from(rank.0) + 1;
    (0..words).map(move |_| {
        // Knuth's linear congruential generator, whose high bits are random enough.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % distinct + 1
    })
}

/// Compares the parts of all ranks with the counts of all words. Returns the number of different words.
fn verify(comm: &Comm, own: Vec<u64>, words: usize) -> Result<usize, Box<dyn Error>> {
    let mut expected: HashMap<u64, u64> = HashMap::new();
    for rank in (0..comm.size()).map(Rank) {
        words_of(rank, comm.size(), words).for_each(|word| *expected.entry(word).or_default() += 1);
    }
    let distinct = expected.len();
    let mut parts = vec![own];
    for rank in (1..comm.size()).map(Rank) {
        parts.push(comm.recv_vec::<u64>(rank, PART)?.buffer);
    }
    for place in parts.iter().flat_map(|part| part.chunks_exact(2)).filter(|place| place[0] != EMPTY) {
        match expected.remove(&place[0]) {
            Some(count) if count == place[1] => {}
            count => {
                return Err(format!("word {} is counted {} times, not {count:?}", place[0], place[1]).into());
            }
        }
    }
    match expected.len() {
        0 => Ok(distinct),
        missing => Err(format!("{missing} words are not in the table").into()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
