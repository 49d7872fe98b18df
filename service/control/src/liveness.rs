//! Detection of lost connections over a network.
//!
//! Each side sends an empty line, the heartbeat, at regular intervals ([`beat_interval`]). No process has to answer:
//! the other side's *kernel* acknowledges, so a busy or stopped process does not count as failed. The sender's kernel
//! repeats unacknowledged bytes at growing intervals, and gives up after TCP_USER_TIMEOUT (RFC 5482). Each side detects
//! a loss by itself, so a host that is cut off for the detection time is given up even if only one direction fails. The
//! connection survives an interruption of less than a quarter of that time, since the kernel repeats the bytes at least
//! once after the interruption.
//!
//! The kernel's own probes of an idle connection (keepalive) would do the same, but count in whole seconds,
//! and stop while bytes are under way.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The default detection time.
pub const DETECTION_DEFAULT: Duration = Duration::from_secs(10);

/// The least detection time. A shorter time would end before the kernel repeats a lost packet once.
pub const DETECTION_MIN: Duration = Duration::from_millis(200);

/// The time before a kernel first repeats unacknowledged bytes, on a fast network (Linux: TCP_RTO_MIN). Only then the
/// kernel starts to count the time towards TCP_USER_TIMEOUT.
const FIRST_REPETITION: Duration = Duration::from_millis(200);

/// Makes this TCP connection fail when the other side's host has been unreachable for `detection`, provided
/// that both sides send heartbeats.
pub fn bound(connection: &impl AsFd, detection: Duration) -> io::Result<()> {
    let timeout = u32::try_from(user_timeout(detection).as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_nodelay(connection, true)?;
    sockopt::set_tcp_user_timeout(connection, timeout)?;
    Ok(())
}

/// Bounds the time to detect a failure as [`bound`] does, but without heartbeats: the kernel itself probes the
/// connection. The kernel counts in whole seconds, so a detection time of less than 3 s is exceeded.
pub fn bound_by_kernel(connection: &impl AsFd, detection: Duration) -> io::Result<()> {
    let idle = Duration::from_secs((detection.as_secs() / 4).max(1));
    bound(connection, detection)?;
    sockopt::set_socket_keepalive(connection, true)?;
    sockopt::set_tcp_keepidle(connection, idle)?;
    sockopt::set_tcp_keepintvl(connection, idle)?;
    Ok(())
}

/// Returns the interval between heartbeats.
pub fn beat_interval(detection: Duration) -> Duration {
    (detection / 4).min(Duration::from_millis(500))
}

/// Returns the value for TCP_USER_TIMEOUT: the detection time, less the longest time from an interruption to the next
/// heartbeat, and less the time until the kernel first repeats that heartbeat.
fn user_timeout(detection: Duration) -> Duration {
    detection.saturating_sub(beat_interval(detection) + FIRST_REPETITION).max(Duration::from_millis(50))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's schedule (tcp_timer.c): the pause doubles with each repetition, and the last pause ends when the
    /// kernel gives up.
    #[test]
    fn a_short_cut_is_survived_and_a_long_one_noticed() {
        for detection in (200..60_000).map(Duration::from_millis) {
            let given_up = FIRST_REPETITION + user_timeout(detection);
            let mut repetitions = vec![FIRST_REPETITION];
            while repetitions.last().unwrap() < &given_up {
                repetitions.push(*repetitions.last().unwrap() * 2 + FIRST_REPETITION);
            }
            repetitions.pop();
            // The cut begins just before a heartbeat.
            assert!(*repetitions.last().unwrap() >= detection / 4, "{detection:?}");
            // The cut begins just after a heartbeat.
            let slack = Duration::from_millis(100);
            assert!(beat_interval(detection) + given_up <= detection + slack, "{detection:?}");
        }
    }
}
