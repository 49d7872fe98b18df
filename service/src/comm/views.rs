//! Messages in layouts.

use samite_fabric::Body;

use crate::layout::{View, ViewMut};
use crate::signature::{InLayout, signature_in};
use crate::{Comm, Destination, Error, Source, Status, Tag};

impl Comm {
    /// Sends a view of data in a [`Layout`](crate::Layout), as [`send`](Self::send) does. The bytes are copied straight
    /// into packets.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, Rank};
    ///
    /// // The sender's elements with even indices fill the receiver's first elements.
    /// if comm.rank() == 0 {
    ///     comm.send_view(Layout::vector(3, 1, 2)?.of(&[1, 2, 3, 4, 5])?, Rank(1), 7)?;
    /// } else {
    ///     let mut numbers = [0; 3];
    ///     comm.recv(&mut numbers, Rank(0), 7)?;
    ///     assert_eq!(numbers, [1, 3, 5]);
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[inline]
    pub fn send_view(&self, view: View<'_>, to: impl Into<Destination>, tag: u64) -> Result<(), Error> {
        let Some(to) = to.into().0 else {
            return self.handle_result("send_view", self.absent(tag).map(drop));
        };
        let rank = match self.world_rank(to) {
            Ok(rank) => rank,
            Err(error) => return Err(self.handle_world_error("send_view", error)),
        };
        match view.bytes.as_slice() {
            Some(bytes) => self.send_bytes("send_view", rank, tag, bytes, || signature_in(view.elements)),
            None => self.send_bytes("send_view", rank, tag, &view.bytes, || signature_in(view.elements)),
        }
    }

    /// Receives the first message that matches into a view of a buffer in a [`Layout`](crate::Layout), as
    /// [`recv`](Self::recv) does. A shorter message fills the first elements of the layout.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Layout, Rank};
    ///
    /// if comm.rank() == 0 {
    ///     comm.send(&[1, 2], Rank(1), 7)?;
    /// } else {
    ///     let mut numbers = [0; 5];
    ///     let status = comm.recv_view(&mut Layout::vector(3, 1, 2)?.of_mut(&mut numbers)?, Rank(0), 7)?;
    ///     assert_eq!((numbers, status.bytes), ([1, 0, 2, 0, 0], 8));
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[inline]
    pub fn recv_view(
        &self,
        view: &mut ViewMut<'_>,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status, Error> {
        let (elements, from, tag) = (InLayout(view.unit, view.elements), from.into(), tag.into());
        match view.bytes.reborrow().into_slice() {
            Ok(bytes) => self.recv_bytes("recv_view", bytes, elements, from, tag),
            Err(mut bytes) => self.recv_bytes("recv_view", &mut bytes, elements, from, tag),
        }
    }
}
