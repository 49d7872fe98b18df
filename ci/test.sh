#!/usr/bin/env bash
# Runs every test of the workspace with libfabric, doc tests included, and then some without libfabric. Extra arguments
# go to the tests. The output of failed tests, and the last lines of test binaries that died, are repeated at the end,
# because they are hard to find in a long log. The last line is the sum over all test binaries: `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
run() {
    echo "test.sh: cargo test $*"
    cargo test --locked --no-fail-fast "$@" </dev/null 2>&1 | tee -a "$log" || status=1
}

# The tests of samite-cli need the feature serde, so all tests of the workspace are built with it.
run --workspace --features samite/serde,samite/half -- "$@"
# Tests of the inner parts without the libfabric port, in the crates that differ without it. ci/lint.sh compiles the other
# tests.
run -p samite-fabric -p samite -p samite-launch -p samite-bench -p samite-cli --no-default-features --lib --bins -- "$@"

read -r passed failed < <(
    awk '/^test result: / { passed += $4; failed += $6 } END { print passed + 0, failed + 0 }' "$log"
)
awk '/^ +Running |^ +Doc-tests / { program = $0 }
    /^failures:$/ { if (!shown) print program; shown = 1 }
    /^test result: / { shown = 0 }
    shown' "$log"
# A test binary that did not build or died by a signal prints no result. Repeat what cargo reports about it, and the lines
# before the report, without backtraces.
if [[ $status -ne 0 ]]; then
    grep --invert-match '^ *\(at \|[0-9]*: \)' "$log" |
        grep --before-context 40 --after-context 3 "process didn't exit successfully\|^error: could not compile" || true
    grep --after-context 20 '^error: [0-9]* targets\? failed' "$log" || true
fi
echo "$passed passed, $failed failed"
[[ $status -eq 0 && $failed -eq 0 && $passed -gt 0 ]]
