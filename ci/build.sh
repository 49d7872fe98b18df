#!/usr/bin/env bash
# Builds the programs that other scripts run. For another list of packages cargo selects other features of their
# dependencies, and so compiles most crates again. So all scripts that use a profile build the same list.
#   ci/build.sh             all programs and examples, with debug assertions: the packages and features of ci/test.sh
#   ci/build.sh --checked   simulation, conformance suite and chaos: optimized, with debug assertions and overflow checks
#   ci/build.sh --release [--bin samite-bench]
#                           the programs of ci/demo.sh, or only this one
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh
case ${1:-} in
--checked)
    exec cargo build --quiet --locked --profile checked --bins \
        -p samite-sim -p samite-conformance -p samite-chaos -p samite-cli
    ;;
--release)
    shift
    programs=("$@")
    [[ $# -gt 0 ]] || programs=(--bins --example heat2d --example radix --example nbody --example cg --example lu)
    exec cargo build --locked --release "${programs[@]}" -p samite-cli -p samite-bench -p samite
    ;;
esac
exec cargo build --quiet --locked --workspace --features samite/serde,samite/half --bins --examples
