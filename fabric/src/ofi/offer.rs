//! A provider's offer, as plain data, and this port's plan for it.
//!
//! Everything that depends on the provider is decided here, by functions whose only inputs are the attributes that the
//! provider returned and the configuration. So the decisions can be tested for providers whose hardware is not
//! available, with the attributes from the providers' sources ([`recorded`]).

pub mod recorded;

use samite_fabric_sys as sys;

pub use super::memory::Mode;

use super::info::{Attributes, string};
use super::slots::IOV_MAX;
use super::{Loaded, OfiConfig, PACKET_MIN};
use crate::{Caps, Order, PortError, Reach};

/// The properties of one interface of a provider on which this port depends. Flags and numbers are libfabric's
/// (fi_getinfo(3), fi_endpoint(3), fi_domain(3)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// `fabric_attr->prov_name`.
    pub provider: String,
    /// `caps`.
    pub caps: u64,
    /// `mode`: the provider's demands on each call.
    pub mode: u64,
    /// `tx_attr->msg_order`.
    pub msg_order: u64,
    /// `tx_attr->inject_size`.
    pub inject_size: usize,
    /// `tx_attr->iov_limit`.
    pub iov_limit: usize,
    /// `ep_attr->protocol`.
    pub protocol: u32,
    /// `ep_attr->max_msg_size`.
    pub max_msg_size: usize,
    /// `ep_attr->max_order_waw_size`.
    pub max_order_waw_size: usize,
    /// `ep_attr->max_order_raw_size`.
    pub max_order_raw_size: usize,
    /// `domain_attr->mr_mode`.
    pub mr_mode: i32,
    /// `domain_attr->mr_key_size`, in bytes.
    pub mr_key_size: usize,
    /// `domain_attr->cq_data_size`, in bytes.
    pub cq_data_size: usize,
    /// `domain_attr->data_progress`.
    pub data_progress: u32,
}

/// This port's plan for an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The capabilities of the port.
    pub caps: Caps,
    /// The rules of registration.
    pub registration: Mode,
    /// True if the data of a put travels before its immediate, in a separate write.
    pub notes_alone: bool,
    /// The number of entries of the completion queue: enough for everything that can be outstanding or arrive. So the
    /// queue cannot overflow. Some providers do not detect an overflow.
    pub completions: usize,
}

/// The demands of providers (mode bits) that this port meets: each operation has 64 bytes of context that belong to the
/// provider until the operation completes.
pub(super) const MODES: u64 = sys::FI_CONTEXT | sys::FI_CONTEXT2;

/// The supported rules of registration. `FI_MR_RAW` is not among them. No known provider demands it, and libfabric
/// does not offer the port a provider that demands an unsupported rule.
pub(super) const MR_MODES: i32 = sys::FI_MR_LOCAL
    | sys::FI_MR_VIRT_ADDR
    | sys::FI_MR_ALLOCATED
    | sys::FI_MR_PROV_KEY
    | sys::FI_MR_ENDPOINT;

/// The maximum length of one operation in bytes, even if the provider allows more. A longer operation would take long
/// without a sign of progress, because its completion is the only report.
const RMA_MAX: usize = 1 << 30;

impl Offer {
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let Attributes { info, tx, ep, domain, fabric } = attributes;
        Self {
            provider: string(fabric.prov_name).unwrap_or_default(),
            caps: info.caps,
            mode: info.mode,
            msg_order: tx.msg_order,
            inject_size: tx.inject_size,
            iov_limit: tx.iov_limit,
            protocol: ep.protocol,
            max_msg_size: ep.max_msg_size,
            max_order_waw_size: ep.max_order_waw_size,
            max_order_raw_size: ep.max_order_raw_size,
            mr_mode: domain.mr_mode,
            mr_key_size: domain.mr_key_size,
            cq_data_size: domain.cq_data_size,
            data_progress: domain.data_progress,
        }
    }

    /// Returns this port's plan.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] if the provider demands more than this port supports, or promises too little.
    pub fn plan(&self, config: &OfiConfig, loaded: Loaded) -> Result<Plan, PortError> {
        let operations = config.checked()?;
        let unless = |fits: bool, what| if fits { Ok(()) } else { Err(PortError::Unsupported { what }) };
        unless(self.keeps_order(), "use a provider that does not keep messages in order (FI_ORDER_SAS)")?;
        unless(self.mode & !MODES == 0, "meet this provider's demands on each call (its mode bits)")?;
        unless(self.mr_mode & !MR_MODES == 0, "register memory as this provider demands (its mr_mode)")?;
        let packet_max = config.packet_max.min(self.max_msg_size).min(self.packet_max(loaded));
        unless(packet_max >= PACKET_MIN, "use a provider whose messages are under 512 bytes")?;

        let rma_max = self.max_msg_size.min(RMA_MAX);
        let has = |capabilities| self.caps & capabilities == capabilities;
        let mut order = Order::SEND_AFTER_SEND;
        order.set(Order::SEND_AFTER_PUT, self.msg_order & sys::FI_ORDER_SAW != 0);
        let put_after_put = self.msg_order & (sys::FI_ORDER_WAW | sys::FI_ORDER_RMA_WAW) != 0;
        let put_after_put = put_after_put && self.max_order_waw_size >= rma_max;
        order.set(Order::PUT_AFTER_PUT, put_after_put);
        // The notification of a `put_imm` is a write, with the bytes or without any, so it is ordered after earlier
        // puts as writes are.
        order.set(Order::NOTE_AFTER_PUT, put_after_put && self.cq_data_size > 0);
        let get_after_put = self.msg_order & (sys::FI_ORDER_RAW | sys::FI_ORDER_RMA_RAW) != 0;
        let put = has(sys::FI_RMA | sys::FI_WRITE | sys::FI_REMOTE_WRITE);
        let get =
            !self.closing_in_transfer_crashes() && has(sys::FI_RMA | sys::FI_READ | sys::FI_REMOTE_READ);
        order.set(Order::GET_AFTER_PUT, get && get_after_put && self.max_order_raw_size >= rma_max);
        let caps = Caps {
            name: self.provider.clone(),
            short_max: self.inject_size.min(packet_max),
            packet_max,
            fragment_max: packet_max,
            zcopy_max: if self.iov_limit >= 2 { packet_max } else { 0 },
            rma_max,
            put_bytes_max: if put { packet_max } else { 0 },
            get_bytes_max: 0,
            iov_max: if put { self.iov_limit.min(IOV_MAX) } else { 0 },
            rma_depth: config.operations_max,
            put: Reach::Any.when(put),
            get: Reach::Any.when(get),
            // libfabric's atomics are not requested. With them, tcp;ofi_rxm needs a thread for progress, and does not
            // keep the orders of writes (FI_ORDER_SAW, FI_ORDER_WAW) that it keeps without them.
            change: Reach::None,
            map: false,
            passive: self.data_progress == sys::FI_PROGRESS_AUTO,
            immediate_bits: 8 * self.cq_data_size.min(8) as u32,
            order,
            // The rxm protocol closes a removed peer's connection and cancels the operations queued on it (rxm_conn.c
            // and tcpx_ep.c at v1.17.0), if FI_AV_REMOVE_CLEANUP is set.
            fence: loaded.closes_connections && self.protocol == sys::FI_PROTO_RXM,
            peers_max: config.peers_max,
            dear_packets: self.uses_sockets(),
        };
        let slots = config.receive_buffers as usize + config.send_buffers as usize + operations as usize;
        Ok(Plan {
            caps,
            registration: Mode::new(self.mr_mode, self.mr_key_size),
            notes_alone: self.closing_in_transfer_crashes(),
            completions: 2 * slots,
        })
    }

    /// Returns the longest packet, in bytes, that the provider sends and receives without a rendezvous of its own. tcp
    /// and net alone send a message of any length behind its header.
    fn packet_max(&self, loaded: Loaded) -> usize {
        const USUAL: usize = 16 << 10;
        match (Self::core(&self.provider), self.protocol == sys::FI_PROTO_RXM) {
            ("tcp" | "net", false) => usize::MAX,
            ("tcp", true) => loaded.rxm_packet_max,
            _ => USUAL,
        }
    }

    /// Returns the limit, in bytes, in which both ends of a connection must agree, or 0 if there is none.
    pub(super) fn rxm_limit(&self, loaded: Loaded) -> usize {
        match (Self::core(&self.provider), self.protocol == sys::FI_PROTO_RXM) {
            ("tcp", true) => loaded.rxm_packet_max,
            _ => 0,
        }
    }

    pub(super) fn keeps_order(&self) -> bool {
        self.msg_order & sys::FI_ORDER_SAS != 0
    }

    /// Returns true if the provider has a defect that crashes the process when a connection is closed, by a fence or at
    /// the end of the connection, while the answer to a read, or a write with immediate data, is arriving over it.
    ///
    /// The tcp and net providers have this defect (seen at 1.17.0, same code at 2.4). Its function tcpx_ep_flush_all_queues
    /// completes the read twice, since the read is both in the queue of reads and the current transfer. The function
    /// also completes the write, although the write has no context, and rxm_handle_comp_error then follows a null
    /// pointer. A peer that stops at the wrong moment must not crash others. So the port offers no gets on this
    /// provider, and puts the data of a put with an immediate in a separate write before the immediate. The write with
    /// the immediate then has no data, so it cannot be interrupted in the middle. The provider's name decides, because no
    /// attribute reveals the defect. It also decides on the longest packet, and on the cost of packets.
    ///
    /// A plain write is safe, at either end:
    ///
    /// * At the target its entry is marked as internal, and is in `cur_rx.entry` only (tcpx_op_write and xnet_op_write,
    ///   prov/tcp and prov/net at v1.17.0; xnet_handle_write, prov/tcp at v2.5.1). tcpx_ep_flush_all_queues and
    ///   xnet_ep_flush_all_queues pass this entry to tcpx_cq_report_error, xnet_cq_report_error and xnet_report_error,
    ///   which return without a report for internal entries. They then free it, once.
    /// * At the origin each entry is in `cur_tx.entry`, in `tx_queue` or in `need_ack_queue`, since tcpx_progress_tx,
    ///   xnet_progress_tx and, at v2.5.1, xnet_complete_tx remove it from one before they add it to the next. Its
    ///   context is the buffer that rxm_ep_rma_common has allocated, in the state `RXM_RMA`, for which
    ///   rxm_handle_comp_error has a branch (prov/rxm at both tags).
    /// * The write with an immediate that this port uses has no data, so tcpx_op_write and its successors complete it
    ///   in the call that reads its header, before any other code can flush the queues.
    ///
    /// `tests/killed.rs` ends origins and targets of writes, and `ci/put-kill.sh` does so 2,000 times on each provider.
    pub(super) fn closing_in_transfer_crashes(&self) -> bool {
        matches!(Self::core(&self.provider), "tcp" | "net")
    }

    /// Returns true if the provider sends each packet by a system call.
    fn uses_sockets(&self) -> bool {
        matches!(Self::core(&self.provider), "tcp" | "net" | "sockets" | "udp")
    }

    /// Returns the first part of a provider's name, which names the provider below a utility provider such as ofi_rxm.
    pub(super) fn core(provider: &str) -> &str {
        provider.split(';').next().unwrap_or(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: Loaded = Loaded { closes_connections: true, rxm_packet_max: 16 << 10 };

    #[test]
    fn each_provider_has_its_plan() {
        let plan = |offer: &Offer| match offer.plan(&OfiConfig::default(), LOADED) {
            Ok(plan) => format!("{plan:#?}"),
            Err(error) => error.to_string(),
        };
        let plans: String =
            recorded::all().iter().map(|offer| format!("{}: {}\n", offer.provider, plan(offer))).collect();
        insta::assert_snapshot!(plans);
    }

    #[test]
    fn what_cannot_be_met_is_refused() {
        let offer = recorded::cxi();
        let said = |offer: Offer| offer.plan(&OfiConfig::default(), LOADED).expect_err("refused").to_string();
        assert!(said(Offer { mode: sys::FI_CONTEXT | sys::FI_RX_CQ_DATA, ..offer.clone() }).contains("mode"));
        assert!(said(Offer { mr_mode: sys::FI_MR_RAW, ..offer.clone() }).contains("mr_mode"));
        assert!(said(Offer { msg_order: sys::FI_ORDER_SAW, ..offer.clone() }).contains("FI_ORDER_SAS"));
        assert!(said(Offer { max_msg_size: 511, ..offer }).contains("512"));
    }

    #[test]
    fn a_small_provider_makes_a_small_port() {
        let offer = Offer {
            caps: sys::FI_MSG | sys::FI_RMA | sys::FI_READ | sys::FI_REMOTE_READ,
            max_msg_size: 2048,
            inject_size: 4096,
            cq_data_size: 0,
            max_order_waw_size: 100,
            max_order_raw_size: 100,
            ..recorded::psm3()
        };
        let plan = offer.plan(&OfiConfig::default(), LOADED).expect("it will do");
        let Caps { short_max, packet_max, rma_max, put, get, immediate_bits, order, .. } = plan.caps;
        assert_eq!((short_max, packet_max, rma_max), (2048, 2048, 2048));
        assert_eq!((put, get, immediate_bits, order), (Reach::None, Reach::Any, 0, Order::SEND_AFTER_SEND));
    }
}
