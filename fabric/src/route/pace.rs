//! The pace of polls of an idle port.

/// Decides which polls of a route include a port: all of them while the port has traffic and for a while afterwards,
/// then every second one, then every fourth one, and so on.
#[derive(Debug)]
pub(super) struct Pace {
    /// The number of calls of [`Pace::is_due`] until the next poll of the port.
    countdown: u32,
    interval: u32,
    interval_max: u32,
    /// The number of polls of the port since it last had traffic, up to [`PATIENCE`].
    idle: u32,
}

impl Pace {
    pub(super) fn new(interval_max: u32) -> Self {
        Self { countdown: 1, interval: 1, interval_max, idle: 0 }
    }

    /// Returns true if this poll of the route includes the port.
    #[inline(always)]
    pub(super) fn is_due(&mut self) -> bool {
        self.countdown -= 1;
        if self.countdown > 0 {
            return false;
        }
        self.countdown = self.interval;
        true
    }

    /// Returns true if every poll of the route includes the port.
    pub(super) fn is_fast(&self) -> bool {
        self.interval == 1
    }

    /// Notes that the port was polled. `traffic` is true if the poll found events.
    #[inline]
    pub(super) fn polled(&mut self, traffic: bool) {
        if traffic {
            self.hasten();
        } else if self.idle < PATIENCE {
            self.idle += 1;
        } else if self.interval < self.interval_max {
            self.interval = (2 * self.interval).min(self.interval_max);
            self.countdown = self.interval;
        }
    }

    /// Makes each of the next polls due, because an answer to a send may come soon.
    #[inline]
    pub(super) fn hasten(&mut self) {
        (self.countdown, self.interval, self.idle) = (1, 1, 0);
    }
}

/// The number of polls without traffic before the interval grows. At about half a microsecond a poll, they take much
/// longer than an exchange with a peer over the network. So while a caller waits for an answer, every poll includes the
/// network.
const PATIENCE: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls [`Pace::is_due`] `calls` times, and returns the number of polls. None of the polls finds traffic.
    fn polls(pace: &mut Pace, calls: u32) -> u32 {
        let mut polls = 0;
        for _ in 0..calls {
            if pace.is_due() {
                pace.polled(false);
                polls += 1;
            }
        }
        polls
    }

    #[test]
    fn an_idle_port_is_polled_less_and_less_up_to_a_limit() {
        let mut pace = Pace::new(8);
        assert_eq!(polls(&mut pace, PATIENCE), PATIENCE);
        assert_eq!(polls(&mut pace, 1), 1);
        assert_eq!([2, 4, 8, 8, 8].map(|calls| polls(&mut pace, calls)), [1; 5]);
    }

    #[test]
    fn traffic_hastens_it_again() {
        for traffic in [|pace: &mut Pace| pace.polled(true), Pace::hasten] {
            let mut pace = Pace::new(8);
            polls(&mut pace, 2 * PATIENCE);
            traffic(&mut pace);
            assert_eq!(polls(&mut pace, PATIENCE), PATIENCE);
        }
    }

    #[test]
    fn a_port_that_is_alone_is_polled_each_time() {
        assert_eq!(polls(&mut Pace::new(1), 3 * PATIENCE), 3 * PATIENCE);
    }
}
