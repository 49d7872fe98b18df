//! Stateless decoders. For any bytes they return a value or an error, and a decoded value must encode to the same
//! bytes.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use samite::bootstrap::Launch;
use samite_fabric::loopback::Hub;
use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::{Config, Shm};
use samite_fabric::wire::{Header, Item};
use samite_fabric::{Address, Port, PortError};
use zerocopy::IntoBytes;

/// Decodes the header of a packet.
pub fn header(bytes: &[u8]) {
    if let Ok((header, rest)) = Header::decode(bytes) {
        assert_eq!([header.as_bytes(), rest].concat(), bytes);
        let again = Header::new(header.protocol(), header.kind, header.flags());
        assert_eq!(again.as_bytes()[..3], bytes[..3]);
        assert_eq!(again.as_bytes()[3] & !bytes[3], 0, "only unknown flags are left out");
        if let Ok((_, body, behind)) = header.split_item(rest) {
            assert_eq!(Item::LEN + body.len() + behind.len(), rest.len());
        }
    }
}

/// Decodes a peer's address of a route, with addresses of shared memory and of loopback in it.
pub fn addresses(bytes: &[u8]) {
    thread_local! {
        static ROUTE: RefCell<Route> = RefCell::new(route());
    }
    ROUTE.with_borrow_mut(|route| match route.resolve(&nearly(&route.address(), bytes)) {
        Ok(peer) => assert!(route.caps_for(peer).packet_max >= 512),
        Err(PortError::Exhausted { .. }) => *route = self::route(),
        Err(PortError::BadAddress { .. } | PortError::Unreachable { .. } | PortError::PeerEnded { .. }) => {}
        Err(error) => panic!("{error}"),
    });
}

/// Decodes a peer's address of a libfabric port.
#[cfg(feature = "ofi")]
pub fn ofi_addresses(bytes: &[u8]) {
    use samite_fabric::ofi::{OfiConfig, OfiPort};
    use samite_fabric::{PeerId, Post};

    /// The largest number of peers of a port, which keeps every address that it has resolved.
    const PEERS_MAX: usize = 4096;

    fn open() -> OfiPort {
        let config = OfiConfig { stays_on_host: true, peers_max: PEERS_MAX, ..OfiConfig::default() };
        OfiPort::open(&config).expect("libfabric works here")
    }

    thread_local! {
        static PORT: RefCell<OfiPort> = RefCell::new(open());
    }
    PORT.with_borrow_mut(|port| {
        let address = nearly(&port.address(), bytes);
        match port.resolve(&address) {
            Ok(peer) => {
                assert_eq!(port.resolve(&address), Ok(peer), "one peer at one address");
                assert_eq!(address.0.len(), port.address().0.len());
                if address == port.address() {
                    let posted = port.send(peer, b"to itself", &[]);
                    assert!(matches!(posted, Ok(Post::Done | Post::Again)), "{posted:?}");
                }
                // A peer can be disconnected whether or not the port has sent to it.
                if bytes.len().is_multiple_of(2) {
                    port.fence_peer(peer);
                    assert_eq!(port.send(peer, &[], &[]), Err(PortError::PeerGone(peer)));
                }
            }
            Err(PortError::Exhausted { .. }) => *port = open(),
            Err(
                PortError::BadAddress { .. } | PortError::Unreachable { .. } | PortError::PeerEnded { .. },
            ) => {}
            Err(PortError::Provider { call: "fi_av_insert", .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(port.send(PeerId(u32::MAX), &[], &[]), Err(PortError::PeerGone(PeerId(u32::MAX))));
    });
}

/// Returns an address made from `bytes`. If the first byte is odd, the result is `right` with the changes that the
/// following bytes select. Otherwise the result is `bytes`, unchanged.
fn nearly(right: &Address, bytes: &[u8]) -> Address {
    let mut address = bytes.to_vec();
    if let Some((first, changed)) = bytes.split_first()
        && first % 2 == 1
    {
        address.clone_from(&right.0);
        for pair in changed.chunks_exact(2) {
            address[usize::from(pair[0]) % right.0.len()] ^= pair[1];
        }
    }
    Address(address)
}

#[allow(clippy::needless_update, reason = "with libfabric there is one more port")]
fn route() -> Route {
    let shm = Shm::open(&Config::default()).expect("shared memory works here");
    let ports = Ports { loopback: Some(Hub::new().port()), shm: Some(shm), ..Ports::default() };
    Route::new(ports).expect("it has two ports")
}

/// Parses a process's environment: lines of `NAME=value`, where a number may stand for a name.
pub fn environment(bytes: &[u8]) {
    const NAMES: [&str; 10] = [
        "SAMITE_CONTROL",
        "SAMITE_RANK",
        "SAMITE_SIZE",
        "SAMITE_JOB",
        "SAMITE_TRANSPORT",
        "PMI_RANK",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "WORLD_SIZE",
        "RANK",
    ];
    let variables: Vec<(&[u8], &[u8])> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let (name, value) = line.split_at(line.iter().position(|&byte| byte == b'=')?);
            let number = name.first().and_then(|byte| NAMES.get(usize::from(byte.wrapping_sub(b'0'))));
            Some((number.map_or(name, |name| name.as_bytes()), &value[1..]))
        })
        .collect();
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| OsString::from_vec(value.to_vec()))
    };
    match Launch::detect(&get) {
        Ok(Launch::Run) => {
            assert!(NAMES[..4].iter().all(|name| get(name).is_some()), "an invitation is complete");
        }
        Ok(Launch::Alone) => assert!(NAMES[..4].iter().all(|name| get(name).is_none())),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
