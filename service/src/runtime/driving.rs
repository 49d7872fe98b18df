//! The driver, which makes progress for the futures that wait, and calls their wakers.
//!
//! The driver is either a thread of the runtime, which starts when a future waits or an operation needs progress between
//! calls ([`background`](super::background)), or the program ([`Driver`](crate::Driver)). The thread drives the engine as
//! any waiting thread does, and sleeps on the same descriptors. The program has a descriptor of its own: its executor
//! waits until that is readable, and then drives.
//!
//! Once an operation has needed progress between calls, the thread keeps the state `Thread`. While no operation and no
//! future needs it, it sleeps until it is called. If no operation has needed progress yet, the states are:
//!
//! ```text
//!              a future waits                  none waits                  none has waited for 20 ms
//!   Absent ───────────────────────▶ Thread ───────────────▶ Parked ─────────────────────────────────▶ Absent
//!      │                              │  ◀───────────────────┘ │
//!      │                              │     a future waits     │
//!      └────────── a Driver is made ──┴────────────────────────┘
//!                         ▼
//!                      Called ◀────────────────────────────────────────────┐
//!                         │ drove, nothing is left to do                   │ events for which another thread was
//!                         ▼                                                │ woken, or the port was disarmed
//!                       Armed ─────────────────────────────────────────────┘
//! ```
//! When the `Driver` is dropped, a new thread is started if futures wait. Each thread has a number and ends when it is
//! not the driver any more, so there is one driver at any time.
//!
//! Between two calls, the program's driver is armed like a sleeping thread. But no thread relies on the program,
//! because the executor may never poll again. A thread that must sleep takes the program's place. When that thread
//! wakes up, it disarms the port, so it also makes the program's descriptor readable.

use std::io;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Duration;

use samite_fabric::Port;
use samite_os::Refused;
use samite_p2p::Time;

use super::background::CallKind;
use super::state::{Core, Sleeper, Who};
use super::sync::{self, BiasedGuard};
use super::tasks::wake;
use super::{Runtime, error_of};
use crate::error::{Error, Fate, Public};
use crate::patience::{Patience, Rest};
use crate::watch::Bell;

/// The state of the driver.
#[derive(Default)]
pub(super) struct Drivers {
    state: State,
    /// The number of the thread that was started most recently. The first thread has number 1.
    last: u64,
    /// The driver thread that was parked most recently, until it is unparked.
    parked: Option<Thread>,
    program: Option<Program>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Absent,
    /// The driver is the thread with this number.
    Thread(u64),
    /// The driver is the thread with this number, which is parked because no future waits. It ends after [`STAYS`]
    /// unless it is unparked before.
    Parked(u64),
    /// The driver is the program. Its descriptor is readable, or it drives now.
    Called,
    /// The driver is the program. Its descriptor becomes readable when there is something to do.
    Armed,
}

/// The program as the driver.
struct Program {
    bell: Arc<Bell>,
    patience: Patience,
}

impl Drivers {
    /// Makes sure that there is a driver for a future that waits. Returns the number of the thread that the caller must
    /// start for that, which then is the driver, or `None` if no thread must be started.
    pub(super) fn thread_to_start(&mut self) -> Option<u64> {
        match self.state {
            State::Absent => {
                self.last += 1;
                self.state = State::Thread(self.last);
                Some(self.last)
            }
            State::Parked(number) => {
                self.state = State::Thread(number);
                self.unpark();
                None
            }
            State::Thread(_) | State::Called | State::Armed => None,
        }
    }

    /// Returns true if the driver is a thread that is not parked.
    #[inline]
    pub(super) fn is_thread_at_work(&self) -> bool {
        matches!(self.state, State::Thread(_))
    }

    /// Returns true if the driver is a thread.
    #[cfg(all(test, not(loom)))]
    pub(super) fn has_thread(&self) -> bool {
        matches!(self.state, State::Thread(_) | State::Parked(_))
    }

    /// Notes that the thread that was to be started could not be started.
    pub(super) fn no_thread(&mut self) {
        self.state = State::Absent;
    }

    fn unpark(&mut self) {
        if let Some(thread) = self.parked.take() {
            thread.unpark();
        }
    }

    /// Makes the program the driver.
    fn lend(&mut self, bell: Arc<Bell>) {
        self.unpark();
        bell.ring();
        self.program = Some(Program { bell, patience: Patience::new(true) });
        self.state = State::Called;
    }

    /// Ends the program's time as the driver. Returns false if the program is not the driver.
    fn take_back(&mut self) -> bool {
        self.state = if self.program.is_some() { State::Absent } else { self.state };
        self.program.take().is_some()
    }

    /// Makes the descriptor of the program's driver readable, if the driver is armed.
    pub(super) fn call(&mut self) {
        if self.state == State::Armed {
            self.state = State::Called;
            self.call_finally();
        }
    }

    /// Makes the descriptor of the program's driver readable.
    pub(super) fn call_finally(&self) {
        if let Some(Program { bell, .. }) = &self.program {
            bell.ring();
        }
    }
}

impl<P: Port + 'static> Runtime<P>
where
    Self: Send + Sync,
{
    /// Starts a driver thread, unless there is a driver. This is called for a future that is about to wait.
    pub(super) fn start_driver(self: &Arc<Self>, core: &mut Core<P>) -> Result<(), Error> {
        match core.tasks.drivers.thread_to_start() {
            None => {
                core.background.call();
                Ok(())
            }
            Some(number) => self.start_thread(core, number),
        }
    }

    #[cold]
    fn start_thread(self: &Arc<Self>, core: &mut Core<P>, number: u64) -> Result<(), Error> {
        if self.try_start_thread(number).is_err() {
            core.tasks.drivers.no_thread();
            return Err(Error::Exhausted {
                what: "threads: none could be started to drive the awaited operations",
                hint: "raise the limit of processes (ulimit -u), or wait for the operations without futures"
                    .into(),
            });
        }
        core.note_thread();
        Ok(())
    }

    pub(super) fn try_start_thread(self: &Arc<Self>, number: u64) -> io::Result<()> {
        let runtime = Arc::clone(self);
        sync::start_thread("samite-driver", STACK_BYTES, move || runtime.drive_tasks(number))
    }

    /// Runs a driver thread until the program is the driver, a step fails, or the runtime is closed. If no long message
    /// has needed progress, the thread also ends when no future has waited for [`STAYS`]. If the runtime is closed,
    /// nothing is left to do, because `close` calls all wakers.
    fn drive_tasks(&self, number: u64) {
        sync::sleep_precisely();
        // The driver never spins: the threads of the executor need the processor.
        let mut patience = Patience::new(true);
        let mut ready = Vec::new();
        let mut timer = None;
        let mut next = self.core.lock();
        while let Ok(mut core) = next
            && core.tasks.drivers.state == State::Thread(number)
        {
            // A thread that has begun to wait makes the progress now. A step here would only keep the lock from it.
            if core.tasks.is_empty()
                && !core.must_stay()
                && let Some(timer) = core.background.timer(&mut timer)
            {
                next = self.idle(core, timer);
                continue;
            }
            let now = self.clock.now();
            let stepped = core.step(now, &mut ());
            let has_events = !matches!(stepped, Ok(0));
            let came = core.has_moved() || has_events;
            if has_events {
                self.rouse(&mut core);
            }
            if stepped.is_err() {
                // Each future is polled again and receives the error from its own call, or starts another driver if the
                // error did not last.
                let all = core.tasks.take_all();
                core.tasks.drivers.state = State::Absent;
                drop(core);
                return wake(all);
            }
            let Core { engine, tasks, .. } = &mut *core;
            let until = tasks.take_ready(engine, now, &mut ready);
            let rest = patience.rest(now, came || !ready.is_empty());
            next = if !ready.is_empty() {
                drop(core);
                wake(ready.drain(..));
                self.core.lock()
            } else if core.tasks.is_empty() {
                match core.background.timer(&mut timer) {
                    Some(timer) => self.rest_in_background(core, timer, now, came),
                    None => self.park(core, number),
                }
            } else if let Rest::Sleep(nap) = rest {
                self.sleep(core, nap, until, None)
            } else {
                drop(core);
                sync::yield_now();
                self.core.lock()
            };
        }
    }

    /// Parks the driver thread with this number until a future waits or operations need progress. If neither happens
    /// within [`STAYS`], the thread is not the driver any more.
    fn park<'a>(
        &'a self,
        mut core: BiasedGuard<'a, Core<P>>,
        number: u64,
    ) -> Result<BiasedGuard<'a, Core<P>>, Refused> {
        core.tasks.drivers.state = State::Parked(number);
        core.tasks.drivers.parked = Some(thread::current());
        drop(core);
        sync::park_timeout(STAYS);
        let mut core = self.core.lock()?;
        let must_progress = core.must_progress();
        let Core { tasks, .. } = &mut *core;
        if [State::Thread(number), State::Parked(number)].contains(&tasks.drivers.state) {
            let ends = tasks.is_empty() && !must_progress;
            tasks.drivers.state = if ends { State::Absent } else { State::Thread(number) };
        }
        Ok(core)
    }

    /// Makes the program the driver. Returns the descriptor that becomes readable when the program must drive.
    ///
    /// # Errors
    /// [`Error::DriverExists`]; [`Error::Exhausted`] at the limit of open files; [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn lend_driver(&self) -> Result<Arc<Bell>, Error> {
        let mut core = self.lock()?;
        if core.tasks.drivers.program.is_some() {
            return Err(Error::DriverExists);
        }
        let descriptors = core.engine.port().descriptors().into_iter().chain(core.directory.descriptor());
        let bell = self.watch.as_ref().and_then(|watch| Bell::new(descriptors, watch).ok());
        let bell = bell.map(Arc::new).ok_or(Error::Exhausted {
            what: "open files: the descriptor of the driver could not be made",
            hint: "raise the limit of open files (ulimit -n)".into(),
        })?;
        core.tasks.drivers.lend(Arc::clone(&bell));
        // A thread that was the driver may sleep, or may wait for another thread that sleeps.
        core.background.call();
        self.rouse(&mut core);
        self.woken.notify_all();
        Ok(bell)
    }

    /// Drives for the program until nothing remains to be done, and arms the descriptor. After [`STEPS_MAX`] steps it
    /// returns with a readable descriptor instead, so that the program calls it again.
    ///
    /// # Errors
    /// The error of a step. In that case all waiting futures were woken, and the descriptor becomes readable after
    /// [`AFTER_ERROR`]. [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn drive_for_program(&self, bell: &Bell) -> Result<(), Error> {
        let mut ready = Vec::new();
        let mut core = self.core.lock().map_err(|refused| error_of(refused, Fate::Unknown))?;
        bell.silence();
        core.tasks.drivers.state = State::Called;
        if !core.has_sleeping_thread() {
            core.disarm();
        }
        core.ask = Time::ZERO;
        for _ in 0..STEPS_MAX {
            let now = self.clock.now();
            let stepped = core.step(now, &mut ());
            let has_events = !matches!(stepped, Ok(0));
            let came = core.has_moved() || has_events;
            if has_events {
                self.rouse(&mut core);
            }
            if let Err(error) = stepped {
                let all = core.tasks.take_all();
                bell.set(now, AFTER_ERROR);
                drop(core);
                wake(all);
                return Err(error.public());
            }
            let Core { engine, tasks, .. } = &mut *core;
            let until = tasks.take_ready(engine, now, &mut ready);
            if !ready.is_empty() {
                drop(core);
                wake(ready.drain(..));
                core = self.core.lock().map_err(|refused| error_of(refused, Fate::Unknown))?;
            } else if core.arm_program(bell, now, until, came) {
                return Ok(());
            }
        }
        bell.ring();
        Ok(())
    }

    /// Ends the program's time as the driver. A thread takes over if futures wait.
    pub(crate) fn take_driver_back(self: &Arc<Self>) {
        let Ok(mut core) = self.core.lock() else { return };
        if !core.tasks.drivers.take_back() {
            return;
        }
        if !core.has_sleeping_thread() {
            core.disarm();
        }
        self.leave_if_needed(&mut core, CallKind::Nonblocking);
        if !core.tasks.is_empty() && self.start_driver(&mut core).is_err() {
            // Each future is polled again, and tries to start the driver in its own call. It receives the error if that
            // fails too.
            let all = core.tasks.take_all();
            drop(core);
            wake(all);
        }
    }
}

impl<P: Port> Core<P> {
    /// Arms the descriptor of the program's driver after a step. `came` is true if the step had events or moved bytes.
    /// Returns false if there is more to do, and true if the descriptor is armed or the program is no longer the driver.
    fn arm_program(&mut self, bell: &Bell, now: Time, until: Time, came: bool) -> bool {
        let Some(program) = &mut self.tasks.drivers.program else { return true };
        let nap = program.patience.nap(now, came);
        if came {
            return false;
        }
        let mut time = self.time_to_sleep(nap, until);
        // The port is armed already while a thread sleeps. That thread calls the driver when it wakes up.
        if !self.has_sleeping_thread() {
            let Some(armed) = self.arm(nap, time) else { return false };
            time = armed;
            let until = now.after(time.as_nanos() as u64);
            self.sleeper = Some(Sleeper { until, is_roused: false, who: Who::Program });
        }
        bell.set(now, time);
        self.tasks.drivers.state = State::Armed;
        true
    }
}

/// The size of the driver's stack, whose pages are allocated when they are used. An executor's waker only queues a
/// task, but a callback may call the library.
const STACK_BYTES: usize = 1 << 20;

/// The time for which a driver thread stays after the last future. If several exchanges follow each other, starting a
/// thread for each would take longer than the exchanges.
const STAYS: Duration = Duration::from_millis(20);

/// The number of steps after which the program's driver returns, so that the executor can run other tasks.
const STEPS_MAX: u32 = 32;

/// The time after which the program drives again after an error.
const AFTER_ERROR: Duration = Duration::from_millis(16);
