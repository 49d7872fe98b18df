//! A message-passing runtime over libfabric: tagged messages, deadlines everywhere, safe Rust.
