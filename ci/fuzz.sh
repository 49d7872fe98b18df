#!/usr/bin/env bash
# Fuzzes the code that reads bytes from outside, with a stable toolchain.
#   ci/fuzz.sh SECONDS [TARGET]          runs all targets, or TARGET, for SECONDS (60 by default) altogether
#   ci/fuzz.sh --executions N [TARGET]   runs N executions of each target, or of TARGET
# Starts with the inputs in ci/fuzz/corpus and ci/fuzz/regressions. New inputs go to target/fuzz/corpus, failing ones to
# target/fuzz/artifacts. Once a defect is fixed, its input belongs in ci/fuzz/regressions/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

targets=(header addresses ofi_addresses environment control engine member collective windows ring value)
unit=seconds amount=60
if [[ ${1:-} == --executions ]]; then
    unit=executions amount=${2:?'--executions N'}
    shift 2
elif [[ -n ${1:-} ]]; then
    amount=$1
    shift
fi
[[ -z ${1:-} ]] || targets=("$1")

# The compiler flags of `cargo fuzz run --sanitizer none`, without the tracing of comparisons: tracing takes half of the
# time and finds nothing here, because the programs use small numbers and no magic values. The explicit target keeps
# these flags away from build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
flags=(--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
RUSTFLAGS="${flags[*]}" cargo build --quiet --release --locked --manifest-path ci/fuzz/Cargo.toml \
    --target-dir target/fuzz --target "$host" $(printf -- '--bin %s ' "${targets[@]}")

# Each execution allocates and frees memory. Without these settings malloc would return the pages to the kernel after
# each execution, which would take a third of the time.
export MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_TOP_PAD_=67108864 MALLOC_MMAP_THRESHOLD_=1000000000

for target in "${targets[@]}"; do
    kept=target/fuzz/corpus/$target artifacts=target/fuzz/artifacts/$target/
    mkdir -p "$kept" "$artifacts"
    seeds=()
    for folder in ci/fuzz/corpus/"$target" ci/fuzz/regressions/"$target"; do
        [[ ! -d $folder ]] || seeds+=("$folder")
    done
    # Long programs are slow and repeat the work of short ones.
    longest=256
    [[ $target != member ]] || longest=128
    case $unit in
        # At least one second: 0 means no limit.
        seconds) limit=-max_total_time=$(((amount + ${#targets[@]} - 1) / ${#targets[@]})) ;;
        executions) limit=-runs=$amount ;;
    esac
    echo "fuzz.sh: $target"
    "target/fuzz/$host/release/$target" "$limit" -timeout=20 -rss_limit_mb=2048 -max_len="$longest" -print_final_stats=1 \
        -verbosity=0 -artifact_prefix="$artifacts" "$kept" "${seeds[@]}" 2>&1 |
        grep -Ev '^(INFO|#|stat::(average|new_units|slowest))' || [[ ${PIPESTATUS[0]} -eq 0 ]]
done
