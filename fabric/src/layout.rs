//! Layouts of a message's bytes in memory: which bytes of a slice are sent or received, and in which order.
//!
//! A [`Form`] is a tree of blocks, loops and lists. It is simplified when it is made: contiguous bytes become one
//! block, and a list of equal blocks at equal distances becomes a loop. Forms share their lists, so a copy of a form is
//! cheap. [`Readable`] and [`Writable`] are a form bound to a slice; their bytes are copied into packets and out of
//! packets, from any offset on.

mod copy;
mod node;
mod signature;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::OnceLock;

use self::node::Node;
pub use self::signature::{Elements, Signature};
use crate::{Body, copy_bytes};

/// The places of a message's bytes, relative to the start of a slice, in the order of the message.
#[derive(Clone, Debug)]
pub struct Form {
    node: Node,
    /// The place from which the places in `node` are counted.
    origin: isize,
    /// The number of bytes of data.
    size: usize,
    /// The lower and the upper bound. In a sequence of items of this form, the upper bound of each item is at the lower
    /// bound of the next.
    bounds: [isize; 2],
    /// The place of the first byte of data, and the end of the last byte.
    true_bounds: [isize; 2],
    depth: u8,
    is_disjoint: Disjoint,
}

/// Tells if each byte of memory is at most once in the message.
#[derive(Clone, Debug)]
enum Disjoint {
    Yes,
    /// The answer is not known when the form is made. It is computed from all blocks when it is first needed.
    Asked(OnceLock<bool>),
}

/// The reason why a form cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormError {
    /// An offset or a length exceeds `isize::MAX` bytes.
    Overflow,
    /// There are too many levels of lists and loops.
    TooDeep,
}

/// The maximum number of nested levels of a form, which bounds the recursion of its copy.
const DEPTH_MAX: u8 = 32;

impl Form {
    /// Returns the form of contiguous bytes.
    ///
    /// # Errors
    /// [`FormError::Overflow`].
    pub fn block(len: usize) -> Result<Self, FormError> {
        let end = signed(len)?;
        Ok(Self {
            node: Node::Block(len),
            origin: 0,
            size: len,
            bounds: [0, end],
            true_bounds: [0, end],
            depth: 0,
            is_disjoint: Disjoint::Yes,
        })
    }

    /// Returns the form of `count` items of this form, each `stride` bytes after the one before it.
    ///
    /// # Errors
    /// [`FormError`].
    pub fn strided(&self, count: usize, stride: isize) -> Result<Self, FormError> {
        if count == 0 || self.size == 0 {
            let mut empty = Self::block(0)?;
            if count > 0 {
                empty.bounds = spread(self.bounds, count, stride)?;
            }
            return Ok(empty);
        }
        let size = self.size.checked_mul(count).filter(|&size| isize::try_from(size).is_ok());
        let size = size.ok_or(FormError::Overflow)?;
        let true_bounds = spread(self.true_bounds, count, stride)?;
        let span = self.true_bounds[1].abs_diff(self.true_bounds[0]);
        let node = self.node.strided(count, stride, self.size);
        let apart = count == 1 || stride.unsigned_abs() >= span;
        let is_disjoint = match &self.is_disjoint {
            Disjoint::Yes if apart || node.is_mixed_radix() => Disjoint::Yes,
            _ => Disjoint::Asked(OnceLock::new()),
        };
        Self { node, size, bounds: spread(self.bounds, count, stride)?, true_bounds, is_disjoint, ..*self }
            .nested_deeper(u8::from(count > 1))
    }

    /// Returns the form of several items, each given by its place in bytes and its own form.
    ///
    /// # Errors
    /// [`FormError`].
    pub fn list<'a>(items: impl IntoIterator<Item = (isize, &'a Self)>) -> Result<Self, FormError> {
        let mut list = Self::block(0)?;
        let mut parts = node::Parts::default();
        let (mut depth, mut is_first, mut count) = (0, true, 0);
        // The end of the latest item, or `None` if a byte may occur twice: an item is not known to be disjoint, or
        // begins before the end of an earlier item.
        let mut end = Some(isize::MIN);
        for (at, item) in items {
            let bounds = shifted(item.bounds, at)?;
            list.bounds = if is_first { bounds } else { hull(list.bounds, bounds)? };
            is_first = false;
            if item.size == 0 {
                continue;
            }
            let true_bounds = shifted(item.true_bounds, at)?;
            list.true_bounds =
                if list.size == 0 { true_bounds } else { hull(list.true_bounds, true_bounds)? };
            let follows = end.is_some_and(|end| true_bounds[0] >= end);
            end = (follows && matches!(item.is_disjoint, Disjoint::Yes)).then_some(true_bounds[1]);
            let origin = item.origin.checked_add(at).ok_or(FormError::Overflow)?;
            list.size = list.size.checked_add(item.size).ok_or(FormError::Overflow)?;
            signed(list.size)?;
            parts.push(origin, &item.node, item.size);
            (depth, count) = (depth.max(item.depth), count + 1);
        }
        (list.origin, list.node) = parts.into_node();
        if end.is_none() {
            list.is_disjoint = Disjoint::Asked(OnceLock::new());
        }
        Self { depth, ..list }.nested_deeper(u8::from(count > 1))
    }

    /// Returns this form with each unit of `unit` bytes replaced by an item of the form `inner`. A place n units from
    /// the origin becomes the place n extents of `inner` from the origin.
    ///
    /// # Errors
    /// [`FormError`].
    ///
    /// # Panics
    /// If the length of a block, a place, a stride or a bound of this form is no multiple of `unit`.
    pub fn nested(&self, unit: usize, inner: &Self) -> Result<Self, FormError> {
        let places = Units { unit, extent: inner.extent() };
        let form = self.node.each_unit(places, inner)?;
        let bounds = measured(shifted(
            [places.scale(self.bounds[0])?, places.scale(self.bounds[1])?],
            inner.bounds[0],
        )?)?;
        let form = Self::list([(places.scale(self.origin)?, &form)])?;
        Ok(Self { bounds, ..form })
    }

    /// Returns the same form with other bounds: the items of a sequence are `upper - lower` bytes apart.
    #[must_use]
    pub fn resized(&self, lower: isize, upper: isize) -> Self {
        Self { bounds: [lower, upper], ..self.clone() }
    }

    /// Returns the number of bytes of data.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the lower and the upper bound.
    #[must_use]
    pub fn bounds(&self) -> [isize; 2] {
        self.bounds
    }

    /// Returns the place of the first byte of data, and the end of the last byte. Both are equal if there is no data.
    #[must_use]
    pub fn true_bounds(&self) -> [isize; 2] {
        self.true_bounds
    }

    /// Returns the distance between the bounds.
    #[must_use]
    pub fn extent(&self) -> isize {
        self.bounds[1].wrapping_sub(self.bounds[0])
    }

    /// Returns true if each byte of memory is at most once in the message.
    #[must_use]
    pub fn is_disjoint(&self) -> bool {
        match &self.is_disjoint {
            Disjoint::Yes => true,
            Disjoint::Asked(answer) => *answer.get_or_init(|| {
                // If the message has more bytes than the span of memory, some byte must occur twice.
                self.size <= self.true_bounds[1].abs_diff(self.true_bounds[0])
                    && self.node.is_disjoint(self.origin)
            }),
        }
    }

    /// Returns the place of a byte of the message, and the number of bytes of the message from this one on that are
    /// known to follow each other in memory. The time depends on the depth of the form and on the logarithm of the
    /// lengths of its lists.
    ///
    /// # Panics
    /// If the message has no such byte.
    #[must_use]
    pub fn run(&self, at: usize) -> (isize, usize) {
        assert!(at < self.size, "a byte of the message");
        self.node.run(self.origin, at)
    }

    /// Returns the number of bytes of the shortest block, or 0 if there is no data.
    #[must_use]
    pub fn shortest_block(&self) -> usize {
        self.node.shortest_block()
    }

    /// Returns true if the place and the length of each block are known to be multiples of `unit` bytes. They are if
    /// the form was made from elements of this size.
    #[must_use]
    pub fn consists_of(&self, unit: usize) -> bool {
        self.size == 0 || is_multiple(self.origin, unit) && self.node.consists_of(unit)
    }

    /// Returns the span of the data, if it lies within `len` bytes.
    fn span(&self, len: usize) -> Option<[usize; 2]> {
        let [first, end] = self.true_bounds;
        let (first, end) = (usize::try_from(first).ok()?, usize::try_from(end).ok()?);
        (end <= len).then_some([first, end])
    }

    /// Binds the form to bytes to send. Returns `None` if the form does not lie within them.
    #[must_use]
    pub fn read<'a>(&'a self, bytes: &'a [u8]) -> Option<Readable<'a>> {
        let [first, end] = self.span(bytes.len())?;
        Some(match self.node {
            Node::Block(_) => Readable { bytes: &bytes[first..end], form: None },
            _ => Readable { bytes, form: Some(self) },
        })
    }

    /// Binds the form to bytes to receive into. Returns `None` if the form does not lie within them. If a byte of
    /// memory is several times in the message, a receive leaves one of the values there. Use [`Form::is_disjoint`] to
    /// exclude that.
    #[must_use]
    pub fn write<'a>(&'a self, bytes: &'a mut [u8]) -> Option<Writable<'a>> {
        let [first, end] = self.span(bytes.len())?;
        Some(match self.node {
            Node::Block(_) => Writable { bytes: &mut bytes[first..end], form: None },
            _ => Writable { bytes, form: Some(self) },
        })
    }

    fn nested_deeper(self, levels: u8) -> Result<Self, FormError> {
        let depth = match self.node {
            Node::Block(_) | Node::Blocks(_) => 0,
            _ => self.depth + levels,
        };
        if depth > DEPTH_MAX { Err(FormError::TooDeep) } else { Ok(Self { depth, ..self }) }
    }
}

/// Converts places in a form that consists of units to places in a form with an item instead of each unit.
#[derive(Clone, Copy)]
struct Units {
    unit: usize,
    /// The extent of the item that replaces a unit.
    extent: isize,
}

impl Units {
    fn count(self, bytes: usize) -> usize {
        assert!(bytes.is_multiple_of(self.unit), "a form of whole units");
        bytes / self.unit
    }

    fn scale(self, bytes: isize) -> Result<isize, FormError> {
        let units = self.count(bytes.unsigned_abs());
        let place = signed(units)?.checked_mul(self.extent).ok_or(FormError::Overflow)?;
        if bytes < 0 { place.checked_neg().ok_or(FormError::Overflow) } else { Ok(place) }
    }
}

/// Bytes to send: a slice, or the parts of one that a [`Form`] selects.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a> {
    bytes: &'a [u8],
    form: Option<&'a Form>,
}

impl<'a> Readable<'a> {
    /// Returns the bytes from `start` to `end` of the message.
    #[inline]
    #[must_use]
    pub fn part(self, start: usize, end: usize) -> Part<'a> {
        match self.form {
            None => Part {
                whole: Readable { bytes: &self.bytes[start..end], form: None },
                start: 0,
                end: end - start,
            },
            Some(_) => Part { whole: self, start, end },
        }
    }
}

impl<'a> From<&'a [u8]> for Readable<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, form: None }
    }
}

impl Body for Readable<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.form.map_or(self.bytes.len(), |form| form.size)
    }

    #[inline]
    fn copy_part(&self, at: usize, into: &mut [u8]) {
        match self.form {
            None => copy_bytes(&self.bytes[at..at + into.len()], into),
            Some(form) => form.gather(self.bytes, at, into),
        }
    }

    #[inline(always)]
    fn as_slice(&self) -> Option<&[u8]> {
        self.form.is_none().then_some(self.bytes)
    }
}

/// A part of the bytes to send.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    whole: Readable<'a>,
    start: usize,
    end: usize,
}

impl Body for Part<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn copy_part(&self, at: usize, into: &mut [u8]) {
        self.whole.copy_part(self.start + at, into);
    }

    #[inline(always)]
    fn as_slice(&self) -> Option<&[u8]> {
        Some(&self.whole.as_slice()?[self.start..self.end])
    }
}

/// Bytes to receive into: a slice, or the parts of one that a [`Form`] selects.
#[derive(Debug)]
pub struct Writable<'a> {
    bytes: &'a mut [u8],
    form: Option<&'a Form>,
}

impl<'a> Writable<'a> {
    /// Lends the same bytes again, for a shorter time.
    #[inline(always)]
    #[must_use]
    pub fn reborrow(&mut self) -> Writable<'_> {
        Writable { bytes: self.bytes, form: self.form }
    }

    /// Returns the same bytes to send.
    #[must_use]
    pub fn as_readable(&self) -> Readable<'_> {
        Readable { bytes: self.bytes, form: self.form }
    }

    /// Returns the bytes if they are contiguous.
    ///
    /// # Errors
    /// Returns this value if they are not contiguous.
    #[inline(always)]
    pub fn into_slice(self) -> Result<&'a mut [u8], Self> {
        if self.form.is_none() { Ok(self.bytes) } else { Err(self) }
    }
}

impl<'a> From<&'a mut [u8]> for Writable<'a> {
    #[inline(always)]
    fn from(bytes: &'a mut [u8]) -> Self {
        Self { bytes, form: None }
    }
}

/// A message's bytes to send.
pub trait Data: Body {
    /// Returns the bytes as a form bound to a slice.
    fn lend(&self) -> Readable<'_>;
}

impl Data for [u8] {
    #[inline(always)]
    fn lend(&self) -> Readable<'_> {
        self.into()
    }
}

impl<D: Data + ?Sized> Data for &D {
    #[inline(always)]
    fn lend(&self) -> Readable<'_> {
        (**self).lend()
    }
}

impl Data for Readable<'_> {
    #[inline(always)]
    fn lend(&self) -> Readable<'_> {
        *self
    }
}

/// A place for a message's bytes.
#[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
pub trait Room {
    /// Returns the number of bytes for which there is room.
    fn len(&self) -> usize;

    /// Writes the bytes of `body` to the place of the message's bytes from offset `at` on.
    ///
    /// # Panics
    /// If the bytes do not fit.
    fn put(&mut self, at: usize, body: &(impl Body + ?Sized));

    /// Lends the same bytes again, for a shorter time.
    fn lend(&mut self) -> Writable<'_>;
}

impl Room for [u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, body: &(impl Body + ?Sized)) {
        body.copy_to(&mut self[at..at + body.len()]);
    }

    #[inline(always)]
    fn lend(&mut self) -> Writable<'_> {
        self.into()
    }
}

impl<R: Room + ?Sized> Room for &mut R {
    #[inline(always)]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline(always)]
    fn put(&mut self, at: usize, body: &(impl Body + ?Sized)) {
        (**self).put(at, body);
    }

    #[inline(always)]
    fn lend(&mut self) -> Writable<'_> {
        (**self).lend()
    }
}

impl Room for Writable<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.form.map_or(self.bytes.len(), |form| form.size)
    }

    #[inline(always)]
    fn put(&mut self, at: usize, body: &(impl Body + ?Sized)) {
        match self.form {
            None => self.bytes.put(at, body),
            Some(form) => form.put(self.bytes, at, body),
        }
    }

    #[inline(always)]
    fn lend(&mut self) -> Writable<'_> {
        self.reborrow()
    }
}

impl Form {
    fn gather(&self, bytes: &[u8], at: usize, into: &mut [u8]) {
        assert!(at.checked_add(into.len()).is_some_and(|end| end <= self.size), "a part of the message");
        if into.is_empty() {
            return;
        }
        self.node.copy(&mut copy::Gather { memory: bytes, into }, self.origin.cast_unsigned(), at);
    }

    fn scatter(&self, bytes: &mut [u8], at: usize, from: &[u8]) {
        assert!(at.checked_add(from.len()).is_some_and(|end| end <= self.size), "a part of the message");
        if from.is_empty() {
            return;
        }
        self.node.copy(&mut copy::Scatter { memory: bytes, from }, self.origin.cast_unsigned(), at);
    }

    #[inline(never)]
    fn put(&self, bytes: &mut [u8], at: usize, body: &(impl Body + ?Sized)) {
        if let Some(from) = body.as_slice() {
            return self.scatter(bytes, at, from);
        }
        // A body in shared memory may change at any time, so it is copied before it is scattered.
        with_block(|block| {
            for done in (0..body.len()).step_by(BLOCK) {
                let block = &mut block[..BLOCK.min(body.len() - done)];
                body.copy_part(done, block);
                self.scatter(bytes, at + done, block);
            }
        });
    }
}

/// Bytes of an intermediate buffer, a multiple of a cache line. The buffer and as many bytes of the user's memory fit
/// into the first-level cache, so the copy from the buffer to that memory is fast.
pub(crate) const BLOCK: usize = 4096;

/// Calls `copy` with the intermediate buffer of this thread. It contains bytes of earlier copies: to fill a new buffer
/// with zeros would take a sixth of the time of a copy through it.
///
/// # Panics
/// If `copy` calls this function.
pub(crate) fn with_block<R>(copy: impl FnOnce(&mut [u8; BLOCK]) -> R) -> R {
    /// Aligned for vector instructions.
    #[repr(align(64))]
    struct Block([u8; BLOCK]);
    thread_local! {
        static OF_THREAD: RefCell<Block> = const { RefCell::new(Block([0; BLOCK])) };
    }
    OF_THREAD.with_borrow_mut(|block| copy(&mut block.0))
}

fn is_multiple(place: isize, unit: usize) -> bool {
    place.unsigned_abs().is_multiple_of(unit)
}

fn signed(len: usize) -> Result<isize, FormError> {
    isize::try_from(len).map_err(|_| FormError::Overflow)
}

fn shifted(bounds: [isize; 2], by: isize) -> Result<[isize; 2], FormError> {
    let [lower, upper] = bounds.map(|bound| bound.checked_add(by).ok_or(FormError::Overflow));
    Ok([lower?, upper?])
}

/// Returns the bounds, or an error if their distance does not fit into an `isize`.
fn measured(bounds: [isize; 2]) -> Result<[isize; 2], FormError> {
    bounds[1].checked_sub(bounds[0]).map(|_| bounds).ok_or(FormError::Overflow)
}

fn hull(one: [isize; 2], other: [isize; 2]) -> Result<[isize; 2], FormError> {
    measured([one[0].min(other[0]), one[1].max(other[1])])
}

/// Returns the bounds of `count` items at a distance of `stride`.
fn spread(bounds: [isize; 2], count: usize, stride: isize) -> Result<[isize; 2], FormError> {
    let last = signed(count - 1)?.checked_mul(stride).ok_or(FormError::Overflow)?;
    hull(bounds, shifted(bounds, last)?)
}
