//! Measurements of Samite beside raw libfabric and its peers.

#![forbid(unsafe_code)]

#[cfg(feature = "ofi")]
pub mod raw;
