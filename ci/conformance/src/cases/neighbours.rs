//! Collective operations between neighbours, and collective operations whose blocks have layouts.

use samite::{
    Cartesian, Dimension, Edge, Error, Graph, InPlace, Layout, LayoutError, Neighbour, Neighbourhood, Rank,
    consecutive, start_all,
};

use crate::case::{Cases, Job, SHORT, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    grids(cases);
    graphs(cases);
    blocks_with_layouts(cases);
    repeated(cases);
    misuse(cases);
    exchanges_of_all(cases);
}

/// Grids with edges, with rings, and with rings of one or two ranks.
const GRIDS: [&[Dimension]; 7] = [
    &[Dimension::periodic(1)],
    &[Dimension::open(1), Dimension::periodic(2)],
    &[Dimension::open(2)],
    &[Dimension::periodic(3)],
    &[Dimension::open(2), Dimension::periodic(2)],
    &[Dimension::periodic(1), Dimension::open(3), Dimension::periodic(2)],
    &[],
];

fn grids(cases: &mut Cases) {
    for (number, dimensions) in GRIDS.into_iter().enumerate() {
        let grid = Cartesian::new(dimensions).expect("the sizes are positive");
        let n = grid.size();
        cases.section("8.6.1");
        let gathered = grid.clone();
        cases.add(
            format!("neighbour_allgather.grid.{number}"),
            n,
            "each neighbour's data arrives in its block, and blocks without a neighbour keep their data",
            move |job| {
                let neighbourhood = gathered.neighbourhood(job.comm.rank()).expect("it is in the grid");
                let mut output = vec![99; 2 * neighbourhood.sources().len()];
                job.comm.neighbour_allgather(&neighbourhood, &[job.rank(), 7 * job.rank()], &mut output)?;
                let of = |rank: Option<Rank>| rank.map_or([99; 2], |rank| [rank.0, 7 * rank.0]);
                let expected: Vec<u32> = neighbourhood.sources().iter().copied().flat_map(of).collect();
                assert_eq!(output, expected);
                Ok(())
            },
        );
        cases.section("8.6.2");
        cases.add(
            format!("neighbour_alltoall.grid.{number}"),
            n,
            "the block for the lower neighbour arrives as the block from the upper neighbour, and the reverse",
            move |job| {
                let neighbourhood = grid.neighbourhood(job.comm.rank()).expect("it is in the grid");
                let slots = neighbourhood.sources().len() as u32;
                for round in 0..3 {
                    let value = |rank: u32, slot: u32| 1000 * round + 100 * rank + slot;
                    let input: Vec<u32> = (0..slots).map(|slot| value(job.rank(), slot)).collect();
                    let mut output = vec![99; slots as usize];
                    job.comm.neighbour_alltoall(&neighbourhood, &input, &mut output)?;
                    // The sender's upper neighbour has an odd number, and this rank's lower neighbour the even one.
                    let of = |(slot, rank): (u32, &Option<Rank>)| rank.map_or(99, |rank| value(rank.0, slot ^ 1));
                    let expected: Vec<u32> = (0..).zip(neighbourhood.sources()).map(of).collect();
                    assert_eq!(output, expected);
                }
                Ok(())
            },
        );
    }
}

/// Returns this rank's neighbourhood in a graph of three ranks, in which some edges occur several times and rank 1 is
/// its own neighbour.
fn graph(job: &Job) -> Neighbourhood {
    let edges = [(0, 1), (1, 1), (0, 1), (2, 0), (1, 2), (1, 1), (0, 1)];
    let edges = edges.map(|(source, destination)| Edge::new(Rank(source), Rank(destination)));
    (&Graph::from_edges(3, job.comm.rank(), edges).expect("the ranks exist")).into()
}

fn graphs(cases: &mut Cases) {
    cases.section("8.6.1");
    cases.add("neighbour_allgather.graph", 3, "a repeated neighbour's data arrives each time", |job| {
        let neighbourhood = graph(job);
        let mut output = vec![99; neighbourhood.sources().len()];
        job.comm.neighbour_allgather(&neighbourhood, &[job.rank()], &mut output)?;
        assert_eq!(output, [&[2][..], &[0, 1, 0, 1, 0], &[1]][job.rank() as usize]);
        Ok(())
    });
    cases.add("neighbour_allgatherv.graph", 3, "ranks contribute different lengths", |job| {
        let neighbourhood = graph(job);
        let len = |rank: u32| 2 * rank as usize + usize::from(rank == 0) * 200;
        let lens = neighbourhood.sources().iter().map(|source| len(source.expect("it is a rank").0));
        // There is a gap before each block.
        let mut end = 0;
        let block = |len| {
            let start = end + 1;
            end = start + len;
            start..end
        };
        let blocks: Vec<_> = lens.map(block).collect();
        let mut output = vec![99; end + 1];
        let input = vec![job.rank(); len(job.rank())];
        job.comm.neighbour_allgatherv(&neighbourhood, &input, &mut output, &blocks)?;
        for (source, block) in neighbourhood.sources().iter().zip(&blocks) {
            assert!(output[block.clone()].iter().all(|value| Some(Rank(*value)) == *source));
            assert_eq!(output[block.start - 1], 99);
        }
        Ok(())
    });
    cases.section("8.6.2");
    cases.add("neighbour_alltoall.graph", 3, "messages of repeated edges keep their order", |job| {
        let neighbourhood = graph(job);
        let input: Vec<u32> =
            (0..neighbourhood.destinations().len() as u32).map(|slot| 10 * job.rank() + slot).collect();
        let mut output = vec![99; neighbourhood.sources().len()];
        job.comm.neighbour_alltoall(&neighbourhood, &input, &mut output)?;
        assert_eq!(output, [&[20][..], &[0, 10, 1, 12, 2], &[11]][job.rank() as usize]);
        Ok(())
    });
    cases.add("neighbour_alltoallv.graph", 3, "blocks have different lengths, also none", |job| {
        let neighbourhood = graph(job);
        // An edge carries as many elements as its number among the edges between the two ranks, and more for rank 0.
        let lens = |neighbours: &[Option<Rank>], sender: Option<u32>| -> Vec<usize> {
            let mut seen = [0; 3];
            let each = neighbours.iter().map(|other| {
                let other = other.expect("it is a rank").0;
                seen[other as usize] += 1;
                let from = sender.unwrap_or(other) as usize;
                (seen[other as usize] - 1) * if from == 0 { 3000 } else { 2 }
            });
            each.collect()
        };
        let sent = lens(neighbourhood.destinations(), Some(job.rank()));
        let received = lens(neighbourhood.sources(), None);
        let input: Vec<u32> = sent.iter().flat_map(|&len| vec![job.rank() + len as u32; len]).collect();
        let mut output = vec![99; received.iter().sum()];
        let (sent, received) = (consecutive(sent), consecutive(received));
        job.comm.neighbour_alltoallv(&neighbourhood, &input, &sent, &mut output, &received)?;
        for (source, block) in neighbourhood.sources().iter().zip(received) {
            let value = source.expect("it is a rank").0 + block.len() as u32;
            assert!(output[block].iter().all(|element| *element == value));
        }
        Ok(())
    });
    cases.add("neighbour.none", 2, "a rank without neighbours takes part", |job| {
        let none = Neighbourhood::default();
        job.comm.neighbour_allgather(&none, &[1], &mut [])?;
        job.comm.neighbour_alltoall::<u8>(&none, &[], &mut [])?;
        job.comm.barrier()
    });
    cases.add(
        "neighbour.order",
        3,
        "the calls of some ranks do not wait for ranks that are no neighbours",
        |job| {
            let pair = match job.rank() {
                2 => Neighbourhood::default(),
                rank => {
                    let other = Neighbour::from(Rank(1 - rank));
                    (&Graph::new(3, [other], [other]).expect("the ranks exist")).into()
                }
            };
            // Rank 2 calls after the other ranks have ended their calls.
            if job.rank() == 2 {
                job.comm.recv(&mut [0u8], Rank(0), 1)?;
            }
            let mut output = vec![0; pair.sources().len()];
            job.comm.neighbour_alltoall(&pair, &vec![job.rank(); pair.destinations().len()], &mut output)?;
            assert_eq!(output, [&[1][..], &[0], &[]][job.rank() as usize]);
            if job.rank() == 0 {
                job.comm.send(&[1u8], Rank(2), 1)?;
            }
            Ok(())
        },
    );
}

fn blocks_with_layouts(cases: &mut Cases) {
    cases.section("8.6.2");
    cases.add(
        "neighbour_alltoallw.grid",
        4,
        "columns and rows at the edges fill the borders beside them",
        |job| {
            // Each rank has 2 x 3 values with a border around them.
            let grid = Cartesian::new(&[Dimension::periodic(2), Dimension::open(2)])
                .expect("the sizes are positive");
            let neighbourhood = grid.neighbourhood(job.comm.rank()).expect("it is in the grid");
            let row = |number: isize| Layout::indexed([(5 * number + 1, 3)]);
            let column = |number: isize| Layout::indexed([(5 + number, 1), (10 + number, 1)]);
            let sent = [row(1)?, row(2)?, column(1)?, column(3)?];
            let received = [row(0)?, row(3)?, column(0)?, column(4)?];
            let value = |rank: u32, at: usize| 100 * rank + at as u32;
            let input: Vec<u32> = (0..20).map(|at| value(job.rank(), at)).collect();
            let mut output = vec![999; 20];
            let request = job.comm.ineighbour_alltoallw(
                &neighbourhood,
                input.clone(),
                &sent,
                output.clone(),
                &received,
            )?;
            job.comm.neighbour_alltoallw(&neighbourhood, &input, &sent, &mut output, &received)?;
            assert_eq!(request.wait()?.buffer.1, output);
            let [up, down, left, right] = neighbourhood.sources() else { panic!("four neighbours") };
            let from = |rank: &Option<Rank>, at| rank.map_or(999, |rank| value(rank.0, at));
            for column in 1..4 {
                assert_eq!(output[column], from(up, 10 + column));
                assert_eq!(output[15 + column], from(down, 5 + column));
            }
            for row in [5, 10] {
                assert_eq!(output[row], from(left, row + 3));
                assert_eq!(output[row + 4], from(right, row + 1));
                assert_eq!(output[row + 1..row + 4], [999; 3]);
            }
            Ok(())
        },
    );
}

fn repeated(cases: &mut Cases) {
    cases.section("8.7");
    cases.add("ineighbour.mixed", 3, "many operations are under way, and end in any order", |job| {
        let ring = Cartesian::new(&[Dimension::periodic(3)]).expect("the size is positive");
        let ring = ring.neighbourhood(job.comm.rank()).expect("it is in the grid");
        let (next, previous) = job.ring();
        let mut requests = Vec::new();
        for round in 0..20 {
            let input = vec![100 * round + job.rank(), 100 * round + job.rank() + 50];
            requests.push(job.comm.ineighbour_alltoall(&ring, input, vec![0; 2])?);
            job.comm.barrier()?;
        }
        let gathered = job.comm.ineighbour_allgather(&ring, vec![job.rank()], vec![0; 2])?;
        let some = job.comm.ineighbour_allgatherv(&ring, vec![job.rank()], vec![0; 3], &[2..3, 0..1])?;
        let blocks = [0..1, 1..2];
        let v = job.comm.ineighbour_alltoallv(&ring, vec![1, 2], &blocks, vec![0; 2], &blocks)?;
        assert_eq!(v.wait()?.buffer.1, [2, 1]);
        assert_eq!(some.wait()?.buffer.1, [next.0, 0, previous.0]);
        assert_eq!(gathered.wait()?.buffer.1, [previous.0, next.0]);
        for (round, request) in (0..20).zip(requests).rev() {
            assert_eq!(request.wait()?.buffer.1, [100 * round + previous.0 + 50, 100 * round + next.0]);
        }
        Ok(())
    });
    cases.section("8.8");
    cases.add("neighbour_init", 3, "prepared operations are started many times", |job| {
        let line = Cartesian::new(&[Dimension::open(3)]).expect("the size is positive");
        let line = line.neighbourhood(job.comm.rank()).expect("it is in the grid");
        let blocks = [0..1, 1..2];
        let layouts = [Layout::<u32>::contiguous(1)?, Layout::indexed([(1, 1)])?];
        let one = || vec![0_u32];
        let two = || vec![0_u32; 2];
        let mut all = [
            job.comm.neighbour_allgather_init(&line, one(), two())?,
            job.comm.neighbour_allgatherv_init(&line, one(), two(), &blocks)?,
            job.comm.neighbour_alltoall_init(&line, two(), two())?,
            job.comm.neighbour_alltoallv_init(&line, two(), &blocks, two(), &blocks)?,
            job.comm.neighbour_alltoallw_init(&line, two(), &layouts, two(), &layouts)?,
        ];
        for round in 0..10 {
            for operation in &mut all {
                operation.input_mut()?.fill(round + job.rank());
                let mut operations: [&mut dyn samite::Persistent; 1] = [operation];
                start_all(&mut operations)?;
            }
            for operation in &mut all {
                operation.wait()?;
                let of = |rank: Option<Rank>| rank.map_or(0, |rank| round + rank.0);
                let expected: Vec<u32> = line.sources().iter().copied().map(of).collect();
                assert_eq!(*operation.output()?, expected);
            }
        }
        Ok(())
    });
}

fn misuse(cases: &mut Cases) {
    cases.section("8.6");
    cases.add("neighbour.misuse", 2, "wrong arguments are errors, and nothing is sent", |job| {
        let line = Cartesian::new(&[Dimension::open(2)]).expect("the size is positive");
        let line = line.neighbourhood(job.comm.rank()).expect("it is in the grid");
        let comm = &job.comm;
        let wrong = comm.neighbour_allgather(&line, &[1], &mut [0; 3]);
        expect_error!(wrong, Error::WrongLength { what: "output", len: 3, expected: 2, .. });
        let wrong = comm.neighbour_alltoall(&line, &[1], &mut [0; 2]);
        expect_error!(wrong, Error::WrongLength { what: "input", len: 1, expected: 0, .. });
        let wrong = comm.neighbour_alltoallv(&line, &[1], &[], &mut [0; 2], &[0..1, 1..2]);
        expect_error!(wrong, Error::WrongBlocks { what: "input", .. });
        let wrong = comm.neighbour_alltoallv(&line, &[1], &[0..1, 0..1], &mut [0; 2], &[0..2, 1..2]);
        expect_error!(wrong, Error::WrongBlocks { what: "output", .. });
        let larger = Cartesian::new(&[Dimension::periodic(3)]).expect("the size is positive");
        let larger = larger.neighbourhood(comm.rank()).expect("it is in the grid");
        let wrong = comm.neighbour_allgather(&larger, &[1], &mut [0; 2]);
        expect_error!(wrong, Error::InvalidRank { rank: Rank(2), size: 2 });
        let in_place = comm.ineighbour_allgather(&line, InPlace, vec![0; 2]).map_err(|failed| failed.error);
        expect_error!(in_place, Error::NotInPlace { .. });
        comm.barrier()
    });
    cases.add("neighbour.timeout", 2, "a time-out ends a call whose neighbour does not call", |job| {
        let line = Cartesian::new(&[Dimension::open(2)]).expect("the size is positive");
        let line = line.neighbourhood(job.comm.rank()).expect("it is in the grid");
        let work = job.comm.dup()?;
        if job.rank() == 0 {
            let ended = work.with_timeout(SHORT).neighbour_allgather(&line, &[1], &mut [0; 2]);
            expect_error!(ended, Error::TimedOut { .. });
        }
        job.barrier()?;
        if job.rank() == 1 {
            let ended = work.neighbour_allgather(&line, &[1], &mut [0; 2]);
            // The message of rank 0 may have arrived.
            let is_end = matches!(ended, Ok(()) | Err(Error::Abandoned { rank: Rank(0), .. }));
            assert!(is_end, "{ended:?}");
        }
        job.barrier()?;
        // The communicator can be used afterwards.
        let mut output = [9; 2];
        work.neighbour_allgather(&line, &[job.rank()], &mut output)?;
        assert_eq!(output, [[9, 1], [0, 9]][job.rank() as usize]);
        Ok(())
    });
    cases.failure("neighbour.failure", 3, "the failure of a member ends the call", |job| {
        let ring = Cartesian::new(&[Dimension::periodic(3)]).expect("the size is positive");
        let ring = ring.neighbourhood(job.comm.rank()).expect("it is in the grid");
        if job.rank() == 2 {
            job.die();
        }
        let ended = job.comm.neighbour_allgather(&ring, &[1], &mut [0; 2]);
        expect_error!(ended, Error::PeerFailed { rank: Rank(2), .. });
        // No rank leaves before the other has ended its call.
        job.comm.create_from_group(&job.comm.group().exclude([2]), 1)?.barrier()
    });
}

fn exchanges_of_all(cases: &mut Cases) {
    cases.section("6.8");
    for n in [1, 2, 3, 5] {
        cases.add(format!("alltoallw.{n}"), n, "each block has a layout of its own", |job| {
            let (n, rank) = (job.size() as usize, job.rank() as usize);
            // The block from rank i to rank j has i + j elements. It is sent from every second place, and received
            // backwards.
            let strided = |start: usize, len| Layout::<u64>::vector(len, 1, 2)?.nested(&shift(start)?);
            let backwards = |start: usize, len: usize| {
                Layout::<u64>::indexed((start..start + len).rev().map(|at| (at as isize, 1)))
            };
            let lens: Vec<usize> = (0..n).map(|other| rank + other).collect();
            let places: Vec<usize> =
                consecutive(lens.iter().copied()).iter().map(|block| block.start).collect();
            let all: usize = lens.iter().sum();
            let value = |from: usize, to: usize, at: usize| (10_000 * from + 100 * to + at) as u64;
            let mut input = vec![0; 2 * all + 1];
            for (to, place) in places.iter().enumerate() {
                (0..lens[to]).for_each(|at| input[2 * (place + at)] = value(rank, to, at));
            }
            let sent: Result<Vec<_>, _> = (0..n).map(|to| strided(2 * places[to], lens[to])).collect();
            let received: Result<Vec<_>, _> =
                (0..n).map(|from| backwards(places[from], lens[from])).collect();
            let (sent, received) = (sent?, received?);
            let check = |output: &[u64]| {
                for (from, place) in places.iter().enumerate() {
                    let block = &output[*place..place + lens[from]];
                    let expected: Vec<u64> = (0..lens[from]).rev().map(|at| value(from, rank, at)).collect();
                    assert_eq!(block, expected);
                }
            };
            let mut output = vec![0; all];
            job.comm.alltoallw(&input, &sent, &mut output, &received)?;
            check(&output);
            let request = job.comm.ialltoallw(input.clone(), &sent, vec![0; all], &received)?;
            check(&request.wait()?.buffer.1);
            let mut repeated = job.comm.alltoallw_init(input, &sent, vec![0; all], &received)?;
            for _ in 0..3 {
                repeated.output_mut()?.fill(0);
                repeated.start()?;
                repeated.wait()?;
                check(repeated.output()?);
            }
            Ok(())
        });
    }
    cases.add("alltoallw.in_place", 3, "the received blocks replace the sent ones", |job| {
        let blocks = [
            Layout::<u32>::vector(2, 1, 3)?,
            Layout::indexed([(4, 1), (1, 1)])?,
            Layout::indexed([(2, 1), (5, 1)])?,
        ];
        let mine: Vec<u32> = (0..6).map(|at| 10 * job.rank() + at).collect();
        let places = [[0, 3], [4, 1], [2, 5]];
        let mut expected = vec![0; 6];
        for (from, place) in (0..).zip(places) {
            for (at, place) in place.into_iter().enumerate() {
                expected[place] = 10 * from + places[job.rank() as usize][at] as u32;
            }
        }
        let mut buffer = mine.clone();
        job.comm.alltoallw_in_place(&mut buffer, &blocks)?;
        assert_eq!(buffer, expected);
        let none: [Layout<u32>; 0] = [];
        let mut repeated = job.comm.alltoallw_init(InPlace, &none, mine.clone(), &blocks)?;
        for _ in 0..3 {
            repeated.output_mut()?.copy_from_slice(&mine);
            repeated.start()?;
            repeated.wait()?;
            assert_eq!(*repeated.output()?, expected);
        }
        Ok(())
    });
    cases.add("alltoallw.misuse", 2, "wrong layouts are errors, and nothing is sent", |job| {
        let one = Layout::<u32>::contiguous(1)?;
        let both = [one.clone(), Layout::indexed([(1, 1)])?];
        let comm = &job.comm;
        let wrong = comm.alltoallw(&[1, 2], std::slice::from_ref(&one), &mut [0; 2], &both);
        expect_error!(wrong, Error::WrongBlocks { what: "input", .. });
        let wrong = comm.alltoallw(&[1], &both, &mut [0; 2], &both);
        expect_error!(wrong, Error::Layout(error) if matches!(*error, LayoutError::BeyondSlice { .. }));
        let wrong = comm.alltoallw(&[1, 2], &both, &mut [0; 2], &[one.clone(), one.clone()]);
        expect_error!(wrong, Error::Layout(error) if matches!(*error, LayoutError::Overlap { .. }));
        let (none, other) = (Layout::contiguous(0)?, job.rank() == 0);
        let differs = if other { [none, one.clone()] } else { [one.clone(), none] };
        let wrong = comm.alltoallw(&[1, 2], &both, &mut [0; 2], &differs);
        expect_error!(wrong, Error::WrongBlocks { what: "input", .. });
        comm.barrier()
    });
}

/// Returns the layout of one element that begins `start` elements behind its place.
fn shift(start: usize) -> Result<Layout<u64>, LayoutError> {
    Layout::indexed([(start as isize, 1)])?.resized(0, 1)
}
