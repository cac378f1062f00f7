# Functions of scripts/bench-host and scripts/bench-cluster: launches, their rows, tables and
# pictures. Sourced after common.sh; the caller sets `results` (a folder), `name` (of the result
# files), `work` (a folder for the rows of single launches) and `script` (its own command line).
# Optional variables: BENCH_PROGRAM is a kolo-bench to use instead of build/'s, BENCH_SECONDS the
# time per row without --full, BENCH_LAYERS the number of layers of the model whose communication
# overlaps, and BENCH_UNDER a command that wraps each launch, for example to wait until a shared
# machine is free.
# shellcheck shell=bash disable=SC2034,SC2154

bench=${BENCH_PROGRAM:-$root/build/bin/kolo-bench}
launches=0 failures=0

# Makes Open MPI use UCX, also on networks for which it would not choose UCX.
over_ucx=(OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any)

machine() {
  local model
  model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
  echo "${model:-$(uname -m)}, $(nproc) cores, Linux $(uname -r | cut -d- -f1)"
}

commit() {
  echo "${KOLO_COMMIT:-$(git -C "$root" -c safe.directory="$root" describe --always --dirty 2>/dev/null || echo unknown)}"
}

# The peers that this build can measure, except the limit and the reference.
known_peers() {
  "$bench" all-reduce --help | sed -n 's/.*Systems to measure beside Kolo: \([^.]*\).*/\1/p' | tr -d ' ' | tr , '\n' |
    grep -xE 'mpi|gloo' | paste -sd,
}

# shows_scaling SIZES: whether a list of sizes, empty for the defaults, contains those that `plot
# scaling` draws.
shows_scaling() { [[ -z $1 || (,$1, == *,1M,* && ,$1, == *,64M,*) ]]; }

# measure KIND LABEL ARGUMENT...: one launch of `kolo-bench KIND ARGUMENT...` with the command
# `launcher`. Adds `fields` (KEY=VALUE) to its rows and keeps them in $work/KIND.*.json; a launch
# that fails is reported and counted.
launcher=() fields=()
measure() {
  local kind=$1 label=$2 began=$SECONDS file field tags=()
  shift 2
  launches=$((launches + 1))
  file=$work/$kind.$(printf %03d $launches).json
  say "[$launches] $kind ${fields[*]} ($label)"
  if ! ${BENCH_UNDER:-} "${launcher[@]}" "$bench" "$kind" --label "$label" --json "$file.raw" "$@" >"$file.log" 2>&1; then
    warn "launch $launches failed after $((SECONDS - began)) s: $(grep -v '^--*$' "$file.log" | tail -n 5)"
    failures=$((failures + 1))
    return 0
  fi
  for field in "${fields[@]}" machine="$(machine)" commit="$(commit)" script="$script" \
    command="kolo-bench $kind $*"; do
    tags+=(--set "$field")
  done
  "$root/scripts/bench-report" merge -o "$file" "${tags[@]}" "$file.raw"
  say "    $((SECONDS - began)) s"
}

# keep_earlier: keeps rows that are already in $results, unless the same case is measured again.
keep_earlier() {
  if [[ -e $results/$name.json ]]; then cp "$results/$name.json" "$work/all-reduce.000.json"; fi
  if [[ -e $results/$name-overlap.json ]]; then cp "$results/$name-overlap.json" "$work/overlap.000.json"; fi
}

# gather: collects the rows of all launches so far in $results/$name.json and
# $results/$name-overlap.json.
gather() {
  local rows kind out
  mkdir -p "$results"
  for kind in all-reduce overlap; do
    rows=("$work/$kind".???.json)
    [[ -e ${rows[0]} ]] || continue
    out=$results/$name.json
    if [[ $kind == overlap ]]; then out=$results/$name-overlap.json; fi
    "$root/scripts/bench-report" merge -o "$out" "${rows[@]}"
  done
}

# finish: gathers the rows of all launches, then prints and saves the tables.
finish() {
  gather
  say "$results/$name*.json"
  if [[ -e $results/$name.json ]]; then
    "$root/scripts/bench-report" table "$results/$name.json" | tee "$results/$name.md"
  fi
}

# end: reports how many launches failed, with exit status 1 if any did.
end() { ((failures == 0)) || die "$failures of $launches launches failed"; }
