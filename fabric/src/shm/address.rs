//! The address of the port, by which other processes find its mailbox.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Address, PortError};
use samite_os::process::{Place, Process};

/// The place of a mailbox. Its encoding is an [`Address`] of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whereabouts {
    pub(super) place: Place,
    pub(super) owner: Process,
    pub(super) uid: u32,
    /// The host number, see [`super::Shm::on_host`].
    pub(super) host: u32,
    /// The owner's descriptor of the file.
    pub(super) fd: u32,
    /// A random number that the mailbox's file also contains. If the descriptor number was reused for another file, the
    /// numbers differ.
    pub(super) token: u64,
}

impl Whereabouts {
    /// The bytes of an encoded address.
    pub(super) const BYTES: usize = size_of::<Wire>();

    pub(super) fn encode(&self) -> Address {
        let wire = Wire {
            tag: TAG,
            boot: self.place.boot,
            pid_namespace: self.place.pid_namespace.into(),
            start: self.owner.start.into(),
            token: self.token.into(),
            pid: self.owner.pid.into(),
            uid: self.uid.into(),
            host: self.host.into(),
            fd: self.fd.into(),
        };
        Address(wire.as_bytes().to_vec())
    }

    pub(super) fn decode(address: &Address) -> Result<Self, PortError> {
        let bad = |why: &str| PortError::BadAddress { why: why.into() };
        let wire = Wire::ref_from_bytes(&address.0)
            .map_err(|_| bad("an address of samite-shm has another length"))?;
        if wire.tag != TAG {
            return Err(bad("not of samite-shm, or of another version"));
        }
        Ok(Self {
            place: Place { boot: wire.boot, pid_namespace: wire.pid_namespace.get() },
            owner: Process { pid: wire.pid.get(), start: wire.start.get() },
            uid: wire.uid.get(),
            host: wire.host.get(),
            fd: wire.fd.get(),
            token: wire.token.get(),
        })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    tag: [u8; 4],
    boot: [u8; 16],
    pid_namespace: U64,
    start: U64,
    token: U64,
    pid: U32,
    uid: U32,
    host: U32,
    fd: U32,
}

/// Identifies an address of `samite-shm`. The last character is the version of the format.
const TAG: [u8; 4] = *b"shm2";

const _: () = assert!(size_of::<Wire>() == 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_encoded_is_decoded() {
        let whereabouts = Whereabouts {
            place: Place { boot: [3; 16], pid_namespace: 1 << 40 },
            owner: Process { pid: 77, start: 1 << 50 },
            uid: 1000,
            host: 7,
            fd: 5,
            token: u64::MAX - 1,
        };
        let address = whereabouts.encode();
        assert_eq!(Whereabouts::decode(&address), Ok(whereabouts));
        for len in (0..address.0.len()).chain([address.0.len() + 1]) {
            let mut other = address.0.clone();
            other.resize(len, 0);
            assert!(
                matches!(Whereabouts::decode(&Address(other)), Err(PortError::BadAddress { .. })),
                "{len}"
            );
        }
        let mut other = address;
        other.0[3] = b'1';
        assert!(matches!(Whereabouts::decode(&other), Err(PortError::BadAddress { .. })));
    }
}
