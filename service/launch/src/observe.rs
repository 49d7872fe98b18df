//! Observation of a running job: the reports of its ranks, and the socket at which an observer can get them.
//!
//! The coordinator of each job listens at a socket that only the job's user can access. When an observer connects, the
//! coordinator asks the ranks for their activity, and sends the observer one line of JSON, a [`Snapshot`]. A rank
//! answers when it next waits or polls. For a rank that has not answered in time, the snapshot contains its last report
//! and the age of that report.

use std::borrow::Cow;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use samite_control::printable::one_line;
use samite_control::{Channel, Ending, Figures, Incoming, JobId};
use serde::{Deserialize, Serialize};

use super::place::{Place, candidates};
use super::wait::{Interest, wait};

/// A job at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The job's name.
    pub job: JobId,
    /// The process id of the job's `samite run`.
    pub pid: u32,
    /// The program and its arguments.
    pub program: String,
    /// The transport that was selected for the ranks; `None` if each rank chooses.
    pub transport: Option<String>,
    /// Time since the job was started, in milliseconds.
    pub age_ms: u64,
    /// The job's ranks, in order.
    pub ranks: Vec<RankView>,
}

/// The state of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankView {
    /// The rank.
    pub rank: u32,
    /// The name that the user gave the rank's host; `None` if all ranks are on the host of `samite run` and the user
    /// named no hosts.
    pub host: Option<String>,
    /// The number of the rank's process, counted from 1. A restart increases it by one.
    pub incarnation: u32,
    /// True if the rank's process is stopped, for example by SIGSTOP.
    pub is_stopped: bool,
    /// The way in which the rank ended, if it has ended.
    pub ending: Option<Ending>,
    /// The rank's last report; `None` if it has not reported.
    pub figures: Option<Figures>,
    /// True if the figures are the rank's answer to this request. Otherwise they are older, because the rank makes no
    /// calls or has ended.
    pub is_answer: bool,
    /// The age of the figures in milliseconds. If the rank has ended, it is their age at that time.
    pub figures_age_ms: u64,
}

/// The reason why a job cannot be observed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The job's socket is there, but its `samite run` does not answer.
    #[error("job {job} does not answer ({source}): check whether its `samite run` is stopped")]
    Silent {
        /// The job.
        job: String,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is malformed.
    #[error("job {job} was started by another version of samite, whose answer cannot be read ({}): use the `samite` that started it", one_line(&source.to_string()))]
    Foreign {
        /// The job.
        job: String,
        /// The defect.
        source: serde_json::Error,
    },
    /// The job's answer exceeds the limit.
    #[error(
        "job {job} answers more than {ANSWER_BYTES_MAX} bytes, so its socket is not that of a `samite run`: ignore it"
    )]
    Endless {
        /// The job.
        job: String,
    },
    /// A directory in which jobs are looked for can be accessed by other users.
    #[error("{0}; jobs in it are not shown")]
    Unsafe(String),
}

/// A running job on this host, of this user.
#[derive(Debug, Clone)]
pub struct RunningJob {
    /// The job's name.
    pub job: JobId,
    place: Arc<Place>,
    socket: PathBuf,
}

/// Returns the jobs of this user whose `samite run` runs on this host, in the order of their names. Removes the sockets
/// of jobs whose `samite run` was killed. Skips the directories that [`unsafe_places`] returns.
#[must_use]
pub fn running_jobs() -> Vec<RunningJob> {
    let mut jobs = Vec::new();
    for place in candidates().iter().filter_map(|path| Place::open(path).ok().flatten()) {
        let place = Arc::new(place);
        let entries = fs::read_dir(place.path()).into_iter().flatten().flatten();
        jobs.extend(entries.filter_map(|entry| RunningJob::at(&place, entry.file_name().into())));
    }
    jobs.sort_by_key(|job| job.job.to_string());
    jobs
}

/// Returns the directories in which [`running_jobs`] does not look for jobs because other users could have written
/// there, each with the reason. A job whose socket is in such a directory is not listed.
#[must_use]
pub fn unsafe_places() -> Vec<ObserveError> {
    let untrusted = candidates().into_iter().filter_map(|path| Place::open(&path).err());
    untrusted.map(|untrusted| ObserveError::Unsafe(untrusted.to_string())).collect()
}

impl RunningJob {
    fn at(place: &Arc<Place>, socket: PathBuf) -> Option<RunningJob> {
        let job = socket.file_stem()?.to_str()?.parse().ok()?;
        if socket.extension()? != EXTENSION {
            return None;
        }
        // A socket gets its name only when a process already listens. So if a socket refuses, its process has ended.
        match place.connect(&socket) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(place.path().join(socket));
                None
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => None,
            _ => Some(RunningJob { job, place: place.clone(), socket }),
        }
    }

    /// Asks the job for its present state, and returns it, or `None` if the job has ended meanwhile. In all text,
    /// control characters for terminals are escaped, as in `\u{1b}`.
    ///
    /// # Errors
    /// [`ObserveError`].
    pub fn look(&self) -> Result<Option<Snapshot>, ObserveError> {
        let job = || self.job.to_string();
        let mut line = Vec::new();
        let read = self.place.connect(&self.socket).and_then(|stream| read_line(stream, &mut line));
        match read {
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                return Err(ObserveError::Endless { job: job() });
            }
            Err(source) if source.kind() != ErrorKind::ConnectionReset => {
                return Err(ObserveError::Silent { job: job(), source });
            }
            _ if line.is_empty() => return Ok(None),
            _ => {}
        }
        match serde_json::from_slice::<Snapshot>(&line) {
            Ok(snapshot) => Ok(Some(snapshot.printable())),
            Err(source) => Err(ObserveError::Foreign { job: job(), source }),
        }
    }
}

/// Reads until the end of a line, or of the stream, for a limited time.
///
/// # Errors
/// `TimedOut` if the bytes do not arrive in time, `FileTooLarge` if the line is longer than [`ANSWER_BYTES_MAX`], and
/// the errors of read(2).
fn read_line(mut stream: UnixStream, line: &mut Vec<u8>) -> io::Result<()> {
    let deadline = Instant::now() + LOOK_MAX;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).min(SILENCE_MAX);
        if left.is_zero() || wait(vec![Interest::read((), &stream)], Some(left))?.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
        let count = match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error),
        };
        let end = chunk[..count].iter().position(|&byte| byte == b'\n');
        line.extend_from_slice(&chunk[..end.unwrap_or(count)]);
        if end.is_some() {
            return Ok(());
        }
        if line.len() > ANSWER_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
}

impl Snapshot {
    /// Returns the same snapshot with control characters for terminals escaped in all text.
    fn printable(mut self) -> Snapshot {
        let replace = |text: &mut String| {
            if let Cow::Owned(replaced) = one_line(text) {
                *text = replaced;
            }
        };
        replace(&mut self.program);
        self.transport.iter_mut().for_each(replace);
        for rank in &mut self.ranks {
            rank.host.iter_mut().for_each(replace);
            if let Some(Ending::Lost { host, how }) = &mut rank.ending {
                [host, how].into_iter().for_each(replace);
            }
            let awaits = rank.figures.as_mut().and_then(|figures| figures.awaits.as_mut());
            awaits.into_iter().for_each(|awaits| replace(&mut awaits.awaited));
        }
        self
    }
}

/// The server at which a job's state can be requested.
#[derive(Debug)]
pub(super) struct StatusServer {
    listener: UnixListener,
    path: PathBuf,
    visitors: Vec<Visitor>,
    /// Until this time no observer is accepted, because the system failed to accept one.
    shut_until: Option<Instant>,
}

/// An observer.
#[derive(Debug)]
struct Visitor {
    channel: Channel,
    came: Instant,
    is_answered: bool,
}

impl StatusServer {
    /// Opens the job's socket, which is removed when the value is dropped.
    ///
    /// # Errors
    /// If the socket cannot be made in any of the [`candidates`]. The error is that of the last candidate.
    pub(super) fn open(job: JobId) -> io::Result<StatusServer> {
        let mut failed = ErrorKind::NotFound.into();
        for directory in candidates() {
            match Place::make(&directory).and_then(|_| StatusServer::open_in(&directory, job)) {
                Ok(server) => return Ok(server),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn open_in(directory: &Path, job: JobId) -> io::Result<StatusServer> {
        let unnamed = directory.join(format!(".{job}"));
        let path = directory.join(job.to_string()).with_extension(EXTENSION);
        let listener = UnixListener::bind(&unnamed)?;
        let mut server = StatusServer { listener, path: unnamed, visitors: Vec::new(), shut_until: None };
        fs::set_permissions(&server.path, fs::Permissions::from_mode(0o600))?;
        server.listener.set_nonblocking(true)?;
        fs::rename(&server.path, &path)?;
        server.path = path;
        Ok(server)
    }

    /// Returns the listening socket, unless no observer can be accepted before [`shut_until`](Self::shut_until).
    pub(super) fn socket(&self) -> Option<&UnixListener> {
        self.shut_until.is_none().then_some(&self.listener)
    }

    /// Returns the time at which [`admit`](Self::admit) is due even if no descriptor is readable.
    pub(super) fn shut_until(&self) -> Option<Instant> {
        self.shut_until
    }

    /// Returns the connections to read from, and to write to if they are backed up.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Channel> {
        self.visitors.iter().map(|visitor| &visitor.channel)
    }

    /// Accepts observers. Returns true if at least one observer was accepted.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        let before = self.visitors.len();
        self.shut_until = self.shut_until.filter(|&until| now < until);
        // Accept a bounded number in one turn, since others may connect as fast as connections are accepted.
        for _ in 0..VISITORS_MAX {
            if self.shut_until.is_some() {
                break;
            }
            match self.listener.accept() {
                Ok((connection, _)) if may_look(&connection) => {
                    let channel = Channel::new(connection);
                    self.visitors.push(Visitor { channel, came: now, is_answered: false });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // For example, the process has no descriptor left. The system does not report when a descriptor is free
                // again, and until then the socket stays readable, which would keep this process busy.
                Err(_) => self.shut_until = Some(now + SHUT_FOR),
            }
        }
        // If there are too many observers, drop the observers that have waited longest.
        let over = self.visitors.len().saturating_sub(VISITORS_MAX);
        self.visitors.drain(..over);
        self.visitors.len() + over > before
    }

    /// Returns the time at which the observer connected that has waited longest for an answer; `None` if no observer
    /// waits.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.visitors.iter().filter(|visitor| !visitor.is_answered).map(|visitor| visitor.came).min()
    }

    /// Answers the observers that connected at or before `until`. Removes observers that have received their answer, or
    /// that are gone.
    pub(super) fn serve(&mut self, until: Instant, snapshot: impl FnOnce(Instant) -> Snapshot) {
        if let Some(since) = self.waiting_since().filter(|since| *since <= until) {
            let snapshot = snapshot(since);
            for visitor in self.visitors.iter_mut().filter(|visitor| !visitor.is_answered) {
                if visitor.came <= until {
                    visitor.is_answered = true;
                    // If the message cannot be sent, the connection is found closed below.
                    let _ = visitor.channel.send(&snapshot);
                }
            }
        }
        self.visitors.retain_mut(|visitor| {
            visitor.channel.flush();
            let is_there = matches!(visitor.channel.receive::<()>(), Ok(Incoming::Nothing));
            is_there && (!visitor.is_answered || visitor.channel.is_backed_up())
        });
    }
}

/// Returns true if the other side is this user, or root.
fn may_look(connection: &UnixStream) -> bool {
    socket_peercred(connection).is_ok_and(|peer| peer.uid == getuid() || peer.uid.is_root())
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The state of all ranks, as far as the coordinator knows it.
#[derive(Debug)]
pub(super) struct JobStatus {
    job: JobId,
    program: String,
    transport: Option<String>,
    started: Instant,
    ranks: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    host: Option<String>,
    incarnation: u32,
    is_stopped: bool,
    ending: Option<Ending>,
    ended: Option<Instant>,
    report: Option<(Figures, Instant)>,
}

impl Entry {
    fn new(host: Option<String>, incarnation: u32) -> Entry {
        Entry { host, incarnation, is_stopped: false, ending: None, ended: None, report: None }
    }

    fn has_reported(&self, since: Instant) -> bool {
        self.report.as_ref().is_some_and(|(_, time)| *time >= since)
    }
}

impl JobStatus {
    /// Returns the state of a job that has just started. `hosts` are the hosts of its ranks, in the order of the ranks.
    pub(super) fn new(
        job: JobId,
        program: String,
        transport: Option<String>,
        hosts: impl Iterator<Item = Option<String>>,
    ) -> JobStatus {
        let ranks = hosts.map(|host| Entry::new(host, 1)).collect();
        JobStatus { job, program, transport, started: Instant::now(), ranks }
    }

    pub(super) fn note_figures(&mut self, rank: u32, figures: Figures) {
        if let Some(entry) = self.ranks.get_mut(rank as usize) {
            entry.report = Some((figures, Instant::now()));
        }
    }

    pub(super) fn stop(&mut self, rank: u32, is_stopped: bool) {
        if let Some(entry) = self.ranks.get_mut(rank as usize) {
            entry.is_stopped = is_stopped;
        }
    }

    /// Notes the end of a rank. Only the first report of an end counts, with one exception: the report of a failure
    /// replaces the report that the rank has left.
    pub(super) fn end(&mut self, rank: u32, ending: Ending) {
        if let Some(entry) = self.ranks.get_mut(rank as usize)
            && entry.ending.as_ref().is_none_or(|ending| *ending == Ending::Left)
        {
            entry.ended.get_or_insert_with(Instant::now);
            entry.ending = Some(ending);
        }
    }

    /// Notes that a rank has failed and is restarted.
    pub(super) fn restart(&mut self, rank: u32) {
        if let Some(entry) = self.ranks.get_mut(rank as usize) {
            *entry = Entry::new(entry.host.take(), entry.incarnation + 1);
        }
    }

    /// Returns how often a rank was restarted.
    pub(super) fn restarts(&self, rank: u32) -> u32 {
        self.ranks.get(rank as usize).map_or(0, |entry| entry.incarnation - 1)
    }

    /// Returns true if all ranks that have not ended have reported their activity since `since`.
    pub(super) fn is_complete(&self, since: Instant) -> bool {
        self.ranks.iter().all(|entry| entry.ending.is_some() || entry.has_reported(since))
    }

    /// Returns the present state. `asked` is the time at which the ranks were last asked for reports.
    pub(super) fn snapshot(&self, asked: Instant) -> Snapshot {
        let now = Instant::now();
        let ms = |time: Duration| time.as_millis() as u64;
        let ranks = (0..).zip(&self.ranks).map(|(rank, entry)| RankView {
            rank,
            host: entry.host.clone(),
            incarnation: entry.incarnation,
            is_stopped: entry.is_stopped,
            ending: entry.ending.clone(),
            figures: entry.report.as_ref().map(|(figures, _)| figures.clone()),
            is_answer: entry.has_reported(asked),
            figures_age_ms: entry
                .report
                .as_ref()
                .map_or(0, |(_, time)| ms(entry.ended.unwrap_or(now).saturating_duration_since(*time))),
        });
        Snapshot {
            job: self.job,
            pid: std::process::id(),
            program: self.program.clone(),
            transport: self.transport.clone(),
            age_ms: ms(now.duration_since(self.started)),
            ranks: ranks.collect(),
        }
    }
}

/// The longest time that the coordinator waits for the ranks' reports before it answers an observer. Ranks that wait
/// report within a millisecond; ranks that compute report only when they make a call.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(100);

/// The longest time that an observer waits for the next bytes of an answer.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The longest time that an observer waits for a whole answer.
const LOOK_MAX: Duration = Duration::from_secs(4);

/// The longest answer, in bytes: many times the length of the answer for the largest job.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The pause after the system failed to accept an observer.
const SHUT_FOR: Duration = Duration::from_millis(100);

/// Largest number of observers at a time.
const VISITORS_MAX: usize = 64;

const EXTENSION: &str = "sock";
