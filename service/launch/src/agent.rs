//! The agent of a host: starts the host's ranks, knows their addresses, and reports the end of a rank to the other
//! ranks.

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

/// The longest message from the coordinator, in bytes. The plan contains the program's arguments, so it may be long.
pub(super) const PLAN_BYTES_MAX: usize = 64 << 20;

/// The time after which a rank counts as left if its process still runs. It begins when the rank has closed its world,
/// or when its connection has ended without a message. During this time it is not known if the rank has failed. A
/// process whose main function returns an error closes its world first, and ends some milliseconds later, or still
/// later if it has much memory to free. And a dying process closes its descriptors before its exit status is available.
/// Other ranks wait for this time only if all ranks from which they can receive have left. If the process fails later,
/// that is reported too.
const CLOSED_MEANS_LEFT: Duration = Duration::from_secs(1);

/// The pause before the second restart of a rank. It doubles with each further restart, up to `RESTART_PAUSE_MAX`. The
/// first restart is immediate. Without pauses, ranks that fail as a result of other failures would use up their
/// restarts within milliseconds.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The pause after a report of ranks that have left, for each informed rank. At the end of a job all ranks leave one
/// after the other. Because of the pause, one report names many of them, so the number of messages grows with the
/// number of ranks and not with the number of pairs of ranks.
const PAUSE_EACH: Duration = Duration::from_micros(100);

/// Serves as an agent until the job has ended. `fd` is the inherited connection to the coordinator.
///
/// # Errors
/// [`LaunchError`] if the connection to the coordinator fails before the plan has arrived, or if a necessary system
/// call fails. No rank is left then. If the connection fails later, the agent ends its ranks, and this is no error.
pub fn serve(fd: i32) -> Result<(), LaunchError> {
    let served = Agent::start(fd).and_then(|agent| agent.map_or(Ok(()), Agent::run));
    descendants::kill_all().map_err(LaunchError::system("ending the ranks"))?;
    served
}

struct Agent {
    coordinator: CoordinatorConnection,
    signals: SignalFd,
    /// The number of the first rank in `ranks`. The other ranks have the next numbers.
    first: u32,
    ranks: Vec<Rank>,
    registry: Registry,
    plan: Plan,
    place: Place,
    /// The slot of each rank, if ranks are bound.
    slots: Vec<Slot>,
    /// The streams of the output forwarders. A forwarder closes its stream when it has forwarded all output, and the
    /// stream is then removed here.
    outputs: Vec<UnixStream>,
    /// The time at which ranks that have not ended after SIGTERM are killed.
    kill_at: Option<Instant>,
    /// The time before which ends that are not urgent are not reported.
    report_at: Instant,
    /// The time at which the agent stops waiting for a reader to take the rest of the output.
    give_up_at: Option<Instant>,
    /// True if the user has sent a signal to end the job. Then output without a reader delays the end only briefly.
    was_signalled: bool,
}

/// The connection to the coordinator.
struct CoordinatorConnection {
    /// `None` after it has failed.
    channel: Option<Channel>,
    /// If the connection is over a network: the interval of heartbeats, and the time of the next heartbeat.
    beat: Option<(Duration, Instant)>,
}

/// An event that wakes the agent.
enum Event {
    Rank(u32),
    Signals,
    Output(usize),
    Coordinator,
}

impl Agent {
    /// Reads the coordinator's plan and starts its ranks. Returns `None` if the coordinator closes the connection or a
    /// signal ends the agent before the plan has arrived, or if a rank could not be bound or started.
    fn start(fd: i32) -> Result<Option<Agent>, LaunchError> {
        let system = LaunchError::system;
        let signals = SignalFd::block(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP, Signal::TTOU])
            .map_err(system("blocking signals"))?;
        descendants::adopt_orphans().map_err(system("becoming a subreaper"))?;
        let coordinator = take_inherited_fd(fd).map_err(system("finding the coordinator"))?;
        let address = address(&coordinator);
        let mut channel = Channel::with_line_limit(coordinator, PLAN_BYTES_MAX);
        let plan = loop {
            match channel.receive()? {
                Incoming::Message(ToAgent::Start(plan)) => break plan,
                Incoming::Message(_) => {}
                Incoming::Nothing => {
                    wait(vec![Interest::read((), &channel), Interest::read((), &signals)], None)
                        .map_err(system("waiting for the coordinator"))?;
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
        Agent::start_ranks(CoordinatorConnection { channel: Some(channel), beat }, address, signals, plan)
    }

    fn start_ranks(
        mut coordinator: CoordinatorConnection,
        address: Option<IpAddr>,
        signals: SignalFd,
        mut plan: Plan,
    ) -> Result<Option<Agent>, LaunchError> {
        let neighbours = plan.ranks.len() as u32;
        if is_crowded(neighbours) && std::env::var_os(TUNABLES).is_none() {
            // The variable comes first in the list, so that a setting of the user overrides it.
            plan.env.insert(0, (TUNABLES.into(), SWIFT_TO_SWITCH.into()));
        }
        let place = Place { host: plan.host, hosts: plan.hosts, neighbours, address };
        let slots = match slots(&plan) {
            Ok(slots) => slots,
            Err(error) => {
                coordinator.send(&FromAgent::NotBound { why: error.to_string() })?;
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
                    coordinator.send(&FromAgent::NotStarted { rank, errno })?;
                    return Ok(None);
                }
            }
        }
        let output = output::forward(stdouts, stderrs, plan.prefix)
            .map_err(LaunchError::system("forwarding output"))?;
        Ok(Some(Agent {
            coordinator,
            signals,
            first: plan.ranks.start,
            ranks,
            registry,
            plan,
            place,
            slots,
            outputs: vec![output],
            kill_at: None,
            report_at: Instant::now(),
            give_up_at: None,
            was_signalled: false,
        }))
    }

    fn run(mut self) -> Result<(), LaunchError> {
        let mut is_done = false;
        loop {
            let is_running = self.ranks.iter().any(|rank| rank.process.is_some() || rank.again.is_some());
            if !is_running && !is_done {
                // Processes that the ranks have left behind may hold the output of the ranks open.
                descendants::kill_all()
                    .map_err(LaunchError::system("ending the processes that the ranks have left"))?;
                if self.outputs.is_empty() {
                    is_done = true;
                    self.registry.report();
                    self.deliver()?;
                    self.coordinator.send(&FromAgent::Done)?;
                } else if self.was_signalled {
                    self.give_up_at.get_or_insert_with(|| Instant::now() + GRACE);
                }
            }
            if is_done && !self.coordinator.is_backed_up() {
                return Ok(());
            }
            for event in self.wait().map_err(LaunchError::system("waiting"))? {
                match event {
                    Event::Rank(rank) => self.serve_rank(rank)?,
                    Event::Signals => self.handle_signals()?,
                    Event::Output(index) => self.serve_output(index)?,
                    Event::Coordinator => self.serve_coordinator(),
                }
            }
            self.handle_deadlines()?;
            self.deliver()?;
        }
    }

    /// Waits for events. Events of ranks come before ends of processes, so that messages that a rank sent before its
    /// end are read.
    fn wait(&self) -> io::Result<Vec<Event>> {
        let mut interests = Vec::with_capacity(self.ranks.len() + 3);
        for (number, rank) in (self.first..).zip(&self.ranks) {
            match &rank.channel {
                // If a rank does not take the answers sent to it, its messages are not read until it takes them.
                Some(channel) if channel.is_backed_up() => {
                    interests.push(Interest::write(Event::Rank(number), channel))
                }
                Some(channel) => interests.push(Interest::read(Event::Rank(number), channel)),
                None => {}
            }
        }
        interests.push(Interest::read(Event::Signals, &self.signals));
        // The last output comes first, because serving an output may remove it, which changes the indices of later
        // outputs.
        let outputs = self.outputs.iter().enumerate().rev();
        interests.extend(outputs.map(|(index, output)| Interest::read(Event::Output(index), output)));
        if let Some(channel) = &self.coordinator.channel {
            interests.push(Interest::exchange(Event::Coordinator, channel));
        }
        let closed = self.ranks.iter().filter_map(|rank| rank.closed_at).map(|at| at + CLOSED_MEANS_LEFT);
        let again = self.ranks.iter().filter_map(|rank| rank.again.as_ref()).map(|&(at, _)| at);
        let beat = self.coordinator.channel.as_ref().and(self.coordinator.beat).map(|(_, next)| next);
        let report = self.registry.unreported().map(|_| self.report_at);
        let deadline =
            closed.chain(again).chain(self.kill_at).chain(self.give_up_at).chain(beat).chain(report).min();
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
                    // If a restart is left, the rank is restarted when its process has ended.
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
        self.coordinator.send(&FromAgent::Refused { rank: number, reason })
    }

    /// Handles the report of an output forwarder: all output is forwarded, or output is lost.
    fn serve_output(&mut self, index: usize) -> Result<(), LaunchError> {
        match self.outputs[index].read(&mut [0]) {
            Ok(1..) => self.coordinator.send(&FromAgent::OutputLost),
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
                // The signal is blocked only so that a terminal set to `tostop` does not stop this process.
                Signal::TTOU => {}
                _ => self.end_ranks(),
            }
        }
        Ok(())
    }

    fn collect_children(&mut self) -> Result<(), LaunchError> {
        // Stops and continuations are reported too, because the other ranks must be informed of a stopped rank.
        let changes = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        while let Ok(Some((process, status))) = wait_for_child(changes) {
            let mut ranks = (self.first..).zip(&self.ranks);
            let Some((number, _)) = ranks.find(|(_, rank)| rank.process == Some(process)) else {
                // The process is not a rank: a rank had started it, and it became a child of the agent when the rank
                // ended.
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
                // The process has caught the panic and exited with code 0. The other ranks know that the rank failed,
                // so the job's result counts it as failed too.
                Ending::Left if self.registry.has_panicked(number) => Ending::Panicked,
                ending => ending,
            };
            let restarts = self.rank(number).restarts;
            let returns = ending != Ending::Left && restarts > 0 && !self.registry.has_left(number);
            let pause = returns.then(|| pause_before(self.plan.restarts - restarts));
            self.registry.end(number, ending.clone(), returns);
            if !returns {
                // If the rank has panicked before, its restart may have been announced.
                self.registry.cancel_restart(number);
            }
            let again = pause.map(|pause| (Instant::now() + pause, ending.clone()));
            *self.rank(number) =
                Rank { process: None, channel: None, is_asked: false, closed_at: None, restarts, again };
            self.coordinator.send(&FromAgent::Exited { rank: number, ending, again: pause })?;
            if pause == Some(Duration::ZERO) {
                self.restart(number)?;
            }
        }
        Ok(())
    }

    /// Restarts a failed rank in its next incarnation. If that is not possible, for example because its program was
    /// removed, the other ranks go on without this rank.
    fn restart(&mut self, number: u32) -> Result<(), LaunchError> {
        let rank = self.rank(number);
        let Some((_, ending)) = rank.again.take() else { return Ok(()) };
        let restarts = rank.restarts - 1;
        let incarnation = self.registry.incarnation(number).wrapping_add(1);
        let slot = self.slots.get((number - self.first) as usize);
        match Rank::start(&self.plan, number, incarnation, &self.place, slot) {
            Ok((rank, stdout, stderr)) => {
                // The end of the failed incarnation must be reported before the next incarnation.
                self.registry.report();
                self.registry.restart(number);
                *self.rank(number) = Rank { restarts, ..rank };
                let output = output::forward(vec![stdout], vec![stderr], self.plan.prefix)
                    .map_err(LaunchError::system("forwarding output"))?;
                self.outputs.push(output);
                Ok(())
            }
            Err(error) => {
                super::say(AGENT_COMMAND, &format!("rank {number} cannot be started again: {error}"));
                self.registry.cancel_restart(number);
                self.coordinator.send(&FromAgent::Exited { rank: number, ending, again: None })
            }
        }
    }

    /// Handles the coordinator's messages.
    fn serve_coordinator(&mut self) {
        let why = loop {
            let Some(channel) = &mut self.coordinator.channel else { return };
            channel.flush();
            match channel.receive() {
                Ok(Incoming::Message(message)) => self.obey(message),
                Ok(Incoming::Nothing) => return,
                Ok(Incoming::Closed) => break "`samite run`, which watches over the job, is gone".to_owned(),
                Err(error) => break format!("the connection to `samite run` failed ({error})"),
            }
        };
        self.coordinator.channel = None;
        self.condemn(&why);
    }

    fn obey(&mut self, message: ToAgent) {
        match message {
            ToAgent::Start(_) => {}
            ToAgent::Signal(number) => {
                let signal = Signal::from_named_raw(number);
                self.signal_ranks(signal);
                if signal.is_some_and(|signal| ENDING_SIGNALS.contains(&signal)) {
                    self.was_signalled = true;
                    self.cancel_restarts();
                    // A stopped process handles a signal only when it continues, so continue it.
                    self.signal_ranks([Signal::CONT]);
                }
            }
            ToAgent::End => self.end_ranks(),
            ToAgent::Kill => self.kill_ranks_in(Duration::ZERO),
            ToAgent::Question { host, rank } => self.registry.handle_question(host, rank),
            ToAgent::Address(whereabouts) => self.registry.store_remote_address(whereabouts),
            ToAgent::Ended(exits) => self.registry.note_remote_exits(exits),
            ToAgent::Returned(whereabouts) => self.registry.note_remote_restart(whereabouts),
            ToAgent::Stopped(stop) => self.registry.report_stop(stop),
            ToAgent::GaveUp(given_up) => {
                self.registry.inform_given_up(given_up);
            }
            ToAgent::Ask => self.ranks.iter_mut().for_each(Rank::ask),
        }
    }

    /// Informs the ranks of this agent that the ranks of other hosts treat them as failed, or soon will, and ends them.
    fn condemn(&mut self, why: &str) {
        for rank in &mut self.ranks {
            if let Some(channel) = &mut rank.channel {
                // If the connection fails here, it fails in `serve_rank` too.
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

    /// Kills all ranks after `time`. Output that is not read within the same time after that is lost.
    fn kill_ranks_in(&mut self, time: Duration) {
        self.cancel_restarts();
        let kill_at = Instant::now() + time;
        self.kill_at = Some(kill_at);
        self.give_up_at = Some(kill_at + time);
    }

    fn end_ranks(&mut self) {
        self.cancel_restarts();
        // A stopped process handles SIGTERM only when it continues, so continue it.
        self.signal_ranks([Signal::TERM, Signal::CONT]);
        self.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
    }

    /// Cancels all restarts, since the job is to end.
    fn cancel_restarts(&mut self) {
        for (number, rank) in (self.first..).zip(&mut self.ranks) {
            rank.restarts = 0;
            if let Some((_, ending)) = rank.again.take() {
                self.registry.cancel_restart(number);
                let exited = FromAgent::Exited { rank: number, ending, again: None };
                self.registry.outbox.push(Post::Coordinator(exited));
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
                // On a busy machine the kernel may still be removing the process. Then its exit status will be
                // available soon.
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
        self.coordinator.beat(now);
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        if self.registry.unreported().is_some_and(|Urgent(urgent)| urgent || self.report_at <= now) {
            self.report_at = now + PAUSE_EACH * self.registry.report();
        }
        for post in std::mem::take(&mut self.registry.outbox) {
            match post {
                Post::Coordinator(message) => self.coordinator.send(&message)?,
                Post::Rank(to, message) => {
                    if let Some(channel) = &mut self.rank(to).channel {
                        // If the connection fails here, it fails in `serve_rank` too, which reports it.
                        let _ = channel.send(&message);
                    }
                }
            }
        }
        Ok(())
    }
}

impl CoordinatorConnection {
    /// Sends a message, unless the connection has failed.
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

/// Returns the pause before the next restart of a rank that was restarted `restarts` times.
fn pause_before(restarts: u32) -> Duration {
    match restarts.checked_sub(1) {
        None => Duration::ZERO,
        // With more doublings the pause is at its maximum anyway.
        Some(doublings) => (RESTART_PAUSE * (1 << doublings.min(16))).min(RESTART_PAUSE_MAX),
    }
}

/// Returns the slot of each rank of a plan, with only the processors that this process may use. Returns an empty list
/// if ranks are not bound.
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

/// Returns this side's address on a connection over a network, or `None` for a connection within this host.
fn address(connection: &OwnedFd) -> Option<IpAddr> {
    SocketAddr::try_from(getsockname(connection).ok()?).ok().map(|address| address.ip())
}

/// The variable that tunes glibc. If ranks share a core, restartable sequences are disabled, which the kernel updates
/// each time that it switches processes. The updates took 5 to 7 % of the time of an exchange of 8 or 16 ranks on 2
/// cores. glibc uses restartable sequences only for sched_getcpu(3), which works without them too. (The GNU C Library
/// Reference Manual, "POSIX Thread Tunables"; the tunable exists since version 2.35.)
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
