//! The four-dimensional structure of Zounmevo and Afsahi, as published.

use alloc::vec::Vec;
use core::mem;
use core::ops::{Index, IndexMut};

use crate::chain::{Chains, Pointer, SequencedLinks, earlier, sort_by_sequence};
use crate::config::Config;
use crate::key::Source;
use crate::meter::{Meter, Silent};
use crate::pool::{Entry, Pool, Slot};
use crate::query::{Query, Side};
use crate::structure::{Selection, Structure};

/// The 4-D queue (Zounmevo 2014, section 4.3; Zounmevo & Afsahi 2012).
///
/// A rank is split into four coordinates of `dimensionSpan` values each. The most significant coordinate selects a cube
/// in an ordered list, the second coordinate a pointer in the cube's array, and the third a jump point in the ordered
/// list at that pointer. The two lists of a jump point hold the entries of all ranks that differ only in the last
/// coordinate. Cubes and jump points exist while they contain an entry. Contexts below the threshold size are plain
/// lists.
///
/// A search by rank follows O(contexts + dimensionSpan) pointers and compares the entries of up to `dimensionSpan`
/// ranks (equation 4.12); dimensionSpan is the fourth root of the context's size, rounded up to a power of two
/// (equation 4.2). A receive from any source visits every jump point. Receives from any source are in a separate list,
/// which every arriving message compares (equation 4.13).
#[derive(Debug)]
pub struct FourD {
    leads: Vec<Lead>,
    cubes: Arena<Cube>,
    /// The arrays of the cubes. Each has `span` pointers to the first jump points of lists.
    columns: Vec<Pointer>,
    points: Arena<JumpPoint>,
    span: Span,
    /// True if contexts are below the threshold size.
    is_listed: bool,
    /// The context, group and jump point of the most recent search by rank that found a jump point. A removal or
    /// insertion for the same rank after the search need not repeat the walk.
    finger: Option<(u32, u32, usize)>,
}

/// The lists and cubes of a context: 56 bytes, as published (table 4.4).
#[derive(Debug)]
struct Lead {
    context: u32,
    /// All entries if [`FourD::is_listed`] is true; otherwise the receives from any source.
    apart: Chains,
    /// The cube with the lowest coordinate.
    cube: Pointer,
    /// The sequence number of the entry that was inserted into the context most recently.
    sequence: u64,
}

/// A cube without its array. With the array it takes 80, 144 or 272 bytes for a span of 8, 16 or 32, as published.
#[derive(Debug)]
struct Cube {
    coordinate: u32,
    /// The number of jump points in the cube.
    points: u32,
    next: Pointer,
}

/// A jump point: 48 bytes, as published.
#[derive(Debug)]
struct JumpPoint {
    coordinate: u32,
    next: Pointer,
    chains: Chains,
}

/// `dimensionSpan`, stored as its logarithm.
#[derive(Clone, Copy, Debug)]
struct Span {
    bits: u32,
}

/// The factor of the threshold between a list and this structure (equation 4.5 of Zounmevo 2014): see
/// [`Span::threshold`]. The published measurements use 2.0.
const ADJUSTMENT: u32 = 2;

impl Structure for FourD {
    type Links<Q: Query> = SequencedLinks;

    fn new(config: &Config) -> Self {
        let span = Span::of(config.ranks);
        Self {
            leads: Vec::new(),
            cubes: Arena::default(),
            columns: Vec::new(),
            points: Arena::default(),
            span,
            is_listed: config.ranks < span.threshold(),
            finger: None,
        }
    }

    fn find<Q: Query, T, M: Meter>(
        &mut self,
        pool: &Pool<Q, SequencedLinks, T>,
        query: &Q,
        _: &mut usize,
        meter: &mut M,
    ) -> Option<Slot> {
        let side = Q::SIDE as usize;
        let at = self.leads.iter().position(|lead| {
            meter.hop();
            lead.context == query.context()
        })?;
        let apart = self.leads[at].apart[side].find(pool, query, meter);
        if self.is_listed {
            return apart;
        }
        if Q::SIDE == Side::Unexpected && query.source().is_any() {
            let mut found = apart;
            for point in self.walk(&self.leads[at]) {
                meter.hop();
                found = earlier(pool, found, self.points[point].chains[side].find(pool, query, meter));
            }
            return found;
        }
        let rank = query.source().bits();
        let of_rank = self.locate(at, rank, meter).and_then(|point| {
            let (context, group) = self.path(at, rank);
            self.finger = Some((context, group, point));
            self.points[point].chains[side].find(pool, query, meter)
        });
        earlier(pool, of_rank, apart)
    }

    fn insert<Q: Query, T>(&mut self, pool: &mut Pool<Q, SequencedLinks, T>, slot: Slot, context: u32) {
        let at = self.leads.iter().position(|lead| lead.context == context).unwrap_or_else(|| {
            self.leads.push(Lead { context, apart: Chains::default(), cube: Pointer::NONE, sequence: 0 });
            self.leads.len() - 1
        });
        let lead = &mut self.leads[at];
        lead.sequence += 1;
        pool[slot].links.sequence = lead.sequence;
        if self.is_listed || is_from_any(&pool[slot]) {
            lead.apart[Q::SIDE as usize].push_back(pool, slot);
        } else {
            let point = self.reach_or_insert(at, pool[slot].source);
            self.points[point].chains[Q::SIDE as usize].push_back(pool, slot);
        }
    }

    fn remove<Q: Query, T>(&mut self, pool: &mut Pool<Q, SequencedLinks, T>, slot: Slot, context: u32) {
        let at = self.leads.iter().position(|lead| lead.context == context);
        let at = at.expect("an entry's context has a lead");
        if self.is_listed || is_from_any(&pool[slot]) {
            self.leads[at].apart[Q::SIDE as usize].unlink(pool, slot);
            return;
        }
        let rank = pool[slot].source;
        let point = self.reach(at, rank).expect("an entry has a jump point");
        let chains = &mut self.points[point].chains;
        chains[Q::SIDE as usize].unlink(pool, slot);
        if chains.iter().all(|chain| chain.is_empty()) {
            self.remove_point(at, rank);
        }
    }

    fn select<Q: Query, T>(
        &self,
        pool: &Pool<Q, SequencedLinks, T>,
        selection: Selection,
        found: &mut Vec<(Slot, u32)>,
    ) {
        let side = Q::SIDE as usize;
        for (at, lead) in self.leads.iter().enumerate() {
            let start = found.len();
            let jump_points = match selection {
                Selection::Context(context) if context != lead.context => continue,
                Selection::Context(_) => self.walk(lead).collect(),
                Selection::Source(rank) => self.locate(at, rank, &mut Silent).into_iter().collect::<Vec<_>>(),
            };
            lead.apart[side].select(pool, selection, lead.context, found);
            for point in jump_points {
                self.points[point].chains[side].select(pool, selection, lead.context, found);
            }
            sort_by_sequence(pool, &mut found[start..]);
        }
    }

    fn drop_context(&mut self, context: u32) {
        self.leads.retain(|lead| lead.context != context);
    }

    fn bytes(&self) -> usize {
        self.leads.len() * mem::size_of::<Lead>()
            + self.cubes.len() * self.cube_bytes()
            + self.points.len() * mem::size_of::<JumpPoint>()
    }

    fn reserved(&self) -> usize {
        self.leads.capacity() * mem::size_of::<Lead>()
            + self.cubes.reserved()
            + self.columns.capacity() * mem::size_of::<Pointer>()
            + self.points.reserved()
    }

    fn growth<Q: Query>(&self, _: u32, _: u32) -> usize {
        mem::size_of::<Lead>() + self.cube_bytes() + mem::size_of::<JumpPoint>()
    }
}

impl FourD {
    /// Returns the jump point of a rank. Skips the walk if the most recent search found this jump point.
    fn reach(&self, at: usize, rank: u32) -> Option<usize> {
        match self.finger {
            Some((context, group, point)) if (context, group) == self.path(at, rank) => Some(point),
            _ => self.locate(at, rank, &mut Silent),
        }
    }

    /// Returns the context and group of a rank, by which [`finger`](Self::finger) identifies its jump point.
    fn path(&self, at: usize, rank: u32) -> (u32, u32) {
        (self.leads[at].context, self.span.group(rank))
    }

    /// Returns the jump point of a rank, found by its coordinates.
    fn locate<M: Meter>(&self, at: usize, rank: u32, meter: &mut M) -> Option<usize> {
        let [c3, c2, c1] = self.span.coordinates(rank);
        let cube = self
            .cubes
            .seek(self.leads[at].cube, c3, meter)
            .filter(|&cube| self.cubes[cube].coordinate == c3)?;
        meter.hop();
        let column = self.columns[self.column(cube, c2)];
        self.points.seek(column, c1, meter).filter(|&point| self.points[point].coordinate == c1)
    }

    fn reach_or_insert(&mut self, at: usize, rank: u32) -> usize {
        if let Some(point) = self.reach(at, rank) {
            return point;
        }
        let [c3, c2, c1] = self.span.coordinates(rank);
        let cube = self.cubes.seek_or_insert(&mut self.leads[at].cube, c3, |next| Cube {
            coordinate: c3,
            points: 0,
            next,
        });
        self.cubes[cube].points += 1;
        let columns = (cube + 1) * self.span.len();
        if self.columns.len() < columns {
            self.columns.resize(columns, Pointer::NONE);
        }
        let column = self.column(cube, c2);

        self.points.seek_or_insert(&mut self.columns[column], c1, |next| JumpPoint {
            coordinate: c1,
            next,
            chains: Chains::default(),
        })
    }

    /// Frees an empty jump point, and its cube if the cube has no other jump point.
    fn remove_point(&mut self, at: usize, rank: u32) {
        self.finger = None;
        let [c3, c2, c1] = self.span.coordinates(rank);
        let cube = self.cubes.seek(self.leads[at].cube, c3, &mut Silent).expect("a jump point has a cube");
        let column = self.column(cube, c2);
        self.points.remove(&mut self.columns[column], c1);
        self.cubes[cube].points -= 1;
        if self.cubes[cube].points == 0 {
            self.cubes.remove(&mut self.leads[at].cube, c3);
        }
    }

    /// Iterates over all jump points of a context.
    fn walk(&self, lead: &Lead) -> impl Iterator<Item = usize> {
        let cubes = self.cubes.iter(lead.cube);
        let columns = cubes.flat_map(|cube| &self.columns[self.column(cube, 0)..self.column(cube + 1, 0)]);
        columns.flat_map(|&column| self.points.iter(column))
    }

    const fn column(&self, cube: usize, c2: u32) -> usize {
        cube * self.span.len() + c2 as usize
    }

    const fn cube_bytes(&self) -> usize {
        mem::size_of::<Cube>() + self.span.len() * mem::size_of::<Pointer>()
    }
}

impl Span {
    /// Returns the span by equation 4.2. For up to 256 ranks it is 4.
    const fn of(ranks: u32) -> Self {
        let ranks_log2 = u32::BITS - ranks.saturating_sub(1).leading_zeros();
        let bits = ranks_log2.div_ceil(4);
        Self { bits: if bits < 2 { 2 } else { bits } }
    }

    const fn len(self) -> usize {
        1 << self.bits
    }

    /// Returns the context size from which this structure is used instead of a list, by equation 4.5. The worst case of
    /// a search follows pointers to the cube, along the array, to the jump point and through its list.
    const fn threshold(self) -> u32 {
        (3 * self.len() as u32 + 1) * ADJUSTMENT
    }

    /// Returns a number for the coordinates that the ranks of a jump point share.
    const fn group(self, rank: u32) -> u32 {
        rank >> self.bits
    }

    /// Returns the coordinates c3, c2 and c1 of a rank: c3 is the most significant, and c0 would be the place within a
    /// group. Ranks that are not below [`Config::ranks`] are valid too: their
    /// c3 may exceed the span.
    const fn coordinates(self, rank: u32) -> [u32; 3] {
        let mask = self.len() as u32 - 1;
        [(rank >> (2 * self.bits)) >> self.bits, rank >> (2 * self.bits) & mask, rank >> self.bits & mask]
    }
}

/// Pooled objects in singly linked lists, ordered by coordinate.
#[derive(Debug)]
struct Arena<T> {
    objects: Vec<T>,
    free: Vec<usize>,
}

/// A list object with a coordinate.
trait Coordinate {
    fn coordinate(&self) -> u32;
    fn next(&self) -> Pointer;
    fn next_mut(&mut self) -> &mut Pointer;
}

impl<T: Coordinate> Arena<T> {
    const fn len(&self) -> usize {
        self.objects.len() - self.free.len()
    }

    fn reserved(&self) -> usize {
        self.objects.capacity() * mem::size_of::<T>() + self.free.capacity() * mem::size_of::<usize>()
    }

    fn iter(&self, first: Pointer) -> impl Iterator<Item = usize> {
        core::iter::successors(first.index(), |&at| self.objects[at].next().index())
    }

    /// Returns the first object whose coordinate is at least `coordinate`.
    fn seek<M: Meter>(&self, first: Pointer, coordinate: u32, meter: &mut M) -> Option<usize> {
        self.iter(first).find(|&at| {
            meter.hop();
            self.objects[at].coordinate() >= coordinate
        })
    }

    /// Returns the object with that coordinate. If there is none, inserts an object, which `make` returns for its
    /// successor.
    fn seek_or_insert(
        &mut self,
        first: &mut Pointer,
        coordinate: u32,
        make: impl FnOnce(Pointer) -> T,
    ) -> usize {
        let (before, next) = self.around(*first, coordinate);
        if let Some(next) = next.filter(|&next| self.objects[next].coordinate() == coordinate) {
            return next;
        }
        let object = make(next.map_or(Pointer::NONE, Pointer::to));
        let at = match self.free.pop() {
            Some(at) => {
                self.objects[at] = object;
                at
            }
            None => {
                self.objects.push(object);
                self.objects.len() - 1
            }
        };
        *self.link(first, before) = Pointer::to(at);
        at
    }

    /// Frees the object with that coordinate.
    fn remove(&mut self, first: &mut Pointer, coordinate: u32) {
        let (before, at) = self.around(*first, coordinate);
        let at = at.expect("the object removed is in its list");
        *self.link(first, before) = self.objects[at].next();
        self.free.push(at);
    }

    /// Returns the last object below the coordinate, and the object after it. If no object is below the coordinate, the
    /// second result is the first object of the list.
    fn around(&self, first: Pointer, coordinate: u32) -> (Option<usize>, Option<usize>) {
        let before = self.iter(first).take_while(|&at| self.objects[at].coordinate() < coordinate).last();
        (before, before.map_or(first, |before| self.objects[before].next()).index())
    }

    /// Returns the pointer to the successor of `before`, or to the first object.
    fn link<'a>(&'a mut self, first: &'a mut Pointer, before: Option<usize>) -> &'a mut Pointer {
        match before {
            Some(before) => self.objects[before].next_mut(),
            None => first,
        }
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { objects: Vec::new(), free: Vec::new() }
    }
}

impl<T> Index<usize> for Arena<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.objects[at]
    }
}

impl<T> IndexMut<usize> for Arena<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.objects[at]
    }
}

impl Coordinate for Cube {
    fn coordinate(&self) -> u32 {
        self.coordinate
    }

    fn next(&self) -> Pointer {
        self.next
    }

    fn next_mut(&mut self) -> &mut Pointer {
        &mut self.next
    }
}

impl Coordinate for JumpPoint {
    fn coordinate(&self) -> u32 {
        self.coordinate
    }

    fn next(&self) -> Pointer {
        self.next
    }

    fn next_mut(&mut self) -> &mut Pointer {
        &mut self.next
    }
}

/// Returns true if the entry is a receive from any source. Such a receive has no coordinates, so it is in no cube.
fn is_from_any<Q: Query, T>(entry: &Entry<Q, SequencedLinks, T>) -> bool {
    Q::SIDE == Side::Posted && entry.source == Source::ANY.bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the sizes in (Zounmevo 2014, table 4.4).
    #[test]
    fn objects_have_the_published_sizes() {
        assert_eq!(mem::size_of::<Lead>(), 56);
        assert_eq!(mem::size_of::<JumpPoint>(), 48);
        let cube_bytes = |ranks| FourD::new(&Config { ranks, ..Config::default() }).cube_bytes();
        assert_eq!([4096, 65_536, 1_048_576].map(cube_bytes), [80, 144, 272]);
    }

    /// Compares with the figures in (Zounmevo 2014, sections 4.3.2 and 4.3.4).
    #[test]
    fn spans_and_thresholds_are_the_published_ones() {
        let of = |ranks| (Span::of(ranks).len(), Span::of(ranks).threshold());
        assert_eq!([1, 256].map(of), [(4, 26); 2]);
        assert_eq!([257, 4096].map(of), [(8, 50); 2]);
        assert_eq!([4097, 65_536].map(of), [(16, 98); 2]);
        assert_eq!([65_537, 1_048_576].map(of), [(32, 194); 2]);
        assert_eq!(Span::of(1_048_576).coordinates(80_000), [2, 14, 4]);
        assert_eq!(Span::of(u32::MAX).coordinates(u32::MAX), [255; 3]);
    }
}
