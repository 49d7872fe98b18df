//! What requests own and give back: buffers, and persistent and partitioned operations.

use std::any::Any;
use std::fmt;

use samite_fabric::Memory;
use samite_fabric::layout::Signature;

use crate::buffer::Held;
use crate::comm::Derived;
use crate::request::{Done, Failed, result_of};
use crate::runtime::Completion;
use crate::signature::signature_at_run_time;
use crate::{Error, Status};

/// The value that a [`Request`](crate::Request) owns until its end, and then returns.
///
/// It is a [`Buffer`](crate::Buffer), or a persistent or partitioned operation of which the request is a round
/// ([`PersistentSend`](crate::PersistentSend), [`PersistentRecv`](crate::PersistentRecv),
/// [`PartitionedSend`](crate::PartitionedSend), [`PartitionedRecv`](crate::PartitionedRecv),
/// [`PersistentCollective`](crate::PersistentCollective)), or one of these whose type is known only at run time
/// ([`AnyBuffer`]). For a nonblocking collective operation it is the pair of the input and the output.
///
/// The trait is sealed: other types cannot implement it.
pub trait Owned: Returned {}

impl<T: Returned> Owned for T {}

/// The implementation of [`Owned`], hidden from other crates.
pub trait Returned: Sized + Send + 'static {
    /// The part of the value that the request keeps: the operation, or `()` for a buffer, which the engine keeps. For
    /// [`AnyBuffer`] it is an operation or nothing.
    type Kept: Default + Send + Sync + fmt::Debug;

    /// Returns the result of a request that has ended, and calls `report` with an error before it returns the error.
    /// `completion` is `None` if the engine does not know the request.
    #[doc(hidden)]
    fn end(
        kept: Self::Kept,
        derived: Option<&Derived>,
        completion: Option<Completion>,
        report: impl FnOnce(&Error),
    ) -> Result<Done<Self>, Failed<Self>>;
    /// Forgets the type of the kept part.
    #[doc(hidden)]
    fn erase(kept: Self::Kept) -> AnyOperation;
    #[doc(hidden)]
    fn of_any(any: AnyBuffer) -> Result<Self, AnyBuffer>;
    /// Returns the operation of the request; `None` if the request owns a buffer.
    #[doc(hidden)]
    fn operation(kept: &Self::Kept) -> Option<&dyn Any>;
}

/// A buffer or an operation whose type is known only at run time. With it, requests whose buffers have different types
/// can be in one set, together with rounds of persistent and partitioned operations:
/// [`Request::into_any`](crate::Request::into_any).
#[derive(Debug)]
pub struct AnyBuffer(Kind);

enum Kind {
    Buffer(Memory),
    Operation(Box<dyn Operation>),
}

impl AnyBuffer {
    /// Returns the buffer or the operation with its type.
    ///
    /// # Errors
    /// Returns the buffer or the operation unchanged if it has another type. A buffer that was made from a `Box<[T]>`
    /// can be returned as a `Vec<T>` too, and the reverse.
    pub fn downcast<B: Owned>(self) -> Result<B, Self> {
        B::of_any(self)
    }
}

/// A persistent or partitioned operation.
pub trait Operation: Any + Send + Sync {
    /// Ends the present round, whose request has ended with `completion`, and returns its result. The operation is
    /// inactive afterwards.
    fn end_round(&mut self, completion: Option<Completion>) -> Result<Status, Error>;
}

/// The operation that a request with an unknown type keeps; `None` if the request owns a buffer, or if its result was
/// returned.
#[derive(Default)]
pub struct AnyOperation(Option<Box<dyn Operation>>);

impl<B: Held> Returned for B {
    type Kept = ();

    #[inline(always)]
    fn end(
        (): (),
        derived: Option<&Derived>,
        completion: Option<Completion>,
        report: impl FnOnce(&Error),
    ) -> Result<Done<Self>, Failed<Self>> {
        result_of(derived, completion, report)
    }
    fn erase((): ()) -> AnyOperation {
        AnyOperation(None)
    }
    fn of_any(any: AnyBuffer) -> Result<Self, AnyBuffer> {
        match any.0 {
            Kind::Buffer(memory) => B::of_memory(memory).map_err(|memory| AnyBuffer(Kind::Buffer(memory))),
            kind => Err(AnyBuffer(kind)),
        }
    }
    fn operation((): &()) -> Option<&dyn Any> {
        None
    }
}

impl Returned for AnyBuffer {
    type Kept = AnyOperation;

    fn end(
        kept: AnyOperation,
        derived: Option<&Derived>,
        completion: Option<Completion>,
        report: impl FnOnce(&Error),
    ) -> Result<Done<Self>, Failed<Self>> {
        let Some(mut operation) = kept.0 else {
            let ended = result_of::<AnyMemory>(derived, completion, report);
            let any = |AnyMemory(memory)| Self(Kind::Buffer(memory));
            return ended
                .map(|Done { buffer, status }| Done { buffer: any(buffer), status })
                .map_err(|Failed { error, buffer }| Failed { error, buffer: buffer.map(any) });
        };
        let ended = operation.end_round(completion);
        give_back(Self(Kind::Operation(operation)), ended, report)
    }
    fn erase(kept: AnyOperation) -> AnyOperation {
        kept
    }
    fn of_any(any: AnyBuffer) -> Result<Self, AnyBuffer> {
        Ok(any)
    }
    fn operation(kept: &AnyOperation) -> Option<&dyn Any> {
        kept.0.as_deref().map(|operation| operation as &dyn Any)
    }
}

/// Implements [`Returned`] for an [`Operation`].
macro_rules! returned {
    ($name:ident<$($parameter:ident: $bound:ident),+>) => {
        impl<$($parameter: $bound),+> $crate::owned::Returned for $name<$($parameter),+> {
            type Kept = $crate::owned::Kept<Self>;

            fn end(
                kept: Self::Kept,
                _: Option<&$crate::comm::Derived>,
                completion: Option<$crate::runtime::Completion>,
                report: impl FnOnce(&$crate::Error),
            ) -> Result<$crate::Done<Self>, $crate::Failed<Self>> {
                kept.end(completion, report)
            }
            fn erase(kept: Self::Kept) -> $crate::owned::AnyOperation {
                kept.erase()
            }
            fn of_any(any: $crate::AnyBuffer) -> Result<Self, $crate::AnyBuffer> {
                any.into_operation()
            }
            fn operation(kept: &Self::Kept) -> Option<&dyn std::any::Any> {
                kept.operation()
            }
        }
    };
}
pub(crate) use returned;

/// The operation that a request keeps; `None` if its result was returned.
pub struct Kept<O>(Option<O>);

impl<O: Operation> Kept<O> {
    pub(crate) fn new(operation: O) -> Self {
        Self(Some(operation))
    }

    pub(crate) fn end(
        self,
        completion: Option<Completion>,
        report: impl FnOnce(&Error),
    ) -> Result<Done<O>, Failed<O>> {
        let Some(mut operation) = self.0 else {
            report(&Error::NoSuchRequest);
            return Err(Failed { error: Error::NoSuchRequest, buffer: None });
        };
        let ended = operation.end_round(completion);
        give_back(operation, ended, report)
    }

    pub(crate) fn erase(self) -> AnyOperation {
        AnyOperation(self.0.map(|operation| Box::new(operation) as _))
    }

    pub(crate) fn operation(&self) -> Option<&dyn Any> {
        self.0.as_ref().map(|operation| operation as &dyn Any)
    }
}

/// Returns the result of a request with the operation whose round it was.
fn give_back<O>(
    buffer: O,
    ended: Result<Status, Error>,
    report: impl FnOnce(&Error),
) -> Result<Done<O>, Failed<O>> {
    match ended {
        Ok(status) => Ok(Done { buffer, status }),
        Err(error) => {
            report(&error);
            Err(Failed { error, buffer: Some(buffer) })
        }
    }
}

impl AnyBuffer {
    pub(crate) fn of_operation(operation: impl Operation) -> Self {
        Self(Kind::Operation(Box::new(operation)))
    }

    pub(crate) fn into_operation<O: Operation>(self) -> Result<O, Self> {
        match self.0 {
            Kind::Operation(operation) if (&*operation as &dyn Any).is::<O>() => {
                let Ok(operation) = (operation as Box<dyn Any>).downcast() else {
                    unreachable!("the type was compared")
                };
                Ok(*operation)
            }
            kind => Err(Self(kind)),
        }
    }
}

/// The memory of a buffer whose type is known only at run time.
struct AnyMemory(Memory);

impl Held for AnyMemory {
    fn element_bytes() -> Option<usize> {
        None
    }
    fn into_memory(self) -> Memory {
        self.0
    }
    fn of_memory(memory: Memory) -> Result<Self, Memory> {
        Ok(Self(memory))
    }
    fn signature(memory: &Memory) -> Signature {
        signature_at_run_time(memory)
    }
}

impl<O> Default for Kept<O> {
    fn default() -> Self {
        Self(None)
    }
}

impl<O> fmt::Debug for Kept<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for AnyOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyOperation").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(memory) => memory.fmt(f),
            Self::Operation(_) => f.write_str("Operation"),
        }
    }
}
