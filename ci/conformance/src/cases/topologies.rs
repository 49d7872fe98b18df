//! Cartesian grids and graphs, as values and with messages.

use samite::{Cartesian, Dimension, Edge, Graph, Neighbour, Rank, TopologyError, balanced};

use crate::case::{Cases, expect};

pub(crate) fn add(cases: &mut Cases) {
    cartesian(cases);
    graphs(cases);
    exchanges(cases);
}

fn grid(sizes: &[(u32, bool)]) -> Cartesian {
    let dimensions: Vec<_> = sizes.iter().map(|&(size, periodic)| Dimension { size, periodic }).collect();
    Cartesian::new(&dimensions).expect("the sizes are valid")
}

/// The number of ranks, the sizes that are fixed, and the sizes of the balanced grid.
type Balanced = (u32, &'static [Option<u32>], &'static [u32]);
const BALANCED: &[Balanced] = &[
    (6, &[None, None], &[3, 2]),
    (7, &[None, None], &[7, 1]),
    (6, &[None, Some(3), None], &[2, 3, 1]),
    (12, &[None, None, None], &[3, 2, 2]),
    (16, &[None, None], &[4, 4]),
    (1, &[None, None, None], &[1, 1, 1]),
    (64, &[None, None, None], &[4, 4, 4]),
];

fn cartesian(cases: &mut Cases) {
    cases.section("8.5.2");
    for &(ranks, fixed, sizes) in BALANCED {
        cases.value(
            format!("cartesian.balanced.{ranks}-{}", fixed.len()),
            "dimensions as close as possible, not increasing",
            move || {
                assert_eq!(balanced(ranks, fixed).as_deref(), Ok(sizes));
            },
        );
    }
    cases.value(
        "cartesian.balanced.indivisible",
        "fixed sizes that do not divide the ranks are an error",
        || {
            assert_eq!(balanced(7, &[Some(3), None]), Err(TopologyError::Indivisible { ranks: 7 }));
        },
    );
    cases.section("8.5.1");
    cases.value("cartesian.size", "the number of places is the product of the sizes", || {
        assert_eq!(grid(&[(3, false), (4, true), (5, false)]).size(), 60);
        assert_eq!(Cartesian::new(&[Dimension::open(0)]), Err(TopologyError::ZeroDimension { dimension: 0 }));
        let large = [Dimension::open(1 << 16); 2];
        assert_eq!(Cartesian::new(&large), Err(TopologyError::TooLarge));
    });
    cases.section("8.5.5");
    cases.value("cartesian.row-major", "ranks count in row-major order", || {
        let grid = grid(&[(2, false), (3, false)]);
        let all: Vec<_> =
            (0..6).map(|rank| grid.coordinates(Rank(rank)).expect("it is in the grid")).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
    });
    cases.value("cartesian.inverse", "rank and coordinates are inverse", || {
        let grid = grid(&[(3, true), (4, false), (2, true)]);
        for rank in 0..24 {
            let coordinates = grid.coordinates(Rank(rank)).expect("it is in the grid");
            assert_eq!(grid.rank(&coordinates), Ok(Rank(rank)));
        }
        assert_eq!(grid.coordinates(Rank(24)), Err(TopologyError::InvalidRank { rank: Rank(24), size: 24 }));
    });
    cases.value(
        "cartesian.periodic",
        "coordinates wrap in periodic dimensions, and are errors in others",
        || {
            let grid = grid(&[(3, true), (4, false)]);
            assert_eq!(grid.rank(&[-1, 2]), grid.rank(&[2, 2]));
            assert_eq!(grid.rank(&[7, 0]), grid.rank(&[1, 0]));
            let outside = TopologyError::OutOfRange { dimension: 1, coordinate: 4, size: 4 };
            assert_eq!(grid.rank(&[0, 4]), Err(outside));
            assert_eq!(
                grid.rank(&[0, -1]),
                Err(TopologyError::OutOfRange { coordinate: -1, dimension: 1, size: 4 })
            );
            assert_eq!(grid.rank(&[0]), Err(TopologyError::WrongLength { len: 1, dimensions: 2 }));
        },
    );
    cases.value("cartesian.none", "a grid of no dimensions has one place", || {
        let point = grid(&[]);
        assert_eq!((point.size(), point.rank(&[]), point.coordinates(Rank(0))), (1, Ok(Rank(0)), Ok(vec![])));
    });
    cases.section("8.5.6");
    for periodic in [false, true] {
        for distance in [-5, -2, -1, 0, 1, 3, 4] {
            let name = if periodic { "periodic" } else { "open" };
            let rule = "a shift names source and destination, or none beyond an open border";
            cases.value(format!("cartesian.shift.{name}.{distance}"), rule, move || {
                let grid = grid(&[(2, false), (4, periodic)]);
                for rank in 0..8u32 {
                    let (row, column) = (i64::from(rank / 4), i64::from(rank % 4));
                    let at = |column: i64| match periodic {
                        true => Some(Rank((row * 4 + column.rem_euclid(4)) as u32)),
                        false => (0..4).contains(&column).then(|| Rank((row * 4 + column) as u32)),
                    };
                    let shift = grid.shift(Rank(rank), 1, distance).expect("the dimension exists");
                    assert_eq!(shift.destination, at(column + distance));
                    assert_eq!(shift.source, at(column - distance));
                }
            });
        }
    }
    cases.value(
        "cartesian.shift.invalid",
        "a shift along a dimension that the grid has not is an error",
        || {
            let error = TopologyError::InvalidDimension { dimension: 2, dimensions: 2 };
            assert_eq!(grid(&[(2, true), (2, true)]).shift(Rank(0), 2, 1), Err(error));
        },
    );
    cases.section("8.5.7");
    cases.value("cartesian.sub", "sub-grids have the kept dimensions, and partition the ranks", || {
        let grid = grid(&[(2, false), (3, true), (4, false)]);
        let subs = grid.sub_grids(&[true, false, true]).expect("one entry for each dimension");
        assert_eq!((subs.grid().size(), subs.count()), (8, 3));
        let mut members = vec![0; 3];
        for rank in 0..24 {
            let coordinates = grid.coordinates(Rank(rank)).expect("it is in the grid");
            let colour = subs.colour(Rank(rank)).expect("it is in the grid");
            assert_eq!(i64::from(colour), coordinates[1]);
            assert_eq!(subs.key(Rank(rank)), Ok(coordinates[0] * 4 + coordinates[2]));
            members[colour as usize] += 1;
        }
        assert_eq!(members, [8, 8, 8]);
    });
    cases.value("cartesian.sub.none", "without kept dimensions each rank is alone", || {
        let subs = grid(&[(2, false), (2, false)]).sub_grids(&[false, false]).expect("one entry for each");
        assert_eq!((subs.grid().size(), subs.count()), (1, 4));
    });
}

fn graphs(cases: &mut Cases) {
    cases.section("8.5.4");
    cases.value("graph.adjacent", "the neighbours of a rank, in the order in which they were given", || {
        let graph =
            Graph::new(5, [3, 1, 3].map(|rank| Neighbour::from(Rank(rank))), [Neighbour::from(Rank(0))]);
        let graph = graph.expect("the ranks are in the group");
        assert_eq!(graph.sources().iter().map(|source| source.rank.0).collect::<Vec<_>>(), [3, 1, 3]);
        assert_eq!(graph.destinations().len(), 1);
        let outside = Graph::new(5, [Neighbour::from(Rank(5))], []);
        assert_eq!(outside, Err(TopologyError::InvalidRank { rank: Rank(5), size: 5 }));
    });
    cases.value("graph.edges", "the neighbours of a rank follow from all edges", || {
        let edges =
            [(0, 1), (1, 0), (1, 1), (2, 1), (0, 1)].map(|(from, to)| Edge::new(Rank(from), Rank(to)));
        let graph = Graph::from_edges(3, Rank(1), edges).expect("the ranks are in the group");
        let ranks = |all: &[Neighbour]| all.iter().map(|neighbour| neighbour.rank.0).collect::<Vec<_>>();
        assert_eq!(ranks(graph.sources()), [0, 1, 2, 0]);
        assert_eq!(ranks(graph.destinations()), [0, 1]);
    });
    cases.value("graph.weights", "weights belong to their edges", || {
        let edges = [(0, 1, 5), (2, 1, 9)];
        let edges = edges.map(|(from, to, weight)| Edge { weight, ..Edge::new(Rank(from), Rank(to)) });
        let graph = Graph::from_edges(3, Rank(1), edges).expect("the ranks are in the group");
        assert_eq!(graph.sources().iter().map(|source| source.weight).collect::<Vec<_>>(), [5, 9]);
    });
    cases.value("graph.alone", "a rank without edges has no neighbours", || {
        let graph = Graph::from_edges(2, Rank(0), [Edge::new(Rank(1), Rank(1))]).expect("ranks of the group");
        assert!(graph.sources().is_empty() && graph.destinations().is_empty());
    });
}

fn exchanges(cases: &mut Cases) {
    cases.section("8.5.6");
    cases.add(
        "cartesian.exchange.ring",
        4,
        "a shift in a periodic dimension moves values around it",
        |job| {
            let grid = grid(&[(4, true)]);
            let shift = grid.shift(job.comm.rank(), 0, 1).expect("the dimension exists");
            let (to, from) = (shift.destination.expect("periodic"), shift.source.expect("periodic"));
            let mut theirs = [9u32];
            expect(job.comm.sendrecv(&[job.rank()], to, 7, &mut theirs, from, 7)?, from.0, 7, 4);
            assert_eq!(theirs, [(job.rank() + 3) % 4]);
            Ok(())
        },
    );
    cases.add("cartesian.exchange.open", 4, "values move along an open dimension up to its borders", |job| {
        let shift = grid(&[(4, false)]).shift(job.comm.rank(), 0, 1).expect("the dimension exists");
        let mut theirs = [9u32];
        job.comm.scope(|scope| {
            let mine = [job.rank()];
            if let Some(source) = shift.source {
                scope.irecv(&mut theirs, source, 7)?;
            }
            if let Some(destination) = shift.destination {
                job.comm.send(&mine, destination, 7)?;
            }
            Ok(())
        })?;
        assert_eq!(theirs, [job.rank().checked_sub(1).unwrap_or(9)]);
        Ok(())
    });
    cases.add(
        "cartesian.exchange.torus",
        4,
        "all neighbours of a torus exchange, a neighbour on two sides too",
        |job| {
            let grid = grid(&[(2, true), (2, true)]);
            let mut sums = Vec::new();
            for dimension in 0..2 {
                for distance in [-1, 1] {
                    let shift =
                        grid.shift(job.comm.rank(), dimension, distance).expect("the dimension exists");
                    let (to, from) = (shift.destination.expect("periodic"), shift.source.expect("periodic"));
                    let mut theirs = [9u32];
                    job.comm.sendrecv(&[job.rank()], to, 7, &mut theirs, from, 7)?;
                    sums.push(theirs[0]);
                }
            }
            let (row, column) = (job.rank() ^ 2, job.rank() ^ 1);
            assert_eq!(sums, [row, row, column, column]);
            Ok(())
        },
    );
    cases.section("8.5.7");
    cases.add("cartesian.exchange.sub-grids", 4, "each sub-grid is a communicator", |job| {
        let subs =
            grid(&[(2, false), (2, true)]).sub_grids(&[false, true]).expect("one entry for each dimension");
        let (colour, key) = (subs.colour(job.comm.rank()), subs.key(job.comm.rank()));
        let row = job.comm.split(Some(colour.expect("in the grid")), key.expect("in the grid"))?;
        let row = row.expect("it has a colour");
        assert_eq!((row.rank().0, row.size()), (job.rank() % 2, 2));
        let other = Rank(1 - row.rank().0);
        let mut theirs = [9u32];
        row.sendrecv(&[job.rank()], other, 7, &mut theirs, other, 7)?;
        assert_eq!(theirs, [job.rank() ^ 1]);
        Ok(())
    });
    cases.section("8.6");
    cases.add(
        "graph.exchange",
        4,
        "each rank exchanges with the neighbours of a graph, several times with some",
        |job| {
            let edges = [(0, 1), (0, 1), (1, 2), (2, 0), (3, 3), (3, 0), (2, 3)];
            let edges = edges.map(|(from, to)| Edge::new(Rank(from), Rank(to)));
            let graph = Graph::from_edges(4, job.comm.rank(), edges).expect("the ranks are in the group");
            let mut theirs = vec![[9u32]; graph.sources().len()];
            let mine = [job.rank()];
            job.comm.scope(|scope| {
                for (source, buffer) in graph.sources().iter().zip(&mut theirs) {
                    scope.irecv(buffer, source.rank, 7)?;
                }
                for destination in graph.destinations() {
                    scope.isend(&mine, destination.rank, 7)?;
                }
                Ok(())
            })?;
            let sources: Vec<_> = graph.sources().iter().map(|source| [source.rank.0]).collect();
            assert_eq!(theirs, sources);
            Ok(())
        },
    );
}
