//! Fences a peer: afterwards the provider does not access the memory of the operations with that peer.
//!
//! In the rxm protocol the removal of a peer's address closes the peer's connection, in both directions, and cancels
//! the operations queued on the connection (rxm_av_remove_handler and tcpx_ep_flush_all_queues at v1.17.0). In one
//! state the removal would crash: if rxm has an entry for the connection, but has neither made the connection nor begun
//! to make it, rxm closes an endpoint that does not exist. A connection is in that state in two cases. (1) The peer
//! rejected our connection request because it had sent its own request (rxm_process_reject, `RXM_REJECT_EALREADY`);
//! this lasts until the next post, or until the peer's request arrives. (2) A post failed for another reason than lack
//! of room.

use samite_fabric_sys as sys;

use super::OfiPort;
use crate::PeerId;

/// The known state of the connection to a peer.
enum Connection {
    /// The connection can be closed.
    Closable,
    /// There is no connection.
    Absent,
}

/// The largest number of posts by which a fence probes a connection. Each post also drives the provider's progress.
const PROBES_MAX: usize = 64;

impl OfiPort {
    /// See [`Port::fence_peer`](crate::Port::fence_peer).
    pub(super) fn fence(&mut self, peer: PeerId) {
        if self.peers.get(peer.0 as usize).is_none_or(|known| known.fenced) {
            return;
        }
        self.cut_off(peer);
        self.peers[peer.0 as usize].fenced = true;
        // The provider knows only one peer for each address. If a new peer was resolved at the same address, the
        // address must not be removed.
        let replaced = self.resolved.contains_key(&self.peers[peer.0 as usize].address);
        let closed = self.caps.fence && !replaced && self.close_connection(peer);
        if !closed || !self.in_flight(peer).is_empty() {
            self.registrations.taint(peer);
        }
    }

    /// Closes the connection to a peer, if there is one, and ends the operations on it. Returns false if the connection
    /// may still exist.
    fn close_connection(&mut self, peer: PeerId) -> bool {
        let drained = self.drain();
        let known = &self.peers[peer.0 as usize];
        let fi_address = known.fi_address;
        // The connection can be closed safely in these cases: nothing was posted yet (`last_post_accepted` is true at
        // first), so that only the peer can have made a connection; or the latest post was accepted; or operations are
        // in flight after a complete drain. The drain has ended all operations of a broken connection, so these belong
        // to an intact one. Otherwise a probe decides.
        let made = known.last_post_accepted || (drained && !known.in_flight.is_empty());
        let connection = if made { Connection::Closable } else { self.probe(fi_address) };
        match connection {
            Connection::Closable => self.domain.remove(fi_address).is_ok() && self.drain(),
            Connection::Absent => drained,
        }
    }

    /// Probes a connection by a write of no bytes, which the peer refuses.
    fn probe(&mut self, fi_address: sys::fi_addr_t) -> Connection {
        for _ in 0..PROBES_MAX {
            self.drain();
            // SAFETY: the endpoint is live and has FI_RMA, and the address was not removed. No byte is read or
            // written.
            let status =
                unsafe { sys::fi_inject_write(self.ep(), self.scratch.as_ptr().cast(), 0, fi_address, 0, 0) };
            if status == 0 {
                return Connection::Closable;
            }
            if status != -(sys::FI_EAGAIN as isize) {
                return Connection::Absent;
            }
        }
        // Each probe found the connection still being made, and such a connection can be closed. By now it may be in
        // another state, if the peer's answer arrived during the last probe. That is unlikely after so many probes
        // without an answer.
        Connection::Closable
    }
}
