#!/usr/bin/env bash
# The soak: faults in simulation (one in five is a kill), then kills of real processes over shared memory. Nothing may hang or be
# left behind: each part checks that, and says how many it has made.
#
# Usage: soak.sh [SIMULATED [REAL]]; 100,000 and 5,000 if not said.
set -euo pipefail
cd "$(dirname "$0")/.."

simulated=${1:-100000}
real=${2:-5000}
echo "soak.sh: $simulated faults in simulation"
ci/sim.sh --faults "$simulated"
echo "soak.sh: $real kills of processes in the middle of a ring's operation"
ci/shm-kill.sh "$real"
echo "soak.sh: $real faults of jobs over shared memory"
ci/chaos.sh --transport samite-shm --faults "$real"
echo "soak.sh: nothing leaked"
