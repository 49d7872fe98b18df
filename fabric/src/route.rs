//! The port of several paths: for each peer, the best port that reaches it.
//!
//! ```text
//!                     ┌─ loopback   its address belongs to the hub of this process
//!   Route::resolve ───┼─ shm        same host and pid namespace, and its mailbox can be opened
//!                     ├─ ofi        any other peer with an address there
//!                     └─ delay      another route, delayed: the only port beside loopback if the program selects it
//! ```
//! The first port that can resolve the peer's address carries everything to it; [`Route::explain`] gives the reason.
//! The choice depends on the addresses and on the system's permissions, never on names of hosts. It is made once: a
//! peer that restarts is another peer.
//!
//! Each poll of the route polls shared memory and loopback. A poll of libfabric costs more, so libfabric is polled less
//! often while it is idle.

mod address;
#[cfg(feature = "ofi")]
mod pace;

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use self::address::{Addresses, Path};
#[cfg(feature = "ofi")]
use self::pace::Pace;
use crate::delay::Delay;
use crate::loopback::Loopback;
#[cfg(feature = "ofi")]
use crate::ofi::OfiPort;
use crate::shm::Shm;
use crate::shm::board::Slot;
use crate::{
    Access, Address, Body, Caps, Change, Changed, Exposure, Failure, Local, OpId, PathId, PeerId, Port,
    PortError, Post, Region, Registration, Remote, Sink, Sleep, Window,
};

/// The ports of a [`Route`], as far as the job needs them.
#[derive(Debug, Default)]
pub struct Ports {
    /// For ports of this process.
    pub loopback: Option<Loopback>,
    /// For processes of this host.
    pub shm: Option<Shm>,
    /// The port for all other peers.
    #[cfg(feature = "ofi")]
    pub ofi: Option<OfiPort>,
    /// A delayed transport.
    pub delay: Option<Delay<Route>>,
}

/// A port that sends through several other ports. See the [module](self).
#[derive(Debug)]
pub struct Route {
    loopback: Option<Branch<Loopback>>,
    shm: Option<Branch<Shm>>,
    #[cfg(feature = "ofi")]
    ofi: Option<Branch<OfiPort>>,
    delay: Option<Box<Branch<Delay<Route>>>>,
    /// The pace of polls of libfabric. Each of them costs a system call, while a poll of another port only reads a
    /// flag.
    #[cfg(feature = "ofi")]
    ofi_pace: Pace,
    peers: Vec<Peer>,
    peer_ids: PeerIds,
    caps: Caps,
}

/// The `PeerId`s of the route, by path and by the `PeerId` that the port of the path uses for the same peer.
type PeerIds = HashMap<(Path, PeerId), PeerId>;

#[derive(Debug)]
struct Peer {
    path: Path,
    inner: PeerId,
    addresses: Addresses,
    /// The better paths that could not be used, each with the reason.
    refusals: Box<[(Path, String)]>,
}

/// Evaluates an expression with the [`Branch`] of a path, or returns `None` if the route has no port for the path.
macro_rules! on {
    ($route:expr, $path:expr, $branch:ident => $call:expr) => {
        match $path {
            Path::Shm => $route.shm.as_mut().map(|$branch| $call),
            Path::Loopback => $route.loopback.as_mut().map(|$branch| $call),
            #[cfg(feature = "ofi")]
            Path::Ofi => $route.ofi.as_mut().map(|$branch| $call),
            #[cfg(not(feature = "ofi"))]
            Path::Ofi => None,
            Path::Delay => $route.delay.as_mut().map(|$branch| $call),
        }
    };
}

impl Route {
    /// Combines ports.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] if `ports` has none.
    ///
    /// # Panics
    /// If `ports` has both shared memory and a delayed transport.
    pub fn new(ports: Ports) -> Result<Self, PortError> {
        let Ports { loopback, shm, delay, .. } = ports;
        assert!(shm.is_none() || delay.is_none(), "shared memory would bypass the delay");
        #[cfg(feature = "ofi")]
        let ofi = ports.ofi;
        let caps = [
            loopback.as_ref().map(Port::caps),
            shm.as_ref().map(Port::caps),
            #[cfg(feature = "ofi")]
            ofi.as_ref().map(Port::caps),
            delay.as_ref().map(Port::caps),
        ];
        // A single port is polled each time.
        #[cfg(feature = "ofi")]
        let ofi_pace = Pace::new(if caps.iter().flatten().count() == 1 { 1 } else { OFI_INTERVAL_MAX });
        let caps = caps
            .into_iter()
            .flatten()
            .cloned()
            .reduce(common)
            .ok_or(PortError::Unsupported { what: "lead anywhere: it was given no port" })?;
        Ok(Self {
            loopback: loopback.map(Branch::new),
            shm: shm.map(Branch::new),
            #[cfg(feature = "ofi")]
            ofi: ofi.map(Branch::new),
            delay: delay.map(Branch::new).map(Box::new),
            #[cfg(feature = "ofi")]
            ofi_pace,
            peers: Vec::new(),
            peer_ids: PeerIds::new(),
            caps,
        })
    }

    /// Returns the reason for the path to `peer`, in words; `None` if it is not a peer of this port.
    #[must_use]
    pub fn explain(&self, peer: PeerId) -> Option<String> {
        let Peer { path, refusals, .. } = self.peers.get(peer.0 as usize)?;
        let reason = match path {
            Path::Loopback => "it is in this process",
            Path::Shm => "it is on this host, in this pid namespace, and its mailbox could be opened",
            Path::Ofi => "it has an address there",
            Path::Delay => "the program has selected this transport",
        };
        let refusals: String = refusals.iter().map(|(path, why)| format!("; not {path}: {why}")).collect();
        Some(format!("{}: {reason}{refusals}", self.caps_for(peer).name))
    }

    /// Makes each of the next polls include this path, because an answer to a send may come soon.
    #[inline]
    fn expect_traffic(&mut self, path: Path) {
        #[cfg(feature = "ofi")]
        if path == Path::Ofi {
            self.ofi_pace.hasten();
        }
        #[cfg(not(feature = "ofi"))]
        let _ = path;
    }

    /// Sends a packet on a path other than shared memory. On these paths a few more instructions do not matter.
    #[inline(never)]
    fn send_elsewhere(
        &mut self,
        to: PeerId,
        head: &[u8],
        body: &(impl Body + ?Sized),
    ) -> Result<Post, PortError> {
        let (path, inner) = self.peer(to)?;
        self.expect_traffic(path);
        outcome(to, on!(self, path, branch => branch.port.send_body(inner, head, body)))
    }

    #[inline(always)]
    fn peer(&self, peer: PeerId) -> Result<(Path, PeerId), PortError> {
        match self.peers.get(peer.0 as usize) {
            Some(known) => Ok((known.path, known.inner)),
            None => Err(PortError::PeerGone(peer)),
        }
    }

    /// Returns the first path by which one of the addresses can be reached, with the `PeerId` that the port of that
    /// path uses for the peer. Otherwise stores in `telling` the error that tells the most: of a path that had no room,
    /// or of one that knows that the peer has ended. Adds to `refusals` each refused path with the reason.
    fn choose(
        &mut self,
        addresses: &Addresses,
        refusals: &mut Vec<(Path, String)>,
        telling: &mut Option<PortError>,
    ) -> Option<(Path, PeerId)> {
        for (path, address) in addresses.iter() {
            match on!(self, path, branch => branch.port.resolve(address)) {
                Some(Ok(inner)) => return Some((path, inner)),
                Some(Err(PortError::Unreachable { why })) => refusals.push((path, why)),
                Some(Err(error)) => {
                    refusals.push((path, error.to_string()));
                    match (&error, &telling) {
                        (PortError::Exhausted { .. }, None | Some(PortError::PeerEnded { .. }))
                        | (PortError::PeerEnded { .. }, None) => *telling = Some(error),
                        _ => {}
                    }
                }
                None => refusals.push((path, "this process has no such port".into())),
            }
        }
        None
    }

    /// Returns the name of a registration that a port has made for one of its peers.
    fn outer_registration(
        &mut self,
        path: Path,
        registration: Registration,
    ) -> Result<Registration, PortError> {
        if registration.id > INNER_ID_MAX {
            on!(self, path, branch => branch.port.deregister(registration));
            return Err(PortError::Exhausted {
                what: "names of registrations",
                hint: format!("{INNER_ID_MAX} are in use on one path: register less, larger memory"),
            });
        }
        Ok(Registration { id: registration.id << PATH_BITS | path as u32, ..registration })
    }

    /// Returns the path to a peer, and the identifiers that the port of that path uses for the peer and for a span of
    /// local memory. Returns an error if the memory is not registered on that path.
    fn with_local(&self, to: PeerId, local: Local) -> Result<(Path, PeerId, Local), PortError> {
        let (path, inner) = self.peer(to)?;
        match inner_registration(local.registration) {
            Some((registered, registration)) if registered == path => {
                Ok((path, inner, Local { registration, ..local }))
            }
            _ => Err(PortError::OutOfBounds { offset: local.offset, len: local.len }),
        }
    }
}

impl Port for Route {
    /// Returns the capabilities that hold on every path.
    #[inline]
    fn caps(&self) -> &Caps {
        &self.caps
    }

    #[inline]
    fn caps_for(&self, peer: PeerId) -> &Caps {
        let Some(&Peer { path, inner, .. }) = self.peers.get(peer.0 as usize) else { return &self.caps };
        let caps = match path {
            Path::Shm => self.shm.as_ref().map(|branch| branch.port.caps_for(inner)),
            Path::Loopback => self.loopback.as_ref().map(|branch| branch.port.caps_for(inner)),
            #[cfg(feature = "ofi")]
            Path::Ofi => self.ofi.as_ref().map(|branch| branch.port.caps_for(inner)),
            #[cfg(not(feature = "ofi"))]
            Path::Ofi => None,
            Path::Delay => self.delay.as_ref().map(|branch| branch.port.caps_for(inner)),
        };
        caps.unwrap_or(&self.caps)
    }

    fn address(&self) -> Address {
        let addresses = [
            self.loopback.as_ref().map(|branch| (Path::Loopback, branch.port.address())),
            self.shm.as_ref().map(|branch| (Path::Shm, branch.port.address())),
            #[cfg(feature = "ofi")]
            self.ofi.as_ref().map(|branch| (Path::Ofi, branch.port.address())),
            self.delay.as_ref().map(|branch| (Path::Delay, branch.port.address())),
        ];
        Addresses::new(addresses.into_iter().flatten()).encode()
    }

    fn resolve(&mut self, address: &Address) -> Result<PeerId, PortError> {
        let addresses = Addresses::decode(address)?;
        let (mut refusals, mut telling) = (Vec::new(), None);
        let Some((path, inner)) = self.choose(&addresses, &mut refusals, &mut telling) else {
            // If a path had no room, it may have room later, or with another setting.
            if let Some(telling) = telling {
                return Err(telling);
            }
            let refusals: Vec<_> = refusals.iter().map(|(path, why)| format!("{path}: {why}")).collect();
            return Err(PortError::Unreachable {
                why: match refusals.is_empty() {
                    true => "its address names no port that this version knows".into(),
                    false => refusals.join("; "),
                },
            });
        };
        if let Some(&known) = self.peer_ids.get(&(path, inner)) {
            return Ok(known);
        }
        let peer = PeerId(u32::try_from(self.peers.len()).map_err(|_| PortError::Exhausted {
            what: "names of peers",
            hint: "2^32 were resolved by this port: open another".into(),
        })?);
        self.peer_ids.insert((path, inner), peer);
        self.peers.push(Peer { path, inner, addresses, refusals: refusals.into() });
        Ok(peer)
    }

    #[inline(always)]
    fn send_body(&mut self, to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Result<Post, PortError> {
        if let Some(&Peer { path: Path::Shm, inner, .. }) = self.peers.get(to.0 as usize)
            && let Some(branch) = &mut self.shm
        {
            return outcome(to, Some(branch.port.send_body(inner, head, body)));
        }
        self.send_elsewhere(to, head, body)
    }

    fn send_zcopy(&mut self, to: PeerId, head: &[u8], body: Local, op: OpId) -> Result<Post, PortError> {
        let (path, inner, body) = self.with_local(to, body)?;
        outcome(to, on!(self, path, branch => branch.operate(|port| port.send_zcopy(inner, head, body, op))))
    }

    fn put(&mut self, to: PeerId, from: Local, into: Remote, op: OpId) -> Result<Post, PortError> {
        let (path, inner, from) = self.with_local(to, from)?;
        outcome(to, on!(self, path, branch => branch.operate(|port| port.put(inner, from, into, op))))
    }

    fn put_imm(
        &mut self,
        to: PeerId,
        from: Local,
        into: Remote,
        immediate: u64,
        op: OpId,
    ) -> Result<Post, PortError> {
        let (path, inner, from) = self.with_local(to, from)?;
        outcome(
            to,
            on!(self, path, branch => branch.operate(|port| port.put_imm(inner, from, into, immediate, op))),
        )
    }

    fn get(&mut self, to: PeerId, into: Local, from: Remote, op: OpId) -> Result<Post, PortError> {
        let (path, inner, into) = self.with_local(to, into)?;
        outcome(to, on!(self, path, branch => branch.operate(|port| port.get(inner, into, from, op))))
    }

    fn put_bytes(&mut self, to: PeerId, from: &[u8], into: Remote, op: OpId) -> Result<Post, PortError> {
        let (path, inner) = self.peer(to)?;
        outcome(to, on!(self, path, branch => branch.operate(|port| port.put_bytes(inner, from, into, op))))
    }

    fn put_v(&mut self, to: PeerId, from: &[Local], into: Remote, op: OpId) -> Result<Post, PortError> {
        let (path, inner) = self.peer(to)?;
        let parts = from.iter().map(|&part| self.with_local(to, part).map(|(.., part)| part));
        let from = parts.collect::<Result<Vec<_>, _>>()?;
        outcome(to, on!(self, path, branch => branch.operate(|port| port.put_v(inner, &from, into, op))))
    }

    fn get_bytes(&mut self, to: PeerId, into: &mut [u8], from: Remote) -> Result<Post, PortError> {
        let (path, inner) = self.peer(to)?;
        outcome(to, on!(self, path, branch => branch.port.get_bytes(inner, into, from)))
    }

    fn change(&mut self, to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError> {
        let (path, inner) = self.peer(to)?;
        let changed = outcome(to, on!(self, path, branch => branch.port.change(inner, how, at, op)))?;
        if changed == Changed::Done {
            on!(self, path, branch => branch.outstanding += 1);
        }
        Ok(changed)
    }

    fn map(&mut self, to: PeerId, at: Remote, len: usize) -> Option<Window> {
        let (path, inner) = self.peer(to).ok()?;
        on!(self, path, branch => branch.port.map(inner, at, len)).flatten()
    }

    fn expose(&mut self, to: PeerId, bytes: &[u8]) -> Option<Exposure> {
        let (path, inner) = self.peer(to).ok()?;
        on!(self, path, branch => branch.port.expose(inner, bytes)).flatten()
    }

    fn read(&mut self, from: PeerId, at: Remote, into: &mut [u8]) -> Result<bool, PortError> {
        let (path, inner) = self.peer(from)?;
        outcome(from, on!(self, path, branch => branch.port.read(inner, at, into)))
    }

    fn has_boards(&self) -> bool {
        self.shm.is_some()
    }

    fn open_slot(&mut self) -> Result<Slot, PortError> {
        match &mut self.shm {
            Some(branch) => branch.port.open_slot(),
            None => Err(PortError::Unsupported { what: "share a board" }),
        }
    }

    fn path(&self, peer: PeerId) -> Result<PathId, PortError> {
        let (path, inner) = self.peer(peer)?;
        let inner = match path {
            Path::Delay => {
                self.delay.as_ref().map_or(Ok(PathId::default()), |branch| branch.port.path(inner))
            }
            // These ports have one path each.
            Path::Loopback | Path::Shm | Path::Ofi => Ok(PathId::default()),
        };
        Ok(PathId(outcome(peer, Some(inner))?.0 << PATH_BITS | path as u32))
    }

    fn register_span(
        &mut self,
        path: PathId,
        region: &Region,
        span: Range<usize>,
        access: Access,
    ) -> Result<Registration, PortError> {
        let unknown = PortError::Unsupported { what: "register memory on a path that it does not have" };
        let (path, inner) = inner_path(path.0).ok_or_else(|| unknown.clone())?;
        let registered =
            on!(self, path, branch => branch.port.register_span(PathId(inner), region, span, access));
        self.outer_registration(path, registered.ok_or(unknown)??)
    }

    fn register(&mut self, peer: PeerId, region: &Region, access: Access) -> Result<Registration, PortError> {
        let (path, inner) = self.peer(peer)?;
        let registered = on!(self, path, branch => branch.port.register(inner, region, access));
        self.outer_registration(path, outcome(peer, registered)?)
    }

    fn deregister(&mut self, registration: Registration) {
        if let Some((path, registration)) = inner_registration(registration) {
            on!(self, path, branch => branch.port.deregister(registration));
        }
    }

    fn suspend(&mut self, registration: Registration) -> bool {
        let Some((path, registration)) = inner_registration(registration) else { return false };
        on!(self, path, branch => branch.port.suspend(registration)).unwrap_or(false)
    }

    fn resume(&mut self, path: PathId, registration: Registration, region: &Region) -> bool {
        let Some((path, inner)) = inner_path(path.0) else { return false };
        match inner_registration(registration) {
            Some((registered, registration)) if registered == path => {
                on!(self, path, branch => branch.port.resume(PathId(inner), registration, region))
                    .unwrap_or(false)
            }
            _ => false,
        }
    }

    #[inline]
    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let peer_ids = &self.peer_ids;
        let mut events = 0;
        // No route has both (see `new`), so the second check costs nothing beside shared memory.
        if let Some(shm) = &mut self.shm {
            events += shm.poll(Path::Shm, peer_ids, sink)?;
        } else if let Some(delay) = &mut self.delay {
            events += delay.poll(Path::Delay, peer_ids, sink)?;
        }
        if let Some(loopback) = &mut self.loopback {
            events += loopback.poll(Path::Loopback, peer_ids, sink)?;
        }
        #[cfg(feature = "ofi")]
        if let Some(ofi) = &mut self.ofi
            && (ofi.outstanding > 0 || self.ofi_pace.is_due())
        {
            let came = ofi.poll(Path::Ofi, peer_ids, sink)?;
            self.ofi_pace.polled(came > 0);
            events += came;
        }
        Ok(events)
    }

    /// Checks only shared memory, where the check takes hardly any time.
    #[inline(always)]
    fn has_packet(&self) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.port.has_packet())
    }

    #[inline(always)]
    fn next_packet<S: Sink>(&mut self, sink: &mut S) -> bool {
        self.shm.as_mut().is_some_and(|shm| shm.port.next_packet(sink))
    }

    #[inline(always)]
    fn seems_idle(&self) -> bool {
        #[cfg(feature = "ofi")]
        if self.ofi.as_ref().is_some_and(|ofi| ofi.outstanding > 0 || self.ofi_pace.is_fast()) {
            return false;
        }
        let of_host = match (&self.shm, &self.delay) {
            (Some(shm), _) => shm.port.seems_idle(),
            (None, Some(delay)) => delay.port.seems_idle(),
            (None, None) => true,
        };
        of_host && self.loopback.as_ref().is_none_or(|loopback| loopback.port.seems_idle())
    }

    fn has_unsent(&self) -> bool {
        #[cfg(feature = "ofi")]
        if self.ofi.as_ref().is_some_and(|ofi| ofi.port.has_unsent()) {
            return true;
        }
        // Shared memory takes whole packets.
        self.delay.as_ref().is_some_and(|delay| delay.port.has_unsent())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = Vec::new();
        all.extend(self.shm.iter().flat_map(|branch| branch.port.descriptors()));
        all.extend(self.loopback.iter().flat_map(|branch| branch.port.descriptors()));
        #[cfg(feature = "ofi")]
        all.extend(self.ofi.iter().flat_map(|branch| branch.port.descriptors()));
        all.extend(self.delay.iter().flat_map(|branch| branch.port.descriptors()));
        all
    }

    /// Arms all ports. If one of them cannot be left alone, no port stays armed.
    fn arm(&mut self) -> Sleep {
        let mut sleep = Sleep::UntilReadable;
        for path in Path::ALL {
            if let Some(possible) = on!(self, path, branch => branch.port.arm()) {
                sleep = sleep.min(possible);
            }
            if sleep == Sleep::NotNow {
                self.disarm();
                break;
            }
        }
        sleep
    }

    fn disarm(&mut self) {
        for path in Path::ALL {
            on!(self, path, branch => branch.port.disarm());
            self.expect_traffic(path);
        }
    }

    /// Disconnects the peer on all paths, because the peer may send to this side on another path than this side uses.
    fn fence_peer(&mut self, peer: PeerId) {
        let Some(Peer { path: chosen, inner, addresses, .. }) = self.peers.get(peer.0 as usize) else {
            return;
        };
        on!(self, *chosen, branch => branch.port.fence_peer(*inner));
        for (path, address) in addresses.iter().filter(|(path, _)| path != chosen) {
            on!(self, path, branch => {
                if let Ok(inner) = branch.port.resolve(address) {
                    branch.port.fence_peer(inner);
                }
            });
        }
    }
}

/// One of the ports of a route.
#[derive(Debug)]
struct Branch<P> {
    port: P,
    /// The number of the port's operations that have not completed.
    outstanding: usize,
}

impl<P: Port> Branch<P> {
    fn new(port: P) -> Self {
        Self { port, outstanding: 0 }
    }

    fn operate(&mut self, post: impl FnOnce(&mut P) -> Result<Post, PortError>) -> Result<Post, PortError> {
        let posted = post(&mut self.port)?;
        if posted == Post::Done {
            self.outstanding += 1;
        }
        Ok(posted)
    }

    #[inline]
    fn poll<S: Sink>(&mut self, path: Path, peer_ids: &PeerIds, sink: &mut S) -> Result<usize, PortError> {
        self.port.poll(&mut PeerIdMapper { sink, path, peer_ids, outstanding: &mut self.outstanding })
    }
}

/// Forwards the events of one port, and replaces its `PeerId`s with the route's.
struct PeerIdMapper<'a, S> {
    sink: &'a mut S,
    path: Path,
    peer_ids: &'a PeerIds,
    outstanding: &'a mut usize,
}

impl<S: Sink> Sink for PeerIdMapper<'_, S> {
    #[inline(always)]
    fn packet(&mut self, bytes: &[u8]) {
        self.sink.packet(bytes);
    }

    #[inline(always)]
    fn long_packet<B: Body>(&mut self, head: &[u8], body: &B) {
        self.sink.long_packet(head, body);
    }

    fn completed(&mut self, op: OpId, result: Result<(), Failure>) {
        *self.outstanding = self.outstanding.saturating_sub(1);
        self.sink.completed(op, result);
    }

    fn changed(&mut self, op: OpId, before: u64) {
        *self.outstanding = self.outstanding.saturating_sub(1);
        self.sink.changed(op, before);
    }

    fn notified(&mut self, immediate: u64) {
        self.sink.notified(immediate);
    }

    fn peer_lost(&mut self, peer: PeerId) {
        // The map has no entry for a peer that the route reaches on another path. `fence_peer` resolves such a peer on
        // this path, only to fence it.
        if let Some(&peer) = self.peer_ids.get(&(self.path, peer)) {
            self.sink.peer_lost(peer);
        }
    }
}

/// Converts the result of an inner port, so that [`PortError::PeerGone`] names the route's `PeerId` of the peer.
/// `answer` is `None` if there is no such port: then the peer is gone too.
#[inline(always)]
fn outcome<T>(peer: PeerId, answer: Option<Result<T, PortError>>) -> Result<T, PortError> {
    match answer {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) if !matches!(error, PortError::PeerGone(_)) => Err(error),
        _ => Err(PortError::PeerGone(peer)),
    }
}

/// Returns the path that the registration's id names, and the registration as the port of that path knows it. Returns
/// `None` if there is no such path.
fn inner_registration(registration: Registration) -> Option<(Path, Registration)> {
    let (path, id) = inner_path(registration.id)?;
    Some((path, Registration { id, ..registration }))
}

/// Splits a number of the route into the path in its low bits, and the number that the port of that path uses. Returns
/// `None` if there is no such path.
fn inner_path(number: u32) -> Option<(Path, u32)> {
    let path = number & ((1 << PATH_BITS) - 1);
    Some((Path::ALL.into_iter().find(|&known| known as u32 == path)?, number >> PATH_BITS))
}

/// Returns the capabilities that hold for both ports.
fn common(a: Caps, b: Caps) -> Caps {
    Caps {
        name: format!("{}+{}", a.name, b.name),
        short_max: a.short_max.min(b.short_max),
        packet_max: a.packet_max.min(b.packet_max),
        fragment_max: a.fragment_max.min(b.fragment_max),
        zcopy_max: a.zcopy_max.min(b.zcopy_max),
        rma_max: a.rma_max.min(b.rma_max),
        put_bytes_max: a.put_bytes_max.min(b.put_bytes_max),
        get_bytes_max: a.get_bytes_max.min(b.get_bytes_max),
        iov_max: a.iov_max.min(b.iov_max),
        rma_depth: a.rma_depth.min(b.rma_depth),
        put: a.put.min(b.put),
        get: a.get.min(b.get),
        change: a.change.min(b.change),
        // Memory that one path cannot map is reached by packets.
        map: a.map || b.map,
        passive: a.passive && b.passive,
        immediate_bits: a.immediate_bits.min(b.immediate_bits),
        order: a.order & b.order,
        fence: a.fence && b.fence,
        // A peer for which one port has no room uses another path.
        peers_max: a.peers_max.max(b.peers_max),
        dear_packets: a.dear_packets && b.dear_packets,
    }
}

/// The low bits of a registration's id, and of a [`PathId`], are the path. The others are the number that the port of
/// that path uses. That port may be another route.
const PATH_BITS: u32 = 2;
const INNER_ID_MAX: u32 = u32::MAX >> PATH_BITS;

/// The largest number of the route's polls for each poll of an idle provider. Over tcp a poll of the provider is a
/// system call of 0.2 µs, so on average it costs each poll of the route some 1 ns (examples/idle_network.rs). The
/// number is not larger, because the first packet after a pause may wait for this number of polls of the route, and a
/// caller may poll rarely.
#[cfg(feature = "ofi")]
const OFI_INTERVAL_MAX: u32 = 256;

#[cfg(test)]
mod tests;
