use std::sync::atomic::AtomicU64;

use super::*;
use crate::Port;
use crate::shm::{Config, Shm};

/// Returns the boards of some ranks, which are all in this process.
fn boards(ranks: usize) -> Vec<Board> {
    let mut port = Shm::open(&Config::default()).unwrap();
    let slots: Vec<_> = (0..ranks).map(|_| port.open_slot().unwrap()).collect();
    let addresses: Vec<_> = slots.iter().map(Slot::address).collect();
    let open = |(rank, slot)| Board::open(slot, rank, &addresses).unwrap();
    let mut boards: Vec<_> = slots.into_iter().enumerate().map(open).collect();
    boards.iter_mut().for_each(Board::complete);
    boards
}

fn tick(operation: u64) -> Tick {
    Tick::new(operation, 0)
}

fn data(member: usize, operation: u64, len: usize) -> Vec<u8> {
    (0..len).map(|index| (member * 31 + operation as usize * 7 + index) as u8).collect()
}

/// Lengths around the limit for data in the first line, around the lines, and the largest length.
const LENGTHS: [usize; 10] = [0, 1, 8, 47, 48, 49, 64, 100, 4096, PIECE];

#[test]
fn every_rank_reads_the_data_of_all_ranks() {
    let mut boards = boards(3);
    for (number, len) in (0..).zip(LENGTHS) {
        let at = tick(number);
        for (rank, board) in boards.iter_mut().enumerate() {
            assert_eq!(board.begin(number as u32), number);
            assert_eq!(board.publish(at, &data(rank, number, len)), Ok(()));
        }
        for board in &mut boards {
            for member in 0..3 {
                for start in [0, len / 3, len] {
                    let mut into = vec![0xee; len - start];
                    assert_eq!(board.fetch(member, at, len, start, &mut into), Fetched::Done);
                    assert_eq!(into, data(member, number, len)[start..]);
                }
                assert_eq!(board.fetch(member, tick(number + 1), 0, 0, &mut []), Fetched::NotYet);
            }
            board.end(number);
        }
    }
}

#[test]
fn another_length_and_a_skipped_tick_are_detected() {
    let mut boards = boards(2);
    boards[0].publish(tick(0), &[1; 8]).unwrap();
    assert_eq!(boards[1].fetch(0, tick(0), 16, 0, &mut [0; 16]), Fetched::Length(8));
    boards.iter_mut().for_each(|board| _ = board.advance(tick(1)));
    boards[0].publish(tick(BANKS as u64), &[1; 8]).unwrap();
    assert_eq!(boards[1].fetch(0, tick(0), 8, 0, &mut [0; 8]), Fetched::Skipped);
    // A rank that leaves ticks out does not reveal older data.
    assert_eq!(boards[1].fetch(0, tick(2 * BANKS as u64), 8, 0, &mut [0; 8]), Fetched::NotYet);
}

/// Publishes the pieces of two operations.
#[test]
fn a_bank_is_used_again_when_all_ranks_have_finished_its_tick() {
    let mut boards = boards(3);
    boards.iter_mut().for_each(|board| _ = (board.begin(0), board.begin(1)));
    let piece = |number: usize| Tick::new(0, number as u32);
    for number in 0..BANKS {
        boards[0].publish(piece(number), &[]).unwrap();
    }
    let full = |member| Err((member, Event::Finished(piece(0))));
    assert_eq!(boards[0].publish(piece(BANKS), &[]), full(1));
    boards[1].advance(piece(2));
    assert_eq!(boards[0].publish(piece(BANKS), &[]), full(2));
    boards[2].advance(piece(1));
    assert_eq!(boards[0].publish(piece(BANKS), &[]), Ok(()));
    let full = |member, number| Err((member, Event::Finished(piece(number))));
    assert_eq!(boards[0].publish(piece(BANKS + 1), &[]), full(2, 1));
    // The bank of piece 1.
    assert_eq!(boards[0].publish(tick(1), &[]), full(2, 1));
    boards[2].end(0);
    assert_eq!(boards[0].publish(tick(1), &[]), Ok(()));
    assert_eq!(boards[0].publish(Tick::new(1, 1), &[]), full(1, 2));
}

#[test]
fn operations_use_the_board_in_their_order() {
    let mut board = boards(2).remove(0);
    let numbers = [0, 3, 4].map(|number| board.begin(number));
    assert_eq!(numbers, [0, 3, 4]);
    board.end(4);
    board.end(3);
    assert_eq!((board.is_first(0), board.finished), (true, tick(0)));
    board.end(0);
    assert_eq!(board.finished, tick(5));
    // The numbers begin again at 0 after 32 bits.
    assert_eq!(board.begin(1 << 30), 1 << 30);
    assert_eq!(board.begin(3 << 30), 3 << 30);
    assert_eq!(board.begin(u32::MAX), u64::from(u32::MAX));
    assert_eq!(board.begin(7), (1 << 32) + 7);
    assert!(board.is_first(1 << 30) && !board.is_first(3 << 30));
    board.end(1 << 30);
    assert_eq!((board.is_first(3 << 30), board.finished), (true, tick(3 << 30)));
}

#[test]
fn an_operation_with_a_place_precedes_those_that_begin_before_it() {
    let mut board = boards(2).remove(0);
    board.reserve(7);
    board.reserve(8);
    assert_eq!([board.begin(9), board.begin(7)], [9, 7]);
    assert!(board.is_first(7));
    board.end(9);
    assert_eq!(board.finished, tick(7));
    board.end(7);
    board.release(7);
    assert_eq!((board.is_first(8), board.finished), (true, tick(8)));
    // Operation 8 did not use the board.
    board.release(8);
    assert_eq!((board.begin(10), board.finished), (10, tick(10)));
}

#[test]
fn a_rank_that_is_killed_at_any_step_changes_nothing_for_the_others() {
    // The stores of a rank in one tick, in their order.
    let steps: [fn(&mut Board); 5] = [
        |board| {
            let half = board.bank(board.rank, tick(0))[1..].len() / 2;
            AtomicU64::fill(&board.bank(board.rank, tick(0))[1..half], &[9; PIECE][..PIECE / 4]);
        },
        |board| write(board.bank(board.rank, tick(0)), &data(0, 0, PIECE)),
        |board| announce(board.bank(board.rank, tick(0)), tick(0), PIECE),
        |board| {
            board.set_awaited(Some(Awaited { member: 1, event: Event::Published(tick(0)), cookie: 0 }));
            board.lie_down();
        },
        |board| _ = board.advance(tick(1)),
    ];
    for killed_after in 0..=steps.len() {
        let mut boards = boards(3);
        steps[..killed_after].iter().for_each(|step| step(&mut boards[0]));
        drop(boards.remove(0));
        let [one, two] = &mut boards[..] else { unreachable!("there were 3 ranks") };
        for board in [&mut *one, &mut *two] {
            board.publish(tick(0), &[board.rank as u8; 8]).unwrap();
            assert_eq!(board.next_sleeper().is_some(), board.rank == 1 && killed_after >= 4);
            assert_eq!(board.next_sleeper(), None);
        }
        for (board, other) in [(&*one, 2), (&*two, 1)] {
            let mut into = [0; 8];
            assert_eq!(board.fetch(other, tick(0), 8, 0, &mut into), Fetched::Done);
            assert_eq!(into, [other as u8; 8]);
            let mut all = vec![0; PIECE];
            let fetched = board.fetch(0, tick(0), PIECE, 0, &mut all);
            assert_eq!(fetched == Fetched::Done, killed_after >= 3, "{killed_after} {fetched:?}");
            assert!(fetched == Fetched::NotYet || all == data(0, 0, PIECE));
        }
        // The others can use their other banks. They wait for the killed rank only if it has not finished the tick.
        one.advance(tick(1));
        two.advance(tick(1));
        (1..BANKS as u64).for_each(|number| one.publish(tick(number), &[]).unwrap());
        let expected = if killed_after == steps.len() { Ok(()) } else { Err((0, Event::Finished(tick(0)))) };
        assert_eq!(one.publish(tick(BANKS as u64), &[]), expected);
    }
}

#[test]
fn a_sleeper_is_found_once_by_the_rank_for_which_it_waits() {
    let mut boards = boards(3);
    let awaited = Awaited { member: 2, event: Event::Published(tick(0)), cookie: 77 };
    boards[0].lie_down();
    assert_eq!(boards[2].next_sleeper(), None, "it waits for nothing");
    for _ in 0..2 {
        boards[0].set_awaited(Some(awaited));
        boards[0].lie_down();
        assert_eq!((boards[1].next_sleeper(), boards[2].next_sleeper()), (None, Some((0, 77))));
        assert_eq!(boards[2].next_sleeper(), None);
        boards[0].get_up();
    }
    assert!(boards[0].take_slept() && !boards[0].take_slept());
    assert!(!boards[0].has_news());
    boards[2].publish(tick(0), &[]).unwrap();
    assert!(boards[0].has_news());
    boards[0].set_awaited(Some(Awaited { event: Event::Finished(tick(0)), ..awaited }));
    assert!(!boards[0].has_news());
    boards[2].advance(tick(1));
    assert!(boards[0].has_news());
}

#[test]
fn the_slots_of_a_host_are_found_and_mapped() {
    let mut ports = [3, 7, 3].map(|host| Shm::open(&Config::default()).unwrap().on_host(host));
    let slots = ports.each_mut().map(|port| port.open_slot().unwrap());
    let mut addresses = slots.each_ref().map(Slot::address);
    assert_eq!(hosts(&addresses), Some(vec![0, 1, 0]));
    let [first, _, last] = slots;
    let mut boards = [(first, 0), (last, 2)]
        .map(|(slot, rank)| Board::open_some(slot, rank, &[0, 2], &addresses).unwrap());
    assert_eq!((boards[0].member(2), boards[0].rank_of(1)), (1, 2));
    assert!(boards[1].ranks().eq([0, 2]));
    let tick = Tick::new(boards[1].begin(0), 0);
    boards[1].publish(tick, b"data").unwrap();
    let mut data = [0; 4];
    assert_eq!(boards[0].fetch(1, tick, 4, 0, &mut data), Fetched::Done);
    assert_eq!(&data, b"data");
    // A rank without a slot has no address.
    addresses[1] = [0; ADDRESS_BYTES];
    assert_eq!(hosts(&addresses), None);
}

#[test]
fn only_slots_of_this_host_are_mapped() {
    let slots = |host| {
        let mut port = Shm::open(&Config::default()).unwrap().on_host(host);
        port.open_slot().unwrap()
    };
    let addresses = |slots: &[Slot]| slots.iter().map(Slot::address).collect::<Vec<_>>();
    let here = vec![slots(0), slots(0)];
    let all = addresses(&here);
    let open = |addresses: &[_]| Board::open(slots(0), 0, addresses).map(drop);
    assert_eq!(open(&all), Ok(()));
    let elsewhere = [all[0], slots(1).address()];
    assert!(matches!(open(&elsewhere), Err(PortError::Unreachable { .. })));
    assert!(matches!(open(&[all[0], [0; ADDRESS_BYTES]]), Err(PortError::BadAddress { .. })));
    let mut padded = all.clone();
    padded[1][ADDRESS_BYTES - 1] = 1;
    assert!(matches!(open(&padded), Err(PortError::BadAddress { .. })));
    // Another file, or another slot, has the descriptor now.
    let mut other_token = all.clone();
    other_token[1][36] ^= 1;
    assert!(open(&other_token).is_err());
    drop(here);
    assert!(open(&all).is_err());
}

#[test]
fn threads_exchange_data_through_all_banks() {
    const OPERATIONS: u32 = 3000;
    std::thread::scope(|scope| {
        for mut board in boards(3) {
            scope.spawn(move || {
                for number in 0..OPERATIONS {
                    let len = LENGTHS[number as usize % LENGTHS.len()];
                    let number = board.begin(number);
                    let publication = data(board.rank, number, len);
                    while board.publish(tick(number), &publication).is_err() {
                        std::thread::yield_now();
                    }
                    for member in 0..3 {
                        let mut into = vec![0; len];
                        loop {
                            match board.fetch(member, tick(number), len, 0, &mut into) {
                                Fetched::NotYet => std::thread::yield_now(),
                                fetched => break assert_eq!(fetched, Fetched::Done),
                            }
                        }
                        assert_eq!(into, data(member, number, len));
                    }
                    board.end(number);
                }
            });
        }
    });
}

#[test]
fn the_slots_of_a_rank_have_a_budget() {
    let mut boards = Boards::new(2 * SLOT_BYTES);
    assert!(boards.reserve());
    boards.release();
    boards.insert(1, self::boards(2).remove(0));
    assert!(boards.reserve() && !boards.reserve());
    boards.refuse();
    boards.release();
    boards.release();
    assert_eq!(boards.usage(), (1, 1));
    boards.remove(1);
    assert!(boards.get(1).is_none() && boards.reserve() && boards.reserve() && !boards.reserve());
}
