//! Collective operations on the board of two ranks. The other rank has begun each operation before, so the counted rank
//! waits for nothing.

use std::sync::Barrier;

use samite::reduction::Sum;
use samite::{Comm, PersistentCollective, Progress, Rank, Settings};

use super::Scenario;
use crate::callgrind::counted;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "board_barrier_blocking",
        run: |operations| {
            blocking(prepare_barrier, operations, |comm| {
                comm.barrier().expect("the other rank has begun it")
            });
        },
    },
    Scenario { name: "board_barrier_persistent", run: |operations| persistent(prepare_barrier, operations) },
    Scenario {
        name: "board_bcast_8_blocking",
        run: |operations| {
            let mut number = [0u64];
            blocking(prepare_bcast, operations, move |comm| {
                comm.bcast(&mut number, ROOT).expect("the other rank has begun it");
            });
        },
    },
    Scenario { name: "board_bcast_8_persistent", run: |operations| persistent(prepare_bcast, operations) },
    Scenario {
        name: "board_allreduce_8_blocking",
        run: |operations| {
            let (number, mut sum) = ([7u64], [0u64]);
            blocking(prepare_allreduce, operations, move |comm| {
                comm.allreduce(&number, &mut sum, Sum).expect("the other rank has begun it");
            });
        },
    },
    Scenario {
        name: "board_allreduce_8_persistent",
        run: |operations| persistent(prepare_allreduce, operations),
    },
];

/// The root of broadcasts, which is the rank that is not counted.
const ROOT: Rank = Rank(1);

type Empty = PersistentCollective<(), ()>;
type Bcast = PersistentCollective<(), Vec<u64>>;
type Allreduce = PersistentCollective<Vec<u64>, Vec<u64>>;

fn prepare_barrier(comm: &Comm) -> Empty {
    comm.barrier_init().expect("the arguments are right")
}

fn prepare_bcast(comm: &Comm) -> Bcast {
    comm.bcast_init(vec![7u64], ROOT).expect("the arguments are right")
}

fn prepare_allreduce(comm: &Comm) -> Allreduce {
    comm.allreduce_init(vec![7u64], vec![0], Sum).expect("the arguments are right")
}

/// Counts a blocking call. The other rank starts a round of the prepared operation, which matches the call.
fn blocking<O: Rounds>(prepare: fn(&Comm) -> O, operations: u64, call: impl FnMut(&Comm) + Clone + Sync) {
    in_turns(prepare, operations, |_| {
        let mut call = call.clone();
        move |comm: &Comm| counted(|| call(comm))
    });
}

/// Counts a round of a prepared operation, from its start to its end.
fn persistent<O: Rounds>(prepare: fn(&Comm) -> O, operations: u64) {
    in_turns(prepare, operations, |comm| {
        let mut prepared = prepare(comm);
        move |_: &Comm| {
            counted(|| {
                prepared.begin();
                prepared.end();
            });
        }
    });
}

/// A prepared operation.
trait Rounds {
    fn begin(&mut self);
    fn end(&mut self);
}

macro_rules! rounds {
    ($($name:ty),*) => {
        $(impl Rounds for $name {
            fn begin(&mut self) {
                self.start().expect("it is inactive");
            }
            fn end(&mut self) {
                self.wait().expect("the other rank takes part");
            }
        })*
    };
}

rounds!(Empty, Bcast, Allreduce);

/// Makes the calls of rank 0 while rank 1 is in a round of the same operation. Rank 1 then waits outside of the
/// library, so it does not sleep, and rank 0 has nobody to wake.
fn in_turns<O: Rounds, C: FnMut(&Comm)>(
    prepare: fn(&Comm) -> O,
    operations: u64,
    of_counted: impl Fn(&Comm) -> C + Sync,
) {
    let mut settings = Settings::default();
    settings.set_transport("samite-shm").expect("it is a transport");
    settings.set_progress(Progress::Off).expect("it is valid");
    let turn = Barrier::new(2);
    settings.local(2, |world| {
        let comm = world.comm();
        // The first call creates the board.
        comm.barrier().expect("both ranks call it");
        match comm.rank() {
            ROOT => {
                let mut prepared = prepare(comm);
                for _ in 0..operations {
                    prepared.begin();
                    turn.wait();
                    turn.wait();
                    prepared.end();
                }
            }
            _ => {
                let mut call = of_counted(comm);
                for _ in 0..operations {
                    turn.wait();
                    call(comm);
                    turn.wait();
                }
            }
        }
    });
}
