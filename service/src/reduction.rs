//! Operations that combine the elements of several ranks (MPI 4.1, section 6.9).
//!
//! ```
//! use samite::reduction::{Max, ReduceOp, Sum};
//!
//! let mut total = [10, 20];
//! Sum.reduce(&[1, 2], &mut total);
//! assert_eq!(total, [11, 22]);
//! Max.reduce(&[5, 50], &mut total);
//! assert_eq!(total, [11, 50]);
//! ```

mod binned;
mod complex;
mod location;
mod numbers;

use std::fmt;
use std::marker::PhantomData;

pub use binned::BinnedSum;
pub use complex::{ComplexF32, ComplexF64};
#[cfg(feature = "half")]
pub use half::{bf16, f16};
pub use location::{
    LocatedF32, LocatedF64, LocatedI32, LocatedI64, LocatedU32, LocatedU64, MaxLocation, MinLocation,
};

/// An associative operation on pairs of elements.
///
/// The ranks combine their elements in an order that depends on the algorithm. Samite keeps the operands in the order
/// of ranks if the operation does not [commute](Self::commutes). A sum of floating-point numbers is only nearly
/// associative, so its last digits depend on the number of ranks and on the algorithm, unless it is [`reproducible`].
///
/// An operation exists for the types of elements for which MPI defines it (MPI 4.1, section 6.9.2). A program that
/// combines the bits of floating-point numbers does not compile:
///
/// ```compile_fail,E0277
/// # fn call(comm: &samite::Comm) -> Result<(), samite::Error> {
/// comm.allreduce(&[1.0], &mut [0.0], samite::reduction::BitAnd)
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "the operation `{Self}` is not defined for elements of type `{T}`",
    note = "`samite::reduction::commuting` and `in_rank_order` make an operation of a function"
)]
pub trait ReduceOp<T>: Send + Sync + 'static {
    /// Replaces each element `b` of `into` by `a ∘ b`, where `a` is the element of `from` with the same index. Both
    /// slices have the same length.
    ///
    /// It must not call Samite, because the runtime is locked meanwhile: such a call panics. A panic ends the
    /// operation, and the call that waits for it panics too. The other ranks get
    /// [`Error::Abandoned`](crate::Error::Abandoned).
    fn reduce(&self, from: &[T], into: &mut [T]);

    /// Returns true if the elements may be combined in any order, because `a ∘ b` is `b ∘ a` for all elements. It must
    /// return the same value at all ranks.
    fn commutes(&self) -> bool {
        true
    }
}

/// The sum. Sums of integers wrap around at the limits of their type. A sum of floating-point numbers that is not a
/// number is always `NAN`, with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum;

/// The product. Products of integers wrap around at the limits of their type. A product of floating-point numbers that
/// is not a number is always `NAN`, with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product;

/// The smaller element. Of a number and a value that is not a number (NaN), it is the number. Negative zero is smaller
/// than zero. So the result does not depend on the order of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Min;

/// The larger element. Of a number and a value that is not a number (NaN), it is the number. Zero is larger than
/// negative zero. So the result does not depend on the order of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Max;

/// 1 if both integers are not 0, otherwise 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalAnd;

/// 1 if at least one of the integers is not 0, otherwise 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalOr;

/// 1 if exactly one of the integers is not 0, otherwise 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalXor;

/// The bits that are set in both integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitAnd;

/// The bits that are set in at least one of the integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitOr;

/// The bits that are set in exactly one of the integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitXor;

/// Combines each pair of elements of two slices that have the same index. The results replace the elements of `into`.
#[inline(always)]
fn combine<T: Copy>(from: &[T], into: &mut [T], op: impl Fn(T, T) -> T) {
    debug_assert_eq!(from.len(), into.len(), "the operands have the same length");
    for (left, right) in from.iter().zip(into) {
        *right = op(*left, *right);
    }
}

/// An operation with reproducible results: see [`reproducible`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reproducible<O>(O);

/// Returns `op` with results that depend only on the number of ranks and on their elements, although `op` is only
/// nearly associative, as a sum of floating-point numbers is. They do not depend on the lengths of the
/// slices, the algorithm, the transport, the hosts, or the order in which messages arrive. `reduce`, `allreduce`
/// and `reduce_scatter` have the same results. The result of a scan at a rank depends only on the elements of the ranks
/// up to this rank.
///
/// Samite combines the elements by a fixed tree, as it does for operations that do not commute. To get the same bits of
/// a sum for any number of ranks, use a [`BinnedSum`].
///
/// ```
/// # samite::local(3, |world| {
/// # let comm = world.comm();
/// use samite::reduction::{Sum, reproducible};
///
/// let mut sum = [0.0];
/// comm.allreduce(&[[1e16, 1.0, -1e16][comm.rank().0 as usize]], &mut sum, reproducible(Sum))?;
/// assert_eq!(sum, [0.0]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
pub fn reproducible<O>(op: O) -> Reproducible<O> {
    Reproducible(op)
}

impl<T, O: ReduceOp<T>> ReduceOp<T> for Reproducible<O> {
    fn reduce(&self, from: &[T], into: &mut [T]) {
        self.0.reduce(from, into);
    }
    /// Returns false, because operations that do not commute have a fixed order.
    fn commutes(&self) -> bool {
        false
    }
}

/// An operation that a program defines by a function of two slices: see [`commuting`] and [`in_rank_order`].
pub struct UserOp<T, F> {
    function: F,
    commutes: bool,
    elements: PhantomData<fn(T)>,
}

/// Returns an operation that commutes and that is carried out by a function of the program. The function replaces each
/// element `b` of the second slice by `a ∘ b`, where `a` is the element of the first slice with the same index.
///
/// ```
/// use samite::reduction::{ReduceOp, commuting};
///
/// fn gcd(a: u32, b: u32) -> u32 {
///     if b == 0 { a } else { gcd(b, a % b) }
/// }
/// let op = commuting(|from: &[u32], into: &mut [u32]| {
///     from.iter().zip(into).for_each(|(a, b)| *b = gcd(*a, *b));
/// });
/// let mut into = [12];
/// op.reduce(&[18], &mut into);
/// assert_eq!(into, [6]);
/// ```
pub fn commuting<T, F: Fn(&[T], &mut [T])>(function: F) -> UserOp<T, F> {
    UserOp { function, commutes: true, elements: PhantomData }
}

/// Returns an operation that need not commute and that is carried out by a function of the program. The elements are
/// combined in the order of ranks, and by a fixed tree as for [`reproducible`]. The function has the same parameters as
/// for [`commuting`].
///
/// ```
/// use samite::reduction::{ReduceOp, in_rank_order};
///
/// // Affine functions x -> m x + c, as pairs (m, c): the composition applies the left function first.
/// let compose = in_rank_order(|from: &[[i64; 2]], into: &mut [[i64; 2]]| {
///     for ([m, c], right) in from.iter().zip(into) {
///         *right = [m * right[0], c * right[0] + right[1]];
///     }
/// });
/// assert!(!compose.commutes());
/// let mut into = [[2, 3]];
/// compose.reduce(&[[5, 7]], &mut into);
/// assert_eq!(into, [[10, 17]]);
/// ```
pub fn in_rank_order<T, F: Fn(&[T], &mut [T])>(function: F) -> UserOp<T, F> {
    UserOp { function, commutes: false, elements: PhantomData }
}

impl<T: 'static, F: Fn(&[T], &mut [T]) + Send + Sync + 'static> ReduceOp<T> for UserOp<T, F> {
    fn reduce(&self, from: &[T], into: &mut [T]) {
        (self.function)(from, into);
    }
    fn commutes(&self) -> bool {
        self.commutes
    }
}

impl<T, F> fmt::Debug for UserOp<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserOp").field("commutes", &self.commutes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
