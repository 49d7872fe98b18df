//! The rows of a table.

use std::fmt;

use samite_fabric::shm::board::PIECE;

use super::names::Named;
use super::{Row, Suits, Way};
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};

macro_rules! rows {
    ($($(#[doc = $doc:literal])+ $operation:ident;)+) => {
        /// The rows for each operation that has several algorithms. For each operation the last one of the default
        /// rows suits every situation. The pieces of data are in bytes here, and in elements in a
        /// [`Choice`](super::Choice).
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Rows {
            $($(#[doc = $doc])+ pub $operation: Vec<Row<$operation::Algorithm>>,)+
        }

        impl Rows {
            /// The operations.
            pub const OPERATIONS: &[&str] = &[$(stringify!($operation)),+];

            /// No rows.
            pub const NONE: Self = Self { $($operation: Vec::new(),)+ };

            /// Parses measured rows of an operation, separated by commas. A row has the largest number of ranks, the
            /// largest number of bytes, and the name of a way, as in a [`Selection`](super::Selection); `any`
            /// stands for no limit. Returns `None` if a row has another form, or a name does not exist.
            ///
            /// ```
            /// use samite_coll::Rows;
            ///
            /// let rows = Rows::parse("bcast", "2 1024 board, any any chain:65536").expect("these are rows");
            /// assert_eq!((rows.bcast.len(), rows.bcast[0].bytes), (2, 1024));
            /// assert_eq!(rows.texts().next(), Some(("bcast", "2 1024 board, any any chain:65536".to_owned())));
            /// assert_eq!(Rows::parse("bcast", "2 board"), None);
            /// ```
            #[must_use]
            pub fn parse(operation: &str, text: &str) -> Option<Self> {
                let mut rows = Self::NONE;
                match operation {
                    $(stringify!($operation) => rows.$operation = parse(text)?,)+
                    _ => return None,
                }
                Some(rows)
            }

            /// Returns these rows with those of `others` behind them.
            #[must_use]
            pub fn before(mut self, others: &Self) -> Self {
                $(self.$operation.extend_from_slice(&others.$operation);)+
                self
            }

            /// Returns the operations that have rows, with these rows as text for [`parse`](Self::parse).
            pub fn texts(&self) -> impl Iterator<Item = (&'static str, String)> {
                let texts = [$((stringify!($operation), text(&self.$operation)),)+];
                texts.into_iter().filter(|(_, text)| !text.is_empty())
            }
        }
    };
}

each_operation!(rows);

/// Returns a row without limits.
pub(super) fn last<A>(algorithm: A) -> Row<A> {
    row(ANY, ANY_BYTES, algorithm)
}

fn row<A>(ranks: u32, bytes: usize, algorithm: A) -> Row<A> {
    Row { ranks, bytes, way: Way::OneLevel(algorithm), is_measured: false }
}

fn two_levels<A>(bytes: usize) -> Row<A> {
    Row { ranks: ANY, bytes, way: Way::TwoLevels, is_measured: false }
}

/// No limit.
const ANY: u32 = u32::MAX;
const ANY_BYTES: usize = usize::MAX;

const NO_LIMIT: &str = "any";

const KIB: usize = 1 << 10;

fn parse<A: Named + Suits>(text: &str) -> Option<Vec<Row<A>>> {
    let parse = |row: &str| {
        let mut words = row.split_whitespace();
        let (ranks, bytes) = (words.next()?, words.next()?);
        let ranks = if ranks == NO_LIMIT { ANY } else { ranks.parse().ok()? };
        let bytes = if bytes == NO_LIMIT { ANY_BYTES } else { bytes.parse().ok()? };
        let way = Named::named(words.next()?)?;
        words.next().is_none().then_some(Row { ranks, bytes, way, is_measured: true })
    };
    text.split(',').map(parse).collect()
}

/// Writes a row as [`Rows::parse`] reads it.
impl<A: Named + Suits> fmt::Display for Row<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ranks {
            ANY => f.write_str(NO_LIMIT)?,
            ranks => write!(f, "{ranks}")?,
        }
        match self.bytes {
            ANY_BYTES => write!(f, " {NO_LIMIT}")?,
            bytes => write!(f, " {bytes}")?,
        }
        write!(f, " {}", self.way.name())
    }
}

fn text<A: Named + Suits>(rows: &[Row<A>]) -> String {
    rows.iter().map(Row::to_string).collect::<Vec<_>>().join(", ")
}

impl Default for Rows {
    fn default() -> Self {
        use allgather::Algorithm as Allgather;
        use allreduce::Algorithm as Allreduce;
        use bcast::Algorithm as Bcast;
        use reduce::Algorithm as Reduce;
        use reduce_scatter::Algorithm as ReduceScatter;

        let (tree, piece) = (Bcast::KNomial { k: 2 }, PIECE);
        Self {
            barrier: vec![
                row(ANY, ANY_BYTES, barrier::Algorithm::Board),
                two_levels(ANY_BYTES),
                row(ANY, ANY_BYTES, barrier::Algorithm::Dissemination),
            ],
            bcast: vec![
                row(ANY, 64 * KIB, Bcast::Board { piece }),
                two_levels(64 * KIB),
                row(ANY, 12 * KIB, tree),
                row(7, 128 * KIB, tree),
                row(16, ANY_BYTES, Bcast::Chain { piece: 64 * KIB }),
                row(512, ANY_BYTES, Bcast::ScatterAllgather),
                row(ANY, ANY_BYTES, tree),
            ],
            // Along a tree, blocks are sent several times. For long blocks and few ranks that takes longer than the
            // additional messages of the linear algorithm.
            gather: vec![
                row(64, 4 * KIB, gather::Algorithm::Binomial),
                row(64, ANY_BYTES, gather::Algorithm::Linear),
                row(ANY, ANY_BYTES, gather::Algorithm::Binomial),
                row(ANY, ANY_BYTES, gather::Algorithm::Linear),
            ],
            scatter: vec![
                row(64, 4 * KIB, scatter::Algorithm::Binomial),
                row(64, ANY_BYTES, scatter::Algorithm::Linear),
                row(ANY, ANY_BYTES, scatter::Algorithm::Binomial),
                row(ANY, ANY_BYTES, scatter::Algorithm::Linear),
            ],
            allgather: vec![
                row(ANY, 64 * KIB, Allgather::Board { piece }),
                two_levels(64 * KIB),
                row(ANY, 512 * KIB, Allgather::RecursiveDoubling),
                row(ANY, 80 * KIB, Allgather::Bruck),
                row(512, ANY_BYTES, Allgather::Ring),
                row(ANY, ANY_BYTES, Allgather::RecursiveDoubling),
                row(ANY, ANY_BYTES, Allgather::Bruck),
                row(ANY, ANY_BYTES, Allgather::Ring),
            ],
            alltoall: vec![
                row(ANY, ANY_BYTES, alltoall::Algorithm::Board { piece }),
                row(7, ANY_BYTES, alltoall::Algorithm::Pairwise),
                row(ANY, 256, alltoall::Algorithm::Bruck),
                row(ANY, ANY_BYTES, alltoall::Algorithm::Pairwise),
            ],
            reduce: vec![
                row(ANY, 8 * KIB, Reduce::Board { piece }),
                two_levels(64 * KIB),
                // MPICH's limit is 2 KiB (Thakur et al. 2005, section 5). In the LogGP model of a network with 10 µs and
                // 2.5 GB/s, the halving takes 1.8 times as long as the tree for 4 KiB and 8 ranks, 1.03 for 64 KiB, and
                // 0.62 for 1 MiB; with 64 ranks 0.85 for 64 KiB. The root of two or three ranks receives at most as many
                // bytes along the tree, and in fewer rounds. With 5 to 7 ranks the tree takes less time in the model even
                // for 1 MiB, because some ranks first send all elements.
                row(ANY, 64 * KIB, Reduce::Binomial),
                row(3, ANY_BYTES, Reduce::Binomial),
                row(4, ANY_BYTES, Reduce::Rabenseifner),
                row(7, ANY_BYTES, Reduce::Binomial),
                row(ANY, ANY_BYTES, Reduce::Rabenseifner),
                row(ANY, ANY_BYTES, Reduce::Binomial),
            ],
            allreduce: vec![
                row(ANY, 8 * KIB, Allreduce::Board { piece }),
                two_levels(64 * KIB),
                row(ANY, 2 * KIB, Allreduce::RecursiveDoubling),
                // Two ranks exchange the same number of bytes in both algorithms, but in one round.
                row(2, 256 * KIB, Allreduce::RecursiveDoubling),
                row(ANY, ANY_BYTES, Allreduce::Rabenseifner),
                row(ANY, ANY_BYTES, Allreduce::RecursiveDoubling),
            ],
            reduce_scatter: vec![
                row(ANY, 512 * KIB, ReduceScatter::RecursiveHalving),
                row(512, ANY_BYTES, ReduceScatter::Pairwise),
                row(ANY, ANY_BYTES, ReduceScatter::RecursiveHalving),
                row(ANY, ANY_BYTES, ReduceScatter::Pairwise),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (operation, text) in Rows::default().texts() {
            let rows = Rows::parse(operation, &text).unwrap();
            assert_eq!(rows.texts().collect::<Vec<_>>(), [(operation, text)]);
        }
        assert_eq!(Rows::default().texts().count(), Rows::OPERATIONS.len());
        assert_eq!(Rows::NONE.texts().count(), 0);
    }

    #[test]
    fn mistakes_are_found() {
        for wrong in [
            "",
            "8 any",
            "8 any linear",
            "any any ring x",
            "-1 8 ring",
            "8 1K ring",
            "8 8 ring,",
            "8 8 ring; 8 8 ring",
        ] {
            assert_eq!(Rows::parse("allreduce", wrong), None, "{wrong}");
        }
        assert_eq!(Rows::parse("scan", "any any recursive-doubling"), None);
    }
}
