//! Tagged messages beside another protocol on the same link: each gets its own packets and deadlines, and both learn of
//! the end of a peer.

use samite_fabric::link::{Done, Ending, Expiry, Fault, Link, Slot, Slots, Stack, Turn};
use samite_fabric::wire::WireError;
use samite_fabric::{Caps, PortError, Post};

use super::*;

/// The number of the other protocol.
const OTHER: Protocol = Protocol::Rpc;

/// A protocol that counts events. It queues packets of 8 bytes.
struct Counts {
    timers: Slots<Timer>,
    queued: Vec<(Peer, u64)>,
    received: Vec<u64>,
    paths: usize,
    ended: Vec<Peer>,
    expired: Vec<RequestId>,
    /// The pieces of work that wait for a drive.
    pieces: usize,
}

struct Timer;

impl Slot for Timer {
    fn bare() -> Self {
        Self
    }
    fn is_bare(&self) -> bool {
        true
    }
}

struct Beside {
    tagged: Tagged,
    counts: Counts,
}

impl HasTagged for Beside {
    fn tagged(&self) -> &Tagged {
        &self.tagged
    }
    fn tagged_mut(&mut self) -> &mut Tagged {
        &mut self.tagged
    }
}

impl Stack for Beside {
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
        if header.protocol() != OTHER {
            return self.tagged.packet(link, from, header, body, lent);
        }
        let word = body.try_into().map_err(|_| Fault::new(from, WireError::Short { len: body.len() }))?;
        self.counts.received.push(u64::from_le_bytes(word));
        Ok(())
    }

    fn completed<L: Lent>(&mut self, link: &mut Link, done: Done, lent: &mut L) -> Result<(), Fault> {
        self.tagged.completed(link, done, lent)
    }

    fn path_resolved(&mut self, link: &mut Link, peer: Peer, caps: &Caps) {
        self.tagged.path_resolved(link, peer, caps);
        self.counts.paths += 1;
    }

    fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        Stack::peer_ended(&mut self.tagged, link, peer, ending);
        if let Ending::Failed(_) = ending {
            self.counts.ended.push(peer);
        }
    }

    fn no_path(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str) {
        self.tagged.no_path(link, peer, what, hint);
    }

    fn expired(&mut self, link: &mut Link, request: RequestId, due: Time, busy: bool) -> Expiry {
        if request.protocol() != Some(OTHER) {
            return self.tagged.expired(link, request, due, busy);
        }
        self.counts.expired.push(request);
        Expiry::Done
    }

    fn next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        protocol: Protocol,
    ) -> Result<Turn, PortError> {
        if protocol != OTHER {
            return self.tagged.next(out, to, protocol);
        }
        let queued = &mut self.counts.queued;
        let Some(place) = queued.iter().position(|(peer, _)| *peer == to) else {
            out.link.clear_queued(to, OTHER);
            return Ok(Turn::Skipped);
        };
        let header = out.link.header(to, OTHER, 0, Flags::empty(), 0);
        let post = out.send(to, header.as_bytes(), &queued[place].1.to_le_bytes()[..])?;
        if post == Post::Done {
            queued.remove(place);
        }
        Ok(post.into())
    }

    fn bulk<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        lent: &mut L,
    ) -> Result<Post, PortError> {
        self.tagged.bulk(out, to, lent)
    }

    fn backlog(&self) -> usize {
        self.tagged.backlog() + self.counts.pieces
    }

    fn drive<P: Port, L: Lent>(
        &mut self,
        out: &mut Out<'_, P>,
        pieces: &mut usize,
        lent: &mut L,
    ) -> Result<(), Fault> {
        if self.counts.pieces > 0 {
            self.counts.pieces -= 1;
            *pieces -= 1;
            return Ok(());
        }
        self.tagged.drive(out, pieces, lent)
    }

    fn has_data_for(&self, peer: Peer) -> bool {
        self.tagged.has_data_for(peer)
    }

    fn said_goodbye(&mut self, link: &mut Link, peer: Peer) {
        self.tagged.said_goodbye(link, peer);
    }
}

fn beside() -> [Engine<Loopback, Beside>; 2] {
    let hub = Hub::new();
    let ports = [hub.port(), hub.port()];
    let addresses = ports.each_ref().map(|port| port.address());
    let mut rank = 0;
    ports.map(|port| {
        let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 7, secret: [9; 16] };
        rank += 1;
        let counts = Counts {
            timers: Slots::new(OTHER),
            queued: Vec::new(),
            received: Vec::new(),
            paths: 0,
            ended: Vec::new(),
            expired: Vec::new(),
            pieces: 0,
        };
        let stack = Beside { tagged: Tagged::new(without_puts()), counts };
        let mut engine = Engine::with_stack(port, identity, stack);
        for (rank, address) in (0..).zip(&addresses) {
            engine.introduce(WorldRank(rank), 7, address.clone()).unwrap();
        }
        engine
    })
}

fn poll(engines: &mut [Engine<Loopback, Beside>; 2], now: Time) {
    let mut idle = 0;
    while idle < 4 {
        let events: usize = engines.iter_mut().map(|engine| engine.poll(now, &mut ()).unwrap()).sum();
        idle = if events == 0 { idle + 1 } else { 0 };
    }
    engines.iter().for_each(Engine::check_invariants);
}

/// Queues a packet of the other protocol from rank 0 to rank 1.
fn queue(engine: &mut Engine<Loopback, Beside>, word: u64) {
    let (out, stack) = engine.parts();
    let peer = out.link.find_or_meet(WorldRank(1)).unwrap();
    stack.counts.queued.push((peer, word));
    out.link.set_queued(peer, OTHER);
    out.link.list(peer);
    engine.drive(&mut ());
}

#[test]
fn messages_of_every_length_and_packets_of_another_protocol_share_a_path() {
    let mut engines = beside();
    poll(&mut engines, Time::ZERO);
    for (len, word) in [8, 20_000, 3_000_000].into_iter().zip(0..) {
        let pattern = Pattern::exact(1, 0, 5);
        let recv = engines[1].irecv(Time::ZERO, pattern, Memory::zeroed(len), NEVER).unwrap();
        let data = Memory::new(bytes(len));
        let send = engines[0].isend(Time::ZERO, WorldRank(1), 1, 5, data, NEVER).unwrap();
        queue(&mut engines[0], word);
        engines[1].parts().1.counts.pieces = 3;
        engines[1].parts().0.link.defer();
        poll(&mut engines, Time::ZERO);
        let received = engines[1].collect(recv, &mut ()).expect("it has arrived").memory.unwrap();
        assert!(received.as_bytes() == bytes(len));
        engines[0].collect(send, &mut ()).expect("it has ended").result.unwrap();
        assert_eq!(engines[1].stack().counts.pieces, 0, "both protocols are driven");
    }
    assert_eq!(engines[1].stack().counts.received, [0, 1, 2]);
    assert_eq!(engines[1].stack().counts.paths, 2, "to both ranks");
}

#[test]
fn a_deadline_is_that_of_its_protocol() {
    let mut engines = beside();
    let recv = engines[1]
        .irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), Time::from_nanos(10))
        .unwrap();
    let (out, stack) = engines[1].parts();
    let timer = stack.counts.timers.insert(Timer);
    out.link.set_deadline(timer, Time::from_nanos(20), |_, _| true);
    poll(&mut engines, Time::from_nanos(15));
    assert!(engines[1].stack().counts.expired.is_empty());
    assert!(matches!(engines[1].collect(recv, &mut ()).unwrap().result, Err(Error::TimedOut { .. })));
    poll(&mut engines, Time::from_nanos(25));
    assert_eq!(engines[1].stack().counts.expired, [timer]);
}

#[test]
fn both_protocols_learn_of_the_end_of_a_peer() {
    let mut engines = beside();
    poll(&mut engines, Time::ZERO);
    let recv = engines[1].irecv(Time::ZERO, Pattern::exact(1, 0, 5), Memory::zeroed(8), NEVER).unwrap();
    engines[1].peer_failed(WorldRank(0), Some(7), Cause::Lost).unwrap();
    assert!(matches!(engines[1].collect(recv, &mut ()).unwrap().result, Err(Error::PeerFailed { .. })));
    assert_eq!(engines[1].stack().counts.ended.len(), 1);
}
