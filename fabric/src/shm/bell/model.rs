//! A loom model of the bell, which `ci/loom.sh` runs under every interleaving of its threads.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;

/// Two senders write, and then ring the bell. The owner answers the bell until the count no longer changes. Then it has
/// visited the slots of both senders and seen their writes.
#[test]
fn who_answers_the_bell_sees_what_was_written_before() {
    loom::model(|| {
        let shared: Arc<(Bell<AtomicU64>, [AtomicU64; 2])> = Arc::default();
        let senders = [0, 1].map(|slot| {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                shared.1[slot].store(1, Ordering::Relaxed);
                shared.0.ring(slot);
            })
        });
        let (bell, written) = &*shared;
        let mut answered = 0;
        let mut seen = [false; 2];
        while seen != [true; 2] {
            let count = bell.count();
            if count == answered {
                loom::thread::yield_now();
                continue;
            }
            answered = count;
            while let Some(slot) = bell.answer(2) {
                assert_eq!(written[slot].load(Ordering::Relaxed), 1);
                seen[slot] = true;
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}
