//! The neighbours of one rank, as the argument of neighbourhood collectives.

use super::{Cartesian, Graph, TopologyError};
use crate::select::Rank;

/// The neighbours of one rank in the order of the blocks of its buffers: the argument of
/// [`Comm::neighbour_alltoall`](crate::Comm::neighbour_alltoall) and similar calls (MPI 4.1, section 8.6).
///
/// It is made of any topology: by [`Cartesian::neighbourhood`], or of a [`Graph`] by `From`. A symmetric graph
/// (`MPI_Graph_create`) is a [`Graph`] whose sources equal its destinations. The default has no neighbours: a rank
/// without a place in the grid passes it.
///
/// ```
/// use samite::{Cartesian, Dimension, Graph, Neighbour, Neighbourhood, Rank};
///
/// let line = Cartesian::new(&[Dimension::open(3)])?;
/// // Rank 0 has a block for the neighbour beyond the edge too.
/// assert_eq!(line.neighbourhood(Rank(0))?.sources(), [None, Some(Rank(1))]);
/// let graph = Graph::new(3, [], [Neighbour::from(Rank(2))])?;
/// assert_eq!(Neighbourhood::from(&graph).destinations(), [Some(Rank(2))]);
/// # Ok::<(), samite::TopologyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Neighbourhood {
    sources: Vec<Option<Rank>>,
    destinations: Vec<Option<Rank>>,
    /// True in a grid: see [`Neighbourhood::rounds`].
    is_grid: bool,
}

impl Neighbourhood {
    /// Returns the neighbours from which the rank receives, one for each block of its output. `None` stands for the
    /// space beyond the edge of a grid; the block of such a neighbour is not changed.
    #[must_use]
    pub fn sources(&self) -> &[Option<Rank>] {
        &self.sources
    }

    /// Returns the neighbours to which the rank sends, one for each block of its input.
    #[must_use]
    pub fn destinations(&self) -> &[Option<Rank>] {
        &self.destinations
    }

    /// Returns numbers that tell apart the messages between two ranks, for the received and for the sent messages.
    ///
    /// In a grid a message has the number of its direction. So in a periodic dimension of size 1 or 2, the block that a
    /// rank sends to its lower neighbour arrives in the block of the receiver's upper neighbour (MPI 4.1, section 8.6).
    /// In a graph, the messages between two ranks are received in the order in which they are sent.
    pub(crate) fn rounds(&self) -> [impl Fn(usize) -> u32; 2] {
        let is_grid = self.is_grid;
        // The neighbours of a dimension have an even and an odd index, the lower neighbour first.
        [1, 0].map(|flip| move |index: usize| if is_grid { index as u32 ^ flip } else { 0 })
    }
}

impl From<&Graph> for Neighbourhood {
    fn from(graph: &Graph) -> Self {
        let sources = graph.sources().iter().map(|neighbour| Some(neighbour.rank)).collect();
        let destinations = graph.destinations().iter().map(|neighbour| Some(neighbour.rank)).collect();
        Self { sources, destinations, is_grid: false }
    }
}

impl Cartesian {
    /// Returns the [`neighbours`](Self::neighbours) of a rank as the argument of neighbourhood collectives. They are
    /// both the sources and the destinations.
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn neighbourhood(&self, rank: Rank) -> Result<Neighbourhood, TopologyError> {
        let neighbours = self.neighbours(rank)?;
        Ok(Neighbourhood { sources: neighbours.clone(), destinations: neighbours, is_grid: true })
    }
}
