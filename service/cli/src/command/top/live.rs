//! `samite top` on a terminal. Restores the terminal in whatever way the command ends.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Typed};
use ratatui::crossterm::terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use samite_launch::{RunningJob, Snapshot};
use samite_os::signal::SignalFd;

use super::draw::draw;
use super::print;
use super::screen::Screen;
use super::view::View;

/// An event for the main loop.
enum Event {
    /// An update of the job; `None` if it has ended.
    Looked(Result<Option<Snapshot>, String>),
    /// A key was pressed, or the terminal's size has changed. The value is an error if the terminal is gone.
    Typed(io::Result<Typed>),
    /// A signal to end the process.
    Signal(Signal),
}

/// The reason why `samite top` ends.
enum End {
    Asked,
    OfJob,
    Signal(Signal),
}

/// Shows the job until it ends, or a key or a signal ends the program.
pub(super) fn watch(job: RunningJob, interval: Duration) -> Result<u8, String> {
    let ended = format!("job {} has ended\n", job.job);
    let Some(first) = job.look().map_err(|error| error.to_string())? else { return Ok(print(&ended)) };
    let mut screen = Screen::new(View::between(&first.clone(), first));
    // Signals are blocked before there are other threads, which would receive them otherwise.
    let signals = SignalFd::block(&[Signal::INT, Signal::TERM, Signal::HUP]);
    let signals = signals.map_err(|error| format!("blocking signals: {error}"))?;
    let (sender, events) = channel();
    // `try_init` also installs a panic hook that restores the terminal.
    let outcome = ratatui::try_init().map_err(of_terminal).and_then(|mut terminal| {
        send_job_updates(sender.clone(), job, interval);
        send_keys(sender.clone());
        send_signals(sender, signals);
        show(&mut terminal, &mut screen, &events)
    });
    // Restoring fails only if there is no terminal any more.
    let _ = ratatui::try_restore();
    match outcome? {
        End::Asked => Ok(0),
        End::OfJob => Ok(print(&ended)),
        End::Signal(signal) => Ok(128 + signal.as_raw() as u8),
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    events: &Receiver<Event>,
) -> Result<End, String> {
    loop {
        terminal.draw(|frame| draw(frame, screen)).map_err(of_terminal)?;
        // The senders live until the process ends.
        let Ok(event) = events.recv() else { return Ok(End::Asked) };
        match event {
            Event::Looked(looked) => match looked? {
                Some(snapshot) => screen.show(View::between(&screen.view.snapshot, snapshot)),
                None => return Ok(End::OfJob),
            },
            Event::Typed(typed) => {
                if let Typed::Key(key) = typed.map_err(of_terminal)?
                    && screen.press(key).is_break()
                {
                    return Ok(End::Asked);
                }
            }
            Event::Signal(signal) => return Ok(End::Signal(signal)),
        }
    }
}

/// Sends updates of the job as events. A thread of its own waits for each update, since an answer can take a while and
/// keys must be handled meanwhile.
fn send_job_updates(to: Sender<Event>, job: RunningJob, interval: Duration) {
    spawn(move || {
        loop {
            #[expect(clippy::disallowed_methods, reason = "rates are over time")]
            thread::sleep(interval);
            let looked = job.look().map_err(|error| error.to_string());
            let is_over = !matches!(looked, Ok(Some(_)));
            if to.send(Event::Looked(looked)).is_err() || is_over {
                return;
            }
        }
    });
}

fn send_keys(to: Sender<Event>) {
    spawn(move || {
        loop {
            let typed = event::read();
            let is_over = typed.is_err();
            if to.send(Event::Typed(typed)).is_err() || is_over {
                return;
            }
        }
    });
}

/// Sends signals as events. If the process does not end soon after a signal, this thread ends it: the thread that draws
/// may be blocked by a terminal that accepts nothing, because its user has stopped it or its connection hangs.
fn send_signals(to: Sender<Event>, signals: SignalFd) {
    spawn(move || {
        loop {
            // The read below reports any error.
            let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
            let Ok(Some(signal)) = signals.read() else { continue };
            if to.send(Event::Signal(signal)).is_err() {
                return;
            }
            #[expect(clippy::disallowed_methods, reason = "nothing tells that a terminal will take no more")]
            thread::sleep(DRAWN_WITHIN);
            // No message is printed, because the terminal would not accept it.
            let _ = terminal::disable_raw_mode();
            std::process::exit(128 + signal.as_raw());
        }
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "keys, signals and looks are each waited for in a call of its own"
)]
fn spawn(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work);
}

/// Time for the last drawing and for restoring the terminal after a signal.
const DRAWN_WITHIN: Duration = Duration::from_secs(1);

fn of_terminal(error: io::Error) -> String {
    format!("the terminal: {error}")
}
