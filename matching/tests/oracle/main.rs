//! Compares every structure with a naive list over generated sequences of operations. Counterexamples are kept in
//! `main.regressions` and replayed first; `ci/matching-oracle.sh` runs millions of operations.

mod naive;
mod operation;
mod replay;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use samite_matching::{Adaptive, BTree, Config, FourD, LinkedList, RankArray, Structure};

fn settings() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

/// Makes a test for each structure: the structure must return the same results as the list, and keep its memory within
/// the budget.
macro_rules! agrees_with_the_list {
    ($($name:ident: $structure:ty),* $(,)?) => {
        proptest! {
            #![proptest_config(settings())]
            $(
                #[test]
                fn $name(operations in operation::sequence(), ranks in prop_oneof![1u32..40, Just(5000)], budget in operation::budget()) {
                    replay::<$structure>(&operations, ranks, budget);
                }
            )*
        }
    };
}

agrees_with_the_list! {
    linked_list: LinkedList,
    rank_array: RankArray,
    btree: BTree,
    four_d: FourD,
    adaptive: Adaptive,
}

fn replay<S: Structure>(operations: &[operation::Operation], ranks: u32, bytes_max: Option<usize>) {
    let mut replay = replay::Replay::<S>::new(Config { ranks, bytes_max });
    for operation in operations {
        replay.step(operation);
    }
    replay.finish();
}
