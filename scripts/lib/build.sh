# Configures and builds presets of CMakePresets.json. Sourced after common.sh.
# shellcheck shell=bash

# Users meet the build `release`, so it has the short path.
binary_dir() { if [[ $1 == release ]]; then echo "$root/build"; else echo "$root/build/$1"; fi; }

# The switches of a build of kolo-train alone; any other build configures anew.
training_switches=$root/build/.training-switches

# configure PRESET: configures once, and again when the presets change; Ninja notices all other
# changes itself.
configure() {
  local folder fresh=()
  folder=$(binary_dir "$1")
  if [[ $1 == release && -e $training_switches ]]; then
    fresh=(--fresh)
  elif [[ $folder/build.ninja -nt $root/CMakePresets.json ]]; then
    return 0
  fi
  (cd "$root" && cmake "${fresh[@]}" --preset "$1") || return
  if [[ $1 == release ]]; then rm -f "$training_switches"; fi
}

# configure_training -DSWITCH...: configures a build of kolo-train alone, unless build/ already
# builds everything.
configure_training() {
  if [[ -e $training_switches ]]; then
    if [[ -e $root/build/CMakeCache.txt && $(<"$training_switches") == "$*" ]]; then return 0; fi
  elif [[ -e $root/build/build.ninja ]]; then
    configure release
    return
  fi
  (cd "$root" && cmake --preset release -DKOLO_BUILD_TESTS=OFF -DKOLO_BUILD_BENCHMARKS=OFF "$@") || return
  echo "$*" >"$training_switches"
}

# build PRESET [TARGET...]
build() {
  configure "$1" || return
  build_configured "$@"
}
build_configured() {
  local preset=$1
  shift
  (cd "$root" && cmake --build --preset "$preset" -j "$(jobs_at_once)" ${1:+--target "$@"})
}
