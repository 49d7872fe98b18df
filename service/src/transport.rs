//! The port under every communicator, chosen at run time.

use samite_control::{Place, Settings};
use samite_fabric::PortError;
#[cfg(feature = "ofi")]
use samite_fabric::SplitMix64;
use samite_fabric::delay::{Delay, Model};
use samite_fabric::loopback::{Hub, Loopback};
#[cfg(feature = "ofi")]
use samite_fabric::ofi::{OfiConfig, OfiPort};
use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::{self, Shm};

/// A port that chooses the way to each peer separately.
#[cfg(not(feature = "simulated"))]
pub(crate) type Transport = Route;
#[cfg(feature = "simulated")]
pub(crate) type Transport = crate::simulated::Either;

/// Opens the selected transport for one of `size` ranks. By default: shared memory between ranks of one host, and
/// libfabric between hosts, or if there is no shared memory.
///
/// With any choice, messages of a rank to itself do not leave the process.
pub(crate) fn open(settings: &Settings, place: &Place, size: u32) -> Result<Transport, PortError> {
    let mut ports = Ports { loopback: Some(Hub::new().port()), ..Ports::default() };
    match settings.transport() {
        Some(name) => match Model::split(name) {
            Some(Ok((model, inner))) => {
                let mut delayed = Ports::default();
                open_named(inner, settings, place, size, &mut delayed)?;
                ports.delay = Some(Delay::new(Route::new(delayed)?, model)?);
            }
            // The settings accept no wrong name of a delayed transport.
            Some(Err(_)) | None => open_named(name, settings, place, size, &mut ports)?,
        },
        None if place.hosts > 1 => {
            open_provider(DEFAULT_PROVIDER, settings, place, &mut ports)?;
            // If shared memory cannot be opened, ranks of this host are reached through libfabric, like those of other
            // hosts.
            ports.shm = open_shm(settings, place, size).ok();
        }
        None => match open_shm(settings, place, size) {
            Ok(shm) => ports.shm = Some(shm),
            // Keep the reason: it is the error to return if no other port can be opened either.
            Err(reason) => {
                open_provider(DEFAULT_PROVIDER, settings, place, &mut ports).map_err(|_| reason)?
            }
        },
    }
    Transport::new(ports)
}

/// Opens the port of a transport that the program has selected by its name.
fn open_named(
    name: &str,
    settings: &Settings,
    place: &Place,
    size: u32,
    ports: &mut Ports,
) -> Result<(), PortError> {
    match name {
        SHM => ports.shm = Some(open_shm(settings, place, size)?),
        provider => open_provider(provider, settings, place, ports)?,
    }
    Ok(())
}

/// Returns the transport of a rank that is a thread, from its port in the hub of all ranks.
pub(crate) fn local(port: Loopback) -> Transport {
    Transport::new(Ports { loopback: Some(port), ..Ports::default() }).expect("one port is enough")
}

/// Returns the transports of ranks that are threads, if they use shared memory.
pub(crate) fn local_shm(
    settings: &Settings,
    place: &Place,
    size: u32,
) -> Option<Result<Vec<Transport>, PortError>> {
    (settings.transport() == Some(SHM)).then(|| (0..size).map(|_| open(settings, place, size)).collect())
}

/// The name by which users select our own shared memory. All other names are libfabric's.
const SHM: &str = "samite-shm";

#[cfg(feature = "ofi")]
const DEFAULT_PROVIDER: &str = samite_fabric::ofi::choice::DEFAULT;
#[cfg(not(feature = "ofi"))]
const DEFAULT_PROVIDER: &str = "";

fn open_shm(settings: &Settings, place: &Place, size: u32) -> Result<Shm, PortError> {
    let shm::Config { ring_bytes_min, ring_bytes, ring_bytes_max, .. } = settings.shm;
    // The number of ranks on this host is not known in a job of several hosts, so assume the size of the job.
    let peers = size as usize;
    let for_job = (peers + peers / 4).clamp(shm::Config::default().peers_max, shm::Config::PEERS_MAX);
    let config = shm::Config {
        peers_max: settings.shm_peers_max.unwrap_or(for_job),
        ring_bytes_min: ring_bytes_min.min(ring_bytes),
        ring_bytes_max: ring_bytes_max.max(ring_bytes),
        ..settings.shm.clone()
    };
    Ok(Shm::open(&config)?.on_host(place.host))
}

#[cfg(feature = "ofi")]
fn open_provider(name: &str, settings: &Settings, place: &Place, ports: &mut Ports) -> Result<(), PortError> {
    let config = OfiConfig {
        provider: name.to_owned(),
        interface: settings.interface.clone(),
        seed: SplitMix64::from_entropy().next_u64(),
        stays_on_host: place.hosts == 1,
        // Other hosts are expected to reach this host at the address that the launcher uses.
        near: place.address,
        wakes: settings.network_wakes.unwrap_or_else(|| samite_os::process::is_crowded(place.neighbours)),
        ..OfiConfig::default()
    };
    ports.ofi = Some(OfiPort::open(&config)?);
    Ok(())
}

#[cfg(not(feature = "ofi"))]
fn open_provider(_: &str, _: &Settings, _: &Place, _: &mut Ports) -> Result<(), PortError> {
    Err(PortError::Unsupported {
        what: "lead to libfabric's providers: it was built without the feature `ofi`",
    })
}
