//! The matcher: two queues over one structure.

use alloc::vec::Vec;

use crate::adaptive::Adaptive;
use crate::config::Config;
use crate::handle::{Arrival, PostedId, Posting, Purged, UnexpectedId};
use crate::key::{Envelope, Pattern, Source};
use crate::memory::Memory;
use crate::meter::{Counting, Meter, Silent, Stats, Wildcards};
use crate::pool::{Entry, Pool, Slot};
use crate::query::{Exact, Query, Side};
use crate::structure::{NotShort, Selection, Structure};

/// A matching engine: it decides which message goes to which receive.
///
/// `P` is stored with each posted receive and `U` with each unexpected message. `S` is the structure that orders both
/// queues, and `M` the meter, which by default counts nothing.
///
/// The order is MPI's (MPI 4.1, section 3.5). A message goes to the matching receive that was posted first; a receive
/// gets the matching message that arrived first. Wildcards do not change this order.
#[derive(Debug)]
pub struct Matcher<P, U, S: Structure = Adaptive, M = Silent> {
    posted: Pool<Envelope, S::Links<Envelope>, P>,
    unexpected: Pool<Pattern, S::Links<Pattern>, U>,
    structure: S,
    bytes_max: Option<usize>,
    bytes_peak: usize,
    meter: M,
}

impl<P, U, S: Structure, M: Meter> Matcher<P, U, S, M> {
    /// Returns an empty matcher. Queues allocate memory on first use.
    pub fn new(config: &Config) -> Self {
        Self {
            posted: Pool::new(),
            unexpected: Pool::new(),
            structure: S::new(config),
            bytes_max: config.bytes_max,
            bytes_peak: 0,
            meter: M::default(),
        }
    }

    /// Handles the arrival of a message: takes out the first posted receive that matches it, or queues the message with
    /// the payload that `unexpected` makes, or refuses the message for lack of memory. The closure is called only when
    /// the message is queued. This function is always inlined, which saves 30 instructions of each message that
    /// arrives.
    #[inline(always)]
    pub fn arrive(&mut self, envelope: Envelope, unexpected: impl FnOnce() -> U) -> Arrival<P> {
        if let Some(posted) = self.match_posted(&envelope) {
            return Arrival::Matched(posted);
        }
        let Envelope { context, source, tag } = envelope;
        if !self.has_room::<Pattern>(context, source) || !self.unexpected.make_room() {
            return Arrival::Refused;
        }
        let (slot, generation) = self.unexpected.insert(source, tag, Exact, Default::default(), unexpected());
        self.structure.insert(&mut self.unexpected, slot, context);
        self.note_growth();
        Arrival::Queued(UnexpectedId { slot, generation, context })
    }

    /// Posts a receive: takes out the first unexpected message that it matches, or queues the receive, or refuses it
    /// for lack of memory. This function is always inlined, which saves 20 instructions of each receive that is posted.
    #[inline(always)]
    pub fn post(&mut self, pattern: Pattern, posted: P) -> Posting<P, U> {
        if let Some((envelope, unexpected)) = self.match_unexpected(&pattern) {
            return Posting::Matched { envelope, unexpected, posted };
        }
        let source = pattern.source.bits();
        if !self.has_room::<Envelope>(pattern.context, source) || !self.posted.make_room() {
            return Posting::Refused(posted);
        }
        let Pattern { context, tag, mask, .. } = pattern;
        let (slot, generation) = self.posted.insert(source, tag, mask, Default::default(), posted);
        self.structure.insert(&mut self.posted, slot, context);
        self.note_growth();
        Posting::Queued(PostedId { slot, generation, context })
    }

    /// Takes out the first unexpected message that matches the pattern (MPI: matched probe).
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, U)> {
        self.match_unexpected(pattern)
    }

    /// Returns the first unexpected message that matches the pattern, and leaves it queued.
    ///
    /// This function takes `&mut self`, because a search may reorganize the queue to shorten the next search.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<(UnexpectedId, Envelope, &U)> {
        let slot = self.probe_unexpected(pattern)?;
        let entry = &self.unexpected[slot];
        let id =
            UnexpectedId { slot, generation: self.unexpected.generation(slot), context: pattern.context };
        Some((id, envelope_of(entry, pattern.context), &entry.payload))
    }

    /// Takes out a posted receive if it is still posted.
    pub fn cancel(&mut self, id: PostedId) -> Option<P> {
        let held = self.posted.holds(id.slot, id.generation);
        held.then(|| self.take_posted(id.slot, id.context).payload)
    }

    /// Takes out an unexpected message if it is still queued.
    pub fn remove(&mut self, id: UnexpectedId) -> Option<(Envelope, U)> {
        let held = self.unexpected.holds(id.slot, id.generation);
        held.then(|| self.take_unexpected(id.slot, id.context))
    }

    /// Returns a posted receive and its pattern if it is still posted.
    pub fn posted(&self, id: PostedId) -> Option<(Pattern, &P)> {
        let held = self.posted.holds(id.slot, id.generation);
        held.then(|| {
            let entry = &self.posted[id.slot];
            (pattern_of(entry, id.context), &entry.payload)
        })
    }

    /// Returns the payload of a posted receive if it is still posted.
    pub fn posted_mut(&mut self, id: PostedId) -> Option<&mut P> {
        let held = self.posted.holds(id.slot, id.generation);
        held.then(|| &mut self.posted[id.slot].payload)
    }

    /// Returns an unexpected message and its envelope if it is still queued.
    pub fn unexpected(&self, id: UnexpectedId) -> Option<(Envelope, &U)> {
        let held = self.unexpected.holds(id.slot, id.generation);
        held.then(|| {
            let entry = &self.unexpected[id.slot];
            (envelope_of(entry, id.context), &entry.payload)
        })
    }

    /// Returns the payload of an unexpected message if it is still queued.
    pub fn unexpected_mut(&mut self, id: UnexpectedId) -> Option<&mut U> {
        let held = self.unexpected.holds(id.slot, id.generation);
        held.then(|| &mut self.unexpected[id.slot].payload)
    }

    /// Selects the queued message to send first to a receiver that has posted `patterns` in that order. Returns it with
    /// the index of its pattern.
    ///
    /// This is for a protocol in which a receiver can refuse messages, and later sends the list of its posted receives.
    /// The *sender* queues its refused messages in a matcher of its own, as unexpected messages whose source is the
    /// receiver's rank, and calls this function with the list. The result is the first queued message that matches the
    /// first pattern that any message matches. If messages are sent in this order, each arrives at the receive that
    /// MPI's order assigns to it.
    pub fn select_send(&mut self, patterns: &[Pattern]) -> Option<(UnexpectedId, usize)> {
        patterns.iter().enumerate().find_map(|(index, pattern)| {
            let slot = self.probe_unexpected(pattern)?;
            let generation = self.unexpected.generation(slot);
            Some((UnexpectedId { slot, generation, context: pattern.context }, index))
        })
    }

    /// Takes out all items of one source, for example after its process has died: first the receives that name its
    /// rank, then its messages. Within a context, the receives and the messages each come in the order of their
    /// insertion. Receives from any source stay queued; [`visit_any_source`](Self::visit_any_source) visits them.
    pub fn purge_source(&mut self, source: u32, drain: impl FnMut(Purged<P, U>)) {
        // `u32::MAX` is `Source::ANY`, not the rank of a process. The receives that are stored with this source are the
        // receives from any source, and they stay queued.
        if !Source::rank(source).is_any() {
            self.purge(Selection::Source(source), drain);
        }
    }

    /// Takes out all items of one context, for example after its communicator was freed: first the receives, then the
    /// messages, each in the order of their insertion.
    pub fn purge_context(&mut self, context: u32, drain: impl FnMut(Purged<P, U>)) {
        self.purge(Selection::Context(context), drain);
        self.structure.drop_context(context);
    }

    /// Visits the posted receives from any source, in every context, and leaves them posted.
    pub fn visit_any_source(&mut self, mut visit: impl FnMut(PostedId, Pattern, &mut P)) {
        let mut found = Vec::new();
        self.structure.select(&self.posted, Selection::Source(Source::ANY.bits()), &mut found);
        for (slot, context) in found {
            let generation = self.posted.generation(slot);
            let entry = &mut self.posted[slot];
            visit(PostedId { slot, generation, context }, pattern_of(entry, context), &mut entry.payload);
        }
    }

    /// Visits the posted receives of one context in the order of posting, and leaves them posted.
    pub fn visit_posted(&self, context: u32, mut visit: impl FnMut(PostedId, Pattern, &P)) {
        let mut found = Vec::new();
        self.structure.select(&self.posted, Selection::Context(context), &mut found);
        for (slot, context) in found {
            let (generation, entry) = (self.posted.generation(slot), &self.posted[slot]);
            visit(PostedId { slot, generation, context }, pattern_of(entry, context), &entry.payload);
        }
    }

    /// Visits the unexpected messages of one source, in every context, and leaves them queued. Within a context it
    /// visits them in the order of arrival.
    pub fn visit_source(&mut self, source: u32, mut visit: impl FnMut(UnexpectedId, Envelope, &mut U)) {
        // `u32::MAX` is `Source::ANY`, not the rank of a process.
        if Source::rank(source).is_any() {
            return;
        }
        let mut found = Vec::new();
        self.structure.select(&self.unexpected, Selection::Source(source), &mut found);
        for (slot, context) in found {
            let generation = self.unexpected.generation(slot);
            let entry = &mut self.unexpected[slot];
            visit(
                UnexpectedId { slot, generation, context },
                envelope_of(entry, context),
                &mut entry.payload,
            );
        }
    }

    /// Iterates over the payloads of all unexpected messages, in unspecified order. Only for checks, because it visits
    /// all slots, including free ones.
    pub fn unexpected_payloads(&self) -> impl Iterator<Item = &U> {
        self.unexpected.payloads()
    }

    /// Visits the unexpected messages of one context in the order of arrival.
    pub fn visit_unexpected(&self, context: u32, mut visit: impl FnMut(Envelope)) {
        let mut found = Vec::new();
        self.structure.select(&self.unexpected, Selection::Context(context), &mut found);
        for (slot, context) in found {
            visit(envelope_of(&self.unexpected[slot], context));
        }
    }

    /// Returns the number of posted receives.
    pub const fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Returns the number of unexpected messages.
    pub const fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Returns the memory in use, by purpose.
    pub fn memory(&self) -> Memory {
        Memory {
            posted: self.posted.bytes(),
            unexpected: self.unexpected.bytes(),
            structure: self.structure.bytes(),
            peak: self.bytes_peak,
            reserved: self.posted.reserved() + self.unexpected.reserved() + self.structure.reserved(),
        }
    }

    /// Takes out the first posted receive that matches the message.
    #[inline]
    fn match_posted(&mut self, envelope: &Envelope) -> Option<P> {
        let length = self.posted.len();
        if length == 0 {
            self.meter.search(Side::Posted, 0, None);
            return None;
        }
        let found = match self.structure.take(&mut self.posted, envelope, &mut self.meter) {
            Ok(found) => found,
            Err(NotShort) => self.take_posted_far(envelope),
        };
        let Some(slot) = found else {
            self.meter.search(Side::Posted, length, None);
            return None;
        };
        let entry = self.posted.take(slot);
        self.meter.search(Side::Posted, length, Some(wildcards_of(&entry)));
        self.sample_memory();
        Some(entry.payload)
    }

    /// Takes out the first unexpected message that matches the receive. This function is always inlined. A call would
    /// write the result to memory in pieces, and the processor would stall if the caller read the whole result before
    /// the pieces are stored.
    #[inline(always)]
    fn match_unexpected(&mut self, pattern: &Pattern) -> Option<(Envelope, U)> {
        let length = self.unexpected.len();
        if length == 0 {
            self.meter.search(Side::Unexpected, 0, None);
            return None;
        }
        let found = match self.structure.take(&mut self.unexpected, pattern, &mut self.meter) {
            Ok(found) => found,
            Err(NotShort) => self.take_unexpected_far(pattern),
        };
        self.meter.search(Side::Unexpected, length, found.map(|_| wildcards(pattern)));
        let entry = self.unexpected.take(found?);
        self.sample_memory();
        Some((envelope_of(&entry, pattern.context), entry.payload))
    }

    /// Takes out the first posted receive that matches the message, by a long search.
    #[inline(never)]
    fn take_posted_far(&mut self, envelope: &Envelope) -> Option<Slot> {
        let slot = self.find_far(|matcher, spare| {
            matcher.structure.find(&matcher.posted, envelope, spare, &mut matcher.meter)
        })?;
        self.structure.remove(&mut self.posted, slot, envelope.context);
        Some(slot)
    }

    /// Takes out the first unexpected message that matches the receive, by a long search.
    #[inline(never)]
    fn take_unexpected_far(&mut self, pattern: &Pattern) -> Option<Slot> {
        let slot = self.search_unexpected(pattern)?;
        self.structure.remove(&mut self.unexpected, slot, pattern.context);
        Some(slot)
    }

    /// Returns the first unexpected message that matches the receive, leaves it queued, and records the search in the
    /// meter.
    fn probe_unexpected(&mut self, pattern: &Pattern) -> Option<Slot> {
        let found = self.search_unexpected(pattern);
        self.meter.search(Side::Unexpected, self.unexpected.len(), found.map(|_| wildcards(pattern)));
        found
    }

    /// Returns the first unexpected message that matches the receive, and leaves it queued.
    #[inline(never)]
    fn search_unexpected(&mut self, pattern: &Pattern) -> Option<Slot> {
        self.find_far(|matcher, spare| {
            matcher.structure.find(&matcher.unexpected, pattern, spare, &mut matcher.meter)
        })
    }

    /// Runs `find`, a search in which the structure may use memory to shorten later searches. `find` gets the number of
    /// bytes that the budget allows.
    #[inline(always)]
    fn find_far(&mut self, find: impl FnOnce(&mut Self, &mut usize) -> Option<Slot>) -> Option<Slot> {
        let before = self.spare();
        let mut spare = before;
        let found = find(self, &mut spare);
        if spare < before {
            self.note_growth();
        }
        found
    }

    fn take_posted(&mut self, slot: Slot, context: u32) -> Entry<Envelope, S::Links<Envelope>, P> {
        self.structure.remove(&mut self.posted, slot, context);
        let entry = self.posted.take(slot);
        self.sample_memory();
        entry
    }

    fn take_unexpected(&mut self, slot: Slot, context: u32) -> (Envelope, U) {
        self.structure.remove(&mut self.unexpected, slot, context);
        let entry = self.unexpected.take(slot);
        self.sample_memory();
        (envelope_of(&entry, context), entry.payload)
    }

    fn purge(&mut self, selection: Selection, mut drain: impl FnMut(Purged<P, U>)) {
        let mut found = Vec::new();
        self.structure.select(&self.posted, selection, &mut found);
        for (slot, context) in found.drain(..) {
            let entry = self.take_posted(slot, context);
            drain(Purged::Posted(pattern_of(&entry, context), entry.payload));
        }
        self.structure.select(&self.unexpected, selection, &mut found);
        for (slot, context) in found {
            let (envelope, unexpected) = self.take_unexpected(slot, context);
            drain(Purged::Unexpected(envelope, unexpected));
        }
    }

    /// Returns true if the byte budget allows one more entry in the queue that `Q` searches.
    fn has_room<Q: Query>(&self, context: u32, source: u32) -> bool {
        let Some(bytes_max) = self.bytes_max else { return true };
        let entry = match Q::SIDE {
            Side::Posted => Pool::<Envelope, S::Links<Envelope>, P>::ENTRY_BYTES,
            Side::Unexpected => Pool::<Pattern, S::Links<Pattern>, U>::ENTRY_BYTES,
        };
        self.bytes_in_use() + entry + self.structure.growth::<Q>(context, source) <= bytes_max
    }

    fn sample_memory(&mut self) {
        if M::SAMPLES_MEMORY {
            self.meter.memory(self.bytes_in_use());
        }
    }

    /// Returns the bytes that the structure may use to shorten searches.
    fn spare(&self) -> usize {
        self.bytes_max.map_or(usize::MAX, |bytes_max| bytes_max.saturating_sub(self.bytes_in_use()))
    }

    /// Records an increase of the bytes in use.
    fn note_growth(&mut self) {
        self.bytes_peak = self.bytes_peak.max(self.bytes_in_use());
        self.sample_memory();
    }

    fn bytes_in_use(&self) -> usize {
        self.posted.bytes() + self.unexpected.bytes() + self.structure.bytes()
    }
}

impl<P, U, S: Structure> Matcher<P, U, S, Counting> {
    /// Returns the counts of the meter since the matcher was made.
    pub fn stats(&self) -> Stats {
        self.meter.stats()
    }
}

fn envelope_of<L, T>(entry: &Entry<Pattern, L, T>, context: u32) -> Envelope {
    Envelope { context, source: entry.source, tag: entry.tag }
}

fn pattern_of<L, T>(entry: &Entry<Envelope, L, T>, context: u32) -> Pattern {
    Pattern { context, source: Source::rank(entry.source), tag: entry.tag, mask: entry.mask }
}

fn wildcards(pattern: &Pattern) -> Wildcards {
    Wildcards { source: pattern.source.is_any(), tag: pattern.mask != !0 }
}

fn wildcards_of<L, T>(entry: &Entry<Envelope, L, T>) -> Wildcards {
    Wildcards { source: Source::rank(entry.source).is_any(), tag: entry.mask != !0 }
}
