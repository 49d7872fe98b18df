//! The element types and the operations of accumulates.

use samite_rma::{ElementType, Reduction};

use crate::element::Element;
use crate::reduction::{
    ComplexF32, ComplexF64, LocatedF32, LocatedF64, LocatedI32, LocatedI64, LocatedU32, LocatedU64,
};

/// The element types of accumulates, fetches and swaps: the numbers for which MPI defines them, and the pairs of a
/// value and a location of [`samite::reduction`](crate::reduction).
///
/// The trait is sealed: other types cannot implement it.
#[diagnostic::on_unimplemented(
    message = "windows do not change elements of type `{Self}` atomically",
    label = "not a number, or a pair of a value and a location",
    note = "windows accumulate, fetch and swap the numbers of MPI and the pairs in `samite::reduction`; other elements can \
            be put and got"
)]
pub trait WindowNumber: Element + Sealed {}

/// The implementation of [`WindowNumber`], hidden from other crates.
pub trait Sealed {
    #[doc(hidden)]
    fn element_type() -> Type;
}

/// An element type.
#[derive(Clone, Copy, Debug)]
pub struct Type(pub(super) ElementType);

macro_rules! numbers {
    ($($type:ident = $element:ident)*) => {
        $(
            impl Sealed for $type {
                fn element_type() -> Type {
                    Type(ElementType::$element)
                }
            }
            impl WindowNumber for $type {}
        )*
    };
}

numbers! {
    u8 = U8 i8 = I8 u16 = U16 i16 = I16 u32 = U32 i32 = I32 u64 = U64 i64 = I64 u128 = U128 i128 = I128
    f32 = F32 f64 = F64 ComplexF32 = ComplexF32 ComplexF64 = ComplexF64
    LocatedI32 = LocatedI32 LocatedU32 = LocatedU32 LocatedF32 = LocatedF32
    LocatedI64 = LocatedI64 LocatedU64 = LocatedU64 LocatedF64 = LocatedF64
}

/// The operation of an accumulate or a fetch on each element (MPI 4.1, sections 6.9.2, 6.9.4 and 12.3.4). Arithmetic on
/// integers wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WindowOp {
    /// The sum (`MPI_SUM`).
    Sum,
    /// The product (`MPI_PROD`).
    Product,
    /// The smaller one (`MPI_MIN`). If one of two floating-point values is not a number, the result is not a number. In
    /// this case [`reduction::Min`](crate::reduction::Min) returns the other value.
    Min,
    /// The larger one (`MPI_MAX`). The rule of [`Min`](Self::Min) for values that are not a number holds.
    Max,
    /// 1 if both are not 0, otherwise 0 (`MPI_LAND`).
    LogicalAnd,
    /// 1 if one or both are not 0, otherwise 0 (`MPI_LOR`).
    LogicalOr,
    /// 1 if exactly one is not 0, otherwise 0 (`MPI_LXOR`).
    LogicalXor,
    /// The conjunction of each bit (`MPI_BAND`).
    BitAnd,
    /// The disjunction of each bit (`MPI_BOR`).
    BitOr,
    /// The exclusive disjunction of each bit (`MPI_BXOR`).
    BitXor,
    /// The pair with the smaller value; of equal values, the pair with the smaller location (`MPI_MINLOC`). A value
    /// that is not a number is never chosen if the other one is a number. It is defined for pairs such as
    /// [`LocatedF64`](crate::reduction::LocatedF64).
    ///
    /// ```
    /// # samite::local(3, |world| {
    /// # let comm = world.comm();
    /// use samite::reduction::LocatedF32;
    /// use samite::{Rank, WindowOp};
    ///
    /// // Each rank offers a price, and rank 0 has the lowest one with its rank.
    /// let none = LocatedF32 { value: f32::INFINITY, location: u32::MAX };
    /// let best = comm.window(vec![none])?;
    /// let epoch = best.fence()?;
    /// let price = [3.5, 1.5, 2.5][comm.rank().index()];
    /// let offer = LocatedF32 { value: price, location: comm.rank().0 };
    /// epoch.accumulate(Rank(0), 0, &[offer], WindowOp::MinLocation)?;
    /// epoch.close()?;
    /// let part = best.free()?;
    /// assert!(comm.rank() != Rank(0) || part == [LocatedF32 { value: 1.5, location: 1 }]);
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    MinLocation,
    /// The pair with the larger value; of equal values, the pair with the smaller location (`MPI_MAXLOC`). The rules of
    /// [`MinLocation`](Self::MinLocation) hold.
    MaxLocation,
    /// The operand (`MPI_REPLACE`).
    Replace,
    /// The element, unchanged (`MPI_NO_OP`): a fetch with it is an atomic read.
    NoOp,
}

impl WindowOp {
    pub(super) fn reduction(self) -> Reduction {
        match self {
            Self::Sum => Reduction::Sum,
            Self::Product => Reduction::Product,
            Self::Min => Reduction::Min,
            Self::Max => Reduction::Max,
            Self::LogicalAnd => Reduction::LogicalAnd,
            Self::LogicalOr => Reduction::LogicalOr,
            Self::LogicalXor => Reduction::LogicalXor,
            Self::BitAnd => Reduction::BitAnd,
            Self::BitOr => Reduction::BitOr,
            Self::BitXor => Reduction::BitXor,
            Self::MinLocation => Reduction::MinLocation,
            Self::MaxLocation => Reduction::MaxLocation,
            Self::Replace => Reduction::Replace,
            Self::NoOp => Reduction::NoOp,
        }
    }
}
