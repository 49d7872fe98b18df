//! The libfabric port: any provider with connectionless messages and RMA, chosen when it is opened.
//!
//! ```text
//!   send ≤ short_max ── fi_inject ─────────────▶ ┐
//!   send ≤ packet_max ─ copy to a send buffer ─▶ │ fi_send            one receive buffer per packet
//!   send_zcopy ──────── head copied, body not ─▶ │ fi_sendmsg  ─────▶ posted before, posted again after Sink::packet
//!   put, put_v, put_imm FI_DELIVERY_COMPLETE ──▶ │ fi_writemsg, twice where an immediate must travel alone
//!   put_bytes ───────── copy to a send buffer ─▶ │ fi_writemsg
//!   get ───────────────────────────────────────▶ ┘ fi_read
//!   poll ◀───────────── fi_cq_read, a batch at a time, and fi_cq_readerr
//! ```
//!
//! Everything that depends on the provider is read from its answers: limits, orders, modes of registration. The port
//! uses one buffer per receive (no `FI_MULTI_RECV`), no tags, no source addresses: without these features, providers
//! differ least and fail least, and the rxm protocol makes no unnecessary copies.
//!
//! # What the port cannot know
//! * The port cannot detect that an injected packet was lost because the connection broke. The link above detects the
//!   loss by the sequence numbers. The port does report the loss of a packet that was not injected
//!   ([`Sink::peer_lost`]), and then refuses posts to the peer.
//! * The port does not know the sender of a packet. After a fence, it still delivers a packet of the fenced peer that
//!   the provider had already received, or that comes over a connection which that peer makes anew. The receiver
//!   recognizes the packet by the incarnation in its header.
//! * The port does not know if a peer is in the middle of an access to memory that is being deregistered. Providers
//!   check the key only when an access begins. So deregister memory only when the accesses to it are known to have
//!   ended: after a message from the peer that says so, or after [`Port::fence_peer`]. After a fence, deregister before
//!   the next poll, because a peer that is alive might connect again during that poll.
//!
//! # Unauthenticated processes
//! The bytes of any process that can reach an endpoint's tcp port are first interpreted by libfabric, which does not
//! authenticate the process. At 1.17.0 none of the attempts in `ci/hostile/tests/network.rs` does harm. At 2.5.1 the
//! same attempts end the process by a segmentation fault in 23 of 30 runs. The cause is one of rxm's connection
//! requests with a changed byte: libfabric takes the bytes after this request for messages. So use an interface
//! ([`OfiConfig::interface`]) on a network that only trusted processes can reach.
//!
//! # net, and tcp without ofi_rxm
//! The provider net of 1.17, which is called tcp from 1.18 on, has no [`Caps::fence`], since the removal of an address
//! closes nothing. It may also close the connection to a living peer, when both sides connect at the same time. The
//! side with the lower address keeps its own connection and rejects the other, unless the process of that peer seems to
//! have been replaced. To find out, xnet_process_connreq compares the peer's process number with `remote_pid`, which
//! xnet_alloc_conn does not clear when it uses the record of a closed connection again (xnet_rdm_cm.c at v1.17.0 and
//! v2.5.1). So the defect needs an earlier peer that has left. `tests/killed.rs` found it at 1.17.0.
//!
//! # libfabric's own shm
//! libfabric's provider shm works for ordinary traffic, but is never chosen by default, because at 1.17.0 it is not
//! safe if a peer dies or sends wrong data. An access that the target refuses, since it has no such key, never ends
//! (smr_progress_cmd_rma returns without an answer). A port crashes if it polls after another port of the same process
//! was closed, because it reads the freed memory of the closed port (smr_progress_resp, smr_map_to_region). A
//! process that is killed while it holds the spin lock in a peer's memory leaves that peer spinning for ever in
//! fi_cq_read, where our deadlines are not checked. The provider catches the signals that end a process, to unlink its
//! files first.

mod buffers;
pub mod choice;
mod endpoint;
mod events;
mod fence;
mod info;
mod memory;
mod object;
pub mod offer;
mod post;
#[cfg(feature = "raw")]
pub mod raw;
mod slots;
#[cfg(any(test, feature = "strict"))]
mod strict;
pub mod survey;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::OnceLock;

use samite_fabric_sys as sys;

use self::buffers::Buffers;
use self::endpoint::{Batch, Completions, Domain};
use self::events::Event;
use self::info::Info;
use self::memory::Registrations;
use self::object::{Object, check, error};
use self::offer::{Offer, Plan};
use self::post::Note;
use self::slots::{Flight, Held, Slots};
use crate::rng::SplitMix64;
use crate::{
    Access, Address, Body, Caps, Local, OpId, PathId, PeerId, Port, PortError, Post, Region, Registration,
    Remote, Sink, Sleep,
};

/// The provider to open, and the sizes and limits of the port.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// The provider, as `fi_info` prints it.
    pub provider: String,
    /// The interface (`eth0`, `lo`) or its address (`127.0.0.1`). With `None` the port takes the provider's first
    /// interface, IPv4 before IPv6.
    pub interface: Option<String>,
    /// True if all peers are on this host. A loopback interface is then preferred, unless `interface` names another.
    pub stays_on_host: bool,
    /// An address of this host at which others are known to reach it. The interface with this address is preferred,
    /// unless `interface` names another.
    pub near: Option<IpAddr>,
    /// The seed of the keys of registered memory: random, and different for each incarnation of a process.
    pub seed: u64,
    /// The longest packet, in bytes. The default has room for a message of 64 KiB and its headers. The packets of a port
    /// are shorter if the provider would use a rendezvous of its own for this length.
    pub packet_max: usize,
    /// Buffers for packets that arrive between two polls; each is `packet_max` bytes.
    pub receive_buffers: u32,
    /// Buffers for packets that are too long to be injected, until they have been sent; each is `packet_max` bytes.
    pub send_buffers: u32,
    /// The largest number of one-sided operations in flight.
    pub operations_max: usize,
    /// The largest number of peers resolved over the life of the port.
    pub peers_max: usize,
    /// True if the port should have a descriptor that wakes a sleeper. Some providers offer none. The descriptor makes
    /// every packet more expensive: with it, tcp at 1.17 uses epoll(7) instead of poll(2), and epoll takes a quarter of
    /// the time of a short message on loopback.
    pub wakes: bool,
    /// The offer of a provider whose rules are imposed on `provider`, for tests without the hardware. If the port
    /// violates a rule, the process ends.
    #[cfg(any(test, feature = "strict"))]
    pub rules: Option<Offer>,
}

impl Default for OfiConfig {
    fn default() -> Self {
        Self {
            provider: choice::DEFAULT.into(),
            interface: None,
            stays_on_host: false,
            near: None,
            seed: 0,
            packet_max: PACKET_MAX,
            receive_buffers: 128,
            send_buffers: 128,
            operations_max: 256,
            peers_max: 1 << 20,
            wakes: true,
            #[cfg(any(test, feature = "strict"))]
            rules: None,
        }
    }
}

impl OfiConfig {
    /// Returns the number of operations, if the configuration is valid.
    fn checked(&self) -> Result<u32, PortError> {
        let buffers = u64::from(self.receive_buffers.max(self.send_buffers));
        let bytes = (self.packet_max as u64).checked_mul(buffers);
        let operations =
            u32::try_from(self.operations_max).ok().filter(|&operations| operations <= SLOTS_MAX);
        match operations {
            _ if self.packet_max < PACKET_MIN => {
                Err(PortError::Unsupported { what: "work with packets under 512 bytes" })
            }
            _ if self.receive_buffers.min(self.send_buffers) == 0 => {
                Err(PortError::Unsupported { what: "work without buffers" })
            }
            Some(operations)
                if buffers <= SLOTS_MAX.into() && bytes.is_some_and(|bytes| bytes <= BUFFERS_MAX) =>
            {
                Ok(operations)
            }
            _ => Err(PortError::Unsupported {
                what: "have over a million buffers or operations, or over 4 GiB of buffers",
            }),
        }
    }
}

/// A port over libfabric. See the [module](self).
#[derive(Debug)]
pub struct OfiPort {
    // The fields are in the order in which they are closed. The endpoint is closed first: afterwards nothing accesses
    // the memory of the fields below. Then come the registrations, and then the objects that they need.
    ep: Option<Object<sys::fid_ep>>,
    registrations: Registrations,
    receives: Buffers,
    sends: Buffers,
    slots: Slots,
    domain: Domain,
    caps: Caps,
    address: Address,
    peers: Vec<Peer>,
    /// The connected peers, by address.
    resolved: HashMap<Address, PeerId>,
    /// Head and body of a short packet, side by side.
    scratch: Vec<u8>,
    /// The receive buffers that are not posted. The buffer of the latest packet is the last one.
    unposted: Vec<u32>,
    /// The number of receives to post: see [`OfiPort::post_receives`].
    wanted: usize,
    /// True if an immediate must be sent in a separate write, after its data.
    notes_alone: bool,
    /// Notifications for which the provider had no room.
    notes: Vec<Note>,
    /// Completions that were read during a fence; the next poll reports them.
    backlog: VecDeque<Event>,
}

#[derive(Debug)]
struct Peer {
    address: Address,
    fi_address: sys::fi_addr_t,
    /// The capabilities towards the peer, if its packets must be shorter than those of this port.
    narrower: Option<Box<Caps>>,
    /// The number of sends and one-sided operations that were accepted and have not completed.
    in_flight: InFlight,
    /// True if the provider has accepted the latest post to this peer, and also before the first post. Then the removal
    /// of the peer's address is safe: the provider has a connection to the peer, has already freed it, or was never
    /// asked for one.
    last_post_accepted: bool,
    /// True if posts are refused.
    gone: bool,
    fenced: bool,
}

/// The slots of one peer.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    /// The number of slots for sends. The sends of injected packets have no slots.
    sends: u32,
    /// The number of slots for one-sided operations.
    operations: u32,
}

impl InFlight {
    fn is_empty(self) -> bool {
        self.sends + self.operations == 0
    }

    /// Returns the number of slots of the kind to which a slot belongs.
    fn of(&mut self, is_send: bool) -> &mut u32 {
        if is_send { &mut self.sends } else { &mut self.operations }
    }
}

impl OfiPort {
    /// Opens the provider on an interface of this host.
    ///
    /// # Errors
    /// [`PortError::Provider`], which names a fix, if the provider or the interface is missing or
    /// refuses; [`PortError::Unsupported`] if the configuration is invalid.
    pub fn open(config: &OfiConfig) -> Result<Self, PortError> {
        let operations = config.checked()?;
        let loaded = load(Some(&config.provider))?;
        let info = Info::choose(config)?;
        let offer = Offer::of(&info.attributes());
        #[cfg(any(test, feature = "strict"))]
        let (info, offer) = strict::adopt(config, info, offer)?;
        let Plan { caps, registration, notes_alone, completions } = offer.plan(config, loaded)?;
        let slots = Slots::new(config.receive_buffers, config.send_buffers, operations);
        let domain = Domain::open(info, completions, config.wakes)?;
        // SAFETY: the endpoint is the first field of the port, whose `drop` closes it before all others.
        let ep = unsafe { domain.endpoint() }?;
        #[cfg(any(test, feature = "strict"))]
        if config.rules.is_some() {
            // SAFETY: they were just opened.
            unsafe { strict::impose(&offer, completions, &domain, &ep) };
        }
        let format = domain.info().attributes().format(offer.rxm_limit(loaded));
        let packet_max = u32::try_from(caps.packet_max).unwrap_or(u32::MAX).to_le_bytes();
        let address = Address([&format[..], &packet_max, &endpoint::name(&ep)?].concat());
        let mut registrations = Registrations::new(registration, SplitMix64::new(config.seed));
        let mut buffers =
            |count: u32| Buffers::new(&mut registrations, &domain, &ep, count as usize, caps.packet_max);
        let (receives, sends) = (buffers(config.receive_buffers)?, buffers(config.send_buffers)?);
        let mut port = Self {
            ep: Some(ep),
            registrations,
            receives,
            sends,
            slots,
            domain,
            scratch: vec![0; caps.short_max],
            caps,
            address,
            peers: Vec::new(),
            resolved: HashMap::new(),
            notes_alone,
            notes: Vec::new(),
            unposted: (0..config.receive_buffers).rev().collect(),
            wanted: 0,
            backlog: VecDeque::new(),
        };
        port.post_receives()?;
        Ok(port)
    }

    fn ep(&self) -> *mut sys::fid_ep {
        // The endpoint is present until the port is dropped.
        self.ep.as_ref().map_or(null_mut(), Object::as_ptr)
    }

    fn peer(&self, peer: PeerId) -> Result<sys::fi_addr_t, PortError> {
        match self.peers.get(peer.0 as usize) {
            Some(known) if !known.gone => Ok(known.fi_address),
            _ => Err(PortError::PeerGone(peer)),
        }
    }

    /// Returns the slots of a peer that exists.
    fn in_flight(&self, peer: PeerId) -> InFlight {
        self.peers[peer.0 as usize].in_flight
    }

    fn check_packet(&self, head: &[u8], body_len: usize, max: usize) -> Result<usize, PortError> {
        match head.len().checked_add(body_len) {
            Some(len) if len <= max => Ok(len),
            len => Err(PortError::TooLong { len: len.unwrap_or(usize::MAX), max }),
        }
    }

    /// Registers memory for operations with one peer, or with any peer.
    fn register_for(
        &mut self,
        peer: Option<PeerId>,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        let Some(ep) = &self.ep else { return Err(error("fi_mr_reg", sys::FI_EBADF)) };
        self.registrations.register((&self.domain, ep), region, span, access, peer)
    }

    /// Returns the number of receives that are posted.
    #[inline]
    fn posted_receives(&self) -> usize {
        self.slots.receives() - self.unposted.len()
    }

    /// Posts the missing receives, as far as the provider has room.
    ///
    /// Providers use the receives in the order in which they were posted. If all buffers were posted, a long packet
    /// would always be written to the memory that was not used for the longest time, and that is in no near cache. So
    /// only a few buffers are posted, in which the packets follow each other, until all of them are used between two
    /// polls.
    fn post_receives(&mut self) -> Result<(), PortError> {
        let (posted, all) = (self.posted_receives(), self.slots.receives());
        let least = (CACHED_MAX / self.receives.size()).max(RECEIVES_MIN).min(all);
        self.wanted = match posted {
            0 => (2 * self.wanted).min(all),
            _ if posted > self.wanted / 2 => self.wanted.saturating_sub(1),
            _ => self.wanted,
        };
        self.wanted = self.wanted.max(least);
        for _ in posted..self.wanted {
            let Some(&buffer) = self.unposted.last() else { break };
            let span = self.receives.span(buffer, self.receives.size())?;
            let context = self.slots.context(buffer);
            // SAFETY: the endpoint is live and has FI_MSG. Buffer and context live until the endpoint is
            // closed, and have no other user until this receive completes.
            let status = unsafe {
                let start = span.start.as_ptr().cast();
                sys::fi_recv(self.ep(), start, span.len, span.descriptor, sys::FI_ADDR_UNSPEC, context)
            };
            if status == -(sys::FI_EAGAIN as isize) {
                break;
            }
            check("fi_recv", status as i32)?;
            self.unposted.pop();
        }
        Ok(())
    }
}

impl Port for OfiPort {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    #[inline]
    fn caps_for(&self, peer: PeerId) -> &Caps {
        let narrower = self.peers.get(peer.0 as usize).and_then(|peer| peer.narrower.as_deref());
        narrower.unwrap_or(&self.caps)
    }

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        if let Some(&peer) = self.resolved.get(address) {
            return Ok(peer);
        }
        let (format, ours) = self.address.0.split_at(FORMAT_LEN);
        let theirs = address.0.strip_prefix(format).and_then(|rest| rest.split_first_chunk());
        let theirs = theirs
            .map(|(packet_max, name)| (u32::from_le_bytes(*packet_max) as usize, name))
            .filter(|(packet_max, name)| {
                let len = ours.len() - size_of::<u32>();
                *packet_max >= PACKET_MIN && self.domain.is_name(name, len)
            });
        let Some((packet_max, theirs)) = theirs else {
            let why = match address.0.first_chunk::<FORMAT_LEN>() {
                Some(theirs) if info::differ_in_limit(theirs, format) => format!(
                    "of a {} that accepts no connection from this one, because its version of libfabric or its \
                     environment sets another limit: set {EAGER_LIMIT}=16384 for all ranks of the job",
                    self.caps.name
                ),
                _ => format!("{} bytes that are none of {}", address.0.len(), self.caps.name),
            };
            return Err(PortError::BadAddress { why });
        };
        let id = u32::try_from(self.peers.len()).ok().filter(|_| self.peers.len() < self.caps.peers_max);
        let peer = PeerId(id.ok_or_else(|| PortError::Exhausted {
            what: "peers",
            hint: format!("this port was opened for {} over its life", self.caps.peers_max),
        })?);
        let fi_address = self.domain.insert(theirs)?;
        let address = address.clone();
        self.resolved.insert(address.clone(), peer);
        self.peers.push(Peer {
            address,
            fi_address,
            narrower: (packet_max < self.caps.packet_max).then(|| Box::new(narrowed(&self.caps, packet_max))),
            in_flight: InFlight::default(),
            last_post_accepted: true,
            gone: false,
            fenced: false,
        });
        Ok(peer)
    }

    #[inline]
    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        let fi_address = self.peer(to)?;
        let caps = self.caps_for(to);
        let (packet_max, short_max) = (caps.packet_max, caps.short_max);
        let len = self.check_packet(head, body.len(), packet_max)?;
        if len <= short_max {
            self.scratch[..head.len()].copy_from_slice(head);
            body.copy_to(&mut self.scratch[head.len()..len]);
            // SAFETY: the endpoint is live and has FI_MSG; `len` is at most its inject size; the bytes are
            // copied.
            let status = unsafe { sys::fi_inject(self.ep(), self.scratch.as_ptr().cast(), len, fi_address) };
            return self.posted("fi_inject", status, to, None);
        }
        let Some((slot, buffer)) = self.slots.send(self.in_flight(to).sends) else { return Ok(Post::Again) };
        let span = self.sends.fill(buffer, head, body)?;
        // SAFETY: the endpoint is live and has FI_MSG; buffer and context live until the endpoint is closed, and the
        // slot is not used for anything else until the send completes.
        let status = unsafe {
            let (start, context) = (span.start.as_ptr().cast(), self.slots.context(slot));
            sys::fi_send(self.ep(), start, span.len, span.descriptor, fi_address, context)
        };
        self.posted(
            "fi_send",
            status,
            to,
            Some((slot, Flight { peer: to, op: None, sequenced: true, held: Held::default() })),
        )
    }

    fn send_zcopy(&mut self, to: PeerId, head: &[u8], body: Local, op: OpId) -> Result<Post, PortError> {
        let fi_address = self.peer(to)?;
        let zcopy_max = self.caps_for(to).zcopy_max;
        if zcopy_max == 0 {
            return Err(PortError::Unsupported { what: "gather a packet from two places" });
        }
        self.check_packet(head, body.len, zcopy_max)?;
        let body_span = self.registrations.span(body, Access::LOCAL_READ)?;
        let Some((slot, buffer)) = self.slots.send(self.in_flight(to).sends) else { return Ok(Post::Again) };
        let head_span = self.sends.fill(buffer, head, [].as_slice())?;
        let iov = [head_span, body_span]
            .map(|span| libc::iovec { iov_base: span.start.as_ptr().cast(), iov_len: span.len });
        let mut descriptors = [head_span.descriptor, body_span.descriptor];
        let message = sys::fi_msg {
            msg_iov: iov.as_ptr(),
            desc: descriptors.as_mut_ptr(),
            iov_count: iov.len(),
            addr: fi_address,
            context: self.slots.context(slot),
            data: 0,
        };
        // SAFETY: the endpoint is live and has FI_MSG, and takes two pieces. The message is read during the call. The
        // registration of the body keeps the body's memory, and is held until the operation in the slot has ended. The
        // head's buffer and the context live as in `send_body`.
        let status = unsafe { sys::fi_sendmsg(self.ep(), &message, sys::FI_COMPLETION) };
        self.posted(
            "fi_sendmsg",
            status,
            to,
            Some((slot, Flight { peer: to, op: Some(op), sequenced: true, held: Held::of(&[body]) })),
        )
    }

    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError> {
        if !self.caps.put.is_some() {
            return Err(PortError::Unsupported { what: "write to a peer's memory" });
        }
        self.write(to, &[from], into, None, op)
    }

    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        if !self.caps.put.is_some() {
            return Err(PortError::Unsupported { what: "write to a peer's memory" });
        }
        self.write_bytes(to, from, into, op)
    }

    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        if !self.caps.put.is_some() {
            return Err(PortError::Unsupported { what: "write to a peer's memory" });
        }
        self.write(to, from, into, None, op)
    }

    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        let bits = self.caps.immediate_bits;
        if !self.caps.put.is_some() || bits == 0 {
            return Err(PortError::Unsupported { what: "write to a peer's memory with immediate data" });
        }
        self.write(to, &[from], into, Some(immediate & (u64::MAX >> (64 - bits))), op)
    }

    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError> {
        let fi_address = self.peer(to)?;
        if !self.caps.get.is_some() {
            return Err(PortError::Unsupported { what: "read a peer's memory" });
        }
        if into.len > self.caps.rma_max {
            return Err(PortError::TooLong { len: into.len, max: self.caps.rma_max });
        }
        let span = self.registrations.span(into, Access::LOCAL_WRITE)?;
        if let Some(refused) = self.refuse(from, into.len, op) {
            return Ok(refused);
        }
        let Some(slot) = self.slots.operation(self.in_flight(to).operations) else { return Ok(Post::Again) };
        // SAFETY: the endpoint is live and has FI_RMA. The registration keeps the memory. Registration and context are
        // both kept until the operation in the slot has ended.
        let status = unsafe {
            let (start, context) = (span.start.as_ptr().cast(), self.slots.context(slot));
            sys::fi_read(
                self.ep(),
                start,
                span.len,
                span.descriptor,
                fi_address,
                from.address,
                from.key,
                context,
            )
        };
        self.posted(
            "fi_read",
            status,
            to,
            Some((slot, Flight { peer: to, op: Some(op), sequenced: false, held: Held::of(&[into]) })),
        )
    }

    fn path(&self, _peer: PeerId) -> Result<PathId, PortError> {
        Ok(PathId::default())
    }

    fn register_span(
        &mut self,
        _path: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        self.register_for(None, region, span, access)
    }

    fn register(&mut self, peer: PeerId, region: &Region, access: Access) -> Result<Registration, PortError> {
        self.register_for(Some(peer), region, 0..region.len(), access)
    }

    fn deregister(&mut self, registration: Registration) {
        self.registrations.end(registration);
    }

    fn suspend(&mut self, registration: Registration) -> bool {
        self.registrations.suspend(registration)
    }

    fn resume(&mut self, _: PathId, registration: Registration, region: &Region) -> bool {
        self.registrations.resume(registration, region)
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        // Receive buffers are posted again at the start of the next poll, and not at the end of this one, so that the
        // caller can answer packets before that work is done.
        if self.posted_receives() < self.wanted {
            self.post_receives()?;
        }
        if !self.notes.is_empty() {
            self.post_notes();
        }
        let mut events = 0;
        while let Some(event) = self.backlog.pop_front() {
            self.report(event, sink);
            events += 1;
        }
        let mut batch = Batch::new();
        match self.domain.read(&mut batch)? {
            Completions::None => {}
            Completions::Some(entries) => {
                for entry in entries {
                    if let Some(event) = self.completed(entry) {
                        self.report(event, sink);
                    }
                }
                events += entries.len();
            }
            Completions::Failed(entry) => {
                for event in self.failed(&entry).into_iter().flatten() {
                    self.report(event, sink);
                }
                events += 1;
            }
        }
        Ok(events)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.domain.wait_fd().into_iter().collect()
    }

    fn has_unsent(&self) -> bool {
        !self.caps.passive && self.slots.has_sends()
    }

    fn arm(&mut self) -> Sleep {
        if !self.backlog.is_empty() {
            return Sleep::NotNow;
        }
        // Posts for which the provider had no room are retried at each poll.
        if self.posted_receives() < self.wanted || !self.notes.is_empty() || self.domain.wait_fd().is_none() {
            return Sleep::Briefly;
        }
        if self.domain.may_sleep() { Sleep::UntilReadable } else { Sleep::NotNow }
    }

    fn fence_peer(&mut self, peer: PeerId) {
        self.fence(peer);
    }
}

impl Drop for OfiPort {
    fn drop(&mut self) {
        // The endpoint is closed first: once closed, it accesses no memory. If the provider refuses to close it, the
        // memory that it might access must never be freed.
        // Over TCP, libfabric leaves a socket open for each connection that it has accepted and whose request has not
        // arrived yet (`xnet_pep_close` in prov/net/src/xnet_pep.c of 1.17.0, and in prov/tcp of 2.5.1). That happens
        // if the peer is killed, or kept from its core, between the connection and the request.
        if let Some(Err(ep)) = self.ep.take().map(Object::close) {
            std::mem::forget(ep);
            self.registrations.leak();
            self.receives.leak();
            self.sends.leak();
            self.slots.leak();
        }
    }
}

// SAFETY: libfabric's objects belong to no thread, and FI_THREAD_DOMAIN requires that one thread at a time uses
// the objects of a domain. All these objects are private to this value, which is moved as a whole and changed only
// through `&mut self`.
unsafe impl Send for OfiPort {}

/// The limit for buffers or operations of one kind.
const SLOTS_MAX: u32 = 1 << 20;

/// The bytes of the receive buffers that are posted while few packets arrive: half of the second cache of a recent
/// processor.
const CACHED_MAX: usize = 512 << 10;

/// The smallest number of posted receives.
const RECEIVES_MIN: usize = 8;

/// The limit for the bytes of buffers of one kind.
const BUFFERS_MAX: u64 = 4 << 30;

/// The least value of [`OfiConfig::packet_max`]: every port must carry packets of this length.
const PACKET_MIN: usize = 512;

/// The default of [`OfiConfig::packet_max`]: 64 KiB, and room for headers.
const PACKET_MAX: usize = 65 << 10;

/// Bytes of an address that identify its format. The longest packet that the port receives follows them, in 4 bytes,
/// and then libfabric's name of the endpoint.
const FORMAT_LEN: usize = 8;

/// Returns the capabilities towards a peer that receives packets of at most `packet_max` bytes.
fn narrowed(caps: &Caps, packet_max: usize) -> Caps {
    Caps {
        short_max: caps.short_max.min(packet_max),
        packet_max,
        fragment_max: caps.fragment_max.min(packet_max),
        zcopy_max: caps.zcopy_max.min(packet_max),
        ..caps.clone()
    }
}

/// Returns the environment that libfabric should find when it is loaded, without variables that the user has set. A
/// launcher sets it for its ranks; the port sets it too, while the program has no second thread. `provider` is the
/// provider of the port, or `None` for the default.
///
/// * `FI_AV_REMOVE_CLEANUP` closes the connection of a removed address: without it there is no
///   [`Caps::fence`].
/// * `FI_OFI_RXM_CM_PROGRESS_INTERVAL`, microseconds: the interval at which connection requests
///   are handled. A first message takes 10 ms by default, and 1.3 ms with this value.
/// * `IPATH_NO_BACKTRACE` prevents libinfinipath, a dependency of Debian's libfabric, from catching the
///   signals that end a process. Its handlers print a backtrace and exit with a code, so the process would not
///   end by the signal.
/// * `FI_OFI_RXM_EAGER_LIMIT`, over tcp only: the longest packet for which rxm uses no rendezvous: see
///   [`Loaded::rxm_packet_max`].
/// * `FI_OFI_RXM_MSG_RX_SIZE`, over tcp only: the number of buffers of 16 KiB into which rxm receives from all
///   connections. rxm clears them when it opens an endpoint, in groups of 1,024. By default there are 4,096, which make
///   67 MB resident in each process, and take a fifth of its CPU time at the start. While all of them hold packets that
///   rxm has not handled, the senders wait. Other providers take 128 for each connection by default.
/// * `FI_TCP_MAX_RX_SIZE`, over tcp only: the room for a tagged message in each entry of tcp's table of operations,
///   from libfabric 1.18 on. Samite sends no tagged messages over libfabric, and by default the table takes 17 MB.
pub fn environment(provider: Option<&str>) -> impl Iterator<Item = (&'static str, &'static str)> {
    let everywhere =
        [(CLEANUP, "1"), ("FI_OFI_RXM_CM_PROGRESS_INTERVAL", "1000"), ("IPATH_NO_BACKTRACE", "1")];
    let over_tcp = [(EAGER_LIMIT, "66560"), ("FI_OFI_RXM_MSG_RX_SIZE", "512"), ("FI_TCP_MAX_RX_SIZE", "512")];
    let provider = provider.map(crate::delay::undelayed);
    let is_tcp = provider.is_none_or(|provider| provider.split(';').next() == Some("tcp"));
    let over_tcp = over_tcp.into_iter().filter(move |_| is_tcp);
    everywhere.into_iter().chain(over_tcp).filter(|(name, _)| samite_os::env::get(name).is_none())
}

/// Sets the variables of [`environment`] for this process. The call does nothing if the program already has a second
/// thread, because then the environment cannot be changed safely. Ports also work without these variables. Call it
/// before anything starts a thread.
pub fn settle_environment(provider: Option<&str>) {
    for (name, value) in environment(provider) {
        let _ = samite_os::env::set_while_alone(name, value);
    }
}

const CLEANUP: &str = "FI_AV_REMOVE_CLEANUP";
const EAGER_LIMIT: &str = "FI_OFI_RXM_EAGER_LIMIT";
const BUFFER_SIZE: &str = "FI_OFI_RXM_BUFFER_SIZE";

/// What the version of libfabric and its environment decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// True if the removal of an address closes the connection to that address.
    pub closes_connections: bool,
    /// The longest packet, in bytes, that tcp;ofi_rxm sends and receives without a rendezvous of its own, which would
    /// leak operations when a peer dies.
    ///
    /// rxm receives into buffers of 16 KiB, or of `FI_OFI_RXM_BUFFER_SIZE`, and clears a thousand of them at the start.
    /// In versions 1.15 to 1.17 the tcp provider asks rxm for the buffer of each packet after it has read the packet's
    /// header. So the bytes go from the socket to the port's buffer, and `FI_OFI_RXM_EAGER_LIMIT` permits longer packets
    /// (rxm_ep_init_proto in prov/rxm/src/rxm_ep.c and tcpx_set_ops in prov/tcp/src/tcpx_domain.c at v1.17.0). Later
    /// versions of tcp do not ask, and later versions of rxm do not know the variable.
    pub rxm_packet_max: usize,
}

/// The result of [`load`], after its first call.
static LOADED: OnceLock<Loaded> = OnceLock::new();

/// Loads libfabric, once, for a provider or for the default.
fn load(provider: Option<&str>) -> Result<Loaded, PortError> {
    let loaded = *LOADED.get_or_init(|| {
        settle_environment(provider);
        let is_loaded = sys::load().is_ok();
        // If `IPATH_NO_BACKTRACE` could not be set, libinfinipath has installed signal handlers. This call removes
        // them.
        samite_os::handlers::remove_those_of("libinfinipath");
        // SAFETY: no preconditions.
        let version = if is_loaded { unsafe { sys::fi_version() } } else { 0 };
        Loaded {
            closes_connections: samite_os::env::get(CLEANUP).is_some_and(|value| is_yes(&value)),
            rxm_packet_max: rxm_packet_max(
                (sys::FI_MAJOR(version), sys::FI_MINOR(version)),
                &samite_os::env::get,
            ),
        }
    });
    sys::load().map(|()| loaded).map_err(|error| PortError::Provider {
        call: "dlopen",
        code: sys::FI_ENOSYS,
        text: error.to_string(),
        hint: "install libfabric 1.17 or newer: libfabric1 (Debian, Ubuntu), libfabric (Fedora, Spack); LD_LIBRARY_PATH \
               names the folder where it is elsewhere"
            .into(),
    })
}

fn is_yes(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// Returns [`Loaded::rxm_packet_max`].
fn rxm_packet_max(version: (u32, u32), env: &impl Fn(&str) -> Option<String>) -> usize {
    let number = |name| env(name).map(|text| number_of(&text));
    let buffer = number(BUFFER_SIZE).map_or(16 << 10, |size| size.min(i32::MAX as usize));
    let asks = ["FI_OFI_RXM_ENABLE_DYN_RBUF", "FI_OFI_RXM_ENABLE_DIRECT_SEND"];
    let asks = asks.iter().all(|name| env(name).is_none_or(|value| is_yes(&value)));
    match number(EAGER_LIMIT) {
        Some(limit) if asks && ((1, 15)..=(1, 17)).contains(&version) => buffer.max(limit),
        _ => buffer,
    }
}

/// Returns the number that libfabric reads in the value of a variable (fi_param_get_ in src/var.c calls strtol with base
/// 0): in base 16 after `0x`, in base 8 after `0`, otherwise in base 10, up to the first character that is no digit.
fn number_of(text: &str) -> usize {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let after_0x = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (base, digits) =
        match after_0x.filter(|rest| rest.starts_with(|first: char| first.is_ascii_hexdigit())) {
            Some(digits) => (16, digits),
            None => (if text.starts_with('0') { 8 } else { 10 }, text),
        };
    let values = digits.chars().map_while(|digit| digit.to_digit(base));
    let most = i64::MAX.cast_unsigned();
    let value = values
        .fold(0_u64, |value, digit| value.saturating_mul(base.into()).saturating_add(digit.into()).min(most));
    (if is_negative { value.wrapping_neg() } else { value }) as usize
}

#[cfg(test)]
mod tests;
