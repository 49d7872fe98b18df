//! The thread that makes progress for long messages: when it exists, and what it costs. This file has one test, which
//! counts the process's threads.

mod threads;

use std::thread;
use std::time::Duration;

use samite::{Error, Progress, Rank, Settings};
use threads::{drivers, processor_time};

const LONG: usize = 1 << 20;

#[test]
fn the_thread_starts_with_the_first_long_message_and_takes_little() {
    const WAIT: Duration = Duration::from_secs(5);
    let mut settings = Settings::default();
    settings.set_progress(Progress::Needed).unwrap();
    settings.clone().local(1, |world| {
        let (me, comm) = (Rank(0), world.comm());
        // Blocking calls and short messages need no thread over this port, whose packets are cheap. Where packets are
        // dear, short messages are gathered, and the thread sends them.
        comm.send(&[1_u8], me, 1).unwrap();
        comm.recv(&mut [0_u8], me, 1).unwrap();
        let mut long = vec![0_u8; LONG];
        comm.sendrecv(&vec![1_u8; LONG], me, 1, &mut long, me, 1).unwrap();
        comm.isend(vec![1_u8], me, 1).unwrap().wait().unwrap();
        comm.irecv(vec![0_u8], me, 1).unwrap().wait().unwrap();
        assert!(drivers().is_empty());

        let receive = comm.irecv(long, me, 2).unwrap();
        let driver = loop {
            if let Some(driver) = drivers().pop() {
                break driver;
            }
            thread::yield_now();
        };
        // SIGHUP, SIGINT, SIGTERM and SIGCHLD.
        for signal in [1, 2, 15, 17] {
            assert!(driver >> (signal - 1) & 1 == 1, "signal {signal} is blocked: {driver:x}");
        }
        let before = processor_time();
        #[expect(clippy::disallowed_methods, reason = "the test measures the cost during this time")]
        thread::sleep(WAIT);
        let took = processor_time() - before;
        assert!(took < WAIT / 100, "{took:?} of processor time");
        comm.isend(vec![2_u8; LONG], me, 2).unwrap().wait().unwrap();
        assert_eq!(receive.wait().unwrap().buffer, [2_u8; LONG]);
        // The thread sleeps now, for the next long message.
        assert_eq!(drivers().len(), 1);

        // The world ends while the thread sleeps in a pause, because an operation still needs progress.
        let pending = comm.irecv(vec![0_u8; LONG], me, 3).unwrap();
        drop(world);
        assert!(matches!(pending.wait().unwrap_err().error, Error::Closed { .. }));
    });
    while !drivers().is_empty() {
        thread::yield_now();
    }
    settings.local(1, |world| {
        let (me, comm) = (Rank(0), world.comm());
        let receive = comm.irecv(vec![0_u8; LONG], me, 1).unwrap();
        comm.isend(vec![1_u8; LONG], me, 1).unwrap().wait().unwrap();
        receive.wait().unwrap();
    });
    while !drivers().is_empty() {
        thread::yield_now();
    }
}
