//! Messages with lengths around every limit: from and to owned and borrowed memory, sent before and after the receive
//! is posted.

use samite_p2p::{Config, Status, WorldRank};

use crate::job::{Borrowed, Job, Medium, NEVER, Owned, bytes, exact};

/// Bytes before the data of an eager packet, and of a DATA packet.
const EAGER_HEAD: usize = 40;
const DATA_HEAD: usize = 48;
/// The bytes of a message that may be under way at the same time, in pushes or gets. Longer messages move in several
/// steps.
const WINDOW: usize = 40_000;

fn config() -> Config {
    let mut config = Config::default();
    (config.push_window, config.pull_chunk, config.pull_depth) = (WINDOW, WINDOW / 4, 4);
    config
}

/// Returns the number of data bytes in each DATA packet of a message except the last: a multiple of a cache line.
fn data_max<M: Medium>(job: &Job<M>) -> usize {
    (job.caps().fragment_max - DATA_HEAD) / 64 * 64
}

fn crosses<M: Medium>(medium: M, config: &Config, length: impl FnOnce(&Job<M>) -> usize) {
    let mut job = Job::new(medium, 2, config);
    let len = length(&job);
    for case in 0..8 {
        let choose = |bit: usize| if case & bit > 0 { Owned } else { Borrowed };
        let (sender, receiver, posted_first) = (choose(1), choose(2), case & 4 > 0);
        let data = bytes(case, len);
        let post = |job: &mut Job<M>| job.recv_as(1, exact(0, 5), len, receiver, NEVER);
        let (send, recv) = if posted_first {
            let recv = post(&mut job);
            (job.send_as(0, 1, 0, 5, &data, sender, NEVER), recv)
        } else {
            let send = job.send_as(0, 1, 0, 5, &data, sender, NEVER);
            job.poll_until(|job| job.engine(1).probe(&exact(0, 5)).unwrap().is_some());
            (send, post(&mut job))
        };
        let received = job.wait(recv);
        assert_eq!(received.result, Ok(Status { source: WorldRank(0), tag: 5, bytes: len }), "case {case}");
        assert!(received.message() == data, "case {case}");
        let sent = job.wait(send);
        assert_eq!(sent.result, Ok(Status { source: WorldRank(1), tag: 5, bytes: len }), "case {case}");
        assert!(sender == Borrowed || sent.bytes == Some(data), "case {case}: the memory comes back");
    }
    job.assert_at_rest();
}

macro_rules! lengths {
    ($($name:ident: $length:expr;)+) => {
        $(pub(crate) fn $name<M: Medium>(medium: M) {
            let length: fn(&Job<M>) -> usize = $length;
            crosses(medium, &config(), length);
        })+
    };
}

lengths! {
    length_0: |_| 0;
    length_1: |_| 1;
    length_7: |_| 7;
    length_8: |_| 8;
    length_63: |_| 63;
    length_64: |_| 64;
    length_65: |_| 65;
    length_255: |_| 255;
    length_256: |_| 256;
    length_1000: |_| 1000;
    length_4095: |_| 4095;
    length_4096: |_| 4096;
    length_4097: |_| 4097;
    length_16383: |_| 16_383;
    length_16384: |_| 16_384;
    length_16385: |_| 16_385;
    length_65536: |_| 65_536;
    length_100001: |_| 100_001;
    length_1_mib: |_| 1 << 20;
    length_5_mib_and_1: |_| (5 << 20) + 1;
    length_short_max_less_1: |job| short_max(job) - 1;
    length_short_max: |job| short_max(job);
    length_short_max_and_1: |job| short_max(job) + 1;
    length_eager_max_less_1: |job| job.caps().packet_max - EAGER_HEAD - 1;
    length_eager_max: |job| job.caps().packet_max - EAGER_HEAD;
    length_eager_max_and_1: |job| job.caps().packet_max - EAGER_HEAD + 1;
    length_packet_max_less_1: |job| job.caps().packet_max - 1;
    length_packet_max: |job| job.caps().packet_max;
    length_packet_max_and_1: |job| job.caps().packet_max + 1;
    length_data_max_less_1: |job| 3 * data_max(job) - 1;
    length_data_max: |job| 3 * data_max(job);
    length_data_max_and_1: |job| 3 * data_max(job) + 1;
    length_rma_max_less_1: |job| rma_max(job) - 1;
    length_rma_max: |job| rma_max(job);
    length_rma_max_and_1: |job| rma_max(job) + 1;
    length_pull_window: |_| WINDOW;
    length_pull_window_and_1: |_| WINDOW + 1;
    length_push_window: |_| 3 * WINDOW;
    length_push_window_and_1: |_| 3 * WINDOW + 1;
}

/// Returns the length of the longest message that fits into a short packet, or 17 if a
/// short packet has less room.
fn short_max<M: Medium>(job: &Job<M>) -> usize {
    job.caps().short_max.saturating_sub(EAGER_HEAD).max(17)
}

/// Returns the length of the longest get, or the longest that these cases can test.
fn rma_max<M: Medium>(job: &Job<M>) -> usize {
    job.caps().rma_max.clamp(3000, WINDOW / 4)
}

pub(crate) fn a_tiny_pull_chunk<M: Medium>(medium: M) {
    let mut config = config();
    config.pull_chunk = 100;
    crosses(medium, &config, |job| job.caps().packet_max + 12_345);
}

pub(crate) fn a_tiny_push_window<M: Medium>(medium: M) {
    let mut config = config();
    config.push_window = 100;
    crosses(medium, &config, |job| job.caps().packet_max + 12_345);
}

pub(crate) fn a_depth_of_one<M: Medium>(medium: M) {
    let mut config = config();
    (config.pull_depth, config.pull_chunk) = (1, 3000);
    crosses(medium, &config, |job| job.caps().packet_max + 12_345);
}

/// A buffer that is not lent while its message arrives is filled when it is lent again.
pub(crate) fn borrowed_buffers_withheld<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &config());
    for len in [100, job.caps().packet_max, 300_000] {
        let data = bytes(1, len);
        let recv = job.recv_as(1, exact(0, 5), len, Borrowed, NEVER);
        job.withhold(1, true);
        let send = job.send(0, 1, 5, &data);
        job.settle();
        job.withhold(1, false);
        assert!(job.wait(recv).message() == data, "{len}");
        assert!(job.wait(send).result.is_ok());

        let recv = job.recv(1, exact(0, 5), len);
        job.withhold(0, true);
        let send = job.send_as(0, 1, 0, 5, &data, Borrowed, NEVER);
        job.settle();
        job.withhold(0, false);
        assert!(job.wait(recv).message() == data, "{len}");
        assert!(job.wait(send).result.is_ok());
    }
    job.assert_at_rest();
}

pub(crate) fn a_buffer_larger_than_the_message<M: Medium>(medium: M) {
    let mut job = Job::new(medium, 2, &config());
    for len in [0, 10, 100_000] {
        for whose in [Owned, Borrowed] {
            let recv = job.recv_as(1, exact(0, 5), len + 1000, whose, NEVER);
            let send = job.send(0, 1, 5, &bytes(1, len));
            assert!(job.wait(recv).message() == bytes(1, len));
            assert!(job.wait(send).result.is_ok());
        }
    }
    job.assert_at_rest();
}

/// While a borrowed buffer is not lent, its bytes wait in a smaller bounce buffer, which must not be overwritten before
/// they are copied.
pub(crate) fn a_buffer_withheld_until_all_could_have_come<M: Medium>(medium: M) {
    let mut config = Config::default();
    (config.pull_chunk, config.pull_depth) = (4096, 2);
    let mut job = Job::new(medium, 2, &config);
    let recv = job.recv_as(1, exact(0, 5), 100_000, Borrowed, NEVER);
    job.withhold(1, true);
    let send = job.send(0, 1, 5, &bytes(1, 100_000));
    job.settle();
    job.withhold(1, false);
    assert!(job.wait(recv).message() == bytes(1, 100_000));
    assert!(job.wait(send).result.is_ok());
    job.assert_at_rest();
}
