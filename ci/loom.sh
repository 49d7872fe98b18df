#!/usr/bin/env bash
# Runs the biased lock, and what shared memory does without locks, under a model checker, through every interleaving.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS='--cfg loom' exec cargo test --quiet --locked --release --target-dir target/loom \
    -p samite-os -p samite-fabric --no-default-features --lib model:: -- "$@"
