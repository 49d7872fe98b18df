//! One-sided windows: MPI 4.1, chapter 12.

use std::fmt::Debug;

use samite::reduction::{ComplexF64, LocatedF32, LocatedF64};
use samite::{
    Access, AccessKind, CancelToken, Epoch, Error, Exposure, Fence, Layout, Lock, LockKind, Rank, Request,
    Window, WindowError, WindowHints, WindowNumber, WindowOp, WindowRegion,
};

use super::transfers::SIZES;
use crate::case::{Cases, Job, SHORT, bytes, expect_error, until};

pub(crate) fn add(cases: &mut Cases) {
    cases.section("12.2");
    windows(cases);
    shared(cases);
    slices(cases);
    failures(cases);
    dynamic(cases);
    for (name, access) in ACCESSES {
        transfers(cases, name, *access);
    }
    layouts(cases);
    atomics(cases);
    requests(cases);
    epochs(cases);
    locks(cases);
    early(cases);
    misuse(cases);
    cases.section("12.7");
    semantics(cases);
    hints(cases);
}

/// An open epoch of any kind with operations.
enum Open<'w, T: samite::Element> {
    Fence(Epoch<'w, T, Fence>),
    Pair(Epoch<'w, T, Access>, Epoch<'w, T, Exposure>),
    Lock(Epoch<'w, T, Lock>),
}

/// Opens an epoch in which this rank accesses the parts of all ranks of the job.
type Accesses = for<'w> fn(&Job, &'w Window<u8>) -> Result<Open<'w, u8>, Error>;

const ACCESSES: &[(&str, Accesses)] = &[
    ("fence", |_, window| window.fence().map(Open::Fence)),
    ("start", |job, window| {
        let all: Vec<Rank> = (0..job.size()).map(Rank).collect();
        let exposure = window.post(&all)?;
        Ok(Open::Pair(window.start(&all)?, exposure))
    }),
    ("lock_all", |_, window| window.lock_all().map(Open::Lock)),
];

impl Open<'_, u8> {
    fn put(&self, to: Rank, at: usize, data: &[u8]) -> Result<(), Error> {
        match self {
            Self::Fence(epoch) => epoch.put(to, at, data),
            Self::Pair(epoch, _) => epoch.put(to, at, data),
            Self::Lock(epoch) => epoch.put(to, at, data),
        }
    }

    fn get(&self, from: Rank, at: usize, into: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Fence(epoch) => epoch.get(from, at, into),
            Self::Pair(epoch, _) => epoch.get(from, at, into),
            Self::Lock(epoch) => epoch.get(from, at, into),
        }
    }

    /// Closes the epoch, also at the other ranks, so that all of their operations are over.
    fn close(self, job: &Job) -> Result<(), Error> {
        match self {
            Self::Fence(epoch) => epoch.close(),
            Self::Pair(access, exposure) => {
                access.close()?;
                exposure.close()
            }
            Self::Lock(epoch) => {
                epoch.close()?;
                job.comm.barrier()
            }
        }
    }
}

fn windows(cases: &mut Cases) {
    let rule = "the parts of a window may have different lengths, also none";
    cases.add("window.lengths", 3, rule, |job| {
        let window = job.comm.window(vec![0_u16; job.rank() as usize])?;
        let epoch = window.fence()?;
        for to in 0..job.size() {
            epoch.put(Rank(to), 0, &vec![7; if job.rank() == 1 { to as usize } else { 0 }])?;
        }
        epoch.close()?;
        assert_eq!(window.free()?, vec![7; job.rank() as usize]);
        Ok(())
    });
    let rule = "an allocated part is as good as one that the program provides";
    cases.add("window.allocate", 3, rule, |job| {
        let window = job.comm.allocate_window::<u16>(3 * job.rank() as usize)?;
        assert_eq!(window.len(), 3 * job.rank() as usize);
        let epoch = window.lock_all()?;
        for to in 1..job.size() {
            let (first, last) = (job.rank() as usize, 3 * to as usize - 1);
            epoch.put(Rank(to), first.min(last - 1), &[7])?;
            epoch.flush(Rank(to))?;
            epoch.accumulate(Rank(to), last, &[1], WindowOp::Sum)?;
            assert!(epoch.fetch(Rank(to), last, 0, WindowOp::NoOp)? >= 1);
            let seen = epoch.compare_swap(Rank(to), last, u16::MAX, 0)?;
            assert!((1..=3).contains(&seen));
        }
        epoch.flush_all()?;
        job.comm.barrier()?;
        for to in 1..job.size() {
            let mut part = vec![0; 3 * to as usize];
            epoch.get(Rank(to), 0, &mut part)?;
            assert_eq!((part[0], part[part.len() - 1]), (7, 3));
        }
        job.comm.barrier()?;
        epoch.close()?;
        let part = window.free()?;
        let last = part.last().copied();
        assert_eq!((part.len(), last), (3 * job.rank() as usize, (job.rank() > 0).then_some(3)));
        Ok(())
    });
    cases.add("window.allocate_long", 2, "elements of 16 bytes are atomic in allocated parts", |job| {
        let window = job.comm.allocate_window::<u128>(2)?;
        let epoch = window.lock_all()?;
        for _ in 0..50 {
            epoch.accumulate(Rank(0), 1, &[1 << 64 | 1], WindowOp::Sum)?;
        }
        epoch.close()?;
        let part = window.free()?;
        assert!(job.rank() > 0 || part == [0, 100 << 64 | 100]);
        Ok(())
    });
    cases.add("window.several", 2, "the windows of a communicator are apart", |job| {
        let windows = [1_u8, 2, 3].map(|_| job.comm.window(vec![0_u8; 1]));
        let windows = windows.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (window, value) in windows.iter().zip(1..) {
            let epoch = window.fence()?;
            epoch.put(job.other(), 0, &[value])?;
            epoch.close()?;
        }
        for (window, value) in windows.into_iter().zip(1..) {
            assert_eq!(window.free()?, [value]);
        }
        Ok(())
    });
    cases.add("window.communicators", 2, "the windows of two communicators are apart", |job| {
        let other = job.comm.dup()?;
        let (first, second) = (job.comm.window(vec![0_u8; 1])?, other.window(vec![0_u8; 1])?);
        let epoch = second.fence()?;
        epoch.put(job.other(), 0, &[5])?;
        epoch.close()?;
        assert_eq!((first.free()?, second.free()?), (vec![0], vec![5]));
        Ok(())
    });
    cases.add("window.self", 1, "a rank accesses its own part", |job| {
        let window = job.comm.window(vec![1_u32; 2])?;
        let epoch = window.lock(Rank(0), LockKind::Exclusive)?;
        epoch.put(Rank(0), 1, &[4])?;
        assert_eq!(epoch.fetch(Rank(0), 1, 2, WindowOp::Product)?, 4);
        epoch.close()?;
        assert_eq!(window.free()?, [1, 8]);
        Ok(())
    });
    cases.add("window.late", 2, "a rank may create its part after others have accessed it", |job| {
        if job.rank() == 0 {
            let window = job.comm.window(vec![0_u8; 1])?;
            let epoch = window.lock(Rank(1), LockKind::Shared)?;
            epoch.put(Rank(1), 0, &[9])?;
            let end = epoch.iclose()?;
            job.comm.send(&[1_u8], Rank(1), 7)?;
            end.wait()?;
            window.free().map(drop)
        } else {
            job.comm.recv(&mut [0_u8], Rank(0), 7)?;
            assert_eq!(job.comm.window(vec![0_u8; 1])?.free()?, [9]);
            Ok(())
        }
    });
    let rule = "free returns when all ranks have freed the window, with the results of all epochs";
    cases.add("window.free", 4, rule, |job| {
        let window = job.comm.window(vec![0_u64; 1])?;
        let epoch = window.lock(job.ring().0, LockKind::Shared)?;
        epoch.put(job.ring().0, 0, &[3])?;
        drop(epoch);
        assert_eq!(window.free()?, [3]);
        Ok(())
    });
}

fn transfers(cases: &mut Cases, access: &str, open: Accesses) {
    for &(size, length) in SIZES {
        cases.section("12.3.1");
        let rule = "a put is at its target when the epoch has completed";
        cases.add(format!("put.{access}.{size}"), 3, rule, move |job| {
            let len = length(job);
            let window = job.comm.window(vec![0_u8; 3 * len + 1])?;
            let epoch = open(job, &window)?;
            for to in 0..3 {
                let seed = u64::from(job.rank() * 3 + to);
                epoch.put(Rank(to), job.rank() as usize * len, &bytes(seed, len))?;
            }
            epoch.close(job)?;
            for from in 0..3 {
                let at = from as usize * len;
                assert!(window.read_vec(at..at + len)? == bytes(u64::from(from * 3 + job.rank()), len));
            }
            assert_eq!(window.free()?[3 * len], 0);
            Ok(())
        });
        cases.section("12.3.2");
        cases.add(format!("get.{access}.{size}"), 3, "a get returns the bytes of its target", move |job| {
            let len = length(job);
            let window = job.comm.window([vec![9; 3], bytes(u64::from(job.rank()), len)].concat())?;
            let epoch = open(job, &window)?;
            for from in 0..3 {
                let mut into = vec![0; len];
                epoch.get(Rank(from), 3, &mut into)?;
                assert!(into == bytes(u64::from(from), len));
            }
            epoch.close(job)?;
            window.free().map(drop)
        });
    }
}

fn layouts(cases: &mut Cases) {
    for allocates in [false, true] {
        let create = move |job: &Job, part: Vec<u32>| {
            if !allocates {
                return job.comm.window(part);
            }
            let window = job.comm.allocate_window(part.len())?;
            window.write(0, &part)?;
            job.comm.barrier()?;
            Ok(window)
        };
        let kind = if allocates { "allocated" } else { "provided" };
        // Each element is a block of its own, so only few of them are used.
        for &(size, length) in &SIZES[..2] {
            cases.section("12.3.1");
            let rule = "a put writes the elements that the target's layout selects, and no others";
            cases.add(format!("put.layout.{kind}.{size}"), 3, rule, move |job| {
                let len = length(job);
                let window = create(job, vec![u32::MAX; 3 * len + 3])?;
                let column = Layout::vector(len, 1, 3)?;
                let numbers: Vec<u32> = (0..2 * len as u32).map(|index| index * 8 + job.rank()).collect();
                let epoch = window.fence()?;
                for to in 0..3 {
                    let data = Layout::vector(len, 1, 2)?;
                    epoch.put_view(Rank(to), job.rank() as usize, &column, data.of(&numbers)?)?;
                }
                epoch.close()?;
                let part = window.free()?;
                assert_eq!(part[3 * len..], [u32::MAX; 3]);
                let expected = |index: usize| index as u32 / 3 * 16 + index as u32 % 3;
                assert!((0..3 * len).all(|index| part[index] == expected(index)));
                Ok(())
            });
            cases.section("12.3.2");
            let rule = "a get reads the elements that the target's layout selects, in its order";
            cases.add(format!("get.layout.{kind}.{size}"), 2, rule, move |job| {
                let len = length(job);
                let window = create(job, (0..2 * len as u32).map(|index| index * 2 + job.rank()).collect())?;
                let backwards = Layout::vector(len, 1, -2)?;
                let expected: Vec<_> = (0..len as u32).rev().map(|row| row * 4 + 2 + job.other().0).collect();
                let epoch = window.lock(job.other(), LockKind::Shared)?;
                let at = (2 * len).saturating_sub(1);
                let mut into = vec![0; len];
                epoch.get_view(job.other(), at, &backwards, &mut into[..])?;
                assert!(into == expected);
                let room = Layout::vector(len, 1, 3)?.of_owned(vec![7; 3 * len])?;
                let got = epoch.iget_view(job.other(), at, &backwards, room)?.wait()?.buffer.into_buffer();
                epoch.close()?;
                assert!(
                    got.iter().step_by(3).eq(&expected) && got.iter().skip(1).step_by(3).all(|gap| *gap == 7)
                );
                job.comm.barrier()?;
                window.free().map(drop)
            });
            cases.section("12.3.4");
            let rule = "an accumulate changes each element that the target's layout selects once";
            cases.add(format!("accumulate.layout.{kind}.{size}"), 3, rule, move |job| {
                let len = length(job);
                let window = create(job, vec![1; 2 * len])?;
                let epoch = window.lock_all()?;
                let second = Layout::vector(len, 1, 2)?;
                let ones = vec![job.rank() + 1; len];
                epoch.accumulate_view(Rank(0), 1, &second, &ones[..], WindowOp::Sum)?;
                let former = epoch.iget_accumulate_view(Rank(1), 0, &second, ones, WindowOp::Sum)?;
                assert!(former.wait()?.buffer.iter().all(|former| (1..=6).contains(former)));
                epoch.close()?;
                job.comm.barrier()?;
                let expected = [[1, 7], [7, 1], [1, 1]][job.rank() as usize];
                assert!(window.free()?.chunks(2).all(|row| row == expected));
                Ok(())
            });
        }
    }
    for &(size, length) in &SIZES[2..] {
        cases.section("12.3.1");
        let rule = "a layout may have blocks that need several packets";
        cases.add(format!("put.layout.rows.{size}"), 2, rule, move |job| {
            let len = length(job);
            let window = job.comm.window(vec![9_u8; 2 * len + 1])?;
            let rows = Layout::vector(2, len, len as isize + 1)?;
            let data = bytes(u64::from(job.rank()), 2 * len);
            let epoch = window.lock(job.other(), LockKind::Shared)?;
            epoch.put_view(job.other(), 0, &rows, &data[..])?;
            epoch.flush(job.other())?;
            let mut into = vec![0; 2 * len];
            epoch.get_view(job.other(), 0, &rows, &mut into[..])?;
            assert!(into == data);
            epoch.close()?;
            job.comm.barrier()?;
            let (part, expected) = (window.free()?, bytes(u64::from(job.other().0), 2 * len));
            assert!(part[..len] == expected[..len] && part[len] == 9 && part[len + 1..] == expected[len..]);
            Ok(())
        });
    }
    cases.section("12.3.4");
    let rule = "accumulates with layouts keep the order of the calls";
    cases.add("accumulate.layout.order", 2, rule, |job| {
        let window = job.comm.window(vec![0_u64; 100])?;
        let (even, all) = (Layout::vector(50, 1, 2)?, Layout::contiguous(100)?);
        let epoch = window.fence()?;
        for value in 1..=20 {
            epoch.accumulate_view(job.other(), 0, &all, &[value; 100], WindowOp::Replace)?;
            epoch.accumulate_view(job.other(), 0, &even, &[value * 100; 50], WindowOp::Replace)?;
        }
        epoch.close()?;
        assert_eq!(window.free()?, [2000, 20].repeat(50));
        Ok(())
    });
}

/// Returns the result of an accumulate of all ranks of a job, of which each has the operand `mine(rank)`.
fn accumulated<T: WindowNumber + PartialEq + Debug>(
    job: &Job,
    start: T,
    mine: impl Fn(u32) -> T,
    op: WindowOp,
) -> Result<Vec<T>, Error> {
    let window = job.comm.window(vec![start; 3])?;
    let epoch = window.lock_all()?;
    epoch.accumulate(Rank(0), 1, &[mine(job.rank())], op)?;
    epoch.close()?;
    job.comm.barrier()?;
    window.free()
}

fn atomics(cases: &mut Cases) {
    macro_rules! numbers {
        ($($type:ident)*) => {
            $({
                cases.section("12.3.4");
                let rule = "an accumulate of several ranks combines each of their elements once";
                cases.add(concat!("accumulate.", stringify!($type)), 4, rule, |job| {
                    for (op, expected) in [
                        (WindowOp::Sum, 2 + 1 + 2 + 3 + 4),
                        (WindowOp::Product, 2 * 24),
                        (WindowOp::Min, 1),
                        (WindowOp::Max, 4),
                    ] {
                        let part = accumulated(job, 2 as $type, |rank| (rank + 1) as $type, op)?;
                        let expected = if job.rank() == 0 { expected as $type } else { 2 as $type };
                        assert_eq!(part, [2 as $type, expected, 2 as $type], "{op:?}");
                    }
                    Ok(())
                });
                let rule = "each fetch of several ranks returns another former element";
                cases.add(concat!("fetch.", stringify!($type)), 4, rule, |job| {
                    let window = job.comm.window(vec![0 as $type; 2])?;
                    let epoch = window.lock(Rank(2), LockKind::Shared)?;
                    let mut before = vec![0 as $type; 2];
                    for before in &mut before {
                        *before = epoch.fetch(Rank(2), 1, 1 as $type, WindowOp::Sum)?;
                    }
                    epoch.close()?;
                    let mut all = vec![0 as $type; 8];
                    job.comm.allgather(&before, &mut all)?;
                    all.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
                    assert_eq!(all, (0..8).map(|number| number as $type).collect::<Vec<_>>());
                    window.free().map(drop)
                });
            })*
        };
    }
    numbers! { u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 f32 f64 }
    bits(cases);
    cases.section("12.3.4");
    cases.add("accumulate.complex", 2, "complex numbers are added and multiplied", |job| {
        let number = |re: f64, im: f64| ComplexF64 { re, im };
        let part = accumulated(job, number(1.0, 1.0), |_| number(0.0, 1.0), WindowOp::Product)?;
        assert!(job.rank() == 1 || part[1] == number(-1.0, -1.0), "{part:?}");
        Ok(())
    });
    cases.section("6.9.4");
    let rule = "the least and the greatest value have the location of their rank";
    cases.add("accumulate.location", 4, rule, |job| {
        const VALUES: [f64; 4] = [2.5, -1.0, 7.0, -1.0];
        let start = LocatedF64 { value: 0.5, location: 99 };
        let mine = |rank: u32| LocatedF64 { value: VALUES[rank as usize], location: rank.into() };
        let least = accumulated(job, start, mine, WindowOp::MinLocation)?;
        assert!(job.rank() > 0 || least[1] == mine(1), "{least:?}");
        let greatest = accumulated(job, start, mine, WindowOp::MaxLocation)?;
        assert!(job.rank() > 0 || greatest == [start, mine(2), start], "{greatest:?}");
        // A pair of 8 bytes can be changed by the origin.
        let window = job.comm.allocate_window::<LocatedF32>(2)?;
        let epoch = window.lock_all()?;
        let offer = LocatedF32 { value: VALUES[job.rank() as usize] as f32, location: job.rank() };
        epoch.fetch(Rank(0), 1, offer, WindowOp::MinLocation)?;
        epoch.close()?;
        job.comm.barrier()?;
        let part = window.free()?;
        assert!(job.rank() > 0 || part[1] == LocatedF32 { value: -1.0, location: 1 }, "{part:?}");
        Ok(())
    });
    cases.section("12.3.4");
    let rule = "replace writes, and no-op reads atomically";
    cases.add("accumulate.replace", 2, rule, |job| {
        let window = job.comm.window(vec![[1_u64, 2][job.rank() as usize]; 4])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        let before = epoch.iget_accumulate(job.other(), 0, vec![0; 4], WindowOp::NoOp)?.wait()?;
        assert_eq!(before.buffer, vec![u64::from(job.other().0) + 1; 4]);
        epoch.accumulate(job.other(), 1, &[7, 8], WindowOp::Replace)?;
        epoch.close()?;
        job.comm.barrier()?;
        let own = u64::from(job.rank()) + 1;
        assert_eq!(window.free()?, [own, 7, 8, own]);
        Ok(())
    });
    let rule = "accumulates of one rank to one element take place in the order of the calls";
    cases.add("accumulate.order", 2, rule, |job| {
        let window = job.comm.window(vec![0_u32; 1])?;
        let epoch = window.fence()?;
        for value in 1..=100 {
            epoch.accumulate(job.other(), 0, &[value], WindowOp::Replace)?;
        }
        epoch.close()?;
        assert_eq!(window.free()?, [100]);
        Ok(())
    });
    let rule = "an accumulate of many elements combines each of them";
    for &(size, length) in SIZES {
        cases.add(format!("accumulate.{size}"), 3, rule, move |job| {
            let len = length(job);
            let window = job.comm.window(vec![1_u32; len])?;
            let epoch = window.fence()?;
            epoch.accumulate(job.ring().0, 0, &vec![job.rank() + 1; len], WindowOp::Sum)?;
            epoch.close()?;
            assert!(window.free()? == vec![job.ring().1.0 + 2; len]);
            Ok(())
        });
    }
    cases.section("12.3.4.4");
    let rule = "of several swaps that expect the same value one takes place";
    cases.add("swap.once", 4, rule, |job| {
        let window = job.comm.window(vec![-1_i64; 1])?;
        let epoch = window.lock_all()?;
        let before = epoch.compare_swap(Rank(1), 0, -1, i64::from(job.rank()))?;
        epoch.close()?;
        let mut all = vec![0; 4];
        job.comm.allgather(&[before], &mut all)?;
        assert_eq!(all.iter().filter(|before| **before == -1).count(), 1, "{all:?}");
        let part = window.free()?;
        assert!(job.rank() != 1 || all[usize::try_from(part[0]).expect("a rank")] == -1);
        Ok(())
    });
    cases.add("swap.other", 1, "a swap that expects another value changes nothing", |job| {
        let window = job.comm.window(vec![5_u16; 2])?;
        let epoch = window.lock_all()?;
        assert_eq!(epoch.compare_swap(Rank(0), 1, 4, 9)?, 5);
        assert_eq!(epoch.icompare_swap(Rank(0), 0, 5, 6)?.wait()?.buffer[0], 5);
        epoch.close()?;
        assert_eq!(window.free()?, [6, 5]);
        Ok(())
    });
}

fn bits(cases: &mut Cases) {
    cases.section("12.3.4");
    // The element is 6 at first. The operands of the two ranks follow, then the result.
    for (name, op, operands, expected) in [
        ("land", WindowOp::LogicalAnd, [4_u64, 0], 0_u64),
        ("lor", WindowOp::LogicalOr, [0, 0], 1),
        ("lxor", WindowOp::LogicalXor, [4, 8], 1),
        ("band", WindowOp::BitAnd, [5, 12], 4),
        ("bor", WindowOp::BitOr, [1, 8], 15),
        ("bxor", WindowOp::BitXor, [4, 8], 10),
    ] {
        let rule = "the logical operations and those on bits are those of reductions";
        cases.add(format!("accumulate.{name}"), 2, rule, move |job| {
            let part = accumulated(job, 6, |rank| operands[rank as usize], op)?;
            assert!(job.rank() == 1 || part[1] == expected, "{part:?}");
            Ok(())
        });
    }
}

fn requests(cases: &mut Cases) {
    cases.section("12.3.5");
    for &(size, length) in SIZES {
        let rule = "a request of a get returns the bytes, and one of a put its buffer";
        cases.add(format!("request.{size}"), 2, rule, move |job| {
            let len = length(job);
            let window = job.comm.window(bytes(u64::from(job.rank()), len))?;
            let epoch = window.lock(job.other(), LockKind::Shared)?;
            let mut get = epoch.iget(job.other(), 0, vec![0; len])?;
            let got = until(job, || get.test().transpose().map_err(Error::from))?;
            assert!(got.buffer == bytes(u64::from(job.other().0), len));
            epoch.close()?;
            job.comm.barrier()?;
            let epoch = window.lock(job.other(), LockKind::Shared)?;
            let put = epoch.iput(job.other(), 0, bytes(9, len))?;
            assert!(put.wait()?.buffer == bytes(9, len));
            epoch.close()?;
            job.comm.barrier()?;
            assert!(window.free()? == bytes(9, len));
            Ok(())
        });
    }
    cases.add(
        "request.compare_swap",
        4,
        "one of several swaps of an element finds the value that it expects",
        |job| {
            let window = job.comm.window(vec![0_u64; 2])?;
            let epoch = window.lock_all()?;
            let (rank, element) = (u64::from(job.rank()) + 1, usize::from(job.rank() % 2 == 0));
            let swap = epoch.icompare_swap(Rank(0), element, 0, rank)?;
            let before = swap.wait()?.buffer[0];
            let sums =
                epoch.iget_accumulate(Rank(0), element, vec![u64::from(before == 0) << 8], WindowOp::Sum)?;
            assert!(sums.wait()?.buffer[0] > 0, "an element was swapped");
            epoch.close()?;
            let part = window.free()?;
            assert!(job.rank() > 0 || part.iter().all(|element| element >> 8 == 1), "{part:?}");
            Ok(())
        },
    );
    let rule = "each of several requests that change an element returns another former value";
    cases.add("request.get_accumulate", 3, rule, |job| {
        let window = job.comm.window(vec![0_u32; 1])?;
        let epoch = window.lock_all()?;
        let sums = (0..10).map(|_| epoch.iget_accumulate(Rank(1), 0, vec![1], WindowOp::Sum));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let former =
            sums.into_iter().map(|sum| Ok(sum.wait()?.buffer[0])).collect::<Result<Vec<_>, Error>>()?;
        epoch.close()?;
        assert!(former.is_sorted(), "the order of the calls: {former:?}");
        let mut all = vec![0; 3 * former.len()];
        job.comm.allgather(&former, &mut all)?;
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..30), "{all:?}");
        let part = window.free()?;
        assert!(job.rank() != 1 || part == [30]);
        Ok(())
    });
    let rule = "a request of an accumulate returns its data, and the accumulate is done at the flush";
    cases.add("request.accumulate", 3, rule, |job| {
        let window = job.comm.window(vec![0_u32; 2000])?;
        let epoch = window.lock_all()?;
        let data = vec![job.rank() + 1; 1000];
        let all = epoch.iaccumulate(Rank(1), 0, data, WindowOp::Sum)?;
        let odd = Layout::vector(500, 1, 2)?;
        let some = epoch.iaccumulate_view(Rank(1), 1001, &odd, vec![7_u32; 500], WindowOp::Max)?;
        assert_eq!(all.wait()?.buffer, vec![job.rank() + 1; 1000]);
        assert_eq!(some.wait()?.buffer, [7; 500]);
        epoch.flush(Rank(1))?;
        epoch.close()?;
        job.comm.barrier()?;
        let part = window.free()?;
        let expected = |at: usize| if at < 1000 { 6 } else { 7 * (at as u32 % 2) };
        assert!(job.rank() != 1 || part.iter().copied().eq((0..2000).map(expected)));
        Ok(())
    });
    let rule = "an operation whose request is dropped is done at the end of its epoch";
    cases.add("request.dropped", 2, rule, |job| {
        let window = job.comm.window(vec![0_u8; 100_003])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        drop(epoch.iput(job.other(), 0, bytes(7, 100_000))?);
        drop(epoch.iget(job.other(), 0, vec![0; 100_000])?);
        drop(epoch.iget_accumulate(job.other(), 100_000, vec![5], WindowOp::Sum)?);
        drop(epoch.icompare_swap(job.other(), 100_001, 0, 6)?);
        drop(epoch.iflush_all()?);
        epoch.close()?;
        job.comm.barrier()?;
        assert!(window.free()? == [bytes(7, 100_000), vec![5, 6, 0]].concat());
        Ok(())
    });
    cases.add("request.free", 3, "a program may do other things until a window is freed", |job| {
        let window = job.comm.window(vec![job.rank(); 1])?;
        let mut freed = window.ifree()?;
        if job.rank() == 0 {
            job.comm.send(&[1_u8], Rank(1), 7)?;
        } else if job.rank() == 1 {
            job.comm.recv(&mut [0_u8], Rank(0), 7)?;
        }
        let part = until(job, || freed.test().transpose().map_err(Error::from))?;
        assert_eq!(part.buffer, [job.rank()]);
        Ok(())
    });
    let rule = "requests of windows and of messages are waited for together";
    cases.add("request.set", 2, rule, |job| {
        let window = job.comm.window(vec![job.rank(); 1])?;
        let epoch = window.lock_all()?;
        let mut set = job.comm.request_set();
        assert!(set.insert(job.comm.irecv(vec![0_u32; 1], job.other(), 7)?).is_ok());
        assert!(set.insert(epoch.iget(job.other(), 0, vec![0_u32; 1])?).is_ok());
        job.comm.send(&[job.rank()], job.other(), 7)?;
        while let Some((_, ended)) = set.wait_any() {
            assert_eq!(ended?.buffer, [job.other().0]);
        }
        epoch.close()?;
        window.free().map(drop)
    });
}

fn epochs(cases: &mut Cases) {
    cases.section("12.5.1");
    cases.add("fence.rounds", 4, "a fence separates the operations before it from those after it", |job| {
        let window = job.comm.window(vec![0_u32; 4])?;
        let mut epoch = window.fence()?;
        for round in 1..=5 {
            for to in 0..4 {
                epoch.put(Rank(to), job.rank() as usize, &[round])?;
            }
            epoch = epoch.next()?;
            for from in 0..4 {
                let mut seen = [0; 4];
                epoch.get(Rank(from), 0, &mut seen)?;
                assert_eq!(seen, [round; 4]);
            }
            epoch = epoch.next()?;
        }
        epoch.close()?;
        window.free().map(drop)
    });
    cases.add("fence.requests", 3, "fences that do not wait separate operations too", |job| {
        let window = job.comm.window(vec![0_u32; 1])?;
        let mut epoch = window.fence()?;
        let mut reads = Vec::new();
        for round in 1..=4 {
            epoch.put(job.ring().0, 0, &[round])?;
            let (_, next) = epoch.inext()?;
            reads.push((round, next.iget(job.ring().0, 0, vec![0])?));
            let (_, next) = next.inext()?;
            epoch = next;
        }
        epoch.close()?;
        for (round, read) in reads {
            assert_eq!(read.wait()?.buffer, [round]);
        }
        window.free().map(drop)
    });
    cases.section("12.5.2");
    cases.add("start.ring", 4, "an access matches the exposure of each target for this origin", |job| {
        let (next, previous) = job.ring();
        let window = job.comm.window(vec![0_u32; 1])?;
        for round in 1..=5 {
            let exposure = window.post(&[previous])?;
            let access = window.start(&[next])?;
            access.put(next, 0, &[round * 10 + job.rank()])?;
            access.close()?;
            exposure.close()?;
            assert_eq!(window.read_vec(0..1)?, [round * 10 + previous.0]);
        }
        window.free().map(drop)
    });
    cases.add("start.order", 2, "exposures and accesses match in the order of the calls", |job| {
        let window = job.comm.window(vec![0_u32; 1])?;
        let mut ends = Vec::new();
        for round in 1..=10 {
            if job.rank() == 0 {
                ends.push(window.post(&[Rank(1)])?.iclose()?);
            } else {
                let access = window.start(&[Rank(0)])?;
                access.accumulate(Rank(0), 0, &[round], WindowOp::Sum)?;
                ends.push(access.iclose()?);
            }
        }
        for end in ends {
            end.wait()?;
        }
        assert_eq!(window.free()?, [if job.rank() == 0 { 55 } else { 0 }]);
        Ok(())
    });
    cases.add("wait.test", 2, "a test is true once all origins have completed", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        if job.rank() == 0 {
            let exposure = window.post(&[Rank(1)])?;
            job.comm.send(&[1_u8], Rank(1), 7)?;
            until(job, || Ok(exposure.is_finished()?.then_some(())))?;
            exposure.close()?;
            assert_eq!(window.read_vec(0..1)?, [5]);
        } else {
            job.comm.recv(&mut [0_u8], Rank(0), 7)?;
            let access = window.start(&[Rank(0)])?;
            access.put(Rank(0), 0, &[5])?;
            access.close()?;
        }
        window.free().map(drop)
    });
    cases.add("start.nothing", 2, "epochs for no ranks complete at once", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        window.start(&[])?.close()?;
        window.post(&[])?.close()?;
        window.free().map(drop)
    });
}

fn locks(cases: &mut Cases) {
    cases.section("12.5.3");
    for (name, ranks) in [("two", 2), ("many", 5)] {
        let rule = "an exclusive lock makes the operations of its epoch one step";
        cases.add(format!("lock.exclusive.{name}"), ranks, rule, |job| {
            let window = job.comm.window(vec![0_u64; 1])?;
            for _ in 0..6 {
                let epoch = window.lock(Rank(0), LockKind::Exclusive)?;
                let mut value = [0];
                epoch.get(Rank(0), 0, &mut value)?;
                epoch.put(Rank(0), 0, &[value[0] + 1])?;
                epoch.close()?;
            }
            let part = window.free()?;
            assert!(job.rank() != 0 || part == [6 * u64::from(job.size())]);
            Ok(())
        });
    }
    cases.add("lock.shared", 3, "several ranks hold a shared lock at the same time", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        let epoch = window.lock(Rank(0), LockKind::Shared)?;
        epoch.fetch(Rank(0), 0, 1, WindowOp::Sum)?;
        // All ranks have the lock here.
        job.comm.barrier()?;
        epoch.close()?;
        let part = window.free()?;
        assert!(job.rank() != 0 || part == [3]);
        Ok(())
    });
    cases.add("lock.several", 3, "a rank holds locks at several ranks", |job| {
        let window = job.comm.window(vec![0_u8; 3])?;
        let epochs =
            (0..3).map(|rank| window.lock(Rank(rank), LockKind::Shared)).collect::<Result<Vec<_>, _>>()?;
        for (rank, epoch) in (0..3).zip(epochs) {
            epoch.put(Rank(rank), job.rank() as usize, &[job.rank() as u8 + 1])?;
            epoch.close()?;
        }
        job.comm.barrier()?;
        assert_eq!(window.free()?, [1, 2, 3]);
        Ok(())
    });
    cases.section("12.5.4");
    for (name, is_all) in [("one", false), ("all", true)] {
        let rule = "after a flush the operations are done at their target";
        cases.add(format!("flush.{name}"), 2, rule, move |job| {
            let window = job.comm.window(vec![0_u8; 2])?;
            let epoch = window.lock_all()?;
            epoch.put(job.other(), 0, &[4, 5])?;
            match is_all {
                true => epoch.flush_all()?,
                false => epoch.flush(job.other())?,
            }
            job.comm.barrier()?;
            assert_eq!(window.read_vec(0..2)?, [4, 5]);
            match is_all {
                true => epoch.iflush_all()?.wait()?,
                false => epoch.iflush(job.other())?.wait()?,
            };
            epoch.close()?;
            window.free().map(drop)
        });
    }
}

/// Epochs that a deadline or a cancel ends. The window goes on.
fn early(cases: &mut Cases) {
    cases.section("12.5");
    for (name, is_cancelled) in [("deadline", false), ("cancel", true)] {
        let bound = move |window: &mut Window<u8>| {
            let cancel = CancelToken::new();
            window.set_cancel(&cancel);
            window.set_timeout(Some(SHORT).filter(|_| !is_cancelled));
            cancel
        };
        let is_early = move |error: Error| match is_cancelled {
            true => matches!(error, Error::Cancelled { .. }),
            false => matches!(error, Error::Window(why) if matches!(*why, WindowError::TimedOut { .. })),
        };
        let is_aborted =
            |error: Error| matches!(error, Error::Window(why) if matches!(*why, WindowError::Aborted { .. }));
        let rule = "a wait for a lock that another rank holds ends early, and the lock still passes on";
        cases.add(format!("{name}.lock"), 2, rule, move |job| {
            let mut window = job.comm.window(vec![0_u8; 1])?;
            if job.rank() == 0 {
                let held = window.lock(Rank(0), LockKind::Exclusive)?;
                held.put(Rank(0), 0, &[1])?;
                held.flush(Rank(0))?;
                job.comm.barrier()?;
                job.comm.barrier()?;
                held.close()?;
            } else {
                job.comm.barrier()?;
                let cancel = bound(&mut window);
                let waits = window.lock(Rank(0), LockKind::Exclusive)?;
                waits.put(Rank(0), 0, &[2])?;
                let flush = waits.iflush(Rank(0))?;
                if is_cancelled {
                    cancel.cancel();
                }
                assert!(flush.wait().is_err_and(|failed| is_early(failed.error)));
                assert!(waits.close().is_err_and(is_early));
                unbound(&mut window);
                job.comm.barrier()?;
                let epoch = window.lock(Rank(0), LockKind::Exclusive)?;
                assert_eq!(epoch.fetch(Rank(0), 0, 3, WindowOp::Sum)?, 1, "nothing was put");
                epoch.close()?;
            }
            let part = window.free()?;
            assert!(job.rank() > 0 || part == [4]);
            Ok(())
        });
        let rule =
            "an access that ends early ends the exposure that it would have matched, and the next ones match";
        cases.add(format!("{name}.start"), 2, rule, move |job| {
            let mut window = job.comm.window(vec![0_u8; 1])?;
            if job.rank() == 0 {
                let cancel = bound(&mut window);
                let access = window.start(&[Rank(1)])?;
                access.put(Rank(1), 0, &[2])?;
                if is_cancelled {
                    cancel.cancel();
                }
                assert!(access.close().is_err_and(is_early));
                unbound(&mut window);
                job.comm.barrier()?;
                let access = window.start(&[Rank(1)])?;
                access.accumulate(Rank(1), 0, &[3], WindowOp::Sum)?;
                access.close()?;
            } else {
                job.comm.barrier()?;
                assert!(window.post(&[Rank(0)])?.close().is_err_and(is_aborted));
                window.post(&[Rank(0)])?.close()?;
                assert_eq!(window.read_vec(0..1)?, [3]);
            }
            window.free().map(drop)
        });
        let rule =
            "an exposure that ends early ends the access that it would have matched, and the next ones match";
        cases.add(format!("{name}.post"), 2, rule, move |job| {
            let mut window = job.comm.window(vec![0_u8; 1])?;
            if job.rank() == 0 {
                let cancel = bound(&mut window);
                let exposure = window.post(&[Rank(1)])?;
                if is_cancelled {
                    cancel.cancel();
                }
                assert!(exposure.close().is_err_and(is_early));
                unbound(&mut window);
                job.comm.barrier()?;
                let mut is_done = [0_u8];
                job.comm.recv(&mut is_done, Rank(1), 7)?;
                let part = window.read_vec(0..1)?;
                assert!(part == [9] || is_done == [0], "it was told that the put was done: {part:?}");
                window.post(&[Rank(1)])?.close()?;
                assert_eq!(window.read_vec(0..1)?, [3]);
            } else {
                job.comm.barrier()?;
                let access = window.start(&[Rank(0)])?;
                access.put(Rank(0), 0, &[9])?;
                // The news of the early end may still be on its way.
                let is_done = match access.close() {
                    Ok(()) => true,
                    Err(error) => {
                        assert!(is_aborted(error));
                        false
                    }
                };
                job.comm.send(&[u8::from(is_done)], Rank(0), 7)?;
                let access = window.start(&[Rank(0)])?;
                access.put(Rank(0), 0, &[3])?;
                access.close()?;
            }
            window.free().map(drop)
        });
    }
}

/// Undoes the bounds of a window.
fn unbound(window: &mut Window<u8>) {
    window.set_cancel(&CancelToken::new());
    window.set_timeout(None);
}

/// Returns the regions of all ranks.
fn exchange(job: &Job, region: WindowRegion) -> Result<Vec<WindowRegion>, Error> {
    let mut regions = vec![WindowRegion::default(); job.size() as usize];
    job.comm.allgather(&[region], &mut regions)?;
    Ok(regions)
}

/// Accesses the memory of all ranks in any kind of epoch.
fn accesses<K: AccessKind>(
    job: &Job,
    epoch: &Epoch<'_, u64, K>,
    regions: &[WindowRegion],
) -> Result<(), Error> {
    for region in regions {
        epoch.put(region.rank(), (*region, 1 + job.rank() as usize), &[7])?;
        epoch.accumulate(region.rank(), (*region, 0), &[1], WindowOp::Sum)?;
    }
    Ok(())
}

/// Returns the view of a rank's part, or `None` if the transport shares no memory with this rank.
fn view<'w, T: samite::Element>(
    window: &'w Window<T>,
    rank: Rank,
) -> Result<Option<samite::WindowView<'w, T>>, Error> {
    match window.view(rank) {
        Err(Error::Window(why)) if *why == (WindowError::NotShared { rank }) => Ok(None),
        viewed => viewed.map(Some),
    }
}

fn shared(cases: &mut Cases) {
    cases.section("12.2.3");
    for n in [1, 2, 5] {
        let rule = "each rank reads what the others have stored in their parts, of any size";
        cases.add(format!("shared.read.{n}"), n, rule, move |job| {
            let len = |rank: u32| (rank as usize % 3) * 7;
            let own = job.rank();
            let window = job.comm.allocate_window::<u16>(len(own))?;
            window.write(0, &vec![own as u16 + 1; len(own)])?;
            job.barrier()?;
            for of in 0..n {
                if let Some(view) = view(&window, Rank(of))? {
                    assert_eq!((view.rank(), view.len()), (Rank(of), len(of)));
                    assert_eq!(view.read_vec(0..len(of))?, vec![of as u16 + 1; len(of)]);
                }
            }
            job.barrier()?;
            window.free().map(drop)
        });
        let rule = "loads and stores in the part of a rank and its own calls see the same elements";
        cases.add(format!("shared.write.{n}"), n, rule, move |job| {
            let next = Rank((job.rank() + 1) % n);
            let window = job.comm.allocate_window::<u64>(3)?;
            let is_shared = match view(&window, next)? {
                Some(view) => {
                    view.write(0, &[job.rank().into(), 8])?;
                    view.store(2, 9)?;
                    true
                }
                None => false,
            };
            // The message follows the stores, and tells whether there were any.
            let before = Rank((job.rank() + n - 1) % n);
            let mut is_written = [0_u8];
            job.comm.sendrecv(&[u8::from(is_shared)], next, 1, &mut is_written, before, 1)?;
            let expected = if is_written == [1] { [before.0.into(), 8, 9] } else { [0; 3] };
            assert_eq!(window.read_vec(0..3)?, expected);
            window.free().map(drop)
        });
        let rule = "atomic operations of views and of epochs on an element take place one after another";
        cases.add(format!("shared.atomic.{n}"), n, rule, move |job| {
            let window = job.comm.allocate_window::<u32>(2)?;
            let epoch = window.lock_all()?;
            let view = view(&window, Rank(0))?;
            for _ in 0..50 {
                epoch.accumulate(Rank(0), 1, &[1], WindowOp::Sum)?;
                match &view {
                    Some(view) => view.fetch(1, 2, WindowOp::Sum)?,
                    None => epoch.fetch(Rank(0), 1, 2, WindowOp::Sum)?,
                };
            }
            epoch.close()?;
            job.barrier()?;
            assert_eq!(window.free()?, [0, if job.rank() == 0 { 150 * n } else { 0 }]);
            Ok(())
        });
    }
    let rule = "a window over a vector, a dynamic window and one with the hint for slices have no views";
    cases.add("shared.none", 2, rule, |job| {
        let windows = [
            job.comm.window(vec![1_u8])?,
            job.comm.allocate_window_with(1, WindowHints::NONE.slices())?,
            job.comm.dynamic_window()?,
        ];
        for window in windows {
            for rank in [Rank(0), Rank(1)] {
                assert_eq!(why(window.view(rank)), WindowError::NotShared { rank });
            }
            window.free()?;
        }
        Ok(())
    });
    let rule =
        "a view has what a failed rank has stored, and no view is made of a rank that has failed before";
    cases.failure("shared.failure", 3, rule, |job| {
        let window = job.comm.allocate_window::<u64>(1)?;
        let view = match job.rank() {
            0 => view(&window, Rank(2))?,
            _ => None,
        };
        if job.rank() == 2 {
            window.write(0, &[7])?;
            // Rank 0 has its view.
            job.comm.recv(&mut [0_u8; 0], Rank(0), 1)?;
            job.die();
        }
        if job.rank() == 0 {
            job.comm.send(&[0_u8; 0], Rank(2), 1)?;
        }
        expect_error!(job.comm.recv(&mut [0_u8; 1], Rank(2), 2), Error::PeerFailed { rank: Rank(2), .. });
        match (job.rank(), view) {
            (0, Some(view)) => assert_eq!(view.load(0)?, 7),
            (0, None) => {}
            _ => expect_error!(window.view(Rank(2)).map(drop), Error::PeerFailed { rank: Rank(2), .. }),
        }
        let rest = job.comm.group().exclude([2]);
        job.comm.create_from_group(&rest, 3)?.barrier()
    });
}

fn failures(cases: &mut Cases) {
    let rule = "an origin that repeats operations and flushes under a lock learns that the target has failed";
    cases.failure("lock.failure", 3, rule, |job| {
        let window = job.comm.allocate_window::<u64>(1)?;
        if job.rank() == 2 {
            job.comm.recv(&mut [0_u8; 0], Rank(0), 1)?;
            job.die();
        }
        if job.rank() == 0 {
            let epoch = window.lock(Rank(2), LockKind::Shared)?;
            epoch.put(Rank(2), 0, &[1])?;
            epoch.flush(Rank(2))?;
            job.comm.send(&[0_u8; 0], Rank(2), 1)?;
            let ended = loop {
                let ended = epoch.put(Rank(2), 0, &[1]).and_then(|()| epoch.flush(Rank(2)));
                if ended.is_err() {
                    break ended;
                }
            };
            expect_error!(ended, Error::PeerFailed { rank: Rank(2), .. });
            expect_error!(epoch.close(), Error::PeerFailed { rank: Rank(2), .. });
        }
        let rest = job.comm.group().exclude([2]);
        job.comm.create_from_group(&rest, 3)?.barrier()
    });
}

fn slices(cases: &mut Cases) {
    cases.section("12.5.3");
    for n in [1, 2, 4] {
        let rule = "a rank changes its part in place under its exclusive lock, and others wait for it";
        cases.add(format!("slices.lock.{n}"), n, rule, move |job| {
            let part: Vec<u32> = (0..10).rev().collect();
            let window = job.comm.window_with(part, WindowHints::NONE.slices())?;
            for round in 0..5 {
                let mut own = window.lock(job.comm.rank(), LockKind::Exclusive)?;
                own.part_mut()?.sort_unstable();
                own.close()?;
                let next = Rank((job.rank() + 1) % n);
                let other = window.lock(next, LockKind::Exclusive)?;
                other.put(next, 9 - round, &[0])?;
                other.close()?;
            }
            job.barrier()?;
            let mut own = window.lock(job.comm.rank(), LockKind::Exclusive)?;
            let mut part = own.part_mut()?;
            assert!(part.contains(&0) && part.len() == 10, "{part:?}");
            part.fill(job.rank());
            drop(part);
            own.close()?;
            assert_eq!(window.free()?, [job.rank(); 10]);
            Ok(())
        });
        let rule = "a rank changes its part in place between the epochs of fences";
        cases.add(format!("slices.fences.{n}"), n, rule, move |job| {
            let hints = WindowHints::NONE.slices();
            let mut window = job.comm.window_with(vec![0_u32; n as usize + 1], hints)?;
            for round in 1..=5 {
                let epoch = window.fence()?;
                for to in (0..n).map(Rank) {
                    epoch.put(to, job.rank() as usize, &[round + job.rank()])?;
                }
                epoch.close()?;
                let mut part = window.part_mut()?;
                let (last, found) = part.split_last_mut().expect("it has elements");
                assert!(found.iter().copied().eq((0..n).map(|origin| round + origin)), "{found:?}");
                *last += found.iter().sum::<u32>();
            }
            let sum: u32 = (1..=5).map(|round| (0..n).map(|origin| round + origin).sum::<u32>()).sum();
            assert_eq!(window.free()?[n as usize], sum);
            Ok(())
        });
    }
    cases.add("slices.misuse", 2, "a slice needs the hint, and the exclusive lock of the own part", |job| {
        let (own, other) = (job.comm.rank(), job.other());
        let plain = job.comm.window(vec![0_u8; 4])?;
        let mut epoch = plain.lock(own, LockKind::Exclusive)?;
        assert!(matches!(why(epoch.part_mut().map(drop)), WindowError::Unsuitable(_)));
        epoch.close()?;
        let window = job.comm.window_with(vec![0_u8; 4], WindowHints::NONE.slices())?;
        for (rank, kind) in [(own, LockKind::Shared), (other, LockKind::Exclusive)] {
            let mut epoch = window.lock(rank, kind)?;
            let refused = why(epoch.part_mut().map(drop));
            assert!(matches!(refused, WindowError::WrongState { .. } | WindowError::NotATarget { .. }));
            epoch.close()?;
        }
        job.barrier()?;
        window.free().and(plain.free()).map(drop)
    });
}

fn dynamic(cases: &mut Cases) {
    cases.section("12.2.4");
    let rule = "memory that a rank attaches to a dynamic window is accessed in epochs of all kinds";
    cases.add("dynamic.epochs", 3, rule, |job| {
        let window = job.comm.dynamic_window::<u64>()?;
        assert_eq!(window.len(), 0);
        let all: Vec<Rank> = (0..3).map(Rank).collect();
        for round in 0..3_u64 {
            // The lengths of the ranks differ.
            let own = window.attach(vec![round; 4 + job.rank() as usize])?;
            assert_eq!((own.rank(), own.len()), (job.comm.rank(), 4 + job.rank() as usize));
            let regions = exchange(job, own)?;
            let epoch = window.fence()?;
            accesses(job, &epoch, &regions)?;
            epoch.close()?;
            let (exposure, epoch) = (window.post(&all)?, window.start(&all)?);
            accesses(job, &epoch, &regions)?;
            epoch.close()?;
            exposure.close()?;
            let epoch = window.lock_all()?;
            accesses(job, &epoch, &regions)?;
            epoch.close()?;
            for region in &regions {
                let epoch = window.lock(region.rank(), LockKind::Exclusive)?;
                accesses(job, &epoch, std::slice::from_ref(region))?;
                epoch.close()?;
            }
            job.comm.barrier()?;
            let memory = window.detach(own)?;
            assert_eq!((memory[0], &memory[1..4]), (round + 12, &[7; 3][..]));
            assert!(memory[4..].iter().all(|element| *element == round));
        }
        window.free().map(drop)
    });
    let rule = "every kind of operation works on attached memory";
    cases.add("dynamic.operations", 2, rule, |job| {
        let window = job.comm.dynamic_window::<u32>()?;
        let long: Vec<u32> = (0..5000).collect();
        let regions = exchange(job, window.attach(long.clone())?)?;
        let (other, theirs) = (job.other(), regions[job.other().index()]);
        let epoch = window.lock(other, LockKind::Exclusive)?;
        let mut read = vec![0; long.len()];
        epoch.get(other, (theirs, 0), &mut read)?;
        assert!(read == long);
        epoch.put(other, (theirs, 3), &[30, 40])?;
        epoch.flush(other)?;
        assert_eq!(epoch.fetch(other, (theirs, 3), 5, WindowOp::Sum)?, 30);
        assert_eq!(epoch.compare_swap(other, (theirs, 4), 40, 50)?, 40);
        assert_eq!(
            epoch.iget_accumulate(other, (theirs, 5), vec![1, 1], WindowOp::Max)?.wait()?.buffer,
            [5, 6]
        );
        let second = Layout::vector(3, 1, 2)?;
        epoch.put_view(other, (theirs, 10), &second, &[1, 2, 3])?;
        epoch.flush(other)?;
        epoch.accumulate_view(other, (theirs, 10), &second, &[1, 1, 1], WindowOp::Sum)?;
        epoch.flush(other)?;
        let mut elements = [0; 3];
        epoch.get_view(other, (theirs, 10), &second, &mut elements)?;
        assert_eq!(elements, [2, 3, 4]);
        epoch.iput(other, (theirs, 4999), vec![8])?.wait()?;
        epoch.close()?;
        job.comm.barrier()?;
        let own = regions[job.rank() as usize];
        let mut end = [0; 2];
        window.read((own, 4998), &mut end)?;
        assert_eq!(end, [4998, 8]);
        window.write((own, 0), &[9])?;
        let memory = window.detach(own)?;
        assert_eq!(memory[..7], [9, 1, 2, 35, 50, 5, 6]);
        assert_eq!(memory[10..15], [2, 11, 3, 13, 4]);
        window.free().map(drop)
    });
    let rule = "an access to detached memory is an error at its origin, and disturbs nothing else";
    cases.add("dynamic.detached", 3, rule, |job| {
        let window = job.comm.dynamic_window::<u64>()?;
        let (kept, gone) = (window.attach(vec![0; 4])?, window.attach(vec![0; 4])?);
        window.detach(gone)?;
        let (kept, gone) = (exchange(job, kept)?, exchange(job, gone)?);
        let next = job.ring().1;
        let (kept, gone, own) = (kept[next.index()], gone[next.index()], kept[job.rank() as usize]);
        let missed = WindowError::NotAttached { rank: next, region: gone.id() };
        let epoch = window.lock_all()?;
        epoch.put(next, (gone, 0), &[5])?;
        epoch.accumulate(next, (kept, 0), &[6], WindowOp::Sum)?;
        assert_eq!(why(epoch.fetch(next, (gone, 1), 1, WindowOp::Sum)), missed);
        assert_eq!(why(epoch.get(next, (gone, 0), &mut [0; 4])), missed);
        assert_eq!(why(epoch.flush(next)), missed);
        epoch.put(next, (kept, 1), &[7])?;
        epoch.flush_all()?;
        assert_eq!(why(epoch.close()), missed);
        assert_eq!(
            why(window.detach(gone)),
            WindowError::NotAttached { rank: job.comm.rank(), region: gone.id() }
        );
        job.comm.barrier()?;
        assert_eq!(window.detach(own)?, [6, 7, 0, 0]);
        window.free().map(drop)
    });
    let rule = "a rank attaches memory in an epoch of other ranks, for example an element of a list";
    cases.add("dynamic.list", 3, rule, |job| {
        // The elements of a list are a value and the place of the next one.
        let window = job.comm.dynamic_window::<WindowRegion>()?;
        let head = window.attach(vec![WindowRegion::default(); 1])?;
        let head = exchange(job, head)?[0];
        let epoch = window.lock_all()?;
        let mut own = Vec::new();
        for turn in 0..9 {
            if turn % 3 == job.rank() {
                let mut next = [WindowRegion::default()];
                epoch.get(Rank(0), (head, 0), &mut next)?;
                own.push(window.attach(next.to_vec())?);
                epoch.put(Rank(0), (head, 0), &own[own.len() - 1..])?;
                epoch.flush(Rank(0))?;
            }
            job.comm.barrier()?;
        }
        let (mut at, mut ranks) = (head, Vec::new());
        loop {
            let mut next = [WindowRegion::default()];
            epoch.get(at.rank(), (at, 0), &mut next)?;
            if next[0].is_empty() {
                break;
            }
            at = next[0];
            ranks.push(at.rank().0);
        }
        assert_eq!(ranks, [2, 1, 0].repeat(3));
        epoch.close()?;
        job.comm.barrier()?;
        own.into_iter().try_for_each(|region| window.detach(region).map(drop))?;
        window.free().map(drop)
    });
    let rule = "places outside of a region, of another rank, or of another kind of window are errors";
    cases.add("dynamic.misuse", 2, rule, |job| {
        let window = job.comm.dynamic_window::<u16>()?;
        let regions = exchange(job, window.attach(vec![0; 4])?)?;
        let (other, theirs) = (job.other(), regions[job.other().index()]);
        let epoch = window.lock(other, LockKind::Shared)?;
        let outside = WindowError::OutOfBounds { rank: other, at: 6, bytes: 4, size: 8 };
        assert_eq!(why(epoch.put(other, (theirs, 3), &[1, 2])), outside);
        let own = regions[job.rank() as usize];
        let not_theirs = WindowError::NotAttached { rank: other, region: own.id() };
        assert_eq!(why(epoch.put(other, (own, 0), &[1])), not_theirs);
        assert!(matches!(why(epoch.put(other, 0, &[1])), WindowError::Unsuitable(_)));
        epoch.close()?;
        assert!(matches!(why(window.read((own, 3), &mut [0; 2])), WindowError::OutOfBounds { size: 8, .. }));
        let fixed = job.comm.window(vec![0_u16; 4])?;
        assert!(matches!(why(fixed.attach(vec![1])), WindowError::Unsuitable(_)));
        let epoch = fixed.lock(other, LockKind::Shared)?;
        assert!(matches!(why(epoch.put(other, (theirs, 0), &[1])), WindowError::Unsuitable(_)));
        epoch.close()?;
        fixed.free()?;
        window.free().map(drop)
    });
}

/// Returns the cause of an error of a window.
fn why<T>(result: Result<T, Error>) -> WindowError {
    match result.map(|_| ()) {
        Err(Error::Window(why)) => *why,
        other => panic!("{other:?}"),
    }
}

fn misuse(cases: &mut Cases) {
    cases.section("12.6.2");
    cases.add("misuse.rank", 2, "a rank outside of the communicator is an error", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        assert!(matches!(window.lock(Rank(2), LockKind::Shared), Err(Error::InvalidRank { .. })));
        assert!(matches!(window.start(&[Rank(7)]), Err(Error::InvalidRank { .. })));
        let epoch = window.fence()?;
        assert!(matches!(epoch.put(Rank(2), 0, &[1]), Err(Error::InvalidRank { .. })));
        epoch.close()?;
        window.free().map(drop)
    });
    cases.add("misuse.target", 2, "a rank that is no target of the epoch is an error", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        assert!(matches!(why(epoch.put(job.comm.rank(), 0, &[1])), WindowError::NotATarget { .. }));
        epoch.close()?;
        window.free().map(drop)
    });
    let rule = "an operation beyond the part is an error, and the window still works";
    cases.add("misuse.bounds", 2, rule, |job| {
        let window = job.comm.window(vec![0_u8; 4])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        let outside = epoch.put(job.other(), 3, &[1, 2]).and_then(|()| epoch.flush(job.other()));
        let ended = epoch.close();
        let outside = outside.and(ended).map_err(|error| error.to_string());
        assert!(outside.is_err_and(|error| error.contains("has 4 bytes")));
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        epoch.put(job.other(), 3, &[8])?;
        epoch.close()?;
        job.comm.barrier()?;
        assert_eq!(window.free()?, [0, 0, 0, 8]);
        Ok(())
    });
    let rule =
        "a layout that leaves the part, or does not suit the data, is an error before anything is written";
    cases.add("misuse.layout", 2, rule, |job| {
        let window = job.comm.window(vec![0_u32; 4])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        epoch.get(job.other(), 0, &mut [0])?;
        let second = Layout::vector(2, 1, 2)?;
        let outside = why(epoch.put_view(job.other(), 2, &second, &[1, 2]));
        assert!(matches!(outside, WindowError::OutOfBounds { at: 8, bytes: 12, size: 16, .. }), "{outside}");
        let before = why(epoch.put_view(job.other(), 1, &Layout::vector(2, 1, -2)?, &[1, 2]));
        assert!(matches!(before, WindowError::OutOfBounds { at: u64::MAX, .. }), "{before}");
        let short = why(epoch.put_view(job.other(), 0, &second, &[1]));
        assert_eq!(short, WindowError::LayoutLength { layout: 8, data: 4 });
        let twice = why(epoch.put_view(job.other(), 0, &Layout::vector(2, 1, 0)?, &[1, 2]));
        assert_eq!(twice, WindowError::LayoutOverlap);
        epoch.close()?;
        job.comm.barrier()?;
        assert_eq!(window.free()?, [0; 4]);
        Ok(())
    });
    cases.section("12.5");
    cases.add("misuse.state", 2, "epochs that exclude each other are errors", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        assert!(matches!(why(window.fence()), WindowError::WrongState { .. }));
        assert!(matches!(why(window.lock_all()), WindowError::WrongState { .. }));
        assert!(matches!(why(window.lock(job.other(), LockKind::Shared)), WindowError::WrongState { .. }));
        epoch.close()?;
        let epoch = window.lock_all()?;
        assert!(matches!(why(window.start(&[])), WindowError::WrongState { .. }));
        epoch.close()?;
        window.free().map(drop)
    });
    cases.section("12.3.4");
    cases.add("misuse.operation", 1, "an operation that is not defined for the type is an error", |job| {
        let window = job.comm.window(vec![1.0_f64; 1])?;
        let epoch = window.fence()?;
        let refused = why(epoch.accumulate(Rank(0), 0, &[1.0], WindowOp::BitOr));
        assert!(matches!(refused, WindowError::Unsuitable(_)), "{refused}");
        epoch.close()?;
        assert_eq!(window.free()?, [1.0]);
        Ok(())
    });
}

/// Increments an element of each rank's part in any kind of epoch.
fn counts<K: AccessKind>(job: &Job, epoch: &Epoch<'_, u64, K>) -> Result<(), Error> {
    (0..job.size()).try_for_each(|to| epoch.accumulate(Rank(to), 0, &[1], WindowOp::Sum))
}

fn semantics(cases: &mut Cases) {
    let rule = "atomic operations of all ranks in epochs of all kinds are not lost";
    cases.add("semantics.atomic", 3, rule, |job| {
        let window = job.comm.window(vec![0_u64; 1])?;
        let all: Vec<Rank> = (0..3).map(Rank).collect();
        for _ in 0..3 {
            let epoch = window.fence()?;
            counts(job, &epoch)?;
            epoch.close()?;
            let exposure = window.post(&all)?;
            let epoch = window.start(&all)?;
            counts(job, &epoch)?;
            epoch.close()?;
            exposure.close()?;
            let epoch = window.lock_all()?;
            counts(job, &epoch)?;
            epoch.close()?;
        }
        job.comm.barrier()?;
        assert_eq!(window.free()?, [27]);
        Ok(())
    });
    cases.add("semantics.late", 3, "a late target delays no epoch with another target", |job| {
        let window = job.comm.window(vec![0_u8; 1])?;
        match job.rank() {
            0 => {
                let late = window.start(&[Rank(1)])?.iclose()?;
                // Rank 1 exposes its part only after it has got this message, which rank 2 sends after this rank's
                // message.
                job.comm.send(&[1_u8], Rank(2), 7)?;
                late.wait()?;
            }
            1 => {
                job.comm.recv(&mut [0_u8], Rank(2), 8)?;
                window.post(&[Rank(0)])?.close()?;
            }
            _ => {
                job.comm.recv(&mut [0_u8], Rank(0), 7)?;
                job.comm.send(&[1_u8], Rank(1), 8)?;
            }
        }
        window.free().map(drop)
    });
    let rule = "windows and messages of the same ranks do not disturb each other";
    cases.add("semantics.messages", 2, rule, |job| {
        let window = job.comm.window(vec![0_u8; 5000])?;
        let epoch = window.lock(job.other(), LockKind::Shared)?;
        for seed in 0..5 {
            epoch.put(job.other(), 0, &bytes(seed, 5000))?;
            let send = job.comm.isend(bytes(seed + 50, job.long), job.other(), 7)?;
            let received = job.comm.recv_vec::<u8>(job.other(), 7)?;
            assert!(received.buffer == bytes(seed + 50, job.long));
            send.wait()?;
        }
        epoch.close()?;
        job.comm.barrier()?;
        assert!(window.free()? == bytes(4, 5000));
        Ok(())
    });
}

/// Rank 2 closes an epoch with rank 0, which comes late, and after it one with rank 1. The hint lets the later one
/// complete before rank 0 comes.
fn hints(cases: &mut Cases) {
    let iaccess = |window: &Window<u8>, target| -> Result<Request<()>, Error> {
        let epoch = window.start(&[Rank(target)])?;
        epoch.put(Rank(target), 0, &[9])?;
        epoch.iclose()
    };
    let access = move |window: &Window<u8>, target| -> Result<(), Error> {
        iaccess(window, target)?.wait()?;
        Ok(())
    };
    let exposure = |window: &Window<u8>, origin| window.post(&[Rank(origin)])?.close();
    let rule = "access epochs pass earlier ones if a hint permits it";
    cases.add("window.access_after_access", 3, rule, move |job| {
        let window = job.comm.window_with(vec![0_u8; 1], WindowHints::NONE.access_after_access())?;
        beside(job, &window, exposure, |window| {
            let first = iaccess(window, 0)?;
            access(window, 1)?;
            Ok(first)
        })
    });
    let rule = "access epochs pass earlier exposures if a hint permits it";
    cases.add("window.access_after_exposure", 3, rule, move |job| {
        let window = job.comm.window_with(vec![0_u8; 1], WindowHints::NONE.access_after_exposure())?;
        let partner = move |window: &Window<u8>, other| match job.rank() {
            0 => access(window, other),
            _ => exposure(window, other),
        };
        beside(job, &window, partner, |window| {
            let first = window.post(&[Rank(0)])?.iclose()?;
            access(window, 1)?;
            Ok(first)
        })
    });
    let rule = "exposures pass earlier ones if a hint permits it";
    cases.add("window.exposure_after_exposure", 3, rule, move |job| {
        let window = job.comm.window_with(vec![0_u8; 1], WindowHints::NONE.exposure_after_exposure())?;
        beside(job, &window, access, |window| {
            let first = window.post(&[Rank(0)])?.iclose()?;
            exposure(window, 1)?;
            Ok(first)
        })
    });
    let rule = "exposures pass earlier access epochs if a hint permits it";
    cases.add("window.exposure_after_access", 3, rule, move |job| {
        let window = job.comm.window_with(vec![0_u8; 1], WindowHints::NONE.exposure_after_access())?;
        let partner = move |window: &Window<u8>, other| match job.rank() {
            0 => exposure(window, other),
            _ => access(window, other),
        };
        beside(job, &window, partner, |window| {
            let first = iaccess(window, 0)?;
            exposure(window, 1)?;
            Ok(first)
        })
    });
    let rule = "epochs pass earlier ones with other ranks if a hint permits it";
    cases.add("window.overtaking", 3, rule, move |job| {
        let window = job.comm.allocate_window_with::<u8>(1, WindowHints::NONE.overtaking())?;
        beside(job, &window, exposure, |window| {
            let first = iaccess(window, 0)?;
            access(window, 1)?;
            Ok(first)
        })
    });
    let rule = "an epoch that travels as one packet has the effects and the results of any other";
    cases.add("window.aggregate", 3, rule, |job| {
        let window = job.comm.window_with(vec![0_u64; 2], WindowHints::NONE.aggregate())?;
        let mut ends = Vec::new();
        for round in 0..10 {
            let target = Rank((job.rank() + round) % 3);
            let epoch = window.lock(target, LockKind::Exclusive)?;
            epoch.accumulate(target, 0, &[1, 1], WindowOp::Sum)?;
            let fetch = epoch.iget_accumulate(target, 0, vec![1, 1], WindowOp::Sum)?;
            ends.push((epoch.iclose()?, fetch));
        }
        for (end, fetch) in ends {
            end.wait()?;
            let before = fetch.wait()?.buffer;
            assert!(before[0] == before[1] && before[0] % 2 == 1, "{before:?}: the lock is exclusive");
        }
        let mut sum = window.free()?;
        job.comm.allreduce_in_place(&mut sum, samite::reduction::Sum)?;
        assert_eq!(sum, [60, 60]);
        Ok(())
    });
}

/// Runs the epochs of rank 2, and then its partners' epochs with rank 2: rank 0 comes when rank 2 has completed its
/// epoch with rank 1.
fn beside(
    job: &Job,
    window: &Window<u8>,
    partner: impl Fn(&Window<u8>, u32) -> Result<(), Error>,
    both: impl FnOnce(&Window<u8>) -> Result<Request<()>, Error>,
) -> Result<(), Error> {
    match job.rank() {
        2 => {
            let mut first = both(window)?;
            assert!(first.test().is_none(), "rank 0 comes later");
            job.comm.send(&[0_u8; 0], Rank(0), 1)?;
            first.wait()?;
        }
        0 => {
            job.comm.recv(&mut [0_u8; 0], Rank(2), 1)?;
            partner(window, 2)?;
        }
        _ => partner(window, 2)?,
    }
    job.comm.barrier()
}
