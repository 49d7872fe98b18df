#!/usr/bin/env bash
# Looks for undefined behaviour, with Miri, where the unsafe code below fabric/ asks nothing of the system: private memory
# and the biased lock. (What needs a file in memory or libfabric Miri cannot run; the ring has loom.) Not called by .ci/run, since
# it takes a nightly toolchain: rustup toolchain install nightly --component miri.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
exec cargo +nightly miri test --quiet -p samite-os -p samite-fabric --no-default-features --lib -- \
    biased mem::tests --skip shared_memory
