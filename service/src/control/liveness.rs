//! When a connection over a network counts as lost.
//!
//! Each side sends an empty line now and then ([`beat_interval`]). No process has to answer: it is the other
//! side's *kernel* that acknowledges, so a process that is busy or stopped is not taken for dead. What is not
//! acknowledged is repeated by the kernel, ever less often, and given up after TCP_USER_TIMEOUT (RFC 5482),
//! by each side for itself. So a cut of less than half of the detection time is survived, since one of the
//! repetitions falls into the time after it, and one of the whole detection time, in either direction, is
//! noticed by both sides.
//!
//! The kernel's own probes of an idle connection (keepalive) would do the same, but count in whole seconds,
//! and not while something is on its way.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The detection time that holds where none is asked for.
pub const DETECTION_DEFAULT: Duration = Duration::from_secs(10);

/// The least detection time: below, a kernel has not repeated a lost packet once.
pub const DETECTION_MIN: Duration = Duration::from_millis(200);

/// The time before a kernel first repeats what was not acknowledged, on a fast network (Linux: TCP_RTO_MIN).
/// Only from then on it counts the time towards TCP_USER_TIMEOUT.
const FIRST_REPETITION: Duration = Duration::from_millis(200);

/// Makes this TCP connection fail when the other side's host has not been heard of for `detection`, provided
/// that both sides beat.
pub(crate) fn bound(connection: &impl AsFd, detection: Duration) -> io::Result<()> {
    let timeout = detection.saturating_sub(FIRST_REPETITION).max(Duration::from_millis(50));
    sockopt::set_tcp_nodelay(connection, true)?;
    sockopt::set_tcp_user_timeout(connection, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// How often to beat, so that the loss is noticed at most half a second after the detection time.
pub(crate) fn beat_interval(detection: Duration) -> Duration {
    (detection / 4).min(Duration::from_millis(500))
}
