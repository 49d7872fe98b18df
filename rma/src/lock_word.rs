//! The lock word of a part: a word in memory behind the part, which other members map.
//!
//! While nobody else holds or awaits the lock, a member takes it exclusively by one atomic instruction on this word, and
//! gives it back by another one. No message is sent, and the owner takes no part. When the owner must know the holder,
//! because a request for the lock or a packet has arrived, or a member has failed, it *suspends* the word. From then on
//! the owner grants the lock, and a member that holds it by the word gives it back by a message. When nobody holds or
//! awaits the lock any more, the owner *resumes* the word, unless it has given up a member whose process may live.
//!
//! A process that is killed leaves its rank in the word, and the owner then ends its hold. A member that maps the part
//! can write anything to the word, as it can to the part. The owner blames nobody who asks for the lock or gives it back
//! although the word says otherwise. But packets of a holder whose rank has vanished from the word are refused, and a lock
//! under the rank of a member that has not taken it is not granted until that member asks for it or ends.

use samite_fabric::Change;
use samite_fabric::link::WorldRank;

use crate::mapped::Mapped;

/// The lock word of one part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockWord<'a> {
    memory: &'a Mapped,
    at: usize,
}

/// Nobody holds the lock, and a member may take it.
const FREE: u64 = 0;

/// The flag of a word that the owner has suspended.
const SUSPENDED: u64 = 1 << 63;

impl<'a> LockWord<'a> {
    /// Returns the word at this offset of mapped memory.
    ///
    /// # Panics
    /// The calls panic if the memory ends before the word.
    pub(crate) fn new(memory: &'a Mapped, at: usize) -> Self {
        Self { memory, at }
    }

    /// Takes the lock for this process, and returns true, if it is free.
    pub(crate) fn take(self, own: WorldRank) -> bool {
        self.change(FREE, held_by(own)) == FREE
    }

    /// Gives the lock back, and returns true, unless the owner has suspended the word.
    pub(crate) fn give_back(self, own: WorldRank) -> bool {
        self.change(held_by(own), FREE) == held_by(own)
    }

    /// Suspends the word, at its owner. Returns the process that holds the lock by the word.
    pub(crate) fn suspend(self) -> Option<WorldRank> {
        let mut found = self.memory.load(self.at);
        while found & SUSPENDED == 0 {
            let before = self.change(found, found | SUSPENDED);
            if before == found {
                break;
            }
            found = before;
        }
        u32::try_from((found & !SUSPENDED).checked_sub(1)?).ok().map(WorldRank)
    }

    /// Resumes the word, at its owner, which has suspended it. Nobody holds the lock.
    pub(crate) fn resume(self) {
        self.memory.store(self.at, FREE);
    }

    fn change(self, expected: u64, new: u64) -> u64 {
        self.memory.change(self.at, Change::CompareSwap { expected, new })
    }
}

fn held_by(rank: WorldRank) -> u64 {
    u64::from(rank.0) + 1
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use samite_fabric::Region;

    use super::*;

    fn mapped() -> Mapped {
        let region = Region::shared(16).unwrap();
        Mapped::new(region.window(0..16).unwrap()).unwrap()
    }

    #[test]
    fn a_lock_is_given_back_by_a_message_if_its_word_is_suspended() {
        let memory = mapped();
        let word = LockWord::new(&memory, 8);
        let (a, b) = (WorldRank(0), WorldRank(u32::MAX));
        assert!(word.take(b) && !word.take(a) && !word.give_back(a));
        assert!(word.give_back(b) && !word.give_back(b) && word.take(a));
        assert_eq!((word.suspend(), word.suspend()), (Some(a), Some(a)));
        assert!(!word.give_back(a) && !word.take(a) && !word.take(b));
        word.resume();
        assert_eq!(word.suspend(), None);
        assert!(!word.take(a));
        word.resume();
        assert!(word.take(a));
    }

    /// An owner suspends the word again and again. The others hold the lock one at a time.
    #[test]
    fn one_member_holds_the_lock() {
        let memory = mapped();
        let word = LockWord::new(&memory, 8);
        // The rank that the owner has to release, plus 1, and the number of members that are done.
        let (released, done, holders) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for rank in (0..3).map(WorldRank) {
                let (released, done, holders) = (&released, &done, &holders);
                scope.spawn(move || {
                    let mut taken = 0;
                    while taken < 2000 {
                        if !word.take(rank) {
                            std::thread::yield_now();
                            continue;
                        }
                        taken += 1;
                        assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                        holders.fetch_sub(1, Ordering::Relaxed);
                        if !word.give_back(rank) {
                            released.store(rank.0 + 1, Ordering::Release);
                            while released.load(Ordering::Acquire) != 0 {
                                std::thread::yield_now();
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Release);
                });
            }
            while done.load(Ordering::Acquire) < 3 {
                if let Some(holder) = word.suspend() {
                    while released.load(Ordering::Acquire) != holder.0 + 1 {
                        std::thread::yield_now();
                    }
                    word.resume();
                    released.store(0, Ordering::Release);
                } else {
                    word.resume();
                }
                std::thread::yield_now();
            }
        });
    }
}
