#!/usr/bin/env bash
# Runs the conformance suite: cases with their sections of MPI 4.1, against the public interface of Samite.
#   ci/conformance.sh          runs all cases over each transport, simulated networks included
#   ci/conformance.sh --list   prints name, section and rule of each case
#   ci/conformance.sh OVER…    runs all cases over these alone: loopback, sim, transports like samite-shm, or hosts: the ranks
#                              are on two simulated hosts
# The last line is the sum: `N passed, N failed`. To repeat a failure over `sim`:
#   target/checked/samite-conformance --filter CASE sim --first SEED --seeds 1
set -euo pipefail
cd "$(dirname "$0")/.."
ci/build.sh --checked

target=${CARGO_TARGET_DIR:-target}/checked
suite=$target/samite-conformance
if [[ ${1:-} == --list ]]; then
    exec "$suite" --list
fi
[[ $# -gt 0 ]] || set -- loopback sim samite-shm 'tcp;ofi_rxm' net hosts

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
for transport; do
    begin=$SECONDS
    case $transport in
    loopback | sim) "$suite" "$transport" ;;
    *) "$suite" jobs "$transport" --samite "$target/samite" ;;
    esac </dev/null 2>&1 | tee -a "$log" || status=1
    echo "conformance.sh: $transport took $((SECONDS - begin)) s"
done

read -r passed failed < <(
    awk '/: [0-9]+ passed, [0-9]+ failed$/ { passed += $(NF - 3); failed += $(NF - 1) } END { print passed + 0, failed + 0 }' "$log"
)
if [[ $status -ne 0 && $failed -eq 0 ]]; then
    echo "conformance.sh: a run ended early: see above"
fi
echo "$passed passed, $failed failed"
[[ $status -eq 0 && $failed -eq 0 && $passed -gt 0 ]]
