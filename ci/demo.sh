#!/usr/bin/env bash
# Builds this clone and runs five example programs on four processes, over libfabric and over the default transports.
# Each program checks its own result. Prints beside each result the latency and bandwidth between two processes over the
# same transport. Fails unless every result is verified.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/build.sh --release
bin=${CARGO_TARGET_DIR:-target}/release
limit=120

# Prints the median of one figure: BENCH BYTES [--transport T].
figure() {
    local bench=$1 bytes=$2 line
    shift 2
    line=$("$bin/samite-bench" "$bench" --bytes "$bytes" --json "$@" </dev/null)
    sed -E 's/.*"transport":"([^"]*)".*"median":([0-9.]+).*/\1 \2/' <<<"$line"
}

failed=0
format='%-24s %-8s %8s %13s %16s  %s\n'
row() {
    local label=$1 name latency bandwidth
    shift
    read -r name latency < <(figure latency 8 "$@")
    read -r name bandwidth < <(figure bandwidth 1048576 "$@")
    [[ -n $label ]] && name="$label ($name)"
    for program in heat2d radix nbody cg lu; do
        local output verified=no seconds=-
        if output=$("$bin/samite" run -n 4 --timeout $limit "$@" -- "$bin/examples/$program" </dev/null) &&
            [[ $output =~ $program:.*\ seconds=([0-9.]+)\ verified ]]; then
            verified=yes seconds=${BASH_REMATCH[1]}
        else
            failed=1
        fi
        # shellcheck disable=SC2059
        printf "$format" "$name" "$program" "$seconds" "$(printf %.2f "$latency")" "$(printf %.0f "$bandwidth")" $verified
    done
}

# shellcheck disable=SC2059
printf "$format" transport program 'time, s' 'latency, us' 'bandwidth, MB/s' verified
row '' --transport 'tcp;ofi_rxm'
row default
exit $failed
