//! Slabs of a protocol whose peer fails.

use samite_fabric::link::{
    Cause, Done, Ending, Expiry, Fault, Lent, Link, Out, Peer, RequestId, Slab, Stack, Time, Turn, WorldRank,
};
use samite_fabric::sim::{Config as SimConfig, Net};
use samite_fabric::wire::{Header, Protocol};
use samite_fabric::{Access, Caps, Port, PortError, Post};

use crate::pair;

/// A protocol that has one slab, and ends a peer when it is driven.
#[derive(Default)]
struct Holder {
    slab: Option<Slab>,
    to_end: Option<Peer>,
}

impl Stack for Holder {
    fn packet<L: Lent>(
        &mut self,
        _: &mut Link,
        _: Peer,
        _: &Header,
        _: &[u8],
        _: &mut L,
    ) -> Result<(), Fault> {
        unreachable!("no packet is sent")
    }

    fn completed<L: Lent>(&mut self, _: &mut Link, _: Done, _: &mut L) -> Result<(), Fault> {
        Ok(())
    }

    fn path_resolved(&mut self, _: &mut Link, _: Peer, _: &Caps) {}

    fn peer_ended(&mut self, link: &mut Link, _: Peer, _: &Ending<'_>) {
        self.slab.take().into_iter().for_each(|slab| link.retire_slab(slab));
    }

    fn no_path(&mut self, _: &mut Link, _: Peer, _: &'static str, _: &str) {}

    fn expired(&mut self, _: &mut Link, _: RequestId, _: Time, _: bool) -> Expiry {
        Expiry::Done
    }

    fn next<P: Port>(&mut self, _: &mut Out<'_, P>, _: Peer, _: Protocol) -> Result<Turn, PortError> {
        Ok(Turn::Skipped)
    }

    fn backlog(&self) -> usize {
        usize::from(self.to_end.is_some())
    }

    fn drive<P: Port, L: Lent>(
        &mut self,
        _: &mut Out<'_, P>,
        pieces: &mut usize,
        _: &mut L,
    ) -> Result<(), Fault> {
        *pieces = 0;
        self.to_end.take().map_or(Ok(()), |peer| Err(Fault::new(peer, Cause::Lost)))
    }
}

/// A put of the peer is on its way to the slab when a drive of the engine finds that the peer has failed.
#[test]
fn the_path_of_a_peer_is_cut_off_before_its_slab_is_freed() {
    let config = SimConfig { jitter_ns: 10_000, ..SimConfig::default() };
    for seed in 0..50 {
        let net = Net::new(seed, config.clone());
        let [mut a, mut b] = pair([0, 1].map(|rank| net.start(rank)), Holder::default);
        for _ in 0..100 {
            let now = Time::from_nanos(net.now_ns());
            for engine in [&mut a, &mut b] {
                engine.poll(now, &mut ()).expect("the port works");
            }
            net.advance();
        }
        let [to_b, to_a] = [(&mut a, 1), (&mut b, 0)]
            .map(|(engine, rank)| engine.link_mut().find_or_meet(WorldRank(rank)).expect("a rank"));
        let (mut out, stack) = a.parts();
        let slab = out.take_slab(to_b, 1000, Access::REMOTE_WRITE).expect("there is room");
        let place = slab.remote(0);
        (stack.slab, stack.to_end) = (Some(slab), Some(to_b));
        let (mut out, _) = b.parts();
        let from = out.take_slab(to_a, 1000, Access::LOCAL_READ).expect("there is room");
        from.region().copy_in(0, &[7; 1000]).expect("it fits");
        let path = out.link.peer(to_a).path().expect("they have met");
        assert_eq!(out.put(path, from.local(0, 1000), place, Protocol::Rpc, 1), Ok(Post::Done));
        // The put begins and lands at some later time.
        for _ in 0..seed % 4 {
            net.advance();
        }
        a.drive(&mut ());
        assert_eq!(a.link().quarantined(), (0, 0), "seed {seed}");
        assert_eq!(a.port().registrations(), 0);
        b.link_mut().retire_slab(from);
    }
}
