#!/usr/bin/env bash
# Runs the tests of samite-os and samite-fabric under AddressSanitizer, with the installed toolchain. Finds every use of
# freed memory and every access out of bounds in code compiled here. .ci/run does not call this script, since it needs
# an unstable compiler option. Extra arguments go to the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# The explicit target keeps the flags away from build scripts and macros.
host=$(rustc -vV | sed -n 's/^host: //p')
# Disable the detection of leaks: tests leak arenas on purpose, because arenas live as long as the process.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
RUSTC_BOOTSTRAP=1 RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address" CARGO_INCREMENTAL=0 \
    exec cargo test --quiet --locked -p samite-os -p samite-fabric --no-default-features --lib \
    --target "$host" --target-dir target/sanitize -- "$@"
