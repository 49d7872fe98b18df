//! A loom model of exposures, which `ci/loom.sh` runs under every interleaving of its threads.
//!
//! It fails if one of the three fences is removed, or if the store in `Keys::begin` has relaxed order.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// Bytes are exposed and then overwritten, twice, with keys in the same slot. If a reader finds its key both before and
/// after its copy, it must have copied the bytes that were exposed with that key.
#[test]
fn a_successful_read_was_exposed_all_the_time() {
    struct Shared {
        table: [AtomicU64; 2 * LINE],
        bytes: [AtomicU64; 2],
        /// The key to look for, passed to the reader without any memory order.
        told: AtomicU64,
    }
    loom::model(|| {
        let shared = Arc::new(Shared {
            table: std::array::from_fn(|_| AtomicU64::new(0)),
            bytes: Default::default(),
            told: AtomicU64::default(),
        });
        let theirs = shared.clone();
        let reader = loom::thread::spawn(move || {
            let Shared { table, bytes, told } = &*theirs;
            let key = told.load(Ordering::Relaxed);
            if is_exposed(table, key) {
                let copy = [0, 1].map(|i| bytes[i].load(Ordering::Relaxed));
                if is_exposed_still(table, key) {
                    assert_eq!(copy, [key, key]);
                }
            }
        });
        let Shared { table, bytes, told } = &*shared;
        let keys = Keys::new(5);
        for serial in [5, 6] {
            // Each word gets the value that the key of its exposure will have.
            bytes.iter().for_each(|word| word.store(serial << SLOT_BITS | 1, Ordering::Relaxed));
            let key = keys.begin(table).unwrap();
            assert_eq!(key, serial << SLOT_BITS | 1);
            told.store(key, Ordering::Relaxed);
            keys.end(table, key);
        }
        bytes.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        reader.join().unwrap();
    });
}
