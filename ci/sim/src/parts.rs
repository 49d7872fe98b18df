//! Messages in partitions between simulated ranks, and their oracle.

use samite_fabric::SplitMix64;
use samite_fabric::layout::Signature;
use samite_fabric::mem::Partitioned;
use samite_p2p::{Error, PartitionedId, RequestId, Status, Time, Typed, WorldRank};

use crate::ledger::{Losses, Process, require};
use crate::rank::{NEVER, Pending, Rank, What};
use crate::run::{Run, pick};

/// The number of tags. It is small, so that several pairs of two ranks have the same tag.
const TAGS: u64 = 2;
/// The largest number of sends and receives that a rank keeps.
const HALVES_MAX: usize = 6;
/// The lengths of messages. They can be cut into each number of partitions, and no two messages of one length have the
/// same bytes, except those without bytes.
const LENGTHS: &[usize] = &[0, 24, 240, 2_400, 24_000];
const PARTITIONS: &[usize] = &[1, 2, 3, 4, 6, 8, 12, 24];

/// All partitioned sends and receives of a run.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    sends: Vec<Side>,
    receives: Vec<Side>,
    /// The rounds that have ended successfully.
    pub(crate) rounds: usize,
    /// The sends and receives that ranks should initialize, so that most of them get a partner.
    wishes: Vec<Wish>,
    /// True if a receiver may have no memory for an announcement. It refuses the send, which is then not counted when
    /// sends and receives are paired.
    pub(crate) may_refuse: bool,
}

/// A partitioned send or receive.
#[derive(Debug)]
struct Side {
    at: Process,
    partner: u32,
    context: u32,
    tag: u64,
    bytes: usize,
    typed: Option<Typed>,
    /// The number of rounds begun.
    begun: u32,
    /// The number of rounds that have ended successfully.
    ended: u32,
    /// True if this rank has cancelled a round, set a deadline, or dropped the send or receive.
    given_up: bool,
    /// The error with which the pair has ended at this side.
    error: Option<Error>,
    /// The send whose bytes this receive got, and the reverse.
    pair: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    at: u32,
    partner: u32,
    sends: bool,
    context: u32,
    tag: u64,
    bytes: usize,
}

/// A send or a receive of a rank.
pub(crate) struct Half {
    pub(crate) sends: bool,
    /// The index in [`Sides`].
    index: usize,
    id: PartitionedId,
    memory: Partitioned,
    round: Option<RequestId>,
    /// The partitions that are not marked in this round.
    unmarked: Vec<usize>,
}

impl Sides {
    fn of(&mut self, sends: bool) -> &mut Vec<Side> {
        if sends { &mut self.sends } else { &mut self.receives }
    }

    /// Finds the send whose bytes are in the marked partitions of a receive in its present round.
    fn source(&self, index: usize, memory: &Partitioned) -> Option<usize> {
        let receive = &self.receives[index];
        let fits = |&(at, send): &(usize, &Side)| {
            send.has_key_of(receive)
                && send.bytes == receive.bytes
                && send.begun >= receive.begun
                && match (receive.pair, send.pair) {
                    (None, None) => true,
                    (pair, _) => pair == Some(at),
                }
        };
        let part = receive.bytes / memory.partitions();
        let has_bytes_of = |&(at, _): &(usize, &Side)| {
            let bytes = content(at, receive.begun, receive.bytes);
            (0..memory.partitions()).all(|number| {
                memory
                    .read::<u8>(number..number + 1)
                    .is_none_or(|read| read == &bytes[number * part..(number + 1) * part])
            })
        };
        self.sends.iter().enumerate().filter(fits).find(has_bytes_of).map(|(at, _)| at)
    }

    /// Records the end of a round.
    pub(crate) fn round_ended(&mut self, half: &Half, result: Result<Status, Error>) -> Result<(), String> {
        let place = format!("partitioned {} {}", if half.sends { "send" } else { "receive" }, half.index);
        let side = &mut self.of(half.sends)[half.index];
        match result {
            Ok(status) => {
                let expected = Status { source: WorldRank(side.partner), tag: side.tag, bytes: side.bytes };
                require(status == expected, || format!("{place} ended with {status:?}"))?;
                side.ended += 1;
                require(side.ended == side.begun, || format!("{place} lacks the end of a round"))?;
                require(half.unmarked.is_empty(), || format!("{place} ended before all were marked"))?;
                self.rounds += 1;
                if !half.sends {
                    self.received(half, &place)?;
                }
                Ok(())
            }
            Err(error) => side.note(error).map_err(|error| format!("{place} cannot end with {error:?}")),
        }
    }

    /// Checks the bytes of a receive whose round has ended, and notes the send that they are from.
    fn received(&mut self, half: &Half, place: &str) -> Result<(), String> {
        let partitions = half.memory.partitions();
        require(half.memory.are_marked(0..partitions), || format!("{place} ended early"))?;
        let source = self.source(half.index, &half.memory);
        let source = source
            .ok_or_else(|| format!("{place}: wrong bytes in round {}", self.receives[half.index].begun))?;
        // Messages without bytes are all alike.
        if !half.memory.is_empty() {
            self.receives[half.index].pair = Some(source);
            self.sends[source].pair = Some(half.index);
        }
        Ok(())
    }

    /// Checks everything that can only be judged at the end.
    pub(crate) fn audit(&self, losses: &Losses) -> Result<(), String> {
        for (index, receive) in self.receives.iter().enumerate() {
            for earlier in &self.receives[..index] {
                let (Some(former), Some(latter)) = (earlier.pair, receive.pair) else { continue };
                let is_same = (earlier.at, earlier.key()) == (receive.at, receive.key())
                    && self.sends[former].at == self.sends[latter].at;
                require(!is_same || former < latter, || {
                    format!("partitioned sends {former} and {latter} are paired out of order")
                })?;
            }
        }
        for (index, send) in self.sends.iter().enumerate() {
            let Some(receive) = self.sure_partner(index, losses) else { continue };
            let receive = receive.map(|at| (at, &self.receives[at]));
            send.audit(receive, true).map_err(|why| format!("partitioned send {index}: {why}"))?;
            if let Some((at, receive)) = receive {
                let partner = Some((index, send));
                receive.audit(partner, false).map_err(|why| format!("partitioned receive {at}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Returns the receive with which a send is paired, or `None` in its place if there is none yet. Returns `None` if
    /// that is not sure, because one of the ranks has ended, packets between them were lost, or an earlier send may
    /// have been refused.
    fn sure_partner(&self, send: usize, losses: &Losses) -> Option<Option<usize>> {
        let side = &self.sends[send];
        if self.may_refuse
            || losses.has_ended(side.at.rank)
            || losses.has_ended(side.partner)
            || losses.are_cut(side.at.rank, side.partner)
        {
            return None;
        }
        let earlier =
            self.sends[..send].iter().filter(|other| other.at == side.at && other.key() == side.key());
        let mut receives = self.receives.iter().enumerate().filter(|(_, receive)| side.has_key_of(receive));
        Some(receives.nth(earlier.count()).map(|(at, _)| at))
    }

    /// Returns the largest number of sends to a rank that have no receive. The rank keeps their announcements, so that
    /// later receives are paired with later sends, even if these sends have ended.
    pub(crate) fn unpaired(&self, at: Process, losses: &Losses) -> usize {
        let sends = self.sends.iter().filter(|send| send.partner == at.rank);
        let unpaired = |send: &&Side| {
            let may_be_lost = losses.has_ended(send.at.rank) || losses.are_cut(send.at.rank, at.rank);
            let count = |sides: &[Side], has_key: &dyn Fn(&Side) -> bool| {
                sides.iter().filter(|side| has_key(side)).count()
            };
            let earlier = |other: &Side| other.at == send.at && other.key() == send.key();
            let sends = count(&self.sends, &earlier);
            let receives = count(&self.receives, &|receive| receive.at == at && send.has_key_of(receive));
            may_be_lost || sends > receives
        };
        sends.filter(unpaired).count()
    }

    /// Checks that no round has failed to end although both sides have begun it, all partitions are marked, and nothing
    /// was lost.
    fn check_progress(&self, losses: &Losses) -> Result<(), String> {
        for (index, send) in self.sends.iter().enumerate() {
            let Some(Some(receive)) = self.sure_partner(index, losses) else { continue };
            let receive = &self.receives[receive];
            let is_live = |side: &Side| side.error.is_none() && !side.given_up && side.begun > side.ended;
            let agrees = send.bytes == receive.bytes && !send.differs(receive);
            require(!(is_live(send) && is_live(receive) && agrees && send.begun == receive.begun), || {
                format!("partitioned send {index} and its receive do not end round {}", send.begun)
            })?;
        }
        Ok(())
    }
}

impl Side {
    fn key(&self) -> (u32, u32, u64) {
        (self.partner, self.context, self.tag)
    }

    /// Returns true if a send and a receive may be paired.
    fn has_key_of(&self, receive: &Self) -> bool {
        (self.partner, self.context, self.tag) == (receive.at.rank, receive.context, receive.tag)
            && self.at.rank == receive.partner
    }

    /// Returns true if a send and a receive have different types.
    fn differs(&self, receive: &Self) -> bool {
        let (Some(sent), Some(expected)) = (self.typed, receive.typed) else { return false };
        self.bytes > 0 && !sent.signature.agrees_with(expected.signature)
    }

    /// Notes the error with which the pair has ended at this side. Returns an error that is not permitted.
    fn note(&mut self, error: Error) -> Result<(), Error> {
        match &error {
            Error::Cancelled { .. }
            | Error::TimedOut { .. }
            | Error::Abandoned { .. }
            | Error::PeerFailed { .. }
            | Error::LengthsDiffer { .. }
            | Error::TypesDiffer { .. }
            | Error::Exhausted { .. } => {}
            _ => return Err(error),
        }
        self.error.get_or_insert(error);
        Ok(())
    }

    /// Checks the error of this side against its partner, of which no packet was lost.
    fn audit(&self, partner: Option<(usize, &Self)>, sends: bool) -> Result<(), String> {
        let partner = partner.map(|(_, side)| side);
        let differs =
            partner.is_some_and(|other| if sends { self.differs(other) } else { other.differs(self) });
        let is_permitted = match &self.error {
            None => true,
            Some(Error::Cancelled { .. } | Error::TimedOut { .. }) => self.given_up,
            Some(Error::Abandoned { .. }) => {
                partner.is_some_and(|other| other.given_up || other.error.is_some()) || differs
            }
            Some(Error::LengthsDiffer { .. }) => partner.is_some_and(|other| other.bytes != self.bytes),
            Some(Error::TypesDiffer { .. }) => differs && !sends,
            Some(_) => false,
        };
        require(is_permitted, || format!("ended with {:?}, and its partner is {partner:?}", self.error))?;
        let partner_begun = partner.map_or(0, |other| other.begun);
        require(self.ended <= partner_begun, || format!("{} rounds, and {partner:?}", self.ended))
    }
}

/// Returns the bytes of a round of a send.
fn content(send: usize, round: u32, bytes: usize) -> Vec<u8> {
    let mut words = SplitMix64::new((send as u64) << 32 | u64::from(round));
    (0..bytes.div_ceil(8)).flat_map(|_| words.next_u64().to_le_bytes()).take(bytes).collect()
}

impl Rank {
    /// Returns a half of this rank that is in a round, or one that is not.
    fn half(&self, is_active: bool, which: u64) -> Option<usize> {
        let halves = self.halves.iter().enumerate();
        let all: Vec<_> =
            halves.filter(|(_, half)| half.round.is_some() == is_active).map(|(at, _)| at).collect();
        all.get(which as usize % all.len().max(1)).copied()
    }

    fn init_half(
        &mut self,
        sides: &mut Sides,
        now: Time,
        wish: Wish,
        partitions: usize,
        typed: Option<Typed>,
    ) -> Result<(), String> {
        let Wish { partner, sends, context, tag, bytes, .. } = wish;
        let with = WorldRank(partner);
        let made = if sends {
            let signature = typed.map_or(Signature::BYTES, |typed| typed.signature);
            self.engine.psend_init(now, with, context, tag, bytes, partitions, signature)
        } else {
            self.engine.precv_init(now, with, context, tag, bytes, typed)
        };
        let id = match made {
            Ok(id) => id,
            Err(Error::PeerFailed { .. }) => return Ok(()),
            Err(error) => return Err(format!("an initialization cannot end with {error:?}")),
        };
        let memory = Partitioned::new(vec![0u8; bytes], partitions).expect("each number divides each length");
        let all = sides.of(sends);
        let index = all.len();
        all.push(Side {
            at: self.process,
            partner,
            context,
            tag,
            bytes,
            typed,
            begun: 0,
            ended: 0,
            given_up: false,
            error: None,
            pair: None,
        });
        self.halves.push(Half { sends, index, id, memory, round: None, unmarked: Vec::new() });
        Ok(())
    }

    /// Begins a round. Returns false if the pair has ended.
    fn start_round(
        &mut self,
        sides: &mut Sides,
        now: Time,
        at: usize,
        deadline_ns: u64,
    ) -> Result<bool, String> {
        let half = &mut self.halves[at];
        require(half.memory.begin(), || "the memory is in use between two rounds".into())?;
        let (partitions, deadline) = (half.memory.partitions(), Time::from_nanos(deadline_ns));
        let started = if half.sends {
            self.engine.start_psend(now, half.id, half.memory.marked(), deadline)
        } else {
            let all = half.memory.take(0..partitions).expect("a round begins with all partitions free");
            self.engine.start_precv(now, half.id, all, deadline)
        };
        let side = &mut sides.of(half.sends)[half.index];
        match started {
            Ok(id) => {
                half.round = Some(id);
                half.unmarked = if half.sends { (0..partitions).collect() } else { Vec::new() };
                side.begun += 1;
                side.given_up |= deadline_ns != NEVER;
                let what = What::Round { partner: side.partner };
                self.add(id, Pending::new(what, None, deadline_ns));
                Ok(true)
            }
            Err(error) => {
                side.note(error).map_err(|error| format!("a round cannot begin with {error:?}"))?;
                Ok(false)
            }
        }
    }

    /// Marks some partitions of a send, and sends them.
    fn mark(&mut self, sides: &Sides, at: usize, count: usize, which: u64) {
        let half = &mut self.halves[at];
        let side = &sides.sends[half.index];
        let bytes = content(half.index, side.begun, side.bytes);
        let part = side.bytes / half.memory.partitions();
        for _ in 0..count.min(half.unmarked.len()) {
            let number = half.unmarked.swap_remove(which as usize % half.unmarked.len());
            // In a round that has failed meanwhile, the partitions can still be taken.
            let mut taken = half.memory.take(number..number + 1).expect("it is not marked");
            let elements = taken.as_mut_slice::<u8>().expect("it is not marked");
            elements.copy_from_slice(&bytes[number * part..(number + 1) * part]);
            taken.mark_all();
        }
        self.engine.harvest();
    }

    /// Drops a send or receive, in a round or not.
    fn free_half(&mut self, sides: &mut Sides, now: Time, at: usize) {
        let half = self.halves.swap_remove(at);
        sides.of(half.sends)[half.index].given_up = true;
        if let Some(round) = half.round {
            self.engine.forget(round);
            self.pending.remove(&round);
        }
        self.engine.free_partitioned(now, half.id);
    }

    /// Drops all sends and receives.
    pub(crate) fn free_halves(&mut self, sides: &mut Sides, now: Time) {
        while !self.halves.is_empty() {
            self.free_half(sides, now, 0);
        }
    }

    /// Notes that the program gives up a round, or sets a deadline for it.
    pub(crate) fn give_up_round(&self, sides: &mut Sides, round: RequestId) {
        if let Some(half) = self.halves.iter().find(|half| half.round == Some(round)) {
            sides.of(half.sends)[half.index].given_up = true;
        }
    }

    /// Drops the send or receive of a round.
    pub(crate) fn forget_round(&mut self, sides: &mut Sides, now: Time, round: RequestId) {
        if let Some(at) = self.halves.iter().position(|half| half.round == Some(round)) {
            self.free_half(sides, now, at);
        }
    }

    /// Records the end of a round.
    pub(crate) fn end_round(
        &mut self,
        sides: &mut Sides,
        round: RequestId,
        result: Result<Status, Error>,
    ) -> Result<(), String> {
        let half = self.halves.iter_mut().find(|half| half.round == Some(round));
        let half = half.ok_or_else(|| format!("{round:?} is no round"))?;
        half.round = None;
        sides.round_ended(half, result)
    }
}

impl Run {
    /// Performs a random action on the partitioned sends and receives of a rank.
    pub(crate) fn act_on_parts(&mut self) -> Result<(), String> {
        let index = self.parts.below(u64::from(self.size)) as u32;
        let (action, which) = (self.parts.below(12), self.parts.next_u64());
        let wish = self.wish(index);
        let partitions = pick(&mut self.parts, PARTITIONS);
        let typed = self.typed(index as usize, Some(wish.tag));
        let now_ns = self.net.now_ns();
        let now = Time::from_nanos(now_ns);
        let deadline = if self.parts.below(12) == 0 { now_ns + self.parts.below(2_000_000) } else { NEVER };
        let count = pick(&mut self.parts, &[1, 2, 6, 24]);
        let Some(rank) = self.ranks[index as usize].as_mut().filter(|rank| rank.acts()) else {
            return Ok(());
        };
        let sides = &mut self.ledger.sides;
        let (active, idle) = (rank.half(true, which), rank.half(false, which));
        match (action, active, idle) {
            (0..=2, ..) if rank.halves.len() < HALVES_MAX => {
                self.net.note(format!("rank {index} initializes {wish:?} in {partitions} partitions"));
                let met = |other: &Wish| {
                    (other.at, other.partner, other.sends) == (index, wish.partner, wish.sends)
                };
                match sides.wishes.iter().position(met) {
                    Some(at) => drop(sides.wishes.remove(at)),
                    None => sides.wishes.push(Wish {
                        at: wish.partner,
                        partner: index,
                        sends: !wish.sends,
                        ..wish
                    }),
                }
                rank.init_half(sides, now, wish, partitions, typed)
            }
            (3..=5, _, Some(at)) => {
                self.net.note(format!("rank {index} begins a round of half {at}"));
                let has_begun = rank.start_round(sides, now, at, deadline)?;
                if !has_begun {
                    rank.free_half(sides, now, at);
                }
                Ok(())
            }
            (6..=9, Some(at), _) if rank.halves[at].sends => {
                self.net.note(format!("rank {index} marks {count} partitions of half {at}"));
                rank.mark(sides, at, count, which);
                Ok(())
            }
            (6..=9, Some(at), _) => {
                let half = &rank.halves[at];
                let source = sides.source(half.index, &half.memory);
                let has_any =
                    (0..half.memory.partitions()).any(|part| half.memory.are_marked(part..part + 1));
                require(!has_any || source.is_some(), || {
                    format!("partitioned receive {}: wrong bytes have arrived", half.index)
                })
            }
            (10, ..) if !rank.halves.is_empty() && which.is_multiple_of(3) => {
                self.net.note(format!("rank {index} drops a half"));
                rank.free_half(sides, now, which as usize % rank.halves.len());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns a send or receive for a rank to initialize. In most cases it is a partner for one that exists.
    fn wish(&mut self, at: u32) -> Wish {
        let granted = self.ledger.sides.wishes.iter().find(|wish| wish.at == at).copied();
        let contexts = if self.names.is_some() { 1 } else { 2 };
        let other = Wish {
            at,
            partner: self.parts.below(u64::from(self.size)) as u32,
            sends: self.parts.below(2) == 0,
            context: self.parts.below(contexts) as u32,
            tag: self.parts.below(TAGS),
            bytes: pick(&mut self.parts, LENGTHS),
        };
        match granted {
            Some(wish) if self.parts.below(10) > 0 => match self.parts.below(12) {
                0 => Wish { bytes: other.bytes, ..wish },
                _ => wish,
            },
            _ => other,
        }
    }

    /// Marks all partitions, and lets them travel. Then each round must have ended that both sides have begun.
    pub(crate) fn finish_parts(&mut self) -> Result<(), String> {
        for rank in self.ranks.iter_mut().flatten().filter(|rank| !rank.leaving) {
            for at in 0..rank.halves.len() {
                if rank.halves[at].sends && rank.halves[at].round.is_some() {
                    rank.mark(&self.ledger.sides, at, usize::MAX, 0);
                }
            }
        }
        self.settle()?;
        self.ledger.sides.check_progress(&self.losses)
    }
}
