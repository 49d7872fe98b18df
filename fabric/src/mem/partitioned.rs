//! Memory cut into equal partitions. Several threads write it, and each partition becomes readable by itself.
//!
//! A partition has at most one writer, and no writer once it is *marked*. A marked partition does not change, and any
//! number of readers may read it. The memory is *quiet* when no reader is left, and each partition that was taken for
//! writing was marked or returned. When the memory is quiet, the owner may access all of it, or begin a new round.
//!
//! ```text
//!             take                      mark
//!   free ──────────────▶ written by one ─────▶ read by all
//!     ▲ ◀────────────────┘ drop                  │
//!     └──────────────────────────────────────────┘ the owner begins a round, when the memory is quiet
//! ```

mod marks;

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;

use self::marks::{Marks, bits_of};
use super::{Element, Memory};

/// Memory cut into equal partitions.
#[derive(Debug)]
pub struct Partitioned(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The memory, until the owner takes it out.
    memory: UnsafeCell<Option<Memory>>,
    origin: NonNull<u8>,
    /// Bytes of all partitions.
    len: usize,
    /// Bytes of one partition.
    part_len: usize,
    /// Elements of one partition.
    part_elements: usize,
    element: TypeId,
    marks: Marks,
}

// SAFETY: the memory is made of `Element`s, which are `Send` and `Sync`. `Shared` gives no access to the memory by
// itself. The three types that hold a `Shared` give access only by the rules at the head of this module.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Neighbouring partitions that only this value may write. Partitions that are not marked when it is dropped become
/// free again, and keep their bytes.
#[derive(Debug)]
pub struct PartitionsMut {
    shared: Arc<Shared>,
    parts: Range<usize>,
    /// The number of partitions of this value that are not marked. At 0 this value has no access any more, and the
    /// owner may have begun a new round.
    unmarked: usize,
}

/// A reader of the partitions that are marked.
#[derive(Debug)]
pub struct Marked {
    shared: Arc<Shared>,
    /// A bit for each partition that [`next_run`](Self::next_run) has returned.
    seen: SmallVec<[u64; 2]>,
    /// The first word that may have marks which [`next_run`](Self::next_run) has not returned. Later marks before this
    /// word are news.
    first: usize,
    /// True if there was news since [`has_news`](Self::has_news) was called.
    has_news: bool,
}

impl Partitioned {
    /// Cuts a vector into partitions.
    ///
    /// # Errors
    /// Returns the vector if its length is not a multiple of `partitions`, if `partitions` is 0, or if there are more
    /// than 65,536 partitions without bytes. (Empty partitions need a limit because the size of the vector does not
    /// limit their number.)
    pub fn new<T: Element>(vec: Vec<T>, partitions: usize) -> Result<Self, Vec<T>> {
        if partitions == 0 || !vec.len().is_multiple_of(partitions) {
            return Err(vec);
        }
        if size_of_val(vec.as_slice()) == 0 && partitions > EMPTY_MAX {
            return Err(vec);
        }
        let part_elements = vec.len() / partitions;
        let memory = Memory::new(vec);
        let (origin, len) = (memory.origin, memory.len());
        Ok(Self(Arc::new(Shared {
            memory: UnsafeCell::new(Some(memory)),
            origin,
            len,
            part_len: len / partitions,
            part_elements,
            element: TypeId::of::<T>(),
            marks: Marks::new(partitions),
        })))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the number of partitions.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.0.marks.len()
    }

    /// Begins a round, in which no partition is marked or taken yet. Returns false, and changes nothing, if the memory
    /// is not quiet.
    #[must_use]
    pub fn begin(&mut self) -> bool {
        let is_quiet = self.0.marks.is_quiet();
        if is_quiet {
            self.0.marks.reset();
        }
        is_quiet
    }

    /// Takes partitions for writing. Returns `None` if one of them does not exist, is taken, or is marked.
    #[must_use]
    pub fn take(&self, parts: Range<usize>) -> Option<PartitionsMut> {
        if parts.start > parts.end || parts.end > self.partitions() || !self.0.marks.take(parts.clone()) {
            return None;
        }
        let unmarked = parts.len();
        Some(PartitionsMut { shared: Arc::clone(&self.0), parts, unmarked })
    }

    /// Returns the reader of the marked partitions of this round.
    ///
    /// # Panics
    /// If there is a reader.
    #[must_use]
    pub fn marked(&self) -> Marked {
        self.0.marks.add_reader();
        let seen = SmallVec::from_elem(0, self.partitions().div_ceil(64));
        Marked { shared: Arc::clone(&self.0), seen, first: 0, has_news: false }
    }

    /// Returns the elements of the partitions `parts` if all of them are marked.
    ///
    /// # Panics
    /// If these partitions do not exist, or the vector had elements of another type.
    #[must_use]
    pub fn read<T: Element>(&self, parts: Range<usize>) -> Option<&[T]> {
        assert!(self.0.element == TypeId::of::<T>(), "the vector has elements of another type");
        let span = self.0.span_of(&parts);
        let elements = parts.len() * self.0.part_elements;
        if !self.0.marks.are_marked(parts) {
            return None;
        }
        // SAFETY: the span lies in the memory, at whole elements of a vector of `T`. Its partitions are marked. A
        // partition is marked after the last write to it, so the span is not written until the owner begins a round,
        // and the owner cannot while it is borrowed.
        Some(unsafe { std::slice::from_raw_parts(self.0.at(span.start).cast(), elements) })
    }

    /// Returns true if all of the partitions `parts` are marked.
    ///
    /// # Panics
    /// If these partitions do not exist.
    #[must_use]
    pub fn are_marked(&self, parts: Range<usize>) -> bool {
        self.0.span_of(&parts);
        self.0.marks.are_marked(parts)
    }

    /// Returns all elements, or `None` if the memory is not quiet: a [`PartitionsMut`] or a reader may access it.
    ///
    /// # Panics
    /// If the vector had elements of another type.
    #[must_use]
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        assert!(self.0.element == TypeId::of::<T>(), "the vector has elements of another type");
        if !self.0.marks.is_quiet() {
            return None;
        }
        let elements = self.partitions() * self.0.part_elements;
        // SAFETY: these are the elements of a vector of `T`. The memory is quiet, so no writer or reader has access,
        // and no writer or reader can be made while the owner is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.at(0).cast(), elements) })
    }

    /// Returns the memory.
    ///
    /// # Errors
    /// Returns this value if the memory is not quiet.
    pub fn into_memory(self) -> Result<Memory, Self> {
        if !self.0.marks.is_quiet() {
            return Err(self);
        }
        // SAFETY: the memory is quiet, and the owner does not exist after this. So no other value has access to the
        // cell or the memory, and none can get access.
        match unsafe { (*self.0.memory.get()).take() } {
            Some(memory) => Ok(memory),
            None => unreachable!("the memory is taken out once, with its owner"),
        }
    }
}

impl Shared {
    /// Returns the span of bytes of the partitions `parts`.
    ///
    /// # Panics
    /// If these partitions do not exist.
    fn span_of(&self, parts: &Range<usize>) -> Range<usize> {
        assert!(
            parts.start <= parts.end && parts.end <= self.marks.len(),
            "there are no partitions {parts:?}"
        );
        parts.start * self.part_len..parts.end * self.part_len
    }

    /// Returns the partitions in which the bytes of `span` lie.
    fn parts_of(&self, span: &Range<usize>) -> Range<usize> {
        if span.is_empty() {
            return 0..0;
        }
        span.start / self.part_len..span.end.div_ceil(self.part_len)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len);
        // SAFETY: all callers pass an offset of at most the length of the allocation.
        unsafe { self.origin.as_ptr().add(offset) }
    }
}

/// The largest number of partitions of a message without bytes.
const EMPTY_MAX: usize = 1 << 16;

impl PartitionsMut {
    /// Returns the number of bytes of all partitions of the memory together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.shared.len
    }

    /// Returns the number of partitions of the memory.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.shared.marks.len()
    }

    /// Returns the bytes of `span` for writing. Returns `None` if they do not all lie in the memory, or if they touch a
    /// partition that is marked or does not belong to this value.
    pub fn span_mut(&mut self, span: Range<usize>) -> Option<&mut [u8]> {
        if span.start > span.end || span.end > self.shared.len {
            return None;
        }
        if !self.may_write(&self.shared.parts_of(&span)) {
            return None;
        }
        // SAFETY: the bytes lie in the memory. Each partition that they touch was taken by this value, and is not
        // marked, so no other writer and no reader has access; this value is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(self.shared.at(span.start), span.len()) })
    }

    /// Returns the elements of all partitions of this value for writing. Returns `None` if one of the partitions is
    /// marked.
    ///
    /// # Panics
    /// If the vector had elements of another type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        assert!(self.shared.element == TypeId::of::<T>(), "the vector has elements of another type");
        let span = self.shared.span_of(&self.parts);
        let elements = self.parts.len() * self.shared.part_elements;
        // SAFETY: as in `span_mut`; and the span consists of whole elements of a vector of `T`.
        self.may_write(&self.parts)
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.shared.at(span.start).cast(), elements) })
    }

    /// Returns the elements of all partitions of this value. Returns `None` if one of the partitions is marked.
    ///
    /// # Panics
    /// If the vector had elements of another type.
    #[must_use]
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        assert!(self.shared.element == TypeId::of::<T>(), "the vector has elements of another type");
        let span = self.shared.span_of(&self.parts);
        let elements = self.parts.len() * self.shared.part_elements;
        // SAFETY: as in `as_mut_slice`, and `&self` excludes this value's own writes.
        self.may_write(&self.parts)
            .then(|| unsafe { std::slice::from_raw_parts(self.shared.at(span.start).cast(), elements) })
    }

    /// Makes partitions readable, and gives up the right to write them. The call has no effect on partitions that are
    /// already marked.
    ///
    /// # Panics
    /// If one of the partitions does not belong to this value.
    pub fn mark(&mut self, parts: Range<usize>) {
        let is_own = parts.is_empty() || self.parts.start <= parts.start && parts.end <= self.parts.end;
        assert!(is_own, "partitions {parts:?} are not among {:?}", self.parts);
        // If all partitions of this value are marked, the owner may have begun a later round, in which this value must
        // not mark partitions.
        if self.unmarked > 0 {
            self.unmarked -= self.shared.marks.mark(parts);
        }
    }

    /// Makes all partitions of this value readable.
    pub fn mark_all(mut self) {
        self.mark(self.parts.clone());
    }

    /// Returns true if the partitions `parts` belong to this value, and none of them is marked.
    fn may_write(&self, parts: &Range<usize>) -> bool {
        if parts.is_empty() {
            return true;
        }
        // The marks are those of this value's round: while one of its partitions is not marked, the memory is not
        // quiet, so the owner cannot begin another round.
        self.unmarked > 0
            && self.parts.start <= parts.start
            && parts.end <= self.parts.end
            && self.shared.marks.are_unmarked(parts.clone())
    }
}

impl Drop for PartitionsMut {
    fn drop(&mut self) {
        if self.unmarked > 0 {
            self.shared.marks.give_back(self.parts.clone());
        }
    }
}

impl Marked {
    /// Returns the bytes of all partitions of the memory.
    #[must_use]
    pub fn total(&self) -> usize {
        self.shared.len
    }

    /// Returns the bytes of one partition.
    #[must_use]
    pub fn part_len(&self) -> usize {
        self.shared.part_len
    }

    /// Returns the number of partitions of the memory.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.shared.marks.len()
    }

    /// Returns true if a partition may have been marked since the last call. A mark that this call misses makes a later
    /// call return true.
    #[must_use]
    pub fn has_news(&mut self) -> bool {
        self.take_news();
        std::mem::take(&mut self.has_news)
    }

    fn take_news(&mut self) {
        if let Some(word) = self.shared.marks.take_news() {
            self.first = self.first.min(word);
            self.has_news = true;
        }
    }

    /// Returns the longest run of neighbouring partitions that are marked and were not returned before, from the first
    /// such partition on. Returns `None` if there is none.
    pub fn next_run(&mut self) -> Option<Range<usize>> {
        self.take_news();
        let marks = &self.shared.marks;
        let mut run: Option<Range<usize>> = None;
        for word in self.first..self.seen.len() {
            let base = word * 64;
            let fresh = marks.word(word) & !self.seen[word];
            let start = match &run {
                Some(_) => 0,
                None if fresh == 0 => {
                    self.first = word + 1;
                    continue;
                }
                None => fresh.trailing_zeros(),
            };
            let end = start + (fresh >> start).trailing_ones();
            let found = base + start as usize..base + end as usize;
            self.seen[word] |= bits_of(word, &found);
            run = Some(run.map_or(found.start, |run| run.start)..found.end);
            if end < 64 {
                break;
            }
        }
        run
    }

    /// Returns the bytes of `span`, or `None` if they touch a partition that is not marked.
    #[must_use]
    pub fn bytes(&self, span: Range<usize>) -> Option<&[u8]> {
        if span.start > span.end || span.end > self.shared.len {
            return None;
        }
        if !self.shared.marks.are_marked(self.shared.parts_of(&span)) {
            return None;
        }
        // SAFETY: the bytes lie in the memory. All partitions that they touch are marked. A partition is marked after
        // the last write to it, and this reader keeps the owner from beginning another round.
        Some(unsafe { std::slice::from_raw_parts(self.shared.at(span.start), span.len()) })
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.shared.marks.remove_reader();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
