//! One derived communicator and its messages, in all modes and by all kinds of calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use samite::{Comm, Done, Error, Failed, Layout, Mode, Rank, Request, Source, Status, Tag};
use samite_fabric::SplitMix64;

use super::creation::Plan;
use super::handled::Handled;
use super::rounds::Rounds;
use super::tasks::Tasks;
use super::{BOUND, SLACK, SOON};
use crate::content::{BYTES_MAX, Message};
use crate::report::Report;
use crate::watchdog::Watchdog;

/// A communicator and its operations under way.
pub(super) struct Channel {
    /// A handle whose errors are counted.
    comm: Comm,
    /// Such a handle with a short time-out.
    soon: Comm,
    ends: Ends,
    sends: Vec<(Instant, Request<Vec<u8>>)>,
    receives: Vec<(Instant, u64, Request<Vec<u8>>)>,
    tasks: Tasks<Ended>,
    /// The results of ended operations that were passed to a function ([`Request::on_end`]).
    called: Arc<Mutex<Vec<Ended>>>,
    /// The number of operations whose result will be passed to a function, or is still in `called`.
    calls: usize,
    /// The time at which the latest of these operations began.
    called_at: Instant,
    rounds: Rounds,
    /// Number of sends begun, by the receiver's rank in the communicator.
    begun: Vec<u64>,
    places: u64,
    depth: u32,
    /// Number of communicators whose creation from this one has begun.
    children: u64,
    steps: u32,
}

/// The results of the operations of a communicator.
pub(super) struct Ends {
    /// The number of the communicator.
    pub(super) id: u64,
    /// This rank's number in the job.
    pub(super) me: u32,
    /// The numbers in the job of the ranks with which this rank exchanges messages, by their rank in the communicator.
    pub(super) peers: Vec<u32>,
    pub(super) handled: Handled,
    /// For each receive that got a message: the sender, and the number of the message. The key is the receive's number
    /// in the order of all receives.
    got: BTreeMap<u64, (u32, u64)>,
}

/// The result of an operation.
enum Ended {
    Sent(Result<(), Error>),
    Got(u64, Result<(Status, Vec<u8>), Error>),
}

/// The number of bits of a tag that hold the kind of message. The next [`ID_BITS`] hold a part of the communicator's
/// number, and the others the message's number.
pub(super) const KIND_BITS: u32 = 8;
const ID_BITS: u32 = 16;
const TRAFFIC: u64 = 0;
pub(super) const ROUND: u64 = 1;
pub(super) const PARTITIONED: u64 = 2;
const ANY_TRAFFIC: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS));

/// The largest number of operations of each kind.
const SENDS_MAX: usize = 6;
const RECEIVES_MAX: usize = 6;
const TASKS_MAX: usize = 4;
/// Bytes in the buffer of a buffered send. Some messages do not fit.
const BUFFER: usize = 100_000;
/// Number of steps after which a rank may close a communicator.
const OLD: u32 = 60;
/// The largest number of communicators that are created from one communicator.
const CHILDREN_MAX: u64 = 2;

impl Channel {
    pub(super) fn new(comm: Comm, id: u64, depth: u32, report: &mut Report) -> Self {
        let handled = Handled::default();
        let comm = handled.handle(&comm.with_timeout(BOUND));
        let me = comm.group().rank(comm.rank().0).map_or(u32::MAX, u32::from);
        let peers: Vec<u32> =
            comm.remote_group().unwrap_or_else(|| comm.group()).iter().map(u32::from).collect();
        let begun = vec![0; peers.len()];
        let mut ends = Ends { id, me, peers, handled, got: BTreeMap::new() };
        Self {
            soon: comm.with_timeout(SOON),
            sends: Vec::new(),
            receives: Vec::new(),
            tasks: Tasks::default(),
            called: Arc::default(),
            calls: 0,
            called_at: Instant::now(),
            rounds: Rounds::new(&comm, &mut ends, report),
            begun,
            ends,
            comm,
            places: 0,
            depth,
            children: 0,
            steps: 0,
        }
    }

    /// Does one random action and checks the operations that have ended.
    pub(super) fn step(&mut self, rng: &mut SplitMix64, watchdog: &Watchdog, report: &mut Report) {
        self.steps += 1;
        let source = match rng.below(3) {
            0 => self.any_peer(rng).into(),
            _ => Source::ANY,
        };
        let action = rng.below(20);
        watchdog.now(format_args!("communicator {:x}: action {action}, source {source:?}", self.ends.id));
        match action {
            0 => self.send(rng, report),
            1 | 2 if self.sends.len() < SENDS_MAX => self.begin_send(rng, report),
            3 | 4 if self.receives.len() < RECEIVES_MAX => self.begin_receive(source, report),
            5 => self.receive(source, report),
            6 => self.claim(source, report),
            7 => self.exchange(rng, source, report),
            8 => self.send_layout(rng, report),
            9 => self.receive_layout(source, report),
            10 => self.cancel(rng),
            11 => self.forget(rng),
            12 | 13 if self.tasks.len() < TASKS_MAX => self.spawn(rng, source, report),
            14 => self.sleep(SOON),
            15 if self.calls < TASKS_MAX => self.begin_call(rng, source, report),
            16 => self.replace(rng, source, report),
            17 => {
                if let Err(error) = self.soon.flush_buffer() {
                    self.ends.handled.returned(&error, report);
                }
            }
            _ => {}
        }
        self.rounds.step(rng, &mut self.ends, report);
        watchdog.now(format_args!("communicator {:x}: taking what came", self.ends.id));
        self.take_what_came(report);
        self.look(report);
    }

    /// Decides at random if a communicator is created from this one now, and returns its plan.
    pub(super) fn next_child(&mut self, rng: &mut SplitMix64, depth_max: u32) -> Option<Plan> {
        if self.depth >= depth_max || self.children >= CHILDREN_MAX || rng.below(8) > 0 {
            return None;
        }
        self.children += 1;
        Some(Plan::child(&self.comm, self.ends.id, self.children, self.depth + 1))
    }

    pub(super) fn is_old(&self) -> bool {
        self.steps >= OLD
    }

    /// Cancels all operations.
    pub(super) fn cancel_all(&mut self) {
        self.sends.iter().for_each(|(_, send)| send.cancel());
        self.receives.iter().for_each(|(.., receive)| receive.cancel());
        self.rounds.cancel();
    }

    /// Returns true if no operation is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.sends.is_empty()
            && self.receives.is_empty()
            && self.tasks.len() == 0
            && self.calls == 0
            && !self.rounds.are_active()
    }

    /// Sleeps until a future is woken, or for `time`. Only the runtime's thread makes progress meanwhile.
    pub(super) fn sleep(&self, time: Duration) {
        self.tasks.sleep(time);
    }

    /// Drops the communicator with all that is under way.
    pub(super) fn close(self, report: &mut Report) {
        self.ends.check_order(report);
        if self.calls == 0 {
            self.ends.handled.check(report, "a communicator");
        }
    }

    fn send(&mut self, rng: &mut SplitMix64, report: &mut Report) {
        let (to, tag, bytes) = self.next_message(rng);
        let result = in_some_mode(&self.soon, rng).send(&bytes, to, tag);
        self.ends.sent(result, report);
    }

    fn begin_send(&mut self, rng: &mut SplitMix64, report: &mut Report) {
        let (to, tag, bytes) = self.next_message(rng);
        match in_some_mode(self.bounded(rng), rng).isend(bytes, to, tag) {
            Ok(request) => self.sends.push((Instant::now(), request)),
            Err(failed) => self.ends.sent(Err(failed.error), report),
        }
    }

    fn receive(&mut self, source: Source, report: &mut Report) {
        let (place, mut buffer) = (self.place(), vec![0; BYTES_MAX]);
        let result = self.soon.recv(&mut buffer, source, ANY_TRAFFIC);
        self.ends.got(place, result.map(|status| (status, buffer)), report);
    }

    fn begin_receive(&mut self, source: Source, report: &mut Report) {
        let place = self.place();
        match self.comm.irecv(vec![0; BYTES_MAX], source, ANY_TRAFFIC) {
            Ok(request) => self.receives.push((Instant::now(), place, request)),
            Err(failed) => self.ends.got(place, Err(failed.error), report),
        }
    }

    fn claim(&mut self, source: Source, report: &mut Report) {
        let place = self.place();
        let claimed = self.soon.claim(source, ANY_TRAFFIC).and_then(|message| message.recv());
        self.ends.got(place, claimed.map(taken), report);
    }

    fn exchange(&mut self, rng: &mut SplitMix64, source: Source, report: &mut Report) {
        let ((to, tag, bytes), place, mut buffer) =
            (self.next_message(rng), self.place(), vec![0; BYTES_MAX]);
        let result = self.soon.sendrecv(&bytes, to, tag, &mut buffer, source, ANY_TRAFFIC);
        // The error does not say if the send or the receive failed.
        self.ends.got(place, result.map(|status| (status, buffer)), report);
    }

    fn replace(&mut self, rng: &mut SplitMix64, source: Source, report: &mut Report) {
        let ((to, tag, mut bytes), place) = (self.next_message(rng), self.place());
        bytes.resize(BYTES_MAX, 0);
        // The sent message has the length of the buffer, so it is as long as the longest message.
        let result = self.soon.sendrecv_replace(&mut bytes, to, tag, source, ANY_TRAFFIC);
        self.ends.got(place, result.map(|status| (status, bytes)), report);
    }

    /// Sends a message that lies in every second byte of a buffer.
    fn send_layout(&mut self, rng: &mut SplitMix64, report: &mut Report) {
        let (to, tag, bytes) = self.next_message(rng);
        let spread: Vec<u8> = bytes.iter().flat_map(|&byte| [byte, !byte]).collect();
        let layout = Layout::<u8>::vector(bytes.len(), 1, 2).expect("it fits");
        let result = layout
            .of(&spread)
            .map_err(Error::from)
            .and_then(|view| in_some_mode(&self.soon, rng).send_view(view, to, tag));
        self.ends.sent(result, report);
    }

    /// Receives into every second byte of a buffer.
    fn receive_layout(&mut self, source: Source, report: &mut Report) {
        const GAP: u8 = 0x5a;
        let (place, mut buffer) = (self.place(), vec![GAP; 2 * BYTES_MAX]);
        let layout = Layout::<u8>::vector(BYTES_MAX, 1, 2).expect("it fits");
        let result = layout
            .of_mut(&mut buffer)
            .map_err(Error::from)
            .and_then(|mut view| self.soon.recv_view(&mut view, source, ANY_TRAFFIC));
        if buffer.iter().skip(1).step_by(2).any(|&byte| byte != GAP) {
            report.troubles.push(format!("a receive wrote into the gaps of its layout: {result:?}"));
        }
        let result = result.map(|status| (status, buffer.into_iter().step_by(2).collect()));
        self.ends.got(place, result, report);
    }

    fn cancel(&mut self, rng: &mut SplitMix64) {
        let which = rng.next_u64() as usize;
        match rng.below(2) {
            0 if !self.sends.is_empty() => self.sends[which % self.sends.len()].1.cancel(),
            _ if !self.receives.is_empty() => self.receives[which % self.receives.len()].2.cancel(),
            _ => {}
        }
    }

    fn forget(&mut self, rng: &mut SplitMix64) {
        let which = rng.next_u64();
        match rng.below(3) {
            0 if !self.sends.is_empty() => {
                drop(self.sends.swap_remove(which as usize % self.sends.len()));
            }
            1 if !self.receives.is_empty() => {
                drop(self.receives.swap_remove(which as usize % self.receives.len()));
            }
            _ => self.tasks.drop_one(which),
        }
    }

    /// Spawns a future that sends, receives, or claims.
    fn spawn(&mut self, rng: &mut SplitMix64, source: Source, report: &mut Report) {
        let comm = self.bounded(rng).clone();
        match rng.below(3) {
            0 => {
                let (to, tag, bytes) = self.next_message(rng);
                match in_some_mode(&comm, rng).isend(bytes, to, tag) {
                    Ok(request) => self.tasks.spawn(async { Ended::sent(request.await) }),
                    Err(failed) => self.ends.sent(Err(failed.error), report),
                }
            }
            1 => {
                let place = self.place();
                match comm.irecv(vec![0; BYTES_MAX], source, ANY_TRAFFIC) {
                    Ok(request) => self.tasks.spawn(async move { Ended::got(place, request.await) }),
                    Err(failed) => self.ends.got(place, Err(failed.error), report),
                }
            }
            _ => self.tasks.spawn(async move {
                // A receive that is posted before this claim ends may get a later message or an earlier one. So the
                // claim takes no part in the order of receives.
                let claimed = comm.claim_async(source, ANY_TRAFFIC).await;
                Ended::Got(UNORDERED, claimed.and_then(|message| message.recv()).map(taken))
            }),
        }
    }

    /// Begins an operation whose result is passed to a function.
    fn begin_call(&mut self, rng: &mut SplitMix64, source: Source, report: &mut Report) {
        let called = Arc::clone(&self.called);
        let push = move |ended| called.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        if rng.below(2) == 0 {
            let (to, tag, bytes) = self.next_message(rng);
            match in_some_mode(&self.comm, rng).isend(bytes, to, tag) {
                Ok(request) => request.on_end(move |end| push(Ended::sent(end))),
                Err(failed) => return self.ends.sent(Err(failed.error), report),
            }
        } else {
            let place = self.place();
            match self.comm.irecv(vec![0; BYTES_MAX], source, ANY_TRAFFIC) {
                Ok(request) => request.on_end(move |end| push(Ended::got(place, end))),
                Err(failed) => return self.ends.got(place, Err(failed.error), report),
            }
        }
        self.calls += 1;
        self.called_at = Instant::now();
    }

    /// Receives waiting messages, so that their number stays bounded.
    fn take_what_came(&mut self, report: &mut Report) {
        for _ in 0..2 {
            match self.soon.try_claim(Source::ANY, ANY_TRAFFIC) {
                Ok(Some(message)) => {
                    let place = self.place();
                    self.ends.got(place, message.recv().map(taken), report);
                }
                Ok(None) => return,
                Err(error) => return self.ends.handled.returned(&error, report),
            }
        }
    }

    /// Checks the operations under way.
    pub(super) fn look(&mut self, report: &mut Report) {
        self.rounds.look(&mut self.ends, report);
        for (since, mut request) in std::mem::take(&mut self.sends) {
            match request.test() {
                None => self.sends.push((since, request)),
                Some(end) => self.ends.sent(end.map(|_| ()).map_err(|failed| failed.error), report),
            }
        }
        for (since, place, mut request) in std::mem::take(&mut self.receives) {
            match request.test() {
                None => self.receives.push((since, place, request)),
                Some(Err(Failed { error: error @ Error::FailurePending { .. }, .. })) => {
                    self.ends.handled.returned(&error, report);
                    self.receives.push((since, place, request));
                }
                Some(end) => self.ends.got(place, end.map(taken).map_err(|failed| failed.error), report),
            }
        }
        let called = std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner));
        self.calls -= called.len();
        for ended in self.tasks.run().into_iter().chain(called) {
            match ended {
                Ended::Sent(result) => self.ends.sent(result, report),
                Ended::Got(place, result) => self.ends.got(place, result, report),
            }
        }
        self.check_bounds(report);
    }

    /// Checks that no operation exceeds its bound.
    fn check_bounds(&mut self, report: &mut Report) {
        let sends = self.sends.iter().map(|(since, _)| since.elapsed());
        let receives = self.receives.iter().map(|(since, ..)| since.elapsed());
        let calls = (self.calls > 0).then(|| self.called_at.elapsed());
        let oldest = sends.chain(receives).chain(self.tasks.age()).chain(calls).max();
        if let Some(age) = oldest.filter(|age| *age > BOUND + SLACK) {
            report.troubles.push(format!(
                "an operation in communicator {:x} has not ended after {age:?}: {} sends, {} receives, {} futures, {} calls",
                self.ends.id,
                self.sends.len(),
                self.receives.len(),
                self.tasks.len(),
                self.calls
            ));
            self.sends.clear();
            self.receives.clear();
            self.tasks = Tasks::default();
            self.called = Arc::default();
            self.calls = 0;
        }
    }

    fn next_message(&mut self, rng: &mut SplitMix64) -> (Rank, u64, Vec<u8>) {
        let to = self.any_peer(rng);
        let number = self.begun[to.index()];
        self.begun[to.index()] += 1;
        let message =
            Message { seed: self.ends.id, from: self.ends.me, to: self.ends.peers[to.index()], number };
        (to, self.ends.tag(TRAFFIC, number), message.bytes())
    }

    fn place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    fn bounded(&self, rng: &mut SplitMix64) -> &Comm {
        if rng.below(4) == 0 { &self.soon } else { &self.comm }
    }

    fn any_peer(&self, rng: &mut SplitMix64) -> Rank {
        Rank(rng.below(self.ends.peers.len() as u64) as u32)
    }
}

/// The place of a receive that does not take part in the order of receives.
const UNORDERED: u64 = u64::MAX;

pub(super) fn in_some_mode(comm: &Comm, rng: &mut SplitMix64) -> Comm {
    match rng.below(8) {
        0 | 1 => comm.with_mode(Mode::Synchronous),
        2 => comm.with_mode(Mode::Buffered),
        3 => comm.with_buffer(BUFFER).with_mode(Mode::Buffered),
        4 => comm.with_mode(Mode::Ready),
        _ => comm.clone(),
    }
}

fn taken(done: Done<Vec<u8>>) -> (Status, Vec<u8>) {
    (done.status, done.buffer)
}

impl Ended {
    fn sent(end: Result<Done<Vec<u8>>, Failed<Vec<u8>>>) -> Self {
        Self::Sent(end.map(|_| ()).map_err(|failed| failed.error))
    }

    fn got(place: u64, end: Result<Done<Vec<u8>>, Failed<Vec<u8>>>) -> Self {
        Self::Got(place, end.map(taken).map_err(|failed| failed.error))
    }
}

impl Ends {
    pub(super) fn tag(&self, kind: u64, number: u64) -> u64 {
        (number << ID_BITS | self.id & !(!0 << ID_BITS)) << KIND_BITS | kind
    }

    fn sent(&mut self, result: Result<(), Error>, report: &mut Report) {
        match result {
            Ok(()) => report.sent += 1,
            Err(error) => self.handled.returned(&error, report),
        }
    }

    /// Checks a received message, and notes its order.
    fn got(&mut self, place: u64, result: Result<(Status, Vec<u8>), Error>, report: &mut Report) {
        let (status, buffer) = match result {
            Ok(got) => got,
            Err(error) => return self.handled.returned(&error, report),
        };
        let number = status.tag >> (ID_BITS + KIND_BITS);
        let from = self.peers.get(status.peer.index()).copied();
        let message = Message { seed: self.id, from: from.unwrap_or(u32::MAX), to: self.me, number };
        let is_right = status.tag == self.tag(TRAFFIC, number)
            && buffer.get(..status.bytes).is_some_and(|got| is_padded(got, &message.bytes()));
        if !is_right {
            report
                .troubles
                .push(format!("communicator {:x}: wrong message: {status:?} for {message:?}", self.id));
        }
        if place != UNORDERED {
            self.got.insert(place, (message.from, number));
        }
        report.received += 1;
        report.bytes += status.bytes as u64;
    }

    /// Checks that later receives got later messages.
    fn check_order(&self, report: &mut Report) {
        let mut last = BTreeMap::new();
        for (place, &(from, number)) in &self.got {
            if let Some(before) = last.insert(from, number).filter(|&before| before >= number) {
                report.troubles.push(format!(
                    "communicator {:x}: receive {place} got message {number} of {from} after {before}",
                    self.id
                ));
            }
        }
    }
}

/// Returns true if `got` is the message, or the message filled up with zeros to the largest length.
fn is_padded(got: &[u8], message: &[u8]) -> bool {
    got == message
        || got.len() == BYTES_MAX
            && got.starts_with(message)
            && got[message.len()..].iter().all(|&byte| byte == 0)
}
