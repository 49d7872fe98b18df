//! Offers of providers whose hardware few machines have. These providers would return them for the hints that this port
//! passes: `FI_MSG | FI_RMA`, both context modes, and all rules of registration that the port supports (`MR_MODES`).
//! The values were read in the source files that are named at each offer. The files are from libfabric v1.17.0, and for
//! cxi, which came later, from v2.5.1. The orders of atomics are left out, because the port does not request atomics.
//! So `max_order_raw_size` is 0 if a provider orders reads after writes for atomics at most.

use samite_fabric_sys as sys;

use super::Offer;

/// Returns all recorded offers.
#[must_use]
pub fn all() -> Vec<Offer> {
    vec![verbs_rxm(), cxi(), efa(), psm3(), opx()]
}

/// Returns the offer of a provider.
#[must_use]
pub fn of(provider: &str) -> Option<Offer> {
    all().into_iter().find(|offer| offer.provider == provider)
}

/// Returns the offer of `verbs;ofi_rxm`, from prov/verbs/src/verbs_info.c and prov/rxm/src/rxm_init.c. rxm passes on
/// the orders, the lengths for which they hold, and the modes of registration of verbs, and the smaller of the two
/// values of `cq_data_size`. rxm injects by a copy to its own buffer.
#[must_use]
pub fn verbs_rxm() -> Offer {
    Offer {
        provider: "verbs;ofi_rxm".into(),
        caps: MSG_AND_RMA,
        mode: 0,
        msg_order: sys::FI_ORDER_SAS | sys::FI_ORDER_SAW | ORDERED_WRITES | ORDERED_READS,
        inject_size: 64,
        iov_limit: 4,
        protocol: sys::FI_PROTO_RXM,
        max_msg_size: 1 << 30,
        max_order_waw_size: 1 << 30,
        max_order_raw_size: 1 << 30,
        mr_mode: sys::FI_MR_LOCAL | BY_VIRTUAL_ADDRESS,
        mr_key_size: 4,
        cq_data_size: 4,
        data_progress: sys::FI_PROGRESS_MANUAL,
    }
}

/// Returns the first offer of `cxi`, from prov/cxi/src/cxip_info.c and prov/cxi/include/cxip.h.
#[must_use]
pub fn cxi() -> Offer {
    Offer {
        provider: "cxi".into(),
        caps: MSG_AND_RMA,
        mode: 0,
        msg_order: sys::FI_ORDER_SAS | ORDERED_WRITES,
        // C_MAX_IDC_PAYLOAD_UNR, from a header of the driver's.
        inject_size: 192,
        iov_limit: 1,
        protocol: sys::FI_PROTO_CXI,
        max_msg_size: u32::MAX as usize,
        max_order_waw_size: usize::MAX,
        max_order_raw_size: 0,
        mr_mode: sys::FI_MR_PROV_KEY | sys::FI_MR_ENDPOINT,
        mr_key_size: 8,
        cq_data_size: 8,
        data_progress: sys::FI_PROGRESS_MANUAL,
    }
}

/// Returns the offer of `efa` for an endpoint of type RDM, from prov/efa/src/efa_prov_info.c. An injected message must
/// fit in one of the device's packets of 8 KiB, together with the headers.
#[must_use]
pub fn efa() -> Offer {
    Offer {
        provider: "efa".into(),
        caps: MSG_AND_RMA,
        mode: 0,
        msg_order: sys::FI_ORDER_SAS,
        inject_size: 8000,
        iov_limit: 4,
        protocol: sys::FI_PROTO_EFA,
        max_msg_size: usize::MAX,
        max_order_waw_size: 0,
        max_order_raw_size: 0,
        mr_mode: BY_VIRTUAL_ADDRESS,
        mr_key_size: 4,
        cq_data_size: 8,
        data_progress: sys::FI_PROGRESS_AUTO,
    }
}

/// Returns an offer of `psm3`, from prov/psm3/src/psmx3_attr.c and psmx3.h. psm3 makes several offers. This one has
/// immediates and messages.
#[must_use]
pub fn psm3() -> Offer {
    Offer {
        provider: "psm3".into(),
        caps: MSG_AND_RMA,
        mode: sys::FI_CONTEXT,
        msg_order: sys::FI_ORDER_SAS | ORDERED_WRITES | ORDERED_READS,
        inject_size: 64,
        iov_limit: 1,
        protocol: sys::FI_PROTO_PSMX3,
        max_msg_size: 0xffff_f000,
        max_order_waw_size: 4096,
        max_order_raw_size: 4096,
        mr_mode: 0,
        mr_key_size: 8,
        cq_data_size: 4,
        data_progress: sys::FI_PROGRESS_AUTO,
    }
}

/// Returns the offer of `opx`, which does not promise the order of messages, and demands that lists of buffers stay in
/// place. It is from prov/opx/include/rdma/opx/fi_opx.h and prov/opx/src/fi_opx_ep.c, the same at v2.5.1.
#[must_use]
pub fn opx() -> Offer {
    Offer {
        provider: "opx".into(),
        caps: MSG_AND_RMA,
        mode: sys::FI_CONTEXT2 | sys::FI_ASYNC_IOV,
        msg_order: 0,
        inject_size: 16,
        iov_limit: 1,
        protocol: sys::FI_PROTO_OPX,
        max_msg_size: usize::MAX,
        max_order_waw_size: usize::MAX,
        max_order_raw_size: 0,
        mr_mode: 0,
        mr_key_size: 8,
        cq_data_size: 4,
        data_progress: sys::FI_PROGRESS_MANUAL,
    }
}

const MSG_AND_RMA: u64 = sys::FI_MSG
    | sys::FI_RMA
    | sys::FI_SEND
    | sys::FI_RECV
    | sys::FI_READ
    | sys::FI_WRITE
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE;

const ORDERED_WRITES: u64 = sys::FI_ORDER_WAW | sys::FI_ORDER_RMA_WAW;

/// Reads are ordered after writes.
const ORDERED_READS: u64 = sys::FI_ORDER_RAW | sys::FI_ORDER_RMA_RAW;

const BY_VIRTUAL_ADDRESS: i32 = sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
