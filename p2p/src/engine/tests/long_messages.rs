//! Tests with packets about long messages that no correct rank sends: beyond the message or the offered memory, twice,
//! about an operation that has ended, or from a rank that takes no part in the message. The sender of the packet fails,
//! or the packet is counted as stale if it may come late. A third rank is not disturbed, and no memory stays in use.

use super::*;
use crate::wire::{Abort, Cts, Data, Fin, Landed, Place, Revoke, Rts, TransferMode, Verdict, kind};
use samite_fabric::layout::{Data as _, Room as _};
use samite_fabric::sim::{Config as NetConfig, Net, SimPort};
use samite_fabric::{Reach, Remote};

const LEN: usize = 100_000;
const CHUNK: usize = 10_000;
/// The name that rank 0 gives its messages, and its receives.
const NAME: u64 = 77;
/// The tag of the messages between ranks 0 and 1.
const TAG: u64 = 5;
/// The tag of the messages between ranks 1 and 2.
const OTHER: u64 = 9;

/// A body of a packet, with its kind.
type Forged = (u8, Vec<u8>);

fn cts_as(send: u64, recv: u64, offset: u64, len: u64) -> Forged {
    let [send, recv, offset, len] = [send, recv, offset, len].map(Into::into);
    (kind::CTS, Cts { send, recv, offset, len }.as_bytes().to_vec())
}

fn place_as(send: u64, recv: u64, offset: u64, len: u64) -> Forged {
    let [send, recv, offset, len, key, address] = [send, recv, offset, len, 12_345, 0].map(Into::into);
    (kind::PLACE, Place { send, recv, offset, len, key, address }.as_bytes().to_vec())
}

fn landed(recv: u64, end: u64) -> Forged {
    (kind::LANDED, Landed { recv: recv.into(), end: end.into() }.as_bytes().to_vec())
}

fn data(recv: u64, offset: u64, len: usize) -> Forged {
    let head = Data { operation: recv.into(), offset: offset.into() };
    (kind::DATA, [head.as_bytes(), &bytes(len)].concat())
}

fn fin(send: u64, verdict: Verdict) -> Forged {
    (kind::FIN, Fin::new(send, verdict).as_bytes().to_vec())
}

fn abort(recv: u64) -> Forged {
    (kind::ABORT, Abort { recv: recv.into() }.as_bytes().to_vec())
}

fn revoke(send: u64) -> Forged {
    (kind::REVOKE, Revoke { send: send.into() }.as_bytes().to_vec())
}

fn rts(len: usize, mode: TransferMode) -> Forged {
    (kind::RTS, Rts::new(TAG, len, NAME, mode).as_bytes().to_vec())
}

/// Three ranks. Rank 0 sends wrong packets to rank 1. Ranks 1 and 2 send each other a long message, and rank 1 has
/// received a part of its message.
struct Trio {
    engines: [Engine<Loopback>; 3],
    data: Vec<u8>,
    into: Vec<u8>,
    /// The requests of the message from rank 2 to rank 1: the send and the receive.
    inbound: [RequestId; 2],
    /// The requests of the message from rank 1 to rank 2.
    outbound: [RequestId; 2],
}

/// The buffers that rank 1 lends: one to send from, and one to receive to.
struct Both<'a> {
    send: RequestId,
    data: &'a [u8],
    recv: RequestId,
    into: &'a mut [u8],
}

impl Lent for Both<'_> {
    fn read(&self, id: RequestId, _: u32) -> Option<Readable<'_>> {
        (id == self.send).then(|| self.data.lend())
    }

    fn write(&mut self, id: RequestId, _: u32) -> Option<Writable<'_>> {
        (id == self.recv).then(|| self.into.lend())
    }
}

fn config() -> Config {
    let mut config = Config { stream_max: 0, push_window: 4 * CHUNK, ..Config::default() };
    (config.put_min, config.put_chunk, config.put_depth) = (2 * CHUNK, CHUNK, 2);
    config
}

impl Trio {
    /// Long messages are put into the receiver's memory if `puts` is true, and otherwise travel in packets.
    fn new(puts: bool) -> Self {
        let config = if puts { config() } else { Config { put_min: 1 << 40, ..config() } };
        let hub = Hub::new();
        let ports = [(); 3].map(|()| hub.port());
        let addresses = ports.each_ref().map(|port| port.address());
        let mut rank = 0;
        let engines = ports.map(|port| {
            let identity = Identity { rank: WorldRank(rank), size: 3, incarnation: 7, secret: [9; 16] };
            rank += 1;
            let mut engine = Engine::new(port, identity, config.clone());
            for (rank, address) in (0..).zip(&addresses) {
                engine.introduce(WorldRank(rank), 7, address.clone()).unwrap();
            }
            engine
        });
        let mut trio = Self {
            engines,
            data: bytes(LEN),
            into: vec![0; LEN],
            inbound: [RequestId::PENDING; 2],
            outbound: [RequestId::PENDING; 2],
        };
        trio.poll_all();
        trio.begin_exchange();
        trio
    }

    fn poll_all(&mut self) {
        for _ in 0..10 {
            self.engines.iter_mut().for_each(|engine| _ = engine.poll(Time::ZERO, &mut ()).unwrap());
        }
    }

    fn begin_exchange(&mut self) {
        let Self { engines, data, into, .. } = self;
        let pattern = |rank| Pattern::exact(0, rank, OTHER);
        let recv = engines[1].recv(Time::ZERO, pattern(2), into, 0, NEVER, &mut ()).unwrap();
        let received = engines[2].irecv(Time::ZERO, pattern(1), Memory::zeroed(LEN), NEVER).unwrap();
        let mut send = |from: usize, to| {
            let sent = engines[from].send(Time::ZERO, WorldRank(to), 0, OTHER, data, NEVER).unwrap();
            let Sent::Pending(send) = sent else { panic!("a long message is not sent at once") };
            send
        };
        let (inbound, outbound) = (send(2, 1), send(1, 2));
        let Received::Pending(recv) = recv else { panic!("nothing was sent") };
        (self.inbound, self.outbound) = ([inbound, recv], [outbound, received]);
        // Rank 1 lends no buffer, so both messages stop.
        for _ in 0..10 {
            engines[2].poll(Time::ZERO, &mut Reading::new(inbound, &data[..])).unwrap();
            engines[1].poll(Time::ZERO, &mut ()).unwrap();
        }
        assert!([inbound, received].iter().all(|&id| engines[2].outcome(id) == Outcome::Pending));
        assert!([outbound, recv].iter().all(|&id| engines[1].outcome(id) == Outcome::Pending));
    }

    /// Starts a send of rank 1 to rank 0, whose buffer is not lent.
    fn send(&mut self) -> RequestId {
        let sent = self.engines[1].send(Time::ZERO, WorldRank(0), 0, TAG, &self.data, NEVER).unwrap();
        self.poll();
        let Sent::Pending(send) = sent else { panic!("a long message is not sent at once") };
        send
    }

    /// Posts a receive of rank 1 from rank 0. If `is_lent` is true, its buffer is not lent during polls.
    fn receive(&mut self, is_lent: bool) -> RequestId {
        let pattern = Pattern::exact(0, 0, TAG);
        if !is_lent {
            return self.engines[1].irecv(Time::ZERO, pattern, Memory::zeroed(LEN), NEVER).unwrap();
        }
        let mut into = vec![0; LEN];
        let begun = self.engines[1].recv(Time::ZERO, pattern, &mut into, 0, NEVER, &mut ());
        let Ok(Received::Pending(recv)) = begun else { panic!("{begun:?}") };
        recv
    }

    /// Polls rank 1, and lends no buffer.
    fn poll(&mut self) {
        self.engines[1].poll(Time::ZERO, &mut ()).unwrap();
        self.engines[1].check_invariants();
    }

    /// Delivers a packet to rank 1, with the header that the next packet from rank 0 has.
    fn arrive(&mut self, (kind, body): &Forged) {
        let to = peer_of(&self.engines[0], WorldRank(1));
        let link = self.engines[0].inner.link_mut();
        let header = link.header(to, Protocol::P2p, *kind, Flags::empty(), 0);
        link.peer_mut(to).sent();
        strangers::arrive(&mut self.engines[1], &[header.as_bytes(), body].concat());
        self.engines[1].check_invariants();
    }

    /// Delivers packets to rank 1. If `polls` is true, polls rank 1 after each packet.
    fn arrive_all(&mut self, packets: &[Forged], polls: bool) {
        for packet in packets {
            self.arrive(packet);
            if polls {
                self.poll();
            }
        }
    }

    fn failure(&self) -> Option<Cause> {
        peer_state(&self.engines[1], WorldRank(0)).failure()
    }

    fn stale(&self) -> u64 {
        self.engines[1].counters().stale
    }

    fn result(&mut self, id: RequestId) -> Result<Status, Error> {
        self.engines[1].collect(id, &mut ()).expect("it has ended").result
    }

    /// Checks that rank 0 has failed because it violates the protocol, and that its message ends with that reason.
    #[track_caller]
    fn assert_violation(&mut self, id: RequestId, packets: &[Forged]) {
        assert!(matches!(self.failure(), Some(Cause::Protocol(_))), "{:?} after {packets:?}", self.failure());
        let result = self.result(id);
        assert!(matches!(result, Err(Error::PeerFailed { rank: WorldRank(0), .. })), "{result:?}");
    }

    /// Completes the messages between ranks 1 and 2, and checks that nothing is left at rank 1.
    #[track_caller]
    fn finish(mut self) {
        let ([inbound, recv], [send, received]) = (self.inbound, self.outbound);
        let Self { engines: [_, first, second], data, into, .. } = &mut self;
        for _ in 0..100 {
            second.poll(Time::ZERO, &mut Reading::new(inbound, &data[..])).unwrap();
            first.poll(Time::ZERO, &mut Both { send, data, recv, into }).unwrap();
        }
        let ends =
            [second.collect(inbound, &mut ()), first.collect(recv, &mut ()), first.collect(send, &mut ())];
        for end in ends {
            let status = end.expect("it has ended").result.unwrap();
            assert_eq!((status.tag, status.bytes), (OTHER, LEN));
        }
        let memory = second.collect(received, &mut ()).expect("it has ended").memory.unwrap();
        assert!(memory.as_bytes() == *data && into == data, "the bytes are those of the messages");
        for engine in [&*first, second] {
            let usage = engine.usage();
            let Usage { requests, operations, queued, unexpected, envelopes, .. } = usage;
            assert_eq!((requests, operations, queued, unexpected, envelopes), (0, 0, 0, 0, 0));
            assert_eq!((usage.registered_used, usage.quarantined), (0, 0));
            engine.check_invariants();
            let tagged = engine.inner.tagged();
            assert!(tagged.envelopes.is_empty() && tagged.streams.is_empty() && tagged.movers.is_empty());
        }
        assert_eq!(second.counters().failed_peers, 0);
        // Slabs come back and serve the next message, so there are at most those of two messages of each direction.
        assert!(first.usage().registrations <= 8, "{:?}", first.usage());
    }
}

/// Requests for bytes, and offers of memory, that a sender must not take.
#[test]
fn wrong_requests_for_bytes_of_a_send_end_their_sender_alone() {
    let len = LEN as u64;
    for (puts, polls) in [(true, true), (true, false), (false, true), (false, false)] {
        let send = Trio::new(puts).send().to_wire();
        let cts = |offset, len| cts_as(send, NAME, offset, len);
        let place = |offset, len| place_as(send, NAME, offset, len);
        let mut cases = Vec::new();
        // Beyond the message, or without bytes.
        for request in [&cts as &dyn Fn(u64, u64) -> Forged, &place] {
            for (offset, part) in [
                (0, 0),
                (0, len + 1),
                (1, len),
                (len, 1),
                (len, 0),
                (len + 1, 0),
                (1 << 40, 1),
                (u64::MAX, 1),
                (1, u64::MAX),
                (u64::MAX, u64::MAX),
            ] {
                cases.push(vec![request(offset, part)]);
            }
        }
        let first = if puts { &place as &dyn Fn(u64, u64) -> Forged } else { &cts };
        let second = if puts { &cts as &dyn Fn(u64, u64) -> Forged } else { &place };
        cases.extend([
            // Not from the first byte on. A PLACE of this kind may come late: see below.
            vec![cts(1, 10)],
            // Twice, bytes that were requested before, behind a gap, and more than the message has.
            vec![first(0, 10), first(0, 10)],
            vec![first(0, 10), first(9, 10)],
            vec![first(0, 10), first(11, 10)],
            vec![first(0, 10), first(10, 10), first(10, 10)],
            vec![first(0, 10), first(10, len - 9)],
            vec![first(0, len), first(len, 1)],
            // In two ways.
            vec![first(0, 10), second(0, 10)],
            vec![first(0, 10), second(10, 10)],
            // For two receives.
            vec![first(0, 10), if puts { place_as(send, 78, 10, 10) } else { cts_as(send, 78, 10, 10) }],
        ]);
        for case in cases {
            let mut trio = Trio::new(puts);
            let id = trio.send();
            assert_eq!(id.to_wire(), send, "requests of equal jobs have equal names");
            trio.arrive_all(&case, polls);
            trio.assert_violation(id, &case);
            trio.finish();
        }
    }
}

/// The operation with the name is a receive.
#[test]
fn requests_for_bytes_of_what_is_no_sent_message_end_their_sender_alone() {
    for is_lent in [false, true] {
        let mut trio = Trio::new(true);
        let recv = trio.receive(is_lent);
        for case in [cts_as(recv.to_wire(), NAME, 0, 10), place_as(recv.to_wire(), NAME, 0, 10)] {
            let mut trio = Trio::new(true);
            let id = trio.receive(is_lent);
            assert_eq!(id, recv);
            trio.arrive(&case);
            trio.assert_violation(id, &[case]);
            trio.finish();
        }
    }
}

/// A sender that has refused to put may receive further places that were under way. It ignores them.
#[test]
fn a_place_behind_the_first_one_may_come_late() {
    let mut trio = Trio::new(true);
    let send = trio.send();
    let stale = trio.stale();
    trio.arrive_all(&[place_as(send.to_wire(), NAME, CHUNK as u64, 10)], true);
    assert_eq!((trio.stale(), trio.failure()), (stale + 1, None));
    assert_eq!(trio.engines[1].outcome(send), Outcome::Pending);
    trio.arrive(&fin(send.to_wire(), Verdict::Delivered));
    assert!(trio.result(send).is_ok());
    trio.finish();
}

/// The port refuses puts into memory that the peer has not registered.
#[test]
fn a_place_that_does_not_exist_ends_its_sender_alone() {
    let mut trio = Trio::new(true);
    let send = trio.send();
    for packet in [place_as(send.to_wire(), NAME, 0, 10), place_as(send.to_wire(), NAME, 10, 10)] {
        trio.arrive(&packet);
    }
    let message = bytes(LEN);
    for _ in 0..3 {
        trio.engines[1].poll(Time::ZERO, &mut Reading::new(send, &message[..])).unwrap();
    }
    assert!(matches!(trio.failure(), Some(Cause::Unreachable(_))), "{:?}", trio.failure());
    assert!(matches!(trio.result(send), Err(Error::PeerFailed { rank: WorldRank(0), .. })));
    trio.finish();
}

#[test]
fn wrong_envelopes_end_their_sender_alone() {
    let nowhere = Remote { key: 12_345, address: 0 };
    let endless = |mode| rts(usize::MAX, mode);
    for (is_lent, packet, polls) in [
        (false, endless(TransferMode::Push), 0),
        (true, endless(TransferMode::Put), 0),
        (false, endless(TransferMode::Pull(nowhere)), 0),
        // The port refuses gets from memory that the peer has not registered.
        (false, rts(LEN, TransferMode::Pull(nowhere)), 3),
        (true, rts(LEN, TransferMode::Pull(nowhere)), 3),
    ] {
        let mut trio = Trio::new(true);
        let recv = trio.receive(is_lent);
        trio.arrive(&packet);
        (0..polls).for_each(|_| trio.poll());
        let failure = trio.failure();
        match polls {
            0 => assert!(matches!(failure, Some(Cause::Protocol(_))), "{failure:?}"),
            _ => assert!(matches!(failure, Some(Cause::Unreachable(_))), "{failure:?}"),
        }
        assert!(matches!(trio.result(recv), Err(Error::PeerFailed { rank: WorldRank(0), .. })));
        trio.finish();
    }
}

#[test]
fn an_envelope_of_the_longest_message_costs_no_memory() {
    for is_lent in [false, true] {
        let mut trio = Trio::new(true);
        let recv = trio.receive(is_lent);
        let before = trio.engines[1].usage();
        trio.arrive_all(&[rts(isize::MAX as usize, TransferMode::Put)], true);
        assert!(matches!(trio.result(recv), Err(Error::Truncated { .. })));
        assert_eq!((trio.engines[1].usage().registered, trio.failure()), (before.registered, None));
        trio.finish();
    }
}

/// Reports of bytes for a receive whose bytes the sender puts. A receive that owns its buffer has offered memory for
/// the whole message, any other one for two slabs.
#[test]
fn wrong_reports_of_landed_bytes_end_their_sender_alone() {
    let (len, chunk) = (LEN as u64, CHUNK as u64);
    for (is_lent, offered, polls) in
        [(false, len, true), (false, len, false), (true, 2 * chunk, true), (true, 2 * chunk, false)]
    {
        let recv = Trio::new(true).receive(is_lent).to_wire();
        let landed = |end| landed(recv, end);
        for case in [
            vec![landed(offered + 1)],
            vec![landed(len + 1)],
            vec![landed(u64::MAX)],
            // Twice, backwards, and a refusal to put after bytes have landed.
            vec![landed(chunk), landed(chunk)],
            vec![landed(chunk), landed(chunk - 1)],
            vec![landed(chunk), landed(0)],
            vec![landed(chunk), landed(u64::MAX)],
            // Bytes after the sender has refused to put.
            vec![landed(0), landed(chunk)],
            vec![landed(0), landed(1), landed(0)],
        ] {
            let mut trio = Trio::new(true);
            let id = trio.receive(is_lent);
            assert_eq!(id.to_wire(), recv, "requests of equal jobs have equal names");
            trio.arrive(&rts(LEN, TransferMode::Put));
            trio.poll();
            assert_eq!(trio.engines[1].outcome(id), Outcome::Pending);
            trio.arrive_all(&case, polls);
            trio.assert_violation(id, &case);
            trio.finish();
        }
    }
}

/// The receive has no message yet, the bytes come in packets, or the operation is a send.
#[test]
fn reports_of_bytes_for_what_awaits_no_puts_end_their_sender_alone() {
    for number in 0..3 {
        let mut trio = Trio::new(true);
        let id = if number == 2 { trio.send() } else { trio.receive(false) };
        if number == 1 {
            trio.arrive_all(&[rts(LEN, TransferMode::Push)], true);
        }
        let case = landed(id.to_wire(), CHUNK as u64);
        trio.arrive(&case);
        trio.assert_violation(id, &[case]);
        trio.finish();
    }
}

/// The last report comes twice. The first one has completed the message, so only the peer fails.
#[test]
fn a_message_that_is_whole_outlives_a_repeated_report() {
    let mut trio = Trio::new(true);
    let recv = trio.receive(false);
    trio.arrive(&rts(LEN, TransferMode::Put));
    trio.poll();
    trio.arrive_all(&[landed(recv.to_wire(), LEN as u64), landed(recv.to_wire(), LEN as u64)], false);
    assert!(matches!(trio.failure(), Some(Cause::Protocol(_))));
    trio.poll();
    assert_eq!(trio.result(recv).map(|status| status.bytes), Ok(LEN));
    trio.finish();
}

#[test]
fn the_report_of_a_receive_names_its_bytes_when_the_transfer_has_its_memory() {
    for puts in [false, true] {
        let mut trio = Trio::new(puts);
        let [_, received] = trio.outbound;
        trio.engines[2].peer_failed(WorldRank(1), None, Cause::Lost).unwrap();
        let end = trio.engines[2].collect(received, &mut ()).expect("its sender has failed").result;
        let Err(Error::PeerFailed { report: Some(report), .. }) = end else { panic!("{end:?}") };
        assert_eq!((report.operation, report.bytes), (Operation::Receive, LEN));
    }
}

#[test]
fn wrong_bytes_of_a_message_end_their_sender_alone() {
    let window = config().push_window as u64;
    for (is_lent, polls) in [(false, true), (false, false), (true, true), (true, false)] {
        let recv = Trio::new(false).receive(is_lent).to_wire();
        let data = |offset, len| data(recv, offset, len);
        for case in [
            // No bytes, bytes that were not requested, and bytes behind a gap.
            vec![data(0, 0)],
            vec![data(0, window as usize + 1)],
            vec![data(0, LEN + 1)],
            vec![data(1, 10)],
            vec![data(LEN as u64, 1)],
            vec![data(u64::MAX, 1)],
            vec![data(u64::MAX, 0)],
            // Twice, and bytes that have come before.
            vec![data(0, 10), data(0, 10)],
            vec![data(0, 10), data(9, 10)],
            vec![data(0, 10), data(11, 10)],
            vec![data(0, 10), data(10, 0)],
        ] {
            let mut trio = Trio::new(false);
            let id = trio.receive(is_lent);
            assert_eq!(id.to_wire(), recv, "requests of equal jobs have equal names");
            trio.arrive_all(&[rts(LEN, TransferMode::Push)], true);
            trio.arrive_all(&case, polls);
            trio.assert_violation(id, &case);
            trio.finish();
        }
    }
}

/// The receiver's answer to a message whose bytes are being put or pushed.
#[test]
fn wrong_answers_amid_a_message_end_their_sender_alone() {
    for puts in [true, false] {
        let mut cases = vec![vec![Verdict::Unposted as u8], vec![6], vec![u8::MAX]];
        if puts {
            // The port may read the memory for puts, so the sender must not be told that the message is over.
            cases.push(vec![Verdict::Delivered as u8]);
        }
        for case in cases {
            let mut trio = Trio::new(puts);
            let send = trio.send();
            let begin = if puts { place_as } else { cts_as };
            trio.arrive_all(&[begin(send.to_wire(), NAME, 0, 10)], true);
            let verdicts = case.iter().map(|&verdict| {
                let fin = Fin { verdict, ..Fin::new(send.to_wire(), Verdict::Delivered) };
                (kind::FIN, fin.as_bytes().to_vec())
            });
            let packets: Vec<_> = verdicts.collect();
            trio.arrive_all(&packets, true);
            trio.assert_violation(send, &packets);
            trio.finish();
        }
    }
}

/// The receiver gives up the message, and says so twice.
#[test]
fn a_repeated_answer_amid_a_message_changes_nothing() {
    for (puts, polls) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut trio = Trio::new(puts);
        let send = trio.send();
        let begin = if puts { place_as } else { cts_as };
        trio.arrive_all(&[begin(send.to_wire(), NAME, 0, 10)], true);
        trio.arrive_all(
            &[fin(send.to_wire(), Verdict::Abandoned), fin(send.to_wire(), Verdict::Abandoned)],
            polls,
        );
        assert_eq!(trio.failure(), None);
        assert!(matches!(trio.result(send), Err(Error::Abandoned { rank: WorldRank(0), .. })));
        trio.finish();
    }
}

/// Packets about operations that have ended. If `is_collected` is true, the program has the result already.
#[test]
fn packets_about_ended_operations_are_stale() {
    for (puts, is_collected) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut trio = Trio::new(puts);
        let (send, recv) = (trio.send(), trio.receive(false));
        trio.arrive(&fin(send.to_wire(), Verdict::Delivered));
        trio.arrive(&rts(8, TransferMode::Push));
        trio.arrive(&data(recv.to_wire(), 0, 8));
        if is_collected {
            assert!(trio.result(send).is_ok() && trio.result(recv).is_ok());
        }
        trio.poll();
        let before = trio.stale();
        let (to, from) = (send.to_wire(), recv.to_wire());
        let packets = [
            cts_as(to, NAME, 0, 10),
            cts_as(to, NAME, u64::MAX, u64::MAX),
            place_as(to, NAME, 0, 10),
            fin(to, Verdict::Delivered),
            fin(to, Verdict::Abandoned),
            data(from, 0, 8),
            data(from, 8, 8),
        ];
        trio.arrive_all(&packets, true);
        assert_eq!((trio.stale(), trio.failure()), (before + packets.len() as u64, None));
        if !is_collected {
            assert!(trio.result(send).is_ok() && trio.result(recv).is_ok());
        }
        trio.finish();
    }
}

/// Rank 0 names the operations of the messages between ranks 1 and 2.
#[test]
fn packets_about_messages_of_another_peer_are_stale() {
    for puts in [true, false] {
        let mut trio = Trio::new(puts);
        let ([inbound, recv], [send, _]) =
            (trio.inbound.map(RequestId::to_wire), trio.outbound.map(RequestId::to_wire));
        let before = trio.stale();
        let stale = [
            cts_as(send, NAME, 0, 10),
            cts_as(send, recv, 0, 10),
            place_as(send, NAME, 0, 10),
            fin(send, Verdict::Delivered),
            fin(send, Verdict::Abandoned),
            landed(recv, 0),
            landed(recv, CHUNK as u64),
            landed(recv, LEN as u64),
            data(recv, 0, 10),
            data(recv, 2 * CHUNK as u64, 10),
            abort(recv),
            abort(send),
        ];
        trio.arrive_all(&stale, true);
        assert_eq!((trio.stale(), trio.failure()), (before + stale.len() as u64, None));
        // It withdraws a message with the name that rank 2 has given to its own.
        trio.arrive_all(&[revoke(inbound), revoke(inbound)], true);
        assert_eq!(trio.failure(), None);
        trio.finish();
    }
}

/// A message that waits for its receive is withdrawn twice. A message that has been matched goes on.
#[test]
fn a_repeated_withdrawal_changes_nothing() {
    for puts in [true, false] {
        let mode = if puts { TransferMode::Put } else { TransferMode::Push };
        let mut trio = Trio::new(puts);
        trio.arrive_all(&[rts(LEN, mode), revoke(NAME), revoke(NAME)], true);
        assert_eq!((trio.engines[1].usage().unexpected_messages, trio.failure()), (0, None));
        let recv = trio.receive(false);
        trio.arrive_all(&[rts(LEN, mode), revoke(NAME), revoke(NAME)], true);
        assert_eq!(trio.engines[1].outcome(recv), Outcome::Pending);
        match puts {
            true => trio.arrive_all(&[landed(recv.to_wire(), LEN as u64)], true),
            false => {
                let parts = (0..LEN).step_by(CHUNK).map(|offset| data(recv.to_wire(), offset as u64, CHUNK));
                trio.arrive_all(&parts.collect::<Vec<_>>(), true);
            }
        }
        assert_eq!(trio.result(recv).map(|status| status.bytes), Ok(LEN));
        trio.finish();
    }
}

/// Two messages of rank 0 that have been matched have one name, so its answers cannot be told apart. Rank 1 does not
/// use the name to find its receives.
#[test]
fn two_matched_messages_of_one_name_leave_nothing() {
    for (puts, is_lent) in [(true, true), (true, false), (false, true), (false, false)] {
        let mode = if puts { TransferMode::Put } else { TransferMode::Push };
        let mut trio = Trio::new(puts);
        let receives = [trio.receive(is_lent), trio.receive(is_lent)];
        trio.arrive_all(&[rts(LEN, mode), rts(LEN, mode)], true);
        assert!(receives.iter().all(|&recv| trio.engines[1].outcome(recv) == Outcome::Pending));
        let killed = Cause::Died("signal 9".into());
        trio.engines[1].peer_failed(WorldRank(0), None, killed).unwrap();
        for recv in receives {
            assert!(matches!(trio.result(recv), Err(Error::PeerFailed { rank: WorldRank(0), .. })));
        }
        trio.finish();
    }
}

/// The sender gives up a message twice.
#[test]
fn a_message_that_is_given_up_twice_ends_once() {
    for (puts, is_lent, polls) in [
        (true, false, true),
        (true, false, false),
        (true, true, true),
        (true, true, false),
        (false, false, true),
        (false, true, false),
    ] {
        let mode = if puts { TransferMode::Put } else { TransferMode::Push };
        let mut trio = Trio::new(puts);
        let recv = trio.receive(is_lent);
        let watcher = trio.engines[1].add_watcher();
        trio.engines[1].watch(recv, watcher, 3);
        trio.arrive_all(&[rts(LEN, mode)], true);
        trio.arrive_all(&[abort(recv.to_wire()), abort(recv.to_wire())], polls);
        assert_eq!(trio.failure(), None);
        assert_eq!(trio.engines[1].take_end(watcher), Some((recv, 3)));
        assert_eq!(trio.engines[1].take_end(watcher), None, "a watcher hears of each end once");
        assert!(matches!(trio.result(recv), Err(Error::Abandoned { rank: WorldRank(0), .. })));
        trio.finish();
    }
}

/// The deadline of a receive has passed, and its sender gives up the message before it learns of that.
#[test]
fn a_receive_that_has_timed_out_does_not_end_again() {
    for (puts, is_lent) in [(true, false), (true, true), (false, false), (false, true)] {
        let mode = if puts { TransferMode::Put } else { TransferMode::Push };
        let mut trio = Trio::new(puts);
        let recv = trio.receive(is_lent);
        let watcher = trio.engines[1].add_watcher();
        trio.engines[1].watch(recv, watcher, 3);
        trio.arrive_all(&[rts(LEN, mode)], true);
        trio.engines[1].set_deadline(recv, Time::from_nanos(5));
        trio.engines[1].poll(Time::from_nanos(10), &mut ()).unwrap();
        trio.arrive(&abort(recv.to_wire()));
        assert_eq!(trio.engines[1].take_end(watcher), Some((recv, 3)));
        assert_eq!(trio.engines[1].take_end(watcher), None, "a watcher hears of each end once");
        assert!(matches!(trio.result(recv), Err(Error::TimedOut { .. })));
        trio.poll();
        let stale = trio.stale();
        trio.arrive(&abort(recv.to_wire()));
        assert_eq!((trio.stale(), trio.failure()), (stale + 1, None));
        trio.finish();
    }
}

/// The sender of a message gives up a receive whose name it cannot know: a receive without a message, or one that
/// fetches or reads the bytes itself. Or it names a send.
#[test]
fn giving_up_what_is_not_under_way_ends_the_sender_alone() {
    let nowhere = Remote { key: 12_345, address: 0 };
    for number in 0..5 {
        let mut trio = Trio::new(true);
        let id = if number == 0 { trio.send() } else { trio.receive(number == 2) };
        match number {
            3 => trio.arrive(&rts(LEN, TransferMode::Pull(nowhere))),
            4 => trio.arrive(&rts(LEN, TransferMode::Read(nowhere))),
            _ => {}
        }
        let case = abort(id.to_wire());
        trio.arrive(&case);
        trio.assert_violation(id, &[case]);
        trio.finish();
    }
}

/// The receive has ended, and the program may have its result already.
#[test]
fn giving_up_an_ended_receive_is_stale() {
    for is_collected in [true, false] {
        let mut trio = Trio::new(true);
        let recv = trio.receive(false);
        trio.arrive_all(&[rts(8, TransferMode::Push), data(recv.to_wire(), 0, 8)], false);
        if is_collected {
            assert!(trio.result(recv).is_ok());
        }
        let before = trio.stale();
        trio.arrive_all(&[abort(recv.to_wire()), abort(recv.to_wire())], true);
        assert_eq!((trio.stale(), trio.failure()), (before + 2, None));
        if !is_collected {
            assert!(trio.result(recv).is_ok());
        }
        trio.finish();
    }
}

/// Two ranks over ports that have puts and no gets. A put completes after 1 ms.
fn with_slow_puts() -> (Net, [Engine<SimPort>; 2]) {
    let mut sim = NetConfig { completion_delay_ns: 1_000_000, ..NetConfig::default() };
    (sim.caps.get, sim.caps.change) = (Reach::None, Reach::None);
    let net = Net::new(3, sim);
    let engines = [0, 1].map(|rank| {
        let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 7, secret: [9; 16] };
        let mut engine = Engine::new(net.start(rank), identity, config());
        engine.introduce(WorldRank(1 - rank), 7, net.address(1 - rank)).unwrap();
        engine
    });
    (net, engines)
}

/// Rank 0 violates the protocol while puts of a message between ranks 0 and 1 are under way. The memory of rank 1, from
/// which its port puts or into which rank 0 puts, stays registered until no put can access it, and not longer.
#[test]
fn puts_under_way_to_or_from_a_peer_that_violates_the_protocol_leave_nothing() {
    for (sends, is_lent) in [(true, true), (true, false), (false, true), (false, false)] {
        let (net, mut engines) = with_slow_puts();
        let message = bytes(LEN);
        let run = |engines: &mut [Engine<SimPort>; 2], sent: Option<RequestId>| {
            net.advance_to(net.now_ns() + 1_000);
            let now = Time::from_nanos(net.now_ns());
            engines[0].poll(now, &mut ()).unwrap();
            match sent {
                Some(id) => engines[1].poll(now, &mut Reading::new(id, &message[..])).unwrap(),
                None => engines[1].poll(now, &mut ()).unwrap(),
            };
            engines.iter().for_each(Engine::check_invariants);
        };
        (0..100).for_each(|_| run(&mut engines, None));
        let (from, to): (u32, usize) = if sends { (1, 0) } else { (0, 1) };
        let (now, pattern) = (Time::from_nanos(net.now_ns()), Pattern::exact(0, from, TAG));
        let is_lent_at = |rank| is_lent && rank == 1;
        let receive = match is_lent_at(to) {
            true => match engines[1].recv(now, pattern, &mut vec![0; LEN], 0, NEVER, &mut ()).unwrap() {
                Received::Pending(recv) => recv,
                Received::Now(_) => panic!("nothing was sent"),
            },
            false => engines[to].irecv(now, pattern, Memory::zeroed(LEN), NEVER).unwrap(),
        };
        let sender = &mut engines[from as usize];
        let send = match is_lent_at(from as usize) {
            true => match sender.send(now, WorldRank(to as u32), 0, TAG, &message, NEVER).unwrap() {
                Sent::Pending(send) => send,
                Sent::Now | Sent::Copied => panic!("a long message is not sent at once"),
            },
            false => {
                sender.isend(now, WorldRank(to as u32), 0, TAG, Memory::new(message.clone()), NEVER).unwrap()
            }
        };
        let sent = is_lent_at(from as usize).then_some(send);
        // All packets of rank 0 have arrived, and some puts are under way.
        let (peer, own) = (peer_of(&engines[0], WorldRank(1)), if sends { send } else { receive });
        let header = |engines: &[Engine<SimPort>; 2], kind| {
            engines[0].inner.link().header(peer, Protocol::P2p, kind, Flags::empty(), 0)
        };
        let is_ready = |engines: &[Engine<SimPort>; 2]| {
            let next = header(engines, kind::CTS).sequence.get();
            engines[from as usize].usage().operations > 0
                && next == peer_state(&engines[1], WorldRank(0)).expected()
        };
        assert!((0..2_000).any(|_| {
            run(&mut engines, sent);
            is_ready(&engines)
        }));
        let name = own.to_wire();
        let (kind, body) = if sends { cts_as(name, NAME, 0, 10) } else { landed(name, u64::MAX) };
        let packet = [header(&engines, kind).as_bytes(), &body].concat();
        engines[1].inner.sink(&mut ()).packet(&packet);
        assert!(matches!(peer_state(&engines[1], WorldRank(0)).failure(), Some(Cause::Protocol(_))));
        let result = engines[1].collect(own, &mut ()).expect("it has ended").result;
        assert!(matches!(result, Err(Error::PeerFailed { rank: WorldRank(0), .. })), "{result:?}");
        (0..5_000).for_each(|_| run(&mut engines, None));
        let usage = engines[1].usage();
        assert_eq!((usage.requests, usage.operations, usage.queued), (0, 0, 0), "{sends} {is_lent}");
        assert_eq!((usage.registered_used, usage.quarantined), (0, 0), "{sends} {is_lent}");
        assert_eq!(engines[1].port().registrations(), usage.registrations, "{sends} {is_lent}");
    }
}
