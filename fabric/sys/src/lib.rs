//! Raw bindings to libfabric 1.17 and later.
