//! Ports: libfabric, shared memory, loopback and a simulator behind one narrow interface.
