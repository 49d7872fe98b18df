//! The choice of a fabric interface, and its capabilities.

use std::ffi::{CStr, CString, c_char};
use std::net::IpAddr;
use std::ptr::null;

use samite_fabric_sys as sys;

use super::OfiConfig;
use super::object::{InfoList, check, text};
use super::offer::{MODES, MR_MODES, Offer};
use crate::PortError;

/// A chosen fabric interface.
#[derive(Debug)]
pub(super) struct Info(InfoList);

impl Info {
    /// Asks libfabric for interfaces, and chooses the best of those that fit the configuration. The criteria, in this
    /// order: it has the address `near`; it is a loopback interface, if all peers are on this host; it uses IPv4; it
    /// has immediates; it comes first in the provider's order.
    pub(super) fn choose(config: &OfiConfig) -> Result<Self, PortError> {
        let list = ask(Some(&config.provider))?.ok_or_else(|| no_provider(config))?;

        let fits = |info: &&sys::fi_info| {
            let attributes = attributes(info);
            Offer::of(&attributes).keeps_order()
                && string(attributes.fabric.prov_name).as_deref() == Some(&config.provider)
                && config.interface.as_ref().is_none_or(|name| {
                    string(attributes.domain.name).as_ref() == Some(name)
                        || source(info).as_ref() == Some(name)
                })
        };
        let preference = |info: &&sys::fi_info| {
            let address = source(info).and_then(|address| address.parse::<IpAddr>().ok());
            let is_near = config.near.is_some() && address == config.near;
            let is_loopback = address.is_some_and(|address| address.is_loopback());
            // psm3 offers each interface first without immediates, because tags can then be longer.
            let has_immediates = attributes(info).domain.cq_data_size > 0;
            let is_v6 = info.addr_format == sys::FI_SOCKADDR_IN6;
            (!is_near, config.stays_on_host && !is_loopback, is_v6, !has_immediates)
        };
        let chosen =
            list.iter().filter(fits).min_by_key(preference).ok_or_else(|| no_interface(config, &list))?;
        // SAFETY: `chosen` is an entry of a live list, which is copied.
        let copy = unsafe { InfoList::new(sys::fi_dupinfo(chosen)) };
        copy.map(Self).ok_or_else(|| super::object::error("fi_dupinfo", sys::FI_ENOMEM))
    }

    pub(super) fn as_ptr(&self) -> *mut sys::fi_info {
        self.0.as_ptr()
    }

    pub(super) fn attributes(&self) -> Attributes<'_> {
        // SAFETY: the one entry of the list lives as long as `self`.
        attributes(unsafe { &*self.0.as_ptr() })
    }
}

/// An interface and its attributes, all of which libfabric allocates.
pub(super) struct Attributes<'a> {
    pub(super) info: &'a sys::fi_info,
    pub(super) tx: &'a sys::fi_tx_attr,
    pub(super) ep: &'a sys::fi_ep_attr,
    pub(super) domain: &'a sys::fi_domain_attr,
    pub(super) fabric: &'a sys::fi_fabric_attr,
}

impl Attributes<'_> {
    /// Returns the properties in which two ports must agree to understand each other's addresses, and to connect.
    /// `limit` is in bytes. rxm rejects a connection from a port with another `limit` (rxm_process_connreq in
    /// prov/rxm/src/rxm_conn.c at v1.17.0).
    pub(super) fn format(&self, limit: usize) -> [u8; 8] {
        let limit = u64::from(u32::try_from(limit).unwrap_or(u32::MAX));
        let (format, protocol) = (u64::from(self.info.addr_format), u64::from(self.ep.protocol));
        ((format & 0xffff) << 48 | limit << 16 | protocol & 0xffff).to_le_bytes()
    }
}

/// Returns true if two formats differ in the limit alone.
pub(super) fn differ_in_limit(a: &[u8; 8], b: &[u8]) -> bool {
    a[..2] == b[..2] && a[6..] == b[6..] && a[2..6] != b[2..6]
}

pub(super) fn attributes(info: &sys::fi_info) -> Attributes<'_> {
    // SAFETY: fi_getinfo and fi_dupinfo return entries with all attributes present, owned by the entry.
    unsafe {
        Attributes {
            info,
            tx: &*info.tx_attr,
            ep: &*info.ep_attr,
            domain: &*info.domain_attr,
            fabric: &*info.fabric_attr,
        }
    }
}

/// Returns the interfaces that libfabric offers for the port's needs, of one provider or of all providers. Returns
/// `None` if there is none.
pub(super) fn ask(provider: Option<&str>) -> Result<Option<InfoList>, PortError> {
    let hints = hints(provider)?;
    let mut list = std::ptr::null_mut();
    // SAFETY: the hints are alive during the call, which stores a list on success only.
    let status = unsafe { sys::fi_getinfo(sys::API_VERSION, null(), null(), 0, hints.as_ptr(), &mut list) };
    if status == -sys::FI_ENODATA {
        return Ok(None);
    }
    check("fi_getinfo", status)?;
    // SAFETY: the list was just returned and has no other owner.
    Ok(unsafe { InfoList::new(list) })
}

fn hints(provider: Option<&str>) -> Result<InfoList, PortError> {
    let name = provider
        .map(CString::new)
        .transpose()
        .map_err(|_| PortError::Unsupported { what: "use a provider whose name has a NUL" })?;
    // SAFETY: a new entry owns all its attributes, which are zeroed. libfabric frees the entry's name with free(3),
    // so the name is a copy from strdup(3).
    unsafe {
        let hints = InfoList::new(sys::fi_allocinfo())
            .ok_or_else(|| super::object::error("fi_allocinfo", sys::FI_ENOMEM))?;
        let info = &mut *hints.as_ptr();
        info.caps = sys::FI_MSG | sys::FI_RMA;
        info.mode = MODES;
        (*info.ep_attr).type_ = sys::FI_EP_RDM;
        (*info.domain_attr).threading = sys::FI_THREAD_DOMAIN;
        (*info.domain_attr).data_progress = sys::FI_PROGRESS_MANUAL;
        (*info.domain_attr).av_type = sys::FI_AV_TABLE;
        (*info.domain_attr).mr_mode = MR_MODES;
        if let Some(name) = name {
            (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
        Ok(hints)
    }
}

fn no_provider(config: &OfiConfig) -> PortError {
    PortError::Provider {
        call: "fi_getinfo",
        code: sys::FI_ENODATA,
        text: text(sys::FI_ENODATA),
        hint: format!(
            "libfabric has no provider `{}` for connectionless messages and RMA here: `samite info --providers` lists those \
             it has, `fi_info` says more, and FI_PROVIDER, if set, must not exclude it",
            config.provider
        ),
    }
}

fn no_interface(config: &OfiConfig, list: &InfoList) -> PortError {
    let mut found: Vec<_> = list.iter().filter_map(|info| string(attributes(info).domain.name)).collect();
    found.sort();
    found.dedup();
    PortError::Provider {
        call: "fi_getinfo",
        code: sys::FI_ENODATA,
        text: text(sys::FI_ENODATA),
        hint: match &config.interface {
            Some(name) => format!(
                "{} has no interface or address `{name}` that keeps messages in order: choose one of {}",
                config.provider,
                found.join(", ")
            ),
            None => format!(
                "{} does not keep messages in order here: `samite info --providers` lists those that do, perhaps with \
                 `;ofi_rxm` behind this name",
                config.provider
            ),
        },
    }
}

/// Returns the interface's own address in its usual notation, without a port number: `127.0.0.1`, `::1`.
pub(super) fn source(info: &sys::fi_info) -> Option<String> {
    if info.src_addr.is_null() {
        return None;
    }
    match info.addr_format {
        sys::FI_SOCKADDR_IN if info.src_addrlen >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: by its format the address is a sockaddr_in, and by its length it is complete.
            let address = unsafe { info.src_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(std::net::Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).to_string())
        }
        sys::FI_SOCKADDR_IN6 if info.src_addrlen >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above, with a sockaddr_in6.
            let address = unsafe { info.src_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(std::net::Ipv6Addr::from(address.sin6_addr.s6_addr).to_string())
        }
        _ => None,
    }
}

pub(super) fn string(text: *const c_char) -> Option<String> {
    // SAFETY: the strings in a fi_info are null or end in NUL, and live as long as the fi_info.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
