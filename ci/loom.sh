#!/usr/bin/env bash
# Runs what shared memory does without locks under a model checker, through every interleaving of the processes.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS='--cfg loom' exec cargo test --quiet --locked --release --target-dir target/loom \
    -p samite-fabric --no-default-features --lib model:: -- "$@"
