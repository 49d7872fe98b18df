//! Modes of sends, and the buffers of buffered sends.

use std::sync::Arc;

use samite_control::Checks;
use samite_fabric::layout::{Data, Signature};
use samite_p2p::{How, KEPT_OVERHEAD, SendBuffer, Typed, WorldRank};

use super::Comm;
use crate::error::Error;

/// The event with which the sends of a handle end: see [`Comm::with_mode`] (MPI 4.1, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A send ends when its data may be changed again: see [`Comm::send`].
    #[default]
    Standard,
    /// A send ends when its message has been matched by a receive, also if the message is short (`MPI_Ssend`). A
    /// claimed message counts as matched when [`Message::recv`](crate::Message::recv) or
    /// [`Message::irecv`](crate::Message::irecv) is called. If the receiver drops the
    /// communicator before, the send ends with [`Error::Abandoned`].
    Synchronous,
    /// A send ends at once (`MPI_Bsend`). A message that cannot be sent at once is copied to a buffer. It is sent by a
    /// later call on the same [lane](Comm::lane), or while this rank leaves: [`World::leave`](crate::World::leave)
    /// waits until it is taken, or until the time-out of the send. The send ends with [`Error::Exhausted`] if the
    /// buffer has no room.
    ///
    /// The buffer was made by [`Comm::with_buffer`]. Handles without such a buffer share the buffer of their lane,
    /// which has `buffer_max` bytes, 64 MiB by default. A copied message is lost under the same conditions as a message
    /// in the outbox of [`Comm::send`]. While the receiver has no room for a copied message, later messages to that
    /// rank wait behind it, and a standard send ends with [`Error::TimedOut`] if it has a time-out.
    Buffered,
    /// The program promises that a matching receive was posted before the send (`MPI_Rsend`). By default the promise is
    /// not checked, and the send is a standard one. Under the check `modes`
    /// ([`Settings::set_check`](crate::Settings::set_check)) the send waits for the receiver's answer: if no receive
    /// was posted, the message is dropped, and the send ends with [`Error::NotPosted`].
    Ready,
}

/// The sends of a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sends {
    /// Standard sends, whose receivers check nothing.
    Plain,
    /// Sends in another mode, or sends that carry the types of their elements for the check `types`.
    In(Mode),
}

impl Sends {
    pub(crate) fn new(mode: Mode, checks: Checks) -> Self {
        if mode == Mode::Standard && !checks.types { Self::Plain } else { Self::In(mode) }
    }
}

/// The number of bytes that a message takes in the buffer of [`Comm::with_buffer`] in addition to its own length
/// (`MPI_BSEND_OVERHEAD`).
pub const BUFFERED_OVERHEAD: usize = KEPT_OVERHEAD;

impl Comm {
    /// Returns the same communicator with a mode for all its sends, also those of views and values, of
    /// [`scope`](Self::scope)s, of [`send_init`](Self::send_init) and of exchanges. Partitioned sends have no modes.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Mode, Rank};
    ///
    /// if comm.rank() == 0 {
    ///     // Rank 1 has begun to receive when this returns.
    ///     comm.with_mode(Mode::Synchronous).send(&[1u8], Rank(1), 7)?;
    /// } else {
    ///     comm.recv(&mut [0u8], Rank(0), 7)?;
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self { sends: Sends::new(mode, self.runtime.checks), ..self.clone() }
    }

    /// Returns the same communicator with a buffer of `bytes` bytes for its buffered sends (`MPI_Comm_attach_buffer`):
    /// see [`Mode::Buffered`]. Each message takes its bytes and [`BUFFERED_OVERHEAD`] more. Clones of the handle share
    /// the buffer. A handle that [`lane`](Self::lane) makes from it has a buffer of its own, of the same size.
    /// Memory is allocated for each message and not in advance. When the last handle with the buffer is dropped, the
    /// messages in it are still sent.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// use samite::{BUFFERED_OVERHEAD, Mode};
    ///
    /// let buffered = comm.with_buffer(2 * (8 + BUFFERED_OVERHEAD)).with_mode(Mode::Buffered);
    /// buffered.send(&[1u64], comm.rank(), 7)?;
    /// buffered.send(&[2u64], comm.rank(), 7)?;
    /// let mut number = [0u64];
    /// comm.recv(&mut number, comm.rank(), 7)?;
    /// comm.recv(&mut number, comm.rank(), 7)?;
    /// // From here on the buffer is empty.
    /// buffered.flush_buffer()?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use]
    pub fn with_buffer(&self, bytes: usize) -> Self {
        self.with_extras(|extras| extras.buffer = Some(Arc::new(SendBuffer::new(bytes))))
    }

    /// Waits until all messages in the buffer of this handle have been sent, within the bounds of the handle: in the
    /// buffer of [`with_buffer`](Self::with_buffer) (`MPI_Comm_flush_buffer`), otherwise in the buffer of the lane
    /// (`MPI_Session_flush_buffer`). Afterwards the buffer is empty, unless another thread has sent meanwhile. If a
    /// rank has failed, a message to it is removed from the buffer without being sent: see
    /// [`Stats::lost`](crate::Stats::lost).
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Cancelled`], [`Error::Closed`], [`Error::Condemned`].
    pub fn flush_buffer(&self) -> Result<(), Error> {
        self.handle_result("flush_buffer", self.runtime.flush(self.context, self.send_buffer(), &self.bounds))
    }

    /// Returns how the engine is to carry out a send of elements with this signature. `call` is the name of the public
    /// call. Returns `None` for a standard send without types, and for a ready send without types whose receive is not
    /// checked.
    #[inline(always)]
    pub(crate) fn how(&self, call: &'static str, signature: impl FnOnce() -> Signature) -> Option<How<'_>> {
        match self.sends {
            Sends::Plain => None,
            Sends::In(mode) => self.how_in(mode, call, signature),
        }
    }

    #[inline(never)]
    fn how_in(
        &self,
        mode: Mode,
        call: &'static str,
        signature: impl FnOnce() -> Signature,
    ) -> Option<How<'_>> {
        use samite_p2p::Mode as Engine;
        let typed = self.typed(call, signature);
        let mode = match mode {
            Mode::Synchronous => Engine::Synchronous,
            Mode::Buffered => Engine::Buffered(self.send_buffer()),
            Mode::Ready if self.runtime.checks.modes => Engine::Ready,
            Mode::Standard | Mode::Ready if typed.is_none() => return None,
            Mode::Standard | Mode::Ready => Engine::Standard,
        };
        Some(How { mode, typed })
    }

    /// Returns the types of an operation on elements with this signature. `call` is the name of the public call.
    /// Returns `None` if types are not checked, or if the elements are bytes, which agree with every type.
    #[inline(always)]
    pub(crate) fn typed(&self, call: &'static str, signature: impl FnOnce() -> Signature) -> Option<Typed> {
        match self.checks_receives {
            false => None,
            true => self.typed_as(call, signature),
        }
    }

    #[cold]
    #[inline(never)]
    fn typed_as(&self, call: &'static str, signature: impl FnOnce() -> Signature) -> Option<Typed> {
        let signature = if self.runtime.checks.types { signature() } else { Signature::BYTES };
        (signature != Signature::BYTES).then_some(Typed { signature, call })
    }

    /// Sends elements with this signature, in the mode of this handle.
    #[inline(always)]
    pub(crate) fn send_bytes(
        &self,
        call: &'static str,
        to: WorldRank,
        tag: u64,
        data: &(impl Data + ?Sized),
        signature: impl FnOnce() -> Signature,
    ) -> Result<(), Error> {
        let sent = match self.sends {
            Sends::Plain => self.runtime.send(to, self.context, tag, data, &self.bounds),
            Sends::In(mode) => self.send_in(mode, call, to, tag, data, signature),
        };
        sent.map_err(|error| self.handle_world_error(call, error))
    }

    #[inline(never)]
    fn send_in(
        &self,
        mode: Mode,
        call: &'static str,
        to: WorldRank,
        tag: u64,
        data: &(impl Data + ?Sized),
        signature: impl FnOnce() -> Signature,
    ) -> Result<(), Error> {
        match self.how_in(mode, call, signature) {
            None => self.runtime.send(to, self.context, tag, data, &self.bounds),
            Some(how) => self.runtime.send_with(how, to, self.context, tag, data, &self.bounds),
        }
    }

    /// Returns the buffer that [`with_buffer`](Self::with_buffer) gave to this handle.
    pub(super) fn buffer(&self) -> Option<&Arc<SendBuffer>> {
        self.extras.as_ref()?.buffer.as_ref()
    }

    fn send_buffer(&self) -> &Arc<SendBuffer> {
        self.buffer().unwrap_or(&self.runtime.buffer)
    }
}
