//! Lists libfabric's interfaces on this host, without opening any of them.

use samite_fabric_sys as sys;

use super::offer::Offer;
use super::{Loaded, OfiConfig, info, load};
use crate::{Caps, PortError};

/// The loaded library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The library's version, like `1.17`.
    pub version: String,
    /// True if libfabric closes the connection of a fenced peer. If it does not, no provider has [`Caps::fence`].
    pub closes_connections: bool,
    /// The dependencies of the library that calibrate a clock when they are loaded, which takes 100 ms for each.
    pub calibrating: Vec<&'static str>,
}

/// libpsm2 and libinfinipath measure the frequency of the processor's counter in their initializers, so no setting
/// prevents it.
const CALIBRATING: [&str; 2] = ["libinfinipath", "libpsm2"];

/// Loads libfabric.
///
/// # Errors
/// [`PortError::Provider`] if libfabric is missing, too old, or lacks a function.
pub fn library() -> Result<Library, PortError> {
    let Loaded { closes_connections, .. } = load(None)?;
    // SAFETY: no preconditions.
    let version = unsafe { sys::fi_version() };
    let version = format!("{}.{}", sys::FI_MAJOR(version), sys::FI_MINOR(version));
    let calibrating = CALIBRATING.into_iter().filter(|name| samite_os::libraries::is_loaded(name)).collect();
    Ok(Library { version, closes_connections, calibrating })
}

/// Returns the library if this process has loaded it.
#[must_use]
pub fn library_if_loaded() -> Option<Library> {
    super::LOADED.get()?;
    library().ok()
}

/// An interface of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The provider, as [`OfiConfig::provider`] takes it.
    pub provider: String,
    /// The interface's name, as [`OfiConfig::interface`] takes it.
    pub interface: String,
    /// The interface's address without a port number, if it has a usual notation.
    pub address: Option<String>,
    /// The capabilities of a port on this interface, or the reason why no port can be opened on it.
    pub caps: Result<Caps, PortError>,
}

/// Returns every interface of every provider with connectionless messages and RMA, in libfabric's order.
///
/// # Errors
/// [`PortError::Provider`] if libfabric cannot be loaded, or its list cannot be read.
pub fn survey() -> Result<Vec<Found>, PortError> {
    let loaded = load(None)?;
    let mut all: Vec<Found> = Vec::new();
    let Some(list) = info::ask(None)? else { return Ok(all) };
    for entry in list.iter() {
        let attributes = info::attributes(entry);
        let offer = Offer::of(&attributes);
        let found = Found {
            provider: offer.provider.clone(),
            interface: info::string(attributes.domain.name).unwrap_or_default(),
            address: info::source(entry),
            caps: offer.plan(&OfiConfig::default(), loaded).map(|plan| plan.caps),
        };
        // Providers offer an interface several times with different details. Only one offer of each interface is
        // returned, if possible a usable one.
        let same = |other: &&mut Found| {
            (&other.provider, &other.interface, &other.address)
                == (&found.provider, &found.interface, &found.address)
        };
        match all.iter_mut().find(same) {
            Some(known) if known.caps.is_err() => *known = found,
            Some(_) => {}
            None => all.push(found),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ofi::OfiPort;
    use crate::port::Port;

    #[test]
    fn what_is_found_can_be_opened_and_does_what_was_said() {
        let library = library().expect("libfabric is here");
        let major = library.version.split('.').next().and_then(|major| major.parse().ok());
        assert!(major.is_some_and(|major: u32| major >= 1), "{library:?}");
        let found = survey().expect("it says what there is");
        let loopback = found
            .iter()
            .find(|found| found.provider == "tcp;ofi_rxm" && found.address.as_deref() == Some("127.0.0.1"))
            .expect("tcp over loopback is everywhere");
        let interface = Some("127.0.0.1".to_owned());
        let port = OfiPort::open(&OfiConfig { interface, ..OfiConfig::default() }).expect("it opens");
        assert_eq!(loopback.caps.as_ref().ok(), Some(port.caps()));
    }
}
