//! The types of a message's elements.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Element types of messages: types without padding for which every bit pattern is a valid value.
///
/// These are the numbers, arrays of them, and structs of them that derive zerocopy's traits by [`samite::zerocopy`]:
///
/// ```
/// use samite::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "samite::zerocopy")]
/// #[repr(C)]
/// struct Particle {
///     place: [f64; 3],
///     mass: f64,
/// }
/// # fn is_element<T: samite::Element>() {}
/// # is_element::<Particle>();
/// ```
/// [`samite::zerocopy`]: crate::zerocopy
#[diagnostic::on_unimplemented(
    message = "not every pattern of bytes is a value of type `{Self}`",
    note = "`bool`, `char` and enums are received by `recv_checked`, by `Scope::irecv_checked`, or by `irecv` into a `CheckedVec`",
    note = "a struct is an element if it has `#[repr(C)]`, has no padding and derives `Clone`, `Copy` and `FromBytes`, `IntoBytes`, `Immutable` of `samite::zerocopy`, with `#[zerocopy(crate = \"samite::zerocopy\")]`"
)]
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {}
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static> Element for T {}
