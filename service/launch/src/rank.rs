//! The process of one rank.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use samite_control::{Channel, Ending, PROTOCOL, Place, Plan, Ticket, ToRank, variable};
use samite_os::signal::unblock_in;
use samite_os::spawn::{end_with_parent, pass_fd};

use super::output::Source;
use crate::topology::Slot;

/// A rank of this host.
#[derive(Debug)]
pub(super) struct Rank {
    /// The rank's process, until it has been waited for.
    pub(super) process: Option<Pid>,
    /// The rank's connection, until either side closes it.
    pub(super) channel: Option<Channel>,
    /// True if the rank has been asked for its activity and has not answered. A computing rank is not asked twice.
    pub(super) is_asked: bool,
    /// The time at which the rank reported that it closed its world, or at which its connection ended without a report.
    /// The end of its process then decides if the rank has left or failed.
    pub(super) closed_at: Option<Instant>,
    /// Number of restarts that are left.
    pub(super) restarts: u32,
    /// If the rank is to be restarted: the time of the restart, and the way in which its last process ended.
    pub(super) again: Option<(Instant, Ending)>,
}

impl Rank {
    /// Starts `rank` of `plan`, in its own process group, and returns it with its stdout and
    /// stderr.
    ///
    /// Rank 0 has the agent's standard input, which is never a terminal, since a background process group may not read
    /// from a terminal. The other ranks have no input.
    ///
    /// With a slot, the rank may use only the slot's processors.
    pub(super) fn start(
        plan: &Plan,
        rank: u32,
        incarnation: u32,
        place: &Place,
        slot: Option<&Slot>,
    ) -> io::Result<(Rank, Source, Source)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut channel = Channel::new(ours);
        if plan.stats {
            // Ask before the rank starts, so that the rank finds the question even if it ends at once. An error is
            // ignored, because the agent finds a failed connection when it reads from it.
            let _ = channel.send(&ToRank::Asked { at_end: true });
        }
        let ticket = Ticket {
            protocol: PROTOCOL,
            job: plan.job,
            secret: plan.secret,
            rank,
            size: plan.size,
            incarnation,
            place: slot
                .map_or_else(|| place.clone(), |slot| Place { neighbours: slot.sharers, ..place.clone() }),
        };
        let takes_input = rank == 0 && !io::stdin().is_terminal();
        let mut command = Command::new(&plan.program);
        unblock_in(end_with_parent(&mut command, Signal::KILL));
        let fd = pass_fd(&mut command, ticket.issue(theirs)?);
        #[cfg(feature = "ofi")]
        command.envs(samite_fabric::ofi::environment(plan.transport.as_deref()));
        command
            .args(&plan.args)
            .envs(plan.env.iter().map(|(key, value)| (key, value)))
            .env(variable::CONTROL, format!("fd:{fd}"))
            .env(variable::RANK, rank.to_string())
            .env(variable::SIZE, plan.size.to_string())
            .env(variable::JOB, plan.job.to_string())
            .envs(plan.transport.iter().map(|transport| (variable::TRANSPORT, transport)))
            .stdin(if takes_input { Stdio::inherit() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = match slot {
            Some(slot) => while_bound_to(&slot.processors, || command.spawn())?,
            None => command.spawn()?,
        };
        let source = |pipe: Option<OwnedFd>| Source { rank, pipe: pipe.expect("the output is piped") };
        let stdout = source(child.stdout.take().map(OwnedFd::from));
        let stderr = source(child.stderr.take().map(OwnedFd::from));
        let rank = Rank {
            process: Some(Pid::from_child(&child)),
            channel: Some(channel),
            is_asked: false,
            closed_at: None,
            restarts: plan.restarts,
            again: None,
        };
        Ok((rank, stdout, stderr))
    }

    /// Asks the rank for its activity.
    pub(super) fn ask(&mut self) {
        if let Some(channel) = &mut self.channel
            && !std::mem::replace(&mut self.is_asked, true)
        {
            // An error is ignored, because the agent finds a failed connection when it reads from it.
            let _ = channel.send(&ToRank::Asked { at_end: false });
        }
    }

    /// Sends `signal` to the rank and to the processes of its process group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = self.process {
            // The process has not been waited for, so the id of its group has not been reused. If the program runs as
            // another user, the system may refuse the signal. The other ranks get the signal all the same.
            let _ = kill_process_group(process, signal);
        }
    }
}

/// Calls `spawn` while this thread may use only these processors. A process that `spawn` starts inherits the limit.
fn while_bound_to<T>(processors: &[u32], spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut slot = CpuSet::new();
    for &processor in processors {
        // The set has room for 1024 processors, like `cpu_set_t` in C. Processors with larger numbers are left out.
        if (processor as usize) < CpuSet::MAX_CPU {
            slot.set(processor as usize);
        }
    }
    let ours = sched_getaffinity(None)?;
    sched_setaffinity(None, &slot)?;
    let spawned = spawn();
    sched_setaffinity(None, &ours)?;
    spawned
}
