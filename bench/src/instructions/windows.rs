//! Operations on windows, and messages beside an idle window. One rank makes the calls, and the other ranks are threads
//! that sleep. No thread makes progress between the calls: when it would take the lock depends on the real time, and
//! the counts would differ from run to run.

use samite::{Comm, Epoch, Error, Lock, LockKind, Progress, Rank, Settings, Window, WindowOp};

use super::Scenario;
use super::comms::{RANKS, alone, receive, send};
use crate::callgrind::counted;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "window_put_8_shm", run: |operations| on_shm(|epoch| put(epoch, operations)) },
    Scenario { name: "window_flush_shm", run: |operations| on_shm(|epoch| flush(epoch, operations)) },
    Scenario { name: "window_get_8_shm", run: |operations| on_shm(|epoch| get(epoch, operations)) },
    Scenario { name: "window_iget_8_shm", run: |operations| on_shm(|epoch| iget(epoch, operations)) },
    Scenario { name: "window_fetch_8_shm", run: |operations| on_shm(|epoch| fetch(epoch, operations)) },
    Scenario { name: "window_lock_put_8_shm", run: lock },
    Scenario {
        name: "comm_send_8_beside_window",
        run: |operations| beside_a_window(|comm| send(comm, operations)),
    },
    Scenario {
        name: "comm_receive_8_beside_window",
        run: |operations| beside_a_window(|comm| receive(comm, operations)),
    },
    Scenario {
        name: "comm_send_8_beside_comm",
        run: |operations| beside_a_communicator(|comm| send(comm, operations)),
    },
    Scenario {
        name: "comm_receive_8_beside_comm",
        run: |operations| beside_a_communicator(|comm| receive(comm, operations)),
    },
];

const TARGET: Rank = Rank(0);

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.set_progress(Progress::Off).expect("it is valid");
    settings
}

/// Runs operations under locks of windows whose parts all ranks map.
fn on_shm(run: impl Fn(&Epoch<'_, u64, Lock>) + Sync) {
    with_window(|window| {
        let epoch = window.lock_all().expect("no epoch is open");
        // The first operation waits for the lock.
        epoch.get(TARGET, 0, &mut [0]).expect("the target answers");
        run(&epoch);
        epoch.close().expect("the target answers");
    });
}

/// Calls a function in one rank, with a window whose parts all ranks map.
fn with_window(run: impl Fn(&Window<u64>) + Sync) {
    let mut settings = settings();
    settings.set_transport("samite-shm").expect("there is such a transport");
    settings.local(RANKS, |world| {
        let comm = world.comm();
        let window = comm.allocate_window::<u64>(1).expect("there is memory to share");
        alone(comm, || run(&window));
        window.free().expect("all ranks free it");
    });
}

/// Puts in epochs of a lock that nobody else wants.
fn lock(operations: u64) {
    with_window(|window| {
        let epoch = || -> Result<(), Error> {
            let epoch = window.lock(TARGET, LockKind::Exclusive)?;
            epoch.put(TARGET, 0, &[7])?;
            epoch.close()
        };
        // This rank maps the part of the target in the first epoch.
        epoch().expect("the target answers");
        for _ in 0..operations {
            counted(epoch).expect("the lock is free");
        }
    });
}

fn put(epoch: &Epoch<'_, u64, Lock>, operations: u64) {
    for number in 0..operations {
        counted(|| epoch.put(TARGET, 0, &[number])).expect("it is granted");
    }
}

fn flush(epoch: &Epoch<'_, u64, Lock>, operations: u64) {
    for number in 0..operations {
        epoch.put(TARGET, 0, &[number]).expect("it is granted");
        counted(|| epoch.flush(TARGET)).expect("it is granted");
    }
}

fn get(epoch: &Epoch<'_, u64, Lock>, operations: u64) {
    let mut into = [0];
    for _ in 0..operations {
        counted(|| epoch.get(TARGET, 0, &mut into)).expect("it is granted");
    }
}

/// Reads into memory that the operation owns, and waits for its request.
fn iget(epoch: &Epoch<'_, u64, Lock>, operations: u64) {
    let mut into = vec![0];
    for _ in 0..operations {
        let get = || epoch.iget(TARGET, 0, into).expect("it is granted").wait();
        into = counted(get).expect("it is granted").buffer;
    }
}

fn fetch(epoch: &Epoch<'_, u64, Lock>, operations: u64) {
    for _ in 0..operations {
        counted(|| epoch.fetch(TARGET, 0, 1, WindowOp::Sum)).expect("it is granted");
    }
}

/// Runs operations of a rank that has a window.
fn beside_a_window(run: impl Fn(&Comm) + Sync) {
    with_own(|comm, own| {
        let window = own.window(vec![0_u64; 1]).expect("there is room for one");
        run(comm);
        window.free().expect("no other rank has it");
    });
}

/// Runs operations of a rank that has two communicators, as with such a window, and no window.
fn beside_a_communicator(run: impl Fn(&Comm) + Sync) {
    with_own(|comm, _| run(comm));
}

/// Calls a function in one rank, with a communicator of this rank alone.
fn with_own(run: impl Fn(&Comm, &Comm) + Sync) {
    settings().local(RANKS, |world| {
        let comm = world.comm();
        alone(comm, || run(comm, &comm.self_comm().expect("it has a communicator of its own")));
    });
}
