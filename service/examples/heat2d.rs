//! The heat equation on a square plate, by Jacobi iteration on blocks that exchange their edges.
//!
//! Each rank owns a block of the plate, with a frame of one cell around it that holds its neighbours' edges. A
//! persistent neighbourhood collective exchanges the edges or, with the argument `windows`, each rank writes its edges
//! to a window of its neighbours. While the edges travel, each rank computes the cells that do not depend on them.
//! Every cell is computed by the same operations in the same order for any number of ranks. So the result must equal
//! the serial solution bit for bit. Rank 0 also computes the serial solution, and compares.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/heat2d [CELLS [STEPS [windows]]]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use samite::{
    Cartesian, Comm, Dimension, Done, Neighbourhood, PersistentCollective, Rank, Source, Window, consecutive,
};

/// The tag of a finished block.
const BLOCK: u64 = 1;

/// Conductivity times time step over cell area: at most 0.25 for the iteration to be stable.
const ALPHA: f64 = 0.2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let cells: usize = args.next().map_or(Ok(512), |text| text.parse())?;
    let steps: usize = args.next().map_or(Ok(400), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();
    let has_windows = match args.next().as_deref() {
        None => false,
        Some("windows") => true,
        Some(other) => return Err(format!("`{other}` is not `windows`").into()),
    };
    let mut grid = Grid::new(comm, cells, has_windows)?;

    let start = now();
    let mut block = Block::initial(grid.rows.clone(), grid.columns.clone(), cells);
    for _ in 0..steps {
        grid.step(&mut block)?;
    }
    let seconds = start.elapsed().as_secs_f64();

    if comm.rank() != 0 {
        comm.send(&block.interior(), Rank(0), BLOCK)?;
        return Ok(());
    }
    let plate = gather(comm, &block, cells)?;
    let mut serial = Block::initial(0..cells, 0..cells, cells);
    for _ in 0..steps {
        serial.step();
    }
    let differences =
        plate.iter().zip(serial.interior()).filter(|(ours, serial)| ours.to_bits() != serial.to_bits());
    match differences.count() {
        0 => {
            let (ranks, seconds) = (comm.size(), format!("{seconds:.3}"));
            println!("heat2d: ranks={ranks} cells={cells}x{cells} steps={steps} seconds={seconds} verified");
            Ok(())
        }
        wrong => Err(format!("{wrong} of {} cells differ from the serial solution", plate.len()).into()),
    }
}

/// The place of a rank's block, and the exchange of its edges.
struct Grid {
    rows: Range<usize>,
    columns: Range<usize>,
    /// The ranks of the blocks to the north, south, west and east.
    neighbours: Neighbourhood,
    exchange: Exchange,
}

/// The way of the edges to the neighbours.
enum Exchange {
    /// A collective operation, and the places of the four edges in its buffers.
    Collective(Box<PersistentCollective<Vec<f64>, Vec<f64>>>, Vec<Range<usize>>),
    /// A window. The edge of a neighbour begins at a multiple of the longest edge of all ranks.
    Windows(Window<f64>, usize),
}

impl Grid {
    fn new(world: &Comm, cells: usize, has_windows: bool) -> Result<Grid, Box<dyn Error>> {
        let (rank, (down, across)) = (world.rank(), shape(world.size()));
        if cells < down.max(across) as usize {
            return Err(format!("{cells} x {cells} cells do not go round {down} x {across} ranks").into());
        }
        let neighbours =
            Cartesian::new(&[Dimension::open(down), Dimension::open(across)])?.neighbourhood(rank)?;
        let rows = part(cells, down, rank.0 / across);
        let columns = part(cells, across, rank.0 % across);
        let exchange = if has_windows {
            let longest = cells.div_ceil(down.min(across) as usize);
            Exchange::Windows(world.allocate_window(4 * longest)?, longest)
        } else {
            let edges = consecutive([columns.len(), columns.len(), rows.len(), rows.len()]);
            let buffer = || vec![0.0; edges[3].end];
            let exchange = world.neighbour_alltoallv_init(&neighbours, buffer(), &edges, buffer(), &edges)?;
            Exchange::Collective(Box::new(exchange), edges)
        };
        Ok(Grid { rows, columns, neighbours, exchange })
    }

    /// Computes a step of `block`, whose frame gets the edges of the neighbours. The plate's own border does not
    /// change.
    fn step(&mut self, block: &mut Block) -> Result<(), samite::Error> {
        let (height, width) = (block.height, block.width);
        let outgoing = [block.row(1), block.row(height), block.column(1), block.column(width)];
        let incoming = self.exchange(&outgoing, || block.compute(2..height, 2..width))?;
        for (side, edge) in incoming.iter().enumerate() {
            match side {
                _ if self.neighbours.sources()[side].is_none() => {}
                0 => block.set_row(0, edge),
                1 => block.set_row(height + 1, edge),
                2 => block.set_column(0, edge),
                _ => block.set_column(width + 1, edge),
            }
        }
        for row in [1, height] {
            block.compute(row..row + 1, 1..width + 1);
        }
        for column in [1, width] {
            block.compute(2..height, column..column + 1);
        }
        block.finish_step();
        Ok(())
    }

    /// Exchanges the edges with the neighbours, and calls `meanwhile` while they travel.
    fn exchange(
        &mut self,
        outgoing: &[Vec<f64>; 4],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<Vec<f64>>, samite::Error> {
        match &mut self.exchange {
            Exchange::Collective(exchange, edges) => {
                exchange.input_mut()?.copy_from_slice(&outgoing.concat());
                exchange.start()?;
                meanwhile();
                exchange.wait()?;
                let incoming = exchange.output()?;
                Ok(edges.iter().map(|edge| incoming[edge.clone()].to_vec()).collect())
            }
            Exchange::Windows(window, longest) => {
                let sides = self.neighbours.sources();
                let around: Vec<Rank> = sides.iter().copied().flatten().collect();
                let exposure = window.post(&around)?;
                let access = window.start(&around)?;
                for (side, (to, edge)) in sides.iter().zip(outgoing).enumerate() {
                    if let Some(to) = *to {
                        // North and south, west and east: this rank is on the opposite side of its neighbour.
                        access.put(to, (side ^ 1) * *longest, edge)?;
                    }
                }
                let sent = access.iclose()?;
                meanwhile();
                sent.wait()?;
                exposure.close()?;
                let edge = |(side, edge): (usize, &Vec<f64>)| {
                    window.read_vec(side * *longest..side * *longest + edge.len())
                };
                outgoing.iter().enumerate().map(edge).collect()
            }
        }
    }
}

/// A rectangle of cells with a frame of one cell around it, stored by rows.
struct Block {
    height: usize,
    width: usize,
    cells: Vec<f64>,
    next: Vec<f64>,
}

impl Block {
    /// Returns the plate at the start: cold, with a hot northern border and a hot spot in the middle.
    fn initial(rows: Range<usize>, columns: Range<usize>, plate: usize) -> Block {
        let (height, width) = (rows.len(), columns.len());
        let mut block =
            Block { height, width, cells: vec![0.0; (height + 2) * (width + 2)], next: Vec::new() };
        if rows.start == 0 {
            block.set_row(0, &vec![100.0; width]);
        }
        let spot = plate * 3 / 8..plate * 5 / 8;
        for (i, row) in rows.enumerate().filter(|(_, row)| spot.contains(row)) {
            for (j, column) in columns.clone().enumerate().filter(|(_, column)| spot.contains(column)) {
                let index = block.index(i + 1, j + 1);
                block.cells[index] = 50.0 + (row * 7 + column * 3) as f64 / plate as f64;
            }
        }
        block.next = block.cells.clone();
        block
    }

    /// Computes a step without neighbours.
    fn step(&mut self) {
        self.compute(1..self.height + 1, 1..self.width + 1);
        self.finish_step();
    }

    /// Computes the next values of the cells in some rows and columns, of which the first is 1.
    fn compute(&mut self, rows: Range<usize>, columns: Range<usize>) {
        let stride = self.width + 2;
        for i in rows {
            let [north, here, south] =
                [i - 1, i, i + 1].map(|row| &self.cells[row * stride..(row + 1) * stride]);
            let next = &mut self.next[i * stride..(i + 1) * stride];
            for j in columns.clone() {
                let around = (north[j] + south[j]) + (here[j - 1] + here[j + 1]);
                next[j] = here[j] + ALPHA * (around - 4.0 * here[j]);
            }
        }
    }

    /// Replaces the values of all cells by their next values.
    fn finish_step(&mut self) {
        let stride = self.width + 2;
        std::mem::swap(&mut self.cells, &mut self.next);
        // The step computes no frame, so the frame, with the neighbours' edges and the border, is copied.
        for i in [0, self.height + 1] {
            self.cells[i * stride..(i + 1) * stride]
                .copy_from_slice(&self.next[i * stride..(i + 1) * stride]);
        }
        for i in 1..=self.height {
            for j in [0, self.width + 1] {
                self.cells[i * stride + j] = self.next[i * stride + j];
            }
        }
    }

    fn index(&self, row: usize, column: usize) -> usize {
        row * (self.width + 2) + column
    }

    fn row(&self, row: usize) -> Vec<f64> {
        self.cells[self.index(row, 1)..self.index(row, self.width + 1)].to_vec()
    }

    fn column(&self, column: usize) -> Vec<f64> {
        (1..=self.height).map(|row| self.cells[self.index(row, column)]).collect()
    }

    fn set_row(&mut self, row: usize, values: &[f64]) {
        let start = self.index(row, 1);
        self.cells[start..start + self.width].copy_from_slice(values);
    }

    fn set_column(&mut self, column: usize, values: &[f64]) {
        for (row, &value) in (1..).zip(values) {
            let index = self.index(row, column);
            self.cells[index] = value;
        }
    }

    /// Returns the cells without the frame.
    fn interior(&self) -> Vec<f64> {
        (1..=self.height).flat_map(|row| self.row(row)).collect()
    }
}

/// Returns, at rank 0, the whole plate, assembled from all blocks.
fn gather(world: &Comm, own: &Block, cells: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let (down, across) = shape(world.size());
    let mut plate = vec![0.0; cells * cells];
    let mut place = |rank: u32, values: &[f64]| {
        let columns = part(cells, across, rank % across);
        let rows = part(cells, down, rank / across);
        if values.len() != rows.len() * columns.len() {
            return Err(format!("rank {rank} sent a block of {} cells", values.len()));
        }
        for (row, values) in rows.zip(values.chunks_exact(columns.len())) {
            plate[row * cells..][columns.clone()].copy_from_slice(values);
        }
        Ok(())
    };
    place(0, &own.interior())?;
    for _ in 1..world.size() {
        let Done { buffer: values, status } = world.recv_vec::<f64>(Source::ANY, BLOCK)?;
        place(status.peer.0, &values)?;
    }
    Ok(plate)
}

/// Returns the most square grid of `size` ranks: the number of ranks in a column, and the number in a row.
fn shape(size: u32) -> (u32, u32) {
    let down = (1..=size)
        .take_while(|down| down * down <= size)
        .filter(|down| size.is_multiple_of(*down))
        .last()
        .unwrap_or(1);
    (down, size / down)
}

/// Returns part `index` of `total` cells that are cut into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| total * index as usize / parts as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
