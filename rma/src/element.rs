//! Element types and the operations on them, as an accumulate applies them to the memory of a window.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The type of the elements of an accumulate: the predefined types of MPI (MPI 4.1, section 3.2.2) that operations
/// accept, in the byte order of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the types")]
pub enum ElementType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    U128,
    I128,
    F32,
    F64,
    /// A complex number: two `f32`.
    ComplexF32,
    /// A complex number: two `f64`.
    ComplexF64,
    /// A value and a location of type `u32`.
    LocatedI32,
    /// A value and a location of type `u32`.
    LocatedU32,
    /// A value and a location of type `u32`.
    LocatedF32,
    /// A value and a location of type `u64`.
    LocatedI64,
    /// A value and a location of type `u64`.
    LocatedU64,
    /// A value and a location of type `u64`.
    LocatedF64,
}

impl ElementType {
    /// All types, in the order of their numbers on the wire.
    pub const ALL: [Self; 20] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::U128,
        Self::I128,
        Self::F32,
        Self::F64,
        Self::ComplexF32,
        Self::ComplexF64,
        Self::LocatedI32,
        Self::LocatedU32,
        Self::LocatedF32,
        Self::LocatedI64,
        Self::LocatedU64,
        Self::LocatedF64,
    ];

    /// Returns the number of bytes of an element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64
            | Self::I64
            | Self::F64
            | Self::ComplexF32
            | Self::LocatedI32
            | Self::LocatedU32
            | Self::LocatedF32 => 8,
            Self::U128
            | Self::I128
            | Self::ComplexF64
            | Self::LocatedI64
            | Self::LocatedU64
            | Self::LocatedF64 => 16,
        }
    }

    /// Returns the type with this number on the wire.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A class of element types: the same operations are defined for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Integer,
    Float,
    Complex,
    Located,
}

impl ElementType {
    #[inline]
    fn class(self) -> Class {
        match self {
            Self::U8 | Self::I8 | Self::U16 | Self::I16 | Self::U32 | Self::I32 => Class::Integer,
            Self::U64 | Self::I64 | Self::U128 | Self::I128 => Class::Integer,
            Self::F32 | Self::F64 => Class::Float,
            Self::ComplexF32 | Self::ComplexF64 => Class::Complex,
            Self::LocatedI32 | Self::LocatedU32 | Self::LocatedF32 => Class::Located,
            Self::LocatedI64 | Self::LocatedU64 | Self::LocatedF64 => Class::Located,
        }
    }
}

/// An operation of an accumulate: the predefined operations of MPI (MPI 4.1, sections 6.9.2, 6.9.4 and 12.3.4).
/// Arithmetic on integers wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the operations")]
pub enum Reduction {
    Sum,
    Product,
    Min,
    Max,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    BitAnd,
    BitOr,
    BitXor,
    MinLocation,
    MaxLocation,
    /// The operand replaces the element.
    Replace,
    /// The element stays. A get-accumulate with it is an atomic read.
    NoOp,
}

impl Reduction {
    /// All operations, in the order of their numbers on the wire.
    pub const ALL: [Self; 14] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::MinLocation,
        Self::MaxLocation,
        Self::Replace,
        Self::NoOp,
    ];

    /// Returns the operation with this number on the wire.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns true if the operation is defined for elements of this type.
    #[must_use]
    #[inline]
    pub fn accepts(self, element: ElementType) -> bool {
        let class = element.class();
        match self {
            Self::Replace | Self::NoOp => true,
            Self::Sum | Self::Product => class != Class::Located,
            Self::Min | Self::Max => matches!(class, Class::Integer | Class::Float),
            Self::MinLocation | Self::MaxLocation => class == Class::Located,
            Self::LogicalAnd
            | Self::LogicalOr
            | Self::LogicalXor
            | Self::BitAnd
            | Self::BitOr
            | Self::BitXor => class == Class::Integer,
        }
    }

    /// Applies the operation to each element of `into`, with the element of `from` as its operand. Returns false, and
    /// changes nothing, if the operation is not defined for the type.
    ///
    /// # Panics
    /// If the slices do not have the same length, or do not consist of whole elements.
    #[must_use]
    #[inline(never)]
    pub(crate) fn apply(self, element: ElementType, from: &[u8], into: &mut [u8]) -> bool {
        assert!(from.len() == into.len() && from.len().is_multiple_of(element.size()), "whole elements");
        match self {
            Self::Replace => {
                into.copy_from_slice(from);
                true
            }
            Self::NoOp => true,
            _ => match element {
                ElementType::U8 => integer::u8(self, from, into),
                ElementType::I8 => integer::i8(self, from, into),
                ElementType::U16 => integer::u16(self, from, into),
                ElementType::I16 => integer::i16(self, from, into),
                ElementType::U32 => integer::u32(self, from, into),
                ElementType::I32 => integer::i32(self, from, into),
                ElementType::U64 => integer::u64(self, from, into),
                ElementType::I64 => integer::i64(self, from, into),
                ElementType::U128 => integer::u128(self, from, into),
                ElementType::I128 => integer::i128(self, from, into),
                ElementType::F32 => float::f32(self, from, into),
                ElementType::F64 => float::f64(self, from, into),
                ElementType::ComplexF32 => complex::f32(self, from, into),
                ElementType::ComplexF64 => complex::f64(self, from, into),
                ElementType::LocatedI32 => located::i32(self, from, into),
                ElementType::LocatedU32 => located::u32(self, from, into),
                ElementType::LocatedF32 => located::f32(self, from, into),
                ElementType::LocatedI64 => located::i64(self, from, into),
                ElementType::LocatedU64 => located::u64(self, from, into),
                ElementType::LocatedF64 => located::f64(self, from, into),
            },
        }
    }
}

/// Applies a function of the element and the operand to all elements, and returns true. Each function has its own copy of
/// the loop, which the compiler can turn into vector instructions.
fn each<T: FromBytes + IntoBytes + Immutable + Copy>(
    from: &[u8],
    into: &mut [u8],
    combine: impl Fn(T, T) -> T,
) -> bool {
    for (from, into) in from.chunks_exact(size_of::<T>()).zip(into.chunks_exact_mut(size_of::<T>())) {
        let (Ok(operand), Ok(element)) = (T::read_from_bytes(from), T::read_from_bytes(into)) else {
            unreachable!("the chunks have the size of an element")
        };
        into.copy_from_slice(combine(element, operand).as_bytes());
    }
    true
}

mod integer {
    use super::{Reduction, each};

    macro_rules! functions {
        ($($type:ident)*) => {
            $(pub(super) fn $type(op: Reduction, from: &[u8], into: &mut [u8]) -> bool {
                match op {
                    Reduction::Sum => each::<$type>(from, into, $type::wrapping_add),
                    Reduction::Product => each::<$type>(from, into, $type::wrapping_mul),
                    Reduction::Min => each::<$type>(from, into, Ord::min),
                    Reduction::Max => each::<$type>(from, into, Ord::max),
                    Reduction::LogicalAnd => each::<$type>(from, into, |a, b| $type::from(a != 0 && b != 0)),
                    Reduction::LogicalOr => each::<$type>(from, into, |a, b| $type::from(a != 0 || b != 0)),
                    Reduction::LogicalXor => each::<$type>(from, into, |a, b| $type::from((a != 0) != (b != 0))),
                    Reduction::BitAnd => each::<$type>(from, into, |a, b| a & b),
                    Reduction::BitOr => each::<$type>(from, into, |a, b| a | b),
                    Reduction::BitXor => each::<$type>(from, into, |a, b| a ^ b),
                    _ => false,
                }
            })*
        };
    }

    functions! { u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 }
}

/// If an operand is not a number, the result is `NAN`. Of zeros with different signs, -0 is the smaller one.
mod float {
    use super::{Reduction, each};

    macro_rules! functions {
        ($($type:ident)*) => {
            $(pub(super) fn $type(op: Reduction, from: &[u8], into: &mut [u8]) -> bool {
                match op {
                    Reduction::Sum => each::<$type>(from, into, |a, b| a + b),
                    Reduction::Product => each::<$type>(from, into, |a, b| a * b),
                    Reduction::Min => each::<$type>(from, into, |a, b| match a.is_nan() || b.is_nan() {
                        true => $type::NAN,
                        false => if a.total_cmp(&b).is_le() { a } else { b },
                    }),
                    Reduction::Max => each::<$type>(from, into, |a, b| match a.is_nan() || b.is_nan() {
                        true => $type::NAN,
                        false => if a.total_cmp(&b).is_ge() { a } else { b },
                    }),
                    _ => false,
                }
            })*
        };
    }

    functions! { f32 f64 }
}

mod complex {
    use super::{Reduction, each};

    macro_rules! functions {
        ($($type:ident)*) => {
            $(pub(super) fn $type(op: Reduction, from: &[u8], into: &mut [u8]) -> bool {
                match op {
                    Reduction::Sum => each::<[$type; 2]>(from, into, |[a, b], [c, d]| [a + c, b + d]),
                    Reduction::Product => each::<[$type; 2]>(from, into, |[a, b], [c, d]| [a * c - b * d, a * d + b * c]),
                    _ => false,
                }
            })*
        };
    }

    functions! { f32 f64 }
}

/// Of equal values, the smaller location is chosen. A value that is not a number is never chosen if the other one is a
/// number.
mod located {
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    use super::{Reduction, each};

    /// Returns true if the first of two pairs of a value and a location is chosen. `is_better` compares the values.
    fn is_first_chosen<V: PartialOrd, L: Ord>(a: (V, L), b: (V, L), is_better: fn(&V, &V) -> bool) -> bool {
        let is_nan = |value: &V| value.partial_cmp(value).is_none();
        match (is_nan(&a.0), is_nan(&b.0)) {
            (false, true) => true,
            (true, false) => false,
            _ if is_better(&a.0, &b.0) => true,
            _ if is_better(&b.0, &a.0) => false,
            _ => a.1 <= b.1,
        }
    }

    macro_rules! functions {
        ($($name:ident, $type:ident, $location:ident;)*) => {
            $(
                #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
                #[repr(C)]
                pub(super) struct $name {
                    value: $type,
                    location: $location,
                }

                impl $name {
                    fn choose(self, other: Self, is_better: fn(&$type, &$type) -> bool) -> Self {
                        let pairs = [self, other].map(|pair| (pair.value, pair.location));
                        if is_first_chosen(pairs[0], pairs[1], is_better) { self } else { other }
                    }
                }

                pub(super) fn $type(op: Reduction, from: &[u8], into: &mut [u8]) -> bool {
                    match op {
                        Reduction::MinLocation => each::<$name>(from, into, |a, b| a.choose(b, PartialOrd::lt)),
                        Reduction::MaxLocation => each::<$name>(from, into, |a, b| a.choose(b, PartialOrd::gt)),
                        _ => false,
                    }
                }
            )*
        };
    }

    functions! {
        I32, i32, u32;
        U32, u32, u32;
        F32, f32, u32;
        I64, i64, u64;
        U64, u64, u64;
        F64, f64, u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply<T: FromBytes + IntoBytes + Immutable>(op: Reduction, element: ElementType, a: T, b: T) -> T {
        let mut into = a.as_bytes().to_vec();
        assert!(op.apply(element, b.as_bytes(), &mut into), "{op:?} {element:?}");
        T::read_from_bytes(&into).unwrap()
    }

    #[test]
    fn numbers_on_the_wire_are_fixed() {
        for (number, element) in (0..).zip(ElementType::ALL) {
            assert_eq!((element as u8, ElementType::from_number(number)), (number, Some(element)));
        }
        for (number, op) in (0..).zip(Reduction::ALL) {
            assert_eq!((op as u8, Reduction::from_number(number)), (number, Some(op)));
        }
        assert_eq!((ElementType::from_number(20), Reduction::from_number(14)), (None, None));
    }

    #[test]
    fn each_operation_has_its_types() {
        let accepted =
            |op: Reduction| ElementType::ALL.iter().filter(|element| op.accepts(**element)).count();
        let counts = Reduction::ALL.map(accepted);
        assert_eq!(counts, [14, 14, 12, 12, 10, 10, 10, 10, 10, 10, 6, 6, 20, 20]);
        for (op, element) in
            Reduction::ALL.into_iter().flat_map(|op| ElementType::ALL.map(|element| (op, element)))
        {
            assert_eq!(op.accepts(element), op.apply(element, &[], &mut []), "{op:?} {element:?}");
        }
        let mut bytes = [7; 8];
        assert!(!Reduction::BitAnd.apply(ElementType::F64, &[0; 8], &mut bytes));
        assert_eq!(bytes, [7; 8], "nothing changed");
    }

    #[test]
    fn operations_have_the_results_of_their_types() {
        assert_eq!(apply(Reduction::Sum, ElementType::U8, 250_u8, 10), 4);
        assert_eq!(apply(Reduction::Product, ElementType::I128, 1_i128 << 100, 4), 1 << 102);
        assert_eq!(apply(Reduction::Min, ElementType::I16, -3_i16, 2), -3);
        assert_eq!(apply(Reduction::LogicalXor, ElementType::U32, 5_u32, 0), 1);
        assert_eq!(apply(Reduction::BitXor, ElementType::U64, 12_u64, 10), 6);
        assert_eq!(apply(Reduction::Replace, ElementType::F32, 1.0_f32, 2.5), 2.5);
        assert_eq!(apply(Reduction::NoOp, ElementType::F64, 1.0_f64, 2.5), 1.0);
        assert_eq!(apply(Reduction::Max, ElementType::F64, -0.0_f64, 0.0).to_bits(), 0);
        assert!(apply(Reduction::Max, ElementType::F64, 1.0, f64::NAN).is_nan());
        assert_eq!(
            apply(Reduction::Product, ElementType::ComplexF32, [1.0_f32, 2.0], [3.0, 4.0]),
            [-5.0, 10.0]
        );
        assert_eq!(apply(Reduction::MaxLocation, ElementType::LocatedU32, [7_u32, 9], [7, 3]), [7, 3]);
        assert_eq!(apply(Reduction::MinLocation, ElementType::LocatedI64, [-7_i64, 9], [7, 3]), [-7, 9]);
        let nan = u64::from_ne_bytes(f64::NAN.to_ne_bytes());
        let one = u64::from_ne_bytes(1_f64.to_ne_bytes());
        assert_eq!(apply(Reduction::MaxLocation, ElementType::LocatedF64, [nan, 1], [one, 2]), [one, 2]);
    }
}
