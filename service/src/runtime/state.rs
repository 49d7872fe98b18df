//! What the runtime's lock protects: the engine, the launcher's news, and who sleeps.

use std::time::Duration;

use samite_control::{Figures, PeerStats};
use samite_fabric::link::GivenUp;
use samite_fabric::{Port, Sleep};
use samite_p2p::{Cause, Engine, Error, Lent, Report, RequestId};

use super::directory::{Directory, Notice};
use crate::figures::figures_of;
use crate::patience::Burst;

/// The engine, and what its driver has to know.
pub(super) struct Core<P> {
    pub(super) engine: Engine<P>,
    pub(super) directory: Box<dyn Directory>,
    /// The time as last read: good enough for the age of a message, and for deadlines since whoever waits
    /// reads it between bursts.
    pub(super) now_ns: u64,
    /// When to ask the directory next.
    pub(super) ask_ns: u64,
    /// Addresses that were asked for and have not come.
    pub(super) awaited: usize,
    /// Whether the launcher wants to know at the end what this rank did.
    pub(super) tells_at_end: bool,
    /// Time spent waiting, of all threads.
    pub(super) waited_ns: u64,
    /// What a thread waits for without a request.
    pub(super) sought: Option<Report>,
    /// Why this rank was given up, if it was: nothing is done for it any more.
    pub(super) condemned: Option<String>,
    pub(super) burst: Burst,
    /// How often the core was offered to others.
    pub(super) waits: u32,
    /// The thread that sleeps on the descriptors.
    pub(super) sleeper: Option<Sleeper>,
    /// Threads that wait until it wakes.
    pub(super) followers: usize,
}

/// A thread that sleeps on the descriptors.
#[derive(Clone, Copy)]
pub(super) struct Sleeper {
    pub(super) until_ns: u64,
    pub(super) is_roused: bool,
}

impl<P: Port> Core<P> {
    #[inline]
    pub(super) fn poll<L: Lent>(&mut self, lent: &mut L) -> Result<usize, Error> {
        let polled = self.engine.poll(self.now_ns, lent);
        // At once: the caller may wait for nothing after this call.
        if self.engine.has_given_up() {
            self.tell_given_up();
        }
        polled
    }

    /// Lets go of a request. A rank that was given up does not even say that: to the others it is dead, and one that
    /// hears of it by a message would be misled. But none of them may read what its caller gets back.
    pub(super) fn forget(&mut self, id: RequestId) {
        match self.condemned {
            None => self.engine.forget(id),
            Some(_) => self.engine.conceal(),
        }
    }

    /// Lets go of all requests whose buffers are lent.
    pub(super) fn forget_lent(&mut self) {
        match self.condemned {
            None => self.engine.forget_lent(),
            Some(_) => self.engine.conceal(),
        }
    }

    /// Drives once, at the current time. Returns the number of events, news among them.
    pub(super) fn step<L: Lent>(&mut self, now_ns: u64, lent: &mut L) -> Result<usize, Error> {
        let news = self.attend(now_ns)?;
        Ok(self.poll(lent)? + usize::from(news))
    }

    /// How long to sleep at most until something is due; a `nap` long where nothing tells.
    pub(super) fn time_to_sleep(&self, nap_time: Duration, until_ns: u64) -> Duration {
        let due_ns = self.engine.due_ns().min(until_ns);
        let until_due = Duration::from_nanos(due_ns.saturating_sub(self.now_ns)).min(SLEEP_MAX);
        // What is due at once was refused by the port, and nothing tells when it has room.
        if until_due.is_zero() { nap_time } else { until_due }
    }

    /// Arms the port before a sleep. Returns how long that may last, `None` if there is something to do.
    pub(super) fn arm(&mut self, nap_time: Duration, time: Duration) -> Option<Duration> {
        match self.engine.port_mut().arm() {
            Sleep::NotNow => None,
            Sleep::Briefly => Some(nap_time.min(time)),
            Sleep::UntilReadable => Some(time),
        }
    }

    /// Notes the time, and hears the news if it is time to; whether there were any.
    pub(super) fn attend(&mut self, now_ns: u64) -> Result<bool, Error> {
        self.now_ns = now_ns;
        let wanted: Vec<u32> = self.engine.wanted().collect();
        for rank in wanted {
            self.directory.request_address(rank);
            self.awaited += 1;
        }
        if self.engine.has_given_up() {
            self.tell_given_up();
        }
        if self.awaited == 0 && now_ns < self.ask_ns {
            return Ok(false);
        }
        let mut news = false;
        self.ask_ns = now_ns + ASK_EVERY_NS;
        while let Some(notice) = self.directory.poll() {
            news = true;
            match notice {
                Notice::Address { rank, incarnation, address } => {
                    self.awaited = self.awaited.saturating_sub(1);
                    self.engine.introduce(rank, incarnation, address)?;
                }
                Notice::Failed { rank, incarnation, how, returns } => {
                    self.receive_all()?;
                    self.engine.peer_failed(rank, Some(incarnation), Cause::Died(how))?;
                    self.engine.peer_returns(rank, incarnation, returns)?;
                }
                Notice::Left { rank, incarnation } => {
                    self.receive_all()?;
                    self.engine.peer_left(rank, Some(incarnation))?;
                }
                Notice::Stopped { rank, incarnation, is_stopped } => {
                    self.engine.peer_stopped(rank, incarnation, is_stopped)?;
                }
                Notice::GaveUp { rank, incarnation, verdict_on, why } => {
                    self.receive_all()?;
                    self.engine.peer_gave_up(rank, incarnation, verdict_on, why)?;
                }
                Notice::Asked { at_end: true } => self.tells_at_end = true,
                Notice::Asked { at_end: false } => {
                    let (figures, _) = self.figures();
                    self.directory.tell(figures, &[]);
                }
                Notice::Condemned { why } => self.condemned = Some(why),
            }
        }
        match &self.condemned {
            Some(why) => Err(Error::Condemned { why: why.clone() }),
            None => Ok(news),
        }
    }

    /// Has the peers told that this rank has given up: they would wait for it, since the path to them is cut off.
    #[cold]
    fn tell_given_up(&mut self) {
        for GivenUp { rank, incarnation, cause } in self.engine.given_up() {
            self.directory.give_up(rank, incarnation, cause.to_string());
        }
    }

    /// The last word of this rank, if the launcher wants it.
    pub(super) fn tell_at_end(&mut self) {
        if self.tells_at_end {
            let (figures, peers) = self.figures();
            self.directory.tell(figures, &peers);
        }
    }

    pub(super) fn figures(&mut self) -> (Figures, Vec<PeerStats>) {
        figures_of(&mut self.engine, self.now_ns, self.waited_ns, self.sought)
    }

    /// What a rank sent before its end comes first, as far as it has arrived.
    pub(super) fn receive_all(&mut self) -> Result<(), Error> {
        while self.poll(&mut ())? > 0 {}
        Ok(())
    }
}

/// How often the directory is asked for news while somebody waits: well under the time in which a death
/// should be known.
const ASK_EVERY_NS: u64 = 1_000_000;

/// The longest sleep, though nothing comes: for what the launcher's connection could not take, and against
/// providers that forget to wake.
const SLEEP_MAX: Duration = Duration::from_millis(100);
