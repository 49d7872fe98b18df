//! The choice of an algorithm: a pure function of a table and the arguments of an operation.
//!
//! A table has rows for each operation. The first row whose limits are not exceeded, and whose algorithm can carry out
//! the operation, decides. The limits of the default table follow MPICH's (Thakur et al. 2005, section 5), which were
//! measured between hosts. For more than 512 ranks, no row chooses an algorithm whose number of rounds is proportional
//! to the number of ranks, unless no other algorithm can carry out the operation. An alltoall is the exception: Bruck's
//! algorithm copies each block several times, so it is chosen only for blocks of at most 256 bytes.
//!
//! ```
//! use samite_coll::algorithms::allreduce::Algorithm;
//! use samite_coll::{Row, Situation, Table};
//!
//! let mut table = Table::default();
//! let situation = Situation { ranks: 8, bytes: 64, elements: 8, ..Situation::default() };
//! assert_eq!(table.allreduce(&situation).algorithm, Algorithm::RecursiveDoubling);
//! // A row before the others overrides them.
//! table.allreduce.insert(0, Row { ranks: 8, bytes: usize::MAX, algorithm: Algorithm::Ring });
//! assert_eq!(table.allreduce(&situation).algorithm, Algorithm::Ring);
//! ```
//! A [`Selection`] of the user overrides all rows.

mod selection;

use std::fmt;
use std::sync::Arc;

pub use selection::Selection;

use samite_fabric::shm::board::{PIECE, PIECES_MAX};

use crate::algorithms::hosts::{Hosts, TwoLevels};
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};
use crate::schedule::Plan;

/// A row of a table: an algorithm, and the limits up to which it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<A> {
    /// The largest number of ranks.
    pub ranks: u32,
    /// The largest number of bytes: see [`Situation::bytes`].
    pub bytes: usize,
    /// The algorithm.
    pub algorithm: A,
}

/// The arguments of an operation on which the choice depends. They are the same at all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The number of ranks.
    pub ranks: u32,
    /// The length of the operation in bytes: for a gather, a scatter or an alltoall, the bytes of a block; for an
    /// allgather or a reduce-scatter, the bytes of all blocks; for every other operation, the bytes of one rank.
    pub bytes: usize,
    /// The number of elements in these bytes.
    pub elements: usize,
    /// True if there is no reduction, or it commutes.
    pub commutes: bool,
    /// True if all blocks have the same length, and all ranks know it.
    pub has_equal_blocks: bool,
    /// True if the ranks share a [board](samite_fabric::shm::board). If they are on several hosts, true if the ranks of
    /// each host share one.
    pub has_board: bool,
    /// The number of hosts on which the ranks are. 1 if that is not known.
    pub hosts: u32,
    /// True if all hosts have the same number of ranks.
    pub has_even_hosts: bool,
}

impl Default for Situation {
    /// Returns the situation of one rank without data, board and reduction.
    fn default() -> Self {
        Self {
            ranks: 1,
            bytes: 0,
            elements: 0,
            commutes: true,
            has_equal_blocks: true,
            has_board: false,
            hosts: 1,
            has_even_hosts: true,
        }
    }
}

impl Situation {
    /// Returns the bytes of an element.
    fn element(&self) -> usize {
        self.bytes.div_ceil(self.elements.max(1)).max(1)
    }

    /// Returns true if the ranks can publish blocks of `bytes` bytes on their board, in pieces of `piece` bytes.
    fn can_publish(&self, bytes: usize, piece: usize) -> bool {
        self.shares_board() && self.pieces(bytes, piece).is_some_and(|pieces| pieces < PIECES_MAX as usize)
    }

    /// Returns the number of pieces of `piece` bytes in which blocks of `bytes` bytes are published. Returns `None` if
    /// an element is longer than a piece.
    fn pieces(&self, bytes: usize, piece: usize) -> Option<usize> {
        let elements = piece.min(PIECE) / self.element();
        (elements > 0).then(|| bytes.div_ceil(elements * self.element()))
    }

    /// Returns true if all ranks share one board.
    fn shares_board(&self) -> bool {
        self.has_board && self.hosts == 1
    }

    /// Returns true if an operation on two levels has hosts with several ranks.
    fn has_two_levels(&self) -> bool {
        1 < self.hosts && self.hosts < self.ranks
    }

    /// Returns the number of elements in a piece on the boards of the hosts, if they have boards and the operation has
    /// not too many pieces for both of its stages there.
    fn piece_on_hosts(&self) -> Option<usize> {
        let pieces = self.pieces(self.bytes, PIECE)?;
        (self.has_board && 2 * pieces + 2 < PIECES_MAX as usize).then(|| PIECE / self.element())
    }

    /// Returns the arguments of the operation between the leaders of the hosts.
    fn between_hosts(&self) -> Self {
        let has_equal_blocks = self.has_equal_blocks && self.has_even_hosts;
        Self { ranks: self.hosts, hosts: 1, has_board: false, has_equal_blocks, ..*self }
    }
}

/// The choice of an algorithm. Its text ([`Display`](fmt::Display)) explains the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<A> {
    /// The chosen algorithm.
    pub algorithm: A,
    /// The algorithm between the hosts, if the operation is carried out on two levels.
    pub between: Option<A>,
    /// The row of the table that decided. `None` if the user has selected the algorithm.
    pub row: Option<Row<A>>,
    /// The algorithm that the user has selected, if it cannot carry out the operation.
    pub unsuitable: Option<A>,
    /// The arguments.
    pub situation: Situation,
}

impl<A: Copy> Choice<A> {
    /// Returns the plan of the operation. `plan` returns the plan with an algorithm. `hosts` are the hosts of the ranks.
    ///
    /// # Panics
    /// If the situation has several hosts, and `hosts` is `None`.
    pub fn plan(&self, hosts: Option<&Arc<Hosts>>, plan: impl FnOnce(A) -> Plan) -> Plan {
        let Some(between) = self.between else { return plan(self.algorithm) };
        let hosts = Arc::clone(hosts.expect("an operation on two levels has hosts"));
        let piece = self.situation.piece_on_hosts();
        Plan::TwoLevels(TwoLevels { operation: Box::new(plan(between)), hosts, piece })
    }
}

impl<A: fmt::Debug> fmt::Display for Choice<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, between, row, unsuitable, situation } = self;
        write!(f, "{algorithm:?} for {} bytes and {} ranks", situation.bytes, situation.ranks)?;
        if let Some(between) = between {
            let within = if situation.piece_on_hosts().is_some() { "on its board" } else { "by messages" };
            write!(f, " ({between:?} between {} hosts, and within a host {within})", situation.hosts)?;
        }
        let Some(row) = row else { return f.write_str(": it was selected") };
        if let Some(selected) = unsuitable {
            write!(f, ": the selected {selected:?} cannot carry out the operation")?;
        }
        f.write_str(": the first suitable row of the table is for")?;
        match row.bytes {
            usize::MAX => f.write_str(" any number of bytes")?,
            bytes => write!(f, " at most {bytes} bytes")?,
        }
        match row.ranks {
            u32::MAX => f.write_str(" and any number of ranks"),
            ranks => write!(f, " and at most {ranks} ranks"),
        }
    }
}

/// An algorithm of a table. The pieces of data are in bytes in a table.
trait Suits: Copy {
    /// Returns true if the algorithm can carry out the operation.
    fn suits(self, situation: &Situation) -> bool;

    /// Returns the algorithm with pieces in elements.
    fn in_elements(self, _situation: &Situation) -> Self {
        self
    }

    /// Returns true if the operation is carried out on two levels.
    fn has_two_levels(self) -> bool {
        false
    }
}

/// Returns the number of elements in a piece of `bytes` bytes.
fn elements(bytes: usize, situation: &Situation) -> usize {
    (bytes / situation.element()).max(1)
}

/// Returns the number of elements in a piece of `bytes` bytes on a board.
fn on_board(bytes: usize, situation: &Situation) -> usize {
    elements(bytes.min(PIECE), situation)
}

impl Suits for barrier::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Dissemination => true,
            Self::Board => situation.shares_board(),
            Self::TwoLevels => situation.has_two_levels(),
        }
    }

    fn has_two_levels(self) -> bool {
        self == Self::TwoLevels
    }
}

impl Suits for reduce::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Binomial => true,
            Self::Board { piece } => situation.can_publish(situation.bytes, piece),
            Self::TwoLevels => situation.has_two_levels() && situation.commutes,
        }
    }

    fn has_two_levels(self) -> bool {
        self == Self::TwoLevels
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for bcast::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::KNomial { k } => k >= 2,
            Self::ScatterAllgather => situation.elements >= situation.ranks as usize,
            Self::Chain { piece } => piece > 0,
            Self::Board { piece } => situation.can_publish(situation.bytes, piece),
            Self::TwoLevels => situation.has_two_levels(),
        }
    }

    fn has_two_levels(self) -> bool {
        self == Self::TwoLevels
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Chain { piece } => Self::Chain { piece: elements(piece, situation) },
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for gather::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Linear => true,
            Self::Binomial => situation.has_equal_blocks,
            Self::Board { piece } => {
                situation.has_equal_blocks && situation.can_publish(situation.bytes, piece)
            }
        }
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for scatter::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        self == Self::Linear || situation.has_equal_blocks
    }
}

impl Suits for allgather::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Ring => true,
            Self::Bruck => situation.has_equal_blocks,
            Self::RecursiveDoubling => situation.has_equal_blocks && situation.ranks.is_power_of_two(),
            Self::Board { piece } => {
                let block = situation.bytes / situation.ranks as usize;
                situation.has_equal_blocks && situation.can_publish(block, piece)
            }
            Self::TwoLevels => situation.has_two_levels() && situation.has_equal_blocks,
        }
    }

    fn has_two_levels(self) -> bool {
        self == Self::TwoLevels
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for alltoall::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Pairwise => true,
            Self::Bruck => situation.has_equal_blocks,
            Self::Board { piece } => {
                let all = situation.bytes.saturating_mul(situation.ranks as usize);
                situation.has_equal_blocks && situation.shares_board() && all <= piece.min(PIECE)
            }
        }
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for allreduce::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        // With fewer elements than ranks, some parts would be empty.
        let can_divide = situation.elements >= situation.ranks as usize;
        match self {
            Self::RecursiveDoubling => true,
            Self::Rabenseifner => can_divide,
            Self::Ring => can_divide && situation.commutes,
            Self::Board { piece } => situation.can_publish(situation.bytes, piece),
            Self::TwoLevels => situation.has_two_levels() && situation.commutes,
        }
    }

    fn has_two_levels(self) -> bool {
        self == Self::TwoLevels
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for reduce_scatter::Algorithm {
    fn suits(self, situation: &Situation) -> bool {
        self == Self::Pairwise || situation.commutes
    }
}

/// The rows for each operation that has several algorithms. For each operation the last row of the default table suits
/// every situation. The pieces of data are in bytes here, and in elements in a [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The algorithms that the user has selected.
    pub selection: Selection,
    /// Barriers.
    pub barrier: Vec<Row<barrier::Algorithm>>,
    /// Broadcasts.
    pub bcast: Vec<Row<bcast::Algorithm>>,
    /// Gathers.
    pub gather: Vec<Row<gather::Algorithm>>,
    /// Scatters.
    pub scatter: Vec<Row<scatter::Algorithm>>,
    /// Allgathers.
    pub allgather: Vec<Row<allgather::Algorithm>>,
    /// Exchanges of all ranks with all ranks.
    pub alltoall: Vec<Row<alltoall::Algorithm>>,
    /// Reductions to one rank.
    pub reduce: Vec<Row<reduce::Algorithm>>,
    /// Reductions to all ranks.
    pub allreduce: Vec<Row<allreduce::Algorithm>>,
    /// Scattered reductions.
    pub reduce_scatter: Vec<Row<reduce_scatter::Algorithm>>,
}

const fn row<A>(ranks: u32, bytes: usize, algorithm: A) -> Row<A> {
    Row { ranks, bytes, algorithm }
}

/// No limit.
const ANY: u32 = u32::MAX;
const ANY_BYTES: usize = usize::MAX;

const KIB: usize = 1 << 10;

impl Default for Table {
    fn default() -> Self {
        use allgather::Algorithm as Allgather;
        use allreduce::Algorithm as Allreduce;
        use bcast::Algorithm as Bcast;
        use reduce_scatter::Algorithm as ReduceScatter;

        let (tree, piece) = (Bcast::KNomial { k: 2 }, PIECE);
        Self {
            selection: Selection::default(),
            barrier: vec![
                row(ANY, ANY_BYTES, barrier::Algorithm::Board),
                row(ANY, ANY_BYTES, barrier::Algorithm::TwoLevels),
                row(ANY, ANY_BYTES, barrier::Algorithm::Dissemination),
            ],
            bcast: vec![
                row(ANY, 64 * KIB, Bcast::Board { piece }),
                row(ANY, 64 * KIB, Bcast::TwoLevels),
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
                row(ANY, 64 * KIB, Allgather::TwoLevels),
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
                row(ANY, 8 * KIB, reduce::Algorithm::Board { piece }),
                row(ANY, 64 * KIB, reduce::Algorithm::TwoLevels),
                row(ANY, ANY_BYTES, reduce::Algorithm::Binomial),
            ],
            allreduce: vec![
                row(ANY, 8 * KIB, Allreduce::Board { piece }),
                row(ANY, 64 * KIB, Allreduce::TwoLevels),
                row(ANY, 2 * KIB, Allreduce::RecursiveDoubling),
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

impl Table {
    /// Returns the algorithm for a barrier.
    #[must_use]
    pub fn barrier(&self, situation: &Situation) -> Choice<barrier::Algorithm> {
        choose(self.selection.barrier, &self.barrier, situation, barrier::Algorithm::Dissemination)
    }

    /// Returns the algorithm for a broadcast.
    #[must_use]
    pub fn bcast(&self, situation: &Situation) -> Choice<bcast::Algorithm> {
        choose(self.selection.bcast, &self.bcast, situation, bcast::Algorithm::KNomial { k: 2 })
    }

    /// Returns the algorithm for a gather.
    #[must_use]
    pub fn gather(&self, situation: &Situation) -> Choice<gather::Algorithm> {
        choose(self.selection.gather, &self.gather, situation, gather::Algorithm::Linear)
    }

    /// Returns the algorithm for a scatter.
    #[must_use]
    pub fn scatter(&self, situation: &Situation) -> Choice<scatter::Algorithm> {
        choose(self.selection.scatter, &self.scatter, situation, scatter::Algorithm::Linear)
    }

    /// Returns the algorithm for an allgather.
    #[must_use]
    pub fn allgather(&self, situation: &Situation) -> Choice<allgather::Algorithm> {
        choose(self.selection.allgather, &self.allgather, situation, allgather::Algorithm::Ring)
    }

    /// Returns the algorithm for an alltoall.
    #[must_use]
    pub fn alltoall(&self, situation: &Situation) -> Choice<alltoall::Algorithm> {
        choose(self.selection.alltoall, &self.alltoall, situation, alltoall::Algorithm::Pairwise)
    }

    /// Returns the algorithm for a reduction to one rank.
    #[must_use]
    pub fn reduce(&self, situation: &Situation) -> Choice<reduce::Algorithm> {
        choose(self.selection.reduce, &self.reduce, situation, reduce::Algorithm::Binomial)
    }

    /// Returns the algorithm for a reduction to all ranks.
    #[must_use]
    pub fn allreduce(&self, situation: &Situation) -> Choice<allreduce::Algorithm> {
        choose(self.selection.allreduce, &self.allreduce, situation, allreduce::Algorithm::RecursiveDoubling)
    }

    /// Returns the algorithm for a scattered reduction.
    #[must_use]
    pub fn reduce_scatter(&self, situation: &Situation) -> Choice<reduce_scatter::Algorithm> {
        choose(
            self.selection.reduce_scatter,
            &self.reduce_scatter,
            situation,
            reduce_scatter::Algorithm::Pairwise,
        )
    }
}

/// Returns the selected algorithm if it suits. Otherwise returns the algorithm of the first row that fits, or `general`
/// if no row fits. `general` must suit every situation.
fn choose<A: Suits>(selected: Option<A>, rows: &[Row<A>], situation: &Situation, general: A) -> Choice<A> {
    if let Some(algorithm) = selected.filter(|algorithm| algorithm.suits(situation)) {
        return chosen(algorithm, None, None, rows, situation, general);
    }
    let row = fitting(rows, situation).unwrap_or(row(ANY, ANY_BYTES, general));
    chosen(row.algorithm, Some(row), selected, rows, situation, general)
}

/// Returns the first row that fits.
fn fitting<A: Suits>(rows: &[Row<A>], situation: &Situation) -> Option<Row<A>> {
    let fits = |row: &&Row<A>| {
        situation.ranks <= row.ranks && situation.bytes <= row.bytes && row.algorithm.suits(situation)
    };
    rows.iter().find(fits).copied()
}

/// Returns the choice of an algorithm. If it has two levels, the table also chooses the algorithm between the hosts.
fn chosen<A: Suits>(
    algorithm: A,
    row: Option<Row<A>>,
    unsuitable: Option<A>,
    rows: &[Row<A>],
    situation: &Situation,
    general: A,
) -> Choice<A> {
    let between = algorithm.has_two_levels().then(|| {
        let of_hosts = situation.between_hosts();
        fitting(rows, &of_hosts).map_or(general, |row| row.algorithm).in_elements(&of_hosts)
    });
    let algorithm = algorithm.in_elements(situation);
    Choice { algorithm, between, row, unsuitable, situation: *situation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(ranks: u32, bytes: usize) -> Situation {
        Situation { ranks, bytes, elements: bytes / 8, ..Situation::default() }
    }

    #[test]
    fn many_ranks_use_few_rounds() {
        let table = Table::default();
        for bytes in [8, 1 << 10, 1 << 16, 1 << 20, 1 << 30] {
            let many = situation(1 << 20, bytes);
            assert_eq!(table.bcast(&many).algorithm, bcast::Algorithm::KNomial { k: 2 });
            assert_eq!(table.gather(&many).algorithm, gather::Algorithm::Binomial);
            assert_eq!(table.scatter(&many).algorithm, scatter::Algorithm::Binomial);
            assert_ne!(table.allgather(&many).algorithm, allgather::Algorithm::Ring);
            assert_ne!(
                table.allgather(&situation((1 << 20) - 1, bytes)).algorithm,
                allgather::Algorithm::Ring
            );
            assert_ne!(table.allreduce(&many).algorithm, allreduce::Algorithm::Ring);
            assert_eq!(table.reduce_scatter(&many).algorithm, reduce_scatter::Algorithm::RecursiveHalving);
        }
    }

    #[test]
    fn an_algorithm_that_cannot_carry_out_the_operation_is_not_chosen() {
        let mut table = Table::default();
        let long = Situation { commutes: false, has_equal_blocks: false, ..situation(6, 1 << 24) };
        table.allreduce = vec![row(ANY, ANY_BYTES, allreduce::Algorithm::Ring)];
        assert_eq!(table.allreduce(&long).algorithm, allreduce::Algorithm::RecursiveDoubling);
        assert_eq!(table.allgather(&long).algorithm, allgather::Algorithm::Ring);
        assert_eq!(table.alltoall(&Situation { bytes: 8, ..long }).algorithm, alltoall::Algorithm::Pairwise);
        assert_eq!(table.reduce_scatter(&long).algorithm, reduce_scatter::Algorithm::Pairwise);
        assert_eq!(table.gather(&Situation { bytes: 8, ..long }).algorithm, gather::Algorithm::Linear);
        // Two elements cannot be divided among 6 ranks.
        let few = Situation { elements: 2, commutes: true, ..long };
        assert_eq!(table.allreduce(&few).algorithm, allreduce::Algorithm::RecursiveDoubling);
    }

    #[test]
    fn a_selected_algorithm_is_used_where_it_suits() {
        let selection = Selection::parse("bcast=chain:4096,allgather=recursive-doubling").unwrap();
        let table = Table { selection, ..Table::default() };
        assert_eq!(table.bcast(&situation(4, 8)).algorithm, bcast::Algorithm::Chain { piece: 512 });
        assert_eq!(
            table.allgather(&situation(3, 8)).to_string(),
            "Bruck for 8 bytes and 3 ranks: the selected RecursiveDoubling cannot carry out the operation: the first \
             suitable row of the table is for at most 81920 bytes and any number of ranks"
        );
    }

    #[test]
    fn a_choice_explains_itself() {
        let choice = Table::default().bcast(&situation(4, 1 << 20));
        assert_eq!(choice.algorithm, bcast::Algorithm::Chain { piece: 8192 }, "64 KiB are 8192 elements");
        assert_eq!(
            choice.to_string(),
            "Chain { piece: 8192 } for 1048576 bytes and 4 ranks: the first suitable row of the table is for any number \
             of bytes and at most 16 ranks"
        );
    }
}
