//! Graphs of neighbours.

use super::TopologyError;
use crate::select::Rank;

/// The neighbours of one rank in a directed graph: the sources, which send to the rank, and the destinations, to which
/// the rank sends. A neighbourhood collective has its buffers in the order of these neighbours (MPI 4.1, sections 8.5.4
/// and 8.6). A rank may be its own neighbour, and may be named several times.
///
/// ```
/// use samite::{Edge, Graph, Neighbour, Rank};
///
/// // A ring of four ranks: the graph that rank 0 makes of its own neighbours equals the graph from the edges of all ranks.
/// let own = Graph::new(4, [Neighbour::from(Rank(3))], [Neighbour::from(Rank(1))])?;
/// let ring: Vec<Edge> = (0..4).map(|rank| Edge::new(Rank(rank), Rank((rank + 1) % 4))).collect();
/// assert_eq!(Graph::from_edges(4, Rank(0), ring)?, own);
/// # Ok::<(), samite::TopologyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Graph {
    sources: Box<[Neighbour]>,
    destinations: Box<[Neighbour]>,
}

/// A rank at the other end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The rank.
    pub rank: Rank,
    /// The weight of the edge, as a measure of its traffic. It has no unit.
    pub weight: u32,
}

/// An edge of a directed graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The rank that sends.
    pub source: Rank,
    /// The rank that receives.
    pub destination: Rank,
    /// The weight of the edge, as a measure of its traffic. It has no unit.
    pub weight: u32,
}

impl Graph {
    /// Returns the graph of a rank that knows its own neighbours, in a group of `ranks`
    /// (`MPI_Dist_graph_create_adjacent`).
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn new(
        ranks: u32,
        sources: impl IntoIterator<Item = Neighbour>,
        destinations: impl IntoIterator<Item = Neighbour>,
    ) -> Result<Self, TopologyError> {
        let checked = |neighbour: Neighbour| check(ranks, neighbour.rank).map(|()| neighbour);
        let sources = sources.into_iter().map(checked).collect::<Result<_, _>>()?;
        let destinations = destinations.into_iter().map(checked).collect::<Result<_, _>>()?;
        Ok(Self { sources, destinations })
    }

    /// Returns the graph of one rank, given all edges in a group of `ranks` (`MPI_Dist_graph_create`). Its neighbours
    /// come in the order of the edges.
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn from_edges(
        ranks: u32,
        rank: Rank,
        edges: impl IntoIterator<Item = Edge>,
    ) -> Result<Self, TopologyError> {
        check(ranks, rank)?;
        let (mut sources, mut destinations) = (Vec::new(), Vec::new());
        for Edge { source, destination, weight } in edges {
            check(ranks, source)?;
            check(ranks, destination)?;
            if destination == rank {
                sources.push(Neighbour { rank: source, weight });
            }
            if source == rank {
                destinations.push(Neighbour { rank: destination, weight });
            }
        }
        Ok(Self { sources: sources.into(), destinations: destinations.into() })
    }

    /// Returns the neighbours that send to the rank.
    #[must_use]
    pub fn sources(&self) -> &[Neighbour] {
        &self.sources
    }

    /// Returns the neighbours to which the rank sends.
    #[must_use]
    pub fn destinations(&self) -> &[Neighbour] {
        &self.destinations
    }
}

impl Edge {
    /// Returns an edge of weight 1.
    #[must_use]
    pub const fn new(source: Rank, destination: Rank) -> Self {
        Self { source, destination, weight: 1 }
    }
}

/// Returns a neighbour by an edge of weight 1.
impl From<Rank> for Neighbour {
    fn from(rank: Rank) -> Self {
        Self { rank, weight: 1 }
    }
}

fn check(ranks: u32, rank: Rank) -> Result<(), TopologyError> {
    match rank.0 < ranks {
        true => Ok(()),
        false => Err(TopologyError::InvalidRank { rank, size: ranks }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_ends_of_edges_agree(
            edges in prop::collection::vec((0u32..6, 0u32..6, 0u32..4), 0..30),
            ranks in 1u32..8,
        ) {
            let edge = |&(source, destination, weight): &(u32, u32, u32)| {
                Edge { source: Rank(source), destination: Rank(destination), weight }
            };
            let outside = edges.iter().flat_map(|edge| [edge.0, edge.1]).find(|rank| *rank >= ranks);
            let mut received = Vec::new();
            let mut sent = Vec::new();
            for rank in 0..ranks {
                let graph = Graph::from_edges(ranks, Rank(rank), edges.iter().map(edge));
                if let Some(outside) = outside {
                    prop_assert_eq!(graph, Err(TopologyError::InvalidRank { rank: Rank(outside), size: ranks }));
                    continue;
                }
                let graph = graph.unwrap();
                let both = (graph.sources().to_vec(), graph.destinations().to_vec());
                prop_assert_eq!(Graph::new(ranks, both.0, both.1), Ok(graph.clone()));
                received.extend(graph.sources().iter().map(|source| (source.rank.0, rank, source.weight)));
                sent.extend(graph.destinations().iter().map(|to| (rank, to.rank.0, to.weight)));
                let to_it: Vec<u32> = edges.iter().filter(|edge| edge.1 == rank).map(|edge| edge.0).collect();
                prop_assert_eq!(graph.sources().iter().map(|source| source.rank.0).collect::<Vec<_>>(), to_it);
            }
            if outside.is_none() {
                let mut edges = edges;
                for list in [&mut edges, &mut received, &mut sent] {
                    list.sort_unstable();
                }
                prop_assert_eq!(&received, &edges);
                prop_assert_eq!(&sent, &edges);
            }
        }
    }

    #[test]
    fn ranks_outside_of_the_group_are_refused() {
        let refused = Err(TopologyError::InvalidRank { rank: Rank(4), size: 4 });
        assert_eq!(Graph::new(4, [Rank(4).into()], []), refused);
        assert_eq!(Graph::new(4, [], [Rank(4).into()]), refused);
        assert_eq!(Graph::from_edges(4, Rank(4), []), refused);
    }
}
