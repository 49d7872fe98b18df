#!/usr/bin/env bash
# Counts the instructions of the hot operations with callgrind. Fails if an operation takes over 2 % more than
# bench/instructions.txt says, or more than its limit relative to another operation. `--bless` writes the counts to that
# file instead; the commit must say why the counts changed. At the end the script counts the cache lines of a match, in
# short queues only, to check that this command works.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/build.sh --release --bin samite-bench
bench=${CARGO_TARGET_DIR:-target}/release/samite-bench
"$bench" instructions "$@"
exec "$bench" matching cold --items-max 16
