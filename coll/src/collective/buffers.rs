//! Spans of the buffers of an operation.

use std::sync::Arc;

use samite_fabric::Memory;

use crate::schedule::{Buffer, Span};

/// The buffers of a collective operation: the input, the output, and the scratch buffer.
pub trait Buffers {
    /// Returns the bytes of the buffers, in the order of [`Buffer`].
    fn slices(&self) -> [&[u8]; 3];

    /// Returns the buffers for one step, and the function that carries out [`Step::Reduce`](crate::Step::Reduce) on the
    /// bytes of two spans.
    fn slices_mut(&mut self) -> (Slices<'_>, ReduceBytes<'_>);
}

/// A borrowed function that carries out [`Step::Reduce`](crate::Step::Reduce) on the bytes of two spans.
pub type ReduceBytes<'a> = &'a dyn Fn(&[u8], &mut [u8]);

/// All buffers of an operation, borrowed for one step.
pub struct Slices<'a> {
    /// [`Buffer::Input`].
    pub input: &'a [u8],
    /// [`Buffer::Output`].
    pub output: &'a mut [u8],
    /// [`Buffer::Scratch`].
    pub scratch: &'a mut [u8],
}

/// The buffers of an operation during which the caller waits.
pub struct BorrowedBuffers<'a> {
    /// [`Buffer::Input`].
    pub input: &'a [u8],
    /// [`Buffer::Output`].
    pub output: &'a mut [u8],
    /// [`Buffer::Scratch`].
    pub scratch: &'a mut [u8],
    /// Carries out [`Step::Reduce`](crate::Step::Reduce) on the bytes of two spans.
    pub reduce: ReduceBytes<'a>,
}

impl Buffers for BorrowedBuffers<'_> {
    fn slices(&self) -> [&[u8]; 3] {
        [self.input, self.output, self.scratch]
    }

    fn slices_mut(&mut self) -> (Slices<'_>, ReduceBytes<'_>) {
        let Self { input, output, scratch, reduce } = self;
        (Slices { input, output, scratch }, reduce)
    }
}

/// A function that carries out [`Step::Reduce`](crate::Step::Reduce) on the bytes of two spans.
pub type Reduction = Arc<dyn Fn(&[u8], &mut [u8]) + Send + Sync>;

/// The buffers of an operation that owns them. No memory is [scattered](Memory::is_scattered), and the input alone may
/// be [shared](Memory::is_shared).
pub struct OwnedBuffers {
    /// The memory whose first bytes are [`Buffer::Input`].
    pub input: Memory,
    /// The memory whose first bytes are [`Buffer::Output`].
    pub output: Memory,
    /// [`Buffer::Scratch`].
    pub scratch: Memory,
    /// The number of bytes of the input and of the output.
    pub lens: [usize; 2],
    /// The reduction.
    pub reduce: Reduction,
}

impl Buffers for OwnedBuffers {
    fn slices(&self) -> [&[u8]; 3] {
        let [input, output] = self.lens;
        [&self.input.as_bytes()[..input], &self.output.as_bytes()[..output], self.scratch.as_bytes()]
    }

    fn slices_mut(&mut self) -> (Slices<'_>, ReduceBytes<'_>) {
        let [input, output] = self.lens;
        let slices = Slices {
            input: &self.input.as_bytes()[..input],
            output: &mut self.output.as_bytes_mut()[..output],
            scratch: self.scratch.as_bytes_mut(),
        };
        (slices, &*self.reduce)
    }
}

impl<'a> Slices<'a> {
    pub(super) fn get_mut(self, span: Span, element: usize) -> &'a mut [u8] {
        let buffer = match span.buffer {
            Buffer::Input => panic!("no step writes to the input"),
            Buffer::Output => self.output,
            Buffer::Scratch => self.scratch,
        };
        &mut buffer[span.start * element..span.end() * element]
    }

    /// Returns the bytes of two spans that do not overlap: `from` to read, and `into` to write.
    pub(super) fn pair(self, from: Span, into: Span, element: usize) -> (&'a [u8], &'a mut [u8]) {
        let Self { input, output, scratch } = self;
        let (read, written) = match (from.buffer, into.buffer) {
            (_, Buffer::Input) => panic!("no step writes to the input"),
            (Buffer::Input, Buffer::Output) => (input, output),
            (Buffer::Input, Buffer::Scratch) => (input, scratch),
            (Buffer::Output, Buffer::Scratch) => (&*output, scratch),
            (Buffer::Scratch, Buffer::Output) => (&*scratch, output),
            (Buffer::Output, Buffer::Output) => return divided(output, from, into, element),
            (Buffer::Scratch, Buffer::Scratch) => return divided(scratch, from, into, element),
        };
        let read = &read[from.start * element..from.end() * element];
        (read, &mut written[into.start * element..into.end() * element])
    }
}

/// Returns a span of one of the buffers, which are in the order of [`Buffer`].
pub(super) fn span_of(buffers: [&[u8]; 3], span: Span, element: usize) -> &[u8] {
    &buffers[span.buffer as usize][span.start * element..span.end() * element]
}

/// Returns two spans of one buffer that do not overlap.
fn divided(buffer: &mut [u8], from: Span, into: Span, element: usize) -> (&[u8], &mut [u8]) {
    let bytes = |span: Span, before: usize| span.start * element - before..span.end() * element - before;
    if from.end() <= into.start {
        let (low, high) = buffer.split_at_mut(into.start * element);
        (&low[bytes(from, 0)], &mut high[..into.len * element])
    } else {
        assert!(into.end() <= from.start, "the spans of a step do not overlap");
        let (low, high) = buffer.split_at_mut(from.start * element);
        (&high[..from.len * element], &mut low[bytes(into, 0)])
    }
}
