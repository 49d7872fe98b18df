//! The port under every communicator, chosen at run time.

use samite_fabric::PortError;
#[cfg(feature = "ofi")]
use samite_fabric::SplitMix64;
use samite_fabric::loopback::{Hub, Loopback};
#[cfg(feature = "ofi")]
use samite_fabric::ofi::{OfiConfig, OfiPort};
use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::{self, Shm};

/// Chosen peer by peer.
pub(crate) type Transport = Route;

/// Opens the transport that the user asks for, or by default shared memory, and libfabric only where there is
/// none.
///
/// Whatever the choice, what a rank sends to itself does not leave the process.
pub(crate) fn open(name: Option<&str>) -> Result<Transport, PortError> {
    let mut ports = Ports { loopback: Some(Hub::new().port()), ..Ports::default() };
    match name {
        Some(SHM) => ports.shm = Some(open_shm()?),
        Some(provider) => open_provider(provider, &mut ports)?,
        None => match open_shm() {
            Ok(shm) => ports.shm = Some(shm),
            // Its reason counts if there is nothing else either.
            Err(reason) => open_provider(DEFAULT_PROVIDER, &mut ports).map_err(|_| reason)?,
        },
    }
    Route::new(ports)
}

/// A transport among the ports of one hub.
pub(crate) fn local(port: Loopback) -> Transport {
    Route::new(Ports { loopback: Some(port), ..Ports::default() }).expect("one port is enough")
}

/// The name of our own shared memory, as a user gives it. All others are of libfabric's providers.
const SHM: &str = "samite-shm";

const DEFAULT_PROVIDER: &str = "tcp;ofi_rxm";

fn open_shm() -> Result<Shm, PortError> {
    Shm::open(&shm::Config::default())
}

#[cfg(feature = "ofi")]
fn open_provider(name: &str, ports: &mut Ports) -> Result<(), PortError> {
    let seed = SplitMix64::from_entropy().next_u64();
    // A job is one host for now.
    let config = OfiConfig { provider: name.to_owned(), seed, stays_on_host: true, ..OfiConfig::default() };
    ports.ofi = Some(OfiPort::open(&config)?);
    Ok(())
}

#[cfg(not(feature = "ofi"))]
fn open_provider(_name: &str, _ports: &mut Ports) -> Result<(), PortError> {
    Err(PortError::Unsupported {
        what: "lead to libfabric's providers: it was built without the feature `ofi`",
    })
}
