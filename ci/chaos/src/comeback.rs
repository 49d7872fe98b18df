//! Traffic of a job whose killed ranks are started again: each life of a rank is a peer of its own.
//!
//! Every message says which life sent it, and to which life. So it shows if a message of a life that is over meets a
//! receive that was posted for another, or reaches one that came after the life it was meant for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use samite::{Comm, Error, Request, Source, Tag, World};
use samite_fabric::SplitMix64;

use crate::content::{KIND_BITS, LAST, TRAFFIC};
use crate::report::Report;
use crate::watchdog::Watchdog;

/// One life of a rank, and its traffic with all others.
pub(crate) struct Comeback<'a> {
    world: &'a World,
    /// The same, where an operation may not take long.
    soon: Comm,
    watchdog: &'a Watchdog,
    life: u64,
    rng: SplitMix64,
    ways: BTreeMap<u32, Way>,
    sends: Vec<Request<u64>>,
    receives: Vec<Posted>,
    report: Report,
}

/// From here to another rank, and back.
#[derive(Debug, Default)]
struct Way {
    /// Messages begun.
    begun: u64,
    /// The sender's life and the number of the message received last.
    latest: Option<(u64, u64)>,
    /// The life that was sent the last message, and the one that sent its own.
    sent_last: Option<u64>,
    got_last: Option<u64>,
}

/// A receive from one rank, posted when that was in this life, as far as was known.
struct Posted {
    life: Option<u64>,
    request: Request<u64>,
}

const RECEIVES_MAX: usize = 4;
const SENDS_MAX: usize = 8;
/// Far above what it takes, and less than the driver's patience.
const SETTLE_MAX: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(2);
/// Words of a message: the longest takes the rendezvous.
const WORDS_MAX: u64 = 20_000;
const ANYTHING: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS) & !LAST);
const ANY_TRAFFIC: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS));
/// The words before those that follow from them.
const STAMP: usize = 3;

impl<'a> Comeback<'a> {
    pub(crate) fn new(world: &'a World, watchdog: &'a Watchdog, seed: u64) -> Result<Self, Error> {
        let life = u64::from(world.incarnation(world.rank())?.unwrap_or(0));
        let others = (0..world.size()).filter(|&peer| peer != world.rank());
        Ok(Self {
            world,
            soon: world.within(SOON),
            watchdog,
            life,
            rng: SplitMix64::new(seed ^ u64::from(world.rank()) << 40 ^ life << 20),
            ways: others.map(|peer| (peer, Way::default())).collect(),
            sends: Vec::new(),
            receives: Vec::new(),
            report: Report { rank: world.rank(), ..Report::default() },
        })
    }

    /// Does something, and looks at what has ended.
    pub(crate) fn step(&mut self) {
        let peer = self.any_peer();
        match self.rng.below(8) {
            0..=2 if self.sends.len() < SENDS_MAX => self.begin_send(peer),
            3 if self.receives.len() < RECEIVES_MAX => self.begin_receive(peer),
            4 => {
                // Until it is back, or not.
                self.watchdog.now(format_args!("awaiting {peer}"));
                let _ = self.world.await_return(peer, SOON);
            }
            5 => self.forget(),
            _ => {}
        }
        self.take_what_came();
        self.look();
    }

    /// Ends it, together with all others, none of which dies any more.
    pub(crate) fn settle(mut self) -> Report {
        self.watchdog.now(format_args!("ending its receives"));
        self.receives.iter().for_each(|posted| posted.request.cancel());
        let peers: Vec<u32> = self.ways.keys().copied().collect();
        let since = Instant::now();
        loop {
            self.take_what_came();
            self.look();
            for &peer in &peers {
                let life = self.life_of(peer);
                let way = &self.ways[&peer];
                if life.is_none() && way.got_last.is_none() {
                    // They may never have met, or it comes back.
                    self.watchdog.now(format_args!("awaiting {peer}, to settle"));
                    let _ = self.world.await_return(peer, SOON);
                }
                if life.is_some() && way.sent_last != life {
                    self.watchdog.now(format_args!("sending the last message to {peer}"));
                    let stamp = [self.life, life.unwrap_or(0), u64::MAX];
                    let is_sent = self.soon.send(&stamp, peer, LAST).is_ok();
                    self.ways.entry(peer).or_default().sent_last = life.filter(|_| is_sent);
                }
            }
            // Who was killed after it had got the last message needs it once more, in its next life.
            let is_done = |way: &Way| way.got_last.is_some() && way.sent_last == way.got_last;
            if self.ways.values().all(is_done) && self.sends.is_empty() && self.receives.is_empty() {
                return self.report;
            }
            if since.elapsed() > SETTLE_MAX {
                let missing: Vec<_> = self.ways.iter().filter(|(_, way)| !is_done(way)).collect();
                let (life, stats) = (self.life, self.world.stats().to_json());
                self.watchdog.give_up(format!("life {life} settles, without {missing:?}: {stats}"));
            }
        }
    }

    /// Which life of a rank takes part, if one does and that is known.
    fn life_of(&mut self, peer: u32) -> Option<u64> {
        match self.world.incarnation(peer) {
            Ok(life) => life.map(u64::from),
            Err(error) => {
                self.trouble(format!("the life of {peer} is told by {error}"));
                None
            }
        }
    }

    fn begin_send(&mut self, to: u32) {
        self.watchdog.now(format_args!("beginning to send to {to}"));
        let life = self.life_of(to);
        let number = self.ways[&to].begun;
        self.ways.entry(to).or_default().begun += 1;
        let words = if self.rng.below(8) == 0 { self.rng.below(WORDS_MAX) } else { self.rng.below(64) };
        let mut message = vec![self.life, life.unwrap_or(0), number];
        message.extend(filling(&message.clone(), words));
        match self.world.isend(message, to, number << KIND_BITS | TRAFFIC) {
            Ok(request) => self.sends.push(request),
            Err(failed) => self.failed(&failed.error),
        }
    }

    fn begin_receive(&mut self, from: u32) {
        self.watchdog.now(format_args!("beginning to receive from {from}"));
        let life = self.life_of(from);
        match self.world.irecv(vec![0; STAMP + WORDS_MAX as usize], from, ANY_TRAFFIC) {
            Ok(request) => self.receives.push(Posted { life, request }),
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
                    Ok((words, status)) if status.tag == LAST => self.took_last(status.source, &words),
                    Ok((words, status)) => {
                        self.check_order(status.source, &words);
                        self.took(status.source, None, &words);
                    }
                    Err(error) => self.failed(&error),
                },
                Ok(None) | Err(Error::Deserted) => return,
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn look(&mut self) {
        self.watchdog.now(format_args!("looking at what is under way"));
        for mut request in std::mem::take(&mut self.sends) {
            match request.is_done() {
                Ok(false) => self.sends.push(request),
                Ok(true) => match request.wait() {
                    Ok(_) => self.report.sent += 1,
                    Err(failed) => self.failed(&failed.error),
                },
                Err(error) => self.failed(&error),
            }
        }
        for mut posted in std::mem::take(&mut self.receives) {
            match posted.request.is_done() {
                Ok(false) => self.receives.push(posted),
                Ok(true) => match posted.request.wait() {
                    Ok(done) => {
                        let words = &done.buffer[..done.status.bytes / size_of::<u64>()];
                        self.took(done.status.source, posted.life, words);
                    }
                    Err(failed) => self.failed(&failed.error),
                },
                Err(error) => self.failed(&error),
            }
        }
    }

    /// A message of a rank, received by what was posted when that was in the life `expected`.
    fn took(&mut self, from: u32, expected: Option<u64>, words: &[u64]) {
        let Some((&[of, to, number], rest)) = words.split_first_chunk::<STAMP>() else {
            return self.trouble(format!("{} words from {from}", words.len()));
        };
        self.check_lives(from, of, to);
        if expected.is_some_and(|expected| expected != of) {
            self.trouble(format!(
                "a receive for life {expected:?} of {from} got message {number} of life {of}"
            ));
        }
        if !filling(&[of, to, number], rest.len() as u64).eq(rest.iter().copied()) {
            self.trouble(format!("wrong words in message {number} of life {of} of {from}"));
        }
        let way = self.ways.entry(from).or_default();
        way.latest = way.latest.max(Some((of, number)));
        self.report.received += 1;
        self.report.bytes += size_of_val(words) as u64;
    }

    /// A message claimed just now is of no earlier life than what came before. (What a posted receive has got may have
    /// waited there: this process may have been stopped, and finds all at once what several lives have sent.)
    fn check_order(&mut self, from: u32, words: &[u64]) {
        let latest = self.ways.entry(from).or_default().latest;
        if let (Some(&of), Some((life, _))) = (words.first(), latest)
            && of < life
        {
            self.trouble(format!("a message of life {of} of {from} was claimed after {latest:?}"));
        }
    }

    fn took_last(&mut self, from: u32, words: &[u64]) {
        match *words {
            [of, to, u64::MAX] => {
                self.check_lives(from, of, to);
                let way = self.ways.entry(from).or_default();
                way.got_last = way.got_last.max(Some(of));
            }
            _ => self.trouble(format!("the last message of {from} is {words:?}")),
        }
    }

    fn check_lives(&mut self, from: u32, of: u64, to: u64) {
        if of == 0 || (to != 0 && to != self.life) {
            self.trouble(format!("life {of} of {from} sent to life {to}, and it came to life {}", self.life));
        }
    }

    /// An operation ended with an error, which is one of those that may be.
    fn failed(&mut self, error: &Error) {
        self.report.errors += 1;
        let may_be = matches!(
            error,
            Error::PeerFailed { .. }
                | Error::FailurePending { .. }
                | Error::TimedOut { .. }
                | Error::Cancelled { .. }
                | Error::Abandoned { .. }
                | Error::Deserted
        );
        if !may_be {
            self.trouble(format!("an operation ended with: {error}"));
        }
    }

    fn trouble(&mut self, what: String) {
        self.report.troubles.push(what);
    }

    fn any_peer(&mut self) -> u32 {
        let (rank, size) = (self.world.rank(), self.world.size());
        (rank + 1 + self.rng.below(u64::from(size - 1)) as u32) % size
    }
}

/// So many words that follow from a stamp.
fn filling(stamp: &[u64], words: u64) -> impl Iterator<Item = u64> + use<> {
    let mut rng = SplitMix64::new(stamp.iter().fold(0, |sum, word| sum ^ word.wrapping_add(sum << 7)));
    (0..words).map(move |_| rng.next_u64())
}
