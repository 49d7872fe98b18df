//! Contexts: the ranks that may use each context, and which of them have ended.
//!
//! A message carries the number of its context, and only receives of that context match it. The contexts below
//! [`FIRST`] belong to all ranks of the job, and are always open. The others are opened in pairs: one context (an even
//! number) for a communicator's messages, and one (the next number) for the agreements and collective operations of its
//! members. A pair is opened for a group of ranks, its *members*. The members are incarnations: if a rank is restarted,
//! its new incarnation is not a member.
//!
//! A pair does not keep the incarnations of its members. When it is opened, the link learns which members are not in
//! their first incarnation, so each member of which the link knows no incarnation is in its first one. If the link
//! later learns that an incarnation has ended, or that a rank's first incarnation must have ended ([`Ending::Unmet`]),
//! the rank has ended in all contexts that are open.
//!
//! [`Ending::Unmet`]: samite_fabric::link::Ending::Unmet
//!
//! A pair has a *name* of 64 bits, which is never used again. The numbers of its contexts are the low bits of the name,
//! so after many names the same numbers come again. A pair is not opened while its numbers are in use: see [`Closed`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use samite_fabric::link::{Cause, Group, Incarnation, Link, Peer, PeerState, WorldRank};
use samite_fabric::wire::WireError;

use crate::names::Closed;
use crate::pages::Pages;
use crate::survivors::is_of_survivors;

/// The first context that can be opened.
pub(crate) const FIRST: u32 = 2;

/// Incarnations of ranks. A rank of the job that has no entry is in its first incarnation.
pub type Incarnations = BTreeMap<WorldRank, u32>;

/// The contexts that are open at this rank, and the contexts that this rank has closed but other members may still use.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// The pairs, by their even number divided by 2.
    all: Pages<Pair>,
    /// The maximum number of pairs.
    max: usize,
    /// A cache of living members with which this rank has exchanged a message. An entry has the context in its high 32
    /// bits and the rank in its low 32 bits. A hit saves two searches. All entries are cleared when a rank or a context
    /// ends. The state of each peer caches one context, which is checked before this cache: see [`is_known`].
    alive: [u64; ALIVE],
    /// The first name that this rank has never used. Every later name is unused too.
    next: u64,
    pub(crate) closed: Closed,
    ended: Ended,
    /// The number of pairs that are deserted: see [`Pair::is_deserted`].
    pub(crate) deserted: usize,
    /// Members that left contexts before this rank opened them: the name of the contexts, and the rank.
    early: Vec<(u64, WorldRank)>,
    /// A count of events: the number of times that a rank ended or left contexts, or contexts were revoked. If the
    /// count has changed, operations may have to end.
    pub(crate) ends: u64,
    /// The pairs that a member has revoked, by their even number. The contexts of the job are the pair 0.
    revoked: BTreeSet<u32>,
    /// For each pair, by its even number, the members that take part in no agreement of survivors any more.
    retired: BTreeMap<u32, BTreeSet<WorldRank>>,
    /// The revocations of contexts that this rank has not opened: the name of the contexts, and the rank that revoked
    /// them. They count only if the rank is a member of the contexts with that name.
    revoked_early: Vec<(u64, WorldRank)>,
    /// The contexts below this one belong to all ranks and are not revoked: [`FIRST`], or 0 if the contexts of the job
    /// are revoked.
    job_end: u32,
    /// The number of collective operations that this rank has begun in the contexts of the job.
    begun_in_job: u32,
}

/// The ranks of which an incarnation has ended, each with the first name that this rank had not used at that time. The
/// rank has ended in all contexts with earlier names. So the end of a rank takes the same memory for any number of open
/// contexts.
#[derive(Debug, Default)]
struct Ended(BTreeMap<WorldRank, u64>);

const ALIVE: usize = 256;

/// The maximum number of entries in [`Contexts::early`], and in [`Contexts::revoked_early`], for one rank. A rank
/// reaches it only if that many of its threads create communicators at the same time. Beyond this number the oldest
/// entries of the rank are dropped, to limit the memory.
const EARLY_MAX: usize = 64;

/// The contexts of one communicator.
#[derive(Debug)]
struct Pair {
    name: u64,
    members: Group,
    /// The members of this rank's own group, if the communicator has two groups. With them this rank exchanges only the
    /// messages of agreements.
    own: Option<Box<Group>>,
    /// The members that have ended in these contexts but perhaps not in others: a member has left these contexts, or a
    /// later incarnation of it was known when the contexts were opened. Allocated for the first entry.
    #[expect(clippy::box_collection, reason = "few communicators have one, and there may be millions")]
    gone: Option<Box<BTreeMap<WorldRank, Cause>>>,
    /// The number of collective operations that this rank has begun.
    begun: u32,
}

impl Contexts {
    /// Returns the contexts of an engine that opens at most `max` pairs at a time.
    pub(crate) fn new(max: usize) -> Self {
        let (all, early) = (Pages::default(), Vec::new());
        let (next, closed) = (FIRST.into(), Closed::default());
        Self {
            all,
            max,
            // An entry of 0 is empty. It would stand for context 0, but contexts below `FIRST` are never in this cache:
            // all ranks are their members.
            alive: [0; ALIVE],
            next,
            closed,
            ended: Ended::default(),
            deserted: 0,
            early,
            ends: 0,
            revoked: BTreeSet::new(),
            retired: BTreeMap::new(),
            revoked_early: Vec::new(),
            job_end: FIRST,
            begun_in_job: 0,
        }
    }

    /// Returns true if no more contexts can be opened before others are closed.
    pub(crate) fn are_full(&self) -> bool {
        self.all.len() >= self.max
    }

    /// Opens the contexts with a name. Returns the members that have ended already, except members that have left the
    /// job. Returns `None`, and opens nothing, if the name is odd, if it or a later name was used before, if the
    /// numbers are in use, or if the maximum number of contexts is open.
    ///
    /// With `remote`, the ranks of `group` exchange messages with the ranks of `remote`, and not with each other. The
    /// members are the given incarnations. The link knows each of them, or a later one of its rank.
    #[cold]
    pub(crate) fn open(
        &mut self,
        link: &Link,
        name: u64,
        group: Group,
        remote: Option<&Group>,
        incarnations: &Incarnations,
    ) -> Option<BTreeMap<WorldRank, Cause>> {
        if name < self.next || !name.is_multiple_of(2) {
            return None;
        }
        self.next = name + 2;
        let (members, own) = match remote {
            Some(remote) => (group.union(remote), Some(Box::new(group))),
            None => (group, None),
        };
        let mut gone = BTreeMap::new();
        self.early.retain(|&(early, rank)| {
            if early == name && members.contains(rank) {
                gone.insert(rank, Cause::LeftContext);
            }
            early > name
        });
        if !self.is_free(name) || self.are_full() {
            return None;
        }
        let mut failed = BTreeMap::new();
        for (_, peer) in link.peers().filter(|(_, peer)| members.contains(peer.rank())) {
            let rank = peer.rank();
            let first = || link.identity().first_incarnation(rank);
            let member = incarnations.get(&rank).map_or_else(first, |number| Incarnation::new(*number));
            if peer.incarnation().is_some_and(|known| known.is_after(member)) {
                gone.insert(rank, Cause::Restarted);
            }
            if !peer.is_alive() {
                self.ended.end(rank, self.next);
                failed
                    .extend(peer.failure().filter(|cause| *cause != Cause::Left).map(|cause| (rank, cause)));
            }
        }
        failed.extend(gone.iter().map(|(rank, cause)| (*rank, cause.clone())));
        let gone = (!gone.is_empty()).then(|| Box::new(gone));
        let pair = Pair { name, members, own, gone, begun: 0 };
        self.deserted += usize::from(pair.is_deserted(&self.ended));
        self.all.insert(self.closed.number(name) / 2, pair);
        Some(failed)
    }

    /// Closes contexts. Their numbers stay in use until all members have confirmed that they send nothing there any
    /// more. Returns the even number of the pair, or `None` if the pair is not open.
    pub(crate) fn close(&mut self, context: u32, link: &mut Link) -> Option<u32> {
        let Pair { name, members, .. } = self.remove(context, link)?;
        self.closed.insert(name, members, link.identity().size);
        Some(context & !1)
    }

    /// Closes contexts in which no member has sent a message, because the communicator was not created. Their numbers
    /// are free immediately.
    pub(crate) fn withdraw(&mut self, context: u32, link: &mut Link) -> Option<u32> {
        self.remove(context, link).map(|_| context & !1)
    }

    fn remove(&mut self, context: u32, link: &mut Link) -> Option<Pair> {
        let pair = self.all.remove(context / 2)?;
        self.deserted -= usize::from(pair.is_deserted(&self.ended));
        self.revoked.remove(&(context & !1));
        self.retired.remove(&(context & !1));
        self.forget_known(context, link);
        Some(pair)
    }

    /// Clears the caches of living members of these contexts.
    fn forget_known(&mut self, context: u32, link: &mut Link) {
        self.alive = [0; ALIVE];
        link.peers_mut()
            .filter(|peer| peer.known_in().is_some_and(|known| known / 2 == context / 2))
            .for_each(|peer| peer.set_known_in(None));
    }

    /// Notes that a member has revoked contexts. Returns false if they are not open, or if this was noted before.
    #[cold]
    pub(crate) fn revoke(&mut self, context: u32, link: &mut Link) -> bool {
        let pair = context & !1;
        if !(context < FIRST || self.get(context).is_some()) || !self.revoked.insert(pair) {
            return false;
        }
        if context < FIRST {
            self.job_end = 0;
        }
        self.forget_known(context, link);
        self.ends += 1;
        true
    }

    /// Returns true if a member has revoked a context.
    pub(crate) fn is_revoked(&self, context: u32) -> bool {
        !self.revoked.is_empty() && self.revoked.contains(&(context & !1))
    }

    /// Returns the even numbers of the revoked contexts.
    pub(crate) fn revoked(&self) -> Vec<u32> {
        self.revoked.iter().copied().collect()
    }

    /// Returns the number of the first one of the two contexts with a name.
    pub(crate) fn number_of(&self, name: u64) -> u32 {
        self.closed.number(name)
    }

    /// Returns the state of the contexts with a name that a peer has used in a packet about all of them.
    ///
    /// # Errors
    /// [`WireError::Value`] if the peer is not a member of such contexts: it violates the protocol.
    #[cold]
    pub(crate) fn of_member(&self, name: u64, rank: WorldRank) -> Result<Opened, WireError> {
        if name == 0 {
            return Ok(Opened::Now(0));
        }
        let invalid = Err(WireError::Value { field: "context" });
        if name < FIRST.into() || !name.is_multiple_of(2) {
            return invalid;
        }
        let number = self.closed.number(name);
        match self.get(number).filter(|pair| pair.name == name) {
            Some(pair) if pair.members.contains(rank) => Ok(Opened::Now(number)),
            Some(_) => invalid,
            None if name < self.next => Ok(Opened::Before),
            None => Ok(Opened::Never),
        }
    }

    /// Notes that a rank has revoked contexts that this rank has not opened yet.
    #[cold]
    pub(crate) fn revoke_early(&mut self, name: u64, by: WorldRank) {
        if !self.revoked_early.contains(&(name, by)) {
            push_early(&mut self.revoked_early, name, by);
        }
    }

    /// Notes that a member takes part in no agreement of survivors of these contexts any more.
    #[cold]
    pub(crate) fn retire(&mut self, context: u32, rank: WorldRank) {
        self.ends += 1;
        self.retired.entry(context & !1).or_default().insert(rank);
    }

    /// Returns the members that take part in no agreement of survivors of these contexts any more.
    pub(crate) fn retired(&self, context: u32) -> impl Iterator<Item = WorldRank> + '_ {
        self.retired.get(&(context & !1)).into_iter().flatten().copied()
    }

    /// Returns true if a member has revoked the contexts with this name, which are open, before this rank opened them.
    pub(crate) fn take_early_revocation(&mut self, name: u64) -> bool {
        let (revoked, later): (Vec<_>, _) =
            std::mem::take(&mut self.revoked_early).into_iter().partition(|(early, _)| *early <= name);
        self.revoked_early = later;
        let members = self.members(self.closed.number(name));
        revoked.iter().any(|(early, by)| *early == name && members.is_some_and(|all| all.contains(*by)))
    }

    /// Skips the first `skipped` names that this rank has not used, free or not, and returns the first later name whose
    /// numbers are free. Returns `None` if all numbers are in use.
    pub(crate) fn free_name(&self, skipped: u64) -> Option<u64> {
        let mut name = self.next.checked_add(2 * skipped)?;
        let end = name.checked_add(self.closed.space())?;
        while name < end {
            if self.is_free(name) {
                return Some(name);
            }
            name = self.closed.behind(name).unwrap_or(name + 2);
        }
        None
    }

    /// Returns true if the numbers of a name are not in use, and can be used.
    fn is_free(&self, name: u64) -> bool {
        let number = self.closed.number(name);
        number >= FIRST && !self.all.contains(number / 2) && !self.closed.contains(number)
    }

    /// Notes that this rank has begun the collective operation with this number. The ranks count the operations of each
    /// pair of contexts from 0, and the numbers may wrap.
    pub(crate) fn note_begun(&mut self, context: u32, number: u32) {
        let begun = match context < FIRST {
            true => &mut self.begun_in_job,
            false => match self.all.get_mut(context / 2) {
                Some(pair) => &mut pair.begun,
                None => return,
            },
        };
        if has_begun(number, *begun) {
            return;
        }
        *begun = number.wrapping_add(1);
    }

    /// Returns the number of collective operations that this rank has begun.
    pub(crate) fn begun(&self, context: u32) -> u32 {
        match context < FIRST {
            true => self.begun_in_job,
            false => self.get(context).map_or(0, |pair| pair.begun),
        }
    }

    /// Returns the name of open contexts.
    pub(crate) fn name(&self, context: u32) -> Option<u64> {
        Some(self.get(context)?.name)
    }

    /// Returns the members of an open context.
    pub(crate) fn members(&self, context: u32) -> Option<&Group> {
        Some(&self.get(context)?.members)
    }

    /// Returns the first of the names from `from` on and before `until` whose contexts are open here, with `rank` as a
    /// member.
    pub(crate) fn first_open(&self, from: u64, until: u64, rank: WorldRank) -> Option<u64> {
        let is_one = |pair: &&Pair| (from..until).contains(&pair.name) && pair.members.contains(rank);
        let found = halves(from, until, self.closed.space() / 2).into_iter().flatten();
        found.filter_map(|halves| self.all.range(halves).find(is_one)).map(|pair| pair.name).min()
    }

    /// Returns the members of an open context that have ended, with the reasons.
    pub(crate) fn ended(&self, context: u32) -> impl Iterator<Item = (WorldRank, Cause)> + '_ {
        self.get(context).into_iter().flat_map(|pair| pair.ended(&self.ended))
    }

    /// Returns true if a peer's message in a context must be received, and false if it must be dropped.
    ///
    /// # Errors
    /// [`WireError::Value`] if the context is unknown or the peer is not a member: the peer violates the protocol.
    #[cold]
    pub(crate) fn admit(
        &mut self,
        link: &mut Link,
        context: u32,
        tag: u64,
        source: Peer,
    ) -> Result<bool, WireError> {
        match self.member(link, context, source) {
            Some(_) if self.is_revoked(context) && !is_of_survivors(tag) => Ok(false),
            Some(None) => Ok(true),
            // This rank has closed the context.
            None if self.get(context).is_none()
                && (u64::from(context) < self.next || self.closed.contains(context & !1)) =>
            {
                Ok(false)
            }
            _ => Err(WireError::Value { field: "context" }),
        }
    }

    /// Returns `Some(Some(cause))` if a member of an open context has ended, `Some(None)` if it has not ended, and
    /// `None` if the peer is not a member or the context is not open.
    #[cold]
    pub(crate) fn member(&mut self, link: &mut Link, context: u32, peer: Peer) -> Option<Option<Cause>> {
        if context < FIRST {
            return Some(None);
        }
        let rank = link.peer(peer).rank();
        if !self.is_alive(context, rank) {
            if let Some(cause) = self.get(context)?.partner(&self.ended, context, rank)? {
                return Some(Some(cause));
            }
            if !self.is_revoked(context) {
                let (at, key) = alive_at(context, rank);
                self.alive[at] = key;
            }
        }
        if !self.is_revoked(context) {
            link.peer_mut(peer).set_known_in(Some(context));
        }
        Some(None)
    }

    /// Returns true if the cache contains this rank as a living member of the context.
    #[inline(always)]
    fn is_alive(&self, context: u32, rank: WorldRank) -> bool {
        let (at, key) = alive_at(context, rank);
        self.alive[at] == key
    }

    /// Returns true if a rank is a member of a context. All ranks are members of the contexts of the job.
    #[inline(always)]
    pub(crate) fn is_member(&self, context: u32, rank: WorldRank) -> bool {
        context < FIRST || self.is_alive(context, rank) || self.is_opened_member(context, rank)
    }

    /// Returns true if a rank is a member of an open context with one of these names, and has not ended there alone.
    #[cold]
    pub(crate) fn is_member_of(&self, context: u32, rank: WorldRank, names: &Range<u64>) -> bool {
        let is_one = |pair: &&Pair| names.contains(&pair.name) && pair.gone(rank).is_none();
        self.get(context)
            .filter(is_one)
            .is_some_and(|pair| pair.partner(&self.ended, context, rank).is_some())
    }

    /// Returns the names of contexts in which a rank has ended, if they were opened.
    pub(crate) fn names_ended(&self, rank: WorldRank) -> Range<u64> {
        0..self.ended.0.get(&rank).copied().unwrap_or(0)
    }

    #[cold]
    fn is_opened_member(&self, context: u32, rank: WorldRank) -> bool {
        self.get(context).is_some_and(|pair| pair.partner(&self.ended, context, rank).is_some())
    }

    /// Returns true if, apart from this rank, all members that could send messages in a context have ended. Then only
    /// messages of this rank to itself can still arrive there. Also returns true if the context is not open.
    pub(crate) fn is_deserted(&self, context: u32) -> bool {
        self.get(context).is_none_or(|pair| pair.is_deserted(&self.ended))
    }

    /// Notes that a peer has ended in all contexts that are open. Returns the names of contexts in which the rank had
    /// not ended before.
    pub(crate) fn rank_ended(&mut self, link: &mut Link, peer: Peer) -> Range<u64> {
        let rank = link.peer(peer).rank();
        self.ends += 1;
        self.alive = [0; ALIVE];
        link.peer_mut(peer).set_known_in(None);
        let first = self.names_ended(rank).end;
        self.ended.end(rank, self.next);
        self.deserted = self.all.iter().filter(|(_, pair)| pair.is_deserted(&self.ended)).count();
        self.early.retain(|&(_, early)| early != rank);
        first..self.next
    }

    /// Notes that a peer has left the contexts with a name. Returns the number of the pair if the peer was a member
    /// that had not ended. If this rank has opened contexts with that name for other members, in another agreement,
    /// then it has refused to open the contexts of the peer's agreement, and nothing changes.
    ///
    /// # Errors
    /// [`WireError::Value`] if the contexts cannot be left: the peer violates the protocol.
    #[cold]
    pub(crate) fn member_left(
        &mut self,
        link: &mut Link,
        name: u64,
        peer: Peer,
    ) -> Result<Option<u32>, WireError> {
        if name < FIRST.into() || !name.is_multiple_of(2) {
            return Err(WireError::Value { field: "context" });
        }
        let (number, rank) = (self.closed.number(name), link.peer(peer).rank());
        if let Some(pair) = self.all.get_mut(number / 2).filter(|pair| pair.name == name) {
            self.ends += 1;
            self.alive = [0; ALIVE];
            link.peer_mut(peer).set_known_in(None);
            let was_deserted = pair.is_deserted(&self.ended);
            let has_changed = pair.leave(&self.ended, rank);
            self.deserted += usize::from(!was_deserted && pair.is_deserted(&self.ended));
            return Ok(has_changed.then_some(number));
        }
        // The peer may have opened and left the contexts before this rank opens them, so this rank keeps the name. If
        // the name is before `next`, this rank will not open the contexts any more: it has closed them, or is not a
        // member.
        if name >= self.next {
            push_early(&mut self.early, name, rank);
        }
        Ok(None)
    }

    /// Asserts the invariants.
    pub(crate) fn check_invariants(&self, link: &Link) {
        assert!(self.all.len() <= self.max, "the budget holds");
        let mut deserted = 0;
        for (half, pair) in self.all.iter() {
            deserted += usize::from(pair.is_deserted(&self.ended));
            let mut gone = pair.gone.iter().flat_map(|gone| gone.keys());
            assert!(gone.all(|rank| pair.members.contains(*rank)), "only members leave");
            assert!((FIRST.into()..self.next).contains(&pair.name), "names in use are before the next one");
            assert_eq!(self.closed.number(pair.name), 2 * half, "a number is that of its name");
        }
        assert_eq!(self.deserted, deserted);
        assert_eq!(self.job_end == 0, self.revoked.contains(&0));
        let is_open = |pair: &u32| *pair < FIRST || self.get(*pair).is_some();
        let noted = self.revoked.iter().chain(self.retired.keys());
        assert!(noted.into_iter().all(is_open), "nothing is noted about contexts that are closed");
        let cached = self.alive.into_iter().map(|known| ((known >> 32) as u32, WorldRank(known as u32)));
        let cached = cached.filter(|(context, _)| *context != 0);
        let of_peers = link.peers().filter_map(|(_, peer)| Some((peer.known_in()?, peer.rank())));
        for (context, rank) in cached.chain(of_peers) {
            let member = self.get(context).and_then(|pair| pair.partner(&self.ended, context, rank));
            assert_eq!(member, Some(None), "rank {rank} has not ended in context {context}");
        }
        assert!(
            self.early.iter().all(|(name, _)| *name >= self.next),
            "a context that was used is not awaited"
        );
    }

    fn get(&self, context: u32) -> Option<&Pair> {
        self.all.get(context / 2)
    }

    /// Returns true if a peer is known to be a living member of a context that is not revoked: of a context of the job,
    /// which has all ranks as members, or of the one other context that the peer's state remembers. If this returns
    /// false, [`is_revoked`](Self::is_revoked) and [`member`](Self::member) give the answer.
    #[inline(always)]
    pub(crate) fn is_known(&self, peer: &PeerState, context: u32) -> bool {
        context < self.job_end || peer.is_known_in(context)
    }
}

/// Adds an entry of a rank. Drops the oldest entry of the rank if it has [`EARLY_MAX`] of them.
fn push_early(early: &mut Vec<(u64, WorldRank)>, name: u64, rank: WorldRank) {
    let mut of_rank = early.iter().enumerate().filter(|(_, (_, of))| *of == rank);
    if let (Some((oldest, _)), EARLY_MAX..) = (of_rank.next(), 1 + of_rank.count()) {
        early.remove(oldest);
    }
    early.push((name, rank));
}

/// Returns true if the collective operation with this number is one of the first `begun` operations.
pub(crate) fn has_begun(number: u32, begun: u32) -> bool {
    let ahead = begun.wrapping_sub(number).cast_signed();
    ahead > 0
}

/// The state of the contexts with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// They are open, and this is their even number.
    Now(u32),
    /// This rank has closed them, or will never be a member.
    Before,
    /// This rank has not opened them, and still may.
    Never,
}

/// Returns the numbers, divided by 2, of all even names from `from` on and before `until`. They are one range, or two
/// ranges if the numbers begin again at 0 between these names. There are `space` different quotients.
fn halves(from: u64, until: u64, space: u64) -> [Option<RangeInclusive<u32>>; 2] {
    let (first, end) = (from.div_ceil(2), until.div_ceil(2));
    if first >= end {
        return [None, None];
    }
    // Each is less than 2^31.
    let range = |first: u64, last: u64| Some(first as u32..=last as u32);
    let (low, high) = (first % space, (end - 1) % space);
    match () {
        () if end - first >= space => [range(0, space - 1), None],
        () if low <= high => [range(low, high), None],
        () => [range(low, space - 1), range(0, high)],
    }
}

/// Returns the index of a member in [`Contexts::alive`], and the value of its entry there.
#[inline(always)]
fn alive_at(context: u32, rank: WorldRank) -> (usize, u64) {
    (context.wrapping_add(rank.0) as usize % ALIVE, u64::from(context) << 32 | u64::from(rank.0))
}

impl Ended {
    /// Notes that a rank has ended in the contexts with names below `next`.
    fn end(&mut self, rank: WorldRank, next: u64) {
        let until = self.0.entry(rank).or_default();
        *until = next.max(*until);
    }

    /// Returns true if a rank has ended since the contexts with this name were opened.
    fn contains(&self, rank: WorldRank, name: u64) -> bool {
        self.0.get(&rank).is_some_and(|until| name < *until)
    }
}

impl Pair {
    /// Returns `Some(Some(cause))` if a member has ended, `Some(None)` if it has not, and `None` if the rank is not a
    /// member.
    #[inline]
    fn member(&self, ended: &Ended, rank: WorldRank) -> Option<Option<Cause>> {
        self.members.contains(rank).then(|| match self.gone(rank) {
            Some(cause) => Some(cause.clone()),
            None => ended.contains(rank, self.name).then_some(Cause::Restarted),
        })
    }

    /// Returns the same as [`member`](Self::member), but `None` for ranks with which this rank exchanges no messages in
    /// this context.
    #[inline]
    fn partner(&self, ended: &Ended, context: u32, rank: WorldRank) -> Option<Option<Cause>> {
        let is_own = || self.own.as_ref().is_some_and(|own| own.contains(rank));
        if context.is_multiple_of(2) && is_own() { None } else { self.member(ended, rank) }
    }

    fn gone(&self, rank: WorldRank) -> Option<&Cause> {
        self.gone.as_ref()?.get(&rank)
    }

    /// Returns the members that have ended, with the reasons.
    fn ended<'a>(&'a self, ended: &'a Ended) -> impl Iterator<Item = (WorldRank, Cause)> + 'a {
        let gone = self.gone.iter().flat_map(|gone| gone.iter()).map(|(rank, cause)| (*rank, cause.clone()));
        let died = ended.0.iter().filter(|(_, until)| self.name < **until).map(|(rank, _)| *rank);
        let died = died.filter(|rank| self.members.contains(*rank) && self.gone(*rank).is_none());
        gone.chain(died.map(|rank| (rank, Cause::Restarted)))
    }

    /// If a rank is a member that has not ended, notes that it has left, and returns true.
    fn leave(&mut self, ended: &Ended, rank: WorldRank) -> bool {
        let is_new = self.member(ended, rank) == Some(None);
        if is_new {
            self.gone.get_or_insert_default().insert(rank, Cause::LeftContext);
        }
        is_new
    }

    /// Returns true if, apart from this rank, all members that could send a message here have ended.
    fn is_deserted(&self, ended: &Ended) -> bool {
        let partners = match &self.own {
            None => self.members.len().saturating_sub(1) as usize,
            Some(own) => (self.members.len() - own.len()) as usize,
        };
        let gone = self.gone.as_ref().map_or(0, |gone| gone.len());
        // At most `gone` partners have ended in these contexts, and at most `ended.0.len()` partners have ended
        // otherwise. So in most contexts the members need not be looked at.
        if partners == 0 || partners > gone + ended.0.len() {
            return false;
        }
        let is_partner = |rank: WorldRank| self.own.as_ref().is_none_or(|own| !own.contains(rank));
        self.ended(ended).filter(|(rank, _)| is_partner(*rank)).count() >= partners
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_of_operations_may_wrap() {
        for first in [0, 7, u32::MAX - 1, u32::MAX] {
            let behind = first.wrapping_add(1);
            assert!(!has_begun(first, first) && has_begun(first, behind));
            assert!(!has_begun(behind, first) && has_begun(first, behind.wrapping_add(1000)));
        }
    }

    #[test]
    fn halves_are_those_of_all_names_between() {
        for space in [4, 5] {
            for from in 0..30 {
                for until in 0..40 {
                    let found: Vec<_> = halves(from, until, space).into_iter().flatten().flatten().collect();
                    let names = (from..until).filter(|name| name.is_multiple_of(2));
                    let expected: BTreeSet<_> = names.map(|name| (name / 2 % space) as u32).collect();
                    assert_eq!(found.len(), expected.len(), "{from}..{until} of {space}: {found:?}");
                    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
                }
            }
        }
        assert_eq!(halves(u64::MAX - 5, u64::MAX, 1 << 31)[0], Some((1 << 31) - 3..=(1 << 31) - 1));
    }
}
