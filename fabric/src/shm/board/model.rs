//! A loom model of a bank, which `ci/loom.sh` runs under every interleaving of its threads.
//!
//! The model fails if the order of the word with the tick is weakened. It cannot detect a weakened order of the word
//! with the finished ticks: that order keeps loads before a later store, and loom never moves a load behind a later
//! store.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// One bank and the reader's finished ticks. The writer waits before each tick until the reader has finished the tick
/// before, so the bank is used in every tick.
#[derive(Default)]
struct Model {
    bank: [Line<AtomicU64>; 2],
    finished: AtomicU64,
}

const TICKS: u64 = 2;

fn data(tick: u64, len: usize) -> Vec<u8> {
    vec![tick as u8 + 1; len]
}

fn check(len: usize) {
    loom::model(move || {
        let model = Arc::new(Model::default());
        let writer = {
            let model = model.clone();
            loom::thread::spawn(move || {
                for tick in 0..TICKS {
                    while model.finished.load(Ordering::Acquire) < tick {
                        loom::thread::yield_now();
                    }
                    write(&model.bank, &data(tick, len));
                    announce(&model.bank, Tick(tick), len);
                }
            })
        };
        for tick in 0..TICKS {
            let mut into = vec![0; len];
            while fetch(&model.bank, Tick(tick), len, 0, &mut into) == Fetched::NotYet {
                loom::thread::yield_now();
            }
            assert_eq!(into, data(tick, len));
            model.finished.store(tick + 1, Ordering::Release);
        }
        writer.join().unwrap();
    });
}

#[test]
fn short_data_is_read_whole_under_every_interleaving() {
    check(8);
}

#[test]
fn longer_data_is_read_whole_under_every_interleaving() {
    check(LINE);
}
