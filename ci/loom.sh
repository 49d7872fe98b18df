#!/usr/bin/env bash
# Runs the biased lock, the lock-free parts of shared memory, and the futures of the runtime through every interleaving,
# under a model checker (loom).
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS='--cfg loom' exec cargo test --quiet --locked --release --target-dir target/loom \
    -p samite-os -p samite-fabric -p samite --no-default-features --lib model:: -- "$@"
