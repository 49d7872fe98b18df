//! Traffic of a job whose killed ranks are restarted. Each incarnation of a rank is a peer of its own.
//!
//! Every message carries the incarnations of its sender and of its receiver. A check fails if a message of an earlier
//! incarnation of the sender matches a receive that was posted for a later one, or if a message reaches another
//! incarnation of the receiver than the one to which it was sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use samite::{Comm, Done, Error, Rank, Request, Source, Tag};
use samite_fabric::SplitMix64;

use crate::content::{KIND_BITS, LAST, TRAFFIC};
use crate::report::{Calls, Report};
use crate::watchdog::Watchdog;

/// One incarnation of a rank, and its traffic with all other ranks.
pub(crate) struct RestartTraffic<'a> {
    world: &'a Comm,
    /// The same communicator with a short time-out.
    soon: Comm,
    watchdog: &'a Watchdog,
    incarnation: u64,
    rng: SplitMix64,
    exchanges: BTreeMap<u32, Exchange>,
    sends: Vec<Request<Vec<u64>>>,
    receives: Vec<Posted>,
    report: Report,
}

/// The traffic between this rank and another rank, in both directions.
#[derive(Debug, Default)]
struct Exchange {
    /// Number of sends started.
    begun: u64,
    /// The latest of the received messages: the sender's incarnation, and the number of the message.
    latest: Option<(u64, u64)>,
    /// The peer's incarnation to which this rank has sent its last message.
    sent_last: Option<u64>,
    /// The peer's incarnation whose last message this rank has received.
    got_last: Option<u64>,
}

/// A receive from one rank, and the incarnation that the rank had when the receive was posted, if that is known.
struct Posted {
    incarnation: Option<u64>,
    request: Request<Vec<u64>>,
}

const RECEIVES_MAX: usize = 4;
const SENDS_MAX: usize = 8;
/// The time limit for finishing the traffic. It is much more time than a rank needs for that, and less than the driver
/// waits.
const SETTLE_MAX: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(2);
/// The length of the longest message in words. Messages of this length are sent by rendezvous.
const WORDS_MAX: u64 = 20_000;
const ANYTHING: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS) & !LAST);
const ANY_TRAFFIC: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS));
/// Number of words at the start of a message from which the remaining words are computed.
const STAMP: usize = 3;

impl<'a> RestartTraffic<'a> {
    pub(crate) fn new(world: &'a Comm, watchdog: &'a Watchdog, seed: u64) -> Result<Self, Error> {
        let incarnation = u64::from(world.incarnation(world.rank())?.unwrap_or(0));
        let others = (0..world.size()).filter(|&peer| peer != world.rank());
        Ok(Self {
            world,
            soon: world.with_timeout(SOON),
            watchdog,
            incarnation,
            rng: SplitMix64::new(seed ^ u64::from(world.rank().0) << 40 ^ incarnation << 20),
            exchanges: others.map(|peer| (peer, Exchange::default())).collect(),
            sends: Vec::new(),
            receives: Vec::new(),
            report: Report { rank: world.rank().0, ..Report::default() },
        })
    }

    /// Does one random action and checks the operations that have ended.
    pub(crate) fn step(&mut self) {
        let peer = self.any_peer();
        match self.rng.below(8) {
            0..=2 if self.sends.len() < SENDS_MAX => self.begin_send(peer),
            3 if self.receives.len() < RECEIVES_MAX => self.begin_receive(peer),
            4 => {
                // Waits until the peer has restarted, or the time is over.
                self.watchdog.now(format_args!("awaiting {peer}"));
                let _ = self.world.wait_for_restart(Rank(peer), SOON);
            }
            5 => self.forget(),
            _ => {}
        }
        self.take_what_came();
        self.look();
    }

    /// Finishes the traffic together with all other ranks. No rank is killed any more.
    pub(crate) fn settle(mut self) -> Report {
        self.watchdog.now(format_args!("ending its receives"));
        self.receives.iter().for_each(|posted| posted.request.cancel());
        let peers: Vec<u32> = self.exchanges.keys().copied().collect();
        let since = Instant::now();
        loop {
            self.take_what_came();
            self.look();
            for &peer in &peers {
                let incarnation = self.incarnation_of(peer);
                let exchange = &self.exchanges[&peer];
                if incarnation.is_none() && exchange.got_last.is_none() {
                    // The incarnation is not known if the two ranks have never communicated, or if the peer restarts.
                    self.watchdog.now(format_args!("awaiting {peer}, to settle"));
                    let _ = self.world.wait_for_restart(Rank(peer), SOON);
                }
                if incarnation.is_some() && exchange.sent_last != incarnation {
                    self.watchdog.now(format_args!("sending the last message to {peer}"));
                    let stamp = [self.incarnation, incarnation.unwrap_or(0), u64::MAX];
                    let is_sent = self.soon.send(&stamp, Rank(peer), LAST).is_ok();
                    self.exchanges.entry(peer).or_default().sent_last = incarnation.filter(|_| is_sent);
                }
            }
            // A peer that was killed after it had received the last message needs that message again in its next
            // incarnation.
            let is_done =
                |exchange: &Exchange| exchange.got_last.is_some() && exchange.sent_last == exchange.got_last;
            if self.exchanges.values().all(is_done) && self.sends.is_empty() && self.receives.is_empty() {
                return self.report;
            }
            if since.elapsed() > SETTLE_MAX {
                let missing: Vec<_> =
                    self.exchanges.iter().filter(|(_, exchange)| !is_done(exchange)).collect();
                let (incarnation, stats) = (self.incarnation, self.world.stats().to_json());
                self.watchdog
                    .give_up(format!("incarnation {incarnation} settles, without {missing:?}: {stats}"));
            }
        }
    }

    /// Returns a rank's incarnation if the rank takes part and its incarnation is known.
    fn incarnation_of(&mut self, peer: u32) -> Option<u64> {
        match self.world.incarnation(Rank(peer)) {
            Ok(incarnation) => incarnation.map(u64::from),
            Err(error) => {
                self.trouble(format!("the incarnation of {peer} is told by {error}"));
                None
            }
        }
    }

    fn begin_send(&mut self, to: u32) {
        self.watchdog.now(format_args!("beginning to send to {to}"));
        let incarnation = self.incarnation_of(to);
        let number = self.exchanges[&to].begun;
        self.exchanges.entry(to).or_default().begun += 1;
        let words = if self.rng.below(8) == 0 { self.rng.below(WORDS_MAX) } else { self.rng.below(64) };
        let mut message = vec![self.incarnation, incarnation.unwrap_or(0), number];
        message.extend(filling(&message.clone(), words));
        match self.world.isend(message, Rank(to), number << KIND_BITS | TRAFFIC) {
            Ok(request) => self.sends.push(request),
            Err(failed) => self.failed(&failed.error),
        }
    }

    fn begin_receive(&mut self, from: u32) {
        self.watchdog.now(format_args!("beginning to receive from {from}"));
        let incarnation = self.incarnation_of(from);
        match self.world.irecv(vec![0; STAMP + WORDS_MAX as usize], Rank(from), ANY_TRAFFIC) {
            Ok(request) => self.receives.push(Posted { incarnation, request }),
            Err(failed) => self.failed(&failed.error),
        }
    }

    fn forget(&mut self) {
        let choice = self.rng.next_u64() as usize;
        if !self.receives.is_empty() {
            self.receives.swap_remove(choice % self.receives.len());
        }
    }

    fn take_what_came(&mut self) {
        loop {
            self.watchdog.now(format_args!("taking what came"));
            match self.soon.try_claim(Source::ANY, ANYTHING) {
                Ok(Some(message)) => match message.recv::<u64>() {
                    Ok(Done { buffer, status }) if status.tag == LAST => {
                        self.took_last(status.peer.0, &buffer);
                    }
                    Ok(Done { buffer, status }) => {
                        self.check_order(status.peer.0, &buffer);
                        self.took(status.peer.0, None, &buffer);
                    }
                    Err(error) => self.failed(&error),
                },
                Ok(None) | Err(Error::Deserted) => return,
                Err(error) => return self.failed(&error),
            }
        }
    }

    pub(crate) fn look(&mut self) {
        self.watchdog.now(format_args!("looking at what is under way"));
        for mut request in std::mem::take(&mut self.sends) {
            match request.test() {
                None => self.sends.push(request),
                Some(Ok(_)) => self.report.sent += 1,
                Some(Err(failed)) => self.failed(&failed.error),
            }
        }
        for mut posted in std::mem::take(&mut self.receives) {
            match posted.request.test() {
                None => self.receives.push(posted),
                Some(Ok(done)) => {
                    let words = &done.buffer[..done.status.bytes / size_of::<u64>()];
                    self.took(done.status.peer.0, posted.incarnation, words);
                }
                Some(Err(failed)) => self.failed(&failed.error),
            }
        }
    }

    /// Handles a message from a rank, received by an operation posted when the rank's incarnation was `expected`.
    fn took(&mut self, from: u32, expected: Option<u64>, words: &[u64]) {
        let Some((&[of, to, number], rest)) = words.split_first_chunk::<STAMP>() else {
            return self.trouble(format!("{} words from {from}", words.len()));
        };
        self.check_lives(from, of, to);
        if expected.is_some_and(|expected| expected != of) {
            self.trouble(format!(
                "a receive for incarnation {expected:?} of {from} got message {number} of incarnation {of}"
            ));
        }
        if !filling(&[of, to, number], rest.len() as u64).eq(rest.iter().copied()) {
            self.trouble(format!("wrong words in message {number} of incarnation {of} of {from}"));
        }
        let exchange = self.exchanges.entry(from).or_default();
        exchange.latest = exchange.latest.max(Some((of, number)));
        self.report.received += 1;
        self.report.bytes += size_of_val(words) as u64;
    }

    /// Checks that a message claimed just now is not of an earlier incarnation than a message that was received before.
    /// (The message of a posted receive is not checked: this process may have been stopped, and find messages of
    /// several incarnations together.)
    fn check_order(&mut self, from: u32, words: &[u64]) {
        let latest = self.exchanges.entry(from).or_default().latest;
        if let (Some(&of), Some((incarnation, _))) = (words.first(), latest)
            && of < incarnation
        {
            self.trouble(format!("a message of incarnation {of} of {from} was claimed after {latest:?}"));
        }
    }

    fn took_last(&mut self, from: u32, words: &[u64]) {
        match *words {
            [of, to, u64::MAX] => {
                self.check_lives(from, of, to);
                let exchange = self.exchanges.entry(from).or_default();
                exchange.got_last = exchange.got_last.max(Some(of));
            }
            _ => self.trouble(format!("the last message of {from} is {words:?}")),
        }
    }

    fn check_lives(&mut self, from: u32, of: u64, to: u64) {
        if of == 0 || (to != 0 && to != self.incarnation) {
            self.trouble(format!(
                "incarnation {of} of {from} sent to incarnation {to}, and it came to incarnation {}",
                self.incarnation
            ));
        }
    }

    /// Checks that an operation failed with a permitted error.
    fn failed(&mut self, error: &Error) {
        self.report.failed(error, Calls::Standard);
    }

    fn trouble(&mut self, what: String) {
        self.report.troubles.push(what);
    }

    fn any_peer(&mut self) -> u32 {
        let (rank, size) = (self.world.rank(), self.world.size());
        (rank.0 + 1 + self.rng.below(u64::from(size - 1)) as u32) % size
    }
}

/// Returns the `words` words that follow a stamp.
fn filling(stamp: &[u64], words: u64) -> impl Iterator<Item = u64> + use<> {
    let mut rng = SplitMix64::new(stamp.iter().fold(0, |sum, word| sum ^ word.wrapping_add(sum << 7)));
    (0..words).map(move |_| rng.next_u64())
}
