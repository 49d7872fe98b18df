//! The first message to a rank, which waits for the first contact with it.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use samite::{Cause, Error, Rank, Settings, World};

const TAG: u64 = 7;

/// Rank 0 sends by `send`, and then makes no call until rank 1 has the message.
fn arrives(transport: Option<&str>, send: impl Fn(&World) -> Result<(), Error> + Sync) {
    let mut settings = Settings::default();
    if let Some(transport) = transport {
        settings.set_transport(transport).unwrap();
    }
    let (tell, told) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let results = settings.local(2, |world| {
        let tell = tell.clone();
        if world.comm().rank() == Rank(0) {
            send(&world)?;
            // The receiver ends in any case, at its deadline if not before.
            told.lock().unwrap().recv().unwrap();
            return Ok(());
        }
        let comm = world.comm().with_timeout(Duration::from_secs(10));
        let received = comm.recv(&mut [0_u8], Rank(0), TAG);
        tell.send(()).unwrap();
        received.map(drop)
    });
    for result in results {
        result.unwrap_or_else(|error| panic!("{transport:?}: {error}"));
    }
}

#[test]
fn the_first_message_needs_no_later_call_of_its_sender() {
    for transport in [None, Some("samite-shm")] {
        arrives(transport, |world| world.comm().send(&[1_u8], Rank(1), TAG));
        arrives(transport, |world| {
            std::mem::forget(world.comm().isend(vec![1_u8], Rank(1), TAG)?);
            Ok(())
        });
        arrives(transport, |world| {
            drop(world.comm().isend(vec![1_u8], Rank(1), TAG)?);
            Ok(())
        });
        arrives(transport, |world| {
            // More than one message waits.
            world.comm().send(&[1_u8], Rank(1), 1)?;
            world.comm().send(&[1_u8], Rank(1), TAG)
        });
    }
}

/// A thread sends while another thread of its rank leaves. The send ends without an error if its message is delivered.
#[test]
fn a_first_message_that_is_sent_while_its_rank_leaves_is_not_reported_as_lost() {
    for _ in 0..200 {
        let may_receive = Barrier::new(2);
        let results = samite::local(2, |world| {
            let comm = world.comm().with_timeout(Duration::from_secs(10));
            if comm.rank() == Rank(1) {
                may_receive.wait();
                return match comm.recv(&mut [0_u8], Rank(0), TAG) {
                    Ok(_) => true,
                    Err(Error::PeerFailed { cause: Cause::Left, .. }) => false,
                    Err(error) => panic!("{error}"),
                };
            }
            let begun = Barrier::new(2);
            thread::scope(|threads| {
                let sends = threads.spawn(|| {
                    begun.wait();
                    comm.send(&[1_u8], Rank(1), TAG)
                });
                begun.wait();
                let leaves = threads.spawn(|| world.leave());
                let sent = sends.join().unwrap();
                may_receive.wait();
                leaves.join().unwrap().unwrap();
                match sent {
                    Ok(()) => true,
                    Err(Error::Closed { .. }) => false,
                    Err(error) => panic!("{error}"),
                }
            })
        });
        assert_eq!(results[0], results[1], "sent, and received");
    }
}
