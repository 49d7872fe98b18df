//! Repeated operations of a communicator: a persistent send, a persistent receive, and a partitioned send and receive
//! between neighbours.

use std::collections::BTreeMap;
use std::time::Instant;

use samite::{
    Comm, Error, PartitionedRecv, PartitionedSend, PersistentRecv, PersistentSend, Rank, Source, Tag,
};
use samite_fabric::SplitMix64;

use super::channel::{Ends, KIND_BITS, PARTITIONED, ROUND, in_some_mode};
use super::{BOUND, SLACK, number_of};
use crate::content::{BYTES_MAX, Message};
use crate::report::Report;

/// The repeated operations of one communicator.
pub(super) struct Rounds {
    comm: Comm,
    send: Option<PersistentSend<Vec<u8>>>,
    /// The receiver of the persistent send.
    to: Rank,
    /// The number of messages that persistent sends have begun to send.
    sent: u64,
    receive: Option<PersistentRecv<Vec<u8>>>,
    /// The number of the latest message from each rank.
    last: BTreeMap<Rank, u64>,
    marking: Option<Marking>,
    arriving: Option<Arriving>,
    /// The time at which the latest round began or ended, or at which an active partitioned receive was last tested.
    since: Instant,
}

/// A partitioned send to a neighbour.
struct Marking {
    send: PartitionedSend<u64>,
    to: Rank,
    round: u64,
    is_active: bool,
    /// The partitions that are not marked yet.
    left: Vec<usize>,
}

/// A partitioned receive from a neighbour.
struct Arriving {
    receive: PartitionedRecv<u64>,
    from: Rank,
    round: u64,
    is_active: bool,
}

/// Bytes of the number at the start of each message of a persistent send.
const HEAD: usize = size_of::<u64>();
/// The counts of partitions that the rounds use. Each divides [`WORDS`].
const CUTS: [usize; 6] = [1, 2, 3, 4, 6, 8];
const WORDS: usize = 24 * 100;
const ANY_ROUND: Tag = Tag::masked(ROUND, !(!0 << KIND_BITS));

impl Rounds {
    pub(super) fn new(comm: &Comm, ends: &mut Ends, report: &mut Report) -> Self {
        let (rank, size) = (comm.rank().0, comm.size());
        // Each rank sends to its neighbour; in an intercommunicator, to the rank with the same number in the other
        // group.
        let (to, from, is_paired) = match comm.remote_size() {
            Some(remote) => (Rank(rank), Rank(rank), rank < remote),
            None => (Rank((rank + 1) % size), Rank((rank + size - 1) % size), size > 1),
        };
        let tag = ends.tag(PARTITIONED, 0);
        let cut = |salt| CUTS[(number_of(&[ends.id, salt]) % CUTS.len() as u64) as usize];
        let words = WORDS * (1 + (ends.id % 8) as usize);
        let send = is_paired.then(|| comm.psend_init(vec![0; words], cut(1), to, tag));
        let receive = is_paired.then(|| comm.precv_init(vec![0; words], cut(2), from, tag));
        let mut taken = |error: &Error| ends.handled.returned(error, report);
        let send = send.and_then(|send| send.inspect_err(|failed| taken(&failed.error)).ok());
        let receive = receive.and_then(|receive| receive.inspect_err(|failed| taken(&failed.error)).ok());
        Self {
            comm: comm.clone(),
            send: None,
            to: Rank(0),
            sent: 0,
            receive: None,
            last: BTreeMap::new(),
            marking: send.map(|send| Marking { send, to, round: 0, is_active: false, left: Vec::new() }),
            arriving: receive.map(|receive| Arriving { receive, from, round: 0, is_active: false }),
            since: Instant::now(),
        }
    }

    /// Begins a round of one of the operations, or goes on with it.
    pub(super) fn step(&mut self, rng: &mut SplitMix64, ends: &mut Ends, report: &mut Report) {
        match rng.below(12) {
            0 => self.begin_send(rng, ends, report),
            1 => self.begin_receive(rng, ends, report),
            2 => self.begin_marking(rng, ends, report),
            3 => self.begin_arriving(ends, report),
            4 if rng.below(20) == 0 => self.cancel(),
            5..=8 => self.mark(rng, ends, report),
            _ => {}
        }
    }

    pub(super) fn cancel(&mut self) {
        self.send.iter().for_each(PersistentSend::cancel);
        self.receive.iter().for_each(PersistentRecv::cancel);
        self.marking.iter().for_each(|marking| marking.send.cancel());
        self.arriving.iter().for_each(|arriving| arriving.receive.cancel());
    }

    pub(super) fn are_active(&self) -> bool {
        self.send.as_ref().is_some_and(PersistentSend::is_active)
            || self.receive.as_ref().is_some_and(PersistentRecv::is_active)
            || self.marking.as_ref().is_some_and(|marking| marking.is_active)
            || self.arriving.as_ref().is_some_and(|arriving| arriving.is_active)
    }

    /// Checks the rounds under way.
    pub(super) fn look(&mut self, ends: &mut Ends, report: &mut Report) {
        self.look_at_persistent(ends, report);
        if let Some(marking) = self.marking.as_mut().filter(|marking| marking.is_active)
            && let Some(end) = marking.send.test()
        {
            self.since = Instant::now();
            (marking.is_active, marking.round) = (false, marking.round + 1);
            if let Err(error) = end {
                ends.handled.returned(&error, report);
                self.marking = None;
            }
        }
        if let Some(arriving) = self.arriving.as_mut().filter(|arriving| arriving.is_active) {
            self.since = Instant::now();
            match arriving.look(ends, report) {
                None => {}
                Some(Ok(())) => (arriving.is_active, arriving.round) = (false, arriving.round + 1),
                Some(Err(error)) => {
                    ends.handled.returned(&error, report);
                    self.arriving = None;
                }
            }
        }
        if self.are_active() && self.since.elapsed() > BOUND + SLACK {
            report.troubles.push(format!("rounds in communicator {:x} do not end", ends.id));
            (self.send, self.receive, self.marking, self.arriving) = (None, None, None, None);
        }
    }

    fn look_at_persistent(&mut self, ends: &mut Ends, report: &mut Report) {
        if let Some(send) = self.send.as_mut().filter(|send| send.is_active())
            && let Some(end) = send.test()
        {
            self.since = Instant::now();
            report.sent += u64::from(end.is_ok());
            if let Err(error) = end {
                ends.handled.returned(&error, report);
                self.send = None;
            }
        }
        if let Some(receive) = self.receive.as_mut().filter(|receive| receive.is_active())
            && let Some(end) = receive.test()
        {
            match end {
                Ok(status) => {
                    self.since = Instant::now();
                    let bytes = receive.buffer().ok().and_then(|buffer| buffer.get(..status.bytes));
                    let bytes = bytes.unwrap_or_default().to_vec();
                    self.check(status.peer, &bytes, ends, report);
                }
                Err(error) => {
                    ends.handled.returned(&error, report);
                    // After a report that a rank has failed the round goes on. Other errors end it, and the network may
                    // keep its buffer.
                    if !receive.is_active() {
                        self.receive = None;
                    }
                }
            }
        }
    }

    fn begin_send(&mut self, rng: &mut SplitMix64, ends: &mut Ends, report: &mut Report) {
        if self.send.is_none() {
            self.to = Rank(rng.below(ends.peers.len() as u64) as u32);
            let tag = ends.tag(ROUND, 0);
            match in_some_mode(&self.comm, rng).send_init(Vec::new(), self.to, tag) {
                Ok(send) => self.send = Some(send),
                Err(error) => return ends.handled.returned(&error, report),
            }
        }
        if let Some(send) = self.send.as_mut().filter(|send| !send.is_active()) {
            self.sent += 1;
            self.since = Instant::now();
            let to = ends.peers[self.to.index()];
            let message = Message { seed: !ends.id, from: ends.me, to, number: self.sent };
            let bytes = [&self.sent.to_le_bytes()[..], &message.bytes()].concat();
            if let Err(error) = send.replace_buffer(bytes).and_then(|_| send.start()) {
                ends.handled.returned(&error, report);
                self.send = None;
            }
        }
    }

    fn begin_receive(&mut self, rng: &mut SplitMix64, ends: &mut Ends, report: &mut Report) {
        if self.receive.is_none() {
            let source = match rng.below(2) {
                0 => Source::ANY,
                _ => Rank(rng.below(ends.peers.len() as u64) as u32).into(),
            };
            match self.comm.recv_init(vec![0; HEAD + BYTES_MAX], source, ANY_ROUND) {
                Ok(receive) => self.receive = Some(receive),
                Err(error) => return ends.handled.returned(&error, report),
            }
        }
        if let Some(receive) = self.receive.as_mut().filter(|receive| !receive.is_active()) {
            self.since = Instant::now();
            if let Err(error) = receive.start() {
                ends.handled.returned(&error, report);
                self.receive = None;
            }
        }
    }

    /// Checks a message of a persistent send.
    fn check(&mut self, from: Rank, bytes: &[u8], ends: &Ends, report: &mut Report) {
        report.received += 1;
        report.bytes += bytes.len() as u64;
        let Some((number, bytes)) = bytes.split_first_chunk::<HEAD>() else {
            return report.troubles.push(format!(
                "communicator {:x}: a round of {} bytes",
                ends.id,
                bytes.len()
            ));
        };
        let number = u64::from_le_bytes(*number);
        let sender = ends.peers.get(from.index()).copied().unwrap_or(u32::MAX);
        let message = Message { seed: !ends.id, from: sender, to: ends.me, number };
        let last = self.last.insert(from, number).unwrap_or(0);
        if bytes != message.bytes() || number <= last {
            report
                .troubles
                .push(format!("communicator {:x}: wrong round after {last}: {message:?}", ends.id));
        }
    }

    fn begin_marking(&mut self, rng: &mut SplitMix64, ends: &mut Ends, report: &mut Report) {
        let Some(marking) = self.marking.as_mut().filter(|marking| !marking.is_active) else { return };
        self.since = Instant::now();
        match marking.send.start() {
            Ok(()) => {
                marking.is_active = true;
                marking.left = (0..marking.send.partitions()).collect();
                let first = rng.below(marking.left.len() as u64) as usize;
                marking.left.rotate_left(first);
            }
            Err(error) => {
                ends.handled.returned(&error, report);
                self.marking = None;
            }
        }
    }

    fn begin_arriving(&mut self, ends: &mut Ends, report: &mut Report) {
        let Some(arriving) = self.arriving.as_mut().filter(|arriving| !arriving.is_active) else { return };
        self.since = Instant::now();
        match arriving.receive.start() {
            Ok(()) => arriving.is_active = true,
            Err(error) => {
                ends.handled.returned(&error, report);
                self.arriving = None;
            }
        }
    }

    /// Marks one partition, or all that are left, each in a thread.
    fn mark(&mut self, rng: &mut SplitMix64, ends: &mut Ends, report: &mut Report) {
        let Some(marking) = self.marking.as_mut().filter(|marking| marking.is_active) else { return };
        let count = if rng.below(4) == 0 { marking.left.len() } else { 1 };
        let way = number_of(&[ends.id, ends.me.into(), ends.peers[marking.to.index()].into(), marking.round]);
        let (left, send) = (&mut marking.left, &marking.send);
        let marked = std::thread::scope(|threads| {
            for index in left.drain(left.len().saturating_sub(count)..) {
                let mut part = send.part(index)?;
                let write = move || {
                    let first = index * part.len();
                    part.iter_mut().zip(first..).for_each(|(word, at)| *word = way.wrapping_add(at as u64));
                    part.ready();
                };
                if count == 1 {
                    write();
                } else {
                    threads.spawn(write);
                }
            }
            Ok::<(), Error>(())
        });
        if let Err(error) = marked {
            ends.handled.returned(&error, report);
        }
    }
}

impl Arriving {
    /// Checks the partitions that have arrived. Returns the result of the round if it has ended.
    fn look(&mut self, ends: &mut Ends, report: &mut Report) -> Option<Result<(), Error>> {
        let from = ends.peers[self.from.index()];
        let way = number_of(&[ends.id, from.into(), ends.me.into(), self.round]);
        let is_right = |words: &[u64], first: usize| {
            words.iter().zip(first..).all(|(&word, at)| word == way.wrapping_add(at as u64))
        };
        let mut wrong = Vec::new();
        for index in 0..self.receive.partitions() {
            if let Ok(Some(words)) = self.receive.partition(index)
                && !is_right(words, index * words.len())
            {
                wrong.push(index);
            }
        }
        let end = self.receive.test()?;
        if end.is_ok() && !self.receive.buffer_mut().is_ok_and(|words| is_right(words, 0)) {
            wrong.push(usize::MAX);
        }
        if !wrong.is_empty() {
            let (id, round) = (ends.id, self.round);
            report
                .troubles
                .push(format!("communicator {id:x}: round {round} from {from}: wrong partitions {wrong:?}"));
        }
        Some(end.map(|_| ()))
    }
}
