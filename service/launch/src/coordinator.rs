//! The coordinator of a job: starts the agents, forwards signals and reports, and decides the consequences of a
//! failure.

mod signals;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Signal, WaitOptions, getrlimit, wait as wait_for_child};
use samite_os::signal::{SignalFd, unblock};

pub(super) use self::signals::SIGNALS;
use samite_control::printable::one_line;
use samite_control::variable;
use samite_control::{
    Channel, Ending, FromAgent, GivenUp, Incoming, JobId, Plan, RankExit, Secret, ToAgent, liveness,
};

use super::agent::PLAN_BYTES_MAX;
use super::agent_handle::{AgentConnection, AgentHandle};
use super::agent_listener::{self, AgentListener};
use super::failures::{Failures, PRINTED_MAX};
use super::observe::{ANSWER_MAX, JobStatus, StatusServer};
use super::place::Untrusted;
use super::profile::{Matrix, Profile};
use super::say::{say, say_to_the_end};
use super::wait::{Interest, wait};
use super::{
    ENDING_SIGNALS, EXIT_OUTPUT_LOST, EXIT_TIMED_OUT, ExitCodeOf, FAREWELL, GRACE, LAST_TURNS_MAX,
    LaunchError, OnFailure, Options, RANKS_MAX, Stats, descendants, random, waits,
};

/// The number of descriptors that an agent needs for itself, and the number for each rank: connection, stdout, stderr.
const DESCRIPTORS: (u64, u64) = (32, 3);

/// Runs a job to its end and returns the exit code for `samite run`. By default it is the exit code of the first rank
/// that failed (128 + signal if it was killed), or 0 if no rank failed. [`ExitCodeOf::Rank0`] selects the exit code of
/// rank 0.
///
/// Other events have a code of their own. If such an event comes before the first failure, its code counts instead:
/// - 1 if the output of the ranks could not be written;
/// - the agent's own code, or 128 + signal, if the agent of this host has failed;
/// - 128 + signal if a signal ended the job before all agents had connected, or after they had ended.
///
/// A timeout (124) and a second interrupt (130) count more than all other codes.
///
/// Call it from the only thread of a process without other children, since it waits for all children and kills
/// them. The process must understand [`AGENT_COMMAND`](super::AGENT_COMMAND), and for other
/// hosts [`SUPERVISOR_COMMAND`](super::SUPERVISOR_COMMAND).
///
/// # Errors
/// [`LaunchError`]. No process of the job is left then.
pub fn run(options: Options) -> Result<u8, LaunchError> {
    check(&options)?;
    let mut started = Coordinator::start(options);
    let code = started.as_mut().map_or(Ok(0), Coordinator::supervise);
    if let Ok(coordinator) = &mut started {
        // The connections of observers and agents may have taken all descriptors, and the next step needs some.
        (coordinator.status_server, coordinator.listener) = (None, None);
    }
    // Processes may exist even if the job has not started on all hosts.
    descendants::kill_all().map_err(LaunchError::system("ending the job"))?;
    // Nothing is left to clean up, so a signal may end this process while it waits for its readers.
    unblock(&ENDING_SIGNALS).map_err(LaunchError::system("unblocking signals"))?;
    let coordinator = started?;
    let code = code?;
    coordinator.print_totals();
    Ok(code)
}

/// Returns the number of descriptors that are needed to start `ranks` ranks on one host.
#[must_use]
pub fn descriptors_for(ranks: u32) -> u64 {
    let (fixed, each) = DESCRIPTORS;
    fixed + each * u64::from(ranks)
}

fn check(options: &Options) -> Result<(), LaunchError> {
    if !(1..=RANKS_MAX).contains(&options.ranks) {
        return Err(LaunchError::RankCount(options.ranks));
    }
    let needed = descriptors_for(options.ranks);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            Err(LaunchError::Descriptors { ranks: options.ranks, needed, limit })
        }
        _ => super::check::check(options),
    }
}

struct Coordinator {
    agents: Vec<AgentHandle>,
    /// The listener for agents of other hosts, until all have connected.
    listener: Option<AgentListener>,
    signals: SignalFd,
    options: Options,
    plan: Plan,
    ranks: Vec<RankState>,
    /// The latest incarnation of each rank.
    incarnations: Vec<u32>,
    status: JobStatus,
    matrix: Matrix,
    /// Answers observers of the job; `None` if there is no safe place for its socket.
    status_server: Option<StatusServer>,
    /// If statistics are requested: the time at which the ranks are next asked for figures, so that there are recent
    /// figures of a rank that is killed.
    asks_at: Option<Instant>,
    times_out_at: Option<Instant>,
    failures: Failures,
    /// The question to all ranks for the operations that they wait for; `None` if no such question is under way.
    inquiry: Option<Inquiry>,
    /// The time at which the job ends because of a failure. Until then the survivors can act on the report of the
    /// failure.
    ends_at: Option<Instant>,
    is_ending: bool,
    /// The exit code of the first failure, or of another event that counts as one; `None` before such an event.
    code: Option<u8>,
    /// The exit code of a job that a time-out or a second interrupt has ended.
    forced: Option<u8>,
    /// Rank 0's exit code, once it has ended.
    of_rank_0: Option<u8>,
    was_interrupted: bool,
    /// True if a signal was sent to end the job.
    was_signalled: bool,
    /// The time at which this process stops waiting for agents and remote shells. It then kills its descendants, and
    /// agents and remote shells are among them.
    gives_up_at: Option<Instant>,
}

/// The state of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RankState {
    /// The rank takes part in the job.
    Present,
    /// The rank has ended for the other ranks. Its process may still run.
    Gone,
    /// The rank's process has ended too.
    Over,
}

/// A question to all ranks for the operations that they wait for. When all ranks have answered, or [`INQUIRY_MAX`] has
/// passed since `asked`, the coordinator does `then`.
struct Inquiry {
    asked: Instant,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    /// The job ends because its time is over.
    End,
    /// The ranks get this signal.
    Signal(Signal),
}

enum Event {
    Agent(usize),
    Listener,
    Status,
    Signals,
}

impl Coordinator {
    fn start(options: Options) -> Result<Coordinator, LaunchError> {
        let system = LaunchError::system;
        // Look up host names before signals are blocked: a lookup may take many seconds, and meanwhile a signal should
        // end this process.
        let routes =
            options.remote.as_ref().map(|remote| agent_listener::routes(remote, &options)).transpose()?;
        let signals = SignalFd::block(&SIGNALS).map_err(system("blocking signals"))?;
        descendants::adopt_orphans().map_err(system("becoming a subreaper"))?;

        let (agents, listener) = match (&options.remote, routes) {
            (Some(remote), Some(routes)) => {
                let (agents, listener) = AgentListener::open(remote, routes, &options)?;
                (agents, Some(listener))
            }
            _ => (vec![AgentHandle::here(0..options.ranks).map_err(system("starting the agent"))?], None),
        };
        let plan = plan(&options, agents.len() as u32).map_err(system("reading random bytes"))?;
        let words = std::iter::once(&options.program).chain(&options.args);
        let program: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let hosts =
            agents.iter().flat_map(|AgentHandle { host, ranks, .. }| ranks.clone().map(|_| host.clone()));
        let mut coordinator = Coordinator {
            status: JobStatus::new(plan.job, program.join(" "), transport(&options), hosts),
            matrix: Matrix::default(),
            status_server: open_status_server(plan.job),
            asks_at: options.stats.as_ref().map(|_| Instant::now() + ASK_EVERY),
            agents,
            listener,
            signals,
            ranks: vec![RankState::Present; options.ranks as usize],
            incarnations: (0..options.ranks).map(|rank| plan.secret.first_incarnation(rank)).collect(),
            plan,
            times_out_at: options.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            options,
            failures: Failures::default(),
            inquiry: None,
            ends_at: None,
            is_ending: false,
            code: None,
            forced: None,
            of_rank_0: None,
            was_interrupted: false,
            was_signalled: false,
            gives_up_at: None,
        };
        if coordinator.listener.is_none() {
            coordinator.instruct(0)?;
        }
        Ok(coordinator)
    }

    fn supervise(&mut self) -> Result<u8, LaunchError> {
        while !self.is_over() {
            for event in self.wait().map_err(LaunchError::system("waiting"))? {
                match event {
                    Event::Agent(index) => self.serve_agent(index)?,
                    // `admit_agents` below serves the listener in any case, because the listener also has timed work.
                    Event::Listener => {}
                    Event::Status => self.admit_observers()?,
                    Event::Signals => self.handle_signals()?,
                }
            }
            self.admit_agents()?;
            self.handle_deadlines()?;
        }
        let of_rank_0 = self.of_rank_0.filter(|_| self.options.exit_code == ExitCodeOf::Rank0);
        Ok(self.forced.or(of_rank_0).or(self.code).unwrap_or(0))
    }

    fn wait(&self) -> io::Result<Vec<Event>> {
        let mut interests = vec![Interest::read(Event::Signals, &self.signals)];
        for (index, agent) in self.agents.iter().enumerate() {
            if let Some(channel) = agent.channel() {
                interests.push(Interest::exchange(Event::Agent(index), channel));
            }
        }
        if let Some(listener) = &self.listener {
            interests.extend(listener.descriptors().map(|fd| Interest::of(Event::Listener, fd)));
        }
        let (mut answer_at, mut admit_at) = (None, None);
        if let Some(server) = &self.status_server {
            interests.extend(server.socket().map(|socket| Interest::read(Event::Status, socket)));
            interests.extend(server.connections().map(|channel| Interest::exchange(Event::Status, channel)));
            answer_at = server.waiting_since().map(|since| since + ANSWER_MAX);
            admit_at = server.shut_until();
        }
        let beats = self.agents.iter().filter_map(AgentHandle::next_beat);
        let deadline = beats
            .chain(self.listener.as_ref().map(AgentListener::deadline))
            .chain(answer_at)
            .chain(admit_at)
            .chain(self.asks_at)
            .chain(self.inquiry.as_ref().map(|inquiry| inquiry.asked + INQUIRY_MAX))
            .chain(self.times_out_at)
            .chain(self.ends_at)
            .chain(self.gives_up_at)
            .min();
        wait(interests, deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
    }

    /// Sends an agent its plan.
    fn instruct(&mut self, index: usize) -> Result<(), LaunchError> {
        let agent = &mut self.agents[index];
        let plan = Plan { ranks: agent.ranks.clone(), host: index as u32, ..self.plan.clone() };
        agent.begin(plan)
    }

    fn serve_agent(&mut self, index: usize) -> Result<(), LaunchError> {
        let how = loop {
            let Some(channel) = self.agents[index].channel_mut() else { return Ok(()) };
            channel.flush();
            match channel.receive() {
                Ok(Incoming::Message(message)) => self.handle_message(index, message)?,
                Ok(Incoming::Nothing) => return Ok(()),
                Ok(Incoming::Closed) => break "the agent there is gone".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        self.handle_lost_agent(index, how)
    }

    fn handle_message(&mut self, index: usize, message: FromAgent) -> Result<(), LaunchError> {
        match message {
            FromAgent::NotStarted { errno, .. } => {
                let program = self.options.program.to_string_lossy().into_owned();
                return Err(LaunchError::Program { program, errno });
            }
            FromAgent::NotBound { why } => {
                let why = one_line(&why).into_owned();
                let host = self.agents[index].host.clone().unwrap_or_else(|| "this host".to_owned());
                return Err(LaunchError::Bind { bind: self.options.bind, host, why });
            }
            FromAgent::Exited { rank, ending, again: None } => self.rank_ended(rank, &ending),
            FromAgent::Exited { rank, ending, again: Some(pause) } => {
                self.status.restart(rank);
                if let Some(incarnation) = self.incarnations.get_mut(rank as usize) {
                    *incarnation = incarnation.wrapping_add(1);
                }
                let again = match pause.as_secs_f64() {
                    0.0 => "it was started again".to_owned(),
                    pause => format!("it is started again in {pause} s"),
                };
                say("run", &format!("rank {rank} {ending}; {again}"));
            }
            FromAgent::Refused { rank, reason } => say(
                "run",
                &format!(
                    "rank {rank} broke the launcher's protocol and was cut off from it: {}",
                    one_line(&reason)
                ),
            ),
            FromAgent::Question { rank } => {
                let asked = self.agents.iter_mut().find(|agent| agent.ranks.contains(&rank));
                if let Some(asked) = asked {
                    asked.send(&ToAgent::Question { host: index as u32, rank })?;
                }
            }
            FromAgent::Answer { host, whereabouts } => {
                if let Some(asker) = self.agents.get_mut(host as usize) {
                    asker.send(&ToAgent::Address(whereabouts))?;
                }
            }
            FromAgent::Ended(exits) => self.report_exits(index, exits)?,
            FromAgent::Returned(whereabouts) => {
                self.send_to_others(index, &ToAgent::Returned(whereabouts))?
            }
            FromAgent::Stopped(stop) => {
                self.status.stop(stop.rank, stop.is_stopped);
                self.send_to_others(index, &ToAgent::Stopped(stop))?;
            }
            FromAgent::GaveUp(given_up) => {
                self.report_verdict(&given_up);
                let mut others = self.agents.iter_mut().enumerate().filter(|(other, _)| *other != index);
                if let Some((_, agent)) = others.find(|(_, other)| other.ranks.contains(&given_up.rank)) {
                    agent.send(&ToAgent::GaveUp(given_up))?;
                }
            }
            FromAgent::Figures { rank, figures } => self.status.note_figures(rank, *figures),
            FromAgent::Peers { rank, peers } => self.matrix.add(rank, &peers),
            FromAgent::OutputLost => {
                self.code.get_or_insert(EXIT_OUTPUT_LOST);
            }
            FromAgent::Done => self.agents[index].connection = AgentConnection::Done,
        }
        Ok(())
    }

    /// Reports the ends of ranks to all agents except the agent at `index`.
    fn report_exits(&mut self, index: usize, exits: Vec<RankExit>) -> Result<(), LaunchError> {
        for RankExit { rank, incarnation, ending, .. } in &exits {
            let is_latest = self.incarnations.get(*rank as usize) == Some(incarnation);
            if is_latest {
                self.status.end(*rank, ending.clone());
            }
            if is_latest && let Some(state @ RankState::Present) = self.ranks.get_mut(*rank as usize) {
                *state = RankState::Gone;
            }
        }
        self.send_to_others(index, &ToAgent::Ended(exits))
    }

    /// Sends a message to all agents except the agent at `index`.
    fn send_to_others(&mut self, index: usize, message: &ToAgent) -> Result<(), LaunchError> {
        let mut others = self.agents.iter_mut().enumerate().filter(|(other, _)| *other != index);
        others.try_for_each(|(_, agent)| agent.send(message))
    }

    /// Handles a broken connection to an agent: the ranks of that agent count as failed for the other ranks, even if
    /// they still run.
    fn handle_lost_agent(&mut self, index: usize, how: String) -> Result<(), LaunchError> {
        let agent = &mut self.agents[index];
        agent.connection = AgentConnection::Lost;
        agent.kill_remote_shell();
        // An agent on this host is a child of this process, and its exit status will give a more precise reason.
        let Some(host) = agent.host.clone() else { return Ok(()) };
        let ending = Ending::Lost { host, how };
        let mut exits = Vec::new();
        for rank in agent.ranks.clone() {
            if self.ranks[rank as usize] == RankState::Present {
                let incarnation = self.incarnations[rank as usize];
                exits.push(RankExit { rank, incarnation, ending: ending.clone(), returns: false });
            }
        }
        let lost: Vec<u32> =
            agent.ranks.clone().filter(|&rank| self.ranks[rank as usize] != RankState::Over).collect();
        self.report_exits(index, exits)?;
        for &rank in &lost {
            self.ranks[rank as usize] = RankState::Over;
        }
        if lost.first() == Some(&0) {
            self.of_rank_0 = Some(ending.exit_code());
        }
        match lost[..] {
            [] => {}
            [rank] => self.failed(1, &format!("rank {rank} {ending}"), &ending),
            [first, .., last] => {
                self.failed(lost.len(), &format!("each of the ranks {first} to {last} {ending}"), &ending)
            }
        }
        Ok(())
    }

    fn rank_ended(&mut self, rank: u32, ending: &Ending) {
        if let Some(state) = self.ranks.get_mut(rank as usize) {
            *state = RankState::Over;
        }
        self.status.end(rank, ending.clone());
        if rank == 0 {
            self.of_rank_0 = Some(ending.exit_code());
        }
        if *ending != Ending::Left {
            let restarts = match self.options.on_failure {
                OnFailure::Restart { max }
                    if max > 0 && !self.was_signalled && self.status.restarts(rank) >= max =>
                {
                    let noun = if max == 1 { "restart" } else { "restarts" };
                    format!(", after {max} {noun}")
                }
                _ => String::new(),
            };
            self.failed(1, &format!("rank {rank} {ending}{restarts}"), ending);
        }
    }

    /// Reports to the user that a rank has given up another rank. Reports nothing if the job ends, or if the given-up
    /// incarnation has ended, because that end is the cause, and is reported anyway. Only counts the verdict if many
    /// have been reported.
    fn report_verdict(&mut self, given_up: &GivenUp) {
        let GivenUp { by, rank, incarnation, ref why, .. } = *given_up;
        let is_over = self.is_ending || self.ends_at.is_some() || self.was_signalled;
        let is_present = self.ranks.get(rank as usize) == Some(&RankState::Present)
            && self.incarnations.get(rank as usize) == Some(&incarnation);
        if !is_over && is_present && self.failures.note_verdict() {
            let why = one_line(why);
            say(
                "run",
                &format!("rank {by} gave up rank {rank} and exchanges nothing with it any more: {why}"),
            );
        }
    }

    /// Reports a failure, and applies the user's choice for failures.
    fn failed(&mut self, ranks: usize, what: &str, ending: &Ending) {
        if self.is_ending {
            return;
        }
        self.code.get_or_insert(ending.exit_code());
        match self.options.on_failure {
            OnFailure::Continue | OnFailure::Restart { .. } => {
                if self.failures.note(ranks, ending, PRINTED_MAX) {
                    say("run", &format!("{what}; the others go on"));
                }
            }
            // Later failures are usually consequences of the first.
            OnFailure::End if !self.failures.note(ranks, ending, 1) => {}
            OnFailure::End => {
                say("run", &format!("{what}; ending the job"));
                self.ends_at = Some(Instant::now() + FAREWELL);
            }
        }
    }

    /// Sends its plan to each agent that has connected since the last call.
    fn admit_agents(&mut self) -> Result<(), LaunchError> {
        let Some(listener) = &mut self.listener else { return Ok(()) };
        let known = listener.admit(Instant::now());
        for (index, channel) in known {
            let agent = &mut self.agents[index];
            if matches!(agent.connection, AgentConnection::Awaited) {
                let channel = channel.allowing(PLAN_BYTES_MAX);
                let beat = (liveness::beat_interval(self.options.detection), Instant::now());
                agent.connection = AgentConnection::Up { channel, beat: Some(beat) };
                self.instruct(index)?;
            }
        }
        if !self.agents.iter().any(|agent| matches!(agent.connection, AgentConnection::Awaited)) {
            self.listener = None;
        }
        Ok(())
    }

    /// Accepts observers. Asks all ranks for their activity if there is a new observer.
    fn admit_observers(&mut self) -> Result<(), LaunchError> {
        if self.status_server.as_mut().is_some_and(|status_server| status_server.admit(Instant::now())) {
            self.send_to_all(&ToAgent::Ask)?;
        }
        Ok(())
    }

    /// Answers the observers if all ranks have reported since they asked. Otherwise answers the observers that have
    /// waited for [`ANSWER_MAX`].
    fn serve_status(&mut self, now: Instant) {
        if let Some(status_server) = &mut self.status_server {
            let is_complete =
                status_server.waiting_since().is_some_and(|since| self.status.is_complete(since));
            let until = if is_complete { Some(now) } else { now.checked_sub(ANSWER_MAX) };
            if let Some(until) = until {
                status_server.serve(until, |asked| self.status.snapshot(asked));
            }
        }
    }

    /// Prints the totals of the failures, and the ranks' activity if requested. These texts may be long, so the reader
    /// of the output may take as long as it needs, unless a signal or a time-out has ended the job.
    fn print_totals(&self) {
        let tell = if self.was_signalled { say } else { say_to_the_end };
        for sum in self.failures.sum_of_verdicts().into_iter().chain(self.failures.sum()) {
            tell("run", &sum);
        }
        let Some(stats) = &self.options.stats else { return };
        let profile = Profile { snapshot: &self.status.snapshot(Instant::now()), matrix: &self.matrix };
        match stats {
            Stats::Table => {
                tell("run", &format!("statistics of the ranks:\n{}", profile.to_text().trim_end()))
            }
            Stats::File(file) => {
                if let Err(error) = profile.write(file) {
                    let file = file.display();
                    tell("run", &format!("the statistics cannot be written to {file}: {error}"));
                }
            }
        }
    }

    fn collect_children(&mut self) -> Result<(), LaunchError> {
        while let Ok(Some((process, status))) = wait_for_child(WaitOptions::NOHANG) {
            let found = self.agents.iter().position(|agent| agent.process == Some(process));
            if let Some(index) = found {
                self.process_ended(index, ExitStatus::from_raw(status.as_raw()))?;
            }
        }
        Ok(())
    }

    /// Handles the exit of an agent, or of the remote shell to an agent, after reading the agent's last messages. If
    /// the remote shell has exited before the agent has connected, returns an error, unless the job is ending.
    fn process_ended(&mut self, index: usize, status: ExitStatus) -> Result<(), LaunchError> {
        for _ in 0..LAST_TURNS_MAX {
            self.serve_agent(index)?;
            if !self.agents[index].channel().is_some_and(Channel::has_more) {
                break;
            }
        }
        let agent = &mut self.agents[index];
        agent.process = None;
        let ending = Ending::from(status);
        match (&agent.connection, &agent.host) {
            (AgentConnection::Awaited, Some(host)) if !self.is_ending => Err(LaunchError::NotThere {
                host: host.clone(),
                shell: self
                    .options
                    .remote
                    .iter()
                    .flat_map(|remote| &remote.shell)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(" "),
                ending: ending.to_string(),
                program: std::env::current_exe().unwrap_or_default().display().to_string(),
            }),
            (AgentConnection::Awaited, _) => {
                agent.connection = AgentConnection::Lost;
                Ok(())
            }
            (AgentConnection::Lost, None) => {
                say("run", &format!("the agent of this node {ending}, and the ranks with it"));
                self.code.get_or_insert(ending.exit_code());
                Ok(())
            }
            // If the remote shell fails, output is lost, but the agent decides the result.
            _ => Ok(()),
        }
    }

    /// Asks the ranks for the operations that they wait for. [`conclude_inquiry`](Self::conclude_inquiry) prints the
    /// answers and does `then`. If a question is under way and `then` is a signal, sends the signal at once and does
    /// not ask again.
    fn inquire(&mut self, then: Then) -> Result<(), LaunchError> {
        if let (Some(_), Then::Signal(signal)) = (&self.inquiry, then) {
            return self.send_to_all(&ToAgent::Signal(signal.as_raw()));
        }
        self.inquiry = Some(Inquiry { asked: Instant::now(), then });
        self.send_to_all(&ToAgent::Ask)
    }

    /// Prints the waits of the ranks when all ranks have answered or the time for answers is over. Then ends the job or
    /// sends the signal.
    fn conclude_inquiry(&mut self, now: Instant) -> Result<(), LaunchError> {
        let is_over = |inquiry: &mut Inquiry| {
            inquiry.asked + INQUIRY_MAX <= now || self.status.is_complete(inquiry.asked)
        };
        let Some(Inquiry { asked, then }) = self.inquiry.take_if(is_over) else { return Ok(()) };
        if let Some(text) = waits::describe(&self.status.snapshot(asked)) {
            say("run", &text);
        }
        match then {
            Then::End => self.end(),
            Then::Signal(signal) => self.send_to_all(&ToAgent::Signal(signal.as_raw())),
        }
    }

    fn handle_deadlines(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        if self.was_signalled
            && self.gives_up_at.is_none()
            && self.agents.iter().all(|agent| agent.channel().is_none())
        {
            // The agents have ended or are lost. A remote shell may wait longer, for a process that holds the shell's
            // output open.
            self.give_up_in(GRACE);
        }
        self.conclude_inquiry(now)?;
        for agent in &mut self.agents {
            agent.beat(now);
        }
        if self.status_server.as_ref().and_then(StatusServer::shut_until).is_some_and(|until| until <= now) {
            self.admit_observers()?;
        }
        self.serve_status(now);
        if self.asks_at.is_some_and(|at| at <= now) {
            self.asks_at = Some(now + ASK_EVERY);
            self.send_to_all(&ToAgent::Ask)?;
        }
        if let Some(listener) = self.listener.take_if(|listener| listener.closes_at <= now) {
            let awaited =
                self.agents.iter().filter(|agent| matches!(agent.connection, AgentConnection::Awaited));
            let hosts: Vec<_> = awaited.filter_map(|agent| agent.host.clone()).collect();
            return Err(listener.no_answer(&hosts));
        }
        if self.times_out_at.is_some_and(|at| at <= now) {
            let seconds = self.options.timeout.unwrap_or_default().as_secs_f64();
            say("run", &format!("the job ran longer than the {seconds} s that --timeout allows; ending it"));
            self.forced = Some(EXIT_TIMED_OUT);
            self.times_out_at = None;
            self.give_up_in(INQUIRY_MAX + 3 * GRACE);
            self.inquire(Then::End)?;
        } else if self.ends_at.is_some_and(|at| at <= now) {
            self.end()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), LaunchError> {
        self.inquiry = None;
        self.times_out_at = None;
        self.ends_at = None;
        self.is_ending = true;
        self.await_no_more();
        self.send_to_all(&ToAgent::End)
    }

    fn send_to_all(&mut self, message: &ToAgent) -> Result<(), LaunchError> {
        self.agents.iter_mut().try_for_each(|agent| agent.send(message))
    }
}

/// Opens the socket for observers. Returns `None` if no directory can be used for it. Prints a message if the last of
/// the possible directories is not trusted, since another user may have caused that.
fn open_status_server(job: JobId) -> Option<StatusServer> {
    let error = match StatusServer::open(job) {
        Ok(status_server) => return Some(status_server),
        Err(error) => error,
    };
    if error.get_ref().is_some_and(|source| source.is::<Untrusted>()) {
        say("run", &format!("`samite ps` and `samite top` will not show this job: {error}"));
    }
    None
}

fn plan(options: &Options, hosts: u32) -> io::Result<Plan> {
    let mut env = options.env.clone();
    if options.remote.is_some() {
        // The agent on this host inherits the environment of this process, so only agents of other hosts need these
        // variables in the plan.
        let ours = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let forwarded = ours.filter(|(name, _)| name.starts_with("SAMITE_") || name.starts_with("FI_"));
        env.splice(0..0, forwarded);
    }
    Ok(Plan {
        job: JobId(u64::from_ne_bytes(random()?)),
        secret: Secret(random()?),
        size: options.ranks,
        ranks: 0..options.ranks,
        host: 0,
        hosts,
        detection: options.detection,
        restarts: match options.on_failure {
            OnFailure::Restart { max } => max,
            OnFailure::End | OnFailure::Continue => 0,
        },
        bind: options.bind,
        transport: transport(options),
        env,
        prefix: options.prefix,
        stats: options.stats.is_some(),
        program: options.program.clone(),
        args: options.args.clone(),
    })
}

/// Returns the ranks' value of `SAMITE_TRANSPORT`.
fn transport(options: &Options) -> Option<String> {
    let mut set = options.env.iter().rev();
    let set = || set.find(|(name, _)| name == variable::TRANSPORT).map(|(_, value)| value.clone());
    options.transport.clone().or_else(set).or_else(|| std::env::var(variable::TRANSPORT).ok())
}

/// The interval at which ranks are asked for figures, if statistics are requested. When a waiting rank is killed, its
/// last figures are no older than this.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The longest time for which the end of a job is delayed so that its ranks can report their waits. Waiting ranks
/// answer within a millisecond.
const INQUIRY_MAX: Duration = Duration::from_millis(500);
