#!/usr/bin/env bash
# Misconfigures a host in every way that can be imitated, each in its own namespace or under its own limits, and checks
# that `samite doctor` finds the fault, names the fix, says if jobs can run, and answers within 5 s. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $(id -u) -eq 0 ]] || { echo "doctor.sh: making namespaces needs root" >&2; exit 1; }
ci/build.sh
samite=$(realpath "${CARGO_TARGET_DIR:-target}/debug/samite")

failed=0
# examine WHAT CODE LINE FIX COMMANDS: runs COMMANDS, which may end in variables to set. The doctor must then print
# LINE, with FIX below it (extended regular expressions), and exit with CODE.
examine() {
    local what=$1 code=$2 line=$3 fix=$4 commands=$5 said seconds answer=0
    said=$(env -i PATH="$PATH" unshare --mount --net --uts --pid --fork --mount-proc --kill-child bash -c "
        ip link set lo up
        $commands $samite doctor" 2>&1) || answer=$?
    seconds=$(sed -nE 's/^samite doctor: .*\(([0-9]+) ms\)$/\1/p' <<<"$said")
    if [[ $answer -eq $code && ${seconds:-9999} -lt 5000 ]] && grep -A1 -E "$line" <<<"$said" | grep -E -- "-> .*$fix" >/dev/null; then
        echo "doctor.sh: $what: found, with the fix, in $seconds ms"
    else
        printf 'doctor.sh: %s: not as expected (code %s, %s ms)\n%s\n' "$what" "$answer" "${seconds:-no}" "$said"
        failed=1
    fi
}

library=$(ldconfig -p | awk '$1 == "libfabric.so.1" && !found++ { print $NF }')
resolver=$(mktemp)
trap 'rm -f "$resolver"' EXIT
echo 'nameserver 192.0.2.99' >"$resolver"

examine 'the /proc of another pid namespace' 1 '^FAIL  /proc: .*another pid' 'mount -t proc' 'umount -l /proc;'
examine 'no /proc' 1 '^FAIL  /proc: .*No such file' 'mount -t proc' 'umount -l /proc; umount -l /proc;'
examine 'loopback that is down' 0 '^WARN  loopback: .*does not carry' 'ip link set lo up' 'ip link set lo down;'
examine 'loopback that is down, and needed' 1 '^FAIL  loopback: .*does not carry' 'ip link set lo up' \
    'ip link set lo down; SAMITE_TRANSPORT="tcp;ofi_rxm"'
examine 'a firewall that drops everything' 0 '^WARN  loopback: .*timed out' 'no firewall' \
    'iptables -A INPUT -j DROP;'
examine 'no network' 0 '^WARN  interfaces: only loopback' 'bring up another' ''
examine 'a name that leads nowhere' 0 '^WARN  name resolution: .*nowhere' '/etc/hosts' 'hostname no-such-name;'
examine 'a resolver that does not answer' 0 '^WARN  name resolution: .*not found within' '/etc/hosts' "
    hostname no-such-name.example
    mount --bind $resolver /etc/resolv.conf
    ip link add eth0 type veth peer name there
    ip addr add 192.0.2.1/24 dev eth0
    ip link set eth0 up && ip link set there up
    ip neigh add 192.0.2.99 lladdr 02:00:00:00:00:01 dev eth0
    "
examine 'little shared memory, and needed' 1 '^FAIL  /dev/shm: .* free of' 'remount,size' \
    'mount -t tmpfs -o size=1m tmpfs /dev/shm; SAMITE_TRANSPORT=shm'
examine 'few descriptors' 1 '^FAIL  open descriptors: 20,' 'ulimit -n 38' 'ulimit -n 20;'
examine 'few threads' 0 '^WARN  threads: only .* of 32 can be started' 'ulimit -u' \
    'setpriv --reuid=65534 --clear-groups prlimit --nproc=24'
examine 'small files only' 1 '^FAIL  self-test of samite-shm: .*out of shared memory: .*ulimit -f' 'FI_LOG_LEVEL' 'ulimit -f 8;'
examine 'no libfabric' 0 '^WARN  libfabric: .*install libfabric' 'between hosts only' "mount --bind /dev/null $library;"
examine 'no libfabric, and needed' 1 '^FAIL  libfabric: .*install libfabric' 'samite-shm' \
    "mount --bind /dev/null $library; SAMITE_TRANSPORT=net"
exit $failed
