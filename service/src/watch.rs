//! All descriptors that can wake a sleeping rank.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use samite_os::alarm::Alarm;
use samite_os::fork::Own;
use samite_p2p::Time;

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
        #[cfg(all(test, loom))]
        if let Some(Watched { all, .. }) = self.0.get() {
            return crate::runtime::await_change(|| is_readable(all));
        }
        if let Some(Watched { all, .. }) = self.0.get() {
            let _ = poll(&mut [PollFd::new(all, PollFlags::IN)], Some(&timespec(time)));
        }
    }

    /// Wakes the thread that sleeps, or that is about to.
    pub(crate) fn wake(&self) {
        if let Some(Watched { alarm, .. }) = self.0.get() {
            #[cfg(all(test, loom))]
            return crate::runtime::change(|| alarm.ring());
            #[cfg(not(all(test, loom)))]
            alarm.ring();
        }
    }

    /// Returns the descriptor that is readable when any of the watched descriptors is. `None` in a child of fork(2).
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.get().map(|watched| watched.all.as_fd())
    }

    /// Resets the alarm. The thread that slept calls it.
    pub(crate) fn silence(&self) {
        if let Some(Watched { alarm, .. }) = self.0.get() {
            #[cfg(all(test, loom))]
            return crate::runtime::change(|| alarm.silence());
            #[cfg(not(all(test, loom)))]
            alarm.silence();
        }
    }
}

/// A timer with a descriptor that is readable once its time has passed. A child of fork(2) neither sets nor closes it,
/// because it belongs to the parent.
#[derive(Debug)]
pub(crate) struct Timer(Own<OwnedFd>);

impl Timer {
    /// Returns a timer that is not set.
    ///
    /// # Errors
    /// The errors of timerfd_create(2), and of mmap(2) and madvise(2) for [`Own`].
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(Own::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    /// Makes the descriptor readable after this time, and not before.
    pub(crate) fn set(&self, time: Duration) {
        // A time of 0 would stop the timer.
        self.change(time.max(Duration::from_nanos(1)));
    }

    /// Stops the timer. The descriptor is not readable any more.
    pub(crate) fn stop(&self) {
        self.change(Duration::ZERO);
    }

    fn change(&self, time: Duration) {
        if let Some(timer) = self.0.get() {
            let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(time) };
            // The arguments are valid.
            let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
        }
    }

    /// Sleeps until the time has passed, or until a descriptor of `watch` is readable. Returns true if a descriptor of
    /// `watch` is. A signal may end the sleep early.
    pub(crate) fn sleep(&self, watch: Option<&Watch>) -> bool {
        let Some(timer) = self.0.get().map(AsFd::as_fd) else { return false };
        let watched = watch.and_then(Watch::descriptor);
        let polled = [timer, watched.unwrap_or(timer)];
        let mut polled = polled.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        let _ = poll(&mut polled, None);
        watched.is_some() && !polled[1].revents().is_empty()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.even_in_child().as_fd()
    }
}

/// The descriptor of the program's driver. It is readable when a descriptor of the runtime's [`Watch`] is readable,
/// when the bell was rung, and when a time has passed.
#[derive(Debug)]
pub(crate) struct Bell {
    own: Watch,
    timer: Timer,
    /// The time at which the timer ends.
    until: Mutex<Time>,
}

impl Bell {
    /// Returns the bell of a runtime with these descriptors. The bell contains the descriptors themselves, and not the
    /// runtime's epoll descriptor, because the kernel limits the depth to which epoll descriptors are nested: the
    /// executor nests the bell, and libfabric nests descriptors too.
    pub(crate) fn new<'a>(
        descriptors: impl IntoIterator<Item = BorrowedFd<'a>>,
        watch: &'a Watch,
    ) -> io::Result<Self> {
        let timer = Timer::new()?;
        let mut all: Vec<BorrowedFd<'_>> = descriptors.into_iter().collect();
        all.extend(watch.0.get().map(|watched| watched.alarm.as_fd()));
        all.push(timer.as_fd());
        let own = Watch::new(all)?;
        Ok(Self { own, timer, until: Mutex::new(Time::ZERO) })
    }

    /// Makes the descriptor readable.
    pub(crate) fn ring(&self) {
        self.own.wake();
    }

    /// Ends the effect of [`ring`](Self::ring).
    pub(crate) fn silence(&self) {
        self.own.silence();
    }

    /// Makes the descriptor readable after some time at the latest. A running timer that ends earlier is kept, so most
    /// calls make no system call. A timer that has ended is set again, which makes the descriptor unreadable until the
    /// new time.
    pub(crate) fn set(&self, now: Time, time: Duration) {
        // In a model of loom time stands still, so a timer would never end.
        if cfg!(all(test, loom)) {
            return;
        }
        let new = now.after(time.as_nanos() as u64);
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if new < *until || *until <= now {
            *until = new;
            self.timer.set(time);
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.0.even_in_child().all.as_fd()
    }
}

/// Sleeps for some time. No other thread can end the sleep.
pub(crate) fn nap(time: Duration) {
    #[cfg(feature = "simulated")]
    if crate::simulated::sleep(time) {
        return;
    }
    let _ = poll(&mut [], Some(&timespec(time)));
}

/// Returns true if a descriptor is readable now.
#[cfg(test)]
pub(crate) fn is_readable(descriptor: impl AsFd) -> bool {
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timespec(Duration::ZERO))) == Ok(1)
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

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

    #[test]
    fn a_timer_ends_a_sleep_unless_it_is_stopped() {
        let (timer, watch) = (Timer::new().unwrap(), Watch::new([]).unwrap());
        assert!(!is_readable(&timer));
        timer.set(Duration::ZERO);
        assert!(!timer.sleep(Some(&watch)), "the time has passed");
        assert!(is_readable(&timer));
        timer.set(LONG);
        assert!(!is_readable(&timer));
        watch.wake();
        assert!(timer.sleep(Some(&watch)), "the alarm was rung");
        watch.silence();
        thread::scope(|scope| {
            scope.spawn(|| timer.set(Duration::from_micros(1)));
            assert!(!timer.sleep(None), "another thread has set an earlier time");
        });
        timer.stop();
        assert!(!is_readable(&timer));
    }
}
