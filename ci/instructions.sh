#!/usr/bin/env bash
# Counts the instructions of the hot operations by callgrind, and fails where one takes over 3 % more than
# bench/instructions.txt says. `--bless` writes the counts there instead; a commit that does so says why they changed.
# At last the cache lines of a match are counted, in short queues only, so that the command is known to work.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh
bench=(cargo run --quiet --release --locked -p samite-bench --)
"${bench[@]}" instructions "$@"
exec "${bench[@]}" matching cold --items-max 16
