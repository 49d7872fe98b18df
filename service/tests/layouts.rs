//! Messages in layouts, between ranks in threads.

use std::sync::Arc;

use samite::{Error, Layout, LayoutError, OwnedView, Rank, Source, StorageOrder};

const TAG: u64 = 7;

/// Runs a case on two ranks, and passes it the communicator and the other rank.
fn on_two(case: fn(&samite::Comm, Rank) -> Result<(), Error>) {
    let results = samite::local(2, move |world| {
        let comm = world.comm();
        case(comm, Rank(1 - comm.rank().0))
    });
    results.into_iter().for_each(Result::unwrap);
}

/// Lengths of messages in elements, from no bytes to messages that take a rendezvous.
const COUNTS: [usize; 6] = [0, 1, 7, 1000, 30_000, 400_000];

#[test]
fn views_meet_slices_and_views() {
    on_two(|comm, other| {
        for count in COUNTS {
            let layout = Layout::vector(count, 1, 3)?;
            let dense: Vec<u64> = (0..count as u64).collect();
            let mut sparse = vec![u64::MAX; 3 * count + 1];
            sparse.iter_mut().step_by(3).zip(&dense).for_each(|(place, &number)| *place = number);
            if comm.rank() == 0 {
                comm.send_view(layout.of(&sparse)?, other, TAG)?;
                comm.send(&dense, other, TAG)?;
                comm.send_view(layout.of(&sparse)?, other, TAG)?;
            } else {
                let mut received = vec![0; count];
                assert_eq!(comm.recv(&mut received, other, TAG)?.bytes, 8 * count);
                assert!(received == dense, "{count}");
                for _ in 0..2 {
                    let mut received = vec![u64::MAX; 3 * count + 1];
                    comm.recv_view(&mut layout.of_mut(&mut received)?, Source::ANY, TAG)?;
                    assert!(received == sparse, "{count}: and nothing between the elements");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn owned_views_meet_views() {
    on_two(|comm, other| {
        for count in COUNTS {
            let layout = Layout::vector(count, 1, 3)?;
            let mut sparse = vec![u64::MAX; 3 * count + 1];
            sparse.iter_mut().step_by(3).take(count).zip(0..).for_each(|(place, number)| *place = number);
            let mut received = vec![u64::MAX; 3 * count + 1];
            if comm.rank() == 0 {
                let done = comm.isend(layout.of_owned(sparse.clone())?, other, TAG)?.wait()?;
                assert_eq!((done.status.bytes, done.buffer.size()), (8 * count, 8 * count));
                assert!(done.buffer.into_buffer() == sparse);
                let shared = Arc::<[u64]>::from(sparse);
                comm.isend(layout.of_owned(shared)?, other, TAG)?.into_any().wait()?;
            } else {
                comm.recv_view(&mut layout.of_mut(&mut received)?, other, TAG)?;
                assert!(received == sparse, "{count}");
                received.fill(u64::MAX);
                let view = layout.of_owned(received.into_boxed_slice())?;
                let done = comm.irecv(view, other, TAG)?.into_any().wait()?;
                let view = done.buffer.downcast::<OwnedView<Vec<u64>>>().expect_err("a box");
                let view = view.downcast::<OwnedView<Box<[u64]>>>().expect("its type");
                assert!(view.as_slice() == sparse, "{count}");
            }
        }
        Ok(())
    });
}

#[test]
fn persistent_operations_take_owned_views() {
    on_two(|comm, other| {
        for count in COUNTS {
            let layout = Layout::vector(count, 1, 2)?;
            let mut send = comm.send_init(layout.of_owned(vec![0_u32; 2 * count])?, other, TAG)?;
            let mut receive = comm.recv_init(layout.of_owned(vec![9_u32; 2 * count])?, other, TAG)?;
            for round in 0..3 {
                send.buffer_mut()?.as_mut_slice().fill(round);
                samite::start_all(&mut [&mut receive, &mut send])?;
                assert_eq!(receive.wait()?.bytes, 4 * count);
                send.wait()?;
                let whole = receive.buffer()?.as_slice();
                assert!(whole.chunks(2).all(|pair| pair == [round, 9]), "{count}");
            }
        }
        Ok(())
    });
}

#[test]
fn an_owned_view_is_checked_when_it_is_made_and_received_into() {
    on_two(|comm, other| {
        let layout = Layout::vector(3, 1, 2)?;
        let failed = layout.of_owned(vec![0_u16; 4]).unwrap_err();
        assert_eq!(failed.buffer, Some(vec![0; 4]));
        let Error::Layout(error) = failed.error else { panic!("{failed:?}") };
        assert_eq!(*error, LayoutError::BeyondSlice { call: "Layout::of_owned", first: 0, end: 10, len: 8 });
        let twice = Layout::<u8>::indexed([(0, 2), (1, 2)])?;
        let failed = twice.of_owned(vec![1, 2, 3]).unwrap_err();
        assert_eq!(failed.buffer, Some(vec![1, 2, 3]));
        assert!(failed.error.to_string().contains("Layout::of_owned"), "{failed:?}");
        let shared = twice.of_owned(Arc::<[u8]>::from([1, 2, 3]))?;
        assert_eq!(shared.as_view().pack(), [1, 2, 2, 3]);

        if comm.rank() == 0 {
            comm.send(&[1_u8, 2, 3], other, TAG)?;
            comm.isend(shared, other, TAG)?.wait()?;
        } else {
            let failed = comm.irecv(layout.of_owned(vec![0_u16; 5])?, other, TAG)?.wait().unwrap_err();
            assert!(matches!(failed.error, Error::PartialElement { element: 2, .. }), "{failed:?}");
            assert!(failed.buffer.is_some());
            assert_eq!(comm.recv_vec::<u8>(other, TAG)?.buffer, [1, 2, 2, 3]);
        }
        Ok(())
    });
}

#[test]
fn a_scope_exchanges_faces() {
    on_two(|comm, other| {
        const N: usize = 20;
        for dimension in 0..3 {
            let face = |at| {
                let (mut parts, mut starts) = ([N; 3], [0; 3]);
                (parts[dimension], starts[dimension]) = (1, at);
                Layout::subarray(&[N; 3], &parts, &starts, StorageOrder::RowMajor)
            };
            let mine: Vec<u32> = (0..(N * N * N) as u32).collect();
            let mut ghost = mine.clone();
            let (first, last) = (face(0)?, face(N - 1)?);
            comm.scope(|scope| {
                let receive = scope.irecv_view(last.of_mut(&mut ghost)?, other, TAG)?;
                scope.isend_view(first.of(&mine)?, other, TAG)?;
                assert_eq!(scope.wait(receive)?.bytes, 4 * N * N);
                Ok::<(), Error>(())
            })?;
            assert_eq!(last.of(&ghost)?.pack(), first.of(&mine)?.pack());
            let changed = mine.iter().zip(&ghost).filter(|(one, other)| one != other).count();
            assert_eq!(changed, N * N, "dimension {dimension}");
        }
        Ok(())
    });
}

#[test]
fn a_message_may_be_too_long_or_no_whole_elements() {
    on_two(|comm, other| {
        let layout = Layout::vector(3, 1, 2)?;
        let mut numbers = [0_u16; 5];
        if comm.rank() == 0 {
            comm.send(&[1_u16, 2, 3, 4], other, TAG)?;
            comm.send(&[1_u8, 2, 3], other, TAG)?;
            comm.send(&[1_u16, 2], other, TAG)?;
        } else {
            let mut view = layout.of_mut(&mut numbers)?;
            let truncated = comm.recv_view(&mut view, other, TAG).unwrap_err();
            assert!(matches!(truncated, Error::Truncated { room: 6, .. }), "{truncated}");
            let partial = comm.recv_view(&mut view, other, TAG).unwrap_err();
            assert!(matches!(partial, Error::PartialElement { element: 2, .. }), "{partial}");
            assert_eq!(comm.recv_view(&mut view, other, TAG)?.bytes, 4);
            assert_eq!(numbers, [1, 0, 2, 0, 0]);
        }
        Ok(())
    });
}

#[test]
fn misuse_is_refused_when_a_layout_is_made_or_bound() {
    let vector = Layout::<u32>::vector(3, 1, 2).unwrap();
    let beyond = vector.of(&[0; 4]).unwrap_err();
    assert_eq!(beyond, LayoutError::BeyondSlice { call: "Layout::of", first: 0, end: 20, len: 16 });
    assert!(vector.of(&[0; 5]).is_ok());
    let backwards = Layout::<u32>::vector(2, 1, -1).unwrap();
    let before = backwards.of_mut(&mut [0; 9]).unwrap_err();
    assert_eq!(before, LayoutError::BeyondSlice { call: "Layout::of_mut", first: -4, end: 4, len: 36 });
    let forwards = Layout::<u32>::indexed([(1, 1)]).unwrap().nested(&backwards).unwrap();
    assert!(forwards.true_lower_bound() < forwards.lower_bound() + 8);

    let twice = Layout::<u8>::indexed([(0, 2), (1, 2)]).unwrap();
    assert_eq!(twice.of(&[1, 2, 3]).unwrap().pack(), [1, 2, 2, 3]);
    let overlap = twice.of_mut(&mut [0; 3]).unwrap_err();
    assert_eq!(overlap, LayoutError::Overlap { call: "Layout::of_mut" });
    // Columns of a matrix interleave, and do not overlap.
    let transposed = Layout::<u8>::vector(4, 1, 4).unwrap().resized(0, 1).unwrap().repeated(4).unwrap();
    assert!(transposed.of_mut(&mut [0; 16]).is_ok());
    let overlapping = Layout::<u8>::vector(4, 2, 4).unwrap().resized(0, 1).unwrap().repeated(4).unwrap();
    assert!(overlapping.of_mut(&mut [0; 20]).is_err());

    let overflow = Layout::<u64>::vector(usize::MAX / 16, 1, 1 << 40).unwrap_err();
    assert_eq!(overflow, LayoutError::Overflow { call: "Layout::vector" });
    assert!(Layout::<u64>::contiguous(usize::MAX / 4).is_err());
    assert!(Layout::<u64>::vector(2, 1, isize::MAX / 4).is_err());
    assert!(Layout::<u64>::indexed([(isize::MAX / 8, 1)]).is_err());
    let outside = Layout::<u8>::subarray(&[4, 4], &[2, 3], &[0, 2], StorageOrder::RowMajor).unwrap_err();
    assert!(outside.to_string().contains("Layout::subarray"), "{outside}");
    assert!(Layout::<u8>::subarray(&[4, 4], &[2], &[0, 2], StorageOrder::RowMajor).is_err());
    assert!(Layout::<u8>::subarray(&[usize::MAX, 4], &[1, 1], &[0, 0], StorageOrder::RowMajor).is_err());
    assert_eq!(
        vector.of(&[0; 5]).unwrap().pack_into(&mut [0; 11]).unwrap_err(),
        LayoutError::PackedLength { call: "View::pack_into", expected: 12, len: 11 }
    );
    assert!(vector.of_mut(&mut [0; 5]).unwrap().unpack_from(&[0; 13]).is_err());
}
