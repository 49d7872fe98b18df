//! Symmetric successive over-relaxation in a cube, by wavefronts: the pattern of the LU benchmark of NAS (Bailey et
//! al., The NAS parallel benchmarks, 1991).
//!
//! The ranks form a grid; each owns a column of the cube. In the forward sweep a cell needs the new values of its
//! neighbours in the west, in the north and below. So each rank receives the edges of one layer from two ranks,
//! computes the layer, and sends its own edges on: a wave of many short messages from one corner of the grid to the
//! opposite corner. The backward sweep is the reverse. Each cell is computed from the same values in the same order for
//! any number of ranks, so the result must equal the serial result bit for bit. Rank 0 also computes the serial result,
//! and compares.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/lu [CELLS [ITERATIONS]]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use samite::{Cartesian, Comm, Dimension, Rank, balanced};

/// The tags of edges, by the dimension of the grid in which they travel.
const EDGE: [u64; 2] = [1, 2];
/// The tag of a rank's result.
const RESULT: u64 = 3;

/// The factor of over-relaxation.
const OMEGA: f64 = 1.2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let cells: usize = args.next().map_or(Ok(48), |text| text.parse())?;
    let iterations: usize = args.next().map_or(Ok(10), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let sizes = balanced(comm.size(), &[None, None])?;
    if sizes.iter().any(|&size| cells < size as usize) {
        return Err(format!("{cells} cells are too few for a grid of {sizes:?} ranks").into());
    }
    let grid = Cartesian::new(&[Dimension::open(sizes[0]), Dimension::open(sizes[1])])?;

    let start = now();
    let mut block = Block::initial(ranges(&grid, comm.rank(), cells)?, cells);
    let before = [0, 1].map(|dimension| grid.shift(comm.rank(), dimension, 1));
    let [north, west] = before;
    let (north, west) = (north?, west?);
    for _ in 0..iterations {
        block.sweep(comm, [north.source, west.source], [north.destination, west.destination], false)?;
        block.sweep(comm, [north.destination, west.destination], [north.source, west.source], true)?;
    }
    let seconds = start.elapsed().as_secs_f64();

    if comm.rank() != 0 {
        comm.send(&block.interior(), Rank(0), RESULT)?;
        return Ok(());
    }
    let mut serial = Block::initial([0..cells, 0..cells], cells);
    for _ in 0..iterations {
        serial.sweep(comm, [None; 2], [None; 2], false)?;
        serial.sweep(comm, [None; 2], [None; 2], true)?;
    }
    let mut wrong = block.differences(&serial, &ranges(&grid, Rank(0), cells)?);
    for rank in (1..comm.size()).map(Rank) {
        let part = comm.recv_vec::<f64>(rank, RESULT)?.buffer;
        let places = ranges(&grid, rank, cells)?;
        wrong += Block::from_interior(places.clone(), cells, &part)?.differences(&serial, &places);
    }
    match wrong {
        0 => {
            let ranks = comm.size();
            println!(
                "lu: ranks={ranks} cells={cells}^3 iterations={iterations} seconds={seconds:.3} verified"
            );
            Ok(())
        }
        wrong => Err(format!("{wrong} cells differ from the serial solution").into()),
    }
}

/// Returns the rows and columns of a rank.
fn ranges(grid: &Cartesian, rank: Rank, cells: usize) -> Result<[Range<usize>; 2], samite::TopologyError> {
    let place = grid.coordinates(rank)?;
    Ok([0, 1].map(|dimension| part(cells, grid.dimensions()[dimension].size, place[dimension] as u32)))
}

/// The cells of a rank in layers, with a frame of one cell that holds the edges of its neighbours. The values outside
/// the cube are zero.
struct Block {
    rows: usize,
    columns: usize,
    layers: usize,
    values: Vec<f64>,
    /// The right-hand side of the equation, without a frame.
    rhs: Vec<f64>,
}

impl Block {
    fn initial([rows, columns]: [Range<usize>; 2], layers: usize) -> Block {
        let rhs = (0..layers).flat_map(|layer| {
            let columns = columns.clone();
            rows.clone().flat_map(move |row| columns.clone().map(move |column| rhs_at(layer, row, column)))
        });
        let rhs = rhs.collect();
        let (rows, columns) = (rows.len(), columns.len());
        let values = vec![0.0; (layers + 2) * (rows + 2) * (columns + 2)];
        Block { rows, columns, layers, values, rhs }
    }

    fn from_interior(ranges: [Range<usize>; 2], layers: usize, interior: &[f64]) -> Result<Block, String> {
        let mut block = Self::initial(ranges, layers);
        if interior.len() != block.rhs.len() {
            return Err(format!("a rank sent {} cells instead of {}", interior.len(), block.rhs.len()));
        }
        let places: Vec<usize> = block.places().collect();
        for (place, value) in places.into_iter().zip(interior) {
            block.values[place] = *value;
        }
        Ok(block)
    }

    /// Computes all layers in their order, or backwards. For each dimension, the neighbour's edge of a layer comes from
    /// the rank in `from` before the layer is computed, and the layer's own edge goes to the rank in `to` afterwards.
    fn sweep(
        &mut self,
        comm: &Comm,
        from: [Option<Rank>; 2],
        to: [Option<Rank>; 2],
        backwards: bool,
    ) -> Result<(), samite::Error> {
        for layer in 1..=self.layers {
            let layer = if backwards { self.layers + 1 - layer } else { layer };
            for dimension in 0..2 {
                let mut edge = self.edge(layer, dimension, !backwards, true);
                if from[dimension].is_some() {
                    comm.recv(&mut edge, from[dimension], EDGE[dimension])?;
                    self.set_edge(layer, dimension, !backwards, &edge);
                }
            }
            self.relax(layer, backwards);
            for dimension in 0..2 {
                let edge = self.edge(layer, dimension, backwards, false);
                comm.send(&edge, to[dimension], EDGE[dimension])?;
            }
        }
        // Afterwards the whole frame holds the values that the neighbours have at the end of this sweep. The result
        // does not need this exchange: the next sweep receives these edges again before it computes with them. It is
        // part of the pattern, because the LU benchmark of NAS also exchanges whole faces beside the edges of single
        // layers.
        self.exchange_behind(comm, from, to, backwards)
    }

    /// Sends the edges of all layers on the side at which this sweep began to the ranks in `from`, and sets the frame
    /// on the opposite side to the edges from the ranks in `to`.
    fn exchange_behind(
        &mut self,
        comm: &Comm,
        from: [Option<Rank>; 2],
        to: [Option<Rank>; 2],
        backwards: bool,
    ) -> Result<(), samite::Error> {
        for dimension in 0..2 {
            let layers = 1..=self.layers;
            let edges = layers.clone().flat_map(|layer| self.edge(layer, dimension, !backwards, false));
            let data: Vec<f64> = edges.collect();
            let mut behind = vec![0.0; data.len()];
            comm.sendrecv(
                &data,
                from[dimension],
                EDGE[dimension],
                &mut behind,
                to[dimension],
                EDGE[dimension],
            )?;
            if to[dimension].is_some() {
                for (layer, edge) in layers.zip(behind.chunks_exact(data.len() / self.layers)) {
                    self.set_edge(layer, dimension, backwards, edge);
                }
            }
        }
        Ok(())
    }

    /// Computes the cells of a layer, row by row from the north-west corner, or backwards.
    fn relax(&mut self, layer: usize, backwards: bool) {
        let (stride, plane) = (self.columns + 2, (self.rows + 2) * (self.columns + 2));
        for index in 0..self.rows * self.columns {
            let index = if backwards { self.rows * self.columns - 1 - index } else { index };
            let place = self.place(layer, index / self.columns + 1, index % self.columns + 1);
            let values = &self.values;
            let around = (values[place - plane] + values[place + plane])
                + (values[place - stride] + values[place + stride])
                + (values[place - 1] + values[place + 1]);
            let rhs = self.rhs[(layer - 1) * self.rows * self.columns + index];
            let relaxed = (rhs + around) / 6.0;
            self.values[place] += OMEGA * (relaxed - values[place]);
        }
    }

    fn place(&self, layer: usize, row: usize, column: usize) -> usize {
        (layer * (self.rows + 2) + row) * (self.columns + 2) + column
    }

    /// Returns the indices in `values` of an edge of a layer: a row for dimension 0, a column for dimension 1. `first`
    /// selects the first or the last edge in that dimension. `frame` selects the edge in the frame, or the edge of the
    /// rank's own cells beside it.
    fn edge_places(&self, layer: usize, dimension: usize, first: bool, frame: bool) -> Vec<usize> {
        let size = [self.rows, self.columns][dimension];
        let across = match (first, frame) {
            (true, true) => 0,
            (true, false) => 1,
            (false, false) => size,
            (false, true) => size + 1,
        };
        match dimension {
            0 => (1..=self.columns).map(|column| self.place(layer, across, column)).collect(),
            _ => (1..=self.rows).map(|row| self.place(layer, row, across)).collect(),
        }
    }

    fn edge(&self, layer: usize, dimension: usize, first: bool, frame: bool) -> Vec<f64> {
        let places = self.edge_places(layer, dimension, first, frame);
        places.into_iter().map(|place| self.values[place]).collect()
    }

    /// Sets an edge of the frame.
    fn set_edge(&mut self, layer: usize, dimension: usize, first: bool, values: &[f64]) {
        for (place, value) in self.edge_places(layer, dimension, first, true).into_iter().zip(values) {
            self.values[place] = *value;
        }
    }

    /// Returns the indices in `values` of the rank's own cells.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (1..=self.layers).flat_map(move |layer| {
            (1..=self.rows)
                .flat_map(move |row| (1..=self.columns).map(move |column| self.place(layer, row, column)))
        })
    }

    fn interior(&self) -> Vec<f64> {
        self.places().map(|place| self.values[place]).collect()
    }

    /// Returns the number of cells that differ from the same cells of the whole cube.
    fn differences(&self, whole: &Block, [rows, columns]: &[Range<usize>; 2]) -> usize {
        let places = (1..=self.layers).flat_map(|layer| {
            rows.clone().flat_map(move |row| {
                columns.clone().map(move |column| whole.place(layer, row + 1, column + 1))
            })
        });
        let pairs = self.places().zip(places);
        pairs.filter(|(ours, theirs)| self.values[*ours].to_bits() != whole.values[*theirs].to_bits()).count()
    }
}

/// Returns the right-hand side at a cell.
fn rhs_at(layer: usize, row: usize, column: usize) -> f64 {
    ((layer * 31 + row * 17 + column * 7) % 64) as f64 / 64.0
}

/// Returns part `index` of `total` cells that are divided into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| total * index as usize / parts as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
