//! Cartesian grids of ranks.

use super::TopologyError;
use crate::select::Rank;

/// A grid of ranks in any number of dimensions. Ranks are counted in row-major order: the last coordinate changes
/// first.
///
/// It corresponds to a communicator of `MPI_Cart_create` (MPI 4.1, section 8.5), but is a value apart from any
/// communicator. A grid without dimensions has one place.
///
/// ```
/// use samite::{Cartesian, Dimension, Rank};
///
/// // Two rows of three. Each row is a ring.
/// let grid = Cartesian::new(&[Dimension::open(2), Dimension::periodic(3)])?;
/// assert_eq!(grid.coordinates(Rank(5))?, [1, 2]);
/// assert_eq!(grid.rank(&[1, 3])?, Rank(3));
///
/// // The source and the destination of a shift to the right, and of a shift down.
/// let right = grid.shift(Rank(5), 1, 1)?;
/// assert_eq!((right.source, right.destination), (Some(Rank(4)), Some(Rank(3))));
/// let down = grid.shift(Rank(5), 0, 1)?;
/// assert_eq!((down.source, down.destination), (Some(Rank(2)), None));
/// # Ok::<(), samite::TopologyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cartesian {
    dimensions: Box<[Dimension]>,
    size: u32,
}

/// A dimension of a [`Cartesian`] grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dimension {
    /// The number of coordinates, which count from 0.
    pub size: u32,
    /// True if the last and the first coordinate are neighbours.
    pub periodic: bool,
}

/// The partners of a rank in a shift along one dimension. `None` stands for the space beyond the edge of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The rank whose data comes to this rank.
    pub source: Option<Rank>,
    /// The rank to which the data of this rank goes.
    pub destination: Option<Rank>,
}

impl Dimension {
    /// Returns a dimension with two edges.
    #[must_use]
    pub const fn open(size: u32) -> Self {
        Self { size, periodic: false }
    }

    /// Returns a dimension that is a ring.
    #[must_use]
    pub const fn periodic(size: u32) -> Self {
        Self { size, periodic: true }
    }

    /// Returns the coordinate, modulo the size if the dimension is periodic. Returns `None` beyond an edge.
    fn wrap(self, coordinate: i128) -> Option<u32> {
        let coordinate = match self.periodic {
            true => coordinate.rem_euclid(i128::from(self.size)),
            false => coordinate,
        };
        u32::try_from(coordinate).ok().filter(|&coordinate| coordinate < self.size)
    }
}

impl Cartesian {
    /// Returns the grid with these dimensions.
    ///
    /// # Errors
    /// [`TopologyError::ZeroDimension`], and [`TopologyError::TooLarge`] for 2^32 places or more.
    pub fn new(dimensions: &[Dimension]) -> Result<Self, TopologyError> {
        if let Some(dimension) = dimensions.iter().position(|dimension| dimension.size == 0) {
            return Err(TopologyError::ZeroDimension { dimension });
        }
        let size = dimensions.iter().try_fold(1u32, |size, dimension| size.checked_mul(dimension.size));
        Ok(Self { dimensions: dimensions.into(), size: size.ok_or(TopologyError::TooLarge)? })
    }

    /// Returns the dimensions.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// Returns the number of places, each of which is for one rank.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Checks that a group of this many ranks is large enough. Ranks from [`Cartesian::size`] on have no place.
    ///
    /// ```
    /// # use samite::{Cartesian, Dimension};
    /// let grid = Cartesian::new(&[Dimension::open(2), Dimension::open(3)])?;
    /// assert!(grid.fits(7).is_ok());
    /// assert!(grid.fits(5).is_err());
    /// # Ok::<(), samite::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// [`TopologyError::TooFewRanks`].
    pub fn fits(&self, ranks: u32) -> Result<(), TopologyError> {
        match self.size <= ranks {
            true => Ok(()),
            false => Err(TopologyError::TooFewRanks { size: self.size, ranks: u64::from(ranks) }),
        }
    }

    /// Returns the coordinates of a rank, one for each dimension (`MPI_Cart_coords`).
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn coordinates(&self, rank: Rank) -> Result<Vec<i64>, TopologyError> {
        let place = self.place(rank)?;
        let coordinate = |(dimension, stride): (&Dimension, u32)| i64::from(place / stride % dimension.size);
        Ok(self.dimensions.iter().zip(self.strides()).map(coordinate).collect())
    }

    /// Returns the rank with these coordinates (`MPI_Cart_rank`). In a periodic dimension a coordinate is taken modulo
    /// the size of the dimension.
    ///
    /// # Errors
    /// [`TopologyError::WrongLength`], and [`TopologyError::OutOfRange`] in a dimension that is not periodic.
    pub fn rank(&self, coordinates: &[i64]) -> Result<Rank, TopologyError> {
        self.check_len(coordinates.len())?;
        let mut rank = 0;
        for (dimension, (bounds, &coordinate)) in self.dimensions.iter().zip(coordinates).enumerate() {
            let outside = TopologyError::OutOfRange { dimension, coordinate, size: bounds.size };
            // This does not overflow: the result is less than the product of the sizes up to this dimension.
            rank = rank * bounds.size + bounds.wrap(coordinate.into()).ok_or(outside)?;
        }
        Ok(Rank(rank))
    }

    /// Returns the ranks at a distance along a dimension, in both directions (`MPI_Cart_shift`). The source is at
    /// `-distance`, the destination at `distance`.
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`], [`TopologyError::InvalidDimension`].
    pub fn shift(&self, rank: Rank, dimension: usize, distance: i64) -> Result<Shift, TopologyError> {
        let place = self.place(rank)?;
        let dimensions = self.dimensions.len();
        let bounds = self.dimensions.get(dimension);
        let bounds = *bounds.ok_or(TopologyError::InvalidDimension { dimension, dimensions })?;
        // This does not overflow: the product divides the size of the grid.
        let stride: u32 = self.dimensions[dimension + 1..].iter().map(|behind| behind.size).product();
        Ok(shifted(place, bounds, stride, distance))
    }

    /// Returns the neighbours of a rank in the order of MPI's neighbourhood collectives (MPI 4.1, section 8.6): for
    /// each dimension, the neighbour at the smaller coordinate and the neighbour at the larger coordinate. `None`
    /// stands for the space beyond an edge. A rank occurs more than once in a periodic dimension of size 1 or 2.
    ///
    /// ```
    /// # use samite::{Cartesian, Dimension, Rank};
    /// let grid = Cartesian::new(&[Dimension::open(2), Dimension::periodic(3)])?;
    /// assert_eq!(grid.neighbours(Rank(1))?, [None, Some(Rank(4)), Some(Rank(0)), Some(Rank(2))]);
    /// # Ok::<(), samite::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// [`TopologyError::InvalidRank`].
    pub fn neighbours(&self, rank: Rank) -> Result<Vec<Option<Rank>>, TopologyError> {
        let place = self.place(rank)?;
        let shifts = self
            .dimensions
            .iter()
            .zip(self.strides())
            .map(|(bounds, stride)| shifted(place, *bounds, stride, 1));
        Ok(shifts.flat_map(|shift| [shift.source, shift.destination]).collect())
    }

    /// Returns the distance between the ranks of successive coordinates, for each dimension.
    pub(super) fn strides(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        let mut behind = self.size;
        self.dimensions.iter().map(move |dimension| {
            behind /= dimension.size;
            behind
        })
    }

    pub(super) fn place(&self, rank: Rank) -> Result<u32, TopologyError> {
        match rank.0 < self.size {
            true => Ok(rank.0),
            false => Err(TopologyError::InvalidRank { rank, size: self.size }),
        }
    }

    /// Checks that a list has one entry for each dimension.
    pub(super) fn check_len(&self, len: usize) -> Result<(), TopologyError> {
        match self.dimensions.len() {
            dimensions if dimensions == len => Ok(()),
            dimensions => Err(TopologyError::WrongLength { len, dimensions }),
        }
    }
}

fn shifted(place: u32, bounds: Dimension, stride: u32, distance: i64) -> Shift {
    let coordinate = place / stride % bounds.size;
    let origin = place - coordinate * stride;
    let partner = |distance: i128| {
        bounds.wrap(i128::from(coordinate) + distance).map(|coordinate| Rank(origin + coordinate * stride))
    };
    Shift { source: partner(-i128::from(distance)), destination: partner(distance.into()) }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates grids of up to four dimensions.
    pub(in super::super) fn grids() -> impl Strategy<Value = Cartesian> {
        let dimension = (1u32..6, any::<bool>()).prop_map(|(size, periodic)| Dimension { size, periodic });
        prop::collection::vec(dimension, 0..5).prop_map(|dimensions| Cartesian::new(&dimensions).unwrap())
    }

    /// Returns the coordinates of all ranks, in row-major order.
    pub(in super::super) fn places(grid: &Cartesian) -> Vec<Vec<i64>> {
        let mut places = vec![Vec::new()];
        for dimension in grid.dimensions() {
            let line =
                |place: Vec<i64>| (0..i64::from(dimension.size)).map(move |at| [&place[..], &[at]].concat());
            places = places.into_iter().flat_map(line).collect();
        }
        places
    }

    /// Finds the place by stepping one coordinate at a time.
    fn walk(grid: &Cartesian, from: &[i64], dimension: usize, distance: i64) -> Option<Rank> {
        let bounds = grid.dimensions()[dimension];
        let mut to = from.to_vec();
        for _ in 0..distance.abs() {
            to[dimension] += distance.signum();
            if bounds.periodic && to[dimension] == i64::from(bounds.size) {
                to[dimension] = 0;
            } else if bounds.periodic && to[dimension] < 0 {
                to[dimension] = i64::from(bounds.size) - 1;
            }
        }
        (0..).zip(places(grid)).find(|(_, place)| *place == to).map(|(rank, _)| Rank(rank))
    }

    proptest! {
        #[test]
        fn ranks_are_row_major(grid in grids()) {
            let places = places(&grid);
            prop_assert_eq!(places.len(), grid.size() as usize);
            for (rank, place) in (0..).map(Rank).zip(&places) {
                prop_assert_eq!(&grid.coordinates(rank).unwrap(), place);
                prop_assert_eq!(grid.rank(place), Ok(rank));
            }
            let behind = Rank(grid.size());
            let refused = TopologyError::InvalidRank { rank: behind, size: grid.size() };
            prop_assert_eq!(grid.coordinates(behind), Err(refused));
            prop_assert_eq!(grid.neighbours(behind), Err(refused));
            prop_assert_eq!(grid.shift(behind, 0, 1), Err(refused));
        }

        #[test]
        fn a_shift_agrees_with_single_steps(grid in grids(), distance in -12i64..12) {
            for (rank, place) in (0..).map(Rank).zip(places(&grid)) {
                let mut neighbours = Vec::new();
                for dimension in 0..grid.dimensions().len() {
                    let expected = |distance| walk(&grid, &place, dimension, distance);
                    let shift = grid.shift(rank, dimension, distance).unwrap();
                    prop_assert_eq!(shift.source, expected(-distance));
                    prop_assert_eq!(shift.destination, expected(distance));
                    neighbours.extend([expected(-1), expected(1)]);
                }
                prop_assert_eq!(grid.neighbours(rank).unwrap(), neighbours);
            }
        }

        #[test]
        fn any_coordinate_and_distance_has_an_answer(
            grid in grids(),
            coordinates in prop::collection::vec(any::<i64>(), 0..6),
            rank: u32,
            dimension in 0usize..6,
            distance: i64,
        ) {
            match grid.rank(&coordinates) {
                Ok(rank) => prop_assert!(rank.0 < grid.size()),
                Err(TopologyError::WrongLength { len, dimensions }) => {
                    prop_assert_eq!((len, dimensions), (coordinates.len(), grid.dimensions().len()));
                    prop_assert_ne!(len, dimensions);
                }
                Err(TopologyError::OutOfRange { dimension, coordinate, size }) => {
                    prop_assert_eq!(coordinates[dimension], coordinate);
                    prop_assert_eq!(grid.dimensions()[dimension], Dimension::open(size));
                    prop_assert!(!(0..i64::from(size)).contains(&coordinate));
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            let exists = rank < grid.size() && dimension < grid.dimensions().len();
            prop_assert_eq!(grid.shift(Rank(rank), dimension, distance).is_ok(), exists);
        }
    }

    #[test]
    fn extreme_distances_do_not_overflow() {
        let ring = Cartesian::new(&[Dimension::periodic(u32::MAX)]).unwrap();
        let shift = ring.shift(Rank(u32::MAX - 1), 0, i64::MIN).unwrap();
        let at = |distance: i128| (i128::from(u32::MAX - 1) + distance).rem_euclid(u32::MAX.into());
        let rank = |distance| Some(Rank(u32::try_from(at(distance)).unwrap()));
        assert_eq!(shift.source, rank(-i128::from(i64::MIN)));
        assert_eq!(shift.destination, rank(i64::MIN.into()));
    }

    #[test]
    fn impossible_grids_are_refused() {
        let new =
            |sizes: &[u32]| Cartesian::new(&sizes.iter().copied().map(Dimension::open).collect::<Vec<_>>());
        assert_eq!(new(&[3, 0]), Err(TopologyError::ZeroDimension { dimension: 1 }));
        assert_eq!(new(&[u32::MAX, u32::MAX, 0]), Err(TopologyError::ZeroDimension { dimension: 2 }));
        assert_eq!(new(&[1 << 16, 1 << 16]), Err(TopologyError::TooLarge));
        assert_eq!(new(&[]).unwrap().size(), 1);
        assert_eq!(new(&[2, 3]).unwrap().fits(5), Err(TopologyError::TooFewRanks { size: 6, ranks: 5 }));
    }
}
