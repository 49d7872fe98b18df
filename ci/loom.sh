#!/usr/bin/env bash
# Runs the biased lock, the lock-free parts of shared memory, and the futures of the runtime under a model checker
# (loom): through every interleaving of their threads or, in larger models, through every one with a limited number of
# preemptions.
set -euo pipefail
cd "$(dirname "$0")/.."
# Without optimization across crates, which would take longer than the models.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
RUSTFLAGS='--cfg loom' exec cargo test --quiet --locked --release --target-dir target/loom \
    -p samite-os -p samite-fabric -p samite --no-default-features --lib model:: -- "$@"
