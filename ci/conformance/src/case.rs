//! A case, and the job in which a rank runs it.

use std::cell::Cell;
use std::time::Duration;

use samite::{Comm, Error, Rank, Status};

/// A rule of MPI 4.1, and ranks that challenge it.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The section of MPI 4.1.
    pub(crate) section: &'static str,
    /// What must hold.
    pub(crate) rule: String,
    pub(crate) ranks: u32,
    pub(crate) needs: Needs,
    body: Box<Body>,
}

type Body = dyn Fn(&Job) -> Result<(), Error> + Send + Sync;

/// The needs of a case beside ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing.
    Ranks,
    /// The case sends no messages, so one run for each transport is enough.
    Values,
    /// The case needs ranks with several threads, which a simulation does not support.
    Threads,
    /// The case needs a job of its own, because ranks end in it.
    OwnJob,
}

/// All cases. The cases of an area follow each other.
#[derive(Default)]
pub(crate) struct Cases {
    pub(crate) all: Vec<Case>,
    section: &'static str,
}

impl Cases {
    /// Sets the section of the following cases.
    pub(crate) fn section(&mut self, section: &'static str) {
        self.section = section;
    }

    /// Adds a case for `ranks` ranks.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        ranks: u32,
        rule: impl Into<String>,
        body: impl Fn(&Job) -> Result<(), Error> + Send + Sync + 'static,
    ) -> &mut Case {
        self.all.push(Case {
            name: name.into(),
            section: self.section,
            rule: rule.into(),
            ranks,
            needs: Needs::Ranks,
            body: Box::new(body),
        });
        self.all.last_mut().expect("one was pushed")
    }

    /// Adds a case about values, without messages.
    pub(crate) fn value(
        &mut self,
        name: impl Into<String>,
        rule: impl Into<String>,
        body: impl Fn() + Send + Sync + 'static,
    ) {
        let body = move |_: &Job| {
            body();
            Ok(())
        };
        self.add(name, 1, rule, body).needs = Needs::Values;
    }

    /// Adds a case in which ranks end.
    pub(crate) fn failure(
        &mut self,
        name: impl Into<String>,
        ranks: u32,
        rule: impl Into<String>,
        body: impl Fn(&Job) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        self.add(name, ranks, rule, body).needs = Needs::OwnJob;
    }

    /// Adds a case in which ranks have several threads.
    pub(crate) fn threads(
        &mut self,
        name: impl Into<String>,
        ranks: u32,
        rule: impl Into<String>,
        body: impl Fn(&Job) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        self.add(name, ranks, rule, body).needs = Needs::Threads;
    }
}

impl Case {
    /// Runs the case as one rank, and panics if the rule is violated.
    pub(crate) fn run(&self, job: &Job) {
        if let Err(error) = (self.body)(job) {
            panic!("unexpected error: {error} ({error:?})");
        }
    }
}

/// A case's view of its job.
pub(crate) struct Job {
    /// The communicator of all ranks of the case. Its operations have a time-out.
    pub(crate) comm: Comm,
    /// The number of bytes in a long message.
    pub(crate) long: usize,
    /// A function that ends this rank's process, or its part in a simulation.
    pub(crate) death: fn(),
}

impl Job {
    pub(crate) fn rank(&self) -> u32 {
        self.comm.rank().0
    }

    pub(crate) fn size(&self) -> u32 {
        self.comm.size()
    }

    /// Returns the other rank of a case with two ranks.
    pub(crate) fn other(&self) -> Rank {
        Rank(1 - self.rank())
    }

    /// Returns the next rank and the previous rank in the ring of all ranks.
    pub(crate) fn ring(&self) -> (Rank, Rank) {
        let (rank, size) = (self.rank(), self.size());
        (Rank((rank + 1) % size), Rank((rank + size - 1) % size))
    }

    /// Waits until all ranks have called this method. Uses only sends and receives.
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        barrier(&self.comm)
    }

    /// Is called by all ranks at the end of a case. Rank `last` sends a message to every other rank and does not wait.
    /// Every other rank waits here for that message. So until rank `last` makes this call, no other rank leaves, and no
    /// rank has sent it a message in this call: the case can check that no message waits for rank `last`.
    pub(crate) fn wait_for_release_from(&self, last: u32) -> Result<(), Error> {
        if self.rank() != last {
            return self.comm.recv(&mut [0u8; 0], Rank(last), RELEASE).map(|_| ());
        }
        (0..self.size())
            .filter(|&rank| rank != last)
            .try_for_each(|rank| self.comm.send(&[0u8; 0], Rank(rank), RELEASE))
    }

    /// Ends this rank without a goodbye.
    pub(crate) fn die(&self) -> ! {
        (self.death)();
        std::panic::panic_any(Death)
    }
}

/// The payload of the panic by which [`Job::die`] ends a rank.
pub(crate) struct Death;

/// Waits until all ranks of a communicator have made this call: a dissemination barrier (Hensgen, Finkel, Manber 1988).
pub(crate) fn barrier(comm: &Comm) -> Result<(), Error> {
    let (rank, size) = (comm.rank().0, comm.size());
    let mut distance = 1;
    while distance < size {
        let (to, from) = (Rank((rank + distance) % size), Rank((rank + size - distance) % size));
        comm.sendrecv(&[0u8; 0], to, BARRIER, &mut [0u8; 0], from, BARRIER)?;
        distance *= 2;
    }
    Ok(())
}

const BARRIER: u64 = u64::MAX - 1;
const RELEASE: u64 = u64::MAX - 2;

/// Returns `len` pseudorandom bytes, which depend on `seed`.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Checks the status of a received message.
#[track_caller]
pub(crate) fn expect(status: Status, peer: u32, tag: u64, bytes: usize) {
    assert_eq!((status.peer, status.tag, status.bytes), (Rank(peer), tag, bytes));
}

/// Checks the kind of an error.
macro_rules! expect_error {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
}
pub(crate) use expect_error;

/// The time-out of an operation that cannot succeed, or that a case may give up at any point.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// Repeats `look` until it returns a value. Panics after `TURNS_MAX` calls.
pub(crate) fn until<R>(job: &Job, mut look: impl FnMut() -> Result<Option<R>, Error>) -> Result<R, Error> {
    let turns = Cell::new(0u64);
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        turns.set(turns.get() + 1);
        if turns.get().is_multiple_of(64) {
            // The other ranks may need this core.
            std::thread::yield_now();
        }
        assert!(turns.get() < TURNS_MAX, "rank {} waited for an operation that does not end", job.rank());
    }
}

const TURNS_MAX: u64 = 200_000_000;
