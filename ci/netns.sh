#!/usr/bin/env bash
# Cuts hosts off the network. Network namespaces joined by a bridge stand for hosts; iptables cuts and restores them.
# Ranks use tcp;ofi_rxm between hosts and samite-shm within. In each scenario the survivors must end every operation
# with a dead rank within the detection time plus one second, with an error that names that rank, and verify all other
# data to the end. Ranks that are cut off must exit by themselves and say why. No process may remain. Needs root.
#
#   ci/netns.sh [SCENARIO…]          all by default; see the end of this file
#
# Everything runs in its own namespaces, processes included, so nothing remains however this script ends.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
    [[ $(id -u) -eq 0 ]] || { echo "netns.sh: making network namespaces needs root" >&2; exit 1; }
    cd "$(dirname "$0")/.."
    ci/build.sh
    bin=$(realpath "${CARGO_TARGET_DIR:-target}/debug")
    exec unshare --mount --net --pid --fork --kill-child --mount-proc "$(realpath "$0")" --inside "$bin" "$@"
fi
bin=$2
shift 2

# Three hosts of two ranks each, and a host for the coordinator.
coordinator=10.77.0.254
hosts=(10.77.0.1 10.77.0.2 10.77.0.3)

dir=$(mktemp -d)
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
trap 'rm -rf "$dir"' EXIT

in_host() {
    local host=$1
    shift
    ip netns exec "$host" "$@"
}

ip link add bridge type bridge
ip link set bridge up
for host in "$coordinator" "${hosts[@]}"; do
    ip netns add "$host"
    ip link add "to-${host##*.}" type veth peer name eth0 netns "$host"
    ip link set "to-${host##*.}" master bridge up
    in_host "$host" ip addr add "$host/24" dev eth0
    in_host "$host" ip link set eth0 up
    in_host "$host" ip link set lo up
done

# Replaces ssh and its daemon, over named pipes. As with ssh, the remote process is not a child of the caller and
# outlives the caller.
cat >"$dir/sshd" <<'END'
#!/usr/bin/env bash
cd "$1"
echo $$ >daemon
serve() {
    {
        bash "$1/command" <"$1/in" 2> >(exec tee -p -a errors >"$1/err")
        echo $? >"$1/code"
    } >"$1/out"
}
while true; do
    while read -r session; do serve "$session" & done <requests
done
END
cat >"$dir/ssh" <<'END'
#!/usr/bin/env bash
host=$(dirname "$0")/$1
shift
session=$(mktemp -d "$host/session.XXXXXX")
mkfifo "$session"/{in,out,err}
printf '%q ' "$@" >"$session/command"
echo "$session" >"$host/requests"
exec 3<&0
cat <&3 >"$session/in" &
cat "$session/err" >&2 &
cat "$session/out"
exit "$(cat "$session/code")"
END

# Each rank writes to a file, because a rank's output does not reach the coordinator while the rank is cut off.
cat >"$dir/rank" <<END
#!/bin/sh
echo \$\$ >"$dir/pid.\$SAMITE_RANK"
exec $bin/examples/survivors "\$@" >"$dir/log.\$SAMITE_RANK" 2>&1
END
chmod +x "$dir"/{ssh,sshd,rank}

for host in "${hosts[@]}"; do
    mkdir "$dir/$host"
    mkfifo "$dir/$host/requests"
    in_host "$host" "$dir/sshd" "$dir/$host" &
done

fail() {
    echo "netns.sh: $scenario: $*" >&2
    for file in "$dir"/log.* "$dir"/coordinator "$dir"/*/errors; do
        [[ -s $file ]] && sed "s|^|  ${file#"$dir"/}: |" "$file" | tail -n 20 >&2
    done
    exit 1
}

# until_true SECONDS COMMAND…: waits until the command succeeds, at most SECONDS.
until_true() {
    local seconds=$1 end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS <= end)) || fail "after $seconds s still not: $*"
        sleep 0.02
    done
}

all_began() { [[ $(cat "$dir"/log.* 2>/dev/null | grep -c begins) -eq 6 ]]; }

# start ROUNDS DETECTION_TIME: starts a job and returns when all ranks exchange messages.
start() {
    limit=$(awk "BEGIN { print $2 + 1 }")
    rm -f "$dir"/log.* "$dir"/pid.* "$dir"/*/errors
    in_host "$coordinator" "$bin/samite" run -n 6 --hosts "$(IFS=,; echo "${hosts[*]}")" --ssh "$dir/ssh" \
        --detection-time "$2" --on-failure continue --timeout 60 -- "$dir/rank" "$1" </dev/null >"$dir/coordinator" 2>&1 &
    job=$!
    until_true 20 all_began
    sleep 0.5
    begin=$(date +%s.%N)
}

# cut HOST in|out DROP|REJECT: blocks incoming packets at the host, or its outgoing packets at all other hosts, as if
# the network between them had lost or refused them.
cut() {
    local host how=(-p tcp -j "$3")
    [[ $3 == REJECT ]] && how+=(--reject-with tcp-reset)
    if [[ $2 == in ]]; then
        in_host "$1" iptables -A INPUT ! -i lo "${how[@]}"
    else
        for host in "$coordinator" "${hosts[@]}"; do
            [[ $host == "$1" ]] || in_host "$host" iptables -A INPUT -s "$1" "${how[@]}"
        done
    fi
}

restore() {
    local host
    for host in "$coordinator" "${hosts[@]}"; do in_host "$host" iptables -F; done
}

# finish EXIT_CODE: checks that the job ends with this code and leaves no process on any host.
finish() {
    local code=0 host
    wait "$job" || code=$?
    [[ $code -eq $1 ]] || fail "exit code $code instead of $1"
    for host in "${hosts[@]}"; do
        until_true 2 nothing_left "$host"
    done
    restore
}

nothing_left() { [[ $(ip netns pids "$1") == $(cat "$dir/$1/daemon") ]]; }

# survive "RANKS" "DEAD" [HOW]: checks that each of RANKS reported the failure of each of DEAD in time, reported no other
# failure, and verified the remaining data. HOW is a regular expression for the reported cause. By default it matches
# only the causes that the launcher reports.
survive() {
    local rank dead how=${3-it was }
    for rank in $1; do
        grep -q ' verified ' "$dir/log.$rank" || fail "rank $rank did not verify its data"
        [[ $(grep -c failed "$dir/log.$rank") -eq $(wc -w <<<"$2") ]] || fail "rank $rank heard of others too"
        for dead in $2; do
            in_time "$dir/log.$rank" "rank $dead failed: ($how)" || fail "rank $rank did not hear of $dead within $limit s"
        done
    done
}

# cut_off_ranks_exit "RANKS": checks that each of RANKS reported in time that it was given up, and verified no data.
cut_off_ranks_exit() {
    local rank
    for rank in $1; do
        in_time "$dir/log.$rank" 'this rank was given up: ' || fail "rank $rank was not told within $limit s"
        ! grep -q verified "$dir/log.$rank" || fail "rank $rank went on"
    done
}

# in_time FILE PATTERN: checks that a line of the file matches the pattern, and that the time at the beginning of the
# line is within the limit.
in_time() {
    local line
    line=$(grep -m1 -E "$2" "$1") || return
    delays+=("$(awk "BEGIN { print ${line%% *} - $begin }")")
    awk "BEGIN { exit !(${delays[-1]} <= $limit) }"
}

all_well() {
    start 100 2
    finish 0
    survive "0 1 2 3 4 5" ""
    in_host "$coordinator" "$bin/samite" run -n 6 --hosts "$(IFS=,; echo "${hosts[*]}")" --ssh "$dir/ssh" \
        --timeout 60 -- "$bin/examples/heat2d" 61 20 </dev/null >"$dir/coordinator" 2>&1 || fail "heat2d"
    grep -q verified "$dir/coordinator" || fail "heat2d"
}

rank_killed() {
    start 200 2
    kill -KILL "$(cat "$dir/pid.3")"
    finish 137
    survive "0 1 2 4 5" "3"
}

agent_killed() {
    start 200 2
    kill -KILL "$(awk '/^PPid/ {print $2}' "/proc/$(cat "$dir/pid.3")/status")"
    finish 255
    survive "0 1 4 5" "2 3"
}

host_dropped() {
    start 200 1
    cut 10.77.0.2 in DROP
    cut 10.77.0.2 out DROP
    finish 255
    survive "0 1 4 5" "2 3"
    cut_off_ranks_exit "2 3"
}

host_rejected() {
    start 200 1
    cut 10.77.0.2 in REJECT
    finish 255
    # The coordinator notices the rejection at its next heartbeat, at most a fourth of the detection time later. Ranks
    # whose connection is refused wait 100 ms for the coordinator's report.
    survive "0 1 4 5" "2 3" "it was |the connection was lost;"
    cut_off_ranks_exit "2 3"
}

incoming_dropped() {
    start 200 1
    cut 10.77.0.2 in DROP
    finish 255
    survive "0 1 4 5" "2 3"
    cut_off_ranks_exit "2 3"
}

outgoing_dropped() {
    start 200 1
    cut 10.77.0.2 out DROP
    finish 255
    survive "0 1 4 5" "2 3"
    cut_off_ranks_exit "2 3"
}

cut_and_restored() {
    start 300 5
    cut 10.77.0.2 in DROP
    cut 10.77.0.2 out DROP
    sleep 2
    restore
    finish 0
    survive "0 1 2 3 4 5" ""
}

coordinator_dropped() {
    start 200 1
    cut "$coordinator" in DROP
    cut "$coordinator" out DROP
    finish 255
    cut_off_ranks_exit "0 1 2 3 4 5"
}

[[ $# -gt 0 ]] ||
    set -- all_well rank_killed agent_killed host_dropped host_rejected incoming_dropped outgoing_dropped \
        cut_and_restored coordinator_dropped
for scenario in "$@"; do
    delays=()
    since=$SECONDS
    "$scenario"
    printf '%-18s ok, %2d s' "$scenario" $((SECONDS - since))
    [[ ${#delays[@]} -eq 0 ]] || printf '%s\n' "${delays[@]}" | sort -n |
        awk '{ d[NR] = $1 } END { printf "; told after %.3f s (median), %.3f s (most)", d[int((NR + 1) / 2)], d[NR] }'
    echo
done
