//! The front process: starts the agent, forwards signals, and decides what a failure means.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Signal, WaitOptions, getpid, getrlimit, kill_process, wait as wait_for_child,
};
use rustix::rand::{GetRandomFlags, getrandom};
use samite_fabric::os::signal::{SignalFd, unblock_in};
use samite_fabric::os::spawn::{end_with_parent, pass_fd};

use super::agent::PLAN_BYTES_MAX;
use super::wait::{Interest, wait};
use super::{
    AGENT_COMMAND, EXIT_TIMED_OUT, FAREWELL, LaunchError, OnFailure, Options, RANKS_MAX, descendants,
};
use crate::control::{Channel, Ending, FromAgent, Incoming, JobId, Plan, Secret, ToAgent};

/// What a user or a batch system may send to a job.
const FORWARDED: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::TSTP,
    Signal::WINCH,
];

/// Descriptors of the agent for itself, and for each rank: connection, stdout, stderr.
const DESCRIPTORS: (u64, u64) = (32, 3);

/// Runs a job to its end and returns the exit code for `samite run`: that of the first rank that failed (128
/// + signal if it was killed), 124 after a timeout, 0 if none failed.
///
/// To be called from the only thread of a process without other children, since it waits for all and kills
/// all. The process must understand [`AGENT_COMMAND`].
///
/// # Errors
/// [`LaunchError`]: nothing is left running.
pub fn run(options: Options) -> Result<u8, LaunchError> {
    check(&options)?;
    let front = Front::start(options)?;
    let code = front.supervise();
    descendants::kill_all().map_err(LaunchError::system("ending the job"))?;
    code
}

fn check(options: &Options) -> Result<(), LaunchError> {
    if !(1..=RANKS_MAX).contains(&options.ranks) {
        return Err(LaunchError::RankCount(options.ranks));
    }
    let (fixed, each) = DESCRIPTORS;
    let needed = fixed + each * u64::from(options.ranks);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            Err(LaunchError::Descriptors { ranks: options.ranks, needed, limit })
        }
        _ => Ok(()),
    }
}

struct Front {
    agent: Pid,
    /// Dropped to make the agent kill everything at once.
    channel: Option<Channel>,
    signals: SignalFd,
    program: String,
    on_failure: OnFailure,
    timeout: Option<Duration>,
    times_out_at: Option<Instant>,
    /// When the job ends because of a failure that the survivors know of by now.
    ends_at: Option<Instant>,
    is_ending: bool,
    /// The exit code, once it is decided.
    code: Option<u8>,
    was_interrupted: bool,
}

enum Event {
    Agent,
    Signals,
}

impl Front {
    fn start(options: Options) -> Result<Front, LaunchError> {
        let system = LaunchError::system;
        let mut signals = vec![Signal::CHILD];
        signals.extend(FORWARDED);
        let signals = SignalFd::block(&signals).map_err(system("blocking signals"))?;
        descendants::adopt_orphans().map_err(system("becoming a subreaper"))?;

        let (ours, theirs) = UnixStream::pair().map_err(system("making a connection for the agent"))?;
        let mut command = Command::new("/proc/self/exe");
        let fd = pass_fd(&mut command, theirs.into());
        // A process group of its own: what is sent to the front's group, by a terminal or a kill, reaches the
        // ranks once, through the front, and the agent survives to clean up.
        command.arg0("samite").arg(AGENT_COMMAND).arg(fd.to_string()).process_group(0);
        unblock_in(end_with_parent(&mut command, Signal::TERM));
        let agent = command.spawn().map_err(system("starting the agent"))?;
        drop(command);

        let channel =
            Channel::with_line_limit(ours, PLAN_BYTES_MAX).map_err(system("talking to the agent"))?;
        let mut front = Front {
            agent: Pid::from_child(&agent),
            channel: Some(channel),
            signals,
            program: options.program.to_string_lossy().into_owned(),
            on_failure: options.on_failure,
            timeout: options.timeout,
            times_out_at: options.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            ends_at: None,
            is_ending: false,
            code: None,
            was_interrupted: false,
        };
        front.send(&ToAgent::Start(plan(options).map_err(system("reading random bytes"))?))?;
        Ok(front)
    }

    fn supervise(mut self) -> Result<u8, LaunchError> {
        loop {
            for event in self.wait().map_err(LaunchError::system("waiting"))? {
                match event {
                    Event::Agent => self.serve_agent()?,
                    Event::Signals => {
                        if let Some(status) = self.handle_signals()? {
                            return self.conclude(status);
                        }
                    }
                }
            }
            self.handle_deadlines()?;
        }
    }

    fn wait(&self) -> io::Result<Vec<Event>> {
        let mut interests = vec![Interest::read(Event::Signals, &self.signals)];
        if let Some(channel) = &self.channel {
            interests.push(Interest::read(Event::Agent, channel));
            if channel.is_backed_up() {
                interests.push(Interest::write(Event::Agent, channel));
            }
        }
        let deadline = self.times_out_at.into_iter().chain(self.ends_at).min();
        wait(interests, deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
    }

    fn serve_agent(&mut self) -> Result<(), LaunchError> {
        while let Some(channel) = &mut self.channel {
            channel.flush()?;
            match channel.receive()? {
                Incoming::Message(FromAgent::Ended { rank, ending }) => self.rank_ended(rank, ending),
                Incoming::Message(FromAgent::Refused { rank, reason }) => {
                    say(&format!(
                        "rank {rank} broke the launcher's protocol and was cut off from it: {reason}"
                    ));
                }
                Incoming::Message(FromAgent::NotStarted { errno, .. }) => {
                    return Err(LaunchError::Program { program: self.program.clone(), errno });
                }
                Incoming::Nothing => break,
                Incoming::Closed => self.channel = None,
            }
        }
        Ok(())
    }

    fn rank_ended(&mut self, rank: u32, ending: Ending) {
        if ending == Ending::Left || self.is_ending {
            return;
        }
        self.code.get_or_insert(ending.exit_code());
        match self.on_failure {
            OnFailure::Continue => say(&format!("rank {rank} {ending}; the others go on")),
            OnFailure::End if self.ends_at.is_some() => say(&format!("rank {rank} {ending}")),
            OnFailure::End => {
                say(&format!("rank {rank} {ending}; ending the job"));
                self.ends_at = Some(Instant::now() + FAREWELL);
            }
        }
    }

    /// Forwards signals; returns the agent's status when it has ended.
    fn handle_signals(&mut self) -> Result<Option<ExitStatus>, LaunchError> {
        while let Some(signal) = self.signals.read().map_err(LaunchError::system("reading signals"))? {
            match signal {
                Signal::CHILD => {
                    if let Some(status) = self.collect_children() {
                        return Ok(Some(status));
                    }
                }
                Signal::INT if self.was_interrupted => {
                    say("interrupted twice; killing the job");
                    self.code = Some(128 + Signal::INT.as_raw() as u8);
                    self.is_ending = true;
                    self.channel = None;
                }
                _ => {
                    self.was_interrupted |= signal == Signal::INT;
                    self.send(&ToAgent::Signal(signal.as_raw()))?;
                    if signal == Signal::TSTP {
                        // The ranks have their own process groups, so the terminal has stopped none of us.
                        let _ = kill_process(getpid(), Signal::STOP);
                    }
                }
            }
        }
        Ok(None)
    }

    fn collect_children(&self) -> Option<ExitStatus> {
        while let Ok(Some((process, status))) = wait_for_child(WaitOptions::NOHANG) {
            if process == self.agent {
                return Some(ExitStatus::from_raw(status.as_raw()));
            }
        }
        None
    }

    fn handle_deadlines(&mut self) -> Result<(), LaunchError> {
        let now = Instant::now();
        if self.times_out_at.is_some_and(|at| at <= now) {
            let seconds = self.timeout.unwrap_or_default().as_secs_f64();
            say(&format!("the job ran longer than the {seconds} s that --timeout allows; ending it"));
            self.code = Some(EXIT_TIMED_OUT);
            self.end()?;
        } else if self.ends_at.is_some_and(|at| at <= now) {
            self.end()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), LaunchError> {
        self.times_out_at = None;
        self.ends_at = None;
        self.is_ending = true;
        self.send(&ToAgent::End)
    }

    /// The agent has ended: what it still said, and whether it meant to end.
    fn conclude(mut self, status: ExitStatus) -> Result<u8, LaunchError> {
        let was_told_to = self.channel.is_none() && self.is_ending;
        self.serve_agent()?;
        if status.success() || was_told_to {
            return Ok(self.code.unwrap_or(0));
        }
        let ending = Ending::from(status);
        say(&format!("the agent of this node {ending}, and the ranks with it"));
        Ok(self.code.unwrap_or(ending.exit_code()))
    }

    fn send(&mut self, message: &ToAgent) -> Result<(), LaunchError> {
        match &mut self.channel {
            Some(channel) => Ok(channel.send(message)?),
            None => Ok(()),
        }
    }
}

fn plan(options: Options) -> io::Result<Plan> {
    let mut random = [0; 24];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let (job, secret) = random.split_at(8);
    Ok(Plan {
        job: JobId(u64::from_ne_bytes(job.try_into().expect("8 bytes"))),
        secret: Secret(secret.try_into().expect("16 bytes")),
        size: options.ranks,
        transport: options.transport,
        env: options.env,
        prefix: options.prefix,
        program: options.program,
        args: options.args,
    })
}

/// One write, so that nothing comes between its words. If stderr is gone there is nobody to tell.
fn say(text: &str) {
    let _ = io::stderr().write_all(format!("samite run: {text}\n").as_bytes());
}
