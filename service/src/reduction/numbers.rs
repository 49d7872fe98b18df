//! The operations on numbers.

use super::{
    BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor, Max, Min, Product, ReduceOp, Sum, combine,
};

/// Implements operations for a type. For each operation, a function of two elements is given.
macro_rules! ops {
    ($type:ty: $($op:ident = $function:expr;)*) => {
        $(impl ReduceOp<$type> for $op {
            #[inline]
            fn reduce(&self, from: &[$type], into: &mut [$type]) {
                combine(from, into, $function);
            }
        })*
    };
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(ops! { $type:
            Sum = <$type>::wrapping_add;
            Product = <$type>::wrapping_mul;
            Min = Ord::min;
            Max = Ord::max;
            LogicalAnd = |a, b| <$type>::from(a != 0 && b != 0);
            LogicalOr = |a, b| <$type>::from(a != 0 || b != 0);
            LogicalXor = |a, b| <$type>::from((a != 0) != (b != 0));
            BitAnd = |a, b| a & b;
            BitOr = |a, b| a | b;
            BitXor = |a, b| a ^ b;
        })*
    };
}

/// Replaces a result that is not a number by `NAN`. If both operands are not numbers, processors return one of them,
/// which may have other bits at another rank. `NAN` in its place makes the operations commute.
macro_rules! or_nan {
    ($result:expr, $type:ty) => {{
        let result = $result;
        if result.is_nan() { <$type>::NAN } else { result }
    }};
}
pub(super) use or_nan;

macro_rules! floats {
    ($($type:ty)*) => {
        $(ops! { $type:
            Sum = |a, b| or_nan!(a + b, $type);
            Product = |a, b| or_nan!(a * b, $type);
            Min = |a, b| match (a.is_nan(), b.is_nan()) {
                (true, true) => <$type>::NAN,
                (true, false) => b,
                (false, true) => a,
                (false, false) => if a.total_cmp(&b).is_le() { a } else { b },
            };
            Max = |a, b| match (a.is_nan(), b.is_nan()) {
                (true, true) => <$type>::NAN,
                (true, false) => b,
                (false, true) => a,
                (false, false) => if a.total_cmp(&b).is_ge() { a } else { b },
            };
        })*
    };
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }
floats! { f32 f64 }

#[cfg(feature = "half")]
floats! { half::f16 half::bf16 }

#[cfg(test)]
mod tests {
    use super::*;

    fn apply<T: Copy>(op: impl ReduceOp<T>, a: T, b: T) -> T {
        let mut into = [b];
        assert!(op.commutes());
        op.reduce(&[a], &mut into);
        into[0]
    }

    #[test]
    fn integers() {
        assert_eq!(apply(Sum, 250_u8, 10), 4);
        assert_eq!(apply(Sum, i128::MAX, 1), i128::MIN);
        assert_eq!(apply(Product, 1_u128 << 70, 1 << 57), 1 << 127);
        assert_eq!(apply(Product, i32::MIN, -1), i32::MIN);
        assert_eq!((apply(Min, -3_i64, 2), apply(Max, -3_i64, 2)), (-3, 2));
        for (a, b) in [(0_i16, 0), (0, 7), (-2, 0), (4, 3)] {
            assert_eq!(apply(LogicalAnd, a, b), i16::from(a != 0 && b != 0));
            assert_eq!(apply(LogicalOr, a, b), i16::from(a != 0 || b != 0));
            assert_eq!(apply(LogicalXor, a, b), i16::from((a != 0) ^ (b != 0)));
        }
        assert_eq!(
            (apply(BitAnd, 12_u64, 10), apply(BitOr, 12_u64, 10), apply(BitXor, 12_u64, 10)),
            (8, 14, 6)
        );
    }

    #[test]
    fn operations_on_floats_commute() {
        let values = [
            0.0,
            -0.0,
            1.5,
            -1.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::from_bits(0xfff8_0000_0000_0001),
        ];
        for (a, b) in values.into_iter().flat_map(|a| values.map(|b| (a, b))) {
            assert_eq!(apply(Min, a, b).to_bits(), apply(Min, b, a).to_bits());
            assert_eq!(apply(Max, a, b).to_bits(), apply(Max, b, a).to_bits());
            assert_eq!(apply(Sum, a, b).to_bits(), apply(Sum, b, a).to_bits());
            assert_eq!(apply(Product, a, b).to_bits(), apply(Product, b, a).to_bits());
        }
        assert_eq!(apply(Min, 0.0, -0.0_f32).to_bits(), (-0.0_f32).to_bits());
        assert_eq!((apply(Min, f32::NAN, 2.0), apply(Max, f32::NAN, 2.0)), (2.0, 2.0));
        assert_eq!((apply(Sum, 1.5, 2.0), apply(Product, 1.5, 2.0)), (3.5, 3.0));
    }

    #[cfg(feature = "half")]
    #[test]
    fn floats_of_16_bits() {
        use half::{bf16, f16};

        let [a, b] = [1.5, 2.0].map(f16::from_f32);
        assert_eq!((apply(Sum, a, b), apply(Product, a, b)), (f16::from_f32(3.5), f16::from_f32(3.0)));
        assert_eq!((apply(Min, a, b), apply(Max, f16::NAN, a)), (a, a));
        // The sum is between two numbers, and is rounded to the even one.
        assert_eq!(apply(Sum, f16::from_f32(2048.0), f16::ONE), f16::from_f32(2048.0));
        assert_eq!(apply(Product, f16::MAX, f16::MAX), f16::INFINITY);
        let [a, b] = [256.0, 1.0].map(bf16::from_f32);
        assert_eq!((apply(Sum, a, b), apply(Product, a, b)), (a, a));
        assert_eq!((apply(Min, a, b), apply(Max, bf16::NAN, b)), (b, b));
    }
}
