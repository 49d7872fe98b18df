//! Capabilities of a port.

/// The capabilities and limits of a port, or of a port towards one peer ([`Port::caps_for`](crate::Port::caps_for)).
/// Protocols decide by these values alone how they transfer bytes, never by a port's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The transport's name as users write it: `tcp;ofi_rxm`, `samite-shm`, `loopback`, `sim`…
    pub name: String,
    /// The longest packet for which the port needs neither a buffer nor a completion, in bytes of head and body
    /// together.
    pub short_max: usize,
    /// The longest packet for [`Port::send`](crate::Port::send), in bytes of head and body together. At least 512.
    pub packet_max: usize,
    /// The best packet size for parts of a long message, in bytes of head and body together. On a port where sender and
    /// receiver copy at the same time, it is less than `packet_max`: the room between the two holds several such
    /// packets, so that the sender can be ahead of the receiver. From 512 to `packet_max`.
    pub fragment_max: usize,
    /// The largest number of bytes, of head and body, in a packet for [`Port::send_zcopy`](crate::Port::send_zcopy). It
    /// is 0 if the port lacks this call.
    pub zcopy_max: usize,
    /// The largest number of bytes of a one-sided operation. It is 0 if the port has no such operations.
    pub rma_max: usize,
    /// The largest number of bytes for [`Port::put_bytes`](crate::Port::put_bytes). It is 0 if the port lacks this
    /// call.
    pub put_bytes_max: usize,
    /// The largest number of bytes for [`Port::get_bytes`](crate::Port::get_bytes). It is 0 if the port lacks this
    /// call.
    pub get_bytes_max: usize,
    /// The largest number of parts for [`Port::put_v`](crate::Port::put_v). It is 0 if the port lacks this call.
    pub iov_max: usize,
    /// The largest number of one-sided operations that may be outstanding at the same time, over all peers.
    pub rma_depth: usize,
    /// The memory that [`Port::put`](crate::Port::put) writes.
    pub put: Reach,
    /// The memory that [`Port::get`](crate::Port::get) reads.
    pub get: Reach,
    /// The memory that [`Port::change`](crate::Port::change) changes.
    pub change: Reach,
    /// True if [`Port::map`](crate::Port::map) maps memory of peers that was made by
    /// [`Region::shared`](crate::Region::shared).
    pub map: bool,
    /// True if one-sided operations proceed while their target does not poll.
    pub passive: bool,
    /// The number of bits of immediate data that [`Port::put_imm`](crate::Port::put_imm) carries. It is 0 if the port
    /// lacks this call.
    pub immediate_bits: u32,
    /// The orderings that hold, per pair of peers.
    pub order: Order,
    /// True if the memory of operations with a peer can be reused after [`Port::fence_peer`](crate::Port::fence_peer).
    pub fence: bool,
    /// The largest number of resolved peers.
    pub peers_max: usize,
    /// True if each packet costs much more than its bytes, for example because it needs a system call. Then it is worth
    /// sending several short messages in one packet.
    pub dear_packets: bool,
}

/// The memory of a peer that a one-sided operation reaches. The peer has [registered](crate::Port::register) it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// None: the port has no such operation.
    None,
    /// Memory made by [`Region::shared`](crate::Region::shared).
    Shared,
    /// Any memory.
    Any,
}

impl Reach {
    /// Returns this reach if `able`, else [`Reach::None`].
    #[must_use]
    pub fn when(self, able: bool) -> Self {
        if able { self } else { Self::None }
    }

    /// Returns true if the port has the operation.
    #[must_use]
    pub fn is_some(self) -> bool {
        self != Self::None
    }
}

bitflags::bitflags! {
    /// Orders between two operations of one origin towards one target. The name has the second operation first:
    /// `SEND_AFTER_PUT` is the promise that a packet which is sent after a put also arrives after the put. A port
    /// claims an order only if the order holds for operations of all lengths. To get an order that the port does not
    /// claim, post the second operation only after the first has ended. (libfabric's names are in fi_endpoint(3).)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Order: u8 {
        /// A packet arrives after the packets sent before it. Every port has it. (`FI_ORDER_SAS`)
        const SEND_AFTER_SEND = 1;
        /// A packet arrives after the bytes of earlier puts. (`FI_ORDER_SAW`)
        const SEND_AFTER_PUT = 2;
        /// A put's bytes land after those of earlier puts. (`FI_ORDER_WAW`)
        const PUT_AFTER_PUT = 4;
        /// A notification comes after the bytes of earlier puts. It always comes after the bytes of its own put.
        const NOTE_AFTER_PUT = 8;
        /// A get reads the bytes of earlier puts. (`FI_ORDER_RAW`)
        const GET_AFTER_PUT = 16;
        /// A change takes place after the bytes of earlier puts have landed. A process that sees the change also sees
        /// those bytes.
        const CHANGE_AFTER_PUT = 32;
        /// Changes take place in the order in which they were posted.
        const CHANGE_AFTER_CHANGE = 64;
    }
}
