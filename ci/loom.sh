#!/usr/bin/env bash
# Runs the biased lock and the lock-free parts of shared memory through every interleaving, under a model checker (loom).
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS='--cfg loom' exec cargo test --quiet --locked --release --target-dir target/loom \
    -p samite-os -p samite-fabric --no-default-features --lib model:: -- "$@"
