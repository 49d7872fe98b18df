//! Progress between the program's calls.
//!
//! A long message needs several steps of both ranks: the receiver answers the envelope, the sender sends the bytes, and
//! the receiver takes them. A program that computes makes no calls, so the driver thread ([`driving`](super::driving))
//! takes these steps for it, while no thread of the program waits in a call. A waiting thread takes them itself.
//!
//! ```text
//!                 ┌───────── an event, or the pause is over ───────────┐
//!                 ▼                                                    │
//!              Steps ── nothing comes ──▶ Asleep on the descriptors, with the port armed. If the port cannot wake it: a
//!                 ▲                       pause of 10 us, later of a sixteenth of the time since the latest event
//!                 │                                 │ a call waits, or nothing needs progress
//!                 └── a call returns, and ───────── ▼
//!                     operations need progress    Idle: asleep without the port, or parked. Ends after 20 ms
//! ```
//! A caller that returns arms the port for the driver, if the driver sleeps on the descriptors and the port can wake
//! it. So operations that no event concerns before the program waits for them do not wake the driver. A program whose
//! operations need no help has no second thread. This is the *helper thread* of Zounmevo's thesis (2014, chapter 3),
//! which also starts on demand.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::Thread;
use std::time::Duration;

use samite_control::Progress;
use samite_fabric::Port;
use samite_os::Refused;
use samite_p2p::Time;

use super::Runtime;
use super::state::{Core, Sleeper, Who};
use super::sync::{self, BiasedGuard};
use crate::watch::{Watch, nap};

/// Starts a driver thread with a number.
pub(super) type StartThread = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// The state of the progress between calls.
pub(super) struct Background {
    progress: Progress,
    shared: Arc<Shared>,
    /// The driver thread, or the latest one if none runs.
    thread: Option<Thread>,
    /// While the driver sleeps on the descriptors without futures: the end of its sleep.
    asleep: Option<Time>,
    /// True if the port can wake a sleeper.
    wakes: bool,
    /// The time of the latest event of the driver, or of the latest new operation.
    since: Option<Time>,
    /// The number of times that no thread could be started.
    pub(super) threads_refused: u64,
}

/// The part of the state that the driver reads without the lock. All accesses are sequentially consistent: a caller
/// that ends its wait changes `waiting` and then reads `is_parked`, and the driver does the reverse, so one of them
/// sees the other's change.
#[derive(Default)]
struct Shared {
    /// The number of threads that wait in calls, and so make progress. It is changed under the lock.
    waiting: AtomicUsize,
    /// True while the driver is parked, until a thread unparks it.
    is_parked: AtomicBool,
    /// True if the driver must continue even if threads wait, because a future begins to wait or the runtime is closed.
    is_called: AtomicBool,
}

impl Shared {
    /// Parks the driver if threads wait.
    fn yield_to_waiting(&self) {
        self.is_parked.store(true, SeqCst);
        if self.waiting.load(SeqCst) > 0 && !self.is_called.load(SeqCst) {
            self.park();
        }
        self.is_parked.store(false, SeqCst);
    }

    /// Parks the driver while threads wait, and at most for [`IDLES`] at a time without them. `is_parked` is true.
    fn park(&self) {
        loop {
            sync::park_timeout(IDLES);
            if self.is_parked.load(SeqCst) {
                break;
            }
            // The caller that has unparked the driver may wait for its operation at once.
            nap(PAUSE_MIN);
            self.is_parked.store(true, SeqCst);
            if self.waiting.load(SeqCst) == 0 || self.is_called.load(SeqCst) {
                break;
            }
        }
        self.is_parked.store(false, SeqCst);
    }
}

impl Background {
    pub(super) fn new(progress: Progress) -> Self {
        let shared = Arc::default();
        Self { progress, shared, thread: None, asleep: None, wakes: false, since: None, threads_refused: 0 }
    }

    /// Notes that this thread is the driver now.
    pub(super) fn begin_thread(&mut self) {
        self.thread = Some(std::thread::current());
    }

    /// Returns true if progress is to be made whenever no thread waits.
    #[inline]
    fn is_always(&self) -> bool {
        self.progress == Progress::Always
    }

    /// Returns true if the driver sleeps on the descriptors without futures.
    pub(super) fn sleeps(&self) -> bool {
        self.asleep.is_some()
    }

    /// Wakes the driver from a sleep or a park, although threads may wait.
    pub(super) fn call(&mut self, watch: Option<&Watch>) {
        self.shared.is_called.store(true, SeqCst);
        if !self.unpark()
            && self.sleeps()
            && let Some(watch) = watch
        {
            watch.wake();
        }
    }

    /// Unparks the driver. Returns false if it was not parked.
    pub(super) fn unpark(&mut self) -> bool {
        let was_parked = self.shared.is_parked.swap(false, SeqCst);
        if let Some(thread) = self.thread.as_ref().filter(|_| was_parked) {
            thread.unpark();
        }
        was_parked
    }

    /// Returns true if the driver may still be needed soon, although nothing needs progress now.
    pub(super) fn lingers(&self, now: Time) -> bool {
        self.since.is_some_and(|since| now.since(since) < IDLES.as_nanos() as u64)
    }
}

impl<P: Port + 'static> Runtime<P>
where
    Self: Send + Sync,
{
    /// Permits progress between calls. Without this call the runtime starts a driver only for futures.
    pub(crate) fn permit_background(self: &Arc<Self>) {
        let runtime = Arc::downgrade(self);
        let start = move |number| match runtime.upgrade() {
            Some(runtime) => runtime.try_start_thread(number),
            None => Ok(()),
        };
        let is_first = self.background.set(Box::new(start)).is_ok();
        debug_assert!(is_first, "a runtime is permitted once");
    }
}

impl<P: Port> Runtime<P> {
    /// Leaves the progress to the driver, because a call returns. Does nothing if another thread waits, and so makes
    /// the progress, or if the program is the driver.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_to_background(&self, core: &mut Core<P>) {
        let Some(start) = self.background.get() else { return };
        if !core.must_progress() || core.has_sleeping_thread() {
            return;
        }
        match core.tasks.drivers.thread_to_start() {
            Some(number) => {
                if start(number).is_err() {
                    // The operations make progress in the program's calls.
                    core.tasks.drivers.no_thread();
                    core.background.threads_refused += 1;
                }
            }
            None => core.arm_for_background(self.clock.now()),
        }
    }

    /// Ends a wait that [`Core::begin_wait`] began if `is_counted` is true, and releases the lock.
    #[inline]
    pub(super) fn end_wait(&self, mut core: BiasedGuard<'_, Core<P>>, is_counted: bool) {
        if is_counted {
            core.background.shared.waiting.fetch_sub(1, SeqCst);
        }
        self.leave_if_needed(&mut core);
    }

    /// Leaves the operations that need progress to the driver, because a call returns.
    #[inline]
    pub(super) fn leave_if_needed(&self, core: &mut Core<P>) {
        if core.engine.needs_progress() || core.background.is_always() {
            self.leave_to_background(core);
        }
    }

    /// Releases the lock before the driver rests. The thread of the program that uses the lock alone gets its bias
    /// back, so that its calls cost no more than without the driver.
    fn leave_lock(&self, core: BiasedGuard<'_, Core<P>>) {
        match core.followers {
            0 if !core.has_sleeping_thread() => core.return_bias(),
            _ => drop(core),
        }
    }

    /// Lets the driver rest between two steps, if no future waits. `came` is true if the step had events.
    pub(super) fn rest_in_background<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        now: Time,
        came: bool,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        core.background.shared.is_called.store(false, SeqCst);
        let pause = core.background.pause(now, came);
        if came {
            drop(core);
            sync::yield_now();
            return self.core.lock();
        }
        let shared = Arc::clone(&core.background.shared);
        let must_progress = core.must_progress();
        if !must_progress && !core.background.wakes {
            shared.is_parked.store(true, SeqCst);
            self.leave_lock(core);
            shared.park();
            return self.core.lock();
        }
        let mut time = IDLES;
        if must_progress {
            time = core.time_to_sleep(pause, Time::NEVER);
            let Some(armed) = core.arm(pause, time) else { return Ok(core) };
            core.background.wakes = armed == time;
            time = armed;
            let until = now.after(time.as_nanos() as u64);
            core.sleeper = Some(Sleeper { until, is_roused: false, who: Who::Background });
        }
        let until = now.after(time.as_nanos() as u64);
        core.background.asleep = Some(until);
        self.leave_lock(core);
        match &self.watch {
            Some(watch) => watch.sleep(time),
            None => nap(time),
        }
        shared.yield_to_waiting();
        let mut core = self.core.lock()?;
        core.background.asleep = None;
        // A thread that sleeps has armed the port for itself, and the alarm may be for that thread.
        if !core.has_sleeping_thread() {
            core.disarm();
        }
        core.tasks.drivers.call();
        Ok(core)
    }
}

impl Background {
    /// Returns how long the driver pauses before its next step, if nothing would wake it.
    fn pause(&mut self, now: Time, came: bool) -> Duration {
        let since = *if came { self.since.insert(now) } else { self.since.get_or_insert(now) };
        Duration::from_nanos(now.since(since) / PAUSE_SHARE).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

impl<P: Port> Core<P> {
    /// Returns true if the driver must make progress: no thread waits, and operations need it.
    pub(super) fn must_progress(&self) -> bool {
        let needs = match self.background.progress {
            Progress::Needed => self.engine.needs_progress(),
            Progress::Always => true,
            Progress::Off => false,
        };
        needs && self.background.shared.waiting.load(SeqCst) == 0
    }

    /// Counts a thread that begins to wait, and so makes all progress from now on. Events do not wake the driver any
    /// more.
    #[cold]
    pub(super) fn begin_wait(&mut self) {
        self.background.shared.waiting.fetch_add(1, SeqCst);
        if self.sleeper.is_some_and(|sleeper| sleeper.who == Who::Background) {
            self.sleeper = None;
            self.is_armed = false;
            self.engine.port_mut().disarm();
        }
    }

    /// Arms the port for the driver, if the driver sleeps. Wakes the driver if there is work already.
    fn arm_for_background(&mut self, now: Time) {
        self.background.since = Some(now);
        if self.background.unpark() {
            return;
        }
        let Some(until) = self.background.asleep else { return };
        self.now = now;
        let time = self.time_to_sleep(PAUSE_MIN, Time::NEVER);
        let armed = if self.is_armed { Some(time) } else { self.arm(PAUSE_MIN, time) };
        self.sleeper = Some(Sleeper { until, is_roused: false, who: Who::Background });
        // The driver sleeps until the time that was right when it fell asleep.
        if armed.is_none_or(|time| now.after(time.as_nanos() as u64) < until) {
            self.wake();
        }
    }

    /// Wakes the driver if it sleeps without futures, because a future begins to wait.
    pub(super) fn end_background_sleep(&mut self) {
        self.background.call(self.watch.as_deref());
    }
}

/// The shortest pause: some times the duration of a poll of tcp, so that pauses of this length leave most of the core
/// to the program.
const PAUSE_MIN: Duration = Duration::from_micros(10);

/// The pause is the time since the latest event or new operation divided by this number, so it lengthens a transfer by
/// at most this fraction, and at least by `PAUSE_MIN`.
const PAUSE_SHARE: u64 = 16;

/// The time for which the driver stays while nothing needs progress. If several exchanges follow each other, starting a
/// thread for each would take longer than the exchanges.
const IDLES: Duration = Duration::from_millis(20);

/// The longest pause. With it the driver takes less than one hundredth of a core.
const PAUSE_MAX: Duration = Duration::from_millis(16);

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread::yield_now;

    use super::*;
    use crate::{Comm, Error, Rank, Settings};

    const LONG: usize = 1 << 20;

    fn settings(progress: crate::Progress) -> Settings {
        let mut settings = Settings::default();
        settings.set_progress(progress).unwrap();
        settings
    }

    fn is_under_way(comm: &Comm) -> bool {
        comm.runtime.peek(|engine| engine.needs_progress()).unwrap()
    }

    fn has_driver(comm: &Comm) -> bool {
        comm.runtime.core.lock().unwrap().tasks.drivers.has_thread()
    }

    /// Waits, without a call that makes progress, until all long messages have travelled. Returns false if that takes
    /// more than a minute.
    fn travels_alone(comm: &Comm) -> bool {
        let begun = comm.runtime.now();
        while is_under_way(comm) {
            if comm.runtime.now().since(begun) > 60_000_000_000 {
                return false;
            }
            yield_now();
        }
        true
    }

    /// Both ranks start their operations and then compute. `receives_first` says which operation starts first.
    fn exchange(comm: &Comm, started: &Barrier, receives_first: bool) -> Result<(), Error> {
        let (rank, other) = (comm.rank().0, Rank(1 - comm.rank().0));
        for number in 0..20u8 {
            if rank == 0 && receives_first {
                started.wait();
            }
            if rank == 0 {
                let request = comm.isend(vec![number; LONG], other, 7)?;
                if !receives_first {
                    started.wait();
                }
                assert!(travels_alone(comm), "the message is sent");
                request.wait()?;
            } else {
                if !receives_first {
                    started.wait();
                }
                let request = comm.irecv(vec![0u8; LONG], other, 7)?;
                if receives_first {
                    started.wait();
                }
                assert!(travels_alone(comm), "the message arrives");
                assert!(request.wait()?.buffer.iter().all(|byte| *byte == number));
            }
        }
        Ok(())
    }

    #[test]
    fn a_long_message_travels_between_two_calls() {
        for progress in [crate::Progress::Needed, crate::Progress::Always] {
            for receives_first in [false, true] {
                let started = Barrier::new(2);
                let ends =
                    settings(progress).local(2, |world| exchange(world.comm(), &started, receives_first));
                assert_eq!(ends, [Ok(()), Ok(())]);
            }
        }
    }

    #[test]
    fn without_the_thread_it_waits_for_the_next_call() {
        let started = Barrier::new(2);
        let ends = settings(crate::Progress::Off).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            if comm.rank() == 0 {
                started.wait();
                comm.isend(vec![1u8; LONG], other, 7)?.wait()?;
            } else {
                let request = comm.irecv(vec![0u8; LONG], other, 7)?;
                started.wait();
                assert!(is_under_way(comm) && !has_driver(comm));
                request.wait()?;
            }
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }

    /// A program of blocking calls, or of short messages, needs no thread.
    #[test]
    fn nothing_starts_a_thread_without_need() {
        let ends = settings(crate::Progress::Needed).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            for _ in 0..100 {
                let request = comm.irecv(vec![0u8; 100], other, 7)?;
                comm.isend(vec![0u8; 100], other, 7)?.wait()?;
                request.wait()?;
                let mut buffer = vec![0u8; LONG];
                if comm.rank() == 0 {
                    comm.send(&buffer, other, 8)?;
                    comm.recv(&mut buffer, other, 8)?;
                } else {
                    comm.recv(&mut buffer, other, 8)?;
                    comm.send(&buffer, other, 8)?;
                }
                assert!(!has_driver(comm));
            }
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }

    /// Long messages travel again after the program was the driver, and after a thread could not be started before.
    #[test]
    fn a_thread_follows_the_programs_driver() {
        let started = Barrier::new(2);
        let ends = settings(crate::Progress::Needed).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            if comm.rank() == 0 {
                started.wait();
                comm.isend(vec![1u8; LONG], other, 7)?.wait()?;
                started.wait();
                comm.isend(vec![1u8; LONG], other, 7)?.wait()?;
                return Ok(());
            }
            let driver = comm.driver()?;
            let request = comm.irecv(vec![0u8; LONG], other, 7)?;
            assert!(!has_driver(comm));
            drop(driver);
            assert!(has_driver(comm));
            started.wait();
            assert!(travels_alone(comm));
            request.wait()?;
            let mut request = comm.irecv(vec![0u8; LONG], other, 7)?;
            comm.runtime.core.lock().unwrap().tasks.drivers.no_thread();
            assert!(request.test().is_none());
            assert!(has_driver(comm), "the call that tests has started it");
            started.wait();
            assert!(travels_alone(comm));
            request.wait()?;
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }

    /// With `always`, a driver that sleeps is armed after each call, also if no operation is under way.
    #[test]
    fn each_call_leaves_an_armed_driver() {
        let ends = settings(crate::Progress::Always).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            for _ in 0..200 {
                comm.sendrecv(&[0u8; 100], other, 7, &mut [0u8; 100], other, 7)?;
                let core = comm.runtime.core.lock().unwrap();
                let is_armed = core.sleeper.is_some_and(|sleeper| sleeper.who == Who::Background);
                assert!(is_armed || !core.background.sleeps());
            }
            assert!(has_driver(comm));
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }
}
