#!/usr/bin/env bash
# Installs everything besides Rust that building and testing need. If all is installed already, it is quick and prints
# nothing.
#
# On Debian and Ubuntu it uses apt, as root or through sudo. Elsewhere it says what to install, and fails.
set -euo pipefail
# The folders of some tools, which are not in the search path of ordinary users.
PATH=$PATH:/usr/sbin:/sbin

# Maps a Debian package to the test that it is installed.
# A libfabric package without headers, or older than 1.17, does not count.
declare -A present=(
    [gcc]='command -v cc'
    [g++]='command -v c++'
    [libc6-dev]='test -e /usr/include/stdlib.h'
    [pkg-config]='command -v pkg-config'
    [libfabric-bin]='command -v fi_info'
    # Samite loads libhwloc at run time. The build does not need it.
    [libhwloc15]='ldconfig -p | grep libhwloc.so.15'
    [libfabric-dev]='pkg-config --atleast-version=1.17 libfabric'
    [python3-venv]='python3 -c "import venv, ensurepip"'
    [valgrind]='command -v valgrind'
    # ci/netns.sh uses these.
    [iproute2]='command -v ip'
    [iptables]='command -v iptables'
)

missing=()
for package in "${!present[@]}"; do
    eval "${present[$package]}" >/dev/null 2>&1 || missing+=("$package")
done
needed=$(sed -nE 's/^rust-version = "(.*)"$/\1/p' "$(dirname "$0")/../Cargo.toml")
found=$(cargo --version 2>/dev/null | cut -d' ' -f2) || found=none
if ! printf '%s\n' "$needed" "$found" | sort --version-sort --check=silent || [[ $found == none ]]; then
    echo "setup.sh: Rust $needed or newer is needed, and here is $found: install it by rustup (https://rustup.rs)" >&2
    exit 1
fi
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
    cat >&2 <<END
setup.sh: missing here, by their Debian names: ${missing[*]}. Install them, then run this again:
  Fedora, RHEL:  sudo dnf install gcc gcc-c++ pkgconf-pkg-config libfabric libfabric-devel hwloc-libs python3-pip valgrind iproute iptables
  Spack:         spack install libfabric hwloc pkgconf valgrind && spack load libfabric hwloc pkgconf valgrind
END
    exit 1
fi

sudo=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "setup.sh: run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    sudo=(sudo)
fi
echo "setup.sh: installing ${missing[*]}" >&2
"${sudo[@]}" apt-get -qq update
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null

for package in "${missing[@]}"; do
    if ! eval "${present[$package]}" >/dev/null 2>&1; then
        echo "setup.sh: $package was installed, yet this still fails: ${present[$package]}" >&2
        exit 1
    fi
done
