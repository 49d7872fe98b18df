//! The agent of a node: starts the ranks, knows where they are, and tells each when another ends.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, WaitOptions, wait as wait_for_child};
use samite_fabric::os::signal::SignalFd;
use samite_fabric::os::spawn::inherited_fd;

use super::rank::Rank;
use super::registry::Registry;
use super::wait::{Interest, wait};
use super::{GRACE, LaunchError, descendants, output};
use crate::control::{Channel, Ending, FromAgent, FromRank, Incoming, Plan, ToAgent};

/// The longest message from the front: it holds the program's arguments.
pub(super) const PLAN_BYTES_MAX: usize = 64 << 20;

/// A dying process closes its descriptors before its status can be waited for. So long after its connection
/// closed, a rank that still runs has left of its own will.
const LOST_MEANS_LEFT: Duration = Duration::from_millis(50);

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
    front: Channel,
    signals: SignalFd,
    ranks: Vec<Rank>,
    registry: Registry,
    /// Closed when all output has been forwarded; then `None`.
    output: Option<UnixStream>,
    /// When the ranks that have not followed SIGTERM are killed.
    kill_at: Option<Instant>,
}

/// What can wake the agent.
enum Event {
    Rank(u32),
    Signals,
    Output,
    Front,
}

impl Agent {
    /// Starts the ranks that the front asks for; `None` if the front is gone or a rank could not be started.
    fn start(fd: i32) -> Result<Option<Agent>, LaunchError> {
        let system = LaunchError::system;
        let signals = SignalFd::block(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP, Signal::TTOU])
            .map_err(system("blocking signals"))?;
        descendants::adopt_orphans().map_err(system("becoming a subreaper"))?;
        let front = connection(fd).map_err(system("finding the front"))?;
        let mut front =
            Channel::with_line_limit(front, PLAN_BYTES_MAX).map_err(system("talking to the front"))?;
        let plan = loop {
            match front.receive()? {
                Incoming::Message(ToAgent::Start(plan)) => break plan,
                Incoming::Message(_) => {}
                Incoming::Nothing => {
                    wait(vec![Interest::read((), &front)], None).map_err(system("waiting for the front"))?;
                }
                Incoming::Closed => return Ok(None),
            }
        };
        Agent::start_ranks(front, signals, &plan)
    }

    fn start_ranks(mut front: Channel, signals: SignalFd, plan: &Plan) -> Result<Option<Agent>, LaunchError> {
        let mut ranks = Vec::new();
        let (mut stdouts, mut stderrs) = (Vec::new(), Vec::new());
        for rank in 0..plan.size {
            match Rank::start(plan, rank) {
                Ok((started, stdout, stderr)) => {
                    ranks.push(started);
                    stdouts.push(stdout);
                    stderrs.push(stderr);
                }
                Err(error) => {
                    front.send(&FromAgent::NotStarted {
                        rank,
                        errno: error.raw_os_error().unwrap_or_default(),
                    })?;
                    return Ok(None);
                }
            }
        }
        let output = output::forward(stdouts, stderrs, plan.prefix)
            .map_err(LaunchError::system("forwarding output"))?;
        let registry = Registry::new(plan.size, plan.secret);
        Ok(Some(Agent { front, signals, ranks, registry, output: Some(output), kill_at: None }))
    }

    fn run(mut self) -> Result<(), LaunchError> {
        loop {
            let is_running = self.ranks.iter().any(|rank| rank.process.is_some());
            if !is_running {
                // What the ranks have left behind may hold on to their output.
                descendants::kill_all().map_err(LaunchError::system("ending what the ranks have left"))?;
                if self.output.is_none() && !self.front.is_backed_up() {
                    return Ok(());
                }
            }
            for event in self.wait().map_err(LaunchError::system("waiting"))? {
                match event {
                    Event::Rank(rank) => self.serve_rank(rank)?,
                    Event::Signals => self.handle_signals()?,
                    Event::Output => self.output = None,
                    Event::Front => {
                        if !self.serve_front()? {
                            return Ok(());
                        }
                    }
                }
            }
            self.handle_deadlines();
            self.deliver()?;
        }
    }

    /// Waits for something to happen. Ranks come first: what one has said before it died counts.
    fn wait(&self) -> io::Result<Vec<Event>> {
        let mut interests = Vec::with_capacity(self.ranks.len() + 3);
        for (number, rank) in (0..).zip(&self.ranks) {
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
        interests.extend(self.output.as_ref().map(|output| Interest::read(Event::Output, output)));
        interests.push(Interest::read(Event::Front, &self.front));
        if self.front.is_backed_up() {
            interests.push(Interest::write(Event::Front, &self.front));
        }
        let lost = self.ranks.iter().filter_map(|rank| rank.lost_at).map(|lost_at| lost_at + LOST_MEANS_LEFT);
        let deadline = lost.chain(self.kill_at).min();
        wait(interests, deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
    }

    fn serve_rank(&mut self, number: u32) -> Result<(), LaunchError> {
        let rank = &mut self.ranks[number as usize];
        let Some(channel) = &mut rank.channel else { return Ok(()) };
        let reason = loop {
            let received = channel.flush().and_then(|()| channel.receive::<FromRank>());
            match received {
                Ok(Incoming::Message(message)) => match self.registry.handle(number, message) {
                    Ok(()) if self.registry.has_ended(number) => {
                        rank.channel = None;
                        return Ok(());
                    }
                    Ok(()) => {}
                    Err(reason) => break reason,
                },
                Ok(Incoming::Nothing) => return Ok(()),
                Ok(Incoming::Closed) => {
                    rank.channel = None;
                    rank.lost_at = Some(Instant::now());
                    return Ok(());
                }
                Err(error) => break error.to_string(),
            }
        };
        rank.channel = None;
        self.registry.end(number, Ending::Left);
        Ok(self.front.send(&FromAgent::Refused { rank: number, reason })?)
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
        while let Ok(Some((process, status))) = wait_for_child(WaitOptions::NOHANG) {
            let ranks = (0..).zip(&self.ranks);
            let Some((number, _)) = ranks.clone().find(|(_, rank)| rank.process == Some(process)) else {
                // Something that a rank had started and left to us.
                continue;
            };
            self.serve_rank(number)?;
            let rank = &mut self.ranks[number as usize];
            *rank = Rank { process: None, channel: None, lost_at: None };
            let ending = Ending::from(ExitStatus::from_raw(status.as_raw()));
            self.registry.end(number, ending);
            self.front.send(&FromAgent::Ended { rank: number, ending })?;
        }
        Ok(())
    }

    /// Acts on the front's messages; false if it is gone.
    fn serve_front(&mut self) -> Result<bool, LaunchError> {
        self.front.flush()?;
        loop {
            match self.front.receive()? {
                Incoming::Message(ToAgent::Signal(number)) => {
                    self.signal_ranks(Signal::from_named_raw(number))
                }
                Incoming::Message(ToAgent::End) => self.end_ranks(),
                Incoming::Message(ToAgent::Start(_)) | Incoming::Nothing => return Ok(true),
                Incoming::Closed => return Ok(false),
            }
        }
    }

    fn end_ranks(&mut self) {
        // A stopped process acts on SIGTERM only when it goes on.
        self.signal_ranks([Signal::TERM, Signal::CONT]);
        self.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
    }

    fn signal_ranks(&self, signals: impl IntoIterator<Item = Signal>) {
        for signal in signals {
            self.ranks.iter().for_each(|rank| rank.signal(signal));
        }
    }

    fn handle_deadlines(&mut self) {
        let now = Instant::now();
        if self.kill_at.is_some_and(|kill_at| kill_at <= now) {
            self.kill_at = None;
            self.signal_ranks([Signal::KILL]);
        }
        for (number, rank) in (0..).zip(&mut self.ranks) {
            if rank.lost_at.is_some_and(|lost_at| lost_at + LOST_MEANS_LEFT <= now) {
                rank.lost_at = None;
                self.registry.end(number, Ending::Left);
            }
        }
    }

    fn deliver(&mut self) -> Result<(), LaunchError> {
        for (to, message) in self.registry.outbox.drain(..) {
            if let Some(channel) = &mut self.ranks[to as usize].channel {
                // A connection that fails here fails in `serve_rank` too, which says so.
                let _ = channel.send(&message);
            }
        }
        Ok(())
    }
}

/// The connection that the front has passed, kept from the ranks.
fn connection(fd: i32) -> io::Result<UnixStream> {
    let inherited = inherited_fd(fd)?;
    let owned = inherited.try_clone_to_owned()?;
    fcntl_setfd(inherited, FdFlags::CLOEXEC)?;
    Ok(owned.into())
}
