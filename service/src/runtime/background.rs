//! Progress between the program's calls.
//!
//! A long message needs several steps of both ranks: the receiver answers the envelope, the sender sends the bytes, and
//! the receiver takes them. A program that computes makes no calls, so the driver thread ([`driving`](super::driving))
//! takes these steps for it, while no thread of the program waits in a call. A waiting thread takes them itself.
//!
//! ```text
//!                 ┌─────────── an event, or the pause is over ──────────┐
//!                 ▼                                                     │
//!              Steps ── nothing comes ──▶ Pause: the port is armed, and the driver sleeps on the descriptors. If the
//!                 ▲                       port cannot wake it, it sleeps for 10 µs, later for a sixteenth of the time
//!                 │                       since the latest event or new operation
//!                 │                                 │ a call waits, or no operation needs progress
//!                 └── 20 to 640 µs after a ──────── ▼
//!                     call returns, and          Idle: asleep until it is called
//!                     operations need progress
//! ```
//! The program's calls and the driver disturb each other as little as possible. A call that returns does not wake the
//! driver. It sets the driver's timer, by a system call that wakes no thread. A caller that begins to wait sets the
//! timer to a later time ([`STAND_DOWN`]), and does so again while it waits. A driver that is awake meanwhile takes no
//! step, because it would keep the lock from the caller. So an operation that is waited for within 20 µs of its start
//! costs two such calls, and the driver does not run. The program will probably wait as soon after its next call of this
//! kind ([`CallKind`]). So each such wait doubles the time to the driver's next first step, up to 640 µs, and then most
//! operations set no timer. A call that finds its request ended does not wait, and sets no timer. The driver keeps the
//! lock's bias during short pauses, because each return of the bias costs a system call that interrupts all processors.
//!
//! Messages that wait for the first contact with their receivers are such operations too, although their sends may have
//! returned: the address of a receiver comes from the launcher, and its answer from the port. A send that waits makes
//! this progress itself for a short time, so that a program of such calls usually needs no driver.
//!
//! The driver also sends messages that are gathered for a packet (a bundle), if the program makes no call within
//! [`bundle_delay_us`](samite_p2p::Config::bundle_delay_us). The first message that is gathered since the latest poll, for
//! any peer, sets the timer. If no thread can be started, no message is gathered outside of scopes until one is started.
//!
//! A program whose operations need no help has no second thread. The thread starts when operations need progress, or a
//! message is gathered, for the first time, and then stays until the runtime is closed. This is the *helper thread* of
//! Zounmevo's thesis (2014, chapter 3), which also starts on demand.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use samite_control::Progress;
use samite_fabric::Port;
use samite_os::Refused;
use samite_p2p::{Outcome, RequestId, Time};

use super::state::{Core, Sleeper, Who};
use super::sync::{self, BiasedGuard, Timer};
use super::waiting::deadline_after;
use super::{Bounds, Runtime};
use crate::cancel::CancelToken;

/// Starts a driver thread with a number.
pub(super) type StartThread = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// The state of the progress between calls.
pub(super) struct Background {
    progress: Progress,
    /// The number of threads that wait in calls, and so make progress.
    waiting: usize,
    /// The sleep of the driver, in a pause or idle.
    sleep: Option<Asleep>,
    /// The time of the latest step of the driver that had events or moved bytes, or of the latest new operation. `None`
    /// if no operation has needed progress yet.
    since: Option<Time>,
    /// The value of [`Core::operations_that_need_progress`] when the latest new operation was noted.
    operations: u64,
    /// The number of times that a call has recorded an operation on a window while no other one was recorded.
    recordings: u64,
    /// The value of `operations` when a call left them to the driver thread. Until a caller waits, or the driver
    /// becomes idle, the driver is awake or its sleep ends in time for them, so that other calls have nothing to do.
    /// This is so at most calls while a window admits accesses at any time.
    covered: Option<u64>,
    /// For each kind of call, the time of the latest call that has left operations to the driver, if no call has waited
    /// since then.
    left: [Option<Time>; CallKind::KINDS],
    /// For each kind of call, the number of the latest calls after which the program has waited within [`WAITED_SOON`],
    /// at most [`WAITED_MAX`].
    waited_soon: [u32; CallKind::KINDS],
    /// The number of times that no thread could be started.
    pub(super) threads_refused: u64,
    /// True if no messages are gathered because no thread could be started.
    has_stopped_gathering: bool,
}

/// The kind of a call that leaves operations to the driver. A program that waits soon after calls of one kind need not do
/// so after those of another kind: it may synchronize by calls that wait, one after another, and compute after
/// nonblocking ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A call that begins, tests or cancels requests, and every call of no other kind.
    Nonblocking,
    /// A blocking send, receive or collective call. It may have returned before its message has left.
    Waiting,
    /// A call on a window that begins no request: it opens an epoch, makes an operation, looks if a flush must wait, or
    /// closes a bare epoch.
    Window,
}

impl CallKind {
    /// The number of kinds.
    const KINDS: usize = 3;
}

/// A sleep of a driver thread, which its timer ends.
struct Asleep {
    timer: Arc<Timer>,
    /// The time at which the timer ends, or [`CALLED`].
    until: Time,
}

impl Asleep {
    /// Lets the sleep end after `time`, unless it ends earlier.
    fn end_within(&mut self, now: Time, time: Duration) {
        let until = now.after(time.as_nanos() as u64);
        if until < self.until {
            self.until = until;
            self.timer.set(time);
        }
    }

    /// Ends the sleep. Later calls of this type's functions do not change that.
    fn end(&mut self) {
        self.until = CALLED;
        self.timer.set(Duration::ZERO);
    }

    /// Lets the sleep end after `time`, whether that is earlier or later than before. A sleep that was ended by
    /// [`end`](Self::end) stays ended.
    fn end_after(&mut self, now: Time, time: Duration) {
        if self.until != CALLED {
            self.until = now.after(time.as_nanos() as u64);
            self.timer.set(time);
        }
    }

    /// Lets the sleep last for [`STAND_DOWN`], unless it does not end soon or was ended by [`end`](Self::end).
    fn prolong(&mut self, now: Time) {
        let soon = now.after(FIRST_STEP_AFTER.as_nanos() as u64 * 8);
        if self.until != CALLED && self.until < soon {
            self.end_after(now, STAND_DOWN);
        }
    }
}

impl Background {
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            waiting: 0,
            sleep: None,
            since: None,
            operations: 0,
            recordings: 0,
            covered: None,
            left: [None; CallKind::KINDS],
            waited_soon: [0; CallKind::KINDS],
            threads_refused: 0,
            has_stopped_gathering: false,
        }
    }

    /// Returns true if progress is to be made whenever no thread waits.
    #[inline]
    fn is_always(&self) -> bool {
        self.progress == Progress::Always
    }

    /// Wakes the driver if it pauses or is idle. This is called when a future begins to wait, another driver takes
    /// over, or the runtime is closed.
    pub(super) fn call(&mut self) {
        if let Some(sleep) = &mut self.sleep {
            sleep.end();
        }
    }

    /// Lets the driver take its next step within [`FIRST_STEP_AFTER`] if it pauses or is idle.
    pub(super) fn call_soon(&mut self, now: Time) {
        if let Some(sleep) = &mut self.sleep {
            sleep.end_within(now, FIRST_STEP_AFTER);
        }
    }

    /// Counts operations on windows that a call has recorded. They are sent when the target permits the access.
    #[inline]
    pub(super) fn note_recorded(&mut self) {
        self.recordings += 1;
    }

    /// Lets the driver take its first step for the operations that a call leaves, if it pauses or is idle. If the
    /// program has waited soon after the latest calls of this kind, it probably does so after this one, and the step is
    /// later: then most operations leave the timer as it is. To set it takes 1 µs, and 4 µs on a virtual machine.
    /// `at_most` is the longest time to the step.
    fn call_for_operation(&mut self, now: Time, call: CallKind, at_most: Duration) {
        self.left[call as usize] = Some(now);
        if let Some(sleep) = &mut self.sleep {
            let after = FIRST_STEP_AFTER * (1 << self.waited_soon[call as usize]);
            sleep.end_within(now, after.min(at_most));
        }
    }

    /// Prolongs the driver's sleep if it would end soon, because a call waits and makes all progress.
    #[inline]
    pub(super) fn stand_down(&mut self, now: Time) {
        if let Some(sleep) = &mut self.sleep {
            sleep.prolong(now);
        }
    }

    /// Returns true if a call has left operations to the driver, and no call has waited since then.
    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.left.iter().any(Option::is_some)
    }

    /// Returns true if a nonblocking call has left operations to the driver, and no call has waited since then.
    #[inline]
    pub(super) fn has_left_requests(&self) -> bool {
        self.left[CallKind::Nonblocking as usize].is_some()
    }

    /// Notes that a call begins to wait, or would, if its request had not ended.
    pub(super) fn note_wait(&mut self, now: Time) {
        for (left, waited_soon) in self.left.iter_mut().zip(&mut self.waited_soon) {
            let Some(left) = left.take() else { continue };
            let is_soon = now.since(left) < WAITED_SOON.as_nanos() as u64;
            *waited_soon = if is_soon { (*waited_soon + 1).min(WAITED_MAX) } else { 0 };
        }
    }

    /// Lets the driver take its next step when gathered messages have waited for `delay`, if it pauses or is idle.
    fn call_for_gathered(&mut self, now: Time, delay: Duration) {
        if let Some(sleep) = &mut self.sleep {
            sleep.end_after(now, delay);
        }
    }

    /// Returns the timer of a driver thread if the thread must stay although no future waits. Returns `None` if no
    /// operation has needed progress yet, or if no timer can be made. `own` is the variable in which the thread keeps
    /// its timer between calls.
    pub(super) fn timer<'a>(&mut self, own: &'a mut Option<Arc<Timer>>) -> Option<&'a Arc<Timer>> {
        if own.is_none() && self.since.is_some() {
            *own = Timer::new().ok().map(Arc::new);
            self.threads_refused += u64::from(own.is_none());
        }
        own.as_ref()
    }

    /// Returns how long the driver pauses before its next step, if nothing would wake it.
    fn pause(&self, now: Time) -> Duration {
        let since = self.since.unwrap_or(now);
        Duration::from_nanos(now.since(since) / PAUSE_SHARE).clamp(PAUSE_MIN, PAUSE_MAX)
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
    /// Ends a wait that [`Core::begin_wait`] began if `is_counted` is true, and releases the lock.
    #[inline]
    pub(super) fn end_wait(&self, mut core: BiasedGuard<'_, Core<P>>, is_counted: bool) {
        if is_counted {
            core.background.waiting -= 1;
        }
        self.leave_if_needed(&mut core, CallKind::Waiting);
    }

    /// Leaves the operations that need progress to the driver, because a call returns.
    #[inline]
    pub(super) fn leave_if_needed(&self, core: &mut Core<P>, call: CallKind) {
        let needs_progress = core.engine.needs_progress() && !core.is_covered();
        // Every call evaluates this. `|` instead of `||` avoids branches.
        if needs_progress | core.engine.has_new_gathering() | core.background.is_always() {
            self.leave_to_background(core, call);
        }
    }

    /// Makes progress for a short time while messages of sends that are about to return wait for the first contact with
    /// their receivers, so that most programs whose sends wait need no driver thread. If there is one, it makes this
    /// progress. The bounds of the send limit the time.
    pub(super) fn await_contact<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        bounds: &Bounds,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        let until = contact_until(core.now, bounds);
        let is_cancelled = || bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        while core.awaits_contact() && core.now < until && !is_cancelled() {
            drop(core);
            sync::yield_now();
            core = self.core.lock()?;
            // An error is ignored: it also ends the next call that waits.
            if !matches!(core.step(self.clock.now(), &mut ()), Ok(0)) {
                self.rouse(&mut core);
            }
        }
        Ok(core)
    }

    /// Leaves the progress to the driver, because a call returns. If there is no driver, starts a driver thread. Does
    /// nothing if nothing needs progress, if another thread waits and so makes the progress, or if the program is the
    /// driver.
    #[cold]
    #[inline(never)]
    fn leave_to_background(&self, core: &mut Core<P>, call: CallKind) {
        let Some(start) = self.background.get() else { return };
        let has_gathered = core.engine.take_new_gathering();
        if !core.must_progress() || core.has_sleeping_thread() {
            return;
        }
        let now = self.clock.now();
        let has_new = core.note_operations(now);
        match core.tasks.drivers.thread_to_start() {
            Some(number) if start(number).is_err() => {
                // Without a thread the operations make progress only in the program's calls.
                core.tasks.drivers.no_thread();
                core.background.threads_refused += 1;
                // No thread would send gathered messages in time, so no further messages are gathered.
                core.background.has_stopped_gathering |= core.engine.set_gathering(false);
                core.engine.send_gathered(now);
            }
            Some(_) => core.note_thread(),
            None => {
                let delay = has_gathered.then(|| Duration::from_micros(core.engine.config().bundle_delay_us));
                match delay {
                    Some(delay) if !core.engine.needs_progress() => {
                        core.background.call_for_gathered(now, delay);
                    }
                    _ => {
                        if has_new || has_gathered || !core.is_attended() {
                            let at_most = delay.unwrap_or(Duration::MAX);
                            core.background.call_for_operation(now, call, at_most);
                        }
                        core.background.covered = Some(core.background.operations);
                    }
                }
            }
        }
    }

    /// Lets the driver thread rest after a step, while no future waits. `came` is true if the step had events or moved
    /// bytes. In that case the thread only yields, because more may follow.
    pub(super) fn rest_in_background<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        timer: &Arc<Timer>,
        now: Time,
        came: bool,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        if came {
            core.background.since = Some(now);
        }
        match core.must_stay() {
            true if came => {
                drop(core);
                sync::yield_now();
                self.core.lock()
            }
            true => self.pause(core, timer, now),
            false => self.idle(core, timer),
        }
    }

    /// Sleeps until an event, until the pause is over, or until the engine has work that is due.
    fn pause<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        timer: &Arc<Timer>,
        now: Time,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        let pause = core.background.pause(now);
        let time = core.time_to_sleep(pause, Time::NEVER);
        let Some(time) = core.arm(pause, time) else { return self.yield_to_waiting(core) };
        let until = now.after(time.as_nanos() as u64);
        core.sleeper = Some(Sleeper { until, is_roused: false, who: Who::Background });
        core.background.sleep = Some(Asleep { timer: Arc::clone(timer), until });
        timer.set(time);
        match time >= LONG_PAUSE {
            true => self.leave_lock(core),
            false => drop(core),
        }
        let is_readable = timer.sleep(self.watch.as_deref());
        self.wake_up(timer, is_readable)
    }

    /// Sleeps until the driver is called.
    pub(super) fn idle<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        timer: &Arc<Timer>,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        core.background.sleep = Some(Asleep { timer: Arc::clone(timer), until: Time::NEVER });
        core.background.covered = None;
        timer.stop();
        self.leave_lock(core);
        timer.sleep(None);
        self.wake_up(timer, false)
    }

    /// Releases the lock before a long rest. The thread of the program that uses the lock alone gets its bias back, so
    /// that its calls cost no more than without the driver.
    fn leave_lock(&self, core: BiasedGuard<'_, Core<P>>) {
        match core.followers {
            0 if !core.has_sleeping_thread() => core.return_bias(),
            _ => drop(core),
        }
    }

    /// Takes the lock after a sleep with this timer, and removes the record of the sleep. `is_readable` is true if a
    /// descriptor has ended the sleep.
    fn wake_up(&self, timer: &Arc<Timer>, is_readable: bool) -> Result<BiasedGuard<'_, Core<P>>, Refused> {
        let mut core = self.core.lock()?;
        // If another thread is the driver meanwhile, the recorded sleep may be that thread's, and the port may be armed
        // for it. A caller that has begun to wait meanwhile has disarmed the port, and may have armed it for itself.
        let sleep = core.background.sleep.take_if(|sleep| Arc::ptr_eq(&sleep.timer, timer));
        match sleep.is_some() && core.is_attended() {
            true if is_readable => core.disarm(),
            true => core.disarm_port(),
            false => {}
        }
        Ok(core)
    }
}

impl<P: Port> Core<P> {
    /// Returns true if the driver must make progress: no thread waits, and operations need it.
    pub(super) fn must_progress(&self) -> bool {
        let needs = match self.background.progress {
            Progress::Needed => self.engine.needs_progress() || self.engine.has_gathered(),
            Progress::Always => true,
            Progress::Off => false,
        };
        needs && self.background.waiting == 0
    }

    /// Returns true if the driver must go on: it must make progress, or the port has packets that leave only in later
    /// polls. These may be the last ones of a long message, whose operation has ended.
    pub(super) fn must_stay(&self) -> bool {
        let has_unsent = || self.background.waiting == 0 && self.engine.port().has_unsent();
        self.must_progress() || self.background.progress != Progress::Off && has_unsent()
    }

    /// Returns true if messages wait for the first contact with their receivers, and there is no driver thread yet.
    fn awaits_contact(&self) -> bool {
        let is_left_to_thread =
            self.background.progress != Progress::Needed || self.tasks.drivers.is_thread_at_work();
        !is_left_to_thread && self.engine.awaits_contact() && self.background.waiting == 0
    }

    /// Returns the number of operations that have needed progress so far, with the recordings of operations on windows.
    #[inline]
    fn operations_that_need_progress(&self) -> u64 {
        self.engine.operations_that_need_progress() + self.background.recordings
    }

    /// Returns true if the driver thread knows of the operations that need progress.
    #[inline]
    fn is_covered(&self) -> bool {
        self.background.covered == Some(self.operations_that_need_progress())
            && self.tasks.drivers.is_thread_at_work()
    }

    /// Returns true if the driver pauses, and the port is armed for it.
    pub(super) fn is_attended(&self) -> bool {
        self.sleeper.is_some_and(|sleeper| sleeper.who == Who::Background)
    }

    /// Returns true if the driver thread has probably ended a request, and neither gathered messages nor the news of a
    /// given-up peer wait for a poll of this thread.
    #[cold]
    pub(super) fn has_driven(&self, id: RequestId) -> bool {
        self.tasks.drivers.is_thread_at_work()
            && self.engine.outcome(id) == Outcome::Ready
            && !self.engine.has_gathered()
            && !self.engine.has_given_up()
    }

    /// Returns true if the driver thread may take a step before it is called again.
    #[inline]
    pub(super) fn may_be_driven(&self) -> bool {
        self.tasks.drivers.is_thread_at_work()
            && self.background.sleep.as_ref().is_none_or(|sleep| sleep.until != Time::NEVER)
    }

    /// Counts a thread that begins to wait, and so makes all progress from now on. Events do not wake the driver any
    /// more.
    #[cold]
    pub(super) fn begin_wait(&mut self, now: Time) {
        self.background.waiting += 1;
        self.background.note_wait(now);
        self.background.covered = None;
        self.background.stand_down(now);
        if self.is_attended() {
            self.disarm_port();
        }
    }

    /// Notes that a driver thread was started. It sends gathered messages in time, so messages are gathered again if
    /// they were not for lack of a thread.
    pub(super) fn note_thread(&mut self) {
        if std::mem::take(&mut self.background.has_stopped_gathering) {
            self.engine.set_gathering(true);
        }
    }

    /// Returns true if operations have begun to need progress since the latest call of this function.
    fn note_operations(&mut self, now: Time) -> bool {
        let operations = self.operations_that_need_progress();
        let background = &mut self.background;
        let has_new = background.operations != operations || background.since.is_none();
        if has_new {
            (background.operations, background.since) = (operations, Some(now));
        }
        has_new
    }
}

/// Returns the time until which a send that began at `begun` waits for the first contact with its receiver.
fn contact_until(begun: Time, bounds: &Bounds) -> Time {
    deadline_after(begun, bounds.timeout.map_or(CONTACT, |timeout| timeout.min(CONTACT)))
}

/// The value of [`Asleep::until`] if the sleep must end at once.
const CALLED: Time = Time::ZERO;

/// The shortest time from a call's return to the driver's first step; see also [`WAITED_MAX`]. A program that does nothing else between the start of an
/// operation and the wait for it takes less than this time. A long message takes several times as long.
const FIRST_STEP_AFTER: Duration = Duration::from_micros(20);

/// The time for which a send waits for the first contact with its receiver before it leaves its message to the driver
/// thread: several times the time in which a launcher answers with an address, and a receiver that waits with its own.
const CONTACT: Duration = Duration::from_millis(2);

/// The time from a call's return within which a program that does not compute in between waits in another call. A wait
/// is noticed after some polls, and one of them may copy a message of some 100 KiB to a socket.
const WAITED_SOON: Duration = Duration::from_micros(50);

/// The largest number of calls by which the first step becomes later: it comes after at most 32 times
/// [`FIRST_STEP_AFTER`].
const WAITED_MAX: u32 = 5;

/// The shortest pause: some times the duration of a poll of tcp, so that pauses of this length leave most of the core
/// to the program.
const PAUSE_MIN: Duration = Duration::from_micros(10);

/// The pause is the time since the latest event or new operation divided by this number, so it lengthens a transfer by
/// at most this fraction, and at least by `PAUSE_MIN`.
const PAUSE_SHARE: u64 = 16;

/// The longest pause. With it the driver takes less than one hundredth of a core, even if a step takes 0.3 ms, as in a
/// debug build.
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// The shortest pause before which the driver returns the bias of the lock. In a shorter pause the program saves less
/// by the bias than the two threads pay for its return.
const LONG_PAUSE: Duration = Duration::from_millis(1);

/// The time for which the driver sleeps after a caller has begun to wait. When the driver then finds that nothing needs
/// progress, it returns the bias of the lock and sleeps until it is called.
const STAND_DOWN: Duration = Duration::from_millis(20);

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::Barrier;
    use std::thread::yield_now;

    use samite_control::Place;
    use samite_fabric::loopback::Hub;

    use super::*;
    use crate::{Comm, Error, Rank, Settings, World, transport};

    const LONG: usize = 1 << 20;

    #[test]
    fn a_time_out_limits_the_wait_for_the_first_contact() {
        let begun = Time::ZERO.after(7);
        let until = |timeout| contact_until(begun, &Bounds { timeout, cancel: None });
        assert_eq!(until(Some(Duration::ZERO)), begun);
        assert_eq!(until(Some(Duration::from_micros(5))), begun.after(5000));
        assert_eq!(until(Some(Duration::MAX)), until(None));
        assert_eq!(until(None), begun.after(CONTACT.as_nanos() as u64));
    }

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

    /// Lets a call leave operations to a driver that is idle. Returns the time to the driver's first step.
    fn first_step_after(background: &mut Background, now: Time, call: CallKind) -> Duration {
        first_step_within(background, now, call, Duration::MAX)
    }

    /// As [`first_step_after`], if a gathered message waits for at most `delay`.
    fn first_step_within(
        background: &mut Background,
        now: Time,
        call: CallKind,
        delay: Duration,
    ) -> Duration {
        let timer = Arc::new(Timer::new().unwrap());
        background.sleep = Some(Asleep { timer, until: Time::NEVER });
        background.call_for_operation(now, call, delay);
        let until = background.sleep.take().expect("it was set").until;
        Duration::from_nanos(until.since(now))
    }

    #[test]
    fn the_first_step_is_later_if_the_program_waits_soon_after_calls_of_the_same_kind() {
        let kinds = [CallKind::Waiting, CallKind::Nonblocking, CallKind::Window];
        for (call, other) in kinds.into_iter().zip([1, 2, 0].map(|next| kinds[next])) {
            let mut background = Background::new(Progress::Needed);
            let mut now = Time::from_nanos(1);
            for soon in [0, 1, 2, 3, 4, 5, 5, 5] {
                let after = FIRST_STEP_AFTER * (1 << soon);
                assert_eq!(first_step_after(&mut background, now, call), after, "{call:?}");
                now = now.after(WAITED_SOON.as_nanos() as u64 - 1);
                background.note_wait(now);
                assert_eq!(first_step_after(&mut background, now, other), FIRST_STEP_AFTER, "{other:?}");
                // The program computes after calls of the other kind.
                now = now.after(WAITED_SOON.as_nanos() as u64);
                background.note_wait(now);
            }
            first_step_after(&mut background, now, call);
            background.note_wait(now.after(WAITED_SOON.as_nanos() as u64));
            assert_eq!(first_step_after(&mut background, now, call), FIRST_STEP_AFTER, "after a computation");
        }
    }

    #[test]
    fn a_gathered_message_is_not_late_because_a_long_message_travels_too() {
        let (mut background, now) = (Background::new(Progress::Needed), Time::from_nanos(1));
        background.waited_soon = [WAITED_MAX; CallKind::KINDS];
        let delay = Duration::from_micros(100);
        assert!(first_step_after(&mut background, now, CallKind::Nonblocking) > delay);
        assert_eq!(first_step_within(&mut background, now, CallKind::Nonblocking, delay), delay);
        background.waited_soon = [0; CallKind::KINDS];
        assert_eq!(first_step_within(&mut background, now, CallKind::Nonblocking, delay), FIRST_STEP_AFTER);
    }

    /// While a window exists, operations need progress all the time. A call that records an operation still calls the
    /// driver, because the target's permission may arrive while the program computes.
    #[test]
    fn a_recorded_operation_on_a_window_calls_the_driver() {
        let recorded = Barrier::new(2);
        let ends = settings(crate::Progress::Needed).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            let window = comm.window(vec![0_u8; 100])?;
            comm.barrier()?;
            if comm.rank() == 1 {
                recorded.wait();
                return window.post(&[other])?.close();
            }
            let epoch = window.start(&[other])?;
            let recordings = || comm.runtime.core.lock().unwrap().background.recordings;
            let before = recordings();
            epoch.put(other, 0, &[1; 10])?;
            assert_eq!(recordings(), before + 1);
            assert!(comm.runtime.core.lock().unwrap().is_covered());
            epoch.put(other, 10, &[2; 10])?;
            assert_eq!(recordings(), before + 1, "the driver knows of recorded operations");
            recorded.wait();
            epoch.close()
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
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
    fn collective_operations_end_between_two_calls() {
        let started = Barrier::new(4);
        let ends = settings(crate::Progress::Needed).local(4, |world| {
            let comm = world.comm();
            for number in 0..20_u32 {
                let sum = comm.iallreduce(vec![number; 1000], vec![0; 1000], crate::reduction::Sum)?;
                let barrier = comm.ibarrier()?;
                started.wait();
                assert!(travels_alone(comm), "the operations end");
                started.wait();
                assert_eq!(sum.wait()?.buffer.1, [4 * number; 1000]);
                barrier.wait()?;
            }
            Ok::<(), Error>(())
        });
        assert_eq!(ends, vec![Ok(()); 4]);
    }

    /// A wait for a request that the driver has ended leaves out its first poll. It goes on as any other wait if the
    /// request belongs to a set, or to a step of a collective call.
    #[test]
    fn sets_and_collective_calls_wait_as_usual_after_requests_that_the_driver_has_ended() {
        const SIZE: u32 = 3;
        let ends = settings(crate::Progress::Needed).local(SIZE, |world| {
            let comm = world.comm();
            let rank = comm.rank().0;
            let (next, previous) = (Rank((rank + 1) % SIZE), Rank((rank + SIZE - 1) % SIZE));
            for number in 0..50_u8 {
                let mut set = comm.request_set();
                for (len, tag) in [(LONG, 7), (1, 8), (LONG, 9)] {
                    set.insert(comm.irecv(vec![0; len], previous, tag)?).expect("a request of this world");
                }
                let sends = [7, 9].map(|tag| comm.isend(vec![number; LONG], next, tag));
                assert!(travels_alone(comm), "the long messages travel");
                let mut sum = [0];
                comm.allreduce(&[u32::from(number)], &mut sum, crate::reduction::Sum)?;
                assert_eq!(sum, [SIZE * u32::from(number)]);
                comm.isend(vec![number], next, 8)?.wait()?;
                for _ in 0..3 {
                    let (_, end) = set.wait_any().expect("three requests");
                    assert!(end?.buffer.iter().all(|byte| *byte == number));
                }
                comm.barrier()?;
                for send in sends {
                    send?.wait()?;
                }
            }
            Ok::<(), Error>(())
        });
        assert_eq!(ends, vec![Ok(()); SIZE as usize]);
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

    /// After the first contact of its ranks, a program of blocking calls, or of short messages, needs no thread over
    /// ports whose packets are cheap. No message is gathered there.
    #[test]
    fn nothing_starts_a_thread_without_need() {
        let ends = settings(crate::Progress::Needed).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            let set_progress = |progress| comm.runtime.core.lock().unwrap().background.progress = progress;
            set_progress(Progress::Off);
            comm.barrier()?;
            set_progress(Progress::Needed);
            for _ in 0..100 {
                let request = comm.irecv(vec![0u8; 100], other, 7)?;
                comm.isend(vec![0u8; 100], other, 7)?.wait()?;
                request.wait()?;
                ping_pong(comm, LONG)?;
                assert!(!has_driver(comm));
            }
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }

    /// Sends a message from rank 0 to rank 1, and back.
    fn ping_pong(comm: &Comm, len: usize) -> Result<(), Error> {
        let (mut buffer, other) = (vec![0u8; len], Rank(1 - comm.rank().0));
        if comm.rank() == 0 {
            comm.send(&buffer, other, 8)?;
            comm.recv(&mut buffer, other, 8)?;
        } else {
            comm.recv(&mut buffer, other, 8)?;
            comm.send(&buffer, other, 8)?;
        }
        Ok(())
    }

    /// Runs two ranks over ports whose packets are dear, so that short messages are gathered.
    fn with_dear_packets<R: Send>(body: impl Fn(World) -> R + Sync) -> Vec<R> {
        let hub = Hub::new();
        let ports = (0..2).map(|_| transport::local(hub.port().with_dear_packets())).collect();
        let place = Place { neighbours: 2, ..Place::ALONE };
        crate::local::run(vec![ports], &settings(crate::Progress::Needed).0, &place, body)
    }

    /// Blocking calls start no thread if no message is gathered: the messages are long, or each one is answered before
    /// the next. A burst of short messages that the receiver does not acknowledge is gathered, and starts the thread.
    #[test]
    fn a_burst_of_blocking_sends_starts_a_thread_where_packets_are_dear() {
        const BURST: u8 = 100;
        let computed = Barrier::new(2);
        let ends = with_dear_packets(|world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            let set_progress = |progress| comm.runtime.core.lock().unwrap().background.progress = progress;
            set_progress(Progress::Off);
            comm.barrier()?;
            set_progress(Progress::Needed);
            for len in [8, 2000, LONG] {
                for _ in 0..20 {
                    ping_pong(comm, len)?;
                }
                assert!(!has_driver(comm), "{len} bytes");
            }
            if comm.rank() == 0 {
                for number in 0..BURST {
                    comm.send(&[number], other, 7)?;
                }
                assert!(has_driver(comm));
                computed.wait();
            } else {
                computed.wait();
                for number in 0..BURST {
                    let mut byte = [0];
                    comm.recv(&mut byte, other, 7)?;
                    assert_eq!(byte, [number]);
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

    /// The panic ends the operations of the scope. The driver continues to make progress for other operations.
    #[test]
    fn a_panic_in_a_scope_leaves_the_driver_at_work() {
        let started = Barrier::new(2);
        let ends = settings(crate::Progress::Needed).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            if comm.rank() == 0 {
                started.wait();
                comm.isend(vec![1u8; LONG], other, 7)?.wait()?;
                return Ok(());
            }
            let request = comm.irecv(vec![0u8; LONG], other, 7)?;
            assert!(has_driver(comm));
            let mut lent = vec![0u8; LONG];
            let scope = || {
                comm.scope(|scope| {
                    scope.irecv(&mut lent, other, 8)?;
                    std::panic::resume_unwind(Box::new("a panic of the program"))
                })
            };
            let end = std::panic::catch_unwind(AssertUnwindSafe(scope));
            assert!(end.map(|_: Result<(), Error>| ()).is_err());
            lent.fill(2);
            started.wait();
            assert!(travels_alone(comm));
            assert!(request.wait()?.buffer.iter().all(|byte| *byte == 1));
            assert!(lent.iter().all(|byte| *byte == 2));
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }

    /// With [`Progress::Always`], after each call the driver is armed, or awake, or wakes soon, even if no operation is
    /// under way.
    #[test]
    fn each_call_leaves_an_armed_driver() {
        let ends = settings(crate::Progress::Always).local(2, |world| {
            let (comm, other) = (world.comm(), Rank(1 - world.comm().rank().0));
            for _ in 0..200 {
                comm.sendrecv(&[0u8; 100], other, 7, &mut [0u8; 100], other, 7)?;
                let core = comm.runtime.core.lock().unwrap();
                let latest = FIRST_STEP_AFTER * (1 << WAITED_MAX);
                let soon = comm.runtime.now().after(latest.as_nanos() as u64);
                let is_idle = core.background.sleep.as_ref().is_some_and(|sleep| sleep.until > soon);
                assert!(core.is_attended() || !is_idle);
            }
            assert!(has_driver(comm));
            Ok::<(), Error>(())
        });
        assert_eq!(ends, [Ok(()), Ok(())]);
    }
}
