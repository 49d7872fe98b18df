#!/usr/bin/env bash
# Attacks jobs that run, for so many seconds (30 by default): strangers, another user (as root), rude members, garbage in
# shared memory. Their ranks check each message meanwhile, and have to go on.
#   ci/hostile.sh [SECONDS [PART]...]    the parts: strangers waiting rendezvous rude memory
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

# With debug assertions: what is broken inside shows as a panic.
cargo build --quiet --locked -p samite-cli
cargo build --quiet --locked -p samite-hostile --bin samite-hostile-live
target/debug/samite-hostile-live target/debug/samite "${1:-30}" "${@:2}"
echo "hostile.sh: passed"
