#!/usr/bin/env bash
# Tests os, fabric and matching, optimized and built for x86-64-v3, as users on recent processors build them. For
# these processors the compiler also keeps values in the upper halves of vector registers, where an `asm!` block with
# missing clobbers destroys them. Extra arguments go to the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $(uname -m) != x86_64 ]]; then
    echo "native.sh: skipped: x86-64-v3 is no level of this processor ($(uname -m))"
    exit
fi
for feature in avx avx2 bmi1 bmi2 f16c fma abm movbe xsave; do
    if ! grep -qw "$feature" <(grep -m1 '^flags' /proc/cpuinfo); then
        echo "native.sh: skipped: this processor has no $feature, which x86-64-v3 demands"
        exit
    fi
done
ci/setup.sh

RUSTFLAGS="${RUSTFLAGS:-} -C target-cpu=x86-64-v3" CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_INCREMENTAL=0 \
    exec cargo test --quiet --locked --target-dir target/native --lib \
    -p samite-os -p samite-fabric -p samite-matching -- "$@"
