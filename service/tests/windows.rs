//! Windows: epochs, operations, ends by deadline and cancel, freeing.

use std::sync::Barrier;
use std::time::Duration;

use samite::reduction::{LocatedF64, LocatedI32};
use samite::zerocopy::{FromBytes, Immutable, IntoBytes};
use samite::{
    AwaitedRank, CancelToken, Comm, Error, Field, Layout, LockKind, Rank, Request, Settings, Window,
    WindowError, WindowEvent, WindowHints, WindowOp, WindowRegion, World,
};

/// Runs a test on ranks that are threads of this process.
fn on(ranks: u32, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    for result in samite::local(ranks, |world: World| body(world.comm())) {
        result.unwrap();
    }
}

fn others(comm: &Comm) -> Vec<Rank> {
    (0..comm.size()).map(Rank).filter(|rank| *rank != comm.rank()).collect()
}

fn why<T>(result: Result<T, Error>) -> WindowError {
    match result.map(|_| ()) {
        Err(Error::Window(why)) => *why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fences_separate_writes() {
    on(4, |comm| {
        let (rank, size) = (comm.rank().0, comm.size());
        let window = comm.window(vec![0_u32; size as usize])?;
        let mut epoch = window.fence()?;
        for round in 1..=10 {
            for to in 0..size {
                epoch.put(Rank(to), rank as usize, &[round * 100 + rank])?;
            }
            epoch = epoch.next()?;
            assert_eq!(window.read_vec(0..4)?, [0, 1, 2, 3].map(|from| round * 100 + from));
            epoch = epoch.next()?;
        }
        epoch.close()?;
        window.free().map(drop)
    });
}

#[test]
fn fences_that_do_not_wait_write_the_same() {
    on(3, |comm| {
        let window = comm.window(vec![0_u64; 1])?;
        let mut epoch = window.fence()?;
        let mut ends = Vec::new();
        for _ in 0..50 {
            epoch.accumulate(Rank((comm.rank().0 + 1) % 3), 0, &[1], WindowOp::Sum)?;
            let (end, next) = epoch.inext()?;
            ends.push(end);
            epoch = next;
        }
        epoch.close()?;
        for end in ends {
            end.wait()?;
        }
        assert_eq!(window.free()?, [50]);
        Ok(())
    });
}

#[test]
fn post_start_complete_wait() {
    on(3, |comm| {
        let window = comm.window(vec![0_i16; 6])?;
        let all = others(comm);
        for round in 0..5_i16 {
            let exposure = window.post(&all)?;
            let access = window.start(&all)?;
            for &to in &all {
                access.put(to, comm.rank().index() * 2, &[round, comm.rank().0 as i16])?;
            }
            access.close()?;
            exposure.close()?;
            for from in &all {
                assert_eq!(window.read_vec(from.index() * 2..from.index() * 2 + 2)?, [round, from.0 as i16]);
            }
        }
        // The origins are known to be done when `is_over` returns true.
        if comm.rank() == 0 {
            let exposure = window.post(&[Rank(1)])?;
            while !exposure.is_finished()? {}
            exposure.close()?;
        } else if comm.rank() == 1 {
            window.start(&[Rank(0)])?.close()?;
        }
        window.free().map(drop)
    });
}

#[test]
fn locks_exclude_and_count() {
    const TURNS: u64 = 40;
    on(4, |comm| {
        let window = comm.window(vec![0_u64; 2])?;
        for _ in 0..TURNS {
            let epoch = window.lock(Rank(0), LockKind::Exclusive)?;
            let mut count = [0];
            epoch.get(Rank(0), 0, &mut count)?;
            epoch.put(Rank(0), 0, &[count[0] + 1])?;
            epoch.close()?;
        }
        let epoch = window.lock_all()?;
        epoch.fetch(Rank(3), 1, 5, WindowOp::Max)?;
        epoch.flush_all()?;
        epoch.iflush(Rank(3))?.wait()?;
        epoch.close()?;
        let part = window.free()?;
        assert_eq!(
            part,
            match comm.rank() {
                Rank(0) => [4 * TURNS, 0],
                Rank(3) => [0, 5],
                _ => [0, 0],
            }
        );
        Ok(())
    });
}

#[test]
fn requests_of_operations_return_their_buffers() {
    on(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let window = comm.window(vec![comm.rank().0 as f64; 1000])?;
        let epoch = window.lock(other, LockKind::Shared)?;
        let got = epoch.iget(other, 10, vec![0.0; 900])?;
        let before = epoch.iget_accumulate(other, 0, vec![2.5; 3], WindowOp::Sum)?;
        let put = epoch.iput(other, 990, vec![7.0; 10])?;
        assert_eq!(put.wait()?.buffer, [7.0; 10]);
        assert_eq!(got.wait()?.buffer, [f64::from(other.0); 900]);
        assert_eq!(before.wait()?.buffer, [f64::from(other.0); 3]);
        let mut set = comm.request_set();
        for _ in 0..20 {
            let request = epoch.iget(other, 990, vec![0.0; 10])?;
            assert!(set.insert(request).is_ok(), "a request of this world");
        }
        let mut ended = 0;
        while let Some((_, result)) = set.wait_any() {
            assert_eq!(result?.buffer, [7.0; 10]);
            ended += 1;
        }
        assert_eq!(ended, 20);
        epoch.close()?;
        let part = window.free()?;
        assert_eq!(part[..3], [f64::from(comm.rank().0) + 2.5; 3]);
        Ok(())
    });
}

/// Returns a window with this part, which is allocated or provided.
fn window_of(comm: &Comm, allocates: bool, part: Vec<u16>) -> Result<Window<u16>, Error> {
    if !allocates {
        return comm.window(part);
    }
    let window = comm.allocate_window(part.len())?;
    window.write(0, &part)?;
    comm.barrier()?;
    Ok(window)
}

#[test]
fn layouts_select_elements_at_both_sides() {
    const N: usize = 50;
    for allocates in [false, true] {
        on(2, |comm| {
            let (other, own) = (Rank(1 - comm.rank().0), comm.rank().0 as u16);
            let matrix = |rank: u16| (0..(N * N) as u16).map(move |index| index + rank * 10_000).collect();
            let window = window_of(comm, allocates, matrix(own))?;
            let theirs: Vec<u16> = matrix(1 - own);
            let columns = Layout::vector(N, 1, N as isize)?.resized(0, 1)?.repeated(N)?;
            let row = Layout::contiguous(N)?;
            let epoch = window.lock(other, LockKind::Shared)?;
            // A read of all columns is the transpose.
            let mut transposed = vec![0; N * N];
            epoch.get_view(other, 0, &columns, &mut transposed[..])?;
            let expected: Vec<_> = (0..N * N).map(|index| theirs[index % N * N + index / N]).collect();
            assert!(transposed == expected);
            let mut again = vec![0; N * N];
            epoch.get_view(other, 0, &Layout::contiguous(N * N)?, columns.of_mut(&mut again)?)?;
            assert!(again == expected);
            let owned = epoch.iget_view(other, 0, &columns, columns.of_owned(vec![0_u16; N * N])?)?;
            assert!(owned.wait()?.buffer.into_buffer() == theirs);
            comm.barrier()?;
            // Two writes of different columns, from a row and from a column.
            let column = Layout::vector(N, 1, N as isize)?;
            epoch.put_view(other, 3, &column, row.of(&transposed[N * 7..])?)?;
            epoch.iput_view(other, 4, &column, column.of_owned(expected.clone())?)?.wait()?;
            epoch.close()?;
            comm.barrier()?;
            let part = window.free()?;
            let mine: Vec<u16> = matrix(own);
            for (index, element) in part.iter().enumerate() {
                let (row, column) = (index / N, index % N);
                let expected = match column {
                    3 => mine[row * N + 7],
                    4 => mine[row],
                    _ => mine[index],
                };
                assert_eq!(*element, expected, "row {row}, column {column}");
            }
            Ok(())
        });
    }
}

#[test]
fn a_layout_selects_fields_of_elements() {
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[zerocopy(crate = "samite::zerocopy")]
    #[repr(C)]
    struct Cell {
        heat: f32,
        kind: u16,
        flags: u16,
    }
    on(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let cell = |index: u16| Cell { heat: f32::from(index), kind: index, flags: index + 1 };
        let window = comm.window((0..10).map(cell).collect())?;
        let flags = Field::new(std::mem::offset_of!(Cell, flags), &Layout::<u16>::contiguous(1)?);
        let flags = Layout::<Cell>::fields([flags])?.repeated(4)?;
        let epoch = window.fence()?;
        epoch.put_view(other, 5, &flags, Layout::contiguous(4)?.of(&[50_u16, 60, 70, 80])?)?;
        epoch.close()?;
        for (index, found) in window.free()?.into_iter().enumerate() {
            let flags = if (5..9).contains(&index) { index as u16 * 10 } else { index as u16 + 1 };
            assert_eq!(found, Cell { flags, ..cell(index as u16) });
        }
        Ok(())
    });
}

#[test]
fn a_layout_that_does_not_suit_is_an_error() {
    on(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let window = comm.window(vec![[0_u32; 2]; 4])?;
        let epoch = window.lock(other, LockKind::Shared)?;
        epoch.get(other, 0, &mut [[0; 2]])?;
        let second = Layout::vector(2, 1, 2)?;
        let data = [[1_u32; 2]; 2];
        let outside = why(epoch.put_view(other, 2, &second, &data));
        assert_eq!(outside, WindowError::OutOfBounds { rank: other, at: 16, bytes: 24, size: 32 });
        let short = why(epoch.put_view(other, 0, &second, &data[..1]));
        assert_eq!(short, WindowError::LayoutLength { layout: 16, data: 8 });
        let twice = Layout::vector(2, 1, 0)?;
        assert_eq!(why(epoch.iput_view(other, 0, &twice, data.to_vec())), WindowError::LayoutOverlap);
        // The view selects an element so often that no memory has room for a copy.
        let often = Layout::vector(1 << 45, 1, 0)?;
        let long = why(epoch.put_view(other, 0, &second, often.of(&data)?));
        assert_eq!(long, WindowError::LayoutLength { layout: 16, data: 1 << 48 });
        let mut both = data;
        epoch.get_view(other, 1, &twice, &mut both)?;
        assert_eq!(both, [[0; 2]; 2]);
        epoch.close()?;
        comm.barrier()?;
        assert_eq!(window.free()?, [[0; 2]; 4]);
        let window = comm.window(vec![samite::reduction::ComplexF32 { re: 1.0, im: 2.0 }; 2])?;
        let real = Layout::fields([Field::new(0, &Layout::<f32>::contiguous(1)?)])?.repeated(2)?;
        let epoch = window.fence()?;
        let (two, numbers) = (Layout::contiguous(2)?, [1.0_f32, 2.0]);
        let partial = why(epoch.accumulate_view(other, 0, &real, two.of(&numbers)?, WindowOp::Sum));
        assert!(
            matches!(&partial, WindowError::Unsuitable(why) if why.contains("whole elements")),
            "{partial}"
        );
        epoch.close()?;
        window.free().map(drop)
    });
}

#[test]
fn the_best_value_is_found_with_its_location() {
    on(4, |comm| {
        let values = [3, -8, 12, -8];
        let rank = comm.rank();
        let none = LocatedI32 { value: 0, location: u32::MAX };
        let window = comm.allocate_window::<LocatedI32>(2)?;
        let epoch = window.lock_all()?;
        let mine = LocatedI32 { value: values[rank.index()], location: rank.0 };
        epoch.accumulate(Rank(0), 0, &[mine], WindowOp::MinLocation)?;
        epoch.accumulate(Rank(0), 1, &[mine], WindowOp::MaxLocation)?;
        let undefined = why(epoch.accumulate(Rank(0), 0, &[none], WindowOp::Sum));
        assert!(matches!(undefined, WindowError::Unsuitable(_)), "{undefined}");
        epoch.close()?;
        comm.barrier()?;
        let part = window.free()?;
        let best = [LocatedI32 { value: -8, location: 1 }, LocatedI32 { value: 12, location: 2 }];
        assert!(rank != Rank(0) || part == best, "{part:?}");
        // Pairs of 16 bytes, in every second element.
        let window = comm.window(vec![LocatedF64 { value: f64::NAN, location: 9 }; 5])?;
        let (second, epoch) = (Layout::vector(2, 1, 2)?, window.fence()?);
        let mine = LocatedF64 { value: values[rank.index()].into(), location: rank.0.into() };
        epoch.accumulate_view(Rank(1), 1, &second, &[mine; 2], WindowOp::MaxLocation)?;
        let former = epoch.iget_accumulate_view(Rank(1), 0, &second, vec![mine; 2], WindowOp::NoOp)?;
        assert!(former.wait()?.buffer.iter().all(|pair| pair.value.is_nan() && pair.location == 9));
        epoch.close()?;
        let part = window.free()?;
        let best = LocatedF64 { value: 12.0, location: 2 };
        let found: Vec<_> = (0..5).filter(|index| part[*index] == best).collect();
        assert_eq!(found, if rank == Rank(1) { vec![1, 3] } else { vec![] });
        Ok(())
    });
}

#[test]
fn a_swap_takes_place_once() {
    on(5, |comm| {
        let window = comm.window(vec![u32::MAX; 1])?;
        let epoch = window.lock_all()?;
        let before = epoch.compare_swap(Rank(2), 0, u32::MAX, comm.rank().0)?;
        let winner = if before == u32::MAX { comm.rank().0 } else { before };
        epoch.close()?;
        let mut winners = vec![0; 5];
        comm.allgather(&[winner], &mut winners)?;
        assert!(winners.iter().all(|other| *other == winner), "{winners:?}");
        window.free().map(drop)
    });
}

#[test]
fn windows_of_a_communicator_have_its_ranks() {
    on(4, |comm| {
        let half = comm.split(Some(comm.rank().0 % 2), -i64::from(comm.rank().0))?.expect("a colour");
        let window = half.window(vec![0_u8; 2])?;
        let epoch = window.fence()?;
        epoch.put(Rank(1 - half.rank().0), 1, &[comm.rank().0 as u8 + 1])?;
        epoch.close()?;
        let other = comm.rank().0 ^ 2;
        assert_eq!(window.free()?, [0, other as u8 + 1]);
        Ok(())
    });
}

#[test]
fn misuse_is_an_error_before_anything_is_sent() {
    on(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let window = comm.window(vec![0_u16; 4])?;
        assert!(matches!(window.lock(Rank(2), LockKind::Shared), Err(Error::InvalidRank { .. })));
        let bounds = WindowError::OutOfBounds { rank: comm.rank(), at: 6, bytes: 4, size: 8 };
        assert_eq!(why(window.read(3, &mut [0; 2])), bounds);
        assert_eq!(why(window.write(3, &[0; 2])), bounds);
        assert!(matches!(why(window.read(usize::MAX, &mut [0; 2])), WindowError::OutOfBounds { .. }));
        assert!(matches!(why(window.read_vec(0..usize::MAX)), WindowError::OutOfBounds { .. }));
        let epoch = window.lock(other, LockKind::Shared)?;
        assert_eq!(why(epoch.put(comm.rank(), 0, &[1])), WindowError::NotATarget { rank: comm.rank() });
        assert!(matches!(why(window.fence()), WindowError::WrongState { call: "fence", .. }));
        assert!(matches!(why(window.lock(other, LockKind::Shared)), WindowError::WrongState { .. }));
        epoch.flush(other)?;
        // The first contact has told the size of the part.
        epoch.fetch(other, 0, 1, WindowOp::Sum)?;
        assert_eq!(
            why(epoch.put(other, 3, &[1, 2])),
            WindowError::OutOfBounds { rank: other, at: 6, bytes: 4, size: 8 }
        );
        epoch.close()?;
        comm.barrier()?;
        window.free().map(drop)
    });
}

#[test]
fn an_undefined_operation_is_an_error() {
    on(1, |comm| {
        let window = comm.window(vec![1.5_f32; 1])?;
        let epoch = window.lock(comm.rank(), LockKind::Exclusive)?;
        let error = why(epoch.accumulate(comm.rank(), 0, &[1.0], WindowOp::BitAnd));
        assert!(matches!(error, WindowError::Unsuitable(_)), "{error}");
        epoch.close()?;
        assert_eq!(window.free()?, [1.5]);
        Ok(())
    });
}

fn is_exposure_of_rank_1(awaited: AwaitedRank) -> bool {
    awaited.rank == 1 && matches!(awaited.event, WindowEvent::Exposure | WindowEvent::Window)
}

fn is_window_of_rank_1(awaited: &[AwaitedRank]) -> bool {
    matches!(awaited, [AwaitedRank { rank: Rank(1), event: WindowEvent::Window, is_stopped: false, .. }])
}

#[test]
fn a_deadline_names_the_awaited_ranks() {
    on(2, |comm| {
        let mut window = comm.window(vec![0_u8; 1])?;
        if comm.rank() == 0 {
            window.set_timeout(Some(Duration::from_millis(20)));
            let error = why(window.start(&[Rank(1)])?.close());
            let WindowError::TimedOut { awaited, .. } = error else { panic!("{error}") };
            assert_eq!(awaited.len(), 1);
            assert!(is_exposure_of_rank_1(awaited[0]), "{awaited:?}");
            window.set_timeout(None);
            comm.send(&[1_u8], Rank(1), 7)?;
        } else {
            comm.recv(&mut [0_u8], Rank(0), 7)?;
        }
        window.free().map(drop)
    });
}

/// The epoch of a lock waits for an epoch of `start` before it, and so do its operations.
#[test]
fn a_deadline_names_the_rank_for_which_an_earlier_epoch_waits() {
    on(3, |comm| {
        let mut window = comm.window(vec![0_u8; 1])?;
        if comm.rank() == 0 {
            let started = window.start(&[Rank(1)])?.iclose()?;
            window.set_timeout(Some(Duration::from_millis(20)));
            let epoch = window.lock(Rank(2), LockKind::Shared)?;
            let got = why(epoch.get(Rank(2), 0, &mut [0]));
            epoch.put(Rank(2), 0, &[1])?;
            let flushes = [epoch.flush(Rank(2)), epoch.flush_all()].map(why);
            for error in [got].into_iter().chain(flushes).chain([why(epoch.close())]) {
                let WindowError::TimedOut { awaited, .. } = error else { panic!("{error}") };
                assert!(matches!(awaited[..], [one] if is_exposure_of_rank_1(one)), "{awaited:?}");
            }
            comm.barrier()?;
            started.wait()?;
            window.set_timeout(None);
        } else {
            comm.barrier()?;
            if comm.rank() == 1 {
                window.post(&[Rank(0)])?.close()?;
            }
        }
        window.free().map(drop)
    });
}

#[test]
fn a_cancel_ends_an_epoch() {
    on(2, |comm| {
        let mut window = comm.window(vec![0_u8; 1])?;
        if comm.rank() == 0 {
            let cancel = CancelToken::new();
            window.set_cancel(&cancel);
            let request = window.post(&[Rank(1)])?.iclose()?;
            assert!(!request.is_finished());
            request.cancel();
            assert!(request.wait().is_err());
            let waiting = window.post(&[Rank(1)])?;
            cancel.cancel();
            assert!(waiting.close().is_err());
            comm.send(&[1_u8], Rank(1), 7)?;
        } else {
            comm.recv(&mut [0_u8], Rank(0), 7)?;
        }
        drop(window);
        comm.barrier()
    });
}

/// A program that returns the error of a call drops its epoch. Later epochs go on.
#[test]
fn a_dropped_epoch_keeps_the_bounds_of_its_window() {
    on(2, |comm| {
        let mut window = comm.window(vec![0_u8; 1])?;
        if comm.rank() == Rank(0) {
            let held = window.lock(Rank(0), LockKind::Exclusive)?;
            held.put(Rank(0), 0, &[1])?;
            held.flush(Rank(0))?;
            comm.barrier()?;
            comm.barrier()?;
            held.close()?;
        } else {
            comm.barrier()?;
            for is_cancelled in [false, true] {
                let cancel = CancelToken::new();
                window.set_cancel(&cancel);
                window.set_timeout(Some(Duration::from_millis(20)).filter(|_| !is_cancelled));
                let waits = window.lock(Rank(0), LockKind::Exclusive)?;
                waits.put(Rank(0), 0, &[2])?;
                if is_cancelled {
                    cancel.cancel();
                }
                drop(waits);
                window.set_cancel(&CancelToken::new());
                window.set_timeout(None);
                let own = window.lock(Rank(1), LockKind::Exclusive)?;
                own.put(Rank(1), 0, &[3])?;
                own.close()?;
            }
            comm.barrier()?;
        }
        comm.barrier()?;
        assert_eq!(window.read_vec(0..1)?, [[1], [3]][comm.rank().index()]);
        window.free().map(drop)
    });
}

#[test]
fn dropped_epochs_and_windows_end() {
    on(3, |comm| {
        for _ in 0..20 {
            let window = comm.window(vec![0_u32; 1])?;
            let next = Rank((comm.rank().0 + 1) % 3);
            let epoch = window.fence()?;
            epoch.put(next, 0, &[7])?;
            drop(epoch);
            let lock = window.lock(next, LockKind::Exclusive)?;
            lock.put(next, 0, &[8])?;
            drop(lock);
            let _ = window.start(&[])?;
        }
        comm.barrier()
    });
}

#[test]
fn a_late_rank_delays_only_its_own_epochs() {
    on(3, |comm| {
        let window = comm.window(vec![0_u64; 1])?;
        match comm.rank() {
            Rank(0) => {
                // Rank 1 is late: this epoch completes only after rank 1 has got the message of rank 2.
                let late = window.lock(Rank(1), LockKind::Shared)?;
                late.put(Rank(1), 0, &[5])?;
                let late = late.iclose()?;
                comm.send(&[1_u8], Rank(2), 7)?;
                late.wait()?;
            }
            Rank(1) => drop(comm.recv(&mut [0_u8], Rank(2), 8)?),
            _ => {
                comm.recv(&mut [0_u8], Rank(0), 7)?;
                comm.send(&[1_u8], Rank(1), 8)?;
            }
        }
        let part = window.free()?;
        assert_eq!(part[0], if comm.rank() == 1 { 5 } else { 0 });
        Ok(())
    });
}

#[test]
fn a_target_that_computes_is_reached() {
    on(2, |comm| {
        let window = comm.window(vec![0_u64; 1])?;
        if comm.rank() == 0 {
            let epoch = window.lock(Rank(1), LockKind::Exclusive)?;
            epoch.put(Rank(1), 0, &[9])?;
            epoch.close()?;
        } else {
            // This rank makes no call meanwhile. The part is memory of the process, so the copy makes no progress.
            while window.read_vec(0..1)? != [9] {
                std::hint::spin_loop();
            }
        }
        window.free().map(drop)
    });
}

#[test]
fn many_windows_come_and_go() {
    on(2, |comm| {
        let windows = (0..200).map(|_| comm.window(vec![0_u8; 8])).collect::<Result<Vec<Window<u8>>, _>>()?;
        for window in &windows {
            let epoch = window.fence()?;
            epoch.put(Rank(1 - comm.rank().0), 0, &[3; 8])?;
            epoch.close()?;
        }
        let ends = windows.into_iter().map(Window::ifree).collect::<Result<Vec<_>, _>>()?;
        for end in ends {
            assert_eq!(end.wait()?.buffer, [3; 8]);
        }
        Ok(())
    });
}

#[test]
fn a_dropped_request_continues() {
    on(3, |comm| {
        let window = comm.window(vec![0_u32; 1])?;
        let mut epoch = window.fence()?;
        for _ in 0..10 {
            epoch.accumulate(Rank((comm.rank().0 + 1) % 3), 0, &[1], WindowOp::Sum)?;
            let (end, next) = epoch.inext()?;
            drop(end);
            epoch = next;
        }
        drop(epoch.iclose()?);
        assert_eq!(window.free()?, [10]);
        Ok(())
    });
}

#[test]
fn no_other_epoch_opens_before_the_end_of_that_of_a_fence() {
    on(2, |comm| {
        let window = comm.window(vec![0_u8; 1])?;
        let epoch = window.fence()?;
        let other = Rank(1 - comm.rank().0);
        let refused = [
            why(window.fence()),
            why(window.lock(other, LockKind::Shared)),
            why(window.lock_all()),
            why(window.start(&[other])),
            why(window.post(&[other])),
        ];
        for (why, expected) in refused.into_iter().zip(["fence", "lock", "lock_all", "start", "post"]) {
            assert!(matches!(why, WindowError::WrongState { call, .. } if call == expected), "{why}");
        }
        epoch.put(other, 0, &[4])?;
        epoch.close()?;
        window.fence()?.close()?;
        assert_eq!(window.free()?, [4]);
        Ok(())
    });
}

#[test]
fn epochs_whose_handles_were_leaked_end_with_their_window() {
    on(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        for is_dropped in [false, true] {
            let window = comm.window(vec![0_u8; 4])?;
            if comm.rank() == 0 {
                std::mem::forget(window.post(&[])?);
                let epoch = window.lock(other, LockKind::Exclusive)?;
                epoch.put(other, 1, &[5])?;
                std::mem::forget(epoch);
                if is_dropped { drop(window) } else { window.free().map(drop)? }
            } else {
                assert_eq!(window.free()?, [0, 5, 0, 0]);
            }
            let window = comm.window(vec![0_u8; 4])?;
            let epoch = window.fence()?;
            epoch.put(other, 2, &[6])?;
            if comm.rank() == 0 {
                std::mem::forget(epoch)
            } else {
                epoch.close()?
            }
            assert_eq!(window.free()?, [0, 0, 6, 0]);
        }
        Ok(())
    });
}

#[test]
fn a_dropped_window_is_reached_until_all_ranks_have_freed_it() {
    let is_done = Barrier::new(2);
    on(2, |comm| {
        let mut window = comm.window(vec![0_u64; 1])?;
        window.set_timeout(Some(Duration::from_secs(60)));
        comm.barrier()?;
        if comm.rank() == 0 {
            drop(window);
            // This rank makes no call meanwhile.
            is_done.wait();
        } else {
            let epoch = window.lock(Rank(0), LockKind::Exclusive)?;
            let fetched = epoch.fetch(Rank(0), 0, 3, WindowOp::Sum);
            let closed = epoch.close();
            is_done.wait();
            assert_eq!((fetched, closed), (Ok(0), Ok(())));
        }
        comm.barrier()
    });
}

#[test]
fn a_rank_leaves_after_the_end_of_its_dropped_epochs_and_windows() {
    for ranks in [2, 10] {
        let are_dropped = Barrier::new(ranks);
        on(ranks as u32, |comm| {
            if comm.rank() == 0 {
                let window = comm.window(vec![0_u8; 1])?;
                let epoch = window.lock(Rank(1), LockKind::Shared)?;
                epoch.put(Rank(1), 0, &[8])?;
                drop(epoch);
                drop(window);
                are_dropped.wait();
            } else {
                // The first rank leaves before the others create the window.
                are_dropped.wait();
                let window = comm.window(vec![0_u8; 1])?;
                assert_eq!(window.free()?, [if comm.rank() == 1 { 8 } else { 0 }]);
            }
            Ok(())
        });
    }
}

/// Ranks over shared memory, whose allocated parts are mapped, and over a transport without mapped memory.
fn everywhere(ranks: u32, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    for transport in [None, Some("samite-shm")] {
        let mut settings = samite::Settings::default();
        if let Some(name) = transport {
            settings.set_transport(name).unwrap();
        }
        for result in settings.local(ranks, |world: World| body(world.comm())) {
            result.unwrap();
        }
    }
}

#[test]
fn operations_on_an_allocated_part() {
    everywhere(3, |comm| {
        let window = comm.allocate_window::<u32>(5)?;
        assert_eq!((window.len(), window.read_vec(0..5)?), (5, vec![0; 5]));
        let next = Rank((comm.rank().0 + 1) % 3);
        let epoch = window.lock_all()?;
        // The first operation waits for the lock, and the others need not.
        for round in 1..=20 {
            epoch.put(next, 1, &[round, round + 1, round + 2])?;
            epoch.flush(next)?;
            let mut read = [0; 3];
            epoch.get(next, 1, &mut read)?;
            assert_eq!(read, [round, round + 1, round + 2]);
            assert_eq!(epoch.compare_swap(next, 2, round + 1, 70)?, round + 1);
            assert_eq!(epoch.iget(next, 2, vec![0; 1])?.wait()?.buffer, [70]);
            assert_eq!(epoch.fetch(next, 3, 5, WindowOp::Sum)?, round + 2);
            epoch.accumulate(Rank(0), 4, &[1], WindowOp::Sum)?;
        }
        epoch.flush_all()?;
        let outside = epoch.get(next, 4, &mut [0; 2]);
        assert!(matches!(why(outside), WindowError::OutOfBounds { at: 16, bytes: 8, size: 20, .. }));
        let outside = window.read(5, &mut [0]);
        assert!(matches!(why(outside), WindowError::OutOfBounds { at: 20, bytes: 4, size: 20, .. }));
        epoch.close()?;
        comm.barrier()?;
        window.write(0, &[9])?;
        assert_eq!(window.free()?, [9, 20, 70, 27, if comm.rank() == Rank(0) { 60 } else { 0 }]);
        Ok(())
    });
}

/// Ranks that share memory.
fn on_a_host(ranks: u32, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let mut settings = samite::Settings::default();
    settings.set_transport("samite-shm").unwrap();
    for result in settings.local(ranks, |world: World| body(world.comm())) {
        result.unwrap();
    }
}

/// Each rank reads counters and writes them back under their locks, and closes the epochs in every way.
#[test]
fn locks_that_take_no_message_exclude() {
    const ROUNDS: u64 = 400;
    on_a_host(4, |comm| {
        let window = comm.allocate_window::<u64>(2)?;
        let mut ends = Vec::new();
        for round in 0..ROUNDS {
            let target = Rank((round % 2) as u32);
            let epoch = window.lock(target, LockKind::Exclusive)?;
            let mut count = [0];
            epoch.get(target, 0, &mut count)?;
            if round % 7 == 0 {
                let other = Rank(target.0 + 2);
                let beside = window.lock(other, LockKind::Exclusive)?;
                beside.accumulate(other, 1, &[1], WindowOp::Sum)?;
                beside.close()?;
            }
            epoch.put(target, 0, &[count[0] + 1])?;
            match round % 4 {
                0 => epoch.close()?,
                1 => epoch.iclose()?.wait().map(drop)?,
                2 => ends.push(epoch.iclose()?),
                _ => drop(epoch),
            }
        }
        for end in ends {
            end.wait()?;
        }
        comm.barrier()?;
        let part = window.free()?;
        let beside = ROUNDS.div_ceil(14);
        assert_eq!(part, if comm.rank().0 < 2 { [ROUNDS / 2 * 4, 0] } else { [0, beside * 4] });
        Ok(())
    });
}

#[test]
fn ranks_of_a_host_view_the_parts_of_others() {
    on_a_host(3, |comm| {
        let (own, next) = (comm.rank().0, Rank((comm.rank().0 + 1) % 3));
        // The parts have different lengths, and the last one has no elements.
        let window = comm.allocate_window::<u32>(2 * (2 - own as usize))?;
        let views = (0..3).map(|of| window.view(Rank(of))).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(views.iter().map(|view| view.len()).collect::<Vec<_>>(), [4, 2, 0]);
        assert_eq!(views.iter().map(|view| view.is_empty()).collect::<Vec<_>>(), [false, false, true]);
        let view = &views[next.index()];
        assert_eq!(view.rank(), next);
        if !view.is_empty() {
            view.write(0, &[own + 10, own + 20])?;
            view.store(1, own + 30)?;
        }
        comm.barrier()?;
        let part: Vec<u32> = [vec![12, 32, 0, 0], vec![10, 30], vec![]][own as usize].clone();
        assert_eq!(window.read_vec(0..window.len())?, part);
        assert_eq!(views[own as usize].read_vec(0..part.len())?, part);
        comm.barrier()?;
        let (first, epoch) = (&views[0], window.lock_all()?);
        for _ in 0..100 {
            first.fetch(2, 1, WindowOp::Sum)?;
            epoch.accumulate(Rank(0), 2, &[1], WindowOp::Sum)?;
            let mut seen = first.load(3)?;
            loop {
                match first.compare_swap(3, seen, seen + 1)? {
                    former if former == seen => break,
                    former => seen = former,
                }
            }
        }
        epoch.close()?;
        comm.barrier()?;
        let mut counts = [0; 2];
        first.read(2, &mut counts)?;
        assert_eq!(counts, [600, 300]);
        comm.barrier()?;
        drop(views);
        window.free().map(drop)
    });
}

/// Ends rank 0 by `end`, while rank 1 has its lock and carries out operations directly on its part. Once one of these has
/// failed, all of them fail, with the error that names the rank.
fn operations_fail_after(end: impl Fn(World) + Sync) {
    let mut settings = Settings::default();
    settings.set_transport("samite-shm").unwrap();
    settings.set_linger(Duration::from_millis(50)).unwrap();
    settings.local(2, |world| {
        let comm = world.comm().clone();
        let window = comm.allocate_window::<u64>(2).unwrap();
        if comm.rank() == 0 {
            comm.barrier().unwrap();
            drop(window);
            return end(world);
        }
        let epoch = window.lock(Rank(0), LockKind::Shared).unwrap();
        // From the second operation on they need not wait for the lock.
        let fetch = || epoch.fetch(Rank(0), 0, 1, WindowOp::Sum).map(|_| ());
        for _ in 0..2 {
            fetch().unwrap();
        }
        comm.barrier().unwrap();
        let failed = loop {
            if let Err(error) = fetch() {
                break error;
            }
        };
        let is_of_the_rank = |error: &Error| matches!(error, Error::PeerFailed { rank: Rank(0), .. });
        assert!(is_of_the_rank(&failed), "{failed}");
        for call in 0..200 {
            let put = || epoch.put(Rank(0), 1, &[call]);
            let iput = || epoch.iput(Rank(0), 1, vec![call]).map(|_| ());
            let calls: [&dyn Fn() -> Result<(), Error>; 4] =
                [&fetch, &put, &|| epoch.get(Rank(0), 1, &mut [0]), &iput];
            for (kind, call) in calls.into_iter().enumerate() {
                let result = call();
                assert!(result.as_ref().is_err_and(is_of_the_rank), "call {kind}: {result:?}");
            }
        }
        assert!(epoch.close().as_ref().is_err_and(is_of_the_rank));
    });
}

#[test]
fn operations_on_the_part_of_a_rank_that_has_left_name_the_rank() {
    operations_fail_after(|world| world.leave().unwrap_or_default());
}

#[test]
fn operations_on_the_part_of_a_rank_that_has_failed_do_not_succeed() {
    operations_fail_after(|world| {
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _world = world;
            std::panic::resume_unwind(Box::new("unwinds without a message"));
        }));
        assert!(panics.is_err());
    });
}

#[test]
fn a_view_refuses_what_is_not_in_the_part() {
    on_a_host(2, |comm| {
        let window = comm.allocate_window::<u64>(3)?;
        let view = window.view(Rank(1 - comm.rank().0))?;
        let outside = |at, bytes| WindowError::OutOfBounds { rank: view.rank(), at, bytes, size: 24 };
        assert_eq!(why(view.load(3)), outside(24, 8));
        assert_eq!(why(view.store(usize::MAX, 1)), outside(u64::MAX, 8));
        assert_eq!(why(view.write(2, &[1, 2])), outside(16, 16));
        assert_eq!(why(view.read(3, &mut [0])), outside(24, 8));
        assert_eq!(why(view.read_vec(1..usize::MAX / 2)), outside(8, u64::MAX));
        assert_eq!(why(view.fetch(3, 1, WindowOp::Sum)), outside(24, 8));
        assert!(matches!(why(view.fetch(0, 1, WindowOp::MinLocation)), WindowError::Unsuitable(_)));
        view.write(3, &[])?;
        view.read(3, &mut [])?;
        assert!(matches!(window.view(Rank(2)), Err(Error::InvalidRank { .. })));
        let long = comm.allocate_window::<u128>(1)?;
        let of_long = long.view(view.rank())?;
        of_long.write(0, &[7 << 70])?;
        assert!(matches!(why(of_long.fetch(0, 1, WindowOp::Sum)), WindowError::Unsuitable(_)));
        comm.barrier()?;
        assert_eq!(long.read_vec(0..1)?, [7 << 70]);
        long.free().and(window.free()).map(drop)
    });
}

#[test]
fn a_part_that_is_not_shared_has_no_view() {
    on(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let window = comm.allocate_window::<u8>(1)?;
        for rank in [other, comm.rank()] {
            assert_eq!(why(window.view(rank)), WindowError::NotShared { rank });
        }
        window.free().map(drop)
    });
    on_a_host(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let reversed = comm.split(Some(0), -i64::from(comm.rank().0))?.expect("it has a colour");
        let windows = [
            reversed.window(vec![1_u8])?,
            reversed.allocate_window_with(1, WindowHints::NONE.slices())?,
            reversed.dynamic_window()?,
        ];
        for window in windows {
            assert_eq!(why(window.view(other)), WindowError::NotShared { rank: other });
            window.free()?;
        }
        if comm.rank() == Rank(0) {
            let window = reversed.allocate_window::<u32>(1)?;
            assert!(matches!(why(window.view(Rank(0))), WindowError::Unsuitable(_)));
            window.free().map(drop)
        } else {
            let window = reversed.allocate_window::<u16>(2)?;
            assert!(matches!(why(window.view(Rank(1))), WindowError::Unsuitable(_)));
            window.free().map(drop)
        }
    });
}

/// The view of a rank that never makes the window ends at the deadline, and names it.
#[test]
fn a_view_of_a_late_rank_ends_at_the_deadline() {
    on_a_host(2, |comm| {
        if comm.rank() == Rank(0) {
            let mut window = comm.allocate_window::<u8>(1)?;
            window.set_timeout(Some(Duration::from_millis(20)));
            let ended = why(window.view(Rank(1)));
            let WindowError::TimedOut { fate, awaited } = ended else { panic!("{ended}") };
            assert_eq!(fate, samite::Fate::NotDelivered);
            assert!(is_window_of_rank_1(&awaited), "{awaited:?}");
            comm.send(&[1_u8], Rank(1), 0)?;
            window.set_timeout(None);
            window.view(Rank(1))?.store(0, 5)?;
            comm.barrier()?;
            window.free().map(drop)
        } else {
            comm.recv(&mut [0_u8], Rank(0), 0)?;
            let window = comm.allocate_window::<u8>(1)?;
            comm.barrier()?;
            assert_eq!(window.free()?, [5]);
            Ok(())
        }
    });
}

/// Operations that this rank carries out without the runtime, between others that it cannot carry out so, because their
/// elements have 16 bytes. A flush waits for all of them.
#[test]
fn a_flush_waits_for_operations_of_every_way() {
    on_a_host(3, |comm| {
        let others = others(comm);
        let window = comm.allocate_window::<u128>(4)?;
        let epoch = window.lock_all()?;
        for round in 1..=200_u128 {
            for &to in &others {
                let own = 1 + comm.rank().index();
                epoch.put(to, own, &[round << 64])?;
                if round % 7 == 0 {
                    epoch.accumulate(to, 0, &[1 << 70], WindowOp::Sum)?;
                }
                epoch.flush(to)?;
                let mut seen = [0];
                epoch.get(to, own, &mut seen)?;
                assert_eq!(seen, [round << 64]);
                if round % 7 == 0 {
                    epoch.get(to, 0, &mut seen)?;
                    assert!(seen[0] >= (round / 7) << 70, "round {round}: {seen:?}");
                }
            }
        }
        epoch.close()?;
        comm.barrier()?;
        assert_eq!(window.read_vec(0..1)?, [(2 * (200 / 7)) << 70]);
        comm.barrier()?;
        window.free().map(drop)
    });
}

#[test]
fn operations_without_the_runtime_are_checked_and_counted() {
    on_a_host(2, |comm| {
        let reversed = comm.split(Some(0), -i64::from(comm.rank().0))?.expect("it has a colour");
        let other = Rank(1 - reversed.rank().0);
        let window = reversed.allocate_window::<u32>(3)?;
        let epoch = window.lock(other, LockKind::Shared)?;
        let before = comm.stats().windows.mapped_operations;
        epoch.put(other, 0, &[1])?;
        epoch.flush(other)?;
        let outside = |at, bytes| WindowError::OutOfBounds { rank: other, at, bytes, size: 12 };
        for round in 0..300_u32 {
            epoch.put(other, 1, &[round])?;
            assert_eq!(epoch.fetch(other, 1, 1, WindowOp::Sum)?, round);
            assert_eq!(epoch.compare_swap(other, 1, round + 1, 5)?, round + 1);
            epoch.accumulate(other, 1, &[2], WindowOp::Product)?;
            let mut seen = [0; 2];
            epoch.get(other, 1, &mut seen)?;
            assert_eq!(seen, [10, 0]);
            assert_eq!(why(epoch.put(other, 3, &[1])), outside(12, 4));
            assert_eq!(why(epoch.put(other, usize::MAX, &[1])), outside(u64::MAX, 4));
            assert_eq!(why(epoch.get(other, 2, &mut seen)), outside(8, 8));
            assert!(matches!(
                why(epoch.fetch(other, 0, 1, WindowOp::MinLocation)),
                WindowError::Unsuitable(_)
            ));
            assert!(matches!(why(epoch.put(reversed.rank(), 0, &[1])), WindowError::NotATarget { .. }));
            epoch.put(other, 3, &[])?;
            epoch.flush(other)?;
        }
        epoch.close()?;
        assert_eq!(comm.stats().windows.mapped_operations - before, 300 * 5 + 1);
        reversed.barrier()?;
        assert_eq!(window.free()?, [1, 10, 0]);
        Ok(())
    });
}

/// As in the test before, with operations that own their memory and have requests. Each has ended when it was started.
#[test]
fn requests_without_the_runtime_have_ended() {
    on_a_host(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let window = comm.allocate_window::<u64>(4)?;
        let epoch = window.lock(other, LockKind::Shared)?;
        let before = comm.stats().windows.mapped_operations;
        epoch.put(other, 0, &[1])?;
        let every_other = Layout::vector(2, 1, 2)?;
        let mut set = comm.request_set();
        for round in 0..300_u64 {
            assert_eq!(epoch.iput(other, 1, vec![round, 8])?.wait()?.buffer, [round, 8]);
            let mut former = epoch.iget_accumulate(other, 1, vec![3_u64], WindowOp::Sum)?;
            assert_eq!(former.test().expect("it has ended")?.buffer, [round]);
            assert_eq!(epoch.iget_accumulate(other, 2, vec![12], WindowOp::BitOr)?.wait()?.buffer, [8]);
            let swapped = epoch.icompare_swap(other, 2, 12, round)?;
            assert!(swapped.is_finished());
            assert_eq!(swapped.wait()?.buffer[0], 12);
            assert!(set.insert(epoch.iget(other, 1, vec![0; 2])?.into_any()).is_ok());
            let (_, got) = set.wait_any().expect("there is one");
            assert_eq!(got?.buffer.downcast::<Vec<u64>>().expect("it is one"), [round + 3, round]);
            let got = epoch.iget_view(other, 0, &every_other, vec![0; 2])?.wait()?;
            assert_eq!(got.buffer, [1, round]);
            drop(epoch.iget(other, 0, vec![0])?);
            let outside = WindowError::OutOfBounds { rank: other, at: 24, bytes: 16, size: 32 };
            assert_eq!(why(epoch.iget(other, 3, vec![0; 2])), outside);
            assert_eq!(why(epoch.iput(other, 3, vec![0; 2])), outside);
            assert!(epoch.iget(other, 4, vec![])?.wait()?.buffer.is_empty());
        }
        epoch.close()?;
        assert_eq!(comm.stats().windows.mapped_operations - before, 300 * 7 + 1);
        comm.barrier()?;
        assert_eq!(window.free()?, [1, 302, 299, 0]);
        Ok(())
    });
}

/// A child of fork(2) is not the rank, and writes to no window.
#[test]
fn a_child_accesses_no_memory_of_a_window() {
    on_a_host(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        let window = comm.allocate_window::<u64>(1)?;
        let view = window.view(other)?;
        let epoch = window.lock(other, LockKind::Shared)?;
        for _ in 0..3 {
            epoch.put(other, 0, &[1])?;
            epoch.flush(other)?;
        }
        let is_refused = samite_os::fork::in_a_child(|| {
            [
                epoch.put(other, 0, &[9]),
                epoch.accumulate(other, 0, &[9], WindowOp::Sum),
                epoch.flush(other),
                epoch.get(other, 0, &mut [0]),
                view.store(0, 9),
                view.load(0).map(drop),
                view.fetch(0, 9, WindowOp::Sum).map(drop),
                window.write(0, &[9]),
                window.read(0, &mut [0]),
                window.read_vec(0..1).map(drop),
            ]
            .iter()
            .all(|result| *result == Err(Error::Forked))
        });
        assert!(is_refused.unwrap());
        epoch.close()?;
        comm.barrier()?;
        assert_eq!(window.free()?, [1]);
        Ok(())
    });
}

/// Threads use one epoch at the same time.
#[test]
fn threads_share_an_epoch() {
    on_a_host(2, |comm| {
        let window = comm.allocate_window::<u64>(5)?;
        let epoch = window.lock_all()?;
        let target = Rank(0);
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let (place, epoch) = (1 + (thread as usize + 2 * comm.rank().index()), &epoch);
                move || -> Result<(), Error> {
                    for round in 1..=2000 {
                        epoch.put(target, place, &[round])?;
                        epoch.flush(target)?;
                        let mut seen = [0];
                        epoch.get(target, place, &mut seen)?;
                        assert_eq!(seen, [round]);
                        epoch.accumulate(target, 0, &[1], WindowOp::Sum)?;
                    }
                    Ok(())
                }
            };
            let threads = [0, 1].map(|thread| scope.spawn(work(thread)));
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        epoch.close()?;
        comm.barrier()?;
        let part = window.free()?;
        assert!(comm.rank() != target || part == [8000, 2000, 2000, 2000, 2000], "{part:?}");
        Ok(())
    });
}

/// A program that repeats calls which need no other rank makes progress: the other rank waits for a message of this
/// one.
#[test]
fn reads_of_a_mapped_part_make_progress() {
    everywhere(2, |comm| {
        let window = comm.allocate_window::<u8>(1)?;
        let other = Rank(1 - comm.rank().0);
        if comm.rank() == Rank(0) {
            let epoch = window.lock(other, LockKind::Shared)?;
            let mut seen = [0];
            while seen[0] == 0 {
                epoch.get(other, 0, &mut seen)?;
            }
            epoch.close()?;
        } else {
            // Rank 0 grants this lock within its calls.
            let epoch = window.lock(other, LockKind::Exclusive)?;
            epoch.put(other, 0, &[1])?;
            epoch.close()?;
            window.write(0, &[1])?;
        }
        window.free().map(drop)
    });
}

#[test]
fn an_allocated_part_may_be_empty_or_too_long() {
    everywhere(2, |comm| {
        let window = comm.allocate_window::<u64>(comm.rank().0 as usize)?;
        assert_eq!(window.free()?, vec![0; comm.rank().0 as usize]);
        let long = comm.allocate_window::<u64>(usize::MAX / 4);
        assert!(matches!(long, Err(Error::Exhausted { .. })), "{long:?}");
        Ok(())
    });
}

#[test]
fn a_window_that_one_rank_fails_to_create_is_not_taken_for_the_next_one() {
    everywhere(2, |comm| {
        let comm = comm.with_timeout(Duration::from_secs(30));
        let len = if comm.rank().0 == 0 { usize::MAX / 2 } else { 1 };
        let first = comm.allocate_window::<u8>(len);
        assert_eq!(matches!(first, Err(Error::Exhausted { .. })), comm.rank().0 == 0, "{first:?}");
        let second = comm.allocate_window::<u8>(2)?;
        let epoch = second.fence()?;
        epoch.put(Rank(1 - comm.rank().0), 1, &[7])?;
        epoch.close()?;
        assert_eq!(second.free()?, [0, 7]);
        Ok(())
    });
}

/// Leaves the job while `hold` has an epoch that waits for the peer, which never creates the window. Returns the result
/// and the peer.
fn leaves_with(hold: impl Fn(&Comm) -> Option<Request<()>> + Sync) -> Result<(), Error> {
    let (begun, left) = (Barrier::new(2), Barrier::new(2));
    let mut settings = Settings::default();
    settings.set_linger(Duration::from_millis(200)).unwrap();
    let results = settings.local(2, |world| {
        if world.comm().rank() == 1 {
            begun.wait();
            while world.comm().try_probe(Rank(0), 0).is_ok() {}
            left.wait();
            return Ok(());
        }
        let held = hold(world.comm());
        begun.wait();
        let result = world.leave();
        if let Some(request) = held {
            assert!(matches!(request.wait(), Err(failed) if matches!(failed.error, Error::Closed { .. })));
        }
        left.wait();
        result
    });
    results.into_iter().next().unwrap()
}

#[test]
fn a_rank_that_leaves_waits_only_for_epochs_that_were_dropped() {
    fn fence(comm: &Comm) -> Request<()> {
        let window = comm.window(vec![0_u8; 1]).unwrap();
        let epoch = window.fence().unwrap();
        epoch.put(Rank(1), 0, &[8]).unwrap();
        let closing = epoch.iclose().unwrap();
        std::mem::forget(window);
        closing
    }
    assert_eq!(leaves_with(|comm| Some(fence(comm))), Ok(()));
    let late = leaves_with(|comm| {
        drop(fence(comm));
        None
    });
    match why(late) {
        WindowError::TimedOut { awaited, .. } => assert!(is_window_of_rank_1(&awaited), "{awaited:?}"),
        other => panic!("{other:?}"),
    }
}

/// A rank that asks for another one's part gets its answer although the other one has no more use for the window. The
/// answer waits until the two ranks have met, so each job tests this once.
#[test]
fn windows_of_many_ranks_may_be_freed_at_once() {
    for number in 0..40 {
        on(10, |comm| {
            assert_eq!(comm.window(vec![number])?.free()?, [number]);
            Ok(())
        });
    }
}

/// An epoch is recorded until it is closed, but not while the program waits for one of its operations.
#[test]
fn every_wait_ends_in_an_epoch_that_travels_as_one_packet() {
    on(2, |comm| {
        let window = comm.window_with(vec![0_u64; 2], WindowHints::NONE.aggregate())?;
        let (own, other) = (comm.rank().index(), Rank(1 - comm.rank().0));
        let operand = || vec![1_u64];
        let fetch_in = |wait: &dyn Fn(Request<Vec<u64>>) -> Result<u64, Error>| {
            let epoch = window.lock(other, LockKind::Exclusive)?;
            epoch.accumulate(other, own, &operand(), WindowOp::Sum)?;
            let before = wait(epoch.iget_accumulate(other, own, operand(), WindowOp::Sum)?)?;
            epoch.close().map(|()| before)
        };
        assert_eq!(fetch_in(&|request| Ok(request.wait()?.buffer[0]))?, 1);
        let test = |mut request: Request<Vec<u64>>| {
            loop {
                if let Some(fetched) = request.test() {
                    return Ok(fetched?.buffer[0]);
                }
            }
        };
        assert_eq!(fetch_in(&test)?, 3);
        let epoch = window.lock(other, LockKind::Exclusive)?;
        assert_eq!(epoch.fetch(other, own, 1, WindowOp::Sum)?, 4);
        epoch.accumulate(other, own, &operand(), WindowOp::Sum)?;
        epoch.flush(other)?;
        epoch.close()?;
        // No call of the program waits for these.
        let before = comm.stats().windows.aggregated_epochs;
        let mut ends = Vec::new();
        for _ in 0..20 {
            let epoch = window.lock(other, LockKind::Exclusive)?;
            epoch.accumulate(other, own, &operand(), WindowOp::Sum)?;
            ends.push(epoch.iclose()?);
        }
        ends.into_iter().try_for_each(|end| end.wait().map(drop))?;
        assert_eq!(comm.stats().windows.aggregated_epochs - before, 20);
        comm.barrier()?;
        assert_eq!(window.free()?[1 - own], 26);
        Ok(())
    });
}

/// Returns the regions of all ranks.
fn exchange(comm: &Comm, region: WindowRegion) -> Result<Vec<WindowRegion>, Error> {
    let mut regions = vec![WindowRegion::default(); comm.size() as usize];
    comm.allgather(&[region], &mut regions)?;
    Ok(regions)
}

#[test]
fn memory_is_attached_and_detached() {
    everywhere(3, |comm| {
        let window = comm.dynamic_window_with::<u64>(WindowHints::NONE.aggregate())?;
        for round in 0..20 {
            let memory = vec![round; 1000];
            let address = memory.as_ptr();
            let own = window.attach(memory)?;
            assert_eq!((own.rank(), own.len(), own.is_empty()), (comm.rank(), 1000, false));
            for theirs in exchange(comm, own)? {
                let epoch = window.lock(theirs.rank(), LockKind::Shared)?;
                epoch.accumulate(theirs.rank(), (theirs, 0), &[1; 1000], WindowOp::Sum)?;
                epoch.close()?;
            }
            comm.barrier()?;
            assert_eq!(comm.stats().windows.regions, 1);
            let memory = window.detach(own)?;
            assert!(memory.as_ptr() == address, "the memory is not copied");
            assert_eq!(memory, [round + 3; 1000]);
        }
        window.free().map(drop)
    });
}

/// A rank detaches memory while others write to it without a pause.
#[test]
fn memory_is_detached_while_others_write() {
    everywhere(3, |comm| {
        let window = comm.dynamic_window::<u64>()?;
        for _ in 0..10 {
            let own = if comm.rank() == 0 { window.attach(vec![0; 3000])? } else { WindowRegion::default() };
            let region = exchange(comm, own)?[0];
            let write = |value| {
                let epoch = window.lock(Rank(0), LockKind::Shared)?;
                epoch.put(Rank(0), (region, 2), &[value; 2998])?;
                epoch.accumulate(Rank(0), (region, comm.rank().index() - 1), &[1], WindowOp::Sum)?;
                epoch.close()
            };
            if comm.rank() == 0 {
                comm.barrier()?;
                let memory = window.detach(region)?;
                assert!(memory[..2].iter().all(|count| *count > 0));
                assert!(memory[2..].iter().all(|word| [1, 2].contains(word)));
            } else {
                write(1)?;
                comm.barrier()?;
                let error = loop {
                    if let Err(error) = write(2) {
                        break error;
                    }
                };
                let missed = WindowError::NotAttached { rank: Rank(0), region: region.id() };
                assert_eq!(why(Err::<(), _>(error)), missed);
            }
        }
        comm.barrier()?;
        window.free().map(drop)
    });
}

#[test]
fn a_dynamic_window_of_another_communicator_has_its_ranks() {
    on(4, |comm| {
        let half =
            comm.split(Some(comm.rank().0 % 2), -i64::from(comm.rank().0))?.expect("each rank has a color");
        let window = half.dynamic_window::<u8>()?;
        let regions = exchange(&half, window.attach(vec![0; 2])?)?;
        let other = Rank(1 - half.rank().0);
        let own = window.attach(vec![0; 2])?;
        window.detach(own)?;
        let gone = exchange(&half, own)?;
        let epoch = window.lock(other, LockKind::Shared)?;
        epoch.put(other, (regions[other.index()], 1), &[comm.rank().0 as u8])?;
        let missed = WindowError::NotAttached { rank: other, region: gone[other.index()].id() };
        assert_eq!(why(epoch.get(other, (gone[other.index()], 0), &mut [0])), missed);
        epoch.close()?;
        half.barrier()?;
        assert_eq!(window.detach(regions[half.rank().index()])?, [0, (comm.rank().0 as u8 + 2) % 4]);
        window.free().map(drop)
    });
}

#[test]
fn elements_without_bytes_have_one_place() {
    on(2, |comm| {
        let window = comm.allocate_window::<()>(8)?;
        let epoch = window.lock_all()?;
        for _ in 0..2 {
            epoch.put(Rank(1), 3, &[(); 2])?;
            epoch.get(Rank(1), 3, &mut [(); 2])?;
            epoch.flush_all()?;
            comm.barrier()?;
        }
        epoch.close()?;
        window.free().map(drop)
    });
}

#[test]
fn elements_without_bytes_are_attached() {
    on(2, |comm| {
        let window = comm.dynamic_window::<[u8; 0]>()?;
        let regions = exchange(comm, window.attach(vec![[]; 3])?)?;
        let epoch = window.fence()?;
        epoch.put(Rank(0), (regions[0], 1), &[[]])?;
        epoch.close()?;
        assert_eq!(window.detach(regions[comm.rank().index()])?.len(), 3);
        window.free().map(drop)
    });
}

#[test]
fn a_region_is_memory_of_its_window_alone() {
    everywhere(2, |comm| {
        let (first, second) = (comm.dynamic_window::<u64>()?, comm.dynamic_window::<u64>()?);
        let bytes = comm.dynamic_window::<u8>()?;
        let own = first.attach(vec![1; 100])?;
        let regions = exchange(comm, own)?;
        let same = exchange(comm, second.attach(vec![2; 100])?)?;
        bytes.attach(vec![3; 800])?;
        let is_refused = |result: Result<(), Error>| {
            let Err(Error::Window(error)) = result else { return false };
            matches!(*error, WindowError::NotAttached { .. })
        };
        let (me, other) = (comm.rank(), Rank(1 - comm.rank().0));
        let epoch = second.lock_all()?;
        assert!(is_refused(epoch.put(other, (regions[other.index()], 0), &[9])));
        epoch.put(other, (same[other.index()], 0), &[me.0.into()])?;
        epoch.close()?;
        let epoch = bytes.lock_all()?;
        assert!(is_refused(epoch.put(other, (regions[other.index()], 0), &[9])));
        epoch.close()?;
        assert!(is_refused(second.read((own, 0), &mut [0])));
        assert!(is_refused(second.detach(own).map(drop)));
        comm.barrier()?;
        assert_eq!(second.detach(same[me.index()])?[..2], [other.0.into(), 2]);
        assert_eq!(first.detach(own)?, [1; 100]);
        [first, second].into_iter().try_for_each(|window| window.free().map(drop))?;
        bytes.free().map(drop)
    });
}

#[test]
fn a_region_without_elements_takes_operations_of_no_elements() {
    everywhere(2, |comm| {
        let window = comm.dynamic_window::<u64>()?;
        let regions = exchange(comm, window.attach(Vec::new())?)?;
        let other = Rank(1 - comm.rank().0);
        let epoch = window.lock_all()?;
        for _ in 0..2 {
            epoch.accumulate(other, (regions[other.index()], 0), &[], WindowOp::Sum)?;
            epoch.flush(other)?;
        }
        epoch.close()?;
        comm.barrier()?;
        assert!(window.detach(regions[comm.rank().index()])?.is_empty());
        window.free().map(drop)
    });
}

#[test]
fn a_slice_of_the_own_part_is_the_memory_itself() {
    everywhere(3, |comm| {
        for allocates in [false, true] {
            let hints = WindowHints::NONE.slices();
            let window = match allocates {
                true => comm.allocate_window_with::<u64>(1000, hints)?,
                false => comm.window_with(vec![0_u64; 1000], hints)?,
            };
            let mut address = None;
            for round in 1..=10 {
                let mut epoch = window.lock(comm.rank(), LockKind::Exclusive)?;
                epoch.accumulate(comm.rank(), 0, &[1], WindowOp::Sum)?;
                let mut part = epoch.part_mut()?;
                assert!(*address.get_or_insert(part.as_ptr()) == part.as_ptr());
                part[1] += 1;
                let taken = why(window.read(0, &mut [0]));
                assert!(matches!(taken, WindowError::WrongState { .. }), "{taken}");
                drop(part);
                epoch.close()?;
                // All ranks write to all parts meanwhile.
                for to in (0..3).map(Rank) {
                    let epoch = window.lock(to, LockKind::Exclusive)?;
                    epoch.accumulate(to, 2, &[1; 998], WindowOp::Sum)?;
                    epoch.close()?;
                }
                window.write(1, &[round])?;
            }
            comm.barrier()?;
            assert_eq!(window.read_vec(0..3)?, [10, 10, 30]);
            let part = window.free()?;
            assert_eq!((part[..2].to_vec(), &part[2..]), (vec![10, 10], &[30; 998][..]));
        }
        Ok(())
    });
}

#[test]
fn a_slice_between_epochs_of_any_kind_is_the_memory_itself() {
    everywhere(3, |comm| {
        let mut window = comm.window_with(vec![0_u64; 4], WindowHints::NONE.slices())?;
        let (own, others) = (comm.rank(), (0..3).map(Rank).filter(|rank| *rank != comm.rank()));
        let others: Vec<_> = others.collect();
        let address = window.part_mut()?.as_ptr();
        for round in 0..10 {
            // A slice waits until the exposure has completed.
            let exposure = window.post(&others)?;
            let access = window.start(&others)?;
            for to in &others {
                access.accumulate(*to, 0, &[1], WindowOp::Sum)?;
            }
            let ends = [access.iclose()?, exposure.iclose()?];
            let mut part = window.part_mut()?;
            assert_eq!((part.as_ptr(), part[0], part[1]), (address, 2 * (round + 1), 2 * round));
            part[1] += 2;
            drop(part);
            ends.into_iter().try_for_each(|end| end.wait().map(drop))?;
            // It waits also for operations of this rank itself that are under way.
            let epoch = window.lock(own, LockKind::Shared)?;
            let sent = epoch.iaccumulate(own, 2, vec![1, 1], WindowOp::Sum)?;
            drop(epoch);
            assert_eq!(window.part_mut()?[2..], [round + 1; 2]);
            assert_eq!(sent.wait()?.buffer, [1, 1]);
            let fence = window.fence()?;
            fence.put(others[0], 3, &[round + 1])?;
            let end = fence.iclose()?;
            assert_eq!(window.part_mut()?[3], round + 1);
            end.wait()?;
        }
        assert_eq!(window.free()?, [20, 20, 10, 10]);
        Ok(())
    });
}

#[test]
fn a_slice_between_epochs_waits_for_the_lock_of_another_rank() {
    on(2, |comm| {
        let mut window = comm.window_with(vec![0_u8; 1], WindowHints::NONE.slices())?;
        let other = Rank(1 - comm.rank().0);
        if comm.rank() == 0 {
            let epoch = window.lock(other, LockKind::Exclusive)?;
            epoch.put(other, 0, &[7])?;
            epoch.flush(other)?;
            comm.send(&[0_u8], other, 0)?;
            comm.recv(&mut [0_u8], other, 0)?;
            epoch.close()?;
        } else {
            comm.recv(&mut [0_u8], other, 0)?;
            window.set_timeout(Some(Duration::from_millis(1)));
            let late = why(window.part_mut());
            assert!(matches!(late, WindowError::TimedOut { .. }), "{late}");
            window.set_timeout(None);
            comm.send(&[0_u8], other, 0)?;
            assert_eq!(*window.part_mut()?, [7]);
        }
        window.free().map(drop)
    });
}

#[test]
fn a_slice_needs_the_exclusive_lock_and_the_hint() {
    on(2, |comm| {
        let mut plain = comm.window(vec![0_u8; 2])?;
        let mut epoch = plain.lock(comm.rank(), LockKind::Exclusive)?;
        assert!(matches!(why(epoch.part_mut()), WindowError::Unsuitable(_)));
        epoch.close()?;
        assert!(matches!(why(plain.part_mut()), WindowError::Unsuitable(_)));
        plain.free()?;
        let window = comm.window_with(vec![0_u8; 2], WindowHints::NONE.slices())?;
        let mut epoch = window.lock(comm.rank(), LockKind::Shared)?;
        assert!(matches!(why(epoch.part_mut()), WindowError::WrongState { .. }));
        epoch.close()?;
        let mut epoch = window.lock(Rank(1 - comm.rank().0), LockKind::Exclusive)?;
        assert!(matches!(why(epoch.part_mut()), WindowError::NotATarget { .. }));
        epoch.close()?;
        // The memory of a slice that was leaked is lost.
        comm.barrier()?;
        let mut epoch = window.lock(comm.rank(), LockKind::Exclusive)?;
        std::mem::forget(epoch.part_mut()?);
        assert!(matches!(why(epoch.put(comm.rank(), 0, &[1])), WindowError::WrongState { .. }));
        assert!(matches!(why(epoch.get(comm.rank(), 0, &mut [1])), WindowError::WrongState { .. }));
        epoch.close()?;
        assert!(window.free()?.is_empty());
        Ok(())
    });
}
