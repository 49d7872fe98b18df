#!/usr/bin/env bash
# Counts the instructions of the hot operations with callgrind and fails if one takes over 2 % more than
# bench/instructions.txt says, or more than its limit relative to another operation. `--bless` writes the counts there
# instead; the commit must say why they changed. At the end it counts the cache lines of a match, in short queues only,
# to check that the command works.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh
bench=(cargo run --quiet --release --locked -p samite-bench --)
"${bench[@]}" instructions "$@"
exec "${bench[@]}" matching cold --items-max 16
