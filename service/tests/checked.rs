//! Types for which some bit patterns are invalid.

use samite::{CheckedVec, Comm, Error, PendingSet, Rank};
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
    on_two_in(case);
}

fn on_two_in(case: impl Fn(&Comm, Rank) -> Result<(), Error> + Sync) {
    let results = samite::local(2, |world| {
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

/// In each way to wait for a receive, a scope copies the values of a message to the slice if all values are valid, and
/// otherwise copies none of them.
#[test]
fn a_scope_fills_slices_with_valid_values_alone() {
    for (waits, len) in (0..4).flat_map(|waits| [3, 100_000].map(|len| (waits, len))) {
        on_two_in(move |comm, other| {
            if comm.rank() == 0 {
                let sends = [vec![1u8; len], [vec![1; len - 1], vec![7]].concat(), vec![0; len]];
                let sends = (TAG..).zip(sends).map(|(tag, data)| comm.isend(data, other, tag));
                let _sends = sends.collect::<Result<Vec<_>, _>>()?;
                // The receives of some messages are cancelled, so their sends would never end.
                return comm.recv(&mut [0u8; 0], other, 0).map(drop);
            }
            let mut slices = [vec![false; len + 1], vec![true; len], vec![true; len]];
            let end = comm.scope(|scope| {
                let mut receives = Vec::new();
                for (tag, slice) in (TAG..).zip(&mut slices) {
                    receives.push(scope.irecv_checked(slice, other, tag)?);
                }
                match waits {
                    0 => Ok(()),
                    1 => receives.into_iter().try_for_each(|receive| scope.wait(receive).map(drop)),
                    2 => receives.iter_mut().try_for_each(|receive| {
                        loop {
                            if let Some(end) = scope.test(receive) {
                                return end.map(drop);
                            }
                        }
                    }),
                    _ => {
                        let mut set = PendingSet::default();
                        receives.into_iter().for_each(|receive| _ = set.insert(receive));
                        let mut ends = scope.wait_all(&mut set);
                        ends.sort_by_key(|(key, _)| *key);
                        ends.into_iter().try_for_each(|(_, end)| end.map(drop))
                    }
                }
            });
            let Err(Error::InvalidValue { status, index, element: "bool" }) = end else {
                panic!("{waits}: {end:?}")
            };
            assert_eq!((status.peer, status.tag, status.bytes, index), (Rank(0), TAG + 1, len, len - 1));
            assert!(
                slices[1].iter().all(|flag| *flag),
                "{waits}: the slice of the invalid value is unchanged"
            );
            for (slice, sent) in [(&slices[0], true), (&slices[2], false)] {
                let same = slice[..len].iter().all(|flag| *flag == slice[0]);
                assert!(same && (slice[0] == sent || waits != 3), "{waits}: all or none of a message");
            }
            assert!(!slices[0][len], "what lies behind a message is unchanged");
            comm.send(&[0u8; 0], other, 0)
        });
    }
}
