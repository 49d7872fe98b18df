//! The agent of a host: starts its ranks, knows where they are, and tells each when another ends.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::net::getsockname;
use rustix::process::{Signal, WaitOptions, wait as wait_for_child};
use rustix::thread::sched_getaffinity;
use samite_control::{
    Bind, Channel, Ending, FromAgent, FromRank, Incoming, Place, Plan, Post, Registry, ToAgent, ToRank,
    Urgent, liveness,
};
use samite_os::process::{is_crowded, is_exiting};
use samite_os::signal::SignalFd;
use samite_os::spawn::take_inherited_fd;

use super::rank::Rank;
use super::wait::{Interest, wait};
use super::{
    AGENT_COMMAND, ENDING_SIGNALS, FAREWELL, GRACE, LAST_TURNS_MAX, LaunchError, descendants, output,
};
use crate::topology::{Slot, Topology, TopologyError};

/// The longest message from the front: it holds the program's arguments.
pub(super) const PLAN_BYTES_MAX: usize = 64 << 20;

/// So long after it has closed its world, or its connection without a word, a rank whose process still runs has left. A
/// process whose main function returns an error closes its world first, and ends within milliseconds unless it has much
/// memory to free; one that is dying closes its descriptors before its status can be waited for. The others wait for this
/// only if all that they can receive from have left. If the process fails later, they are told that too.
const CLOSED_MEANS_LEFT: Duration = Duration::from_secs(1);

/// The pause before a rank is started again for the second time, which doubles each further time up to the longest. The
/// first time there is none. Ranks that fail because others fail would use up their restarts within milliseconds.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The pause after telling ranks of those that left, for each that was told: at the end of a job, when all
/// leave one after the other, the messages are as many as the ranks, not as their pairs.
const PAUSE_EACH: Duration = Duration::from_micros(100);

/// Serves as an agent until the job has ended. `fd` is the inherited connection to the front.
///
/// # Errors
/// [`LaunchError`]: the connection to the front failed, or the system refused something that the agent cannot
/// do without. Every rank has been ended.
pub fn serve(fd: i32) -> Result<(), LaunchError> {
    let served = Agent::start(fd).and_then(|agent| agent.map_or(Ok(()), Agent::run));
    descendants::kill_all().map_err(LaunchError::system("ending the ranks"))?;
    served
}

struct Agent {
    front: Front,
    signals: SignalFd,
    /// The first of the ranks below, which follow each other.
    first: u32,
    ranks: Vec<Rank>,
    registry: Registry,
    plan: Plan,
    place: Place,
    /// Where the ranks run, if they are bound.
    slots: Vec<Slot>,
    /// Each is closed when all output of some ranks has been forwarded, and then gone.
    outputs: Vec<UnixStream>,
    /// When the ranks that have not followed SIGTERM are killed.
    kill_at: Option<Instant>,
    /// When ranks that left are told of next.
    tell_at: Instant,
    /// When output is given up that nobody takes.
    give_up_at: Option<Instant>,
    /// The user has sent a signal to end the job: output that is not taken does not delay the end for long.
    was_signalled: bool,
}

/// The connection to the front.
struct Front {
    /// Until it has failed.
    channel: Option<Channel>,
    /// Over a network: how often to beat, and when next.
    beat: Option<(Duration, Instant)>,
}

/// What can wake the agent.
enum Event {
    Rank(u32),
    Signals,
    Output(usize),
    Front,
}

impl Agent {
    /// Starts the ranks that the front asks for; `None` if the front is gone or a rank could not be started.
    fn start(fd: i32) -> Result<Option<Agent>, LaunchError> {
        let system = LaunchError::system;
        let signals = SignalFd::block(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP, Signal::TTOU])
            .map_err(system("blocking signals"))?;
        descendants::adopt_orphans().map_err(system("becoming a subreaper"))?;
        let front = take_inherited_fd(fd).map_err(system("finding the front"))?;
        let address = address(&front);
        let mut channel = Channel::with_line_limit(front, PLAN_BYTES_MAX);
        let plan = loop {
            match channel.receive()? {
                Incoming::Message(ToAgent::Start(plan)) => break plan,
                Incoming::Message(_) => {}
                Incoming::Nothing => {
                    wait(vec![Interest::read((), &channel), Interest::read((), &signals)], None)
                        .map_err(system("waiting for the front"))?;
                    while let Some(signal) = signals.read().map_err(system("reading signals"))? {
                        if ENDING_SIGNALS.contains(&signal) {
                            return Ok(None);
                        }
                    }
                }
                Incoming::Closed => return Ok(None),
            }
        };
        let beat = address.map(|_| (liveness::beat_interval(plan.detection), Instant::now()));
        Agent::start_ranks(Front { channel: Some(channel), beat }, address, signals, plan)
    }

    fn start_ranks(
        mut front: Front,
        address: Option<IpAddr>,
        signals: SignalFd,
        mut plan: Plan,
    ) -> Result<Option<Agent>, LaunchError> {
        let neighbours = plan.ranks.len() as u32;
        if is_crowded(neighbours) && std::env::var_os(TUNABLES).is_none() {
            // First, so that what the user asks for comes after it and holds.
            plan.env.insert(0, (TUNABLES.into(), SWIFT_TO_SWITCH.into()));
        }
        let place = Place { host: plan.host, hosts: plan.hosts, neighbours, address };
        let slots = match slots(&plan) {
            Ok(slots) => slots,
            Err(error) => {
                front.send(&FromAgent::NotBound { why: error.to_string() })?;
                return Ok(None);
            }
        };
        let registry = Registry::new(plan.size, plan.ranks.clone(), plan.secret);
        let mut ranks = Vec::new();
        let (mut stdouts, mut stderrs) = (Vec::new(), Vec::new());
        for (index, rank) in plan.ranks.clone().enumerate() {
            match Rank::start(&plan, rank, registry.incarnation(rank), &place, slots.get(index)) {
                Ok((started, stdout, stderr)) => {
                    ranks.push(started);
                    stdouts.push(stdout);
                    stderrs.push(stderr);
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    front.send(&FromAgent::NotStarted { rank, errno })?;
                    return Ok(None);
                }
            }
        }
        let output = output::forward(stdouts, stderrs, plan.prefix)
            .map_err(LaunchError::system("forwarding output"))?;
        Ok(Some(Agent {
            front,
            signals,
            first: plan.ranks.start,
            ranks,
            registry,
            plan,
            place,
            slots,
            outputs: vec![output],
            kill_at: None,
            tell_at: Instant::now(),
            give_up_at: None,
            was_signalled: false,
        }))
    }

    fn run(mut self) -> Result<(), LaunchError> {
        let mut is_done = false;
        loop {
            let is_running = self.ranks.iter().any(|rank| rank.process.is_some() || rank.again.is_some());
            if !is_running && !is_done {
                // What the ranks have left behind may hold on to their output.
                descendants::kill_all().map_err(LaunchError::system("ending what the ranks have left"))?;
                if self.outputs.is_empty() {
                    is_done = true;
                    self.registry.tell();
                    self.deliver()?;
                    self.front.send(&FromAgent::Done)?;
                } else if self.was_signalled {
                    self.give_up_at.get_or_insert_with(|| Instant::now() + GRACE);
                }
            }
            if is_done && !self.front.is_backed_up() {
                return Ok(());
            }
            for event in self.wait().map_err(LaunchError::system("waiting"))? {
                match event {
                    Event::Rank(rank) => self.serve_rank(rank)?,
                    Event::Signals => self.handle_signals()?,
                    Event::Output(index) => self.serve_output(index)?,
                    Event::Front => self.serve_front(),
                }
            }
            self.handle_deadlines()?;
            self.deliver()?;
        }
    }

    /// Waits for something to happen. Ranks come first: what one has said before it died counts.
    fn wait(&self) -> io::Result<Vec<Event>> {
        let mut interests = Vec::with_capacity(self.ranks.len() + 3);
        for (number, rank) in (self.first..).zip(&self.ranks) {
            match &rank.channel {
                // A rank that does not take its answers is not heard until it does.
                Some(channel) if channel.is_backed_up() => {
                    interests.push(Interest::write(Event::Rank(number), channel))
                }
                Some(channel) => interests.push(Interest::read(Event::Rank(number), channel)),
                None => {}
            }
        }
        interests.push(Interest::read(Event::Signals, &self.signals));
        // The last first, since what has ended is taken out.
        let outputs = self.outputs.iter().enumerate().rev();
        interests.extend(outputs.map(|(index, output)| Interest::read(Event::Output(index), output)));
        if let Some(channel) = &self.front.channel {
            interests.push(Interest::read(Event::Front, channel));
            if channel.is_backed_up() {
                interests.push(Interest::write(Event::Front, channel));
            }
        }
        let closed = self.ranks.iter().filter_map(|rank| rank.closed_at).map(|at| at + CLOSED_MEANS_LEFT);
        let again = self.ranks.iter().filter_map(|rank| rank.again.as_ref()).map(|&(at, _)| at);
        let beat = self.front.channel.as_ref().and(self.front.beat).map(|(_, next)| next);
        let tell = self.registry.untold().map(|_| self.tell_at);
        let deadline =
            closed.chain(again).chain(self.kill_at).chain(self.give_up_at).chain(beat).chain(tell).min();
        wait(interests, deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
    }

    fn rank(&mut self, number: u32) -> &mut Rank {
        &mut self.ranks[(number - self.first) as usize]
    }

    fn serve_rank(&mut self, number: u32) -> Result<(), LaunchError> {
        let reason = loop {
            let Some(channel) = &mut self.rank(number).channel else { return Ok(()) };
            channel.flush();
            match channel.receive::<FromRank>() {
                Ok(Incoming::Message(FromRank::Closed) | Incoming::Closed) => {
                    let rank = self.rank(number);
                    rank.channel = None;
                    rank.closed_at = Some(Instant::now());
                    return Ok(());
                }
                Ok(Incoming::Message(FromRank::Panicked)) => {
                    let rank = self.rank(number);
                    rank.channel = None;
                    // It is started again when its process has ended.
                    let returns = rank.restarts > 0;
                    self.registry.end(number, Ending::Panicked, returns);
                    return Ok(());
                }
                Ok(Incoming::Message(message)) => {
                    self.rank(number).is_asked &= !matches!(message, FromRank::Figures(_));
                    match self.registry.handle(number, message) {
                        Ok(()) if self.registry.has_ended(number) => {
                            self.rank(number).channel = None;
                            return Ok(());
                        }
                        Ok(()) => {}
                        Err(reason) => break reason,
                    }
                }
                Ok(Incoming::Nothing) => return Ok(()),
                Err(error) => break error.to_string(),
            }
        };
        self.rank(number).channel = None;
        self.registry.end(number, Ending::Left, false);
        self.front.send(&FromAgent::Refused { rank: number, reason })
    }

    /// Some output has ended, or is lost.
    fn serve_output(&mut self, index: usize) -> Result<(), LaunchError> {
        match self.outputs[index].read(&mut [0]) {
            Ok(1..) => self.front.send(&FromAgent::OutputLost),
            _ => {
                self.outputs.remove(index);
                Ok(())
            }
        }
    }

    fn handle_signals(&mut self) -> Result<(), LaunchError> {
        while let Some(signal) = self.signals.read().map_err(LaunchError::system("reading signals"))? {
            match signal {
                Signal::CHILD => self.collect_children()?,
                // Blocked so that a terminal set to `tostop` does not stop us.
                Signal::TTOU => {}
                _ => self.end_ranks(),
            }
        }
        Ok(())
    }

    fn collect_children(&mut self) -> Result<(), LaunchError> {
        // Not only of those that end: who waits for a stopped one is to know.
        let changes = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        while let Ok(Some((process, status))) = wait_for_child(changes) {
            let mut ranks = (self.first..).zip(&self.ranks);
            let Some((number, _)) = ranks.find(|(_, rank)| rank.process == Some(process)) else {
                // Something that a rank had started and left to us.
                continue;
            };
            if status.stopped() || status.continued() {
                self.registry.stop(number, status.stopped());
                continue;
            }
            for _ in 0..LAST_TURNS_MAX {
                self.serve_rank(number)?;
                if !self.rank(number).channel.as_ref().is_some_and(Channel::has_more) {
                    break;
                }
            }
            let ending = match Ending::from(ExitStatus::from_raw(status.as_raw())) {
                // It has caught the panic. The others have heard that it failed, so the job's result says the same.
                Ending::Left if self.registry.has_panicked(number) => Ending::Panicked,
                ending => ending,
            };
            let restarts = self.rank(number).restarts;
            let returns = ending != Ending::Left && restarts > 0 && !self.registry.has_left(number);
            let pause = returns.then(|| pause_before(self.plan.restarts - restarts));
            self.registry.end(number, ending.clone(), returns);
            if !returns {
                // The opposite may have been told of one that panicked.
                self.registry.give_up(number);
            }
            let again = pause.map(|pause| (Instant::now() + pause, ending.clone()));
            *self.rank(number) =
                Rank { process: None, channel: None, is_asked: false, closed_at: None, restarts, again };
            self.front.send(&FromAgent::Exited { rank: number, ending, again: pause })?;
            if pause == Some(Duration::ZERO) {
                self.restart(number)?;
            }
        }
        Ok(())
    }

    /// Starts a rank that has failed again, in its next life. If that is not possible, as after its program was removed, the
    /// others go on without it.
    fn restart(&mut self, number: u32) -> Result<(), LaunchError> {
        let rank = self.rank(number);
        let Some((_, ending)) = rank.again.take() else { return Ok(()) };
        let restarts = rank.restarts - 1;
        let incarnation = self.registry.incarnation(number).wrapping_add(1);
        let slot = self.slots.get((number - self.first) as usize);
        match Rank::start(&self.plan, number, incarnation, &self.place, slot) {
            Ok((rank, stdout, stderr)) => {
                // The others hear of the end of this life before anything of the next.
                self.registry.tell();
                self.registry.restart(number);
                *self.rank(number) = Rank { restarts, ..rank };
                let output = output::forward(vec![stdout], vec![stderr], self.plan.prefix)
                    .map_err(LaunchError::system("forwarding output"))?;
                self.outputs.push(output);
                Ok(())
            }
            Err(error) => {
                super::say(AGENT_COMMAND, &format!("rank {number} cannot be started again: {error}"));
                self.registry.give_up(number);
                self.front.send(&FromAgent::Exited { rank: number, ending, again: None })
            }
        }
    }

    /// Acts on the front's messages.
    fn serve_front(&mut self) {
        let why = loop {
            let Some(channel) = &mut self.front.channel else { return };
            channel.flush();
            match channel.receive() {
                Ok(Incoming::Message(message)) => self.obey(message),
                Ok(Incoming::Nothing) => return,
                Ok(Incoming::Closed) => break "`samite run`, which watches over the job, is gone".to_owned(),
                Err(error) => break format!("nothing is heard from `samite run` any more ({error})"),
            }
        };
        self.front.channel = None;
        self.condemn(&why);
    }

    fn obey(&mut self, message: ToAgent) {
        match message {
            ToAgent::Start(_) => {}
            ToAgent::Signal(number) => {
                let signal = Signal::from_named_raw(number);
                if signal.is_some_and(|signal| ENDING_SIGNALS.contains(&signal)) {
                    self.was_signalled = true;
                    self.start_nobody_again();
                }
                self.signal_ranks(signal);
            }
            ToAgent::End => self.end_ranks(),
            ToAgent::Kill => self.kill_ranks_in(Duration::ZERO),
            ToAgent::Question { host, rank } => self.registry.question(host, rank),
            ToAgent::Address(whereabouts) => self.registry.learn(whereabouts),
            ToAgent::Ended(obituaries) => self.registry.hear(obituaries),
            ToAgent::Returned(whereabouts) => self.registry.welcome(whereabouts),
            ToAgent::Stopped(stop) => self.registry.spread_stop(stop),
            ToAgent::GaveUp(given_up) => self.registry.tell_given_up(given_up),
            ToAgent::Ask => self.ranks.iter_mut().for_each(Rank::ask),
        }
    }

    /// For all others the ranks of this agent are dead by now, or will be: they are told, and end.
    fn condemn(&mut self, why: &str) {
        for rank in &mut self.ranks {
            if let Some(channel) = &mut rank.channel {
                // A connection that fails here fails in `serve_rank` too.
                let _ = channel.send(&ToRank::Condemned { why: why.to_owned() });
            }
        }
        if self.ranks.iter().any(|rank| rank.process.is_some()) {
            let last = self.first + self.ranks.len() as u32 - 1;
            let first = self.first;
            super::say(AGENT_COMMAND, &format!("{why}: ending the ranks of this host, {first} to {last}"));
        }
        self.kill_ranks_in(FAREWELL);
    }

    /// Ends all soon, whether or not somebody takes what they still print.
    fn kill_ranks_in(&mut self, time: Duration) {
        self.start_nobody_again();
        let kill_at = Instant::now() + time;
        self.kill_at = Some(kill_at);
        self.give_up_at = Some(kill_at + time);
    }

    fn end_ranks(&mut self) {
        self.start_nobody_again();
        // A stopped process acts on SIGTERM only when it goes on.
        self.signal_ranks([Signal::TERM, Signal::CONT]);
        self.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
    }

    /// The job is to end: this life of each rank is its last.
    fn start_nobody_again(&mut self) {
        for (number, rank) in (self.first..).zip(&mut self.ranks) {
            rank.restarts = 0;
            if let Some((_, ending)) = rank.again.take() {
                self.registry.give_up(number);
                let exited = FromAgent::Exited { rank: number, ending, again: None };
                self.registry.outbox.push(Post::Front(exited));
            }
        }
    }

    fn signal_ranks(&self, signals: impl IntoIterator<Item = Signal>) {
        for signal in signals {
            self.ranks.iter().for_each(|rank| rank.signal(signal));
        }
    }

    fn handle_deadlines(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        if self.kill_at.is_some_and(|kill_at| kill_at <= now) {
            self.kill_at = None;
            self.signal_ranks([Signal::KILL]);
        }
        if self.give_up_at.is_some_and(|give_up_at| give_up_at <= now) {
            self.give_up_at = None;
            self.outputs.clear();
        }
        for (number, rank) in (self.first..).zip(&mut self.ranks) {
            if rank.closed_at.is_some_and(|closed_at| closed_at + CLOSED_MEANS_LEFT <= now) {
                // On a busy machine it may take the kernel longer to take it down: then its status is to come.
                let is_dying =
                    rank.process.is_some_and(|pid| is_exiting(pid.as_raw_pid() as u32).unwrap_or(false));
                rank.closed_at = is_dying.then_some(now);
                if !is_dying {
                    self.registry.end(number, Ending::Left, false);
                }
            }
        }
        for number in self.plan.ranks.clone() {
            if self.rank(number).again.as_ref().is_some_and(|&(at, _)| at <= now) {
                self.restart(number)?;
            }
        }
        self.front.beat(now);
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        if self.registry.untold().is_some_and(|Urgent(urgent)| urgent || self.tell_at <= now) {
            self.tell_at = now + PAUSE_EACH * self.registry.tell();
        }
        for post in std::mem::take(&mut self.registry.outbox) {
            match post {
                Post::Front(message) => self.front.send(&message)?,
                Post::Rank(to, message) => {
                    if let Some(channel) = &mut self.rank(to).channel {
                        // A connection that fails here fails in `serve_rank` too, which says so.
                        let _ = channel.send(&message);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Front {
    /// Sends a message, if there is somebody to send it to.
    fn send(&mut self, message: &FromAgent) -> Result<(), LaunchError> {
        match &mut self.channel {
            Some(channel) => Ok(channel.send(message)?),
            None => Ok(()),
        }
    }

    fn beat(&mut self, now: Instant) {
        if let (Some(channel), Some((interval, next))) = (&mut self.channel, &mut self.beat)
            && *next <= now
        {
            channel.beat();
            *next = now + *interval;
        }
    }

    fn is_backed_up(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_backed_up)
    }
}

/// The pause before a rank is started again that was started again so often.
fn pause_before(restarts: u32) -> Duration {
    match restarts.checked_sub(1) {
        None => Duration::ZERO,
        // Beyond that the longest is reached anyway.
        Some(doublings) => (RESTART_PAUSE * (1 << doublings.min(16))).min(RESTART_PAUSE_MAX),
    }
}

/// Where the ranks of a plan run, of the processors that this process may use.
fn slots(plan: &Plan) -> Result<Vec<Slot>, TopologyError> {
    if plan.bind == Bind::None {
        return Ok(Vec::new());
    }
    let mut topology = Topology::of_this_host()?;
    if let Ok(ours) = sched_getaffinity(None) {
        topology = topology.within(|processor| ours.is_set(processor as usize));
    }
    topology.slots(plan.ranks.len() as u32, plan.bind)
}

/// Our own address on a connection over a network.
fn address(connection: &OwnedFd) -> Option<IpAddr> {
    SocketAddr::try_from(getsockname(connection).ok()?).ok().map(|address| address.ip())
}

/// What tunes glibc, and how where ranks take turns on a core: without restartable sequences, which the kernel sees to
/// each time that it switches from one process to another. 5 to 7 % of an exchange of 8 or 16 ranks on 2 cores was that;
/// what glibc uses them for, sched_getcpu(3), works without. (The GNU C Library Reference Manual, "POSIX Thread Tunables";
/// before 2.35 there were none.)
const TUNABLES: &str = "GLIBC_TUNABLES";
const SWIFT_TO_SWITCH: &str = "glibc.pthread.rseq=0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_before_a_restart_double() {
        let pauses = [0, 1, 2, 3, 7, 8, u32::MAX].map(|restarts| pause_before(restarts).as_millis());
        assert_eq!(pauses, [0, 100, 200, 400, 6_400, 10_000, 10_000]);
    }
}
