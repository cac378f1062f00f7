#!/usr/bin/env bash
# Checks scripts/cluster: ranks connect over one network on different hosts, which share no memory;
# the exit status of a program is returned; and nothing remains afterwards.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KOLO_CLUSTER=smoke$$

scripts/cluster check # with exit status 77, CTest shows a skip

work=$(mktemp -d)
mkdir "$work/a checkout"
cp -r scripts "$work/a checkout"
cd "$work/a checkout"
trap 'scripts/cluster down; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { [[ $1 == "$2" ]] || fail "$3: expected \"$2\", got \"$1\""; }

scripts/cluster up 3 none,10mbit --ttl 120

shape_of() { scripts/cluster exec "$1" -- tc qdisc show dev eth0 | grep -o 'tbf.*rate [^ ]*' | sed 's/.* //' || true; }
expect "$(shape_of 0) $(shape_of 1) $(shape_of 2)" " 10Mbit 10Mbit" "rates of the hosts' links"

expect "$(KOLO_PASSED=got UCX_PASSED=through scripts/cluster run -np 5 --ppn 2 --timeout 60 -- \
  sh -c 'echo $(hostname) $KOLO_PASSED $UCX_PASSED' | sort | uniq -c | tr -s ' \n' ' ')" \
  " 2 ${KOLO_CLUSTER}0 got through 2 ${KOLO_CLUSTER}1 got through 1 ${KOLO_CLUSTER}2 got through " \
  "ranks on their hosts"

scripts/cluster exec 0 -- touch /dev/shm/mine
expect "$(scripts/cluster exec 1 -- ls /dev/shm)" "" "shared memory of another host"
expect "$(scripts/cluster exec 2 -- cat /proc/1/comm)" bash "processes of another host"

status=0
scripts/cluster exec all -- sh -c 'exit $((HOST_INDEX * 10))' || status=$?
expect "$status" 20 "exit status of the worst host"

# Programs that still run are killed with the cluster. cat waits until they close the pipe.
mkfifo "$work/alive"
scripts/cluster exec 2 -- sh -c 'echo inside; exec sleep infinity' >"$work/alive" 2>&1 &
exec 8<"$work/alive"
read -r line <&8
expect "$line" inside "a program on host 2"
scripts/cluster down
timeout 30 cat <&8 || fail "a process outlived the cluster"
status=0
scripts/cluster status || status=$?
expect "$status" 1 "status after down"
echo "the cluster kept its word"
