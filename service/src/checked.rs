//! Values of types for which some bit patterns are invalid. They are checked when they arrive.

use std::any::type_name;
use std::marker::PhantomData;

use samite_fabric::Memory;
use samite_fabric::layout::Signature;
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

use crate::buffer::{Buffer, BufferMut, Held};
use crate::select::{Source, Tag};
use crate::signature::{Of, signature_of};
use crate::{Comm, Error, Status};

/// Types without padding that can be sent: every [`Element`](crate::Element), and types for which some bit patterns are
/// invalid (`bool`, `char`, enums, structs of them).
///
/// They are sent as elements are. [`Comm::recv_checked`], [`Scope::irecv_checked`](crate::Scope::irecv_checked) and
/// [`CheckedVec`] check each value that arrives.
///
/// ```
/// use samite::zerocopy::{Immutable, IntoBytes, TryFromBytes};
///
/// #[derive(Clone, Copy, TryFromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "samite::zerocopy")]
/// #[repr(u8)]
/// enum Phase {
///     Solid = 1,
///     Liquid,
///     Gas,
/// }
/// # fn is_checked<T: samite::CheckedElement>() {}
/// # is_checked::<Phase>();
/// ```
#[diagnostic::on_unimplemented(
    message = "values of type `{Self}` cannot be sent or received as bytes",
    note = "a struct is an element if it has `#[repr(C)]`, has no padding and derives `Clone`, `Copy` and `FromBytes`, `IntoBytes`, `Immutable` of `samite::zerocopy`, with `#[zerocopy(crate = \"samite::zerocopy\")]`; an enum, or a struct with `bool` or `char` in it, derives `TryFromBytes` in place of `FromBytes`"
)]
pub trait CheckedElement: TryFromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}
impl<T: TryFromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> CheckedElement for T {}

impl Comm {
    /// Receives the first message that matches, into the beginning of `buffer`, as [`recv`](Self::recv) does, and
    /// checks its values. After an error the buffer is unchanged.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Error::InvalidValue`] if the bytes of an element are not a valid value of `T`.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Error, Rank};
    ///
    /// if comm.rank() == 0 {
    ///     comm.send(&[true, false], Rank(1), 7)?;
    ///     comm.send(&[1u8, 2], Rank(1), 7)?;
    /// } else {
    ///     let mut flags = [false; 2];
    ///     comm.recv_checked(&mut flags, Rank(0), 7)?;
    ///     assert_eq!(flags, [true, false]);
    ///     let error = comm.recv_checked(&mut flags, Rank(0), 7).unwrap_err();
    ///     assert!(matches!(error, Error::InvalidValue { index: 1, .. }));
    ///     assert_eq!(flags, [true, false]);
    /// }
    /// # Ok::<(), Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn recv_checked<T: CheckedElement>(
        &self,
        buffer: &mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status, Error> {
        let mut bytes = vec![0; size_of_val(buffer)];
        let elements = Of::<T>::new();
        let status = self.recv_bytes("recv_checked", &mut bytes[..], elements, from.into(), tag.into())?;
        self.handle_result("recv_checked", (&mut *buffer).receive(status, &bytes).map(|()| status))
    }
}

/// A slice to which a receive copies values once it has checked them.
pub(crate) trait CheckedRoom {
    /// Returns the size of the slice in bytes.
    fn bytes(&self) -> usize;
    /// Returns the size of an element in bytes.
    fn element_bytes(&self) -> usize;
    /// Copies the values of a message, which has whole elements and is not longer than the slice, to the beginning of
    /// the slice. If one of the values is invalid, copies no value.
    fn receive(&mut self, status: Status, message: &[u8]) -> Result<(), Error>;
}

impl<T: CheckedElement> CheckedRoom for &mut [T] {
    fn bytes(&self) -> usize {
        size_of_val(*self)
    }

    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn receive(&mut self, status: Status, message: &[u8]) -> Result<(), Error> {
        let values = values_of::<T>(&message[..status.bytes]).map_err(|index| invalid::<T>(status, index))?;
        self[..values.len()].copy_from_slice(&values);
        Ok(())
    }
}

/// Values of a [`CheckedElement`] type, for operations that own their buffers. If the bytes of a received element are
/// not a valid value of `T`, the receive ends with [`Error::InvalidValue`], and the error does not return the buffer.
///
/// ```
/// # samite::local(1, |world| {
/// # let comm = world.comm();
/// use samite::CheckedVec;
///
/// comm.send(&['a', 'ß'], comm.rank(), 7)?;
/// let received = comm.irecv(CheckedVec::new(&['-'; 3]), comm.rank(), 7)?.wait()?;
/// assert_eq!(received.buffer.to_vec(), ['a', 'ß', '-']);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedVec<T> {
    /// The bytes of values of `T`.
    bytes: Vec<u8>,
    values: PhantomData<fn() -> T>,
}

impl<T: CheckedElement> CheckedVec<T> {
    /// Returns a buffer with copies of these values.
    #[must_use]
    pub fn new(values: &[T]) -> Self {
        Self { bytes: values.as_bytes().to_vec(), values: PhantomData }
    }

    /// Returns copies of the values.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        values_of(&self.bytes).unwrap_or_else(|index| unreachable!("value {index} was checked when it came"))
    }
}

impl<T: CheckedElement> Held for CheckedVec<T> {
    #[inline(always)]
    fn element_bytes() -> Option<usize> {
        Some(size_of::<T>())
    }
    fn into_memory(self) -> Memory {
        Memory::new(self.bytes)
    }
    fn of_memory(memory: Memory) -> Result<Self, Memory> {
        let bytes = memory.into_vec()?;
        match values_of::<T>(&bytes) {
            Ok(_) => Ok(Self { bytes, values: PhantomData }),
            Err(_) => Err(Memory::new(bytes)),
        }
    }
    fn refusal(memory: &Memory, status: Status) -> Error {
        match values_of::<T>(memory.as_bytes()) {
            Ok(_) => Error::NoSuchRequest,
            Err(index) => invalid::<T>(status, index),
        }
    }
    fn signature(_: &Memory) -> Signature {
        signature_of::<T>()
    }
}

impl<T: CheckedElement> Buffer for CheckedVec<T> {}
impl<T: CheckedElement> BufferMut for CheckedVec<T> {}

/// Decodes bytes into values of `T`. Fails with the index of the first element whose bytes are not a valid `T`.
fn values_of<T: CheckedElement>(bytes: &[u8]) -> Result<Vec<T>, usize> {
    let values = bytes.chunks_exact(size_of::<T>().max(1)).enumerate();
    values.map(|(index, bytes)| T::try_read_from_bytes(bytes).map_err(|_| index)).collect()
}

fn invalid<T>(status: Status, index: usize) -> Error {
    Error::InvalidValue { status, index, element: type_name::<T>() }
}
