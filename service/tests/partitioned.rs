//! Partitioned communication by threads.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use samite::{CancelToken, Comm, Error, Fate, Part, Rank, local};

const TAG: u64 = 7;

/// Runs a sender and a receiver.
fn pair(send: impl Fn(&Comm) + Sync, recv: impl Fn(&Comm) + Sync) {
    local(2, |world| match world.comm().rank() {
        Rank(0) => send(world.comm()),
        _ => recv(world.comm()),
    });
}

#[test]
fn threads_mark_what_they_have_written() {
    const THREADS: usize = 4;
    const PARTS: usize = 64;
    const ROUNDS: u64 = 200;
    pair(
        |comm| {
            let mut send = comm.psend_init(vec![0_u64; PARTS * 10], PARTS, Rank(1), TAG).unwrap();
            thread::scope(|threads| {
                // The workers outlive the rounds.
                let worker = |_| {
                    let (work, parts) = mpsc::channel::<(u64, Part<u64>)>();
                    threads.spawn(move || {
                        for (round, mut part) in parts {
                            let first = round * 1000 + part.index() as u64 * 10;
                            part.iter_mut().zip(first..).for_each(|(element, value)| *element = value);
                            part.ready();
                        }
                    });
                    work
                };
                let workers: Vec<_> = (0..THREADS).map(worker).collect();
                for round in 0..ROUNDS {
                    send.start().unwrap();
                    for (index, part) in send.parts().unwrap().enumerate() {
                        workers[(index * 7 + round as usize) % THREADS].send((round, part)).unwrap();
                    }
                    let status = send.wait().unwrap();
                    assert_eq!((status.peer, status.tag, status.bytes), (Rank(1), TAG, PARTS * 80));
                    assert_eq!(send.buffer_mut().unwrap()[639], round * 1000 + 639);
                }
            });
        },
        |comm| {
            let mut recv = comm.precv_init(vec![0_u64; PARTS * 10], 5, Rank(0), TAG).unwrap();
            for round in 0..ROUNDS {
                recv.start().unwrap();
                let all = || (0..640).map(|index| round * 1000 + index);
                if round % 2 == 0 {
                    while !recv.arrived(1..3).unwrap() {}
                    assert!(
                        recv.partition(2).unwrap().unwrap().iter().copied().eq(all().skip(256).take(128))
                    );
                }
                recv.wait().unwrap();
                assert!(recv.arrived(0..5).unwrap());
                assert!(recv.buffer_mut().unwrap().iter().copied().eq(all()));
            }
            assert_eq!(recv.into_buffer().unwrap().len(), 640);
        },
    );
}

#[test]
fn marks_travel_while_no_thread_is_inside() {
    let has_arrived = Barrier::new(2);
    pair(
        |comm| {
            let mut send = comm.psend_init(vec![1_u8; 3_000], 3, Rank(1), TAG).unwrap();
            comm.send(&[0_u8; 0], Rank(1), TAG).unwrap();
            for round in 0..50 {
                // The receiver sends this message after it has begun the round. So the packet that announces the round
                // has arrived too, and the marked partitions can be sent at once.
                comm.recv(&mut [0_u8; 0], Rank(1), TAG).unwrap();
                send.start().unwrap();
                let parts: Vec<_> = send.parts().unwrap().collect();
                thread::scope(|threads| {
                    for part in parts.into_iter().filter(|part| part.index() != round % 3) {
                        threads.spawn(|| part.ready());
                    }
                });
                // This thread makes no call of Samite until the receiver has both partitions, so the marking threads
                // must have sent them.
                has_arrived.wait();
                send.ready(round % 3..round % 3 + 1).unwrap();
                send.wait().unwrap();
            }
        },
        |comm| {
            // The sender sends this message after it has initialized its side, so the packet of that initialization has
            // arrived too.
            comm.recv(&mut [0_u8; 0], Rank(0), TAG).unwrap();
            let mut recv = comm.precv_init(vec![0_u8; 3_000], 3, Rank(0), TAG).unwrap();
            for round in 0..50 {
                recv.start().unwrap();
                comm.send(&[0_u8; 0], Rank(0), TAG).unwrap();
                for part in (0..3).filter(|part| *part != round % 3) {
                    while !recv.arrived(part..part + 1).unwrap() {}
                }
                assert!(recv.partition(round % 3).unwrap().is_none());
                has_arrived.wait();
                recv.wait().unwrap();
            }
        },
    );
}

#[test]
fn misuse_is_an_error() {
    local(1, |world| {
        let comm = world.comm();
        for partitions in [0, 4] {
            let failed = comm.psend_init(vec![1_u8; 6], partitions, Rank(0), TAG).unwrap_err();
            assert_eq!(failed.error, Error::UnevenPartitions { elements: 6, partitions });
            assert_eq!(failed.buffer, Some(vec![1; 6]));
        }
        let failed = comm.precv_init(vec![1_u8; 6], 2, Rank(1), TAG).unwrap_err();
        assert_eq!(
            (failed.error, failed.buffer),
            (Error::InvalidRank { rank: Rank(1), size: 1 }, Some(vec![1; 6]))
        );

        let mut send = comm.psend_init(vec![1_u8; 6], 3, Rank(0), TAG).unwrap();
        let mut recv = comm.precv_init(vec![0_u16; 3], 1, Rank(0), TAG).unwrap();
        assert_eq!(send.ready(0..1), Err(Error::Inactive));
        assert!(matches!(
            (send.part(0), send.parts().map(|_| ())),
            (Err(Error::Inactive), Err(Error::Inactive))
        ));
        assert_eq!((send.wait(), recv.wait()), (Err(Error::Inactive), Err(Error::Inactive)));
        assert_eq!((send.test(), recv.test()), (Some(Err(Error::Inactive)), Some(Err(Error::Inactive))));
        assert_eq!(recv.arrived(0..1), Ok(false));
        send.start().unwrap();
        recv.start().unwrap();
        assert_eq!((send.start(), recv.start()), (Err(Error::RoundActive), Err(Error::RoundActive)));
        assert_eq!(
            (send.buffer_mut(), recv.buffer_mut()),
            (Err(Error::RoundActive), Err(Error::RoundActive))
        );
        let mut send = send.into_buffer().unwrap_err();
        #[expect(clippy::reversed_empty_ranges, reason = "that is the misuse")]
        for range in [3..4, 0..4, 2..1, 0..usize::MAX] {
            let none = Error::NoSuchPartition { range: range.clone(), partitions: 3 };
            assert_eq!(send.ready(range), Err(none));
        }
        assert!(matches!(send.part(usize::MAX), Err(Error::NoSuchPartition { .. })));
        assert!(matches!(recv.partition(1), Err(Error::NoSuchPartition { .. })));
        assert!(matches!(recv.arrived(0..2), Err(Error::NoSuchPartition { .. })));
        send.ready(1..2).unwrap();
        assert_eq!(send.ready(0..3), Err(Error::PartitionTaken { range: 0..3 }));
        let part = send.part(0).unwrap();
        assert_eq!(send.ready(0..1), Err(Error::PartitionTaken { range: 0..1 }));
        drop(part);
        assert_eq!(send.parts().unwrap().map(|part| part.index()).collect::<Vec<_>>(), [0, 2]);
        send.ready(0..1).unwrap();
        send.ready(2..3).unwrap();
        assert_eq!((recv.wait().unwrap().bytes, send.wait().unwrap().bytes), (6, 6));
        assert_eq!(recv.into_buffer().unwrap(), [0x101; 3]);
    });
}

#[test]
fn different_lengths_are_an_error_of_both() {
    pair(
        |comm| {
            let mut send = comm.psend_init(vec![1_u8; 6], 3, Rank(1), TAG).unwrap();
            send.start().unwrap();
            send.ready(0..3).unwrap();
            assert_eq!(send.wait(), Err(Error::LengthsDiffer { rank: Rank(1), ours: 6, theirs: 8 }));
            assert_eq!(send.start(), Err(Error::LengthsDiffer { rank: Rank(1), ours: 6, theirs: 8 }));
        },
        |comm| {
            let mut recv = comm.precv_init(vec![0_u64], 1, Rank(0), TAG).unwrap();
            let differ = Error::LengthsDiffer { rank: Rank(0), ours: 8, theirs: 6 };
            assert_eq!(recv.start().and_then(|()| recv.wait().map(|_| ())), Err(differ));
            assert_eq!(recv.buffer_mut().unwrap(), [0]);
        },
    );
}

#[test]
fn a_partition_outlives_its_round_and_its_message() {
    local(1, |world| {
        let comm = world.comm().with_timeout(Duration::from_millis(10));
        let mut send = comm.psend_init(vec![0_u32; 4], 2, Rank(0), TAG).unwrap();
        send.start().unwrap();
        let mut part = send.part(1).unwrap();
        assert!(matches!(send.wait(), Err(Error::TimedOut { fate: Fate::NotDelivered, .. })));
        part.fill(7);
        assert_eq!((send.start(), send.buffer_mut()), (Err(Error::RoundActive), Err(Error::RoundActive)));
        let mut send = send.into_buffer().unwrap_err();
        part.ready();
        assert_eq!(send.buffer_mut().unwrap(), [0, 0, 7, 7]);
        assert!(matches!(send.start(), Err(Error::TimedOut { .. })), "the pair has ended");
        drop(send);

        let cancel = CancelToken::new();
        let mut send = comm.with_cancel(&cancel).psend_init(vec![0_u32; 4], 2, Rank(0), TAG).unwrap();
        send.start().unwrap();
        let mut part = send.part(0).unwrap();
        cancel.cancel();
        assert_eq!(send.wait(), Err(Error::Cancelled { fate: Fate::NotDelivered }));
        drop(send);
        part.fill(7);
        assert_eq!(part[..], [7, 7]);
        part.ready();
    });
}

#[test]
fn the_end_of_the_world_returns_the_memory() {
    local(2, |world| {
        let comm = world.comm().clone();
        let other = Rank(1 - comm.rank().0);
        let mut send = comm.psend_init(vec![1_u8; 6], 3, other, TAG).unwrap();
        let mut recv = comm.precv_init(vec![0_u8; 6], 3, other, TAG).unwrap();
        send.start().unwrap();
        recv.start().unwrap();
        let part = send.part(0).unwrap();
        drop(world);
        part.ready();
        assert!(matches!(send.wait(), Err(Error::Closed { .. })));
        assert!(matches!(recv.wait(), Err(Error::Closed { .. })));
        assert!(matches!(send.start(), Err(Error::Closed { .. })));
        assert_eq!((send.into_buffer().unwrap(), recv.into_buffer().unwrap().len()), (vec![1; 6], 6));
        assert!(matches!(
            comm.psend_init(vec![1_u8; 6], 3, other, TAG).unwrap_err().error,
            Error::Closed { .. }
        ));
    });
}

#[test]
fn the_other_side_ends_with_its_half() {
    pair(
        |comm| {
            let mut send = comm.psend_init(vec![1_u8; 6], 3, Rank(1), TAG).unwrap();
            send.start().unwrap();
            send.ready(1..2).unwrap();
            comm.recv(&mut [0_u8; 0], Rank(1), TAG).unwrap();
            drop(send);
        },
        |comm| {
            let mut recv = comm.precv_init(vec![0_u8; 6], 3, Rank(0), TAG).unwrap();
            recv.start().unwrap();
            while !recv.arrived(1..2).unwrap() {}
            comm.send(&[0_u8; 0], Rank(0), TAG).unwrap();
            let abandoned = Error::Abandoned { rank: Rank(0), fate: Fate::NotDelivered };
            assert_eq!(recv.wait(), Err(abandoned.clone()));
            assert_eq!(recv.partition(1).unwrap(), Some(&[1, 1][..]), "what had arrived stays");
            assert_eq!(recv.start(), Err(abandoned));
        },
    );
}
