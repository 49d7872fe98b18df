//! Reports a rank that makes no progress for long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::report::FromRank;

/// A watchdog of one thread of this process.
pub(crate) struct Watchdog {
    rank: u32,
    steps: Arc<AtomicU64>,
    doing: Arc<Mutex<String>>,
}

/// The watchdog's limit in ticks: much more time than any operation here takes, even on a crowded machine and with a
/// stopped peer.
const PATIENCE: u32 = 100;
const TICK: Duration = Duration::from_millis(200);

impl Watchdog {
    /// Ends the process and reports its current action if [`Watchdog::now`] is not called for long. Time during which
    /// the process is stopped does not count, because the thread of the watchdog is stopped too.
    pub(crate) fn start(rank: u32) -> Self {
        let watchdog = Self { rank, steps: Arc::default(), doing: Arc::default() };
        let (steps, doing) = (Arc::clone(&watchdog.steps), Arc::clone(&watchdog.doing));
        std::thread::spawn(move || {
            let (mut last, mut ticks) = (0, 0);
            loop {
                std::thread::sleep(TICK);
                let step = steps.load(Ordering::Relaxed);
                ticks = if step == last { ticks + 1 } else { 0 };
                last = step;
                if ticks >= PATIENCE {
                    let doing = doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    hangs(rank, doing);
                }
            }
        });
        watchdog
    }

    /// Notes that the thread begins an action.
    pub(crate) fn now(&self, doing: std::fmt::Arguments<'_>) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let mut text = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        text.clear();
        let _ = std::fmt::Write::write_fmt(&mut *text, doing);
    }

    /// Reports that this rank runs but makes no progress, and ends the process.
    pub(crate) fn give_up(&self, doing: String) -> ! {
        hangs(self.rank, doing)
    }
}

fn hangs(rank: u32, doing: String) -> ! {
    say(&FromRank::Hangs { rank, doing });
    std::process::exit(86);
}

/// Sends a message to the driver.
pub(crate) fn say(what: &FromRank) {
    println!("{}", serde_json::to_string(what).expect("names and numbers can be written"));
}
