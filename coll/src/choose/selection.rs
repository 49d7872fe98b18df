//! Algorithms that a user selects.

use std::fmt;

use samite_fabric::shm::board::PIECE;

use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};

/// The algorithms that a user selects, by operation. The table chooses the others, and the algorithm for an operation
/// that the selected algorithm cannot carry out. All ranks need the same selection.
///
/// ```
/// use samite_coll::{Selection, Situation, Table};
///
/// let selection = Selection::parse("allreduce=ring,bcast=chain:8192").expect("these algorithms exist");
/// assert_eq!(selection.to_string(), "bcast=chain:8192,allreduce=ring");
/// assert_eq!(Selection::parse("allreduce=linear"), None);
/// let table = Table { selection, ..Table::default() };
/// let situation = Situation { ranks: 8, bytes: 64, elements: 8, ..Situation::default() };
/// assert_eq!(table.allreduce(&situation).to_string(), "Ring for 64 bytes and 8 ranks: it was selected");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// For barriers.
    pub barrier: Option<barrier::Algorithm>,
    /// For broadcasts. The pieces of a chain are in bytes here.
    pub bcast: Option<bcast::Algorithm>,
    /// For gathers.
    pub gather: Option<gather::Algorithm>,
    /// For scatters.
    pub scatter: Option<scatter::Algorithm>,
    /// For allgathers.
    pub allgather: Option<allgather::Algorithm>,
    /// For exchanges of all ranks with all ranks.
    pub alltoall: Option<alltoall::Algorithm>,
    /// For reductions to one rank.
    pub reduce: Option<reduce::Algorithm>,
    /// For reductions to all ranks.
    pub allreduce: Option<allreduce::Algorithm>,
    /// For scattered reductions.
    pub reduce_scatter: Option<reduce_scatter::Algorithm>,
}

impl Selection {
    /// The text of an empty selection.
    pub const NONE: &'static str = "none";

    /// The names that [`parse`](Self::parse) accepts.
    pub const NAMES: &'static str = "`none`, or names separated by commas: `barrier=dissemination`, \
                                     `barrier=board`, `barrier=two-levels`, `bcast=board`, \
                                     `bcast=two-levels`, `bcast=knomial:K`, \
                                     `bcast=scatter-allgather`, `bcast=chain:BYTES`, `gather=binomial`, \
                                     `gather=linear`, `gather=board`, `scatter=binomial`, `scatter=linear`, `allgather=bruck`, \
                                     `allgather=recursive-doubling`, `allgather=ring`, `allgather=board`, `allgather=two-levels`, \
                                     `alltoall=bruck`, `alltoall=pairwise`, `alltoall=board`, \
                                     `reduce=binomial`, `reduce=board`, `reduce=two-levels`, \
                                     `allreduce=recursive-doubling`, `allreduce=rabenseifner`, \
                                     `allreduce=ring`, `allreduce=board`, `allreduce=two-levels`, \
                                     `reduce_scatter=recursive-halving`, `reduce_scatter=pairwise`";

    /// Parses a list of operations with their algorithms, separated by commas. Returns `None` if one does not exist.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut selection = Self::default();
        if text.trim() == Self::NONE {
            return Some(selection);
        }
        for entry in text.split(',') {
            let (operation, algorithm) = entry.split_once('=')?;
            let algorithm = algorithm.trim();
            match operation.trim() {
                "barrier" => selection.barrier = Some(named(&BARRIER, algorithm)?),
                "reduce" => selection.reduce = Some(named(&REDUCE, algorithm)?),
                "bcast" => selection.bcast = Some(bcast_named(algorithm)?),
                "gather" => selection.gather = Some(named(&GATHER, algorithm)?),
                "scatter" => selection.scatter = Some(named(&SCATTER, algorithm)?),
                "allgather" => selection.allgather = Some(named(&ALLGATHER, algorithm)?),
                "alltoall" => selection.alltoall = Some(named(&ALLTOALL, algorithm)?),
                "allreduce" => selection.allreduce = Some(named(&ALLREDUCE, algorithm)?),
                "reduce_scatter" => selection.reduce_scatter = Some(named(&REDUCE_SCATTER, algorithm)?),
                _ => return None,
            }
        }
        Some(selection)
    }

    /// Returns this selection, and the algorithms of `other` for the operations for which this one has none.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            barrier: self.barrier.or(other.barrier),
            reduce: self.reduce.or(other.reduce),
            bcast: self.bcast.or(other.bcast),
            gather: self.gather.or(other.gather),
            scatter: self.scatter.or(other.scatter),
            allgather: self.allgather.or(other.allgather),
            alltoall: self.alltoall.or(other.alltoall),
            allreduce: self.allreduce.or(other.allreduce),
            reduce_scatter: self.reduce_scatter.or(other.reduce_scatter),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = [
            name(&BARRIER, self.barrier).map(|name| ("barrier", name)),
            self.bcast.map(bcast_name).map(|name| ("bcast", name)),
            name(&GATHER, self.gather).map(|name| ("gather", name)),
            name(&SCATTER, self.scatter).map(|name| ("scatter", name)),
            name(&ALLGATHER, self.allgather).map(|name| ("allgather", name)),
            name(&ALLTOALL, self.alltoall).map(|name| ("alltoall", name)),
            name(&REDUCE, self.reduce).map(|name| ("reduce", name)),
            name(&ALLREDUCE, self.allreduce).map(|name| ("allreduce", name)),
            name(&REDUCE_SCATTER, self.reduce_scatter).map(|name| ("reduce_scatter", name)),
        ];
        let entries: Vec<_> =
            entries.into_iter().flatten().map(|(operation, name)| format!("{operation}={name}")).collect();
        f.write_str(if entries.is_empty() { Self::NONE } else { "" })?;
        f.write_str(&entries.join(","))
    }
}

/// The names of algorithms.
type Names<A, const N: usize> = [(&'static str, A); N];

const TWO_LEVELS: &str = "two-levels";

const BARRIER: Names<barrier::Algorithm, 3> = [
    ("dissemination", barrier::Algorithm::Dissemination),
    ("board", barrier::Algorithm::Board),
    (TWO_LEVELS, barrier::Algorithm::TwoLevels),
];
const REDUCE: Names<reduce::Algorithm, 3> = [
    ("binomial", reduce::Algorithm::Binomial),
    ("board", reduce::Algorithm::Board { piece: PIECE }),
    (TWO_LEVELS, reduce::Algorithm::TwoLevels),
];
const GATHER: Names<gather::Algorithm, 3> = [
    ("binomial", gather::Algorithm::Binomial),
    ("linear", gather::Algorithm::Linear),
    ("board", gather::Algorithm::Board { piece: PIECE }),
];
const SCATTER: Names<scatter::Algorithm, 2> =
    [("binomial", scatter::Algorithm::Binomial), ("linear", scatter::Algorithm::Linear)];
const ALLGATHER: Names<allgather::Algorithm, 5> = [
    (TWO_LEVELS, allgather::Algorithm::TwoLevels),
    ("board", allgather::Algorithm::Board { piece: PIECE }),
    ("bruck", allgather::Algorithm::Bruck),
    ("recursive-doubling", allgather::Algorithm::RecursiveDoubling),
    ("ring", allgather::Algorithm::Ring),
];
const ALLTOALL: Names<alltoall::Algorithm, 3> = [
    ("bruck", alltoall::Algorithm::Bruck),
    ("pairwise", alltoall::Algorithm::Pairwise),
    ("board", alltoall::Algorithm::Board { piece: PIECE }),
];
const ALLREDUCE: Names<allreduce::Algorithm, 5> = [
    (TWO_LEVELS, allreduce::Algorithm::TwoLevels),
    ("board", allreduce::Algorithm::Board { piece: PIECE }),
    ("recursive-doubling", allreduce::Algorithm::RecursiveDoubling),
    ("rabenseifner", allreduce::Algorithm::Rabenseifner),
    ("ring", allreduce::Algorithm::Ring),
];
const REDUCE_SCATTER: Names<reduce_scatter::Algorithm, 2> = [
    ("recursive-halving", reduce_scatter::Algorithm::RecursiveHalving),
    ("pairwise", reduce_scatter::Algorithm::Pairwise),
];

fn named<A: Copy>(names: &[(&str, A)], name: &str) -> Option<A> {
    names.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

fn name<A: Copy + PartialEq>(names: &[(&str, A)], algorithm: Option<A>) -> Option<String> {
    names.iter().find(|(_, known)| Some(*known) == algorithm).map(|(name, _)| (*name).to_owned())
}

fn bcast_named(text: &str) -> Option<bcast::Algorithm> {
    match text.split_once(':') {
        None if text == "board" => Some(bcast::Algorithm::Board { piece: PIECE }),
        None if text == TWO_LEVELS => Some(bcast::Algorithm::TwoLevels),
        None => (text == "scatter-allgather").then_some(bcast::Algorithm::ScatterAllgather),
        Some(("knomial", k)) => Some(bcast::Algorithm::KNomial { k: k.parse().ok().filter(|k| *k >= 2)? }),
        Some(("chain", bytes)) => {
            Some(bcast::Algorithm::Chain { piece: bytes.parse().ok().filter(|bytes| *bytes > 0)? })
        }
        Some(_) => None,
    }
}

fn bcast_name(algorithm: bcast::Algorithm) -> String {
    match algorithm {
        bcast::Algorithm::KNomial { k } => format!("knomial:{k}"),
        bcast::Algorithm::ScatterAllgather => "scatter-allgather".to_owned(),
        bcast::Algorithm::Chain { piece } => format!("chain:{piece}"),
        bcast::Algorithm::Board { .. } => "board".to_owned(),
        bcast::Algorithm::TwoLevels => TWO_LEVELS.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_parsed_and_printed() {
        let mut names = 0;
        for text in Selection::NAMES.split('`').filter(|text| text.contains('=')) {
            let text = text.replace(":K", ":3").replace(":BYTES", ":4096");
            assert_eq!(Selection::parse(&text).expect("it exists").to_string(), text);
            names += 1;
        }
        assert_eq!(names, 31);
        assert_eq!(Selection::parse("none"), Some(Selection::default()));
        assert_eq!(Selection::default().to_string(), "none");
        for wrong in [
            "",
            "ring",
            "allreduce=",
            "barrier=ring",
            "scan=board",
            "bcast=knomial:1",
            "bcast=chain:0",
            "bcast=chain",
        ] {
            assert_eq!(Selection::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_selection_completes_another() {
        let selected = |text| Selection::parse(text).expect("it exists");
        let both = selected("allreduce=ring").or(&selected("allreduce=rabenseifner,gather=linear"));
        assert_eq!(both.to_string(), "gather=linear,allreduce=ring");
    }
}
