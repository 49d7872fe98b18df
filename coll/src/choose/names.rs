//! The names of algorithms, in selections and in rows of tuning files.

use samite_fabric::shm::board::PIECE;

use super::{Suits, Way};
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};

/// An algorithm, or a way to carry out an operation, with a name. Its pieces of data are in bytes in the name.
pub(super) trait Named: Copy {
    /// Returns the algorithm of a name, if there is one.
    fn named(name: &str) -> Option<Self>;

    /// Returns the algorithm's name.
    fn name(self) -> String;
}

/// The name of [`Way::TwoLevels`].
const TWO_LEVELS: &str = "two-levels";

impl<A: Named + Suits> Named for Way<A> {
    fn named(name: &str) -> Option<Self> {
        match name {
            TWO_LEVELS => A::ON_TWO_LEVELS.map(|_| Self::TwoLevels),
            _ => A::named(name).map(Self::OneLevel),
        }
    }

    fn name(self) -> String {
        match self {
            Self::OneLevel(algorithm) => algorithm.name(),
            Self::TwoLevels => TWO_LEVELS.to_owned(),
        }
    }
}

macro_rules! names {
    ($($operation:ident: $($name:literal $algorithm:ident $({ $piece:ident })?),+;)+) => {$(
        impl Named for $operation::Algorithm {
            fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$algorithm $({ $piece: PIECE })?),)+
                    _ => None,
                }
            }

            fn name(self) -> String {
                match self {
                    $(Self::$algorithm $({ $piece: _ })? => $name.to_owned(),)+
                }
            }
        }
    )+};
}

names! {
    barrier: "dissemination" Dissemination, "board" Board;
    gather: "binomial" Binomial, "linear" Linear, "board" Board { piece };
    scatter: "binomial" Binomial, "linear" Linear;
    allgather: "bruck" Bruck, "recursive-doubling" RecursiveDoubling, "ring" Ring, "board" Board { piece };
    alltoall: "bruck" Bruck, "pairwise" Pairwise, "board" Board { piece };
    reduce: "binomial" Binomial, "rabenseifner" Rabenseifner, "board" Board { piece };
    allreduce: "recursive-doubling" RecursiveDoubling, "rabenseifner" Rabenseifner, "ring" Ring,
        "board" Board { piece };
    reduce_scatter: "recursive-halving" RecursiveHalving, "pairwise" Pairwise;
}

impl Named for bcast::Algorithm {
    fn named(name: &str) -> Option<Self> {
        let at_least =
            |text: &str, least: usize| text.parse::<usize>().ok().filter(|number| *number >= least);
        match name.split_once(':') {
            None => match name {
                "board" => Some(Self::Board { piece: PIECE }),
                "scatter-allgather" => Some(Self::ScatterAllgather),
                _ => None,
            },
            Some(("knomial", k)) => Some(Self::KNomial { k: at_least(k, 2)?.try_into().ok()? }),
            Some(("chain", bytes)) => Some(Self::Chain { piece: at_least(bytes, 1)? }),
            Some(_) => None,
        }
    }

    fn name(self) -> String {
        match self {
            Self::KNomial { k } => format!("knomial:{k}"),
            Self::ScatterAllgather => "scatter-allgather".to_owned(),
            Self::Chain { piece } => format!("chain:{piece}"),
            Self::Board { .. } => "board".to_owned(),
        }
    }
}
