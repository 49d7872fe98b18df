#!/usr/bin/env bash
# Runs jobs of real processes with mixed traffic and kills or stops random ranks at random moments. The survivors check
# every byte, finish every operation, report the right failures and leave nothing behind. Communicators are derived and
# dropped meanwhile: each message must stay in its communicator, and a creation that fails must fail with the same error
# at all survivors. About one job in three restarts the killed ranks and checks that no message of an earlier
# incarnation reaches a later one.
#   ci/chaos.sh --transport T [--minutes M] [--faults N] [--seed S] [--collectives | --rma]
# With --collectives, one or two of 8 ranks are killed during collective calls, agreements and shrinks. All survivors know
# of each killed rank within a second, get the same communicator of survivors, and finish verified operations there.
# With --rma, one or two of 8 ranks are killed during fences, accesses, exposures, locks and frees of windows. Besides, the
# bytes of survivors must be right, and the locks of killed ranks must pass on within 50 ms in the median after a survivor
# knows of the kill.
# Stops after M minutes or N faults. Prints a line of JSON for each job, then a summary; fails if any job had trouble.
# To use another libfabric than the system's: LD_LIBRARY_PATH=… ci/chaos.sh --transport tcp
set -euo pipefail
cd "$(dirname "$0")/.."
ci/build.sh --checked
exec "${CARGO_TARGET_DIR:-target}/checked/samite-chaos" run "$@"
