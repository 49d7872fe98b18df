//! Collective calls while the members of a communicator create its board.

use std::thread;
use std::time::Duration;

use samite::reduction::Sum;
use samite::{Comm, Error, Progress, Settings};

/// Runs ranks that may share boards, and must all succeed. No thread of the library makes progress for them.
fn all(n: u32, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let mut settings = Settings::default();
    settings.set_transport("samite-shm").unwrap();
    settings.set_progress(Progress::Off).unwrap();
    settings.local(n, |world| body(world.comm())).into_iter().for_each(Result::unwrap);
}

/// Several threads wait for the board. The one whose call has the first number may be the last that begins its
/// operation.
#[test]
fn threads_may_make_the_first_calls_at_the_same_time() {
    all(3, |comm| {
        (0..30).try_for_each(|_| {
            let fresh = comm.dup()?.with_timeout(Duration::from_secs(30));
            let call = || -> Result<(), Error> {
                for _ in 0..3 {
                    let mut sum = [1];
                    fresh.allreduce_in_place(&mut sum, Sum)?;
                    assert_eq!(sum, [3]);
                }
                Ok(())
            };
            thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(call));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })
        })
    });
}
