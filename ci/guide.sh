#!/usr/bin/env bash
# Builds the guide into target/guide/book, compiles and runs its code, and does in an empty folder what its pages say, in
# their order, as a reader would. What draws the book is built once, and kept in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

repository=$PWD
target=${CARGO_TARGET_DIR:-$repository/target}
for recipe in docs/pages/recipes/*.sh; do
    bash -n "$recipe"
done

# The pages are read on a forge too, which includes nothing, and where a page has its own headings only.
if grep -n '{{#' docs/pages/*.md; then
    echo "guide.sh: a forge shows these lines as they are" >&2
    exit 1
fi
while IFS=: read -r page anchor; do
    if ! grep '^#' "$page" | tr '[:upper:] ' '[:lower:]-' | grep -q -- "^#*-${anchor//[](#)]/}\$"; then
        echo "guide.sh: $page has no heading for $anchor" >&2
        exit 1
    fi
done < <(grep -o '](#[^)]*)' docs/pages/*.md)

export CARGO_TARGET_DIR=$target
cargo fmt --manifest-path docs/Cargo.toml --check
cargo clippy --quiet --locked --manifest-path docs/Cargo.toml --all-targets -- -D warnings
cargo test --quiet --locked --manifest-path docs/Cargo.toml
cargo build --quiet --locked --manifest-path docs/Cargo.toml
unset CARGO_TARGET_DIR

rm -rf "$target/guide/book"
"$target/debug/samite-guide" build "$target/guide/book"

# A reader's machine: a folder with the clone in it, and a place for commands.
reader=$(mktemp -d)
trap 'rm -rf "$reader"' EXIT
ln -s "$repository" "$reader/samite"
export CARGO_INSTALL_ROOT=$reader/installed PATH=$reader/installed/bin:$PATH
(cd "$reader" && "$target/debug/samite-guide" follow .)

# The recipe in which srun is the remote shell, with one that goes nowhere.
mkdir "$reader/slurm"
printf '%s\n' '#!/bin/sh' '[ "$5" = --nodelist ] && shift 6 && exec "$@"' >"$reader/slurm/srun"
printf '%s\n' '#!/bin/sh' 'printf "127.0.0.1\\n127.0.0.2\\n"' >"$reader/slurm/scontrol"
chmod +x "$reader"/slurm/*
ranks=$(PATH=$reader/slurm:$PATH SLURM_JOB_NODELIST='nodes[1-2]' SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 \
    docs/pages/recipes/slurm-survive.sh "$reader/hello/target/release/hello" | grep -c ' of 4: ')
[[ $ranks -eq 4 ]]
echo "guide.sh: the recipes' ranks are all there"
