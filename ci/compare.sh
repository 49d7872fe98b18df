#!/usr/bin/env bash
# The whole table: every benchmark, beside raw libfabric and every MPI library of this machine (ci/peers.sh installs
# them), interleaved. Writes figures.jsonl and report.html to a folder, and prints the tables.
#
# Usage: compare.sh [FOLDER [RUNS [BENCHMARK…]]]; target/comparison, 5 runs of each point and all benchmarks if not said.
# All take about half an hour; figures are worth what the machine's quiet is worth.
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
