#!/usr/bin/env bash
# Checks format, lints, documentation, dependencies of the library, the places of `unsafe`, spelling, and the steps of the
# workflow.
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

# A program that depends on the library `samite` must build neither the launcher nor the command.
found=$(cargo tree --quiet --locked -p samite -e normal --all-features --prefix none |
    grep -E '^(samite-launch|samite-cli|clap|clap_[a-z]+|ratatui[a-z-]*|crossterm) ' | sort -u || true)
[[ -z $found ]] || complain 'dependencies of samite that belong to the command:' "$found"

# `unsafe` is allowed only below fabric/.
found=$(git grep -nE '\bunsafe\b *(\{|fn|impl|extern|trait)' -- '*.rs' ':!fabric/' || true)
[[ -z $found ]] || complain 'unsafe outside fabric:' "$found"
found=$(git ls-files '*/src/lib.rs' '*/src/main.rs' ':!fabric/' | xargs grep -L '^#!\[forbid(unsafe_code)\]' || true)
[[ -z $found ]] || complain 'crates without #![forbid(unsafe_code)]:' "$found"

# Frequent misspellings.
found=$(git grep -nIwiFf ci/typos.txt -- ':!ci/typos.txt' ':!*.lock' ':!*/bindings.rs' || true)
[[ -z $found ]] || complain 'misspelt words:' "$found"

# The workflow runs every step of .ci/run as a job; each step runs ci/setup.sh itself.
found=$(diff <(sed -n 's/^step //p' .ci/run | grep -vx ci/setup.sh) \
    <(sed -n 's/^ *- \(ci\/.*\)/\1/p' .github/workflows/ci.yml) || true)
[[ -z $found ]] || complain 'steps of .ci/run (<) and of .github/workflows/ci.yml (>) that differ:' "$found"

exit "$failed"
