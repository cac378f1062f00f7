# Functions that all scripts share: the project's folder, messages, and the number of parallel jobs.
# Sourced.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { warn "$@"; exit 1; }
usage_error() { warn "$@" "(--help says more)"; exit 64; }

# The comment at the top of a script is its help.
print_help() { sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0"; }

# Number of compilers or tests to run at once: one per core, and 2 GiB of memory for each.
jobs_at_once() {
  local cores gibibytes
  cores=$(nproc)
  gibibytes=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  local by_memory=$((gibibytes / 2))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}

# The project's own files that match the patterns, new ones included; paths from the root, sorted.
# Git may list a checkout that belongs to another user (a container's volume): reading the list is
# harmless.
project_files() {
  git -C "$root" -c safe.directory="$root" ls-files --cached --others --exclude-standard -- "$@" |
    (cd "$root" && while IFS= read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done) | sort -u
}
