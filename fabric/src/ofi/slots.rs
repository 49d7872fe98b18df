//! The slots of operations in flight. Each has a context, to which the provider writes, and the port's record of the
//! operation.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use samite_fabric_sys as sys;

use crate::{Local, OpId, PeerId};

/// Slots of three kinds, each with its range of indices: receives first, then sends, which own a buffer each,
/// then one-sided operations.
#[derive(Debug)]
pub(super) struct Slots {
    contexts: Box<[UnsafeCell<sys::fi_context2>]>,
    flights: Box<[Option<Flight>]>,
    receives: u32,
    first_operation: u32,
    /// The free slots for sends.
    sends: Vec<u32>,
    /// The free slots for one-sided operations.
    operations: Vec<u32>,
}

/// The operation in flight in a slot that is not a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) peer: PeerId,
    /// The caller's operation that ends when this flight ends. `None` for a copied packet, and for the first of the two
    /// parts of an operation.
    pub(super) op: Option<OpId>,
    /// True for a packet, and for the first part of an operation. If such a flight is lost, later packets or parts must
    /// not be delivered, since they would be out of order.
    pub(super) sequenced: bool,
    /// The registrations that the operation uses.
    pub(super) held: Held,
}

/// The maximum number of parts of one operation. No known provider takes more.
pub(super) const IOV_MAX: usize = 4;

/// Registrations that an operation uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    names: [u32; IOV_MAX],
    count: usize,
}

impl Held {
    /// Returns the registrations of the parts, of which there are at most [`IOV_MAX`].
    pub(super) fn of(parts: &[Local]) -> Self {
        let mut held = Self { names: [0; IOV_MAX], count: parts.len().min(IOV_MAX) };
        for (name, part) in held.names.iter_mut().zip(parts) {
            *name = part.registration.id;
        }
        held
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        self.names.into_iter().take(self.count)
    }
}

/// A slot, by its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The receive with this buffer.
    Receive(u32),
    /// A send or a one-sided operation.
    Flight(u32),
}

impl Slots {
    pub(super) fn new(receives: u32, sends: u32, operations: u32) -> Self {
        let count = receives + sends + operations;
        // Slots are taken from the end of the list. It is reversed, so that the slots with the lowest indices are used
        // first. A freed slot, which is probably still in the cache, is used next.
        let free = |from, to| (from..to).rev().collect();
        Self {
            contexts: (0..count).map(|_| UnsafeCell::default()).collect(),
            flights: (0..count).map(|_| None).collect(),
            receives,
            first_operation: receives + sends,
            sends: free(receives, receives + sends),
            operations: free(receives + sends, count),
        }
    }

    /// Returns the number of slots for receives.
    #[inline]
    pub(super) fn receives(&self) -> usize {
        self.receives as usize
    }

    /// Takes a free slot for a send to a peer that has `taken` slots for sends. Returns the slot and the index of its
    /// buffer.
    pub(super) fn send(&mut self, taken: u32) -> Option<(u32, u32)> {
        let slot = take(&mut self.sends, taken)?;
        Some((slot, slot - self.receives))
    }

    /// Returns true if a packet is in flight.
    pub(super) fn has_sends(&self) -> bool {
        self.sends.len() < self.first_operation as usize - self.receives()
    }

    /// Takes a free slot for a one-sided operation with a peer that has `taken` slots for such operations.
    pub(super) fn operation(&mut self, taken: u32) -> Option<u32> {
        take(&mut self.operations, taken)
    }

    /// Returns the context with which an operation in this slot is posted. It lives as long as `self`, and does not
    /// move.
    pub(super) fn context(&self, slot: u32) -> *mut c_void {
        self.contexts[slot as usize].get().cast()
    }

    /// Notes that the provider has accepted an operation.
    pub(super) fn fly(&mut self, slot: u32, flight: Flight) {
        self.flights[slot as usize] = Some(flight);
    }

    /// Notes that the operation has ended. Returns its record; `None` if nothing was in flight.
    pub(super) fn land(&mut self, slot: u32) -> Option<Flight> {
        let flight = self.flights[slot as usize].take();
        if flight.is_some() {
            self.give_back(slot);
        }
        flight
    }

    /// Returns true if a slot that is not a receive is a send.
    pub(super) fn is_send(&self, slot: u32) -> bool {
        slot < self.first_operation
    }

    /// Frees a slot that the provider does not use.
    pub(super) fn give_back(&mut self, slot: u32) {
        if self.is_send(slot) { &mut self.sends } else { &mut self.operations }.push(slot);
    }

    /// Returns the slot of a completion's context; `None` if the context is not one of ours.
    pub(super) fn of(&self, context: *mut c_void) -> Option<Slot> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let index = offset / size_of::<sys::fi_context2>();
        if index >= self.contexts.len() {
            return None;
        }
        let index = index as u32;
        Some(if index < self.receives { Slot::Receive(index) } else { Slot::Flight(index) })
    }

    /// Leaks the contexts. The port calls this if the endpoint could not be closed, because the provider may then still
    /// write to them.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.contexts));
    }
}

/// Takes a free slot for a peer that has `taken` slots. Returns `None` if there are not more free slots than that. So a
/// peer that receives nothing has half of the slots at most, and any number of such peers leave slots to the others
/// (Choudhury and Hahne, 1998: dynamic queue length thresholds).
fn take(free: &mut Vec<u32>, taken: u32) -> Option<u32> {
    if free.len() > taken as usize { free.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_receive_nothing_leave_slots_to_others() {
        let mut slots = Slots::new(3, 128, 10);
        for expected in [64, 32, 16, 8, 4, 2, 1, 1] {
            let taken = (0..).take_while(|taken| slots.send(*taken).is_some()).count();
            assert_eq!(taken, expected);
        }
        assert_eq!(slots.send(0), None);
        assert_eq!((0..).take_while(|taken| slots.operation(*taken).is_some()).count(), 5);
        slots.give_back(3);
        assert_eq!((slots.send(1), slots.send(0)), (None, Some((3, 0))));
    }
}
