//! Layouts: which elements they select, and messages in them.

use samite::{Error, Field, Layout, LayoutError, Rank, Source, StorageOrder, start_all};

use crate::case::{Cases, Job, expect, expect_error};

/// A way to make a layout, and the elements of an array that it selects.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    section: &'static str,
    make: fn() -> Result<Layout<u16>, LayoutError>,
    selects: &'static [u16],
}

/// The elements of the array.
const ARRAY: usize = 24;
/// The content of the elements into which no message is received.
const UNTOUCHED: u16 = 0xeeee;
const TAG: u64 = 7;

const WAYS: &[Way] = &[
    Way { name: "contiguous", section: "5.1.2", make: || Layout::contiguous(5), selects: &[0, 1, 2, 3, 4] },
    Way { name: "vector", section: "5.1.2", make: || Layout::vector(3, 2, 4), selects: &[0, 1, 4, 5, 8, 9] },
    Way {
        name: "vector-backwards",
        section: "5.1.2",
        make: || Layout::<u16>::indexed([(2, 1)])?.nested(&Layout::vector(3, 1, -2)?),
        selects: &[10, 8, 6],
    },
    Way {
        name: "indexed",
        section: "5.1.2",
        make: || Layout::indexed([(7, 2), (0, 1), (3, 3)]),
        selects: &[7, 8, 0, 3, 4, 5],
    },
    Way {
        name: "indexed-block",
        section: "5.1.2",
        make: || Layout::indexed_block(2, [9, 4, 0]),
        selects: &[9, 10, 4, 5, 0, 1],
    },
    Way {
        name: "fields",
        section: "5.1.2",
        make: || {
            let field = |offset, len| Ok(Field::new(offset, &Layout::<u16>::contiguous(len)?));
            Layout::fields([field(12, 2)?, field(2, 1)?])
        },
        selects: &[6, 7, 1],
    },
    Way {
        name: "subarray-rows",
        section: "5.1.3",
        make: || Layout::subarray(&[4, 5], &[2, 3], &[1, 1], StorageOrder::RowMajor),
        selects: &[6, 7, 8, 11, 12, 13],
    },
    Way {
        name: "subarray-columns",
        section: "5.1.3",
        make: || Layout::subarray(&[5, 4], &[3, 2], &[1, 1], StorageOrder::ColumnMajor),
        selects: &[6, 7, 8, 11, 12, 13],
    },
    Way {
        name: "nested",
        section: "5.1.2",
        make: || Layout::<u16>::vector(2, 1, 2)?.nested(&Layout::<u16>::contiguous(2)?.resized(0, 3)?),
        selects: &[0, 1, 6, 7],
    },
    Way {
        name: "repeated",
        section: "5.1.11",
        make: || Layout::vector(2, 1, 3)?.resized(0, 1)?.repeated(3),
        selects: &[0, 3, 1, 4, 2, 5],
    },
];

pub(crate) fn add(cases: &mut Cases) {
    for &way in WAYS {
        cases.section(way.section);
        cases.value(
            format!("layouts.{}.selects", way.name),
            "a type selects elements of a buffer, in the order of its map",
            move || selects(way),
        );
        cases.section("5.1.11");
        cases.add(
            format!("layouts.{}.send", way.name),
            2,
            "a message has the elements that the sender's type selects, in their order",
            move |job| send(job, way),
        );
        cases.add(
            format!("layouts.{}.receive", way.name),
            2,
            "a receive writes the elements that its type selects, and no others",
            move |job| receive(job, way),
        );
        cases.add(
            format!("layouts.{}.nonblocking", way.name),
            2,
            "nonblocking operations take derived types",
            move |job| nonblocking(job, way),
        );
    }
    extents(cases);
    lengths(cases);
    packing(cases);
}

/// Returns an array in which each element is its own index.
fn numbered() -> Vec<u16> {
    (0..ARRAY as u16).collect()
}

/// Returns the array after a receive into a layout: each selected element is its own index, and the other elements are
/// untouched.
fn received(way: Way) -> Vec<u16> {
    let mut array = vec![UNTOUCHED; ARRAY];
    way.selects.iter().for_each(|&place| array[usize::from(place)] = place);
    array
}

fn selects(way: Way) {
    let layout = (way.make)().expect("it is sound");
    let bytes: Vec<u8> = way.selects.iter().flat_map(|place| place.to_ne_bytes()).collect();
    assert_eq!(layout.of(&numbered()).expect("it fits").pack(), bytes);
    assert_eq!(layout.size(), bytes.len());
}

fn send(job: &Job, way: Way) -> Result<(), Error> {
    if job.rank() == 0 {
        return job.comm.send_view((way.make)()?.of(&numbered())?, Rank(1), TAG);
    }
    let mut elements = [UNTOUCHED; ARRAY];
    let status = job.comm.recv(&mut elements, Rank(0), TAG)?;
    expect(status, 0, TAG, 2 * way.selects.len());
    assert_eq!(elements[..way.selects.len()], *way.selects);
    Ok(())
}

fn receive(job: &Job, way: Way) -> Result<(), Error> {
    if job.rank() == 0 {
        return job.comm.send(way.selects, Rank(1), TAG);
    }
    let mut array = vec![UNTOUCHED; ARRAY];
    let layout = (way.make)()?;
    let status = job.comm.recv_view(&mut layout.of_mut(&mut array)?, Source::ANY, TAG)?;
    expect(status, 0, TAG, 2 * way.selects.len());
    assert_eq!(array, received(way));
    Ok(())
}

fn nonblocking(job: &Job, way: Way) -> Result<(), Error> {
    let layout = (way.make)()?;
    let receive = job.comm.irecv(layout.of_owned(vec![UNTOUCHED; ARRAY])?, job.other(), TAG)?;
    let send = job.comm.isend(layout.of_owned(numbered())?, job.other(), TAG)?;
    assert_eq!(receive.wait()?.buffer.into_buffer(), received(way));
    assert_eq!(send.wait()?.buffer.into_buffer(), numbered());
    let (array, mut into) = (numbered(), vec![UNTOUCHED; ARRAY]);
    job.comm.scope(|scope| {
        scope.irecv_view(layout.of_mut(&mut into)?, job.other(), TAG)?;
        scope.isend_view(layout.of(&array)?, job.other(), TAG).map(drop)
    })?;
    assert_eq!(into, received(way));
    Ok(())
}

fn extents(cases: &mut Cases) {
    let bounds = |layout: Layout<u32>| (layout.lower_bound(), layout.extent());
    let true_bounds = |layout: &Layout<u32>| (layout.true_lower_bound(), layout.true_extent());
    cases.section("5.1.7");
    cases.value("layouts.extent", "the extent reaches from the lower to the upper bound", move || {
        assert_eq!(bounds(Layout::contiguous(3).unwrap()), (0, 12));
        assert_eq!(bounds(Layout::vector(3, 1, 2).unwrap()), (0, 20));
        assert_eq!(bounds(Layout::indexed([(5, 1), (2, 1)]).unwrap()), (8, 16));
        assert_eq!(
            bounds(Layout::subarray(&[4, 4], &[1, 1], &[2, 2], StorageOrder::RowMajor).unwrap()),
            (0, 64)
        );
    });
    cases.value("layouts.resized", "a resized type has the given bounds, and the same elements", move || {
        let layout = Layout::vector(2, 1, 2).unwrap().resized(-1, 5).unwrap();
        assert_eq!((layout.size(), true_bounds(&layout)), (8, (0, 12)));
        assert_eq!(bounds(layout), (-4, 20));
    });
    cases.section("5.1.8");
    cases.value(
        "layouts.true-extent",
        "the true extent reaches from the first to the last byte",
        move || {
            let layout = Layout::subarray(&[4, 4], &[1, 2], &[2, 1], StorageOrder::RowMajor).unwrap();
            assert_eq!(true_bounds(&layout), (36, 8));
        },
    );
}

fn lengths(cases: &mut Cases) {
    cases.section("5.1.11");
    cases.add(
        "layouts.fewer",
        2,
        "a shorter message fills the first elements of the receiver's type",
        |job| {
            if job.rank() == 0 {
                return job.comm.send(&[1u32, 2], Rank(1), TAG);
            }
            let mut array = [9u32; 6];
            let layout = Layout::vector(3, 1, 2)?;
            expect(job.comm.recv_view(&mut layout.of_mut(&mut array)?, Rank(0), TAG)?, 0, TAG, 8);
            assert_eq!(array, [1, 9, 2, 9, 9, 9]);
            Ok(())
        },
    );
    cases.add("layouts.truncated", 2, "a message longer than the receiver's type is an error", |job| {
        if job.rank() == 0 {
            return job.comm.send_view(Layout::vector(4, 1, 2)?.of(&[1u32; 7])?, Rank(1), TAG);
        }
        let layout = Layout::vector(3, 1, 2)?;
        let mut array = [9u32; 5];
        let result = job.comm.recv_view(&mut layout.of_mut(&mut array)?, Rank(0), TAG);
        expect_error!(result, Error::Truncated { room: 12, .. });
        assert_eq!(array, [9; 5]);
        Ok(())
    });
    cases.add("layouts.long", 2, "a long message may be scattered at both ends, in different ways", |job| {
        let count = job.long / 4;
        let sent: Vec<u32> = (0..2 * count as u32).collect();
        if job.rank() == 0 {
            return job.comm.send_view(Layout::vector(count, 1, 2)?.of(&sent)?, Rank(1), TAG);
        }
        let mut array = vec![u32::MAX; 3 * count];
        let layout = Layout::vector(count, 1, 3)?;
        expect(job.comm.recv_view(&mut layout.of_mut(&mut array)?, Rank(0), TAG)?, 0, TAG, 4 * count);
        assert!(array.iter().step_by(3).eq(sent.iter().step_by(2)));
        assert!(array.iter().skip(1).step_by(3).all(|&element| element == u32::MAX));
        Ok(())
    });
    cases.add("layouts.empty", 2, "a type of no elements sends an empty message", |job| {
        let layout = Layout::<u32>::vector(0, 1, 2)?;
        if job.rank() == 0 {
            return job.comm.send_view(layout.of(&[])?, Rank(1), TAG);
        }
        let status = job.comm.recv_view(&mut layout.of_mut(&mut [])?, Rank(0), TAG)?;
        expect(status, 0, TAG, 0);
        Ok(())
    });
    cases.add(
        "layouts.transpose",
        2,
        "types of equal signatures match: a matrix arrives transposed",
        |job| {
            let matrix: [u16; 12] = std::array::from_fn(|i| i as u16);
            if job.rank() == 0 {
                let columns = Layout::vector(3, 1, 4)?.resized(0, 1)?.repeated(4)?;
                return job.comm.send_view(columns.of(&matrix)?, Rank(1), TAG);
            }
            let mut transposed = [0u16; 12];
            job.comm.recv(&mut transposed, Rank(0), TAG)?;
            assert!((0..12).all(|i| transposed[i] == matrix[i % 3 * 4 + i / 3]));
            Ok(())
        },
    );
    cases.add("layouts.absent", 1, "messages to and from no process have no effect", |job| {
        let layout = Layout::vector(2, 1, 2)?;
        job.comm.send_view(layout.of(&[1u8; 3])?, None, TAG)?;
        let mut array = [9u8; 3];
        assert_eq!(job.comm.recv_view(&mut layout.of_mut(&mut array)?, None, TAG)?.bytes, 0);
        assert_eq!(array, [9; 3]);
        Ok(())
    });
    cases.section("3.9");
    cases.add("layouts.persistent", 2, "persistent operations take derived types", |job| {
        let layout = Layout::vector(4, 1, 2)?;
        let mut send = job.comm.send_init(layout.of_owned(vec![0u16; 7])?, job.other(), TAG)?;
        let mut receive = job.comm.recv_init(layout.of_owned(vec![9u16; 7])?, job.other(), TAG)?;
        for round in 0..3 {
            send.buffer_mut()?.as_mut_slice().fill(round);
            start_all(&mut [&mut receive, &mut send])?;
            receive.wait()?;
            send.wait()?;
            assert_eq!(receive.buffer()?.as_slice(), [round, 9, round, 9, round, 9, round]);
        }
        Ok(())
    });
    cases.section("5.1.11");
    cases.value(
        "layouts.overlap",
        "elements may overlap in a type to send, and not in one to receive",
        || {
            let twice = Layout::<u8>::indexed([(0, 2), (1, 2)]).unwrap();
            assert_eq!(twice.of(&[1, 2, 3]).unwrap().pack(), [1, 2, 2, 3]);
            expect_error!(twice.of_mut(&mut [0; 3]), LayoutError::Overlap { .. });
        },
    );
    cases.section("5.1.12");
    cases.value("layouts.outside", "a type selects only bytes of its buffer", || {
        let layout = Layout::<u16>::vector(3, 1, 2).unwrap();
        expect_error!(layout.of(&[0; 4]), LayoutError::BeyondSlice { end: 10, len: 8, .. });
        let backwards = Layout::<u16>::vector(2, 1, -1).unwrap();
        expect_error!(backwards.of(&[0; 4]), LayoutError::BeyondSlice { first: -2, .. });
    });
}

fn packing(cases: &mut Cases) {
    cases.section("5.2");
    cases.add("layouts.packed", 2, "packed bytes are received in a type, and the reverse", |job| {
        let layout = Layout::vector(3, 2, 3)?;
        let array: [u8; 8] = std::array::from_fn(|i| i as u8);
        let mut bytes = [0; 6];
        if job.rank() == 0 {
            assert_eq!(layout.of(&array)?.pack_into(&mut bytes)?, 6);
            job.comm.send(&bytes, Rank(1), TAG)?;
            return job.comm.send_view(layout.of(&array)?, Rank(1), TAG);
        }
        for _ in 0..2 {
            let mut into = [9; 8];
            let mut view = layout.of_mut(&mut into)?;
            job.comm.recv(&mut bytes, Rank(0), TAG)?;
            view.unpack_from(&bytes)?;
            assert_eq!(into, [0, 1, 9, 3, 4, 9, 6, 7]);
        }
        Ok(())
    });
    cases.value("layouts.packed-length", "the packed length must be that of the type", || {
        let layout = Layout::<u16>::vector(2, 1, 2).unwrap();
        let mut array = [0; 3];
        let mut view = layout.of_mut(&mut array).unwrap();
        expect_error!(view.unpack_from(&[0; 5]), LayoutError::PackedLength { expected: 4, len: 5, .. });
        expect_error!(view.as_view().pack_into(&mut [0; 3]), LayoutError::PackedLength { .. });
    });
}
