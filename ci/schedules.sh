#!/usr/bin/env bash
# Verifies the schedules of collectives for large groups: all values of 4,096 ranks, the messages of 65,536 ranks, and
# those of 10,000 ranks among a million. It takes minutes and up to 4 GB, so ci/test.sh runs the same tests for smaller
# groups.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh
export SAMITE_LARGE_SCHEDULES=1
exec cargo test --locked -p samite-coll --lib -- --test-threads 1 large:: "$@"
