# The parts of scripts/gpu-check: their names, time limits and commands. Sourced after common.sh.
# shellcheck shell=bash disable=SC2034  # tables are read by the script that sources this

programs=${KOLO_GPU_BUILD:-$root/.gpu-bin}

# Tests for compute-sanitizer: kernel tests that take about a second, which it makes many times
# slower.
watched_tests=(tests/trainer/cuda/trainer_cuda_kernels_test "tests/comm/device/kernels_gpu_test --gtest_filter=*Flag*")

# Packages with the libraries that the programs load beside MPI, UCX and hwloc, of which these are not dependencies.
# zlib is the machine's.
carried_packages=(
  libbenchmark1debian libdnnl2 libfmt9 libhwy1 libisal2 libpcre2-8-0 libspdlog1.10 libtomlplusplus3 libxxhash0
  ocl-icd-libopencl1
)

# Programs of tests that alone would take longer than their part: in how many processes each runs, side by side.
declare -A shards=([trainer_cuda_models_test]=8)

built_programs=(bin/kolo-bench bin/kolo-train bin/gpu_kernel_bench bin/gpu_trainer_bench lib/libkolo.so.2)
built_targets=(gpu_tests kolo-bench kolo-train gpu_kernel_bench gpu_trainer_bench kolo_c)

# The most important part first: a part without time left does not start. The sum of the limits is the default budget.
parts=(all-reduce two-ranks tests probe nccl hierarchy train torch-train kernels torch-kernels collectives sanitizer)
declare -A limit=(
  [all-reduce]=30 [two-ranks]=40 [tests]=75 [probe]=90 [nccl]=40 [hierarchy]=20 [train]=25 [torch-train]=50
  [kernels]=65 [torch-kernels]=25 [collectives]=30 [sanitizer]=30
)
declare -A title=(
  [all-reduce]="all-reduce by NCCL, 2 ranks on one GPU"
  [two-ranks]="kolo-train on 2 ranks, twice, with equal weights"
  [tests]="every test of the label gpu"
  [collectives]="the other collectives in device memory, 2 ranks on one GPU"
  [kernels]="kernels beside a device-to-device copy"
  [torch-kernels]="the same operations in PyTorch"
  [nccl]="device collectives, 2 and 4 ranks on one GPU"
  [hierarchy]="hierarchical all-reduce, 2 nodes x 2 ranks on one GPU"
  [probe]="captures, torch over kolo, opposite orders, foreign memory, kill -9: 4 ranks on one GPU"
  [train]="kolo-train, GPT in bfloat16, with fused attention and without"
  [torch-train]="the same GPT in PyTorch, eager and compiled"
  [sanitizer]="compute-sanitizer on the kernel tests"
)

# Commands of kolo-bench, beside all-reduce, whose buffers may be in device memory; the most used
# first.
collectives=(all-gather reduce-scatter all-to-all reduce gather scatter broadcast send-recv)

# Options of both trainers for a GPT of 121 million parameters.
gpt=(--layers 17 --width 768 --heads 12 --context 1024 --batch 8 --steps 60)

print_parts() {
  local part
  for part in "${parts[@]}"; do printf '%-14s %4d s  %s\n' "$part" "${limit[$part]}" "${title[$part]}"; done
}

# why_no_gpu: succeeds if CUDA programs can run on a GPU of this machine; else prints the reason.
why_no_gpu() {
  local answer
  if ! command -v nvidia-smi >/dev/null; then echo "there is no nvidia-smi, so no NVIDIA driver"; return 1; fi
  if ! answer=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>&1); then echo "${answer%%$'\n'*}"; return 1; fi
  if [[ -z $answer ]]; then echo "the driver sees no GPU"; return 1; fi
}

# gpu NAME...: properties of the first GPU, by nvidia-smi's names.
gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }

# describe_machine: prints lines "key<TAB>value".
describe_machine() {
  local torch
  printf 'gpu\t%s\n' "$(gpu name)"
  printf 'gpus\t%s\n' "$(nvidia-smi -L | wc -l)"
  printf 'driver\t%s\n' "$(gpu driver_version)"
  printf 'memory\t%s\n' "$(gpu memory.total)"
  printf 'nvcc\t%s\n' "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([^,]*\).*/\1/p')"
  printf 'compiler\t%s\n' "$("${CXX:-c++}" --version 2>/dev/null | head -n 1)"
  torch=$(python3 -c 'import torch; print(torch.__version__)' 2>/dev/null) || torch=none
  printf 'pytorch\t%s\n' "$torch"
  printf 'cores\t%s\n' "$(nproc)"
  describe_code
}

# The commit of the checkout with a hash of its changes, or $KOLO_COMMIT if the checkout has no history.
commit() {
  local id git=(git -C "$root" -c safe.directory="$root")
  if ! id=$("${git[@]}" rev-parse --short HEAD 2>/dev/null); then
    echo "${KOLO_COMMIT:-unknown}"
  elif [[ -n $("${git[@]}" status --porcelain 2>/dev/null) ]]; then
    echo "$id with changes $({
      "${git[@]}" diff --binary HEAD
      "${git[@]}" ls-files --others --exclude-standard -z | (cd "$root" && xargs -0r sha256sum)
    } | sha256sum | head -c 8)"
  else
    echo "$id"
  fi
}

# describe_code: prints lines "key<TAB>value": the commits of the checkout, and of the one that compiled the programs.
describe_code() {
  printf 'commit\t%s\nprograms\t%s\n' "$(commit)" "$(cat "$programs/commit" 2>/dev/null || echo unknown)"
}

# run_part NAME: runs a part in its own process, with $KOLO_GPU_WORK for its output.
run_part() {
  [[ -n ${title[$1]-} ]] || usage_error "no such part: $1"
  cd "$root"
  set -x
  "part_${1//-/_}"
}

# skip REASON: ends a part that this machine cannot run.
skip() { say "$*"; exit 77; }

# program PATH: the path of a program of this build; fails, naming the program, if it was not built.
program() { if [[ -x $programs/$1 ]]; then echo "$programs/$1"; else die "$1 was not built; --build does it"; fi; }

# on_one_gpu RANKS SECONDS PROGRAM [ARGUMENT...]: runs ranks that share the GPU. NCCL sees each as a host, Kolo sees one
# node. The contexts take turns, so few iterations take long.
on_one_gpu() { scripts/launch -n "$1" --timeout "$2" -- scripts/lib/one-gpu "${@:3}"; }

# build_programs: compiles what the parts run, for this machine's GPU, or else Hopper's, and gathers it, stripped. Goes
# on after errors, so that there is something to run, but not of an earlier build. The machine's compiler may warn of
# more than usual.
build_programs() {
  local tree=$root/build/gpu architecture status=0 file commit
  commit=$(commit)
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) || architecture=9.0
  cmake -S "$root" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKOLO_WERROR=OFF \
    -DCMAKE_CUDA_ARCHITECTURES="${architecture/./}" -DKOLO_WITH_CUDA=ON -DKOLO_WITH_NCCL=ON \
    -DKOLO_WITH_CUDNN=ON -DKOLO_WITH_MPI=ON -DKOLO_WITH_UCX=ON || return
  (cd "$tree" && rm -f "${built_programs[@]}" && find . -path './tests/*_test' -type f -perm -u+x -delete)
  cmake --build "$tree" -j "$(jobs_at_once)" --target "${built_targets[@]}" -- -k 0 || status=$?
  rm -rf "$programs"
  mkdir -p "$programs"
  for file in "${built_programs[@]}" $(cd "$tree" && find tests -type f -name '*_test' -perm -u+x); do
    if [[ -x $tree/$file ]]; then install -DsT -m 755 "$tree/$file" "$programs/$file"; else warn "no $file"; fi
  done
  echo "$commit" >"$programs/commit"
  tar -czf "$programs.tgz" -C "$programs" .
  du -h "$programs.tgz"
  return "$status"
}

part_all_reduce() {
  local bench
  bench=$(program bin/kolo-bench)
  on_one_gpu 2 28 "$bench" all-reduce --memory device --sizes 4K,1M,64M --iterations 4 --warmup 1 --rounds 1 \
    --json "$KOLO_GPU_WORK/collective-all-reduce.json"
}

part_two_ranks() {
  local train run
  train=$(program bin/kolo-train)
  for run in 1 2; do
    on_one_gpu 2 19 "$train" --model gpt --device cuda --precision bfloat16 --data "$root/comm" --sample 0 --layers 4 \
      --width 256 --heads 4 --context 256 --batch 4 --steps 20 --json "$KOLO_GPU_WORK/two-ranks-$run.json"
  done
  python3 -B -c 'import json, sys
one, two = (json.load(open(name))["weights_hash"] for name in sys.argv[1:])
sys.exit(0 if one == two else f"two runs end with different weights: {one}, {two}")' "$KOLO_GPU_WORK"/two-ranks-{1,2}.json
}

# run_test TEST NAME: runs a program of tests, in the process group of the part. Its output is NAME.txt, and tests.tsv
# has a line for it: NAME, and how it ended.
run_test() {
  local outcome=passed output=$KOLO_GPU_WORK/$2.txt
  timeout --foreground 70 "$programs/$1" >"$output" 2>&1 || outcome="failed ($?)"
  if ! grep -q '  OK ]' "$output" && [[ $outcome == passed ]]; then outcome=skipped; fi
  if [[ $outcome == failed* ]]; then tail -n 40 "$output"; fi
  printf '%s\t%s\n' "$2" "$outcome" >>"$KOLO_GPU_WORK/tests.tsv"
}

part_tests() {
  local test name shard
  export OMP_NUM_THREADS=1  # as in CTest; the programs run side by side
  : >"$KOLO_GPU_WORK/tests.tsv"
  for test in $(cd "$programs" && find tests -type f -name '*_test' | sort); do
    name=${test##*/}
    if [[ -z ${shards[$name]-} ]]; then
      run_test "$test" "$name" &
    else
      for ((shard = 0; shard < ${shards[$name]}; shard++)); do
        GTEST_TOTAL_SHARDS=${shards[$name]} GTEST_SHARD_INDEX=$shard run_test "$test" "$name-$shard" &
      done
    fi
  done
  wait
  grep -qP '\tpassed$' "$KOLO_GPU_WORK/tests.tsv" || die "no test has passed"
  if grep -P '\tfailed' "$KOLO_GPU_WORK/tests.tsv"; then return 1; fi
}

part_sanitizer() {
  command -v compute-sanitizer >/dev/null || skip "compute-sanitizer is not on this machine"
  local watched tool status=0
  local -a test
  for tool in memcheck racecheck; do
    for watched in "${watched_tests[@]}"; do
      read -ra test <<<"$watched"
      test[0]=$(program "${test[0]}")
      compute-sanitizer --tool "$tool" --error-exitcode 9 "${test[@]}" || status=$?
    done
  done
  return "$status"
}

# The shorter program first; the other one even if that fails.
part_kernels() {
  local bench status=0
  bench=$(program bin/gpu_trainer_bench) && "$bench" --json "$KOLO_GPU_WORK/trainer-kernels.json" || status=$?
  bench=$(program bin/gpu_kernel_bench) && "$bench" --json "$KOLO_GPU_WORK/kernels.json" || status=$?
  return "$status"
}

has_torch() { python3 -c 'import torch' 2>/dev/null; }

part_torch_kernels() {
  has_torch || skip "PyTorch is not on this machine"
  python3 -B benchmarks/gpu/torch_kernels.py --json "$KOLO_GPU_WORK/torch-kernels.json"
}

part_nccl() {
  local test ranks status=0
  test=$(program tests/comm/device/nccl_group_test)
  for ranks in 2 4; do
    on_one_gpu "$ranks" 20 "$test" | tee "$KOLO_GPU_WORK/nccl-$ranks.txt" || status=$?
    grep -q '  OK ]' "$KOLO_GPU_WORK/nccl-$ranks.txt" || die "every test was skipped with $ranks ranks"
  done
  return "$status"
}

part_collectives() {
  local bench command status=0
  bench=$(program bin/kolo-bench)
  for command in "${collectives[@]}"; do  # the next ones even if one fails
    on_one_gpu 2 12 "$bench" "$command" --memory device-user --compare nccl --sizes 4K,4M --iterations 4 --warmup 1 \
      --rounds 1 --json "$KOLO_GPU_WORK/collective-$command.json" || status=$?
  done
  return "$status"
}

part_hierarchy() {
  local bench
  bench=$(program bin/kolo-bench)
  # No shared memory between the nodes, as between machines.
  export UCX_TLS=tcp,self
  scripts/launch -n 4 --nodes 2 --timeout 18 -- scripts/lib/one-gpu "$bench" all-reduce \
    --memory device --algorithm hierarchical:native,ring --sizes 1M,16M,64M --iterations 5 \
    --json "$KOLO_GPU_WORK/hierarchy.json"
}

part_probe() {
  has_torch || skip "PyTorch is not on this machine"
  local library
  library=$(program lib/libkolo.so.2)
  # SECONDS is what importing torch has taken.
  KOLO_LIBRARY=$library python3 -B scripts/lib/gpu_probe.py --seconds $((limit[probe] - 5 - SECONDS))
}

part_train() {
  local train
  local -a job=(--model gpt --device cuda --precision bfloat16 --data "$root/comm" --sample 0 "${gpt[@]}")
  train=$(program bin/kolo-train)
  "$train" "${job[@]}" --json "$KOLO_GPU_WORK/train.json"
  "$train" "${job[@]}" --attention products --json "$KOLO_GPU_WORK/train-products.json"
}

part_torch_train() {
  has_torch || skip "PyTorch is not on this machine"
  python3 -B benchmarks/gpu/torch_gpt.py "${gpt[@]}" --json "$KOLO_GPU_WORK/torch-train.json"
}
