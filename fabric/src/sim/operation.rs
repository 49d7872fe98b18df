//! The stages of an operation on registered memory: it begins at its target, lands there, and ends at its
//! origin.

use super::world::{Event, Packet, Process, Ready, World};
use super::{Cut, What};
use crate::{Access, Change, Failure, OpId, Order, PeerId, Region, Remote};

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) id: OpId,
    pub(super) peer: PeerId,
    pub(super) origin: Process,
    /// The intended target; once the operation has begun, the process that performs it.
    pub(super) target: Process,
    pub(super) kind: Kind,
    /// True while the origin waits for the end of the operation.
    pub(super) awaited: bool,
    /// The origin's memory. The list is empty when the origin does not wait any more.
    pub(super) local: Vec<Part>,
    pub(super) len: usize,
    /// The bytes, once they are read.
    pub(super) data: Option<Vec<u8>>,
    /// The target's memory and the offset, while it is in use.
    pub(super) place: Option<(Region, usize)>,
    /// True if only a fence will end the operation.
    pub(super) hangs: bool,
}

/// A part of a region.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) region: Region,
    pub(super) offset: usize,
    pub(super) len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Put { into: Remote, immediate: Option<u64> },
    Get { from: Remote },
    Change { how: Change, at: Remote },
}

impl Kind {
    /// Returns true if the operation returns bytes to the origin, and sends none from the origin's memory.
    fn fetches(self) -> bool {
        matches!(self, Kind::Get { .. } | Kind::Change { .. })
    }
}

impl Operation {
    /// Reads the bytes at the origin, unless that was done before.
    pub(super) fn read(&mut self) {
        if self.data.is_none() && self.awaited && !self.kind.fetches() {
            let parts = self.local.iter();
            self.data = Some(parts.flat_map(|part| copy(&part.region, part.offset, part.len)).collect());
        }
    }

    pub(super) fn is_one_sided(&self) -> bool {
        self.kind != Kind::Send
    }
}

impl World {
    /// Posts an operation; `head` precedes the bytes of a packet.
    pub(super) fn post(&mut self, mut operation: Operation, head: &[u8]) {
        let serial = self.serial();
        let (from, to, len) = (operation.origin, operation.target, operation.len);
        // A provider may read the origin's memory within the posting call or at any later time.
        if self.rng.below(2) == 0 {
            operation.read();
        }
        match operation.kind {
            Kind::Send => {
                let mut packet = Packet { serial, from, to, bytes: head.to_vec(), zcopy: true };
                let mut behind = len;
                if let Some(data) = operation.data.take() {
                    packet.bytes.extend(data);
                    (packet.zcopy, behind) = (false, 0);
                    let time = self.now + self.config.costs.overhead_ns + self.completion_delay();
                    self.schedule(time, Event::End(serial, Ok(())));
                }
                self.operations.insert(serial, operation);
                return self.send(packet, behind);
            }
            Kind::Put { .. } => {
                self.pair(from.rank, to.rank).puts.insert((from.incarnation, serial));
                self.note(What::Put { from, to, serial, len });
            }
            Kind::Get { .. } => self.note(What::Got { from, to, serial, len }),
            Kind::Change { .. } => {
                self.pair(from.rank, to.rank).changes.insert((from.incarnation, serial));
                self.note(What::Changed { from, to, serial, len });
            }
        }
        self.node(from.rank).outstanding += 1;
        let sent = if operation.kind.fetches() { 0 } else { len };
        self.operations.insert(serial, operation);
        let arrival = self.arrival(from, sent);
        self.schedule(arrival, Event::Begin(serial));
    }

    /// Appends to `bytes` the part of a packet that is sent from registered memory. Afterwards the operation does not
    /// use that memory any more.
    pub(super) fn gather(&mut self, serial: u64, bytes: &mut Vec<u8>) {
        let Some(operation) = self.operations.get_mut(&serial) else { return };
        operation.read();
        bytes.extend(operation.data.take().unwrap_or_default());
        let time = self.now + self.completion_delay();
        self.schedule(time, Event::End(serial, Ok(())));
    }

    pub(super) fn begin(&mut self, serial: u64, polled: bool) {
        let Some(operation) = self.operations.get(&serial) else { return };
        let (origin, target, kind, len) = (operation.origin, operation.target, operation.kind, operation.len);
        let order = self.config.caps.order;
        let receiver = self.receiver(origin, target);
        let pair = self.pair(origin.rank, target.rank);
        let lost = pair.cut == Some(Cut::Drop) || pair.dooms(origin.incarnation, serial);
        let earlier = (origin.incarnation, 0)..(origin.incarnation, serial);
        let (after_put, after_change) =
            (pair.puts.range(earlier.clone()).next().is_some(), pair.changes.range(earlier).next().is_some());
        let waits = match kind {
            Kind::Put { immediate, .. } => {
                let (bytes, note) = (len > 0, immediate.is_some());
                let ordered = bytes && order.contains(Order::PUT_AFTER_PUT)
                    || note && order.contains(Order::NOTE_AFTER_PUT);
                after_put && ordered
            }
            Kind::Get { .. } => after_put && order.contains(Order::GET_AFTER_PUT),
            Kind::Change { .. } => {
                after_put && order.contains(Order::CHANGE_AFTER_PUT)
                    || after_change && order.contains(Order::CHANGE_AFTER_CHANGE)
            }
            Kind::Send => false,
        };
        match (kind, pair.cut, receiver) {
            _ if waits => pair.parked.push(Event::Begin(serial)),
            (_, Some(Cut::Stall), _) => pair.stalled.push(Event::Begin(serial)),
            _ if lost => self.lose(serial),
            (.., None) => self.lose(serial),
            (.., Some(at)) if !(self.config.caps.passive || polled) => {
                self.node(at.rank).waiting.push(serial);
            }
            (.., Some(at)) => {
                let (place, access) = match kind {
                    Kind::Put { into, .. } => (into, Access::REMOTE_WRITE),
                    Kind::Get { from } => (from, Access::REMOTE_READ),
                    Kind::Change { at, .. } => (at, Access::REMOTE_READ | Access::REMOTE_WRITE),
                    Kind::Send => return,
                };
                let place = self.node(at.rank).registrations.remote(place, len, access);
                let place = place.map(|(region, offset)| (region.clone(), offset));
                let place = match (kind, place) {
                    (Kind::Change { .. }, Ok((_, offset))) if !offset.is_multiple_of(len) => {
                        Err(Failure::Refused)
                    }
                    (_, place) => place,
                };
                match place {
                    Ok(place) => {
                        self.operations.entry(serial).and_modify(|operation| {
                            operation.place = Some(place);
                            operation.target = at;
                        });
                        // The bytes move some time after the check of the key. If the target ends its registration in
                        // between, it sees the memory change nevertheless.
                        let late = if matches!(kind, Kind::Get { .. }) { 0 } else { self.lateness() };
                        let time = self.now + self.delay() + late;
                        self.schedule(time, Event::Land(serial));
                    }
                    Err(refused) => {
                        self.leave(serial);
                        let time = self.now + self.config.costs.latency_ns + self.delay();
                        self.schedule(time, Event::End(serial, Err(refused)));
                    }
                }
            }
        }
    }

    pub(super) fn land(&mut self, serial: u64) {
        let Some(operation) = self.operations.get_mut(&serial) else { return };
        let Some((region, offset)) = operation.place.take() else { return };
        let (origin, target) = (operation.origin, operation.target);
        let mut back = self.config.costs.latency_ns;
        match operation.kind {
            Kind::Put { immediate, .. } => {
                operation.read();
                let data = operation.data.take().unwrap_or_default();
                region.copy_in(offset, &data).expect("the span was checked");
                if let Some(immediate) = immediate {
                    self.node(target.rank).ready.push_back(Ready::Notified(origin, immediate));
                }
            }
            Kind::Get { .. } => {
                operation.data = Some(copy(&region, offset, operation.len));
                back += operation.len as u64 * self.config.costs.gap_per_byte_ps / 1000;
            }
            Kind::Change { how, .. } => {
                let before = region.change(offset, how).expect("the span was checked");
                operation.data = Some(before.to_ne_bytes().to_vec());
            }
            Kind::Send => {}
        }
        self.note(What::Landed { at: target, serial });
        self.leave(serial);
        let time = self.now + back + self.delay() + self.completion_delay();
        self.schedule(time, Event::End(serial, Ok(())));
    }

    /// Reports an operation's end at its origin.
    pub(super) fn end(&mut self, serial: u64, result: Result<(), Failure>) {
        let Some(operation) = self.operations.get(&serial) else { return };
        let (origin, target) = (operation.origin, operation.target);
        let answered = operation.is_one_sided() && result != Err(Failure::PeerLost);
        let back = self.pair(target.rank, origin.rank);
        match back.cut {
            Some(Cut::Stall) if answered => return back.stalled.push(Event::End(serial, result)),
            Some(Cut::Drop) if answered => return self.lose(serial),
            _ => {}
        }
        let operation = &self.operations[&serial];
        if let (Kind::Get { .. }, [into]) = (operation.kind, &operation.local[..]) {
            let data = match (&result, &operation.data) {
                (Ok(()), Some(data)) => data.clone(),
                // Undefined contents.
                _ => vec![0xa5; operation.len],
            };
            into.region.copy_in(into.offset, &data).expect("the span was checked");
        }
        self.complete(serial, result);
        self.operations.remove(&serial);
    }

    /// Notes that an operation will not reach its target, or that its answer will not come back. If the target is dead,
    /// a provider may never report that.
    pub(super) fn lose(&mut self, serial: u64) {
        self.leave(serial);
        let Some(operation) = self.operations.get_mut(&serial) else { return };
        let (origin, target, waited_for) = (operation.origin, operation.target, operation.awaited);
        if !waited_for {
            self.operations.remove(&serial);
        } else if self.is_present(target) || self.rng.below(2) == 0 {
            let time = self.now + self.config.costs.latency_ns + self.delay() + self.completion_delay();
            self.schedule(time, Event::End(serial, Err(Failure::PeerLost)));
        } else if let Some(operation) = self.operations.get_mut(&serial).filter(|operation| !operation.hangs)
        {
            operation.hangs = true;
            // An operation that never ends must not count against the port's limit of outstanding operations.
            let counted = operation.is_one_sided();
            self.node(origin.rank).outstanding -= usize::from(counted);
            self.note(What::Hangs { serial });
        }
    }

    /// Removes an operation from its target, whose memory it does not access any more.
    fn leave(&mut self, serial: u64) {
        let Some(operation) = self.operations.get_mut(&serial) else { return };
        operation.place = None;
        let (origin, target) = (operation.origin, operation.target);
        self.pair(origin.rank, target.rank).forget(origin.incarnation, serial);
        self.release(origin.rank, target.rank);
    }

    /// Reports the end of an operation to the origin, if the origin still waits for it, and releases the origin's
    /// memory.
    pub(super) fn complete(&mut self, serial: u64, result: Result<(), Failure>) {
        let Some(operation) = self.operations.get_mut(&serial) else { return };
        let (id, at) = (operation.id, operation.origin);
        let counted = operation.is_one_sided() && !operation.hangs;
        let ready = match (operation.kind, &operation.data, &result) {
            (Kind::Change { .. }, Some(before), Ok(())) => {
                Ready::Changed(id, before.as_array().map_or(0, |&before| u64::from_ne_bytes(before)))
            }
            _ => Ready::Completed(id, result.clone()),
        };
        operation.local.clear();
        if std::mem::take(&mut operation.awaited) && self.is_present(at) {
            self.note(What::Completed { at, serial, well: result.is_ok() });
            let node = self.node(at.rank);
            node.outstanding -= usize::from(counted);
            node.ready.push_back(ready);
        }
    }

    fn completion_delay(&mut self) -> u64 {
        self.rng.below(1 + self.config.completion_delay_ns)
    }
}

fn copy(region: &Region, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.copy_out(offset, &mut bytes).expect("the span was checked");
    bytes
}
