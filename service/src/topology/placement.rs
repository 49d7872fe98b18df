//! An order of ranks in a grid that puts more neighbours on the same host.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Cartesian, TopologyError};
use crate::select::Rank;

impl Cartesian {
    /// Returns an order of the ranks that puts fewer neighbours on different hosts: the rank at index `i` should take
    /// the place `i` of the grid. `hosts` contains the host of each rank. If there are more ranks than places, the
    /// ranks from [`Cartesian::size`] on are left out.
    ///
    /// The grid is cut into blocks that have as many places as a host has ranks, if sizes permit, and successive blocks
    /// are given to each host. The result never has more [edges between hosts](Cartesian::edges_between_hosts) than the
    /// order `0..size`, which is returned if no better order is found. All ranks that pass the same hosts get the same
    /// order.
    ///
    /// ```
    /// use samite::{Cartesian, Dimension, Rank};
    ///
    /// // Each host has four ranks: the rows of this grid, at first. Four blocks of 2 by 2 have fewer neighbours.
    /// let grid = Cartesian::new(&[Dimension::open(4), Dimension::open(4)])?;
    /// let hosts: Vec<u32> = (0..16).map(|rank| rank / 4).collect();
    /// let order = grid.place_on_hosts(&hosts)?;
    /// assert_eq!(order[..4], [Rank(0), Rank(1), Rank(4), Rank(5)]);
    ///
    /// let placed: Vec<u32> = order.iter().map(|rank| hosts[rank.index()]).collect();
    /// assert_eq!((grid.edges_between_hosts(&hosts)?, grid.edges_between_hosts(&placed)?), (12, 8));
    /// # Ok::<(), samite::TopologyError>(())
    /// ```
    /// [`Comm::create_from_group`](crate::Comm::create_from_group) makes the communicator in which the ranks are the
    /// places:
    ///
    /// ```
    /// # use samite::{Cartesian, Dimension, Rank};
    /// # samite::local(8, |world| {
    /// # let comm = world.comm();
    /// let grid = Cartesian::new(&[Dimension::open(2), Dimension::open(4)]).unwrap();
    /// // Ranks were dealt to two hosts in turn.
    /// let hosts: Vec<u32> = (0..8).map(|rank| rank % 2).collect();
    /// let order = grid.place_on_hosts(&hosts).unwrap();
    /// let placed = comm.create_from_group(&comm.group().include(order.iter().map(|rank| rank.0)).unwrap(), 0)?;
    /// assert_eq!(order[placed.rank().index()], comm.rank());
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// [`TopologyError::TooFewRanks`].
    pub fn place_on_hosts<H: Eq + Hash>(&self, hosts: &[H]) -> Result<Vec<Rank>, TopologyError> {
        let hosts = self.by_place(hosts)?;
        let by_host = ranks_by_host(hosts);
        let mut best: Vec<Rank> = (0..self.size()).map(Rank).collect();
        let mut fewest = self.edges_between_hosts(hosts)?;
        for block in self.blocks(by_host[0].len() as u64) {
            let mut order = vec![Rank(0); best.len()];
            let by_host = by_host.iter().flatten();
            self.places_in_blocks(&block)
                .zip(by_host)
                .for_each(|(place, rank)| order[place as usize] = *rank);
            let placed: Vec<&H> = order.iter().map(|rank| &hosts[rank.index()]).collect();
            let edges = self.edges_between_hosts(&placed)?;
            if edges < fewest {
                (best, fewest) = (order, edges);
            }
        }
        Ok(best)
    }

    /// Returns the number of pairs of neighbours on different hosts. `hosts` has the host of each place. In a periodic
    /// dimension of size 2, two places are neighbours in both directions, and count twice.
    ///
    /// # Errors
    /// [`TopologyError::TooFewRanks`] if `hosts` is shorter than the grid.
    pub fn edges_between_hosts<H: Eq>(&self, hosts: &[H]) -> Result<u64, TopologyError> {
        let hosts = self.by_place(hosts)?;
        let mut edges = 0;
        for (dimension, stride) in self.dimensions().iter().zip(self.strides()) {
            let (size, stride) = (dimension.size as usize, stride as usize);
            // Each chunk holds all places that differ only in this coordinate and in the coordinates behind it.
            for chunk in hosts.chunks_exact(size * stride) {
                edges += (stride..chunk.len()).filter(|&at| chunk[at] != chunk[at - stride]).count() as u64;
                if dimension.periodic {
                    let last = chunk.len() - stride;
                    edges += (0..stride).filter(|&at| chunk[at] != chunk[last + at]).count() as u64;
                }
            }
        }
        Ok(edges)
    }

    fn by_place<'a, H>(&self, hosts: &'a [H]) -> Result<&'a [H], TopologyError> {
        let too_few = TopologyError::TooFewRanks { size: self.size(), ranks: hosts.len() as u64 };
        hosts.get(..self.size() as usize).ok_or(too_few)
    }

    /// Returns the sizes of blocks of at most `ranks` places into which the grid can be cut, the largest blocks first.
    /// Of equally large blocks, the block with the fewest neighbours in other blocks comes first. The number of blocks
    /// is limited, since each is tried on the whole grid.
    fn blocks(&self, ranks: u64) -> Vec<Vec<u32>> {
        let mut blocks = vec![Vec::new()];
        for dimension in self.dimensions() {
            let sizes: Vec<u32> = (1..=dimension.size).filter(|size| dimension.size % size == 0).collect();
            blocks = blocks
                .into_iter()
                .flat_map(|block| sizes.iter().map(move |size| [&block[..], &[*size]].concat()))
                .filter(|block| block.iter().map(|size| u64::from(*size)).product::<u64>() <= ranks)
                .collect();
            // A grid of many dimensions has more blocks than can be listed. Only large ones are kept here, so that the
            // later dimensions need to contribute less.
            if blocks.len() > LISTED_MAX {
                blocks.sort_by_key(|block| {
                    std::cmp::Reverse(block.iter().map(|size| u64::from(*size)).product::<u64>())
                });
                blocks.truncate(LISTED_MAX);
            }
        }
        blocks.sort_by_cached_key(|block| {
            let places: u64 = block.iter().map(|size| u64::from(*size)).product();
            (ranks - places, self.edges_between_blocks(block))
        });
        blocks.truncate((STEPS_MAX / self.size() as usize).clamp(TRIED_MIN, TRIED_MAX));
        blocks
    }

    fn edges_between_blocks(&self, block: &[u32]) -> u64 {
        let edges = self.dimensions().iter().zip(block).map(|(dimension, size)| {
            let blocks = dimension.size / size;
            let borders = if dimension.periodic && blocks > 1 { blocks } else { blocks - 1 };
            u64::from(borders) * u64::from(self.size() / dimension.size)
        });
        edges.sum()
    }

    /// Iterates over all places, block by block. Blocks come in row-major order, and so do the places of each block.
    fn places_in_blocks(&self, block: &[u32]) -> impl Iterator<Item = u32> {
        // Places are visited in steps, which are counted by a number of mixed radix with two groups of digits: the
        // coordinates of the block, and the coordinates within the block. Each axis has the radix of its digit, and the
        // distance between the ranks of two places whose digits differ by 1.
        let axes = self.dimensions().iter().zip(self.strides()).zip(block);
        let outer = axes.clone().map(|((dimension, stride), size)| (dimension.size / size, stride * size));
        let inner = axes.map(|((_, stride), size)| (*size, stride));
        let digits: Vec<(u32, u32)> = outer.chain(inner).filter(|(radix, _)| *radix > 1).collect();
        (0..self.size()).map(move |number| {
            let mut number = number;
            let mut place = 0;
            for (radix, stride) in digits.iter().rev() {
                place += number % radix * stride;
                number /= radix;
            }
            place
        })
    }
}

/// The maximum number of blocks that are listed.
const LISTED_MAX: usize = 4096;
/// The number of blocks that are tried, even if that exceeds [`STEPS_MAX`].
const TRIED_MIN: usize = 4;
/// The maximum number of blocks that are tried.
const TRIED_MAX: usize = 64;
/// The maximum number of places that all trials together visit, if more than [`TRIED_MIN`] blocks are tried.
const STEPS_MAX: usize = 1 << 22;

/// Returns the ranks of each host in ascending order. The largest host comes first. Hosts of one size are in the order
/// of their first ranks.
fn ranks_by_host<H: Eq + Hash>(hosts: &[H]) -> Vec<Vec<Rank>> {
    let mut numbers: HashMap<&H, usize> = HashMap::new();
    let mut by_host: Vec<Vec<Rank>> = Vec::new();
    for (rank, host) in (0..).map(Rank).zip(hosts) {
        let number = *numbers.entry(host).or_insert(by_host.len());
        if number == by_host.len() {
            by_host.push(Vec::new());
        }
        by_host[number].push(rank);
    }
    by_host.sort_by_key(|ranks| std::cmp::Reverse(ranks.len()));
    by_host
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cartesian::tests::grids;
    use super::*;
    use crate::Dimension;

    /// Returns the number of edges between hosts. It counts, for each place, the edges in the positive direction of
    /// each dimension.
    fn edges(grid: &Cartesian, hosts: &[u32]) -> u64 {
        let ranks = (0..grid.size()).map(Rank);
        let differs = |rank: Rank, dimension| {
            let neighbour = grid.shift(rank, dimension, 1).unwrap().destination;
            neighbour.is_some_and(|neighbour| hosts[neighbour.index()] != hosts[rank.index()])
        };
        let dimensions = 0..grid.dimensions().len();
        ranks
            .map(|rank| dimensions.clone().filter(|dimension| differs(rank, *dimension)).count() as u64)
            .sum()
    }

    fn placed(grid: &Cartesian, hosts: &[u32]) -> Vec<u32> {
        let order = grid.place_on_hosts(hosts).unwrap();
        order.iter().map(|rank| hosts[rank.index()]).collect()
    }

    fn open(sizes: &[u32]) -> Cartesian {
        Cartesian::new(&sizes.iter().copied().map(Dimension::open).collect::<Vec<_>>()).unwrap()
    }

    proptest! {
        #[test]
        fn an_order_is_a_permutation_and_never_worse(
            grid in grids(),
            hosts in prop::collection::vec(0u32..6, 625),
            regular in prop::option::of((1u32..30, any::<bool>())),
        ) {
            let size = grid.size();
            let hosts = match regular {
                Some((each, true)) => (0..size).map(|rank| rank / each).collect(),
                Some((each, false)) => (0..size).map(|rank| rank % each).collect(),
                None => hosts,
            };
            let order = grid.place_on_hosts(&hosts).unwrap();
            let mut sorted = order.clone();
            sorted.sort_unstable_by_key(|rank| rank.0);
            prop_assert_eq!(sorted, (0..size).map(Rank).collect::<Vec<_>>());

            let after: Vec<u32> = order.iter().map(|rank| hosts[rank.index()]).collect();
            prop_assert_eq!(grid.edges_between_hosts(&hosts), Ok(edges(&grid, &hosts)));
            prop_assert_eq!(grid.edges_between_hosts(&after), Ok(edges(&grid, &after)));
            prop_assert!(edges(&grid, &after) <= edges(&grid, &hosts));
        }

        #[test]
        fn blocks_contain_each_place_once(grid in grids(), ranks in 1u64..40) {
            for block in grid.blocks(ranks) {
                let mut places: Vec<u32> = grid.places_in_blocks(&block).collect();
                // The first block's places are those whose coordinates lie within it.
                let len = block.iter().product::<u32>() as usize;
                for place in &places[..len] {
                    let coordinates = grid.coordinates(Rank(*place)).unwrap();
                    prop_assert!(coordinates.iter().zip(&block).all(|(at, size)| *at < i64::from(*size)));
                }
                places.sort_unstable();
                prop_assert_eq!(places, (0..grid.size()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn hosts_get_cubes() {
        // Hosts of 8 ranks in a cube of 512 places. At first each host has one row of the cube, afterwards a cube of 2
        // by 2 by 2.
        let cube = open(&[8, 8, 8]);
        let hosts: Vec<u32> = (0..512).map(|rank| rank / 8).collect();
        assert_eq!(edges(&cube, &hosts), 2 * 7 * 64);
        assert_eq!(edges(&cube, &placed(&cube, &hosts)), 3 * 3 * 64);
        // The same for ranks that are dealt to hosts in turn.
        let dealt: Vec<u32> = (0..512).map(|rank| rank % 64).collect();
        assert_eq!(edges(&cube, &placed(&cube, &dealt)), 3 * 3 * 64);
    }

    #[test]
    fn hosts_may_have_different_sizes() {
        let grid = open(&[4, 4]);
        // Hosts of 8, 4 and 4 ranks, which are dealt to the hosts in turn. The hosts get blocks of 2 by 4 and 2 by 2
        // places.
        let hosts: Vec<u32> = (0..16).map(|rank| [0, 1, 0, 2][rank % 4]).collect();
        assert_eq!((edges(&grid, &hosts), edges(&grid, &placed(&grid, &hosts))), (12, 6));
        // No order has fewer edges between hosts than the initial order, in which one host has a column and the other
        // host has the rest.
        let column: Vec<u32> = (0..16).map(|rank| [0, 1, 1, 1][rank % 4]).collect();
        assert_eq!(grid.place_on_hosts(&column), Ok((0..16).map(Rank).collect()));
    }

    #[test]
    fn large_grids_and_many_dimensions_end() {
        let large = open(&[64, 64, 16]);
        let hosts: Vec<u32> = (0..large.size()).map(|rank| rank / 64).collect();
        let after = large.edges_between_hosts(&placed(&large, &hosts)).unwrap();
        assert_eq!(after, 15 * 64 * 16 * 2 + 3 * 64 * 64);
        let many = open(&[2; 16]);
        let hosts: Vec<u32> = (0..many.size()).map(|rank| (rank ^ rank >> 3) % 4096).collect();
        assert!(edges(&many, &placed(&many, &hosts)) < edges(&many, &hosts));
    }

    #[test]
    fn each_place_needs_a_host() {
        let grid = open(&[2, 3]);
        let refused = TopologyError::TooFewRanks { size: 6, ranks: 5 };
        assert_eq!(grid.place_on_hosts(&[0; 5]), Err(refused));
        assert_eq!(grid.edges_between_hosts(&[0; 5]), Err(refused));
        assert_eq!(grid.place_on_hosts(&[0; 7]).map(|order| order.len()), Ok(6));
    }
}
