#!/usr/bin/env bash
# Simulates whole jobs from seeds.
#   ci/sim.sh [SEEDS [FIRST]]   runs seeds on all cores and says how to replay failing ones
#   ci/sim.sh --faults N [SEEDS [FIRST]]   runs seeds from FIRST until N faults have happened; ignores SEEDS
#   ci/sim.sh --names BITS ...     lets ranks create communicators, with names of contexts of BITS bits
#   ci/sim.sh --replay SEED     runs one seed and prints each event
# Except with --replay it first runs the seeds of ci/sim/seeds.txt, which failed once.
set -euo pipefail
cd "$(dirname "$0")/.."
# With overflow checks and debug assertions, as in the tests.
exec cargo run --quiet --profile checked -p samite-sim -- "$@"
