//! K-means clustering of points in a plane, by Lloyd's iteration.
//!
//! Each rank holds a part of the points. In each step it assigns its points to the nearest centre, and an allreduce
//! adds up the sums and numbers of points of each cluster over all ranks. Coordinates are integers, so the sums are
//! exact, and every number of ranks gets the same centres. Rank 0 also computes the serial solution, and compares.
//!
//! ```console
//! $ samite run -n 4 -- target/release/examples/kmeans [POINTS [CLUSTERS [STEPS]]]
//! ```

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use samite::reduction::Sum;

/// The coordinates of a point: millionths of the side of the square in which the points are.
type Point = [i64; 2];

/// The sums of the coordinates of some points, and their number.
type Cluster = [i64; 3];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let total: usize = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let clusters: usize = args.next().map_or(Ok(16), |text| text.parse())?;
    let steps: usize = args.next().map_or(Ok(20), |text| text.parse())?;
    let world = samite::init()?;
    let comm = world.comm();

    let start = now();
    let points = points(part(total, comm.size(), comm.rank().0));
    // The root chooses the first centres.
    let mut centres = if comm.rank() == 0 { first_centres(clusters) } else { vec![[0; 2]; clusters] };
    comm.bcast(&mut centres, samite::Rank(0))?;
    for _ in 0..steps {
        let mut sums = sums(&points, &centres);
        comm.allreduce_in_place(&mut sums, Sum)?;
        centres = means(&sums, &centres);
    }
    let seconds = start.elapsed().as_secs_f64();

    if comm.rank() != 0 {
        return Ok(());
    }
    let all = self::points(0..total);
    let mut serial = first_centres(clusters);
    for _ in 0..steps {
        serial = means(&sums(&all, &serial), &serial);
    }
    if centres != serial {
        return Err("the centres differ from the serial solution".into());
    }
    let (ranks, seconds) = (comm.size(), format!("{seconds:.3}"));
    println!(
        "kmeans: ranks={ranks} points={total} clusters={clusters} steps={steps} seconds={seconds} verified"
    );
    Ok(())
}

/// Adds the points to the clusters of their nearest centres. Returns the sums as a list of numbers.
fn sums(points: &[Point], centres: &[Point]) -> Vec<i64> {
    let mut clusters: Vec<Cluster> = vec![[0; 3]; centres.len()];
    for point in points {
        let distance = |centre: &Point| {
            let [x, y] = [point[0] - centre[0], point[1] - centre[1]];
            x * x + y * y
        };
        let nearest = (0..centres.len()).min_by_key(|&index| distance(&centres[index]));
        if let Some(nearest) = nearest {
            for (sum, value) in clusters[nearest].iter_mut().zip([point[0], point[1], 1]) {
                *sum += value;
            }
        }
    }
    clusters.concat()
}

/// Returns the means of the clusters. The centre of an empty cluster stays.
fn means(sums: &[i64], centres: &[Point]) -> Vec<Point> {
    let (clusters, _) = sums.as_chunks::<3>();
    let mean = |(&[x, y, number], centre): (&Cluster, &Point)| match number {
        0 => *centre,
        number => [x / number, y / number],
    };
    clusters.iter().zip(centres).map(mean).collect()
}

/// Returns points of a generated input, most of which lie around some places.
fn points(numbers: Range<usize>) -> Vec<Point> {
    let point = |number: usize| {
        let bits = mixed(number as u64);
        let place = mixed(1000 + bits % 13);
        let spread = if bits.is_multiple_of(7) { 1_000_000 } else { 60_000 };
        let coordinate = |place: u64, bits: u64| (place % 940_000 + bits % spread) as i64 % 1_000_000;
        [coordinate(place, bits >> 8), coordinate(place >> 32, bits >> 36)]
    };
    numbers.map(point).collect()
}

fn first_centres(clusters: usize) -> Vec<Point> {
    points(0..clusters)
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(index: u64) -> u64 {
    let mut bits = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns part `index` of `total` points that are cut into `parts` as evenly as possible.
fn part(total: usize, parts: u32, index: u32) -> Range<usize> {
    let cut = |index: u32| total * index as usize / parts as usize;
    cut(index)..cut(index + 1)
}

#[expect(clippy::disallowed_methods, reason = "a program may look at the clock")]
fn now() -> Instant {
    Instant::now()
}
