//! Modes of sends, and the buffers of buffered ones.

use std::sync::Arc;

use samite_fabric::layout::Data;
use samite_p2p::{KEPT_OVERHEAD, SendBuffer, WorldRank};

use super::Comm;
use crate::error::Error;

/// The event with which the sends of a handle end: see [`Comm::with_mode`] (MPI 4.1, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// A send ends when its data is free: see [`Comm::send`].
    #[default]
    Standard,
    /// A send ends when its message has met its receive, also if the message is short (`MPI_Ssend`). A message that is
    /// claimed meets its receive with [`Message::recv`](crate::Message::recv). A message that its receiver drops with the
    /// communicator counts as received.
    Synchronous,
    /// A send ends at once (`MPI_Bsend`). A message that cannot be sent at once is copied to a buffer. It is sent by a
    /// later call on the same [lane](Comm::lane), or while this rank leaves, if its receiver takes it within the
    /// parameter `linger_us`. The send ends with [`Error::Exhausted`] if the buffer has no room. The buffer is the one
    /// of [`Comm::with_buffer`]; handles without one share the buffer of their lane, which has `buffer_max` bytes, 64
    /// MiB by default. A copied message is lost under the same conditions as one in the outbox of [`Comm::send`]. While
    /// the receiver has no room for a copied message, later messages to that rank wait behind it, and a standard send
    /// ends with [`Error::TimedOut`] if it has a time-out.
    Buffered,
    /// The program promises that the receive was posted before (`MPI_Rsend`). By default the promise is not checked,
    /// and the send is a standard one. Under the check `modes` ([`Settings::set_check`](crate::Settings::set_check))
    /// the send waits for the receiver's answer: if no receive was posted, the message is dropped, and the send ends
    /// with [`Error::NotPosted`].
    Ready,
}

/// The number of bytes that a message takes in the buffer of [`Comm::with_buffer`] in addition to its own length
/// (`MPI_BSEND_OVERHEAD`).
pub const BUFFERED_OVERHEAD: usize = KEPT_OVERHEAD;

impl Comm {
    /// Returns the same communicator with a mode for all its sends: [`send`](Self::send), [`isend`](Self::isend), the
    /// sends of [`scope`](Self::scope)s, of [`send_init`](Self::send_init) and of exchanges. Partitioned sends have no
    /// modes.
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
        Self { mode, ..self.clone() }
    }

    /// Returns the same communicator with a buffer of `bytes` bytes for its buffered sends (`MPI_Comm_attach_buffer`):
    /// see [`Mode::Buffered`]. Each message takes its bytes and [`BUFFERED_OVERHEAD`] more. Clones of the handle share
    /// the buffer. A handle that [`lane`](Self::lane) makes from this one has a buffer of its own, of the same size.
    /// Memory is allocated for each message and not in advance. The buffer ends with its last handle, but the messages
    /// in it are still sent.
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

    /// Returns the mode of a send for the engine; `None` if it is a standard one.
    pub(crate) fn engine_mode(&self) -> Option<samite_p2p::Mode<'_>> {
        match self.mode {
            Mode::Standard => None,
            Mode::Synchronous => Some(samite_p2p::Mode::Synchronous),
            Mode::Buffered => Some(samite_p2p::Mode::Buffered(self.send_buffer())),
            Mode::Ready => self.runtime.checks.modes.then_some(samite_p2p::Mode::Ready),
        }
    }

    /// Sends in the mode of this handle.
    #[inline(always)]
    pub(crate) fn send_bytes(
        &self,
        call: &'static str,
        to: WorldRank,
        tag: u64,
        data: &(impl Data + ?Sized),
    ) -> Result<(), Error> {
        let sent = match self.mode {
            Mode::Standard => self.runtime.send(to, self.context, tag, data, &self.bounds),
            _ => self.send_in_mode(to, tag, data),
        };
        sent.map_err(|error| self.handle_world_error(call, error))
    }

    #[inline(never)]
    fn send_in_mode(&self, to: WorldRank, tag: u64, data: &(impl Data + ?Sized)) -> Result<(), Error> {
        match self.engine_mode() {
            None => self.runtime.send(to, self.context, tag, data, &self.bounds),
            Some(mode) => self.runtime.send_with(mode, to, self.context, tag, data, &self.bounds),
        }
    }

    /// Returns the buffer that this handle was given.
    pub(super) fn buffer(&self) -> Option<&Arc<SendBuffer>> {
        self.extras.as_ref()?.buffer.as_ref()
    }

    fn send_buffer(&self) -> &Arc<SendBuffer> {
        self.buffer().unwrap_or(&self.runtime.buffer)
    }
}
