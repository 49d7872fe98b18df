#!/usr/bin/env bash
# Runs the suites of the libfabric port and of tagged messages, the conformance suite, and a self-verifying example on
# four processes, on a newer libfabric than the distribution's: 2.5.1, from the Python package of MPICH, kept under
# target/. Fails unless the loaded libfabric has that version and each provider in the list.
#   ci/newer-libfabric.sh [COMMAND...]    with a command, runs only that, with this libfabric
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

package=mpich==5.0.2 version=2.5.1
providers=('tcp;ofi_rxm' tcp)

home=$PWD/target/newer-libfabric/$version
if [[ ! -e $home/lib/mpich/libfabric.so.1 ]]; then
    rm -rf "$home"
    python3 -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps "$package"
fi
# The dynamic linker looks here first.
export LD_LIBRARY_PATH=$home/lib/mpich
# `fi_info` loads libfabric from the same search path as Samite. So it shows the version that Samite loads, even if
# `fi_info` itself has another version.
found=$(fi_info --version | sed -n 's/^libfabric: //p')
if [[ $found != "$version" ]]; then
    echo "newer-libfabric.sh: libfabric is $found, not $version" >&2
    exit 1
fi
[[ $# -eq 0 ]] || exec "$@"

ci/build.sh
# The packages and features of ci/build.sh, for the same reason.
all=(--quiet --locked --workspace --features samite/serde,samite/half)
cargo test "${all[@]}" --lib --test suite --no-run
built=${CARGO_TARGET_DIR:-target}/debug
for provider in "${providers[@]}"; do
    echo "newer-libfabric.sh: $provider of $found"
    SAMITE_TEST_PROVIDER=$provider cargo test "${all[@]}" --lib -- ofi::tests </dev/null
    SAMITE_TEST_PROVIDER=$provider cargo test "${all[@]}" --test suite -- ofi:: </dev/null
    "$built/samite-conformance" jobs "$provider" --samite "$built/samite" </dev/null
    "$built/samite" run -n 4 --timeout 120 --transport "$provider" -- "$built/examples/radix" </dev/null
done
