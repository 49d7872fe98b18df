//! All descriptors that can wake a sleeping rank.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use samite_os::alarm::Alarm;
use samite_os::fork::Own;

/// Descriptors of ports and of the launcher's connection, and an alarm for other threads of this process, combined in
/// one descriptor that is readable when any of them is. A descriptor that another part of the process closes is no
/// longer watched. In a child of fork(2) nothing is woken or closed, because the alarm belongs to the parent.
#[derive(Debug)]
pub(crate) struct Watch(Own<Watched>);

#[derive(Debug)]
struct Watched {
    all: OwnedFd,
    alarm: Alarm,
}

impl Watch {
    pub(crate) fn new<'a>(descriptors: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<Self> {
        let (all, alarm) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, Alarm::new()?);
        let data = epoll::EventData::new_u64(0);
        epoll::add(&all, &alarm, data, epoll::EventFlags::IN)?;
        for descriptor in descriptors {
            epoll::add(&all, descriptor, data, epoll::EventFlags::IN)?;
        }
        Ok(Self(Own::new(Watched { all, alarm })?))
    }

    /// Sleeps until a descriptor is readable or the time has passed. A signal may end the sleep early, after which the
    /// caller only polls again.
    pub(crate) fn sleep(&self, time: Duration) {
        #[cfg(feature = "simulated")]
        if crate::simulated::sleep(time) {
            return;
        }
        if let Some(Watched { all, .. }) = self.0.get() {
            let _ = poll(&mut [PollFd::new(all, PollFlags::IN)], Some(&timespec(time)));
        }
    }

    /// Wakes the thread that sleeps, or that is about to.
    pub(crate) fn wake(&self) {
        if let Some(Watched { alarm, .. }) = self.0.get() {
            alarm.ring();
        }
    }

    /// Resets the alarm. The thread that slept calls it.
    pub(crate) fn silence(&self) {
        if let Some(Watched { alarm, .. }) = self.0.get() {
            alarm.silence();
        }
    }
}

/// Sleeps without a wake-up.
pub(crate) fn nap(time: Duration) {
    #[cfg(feature = "simulated")]
    if crate::simulated::sleep(time) {
        return;
    }
    let _ = poll(&mut [], Some(&timespec(time)));
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::thread;

    /// Longer than the test lasts.
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn each_descriptor_and_the_alarm_wake() {
        let other = Alarm::new().unwrap();
        let watch = Watch::new([other.as_fd()]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| watch.wake());
            watch.sleep(LONG);
            watch.silence();
            scope.spawn(|| other.ring());
            watch.sleep(LONG);
            other.silence();
        });
        watch.sleep(Duration::from_millis(1));
    }
}
