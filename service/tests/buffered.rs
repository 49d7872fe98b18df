//! Buffered messages that wait are sent by later calls, also by calls that end at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use samite::{BUFFERED_OVERHEAD, Comm, Error, Mode, Rank};

const TAG: u64 = 7;
const END: u64 = 8;

/// Rank 1 calls `call` until rank 0 has received a message. The ranks have exchanged no message before.
fn arrives(call: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let is_over = AtomicBool::new(false);
    let results = samite::local(2, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(20));
        if comm.rank() == 0 {
            let received = comm.recv(&mut [0_u64], Rank(1), TAG);
            is_over.store(true, Ordering::Release);
            received?;
            return comm.recv(&mut [0_u64; 0], Rank(1), END).map(drop);
        }
        let buffered = comm.with_buffer(100 * (8 + BUFFERED_OVERHEAD)).with_mode(Mode::Buffered);
        while !is_over.load(Ordering::Acquire) {
            match call(&buffered) {
                Ok(()) | Err(Error::Exhausted { .. }) => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        comm.send(&[0_u64; 0], Rank(0), END)
    });
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[test]
fn a_nonblocking_send_moves_them() {
    arrives(|comm| Ok(comm.isend(vec![1_u64], Rank(0), TAG)?.wait().map(drop)?));
}

#[test]
fn a_send_of_a_scope_moves_them() {
    arrives(|comm| comm.scope(|scope| scope.isend(&[1_u64], Rank(0), TAG).map(drop)));
}

#[test]
fn a_persistent_send_moves_them() {
    arrives(|comm| {
        let mut send = comm.send_init(vec![1_u64], Rank(0), TAG)?;
        send.start()?;
        send.wait().map(drop)
    });
}

#[test]
fn a_send_to_another_rank_moves_them() {
    arrives(|comm| {
        comm.send(&[1_u64], Rank(0), TAG)?;
        comm.with_mode(Mode::Standard).send(&[1_u64], comm.rank(), TAG)
    });
}

#[test]
fn a_send_that_finds_the_buffer_full_moves_them() {
    arrives(|comm| comm.send(&[1_u64], Rank(0), TAG));
}
