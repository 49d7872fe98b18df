//! The policy of waiting: the number of polls in a row, and the pause between them.

use std::time::Duration;

use samite_p2p::Time;

/// The waiting policy of one caller.
#[derive(Debug)]
pub(crate) struct Patience {
    /// True if there are more ranks than cores: then the awaited rank may need this core.
    crowded: bool,
    /// The time of the last event.
    since: Option<Time>,
}

/// The pause between two bursts of polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    Spin,
    /// Yield the core to others.
    Yield,
    /// Leave the core until there is work; without a wake-up, for this time.
    Sleep(Duration),
}

impl Patience {
    pub(crate) fn new(crowded: bool) -> Self {
        Self { crowded, since: None }
    }

    /// Returns the pause after a burst that had events, or none.
    pub(crate) fn rest(&mut self, now: Time, came: bool) -> Rest {
        let since = *if came { self.since.insert(now) } else { self.since.get_or_insert(now) };
        match now.since(since) {
            age if age >= SLEEP_AFTER_NS => Rest::Sleep(Duration::from_nanos(age / NAP_SHARE).min(NAP_MAX)),
            age if age >= YIELD_AFTER_NS || self.crowded => Rest::Yield,
            _ => Rest::Spin,
        }
    }
}

/// The number of polls in a burst: as many as take some microseconds, since the cost of a poll varies. (A poll of
/// shared memory takes 20 ns, one of tcp a system call.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst(u32);

impl Burst {
    pub(crate) fn polls(self) -> u32 {
        self.0
    }

    /// Corrects it by the duration of the last burst.
    pub(crate) fn took(&mut self, time_ns: u64) {
        if time_ns > BURST_NS {
            self.0 = (self.0 / 2).max(1);
        } else if time_ns < BURST_NS / 4 {
            self.0 = (self.0 * 2).min(BURST_MAX);
        }
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self(BURST_MAX)
    }
}

/// Target duration of a burst: long enough that reading the clock and taking the lock again cost little beside
/// it, short beside a switch to another process.
const BURST_NS: u64 = 4_000;
const BURST_MAX: u32 = 64;
/// The time after which a waiter yields although there should be enough cores: longer than a message takes
/// from host to host, which an earlier yield could delay.
const YIELD_AFTER_NS: u64 = 50_000;
/// The time after which a waiter leaves the core: some hundred times what it takes to fall asleep and to
/// be woken (10 to 30 us), so that no wait becomes longer by more than a hundredth.
const SLEEP_AFTER_NS: u64 = 2_000_000;
/// A nap without a wake-up lasts this fraction of the time waited, by which it may lengthen the wait; and at most a
/// limit at which it costs under one hundredth of a core, even if waking up and polling take 0.1 ms (as on a virtual
/// machine whose host is busy).
const NAP_SHARE: u64 = 16;
const NAP_MAX: Duration = Duration::from_millis(16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_nothing_comes_the_less_it_takes() {
        let mut patience = Patience::new(false);
        for (now, came, rest) in [
            (1_000_000, false, Rest::Spin),
            (1_049_999, false, Rest::Spin),
            (1_050_000, false, Rest::Yield),
            (2_999_999, false, Rest::Yield),
            (3_000_000, false, Rest::Sleep(Duration::from_micros(125))),
            (900_000_000, false, Rest::Sleep(NAP_MAX)),
            (950_000_000, true, Rest::Spin),
            (950_010_000, false, Rest::Spin),
            (950_050_000, false, Rest::Yield),
        ] {
            assert_eq!(patience.rest(Time::from_nanos(now), came), rest, "{now}");
        }
        let mut crowded = Patience::new(true);
        assert_eq!(
            [crowded.rest(Time::ZERO, false), crowded.rest(Time::from_nanos(1), true)],
            [Rest::Yield; 2]
        );
    }

    #[test]
    fn a_burst_takes_its_time_whatever_a_poll_costs() {
        for poll_ns in [1, 20, 300, 3_000, 100_000] {
            let mut burst = Burst::default();
            for _ in 0..10 {
                burst.took(u64::from(burst.polls()) * poll_ns);
            }
            let time_ns = u64::from(burst.polls()) * poll_ns;
            assert!(time_ns <= BURST_NS || burst.polls() == 1, "{poll_ns}: {time_ns}");
            assert!(time_ns >= BURST_NS / 4 || burst.polls() == BURST_MAX, "{poll_ns}: {time_ns}");
        }
    }
}
