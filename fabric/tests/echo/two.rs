//! Two protocols over one link: each gets its own packets, deadlines and completions, and the end of a peer.

use samite_fabric::link::{
    Cause, Done, Ending, Engine, Expiry, Fault, Lent, Link, Out, Peer, RequestId, Stack, Time, Turn,
    WorldRank,
};
use samite_fabric::loopback::{Hub, Loopback};
use samite_fabric::sim::{Config as SimConfig, Net, SimPort};
use samite_fabric::wire::{Header, Protocol, WireError};
use samite_fabric::{Access, Caps, Memory, Port, PortError, Post, Region};

use crate::pair;
use crate::protocol::{Echo, Ended};

const PROTOCOLS: [Protocol; 2] = [Protocol::Rpc, Protocol::Coll];

/// Two echoes, and the operations that have completed.
struct Both {
    echoes: [Echo; 2],
    completed: Vec<(Protocol, u64)>,
}

impl Both {
    fn new() -> Self {
        Self { echoes: PROTOCOLS.map(Echo::new), completed: Vec::new() }
    }

    fn of(&mut self, protocol: Protocol) -> Option<&mut Echo> {
        let place = PROTOCOLS.iter().position(|own| *own == protocol)?;
        Some(&mut self.echoes[place])
    }
}

impl Stack for Both {
    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        lent: &mut L,
    ) -> Result<(), Fault> {
        match self.of(header.protocol()) {
            Some(echo) => echo.packet(link, from, header, body, lent),
            None => Err(Fault::new(from, WireError::Protocol { theirs: header.protocol() as u8 })),
        }
    }

    fn completed<L: Lent>(&mut self, _: &mut Link, done: Done, _: &mut L) -> Result<(), Fault> {
        done.result.expect("the memory is registered");
        self.completed.push((done.protocol, done.key));
        Ok(())
    }

    fn path_resolved(&mut self, link: &mut Link, peer: Peer, caps: &Caps) {
        for echo in &mut self.echoes {
            echo.path_resolved(link, peer, caps);
        }
    }

    fn peer_ended(&mut self, link: &mut Link, peer: Peer, ending: &Ending<'_>) {
        for echo in &mut self.echoes {
            echo.peer_ended(link, peer, ending);
        }
    }

    fn no_path(&mut self, link: &mut Link, peer: Peer, what: &'static str, hint: &str) {
        for echo in &mut self.echoes {
            echo.no_path(link, peer, what, hint);
        }
    }

    fn expired(&mut self, link: &mut Link, request: RequestId, due: Time, busy: bool) -> Expiry {
        let protocol = request.protocol().expect("a deadline is of a request that was made here");
        let echo = self.of(protocol).expect("it is of one of the two protocols");
        echo.expired(link, request, due, busy)
    }

    fn next<P: Port>(
        &mut self,
        out: &mut Out<'_, P>,
        to: Peer,
        protocol: Protocol,
    ) -> Result<Turn, PortError> {
        self.of(protocol).expect("only these two set their queues").next(out, to, protocol)
    }
}

fn start<P: Port>(engine: &mut Engine<P, Both>, place: usize, bytes: &[u8], deadline: Time) -> RequestId {
    let (out, stack) = engine.parts();
    let to = out.link.find_or_meet(WorldRank(1)).unwrap();
    stack.echoes[place].call(out.link, to, bytes, deadline)
}

fn on_loopback() -> [Engine<Loopback, Both>; 2] {
    let hub = Hub::new();
    pair([hub.port(), hub.port()], Both::new)
}

/// Polls both engines until nothing happens.
fn settle(engines: &mut [Engine<Loopback, Both>; 2], now_ns: u64) {
    for _ in 0..10_000 {
        let events = engines.each_mut().map(|engine| {
            let events = engine.poll(Time::from_nanos(now_ns), &mut ()).unwrap();
            engine.check_invariants();
            events + usize::from(engine.link().has_work())
        });
        if events == [0, 0] {
            return;
        }
    }
    panic!("two ranks without work still have events");
}

#[test]
fn each_gets_its_own_packets() {
    let mut engines = on_loopback();
    let mut calls = Vec::new();
    for number in 0..40_u8 {
        for place in [0, 1] {
            calls.push((place, number, start(&mut engines[0], place, &[number, place as u8], Time::NEVER)));
        }
    }
    settle(&mut engines, 0);
    for (place, number, id) in calls {
        assert_eq!(id.protocol(), Some(PROTOCOLS[place]));
        assert_eq!(engines[0].stack_mut().echoes[1 - place].collect(id), None, "the name is the other's");
        assert_eq!(engines[0].stack_mut().echoes[place].collect(id), Some(Ok(vec![number, place as u8])));
    }
}

#[test]
fn a_sweep_keeps_the_other_protocols_deadlines() {
    let mut engines = on_loopback();
    settle(&mut engines, 0);
    // Rank 1 is not polled, so these calls wait for their deadlines.
    let waiting =
        [0, 1].map(|place| start(&mut engines[0], place, b"a call that waits", Time::from_nanos(5_000_000)));
    for _ in 0..5 {
        for place in [0, 1] {
            for _ in 0..2_000 {
                let id = start(&mut engines[0], place, b"a call that is over", Time::from_nanos(7_000_000));
                // The call is removed, so its deadline has no effect any more.
                engines[0].stack_mut().echoes[place].calls.remove(id);
            }
            let timers = engines[0].link().timers();
            assert!(timers < 5_000, "void deadlines are dropped: {timers} timers");
        }
    }
    engines[0].poll(Time::from_nanos(4_000_000), &mut ()).unwrap();
    for (place, id) in waiting.into_iter().enumerate() {
        assert_eq!(engines[0].stack_mut().echoes[place].collect(id), None, "its time has not come");
    }
    for now_ns in [5_000_000, 6_500_000] {
        engines[0].poll(Time::from_nanos(now_ns), &mut ()).unwrap();
    }
    for (place, id) in waiting.into_iter().enumerate() {
        assert_eq!(engines[0].stack_mut().echoes[place].collect(id), Some(Err(Ended::TimedOut)));
        assert_eq!(engines[0].stack().echoes[place].calls.len(), 0);
    }
}

#[test]
fn the_end_of_a_peer_ends_the_calls_of_both() {
    let mut engines = on_loopback();
    settle(&mut engines, 0);
    let calls = [0, 1].map(|place| start(&mut engines[0], place, b"no poll answers", Time::NEVER));
    engines[0].peer_failed(WorldRank(1), None, Cause::Lost).unwrap();
    for (place, id) in calls.into_iter().enumerate() {
        let result = engines[0].stack_mut().echoes[place].collect(id);
        assert_eq!(result, Some(Err(Ended::PeerFailed(Cause::Lost))));
        let late = start(&mut engines[0], place, b"the peer has failed", Time::NEVER);
        assert_eq!(
            engines[0].stack_mut().echoes[place].collect(late),
            Some(Err(Ended::PeerFailed(Cause::Lost)))
        );
    }
}

#[test]
fn a_call_that_fits_no_packet_ends_alone() {
    let mut engines = on_loopback();
    let [long, short] = [1 << 20, 8].map(|len| start(&mut engines[0], 0, &vec![7; len], Time::NEVER));
    settle(&mut engines, 0);
    let echo = &mut engines[0].stack_mut().echoes[0];
    assert_eq!([echo.collect(long), echo.collect(short)], [Some(Err(Ended::TooLong)), Some(Ok(vec![7; 8]))]);
}

/// The operations of both protocols have the same keys.
#[test]
fn each_gets_its_own_completions() {
    let net = Net::new(1, SimConfig::default());
    let mut engines: [Engine<SimPort, Both>; 2] = pair([net.start(0), net.start(1)], Both::new);
    let poll = |engines: &mut [Engine<SimPort, Both>; 2]| {
        if !net.advance() {
            net.advance_to(net.now_ns() + 1_000);
        }
        for engine in engines {
            engine.poll(Time::from_nanos(net.now_ns()), &mut ()).unwrap();
        }
    };
    let path = |engine: &mut Engine<SimPort, Both>, rank| {
        let peer = engine.link_mut().find(rank).unwrap();
        engine.link().peer(peer).path().unwrap()
    };
    for _ in 0..100 {
        poll(&mut engines);
    }
    let [from, into] = [(); 2].map(|()| Region::new(Memory::zeroed(64)));
    let (to_0, to_1) = (path(&mut engines[1], WorldRank(0)), path(&mut engines[0], WorldRank(1)));
    let exposed = engines[1].port_mut().register(to_0, &from, Access::REMOTE_READ).unwrap();
    let (mut out, _) = engines[0].parts();
    let local = out.port.register(to_1, &into, Access::LOCAL_WRITE).unwrap();
    let mut posted = Vec::new();
    for key in [0, 1, (1 << 60) - 1] {
        for protocol in PROTOCOLS {
            let at = posted.len() * 8;
            let post = out.get(to_1, local.local(at, 8), exposed.remote(at), protocol, key);
            assert_eq!(post, Ok(Post::Done));
            posted.push((protocol, key));
        }
    }
    for _ in 0..100 {
        poll(&mut engines);
    }
    let mut completed = std::mem::take(&mut engines[0].stack_mut().completed);
    completed.sort_by_key(|(protocol, key)| (*key, *protocol as u8));
    assert_eq!(completed, posted);
}
