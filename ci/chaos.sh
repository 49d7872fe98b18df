#!/usr/bin/env bash
# Jobs of real processes under all kinds of traffic, whose ranks are killed and stopped at random moments. The survivors
# check every byte, end every operation, know who died, and leave nothing behind. In every third job the killed are
# started again, and nothing of one life may reach another.
#   ci/chaos.sh --transport T [--minutes M] [--faults N] [--seed S]
# Until so many minutes have passed, or so many faults. A line of JSON for each job and a summary; fails on any trouble.
# Another libfabric than the system's: LD_LIBRARY_PATH=… ci/chaos.sh --transport tcp
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release --locked -p samite-cli
cargo build --quiet --release --locked -p samite-chaos
exec "${CARGO_TARGET_DIR:-target}/release/samite-chaos" run "$@"
