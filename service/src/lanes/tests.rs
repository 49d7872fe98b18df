//! Tests of the encoding of addresses, and of lanes in ranks that are threads.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use super::*;
use crate::runtime::Notice;
use crate::{Cause, Comm, Mode, Rank, Settings, Source, World};

fn with_lanes<R: Send>(ranks: u32, lanes: usize, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    let mut settings = Settings::default();
    settings.set_lanes(lanes).unwrap();
    settings.local(ranks, body)
}

#[test]
fn each_lane_finds_its_address() {
    let addresses = [vec![1, 2, 3], vec![], vec![4; 300]];
    let all = Addresses::encode(addresses.iter().cloned().map(Address));
    for (number, address) in addresses.into_iter().enumerate() {
        assert_eq!(Addresses::decode(&all, Lane { number, of: 3 }), Ok(Address(address)));
    }
    let error = Addresses::decode(&all, Lane::ONLY).unwrap_err();
    assert_eq!(error, "it has 3 lanes, and this rank 1: set SAMITE_LANES alike in all ranks");
}

#[test]
fn no_address_is_taken_from_malformed_bytes() {
    let all = Addresses::encode([Address(vec![1, 2, 3])].into_iter());
    for len in 0..all.0.len() {
        Addresses::decode(&Address(all.0[..len].to_vec()), Lane::ONLY).unwrap_err();
    }
    let longer = Address([all.0.clone(), vec![0]].concat());
    Addresses::decode(&longer, Lane::ONLY).unwrap_err();
}

#[test]
fn messages_of_lanes_are_apart_and_each_lane_has_its_order() {
    with_lanes(2, 3, |world| {
        let comm = world.comm();
        let lanes: Vec<Comm> = (0..3).map(|number| comm.lane(number).unwrap()).collect();
        if comm.rank() == 0 {
            thread::scope(|threads| {
                for (number, lane) in (0..3_u32).zip(lanes) {
                    threads.spawn(move || {
                        (0..100_u32).for_each(|round| lane.send(&[round, number], Rank(1), 7).unwrap());
                    });
                }
            });
        } else {
            // The messages of the lane with the highest number are received first.
            for (number, lane) in (0..3_u32).zip(&lanes).rev() {
                for round in 0..100 {
                    let mut got = [0; 2];
                    lane.recv(&mut got, Source::ANY, 7)?;
                    assert_eq!(got, [round, number]);
                }
            }
        }
        Ok::<(), Error>(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn a_lane_that_does_not_exist_is_refused() {
    with_lanes(1, 2, |world| {
        let comm = world.comm();
        assert!(matches!(comm.lane(2), Err(Error::NoSuchLane { lane: 2, lanes: 2 })));
        let lane = comm.lane(1).unwrap();
        assert_eq!(lane.lane(0).unwrap().rank(), comm.rank());
        world.leave().unwrap();
        assert!(matches!(lane.lane(0), Err(Error::Closed { .. })));
        assert!(matches!(lane.send(&[1u8], Rank(0), 7), Err(Error::Closed { .. })));
    });
}

#[test]
fn a_created_communicator_has_all_lanes() {
    with_lanes(4, 2, |world| {
        let comm = world.comm().lane(1)?;
        let rank = comm.rank().0;
        let half = comm.split(Some(rank % 2), 0)?.expect("each rank has a colour");
        let other = Rank(1 - half.rank().0);
        for number in 0..2 {
            let lane = half.lane(number)?;
            let mut got = [0];
            lane.sendrecv(&[rank], other, 7, &mut got, other, 7)?;
            assert_eq!(got, [rank ^ 2]);
        }
        let again = half.dup()?;
        let mut got = [0];
        again.sendrecv(&[rank], other, 7, &mut got, other, 7)?;
        assert_eq!(got, [rank ^ 2]);
        Ok::<(), Error>(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn communicators_created_by_threads_open_in_one_order_in_all_lanes() {
    with_lanes(2, 3, |world| {
        let comm = world.comm();
        thread::scope(|threads| {
            for tag in 0..3 {
                threads.spawn(move || {
                    for _ in 0..20 {
                        let pair = comm.create_from_group(&comm.group(), tag).unwrap();
                        let lane = pair.lane(tag as usize).unwrap();
                        let other = Rank(1 - lane.rank().0);
                        let mut got = [9];
                        lane.sendrecv(&[tag], other, 1, &mut got, other, 1).unwrap();
                        assert_eq!(got, [tag]);
                    }
                });
            }
        });
    });
}

#[test]
fn every_lane_learns_of_a_departure_and_of_a_failure() {
    let panics = std::panic::catch_unwind(|| {
        with_lanes(3, 2, |world| {
            let comm = world.comm().clone();
            match comm.rank().0 {
                0 => {
                    for number in [1, 0] {
                        let lane = comm.lane(number).unwrap();
                        let failed = lane.recv(&mut [0u8], Rank(1), 7);
                        assert!(
                            matches!(failed, Err(Error::PeerFailed { cause: Cause::Left, .. })),
                            "{failed:?}"
                        );
                        let failed = lane.recv(&mut [0u8], Rank(2), 7);
                        assert!(
                            matches!(failed, Err(Error::PeerFailed { cause: Cause::Died(_), .. })),
                            "{failed:?}"
                        );
                    }
                }
                1 => world.leave().unwrap(),
                _ => panic!("this rank fails"),
            }
        });
    });
    assert_eq!(*panics.unwrap_err().downcast::<&str>().unwrap(), "this rank fails");
}

#[test]
fn a_waiting_lane_is_woken_for_a_notice_that_another_lane_takes() {
    with_lanes(2, 2, |world| {
        let comm = world.comm().clone();
        if comm.rank() == 0 {
            thread::scope(|threads| {
                for number in 0..2 {
                    let lane = comm.lane(number).unwrap();
                    threads.spawn(move || {
                        let failed = lane.recv(&mut [0u8], Rank(1), 7);
                        assert!(
                            matches!(failed, Err(Error::PeerFailed { cause: Cause::Left, .. })),
                            "{failed:?}"
                        );
                    });
                }
                // After this time-out the threads are usually asleep.
                comm.with_timeout(Duration::from_millis(20)).recv(&mut [0u8], Rank(0), 8).unwrap_err();
                comm.lane(0).unwrap().send(&[1u8], Rank(1), 9).unwrap();
            });
        } else {
            comm.recv(&mut [0u8], Rank(0), 9).unwrap();
        }
    });
}

#[test]
fn a_world_ends_when_messages_of_all_its_lanes_are_taken() {
    with_lanes(2, 2, |world| {
        let comm = world.comm().clone();
        let lane = comm.lane(1).unwrap();
        if comm.rank() == 0 {
            let long = vec![7u8; 1 << 20];
            let sent = lane.isend(long, Rank(1), 7).unwrap();
            comm.send(&[1u8], Rank(1), 8).unwrap();
            sent.wait().unwrap();
            world.leave().unwrap();
        } else {
            comm.recv(&mut [0u8], Rank(0), 8).unwrap();
            assert_eq!(lane.recv_vec::<u8>(Rank(0), 7).unwrap().buffer, vec![7; 1 << 20]);
        }
    });
}

/// Checks that a lane that no thread uses keeps only one of the questions that the launcher asks at intervals.
#[test]
fn questions_do_not_pile_up_in_a_lane_that_is_not_used() {
    struct Asks(usize);
    impl Directory for Asks {
        fn request_address(&mut self, _: u32) {}
        fn poll(&mut self) -> Option<Notice> {
            self.0 = self.0.checked_sub(1)?;
            Some(Notice::Asked { at_end: false })
        }
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn leave(&mut self) {}
        fn panicked(&mut self) {}
    }
    let mut lanes = share(Box::new(Asks(3)), 2).unwrap();
    for lane in &mut lanes {
        assert!(matches!(lane.poll(), Some(Notice::Asked { at_end: false })));
        assert!(lane.poll().is_none());
    }
}

/// A process can be stopped and continued any number of times. If another rank made the first contact with a lane, that
/// lane never requested the address of the other rank. It must still learn the address of the next incarnation.
#[test]
fn a_lane_that_is_not_used_keeps_the_last_stop_and_learns_of_a_restart() {
    struct Tells(Vec<Notice>);
    impl Directory for Tells {
        fn request_address(&mut self, _: u32) {}
        fn poll(&mut self) -> Option<Notice> {
            self.0.pop()
        }
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn leave(&mut self) {}
        fn panicked(&mut self) {}
    }
    let stopped =
        |incarnation, times: u32| Notice::Stopped { rank: 1, incarnation, is_stopped: times % 2 == 1 };
    let mut notices: Vec<_> = (0..9).map(|times| stopped(5, times)).chain([stopped(6, 1)]).collect();
    notices.push(Notice::Failed { rank: 1, incarnation: 6, how: String::new(), returns: true });
    notices.push(Notice::Address { rank: 1, incarnation: 7, address: Address(Vec::new()) });
    notices.reverse();
    let mut lanes = share(Box::new(Tells(notices)), 2).unwrap();
    assert!(matches!(lanes[0].poll(), Some(Notice::Stopped { incarnation: 5, is_stopped: false, .. })));
    for lane in &mut lanes {
        let mut told = std::iter::from_fn(|| lane.poll());
        if let Some(Notice::Stopped { incarnation: 5, .. }) = told.next() {
            assert!(matches!(told.next(), Some(Notice::Stopped { incarnation: 6, is_stopped: true, .. })));
        }
        assert!(matches!(told.next(), Some(Notice::Failed { incarnation: 6, .. })));
        assert!(matches!(told.next(), Some(Notice::Address { incarnation: 7, .. })));
        assert!(told.next().is_none());
    }
}

/// A call drives its own lane, so it could not send the messages of another lane.
#[test]
fn a_flush_waits_for_the_messages_of_its_lane_alone() {
    let ends = with_lanes(2, 2, |world| {
        let comm = world.comm().with_timeout(Duration::from_secs(60));
        let mut long = vec![7_u8; 1 << 20];
        if comm.rank() == 1 {
            comm.recv(&mut [0_u8], Rank(0), 8)?;
            let lane = comm.lane(1)?;
            return (0..2).try_for_each(|_| lane.recv(&mut long, Rank(0), 7).map(drop));
        }
        let buffered = comm.with_mode(Mode::Buffered);
        for buffered in [buffered.with_buffer(2 << 20), buffered] {
            buffered.lane(1)?.send(&long, Rank(1), 7)?;
            buffered.flush_buffer()?;
        }
        comm.send(&[1_u8], Rank(1), 8)
    });
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
}
