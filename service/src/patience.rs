//! The policy of waiting: how often a waiting thread polls in a row, and how it pauses between such bursts.

use std::time::Duration;

use samite_p2p::Time;

/// The waiting policy of one caller.
#[derive(Debug)]
pub(crate) struct Patience {
    /// True if there are more ranks than cores: then the awaited rank may need this core.
    crowded: bool,
    /// The time of the latest burst that had events or moved bytes, or of the first pause if there was none yet.
    since: Option<Time>,
}

/// The pause between two bursts of polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// No pause: the thread polls again at once.
    Spin,
    /// Yield the core to other threads.
    Yield,
    /// Leave the core until there is work. If nothing can wake the thread, leave it for this time.
    Sleep(Duration),
}

impl Patience {
    pub(crate) fn new(crowded: bool) -> Self {
        Self { crowded, since: None }
    }

    /// Returns the pause after a burst. `came` is true if the burst had events or moved bytes.
    pub(crate) fn rest(&mut self, now: Time, came: bool) -> Rest {
        let since = *if came { self.since.insert(now) } else { self.since.get_or_insert(now) };
        match now.since(since) {
            // In a model of loom time stands still, so the thread sleeps at once.
            age if age >= SLEEP_AFTER_NS || cfg!(all(test, loom)) => {
                Rest::Sleep(Duration::from_nanos(age / NAP_SHARE).min(NAP_MAX))
            }
            age if age >= YIELD_AFTER_NS || self.crowded => Rest::Yield,
            _ => Rest::Spin,
        }
    }

    /// Returns how long a caller rests before its next poll, if it neither spins nor yields, and nothing would wake it.
    pub(crate) fn nap(&mut self, now: Time, came: bool) -> Duration {
        match self.rest(now, came) {
            Rest::Sleep(nap) => nap,
            Rest::Spin | Rest::Yield => Duration::from_nanos(SLEEP_AFTER_NS / NAP_SHARE),
        }
    }
}

/// Returns the length of a nap while bytes may travel between registered memory, if it would last `nap` otherwise.
///
/// A poll then takes the bytes that are in the socket, and often brings no event. With naps that grow with the time
/// since the latest event, most of the time would be unused: beside programs that kept both cores busy, messages of
/// 64 KiB over tcp travelled at 10 MB/s, and with this function at 110 MB/s. If the nap has its greatest length, no
/// event has come for so long that the peer has probably stopped.
pub(crate) fn nap_while_bytes_move(nap: Duration) -> Duration {
    if nap < NAP_MAX { nap.min(NAP_WHILE_BYTES_MOVE) } else { nap }
}

/// The number of polls in a burst. It is adapted so that a burst takes some microseconds, since the cost of a poll
/// varies: a poll of shared memory takes 20 ns, and a poll of tcp a system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst(u32);

impl Burst {
    pub(crate) fn polls(self) -> u32 {
        self.0
    }

    /// Adapts the number of polls to the duration of the latest burst.
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

/// The target duration of a burst. It is long enough that reading the clock and taking the lock again cost little in
/// comparison, and short compared with a switch to another process.
const BURST_NS: u64 = 4_000;
const BURST_MAX: u32 = 64;
/// The time after which a waiting thread yields its core even if there are as many cores as ranks. It is longer than a
/// message takes from host to host, because an earlier yield could delay such a message.
const YIELD_AFTER_NS: u64 = 50_000;
/// The time after which a waiting thread sleeps: about a hundred times the time to fall asleep and to be woken (10 to
/// 30 µs), so that sleeping makes no wait longer by more than about a hundredth.
const SLEEP_AFTER_NS: u64 = 2_000_000;
/// A sleep that nothing can end early lasts the time waited so far divided by this number, so it lengthens the wait by
/// at most this fraction. The longest sleep is `NAP_MAX`. With sleeps of that length polling costs less than one
/// hundredth of a core, even if waking up and polling take 0.1 ms (as on a virtual machine whose host is busy).
const NAP_SHARE: u64 = 16;
const NAP_MAX: Duration = Duration::from_millis(16);
/// The longest nap while bytes may travel between registered memory: about the time in which a fast network fills a
/// socket.
const NAP_WHILE_BYTES_MOVE: Duration = Duration::from_micros(100);

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
    fn naps_are_short_while_bytes_may_move_and_long_again_when_the_peer_has_stopped() {
        let lens = [10, 100, 125, 15_999, 16_000].map(Duration::from_micros);
        assert_eq!(lens.map(nap_while_bytes_move), [10, 100, 100, 100, 16_000].map(Duration::from_micros));
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
