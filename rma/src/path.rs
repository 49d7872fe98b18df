//! The way of an operation to its target.

use crate::Action;

/// The way of an operation to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Loads, stores and atomic instructions of the origin's processor.
    Memory,
    /// Packets, which the target's processor applies.
    Packets,
}

/// Chooses the way of an operation. `is_mapped` is true if the origin can map the target's part.
///
/// The choice depends on the type of the elements and not on their number. So all accumulates of one origin on elements
/// of one type take the same way, and keep their order (MPI 4.1, section 12.7.2). On a mapped part, the elements that
/// fit in a word are always changed by atomic instructions, also by the target when it applies packets. So an
/// operation is atomic with respect to operations that take the other way.
pub(crate) fn choose(action: Action, is_mapped: bool) -> Path {
    match action.element() {
        Some(element) if element.size() > WORD => Path::Packets,
        _ if is_mapped => Path::Memory,
        _ => Path::Packets,
    }
}

/// The number of bytes that a processor changes in one step.
pub(crate) const WORD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, Reduction};

    #[test]
    fn mapped_memory_is_used_for_all_except_long_elements() {
        for element in ElementType::ALL {
            let op = Reduction::Replace;
            let atomic = [
                Action::Accumulate { op, element },
                Action::GetAccumulate { op, element },
                Action::CompareSwap { element },
            ];
            let expected = if element.size() <= WORD { Path::Memory } else { Path::Packets };
            for action in atomic {
                assert_eq!(choose(action, true), expected, "{action:?}");
                assert_eq!(choose(action, false), Path::Packets);
            }
        }
        assert_eq!([Action::Put, Action::Get].map(|action| choose(action, true)), [Path::Memory; 2]);
        assert_eq!([Action::Put, Action::Get].map(|action| choose(action, false)), [Path::Packets; 2]);
    }
}
