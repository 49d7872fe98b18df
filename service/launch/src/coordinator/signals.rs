//! The effect of signals on a job, and the time allowed for its end.

use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use samite_control::ToAgent;

use super::super::agent_handle::{AgentConnection, AgentHandle};
use super::super::{ENDING_SIGNALS, GRACE, LaunchError, say};
use super::{Coordinator, Then};

/// The coordinator's signals: SIGCHLD, and the signals that a user or a batch system may send to a job.
pub(crate) const SIGNALS: [Signal; 10] = [
    Signal::CHILD,
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

impl Coordinator {
    pub(super) fn handle_signals(&mut self) -> Result<(), LaunchError> {
        while let Some(signal) = self.signals.read().map_err(LaunchError::system("reading signals"))? {
            self.was_signalled |= ENDING_SIGNALS.contains(&signal);
            match signal {
                Signal::CHILD => self.collect_children()?,
                Signal::INT if self.was_interrupted => {
                    say("run", "interrupted twice; killing the job");
                    self.forced = Some(128 + Signal::INT.as_raw() as u8);
                    self.is_ending = true;
                    self.await_no_more();
                    self.give_up_in(GRACE);
                    self.send_to_all(&ToAgent::Kill)?;
                }
                _ if ENDING_SIGNALS.contains(&signal) && !self.is_up() => self.end_partial_job(signal)?,
                // A batch system sends SIGTERM at the time limit of a job.
                Signal::INT | Signal::TERM => {
                    self.was_interrupted |= signal == Signal::INT;
                    self.inquire(Then::Signal(signal))?;
                }
                _ => {
                    self.send_to_all(&ToAgent::Signal(signal.as_raw()))?;
                    if signal == Signal::TSTP {
                        // The terminal stops only the process group of the coordinator. The ranks have their own
                        // process groups and were stopped by the forwarded signal; now stop this process too.
                        let _ = kill_process(getpid(), Signal::STOP);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if no agent or remote shell is left to wait for, or the time for the wait is over.
    pub(super) fn is_over(&self) -> bool {
        self.agents.iter().all(AgentHandle::is_over)
            || self.gives_up_at.is_some_and(|gives_up_at| gives_up_at <= Instant::now())
    }

    /// Returns true if all agents have connected, and at least one is still connected, so that a signal can be
    /// forwarded.
    fn is_up(&self) -> bool {
        self.listener.is_none() && self.agents.iter().any(|agent| agent.channel().is_some())
    }

    /// Ends a job that has not started on all hosts, or of which only remote shells are left. In such a job a forwarded
    /// signal would reach only a part of the ranks, or none.
    fn end_partial_job(&mut self, signal: Signal) -> Result<(), LaunchError> {
        let awaited = self.agents.iter().filter(|agent| matches!(agent.connection, AgentConnection::Awaited));
        let hosts: Vec<_> = awaited.filter_map(|agent| agent.host.as_deref()).collect();
        if !hosts.is_empty() && !self.is_ending {
            let hosts = hosts.join(", ");
            say("run", &format!("interrupted while the agents of {hosts} were awaited; ending the job"));
        }
        self.was_interrupted |= signal == Signal::INT;
        self.code.get_or_insert(128 + signal.as_raw() as u8);
        // An agent ends its ranks within one grace period, and its output within another.
        self.give_up_in(3 * GRACE);
        let without_agent = self.agents.iter().filter(|agent| agent.channel().is_none());
        without_agent.for_each(AgentHandle::kill_remote_shell);
        self.end()
    }

    /// Limits the wait for agents and remote shells to `time` from now.
    pub(super) fn give_up_in(&mut self, time: Duration) {
        let at = Instant::now() + time;
        self.gives_up_at = Some(self.gives_up_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Stops waiting for agents that have not connected: closes the listener, and kills their remote shells.
    pub(super) fn await_no_more(&mut self) {
        self.listener = None;
        let awaited = self.agents.iter().filter(|agent| matches!(agent.connection, AgentConnection::Awaited));
        awaited.for_each(AgentHandle::kill_remote_shell);
    }
}
