//! The grids into which a grid is cut.

use super::{Cartesian, TopologyError};
use crate::select::Rank;

/// The equal grids into which a grid is cut along some of its dimensions, for example the rows of a matrix or the
/// planes of a cube. [`Cartesian::sub_grids`] returns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubGrids {
    grid: Cartesian,
    whole: Cartesian,
    keep: Box<[bool]>,
}

impl Cartesian {
    /// Cuts the grid into equal grids that have the dimensions for which `keep` is true (`MPI_Cart_sub`).
    ///
    /// ```
    /// use samite::{Cartesian, Dimension, Rank};
    ///
    /// // A matrix of two rows and three columns, cut into rows.
    /// let matrix = Cartesian::new(&[Dimension::open(2), Dimension::open(3)])?;
    /// let rows = matrix.sub_grids(&[false, true])?;
    /// assert_eq!((rows.count(), rows.grid().size()), (2, 3));
    /// // Rank 5 is in the second row, at its end.
    /// assert_eq!((rows.colour(Rank(5))?, rows.key(Rank(5))?), (1, 2));
    /// assert_eq!(rows.members(Rank(5))?.collect::<Vec<_>>(), [Rank(3), Rank(4), Rank(5)]);
    /// # Ok::<(), samite::TopologyError>(())
    /// ```
    /// [`Comm::split`](crate::Comm::split) takes a colour and a key, and gives each rank the communicator of its
    /// sub-grid:
    ///
    /// ```
    /// # use samite::{Cartesian, Dimension};
    /// # samite::local(6, |world| {
    /// # let comm = world.comm();
    /// # let matrix = Cartesian::new(&[Dimension::open(2), Dimension::open(3)]).unwrap();
    /// # let rows = matrix.sub_grids(&[false, true]).unwrap();
    /// let (colour, key) = (rows.colour(comm.rank()).unwrap(), rows.key(comm.rank()).unwrap());
    /// let row = comm.split(Some(colour), key)?.expect("it has a colour");
    /// assert_eq!((row.size(), i64::from(row.rank().0)), (3, key));
    ///
    /// let members = rows.members(comm.rank()).unwrap().map(u32::from);
    /// assert_eq!(row.group(), comm.group().include(members).unwrap());
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    ///
    /// # Errors
    /// [`TopologyError::WrongLength`].
    pub fn sub_grids(&self, keep: &[bool]) -> Result<SubGrids, TopologyError> {
        self.check_len(keep.len())?;
        let kept = self.dimensions().iter().zip(keep).filter(|(_, keep)| **keep);
        let grid = Self::new(&kept.map(|(dimension, _)| *dimension).collect::<Vec<_>>())?;
        Ok(SubGrids { grid, whole: self.clone(), keep: keep.into() })
    }
}

impl SubGrids {
    /// Returns the shape of each sub-grid.
    #[must_use]
    pub fn grid(&self) -> &Cartesian {
        &self.grid
    }

    /// Returns the number of sub-grids.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.whole.size() / self.grid.size()
    }

    /// Returns the number of the sub-grid that contains a rank of the whole grid. Sub-grids are counted in row-major
    /// order of the dimensions that are cut.
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn colour(&self, rank: Rank) -> Result<u32, TopologyError> {
        self.number(rank, false)
    }

    /// Returns the rank that a rank of the whole grid has in its sub-grid.
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn key(&self, rank: Rank) -> Result<i64, TopologyError> {
        self.number(rank, true).map(i64::from)
    }

    /// Iterates over the members of the sub-grid that contains the given rank, by their ranks in the whole grid. They
    /// come in the order of their ranks in the sub-grid.
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn members(&self, rank: Rank) -> Result<impl Iterator<Item = Rank> + '_, TopologyError> {
        let place = self.whole.place(rank)?;
        let first = place - self.offset(self.number(rank, true)?);
        Ok((0..self.grid.size()).map(move |key| Rank(first + self.offset(key))))
    }

    /// Returns the row-major number of a rank's coordinates in the kept dimensions or, if `kept` is false, in the other
    /// dimensions.
    fn number(&self, rank: Rank, kept: bool) -> Result<u32, TopologyError> {
        let place = self.whole.place(rank)?;
        let dimensions = self.whole.dimensions().iter().zip(self.whole.strides()).zip(&self.keep);
        let counted = dimensions.filter(|(_, keep)| **keep == kept);
        // This does not overflow: the result is less than the product of the sizes, which is at most the size of the
        // whole grid.
        Ok(counted.fold(0, |number, ((dimension, stride), _)| {
            number * dimension.size + place / stride % dimension.size
        }))
    }

    /// Returns the distance, in ranks of the whole grid, from rank 0 of a sub-grid to its rank `key`.
    fn offset(&self, key: u32) -> u32 {
        let strides =
            self.whole.strides().zip(&self.keep).filter(|(_, keep)| **keep).map(|(stride, _)| stride);
        let inner = self.grid.dimensions().iter().zip(self.grid.strides());
        inner.zip(strides).map(|((dimension, inner), stride)| key / inner % dimension.size * stride).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cartesian::tests::{grids, places};
    use super::*;

    proptest! {
        #[test]
        fn parts_agree_with_chosen_coordinates(grid in grids(), keep in prop::collection::vec(any::<bool>(), 4)) {
            let keep = &keep[..grid.dimensions().len()];
            let parts = grid.sub_grids(keep).unwrap();
            let places = places(&grid);
            let choose = |place: &[i64], kept: bool| -> Vec<i64> {
                place.iter().zip(keep).filter(|(_, keep)| **keep == kept).map(|(at, _)| *at).collect()
            };
            // In row-major order, sub-grids appear in ascending order of the coordinates that are cut.
            let mut colours: Vec<Vec<i64>> = places.iter().map(|place| choose(place, false)).collect();
            colours.sort();
            colours.dedup();
            prop_assert_eq!(parts.count() as usize, colours.len());
            for (rank, place) in (0..).map(Rank).zip(&places) {
                let colour = parts.colour(rank).unwrap() as usize;
                prop_assert_eq!(&colours[colour], &choose(place, false));
                let key = parts.grid().rank(&choose(place, true)).unwrap();
                prop_assert_eq!(parts.key(rank), Ok(i64::from(key.0)));
                let members = (0..).map(Rank).zip(&places).filter(|(_, other)| choose(other, false) == colours[colour]);
                let members: Vec<Rank> = members.map(|(rank, _)| rank).collect();
                prop_assert_eq!(parts.members(rank).unwrap().collect::<Vec<_>>(), members);
            }
            let behind = Rank(grid.size());
            let refused = TopologyError::InvalidRank { rank: behind, size: grid.size() };
            prop_assert_eq!(parts.colour(behind), Err(refused));
            prop_assert_eq!(parts.key(behind), Err(refused));
            prop_assert_eq!(parts.members(behind).err(), Some(refused));
        }
    }

    #[test]
    fn one_choice_for_each_dimension() {
        let grid = Cartesian::new(&[crate::Dimension::open(2)]).unwrap();
        assert_eq!(grid.sub_grids(&[]), Err(TopologyError::WrongLength { len: 0, dimensions: 1 }));
        assert_eq!(grid.sub_grids(&[true; 2]), Err(TopologyError::WrongLength { len: 2, dimensions: 1 }));
    }
}
