#!/usr/bin/env bash
# Checks that Clang refuses to compile an access to guarded data without its mutex, and that it
# compiles the same file without this access.
set -euo pipefail
cd "$(dirname "$0")/../../.."

command -v clang++ >/dev/null || { echo "skipped: clang++ is missing"; exit 77; }
compile() {
  clang++ -std=c++20 -fsyntax-only -Wall -Wextra -Wthread-safety -Werror -I . "$@" \
    tests/comm/base/unguarded_access.cc
}

compile || { echo "FAILED: correct code does not compile"; exit 1; }
if errors=$(compile -DKOLO_TEST_UNGUARDED 2>&1); then
  echo "FAILED: an access without the mutex compiles"
  exit 1
fi
grep -q "requires holding mutex 'mutex_'" <<<"$errors" ||
  { echo "FAILED: not the expected error:"; echo "$errors"; exit 1; }
echo "an access without the mutex does not compile"
