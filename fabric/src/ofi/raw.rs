//! Loops between two processes directly on libfabric, written as an expert would write them, without a protocol above
//! libfabric. They are the baseline for [`OfiPort`](super::OfiPort) and the layers above. **For measurement only**: a
//! [`RawPair`] has one peer, ignores the received bytes, and spins.
//!
//! Receives are posted in advance, small messages injected, and the completion queue polled. A
//! message of any length is one `fi_send`, so above the provider's eager limit this measures the provider's own
//! rendezvous.
//!
//! While one process calls [`ping`](RawPair::ping), the other calls [`pong`](RawPair::pong) with the same arguments. In
//! the same way [`stream`](RawPair::stream) and [`sink`](RawPair::sink) belong together, and [`put`](RawPair::put) and
//! [`attend`](RawPair::attend).

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;

use samite_fabric_sys as sys;

use super::buffers::Buffers;
use super::endpoint::{self, Batch, Completions, Domain};
use super::info::Info;
use super::memory::{Mode, Registrations, Span};
use super::object::{Object, error};
use super::{OfiConfig, load};
use crate::mem::Memory;
use crate::rng::SplitMix64;
use crate::{Access, PortError, Region, Remote};

/// An endpoint with one peer.
#[derive(Debug)]
pub struct RawPair {
    // The order of the fields is that of closing, as in `OfiPort`: the endpoint is closed first.
    ep: Option<Object<sys::fid_ep>>,
    /// Messages are sent from the first `sources` buffers, in turns, and the messages of a window are received into the
    /// following buffers, one each. The contents do not matter.
    buffers: Buffers,
    sources: usize,
    /// The number of the buffer from which the next message is sent.
    next_source: usize,
    /// The registrations of memory for the peer's puts.
    targets: Registrations,
    contexts: Box<[UnsafeCell<sys::fi_context2>]>,
    /// The receives that are not posted, by their contexts, in the order in which they ended.
    idle_receives: VecDeque<*mut c_void>,
    /// The contexts of sends that are not in flight.
    idle_sends: Vec<*mut c_void>,
    domain: Domain,
    name: Vec<u8>,
    peer: sys::fi_addr_t,
    len_max: usize,
    window: usize,
    inject_max: usize,
    /// The number of messages that have arrived, but for which no call of `receive` has waited yet.
    received: usize,
}

/// The number of consecutive reads of the completion queue without a completion after which the peer counts as failed.
/// This many reads take a minute or more.
const IDLE_READS_MAX: u64 = 100_000_000;

/// The length of the message by which a sink reports the arrival of a window.
const ACKNOWLEDGEMENT_LEN: usize = 4;

impl RawPair {
    /// Opens the provider and the interface of `config` for messages of up to `len_max` bytes, of which up to
    /// `window` (at least 1) are in flight. The messages are sent from `sources` buffers (at least 1) in turns: the
    /// loops over MPI have one, and owned messages one each.
    ///
    /// # Errors
    /// Returns the errors of [`OfiPort::open`](super::OfiPort::open).
    pub fn open(
        config: &OfiConfig,
        len_max: usize,
        window: usize,
        sources: usize,
    ) -> Result<Self, PortError> {
        load(Some(&config.provider))?;
        let (len_max, window) = (len_max.max(ACKNOWLEDGEMENT_LEN), window.max(1));
        let sources = sources.max(1);
        let info = Info::choose(config)?;
        let domain = info.attributes().domain;
        let mode = Mode::new(domain.mr_mode, domain.mr_key_size);
        let inject_max = info.attributes().tx.inject_size;
        let receives = 2 * window;
        let domain = Domain::open(info, 2 * (receives + window), false)?;
        // SAFETY: the endpoint is the first field, and `drop` closes it before all others.
        let ep = unsafe { domain.endpoint() }?;
        let mut targets = Registrations::new(mode, SplitMix64::new(config.seed));
        let buffers = Buffers::new(&mut targets, &domain, &ep, sources + window, len_max)?;
        let name = endpoint::name(&ep)?;
        let contexts: Box<[UnsafeCell<sys::fi_context2>]> =
            (0..receives + window).map(|_| UnsafeCell::default()).collect();
        let contexts_of = |part: Range<usize>| contexts[part].iter().map(|context| context.get().cast());
        let idle_receives = contexts_of(0..receives).collect();
        let idle_sends = contexts_of(receives..receives + window).collect();
        let mut pair = Self {
            ep: Some(ep),
            buffers,
            sources,
            next_source: 0,
            targets,
            contexts,
            idle_receives,
            idle_sends,
            domain,
            name,
            peer: sys::FI_ADDR_NOTAVAIL,
            len_max,
            window,
            inject_max,
            received: 0,
        };
        pair.post_receives()?;
        Ok(pair)
    }

    /// Returns the address for the peer's [`connect`](Self::connect).
    #[must_use]
    pub fn address(&self) -> &[u8] {
        &self.name
    }

    /// Sets the peer. Call it before any other exchange.
    ///
    /// # Errors
    /// [`PortError::BadAddress`] if the peer has another kind of address; [`PortError::Provider`].
    pub fn connect(&mut self, address: &[u8]) -> Result<(), PortError> {
        if address.len() != self.name.len() {
            return Err(PortError::BadAddress {
                why: format!("{} bytes, not {}", address.len(), self.name.len()),
            });
        }
        self.peer = self.domain.insert(address)?;
        Ok(())
    }

    /// Sends a message of `len` bytes and waits for a message, `count` times.
    ///
    /// # Errors
    /// [`PortError::TooLong`], and [`PortError::Provider`] if anything fails or the peer is silent for long.
    pub fn ping(&mut self, len: usize, count: usize) -> Result<(), PortError> {
        for _ in 0..count {
            self.send(len)?;
            self.receive(1)?;
        }
        self.settle()
    }

    /// Waits for a message and sends a message of `len` bytes, `count` times.
    ///
    /// # Errors
    /// Returns the errors of [`ping`](Self::ping).
    pub fn pong(&mut self, len: usize, count: usize) -> Result<(), PortError> {
        for _ in 0..count {
            self.receive(1)?;
            self.send(len)?;
        }
        self.settle()
    }

    /// Sends `count` windows of messages of `len` bytes. After each window, waits until the peer has received all
    /// messages of the window.
    ///
    /// # Errors
    /// Returns the errors of [`ping`](Self::ping).
    pub fn stream(&mut self, len: usize, count: usize) -> Result<(), PortError> {
        for _ in 0..count {
            for _ in 0..self.window {
                self.send(len)?;
            }
            self.receive(1)?;
        }
        self.settle()
    }

    /// Receives the messages of the peer's `stream`.
    ///
    /// # Errors
    /// Returns the errors of [`ping`](Self::ping).
    pub fn sink(&mut self, count: usize) -> Result<(), PortError> {
        for _ in 0..count {
            self.receive(self.window)?;
            self.send(ACKNOWLEDGEMENT_LEN)?;
        }
        self.settle()
    }

    /// Makes memory for a window of messages that the peer puts there, and returns its place.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] if the provider has no writes; [`PortError::Provider`].
    pub fn expose(&mut self) -> Result<Remote, PortError> {
        let region = Region::new(Memory::zeroed(self.window * self.len_max));
        let Self { ep: Some(ep), domain, targets, .. } = self else {
            unreachable!("the endpoint is present until the pair is dropped")
        };
        let span = 0..region.len();
        let registration = targets.register((domain, ep), &region, span, Access::REMOTE_WRITE, None)?;
        Ok(registration.remote(0))
    }

    /// Puts `many` messages of `len` bytes side by side into memory that the peer has exposed, at most a window of
    /// them, and waits until they are delivered, `count` times. Then ends the peer's [`attend`](Self::attend).
    ///
    /// # Errors
    /// Returns the errors of [`ping`](Self::ping).
    pub fn put(&mut self, into: Remote, len: usize, many: usize, count: usize) -> Result<(), PortError> {
        for _ in 0..count {
            for number in 0..many {
                let address = into.address + (number * len) as u64;
                self.write(Remote { address, ..into }, len)?;
            }
            self.settle()?;
        }
        self.send(ACKNOWLEDGEMENT_LEN)?;
        self.settle()
    }

    /// Makes progress until the peer has ended its [`put`](Self::put).
    ///
    /// # Errors
    /// Returns the errors of [`ping`](Self::ping).
    pub fn attend(&mut self) -> Result<(), PortError> {
        self.receive(1)
    }

    fn ep(&self) -> *mut sys::fid_ep {
        // The endpoint is present until the pair is dropped.
        self.ep.as_ref().map_or(std::ptr::null_mut(), Object::as_ptr)
    }

    /// Returns the bytes of the next message.
    #[inline]
    fn source(&mut self, len: usize) -> Result<Span, PortError> {
        let source = self.next_source;
        self.next_source = (source + 1) % self.sources;
        self.buffers.span(source as u32, len)
    }

    #[inline]
    fn send(&mut self, len: usize) -> Result<(), PortError> {
        if len > self.len_max {
            return Err(PortError::TooLong { len, max: self.len_max });
        }
        let span = self.source(len)?;
        let start = span.start.as_ptr().cast();
        let mut idle = 0;
        loop {
            let status = if len <= self.inject_max {
                // SAFETY: the endpoint is live and has FI_MSG; the length may be injected; the bytes are
                // copied.
                unsafe { sys::fi_inject(self.ep(), start, len, self.peer) }
            } else if let Some(&context) = self.idle_sends.last() {
                // SAFETY: the endpoint is live and has FI_MSG. Buffer and context live until the endpoint is
                // closed, the sent buffer is never written, and no other operation uses the context, which is
                // removed from the list just below.
                unsafe { sys::fi_send(self.ep(), start, len, span.descriptor, self.peer, context) }
            } else {
                -(sys::FI_EAGAIN as isize)
            };
            if status == 0 {
                if len > self.inject_max {
                    self.idle_sends.pop();
                }
                return Ok(());
            }
            if status != -(sys::FI_EAGAIN as isize) {
                return Err(error("fi_send", -status as i32));
            }
            self.poll(&mut idle)?;
        }
    }

    /// Starts a write that completes when it is delivered.
    fn write(&mut self, into: Remote, len: usize) -> Result<(), PortError> {
        if len > self.len_max {
            return Err(PortError::TooLong { len, max: self.len_max });
        }
        let mut span = self.source(len)?;
        let local = libc::iovec { iov_base: span.start.as_ptr().cast(), iov_len: span.len };
        let remote = sys::fi_rma_iov { addr: into.address, len, key: into.key };
        let mut idle = 0;
        loop {
            let status = match self.idle_sends.last() {
                Some(&context) => {
                    let message = sys::fi_msg_rma {
                        msg_iov: &local,
                        desc: &mut span.descriptor,
                        iov_count: 1,
                        addr: self.peer,
                        rma_iov: &remote,
                        rma_iov_count: 1,
                        context,
                        data: 0,
                    };
                    // SAFETY: the endpoint is live and has FI_RMA. The message is read during the call. Buffer and
                    // context live until the endpoint is closed, the written part is never written on this side, and no
                    // other operation uses the context, which is removed from the list just below.
                    unsafe {
                        sys::fi_writemsg(self.ep(), &message, sys::FI_COMPLETION | sys::FI_DELIVERY_COMPLETE)
                    }
                }
                None => -(sys::FI_EAGAIN as isize),
            };
            match status {
                0 => {
                    self.idle_sends.pop();
                    return Ok(());
                }
                status if status == -(sys::FI_EAGAIN as isize) => self.poll(&mut idle)?,
                status => return Err(error("fi_writemsg", -status as i32)),
            }
        }
    }

    /// Waits for `count` messages. Their receive buffers are posted again at the start of the next call, and not at the
    /// end of this one, so that the answer is sent first.
    #[inline]
    fn receive(&mut self, count: usize) -> Result<(), PortError> {
        let mut idle = 0;
        self.post_receives()?;
        while self.received < count {
            self.poll(&mut idle)?;
        }
        self.received -= count;
        Ok(())
    }

    /// Waits until all sends and writes have completed.
    fn settle(&mut self) -> Result<(), PortError> {
        let mut idle = 0;
        while self.idle_sends.len() < self.window {
            self.poll(&mut idle)?;
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self, idle: &mut u64) -> Result<(), PortError> {
        let mut batch = Batch::new();
        match self.domain.read(&mut batch)? {
            Completions::Some(entries) => {
                *idle = 0;
                for entry in entries {
                    if entry.flags & sys::FI_RECV != 0 {
                        self.idle_receives.push_back(entry.op_context);
                        self.received += 1;
                    } else {
                        self.idle_sends.push(entry.op_context);
                    }
                }
                Ok(())
            }
            Completions::None if *idle < IDLE_READS_MAX => {
                *idle += 1;
                Ok(())
            }
            Completions::None => Err(error("fi_cq_read", sys::FI_ETIMEDOUT)),
            Completions::Failed(entry) => Err(error("fi_cq_readerr", entry.err)),
        }
    }

    /// Posts the missing receives, as far as the provider has room.
    #[inline]
    fn post_receives(&mut self) -> Result<(), PortError> {
        while let Some(&context) = self.idle_receives.front() {
            let number = (context as usize - self.contexts.as_ptr() as usize) / size_of::<sys::fi_context2>();
            let buffer = self.sources + number % self.window;
            let span = self.buffers.span(buffer as u32, self.len_max)?;
            // SAFETY: the endpoint is live and has FI_MSG. Buffer and context live until the endpoint is
            // closed; the buffers for receives are never read; no other operation uses the context.
            let status = unsafe {
                let start = span.start.as_ptr().cast();
                sys::fi_recv(self.ep(), start, span.len, span.descriptor, sys::FI_ADDR_UNSPEC, context)
            };
            match status {
                0 => self.idle_receives.pop_front(),
                status if status == -(sys::FI_EAGAIN as isize) => break,
                status => return Err(error("fi_recv", -status as i32)),
            };
        }
        Ok(())
    }
}

impl Drop for RawPair {
    fn drop(&mut self) {
        // As in the port, memory that an unclosed endpoint might access must never be freed.
        if let Some(Err(ep)) = self.ep.take().map(Object::close) {
            std::mem::forget(ep);
            self.buffers.leak();
            self.targets.leak();
            std::mem::forget(std::mem::take(&mut self.contexts));
        }
    }
}

// SAFETY: as for the port: all libfabric objects of the domain are private to this value, and used through
// `&mut self`.
unsafe impl Send for RawPair {}
