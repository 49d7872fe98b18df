#!/usr/bin/env bash
# Runs the shared-memory ring under a model checker, through every interleaving of a sender and a receiver.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS='--cfg loom' exec cargo test --quiet --locked --release --target-dir target/loom \
    -p samite-fabric --no-default-features --lib ring::model -- "$@"
