//! Measurements of Samite beside raw libfabric and its peers.
