//! Possible actions of unauthenticated clients and of hostile members, each as a function of arbitrary bytes that
//! panics if an invariant is broken. The fuzz targets in `ci/fuzz` call them with bytes that reach new paths, the tests
//! here with bytes from seeds.

#![forbid(unsafe_code)]

mod collective;
mod decoders;
mod engine;
mod forge;
mod input;
mod member;
mod rings;
mod tape;
mod windows;

pub use collective::collective;
#[cfg(feature = "ofi")]
pub use decoders::ofi_addresses;
pub use decoders::{addresses, environment, header};
pub use engine::engine;
pub use member::member;
pub use rings::ring;
pub use windows::windows;
