#!/usr/bin/env bash
# Runs every benchmark, interleaved with raw libfabric and with every installed MPI library (ci/peers.sh installs them).
# Writes figures.jsonl and report.html to a folder and prints the tables.
#
# Usage: compare.sh [FOLDER [RUNS [BENCHMARK…]]]. Defaults: target/comparison, 5 runs of each point, all benchmarks.
# All benchmarks together take about half an hour. Run this script on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

folder=${1:-${CARGO_TARGET_DIR:-target}/comparison}
runs=${2:-5}
[[ $# -gt 2 ]] && benchmarks=("${@:3}") ||
    benchmarks=(latency bandwidth rate depth ring pairs start-up memory)

cargo build --release --locked --quiet -p samite-bench
bench=${CARGO_TARGET_DIR:-target}/release/samite-bench
mkdir -p "$folder"
: >"$folder/figures.jsonl"
status=0
for benchmark in "${benchmarks[@]}"; do
    transports=(--transport samite-shm)
    [[ $benchmark == latency ]] && transports+=(--transport 'tcp;ofi_rxm')
    "$bench" compare "$benchmark" --json --runs "$runs" "${transports[@]}" >>"$folder/figures.jsonl" || status=1
done
"$bench" report "$folder/figures.jsonl" --output "$folder/report.html"
"$bench" report "$folder/figures.jsonl"
echo "compare.sh: $folder/figures.jsonl, $folder/report.html"
exit $status
