//! Operations of communicators. One rank of four sends to itself, in the world and in a communicator that is split off
//! the world. The other ranks are threads that sleep.

use std::future::IntoFuture;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use samite::{Comm, Progress, Rank, Settings};

use super::Scenario;
use crate::callgrind::counted;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "comm_send_8_world", run: |operations| in_world(|comm| send(comm, operations)) },
    Scenario { name: "comm_send_8_split", run: |operations| in_split(|comm| send(comm, operations)) },
    Scenario { name: "comm_receive_8_world", run: |operations| in_world(|comm| receive(comm, operations)) },
    Scenario { name: "comm_receive_8_split", run: |operations| in_split(|comm| receive(comm, operations)) },
    Scenario { name: "comm_wait_8", run: |operations| in_world(|comm| wait(comm, operations)) },
    Scenario { name: "comm_receive_32K", run: |operations| receive_long(Progress::Off, operations) },
    Scenario {
        name: "comm_receive_32K_progress",
        run: |operations| receive_long(Progress::Needed, operations),
    },
    Scenario { name: "comm_wait_32K", run: |operations| wait_long(Progress::Off, operations) },
    Scenario { name: "comm_wait_32K_progress", run: |operations| wait_long(Progress::Needed, operations) },
    Scenario { name: "comm_await_8", run: |operations| in_world(|comm| awaited(comm, operations)) },
];

pub(super) const RANKS: u32 = 4;
/// The rank whose operations are counted.
const COUNTED: Rank = Rank(2);
const TAG: u64 = 5;
const BEGIN: u64 = 6;
const END: u64 = 7;

/// Runs the operations of rank 2 in a job.
fn in_world(run: impl Fn(&Comm) + Sync) {
    samite::local(RANKS, |world| {
        let comm = world.comm();
        alone(comm, || run(comm));
    });
}

/// Runs the operations of rank 2 in the communicator of the ranks with even numbers.
fn in_split(run: impl Fn(&Comm) + Sync) {
    samite::local(RANKS, |world| {
        let comm = world.comm();
        let split = comm.split(Some(comm.rank().0 % 2), 0).expect("all take part").expect("it has a color");
        alone(comm, || run(&split));
    });
}

/// Calls `run` in rank 2 of the world while the other ranks wait. Rank 2 first exchanges a message with each of them,
/// so that no peer's first message arrives during a counted call and is counted with it.
pub(super) fn alone(world: &Comm, run: impl Fn()) {
    if world.rank() == COUNTED {
        let others = || (0..world.size()).map(Rank).filter(|other| *other != COUNTED);
        for other in others() {
            world.send(&[0u8], other, BEGIN).expect("it waits");
            world.recv(&mut [0u8], other, BEGIN).expect("it answers");
        }
        run();
        others().for_each(|other| world.send(&[0u8], other, END).expect("it waits"));
    } else {
        world.recv(&mut [0u8], COUNTED, BEGIN).expect("it is sent");
        world.send(&[0u8], COUNTED, BEGIN).expect("it waits");
        world.recv(&mut [0u8], COUNTED, END).expect("it is sent");
    }
}

/// Not inlined, so that all scenarios count the same code.
#[inline(never)]
pub(super) fn send(comm: &Comm, operations: u64) {
    let (data, mut into) = (black_box([7u64]), [0u64]);
    for _ in 0..operations {
        counted(|| comm.send(&data, comm.rank(), TAG)).expect("it is sent");
        comm.recv(&mut into, comm.rank(), TAG).expect("it is there");
    }
}

/// See [`send`].
#[inline(never)]
pub(super) fn receive(comm: &Comm, operations: u64) {
    let (data, mut into) = (black_box([7u64]), [0u64]);
    for _ in 0..operations {
        comm.send(&data, comm.rank(), TAG).expect("it is sent");
        counted(|| comm.recv(&mut into, comm.rank(), TAG)).expect("it is there");
    }
}

fn wait(comm: &Comm, operations: u64) {
    let data = black_box([7u64]);
    for _ in 0..operations {
        let request = comm.irecv(vec![0u64], comm.rank(), TAG).expect("it is posted");
        comm.send(&data, comm.rank(), TAG).expect("it is sent");
        counted(|| request.wait()).expect("it is there");
    }
}

/// Runs operations of one rank, without a thread for progress or with one, if it is needed.
fn by_one_rank(progress: Progress, run: impl Fn(&Comm) + Sync) {
    let mut settings = Settings::default();
    settings.set_progress(progress).expect("it is valid");
    settings.local(1, |world| run(world.comm()));
}

/// The length of a message that does not fit into a packet, but is too short for a thread to help.
const LONG: usize = 32 << 10;

/// Counts a blocking receive of a message that needs several packets.
fn receive_long(progress: Progress, operations: u64) {
    by_one_rank(progress, |comm| {
        let (mut data, mut into) = (vec![7u8; LONG], vec![0u8; LONG]);
        for _ in 0..operations {
            let send = comm.isend(data, comm.rank(), TAG).expect("it is started");
            counted(|| comm.recv(&mut into, comm.rank(), TAG)).expect("it is there");
            data = send.wait().expect("it is received").buffer;
        }
    });
}

/// Counts the same as [`receive_long`], with a nonblocking receive that starts after its message was sent.
fn wait_long(progress: Progress, operations: u64) {
    by_one_rank(progress, |comm| {
        let (mut data, mut into) = (vec![7u8; LONG], vec![0u8; LONG]);
        for _ in 0..operations {
            let send = comm.isend(data, comm.rank(), TAG).expect("it is started");
            let receive = || comm.irecv(into, comm.rank(), TAG).expect("it is posted").wait();
            into = counted(receive).expect("it is there").buffer;
            data = send.wait().expect("it is received").buffer;
        }
    });
}

/// Counts the same operation as [`wait`], with a future that a minimal executor polls.
fn awaited(comm: &Comm, operations: u64) {
    let data = black_box([7u64]);
    for _ in 0..operations {
        let request = comm.irecv(vec![0u64], comm.rank(), TAG).expect("it is posted");
        comm.send(&data, comm.rank(), TAG).expect("it is sent");
        let received = counted(|| {
            let mut future = pin!(request.into_future());
            loop {
                if let Poll::Ready(received) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    return received;
                }
            }
        });
        received.expect("it is there");
    }
}
