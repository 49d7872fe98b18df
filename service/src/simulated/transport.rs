//! The port of every rank in a build with the feature `simulated`: a real or a simulated port.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::board::Slot;
use samite_fabric::sim::SimPort;
use samite_fabric::{
    Access, Address, Body, Caps, Change, Changed, Exposure, Local, OpId, PathId, PeerId, Port, PortError,
    Post, Region, Registration, Remote, Sink, Sleep, Window,
};

use super::stage::Stage;

/// A real transport or a simulated one.
pub(crate) enum Either {
    Route(Box<Route>),
    Staged(Staged),
}

/// A simulated port, whose polls may pass the turn to another rank.
pub(crate) struct Staged {
    port: SimPort,
    stage: Arc<Stage>,
}

impl Staged {
    pub(crate) fn new(port: SimPort, stage: Arc<Stage>) -> Self {
        Self { port, stage }
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        let rank = self.port.process().rank;
        let events = self.port.poll(sink)?;
        self.stage.polled(rank, events > 0);
        match events {
            0 => self.port.poll(sink),
            events => Ok(events),
        }
    }
}

impl Either {
    /// See [`Route::new`].
    pub(crate) fn new(ports: Ports) -> Result<Self, PortError> {
        Route::new(ports).map(|route| Self::Route(Box::new(route)))
    }

    /// See [`Route::explain`].
    pub(crate) fn explain(&self, peer: PeerId) -> Option<String> {
        match self {
            Self::Route(route) => route.explain(peer),
            Self::Staged(_) => None,
        }
    }
}

/// Implements methods that both ports have.
macro_rules! forward {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self, $($arg: $type),*) $(-> $result)? {
            match self {
                Self::Route(route) => route.$name($($arg),*),
                Self::Staged(staged) => staged.port.$name($($arg),*),
            }
        })*
    };
    (mut $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self, $($arg: $type),*) $(-> $result)? {
            match self {
                Self::Route(route) => route.$name($($arg),*),
                Self::Staged(staged) => staged.port.$name($($arg),*),
            }
        })*
    };
}

type Posted = Result<Post, PortError>;

impl Port for Either {
    forward! {
        fn caps() -> &Caps;
        fn caps_for(peer: PeerId) -> &Caps;
        fn address() -> Address;
        fn path(peer: PeerId) -> Result<PathId, PortError>;
        fn has_boards() -> bool;
        fn has_packet() -> bool;
        fn seems_idle() -> bool;
        fn has_unsent() -> bool;
        fn descriptors() -> Vec<BorrowedFd<'_>>;
    }

    forward! { mut
        fn resolve(address: &Address) -> Result<PeerId, PortError>;
        fn send_body(to: PeerId, head: &[u8], body: &(impl Body + ?Sized)) -> Posted;
        fn send_zcopy(to: PeerId, head: &[u8], body: Local, op: OpId) -> Posted;
        fn put(to: PeerId, from: Local, into: Remote, op: OpId) -> Posted;
        fn put_bytes(to: PeerId, from: &[u8], into: Remote, op: OpId) -> Posted;
        fn put_v(to: PeerId, from: &[Local], into: Remote, op: OpId) -> Posted;
        fn put_imm(to: PeerId, from: Local, into: Remote, word: u64, op: OpId) -> Posted;
        fn get(to: PeerId, into: Local, from: Remote, op: OpId) -> Posted;
        fn get_bytes(to: PeerId, into: &mut [u8], from: Remote) -> Posted;
        fn change(to: PeerId, how: Change, at: Remote, op: OpId) -> Result<Changed, PortError>;
        fn map(to: PeerId, at: Remote, len: usize) -> Option<Window>;
        fn open_slot() -> Result<Slot, PortError>;
        fn expose(to: PeerId, bytes: &[u8]) -> Option<Exposure>;
        fn read(from: PeerId, at: Remote, into: &mut [u8]) -> Result<bool, PortError>;
        fn register_span(path: PathId, region: &Region, span: Range<usize>, access: Access) -> Result<Registration, PortError>;
        fn register(peer: PeerId, region: &Region, access: Access) -> Result<Registration, PortError>;
        fn deregister(registration: Registration);
        fn suspend(registration: Registration) -> bool;
        fn resume(path: PathId, registration: Registration, region: &Region) -> bool;
        fn arm() -> Sleep;
        fn disarm();
        fn fence_peer(peer: PeerId);
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> Result<usize, PortError> {
        match self {
            Self::Route(route) => route.poll(sink),
            Self::Staged(staged) => staged.poll(sink),
        }
    }

    fn next_packet<S: Sink>(&mut self, sink: &mut S) -> bool {
        match self {
            Self::Route(route) => route.next_packet(sink),
            Self::Staged(staged) => staged.port.next_packet(sink),
        }
    }
}
