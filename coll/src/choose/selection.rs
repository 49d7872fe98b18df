//! Algorithms that a user selects.

use std::fmt;

use super::Way;
use super::names::Named;
use crate::algorithms::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scatter,
};

macro_rules! selection {
    ($($(#[doc = $doc:literal])+ $operation:ident;)+) => {
        /// The algorithms that a user selects, by operation. The table chooses the others, and the algorithm for an
        /// operation that the selected algorithm cannot carry out. All ranks need the same selection.
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
        ///
        /// The pieces of data are in bytes here.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Selection {
            $($(#[doc = $doc])+ pub $operation: Option<Way<$operation::Algorithm>>,)+
        }

        impl Selection {
            /// Selects an algorithm for an operation. Returns `None` if one of the names does not exist.
            fn select(&mut self, operation: &str, algorithm: &str) -> Option<()> {
                match operation {
                    $(stringify!($operation) => self.$operation = Some(Named::named(algorithm)?),)+
                    _ => return None,
                }
                Some(())
            }

            /// Returns this selection, and the algorithms of `other` for the operations for which this one has none.
            #[must_use]
            pub fn or(self, other: &Self) -> Self {
                Self { $($operation: self.$operation.or(other.$operation),)+ }
            }

            /// Returns the operations with the names of their algorithms.
            fn names(&self) -> impl Iterator<Item = (&'static str, String)> {
                let names = [$((stringify!($operation), self.$operation.map(Named::name)),)+];
                names.into_iter().filter_map(|(operation, name)| Some((operation, name?)))
            }
        }
    };
}

each_operation!(selection);

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
                                     `reduce=binomial`, `reduce=rabenseifner`, `reduce=board`, `reduce=two-levels`, \
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
            selection.select(operation.trim(), algorithm.trim())?;
        }
        Some(selection)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<_> = self.names().map(|(operation, name)| format!("{operation}={name}")).collect();
        f.write_str(if entries.is_empty() { Self::NONE } else { "" })?;
        f.write_str(&entries.join(","))
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
        assert_eq!(names, 32);
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
