//! Minima and maxima together with the place where they were found.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Max, Min, ReduceOp, combine};

/// The element with the smaller value. Of equal values, the element with the smaller location (MPI 4.1, section 6.9.4).
/// A value that is not a number (NaN) is never chosen if the other one is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinLocation;

/// The element with the larger value. Of equal values, the element with the smaller location (MPI 4.1, section 6.9.4).
/// A value that is not a number (NaN) is never chosen if the other one is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxLocation;

/// Defines a pair of a value and a location, and the operations on it.
macro_rules! located {
    ($($name:ident: $value:ty, $location:ty;)*) => {
        $(
            #[doc = concat!("A value of type `", stringify!($value), "` and the place where it was found, for ")]
            #[doc = "[`MinLocation`] and [`MaxLocation`]."]
            #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name {
                /// The value.
                pub value: $value,
                /// The place: for example a rank or an index.
                pub location: $location,
            }

            impl $name {
                /// Returns the pair whose value is the result of `op`.
                #[inline]
                fn choose(self, other: Self, op: &impl ReduceOp<$value>) -> Self {
                    let mut chosen = [other.value];
                    op.reduce(&[self.value], &mut chosen);
                    let [value] = chosen;
                    // All NaN values count as equal here, although `==` is false for them.
                    let is_chosen = |pair: &Self| {
                        pair.value == value || pair.value.ne(&pair.value) && value.ne(&value)
                    };
                    let location = match (is_chosen(&self), is_chosen(&other)) {
                        (true, true) => self.location.min(other.location),
                        (true, false) => self.location,
                        _ => other.location,
                    };
                    Self { value, location }
                }
            }

            impl ReduceOp<$name> for MinLocation {
                fn reduce(&self, from: &[$name], into: &mut [$name]) {
                    combine(from, into, |a, b| a.choose(b, &Min));
                }
            }

            impl ReduceOp<$name> for MaxLocation {
                fn reduce(&self, from: &[$name], into: &mut [$name]) {
                    combine(from, into, |a, b| a.choose(b, &Max));
                }
            }
        )*
    };
}

located! {
    LocatedI32: i32, u32;
    LocatedU32: u32, u32;
    LocatedF32: f32, u32;
    LocatedI64: i64, u64;
    LocatedU64: u64, u64;
    LocatedF64: f64, u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, location: u64) -> LocatedF64 {
        LocatedF64 { value, location }
    }

    fn apply(op: &impl ReduceOp<LocatedF64>, a: LocatedF64, b: LocatedF64) -> LocatedF64 {
        let results = [[a, b], [b, a]].map(|[left, right]| {
            let mut into = [right];
            op.reduce(&[left], &mut into);
            into[0]
        });
        assert_eq!(results[0].location, results[1].location, "the operation commutes");
        results[0]
    }

    #[test]
    fn the_location_is_that_of_the_value() {
        assert_eq!(apply(&MinLocation, of(1.0, 5), of(2.0, 3)), of(1.0, 5));
        assert_eq!(apply(&MaxLocation, of(1.0, 5), of(2.0, 3)), of(2.0, 3));
        assert_eq!(apply(&MinLocation, of(1.0, 5), of(1.0, 3)), of(1.0, 3));
        assert_eq!(apply(&MaxLocation, of(1.0, 5), of(1.0, 3)), of(1.0, 3));
        assert_eq!(apply(&MaxLocation, of(f64::NAN, 1), of(1.0, 3)), of(1.0, 3));
        assert_eq!(apply(&MinLocation, of(f64::NAN, 4), of(f64::NAN, 3)).location, 3);
    }
}
