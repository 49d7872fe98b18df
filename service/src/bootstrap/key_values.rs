//! Joining a job under a launcher that offers only a key-value space: PMI and PMIx.
//!
//! Each rank publishes one [`Entry`]. Then all ranks wait for each other once, in the launcher's fence. Later a rank's
//! entry is fetched before the first message to that rank. So a start-up costs each rank the same few messages to its
//! launcher, for any number of ranks.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::rand::{GetRandomFlags, getrandom};
use samite_control::{Place, Secret};
use samite_fabric::Address;
use samite_os::alarm::Alarm;
use samite_os::process;

use super::Refusal;
use super::entry::Entry;
use crate::runtime::{Directory, Notice};

/// A launcher with a key-value space for the ranks of a job. Its calls wait for the launcher's answers.
pub(crate) trait KeyValues: Send {
    /// Returns the launcher's name for users.
    fn launcher(&self) -> &'static str;

    /// Publishes this rank's entry, and waits until every rank has published its own.
    fn exchange(&mut self, entry: &str) -> Result<(), KeyValuesError>;

    /// Returns the entry of a rank, after the exchange.
    fn entry(&mut self, rank: u32) -> Result<String, KeyValuesError>;

    /// Returns a descriptor that reports the end of the connection to the launcher, or `None` if there is no such
    /// descriptor.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Reports to the launcher that this process ends in good order.
    fn leave(&mut self);
}

pub(crate) type KeyValuesError = Box<dyn Error + Send + Sync>;

/// A process that knows its rank from its launcher, and has not joined yet.
pub(crate) struct Candidate {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) place: Place,
    pub(crate) values: Box<dyn KeyValues>,
}

impl Candidate {
    /// Publishes this rank's address, and waits for all others to do the same. Returns the job's
    /// secret, and the directory of the other ranks.
    ///
    /// # Errors
    /// [`Refusal::Exchange`], [`Refusal::Stranger`], [`Refusal::Sizes`] and [`Refusal::System`].
    pub(crate) fn join(mut self, address: &Address) -> Result<(Secret, KeyValuesDirectory), Refusal> {
        let launcher = self.values.launcher();
        let failed = |source| Refusal::Exchange { launcher, source };
        let mut secret = Secret([0; 16]);
        if self.rank == 0 {
            getrandom(&mut secret.0, GetRandomFlags::empty()).map_err(io::Error::from)?;
        }
        let here = process::Place::current().and_then(|place| Ok((place, process::Process::current()?))).ok();
        let entry = Entry {
            size: self.size,
            secret: (self.rank == 0).then_some(secret),
            process: here,
            address: address.0.clone(),
        };
        self.values.exchange(&entry.to_string()).map_err(failed)?;
        let of_0 = self.values.entry(0).map_err(failed)?;
        let stranger = Refusal::Stranger { launcher, rank: 0 };
        let Ok(Entry { size, secret: Some(secret), .. }) = of_0.parse() else { return Err(stranger) };
        if size != self.size {
            return Err(Refusal::Sizes { launcher, ours: self.size, theirs: size });
        }
        let directory = KeyValuesDirectory::new(self.values, secret, here.map(|(place, _)| place))?;
        Ok((secret, directory))
    }
}

/// A directory of the other ranks. Addresses come from the launcher. The kernel reports the end of a rank's process if
/// this rank has requested that rank's address, the process runs on this host in the same pid namespace, and the kernel
/// has pidfd_open(2) (Linux 5.3). The end of another process is noticed only by the transport, or because the launcher
/// ends the job.
pub(crate) struct KeyValuesDirectory {
    /// `None` when this rank has left, or the launcher is gone.
    clerk: Option<Clerk>,
    /// A copy of the descriptor of the connection to the launcher. `None` if the connection is not known, or has ended.
    line: Option<OwnedFd>,
    secret: Secret,
    here: Option<process::Place>,
    /// Readable when the launcher has answered or is gone, or a process has ended.
    watch: OwnedFd,
    /// The watched processes, by rank.
    processes: Vec<(u32, OwnedFd)>,
    news: VecDeque<Notice>,
}

impl KeyValuesDirectory {
    fn new(values: Box<dyn KeyValues>, secret: Secret, here: Option<process::Place>) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let line = values.descriptor().map(|line| line.try_clone_to_owned()).transpose()?;
        if let Some(line) = &line {
            // The clerk thread reads the connection. This registration only detects the end of the connection.
            epoll::add(&watch, line, epoll::EventData::new_u64(LAUNCHER), epoll::EventFlags::RDHUP)?;
        }
        let clerk = Clerk::start(values)?;
        epoll::add(&watch, &*clerk.bell, epoll::EventData::new_u64(CLERK), epoll::EventFlags::IN)?;
        let (processes, news) = (Vec::new(), VecDeque::new());
        Ok(Self { clerk: Some(clerk), line, secret, here, watch, processes, news })
    }

    /// Returns the notice for the launcher's answer.
    fn notice(&mut self, rank: u32, answer: Result<Entry, String>) -> Notice {
        match answer {
            Ok(entry) if self.watch_over(rank, &entry) => {
                self.failed(rank, "its process has ended".to_owned())
            }
            Ok(Entry { address, .. }) => {
                let incarnation = self.secret.first_incarnation(rank);
                Notice::Address { rank, incarnation, address: Address(address) }
            }
            Err(why) => self.failed(rank, format!("it cannot be found: {why}")),
        }
    }

    /// Watches a rank's process, if it is on this host and in the same pid namespace, and the kernel supports that.
    /// Returns true if the process has ended already.
    fn watch_over(&mut self, rank: u32, entry: &Entry) -> bool {
        let Some((place, process)) = entry.process else { return false };
        if self.here != Some(place) || self.processes.iter().any(|&(watched, _)| watched == rank) {
            return false;
        }
        let Ok(descriptor) = process.end() else { return !process.is_alive() };
        let data = epoll::EventData::new_u64(rank.into());
        if epoll::add(&self.watch, &descriptor, data, epoll::EventFlags::IN).is_ok() {
            self.processes.push((rank, descriptor));
        }
        false
    }

    fn failed(&self, rank: u32, how: String) -> Notice {
        let incarnation = self.secret.first_incarnation(rank);
        Notice::Failed { rank, incarnation, how, returns: false }
    }

    fn listen(&mut self) {
        let mut events = Vec::with_capacity(8);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.watch, spare_capacity(&mut events), Some(&at_once)).is_err() {
            return;
        }
        for event in events {
            match event.data.u64() {
                LAUNCHER => {
                    self.clerk = None;
                    if let Some(line) = self.line.take() {
                        // The inherited descriptor of this connection may stay open. The registration would then
                        // outlive the drop of `line`, which is a copy (epoll(7)), so it is deleted.
                        let _ = epoll::delete(&self.watch, line);
                    }
                    let why = "the launcher that started it is gone".to_owned();
                    self.news.push_back(Notice::Condemned { why });
                }
                CLERK => {
                    let answers = self.clerk.iter().flat_map(Clerk::answers).collect::<Vec<_>>();
                    for (rank, answer) in answers {
                        let notice = self.notice(rank, answer);
                        self.news.push_back(notice);
                    }
                }
                rank => {
                    self.processes.retain(|&(watched, _)| u64::from(watched) != rank);
                    let ended = self.failed(rank as u32, "its process ended".to_owned());
                    self.news.push_back(ended);
                }
            }
        }
    }
}

impl Directory for KeyValuesDirectory {
    fn request_address(&mut self, rank: u32) {
        if !self.clerk.as_ref().is_some_and(|clerk| clerk.ask(rank)) {
            let notice = self.notice(rank, Err("the launcher that knew it is gone".to_owned()));
            self.news.push_back(notice);
        }
    }

    fn poll(&mut self) -> Option<Notice> {
        if self.news.is_empty() {
            self.listen();
        }
        self.news.pop_front()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn leave(&mut self) {
        self.line = None;
        if let Some(mut values) = self.clerk.take().and_then(Clerk::end) {
            values.leave();
        }
    }

    fn panicked(&mut self) {
        // Leaving is skipped on purpose: the launcher then ends the job when this process ends.
        (self.line, self.clerk) = (None, None);
    }
}

/// A thread that asks the launcher for entries and waits for the answers. An answer may take long, and an operation
/// that needs the answer must still end at its deadline.
struct Clerk {
    questions: mpsc::Sender<u32>,
    answers: mpsc::Receiver<(u32, Result<Entry, String>)>,
    /// Rings when there is an answer.
    bell: Arc<Alarm>,
    thread: JoinHandle<Box<dyn KeyValues>>,
}

impl Clerk {
    fn start(mut values: Box<dyn KeyValues>) -> io::Result<Self> {
        let (questions, asked) = mpsc::channel::<u32>();
        let (tell, answers) = mpsc::channel();
        let bell = Arc::new(Alarm::new()?);
        let ring = Arc::clone(&bell);
        let thread = thread::Builder::new().name("samite-clerk".to_owned()).spawn(move || {
            for rank in asked {
                let entry = values.entry(rank).map_err(|error| error.to_string()).and_then(|text| {
                    let stranger = "its entry is not of samite, or of another release";
                    text.parse().map_err(|_| stranger.to_owned())
                });
                if tell.send((rank, entry)).is_err() {
                    break;
                }
                ring.ring();
            }
            values
        })?;
        Ok(Self { questions, answers, bell, thread })
    }

    /// Asks for the entry of a rank. Returns false if the thread has ended.
    fn ask(&self, rank: u32) -> bool {
        self.questions.send(rank).is_ok()
    }

    fn answers(&self) -> impl Iterator<Item = (u32, Result<Entry, String>)> {
        // The bell is reset before the answers are taken. An answer that arrives after the reset rings the bell again,
        // so it is not missed.
        self.bell.silence();
        self.answers.try_iter()
    }

    /// Ends the thread after it has answered all questions, and returns the launcher. Returns `None` if the thread has
    /// panicked.
    fn end(self) -> Option<Box<dyn KeyValues>> {
        drop(self.questions);
        self.thread.join().ok()
    }
}

/// The epoll number of the connection to the launcher. No rank has this number.
const LAUNCHER: u64 = u64::MAX;
/// The epoll number of the clerk's alarm. No rank has this number.
const CLERK: u64 = u64::MAX - 1;
