//! The cost of a driver of the program. This file has one test, which counts the process's threads and measures its
//! processor time.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use samite::{Driver, Error, Rank};
use tokio::io::unix::AsyncFd;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[allow(deprecated, reason = "its successor in tokio 1.54 is unsafe")]
async fn drive(driver: Driver) -> Result<(), Error> {
    let driver = AsyncFd::new(driver).unwrap();
    loop {
        driver.get_ref().drive()?;
        driver.readable().await.unwrap().clear_ready();
    }
}

#[test]
fn a_driver_of_the_program_takes_little_and_no_thread() {
    const WAIT: Duration = Duration::from_secs(10);
    samite::local(1, |world| {
        let comm = world.comm().with_timeout(WAIT);
        let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        tokio.block_on(async {
            let driving = tokio::spawn(drive(comm.driver().unwrap()));
            let receive = comm.irecv(vec![0_u8; 1], Rank(0), 1).unwrap().into_future();
            let (before, had) = (processor_time(), threads());
            let end = tokio::spawn(receive).await.unwrap();
            let took = processor_time() - before;
            assert!(matches!(end.unwrap_err().error, Error::TimedOut { .. }));
            assert!(took < WAIT / 100, "{took:?} of processor time");
            assert_eq!(threads(), had);
            driving.abort();
            let _ = driving.await;
        });
    });
}
