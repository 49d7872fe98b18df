//! The header that every packet begins with, version 6.
//!
//! ```text
//!  byte 0        1         2      3       4…7      8…11          12…15      16…19 20…23   24…25      26…27 28…31
//!  ┌─────────┬──────────┬──────┬───────┬────────┬─────────────┬──────────┬─────┬───────┬──────────┬─────┬─────────┐
//!  │ version │ protocol │ kind │ flags │ sender │ incarnation │ sequence │ ack │ grant │ reserved │ to  │ context │
//!  └─────────┴──────────┴──────┴───────┴────────┴─────────────┴──────────┴─────┴───────┴──────────┴─────┴─────────┘
//! ```
//! All fields are little-endian. The header is 32 bytes long; the rest of the packet depends on `protocol` and `kind`.
//! Decoding is total: any bytes give a header or a [`WireError`]. A change of layout or meaning is a new version.
//! Senders set reserved bits to zero, and receivers ignore them. So a later sender can give them a meaning without a
//! new version, if a receiver may ignore that meaning.
//!
//! A hello is recognized in every version: its first 12 bytes and the secret at the start of its body have the same
//! place and meaning. So the receiver of a hello can tell which rank speaks another version.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of this code.
pub const VERSION: u8 = 6;

/// The common header, as it lies on the wire.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    version: u8,
    protocol: u8,
    /// The kind of packet within its protocol.
    pub kind: u8,
    flags: u8,
    /// In a hello the sender's rank in the job. In any other packet the number that the receiver has given to the
    /// sender, in its hello.
    pub sender: U32,
    /// The incarnation of the sender; a later one has a larger number, wrapping (for example milliseconds of its start
    /// time).
    pub incarnation: U32,
    /// The packet's number among all packets from this incarnation of the sender to this incarnation of the receiver,
    /// from 0, wrapping. If a number is missing, the peer has failed.
    pub sequence: U32,
    /// The acknowledgement, which is cumulative: the sequence number that the sender of this packet expects next from
    /// the receiver.
    pub ack: U32,
    /// Credit, cumulative and wrapping: the total number of bytes of eager data that the receiver of this packet is
    /// allowed to send to the sender of this packet, counted from the first contact. (Each protocol defines which of
    /// its bytes are counted.)
    pub grant: U32,
    /// Zero; receivers ignore it.
    reserved: U16,
    /// The low 16 bits of the receiver's incarnation for which the packet is meant. By these bits a process detects a
    /// late packet that was meant for an earlier process with the same address.
    pub to: U16,
    /// The number of a communicator, a window or a service, depending on `protocol`.
    pub context: U32,
}

/// The fields of a [`Header`] that are numbers. Each has the name and the meaning of the header's field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are described at the header")]
pub struct Numbers {
    pub sender: u32,
    pub incarnation: u32,
    pub sequence: u32,
    pub ack: u32,
    pub grant: u32,
    pub to: u16,
    pub context: u32,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = size_of::<Self>();

    /// Returns a header with all numbers zero.
    #[must_use]
    pub fn new(protocol: Protocol, kind: u8, flags: Flags) -> Self {
        Self::with(protocol, kind, flags, Numbers::default())
    }

    /// Returns a header with these numbers. It is written in whole words, because ports read it in words: a processor
    /// stalls if it reads a word that was just written in several pieces.
    #[must_use]
    #[inline]
    pub fn with(protocol: Protocol, kind: u8, flags: Flags, numbers: Numbers) -> Self {
        let Numbers { sender, incarnation, sequence, ack, grant, to, context } = numbers;
        let what = u32::from_le_bytes([VERSION, protocol as u8, kind, flags.bits()]);
        let word = |low: u32, high: u32| U64::new(u64::from(low) | u64::from(high) << 32);
        zerocopy::transmute!([
            word(what, sender),
            word(incarnation, sequence),
            word(ack, grant),
            word(u32::from(to) << 16, context),
        ])
    }

    /// Splits a packet into its header and the rest.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a packet of this version.
    pub fn decode(packet: &[u8]) -> Result<(&Self, &[u8]), WireError> {
        let (header, rest) =
            Self::ref_from_prefix(packet).map_err(|_| WireError::Short { len: packet.len() })?;
        if header.version != VERSION {
            return Err(WireError::Version { theirs: header.version });
        }
        if header.protocol > Protocol::LAST as u8 {
            return Err(WireError::Protocol { theirs: header.protocol });
        }
        Ok((header, rest))
    }

    /// Returns true if this is a valid header of a packet of that protocol and kind which is neither a
    /// [bundle](Flags::BUNDLE) nor [urgent](Flags::URGENT). Other flags may be set. Faster than
    /// [`decode`](Self::decode).
    #[must_use]
    #[inline(always)]
    pub fn is_plain(&self, protocol: Protocol, kind: u8) -> bool {
        let flags = self.flags & Flags::BUNDLE.union(Flags::URGENT).bits();
        // One comparison of 32 bits.
        u32::from_le_bytes([self.version, self.protocol, self.kind, flags])
            == u32::from_le_bytes([VERSION, protocol as u8, kind, 0])
    }

    /// Splits the first message off the items of a [bundle](Flags::BUNDLE): its header, its body, and the items after
    /// it.
    ///
    /// # Errors
    /// [`WireError::Short`] if there is no whole item.
    pub fn split_item<'a>(&self, items: &'a [u8]) -> Result<(Self, &'a [u8], &'a [u8]), WireError> {
        let (item, rest) = prefix::<Item>(items)?;
        let len = usize::from(item.len.get());
        let (body, rest) = rest.split_at_checked(len).ok_or(WireError::Short { len: rest.len() })?;
        let flags = self.flags & !Flags::BUNDLE.bits();
        Ok((Self { kind: item.kind, flags, context: item.context, ..*self }, body, rest))
    }

    /// Returns the protocol that handles the packet.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        // Every header has the number of a protocol: `decode` refuses other numbers, and `with` takes a `Protocol`.
        Protocol::from_number(self.protocol).unwrap_or(Protocol::LAST)
    }

    /// Returns the packet's flags.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags::from_bits_truncate(self.flags)
    }
}

/// The protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Control of the link: hello, credit, goodbye.
    Control = 0,
    /// Tagged messages.
    P2p = 1,
    /// Windows and notified access.
    Rma = 2,
    /// Remote procedure calls and services.
    Rpc = 3,
    /// Collectives.
    Coll = 4,
}

impl Protocol {
    pub(crate) const LAST: Self = Self::Coll;

    /// Returns the protocol with that number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Control, Self::P2p, Self::Rma, Self::Rpc, Self::Coll].get(usize::from(number)).copied()
    }
}

bitflags::bitflags! {
    /// Flags common to all protocols.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// The sender waits for credit: answer with a grant, or with [`Flags::EXHAUSTED`].
        const STARVED = 1;
        /// The packet consists of messages of its protocol, one or more, each behind an [`Item`]. They are handled in
        /// order. The kind and the context of the packet itself have no meaning.
        const BUNDLE = 2;
        /// The receiver must send a packet as soon as it has handled this one. The acknowledgement in that packet tells
        /// the sender that this one was handled.
        const URGENT = 4;
        /// The sender of this packet has no credit left to give. Until it grants more, the receiver of this packet must
        /// send bare envelopes to it instead of data.
        const EXHAUSTED = 8;
    }
}

/// Begins each message of a packet with [`Flags::BUNDLE`]. The message's bytes follow, without padding.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Item {
    /// The kind of the message, as [`Header::kind`].
    pub kind: u8,
    /// Zero; receivers ignore it.
    pub reserved: u8,
    /// The number of bytes of the message. A message that is longer than this field can say is sent in a packet without
    /// [`Flags::BUNDLE`].
    pub len: U16,
    /// The meaning is that of [`Header::context`].
    pub context: U32,
}

impl Item {
    /// Bytes on the wire.
    pub const LEN: usize = size_of::<Self>();
}

/// The reason why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// There are too few bytes.
    #[error("{len} bytes are too few for this packet")]
    Short {
        /// Number of bytes.
        len: usize,
    },
    /// There are bytes after the end of the packet's content.
    #[error("{extra} bytes too many for this packet")]
    Long {
        /// Number of extra bytes.
        extra: usize,
    },
    /// Another version of the wire.
    #[error(
        "the peer speaks version {theirs} of the wire, this side {VERSION}: use one version of samite in a job"
    )]
    Version {
        /// The peer's version.
        theirs: u8,
    },
    /// There is no such protocol.
    #[error("there is no protocol {theirs}")]
    Protocol {
        /// The received number.
        theirs: u8,
    },
    /// The protocol has no packet of this kind.
    #[error("there is no packet of kind {theirs}")]
    Kind {
        /// The received number.
        theirs: u8,
    },
    /// A field has a value that no sender writes.
    #[error("field {field} has an impossible value")]
    Value {
        /// The field.
        field: &'static str,
    },
}

/// Reads a body of fixed size that is the whole rest of a packet.
///
/// # Errors
/// [`WireError::Short`], [`WireError::Long`].
pub fn exact<T: FromBytes + KnownLayout + Immutable + Unaligned>(body: &[u8]) -> Result<&T, WireError> {
    let (value, rest) = prefix::<T>(body)?;
    if rest.is_empty() { Ok(value) } else { Err(WireError::Long { extra: rest.len() }) }
}

/// Reads a body of fixed size, and returns the bytes after it.
///
/// # Errors
/// [`WireError::Short`].
pub fn prefix<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    body: &[u8],
) -> Result<(&T, &[u8]), WireError> {
    T::ref_from_prefix(body).map_err(|_| WireError::Short { len: body.len() })
}

// The wire is fixed: `Unaligned` rules out padding, and these assertions fix each field's place.
const _: () = {
    assert!(size_of::<Header>() == 32 && align_of::<Header>() == 1);
    assert!(std::mem::offset_of!(Header, kind) == 2 && std::mem::offset_of!(Header, flags) == 3);
    assert!(std::mem::offset_of!(Header, sender) == 4 && std::mem::offset_of!(Header, incarnation) == 8);
    assert!(std::mem::offset_of!(Header, sequence) == 12 && std::mem::offset_of!(Header, ack) == 16);
    assert!(std::mem::offset_of!(Header, grant) == 20 && std::mem::offset_of!(Header, reserved) == 24);
    assert!(std::mem::offset_of!(Header, to) == 26);
    assert!(std::mem::offset_of!(Header, context) == 28);
    assert!(size_of::<Item>() == 8 && std::mem::offset_of!(Item, len) == 2);
    assert!(std::mem::offset_of!(Item, context) == 4);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Fixes the meaning of the version: if this test must change, so must [`VERSION`].
    #[test]
    fn version_6_is_laid_out_like_this() {
        let header = Header {
            version: VERSION,
            protocol: Protocol::P2p as u8,
            kind: 0x33,
            flags: Flags::EXHAUSTED.bits(),
            sender: 0x4746_4544.into(),
            incarnation: 0x4b4a_4948.into(),
            sequence: 0x4f4e_4d4c.into(),
            ack: 0x5352_5150.into(),
            grant: 0x5756_5554.into(),
            reserved: 0.into(),
            to: 0x5b5a.into(),
            context: 0x5f5e_5d5c.into(),
        };
        let mut expected = [6, 1, 0x33, 8].to_vec();
        expected.extend(0x44..=0x57);
        expected.extend([0, 0]);
        expected.extend(0x5a..=0x5f);
        assert_eq!(header.as_bytes(), expected);
        let numbers = Numbers {
            sender: header.sender.get(),
            incarnation: header.incarnation.get(),
            sequence: header.sequence.get(),
            ack: header.ack.get(),
            grant: header.grant.get(),
            to: header.to.get(),
            context: header.context.get(),
        };
        let header = Header::with(Protocol::P2p, 0x33, Flags::EXHAUSTED, numbers);
        assert_eq!(header.as_bytes(), expected, "in words as in fields");
        let protocols = [Protocol::Control, Protocol::P2p, Protocol::Rma, Protocol::Rpc, Protocol::Coll];
        assert_eq!(protocols.map(|protocol| protocol as u8), [0, 1, 2, 3, 4]);
        let flags = [Flags::STARVED, Flags::BUNDLE, Flags::URGENT, Flags::EXHAUSTED];
        assert_eq!(flags.map(|flag| flag.bits()), [1, 2, 4, 8]);
        let item = Item { kind: 0x10, reserved: 0x11, len: 0x1312.into(), context: 0x1716_1514.into() };
        assert_eq!(item.as_bytes(), (0x10..=0x17).collect::<Vec<u8>>());
    }

    #[test]
    fn what_is_written_is_read() {
        let mut header = Header::new(Protocol::Rpc, 9, Flags::STARVED | Flags::EXHAUSTED);
        header.sequence = 0xdead_beef.into();
        let mut packet = header.as_bytes().to_vec();
        packet.extend(b"body");
        assert_eq!(packet[12..16], [0xef, 0xbe, 0xad, 0xde], "little-endian");
        let (read, rest) = Header::decode(&packet).unwrap();
        assert_eq!(
            (read.protocol(), read.kind, read.flags()),
            (Protocol::Rpc, 9, Flags::STARVED | Flags::EXHAUSTED)
        );
        assert_eq!((read.sequence.get(), rest), (0xdead_beef, &b"body"[..]));
        assert!(read.is_plain(Protocol::Rpc, 9));
        assert!(!read.is_plain(Protocol::Rma, 9) && !read.is_plain(Protocol::Rpc, 8));
    }

    #[test]
    fn unknown_flags_are_ignored() {
        for unknown in [0x10, 0x20, 0x40, 0x80, 0xf0] {
            let mut packet = Header::new(Protocol::P2p, 3, Flags::STARVED).as_bytes().to_vec();
            packet[3] |= unknown;
            let (header, _) = Header::decode(&packet).unwrap();
            assert_eq!(header.flags(), Flags::STARVED);
            assert!(header.is_plain(Protocol::P2p, 3));
        }
    }

    #[test]
    fn bundles_and_urgent_packets_are_not_plain() {
        for flags in [Flags::BUNDLE, Flags::URGENT, Flags::all()] {
            assert!(!Header::new(Protocol::P2p, 0, flags).is_plain(Protocol::P2p, 0), "{flags:?}");
        }
        let others = Flags::STARVED | Flags::EXHAUSTED;
        assert!(Header::new(Protocol::P2p, 0, others).is_plain(Protocol::P2p, 0));
    }

    #[test]
    fn a_bundle_is_split_into_its_messages_and_nothing_else() {
        let item = |kind, context: u32, body: &[u8]| {
            let len = u16::try_from(body.len()).unwrap().into();
            [Item { kind, reserved: 0, len, context: context.into() }.as_bytes(), body].concat()
        };
        let bundle = Header::new(Protocol::P2p, 9, Flags::BUNDLE | Flags::STARVED);
        let messages: [(u8, u32, &[u8]); 3] = [(1, 5, b"first"), (2, 6, b""), (1, 5, b"third")];
        let items = messages.map(|(kind, context, body)| item(kind, context, body)).concat();
        let mut rest = &items[..];
        for (kind, context, body) in messages {
            let (header, message, behind) = bundle.split_item(rest).unwrap();
            assert_eq!(
                (header.protocol(), header.kind, header.flags()),
                (Protocol::P2p, kind, Flags::STARVED)
            );
            assert_eq!((header.context.get(), message), (context, body));
            rest = behind;
        }
        assert_eq!(bundle.split_item(rest).unwrap_err(), WireError::Short { len: 0 });
        let one = item(1, 5, b"first");
        for len in 0..one.len() {
            assert!(matches!(bundle.split_item(&one[..len]), Err(WireError::Short { .. })));
        }
    }

    #[test]
    fn every_other_byte_sequence_is_refused() {
        let good = Header::new(Protocol::P2p, 0, Flags::empty()).as_bytes().to_vec();
        for len in 0..Header::LEN {
            assert_eq!(Header::decode(&good[..len]).unwrap_err(), WireError::Short { len });
        }
        for (byte, value, error) in
            [(0, 1, WireError::Version { theirs: 1 }), (1, 5, WireError::Protocol { theirs: 5 })]
        {
            let mut bad = good.clone();
            bad[byte] = value;
            assert_eq!(Header::decode(&bad).unwrap_err(), error);
            assert!(!Header::ref_from_bytes(&bad).unwrap().is_plain(Protocol::P2p, 0));
        }
    }
}
