//! Ranks as threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use samite::{Cause, Error, Source};

#[test]
fn results_come_by_rank() {
    let results = samite::local(5, |world| (world.rank(), world.size()));
    assert_eq!(results, [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
}

#[test]
fn a_rank_sends_to_itself() {
    let received = samite::local(1, |world| {
        world.send(&[1_u8, 2, 3], 0, 7)?;
        world.recv_vec::<u8>(0, 7).map(|(data, _)| data)
    });
    assert_eq!(received, [Ok(vec![1, 2, 3])]);
}

#[test]
fn a_ring_of_many_goes_round() {
    let sums = samite::local(16, |world| {
        let (left, right) = ((world.rank() + 15) % 16, (world.rank() + 1) % 16);
        let mut sum = [0];
        for _ in 0..100 {
            let sent = sum[0] + u64::from(world.rank());
            world.sendrecv(&[sent], right, 1, &mut sum, left, 1)?;
        }
        Ok::<_, Error>(sum[0])
    });
    // After 100 hops each token has met the ranks before its holder: six times around, and four more.
    for (rank, sum) in (0..16_u64).zip(sums) {
        let met = (1..=100).map(|hops| (rank + 16 * 100 - hops) % 16);
        assert_eq!(sum, Ok(met.sum()));
    }
}

#[test]
fn a_panic_ends_what_waits_for_it_and_goes_on_in_the_caller() {
    let told = std::sync::Mutex::new(Vec::new());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        samite::local(3, |world| {
            if world.rank() == 1 {
                panic!("as the test wants");
            }
            let error = world.within(Duration::from_secs(60)).recv(&mut [0_u8], 1, 1).unwrap_err();
            told.lock().unwrap().push(error);
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as the test wants"));
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), 2);
    for error in told {
        // The launcher says how; its port may be missed before.
        assert!(
            matches!(error, Error::PeerFailed { rank: 1, cause: Cause::Died(_) | Cause::Lost, .. }),
            "{error}"
        );
    }
}

#[test]
fn who_waits_for_a_rank_that_has_left_is_told() {
    let results = samite::local(2, |world| match world.rank() {
        0 => world.within(Duration::from_secs(60)).recv(&mut [0_u8], 1, 1).map(|_| ()),
        _ => Ok(()),
    });
    assert!(matches!(results[0], Err(Error::PeerFailed { rank: 1, cause: Cause::Left, .. })), "{results:?}");
}

#[test]
fn what_was_sent_before_leaving_arrives() {
    let results = samite::local(4, |world| {
        if world.rank() > 0 {
            return world.send(&vec![world.rank(); 100_000], 0, 1).map(|()| 0);
        }
        let mut sum = 0;
        for _ in 1..world.size() {
            let (data, status) = world.recv_vec::<u32>(Source::ANY, 1)?;
            assert!(data.len() == 100_000 && data.iter().all(|&rank| rank == status.source));
            sum += status.source;
        }
        Ok(sum)
    });
    assert_eq!(results, [Ok(6), Ok(0), Ok(0), Ok(0)]);
}
