//! The inefficiency patterns (Zounmevo 2014, section 5.4): one rank is late, and another one, the victim, waits for it
//! although it need not. Each pattern is measured with a delay and without. The difference of the victim's times is the
//! part of the delay that reaches it. In two patterns the data of blocking calls travels during the delay. The
//! difference would then lack the time of the data, so the victim's time itself is compared with the delay.

use std::time::Duration;

use samite::{Error, LockKind, Rank, Window};

use super::{Bound, Calls, Case, DELAY, Figures, Job, Row, since_us, work};
use crate::failure::now_ns;

pub(super) const RANKS: u32 = 3;

/// The tag of the victim's message.
const SUBSEQUENT: u64 = 1;
/// The tag of the message that lets the second origin request its lock.
const REQUESTED: u64 = 2;

/// The bounds of the part of the delay that reaches the victim, or of the ratio of the victim's time to the delay.
const BLOCKING: Bound = Bound::AtLeast(0.9);
const NONBLOCKING: Bound = Bound::AtMost(0.05);
/// The bound of the victim's time relative to its own work, with nonblocking calls.
const EARLY_FENCE: Bound = Bound::AtMost(1.05);

/// A pattern. `run` is a rank's part, with this delay. It returns the victim's time, or 0 at the other ranks.
struct Pattern {
    bench: &'static str,
    about: &'static str,
    run: fn(&Round<'_>, Duration) -> Result<f64, Error>,
    lengths: [usize; 2],
    /// True if the data travels during the delay with blocking calls.
    is_data_hidden: bool,
    /// The times of the victim in the thesis, by length: with blocking calls, and with nonblocking ones.
    published: [[f64; 2]; 2],
}

/// The arguments of one round.
struct Round<'a> {
    job: &'a Job<'a>,
    window: &'a Window<u8>,
    data: &'a [u8],
    calls: Calls,
}

const PATTERNS: [Pattern; 4] = [
    Pattern {
        bench: "late-post",
        about: "late post: a message that the origin sends after its epoch with a late target, us",
        run: late_post,
        lengths: [1, 1 << 20],
        is_data_hidden: false,
        published: [[1000.0, 1.74], [1660.0, 334.32]],
    },
    Pattern {
        bench: "late-complete",
        about: "late complete: the epoch of a target whose origin computes, us",
        run: late_complete,
        lengths: [4, 1 << 20],
        is_data_hidden: true,
        published: [[1000.0, 9.05], [1000.0, 336.1]],
    },
    Pattern {
        bench: "wait-at-fence",
        about: "wait at fence: the epoch of a target whose origin computes, us",
        run: wait_at_fence,
        lengths: [4, 1 << 20],
        is_data_hidden: true,
        published: [[1000.0, f64::NAN], [1000.0, f64::NAN]],
    },
    Pattern {
        bench: "late-unlock",
        about: "late unlock: the epoch of an origin after an origin that computes, us",
        run: late_unlock,
        lengths: [1, 1 << 20],
        is_data_hidden: false,
        published: [[1000.0, f64::NAN], [1000.0, f64::NAN]],
    },
];

pub(super) fn measure(job: &Job<'_>) -> Result<bool, Error> {
    let window = job.comm.allocate_window::<u8>(1 << 20)?;
    let mut are_kept = true;
    for pattern in &PATTERNS {
        let mut rows = Vec::new();
        for (bytes, published) in pattern.lengths.into_iter().zip(pattern.published) {
            rows.extend(rows_of(job, &window, pattern, bytes, published)?);
        }
        are_kept &= job.print(pattern.about, &rows);
    }
    are_kept &= early_fence(job, &window)?;
    window.free()?;
    Ok(are_kept)
}

/// Measures a pattern with one length. The variants are both calls, each with the delay and without.
fn rows_of(
    job: &Job<'_>,
    window: &Window<u8>,
    pattern: &Pattern,
    bytes: usize,
    published: [f64; 2],
) -> Result<Vec<Row>, Error> {
    let data = vec![1; bytes];
    let case = Case {
        bench: pattern.bench,
        metric: "victim_us",
        unit: "us",
        bytes: Some(bytes),
        depth: None,
        to: "part of the delay",
    };
    let rounds = job.in_turns(2 * Calls::ALL.len(), |variant| {
        let round = Round { job, window, data: &data, calls: Calls::ALL[variant / 2] };
        (pattern.run)(&round, if variant % 2 == 0 { DELAY } else { Duration::ZERO }).map(|time| [time])
    })?;
    let mut rows = Vec::new();
    for ((pair, calls), published) in rounds.chunks_exact(2).zip(Calls::ALL).zip(published) {
        let figures = reached(&pair[0], &pair[1]);
        rows.push(match calls {
            Calls::Blocking if pattern.is_data_hidden => {
                let case = Case { to: "the delay", ..case };
                let delay_us = DELAY.as_secs_f64() * 1e6;
                let ratios = figures.values.iter().map(|time| time / delay_us).collect();
                Row::new(job, &case, calls.name(), Figures { ratios, ..figures }).bounded(BLOCKING)
            }
            Calls::Blocking => Row::new(job, &case, calls.name(), figures).bounded(BLOCKING),
            Calls::Nonblocking => Row::new(job, &case, calls.name(), figures).bounded(NONBLOCKING),
        });
        if !published.is_nan() {
            rows.push(Row::published(&case, calls.name(), 3, published));
        }
    }
    Ok(rows)
}

/// Returns the victim's times with the delay, and the parts of the delay that have reached it.
pub(super) fn reached(late: &[[f64; 1]], on_time: &[[f64; 1]]) -> Figures {
    let delay = DELAY.as_secs_f64() * 1e6;
    let values = late.iter().map(|[time]| *time).collect();
    let ratios = late.iter().zip(on_time).map(|([late], [on_time])| (late - on_time) / delay).collect();
    Figures { values, ratios }
}

/// Rank 1 posts late. The victim is the message of rank 0 to rank 2, which rank 0 sends after its epoch.
fn late_post(round: &Round<'_>, delay: Duration) -> Result<f64, Error> {
    let Round { job, window, data, calls } = round;
    let begin_ns = now_ns();
    match job.rank() {
        0 => {
            let epoch = window.start(&[Rank(1)])?;
            epoch.put(Rank(1), 0, data)?;
            let end = match calls {
                Calls::Blocking => {
                    epoch.close()?;
                    None
                }
                Calls::Nonblocking => Some(epoch.iclose()?),
            };
            job.comm.send(data, Rank(2), SUBSEQUENT)?;
            let time = since_us(begin_ns);
            if let Some(end) = end {
                end.wait()?;
            }
            Ok(time)
        }
        1 => {
            work(delay);
            window.post(&[Rank(0)])?.close()?;
            Ok(0.0)
        }
        _ => {
            job.comm.recv(&mut vec![0_u8; data.len()], Rank(0), SUBSEQUENT)?;
            Ok(0.0)
        }
    }
}

/// Rank 0 computes before it closes its access. The victim is the exposure of rank 1.
fn late_complete(round: &Round<'_>, delay: Duration) -> Result<f64, Error> {
    let Round { job, window, data, calls } = round;
    let begin_ns = now_ns();
    match job.rank() {
        0 => {
            let epoch = window.start(&[Rank(1)])?;
            epoch.put(Rank(1), 0, data)?;
            calls.close(epoch, delay)?;
        }
        1 => {
            window.post(&[Rank(0)])?.close()?;
            return Ok(since_us(begin_ns));
        }
        _ => {}
    }
    Ok(0.0)
}

/// Rank 0 computes before it calls the fence that ends the epoch. The victim is that fence at rank 1.
fn wait_at_fence(round: &Round<'_>, delay: Duration) -> Result<f64, Error> {
    let Round { job, window, data, calls } = round;
    let begin_ns = now_ns();
    let epoch = window.fence()?;
    match job.rank() {
        0 => {
            epoch.put(Rank(1), 0, data)?;
            calls.close(epoch, delay)?;
        }
        1 => {
            epoch.close()?;
            return Ok(since_us(begin_ns));
        }
        _ => epoch.close()?,
    }
    Ok(0.0)
}

/// Rank 0 locks rank 2, and computes before it unlocks. The victim is the lock that rank 1 requests after that. With
/// blocking calls rank 0 flushes its data first, so that the data does not travel during the delay.
fn late_unlock(round: &Round<'_>, delay: Duration) -> Result<f64, Error> {
    let Round { job, window, data, calls } = round;
    let comm = job.comm;
    let (target, mut nothing) = (Rank(2), [0_u8; 0]);
    match job.rank() {
        0 => {
            let epoch = window.lock(target, LockKind::Exclusive)?;
            epoch.put(target, 0, data)?;
            match calls {
                Calls::Blocking => {
                    epoch.flush(target)?;
                    comm.send(&nothing, Rank(1), REQUESTED)?;
                    work(delay);
                    epoch.close()?;
                }
                Calls::Nonblocking => {
                    let end = epoch.iclose()?;
                    comm.send(&nothing, Rank(1), REQUESTED)?;
                    work(delay);
                    end.wait()?;
                }
            }
        }
        1 => {
            comm.recv(&mut nothing, Rank(0), REQUESTED)?;
            let begin_ns = now_ns();
            let epoch = window.lock(target, LockKind::Exclusive)?;
            epoch.put(target, 0, data)?;
            epoch.close()?;
            return Ok(since_us(begin_ns));
        }
        _ => {}
    }
    Ok(0.0)
}

/// The target computes after a fence during which data still travels. Its time should be that of its own work.
fn early_fence(job: &Job<'_>, window: &Window<u8>) -> Result<bool, Error> {
    let mut rows = Vec::new();
    for bytes in [256 << 10, 1 << 20] {
        let data = vec![1; bytes];
        let rounds = job.in_turns(Calls::ALL.len(), |variant| {
            let begin_ns = now_ns();
            let epoch = window.fence()?;
            if job.rank() != 1 {
                if job.rank() == 0 {
                    epoch.put(Rank(1), 0, &data)?;
                }
                epoch.close()?;
                return Ok([0.0; 2]);
            }
            let computed = match Calls::ALL[variant] {
                Calls::Blocking => {
                    epoch.close()?;
                    work(DELAY)
                }
                calls => calls.close(epoch, DELAY)?,
            };
            Ok([since_us(begin_ns), computed])
        })?;
        let case = Case {
            bench: "early-fence",
            metric: "victim_us",
            unit: "us",
            bytes: Some(bytes),
            depth: None,
            to: "its work",
        };
        for (calls, rounds) in Calls::ALL.into_iter().zip(rounds) {
            let values = rounds.iter().map(|[time, _]| *time).collect();
            let ratios = rounds.iter().map(|[time, computed]| time / computed).collect();
            let row = Row::new(job, &case, calls.name(), Figures { values, ratios });
            rows.push(if calls == Calls::Blocking { row } else { row.bounded(EARLY_FENCE) });
        }
    }
    Ok(job.print("early fence: a fence and the work of 1000 us of a target after it, us", &rows))
}
