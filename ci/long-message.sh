#!/usr/bin/env bash
# Sends messages of 2^32 + 4096 bytes between two processes, contiguous, owned and scattered, and checks every element.
# Needs 12 GB of memory; .ci/run does not call it: ci/long-message.sh [TRANSPORT...]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --locked --release -p samite-cli -p samite --bins --example long_message
bin=$(realpath "${CARGO_TARGET_DIR:-target}/release")

[[ $# -gt 0 ]] || set -- samite-shm 'tcp;ofi_rxm'
for transport; do
    arrived=$("$bin/samite" run -n 2 --timeout 900 --transport "$transport" -- "$bin/examples/long_message" |
        tee /dev/stderr | grep -c ' 4294971392 bytes arrived whole ')
    [[ $arrived -eq 3 ]]
done
echo 'long-message.sh: all messages arrived whole'
