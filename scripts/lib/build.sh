# Configuring and building a preset of CMakePresets.json. Sourced after common.sh.
# shellcheck shell=bash

if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}
  # Without this nothing that uses precompiled headers is ever found in the cache.
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
fi

# `release` is the build that users meet, so it has the short path.
binary_dir() { if [[ $1 == release ]]; then echo "$root/build"; else echo "$root/build/$1"; fi; }

# configure PRESET: once, and again when the presets change; Ninja notices every other change itself.
configure() {
  if [[ $(binary_dir "$1")/build.ninja -nt $root/CMakePresets.json ]]; then return 0; fi
  (cd "$root" && cmake --preset "$1")
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  configure "$preset" || return
  (cd "$root" && cmake --build --preset "$preset" -j "$(jobs_at_once)" ${1:+--target "$@"})
}
