//! The provider's reports, and their meaning.

use samite_fabric_sys as sys;

use super::OfiPort;
use super::endpoint::{Batch, Completions};
use super::object::text;
use super::slots::{Flight, Slot};
use crate::{Failure, OpId, PeerId, Sink};

/// An event to report.
#[derive(Debug)]
pub(super) enum Event {
    Packet { buffer: u32, len: usize },
    Completed { op: OpId, result: Result<(), Failure> },
    Notified { immediate: u64 },
    Lost { peer: PeerId },
}

/// The number of reads of the completion queue after which a fence stops draining it. The limit is not reached
/// normally: each read returns a batch, and a fence does not post receive buffers again, so the peer's packets soon
/// cause no more completions.
const DRAIN_READS_MAX: usize = 1 << 12;

impl OfiPort {
    /// Returns the event of a completion. Returns `None` if a copied packet has been sent, or the first part of an
    /// operation in two parts has ended, because the caller does not wait for these, and if the completion belongs to
    /// no operation of this port.
    pub(super) fn completed(&mut self, entry: &sys::fi_cq_data_entry) -> Option<Event> {
        match self.slots.of(entry.op_context) {
            Some(Slot::Receive(buffer)) => {
                Some(Event::Packet { buffer, len: entry.len.min(self.receives.size()) })
            }
            Some(Slot::Flight(slot)) => {
                let flight = self.land(slot)?;
                flight.op.map(|op| Event::Completed { op, result: Ok(()) })
            }
            // The completion of a peer's write with an immediate. Its context is null, and some providers report a
            // length of 0.
            None if entry.flags & sys::FI_REMOTE_CQ_DATA != 0 => {
                Some(Event::Notified { immediate: entry.data })
            }
            None => None,
        }
    }

    /// Returns the events of a failed operation: at most two.
    #[cold]
    pub(super) fn failed(&mut self, entry: &sys::fi_cq_err_entry) -> [Option<Event>; 2] {
        let slot = match self.slots.of(entry.op_context) {
            // A connection broke in the middle of a packet, or a packet was too long. So there is no packet to report.
            Some(Slot::Receive(buffer)) => {
                self.unposted.push(buffer);
                return [None, None];
            }
            Some(Slot::Flight(slot)) => slot,
            // The completion belongs to no operation of this port, and does not say which peer it concerns, so it
            // cannot be handled.
            None => return [None, None],
        };
        let Some(flight) = self.land(slot) else { return [None, None] };
        let fenced = self.peers[flight.peer.0 as usize].fenced;
        let failure = match entry.err {
            _ if fenced => Failure::Fenced,
            sys::FI_ECANCELED
            | sys::FI_ECONNRESET
            | sys::FI_ECONNABORTED
            | sys::FI_ECONNREFUSED
            | sys::FI_ENOTCONN
            | sys::FI_ESHUTDOWN
            | sys::FI_EHOSTUNREACH
            | sys::FI_EHOSTDOWN
            | sys::FI_ENETUNREACH
            | sys::FI_ENETDOWN
            | sys::FI_ETIMEDOUT
            // The provider `sockets` reports a closed connection in this way.
            | sys::FI_EIO => Failure::PeerLost,
            sys::FI_EACCES | sys::FI_EPERM | sys::FI_EKEYREJECTED | sys::FI_ENOKEY | sys::FI_EFAULT => {
                Failure::Refused
            }
            code => Failure::Provider { code, text: text(code) },
        };
        // If a packet or the first part of an operation was lost, later packets or parts would arrive at this peer out
        // of order. So the port refuses further posts to the peer.
        let lost = !fenced && (flight.sequenced || matches!(failure, Failure::PeerLost));
        let lost = (lost && self.cut_off(flight.peer)).then_some(Event::Lost { peer: flight.peer });
        [flight.op.map(|op| Event::Completed { op, result: Err(failure) }), lost]
    }

    /// Ends the flight in a slot: frees the slot, and releases the registrations that the flight used.
    fn land(&mut self, slot: u32) -> Option<Flight> {
        let flight = self.slots.land(slot)?;
        let is_send = self.slots.is_send(slot);
        *self.peers[flight.peer.0 as usize].in_flight.of(is_send) -= 1;
        flight.held.iter().for_each(|name| self.registrations.release(name));
        Some(flight)
    }

    /// Makes the port refuse posts to a peer from now on. Returns false if it refused them already.
    pub(super) fn cut_off(&mut self, peer: PeerId) -> bool {
        let known = &mut self.peers[peer.0 as usize];
        if known.gone {
            return false;
        }
        known.gone = true;
        let address = known.address.clone();
        self.resolved.remove(&address);
        true
    }

    /// Reports an event, and posts its buffer again if it was a packet.
    #[inline]
    pub(super) fn report<S: Sink>(&mut self, event: Event, sink: &mut S) {
        match event {
            Event::Packet { buffer, len } => {
                if let Ok(span) = self.receives.span(buffer, len) {
                    // SAFETY: the span lies in the receive buffers. The provider has completed the receive into this
                    // buffer, and gets the buffer back only below, so it does not write to the buffer meanwhile. No
                    // other code has access to the region.
                    sink.packet(unsafe { std::slice::from_raw_parts(span.start.as_ptr(), span.len) });
                }
                self.unposted.push(buffer);
            }
            Event::Completed { op, result } => sink.completed(op, result),
            Event::Notified { immediate } => sink.notified(immediate),
            Event::Lost { peer } => sink.peer_lost(peer),
        }
    }

    /// Moves all completions to the backlog. Returns false if the queue could not be emptied within [`DRAIN_READS_MAX`]
    /// reads, or if a read failed.
    pub(super) fn drain(&mut self) -> bool {
        let mut batch = Batch::new();
        for _ in 0..DRAIN_READS_MAX {
            match self.domain.read(&mut batch) {
                Ok(Completions::None) => return true,
                Ok(Completions::Some(entries)) => {
                    for entry in entries {
                        let event = self.completed(entry);
                        self.backlog.extend(event);
                    }
                }
                Ok(Completions::Failed(entry)) => {
                    let events = self.failed(&entry);
                    self.backlog.extend(events.into_iter().flatten());
                }
                // The port is broken. The next poll returns the error.
                Err(_) => return false,
            }
        }
        false
    }
}
