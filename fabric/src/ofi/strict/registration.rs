//! Registrations by the rules of the imitated provider. Each is based on a registration of the provider below.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use samite_fabric_sys as sys;

use super::{REGISTRATIONS_MAX, Rules};

/// A registration for the port.
#[repr(C)]
pub(super) struct Mr {
    fid: sys::fid_mr,
    rules: *const Rules,
    domain: *mut sys::fid,
    start: usize,
    len: usize,
    access: u64,
    key: u64,
    is_bound: bool,
    /// The registration of the provider below. It is null until this registration is enabled.
    below: *mut sys::fid_mr,
}

/// Returns the provider's table, with our own function for registration.
pub(super) fn table(below: sys::fi_ops_mr) -> sys::fi_ops_mr {
    sys::fi_ops_mr { reg: Some(register), ..below }
}

/// Returns the registration of a descriptor, and the corresponding descriptor of the provider below. Returns `None` if
/// no descriptor is given and none is needed.
///
/// # Safety
/// `descriptor` is null, or is the descriptor of an open registration.
pub(super) unsafe fn described(
    rules: &Rules,
    descriptor: *mut c_void,
    start: *const c_void,
    len: usize,
    access: u64,
) -> Option<(*const Mr, *mut c_void)> {
    if descriptor.is_null() {
        assert!(!rules.mode.local || len == 0, "local memory without a descriptor (FI_MR_LOCAL)");
        return None;
    }
    // SAFETY: the descriptor of a registration is its address (see `register`), and the registration is open.
    let mr = unsafe { &*descriptor.cast::<Mr>() };
    assert!(std::ptr::eq(mr.rules, rules), "a descriptor of another domain");
    let start = start as usize;
    let is_inside = mr.start <= start && start + len <= mr.start + mr.len;
    assert!(is_inside, "local memory outside of its registration");
    assert_eq!(mr.access & access, access, "local memory that was registered for another use");
    assert!(!mr.below.is_null(), "a registration that is not enabled (FI_MR_ENDPOINT)");
    // SAFETY: the registration is enabled, so it has an open registration of the provider below.
    Some((mr, unsafe { sys::fi_mr_desc(mr.below) }))
}

unsafe extern "C" fn register(
    fid: *mut sys::fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut sys::fid_mr,
    _context: *mut c_void,
) -> c_int {
    assert!(len > 0 && offset == 0 && flags == 0, "an empty or an unusual registration");
    // SAFETY: the caller registers at a domain whose table is one of ours, and part of its rules.
    let rules = unsafe {
        let table = (*fid.cast::<sys::fid_domain>()).mr;
        &*table.byte_sub(offset_of!(Rules, mr)).cast::<Rules>()
    };
    if rules.registrations.load(Ordering::Relaxed) == REGISTRATIONS_MAX {
        return -sys::FI_ENOMEM;
    }
    let key = if rules.mode.provider_keys {
        KEYS.fetch_add(KEY_STEP, Ordering::Relaxed) & rules.mode.key_mask
    } else if requested_key <= rules.mode.key_mask {
        requested_key
    } else {
        return -sys::FI_EKEYREJECTED;
    };
    let ops = (&raw const OPS).cast_mut();
    let class = sys::fid { fclass: sys::FI_CLASS_MR as usize, context: null_mut(), ops };
    let new = Box::into_raw(Box::new(Mr {
        fid: sys::fid_mr { fid: class, mem_desc: null_mut(), key: sys::FI_KEY_NOTAVAIL },
        rules,
        domain: fid,
        start: buf as usize,
        len,
        access,
        key,
        is_bound: false,
        below: null_mut(),
    }));
    // SAFETY: the registration was just made, and the caller gets it only if it was enabled or can be enabled later.
    unsafe {
        (*new).fid.mem_desc = new.cast();
        let status = if rules.mode.bound { 0 } else { enable(new) };
        match status {
            0 => {
                rules.registrations.fetch_add(1, Ordering::Relaxed);
                *mr = new.cast();
            }
            _ => drop(Box::from_raw(new)),
        }
        status
    }
}

/// Registers the memory with the provider below.
///
/// # Safety
/// `mr` is open and not enabled.
unsafe fn enable(mr: *mut Mr) -> c_int {
    // SAFETY: the rules are never freed, and the domain lives as long as its registrations.
    unsafe {
        let Mr { rules, domain, start, len, access, key, .. } = *mr;
        let below = &raw mut (*mr).below;
        let register = (*rules).below.mr.reg.expect("the provider registers memory");
        let status = register(domain, start as *const c_void, len, access, 0, key, 0, below, null_mut());
        if status == 0 {
            assert_eq!(sys::fi_mr_key(*below), key, "the provider below takes the keys that it is given");
            (*mr).fid.key = key;
        }
        status
    }
}

unsafe extern "C" fn bind(fid: *mut sys::fid, to: *mut sys::fid, flags: u64) -> c_int {
    let mr = fid.cast::<Mr>();
    // SAFETY: the caller binds an open registration; only registrations made here have this table.
    unsafe {
        let rules = &*(*mr).rules;
        assert!(rules.mode.bound, "a registration bound to an endpoint, where that is not done");
        assert!(to.cast() == rules.ep && flags == 0, "a registration bound to another endpoint");
        (*mr).is_bound = true;
    }
    0
}

unsafe extern "C" fn control(fid: *mut sys::fid, command: c_int, _: *mut c_void) -> c_int {
    assert_eq!(command, sys::FI_ENABLE as c_int, "a command that registrations do not know");
    let mr = fid.cast::<Mr>();
    // SAFETY: as in `bind`.
    unsafe {
        assert!(
            (*mr).is_bound && (*mr).below.is_null(),
            "a registration enabled twice, or before it was bound"
        );
        enable(mr)
    }
}

unsafe extern "C" fn close(fid: *mut sys::fid) -> c_int {
    let mr = fid.cast::<Mr>();
    // SAFETY: the caller closes an open registration, as in `bind`, and does not use it again unless told that it
    // is still open.
    unsafe {
        let rules = &*(*mr).rules;
        let in_use = rules.state().in_flight.values().any(|used| used.contains(&mr.cast_const()));
        assert!(!(in_use && rules.mode.local), "a registration closed that an operation uses (FI_MR_LOCAL)");
        if !(*mr).below.is_null() {
            let status = sys::fi_close((*mr).below.cast());
            if status != 0 {
                return status;
            }
        }
        rules.registrations.fetch_sub(1, Ordering::Relaxed);
        drop(Box::from_raw(mr));
    }
    0
}

static OPS: sys::fi_ops = sys::fi_ops {
    size: size_of::<sys::fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: Some(control),
    ops_open: None,
    tostr: None,
    ops_set: None,
};

/// The next key, for imitated providers that choose the keys themselves. Such keys follow one another, so they are easy
/// to guess.
static KEYS: AtomicU64 = AtomicU64::new(KEY_STEP);
const KEY_STEP: u64 = 0x100;
