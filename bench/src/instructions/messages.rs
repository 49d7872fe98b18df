//! Operations of the message engine. Two engines exchange messages in this thread, over two ports.

use std::hint::black_box;

use samite_fabric::layout::Form;
use samite_fabric::loopback::Hub;
use samite_fabric::route::{Ports, Route};
use samite_fabric::shm::{self, Shm};
use samite_fabric::{Body, Memory, Port};
use samite_p2p::{
    Config, Engine, Group, Identity, Outcome, Pattern, Received, RequestId, Sent, Time, WorldRank, Writing,
};

use super::Scenario;
use crate::callgrind::counted;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "send_8_loopback", run: |operations| send(loopback(), operations) },
    Scenario { name: "send_8_shm", run: |operations| send(shared_memory(), operations) },
    Scenario { name: "send_8_route", run: |operations| send(routes(), operations) },
    Scenario { name: "send_8_world_route", run: |operations| send_in(CONTEXT, opened(), operations) },
    Scenario { name: "send_8_opened_route", run: |operations| send_in(OPENED, opened(), operations) },
    Scenario { name: "send_8_slice_route", run: |operations| send_slice(routes(), operations) },
    Scenario { name: "send_8_contiguous_route", run: |operations| send_contiguous(routes(), operations) },
    Scenario { name: "send_4K_strided_shm", run: |operations| send_strided(shared_memory(), operations) },
    Scenario {
        name: "receive_4K_strided_shm",
        run: |operations| receive_strided(shared_memory(), operations),
    },
    Scenario { name: "receive_8_world_route", run: |operations| receive_in(CONTEXT, opened(), operations) },
    Scenario { name: "receive_8_opened_route", run: |operations| receive_in(OPENED, opened(), operations) },
    Scenario { name: "receive_8_posted_loopback", run: |operations| receive_posted(loopback(), operations) },
    Scenario { name: "receive_8_posted_shm", run: |operations| receive_posted(shared_memory(), operations) },
    Scenario {
        name: "receive_8_unexpected_shm",
        run: |operations| receive_unexpected(shared_memory(), operations),
    },
    Scenario {
        name: "receive_8_at_hand_shm",
        run: |operations| receive_at_hand(shared_memory(), operations),
    },
    Scenario {
        name: "pair_8_nonblocking_loopback",
        run: |operations| pair_nonblocking(loopback(), operations),
    },
    Scenario {
        name: "pair_8_nonblocking_shm",
        run: |operations| pair_nonblocking(shared_memory(), operations),
    },
    Scenario {
        name: "pair_8_persistent_loopback",
        run: |operations| pair_persistent(loopback(), operations),
    },
    Scenario {
        name: "pair_8_persistent_shm",
        run: |operations| pair_persistent(shared_memory(), operations),
    },
    Scenario { name: "rendezvous_512K_loopback", run: |operations| post_rendezvous(loopback(), operations) },
    Scenario { name: "rendezvous_512K_shm", run: |operations| post_rendezvous(shared_memory(), operations) },
    Scenario { name: "poll_idle_loopback", run: |operations| poll_idle(loopback(), operations) },
    Scenario { name: "poll_idle_shm", run: |operations| poll_idle(shared_memory(), operations) },
    Scenario { name: "poll_idle_route", run: |operations| poll_idle(routes(), operations) },
];

type Pair<P> = [Engine<P>; 2];

const NEVER: Time = Time::NEVER;
const CONTEXT: u32 = 1;
const OPENED: u32 = 2;
const TAG: u64 = 5;
const FROM_0: Pattern = Pattern::exact(CONTEXT, 0, TAG);

/// Counts a send of 8 bytes that need not wait.
fn send<P: Port>(mut pair: Pair<P>, operations: u64) {
    let context = black_box(CONTEXT);
    for _ in 0..operations {
        let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(8), NEVER).expect("it is posted");
        let sent = counted(|| pair[0].send(Time::ZERO, WorldRank(1), context, TAG, &[7; 8], NEVER))
            .expect("it is sent");
        assert_eq!(sent, Sent::Now);
        end(&mut pair, 1, into);
    }
}

/// Counts the same operation as [`send`], from a slice whose length the compiler does not know.
fn send_slice<P: Port>(mut pair: Pair<P>, operations: u64) {
    let (context, data) = black_box((CONTEXT, vec![7; 8]));
    for _ in 0..operations {
        let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(8), NEVER).expect("it is posted");
        let sent = counted(|| pair[0].send(Time::ZERO, WorldRank(1), context, TAG, &data, NEVER))
            .expect("it is sent");
        assert_eq!(sent, Sent::Now);
        end(&mut pair, 1, into);
    }
}

/// Counts the same operation as [`send_slice`], from a view of the slice in a contiguous layout, with the steps of
/// `Comm::send_view`.
fn send_contiguous<P: Port>(mut pair: Pair<P>, operations: u64) {
    let (data, form) = (vec![7; 8], Form::block(8).expect("it is short"));
    let view = black_box(form.read(&data).expect("it fits"));
    let context = black_box(CONTEXT);
    for _ in 0..operations {
        let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(8), NEVER).expect("it is posted");
        let sent = counted(|| match view.as_slice() {
            Some(data) => pair[0].send(Time::ZERO, WorldRank(1), context, TAG, data, NEVER),
            None => pair[0].send_from(Time::ZERO, WorldRank(1), context, TAG, &view, NEVER),
        });
        assert_eq!(sent.expect("it is sent"), Sent::Now);
        end(&mut pair, 1, into);
    }
}

/// The length of a strided message.
const STRIDED: usize = 4096;

/// Returns 8 bytes of every 16, `STRIDED` bytes in total.
fn strided() -> Form {
    Form::block(8).and_then(|block| block.strided(STRIDED / 8, 16)).expect("it is short")
}

/// Counts a send of scattered data that is sent immediately.
fn send_strided<P: Port>(mut pair: Pair<P>, operations: u64) {
    let (data, form) = (black_box(vec![7; 2 * STRIDED]), strided());
    let view = form.read(&data).expect("it fits");
    for _ in 0..operations {
        let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(STRIDED), NEVER).expect("it is posted");
        let sent = counted(|| pair[0].send_from(Time::ZERO, WorldRank(1), CONTEXT, TAG, &view, NEVER));
        assert_eq!(sent.expect("it is sent"), Sent::Now);
        end(&mut pair, 1, into);
    }
}

/// Counts the arrival of a message at a receive into scattered memory.
fn receive_strided<P: Port>(mut pair: Pair<P>, operations: u64) {
    let (data, mut buffer, form) = (vec![7; STRIDED], black_box(vec![0; 2 * STRIDED]), strided());
    let mut view = form.write(&mut buffer).expect("it fits");
    for _ in 0..operations {
        let posted = pair[1].recv_into(Time::ZERO, FROM_0, &mut view, 0, NEVER, &mut ());
        let Ok(Received::Pending(request)) = posted else { panic!("nothing was sent") };
        let sent = pair[0].send(Time::ZERO, WorldRank(1), CONTEXT, TAG, &data, NEVER).expect("it is sent");
        assert_eq!(sent, Sent::Now);
        let received = counted(|| {
            let mut lent = Writing::of(request, &mut view);
            pair[1].poll(Time::ZERO, &mut lent).expect("the port works");
            lent.result(None)
        });
        received.expect("one poll is enough");
        settle(&mut pair);
    }
}

/// Counts a receive that is posted before its message arrives: posting, matching, completion.
fn receive_posted<P: Port>(mut pair: Pair<P>, operations: u64) {
    let mut buffer = [0; 8];
    for _ in 0..operations {
        let posted = counted(|| pair[1].recv(Time::ZERO, FROM_0, &mut buffer, 0, NEVER, &mut ()))
            .expect("it is posted");
        let Received::Pending(request) = posted else { panic!("nothing was sent") };
        let sent = pair[0].send(Time::ZERO, WorldRank(1), CONTEXT, TAG, &[7; 8], NEVER).expect("it is sent");
        assert_eq!(sent, Sent::Now);
        let received = counted(|| {
            let mut lent = Writing::new(request, &mut buffer);
            pair[1].poll(Time::ZERO, &mut lent).expect("the port works");
            lent.result(None)
        });
        received.expect("one poll is enough");
        settle(&mut pair);
    }
}

/// Counts the same operation as [`send`], in a context that the compiler does not know.
#[inline(never)]
fn send_in<P: Port>(context: u32, mut pair: Pair<P>, operations: u64) {
    let from_0 = Pattern::exact(context, 0, TAG);
    for _ in 0..operations {
        let into = pair[1].irecv(Time::ZERO, from_0, Memory::zeroed(8), NEVER).expect("it is posted");
        let sent = counted(|| pair[0].send(Time::ZERO, WorldRank(1), context, TAG, &[7; 8], NEVER))
            .expect("it is sent");
        assert_eq!(sent, Sent::Now);
        end(&mut pair, 1, into);
    }
}

/// Counts the same operation as [`receive_posted`], in a context that the compiler does not know.
#[inline(never)]
fn receive_in<P: Port>(context: u32, mut pair: Pair<P>, operations: u64) {
    let from_0 = Pattern::exact(context, 0, TAG);
    let mut buffer = [0; 8];
    for _ in 0..operations {
        let posted = counted(|| pair[1].recv(Time::ZERO, from_0, &mut buffer, 0, NEVER, &mut ()));
        let Ok(Received::Pending(request)) = posted else { panic!("nothing was sent") };
        let sent = pair[0].send(Time::ZERO, WorldRank(1), context, TAG, &[7; 8], NEVER).expect("it is sent");
        assert_eq!(sent, Sent::Now);
        let received = counted(|| {
            let mut lent = Writing::new(request, &mut buffer);
            pair[1].poll(Time::ZERO, &mut lent).expect("the port works");
            lent.result(None)
        });
        received.expect("one poll is enough");
        settle(&mut pair);
    }
}

/// Counts a receive whose message is waiting: it matches immediately.
fn receive_unexpected<P: Port>(mut pair: Pair<P>, operations: u64) {
    let mut buffer = [0; 8];
    for _ in 0..operations {
        let sent = pair[0].send(Time::ZERO, WorldRank(1), CONTEXT, TAG, &[7; 8], NEVER).expect("it is sent");
        assert_eq!(sent, Sent::Now);
        settle(&mut pair);
        let received = counted(|| pair[1].recv(Time::ZERO, FROM_0, &mut buffer, 0, NEVER, &mut ()))
            .expect("it is there");
        assert!(matches!(received, Received::Now(_)));
        settle(&mut pair);
    }
}

/// Counts a receive whose message has arrived in the port, but has not been polled.
fn receive_at_hand<P: Port>(mut pair: Pair<P>, operations: u64) {
    // After this first message, the port of engine 1 looks for packets of engine 0 first.
    let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(0), NEVER).expect("it is posted");
    pair[0].send(Time::ZERO, WorldRank(1), CONTEXT, TAG, &[], NEVER).expect("it is sent");
    end(&mut pair, 1, into);
    let mut buffer = [0; 8];
    for _ in 0..operations {
        let sent = pair[0].send(Time::ZERO, WorldRank(1), CONTEXT, TAG, &[7; 8], NEVER).expect("it is sent");
        assert_eq!(sent, Sent::Now);
        let received = counted(|| pair[1].recv(Time::ZERO, FROM_0, &mut buffer, 0, NEVER, &mut ()))
            .expect("it is there");
        assert!(matches!(received, Received::Now(_)));
        settle(&mut pair);
    }
}

/// Counts a receive and a send that own their memory, from their start to their results.
fn pair_nonblocking<P: Port>(mut pair: Pair<P>, operations: u64) {
    let mut memory = [Memory::zeroed(8), Memory::zeroed(8)];
    for _ in 0..operations {
        let [data, buffer] = memory;
        memory = counted(|| {
            let receive = pair[1].irecv(Time::ZERO, FROM_0, buffer, NEVER).expect("it is posted");
            let send =
                pair[0].isend(Time::ZERO, WorldRank(1), CONTEXT, TAG, data, NEVER).expect("it is sent");
            [wait(&mut pair[0], send), wait(&mut pair[1], receive)]
        });
        settle(&mut pair);
    }
}

/// Counts the same operations as [`pair_nonblocking`], with the calls of persistent operations.
fn pair_persistent<P: Port>(mut pair: Pair<P>, operations: u64) {
    let data = Memory::zeroed(8);
    let mut buffer = Memory::zeroed(8);
    for _ in 0..operations {
        buffer = counted(|| {
            let receive = pair[1].irecv(Time::ZERO, FROM_0, buffer, NEVER).expect("it is posted");
            let sent =
                pair[0].try_send(Time::ZERO, WorldRank(1), CONTEXT, TAG, &data).expect("it can be sent");
            assert!(sent, "it need not wait");
            wait(&mut pair[1], receive)
        });
        settle(&mut pair);
    }
}

/// Waits for a request that ends after at most one poll, and returns its memory.
fn wait<P: Port>(engine: &mut Engine<P>, request: RequestId) -> Memory {
    if engine.outcome(request) == Outcome::Pending {
        engine.poll(Time::ZERO, &mut ()).expect("the port works");
    }
    let completion = engine.collect(request, &mut ()).expect("it has ended");
    completion.result.expect("it has succeeded");
    completion.memory.expect("nobody uses it any more")
}

/// Counts the start of a long send from owned memory.
fn post_rendezvous<P: Port>(mut pair: Pair<P>, operations: u64) {
    let mut memory = Memory::zeroed(512 << 10);
    for _ in 0..operations {
        let request = counted(|| pair[0].isend(Time::ZERO, WorldRank(1), CONTEXT, TAG, memory, NEVER))
            .expect("it is posted");
        let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(512 << 10), NEVER).expect("it is posted");
        end(&mut pair, 1, into);
        memory = end(&mut pair, 0, request).expect("nobody uses it any more");
    }
}

/// Counts a poll that finds nothing.
fn poll_idle<P: Port>([mut zero, _one]: Pair<P>, operations: u64) {
    for _ in 0..operations {
        counted(|| zero.poll(Time::ZERO, &mut ())).expect("the port works");
    }
}

/// Drives both engines until a request has ended, and then until they are idle.
fn end<P: Port>(pair: &mut Pair<P>, rank: usize, request: RequestId) -> Option<Memory> {
    while pair[rank].outcome(request) == Outcome::Pending {
        poll(pair);
    }
    let completion = pair[rank].collect(request, &mut ()).expect("it has ended");
    completion.result.expect("it has succeeded");
    settle(pair);
    completion.memory
}

fn settle<P: Port>(pair: &mut Pair<P>) {
    let mut idle = 0;
    // Poll each engine a few times more: a packet that one engine's poll has sent appears as an event of the other
    // engine's next poll.
    while idle < 4 {
        idle = if poll(pair) == 0 { idle + 1 } else { 0 };
    }
}

fn poll<P: Port>(pair: &mut Pair<P>) -> usize {
    pair.iter_mut().map(|engine| engine.poll(Time::ZERO, &mut ()).expect("the port works")).sum()
}

fn loopback() -> Pair<impl Port> {
    let hub = Hub::new();
    engines([hub.port(), hub.port()])
}

fn shared_memory() -> Pair<impl Port> {
    engines([0, 1].map(|_| Shm::open(&shm::Config::default()).expect("there is memory to share")))
}

/// Returns two engines whose ports have loopback and shared memory, and reach each other by shared memory.
fn routes() -> Pair<impl Port> {
    engines([0, 1].map(|_| {
        let mut ports = Ports { loopback: Some(Hub::new().port()), ..Ports::default() };
        ports.shm = Some(Shm::open(&shm::Config::default()).expect("there is memory to share"));
        Route::new(ports).expect("two ports")
    }))
}

/// Returns two engines in which the same context is open for both ranks, like the context of a communicator.
fn opened() -> Pair<impl Port> {
    let mut pair = routes();
    for engine in &mut pair {
        assert_eq!(engine.open_contexts(OPENED.into(), Group::range(WorldRank(0), 2)), Ok(true));
    }
    pair
}

/// Returns two engines that know each other and have credit to send.
fn engines<P: Port>(ports: [P; 2]) -> Pair<P> {
    let addresses = ports.each_ref().map(Port::address);
    let mut rank = 0;
    let mut pair = ports.map(|port| {
        let identity = Identity { rank: WorldRank(rank), size: 2, incarnation: 1, secret: [9; 16] };
        rank += 1;
        let mut engine = Engine::new(port, identity, Config::default());
        for (rank, address) in (0..).zip(&addresses) {
            engine.introduce(WorldRank(rank), 1, address.clone()).expect("it is a rank");
        }
        engine
    });
    // The first contact grants credit.
    let into = pair[1].irecv(Time::ZERO, FROM_0, Memory::zeroed(8), NEVER).expect("it is posted");
    let sent = pair[0]
        .isend(Time::ZERO, WorldRank(1), CONTEXT, TAG, Memory::zeroed(8), NEVER)
        .expect("it is posted");
    end(&mut pair, 0, sent);
    end(&mut pair, 1, into);
    pair
}
