#!/usr/bin/env bash
# Looks for undefined behaviour, with Miri, in the unsafe code below fabric/ that makes no system calls: private memory
# and the biased lock. Miri cannot run code that needs a memory file, membarrier(2) or libfabric; loom covers the ring,
# and the return of the lock's bias. .ci/run does not call this script, since it needs a nightly toolchain: rustup
# toolchain install nightly --component miri.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
exec cargo +nightly miri test --quiet -p samite-os -p samite-fabric --no-default-features --lib -- \
    biased mem::tests mem::partitioned mem::loans --skip shared_memory \
    --skip a_bias_that_is_returned --skip a_thread_that_returns_the_bias
