#!/usr/bin/env bash
# Generates fabric/sys/src/bindings.rs from the installed libfabric headers and fails if the result differs from the
# committed file. `--write` replaces the committed file instead.
#
# The committed declarations are from libfabric 1.17, the oldest supported version. Later versions only append
# declarations and fields.
set -euo pipefail
cd "$(dirname "$0")/.."

committed=fabric/sys/src/bindings.rs
include=$(pkg-config --variable=includedir libfabric)
version=$(pkg-config --modversion libfabric)
case $version in
    1.17.*) ;;
    *) echo "bindings.sh: the headers are libfabric $version; the bindings are made from 1.17 (Debian 12)" >&2; exit 1 ;;
esac

generated=$(mktemp)
trap 'rm -f "$generated"' EXIT
cargo run --quiet --locked --manifest-path fabric/sys/bindgen/Cargo.toml --target-dir target/bindgen -- "$include" >"$generated"

if [[ ${1:-} == --write ]]; then
    cp "$generated" "$committed"
elif ! diff -u "$committed" "$generated"; then
    echo "bindings.sh: $committed is not what the headers say: run ci/bindings.sh --write" >&2
    exit 1
fi
