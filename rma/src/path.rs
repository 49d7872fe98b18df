//! The way of an operation to its target.

use samite_fabric::{Caps, Order, Reach};

use crate::Action;
use crate::wire::OPERATION_HEAD;

/// The way of an operation to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Loads, stores and atomic instructions of the origin's processor.
    Memory,
    /// Puts by the port into the target's registered part ([`Port::put`](samite_fabric::Port::put)).
    Put,
    /// Packets, which the target's processor applies.
    Packets,
}

/// The ways in which an origin can access the target's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    /// True if the origin can map the part.
    pub(crate) is_mapped: bool,
    /// The length of the shortest operation that is put, or `None` if the port cannot put into the part.
    pub(crate) put_min: Option<usize>,
}

impl Means {
    /// The means of an origin that has mapped the part.
    pub(crate) const MAPPED: Self = Self { is_mapped: true, put_min: None };
}

/// Chooses the way of an operation on `len` bytes.
///
/// The choice for atomic operations depends on the type of the elements and not on their number. So all accumulates of
/// one origin on elements of one type take the same way, and keep their order (MPI 4.1, section 12.7.2). On a mapped
/// part, the elements that fit in a word are always changed by atomic instructions, also by the target when it applies
/// packets. So an operation is atomic with respect to operations that take the other way.
pub(crate) fn choose(action: Action, len: usize, means: Means) -> Path {
    match action.element() {
        Some(element) if element.size() > WORD => Path::Packets,
        _ if means.is_mapped => Path::Memory,
        None if action == Action::Put && means.put_min.is_some_and(|min| len >= min) => Path::Put,
        _ => Path::Packets,
    }
}

/// The number of bytes that a processor changes in one step.
pub(crate) const WORD: usize = 8;

/// The limits of the path to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// The length of the longest packet.
    pub(crate) packet_max: usize,
    /// The length of the longest put, or 0 if the port has no puts, or cannot end a peer's access to memory.
    pub(crate) put_max: usize,
    /// True if a packet that is sent after a put arrives after the bytes of the put.
    pub(crate) send_after_put: bool,
}

impl Limits {
    /// Returns the limits of a path with these capabilities. No put is longer than `put_chunk`.
    ///
    /// Without a fence a put of an origin that has failed could arrive late, when another rank has its lock. So such a
    /// port puts nothing into windows.
    pub(crate) fn new(caps: &Caps, put_chunk: usize) -> Self {
        let can_put = caps.put == Reach::Any && caps.fence;
        Self {
            packet_max: caps.packet_max,
            put_max: if can_put { caps.rma_max.min(put_chunk) } else { 0 },
            send_after_put: caps.order.contains(Order::SEND_AFTER_PUT),
        }
    }

    /// Returns the length of the shortest operation that is put into a part: one that needs more than one packet.
    pub(crate) fn put_min(&self) -> Option<usize> {
        (self.put_max > 0).then(|| self.packet_max - OPERATION_HEAD + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, Reduction};

    const NEITHER: Means = Means { is_mapped: false, put_min: None };
    const PUTS: Means = Means { is_mapped: false, put_min: Some(100) };

    #[test]
    fn mapped_memory_is_used_for_all_except_long_elements() {
        for element in ElementType::ALL {
            let op = Reduction::Replace;
            let atomic = [
                Action::Accumulate { op, element },
                Action::GetAccumulate { op, element },
                Action::CompareSwap { element },
            ];
            let expected = if element.size() <= WORD { Path::Memory } else { Path::Packets };
            for action in atomic {
                assert_eq!(choose(action, 1000, Means::MAPPED), expected, "{action:?}");
                assert_eq!([NEITHER, PUTS].map(|means| choose(action, 1000, means)), [Path::Packets; 2]);
            }
        }
        let both = |means| [Action::Put, Action::Get].map(|action| choose(action, 10, means));
        assert_eq!(both(Means::MAPPED), [Path::Memory; 2]);
        assert_eq!(both(NEITHER), [Path::Packets; 2]);
    }

    #[test]
    fn long_puts_that_are_not_mapped_are_put() {
        let put = |len, means| choose(Action::Put, len, means);
        assert_eq!([99, 100, 1 << 30].map(|len| put(len, PUTS)), [Path::Packets, Path::Put, Path::Put]);
        assert_eq!(put(1 << 30, NEITHER), Path::Packets);
        assert_eq!(put(1 << 30, Means { is_mapped: true, ..PUTS }), Path::Memory);
        assert_eq!(choose(Action::Get, 1 << 30, PUTS), Path::Packets);
    }

    #[test]
    fn puts_need_a_fence_and_any_memory() {
        let all = samite_fabric::sim::Config::default().caps;
        let can = Caps { put: Reach::Any, fence: true, rma_max: 5000, packet_max: 1024, ..all };
        let limits = |caps: &Caps| Limits::new(caps, 4096);
        assert_eq!((limits(&can).put_max, limits(&can).put_min()), (4096, Some(1025 - OPERATION_HEAD)));
        for cannot in [
            Caps { put: Reach::None, ..can.clone() },
            Caps { put: Reach::Shared, ..can.clone() },
            Caps { fence: false, ..can.clone() },
        ] {
            assert_eq!((limits(&cannot).put_max, limits(&cannot).put_min()), (0, None));
        }
    }
}
