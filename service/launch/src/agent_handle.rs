//! The coordinator's handle of an agent: its process, or the remote shell that starts it, and the connection to it.

use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use samite_control::{Channel, Invitation, Plan, ToAgent};
use samite_os::signal::unblock_in;
use samite_os::spawn::{end_with_parent, pass_fd};

use super::agent::PLAN_BYTES_MAX;
use super::hosts::Host;
use super::terminal::copy_input;
use super::{AGENT_COMMAND, LaunchError, SUPERVISOR_COMMAND};

/// An agent, or the remote shell that starts an agent on another host.
#[derive(Debug)]
pub(super) struct AgentHandle {
    /// The name that the user gave the agent's host; `None` if the agent is on this host and no network is used.
    pub(super) host: Option<String>,
    /// The agent's ranks.
    pub(super) ranks: Range<u32>,
    /// The process of the agent itself, or of the remote shell; `None` after this process has waited for it.
    pub(super) process: Option<Pid>,
    pub(super) connection: AgentConnection,
    /// Messages about ranks of other hosts, which the agent gets when it connects.
    kept: Vec<ToAgent>,
}

/// The connection to an agent.
#[derive(Debug)]
pub(super) enum AgentConnection {
    /// The agent has not connected yet.
    Awaited,
    /// The agent is connected. Over a network, `beat` is the interval of heartbeats and the time of the next heartbeat.
    Up { channel: Channel, beat: Option<(Duration, Instant)> },
    /// The agent has reported that it has finished.
    Done,
    /// The connection broke.
    Lost,
}

impl AgentHandle {
    /// Starts the agent of this host. The agent inherits standard input for rank 0. If standard input is a terminal,
    /// the agent gets a pipe with the typed bytes instead.
    pub(super) fn here(ranks: Range<u32>) -> io::Result<AgentHandle> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        let fd = pass_fd(&mut command, theirs.into());
        command.arg0("samite").arg(AGENT_COMMAND).arg(fd.to_string());
        if io::stdin().is_terminal() {
            command.stdin(Stdio::piped());
        }
        let mut agent = spawn_apart(&mut command)?;
        if let Some(mut input) = agent.stdin.take() {
            thread::Builder::new().name("input".to_owned()).spawn(move || copy_input(&mut input))?;
        }
        let channel = Channel::with_line_limit(ours, PLAN_BYTES_MAX);
        Ok(AgentHandle {
            host: None,
            ranks,
            process: Some(Pid::from_child(&agent)),
            connection: AgentConnection::Up { channel, beat: None },
            kept: Vec::new(),
        })
    }

    /// Starts a remote shell that starts the agent of another host. Passes standard input on to the shell if rank 0 is
    /// on that host.
    pub(super) fn there(
        host: &Host,
        ranks: Range<u32>,
        shell: &[String],
        invitation: &Invitation,
    ) -> Result<AgentHandle, LaunchError> {
        let failed = |source| LaunchError::RemoteShell { shell: shell.join(" "), source };
        let program = std::env::current_exe().map_err(LaunchError::system("finding the `samite` command"))?;
        let (shell, options) = shell.split_first().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let mut command = Command::new(shell);
        command.args(options).arg(&host.name).arg(quoted(&program.to_string_lossy())).arg(SUPERVISOR_COMMAND);
        command.stdin(Stdio::piped());
        let mut child = spawn_apart(&mut command).map_err(failed)?;
        let mut line = serde_json::to_vec(invitation).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let mut input = child.stdin.take().expect("it is piped");
        let takes_input = ranks.start == 0;
        // A thread writes the line, because the remote shell may read it late, and the write would block. If the write
        // fails, no agent connects, and that is reported.
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || {
                input.write_all(&line)?;
                if takes_input { copy_input(&mut input) } else { Ok(()) }
            })
            .map_err(LaunchError::system("starting a thread"))?;
        Ok(AgentHandle {
            host: Some(host.name.clone()),
            ranks,
            process: Some(Pid::from_child(&child)),
            connection: AgentConnection::Awaited,
            kept: Vec::new(),
        })
    }

    pub(super) fn channel(&self) -> Option<&Channel> {
        match &self.connection {
            AgentConnection::Up { channel, .. } => Some(channel),
            _ => None,
        }
    }

    pub(super) fn channel_mut(&mut self) -> Option<&mut Channel> {
        match &mut self.connection {
            AgentConnection::Up { channel, .. } => Some(channel),
            _ => None,
        }
    }

    /// Sends a message, if the agent is connected. Until an agent has connected, messages about ranks of other hosts
    /// are kept for it: nothing sends them a second time, and those ranks may run for long before the agent connects.
    /// Drops all other messages.
    pub(super) fn send(&mut self, message: &ToAgent) -> Result<(), LaunchError> {
        match &mut self.connection {
            AgentConnection::Up { channel, .. } => Ok(channel.send(message)?),
            AgentConnection::Awaited if message.concerns_other_hosts() => {
                self.kept.push(message.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends the agent its first message, and then the kept messages.
    pub(super) fn begin(&mut self, plan: Plan) -> Result<(), LaunchError> {
        self.send(&ToAgent::Start(plan))?;
        std::mem::take(&mut self.kept).iter().try_for_each(|message| self.send(message))
    }

    pub(super) fn next_beat(&self) -> Option<Instant> {
        match &self.connection {
            AgentConnection::Up { beat: Some((_, next)), .. } => Some(*next),
            _ => None,
        }
    }

    pub(super) fn beat(&mut self, now: Instant) {
        if let AgentConnection::Up { channel, beat: Some((interval, next)) } = &mut self.connection
            && *next <= now
        {
            channel.beat();
            *next = now + *interval;
        }
    }

    /// Returns true if the process and its connection have both ended.
    pub(super) fn is_over(&self) -> bool {
        self.process.is_none() && matches!(self.connection, AgentConnection::Done | AgentConnection::Lost)
    }

    /// Kills the remote shell, if the agent is on another host. The shell would wait for ever for an unreachable host.
    pub(super) fn kill_remote_shell(&self) {
        if let (Some(_), Some(process)) = (&self.host, self.process) {
            // The process has not been waited for, so its id has not been reused.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// Starts a process in its own process group. So a signal to the coordinator's group, from a terminal or kill(1),
/// reaches the ranks only through the coordinator, and the agent survives to clean up.
fn spawn_apart(command: &mut Command) -> io::Result<std::process::Child> {
    unblock_in(end_with_parent(command.process_group(0), Signal::TERM));
    command.spawn()
}

/// Returns the addresses at which `host` can probably reach this host: the addresses that the system would use as the
/// source of packets to `host`.
pub(super) fn addresses_towards(host: &str) -> Vec<IpAddr> {
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    let targets = (name, DISCARD).to_socket_addrs().into_iter().flatten();
    let mut ours = Vec::new();
    for target in targets {
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        // Connecting a datagram socket sends nothing; it chooses the route.
        let address = UdpSocket::bind((any, 0))
            .and_then(|socket| socket.connect(target).and_then(|()| socket.local_addr()));
        ours.extend(address.ok().map(|address| address.ip()).filter(|address| !ours.contains(address)));
    }
    ours
}

/// A UDP port, for the search of the local address of a network route. No packet is sent, so any number would do.
const DISCARD: u16 = 9;

/// Quotes a word for the shell on the other side, which reads one line. Leaves words without special characters
/// unchanged, so that a command which runs the line without a shell can take the place of the remote shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_otherwise() {
        assert_eq!(quoted("/usr/bin/samite-1.2"), "/usr/bin/samite-1.2");
        assert_eq!(quoted("/my files/it's"), r"'/my files/it'\''s'");
    }

    #[test]
    fn a_host_is_reached_from_an_address_of_ours() {
        assert_eq!(addresses_towards("me@127.0.0.1"), [IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(addresses_towards("no such host"), [] as [IpAddr; 0]);
    }
}
