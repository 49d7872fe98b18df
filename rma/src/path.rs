//! The way of an operation to its target.

use samite_fabric::{Caps, Order, Reach};

use crate::wire::{OPERATION_HEAD, REPLY_HEAD};
use crate::{Action, Config};

/// The way of an operation to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Loads, stores and atomic instructions of the origin's processor.
    Memory,
    /// Puts by the port into the target's registered part ([`Port::put`](samite_fabric::Port::put)).
    Put,
    /// Gets by the port from the target's registered part ([`Port::get`](samite_fabric::Port::get)).
    Get,
    /// Puts by the target's port from its registered part into registered memory of the origin.
    PutBack,
    /// Packets, which the target's processor applies.
    Packets,
}

/// The ways in which an origin can access the target's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    /// True if the origin can map the part.
    pub(crate) is_mapped: bool,
    /// The length from which an operation is put, or `None` if the port cannot put into the part.
    pub(crate) put_min: Option<usize>,
    /// The length of the shortest read that is a get of the port, or `None` if the port cannot get from the part.
    pub(crate) get_min: Option<usize>,
    /// The length of the shortest read that the target puts into the origin's memory, or `None` if it cannot.
    pub(crate) put_back_min: Option<usize>,
}

impl Means {
    /// The means of an origin that has mapped the part.
    pub(crate) const MAPPED: Self =
        Self { is_mapped: true, put_min: None, get_min: None, put_back_min: None };
}

/// Chooses the way of an operation on `len` bytes.
///
/// The choice for atomic operations depends on the type of the elements and not on their number. So all accumulates of
/// one origin on elements of one type take the same way, and keep their order (MPI 4.1, section 12.7.2). On a mapped
/// part, the elements that fit in a word are always changed by atomic instructions, also by the target when it applies
/// packets. So an operation is atomic with respect to operations that take the other way. An
/// exception is the hint `unshared_accumulates`.
pub(crate) fn choose(action: Action, len: usize, means: Means) -> Path {
    match action.element() {
        Some(element) if element.size() > WORD => Path::Packets,
        _ if means.is_mapped => Path::Memory,
        None if action == Action::Put && means.put_min.is_some_and(|min| len >= min) => Path::Put,
        None if action == Action::Get && means.get_min.is_some_and(|min| len >= min) => Path::Get,
        None if action == Action::Get && means.put_back_min.is_some_and(|min| len >= min) => Path::PutBack,
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
    /// The same for puts whose bytes are copied.
    pub(crate) put_slab_len: usize,
    /// The length of the longest get, or 0 if the port has no gets, or cannot end a peer's access to memory.
    pub(crate) get_max: usize,
    /// The same for gets whose bytes are copied.
    pub(crate) get_slab_len: usize,
    /// True if a packet that is sent after a put arrives after the bytes of the put.
    pub(crate) send_after_put: bool,
}

impl Limits {
    /// Returns the limits of a path with these capabilities.
    ///
    /// Without a fence a put of an origin that has failed could arrive late, when another rank has its lock. So such a
    /// port puts nothing into windows. A get from a target that has failed might never end, so such a port gets nothing
    /// either.
    pub(crate) fn new(caps: &Caps, config: &Config) -> Self {
        let max_of = |reach| match reach {
            Reach::Any if caps.fence => caps.rma_max.min(config.put_chunk),
            _ => 0,
        };
        Self {
            packet_max: caps.packet_max,
            put_max: max_of(caps.put),
            put_slab_len: max_of(caps.put).min(config.copy_chunk.max(1)),
            get_max: max_of(caps.get),
            get_slab_len: max_of(caps.get).min(config.copy_chunk.max(1)),
            send_after_put: caps.order.contains(Order::SEND_AFTER_PUT),
        }
    }

    /// Returns the largest number of bytes in a reply.
    pub(crate) fn reply_max(&self) -> usize {
        self.packet_max.saturating_sub(REPLY_HEAD)
    }

    /// Returns the length of the shortest operation that is put into a part: one that needs more than one packet.
    pub(crate) fn put_min(&self) -> Option<usize> {
        (self.put_max > 0).then(|| self.long())
    }

    /// Returns the length of the shortest operation that is a get from a part: one that needs more than one packet.
    pub(crate) fn get_min(&self) -> Option<usize> {
        (self.get_max > 0).then(|| self.long())
    }

    fn long(&self) -> usize {
        self.packet_max - OPERATION_HEAD + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, Reduction};

    const NEITHER: Means = Means { is_mapped: false, put_min: None, get_min: None, put_back_min: None };
    const PUTS: Means = Means { put_min: Some(100), ..NEITHER };
    const GETS: Means = Means { get_min: Some(100), ..NEITHER };

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
                let others = [NEITHER, PUTS, GETS].map(|means| choose(action, 1000, means));
                assert_eq!(others, [Path::Packets; 3], "{action:?}");
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
    fn long_gets_that_are_not_mapped_are_gets_of_the_port() {
        let get = |len, means| choose(Action::Get, len, means);
        assert_eq!([99, 100, 1 << 30].map(|len| get(len, GETS)), [Path::Packets, Path::Get, Path::Get]);
        assert_eq!(get(1 << 30, Means { is_mapped: true, ..GETS }), Path::Memory);
        assert_eq!(choose(Action::Put, 1 << 30, GETS), Path::Packets);
        let put_back_min = Some(100);
        let without = Means { put_back_min, ..NEITHER };
        assert_eq!([99, 100].map(|len| get(len, without)), [Path::Packets, Path::PutBack]);
        assert_eq!(get(100, Means { put_back_min, ..GETS }), Path::Get);
        assert_eq!(choose(Action::Put, 1 << 30, without), Path::Packets);
    }

    #[test]
    fn puts_and_gets_need_a_fence_and_any_memory() {
        let all = samite_fabric::sim::Config::default().caps;
        let fenced = Caps { fence: true, rma_max: 5000, packet_max: 1024, ..all };
        let config = Config { put_chunk: 4096, copy_chunk: 900, ..Config::default() };
        let puts = |caps: &Caps| {
            let limits = Limits::new(caps, &config);
            (limits.put_max, limits.put_slab_len, limits.put_min())
        };
        let gets = |caps: &Caps| {
            let limits = Limits::new(caps, &config);
            (limits.get_max, limits.get_slab_len, limits.get_min())
        };
        for (reach, expected) in [
            (Reach::Any, (4096, 900, Some(1025 - OPERATION_HEAD))),
            (Reach::Shared, (0, 0, None)),
            (Reach::None, (0, 0, None)),
        ] {
            assert_eq!(puts(&Caps { put: reach, get: Reach::None, ..fenced.clone() }), expected);
            assert_eq!(gets(&Caps { put: Reach::None, get: reach, ..fenced.clone() }), expected);
        }
        let unfenced = Caps { fence: false, ..fenced };
        assert_eq!((puts(&unfenced), gets(&unfenced)), ((0, 0, None), (0, 0, None)));
    }
}
