#!/usr/bin/env bash
# Checks scripts/launch, with mpirun and over TCP: it starts the requested number of ranks,
# distributes them over emulated nodes, and returns the exit status of the rank that failed.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { [[ $1 == "$2" ]] || fail "$3: expected \"$2\", got \"$1\""; }
nodes() { scripts/launch "$@" --timeout 60 -- sh -c 'echo ${KOLO_NODE_ID:-real}' | sort | uniq -c | tr -s ' \n' ' '; }
status_of() { local status=0; "$@" >/dev/null 2>&1 || status=$?; echo "$status"; }

for launcher in mpirun tcp; do
  expect "$(nodes -n 3 --launcher $launcher)" " 3 real " "ranks of the real node, $launcher"
  expect "$(nodes -n 5 --nodes 2 --launcher $launcher)" " 3 node0 2 node1 " "an uneven share, $launcher"
  expect "$(status_of scripts/launch -n 2 --launcher $launcher --timeout 60 -- sh -c 'exit 75')" 75 \
    "the status of a rank, $launcher"
done
expect "$(scripts/launch -n 2 --launcher tcp -- sh -c 'echo $RANK of $WORLD_SIZE' | sort | tr '\n' ' ')" \
  "0 of 2 1 of 2 " "ranks over TCP"
expect "$(status_of scripts/launch -n 2 --launcher tcp -- sh -c '[ $RANK = 1 ] && exit 70; exec sleep 600')" 70 \
  "a rank that fails ends the others"
expect "$(status_of scripts/launch -n 1 --launcher tcp --timeout 1 -- sleep 600)" 137 "a time limit over TCP"
expect "$(status_of scripts/launch -n 2 --nodes 3 -- true)" 64 "more nodes than ranks"
expect "$(status_of scripts/launch -n 2)" 64 "no program"
echo "ranks start as asked for"
