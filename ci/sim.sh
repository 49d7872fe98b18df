#!/usr/bin/env bash
# Simulation of whole ranks from seeds.
#   ci/sim.sh [SEEDS [FIRST]]   runs seeds on all cores; says how to replay those that fail
#   ci/sim.sh --faults N [SEEDS [FIRST]]   runs as many seeds from FIRST as it takes for N faults; SEEDS is ignored
#   ci/sim.sh --replay SEED     runs one seed and prints what happens
# Except with --replay it runs the seeds of ci/sim/seeds.txt first, which failed once.
set -euo pipefail
cd "$(dirname "$0")/.."
# With overflow checks and debug assertions, as the tests.
exec cargo run --quiet --profile checked -p samite-sim -- "$@"
