//! Topologies: which ranks of a group are neighbours. They are values, and making one needs no communication.

mod balance;
mod cartesian;
mod graph;
mod neighbourhood;
mod placement;
mod sub_grids;

pub use balance::balanced;
pub use cartesian::{Cartesian, Dimension, Shift};
pub use graph::{Edge, Graph, Neighbour};
pub use neighbourhood::Neighbourhood;
pub use sub_grids::SubGrids;

use crate::select::Rank;

/// The reason why a topology cannot be made, or does not have the requested rank, coordinate or dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A dimension has size 0.
    #[error("dimension {dimension} has size 0: give each dimension at least 1")]
    ZeroDimension {
        /// The dimension, counted from 0.
        dimension: usize,
    },
    /// The sizes have a product of 2^32 or more.
    #[error("the product of the sizes does not fit into 32 bits: make the grid smaller")]
    TooLarge,
    /// A grid has more places than there are ranks.
    #[error(
        "the grid has {size} places for {ranks} ranks: make it smaller, or choose its sizes with `balanced`"
    )]
    TooFewRanks {
        /// The number of places in the grid.
        size: u32,
        /// The number of ranks.
        ranks: u64,
    },
    /// No choice of the free sizes gives the grid as many places as there are ranks.
    #[error(
        "no grid with the fixed sizes has {ranks} places: let the product of the fixed sizes divide {ranks}"
    )]
    Indivisible {
        /// The number of ranks.
        ranks: u32,
    },
    /// The topology has no such rank.
    #[error("there is no rank {rank} in a topology of {size}: ranks count from 0")]
    InvalidRank {
        /// The rank.
        rank: Rank,
        /// The number of ranks in the topology.
        size: u32,
    },
    /// The grid has no such dimension.
    #[error(
        "there is no dimension {dimension} in a grid of {dimensions} dimensions: dimensions count from 0"
    )]
    InvalidDimension {
        /// The named dimension.
        dimension: usize,
        /// The number of dimensions.
        dimensions: usize,
    },
    /// A list needs one entry for each dimension, and has more or fewer.
    #[error("{len} entries are given for a grid of {dimensions} dimensions: give one for each dimension")]
    WrongLength {
        /// The number of entries.
        len: usize,
        /// The number of dimensions.
        dimensions: usize,
    },
    /// A coordinate lies outside of a dimension that is not periodic.
    #[error(
        "coordinate {coordinate} is outside of dimension {dimension}, which has size {size} and is not periodic"
    )]
    OutOfRange {
        /// The dimension, counted from 0.
        dimension: usize,
        /// The coordinate.
        coordinate: i64,
        /// The size of the dimension.
        size: u32,
    },
}
