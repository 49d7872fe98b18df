//! A complete protocol over the link: an echo with a deadline. It shows what a new protocol implements, and runs over
//! loopback, the simulator with faults, shared memory and `tcp;ofi_rxm`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use samite_fabric::link::{
    Cause, Config, Done, Ending, Engine, Expiry, Fault, Identity, Lent, Link, Out, Peer, RequestId, Slot,
    Slots, Stack, Turn,
};
use samite_fabric::loopback::Hub;
use samite_fabric::shm::Shm;
use samite_fabric::sim::{Config as SimConfig, Net};
use samite_fabric::wire::{Flags, Header, Protocol, WireError};
use samite_fabric::{Caps, Port, PortError, SplitMix64};
use zerocopy::IntoBytes;

/// Kinds of packets. Both carry the caller's name for the call, and the bytes.
const ASK: u8 = 0;
const ANSWER: u8 = 1;

/// Calls under way, and those that wait for room in the port.
#[derive(Default)]
struct Echo {
    calls: Slots<Call>,
    queues: BTreeMap<Peer, VecDeque<RequestId>>,
}

/// A call that its caller has not collected.
struct Call {
    to: Peer,
    bytes: Vec<u8>,
    deadline_ns: u64,
    result: Option<Result<Vec<u8>, Ended>>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq)]
enum Ended {
    TimedOut,
    PeerFailed(Cause),
}

impl Slot for Call {
    fn bare() -> Self {
        Self { to: Peer::default(), bytes: Vec::new(), deadline_ns: 0, result: None }
    }
    fn is_bare(&self) -> bool {
        self.bytes.capacity() == 0 && self.result.is_none()
    }
}

impl Echo {
    /// Starts a call.
    fn call(&mut self, link: &mut Link, to: Peer, bytes: &[u8], deadline_ns: u64) -> RequestId {
        let id = self.calls.insert(Call { to, bytes: bytes.to_vec(), deadline_ns, result: None });
        let calls = &self.calls;
        link.set_deadline(id, deadline_ns, |id, due| {
            calls.get(id).is_some_and(|call| call.deadline_ns == due)
        });
        self.queues.entry(to).or_default().push_back(id);
        link.set_queue(to, Protocol::Rpc);
        link.seek(to);
        link.list(to);
        id
    }

    /// Returns the result of a call that has ended, and forgets the call.
    fn collect(&mut self, id: RequestId) -> Option<Result<Vec<u8>, Ended>> {
        let result = self.calls.get_mut(id)?.result.take()?;
        self.calls.remove(id);
        Some(result)
    }

    fn end(&mut self, id: RequestId, result: Result<Vec<u8>, Ended>) {
        if let Some(call) = self.calls.get_mut(id) {
            call.result.get_or_insert(result);
        }
    }

    fn end_all(&mut self, peer: Peer, cause: &Cause) {
        for id in self.calls.select(|call| call.to == peer) {
            self.end(id, Err(Ended::PeerFailed(cause.clone())));
        }
        self.queues.remove(&peer);
    }
}

impl Stack for Echo {
    fn packet<L: Lent>(
        &mut self,
        link: &mut Link,
        from: Peer,
        header: &Header,
        body: &[u8],
        _: &mut L,
    ) -> Result<(), Fault> {
        let Some((name, bytes)) = body.split_first_chunk() else {
            return Err(Fault::new(from, WireError::Short { len: body.len() }));
        };
        match header.kind {
            ASK => link.answer(from, Protocol::Rpc, ANSWER, body),
            ANSWER => self.end(RequestId::from_wire(u64::from_le_bytes(*name)), Ok(bytes.to_vec())),
            theirs => return Err(Fault::new(from, WireError::Kind { theirs })),
        }
        Ok(())
    }

    fn completed<L: Lent>(&mut self, _: &mut Link, _: Done, _: &mut L) -> Result<(), Fault> {
        unreachable!("it posts no operations")
    }

    fn path(&mut self, _: &mut Link, _: Peer, _: &Caps) {}

    fn ended(&mut self, _: &mut Link, peer: Peer, ending: &Ending<'_>) {
        match ending {
            Ending::Left => self.end_all(peer, &Cause::Left),
            Ending::Failed(cause) => self.end_all(peer, cause),
            _ => {}
        }
    }

    fn no_path(&mut self, _: &mut Link, peer: Peer, what: &'static str, _: &str) {
        self.end_all(peer, &Cause::Unreachable(what.to_owned()));
    }

    fn expired(&mut self, _: &mut Link, id: RequestId, due_ns: u64, _: bool) -> Expiry {
        if self.calls.get(id).is_some_and(|call| call.deadline_ns == due_ns) {
            self.end(id, Err(Ended::TimedOut));
        }
        Expiry::Done
    }

    fn next<P: Port>(&mut self, out: &mut Out<'_, P>, to: Peer, _: Protocol) -> Result<Turn, PortError> {
        let queue = self.queues.entry(to).or_default();
        let first = queue.front().map(|id| (*id, self.calls.get(*id)));
        let turn = match first {
            Some((id, Some(Call { bytes, result: None, .. }))) => {
                let header = out.link.header(to, Protocol::Rpc, ASK, Flags::empty(), 0, out.link.now_ns());
                let head = [header.as_bytes(), &id.to_wire().to_le_bytes()].concat();
                Turn::from(out.send(to, &head, bytes)?)
            }
            _ => Turn::Skipped,
        };
        if turn != Turn::NoRoom {
            queue.pop_front();
        }
        if queue.is_empty() {
            out.link.clear_queue(to, Protocol::Rpc);
        }
        Ok(turn)
    }
}

/// Two ranks that know each other's address.
fn pair<P: Port>(ports: [P; 2]) -> [Engine<P, Echo>; 2] {
    let addresses = ports.each_ref().map(|port| port.address());
    let config = Config {
        credit_max: 1 << 20,
        window_min: 1 << 16,
        window_max: 1 << 20,
        answers_max: 100,
        quarantine_max: 0,
    };
    let mut rank = 0;
    ports.map(|port| {
        let identity = Identity { rank, size: 2, incarnation: 7, secret: [3; 16] };
        let mut engine = Engine::new(port, identity, config.clone(), Echo::default());
        engine.introduce(1 - rank, 7, addresses[1 - rank as usize].clone()).unwrap();
        rank += 1;
        engine
    })
}

/// Calls that are answered, a call that times out because its peer does not poll, and one whose peer fails.
fn challenge<P: Port>(ports: [P; 2], now_ns: impl Fn() -> u64, mut rest: impl FnMut()) {
    let [mut caller, mut echo] = pair(ports);
    let start = |caller: &mut Engine<P, Echo>, bytes: &[u8], deadline_ns| {
        let to = caller.link_mut().alive(1).unwrap();
        let (out, stack) = caller.parts();
        stack.call(out.link, to, bytes, deadline_ns)
    };
    for number in 0..100_u8 {
        let id = start(&mut caller, &[number; 40], u64::MAX);
        let answer = loop {
            for engine in [&mut caller, &mut echo] {
                engine.poll(now_ns(), &mut ()).unwrap();
                engine.check_invariants();
            }
            if let Some(answer) = caller.stack_mut().collect(id) {
                break answer;
            }
            rest();
        };
        assert_eq!(answer, Ok(vec![number; 40]));
    }
    for (deadline_ns, ended) in
        [(now_ns() + 1_000_000, Ended::TimedOut), (u64::MAX, Ended::PeerFailed(Cause::Lost))]
    {
        let id = start(&mut caller, b"nobody polls there", deadline_ns);
        if deadline_ns == u64::MAX {
            caller.peer_failed(1, None, Cause::Lost).unwrap();
        }
        let answer = loop {
            caller.poll(now_ns(), &mut ()).unwrap();
            if let Some(answer) = caller.stack_mut().collect(id) {
                break answer;
            }
            rest();
        };
        assert_eq!(answer, Err(ended));
    }
    assert!(caller.link_mut().alive(1).is_err(), "nothing is sent to a peer that failed");
    assert_eq!(caller.stack().calls.len(), 0);
}

/// In real time.
#[expect(clippy::disallowed_methods, reason = "ports to the real world live in real time")]
fn challenge_now<P: Port>(ports: [P; 2]) {
    let begin = Instant::now();
    challenge(ports, || begin.elapsed().as_nanos() as u64, std::thread::yield_now);
}

#[test]
fn over_loopback() {
    let hub = Hub::new();
    challenge_now([hub.port(), hub.port()]);
}

#[test]
fn over_shared_memory() {
    challenge_now([(); 2].map(|()| Shm::open(&Default::default()).unwrap()));
}

#[test]
#[cfg(feature = "ofi")]
fn over_tcp() {
    use samite_fabric::ofi::{OfiConfig, OfiPort};
    let open =
        |seed| OfiPort::open(&OfiConfig { stays_on_host: true, seed, ..OfiConfig::default() }).unwrap();
    challenge_now([open(1), open(2)]);
}

#[test]
fn over_the_simulator_with_faults() {
    for seed in 0..50 {
        let net = Net::new(seed, SimConfig::adverse(&mut SplitMix64::new(seed)));
        let rest = || {
            if !net.advance() {
                net.advance_to(net.now_ns() + 1_000);
            }
        };
        challenge([net.start(0), net.start(1)], || net.now_ns(), rest);
    }
}
