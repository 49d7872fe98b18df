#!/usr/bin/env bash
# Injects faults in simulation (one in five is a kill), then kills processes that use ports of shared memory, then
# injects faults into jobs over shared memory. Each part checks that every operation ends and that nothing is left
# behind, and prints the number of faults.
#
# Usage: soak.sh [SIMULATED [REAL]]; 100,000 and 5,000 by default.
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
