//! The port under every communicator.

/// Chosen at run time, peer by peer.
pub(crate) type Transport = samite_fabric::loopback::Loopback;
