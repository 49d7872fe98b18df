//! Spans of the buffers of an operation.

use crate::schedule::{Buffer, Span};

/// All buffers of an operation, borrowed for one step.
pub(super) struct All<'a> {
    pub(super) input: &'a [u8],
    pub(super) output: &'a mut [u8],
    pub(super) scratch: &'a mut [u8],
    /// The size of an element in bytes.
    pub(super) element: usize,
}

impl<'a> All<'a> {
    pub(super) fn get(self, span: Span) -> &'a [u8] {
        span_of([self.input, self.output, self.scratch], span, self.element)
    }

    pub(super) fn get_mut(self, span: Span) -> &'a mut [u8] {
        let buffer = match span.buffer {
            Buffer::Input => panic!("no step writes to the input"),
            Buffer::Output => self.output,
            Buffer::Scratch => self.scratch,
        };
        &mut buffer[span.start * self.element..span.end() * self.element]
    }

    /// Returns the bytes of two spans that do not overlap: `from` to read, and `into` to write.
    pub(super) fn pair(self, from: Span, into: Span) -> (&'a [u8], &'a mut [u8]) {
        let Self { input, output, scratch, element } = self;
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
