//! The check that the ranks of a communicator make collective calls that match ([`Check::Collectives`]).
//!
//! Each rank describes its call by texts. The descriptions are compared along a tree, in the order of ranks: a record
//! contains the description of the lowest of some ranks and, after a mismatch, a second description that differs from
//! it.
//!
//! [`Check::Collectives`]: crate::Check::Collectives

use std::any::{type_name, type_name_of_val};
use std::panic::Location;

use samite_coll::{Blocks, Check, Plan};

use super::Comm;

/// The types in a collective call, by name. A text is empty if the call has no such type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Types {
    element: &'static str,
    reduction: &'static str,
}

impl Types {
    /// The types of a call without a type that is the same at all ranks.
    pub(crate) const NONE: Self = Self { element: "", reduction: "" };

    pub(crate) fn of<T>() -> Self {
        Self { element: type_name::<T>(), reduction: "" }
    }

    pub(crate) fn reducing<T, O>(op: &O) -> Self {
        Self { element: type_name::<T>(), reduction: type_name_of_val(op) }
    }
}

/// A call to compare with the calls of the other ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called {
    /// The name of the method.
    pub(crate) call: &'static str,
    pub(crate) types: Types,
    /// The place of the call in the program.
    pub(crate) site: &'static Location<'static>,
}

impl Comm {
    /// Returns the check of a collective call, if such calls are checked.
    #[inline]
    pub(crate) fn check_of(&self, called: Called, plan: &Plan) -> Option<Check> {
        if self.runtime.checks.collectives { Some(self.new_check(called, plan, true)) } else { None }
    }

    /// Returns the check of a collective call before this rank knows if the members share a board. While a board is being
    /// created, other members may know it already, and then choose other algorithms.
    pub(super) fn check_before_settling(&self, called: Called, plan: &Plan) -> Option<Check> {
        let knows_algorithm = !self.runtime.awaits_board(self.derived.as_deref());
        self.runtime.checks.collectives.then(|| self.new_check(called, plan, knows_algorithm))
    }

    #[cold]
    fn new_check(&self, called: Called, plan: &Plan, knows_algorithm: bool) -> Check {
        // The ranks of an intercommunicator are numbered in their group. The groups have different arguments.
        let rank = match self.remote_size() {
            None => self.rank().to_string(),
            Some(_) => format!("{} of its group", self.rank()),
        };
        let mut description = Description::new(rank, called, plan);
        if !knows_algorithm {
            description.properties[ALGORITHM].clear();
        }
        let mut record = vec![0; 2 * HALF];
        description.write(&mut record[..HALF]);
        Check { record, merge, difference }
    }
}

/// The number of bytes for a description in a record, which has two of them.
const HALF: usize = 512;

/// The longest text of a description in bytes.
const TEXT_MAX: usize = 40;

/// The properties in which calls must agree, in the order in which they are compared.
const PROPERTIES: [&str; 8] = [
    "operation",
    "root",
    "element type",
    "number of elements",
    "lengths of the blocks",
    "reduction",
    "form",
    "algorithm",
];

/// The index of the algorithm in [`PROPERTIES`].
const ALGORITHM: usize = PROPERTIES.len() - 1;

/// A call at one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Description {
    rank: String,
    call: String,
    site: String,
    /// See [`PROPERTIES`]. An empty text agrees with every text.
    properties: [String; PROPERTIES.len()],
}

impl Description {
    fn new(rank: String, called: Called, plan: &Plan) -> Self {
        let Called { call, types, site } = called;
        let (operation, form) = operation_of(call);
        let Arguments { root, len, blocks, algorithm, in_place } = arguments_of(plan);
        // Only the root knows all lengths.
        let len = if matches!(operation, "gatherv" | "scatterv") { String::new() } else { len };
        let form = if in_place { format!("{form}, in place") } else { form.to_owned() };
        let (element, reduction) = (types.element.to_owned(), types.reduction.to_owned());
        let properties = [operation.to_owned(), root, element, len, blocks, reduction, form, algorithm];
        let properties = properties.map(|text| shortened(text, TEXT_MAX));
        Self { rank, call: call.to_owned(), site: shortened(site.to_string(), 2 * TEXT_MAX), properties }
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        [&self.rank, &self.call, &self.site].into_iter().chain(&self.properties)
    }

    /// Writes the texts with their lengths.
    fn write(&self, into: &mut [u8]) {
        let texts = self.texts().flat_map(|text| {
            let len = u8::try_from(text.len()).expect("a text is short");
            std::iter::once(len).chain(text.bytes())
        });
        for (index, byte) in texts.enumerate() {
            into[index] = byte;
        }
    }

    /// Reads a description. Returns `None` if the bytes contain none.
    fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut next = || {
            let (len, rest) = bytes.split_first()?;
            let (text, rest) = rest.split_at_checked((*len).into())?;
            bytes = rest;
            Some(std::str::from_utf8(text).ok()?.to_owned())
        };
        let (rank, call, site) = (next()?, next()?, next()?);
        let mut properties = [const { String::new() }; PROPERTIES.len()];
        for property in &mut properties {
            *property = next()?;
        }
        (!call.is_empty()).then_some(Self { rank, call, site, properties })
    }

    /// Returns the index of the first property in which two calls differ.
    fn differs(&self, other: &Self) -> Option<usize> {
        let pairs = self.properties.iter().zip(&other.properties);
        pairs.into_iter().position(|(one, other)| !one.is_empty() && !other.is_empty() && one != other)
    }
}

/// Shortens a text to its end: the end of a path or of the name of a type says most.
fn shortened(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let start = (text.len() - max..).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[start..].to_owned()
}

/// Returns the operation of a call, and if it is blocking, nonblocking or persistent.
fn operation_of(call: &str) -> (&str, &'static str) {
    let call = call.strip_suffix("_in_place").unwrap_or(call);
    match (call.strip_suffix("_init"), call.strip_prefix('i')) {
        (Some(operation), _) => (operation, "persistent"),
        (None, Some(operation)) => (operation, "nonblocking"),
        (None, None) => (call, "blocking"),
    }
}

/// The arguments of a call that all ranks pass, as texts. A text is empty if there is no such argument.
#[derive(Default)]
struct Arguments {
    root: String,
    len: String,
    blocks: String,
    algorithm: String,
    /// True if the call is in place at all ranks.
    in_place: bool,
}

/// Returns the arguments of a plan. The groups of an intercommunicator and neighbours have different arguments.
fn arguments_of(plan: &Plan) -> Arguments {
    let root_of = |root: &u32| format!("rank {root}");
    let none = Arguments::default();
    match plan {
        Plan::Barrier(algorithm) => Arguments { algorithm: format!("{algorithm:?}"), ..none },
        Plan::Exchange { .. } | Plan::Stages(_) => none,
        Plan::TwoLevels(levels) => {
            let arguments = arguments_of(&levels.operation);
            Arguments { algorithm: format!("TwoLevels, {}", arguments.algorithm), ..arguments }
        }
        Plan::Bcast { algorithm, root, len } => Arguments {
            root: root_of(root),
            len: len.to_string(),
            algorithm: format!("{algorithm:?}"),
            ..none
        },
        Plan::Gather { algorithm, root, len, .. } => Arguments {
            root: root_of(root),
            len: len.to_string(),
            algorithm: format!("{algorithm:?}"),
            ..none
        },
        Plan::Scatter { algorithm, root, len, .. } => Arguments {
            root: root_of(root),
            len: len.to_string(),
            algorithm: format!("{algorithm:?}"),
            ..none
        },
        Plan::Allgather { algorithm, blocks, in_place } => {
            let [len, blocks] = lens(blocks);
            Arguments { len, blocks, algorithm: format!("{algorithm:?}"), in_place: *in_place, ..none }
        }
        Plan::Alltoall { algorithm, into, in_place, .. } => {
            let [len, _] = lens(into);
            Arguments { len, algorithm: format!("{algorithm:?}"), in_place: *in_place, ..none }
        }
        Plan::Reduce { algorithm, root, len, .. } => Arguments {
            root: root_of(root),
            len: len.to_string(),
            algorithm: format!("{algorithm:?}"),
            ..none
        },
        Plan::Allreduce { algorithm, len, in_place, .. } => {
            let (len, algorithm) = (len.to_string(), format!("{algorithm:?}"));
            Arguments { len, algorithm, in_place: *in_place, ..none }
        }
        Plan::ReduceScatter { algorithm, blocks, in_place, .. } => {
            let [len, blocks] = lens(blocks);
            Arguments { len, blocks, algorithm: format!("{algorithm:?}"), in_place: *in_place, ..none }
        }
        Plan::Scan { len, in_place } | Plan::Exscan { len, in_place } => {
            Arguments { len: len.to_string(), in_place: *in_place, ..none }
        }
    }
}

/// Returns the length of all blocks, or the list of their lengths.
fn lens(blocks: &Blocks) -> [String; 2] {
    match blocks {
        Blocks::Equal(len) => [len.to_string(), String::new()],
        Blocks::Parts { total, .. } => [total.to_string(), String::new()],
        Blocks::Listed(blocks) => {
            let lens: Vec<_> = blocks.iter().map(|block| block.len().to_string()).collect();
            [String::new(), listed(&lens)]
        }
    }
}

/// Returns the lengths as a text. A long text is replaced by its start and a digest of the whole.
fn listed(lens: &[String]) -> String {
    let text = lens.join(", ");
    if text.len() <= TEXT_MAX {
        return text;
    }
    // FNV-1a, by Fowler, Noll and Vo.
    let digest = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325, digest);
    format!("{}... ({digest:016x})", &text[..TEXT_MAX / 3])
}

/// Merges two records. The result has the description of the lowest rank, and another description if it differs.
fn merge(from: &[u8], into: &mut [u8]) {
    let [lower, lower_other] = [&from[..HALF], &from[HALF..]];
    let is_decided = lower_other[0] != 0 || into[HALF] != 0;
    let mismatch = match is_decided {
        true => lower_other[0] != 0,
        false => {
            let calls = (Description::read(lower), Description::read(&into[..HALF]));
            let agree = matches!(&calls, (Some(one), Some(other)) if one.differs(other).is_none());
            if !agree {
                into.copy_within(..HALF, HALF);
                into[..HALF].copy_from_slice(lower);
                // A description of another rank may be invalid. It is a mismatch too.
                into[HALF] = into[HALF].max(1);
                return;
            }
            true
        }
    };
    if mismatch {
        into.copy_from_slice(from);
    }
}

/// Returns the mismatch in a merged record.
fn difference(record: &[u8]) -> Option<Box<str>> {
    if record[HALF] == 0 {
        return None;
    }
    let calls = (Description::read(&record[..HALF]), Description::read(&record[HALF..]));
    let (Some(one), Some(other)) = calls else {
        return Some("a rank sent no description of its call".into());
    };
    let Some(index) = one.differs(&other) else { return Some("a rank sent a wrong description".into()) };
    let text = |call: &Description| {
        let Description { rank, call, site, properties } = call;
        format!(
            "rank {rank} called `{call}` at {site} with the {} `{}`",
            PROPERTIES[index], properties[index]
        )
    };
    Some(format!("{}, and {}", text(&one), text(&other)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_an_operation_and_a_form() {
        assert_eq!(operation_of("allreduce_in_place"), ("allreduce", "blocking"));
        assert_eq!(operation_of("ineighbour_alltoallw"), ("neighbour_alltoallw", "nonblocking"));
        assert_eq!(operation_of("igatherv"), ("gatherv", "nonblocking"));
        assert_eq!(operation_of("scan_init"), ("scan", "persistent"));
    }

    #[test]
    fn long_texts_keep_their_end_and_lists_a_digest() {
        assert_eq!(shortened("src/ä.rs:1:2".into(), 7), ".rs:1:2");
        assert_eq!(shortened("ä".into(), 1), "");
        let lens = |last: usize| {
            listed(&(0..99).chain([last]).map(|len: usize| len.to_string()).collect::<Vec<_>>())
        };
        assert!(lens(1).len() <= TEXT_MAX && lens(1) != lens(2));
    }

    fn described(call: &'static str, len: usize) -> Vec<u8> {
        let called = Called { call, types: Types::of::<u8>(), site: Location::caller() };
        let plan = Plan::Scan { len, in_place: false };
        let mut record = vec![0; 2 * HALF];
        Description::new("7".into(), called, &plan).write(&mut record[..HALF]);
        record
    }

    #[test]
    fn a_record_keeps_the_first_mismatch() {
        let [one, same, longer, other] =
            [described("scan", 1), described("scan", 1), described("scan", 2), described("exscan", 2)];
        let merged = |from: &[u8], into: &[u8]| {
            let mut into = into.to_vec();
            merge(from, &mut into);
            into
        };
        assert_eq!(difference(&merged(&one, &same)), None);
        let found = merged(&one, &longer);
        assert!(difference(&found).unwrap().contains("number of elements"));
        assert_eq!(merged(&found, &other), found);
        assert_eq!(merged(&other, &found), found);
        let both = merged(&merged(&one, &other), &found);
        assert!(difference(&both).unwrap().contains("operation"), "the mismatch of the lowest ranks");
    }

    /// A record of another rank may contain anything.
    #[test]
    fn wrong_records_are_mismatches() {
        let mut state = 1_u64;
        for _ in 0..1000 {
            let mut wrong = described("scan", 1);
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                wrong[state as usize >> 33 & (2 * HALF - 1)] = (state >> 8) as u8;
            }
            let mut into = described("scan", 1);
            merge(&wrong, &mut into);
            let _ = difference(&into);
        }
        let mut empty = vec![0; 2 * HALF];
        merge(&described("scan", 1), &mut empty);
        assert!(difference(&empty).is_some());
    }
}
