#!/usr/bin/env bash
# Counts turns of phrase that make comments and pages hard to read, per 1,000 words. Prints the rate of each crate and
# the lines to rewrite, and fails above a limit. CONTRIBUTING.md states the rules.
#   ci/prose.sh                    checks all tracked .rs, .md, .sh and .c files
#   ci/prose.sh --top N            the same, with the worst N lines instead of 25
#   ci/prose.sh [--top N] FILE...  prints the rates and the lines of these files, without limits
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo run --quiet --locked -p samite-prose -- "$@"
