//! Sums and products of complex numbers.

use std::ops::{Add, Mul};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::numbers::or_nan;
use super::{Product, ReduceOp, Sum, combine};

/// Defines a type of complex numbers, and the operations on it.
macro_rules! complex {
    ($($name:ident: $part:ty;)*) => {
        $(
            #[doc = concat!("A complex number with parts of type `", stringify!($part), "`, for [`Sum`] and [`Product`].")]
            ///
            /// Its bytes are the two parts, as in C, in Fortran and in the crate `num-complex`. That crate's type is no
            #[doc = concat!("[`Element`](crate::Element), but with its feature `bytemuck` a slice of it can be cast to ")]
            #[doc = concat!("one of `[", stringify!($part), "; 2]`, and this slice to [one](Self::of_pairs) of this type.")]
            #[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name {
                /// The real part.
                pub re: $part,
                /// The imaginary part.
                pub im: $part,
            }

            impl $name {
                /// Returns pairs of a real and an imaginary part as complex numbers, without a copy.
                #[must_use]
                pub fn of_pairs(pairs: &[[$part; 2]]) -> &[Self] {
                    <[Self]>::ref_from_bytes(pairs.as_bytes()).expect("the types have the same layout")
                }

                /// Returns pairs of a real and an imaginary part as complex numbers, without a copy.
                #[must_use]
                pub fn of_pairs_mut(pairs: &mut [[$part; 2]]) -> &mut [Self] {
                    <[Self]>::mut_from_bytes(pairs.as_mut_bytes()).expect("the types have the same layout")
                }
            }

            impl From<[$part; 2]> for $name {
                fn from([re, im]: [$part; 2]) -> Self {
                    Self { re, im }
                }
            }

            impl From<$name> for [$part; 2] {
                fn from(number: $name) -> Self {
                    [number.re, number.im]
                }
            }

            impl Add for $name {
                type Output = Self;
                fn add(self, other: Self) -> Self {
                    Self { re: self.re + other.re, im: self.im + other.im }
                }
            }

            /// The product `(a + bi)(c + di) = (ac - bd) + (ad + bc)i`, without a special case for infinite parts.
            impl Mul for $name {
                type Output = Self;
                fn mul(self, other: Self) -> Self {
                    Self {
                        re: self.re * other.re - self.im * other.im,
                        im: self.re * other.im + self.im * other.re,
                    }
                }
            }

            impl ReduceOp<$name> for Sum {
                fn reduce(&self, from: &[$name], into: &mut [$name]) {
                    combine(from, into, |a, b| {
                        let sum = a + b;
                        $name { re: or_nan!(sum.re, $part), im: or_nan!(sum.im, $part) }
                    });
                }
            }

            impl ReduceOp<$name> for Product {
                fn reduce(&self, from: &[$name], into: &mut [$name]) {
                    combine(from, into, |a, b| {
                        let product = a * b;
                        $name { re: or_nan!(product.re, $part), im: or_nan!(product.im, $part) }
                    });
                }
            }
        )*
    };
}

complex! {
    ComplexF32: f32;
    ComplexF64: f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products() {
        let (a, b) = (ComplexF64 { re: 1.0, im: 2.0 }, ComplexF64 { re: 3.0, im: -1.0 });
        for [left, right] in [[a, b], [b, a]] {
            let (mut sum, mut product) = ([right], [right]);
            Sum.reduce(&[left], &mut sum);
            Product.reduce(&[left], &mut product);
            assert_eq!(sum, [ComplexF64 { re: 4.0, im: 1.0 }]);
            assert_eq!(product, [ComplexF64 { re: 5.0, im: 5.0 }]);
        }
    }

    #[test]
    fn pairs_are_complex_numbers() {
        let mut pairs = [[1.0_f32, 2.0], [3.0, 4.0]];
        assert_eq!(ComplexF32::of_pairs(&pairs)[1], ComplexF32 { re: 3.0, im: 4.0 });
        ComplexF32::of_pairs_mut(&mut pairs)[0].im = 5.0;
        assert_eq!(pairs[0], <[f32; 2]>::from(ComplexF32::from([1.0, 5.0])));
    }

    #[test]
    fn results_that_are_no_numbers_have_the_same_bits_in_both_orders() {
        let quiet = ComplexF64 { re: f64::from_bits(0xfff8_0000_0000_0001), im: f64::INFINITY };
        let other = ComplexF64 { re: f64::from_bits(0x7ff8_0000_0000_0002), im: f64::NEG_INFINITY };
        let bits = |op: &dyn ReduceOp<ComplexF64>, left, right| {
            let mut into = [right];
            op.reduce(&[left], &mut into);
            [into[0].re.to_bits(), into[0].im.to_bits()]
        };
        for op in [&Sum as &dyn ReduceOp<ComplexF64>, &Product] {
            assert_eq!(bits(op, quiet, other), [f64::NAN.to_bits(); 2]);
            assert_eq!(bits(op, other, quiet), [f64::NAN.to_bits(); 2]);
        }
    }
}
