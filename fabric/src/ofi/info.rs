//! Which fabric interface to use, and what it can do.

use std::ffi::{CStr, CString, c_char};
use std::net::IpAddr;
use std::ptr::null;

use samite_fabric_sys as sys;

use super::OfiConfig;
use super::object::{InfoList, check, text};
use crate::{Caps, Order, PortError};

/// One fabric interface, chosen.
#[derive(Debug)]
pub(super) struct Info(InfoList);

/// The modes of registration that this port copes with. `FI_MR_RAW` is not among them: libfabric then offers
/// no provider that needs it.
const MR_MODES: i32 = sys::FI_MR_LOCAL
    | sys::FI_MR_VIRT_ADDR
    | sys::FI_MR_ALLOCATED
    | sys::FI_MR_PROV_KEY
    | sys::FI_MR_ENDPOINT;

/// One operation moves at most this many bytes, whatever the provider allows: its completion is the only news
/// of it.
const RMA_MAX: usize = 1 << 30;

impl Info {
    /// Asks libfabric what there is, and takes the first that fits: the provider's own order, IPv4 before
    /// IPv6.
    pub(super) fn choose(config: &OfiConfig) -> Result<Self, PortError> {
        let hints = hints(&config.provider)?;
        let mut list = std::ptr::null_mut();
        // SAFETY: the hints are alive during the call, which stores a list on success only.
        let status =
            unsafe { sys::fi_getinfo(sys::API_VERSION, null(), null(), 0, hints.as_ptr(), &mut list) };
        if status == -sys::FI_ENODATA {
            return Err(no_provider(config));
        }
        check("fi_getinfo", status)?;
        // SAFETY: the list was just returned, to us alone.
        let list = unsafe { InfoList::new(list) }.ok_or_else(|| no_provider(config))?;

        let fits = |info: &&sys::fi_info| {
            let attributes = attributes(info);
            attributes.tx.msg_order & sys::FI_ORDER_SAS != 0
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
            (!is_near, config.stays_on_host && !is_loopback, info.addr_format == sys::FI_SOCKADDR_IN6)
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

    /// What the port can do over this interface. `cleanup` says that removing an address closes its
    /// connection.
    pub(super) fn caps(&self, config: &OfiConfig, cleanup: bool) -> Caps {
        let Attributes { info, tx, ep, domain, fabric } = self.attributes();
        let packet_max = config.packet_max.min(ep.max_msg_size);
        let rma_max = ep.max_msg_size.min(RMA_MAX);
        let has = |capabilities| info.caps & capabilities == capabilities;
        let mut order = Order::SEND_AFTER_SEND;
        order.set(Order::SEND_AFTER_PUT, tx.msg_order & sys::FI_ORDER_SAW != 0);
        let put_after_put = tx.msg_order & (sys::FI_ORDER_WAW | sys::FI_ORDER_RMA_WAW) != 0;
        order.set(Order::PUT_AFTER_PUT, put_after_put && ep.max_order_waw_size >= rma_max);
        Caps {
            name: string(fabric.prov_name).unwrap_or_default(),
            short_max: tx.inject_size.min(packet_max),
            packet_max,
            zcopy_max: if tx.iov_limit >= 2 { packet_max } else { 0 },
            rma_max,
            rma_depth: config.operations_max,
            put: has(sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_WRITE),
            get: !self.closing_in_transfer_crashes() && has(sys::FI_RMA | sys::FI_READ | sys::FI_REMOTE_READ),
            immediate_bits: 8 * domain.cq_data_size.min(8) as u32,
            order,
            target_must_poll: domain.data_progress != sys::FI_PROGRESS_AUTO,
            // The rxm protocol closes a removed peer's connection and cancels what is queued on it
            // (rxm_conn.c and tcpx_ep.c at v1.17.0), where the library was told to do so.
            fence: cleanup && ep.protocol == sys::FI_PROTO_RXM,
            peers_max: config.peers_max,
        }
    }

    /// Whether the process crashes when it closes a connection, by a fence or at its end, over which the
    /// answer to a read or a write with immediate data is just coming in.
    ///
    /// Over tcp it does (seen at 1.17.0, same code at 2.4): tcpx_ep_flush_all_queues completes the read
    /// twice, since it is both on the queue of reads and the current transfer, and completes the write
    /// although it has no context; rxm_handle_comp_error then follows a null pointer. A peer that stops at
    /// the wrong moment must not take others with it, so neither is used: there is no get, and the data of a
    /// put with an immediate goes before it, so that the immediate's own write is over as soon as it begins.
    /// This is the one thing known by name: no attribute tells it.
    pub(super) fn closing_in_transfer_crashes(&self) -> bool {
        let name = string(self.attributes().fabric.prov_name).unwrap_or_default();
        matches!(name.split(';').next(), Some("tcp" | "net"))
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
    /// What two ports must agree in to understand each other's addresses.
    pub(super) fn format(&self) -> [u8; 8] {
        (u64::from(self.info.addr_format) << 32 | u64::from(self.ep.protocol)).to_le_bytes()
    }
}

fn attributes(info: &sys::fi_info) -> Attributes<'_> {
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

fn hints(provider: &str) -> Result<InfoList, PortError> {
    let name = CString::new(provider)
        .map_err(|_| PortError::Unsupported { what: "use a provider whose name has a NUL" })?;
    // SAFETY: a fresh entry has all attributes, zeroed and owned by it; it frees the name with free(3), which
    // is why the name is a copy from strdup(3).
    unsafe {
        let hints = InfoList::new(sys::fi_allocinfo())
            .ok_or_else(|| super::object::error("fi_allocinfo", sys::FI_ENOMEM))?;
        let info = &mut *hints.as_ptr();
        info.caps = sys::FI_MSG | sys::FI_RMA;
        info.mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
        (*info.ep_attr).type_ = sys::FI_EP_RDM;
        (*info.domain_attr).threading = sys::FI_THREAD_DOMAIN;
        (*info.domain_attr).data_progress = sys::FI_PROGRESS_MANUAL;
        (*info.domain_attr).av_type = sys::FI_AV_TABLE;
        (*info.domain_attr).mr_mode = MR_MODES;
        (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        Ok(hints)
    }
}

fn no_provider(config: &OfiConfig) -> PortError {
    PortError::Provider {
        call: "fi_getinfo",
        code: sys::FI_ENODATA,
        text: text(sys::FI_ENODATA),
        hint: format!(
            "libfabric offers no provider {} for connectionless messages and RMA here: `fi_info -t FI_EP_RDM` lists those \
             it has, and FI_PROVIDER, if set, must not exclude it",
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
                "{} has no interface or address {name} that keeps messages in order; it has {}",
                config.provider,
                found.join(", ")
            ),
            None => format!("{} does not keep messages in order", config.provider),
        },
    }
}

/// The interface's own address as people write it, without the port: `127.0.0.1`, `::1`.
fn source(info: &sys::fi_info) -> Option<String> {
    if info.src_addr.is_null() {
        return None;
    }
    match info.addr_format {
        sys::FI_SOCKADDR_IN if info.src_addrlen >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the format says that a sockaddr_in is there, and the length that it is whole.
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

fn string(text: *const c_char) -> Option<String> {
    // SAFETY: the strings in a fi_info are null or end in NUL, and live as long as it does.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
