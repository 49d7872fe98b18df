//! Helpers for the tests of ports.

pub(crate) mod onesided;

use crate::{Failure, OpId, PeerId, Region, Sink};

/// A report of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Packet(Vec<u8>),
    Completed(OpId, Result<(), Failure>),
    Changed(OpId, u64),
    Notified(u64),
    Lost(PeerId),
}

/// A sink that records everything.
#[derive(Debug, Default)]
pub(crate) struct Recorder(pub(crate) Vec<Heard>);

impl Sink for Recorder {
    fn packet(&mut self, bytes: &[u8]) {
        self.0.push(Heard::Packet(bytes.to_vec()));
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        self.0.push(Heard::Completed(op, result));
    }

    fn changed(&mut self, op: OpId, before: u64) {
        self.0.push(Heard::Changed(op, before));
    }

    fn notified(&mut self, immediate: u64) {
        self.0.push(Heard::Notified(immediate));
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.0.push(Heard::Lost(peer));
    }
}

pub(crate) fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes).expect("the whole region");
    bytes
}
