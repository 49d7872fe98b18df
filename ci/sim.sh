#!/usr/bin/env bash
# Simulates whole jobs from seeds.
#   ci/sim.sh [SEEDS [FIRST]]   runs seeds on all cores and says how to replay failing ones
#   ci/sim.sh --faults N [SEEDS [FIRST]]   runs seeds from FIRST until N faults have happened; ignores SEEDS
#   ci/sim.sh --names BITS ...     lets ranks create communicators, with numbers of contexts of BITS bits
#   ci/sim.sh --collectives ...    simulates collective calls, kills, revocations, agreements and shrinks instead
#   ci/sim.sh --rma ...         simulates random programs of epochs on windows, with kills, cancels and deadlines, instead
#   ci/sim.sh --replay SEED     runs one seed and prints each event
# Except with --replay it first runs the seeds of ci/sim/seeds.txt, which have failed in the past.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/build.sh --checked
exec "${CARGO_TARGET_DIR:-target}/checked/samite-sim" "$@"
