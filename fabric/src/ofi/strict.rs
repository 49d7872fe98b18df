//! The rules of a provider whose hardware is not available, imposed on an available one: for tests.
//!
//! The tables of functions in libfabric's objects are replaced by our own, as in libfabric's hooking providers
//! (prov/hook), so that the port's calls come here first. Our functions pass on the calls that the imitated provider
//! would accept, and give the port the answers of that provider. If the port breaks a rule, our functions end the
//! process and name the rule, even where a real provider would fail only later:
//!
//! | offer | imposed rule |
//! | --- | --- |
//! | `inject_size`, `iov_limit`, `max_msg_size` | longer injections, more pieces, longer operations are not posted |
//! | `cq_data_size` | an immediate fits into this number of bytes |
//! | `mode` | marks are written to the context when an operation is posted, and must still be there when it ends |
//! | `FI_MR_LOCAL` | local bytes lie in an open registration that allows the access and whose descriptor is given |
//! | `FI_MR_PROV_KEY` | the key asked for is ignored; keys are short, and follow one another |
//! | `FI_MR_VIRT_ADDR` | remote places are virtual addresses, for the provider below too |
//! | any | at most [`REGISTRATIONS_MAX`] registrations are open |
//! | `FI_MR_ENDPOINT` | a registration has no key and does not work until it is bound and enabled |
//! | no `FI_ORDER_SAW` | a write begins when completions are next read, so packets sent until then overtake it |
//! | no `FI_ORDER_WAW` | writes begin in the reverse of their order |
//! | any | no context is in use twice, and no more operations are in flight than the completion queue holds |

mod operations;
mod registration;

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use samite_fabric_sys as sys;

use self::operations::Write;
use self::registration::Mr;
use super::OfiConfig;
use super::endpoint::Domain;
use super::info::Info;
use super::object::Object;
use super::offer::{Mode, Offer};
use crate::PortError;

/// Returns the offer for which the port must plan. This is the offer that libfabric has returned, or, if the rules of
/// another provider are imposed, the common part of both.
///
/// # Errors
/// [`PortError::Unsupported`] if the provider below has rules of registration, demands a mode that the imposed rules do
/// not demand, or takes fewer pieces per operation; or if it is a provider for which
/// [`Offer::closing_in_transfer_crashes`] returns true.
pub(super) fn adopt(config: &OfiConfig, info: Info, below: Offer) -> Result<(Info, Offer), PortError> {
    let Some(rules) = &config.rules else { return Ok((info, below)) };
    let has_own = below.mr_mode != 0 || below.mode & !rules.mode != 0 || below.iov_limit < rules.iov_limit;
    if has_own || below.closing_in_transfer_crashes() {
        return Err(PortError::Unsupported { what: "impose rules on a provider that has its own" });
    }
    let offer = Offer {
        caps: rules.caps & below.caps,
        msg_order: rules.msg_order & below.msg_order,
        inject_size: rules.inject_size.min(below.inject_size),
        // [`Offer::plan`] reports a fence only for FI_PROTO_RXM, because the provider must close the connection of a
        // fenced peer. Here that is the provider below. So this field is the protocol of libfabric that the provider
        // below uses, and not that of the imitated provider.
        protocol: below.protocol,
        max_msg_size: rules.max_msg_size.min(below.max_msg_size),
        max_order_waw_size: rules.max_order_waw_size.min(below.max_order_waw_size),
        max_order_raw_size: rules.max_order_raw_size.min(below.max_order_raw_size),
        cq_data_size: rules.cq_data_size.min(below.cq_data_size),
        data_progress: if below.data_progress == sys::FI_PROGRESS_MANUAL {
            below.data_progress
        } else {
            rules.data_progress
        },
        ..rules.clone()
    };
    // The provider below must itself use virtual addresses for remote places, and does so if its domain is opened with
    // that mode (ofi_mr_map_init at v1.17.0).
    // SAFETY: the entry has its attributes, and no other reference to them exists.
    unsafe { (*(*info.as_ptr()).domain_attr).mr_mode |= offer.mr_mode & sys::FI_MR_VIRT_ADDR }
    Ok((info, offer))
}

/// Imposes the rules of `offer` on an endpoint and its objects, with a completion queue of
/// `completions` entries.
///
/// # Safety
/// The objects are open, and nothing was posted or registered on them.
pub(super) unsafe fn impose(offer: &Offer, completions: usize, domain: &Domain, ep: &Object<sys::fid_ep>) {
    let (domain, cq, ep) = (domain.as_ptr(), domain.completions(), ep.as_ptr());
    // SAFETY: the objects are open and have all these tables, which the provider does not change. The rules
    // are leaked, so that their tables live as long as any object that points to them.
    unsafe {
        let below = Below {
            msg: *(*ep).msg,
            rma: *(*ep).rma,
            cq: *(*cq).ops,
            mr: *(*domain).mr,
            fid: *(*ep).fid.ops,
        };
        let rules = Box::into_raw(Box::new(Rules {
            msg: operations::messages(below.msg),
            rma: operations::one_sided(below.rma),
            cq: operations::completions(below.cq),
            mr: registration::table(below.mr),
            fid: operations::object(below.fid),
            below,
            mode: Mode::new(offer.mr_mode, offer.mr_key_size),
            offer: offer.clone(),
            completions,
            ep,
            registrations: AtomicUsize::new(0),
            state: Mutex::default(),
        }));
        (*ep).msg = &raw mut (*rules).msg;
        (*ep).rma = &raw mut (*rules).rma;
        (*cq).ops = &raw mut (*rules).cq;
        (*domain).mr = &raw mut (*rules).mr;
        (*ep).fid.ops = &raw mut (*rules).fid;
    }
}

/// Our tables, which replace the provider's tables, with the state of one endpoint. The objects point to tables within
/// this struct, so our functions find the whole struct from an object's pointer to its table.
#[repr(C)]
struct Rules {
    msg: sys::fi_ops_msg,
    rma: sys::fi_ops_rma,
    cq: sys::fi_ops_cq,
    mr: sys::fi_ops_mr,
    /// The table of the endpoint's `fid`.
    fid: sys::fi_ops,
    below: Below,
    offer: Offer,
    mode: Mode,
    completions: usize,
    ep: *mut sys::fid_ep,
    /// The number of open registrations.
    registrations: AtomicUsize,
    state: Mutex<State>,
}

/// The provider's own tables.
struct Below {
    msg: sys::fi_ops_msg,
    rma: sys::fi_ops_rma,
    cq: sys::fi_ops_cq,
    mr: sys::fi_ops_mr,
    fid: sys::fi_ops,
}

#[derive(Default)]
struct State {
    /// The registrations that each operation uses, by the operation's context.
    in_flight: HashMap<usize, Vec<*const Mr>>,
    /// Writes that have not started.
    held: VecDeque<Write>,
    /// The contexts of cancelled writes, whose completions the port has not read yet.
    cancelled: VecDeque<*mut c_void>,
}

/// The largest number of open registrations. Network cards permit more, but the tests must reach the limit.
const REGISTRATIONS_MAX: usize = 64;

impl Rules {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an operation is about to be posted: its context belongs to the provider from now on.
    fn take_off(&self, context: *mut c_void, used: Vec<*const Mr>) {
        let mut state = self.state();
        assert!(!context.is_null(), "an operation without a context");
        assert!(state.in_flight.insert(context as usize, used).is_none(), "a context in use twice");
        assert!(state.in_flight.len() <= self.completions, "more operations than completions have room");
        for (place, mark) in self.marks(context) {
            // SAFETY: the caller posts with a context of the length that `mode` demands, which belongs to the
            // provider until the operation has ended.
            unsafe { place.write(mark) };
        }
    }

    /// Notes that an operation was refused, or has ended.
    fn land(&self, context: *mut c_void) {
        if self.state().in_flight.remove(&(context as usize)).is_some() {
            for (place, mark) in self.marks(context) {
                // SAFETY: as above. The caller gets the context back only when this function returns.
                assert_eq!(unsafe { place.read() }, mark, "a context written to while it was in use");
            }
        }
    }

    /// Returns the provider's marks in a context, word by word (fi_getinfo(3): four or eight).
    fn marks(&self, context: *mut c_void) -> impl Iterator<Item = (*mut usize, usize)> {
        let words = match self.offer.mode {
            mode if mode & sys::FI_CONTEXT2 != 0 => 8,
            mode if mode & sys::FI_CONTEXT != 0 => 4,
            _ => 0,
        };
        let start = context.cast::<usize>();
        (0..words).map(move |word| (start.wrapping_add(word), !(start as usize) ^ word))
    }
}
