#!/usr/bin/env bash
# Simulation of whole ranks from seeds.
#   ci/sim.sh [SEEDS [FIRST]]   runs seeds on all cores; says how to replay those that fail
#   ci/sim.sh --faults N        runs as many seeds as it takes for N faults
#   ci/sim.sh --replay SEED     runs one seed and prints what happens
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo run --quiet --release -p samite-sim -- "$@"
