//! The buffers that owned operations take over and give back.

use std::sync::Arc;

use samite_fabric::Memory;
use samite_fabric::layout::Signature;

use crate::signature::signature_of;
use crate::{Element, Error, Status};

/// A buffer of elements that a send takes over until its end: `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, or a part of such a
/// buffer in a layout ([`OwnedView`](crate::OwnedView)).
///
/// The elements of an `Arc` are not copied. So one slice can be sent to several ranks at the same time, and the program
/// can read it while they are sent.
///
/// ```
/// # samite::local(3, |world| -> Result<(), samite::Error> {
/// # let comm = world.comm();
/// use std::sync::Arc;
///
/// if comm.rank() == 0 {
///     let field: Arc<[f64]> = Arc::from(vec![0.5; 1000]);
///     let sends = [1, 2].map(|to| comm.isend(field.clone(), samite::Rank(to), 7));
///     for send in sends {
///         send?.wait()?;
///     }
/// } else {
///     assert_eq!(comm.recv_vec::<f64>(samite::Rank(0), 7)?.buffer, [0.5; 1000]);
/// }
/// # Ok(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// The trait is sealed: other types cannot implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the buffer of an operation that owns it",
    label = "a `Vec<T>`, `Box<[T]>` or `Arc<[T]>` of elements, or an `OwnedView`",
    note = "an operation on a borrowed buffer is posted in a `Comm::scope`, or blocks, as `Comm::send` does"
)]
pub trait Buffer: Held {}

/// A buffer that a receive takes over and fills: `Vec<T>`, of which it fills the elements and not the spare capacity,
/// `Box<[T]>`, or a part of such a buffer in a layout ([`OwnedView`](crate::OwnedView)).
///
/// An `Arc` is not a `BufferMut`, because its elements may have other readers:
///
/// ```compile_fail,E0277
/// # samite::local(1, |world| {
/// let shared: std::sync::Arc<[u8]> = [0; 8].into();
/// let _ = world.comm().irecv(shared, samite::Rank(0), 7);
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the buffer of a receive that owns it",
    label = "a `Vec<T>` or `Box<[T]>` of elements, a `CheckedVec`, or an `OwnedView`",
    note = "a receive into a borrowed buffer is posted in a `Comm::scope`, or blocks, as `Comm::recv` does"
)]
pub trait BufferMut: Buffer {}

/// The implementation of a buffer, hidden from other crates.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a buffer that an operation can own")]
pub trait Held: Sized + Send + Sync + 'static {
    /// Returns the size of one element in bytes. Returns `None` if the type does not tell it, as for
    /// [`OwnedView`](crate::OwnedView).
    fn element_bytes() -> Option<usize>;
    fn into_memory(self) -> Memory;
    /// Makes the buffer from memory. Returns the memory unchanged if it was made from another type, or if its bytes are
    /// not valid values of the type.
    fn of_memory(memory: Memory) -> Result<Self, Memory>;
    /// Returns the signature of the elements of memory that was made from such a buffer.
    fn signature(memory: &Memory) -> Signature;
    /// Returns the error of a finished operation if [`of_memory`](Self::of_memory) cannot make the buffer from its
    /// memory. The default is for types that accept all bytes: there it fails only if the memory was made from another
    /// type.
    #[cold]
    fn refusal(_memory: &Memory, _status: Status) -> Error {
        Error::NoSuchRequest
    }
}

impl<T: Element> Held for Vec<T> {
    #[inline(always)]
    fn element_bytes() -> Option<usize> {
        Some(size_of::<T>())
    }
    fn into_memory(self) -> Memory {
        Memory::new(self)
    }
    fn of_memory(memory: Memory) -> Result<Self, Memory> {
        memory.into_vec()
    }
    fn signature(_: &Memory) -> Signature {
        signature_of::<T>()
    }
}

/// A box becomes a vector without spare capacity, and such a vector becomes a box, without a copy.
impl<T: Element> Held for Box<[T]> {
    #[inline(always)]
    fn element_bytes() -> Option<usize> {
        Some(size_of::<T>())
    }
    fn into_memory(self) -> Memory {
        Memory::new(self.into_vec())
    }
    fn of_memory(memory: Memory) -> Result<Self, Memory> {
        memory.into_vec().map(Vec::into_boxed_slice)
    }
    fn signature(_: &Memory) -> Signature {
        signature_of::<T>()
    }
}

impl<T: Element> Held for Arc<[T]> {
    #[inline(always)]
    fn element_bytes() -> Option<usize> {
        Some(size_of::<T>())
    }
    fn into_memory(self) -> Memory {
        Memory::shared(self)
    }
    fn of_memory(memory: Memory) -> Result<Self, Memory> {
        memory.into_shared()
    }
    fn signature(_: &Memory) -> Signature {
        signature_of::<T>()
    }
}

impl<T: Element> Buffer for Vec<T> {}
impl<T: Element> Buffer for Box<[T]> {}
impl<T: Element> Buffer for Arc<[T]> {}
impl<T: Element> BufferMut for Vec<T> {}
impl<T: Element> BufferMut for Box<[T]> {}
