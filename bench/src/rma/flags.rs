//! The reorder flags (Zounmevo 2014, section 5.6.2): an epoch waits for an earlier one of its rank with a late partner.
//! All calls are nonblocking. The difference of the victim's times with the delay and without is the part of the delay
//! that reaches it.

use std::time::Duration;

use samite::{Error, LockKind, Rank, Request, Window, WindowHints};

use super::patterns::reached;
use super::{Bound, Case, DELAY, Job, Row, since_us, work};
use crate::failure::now_ns;

pub(super) const RANKS: u32 = 4;

const LENGTHS: [usize; 2] = [1, 1 << 20];

/// The tag of the message that lets the second origin request its locks.
const REQUESTED: u64 = 1;

/// The bounds of the part of the delay that reaches the victim.
const WITHOUT_FLAG: Bound = Bound::AtLeast(0.9);
const WITH_FLAG: Bound = Bound::AtMost(0.05);

/// The part of a rank in an epoch with one partner.
#[derive(Clone, Copy)]
enum Side {
    Access,
    Exposure,
}

/// The epochs that show the effect of a flag.
enum Pattern {
    /// Rank 2 has one epoch with rank 0, which is late, and then one with rank 1, the victim.
    Epochs([Side; 2]),
    /// Rank 0 holds the lock of rank 2 for a time. Rank 1 requests that lock, and then the victim, the lock of rank 3.
    Locks,
}

/// A flag, and the epochs that show its effect.
struct Flag {
    bench: &'static str,
    about: &'static str,
    hints: WindowHints,
    pattern: Pattern,
    /// The time of the victim without the flag in the thesis, for [`LENGTHS`].
    published: [Option<f64>; 2],
}

const FLAGS: [Flag; 5] = [
    Flag {
        bench: "access-after-access",
        about: "access after access: the second target of an origin whose first target is late, us",
        hints: WindowHints::NONE.access_after_access(),
        pattern: Pattern::Epochs([Side::Access, Side::Access]),
        published: [None, Some(1654.73)],
    },
    Flag {
        bench: "lock-after-lock",
        about: "access after access: the lock of an origin that waits for another lock too, us",
        hints: WindowHints::NONE.access_after_access(),
        pattern: Pattern::Locks,
        published: [None; 2],
    },
    Flag {
        bench: "access-after-exposure",
        about: "access after exposure: the target of a rank that is exposed to a late origin, us",
        hints: WindowHints::NONE.access_after_exposure(),
        pattern: Pattern::Epochs([Side::Exposure, Side::Access]),
        published: [None; 2],
    },
    Flag {
        bench: "exposure-after-exposure",
        about: "exposure after exposure: the second origin of a target whose first origin is late, us",
        hints: WindowHints::NONE.exposure_after_exposure(),
        pattern: Pattern::Epochs([Side::Exposure, Side::Exposure]),
        published: [None; 2],
    },
    Flag {
        bench: "exposure-after-access",
        about: "exposure after access: the origin of a rank that accesses a late target, us",
        hints: WindowHints::NONE.exposure_after_access(),
        pattern: Pattern::Epochs([Side::Access, Side::Exposure]),
        published: [None; 2],
    },
];

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let mut are_kept = true;
    for flag in &FLAGS {
        let windows =
            [WindowHints::NONE, flag.hints].map(|hints| job.comm.allocate_window_with(1 << 20, hints));
        let [without, with] = windows;
        let windows = [without?, with?];
        let mut rows = Vec::new();
        for (bytes, published) in LENGTHS.into_iter().zip(flag.published) {
            rows.extend(rows_of(job, &windows, flag, bytes, published)?);
        }
        are_kept &= job.print(flag.about, &rows);
        for window in windows {
            window.free()?;
        }
    }
    Ok(are_kept)
}

/// Measures a flag with one length. The variants are both windows, each with the delay and without.
fn rows_of(
    job: &Job<'_>,
    windows: &[Window<u8>; 2],
    flag: &Flag,
    bytes: usize,
    published: Option<f64>,
) -> Result<Vec<Row>, Error> {
    let data = vec![1; bytes];
    let case = Case {
        bench: flag.bench,
        metric: "victim_us",
        unit: "us",
        bytes: Some(bytes),
        depth: None,
        to: "part of the delay",
    };
    let rounds = job.in_turns(2 * windows.len(), |variant| {
        let delay = if variant % 2 == 0 { DELAY } else { Duration::ZERO };
        let window = &windows[variant / 2];
        let time = match flag.pattern {
            Pattern::Epochs(sides) => epoch_after_epoch(job, window, &data, delay, sides),
            Pattern::Locks => lock_after_lock(job, window, &data, delay),
        };
        time.map(|time| [time])
    })?;
    let variants = [("without flag", WITHOUT_FLAG), ("with flag", WITH_FLAG)];
    let ours = rounds
        .chunks_exact(2)
        .zip(variants)
        .map(|(pair, (name, bound))| Row::new(job, &case, name, reached(&pair[0], &pair[1])).bounded(bound));
    let theirs = published.map(|time| Row::published(&case, "without flag", RANKS, time));
    Ok(ours.chain(theirs).collect())
}

impl Side {
    /// Begins and closes an epoch with another rank. Returns the request of its end.
    fn with(self, window: &Window<u8>, other: u32, data: &[u8]) -> Result<Request<()>, Error> {
        match self {
            Self::Access => {
                let epoch = window.start(&[Rank(other)])?;
                epoch.put(Rank(other), 0, data)?;
                epoch.iclose()
            }
            Self::Exposure => window.post(&[Rank(other)])?.iclose(),
        }
    }

    /// The part of the partner.
    fn opposite(self) -> Self {
        match self {
            Self::Access => Self::Exposure,
            Self::Exposure => Self::Access,
        }
    }
}

fn lock(window: &Window<u8>, target: u32, data: &[u8]) -> Result<Request<()>, Error> {
    let epoch = window.lock(Rank(target), LockKind::Exclusive)?;
    epoch.put(Rank(target), 0, data)?;
    epoch.iclose()
}

/// Waits for epochs, and returns the time since then.
fn time_of(
    begin_ns: u64,
    epochs: impl IntoIterator<Item = Result<Request<()>, Error>>,
) -> Result<f64, Error> {
    for epoch in epochs {
        epoch?.wait()?;
    }
    Ok(since_us(begin_ns))
}

/// Runs a rank's part of [`Pattern::Epochs`]. Returns the victim's time, or 0 at the other ranks.
fn epoch_after_epoch(
    job: &Job<'_>,
    window: &Window<u8>,
    data: &[u8],
    delay: Duration,
    [first, second]: [Side; 2],
) -> Result<f64, Error> {
    let begin_ns = now_ns();
    match job.rank() {
        0 => {
            work(delay);
            time_of(begin_ns, [first.opposite().with(window, 2, data)])?;
        }
        1 => return time_of(begin_ns, [second.opposite().with(window, 2, data)]),
        2 => {
            time_of(begin_ns, [first.with(window, 0, data), second.with(window, 1, data)])?;
        }
        _ => {}
    }
    Ok(0.0)
}

/// Runs a rank's part of [`Pattern::Locks`]. Returns the victim's time, or 0 at the other ranks.
fn lock_after_lock(job: &Job<'_>, window: &Window<u8>, data: &[u8], delay: Duration) -> Result<f64, Error> {
    let mut nothing = [0_u8; 0];
    match job.rank() {
        0 => {
            let epoch = window.lock(Rank(2), LockKind::Exclusive)?;
            epoch.put(Rank(2), 0, data)?;
            // Otherwise the data would travel during the delay, and hide a part of it.
            epoch.flush(Rank(2))?;
            job.comm.send(&nothing, Rank(1), REQUESTED)?;
            work(delay);
            epoch.close()?;
            Ok(0.0)
        }
        1 => {
            job.comm.recv(&mut nothing, Rank(0), REQUESTED)?;
            let begin_ns = now_ns();
            let first = lock(window, 2, data)?;
            let time = time_of(begin_ns, [lock(window, 3, data)])?;
            first.wait()?;
            Ok(time)
        }
        _ => Ok(0.0),
    }
}
