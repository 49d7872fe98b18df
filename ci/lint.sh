#!/usr/bin/env bash
# Checks format, lints, documentation, dependencies of the library, and where `unsafe` occurs.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

cargo fmt --all --check
cargo clippy --quiet --locked --workspace --all-targets --all-features -- -D warnings
cargo clippy --quiet --locked --workspace --all-targets --no-default-features -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --workspace --no-deps --all-features

failed=0
complain() {
    echo "lint.sh: $1"
    sed 's/^/    /' <<<"$2"
    failed=1
}

# A program that depends on the library must build neither the launcher nor the command.
found=$(cargo tree --quiet --locked -p samite -e normal --all-features --prefix none |
    grep -E '^(samite-launch|samite-cli|clap|clap_[a-z]+|ratatui[a-z-]*|crossterm) ' | sort -u || true)
[[ -z $found ]] || complain 'dependencies of samite that belong to the command:' "$found"

# `unsafe` is allowed only below fabric/.
found=$(git grep -nE '\bunsafe\b *(\{|fn|impl|extern|trait)' -- '*.rs' ':!fabric/' || true)
[[ -z $found ]] || complain 'unsafe outside fabric:' "$found"
found=$(git ls-files '*/src/lib.rs' '*/src/main.rs' ':!fabric/' | xargs grep -L '^#!\[forbid(unsafe_code)\]' || true)
[[ -z $found ]] || complain 'crates without #![forbid(unsafe_code)]:' "$found"

exit "$failed"
