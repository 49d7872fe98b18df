#!/usr/bin/env bash
# Attacks running jobs for SECONDS (30 by default): unauthenticated clients, another user (as root), misbehaving
# members, garbage in shared memory. Meanwhile the ranks check each message and must make progress.
#   ci/hostile.sh [SECONDS [PART]...]    the parts: strangers waiting rendezvous rude memory
set -euo pipefail
cd "$(dirname "$0")/.."
# This build has debug assertions, so that a broken invariant panics.
ci/build.sh
target/debug/samite-hostile-live target/debug/samite "${1:-30}" "${@:2}"
echo "hostile.sh: passed"
