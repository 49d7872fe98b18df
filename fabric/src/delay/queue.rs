//! The bytes that wait to leave a delayed port.

use super::Model;

/// The number of bytes that may wait to leave a port. A sender that computes or sleeps after it has posted some
/// messages of 1 MiB need not call again before they have left.
pub(super) const QUEUE_BYTES: usize = 4 << 20;

/// The bytes that wait to leave a port, one after another. All times are in nanoseconds, of one clock.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The time at which the last byte so far will have left.
    free: u64,
}

impl Queue {
    /// Returns the time at which the first one of `bytes` bytes leaves if they are added now. Returns `None` if there
    /// is no room for them: then more than [`QUEUE_BYTES`] would wait. A longer packet has room if no other byte waits.
    pub(super) fn start(&self, model: Model, now: u64, bytes: usize) -> Option<u64> {
        let is_empty = self.free <= now;
        let has_room = self.free + model.bytes_ns(bytes) <= now + model.bytes_ns(QUEUE_BYTES);
        (is_empty || has_room).then(|| now.max(self.free))
    }

    /// Lets `bytes` bytes leave from `start` on. Returns the time at which the last one has left.
    pub(super) fn add(&mut self, model: Model, start: u64, bytes: usize) -> u64 {
        self.free = start + model.bytes_ns(bytes);
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { latency_ns: 50.0, byte_ns: 2.0 };
    const NOW: u64 = 1_000;

    /// Adds bytes if they have room. Returns the times at which the first one leaves and the last one has left.
    fn post(queue: &mut Queue, now: u64, bytes: usize) -> Option<(u64, u64)> {
        let start = queue.start(MODEL, now, bytes)?;
        Some((start, queue.add(MODEL, start, bytes)))
    }

    #[test]
    fn a_burst_that_fills_the_queue_is_taken_at_once_and_one_more_byte_is_not() {
        const PACKET: usize = 64 << 10;
        let mut queue = Queue::default();
        let mut end = NOW;
        for number in 0..QUEUE_BYTES / PACKET {
            let start = std::mem::replace(&mut end, NOW + 2 * (PACKET * (number + 1)) as u64);
            assert_eq!(post(&mut queue, NOW, PACKET), Some((start, end)), "packet {number}");
        }
        assert_eq!(post(&mut queue, NOW, 1), None);
        assert_eq!(post(&mut queue, NOW + 1, 1), None, "half a byte has left");
        assert_eq!(post(&mut queue, NOW + 2, 1), Some((end, end + 2)));
        assert_eq!(post(&mut queue, NOW + 2, 1), None);
    }

    #[test]
    fn bytes_that_find_an_empty_queue_leave_at_once() {
        let mut queue = Queue::default();
        assert_eq!(post(&mut queue, NOW, 100), Some((NOW, NOW + 200)));
        assert_eq!(post(&mut queue, NOW + 150, 10), Some((NOW + 200, NOW + 220)));
        assert_eq!(post(&mut queue, NOW + 300, 10), Some((NOW + 300, NOW + 320)));
    }

    #[test]
    fn a_packet_longer_than_the_queue_waits_until_the_queue_is_empty() {
        let mut queue = Queue::default();
        let long = QUEUE_BYTES + 1;
        assert_eq!(post(&mut queue, NOW, 1), Some((NOW, NOW + 2)));
        assert_eq!(post(&mut queue, NOW + 1, long), None);
        let end = NOW + 2 + 2 * long as u64;
        assert_eq!(post(&mut queue, NOW + 2, long), Some((NOW + 2, end)));
        assert_eq!(post(&mut queue, NOW + 3, 0), None, "more than the limit waits");
        assert_eq!(post(&mut queue, NOW + 4, 0), Some((end, end)));
    }

    #[test]
    fn without_a_time_for_bytes_there_is_always_room() {
        let mut queue = Queue::default();
        let model = Model { byte_ns: 0.0, ..MODEL };
        for _ in 0..3 {
            assert_eq!(queue.start(model, NOW, QUEUE_BYTES), Some(NOW));
            assert_eq!(queue.add(model, NOW, QUEUE_BYTES), NOW);
        }
    }
}
