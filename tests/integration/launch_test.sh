#!/usr/bin/env bash
# scripts/launch: as many ranks as asked for, shared out over played nodes, and the exit status of the
# rank that failed.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { [[ $1 == "$2" ]] || fail "$3: expected \"$2\", got \"$1\""; }
nodes() { scripts/launch "$@" --timeout 60 -- sh -c 'echo ${KOLO_NODE_ID:-real}' | sort | uniq -c | tr -s ' \n' ' '; }
status_of() { local status=0; "$@" >/dev/null 2>&1 || status=$?; echo "$status"; }

expect "$(nodes -n 3)" " 3 real " "ranks of the real node"
expect "$(nodes -n 5 --nodes 2)" " 3 node0 2 node1 " "an uneven share"
expect "$(status_of scripts/launch -n 2 --timeout 60 -- sh -c 'exit 75')" 75 "the status of a rank"
expect "$(status_of scripts/launch -n 2 --nodes 3 -- true)" 64 "more nodes than ranks"
expect "$(status_of scripts/launch -n 2)" 64 "no program"
echo "ranks start as asked for"
