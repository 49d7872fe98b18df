#!/usr/bin/env bash
# Builds the guide into target/guide/book, compiles and runs its code, and follows its pages in order in an empty
# folder, as a reader would. Builds the tool that renders the book once and keeps it in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

repository=$PWD
target=${CARGO_TARGET_DIR:-$repository/target}
for recipe in docs/pages/recipes/*.sh; do
    bash -n "$recipe"
done

# Readers also see the pages on the repository's web site. The site resolves no includes, and links headings only within
# one page.
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

# This folder imitates a reader's machine. It contains the clone and a folder for commands.
reader=$(mktemp -d)
trap 'rm -rf "$reader"' EXIT
ln -s "$repository" "$reader/samite"
# Nothing that it runs is timed, so it is not optimized: that takes many minutes less to build.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_INSTALL_ROOT=$reader/installed PATH=$reader/installed/bin:$PATH
(cd "$reader" && "$target/debug/samite-guide" follow .)

# Test the recipe that uses srun as the remote shell, with an srun that runs the command on this host.
mkdir "$reader/slurm"
printf '%s\n' '#!/bin/sh' '[ "$5" = --nodelist ] && shift 6 && exec "$@"' >"$reader/slurm/srun"
printf '%s\n' '#!/bin/sh' 'printf "127.0.0.1\\n127.0.0.2\\n"' >"$reader/slurm/scontrol"
chmod +x "$reader"/slurm/*
ranks=$(PATH=$reader/slurm:$PATH SLURM_JOB_NODELIST='nodes[1-2]' SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 \
    docs/pages/recipes/slurm-survive.sh "$reader/hello/target/release/hello" | grep -c ' of 4: ')
[[ $ranks -eq 4 ]]
echo "guide.sh: the recipes' ranks are all there"
