//! Types for which some bit patterns are invalid.

use samite::{CheckedVec, Comm, Error, Rank};
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

const TAG: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable)]
#[repr(u8)]
enum Phase {
    Solid = 1,
    Liquid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Cell {
    letter: char,
    is_wall: bool,
    phase: Phase,
    weight: u16,
}

fn cell(letter: char, weight: u16) -> Cell {
    let is_wall = weight.is_multiple_of(2);
    let phase = if is_wall { Phase::Solid } else { Phase::Liquid };
    Cell { letter, is_wall, phase, weight }
}

/// Runs a case on two ranks, and passes it the communicator and the other rank.
fn on_two(case: fn(&Comm, Rank) -> Result<(), Error>) {
    let results = samite::local(2, move |world| {
        let comm = world.comm();
        case(comm, Rank(1 - comm.rank().0))
    });
    results.into_iter().for_each(Result::unwrap);
}

#[test]
fn values_cross_in_every_kind_of_operation() {
    on_two(|comm, other| {
        for count in [0, 1, 100, 100_000] {
            let cells: Vec<Cell> = (0..count).map(|i| cell('ß', i as u16)).collect();
            let blank = vec![cell('-', 9); count];
            if comm.rank() == 0 {
                comm.send(&cells, other, TAG)?;
                comm.scope(|scope| scope.isend(&cells, other, TAG).map(drop))?;
                comm.isend(CheckedVec::new(&cells), other, TAG)?.wait()?;
            } else {
                for _ in 0..2 {
                    let mut received = blank.clone();
                    assert_eq!(comm.recv_checked(&mut received, other, TAG)?.bytes, 8 * count);
                    assert!(received == cells);
                }
                let done = comm.irecv(CheckedVec::new(&blank), other, TAG)?.wait()?;
                assert!(done.buffer.to_vec() == cells);
            }
        }
        Ok(())
    });
}

#[test]
fn what_is_no_value_reaches_no_buffer() {
    on_two(|comm, other| {
        let no_flags = [1_u8, 0, 2];
        if comm.rank() == 0 {
            for _ in 0..4 {
                comm.send(&no_flags, other, TAG)?;
            }
            // 0xd800 is a surrogate, and no `char`.
            return comm.send(&[0x61_u32, 0xd800], other, TAG);
        }
        let mut flags = [true, true, false];
        let error = comm.recv_checked(&mut flags, other, TAG).unwrap_err();
        assert!(matches!(error, Error::InvalidValue { index: 2, element: "bool", .. }), "{error}");
        let error = comm.recv_checked(&mut flags[..2], other, TAG).unwrap_err();
        assert!(matches!(error, Error::Truncated { room: 2, .. }), "{error}");
        let failed = comm.irecv(CheckedVec::new(&flags), other, TAG)?.wait().unwrap_err();
        assert!(matches!(failed.error, Error::InvalidValue { index: 2, .. }) && failed.buffer.is_none());
        let mut receive = comm.recv_init(CheckedVec::new(&flags), other, TAG)?;
        receive.start()?;
        assert!(matches!(receive.wait(), Err(Error::InvalidValue { status, .. }) if status.bytes == 3));
        assert!(matches!(receive.start(), Err(Error::BufferKept)));
        assert!(receive.replace_buffer(CheckedVec::new(&flags))?.is_none());
        let mut letters = ['x'; 2];
        let error = comm.recv_checked(&mut letters, other, TAG).unwrap_err();
        assert!(matches!(error, Error::InvalidValue { index: 1, element: "char", .. }), "{error}");
        assert_eq!((flags, letters), ([true, true, false], ['x'; 2]));
        Ok(())
    });
}

#[test]
fn parts_of_values_reach_no_buffer() {
    on_two(|comm, other| {
        if comm.rank() == 0 {
            return comm.send(&[0_u8; 12], other, TAG);
        }
        let mut cells = [cell('x', 1); 2];
        let error = comm.recv_checked(&mut cells, other, TAG).unwrap_err();
        assert!(matches!(error, Error::PartialElement { element: 8, .. }), "{error}");
        assert_eq!(cells, [cell('x', 1); 2]);
        Ok(())
    });
}
