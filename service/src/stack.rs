//! The protocols of a rank: tagged messages and windows, over one link.

use samite_fabric::link::{Done, Ending, Expiry, Fault, Lent, Link, Out, Peer, RequestId, Stack, Time, Turn};
use samite_fabric::wire::{Header, Protocol, WireError};
use samite_fabric::{Body, Caps, Port, PortError, Post};
use samite_p2p::{Config, HasTagged, Identity, Tagged};
use samite_rma::Windows;

/// The engine of a rank.
pub(crate) type Engine<P> = samite_p2p::Engine<P, Protocols>;

/// The protocols of a rank.
#[derive(Debug)]
pub(crate) struct Protocols {
    tagged: Tagged,
    pub(crate) windows: Windows,
    /// True if the windows do the next piece of deferred work: both protocols take turns.
    are_windows_next: bool,
}

impl Protocols {
    pub(crate) fn new(config: Config) -> Self {
        let windows = Windows::new(samite_rma::Config::default());
        Self { tagged: Tagged::new(config), windows, are_windows_next: false }
    }
}

/// Makes the engine of a rank over `port`.
pub(crate) fn engine<P: Port>(port: P, identity: Identity, config: Config) -> Engine<P> {
    Engine::with_stack(port, identity, Protocols::new(config))
}

impl HasTagged for Protocols {
    #[inline(always)]
    fn tagged(&self) -> &Tagged {
        &self.tagged
    }

    #[inline(always)]
    fn tagged_mut(&mut self) -> &mut Tagged {
        &mut self.tagged
    }
}

impl Stack for Protocols {
    #[inline(always)]
    fn fast<L: Lent>(&mut self, link: &mut Link, packet: &[u8], lent: &mut L) -> Result<bool, Fault> {
        self.tagged.fast(link, packet, lent)
    }

    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        lent: &mut L,
    ) -> Result<(), Fault> {
        match header.protocol() {
            Protocol::P2p => self.tagged.packet(link, from, header, body, lent),
            Protocol::Rma => self.windows.packet(link, from, header, body, lent),
            other => Err(Fault::new(from, WireError::Protocol { theirs: other as u8 })),
        }
    }

    fn long_packet<B: Body, L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        head: &[u8],
        body: &B,
        lent: &mut L,
    ) -> Result<(), Fault> {
        match header.protocol() {
            Protocol::P2p => self.tagged.long_packet(link, from, header, head, body, lent),
            Protocol::Rma => self.windows.long_packet(link, from, header, head, body, lent),
            other => Err(Fault::new(from, WireError::Protocol { theirs: other as u8 })),
        }
    }

    fn completed<L: Lent>(&mut self, link: &mut Link, done: Done, lent: &mut L) -> Result<(), Fault> {
        match done.protocol {
            Protocol::P2p => self.tagged.completed(link, done, lent),
            Protocol::Rma => self.windows.completed(link, done, lent),
            other => unreachable!("{other:?} posts no operations"),
        }
    }

    fn notified(&mut self, link: &mut Link, immediate: u64) -> bool {
        self.windows.notified(link, immediate)
    }

    fn path_resolved(&mut self, link: &mut Link, peer: Peer, caps: &Caps) {
        self.tagged.path_resolved(link, peer, caps);
        self.windows.path_resolved(link, peer, caps);
    }

    fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        Stack::peer_ended(&mut self.tagged, link, peer, ending);
        Stack::peer_ended(&mut self.windows, link, peer, ending);
    }

    fn no_path(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str) {
        self.tagged.no_path(link, peer, what, hint);
        self.windows.no_path(link, peer, what, hint);
    }

    fn expired(&mut self, link: &mut Link, request: RequestId, due: Time, busy: bool) -> Expiry {
        match request.protocol() {
            Some(Protocol::P2p) => self.tagged.expired(link, request, due, busy),
            Some(Protocol::Rma) => self.windows.expired(link, request, due, busy),
            _ => unreachable!("no other protocol has requests"),
        }
    }

    #[inline]
    fn next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        protocol: Protocol,
    ) -> Result<Turn, PortError> {
        match protocol {
            Protocol::Rma => self.windows.next(out, to, protocol),
            _ => self.tagged.next(out, to, protocol),
        }
    }

    #[inline]
    fn bulk<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        let tagged = self.tagged.bulk(out, to, lent)?;
        match self.windows.bulk(out, to, lent)? {
            Post::Again => Ok(Post::Again),
            Post::Done | Post::Over => Ok(tagged),
        }
    }

    #[inline]
    fn backlog(&self) -> usize {
        self.tagged.backlog() + self.windows.backlog()
    }

    #[inline]
    fn drive<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        pieces: &mut usize,
        lent: &mut L,
    ) -> Result<(), Fault> {
        if self.windows.backlog() == 0 {
            return self.tagged.drive(out, pieces, lent);
        }
        // One piece at a time, so that a protocol whose pieces are queued again leaves some to the other one.
        self.are_windows_next = !self.are_windows_next || self.tagged.backlog() == 0;
        *pieces -= 1;
        match self.are_windows_next {
            true => self.windows.drive(out, &mut 1, lent),
            false => self.tagged.drive(out, &mut 1, lent),
        }
    }

    fn has_data_for(&self, peer: Peer) -> bool {
        self.tagged.has_data_for(peer) || self.windows.has_data_for(peer)
    }

    fn said_goodbye(&mut self, link: &mut Link, peer: Peer) {
        Stack::said_goodbye(&mut self.tagged, link, peer);
        Stack::said_goodbye(&mut self.windows, link, peer);
    }
}
