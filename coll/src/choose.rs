//! The choice of an algorithm: a pure function of a table and the arguments of an operation.
//!
//! A table has rows for each operation: some for ranks that share a board, and others for ranks that do not. A row is
//! suitable if the operation does not exceed its limits and its algorithm can carry out the operation. The first
//! suitable row decides. The limits of the default rows follow MPICH's (Thakur et al. 2005, section 5), which were
//! measured between hosts. For more than 512 ranks, no default row chooses an algorithm whose number of rounds is
//! proportional to the number of ranks, unless no other algorithm can carry out the operation. An alltoall is the
//! exception: Bruck's algorithm copies each block several times, so it is chosen only for blocks of at most 256 bytes.
//!
//! ```
//! use samite_coll::algorithms::allreduce::Algorithm;
//! use samite_coll::{Rows, Situation, Table};
//!
//! let mut table = Table::default();
//! let situation = Situation { ranks: 8, bytes: 64, elements: 8, ..Situation::default() };
//! assert_eq!(table.allreduce(&situation).algorithm, Algorithm::RecursiveDoubling);
//! // A row before the others overrides them.
//! table.by_messages = Rows::parse("allreduce", "8 any ring").expect("it is a row").before(&Rows::default());
//! assert_eq!(table.allreduce(&situation).algorithm, Algorithm::Ring);
//! ```
//! A [`Selection`] of the user overrides all rows.

/// Passes the operations that have several algorithms to a macro.
macro_rules! each_operation {
    ($macro:ident) => {
        $macro! {
            /// Barriers.
            barrier;
            /// Broadcasts.
            bcast;
            /// Gathers.
            gather;
            /// Scatters.
            scatter;
            /// Allgathers.
            allgather;
            /// Exchanges of all ranks with all ranks.
            alltoall;
            /// Reductions to one rank.
            reduce;
            /// Reductions to all ranks.
            allreduce;
            /// Scattered reductions.
            reduce_scatter;
        }
    };
}

mod names;
mod rows;
mod selection;

use std::fmt;
use std::sync::Arc;

pub use rows::Rows;
pub use selection::Selection;

use samite_fabric::shm::board::{PIECE, PIECES_MAX};

use crate::algorithms::hosts::{Hosts, TwoLevels};
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};
use crate::schedule::Plan;

/// A way to carry out an operation with algorithms of type `A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<A> {
    /// All ranks take part in one algorithm.
    OneLevel(A),
    /// The ranks of each host act together, and one rank of each host exchanges data with those of the other hosts: see
    /// [`hosts`](crate::algorithms::hosts). The table chooses the algorithm between the hosts.
    TwoLevels,
}

/// A row of a table: a way to carry out an operation, and the largest numbers of ranks and bytes for which it is
/// chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<A> {
    /// The largest number of ranks.
    pub ranks: u32,
    /// The largest number of bytes: see [`Situation::bytes`].
    pub bytes: usize,
    /// The way.
    pub way: Way<A>,
    /// True if the row is from a tuning file, and false if it is a default row.
    pub is_measured: bool,
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
    /// an element is longer than a piece, or has no bytes: pieces have a limited number of elements.
    fn pieces(&self, bytes: usize, piece: usize) -> Option<usize> {
        let piece = piece.min(PIECE);
        if bytes <= piece {
            // Short operations must cost little, and divisions cost much.
            return if bytes > 0 { Some(1) } else { (self.elements == 0).then_some(0) };
        }
        let elements = piece / self.element();
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
    /// The chosen algorithm. If the operation is carried out on two levels, the algorithm between the hosts.
    pub algorithm: A,
    /// True if the operation is carried out on two levels.
    pub has_two_levels: bool,
    /// The row of the table that decided. `None` if the user has selected the algorithm.
    pub row: Option<Row<A>>,
    /// The user's selection, if the operation cannot be carried out in this way.
    pub unsuitable: Option<Way<A>>,
    /// The arguments.
    pub situation: Situation,
}

impl<A: Copy> Choice<A> {
    /// Returns the plan of the operation. `plan` returns the plan with an algorithm. `hosts` are the hosts of the
    /// ranks.
    ///
    /// # Panics
    /// If the situation has several hosts, and `hosts` is `None`.
    pub fn plan(&self, hosts: Option<&Arc<Hosts>>, plan: impl FnOnce(A) -> Plan) -> Plan {
        let plan = plan(self.algorithm);
        if !self.has_two_levels {
            return plan;
        }
        let hosts = Arc::clone(hosts.expect("an operation on two levels has hosts"));
        Plan::TwoLevels(TwoLevels {
            operation: Box::new(plan),
            hosts,
            piece: self.situation.piece_on_hosts(),
        })
    }
}

impl<A: fmt::Debug> fmt::Display for Choice<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, has_two_levels, row, unsuitable, situation } = self;
        let Situation { bytes, ranks, hosts, .. } = situation;
        if *has_two_levels {
            let within = if situation.piece_on_hosts().is_some() { "on its board" } else { "by messages" };
            write!(f, "TwoLevels for {bytes} bytes and {ranks} ranks")?;
            write!(f, " ({algorithm:?} between {hosts} hosts, and within a host {within})")?;
        } else {
            write!(f, "{algorithm:?} for {bytes} bytes and {ranks} ranks")?;
        }
        let Some(row) = row else { return f.write_str(": it was selected") };
        match unsuitable {
            Some(Way::OneLevel(selected)) => {
                write!(f, ": the selected {selected:?} cannot carry out the operation")?;
            }
            Some(Way::TwoLevels) => f.write_str(": the operation cannot be carried out on two levels")?,
            None => {}
        }
        let measured = if row.is_measured { " measured" } else { "" };
        write!(f, ": the first suitable{measured} row of the table is for")?;
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
    /// Returns true if the operation can be carried out on two levels, given that the ranks have two levels. `None` if
    /// it never can.
    const ON_TWO_LEVELS: Option<fn(&Situation) -> bool> = None;

    /// Returns true if the algorithm can carry out the operation.
    fn suits(self, situation: &Situation) -> bool;

    /// Returns the algorithm with pieces in elements.
    fn in_elements(self, _situation: &Situation) -> Self {
        self
    }
}

/// Returns true if the operation can be carried out in a way.
fn suits<A: Suits>(way: Way<A>, situation: &Situation) -> bool {
    match way {
        Way::OneLevel(algorithm) => algorithm.suits(situation),
        Way::TwoLevels => situation.has_two_levels() && A::ON_TWO_LEVELS.is_some_and(|can| can(situation)),
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
    const ON_TWO_LEVELS: Option<fn(&Situation) -> bool> = Some(|_| true);

    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Dissemination => true,
            Self::Board => situation.shares_board(),
        }
    }
}

impl Suits for reduce::Algorithm {
    const ON_TWO_LEVELS: Option<fn(&Situation) -> bool> = Some(|situation| situation.commutes);

    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Binomial => true,
            // With fewer elements than acting ranks, some parts would be empty.
            Self::Rabenseifner => situation.elements >= 1 << situation.ranks.ilog2(),
            Self::Board { piece } => situation.can_publish(situation.bytes, piece),
        }
    }

    fn in_elements(self, situation: &Situation) -> Self {
        match self {
            Self::Board { piece } => Self::Board { piece: on_board(piece, situation) },
            _ => self,
        }
    }
}

impl Suits for bcast::Algorithm {
    const ON_TWO_LEVELS: Option<fn(&Situation) -> bool> = Some(|_| true);

    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::KNomial { k } => k >= 2,
            Self::ScatterAllgather => situation.elements >= situation.ranks as usize,
            Self::Chain { piece } => piece > 0,
            Self::Board { piece } => situation.can_publish(situation.bytes, piece),
        }
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
    const ON_TWO_LEVELS: Option<fn(&Situation) -> bool> = Some(|situation| situation.has_equal_blocks);

    fn suits(self, situation: &Situation) -> bool {
        match self {
            Self::Ring => true,
            Self::Bruck => situation.has_equal_blocks,
            Self::RecursiveDoubling => situation.has_equal_blocks && situation.ranks.is_power_of_two(),
            Self::Board { piece } => {
                let block = situation.bytes / situation.ranks as usize;
                situation.has_equal_blocks && situation.can_publish(block, piece)
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
    const ON_TWO_LEVELS: Option<fn(&Situation) -> bool> = Some(|situation| situation.commutes);

    fn suits(self, situation: &Situation) -> bool {
        // With fewer elements than ranks, some parts would be empty.
        let can_divide = situation.elements >= situation.ranks as usize;
        match self {
            Self::RecursiveDoubling => true,
            Self::Rabenseifner => can_divide,
            Self::Ring => can_divide && situation.commutes,
            Self::Board { piece } => situation.can_publish(situation.bytes, piece),
        }
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

/// The tables by which the algorithms are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The algorithms that the user has selected.
    pub selection: Selection,
    /// The rows for ranks that share a board.
    pub on_board: Rows,
    /// The rows for other ranks, and for the exchange between hosts.
    pub by_messages: Rows,
}

impl Table {
    /// Returns the algorithm for a barrier.
    #[inline]
    #[must_use]
    pub fn barrier(&self, situation: &Situation) -> Choice<barrier::Algorithm> {
        self.choose(
            situation,
            self.selection.barrier,
            |rows| &rows.barrier,
            barrier::Algorithm::Dissemination,
        )
    }

    /// Returns the algorithm for a broadcast.
    #[inline]
    #[must_use]
    pub fn bcast(&self, situation: &Situation) -> Choice<bcast::Algorithm> {
        self.choose(situation, self.selection.bcast, |rows| &rows.bcast, bcast::Algorithm::KNomial { k: 2 })
    }

    /// Returns the algorithm for a gather.
    #[inline]
    #[must_use]
    pub fn gather(&self, situation: &Situation) -> Choice<gather::Algorithm> {
        self.choose(situation, self.selection.gather, |rows| &rows.gather, gather::Algorithm::Linear)
    }

    /// Returns the algorithm for a scatter.
    #[must_use]
    pub fn scatter(&self, situation: &Situation) -> Choice<scatter::Algorithm> {
        self.choose(situation, self.selection.scatter, |rows| &rows.scatter, scatter::Algorithm::Linear)
    }

    /// Returns the algorithm for an allgather.
    #[inline]
    #[must_use]
    pub fn allgather(&self, situation: &Situation) -> Choice<allgather::Algorithm> {
        self.choose(situation, self.selection.allgather, |rows| &rows.allgather, allgather::Algorithm::Ring)
    }

    /// Returns the algorithm for an alltoall.
    #[inline]
    #[must_use]
    pub fn alltoall(&self, situation: &Situation) -> Choice<alltoall::Algorithm> {
        self.choose(situation, self.selection.alltoall, |rows| &rows.alltoall, alltoall::Algorithm::Pairwise)
    }

    /// Returns the algorithm for a reduction to one rank.
    #[inline]
    #[must_use]
    pub fn reduce(&self, situation: &Situation) -> Choice<reduce::Algorithm> {
        self.choose(situation, self.selection.reduce, |rows| &rows.reduce, reduce::Algorithm::Binomial)
    }

    /// Returns the algorithm for a reduction to all ranks.
    #[inline]
    #[must_use]
    pub fn allreduce(&self, situation: &Situation) -> Choice<allreduce::Algorithm> {
        let general = allreduce::Algorithm::RecursiveDoubling;
        self.choose(situation, self.selection.allreduce, |rows| &rows.allreduce, general)
    }

    /// Returns the algorithm for a scattered reduction.
    #[must_use]
    pub fn reduce_scatter(&self, situation: &Situation) -> Choice<reduce_scatter::Algorithm> {
        let general = reduce_scatter::Algorithm::Pairwise;
        self.choose(situation, self.selection.reduce_scatter, |rows| &rows.reduce_scatter, general)
    }

    /// Returns the user's selection as the choice if it suits. Otherwise the first of the rows `of` the operation that
    /// fits decides. If no row fits, the algorithm is `general`, which must suit every situation.
    #[inline]
    fn choose<A: Suits>(
        &self,
        situation: &Situation,
        selected: Option<Way<A>>,
        of: impl Fn(&Rows) -> &[Row<A>],
        general: A,
    ) -> Choice<A> {
        let row = |situation: &Situation| {
            let rows = of(if situation.shares_board() { &self.on_board } else { &self.by_messages });
            let fits = |row: &&Row<A>| {
                situation.ranks <= row.ranks && situation.bytes <= row.bytes && suits(row.way, situation)
            };
            rows.iter().find(fits).copied().unwrap_or_else(|| rows::last(general))
        };
        let suitable = selected.filter(|way| suits(*way, situation));
        let row_of_all = suitable.is_none().then(|| row(situation));
        let (algorithm, has_two_levels) = match suitable.or(row_of_all.map(|row| row.way)) {
            Some(Way::OneLevel(algorithm)) => (algorithm.in_elements(situation), false),
            _ => {
                let of_hosts = situation.between_hosts();
                let algorithm = match row(&of_hosts).way {
                    Way::OneLevel(algorithm) => algorithm,
                    // The leaders have one level.
                    Way::TwoLevels => general,
                };
                (algorithm.in_elements(&of_hosts), true)
            }
        };
        let unsuitable = selected.filter(|_| suitable.is_none());
        Choice { algorithm, has_two_levels, row: row_of_all, unsuitable, situation: *situation }
    }
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
            // There must be 2^20 elements, which are 8 MiB.
            let by_parts = table.reduce(&many).algorithm == reduce::Algorithm::Rabenseifner;
            assert_eq!(by_parts, bytes >= 8 << 20);
            assert_eq!(table.reduce_scatter(&many).algorithm, reduce_scatter::Algorithm::RecursiveHalving);
        }
    }

    #[test]
    fn an_algorithm_that_cannot_carry_out_the_operation_is_not_chosen() {
        let mut table = Table::default();
        let long = Situation { commutes: false, has_equal_blocks: false, ..situation(6, 1 << 24) };
        table.by_messages = Rows::parse("allreduce", "any any ring").unwrap();
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
    fn long_vectors_are_reduced_by_parts() {
        let table = Table::default();
        for commutes in [true, false] {
            let of = |ranks, bytes| {
                let situation = Situation { commutes, ..situation(ranks, bytes) };
                table.reduce(&situation).algorithm
            };
            assert_eq!(of(8, 64 << 10), reduce::Algorithm::Binomial);
            assert_eq!(of(8, (64 << 10) + 8), reduce::Algorithm::Rabenseifner);
            for (ranks, expected) in [
                (2, reduce::Algorithm::Binomial),
                (3, reduce::Algorithm::Binomial),
                (4, reduce::Algorithm::Rabenseifner),
                (6, reduce::Algorithm::Binomial),
                (9, reduce::Algorithm::Rabenseifner),
            ] {
                assert_eq!(of(ranks, 1 << 20), expected);
            }
        }
        // The eight acting ranks of nine can divide eight elements.
        let few = |elements| Situation { elements, ..situation(9, 1 << 24) };
        assert_eq!(table.reduce(&few(7)).algorithm, reduce::Algorithm::Binomial);
        assert_eq!(table.reduce(&few(8)).algorithm, reduce::Algorithm::Rabenseifner);
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
