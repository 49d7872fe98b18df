#!/usr/bin/env bash
# Runs the tests of the libraries samite-os and samite-fabric under AddressSanitizer, with the installed toolchain: every use of memory that is freed, or
# beyond its end, in code that is compiled here. Not called by .ci/run, since it rests on an option of the compiler that is not
# stable. Extra arguments go to the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# Named, so that build scripts and macros go without.
host=$(rustc -vV | sed -n 's/^host: //p')
# Not of leaks: tests leak arenas, which live as long as the process.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
RUSTC_BOOTSTRAP=1 RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address" CARGO_INCREMENTAL=0 \
    exec cargo test --quiet --locked -p samite-os -p samite-fabric --no-default-features --lib \
    --target "$host" --target-dir target/sanitize -- "$@"
