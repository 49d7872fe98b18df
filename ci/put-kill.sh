#!/usr/bin/env bash
# Kills, stops, closes and restarts the origins and targets of puts over TCP, at random moments, on each supported
# provider of two versions of libfabric: ci/put-kill.sh [MOMENTS [SEED]]; 2000 moments for each provider by default.
# The C library checks each block that is freed.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

test=ofi::tests::killed::a_killed_peer_takes_nobody_with_it
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export test log moments=${1:-2000} seed=${2:-$RANDOM}

kill_puts() { # PROVIDER
    echo "put-kill.sh: $1 of $(fi_info --version | sed -n 's/^libfabric: //p'), seed $seed"
    # glibc checks its heap only if this library is loaded.
    SAMITE_TEST_PROVIDER=$1 SAMITE_PUT_KILLS=$moments SAMITE_PUT_KILLS_SEED=$seed FI_AV_REMOVE_CLEANUP=1 \
        FI_OFI_RXM_EAGER_LIMIT=66560 \
        MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0 \
        cargo test --quiet --locked -p samite-fabric --lib -- --exact "$test" --nocapture </dev/null >"$log" || {
        tail -n 20 "$log" >&2
        return 1
    }
    grep 'moments;' "$log"
}
export -f kill_puts

cargo test --quiet --locked -p samite-fabric --lib --no-run
for provider in 'tcp;ofi_rxm' net; do
    kill_puts "$provider"
done
for provider in 'tcp;ofi_rxm' tcp; do
    ci/newer-libfabric.sh bash -euc 'kill_puts "$0"' "$provider"
done
