//! Two endpoints of one process exchange a message over tcp;ofi_rxm on the loopback interface: so the declarations, the
//! loaded library and the calls through its tables agree.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use samite_fabric_sys::*;

const PROVIDER: &CStr = c"tcp;ofi_rxm";
/// The number of reads of an empty completion queue after which the message counts as lost. They take some seconds.
const POLLS_MAX: usize = 50_000_000;

#[test]
fn a_message_crosses_the_loopback_interface() {
    let fabric = Fabric::open();
    let (sender, receiver) = (Endpoint::open(&fabric), Endpoint::open(&fabric));
    let to = sender.resolve(&receiver.name());

    let sent = *b"a heavy silk fabric";
    let mut received = [0u8; 64];
    let mut context = fi_context2::default();
    // SAFETY: the endpoint is live and has FI_MSG; buffer and context outlive the completion read below.
    let posted = unsafe {
        let buffer = received.as_mut_ptr().cast();
        fi_recv(receiver.ep, buffer, received.len(), null_mut(), FI_ADDR_UNSPEC, (&raw mut context).cast())
    };
    assert_eq!(posted, 0);

    let mut polls = 0;
    let completion = loop {
        if polls == 0 || !sender.injected.get() {
            // SAFETY: the endpoint is live and has FI_MSG; the provider has copied the bytes when it returns.
            let sent = unsafe { fi_inject(sender.ep, sent.as_ptr().cast(), sent.len(), to) };
            assert!(sent == 0 || sent == -(FI_EAGAIN as isize), "fi_inject: {}", text(sent as c_int));
            sender.injected.set(sent == 0);
        }
        assert!(sender.poll().is_none(), "an injected message has no completion");
        if let Some(completion) = receiver.poll() {
            break completion;
        }
        polls += 1;
        assert!(polls < POLLS_MAX, "the message did not arrive");
    };
    assert_eq!(completion.op_context, (&raw mut context).cast());
    assert_eq!(completion.flags & (FI_MSG | FI_RECV), FI_MSG | FI_RECV);
    assert_eq!(completion.len, sent.len());
    assert_eq!(received[..sent.len()], sent);
}

#[test]
fn an_absent_provider_is_an_error_with_a_text() {
    let hints = hints(c"no-such-provider");
    let mut found: *mut fi_info = null_mut();
    // SAFETY: the hints are live; the result is written on success only.
    let status = unsafe { fi_getinfo(API_VERSION, null(), null(), 0, hints, &mut found) };
    assert_eq!(status, -FI_ENODATA);
    assert_eq!(text(status), "No data available");
    // SAFETY: from fi_allocinfo, and not used again.
    unsafe { fi_freeinfo(hints) };
}

#[test]
fn the_installed_library_speaks_our_version() {
    // SAFETY: no preconditions.
    let version = unsafe { fi_version() };
    assert!(version >= API_VERSION, "libfabric {}.{}", FI_MAJOR(version), FI_MINOR(version));
    assert_eq!(API_VERSION, FI_VERSION(1, 17));
}

struct Fabric {
    info: *mut fi_info,
    fabric: *mut fid_fabric,
}

impl Fabric {
    fn open() -> Fabric {
        let hints = hints(PROVIDER);
        let mut info: *mut fi_info = null_mut();
        let mut fabric: *mut fid_fabric = null_mut();
        // SAFETY: the node is a C string and the hints are live; info is a list from the library, freed in drop.
        unsafe {
            let node = c"127.0.0.1".as_ptr();
            ok(fi_getinfo(API_VERSION, node, null(), FI_SOURCE | FI_NUMERICHOST, hints, &mut info));
            fi_freeinfo(hints);
            assert_eq!(CStr::from_ptr((*(*info).fabric_attr).prov_name), PROVIDER);
            assert_eq!((*info).caps & (FI_MSG | FI_RMA), FI_MSG | FI_RMA);
            ok(fi_fabric((*info).fabric_attr, &mut fabric, null_mut()));
        }
        Fabric { info, fabric }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // SAFETY: both are live and used no more; the endpoints borrow the fabric, so they are closed.
        unsafe {
            ok(fi_close(&raw mut (*self.fabric).fid));
            fi_freeinfo(self.info);
        }
    }
}

struct Endpoint<'a> {
    domain: *mut fid_domain,
    cq: *mut fid_cq,
    av: *mut fid_av,
    ep: *mut fid_ep,
    injected: std::cell::Cell<bool>,
    _fabric: &'a Fabric,
}

impl Endpoint<'_> {
    fn open(fabric: &Fabric) -> Endpoint<'_> {
        let (mut domain, mut cq, mut av, mut ep) = (null_mut(), null_mut(), null_mut(), null_mut());
        let mut cq_attr = fi_cq_attr { format: FI_CQ_FORMAT_DATA, ..Default::default() };
        let mut av_attr = fi_av_attr { type_: FI_AV_TABLE, ..Default::default() };
        // SAFETY: fabric and info are live; each object is opened before it is used.
        unsafe {
            ok(fi_domain(fabric.fabric, fabric.info, &mut domain, null_mut()));
            ok(fi_cq_open(domain, &mut cq_attr, &mut cq, null_mut()));
            ok(fi_av_open(domain, &mut av_attr, &mut av, null_mut()));
            ok(fi_endpoint(domain, fabric.info, &mut ep, null_mut()));
            ok(fi_ep_bind(ep, &raw mut (*cq).fid, FI_TRANSMIT | FI_RECV));
            ok(fi_ep_bind(ep, &raw mut (*av).fid, 0));
            ok(fi_enable(ep));
        }
        Endpoint { domain, cq, av, ep, injected: false.into(), _fabric: fabric }
    }

    fn name(&self) -> Vec<u8> {
        let mut name = vec![0; 256];
        let mut len = name.len();
        // SAFETY: the endpoint is enabled, and there is room for `len` bytes.
        unsafe { ok(fi_getname(&raw mut (*self.ep).fid, name.as_mut_ptr().cast(), &mut len)) };
        name.truncate(len);
        name
    }

    fn resolve(&self, name: &[u8]) -> fi_addr_t {
        let mut address = FI_ADDR_NOTAVAIL;
        // SAFETY: the vector is live, and the name is one address in the provider's format.
        let inserted = unsafe { fi_av_insert(self.av, name.as_ptr().cast(), 1, &mut address, 0, null_mut()) };
        assert_eq!(inserted, 1);
        address
    }

    fn poll(&self) -> Option<fi_cq_data_entry> {
        let mut entry = fi_cq_data_entry::default();
        // SAFETY: the queue is live and was opened for entries of this format.
        let read = unsafe { fi_cq_read(self.cq, (&raw mut entry).cast::<c_void>(), 1) };
        assert!(read == 1 || read == -(FI_EAGAIN as isize), "fi_cq_read: {}", text(read as c_int));
        (read == 1).then_some(entry)
    }
}

impl Drop for Endpoint<'_> {
    fn drop(&mut self) {
        // SAFETY: each object is live, not used again, and closed before its dependencies.
        unsafe {
            ok(fi_close(&raw mut (*self.ep).fid));
            ok(fi_close(&raw mut (*self.av).fid));
            ok(fi_close(&raw mut (*self.cq).fid));
            ok(fi_close(&raw mut (*self.domain).fid));
        }
    }
}

fn hints(provider: &CStr) -> *mut fi_info {
    // SAFETY: the attributes of a fresh fi_info are allocated; the provider's name is freed with it, so it is copied
    // to the C heap.
    unsafe {
        let hints = fi_allocinfo();
        assert!(!hints.is_null());
        (*hints).caps = FI_MSG | FI_RMA;
        (*hints).mode = FI_CONTEXT | FI_CONTEXT2;
        (*(*hints).ep_attr).type_ = FI_EP_RDM;
        (*(*hints).fabric_attr).prov_name = libc::strdup(provider.as_ptr());
        hints
    }
}

fn ok(status: c_int) {
    assert_eq!(status, 0, "{}", text(status));
}

fn text(status: c_int) -> String {
    // SAFETY: `fi_strerror` accepts any number. The text of an unknown number is in a buffer that the next call may
    // reuse, so it is copied at once.
    unsafe { CStr::from_ptr(fi_strerror(status)) }.to_str().expect("error texts are ASCII").to_owned()
}
