#!/usr/bin/env bash
# Checks that no living rank is declared failed: 16 ranks compute for up to four seconds at a time without a message,
# with a detection time of one second, on any number of cores: ci/patience.sh [MINUTES]; 10 by default.
#
# Two agents serve the ranks over TCP, as on two hosts, because only over TCP could silence be mistaken for a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --locked --release -p samite-cli -p samite --bins --examples
bin=$(realpath "${CARGO_TARGET_DIR:-target}/release")
seconds=$(awk -v minutes="${1:-10}" 'BEGIN { print int(minutes * 60) }')

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A remote shell that runs the command on this host.
printf '#!/bin/sh\nshift\nexec "$@"\n' >"$dir/shell"
chmod +x "$dir/shell"

"$bin/samite" run -n 16 --hosts 127.0.0.1:8,127.0.0.2:8 --ssh "$dir/shell" --detection-time 1 \
    -- "$bin/examples/compute" "$seconds" | tee "$dir/out"
verified=$(grep -c ' verified [1-9][0-9]* rounds$' "$dir/out")
echo "patience.sh: $verified of 16 ranks went on to the end, $seconds s"
[[ $verified -eq 16 ]]
