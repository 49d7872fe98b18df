//! Decoders that need nothing around them: whatever the bytes, a value or an error, and what was decoded is
//! what was there.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use samite::bootstrap::Launch;
use samite_fabric::loopback::Hub;
use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::{Config, Shm};
use samite_fabric::wire::Header;
use samite_fabric::{Address, Port, PortError};
use zerocopy::IntoBytes;

/// The header of a packet.
pub fn header(bytes: &[u8]) {
    if let Ok((header, rest)) = Header::decode(bytes) {
        assert_eq!([header.as_bytes(), rest].concat(), bytes);
        let again = Header::new(header.protocol(), header.kind, header.flags());
        assert_eq!(again.as_bytes()[..4], bytes[..4]);
    }
}

/// The address of a route, with those of shared memory and of loopback in it, as a peer gives it.
pub fn addresses(bytes: &[u8]) {
    thread_local! {
        static ROUTE: RefCell<Route> = RefCell::new(route());
    }
    ROUTE.with_borrow_mut(|route| {
        // Half of them with the part that differs least replaced by what is right.
        let mut address = bytes.to_vec();
        if let Some((&1, changed)) = bytes.split_first() {
            address = route.address().0;
            let len = address.len();
            for pair in changed.chunks_exact(2) {
                address[usize::from(pair[0]) % len] ^= pair[1];
            }
        }
        match route.resolve(&Address(address)) {
            Ok(peer) => assert!(route.caps_for(peer).packet_max >= 512),
            Err(PortError::Exhausted { .. }) => *route = self::route(),
            Err(PortError::BadAddress { .. } | PortError::Unreachable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    });
}

#[allow(clippy::needless_update, reason = "with libfabric there is one more port")]
fn route() -> Route {
    let shm = Shm::open(&Config::default()).expect("shared memory works here");
    let ports = Ports { loopback: Some(Hub::new().port()), shm: Some(shm), ..Ports::default() };
    Route::new(ports).expect("it has two ports")
}

/// The environment that a process finds: lines of `NAME=value`, where a name may be given by its number.
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
        Ok(Launch::Invited(_)) => {
            assert!(NAMES[..4].iter().all(|name| get(name).is_some()), "an invitation is complete");
        }
        Ok(Launch::Alone { .. }) => assert!(NAMES[..4].iter().all(|name| get(name).is_none())),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
