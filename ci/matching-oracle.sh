#!/usr/bin/env bash
# Runs every structure of the matching engine against a naive list: ci/matching-oracle.sh [OPERATIONS], a million for
# each structure by default. A counterexample is shrunk, printed and written to
# matching/tests/oracle/main.regressions. Commit that file: every later run begins with it.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

operations=${1:-1000000}
# A generated sequence has 125 steps on average. Some steps repeat an operation up to 300 times, so a sequence has about
# 700 operations.
per_sequence=700
export PROPTEST_CASES=$(((operations + per_sequence - 1) / per_sequence))
echo "matching-oracle.sh: $PROPTEST_CASES sequences for each structure"
cargo test --quiet --release --locked -p samite-matching --test oracle </dev/null
