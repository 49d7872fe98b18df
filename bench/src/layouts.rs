//! The time of messages that are scattered in memory, beside MPI libraries with the same derived types.
//!
//! Each run is a separate job of two ranks, which send a message to and fro. The figure is half the time of a round
//! trip, as in the benchmark `latency`. `../peers/peer.c` has the same shapes over MPI. Change both together.

use std::error::Error;
use std::mem::offset_of;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use samite::bootstrap::Launch;
use samite::{Comm, Element, Field, Layout, LayoutError, OwnedView, Rank, StorageOrder};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::benchmark::{Benchmark, Point};
use crate::measure::{End, EndError, measure};
use crate::once::run_two_ranks;
use crate::peers;
use crate::record::Record;
use crate::spread::{Spread, geometric_mean};

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct LayoutsArgs {
    /// The transport; may be repeated
    #[arg(long, value_name = "T", default_values = ["samite-shm", "tcp;ofi_rxm"])]
    transport: Vec<String>,
    /// The shape; may be repeated
    #[arg(long, value_name = "SHAPE", default_values = ["strided", "faces", "indexed", "struct"])]
    shape: Vec<Shape>,
    /// Bytes of each message, or a few less; may be repeated
    #[arg(long, value_name = "N", default_values = ["4096", "16384", "65536", "262144", "1048576"])]
    bytes: Vec<usize>,
    /// Runs of each implementation
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Leave out the MPI libraries of this machine
    #[arg(long)]
    without_peers: bool,
    /// Print one JSON object per line for each figure
    #[arg(long)]
    json: bool,
    /// Run one job, and print its figure
    #[arg(long, hide = true)]
    once: Option<Kind>,
}

/// The places of a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// 8 bytes of every 16
    Strided,
    /// The six faces of a cube of `f64`, sent from inside and received around it
    Faces,
    /// Blocks of different lengths at different distances
    Indexed,
    /// Two fields of structs
    Struct,
}

/// The owner of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The caller: blocking operations.
    Borrowed,
    /// The operation: nonblocking ones.
    Owned,
}

/// The name of a value on the command line.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Jobs that take longer are ended.
const TIMEOUT: Duration = Duration::from_secs(60);

const DATA: u64 = 0;
const CONTROL: u64 = 1;

impl LayoutsArgs {
    /// Runs this process's part.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        match (Launch::detect(&|name| std::env::var_os(name))?, self.once) {
            (Launch::Alone, Some(_)) => {
                return run_two_ranks(self.transport.first().cloned(), TIMEOUT);
            }
            (Launch::Alone, None) => self.measure()?,
            (_, kind) => self.take_part(kind.ok_or("a rank of this benchmark has --once")?)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let peers = if self.without_peers { Vec::new() } else { peers::find().peers };
        peers.iter().try_for_each(peers::Peer::build)?;
        if !self.json {
            say!("scattered messages, {} runs: half a round trip, us", self.runs);
        }
        for transport in &self.transport {
            if !self.json {
                say!(
                    "{:<12} {:<8} {:>8}  {:<18} {:>9} {:>6}",
                    "transport",
                    "shape",
                    "bytes",
                    "",
                    "median",
                    "ratio"
                );
            }
            let kinds = [Kind::Borrowed, Kind::Owned];
            let mut ratios: [Vec<(f64, String)>; 2] = Default::default();
            for &shape in &self.shape {
                for &bytes in &self.bytes {
                    let mut times = vec![Vec::new(); kinds.len() + peers.len()];
                    for _ in 0..self.runs {
                        for (&kind, times) in kinds.iter().zip(&mut times) {
                            let mut command = Command::new(std::env::current_exe()?);
                            command.args(["layouts", "--once", &name(kind), "--transport", transport]);
                            times.push(figure_of(command, shape, bytes)?);
                        }
                        for (peer, times) in peers.iter().zip(&mut times[kinds.len()..]) {
                            if let Some(settings) = peer.settings(transport) {
                                let mut command = peer.command(&settings, 2);
                                command.arg("layouts");
                                times.push(figure_of(command, shape, bytes)?);
                            }
                        }
                    }
                    let spreads: Vec<_> = times.into_iter().map(Spread::of).collect();
                    let medians = spreads[kinds.len()..].iter().flatten().map(|spread| spread.median);
                    let best = medians.reduce(f64::min);
                    let names = ["samite", "samite-owned"].into_iter();
                    let names = names.chain(peers.iter().map(|peer| peer.name.as_str()));
                    for (at, (implementation, spread)) in names.zip(spreads).enumerate() {
                        let (shape, Some(spread)) = (name(shape), spread) else { continue };
                        let median = spread.median;
                        let ratio = best.map(|best| median / best);
                        if let (Some(ratios), Some(ratio)) = (ratios.get_mut(at), ratio) {
                            ratios.push((ratio, format!("{shape}, {bytes} bytes")));
                        }
                        if self.json {
                            let (bench, metric) = (format!("layouts-{shape}"), ("latency_us", "us"));
                            let record = Record::of_job(&bench, implementation, transport, metric, spread);
                            let runs = self.runs as usize;
                            say!("{}", Record { bytes: Some(bytes), runs, ..record }.to_json());
                            continue;
                        }
                        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:>6.2}"));
                        say!(
                            "{transport:<12} {shape:<8} {bytes:>8}  {implementation:<18} {median:>9.2} {ratio}"
                        );
                    }
                }
            }
            for (&kind, ratios) in kinds.iter().zip(&ratios).filter(|_| !self.json) {
                let Some((worst, place)) = ratios.iter().max_by(|one, other| one.0.total_cmp(&other.0))
                else {
                    continue;
                };
                let mean = geometric_mean(&ratios.iter().map(|(ratio, _)| *ratio).collect::<Vec<_>>());
                let kind = name(kind);
                say!(
                    "{transport}, {kind}: {mean:.2} of the best peer (geometric mean), at most {worst:.2} ({place})"
                );
            }
        }
        Ok(())
    }

    /// Runs a rank of the job.
    fn take_part(&self, kind: Kind) -> Result<(), Box<dyn Error + Send + Sync>> {
        let world = samite::init()?;
        let (Some(&shape), Some(&bytes)) = (self.shape.first(), self.bytes.first()) else {
            return Err("a rank of this benchmark has a shape and a length".into());
        };
        let comm = world.comm();
        match shape {
            Shape::Strided => {
                let count = bytes / 8;
                let layout = Layout::vector(count, 1, 2)?;
                exchange(comm, kind, [layout.clone(), layout], 2 * count, bytes, 0.0_f64)
            }
            Shape::Faces => {
                let edge = (1..).take_while(|edge| 48 * edge * edge <= bytes).last().unwrap_or(1);
                let layouts = [faces(edge, false)?, faces(edge, true)?];
                exchange(comm, kind, layouts, (edge + 2).pow(3), bytes, 0.0_f64)
            }
            Shape::Indexed => {
                let (blocks, end) = blocks(bytes / 8);
                let layout = Layout::indexed(blocks)?;
                exchange(comm, kind, [layout.clone(), layout], end, bytes, 0.0_f64)
            }
            Shape::Struct => {
                let place = Field::new(offset_of!(Particle, place), &Layout::<f64>::contiguous(2)?);
                let number = Field::new(offset_of!(Particle, number), &Layout::<i32>::contiguous(1)?);
                let layout = Layout::fields([place, number])?;
                let count = bytes / layout.size();
                let layout = layout.repeated(count)?;
                exchange(comm, kind, [layout.clone(), layout], count, bytes, Particle::default())
            }
        }
    }
}

/// As in peer.c.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Particle {
    place: [f64; 2],
    mass: f32,
    number: i32,
    energy: f64,
}

/// Returns the layout of the six faces of a cube with `edge` elements in each dimension, which is stored with one more
/// element on every side. The faces are the outermost elements of the cube, or, if `around` is true, the elements
/// around the cube.
fn faces(edge: usize, around: bool) -> Result<Layout<f64>, LayoutError> {
    let places = if around { [0, edge + 1] } else { [1, edge] };
    let faces = (0..3).flat_map(|dimension| places.map(|place| (dimension, place)));
    let fields = faces.map(|(dimension, place)| {
        let (mut parts, mut starts) = ([edge; 3], [1; 3]);
        (parts[dimension], starts[dimension]) = (1, place);
        Ok(Field::new(0, &Layout::<f64>::subarray(&[edge + 2; 3], &parts, &starts, StorageOrder::RowMajor)?))
    });
    Layout::fields(fields.collect::<Result<Vec<_>, LayoutError>>()?)
}

/// Returns the places and lengths of blocks with `elements` elements in total, and the end of the gap after the last
/// block. Must match peer.c.
fn blocks(elements: usize) -> (Vec<(isize, usize)>, usize) {
    let (mut blocks, mut at, mut left) = (Vec::new(), 0, elements);
    for number in 0.. {
        if left == 0 {
            break;
        }
        let len = left.min(1 + 7 * number % 16);
        blocks.push((at as isize, len));
        at += len + 1 + 5 * number % 11;
        left -= len;
    }
    (blocks, at)
}

/// Measures messages in a layout to send and a layout to receive, in slices of `elements` elements.
fn exchange<T: Element>(
    comm: &Comm,
    kind: Kind,
    [out, into]: [Layout<T>; 2],
    elements: usize,
    bytes: usize,
    element: T,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let buffers = match kind {
        Kind::Borrowed => Buffers::Borrowed(vec![element; elements], vec![element; elements]),
        Kind::Owned => {
            // The faces of a cube share the edges of the cube, so elements of the layout overlap. In owned memory,
            // elements may overlap only in an `Arc`, because no message is received into shared memory.
            let shared = Arc::from(vec![element; elements]);
            Buffers::Owned(Some(out.of_owned(shared)?), Some(into.of_owned(vec![element; elements])?))
        }
    };
    let mut end = Scattered { comm, layouts: [out, into], buffers };
    let point = Point { ranks: 2, bytes, depth: None };
    if let Some(spread) = measure(&mut end, Benchmark::Latency, point)? {
        let record = Record::new(Benchmark::Latency, &name(kind), &end.transport(), point, spread);
        say!("{}", record.to_json());
    }
    Ok(())
}

/// One of the two ranks.
struct Scattered<'a, T> {
    comm: &'a Comm,
    layouts: [Layout<T>; 2],
    buffers: Buffers<T>,
}

/// The buffers to send and to receive into.
enum Buffers<T> {
    Borrowed(Vec<T>, Vec<T>),
    /// `None` during an operation.
    Owned(Option<OwnedView<Arc<[T]>>>, Option<OwnedView<Vec<T>>>),
}

impl<T: Element> Scattered<'_, T> {
    fn other(&self) -> Rank {
        Rank(1 - self.comm.rank().0)
    }

    #[inline]
    fn send(&mut self) -> Result<(), EndError> {
        let other = self.other();
        match &mut self.buffers {
            Buffers::Borrowed(out, _) => self.comm.send_view(self.layouts[0].of(out)?, other, DATA)?,
            Buffers::Owned(out, _) => {
                let view = out.take().ok_or("a send has failed")?;
                *out = Some(self.comm.isend(view, other, DATA)?.wait()?.buffer);
            }
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self) -> Result<(), EndError> {
        let other = self.other();
        match &mut self.buffers {
            Buffers::Borrowed(_, into) => {
                self.comm.recv_view(&mut self.layouts[1].of_mut(into)?, other, DATA)?;
            }
            Buffers::Owned(_, into) => {
                let view = into.take().ok_or("a receive has failed")?;
                *into = Some(self.comm.irecv(view, other, DATA)?.wait()?.buffer);
            }
        }
        Ok(())
    }
}

impl<T: Element> End for Scattered<'_, T> {
    fn rank(&self) -> u32 {
        self.comm.rank().0
    }

    fn transport(&self) -> String {
        self.comm.transport(self.other()).unwrap_or_default()
    }

    fn prepare(&mut self, _: Benchmark, _: Point) -> Result<(), EndError> {
        Ok(())
    }

    fn agree(&mut self, number: u64) -> Result<u64, EndError> {
        let (other, mut number) = (self.other(), [number]);
        if self.rank() == 0 {
            self.comm.send(&number, other, CONTROL)?;
            self.comm.recv(&mut [0_u8; 0], other, CONTROL)?;
        } else {
            self.comm.recv(&mut number, other, CONTROL)?;
            self.comm.send(&[0_u8; 0], other, CONTROL)?;
        }
        Ok(number[0])
    }

    fn iterate(&mut self, iterations: u64) -> Result<Duration, EndError> {
        let begin = Instant::now();
        for _ in 0..iterations {
            if self.rank() == 0 {
                self.send()?;
                self.recv()?;
            } else {
                self.recv()?;
                self.send()?;
            }
        }
        Ok(begin.elapsed())
    }
}

/// Runs a job that prints a record, and returns its median.
fn figure_of(mut command: Command, shape: Shape, bytes: usize) -> Result<f64, Box<dyn Error + Send + Sync>> {
    command.args(["--shape", &name(shape), "--bytes", &bytes.to_string()]);
    let output = command.stdin(Stdio::null()).output()?;
    match serde_json::from_slice::<Record>(&output.stdout) {
        Ok(record) => Ok(record.median),
        Err(_) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("no figure from {command:?}: {}", said.trim()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faces_are_around_the_cube_and_inside() {
        for edge in [1, 3] {
            let cube: Vec<f64> = (0..(edge + 2_usize).pow(3)).map(|place| place as f64).collect();
            let sent = faces(edge, false).unwrap();
            assert_eq!(sent.of(&cube).unwrap().size(), 48 * edge * edge);
            let mut around = cube.clone();
            assert_eq!(faces(edge, true).unwrap().of_mut(&mut around).unwrap().size(), 48 * edge * edge);
        }
    }

    #[test]
    fn blocks_do_not_touch_and_have_all_elements() {
        let (blocks, end) = blocks(1000);
        assert_eq!(blocks.iter().map(|block| block.1).sum::<usize>(), 1000);
        assert!(blocks.windows(2).all(|pair| pair[0].0 as usize + pair[0].1 < pair[1].0 as usize));
        assert!(blocks.iter().all(|block| block.0 as usize + block.1 <= end));
    }
}
