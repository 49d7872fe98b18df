#!/usr/bin/env bash
# Kills processes that exchange messages in shared memory, at random moments: ci/shm-kill.sh [KILLS]; 5000 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
SAMITE_SHM_KILLS=${1:-5000} exec cargo test --quiet --locked --release -p samite-fabric --no-default-features \
    --test shm killed:: -- --nocapture
