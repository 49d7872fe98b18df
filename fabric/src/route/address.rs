//! The address of a route: the addresses of its ports, each with the kind of the port.
//!
//! ```text
//!   "rt1" │ kind: 1 byte │ length: 2 bytes, little-endian │ address │ kind │ length │ address │ …
//! ```
//! Unknown kinds are skipped, so that a later version can add kinds.

use std::fmt;

use crate::{Address, PortError};

/// The kind of a port of a route. A route prefers the kinds in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Path {
    Loopback = 0,
    Shm = 1,
    Ofi = 2,
    Delay = 3,
}

impl Path {
    pub(super) const ALL: [Self; 4] = [Self::Loopback, Self::Shm, Self::Ofi, Self::Delay];
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::Shm => "samite-shm",
            Self::Ofi => "libfabric",
            Self::Delay => "a delayed transport",
        })
    }
}

/// At most one address for each path, in the order of [`Path`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses([Option<Address>; Path::ALL.len()]);

impl Addresses {
    pub(super) fn new(addresses: impl Iterator<Item = (Path, Address)>) -> Self {
        let mut all = Self::default();
        for (path, address) in addresses {
            all.0[path as usize] = Some(address);
        }
        all
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Path, &Address)> {
        Path::ALL.into_iter().zip(&self.0).filter_map(|(path, address)| Some((path, address.as_ref()?)))
    }

    pub(super) fn encode(&self) -> Address {
        let mut bytes = TAG.to_vec();
        for (path, Address(address)) in self.iter() {
            // Addresses of ports have some dozens of bytes. An address that is too long for the length field is left
            // out, as if its port did not exist.
            let Ok(len) = u16::try_from(address.len()) else { continue };
            bytes.push(path as u8);
            bytes.extend(len.to_le_bytes());
            bytes.extend(address);
        }
        Address(bytes)
    }

    pub(super) fn decode(address: &Address) -> Result<Self, PortError> {
        let bad = |why: &str| PortError::BadAddress { why: why.into() };
        let mut rest =
            address.0.strip_prefix(&TAG).ok_or_else(|| bad("not of a route, or of another version"))?;
        let mut all = Self::default();
        while let Some((&[kind, low, high], tail)) = rest.split_first_chunk() {
            let len = usize::from(u16::from_le_bytes([low, high]));
            let (address, tail) = tail.split_at_checked(len).ok_or_else(|| bad("cut short"))?;
            rest = tail;
            if let Some(place) = all.0.get_mut(usize::from(kind))
                && place.replace(Address(address.to_vec())).is_some()
            {
                return Err(bad("two addresses of one kind"));
            }
        }
        if rest.is_empty() { Ok(all) } else { Err(bad("cut short")) }
    }
}

/// Identifies the address of a route. The last character is the version of the format.
const TAG: [u8; 3] = *b"rt1";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(all: &[(Path, &[u8])]) -> Addresses {
        Addresses::new(all.iter().map(|&(path, bytes)| (path, Address(bytes.to_vec()))))
    }

    #[test]
    fn the_bytes_are_pinned() {
        let all = addresses(&[(Path::Ofi, b"xyz"), (Path::Shm, b"")]);
        assert_eq!(all.encode(), Address(b"rt1\x01\0\0\x02\x03\0xyz".to_vec()));
        assert_eq!(Addresses::decode(&all.encode()), Ok(all));
    }

    #[test]
    fn unknown_kinds_are_skipped() {
        let bytes = Address(b"rt1\x09\x02\0??\x01\x01\0s".to_vec());
        assert_eq!(Addresses::decode(&bytes), Ok(addresses(&[(Path::Shm, b"s")])));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bytes in [&b""[..], b"rt", b"rt2", b"rt1\x01", b"rt1\x01\x02\0x", b"rt1\x01\0\0\x01\0\0"] {
            let decoded = Addresses::decode(&Address(bytes.to_vec()));
            assert!(matches!(decoded, Err(PortError::BadAddress { .. })), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in prop::collection::vec(any::<u8>(), 0..64), tagged: bool) {
            let bytes = if tagged { [&TAG[..], &bytes].concat() } else { bytes };
            if let Ok(all) = Addresses::decode(&Address(bytes)) {
                prop_assert_eq!(Addresses::decode(&all.encode()), Ok(all));
            }
        }
    }
}
