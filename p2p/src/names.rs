//! The names of contexts that this rank has closed. They are kept until the numbers of these contexts may be used
//! again.
//!
//! A packet carries only the low bits of a context's name, its number, so a later context can have the same number. A
//! message that was sent in the earlier context must not be received in the later one. So a rank that has closed
//! contexts opens none with the same numbers until all other members have confirmed that they send nothing to this rank
//! in the closed contexts any more:
//!
//! ```text
//!  a rank that has closed names       a member
//!  INQUIRE from, until ─────────────▶
//!              ◀─────────── CONFIRM   from, until, used: it sends nothing under the names before `used`
//! ```
//!
//! Packets arrive in order, so every message that the member has sent in the closed contexts arrives before its
//! CONFIRM. No answer is needed from a member that has ended. A member answers each INQUIRE immediately. If it still
//! has some of the contexts open, or sends in them that are under way, `used` is the first of their names, and the rank
//! asks again later.
//!
//! The same numbers come again after 2^31 communicators. A rank asks the members of its closed contexts only when three
//! quarters of these communicators have been created, so most programs never ask. Until then the closed names are kept
//! as a few ranges. Each range has one group, which contains the members of all its contexts.

use std::collections::{BTreeSet, VecDeque};

use samite_fabric::link::{Group, WorldRank};

/// The names of contexts that this rank has closed, and in which other members may still send.
#[derive(Debug)]
pub(crate) struct Closed {
    /// The number of different context numbers that packets can carry.
    space: u64,
    /// Ranges of names. New ranges, and ranges about which members have already been asked, come last.
    ranges: VecDeque<Range>,
    /// The question that is put to the members at present, about one range.
    inquiry: Option<Inquiry>,
    /// The number of ranges at the front of `ranges` about which members are still to be asked.
    to_ask: usize,
}

/// The names from `from` on and before `until`.
#[derive(Clone, Debug)]
struct Range {
    from: u64,
    until: u64,
    /// All members of the contexts with these names, and perhaps other ranks.
    members: Group,
}

#[derive(Debug)]
struct Inquiry {
    range: Range,
    /// The index in `range.members` of the next member to be asked.
    next: u32,
    /// The members that were asked and have not answered.
    awaited: BTreeSet<WorldRank>,
    /// The first name of the range that is still in use, according to the answers so far; `range.until` if none is.
    used: u64,
}

/// The largest number of ranges. If there are more, two ranges are united.
const RANGES_MAX: usize = 16;

/// The largest number of members that are asked at a time.
const ASKED_MAX: usize = 16;

impl Default for Closed {
    fn default() -> Self {
        Self { space: 1 << 32, ranges: VecDeque::new(), inquiry: None, to_ask: 0 }
    }
}

impl Closed {
    /// Limits the numbers of contexts to `bits` bits, so that they are reused soon. For tests.
    pub(crate) fn cut(&mut self, bits: u32) {
        self.space = 1 << bits.clamp(3, 32);
    }

    /// Returns the number of contexts that the wire can tell apart.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }

    /// Returns the number of a context on the wire.
    pub(crate) fn number(&self, name: u64) -> u32 {
        (name % self.space) as u32
    }

    /// Returns true if a closed range contains a name with this number.
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.all().any(|range| range.name(number, self.space).is_some())
    }

    /// Returns the first name after `name` whose number is not in the closed range that contains the number of `name`.
    /// Returns `None` if no closed range contains that number.
    pub(crate) fn behind(&self, name: u64) -> Option<u64> {
        let number = self.number(name);
        let rest = |range: &Range| Some(range.until - range.name(number, self.space)?);
        self.all().find_map(rest).map(|rest| name + rest)
    }

    /// Adds the name of two contexts that were closed, in a job of `size` ranks.
    pub(crate) fn insert(&mut self, name: u64, members: Group, size: u32) {
        self.push(Range { from: name, until: name + 2, members });
        if self.ranges.len() > RANGES_MAX {
            self.unite(size);
        }
    }

    /// Adds a range. Unites it with the range before it if both have the same members and together span at most `space`
    /// names.
    fn push(&mut self, new: Range) {
        let neighbour = self.ranges.iter_mut().find(|range| range.until == new.from);
        match neighbour.filter(|range| range.members == new.members && new.until - range.from <= self.space) {
            Some(range) => range.until = new.until,
            None => self.ranges.push_back(new),
        }
    }

    /// Unites the two neighbouring ranges with the smallest gap, among those that together span at most `space` names;
    /// unites none if there are no such ranges. If their members differ, all ranks become members of the united range.
    fn unite(&mut self, size: u32) {
        let mut ranges: Vec<_> = self.ranges.drain(..).collect();
        ranges.sort_by_key(|range| range.from);
        let gap = |pair: &[Range]| pair[1].from.saturating_sub(pair[0].until);
        let fits = |pair: &[Range]| pair[1].until.max(pair[0].until) - pair[0].from <= self.space;
        let pairs = ranges.windows(2).enumerate().filter(|(_, pair)| fits(pair));
        if let Some((first, _)) = pairs.min_by_key(|(_, pair)| gap(pair)) {
            let second = ranges.remove(first + 1);
            let range = &mut ranges[first];
            range.until = range.until.max(second.until);
            if range.members != second.members {
                range.members = Group::range(WorldRank(0), size);
            }
        }
        self.ranges = ranges.into();
        self.to_ask = 0;
    }

    /// Selects the ranges about which members are to be asked: the ranges whose numbers will be needed soon, or all
    /// ranges if no number is free. `free` is the next name whose number is free. Does nothing while members are still
    /// to be asked about the ranges of the previous selection, or have not answered.
    pub(crate) fn ask(&mut self, free: Option<u64>) {
        if self.to_ask == 0 && self.inquiry.is_none() {
            let soon = free.map_or(u64::MAX, |free| free + self.space / 4);
            let (is_due, later): (VecDeque<_>, VecDeque<_>) =
                self.ranges.drain(..).partition(|range| soon >= range.from + self.space);
            self.to_ask = is_due.len();
            self.ranges = is_due;
            self.ranges.extend(later);
        }
    }

    /// Returns the next member to be asked and the range of names, and notes that the member's answer is awaited.
    /// Returns `None` if all members of the present range were asked and not all have answered, if [`ASKED_MAX`]
    /// answers are awaited, or if no range is left to ask about.
    pub(crate) fn next_question(&mut self) -> Option<(WorldRank, u64, u64)> {
        if self.inquiry.is_none() {
            self.to_ask = self.to_ask.checked_sub(1)?;
            let range = self.ranges.pop_front()?;
            let used = range.until;
            self.inquiry = Some(Inquiry { range, next: 0, awaited: BTreeSet::new(), used });
        }
        let inquiry = self.inquiry.as_mut().filter(|inquiry| inquiry.awaited.len() < ASKED_MAX)?;
        let rank = inquiry.range.members.rank(inquiry.next)?;
        inquiry.next += 1;
        inquiry.awaited.insert(rank);
        Some((rank, inquiry.range.from, inquiry.range.until))
    }

    /// Takes a member's answer about a range: `used` is the first name that the member still uses. Returns false if no
    /// answer of this member about this range is awaited.
    pub(crate) fn answer(&mut self, rank: WorldRank, from: u64, until: u64, used: u64) -> bool {
        let Some(inquiry) = &mut self.inquiry else { return false };
        let is_asked = (inquiry.range.from, inquiry.range.until) == (from, until);
        let is_asked = is_asked && inquiry.awaited.remove(&rank);
        if is_asked {
            inquiry.used = inquiry.used.min(used.max(from) & !1);
        }
        self.end_inquiry();
        is_asked
    }

    /// Notes that a member has ended. It sends nothing any more, so its answer is not awaited.
    pub(crate) fn rank_ended(&mut self, rank: WorldRank) {
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.awaited.remove(&rank);
            self.end_inquiry();
        }
    }

    /// If all members have answered, frees the numbers of the names before the first name that is in use.
    fn end_inquiry(&mut self) {
        let is_over =
            |inquiry: &mut Inquiry| inquiry.awaited.is_empty() && inquiry.next == inquiry.range.members.len();
        let Some(Inquiry { range, used, .. }) = self.inquiry.take_if(is_over) else { return };
        if used < range.until {
            self.ranges.push_back(Range { from: used, until: used + 2, members: range.members.clone() });
        }
        // The next question to the members is about the names behind the name in use, so that one open communicator
        // does not block the names of all later ones.
        if used + 2 < range.until {
            self.ranges.push_front(Range { from: used + 2, ..range });
            self.to_ask += 1;
        }
    }

    fn all(&self) -> impl Iterator<Item = &Range> {
        self.ranges.iter().chain(self.inquiry.as_ref().map(|inquiry| &inquiry.range))
    }
}

impl Range {
    /// Returns the name in this range whose number is `number`, or `None` if there is none.
    fn name(&self, number: u32, space: u64) -> Option<u64> {
        name_in(self.from, self.until, number, space)
    }
}

/// Returns the first name from `from` on and before `until` whose low bits are `number`, or `None` if there is none.
pub(crate) fn name_in(from: u64, until: u64, number: u32, space: u64) -> Option<u64> {
    let distance = u64::from(number).wrapping_sub(from % space) % space;
    from.checked_add(distance).filter(|name| *name < until)
}
