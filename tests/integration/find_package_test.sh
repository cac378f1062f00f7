#!/usr/bin/env bash
# Checks that a project outside this tree finds the installed package, builds with it and runs.
#
#   find_package_test.sh BUILD_FOLDER GENERATOR COMPILER
set -euo pipefail
cd "$(dirname "$0")"
build=$1 generator=$2 compiler=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" --component library >"$work/log" || { cat "$work/log"; exit 1; }
# The copy has no path that leads back into the tree.
cp -r find_package "$work/source"
cmake -S "$work/source" -B "$work/build" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release
cmake --build "$work/build"
if grep -rl "$(cd ../.. && pwd)" "$work/prefix" --include=*.cmake; then
  echo "FAILED: the package above names its source tree" >&2
  exit 1
fi
# Compilers must not warn about Kolo's headers, in any standard from C++17 on.
for any_compiler in g++ clang++; do
  command -v "$any_compiler" >/dev/null || { echo "skipped: there is no $any_compiler"; continue; }
  for standard in 17 20 2b; do
    "$any_compiler" "-std=c++$standard" -Wall -Wextra -Wpedantic -Werror -I "$work/prefix/include" -fsyntax-only \
      "$work/source/consumer.cc"
  done
done
alone=(env -u OMPI_COMM_WORLD_SIZE -u RANK -u WORLD_SIZE -u SLURM_PROCID)
"${alone[@]}" "$work/build/consumer"
"${alone[@]}" ../../scripts/launch -n 2 --launcher tcp --timeout 60 -- "$work/build/consumer"
"${alone[@]}" "$work/build/c_consumer"
"$work/build/cxx17_consumer"

# A training program has its own model, optimizer and data set, each in a file outside this tree.
if [[ -e $work/prefix/include/kolo/trainer ]]; then
  cp -r own_trainer "$work/own_source"
  cmake -S "$work/own_source" -B "$work/own" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release
  cmake --build "$work/own"
  echo 400 >"$work/number.rows"
  "${alone[@]}" "$work/own/own-train" --model thin --optimizer sign-sgd --data "$work/number.rows" --steps 200 \
    --json "$work/own.json"
  python3 -c 'import json, sys; run = json.load(open(sys.argv[1])); assert run["eval_accuracy"] > 0.95, run' "$work/own.json"
else
  echo "skipped: this build has no trainer, so no training program is built with it"
fi

# The folder is moved, and pkg-config is used: the C interface in C and C++, and the C++ interface.
mv "$work/prefix" "$work/moved"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name kolo.pc)")
build_by_pkg_config() { # PACKAGE COMMAND...
  local flags
  read -ra flags <<<"$(pkg-config --cflags --libs "$1")"
  "${@:2}" -Wall -Wextra -Werror -o "$work/consumer" "${flags[@]}"
  LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") "${alone[@]}" "$work/consumer"
}
build_by_pkg_config kolo cc -std=c11 find_package/consumer.c
build_by_pkg_config kolo "$compiler" -x c++ find_package/consumer.c -x none
build_by_pkg_config kolo-cxx "$compiler" -std=c++17 find_package/consumer.cc

# An older language standard must cause one clear error.
echo '#include <kolo/kolo.h>' >"$work/older.cc"
if "$compiler" -std=c++14 -I "$work/moved/include" -fsyntax-only "$work/older.cc" 2>"$work/log" ||
  [[ $(grep -c 'error: ' "$work/log") != 1 ]] || ! grep -q 'needs C++17' "$work/log"; then
  cat "$work/log"
  echo "FAILED: kolo.h in C++14 gives other errors than that it needs C++17" >&2
  exit 1
fi

# The library must load on machines without MPI and UCX.
if readelf -d "$(dirname "$PKG_CONFIG_PATH")"/libkolo.so.2 | grep -E 'NEEDED.*lib(mpi|open-|pmix|uc[pst])'; then
  echo "FAILED: libkolo.so.2 needs the libraries above" >&2
  exit 1
fi

# Kolo must add only the folder kolo to the include path.
if [[ $(ls "$work/moved/include") != kolo ]]; then
  echo "FAILED: the include folder holds $(ls "$work/moved/include")" >&2
  exit 1
fi
if grep -rlE '#include "(comm|fusion|runtime|topology|compression|trainer)/' "$work/moved/include"; then
  echo "FAILED: the headers above name others that are not on the include path" >&2
  exit 1
fi
