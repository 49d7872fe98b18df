//! All kinds of traffic, with checks of its properties.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use samite::{Awaited, Cause, Comm, Done, Error, Failed, Fate, Rank, Request, Source, Status, Tag};
use samite_fabric::SplitMix64;

use crate::content::{BYTES_MAX, KIND_BITS, LAST, Message, NEVER_SENT, TRAFFIC};
use crate::report::{Calls, Report, Verdict, now_ns};
use crate::watchdog::Watchdog;

/// One rank's traffic with all other ranks.
pub(crate) struct Traffic<'a> {
    world: &'a Comm,
    /// The same communicator with a short time-out.
    soon: Comm,
    watchdog: &'a Watchdog,
    seed: u64,
    rng: SplitMix64,
    sends: Vec<(u32, Request<Vec<u8>>)>,
    /// Receives under way, each with its number in the order of all receives.
    receives: Vec<(usize, Request<Vec<u8>>)>,
    /// By rank: a receive that ends only when that rank ends.
    sentinels: BTreeMap<u32, Request<Vec<u8>>>,
    /// The time at which the sentinels were last tested.
    watched_ns: u64,
    exchanges: BTreeMap<u32, Exchange>,
    /// The sender and the number of the message that a receive got. The key is the receive's number, as in `receives`;
    /// failed receives have no entry.
    got: BTreeMap<usize, (u32, u64)>,
    places: usize,
    /// Number of receives that may have matched a message which this rank then did not get.
    lost: u64,
    report: Report,
}

/// The traffic between this rank and another rank, in both directions.
#[derive(Debug, Default)]
struct Exchange {
    /// Number of sends started.
    begun: u64,
    /// Number of sends that succeeded.
    arrived: u64,
    /// Number of sends that ended with an error and may have been delivered.
    unknown: u64,
    /// Number of messages received.
    received: u64,
    /// The counts in the peer's last message: how many of the peer's sends to this rank succeeded, and how many have an
    /// unknown result.
    told: Option<(u64, u64)>,
    has_left: bool,
}

const RECEIVES_MAX: usize = 5;
const SENDS_MAX: usize = 8;
const SOON: Duration = Duration::from_millis(2);
const WATCH_EVERY_NS: u64 = 500_000;
/// Matches traffic and the last message after it.
const ANYTHING: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS) & !LAST);
const ANY_TRAFFIC: Tag = Tag::masked(TRAFFIC, !(!0 << KIND_BITS));

impl<'a> Traffic<'a> {
    pub(crate) fn new(world: &'a Comm, watchdog: &'a Watchdog, seed: u64) -> Self {
        let mut traffic = Self {
            world,
            soon: world.with_timeout(SOON),
            watchdog,
            seed,
            rng: SplitMix64::new(seed ^ u64::from(world.rank().0).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            sends: Vec::new(),
            receives: Vec::new(),
            sentinels: BTreeMap::new(),
            watched_ns: 0,
            exchanges: BTreeMap::new(),
            got: BTreeMap::new(),
            places: 0,
            lost: 0,
            report: Report { rank: world.rank().0, ..Report::default() },
        };
        for peer in (0..world.size()).filter(|&peer| peer != world.rank()) {
            traffic.exchanges.insert(peer, Exchange::default());
            match world.irecv(Vec::new(), Rank(peer), NEVER_SENT) {
                Ok(request) => drop(traffic.sentinels.insert(peer, request)),
                Err(failed) => traffic.judged(peer, &failed.error),
            }
        }
        traffic
    }

    /// Does one random action and checks the operations that have ended.
    pub(crate) fn step(&mut self) {
        let peer = self.any_peer();
        let source = if self.rng.below(3) == 0 { Rank(peer).into() } else { Source::ANY };
        match self.rng.below(16) {
            0..=3 => self.send(peer),
            4..=6 if self.sends.len() < SENDS_MAX => self.begin_send(peer),
            7 | 8 if self.receives.len() < RECEIVES_MAX => self.begin_receive(source),
            9 => self.receive(source),
            10 => self.claim(source),
            11 => self.exchange(peer, source),
            12 => self.exchange_in_scope(peer, source),
            13 => self.cancel_receive(),
            14 => self.cancel_send(),
            15 => self.forget(),
            _ => {}
        }
        self.take_what_came(ANY_TRAFFIC, 3);
        self.look();
    }

    /// Finishes the traffic together with the ranks that were not killed. Returns the report.
    pub(crate) fn settle(mut self, killed: &[u32]) -> Report {
        self.watchdog.now(format_args!("ending its receives"));
        for (place, request) in std::mem::take(&mut self.receives) {
            request.cancel();
            self.received(place, request.wait());
        }
        let living: BTreeSet<u32> =
            self.exchanges.keys().copied().filter(|peer| !killed.contains(peer)).collect();
        let mut untold = living.clone();
        self.watchdog.now(format_args!("settling with {living:?}; {killed:?} were killed"));
        loop {
            self.look();
            self.take_what_came(ANYTHING, usize::MAX);
            for peer in untold.clone() {
                if self.sends.iter().all(|(to, _)| *to != peer) {
                    untold.remove(&peer);
                    self.send_last(peer);
                }
            }
            // A peer that fails although it was not killed is in the report, and the driver judges its failure.
            let done = |peer: &u32| self.exchanges[peer].told.is_some() || !self.sentinels.contains_key(peer);
            let dead = killed.iter().all(|peer| !self.sentinels.contains_key(peer));
            if untold.is_empty() && self.sends.is_empty() && dead && living.iter().all(done) {
                break;
            }
        }
        self.sentinels.clear();
        self.audit();
        self.report
    }

    fn send(&mut self, to: u32) {
        let (tag, bytes) = self.next_message(to);
        self.watchdog.now(format_args!("sending {} bytes to {to}", bytes.len()));
        // A long send waits until the receiver posts the receive, but the receiver may itself wait for this rank. So a
        // long send has a short time-out.
        let comm = if bytes.len() < 10_000 { self.world } else { &self.soon };
        let result = comm.send(&bytes, Rank(to), tag);
        self.sent(to, result);
    }

    fn begin_send(&mut self, to: u32) {
        let (tag, bytes) = self.next_message(to);
        self.watchdog.now(format_args!("beginning to send {} bytes to {to}", bytes.len()));
        let comm = if self.rng.below(4) == 0 { &self.soon } else { self.world };
        match comm.isend(bytes, Rank(to), tag) {
            Ok(request) => self.sends.push((to, request)),
            Err(failed) => self.sent(to, Err(failed.error)),
        }
    }

    fn receive(&mut self, source: Source) {
        self.watchdog.now(format_args!("receiving from {source:?}"));
        let place = self.place();
        let mut buffer = vec![0; BYTES_MAX];
        let result = self.soon.recv(&mut buffer, source, ANY_TRAFFIC);
        self.took(place, result.map(|status| Done { buffer, status }));
    }

    fn begin_receive(&mut self, source: Source) {
        self.watchdog.now(format_args!("beginning to receive from {source:?}"));
        let place = self.place();
        let comm = if self.rng.below(4) == 0 { &self.soon } else { self.world };
        match comm.irecv(vec![0; BYTES_MAX], source, ANY_TRAFFIC) {
            Ok(request) => self.receives.push((place, request)),
            Err(failed) => self.took(place, Err(failed.error)),
        }
    }

    fn claim(&mut self, source: Source) {
        self.watchdog.now(format_args!("claiming from {source:?}"));
        let place = self.place();
        let claimed = self.soon.claim(source, ANY_TRAFFIC);
        let result = claimed.and_then(|message| message.recv());
        self.took(place, result);
    }

    fn exchange(&mut self, to: u32, source: Source) {
        let place = self.place();
        let ((tag, bytes), mut buffer) = (self.next_message(to), vec![0; BYTES_MAX]);
        self.watchdog.now(format_args!("exchanging with {to}"));
        let result = self.soon.sendrecv(&bytes, Rank(to), tag, &mut buffer, source, ANY_TRAFFIC);
        // The error does not say if the send or the receive failed.
        self.sent(to, result.as_ref().map(|_| ()).map_err(|_| UNKNOWN));
        self.lost += u64::from(result.is_err());
        self.took(place, result.map(|status| Done { buffer, status }));
    }

    fn exchange_in_scope(&mut self, to: u32, source: Source) {
        let places = [self.place(), self.place()];
        let ((tag, bytes), mut buffers) = (self.next_message(to), [vec![0; BYTES_MAX], vec![0; BYTES_MAX]]);
        self.watchdog.now(format_args!("exchanging with {to} in a scope"));
        let mut results = [Err(UNKNOWN), Err(UNKNOWN)];
        let mut sent = Err(UNKNOWN);
        let [first, second] = &mut buffers;
        let scoped = self.soon.scope(|scope| {
            let receives =
                [scope.irecv(first, source, ANY_TRAFFIC), scope.irecv(second, source, ANY_TRAFFIC)];
            let send = scope.isend(&bytes, Rank(to), tag);
            for (result, receive) in results.iter_mut().zip(receives) {
                *result = receive.and_then(|receive| scope.wait(receive));
            }
            sent = send.and_then(|send| scope.wait(send)).map(|_| ());
            Ok(())
        });
        self.require(scoped.is_ok(), || format!("a scope ended with {scoped:?}"));
        self.sent(to, sent);
        for ((place, result), buffer) in places.into_iter().zip(results).zip(buffers) {
            self.took(place, result.map(|status| Done { buffer, status }));
        }
    }

    fn cancel_receive(&mut self) {
        if let Some((place, request)) = self.any_of(|traffic| &mut traffic.receives) {
            self.watchdog.now(format_args!("cancelling a receive"));
            request.cancel();
            self.received(place, request.wait());
        }
    }

    fn cancel_send(&mut self) {
        if let Some((to, request)) = self.any_of(|traffic| &mut traffic.sends) {
            self.watchdog.now(format_args!("cancelling a send to {to}"));
            request.cancel();
            // A matched send is not cancelled: it runs to its end. This rank does not wait for the answer to the
            // cancel, because the answer comes from the peer, which may wait for this rank.
            self.sends.push((to, request));
        }
    }

    fn forget(&mut self) {
        if self.rng.below(2) == 0
            && let Some((to, request)) = self.any_of(|traffic| &mut traffic.sends)
        {
            drop(request);
            self.sent(to, Err(UNKNOWN));
        } else if let Some((_, request)) = self.any_of(|traffic| &mut traffic.receives) {
            drop(request);
            self.lost += 1;
        }
    }

    fn send_last(&mut self, to: u32) {
        let exchange = &self.exchanges[&to];
        let counts = [exchange.arrived, exchange.unknown];
        self.watchdog.now(format_args!("sending the last message to {to}"));
        // The send fails only if the receiver has failed.
        let _ = self.world.send(&counts, Rank(to), LAST);
    }

    /// Receives waiting messages, so that their number stays bounded.
    fn take_what_came(&mut self, tag: Tag, most: usize) {
        for _ in 0..most {
            match self.world.try_claim(Source::ANY, tag) {
                Ok(Some(message)) if message.status().tag == LAST => {
                    let from = message.status().peer;
                    self.watchdog.now(format_args!("taking the last message from {from}"));
                    let counts = message.recv::<u64>().ok().and_then(|done| done.buffer.try_into().ok());
                    self.require(counts.is_some(), || {
                        format!("the last message from {from} is not two numbers")
                    });
                    let told = counts.map(|[arrived, unknown]: [u64; 2]| (arrived, unknown));
                    self.exchanges.entry(from.0).or_default().told = told;
                }
                Ok(Some(message)) => {
                    let place = self.place();
                    self.watchdog.now(format_args!("taking {:?}", message.status()));
                    let result = message.recv();
                    self.took(place, result);
                }
                Ok(None) | Err(Error::Deserted) => break,
                // This error is reported once for each failure, if no message matches.
                Err(error @ Error::FailurePending { .. }) => self.failed(&error),
                Err(error) => {
                    return self.require(false, || format!("a look for messages ended with {error}"));
                }
            }
        }
    }

    /// Checks the operations under way.
    pub(crate) fn look(&mut self) {
        self.watchdog.now(format_args!("looking at what is under way"));
        for (to, mut request) in std::mem::take(&mut self.sends) {
            match request.test() {
                None => self.sends.push((to, request)),
                Some(result) => self.sent(to, result.map(|_| ()).map_err(|failed| failed.error)),
            }
        }
        for (place, mut request) in std::mem::take(&mut self.receives) {
            match request.test() {
                None => self.receives.push((place, request)),
                Some(Err(Failed { error: error @ Error::FailurePending { .. }, .. })) => {
                    // The request is still pending.
                    self.receives.push((place, request));
                    self.failed(&error);
                }
                Some(result) => self.received(place, result),
            }
        }
        let now = now_ns();
        if now < self.watched_ns + WATCH_EVERY_NS {
            return;
        }
        self.watched_ns = now;
        for (peer, mut request) in std::mem::take(&mut self.sentinels) {
            match request.test() {
                None => drop(self.sentinels.insert(peer, request)),
                Some(Ok(done)) => {
                    self.require(false, || format!("a message that no rank sent was received: {done:?}"));
                }
                Some(Err(failed)) => self.judged(peer, &failed.error),
            }
        }
    }

    /// Notes that a peer has failed or left. `error` is the result of the sentinel for this peer.
    fn judged(&mut self, peer: u32, error: &Error) {
        match error {
            Error::PeerFailed { rank, cause: Cause::Left, .. } if *rank == peer => {
                self.exchanges.entry(peer).or_default().has_left = true;
            }
            Error::PeerFailed { rank, cause, .. } if *rank == peer => {
                self.report.verdicts.push(Verdict { rank: peer, at_ns: now_ns(), cause: cause.to_string() });
            }
            error => self.require(false, || format!("a receive from {peer} ended with: {error}")),
        }
    }

    /// Notes that a send has ended.
    fn sent(&mut self, to: u32, result: Result<(), Error>) {
        let exchange = self.exchanges.entry(to).or_default();
        match result {
            Ok(()) => {
                exchange.arrived += 1;
                self.report.sent += 1;
            }
            Err(error) => {
                exchange.unknown += u64::from(!matches!(
                    error,
                    Error::Cancelled { fate: Fate::NotDelivered }
                        | Error::TimedOut { fate: Fate::NotDelivered, .. }
                        | Error::PeerFailed { fate: Fate::NotDelivered, .. }
                        | Error::Abandoned { fate: Fate::NotDelivered, .. }
                ));
                self.failed(&error);
            }
        }
    }

    /// Notes that a receive with an owned buffer has ended.
    fn received(&mut self, place: usize, result: Result<Done<Vec<u8>>, Failed<Vec<u8>>>) {
        self.took(place, result.map_err(|failed| failed.error));
    }

    /// Notes that a receive has ended.
    fn took(&mut self, place: usize, result: Result<Done<Vec<u8>>, Error>) {
        let Done { status: Status { peer: Rank(source), tag, bytes }, buffer } = match result {
            Ok(message) => message,
            Err(error) => {
                let matched = match &error {
                    Error::TimedOut { report, .. } => report.awaited == Awaited::Bytes,
                    Error::Abandoned { .. } | Error::PeerFailed { .. } => true,
                    _ => false,
                };
                self.lost += u64::from(matched);
                return self.failed(&error);
            }
        };
        let number = tag >> KIND_BITS;
        let message = Message { seed: self.seed, from: source, to: self.world.rank().0, number };
        let is_whole = buffer.get(..bytes).is_some_and(|got| got == message.bytes());
        self.require(is_whole, || format!("wrong bytes in {message:?}, {bytes} long"));
        self.got.insert(place, (source, number));
        self.exchanges.entry(source).or_default().received += 1;
        self.report.received += 1;
        self.report.bytes += bytes as u64;
    }

    /// Checks that an operation failed with a permitted error.
    fn failed(&mut self, error: &Error) {
        self.report.failed(error, Calls::Standard);
    }

    /// Checks order and completeness at the end.
    fn audit(&mut self) {
        let mut last = BTreeMap::new();
        let mut troubles = Vec::new();
        for (&place, &(from, number)) in &self.got {
            if let Some(before) = last.insert(from, number).filter(|&before| before >= number) {
                troubles.push(format!("receive {place} got message {number} of {from} after {before}"));
            }
        }
        for (peer, exchange) in &self.exchanges {
            let Some((arrived, unknown)) = exchange.told else {
                if exchange.has_left {
                    troubles.push(format!("{peer} left without its last message"));
                }
                continue;
            };
            let received = exchange.received;
            if received > arrived + unknown || received + self.lost < arrived {
                let lost = self.lost;
                troubles.push(format!(
                    "{received} messages of {peer} were received, {lost} at most lost, of {arrived} sent and {unknown} that may be"
                ));
            }
        }
        self.report.troubles.append(&mut troubles);
    }

    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.report.troubles.push(what());
        }
    }

    fn next_message(&mut self, to: u32) -> (u64, Vec<u8>) {
        let exchange = self.exchanges.entry(to).or_default();
        let message = Message { seed: self.seed, from: self.world.rank().0, to, number: exchange.begun };
        exchange.begun += 1;
        (message.tag(), message.bytes())
    }

    fn place(&mut self) -> usize {
        self.places += 1;
        self.places
    }

    fn any_peer(&mut self) -> u32 {
        let (rank, size) = (self.world.rank(), self.world.size());
        (rank.0 + 1 + self.rng.below(u64::from(size - 1)) as u32) % size
    }

    fn any_of<T>(&mut self, which: impl FnOnce(&mut Self) -> &mut Vec<T>) -> Option<T> {
        let choice = self.rng.next_u64();
        let all = which(self);
        (!all.is_empty()).then(|| all.swap_remove(choice as usize % all.len()))
    }
}

/// The assumed result of an operation that ended without a result of its own.
const UNKNOWN: Error = Error::Cancelled { fate: Fate::Unknown };
