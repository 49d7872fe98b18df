#!/usr/bin/env bash
# Counts the instructions of the hot operations by callgrind, and fails where one takes over 3 % more than
# bench/instructions.txt says. `--bless` writes the counts there instead; a commit that does so says why they changed.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh
exec cargo run --quiet --release --locked -p samite-bench -- instructions "$@"
