//! Spans of the buffers of an operation.

use std::sync::Arc;

use samite_fabric::layout::{Form, Readable, Writable};
use samite_fabric::{Body, Memory};

use crate::schedule::{Buffer, Span};

/// The buffers of a collective operation: the input, the output, and the scratch buffer.
pub trait Buffers {
    /// Returns the bytes of the buffers, in the order of [`Buffer`].
    fn slices(&self) -> [&[u8]; 3];

    /// Returns the buffers for one step, and the function that carries out [`Step::Reduce`](crate::Step::Reduce) on the
    /// bytes of two spans.
    fn slices_mut(&mut self) -> (Slices<'_>, ReduceBytes<'_>);

    /// Returns the layouts of the messages, if the buffers have layouts.
    fn layouts(&self) -> Option<&Layouts>;
}

/// The buffers of an operation that may end before they are needed elsewhere.
impl<B: Buffers> Buffers for &mut B {
    #[inline]
    fn slices(&self) -> [&[u8]; 3] {
        (**self).slices()
    }

    #[inline]
    fn slices_mut(&mut self) -> (Slices<'_>, ReduceBytes<'_>) {
        (**self).slices_mut()
    }

    #[inline]
    fn layouts(&self) -> Option<&Layouts> {
        (**self).layouts()
    }
}

/// The layouts of the messages of an [exchange](crate::Plan::Exchange), whose elements are bytes. The elements of the
/// plan are the bytes of all messages, one message behind the other. Each layout gives the places of these
/// bytes in the buffer.
#[derive(Clone, Debug)]
pub struct Layouts {
    /// `None` if the input has no layouts: it contains the bytes of all messages one behind the other.
    sent: Option<Side>,
    received: Side,
}

/// The layouts in one buffer.
#[derive(Clone, Debug)]
struct Side {
    /// The number of bytes before each message.
    starts: Vec<usize>,
    forms: Vec<Form>,
}

impl Layouts {
    /// Returns the layouts of the messages in the input, or `None` if it has none, and of the messages in the output.
    #[must_use]
    pub fn new(sent: Option<Vec<Form>>, received: Vec<Form>) -> Self {
        Self { sent: sent.map(Side::new), received: Side::new(received) }
    }

    /// Returns true if the input has no layouts, because the sent bytes are in the output at the start and are copied
    /// to the input.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.sent.is_none()
    }

    /// Returns the number of bytes of all received messages.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.received.forms.iter().map(Form::size).sum()
    }

    /// Copies the bytes of the output in the layouts of the received messages, one message behind the other.
    ///
    /// # Panics
    /// If a layout does not lie within the output, or `into` has another length than the messages.
    pub fn pack(&self, output: &[u8], mut into: &mut [u8]) {
        for form in &self.received.forms {
            let (message, rest) = into.split_at_mut(form.size());
            form.read(output).expect("a layout lies within its buffer").copy_to(message);
            into = rest;
        }
        assert!(into.is_empty(), "the messages have the length of the input");
    }

    /// Returns the bytes of a span of the input.
    pub(super) fn read<'a>(&'a self, input: &'a [u8], span: Span) -> Readable<'a> {
        assert_eq!(span.buffer, Buffer::Input, "an exchange sends its input");
        match &self.sent {
            Some(sent) => sent.form(span).read(input).expect("a layout lies within its buffer"),
            None => input[span.start..span.end()].into(),
        }
    }

    /// Returns the places of a span of the output.
    pub(super) fn write<'a>(&'a self, output: &'a mut [u8], span: Span) -> Writable<'a> {
        assert_eq!(span.buffer, Buffer::Output, "an exchange receives into its output");
        self.received.form(span).write(output).expect("a layout lies within its buffer")
    }
}

impl Side {
    fn new(forms: Vec<Form>) -> Self {
        let mut end = 0;
        let starts = forms.iter().map(|form| {
            let start = end;
            end += form.size();
            start
        });
        Self { starts: starts.collect(), forms }
    }

    /// Returns the layout of a message that is not empty.
    fn form(&self, span: Span) -> &Form {
        // The layouts of empty messages have the same start as the next layout.
        let form = &self.forms[self.starts.partition_point(|start| *start <= span.start) - 1];
        assert_eq!(form.size(), span.len, "a span is a message");
        form
    }
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
    /// The layouts of the messages, if the buffers have layouts.
    pub layouts: Option<&'a Layouts>,
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
    /// The layouts of the messages, if the buffers have layouts.
    pub layouts: Option<&'a Layouts>,
}

impl Buffers for BorrowedBuffers<'_> {
    fn slices(&self) -> [&[u8]; 3] {
        [self.input, self.output, self.scratch]
    }

    fn slices_mut(&mut self) -> (Slices<'_>, ReduceBytes<'_>) {
        let Self { input, output, scratch, reduce, layouts } = self;
        (Slices { input, output, scratch, layouts: *layouts }, reduce)
    }

    fn layouts(&self) -> Option<&Layouts> {
        self.layouts
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
    /// The layouts of the messages, if the buffers have layouts.
    pub layouts: Option<Arc<Layouts>>,
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
            layouts: self.layouts.as_deref(),
        };
        (slices, &*self.reduce)
    }

    fn layouts(&self) -> Option<&Layouts> {
        self.layouts.as_deref()
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
        let Self { input, output, scratch, layouts: _ } = self;
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
