#!/usr/bin/env bash
# Runs the benchmarks with a baseline over samite-shm and tcp;ofi_rxm, interleaved with raw libfabric and with every
# installed MPI library (ci/peers.sh installs them). Writes figures.jsonl and report.html to a folder and prints the
# tables.
#
# Usage: compare.sh [FOLDER [RUNS [BENCHMARK…]]]. Defaults: target/comparison, 5 runs of each point, all benchmarks.
# All benchmarks together take several hours. Run this script on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

folder=${1:-${CARGO_TARGET_DIR:-target}/comparison}
runs=${2:-5}
[[ $# -gt 2 ]] && benchmarks=("${@:3}") ||
    benchmarks=(latency bandwidth rate depth ring pairs start-up memory
        put get fetch-add compare-swap put-bandwidth get-bandwidth
        coll overhead examples overlap overlap-coll threads layouts partitioned completion failure
        epochs)

cargo build --release --locked --quiet -p samite-bench
bench=${CARGO_TARGET_DIR:-target}/release/samite-bench
mkdir -p "$folder"
: >"$folder/figures.jsonl"
status=0
for benchmark in "${benchmarks[@]}"; do
    arguments=("$benchmark" --json --transport samite-shm --transport 'tcp;ofi_rxm')
    case $benchmark in
    completion) arguments=(completion --json) ;;
    epochs) arguments=(rma epochs --json --rounds "$runs") ;;
    overlap | partitioned) ;;
    overlap-coll) arguments=(overlap "${arguments[@]:1}" --operation 'allreduce,alltoall,bcast') ;;
    overhead | examples | threads | layouts | failure) arguments+=(--runs "$runs") ;;
    *) arguments=(compare "${arguments[@]}" --runs "$runs") ;;
    esac
    "$bench" "${arguments[@]}" >>"$folder/figures.jsonl" || status=1
done
"$bench" report "$folder/figures.jsonl" --output "$folder/report.html"
"$bench" report "$folder/figures.jsonl"
echo "compare.sh: $folder/figures.jsonl, $folder/report.html"
exit $status
