# The parts of scripts/gpu-check: their names, time limits and commands. Sourced after common.sh.
# shellcheck shell=bash disable=SC2034  # tables are read by the script that sources this

build=${KOLO_GPU_BUILD:-$root/build/gpu}

# Tests for compute-sanitizer: kernel tests that take about a second, which it makes many times
# slower.
watched_tests=(tests/trainer/cuda/trainer_cuda_kernels_test "tests/comm/device/kernels_gpu_test --gtest_filter=*Flag*")

# Packages that the build needs beside a C++ and CUDA toolchain, MPI, UCX and hwloc: headers, linked
# libraries, and dependencies of their CMake packages. zlib's library itself is the machine's.
carried_packages=(
  libgtest-dev libgmock-dev googletest libbenchmark-dev libbenchmark1debian
  libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 nlohmann-json3-dev libcli11-dev
  libisal-dev libisal2 libpcre2-dev libpcre2-8-0 libtomlplusplus-dev libtomlplusplus3 libxxhash-dev libxxhash0 libhwy-dev libhwy1 zlib1g-dev
  libdnnl-dev libdnnl2 ocl-icd-opencl-dev ocl-icd-libopencl1 opencl-c-headers opencl-clhpp-headers
  pkgconf pkgconf-bin libpkgconf3 pkg-config
)

built_targets=(gpu_tests kolo-bench kolo-train gpu_kernel_bench gpu_trainer_bench kolo_c)

# The most important part first: a part without time left does not start.
parts=(build tests collectives kernels torch-kernels nccl hierarchy probe train torch-train sanitizer)
declare -A limit=(
  [build]=240 [tests]=150 [collectives]=90 [kernels]=100 [torch-kernels]=45 [nccl]=90 [hierarchy]=90 [probe]=150 [train]=60
  [torch-train]=90 [sanitizer]=90
)
declare -A title=(
  [build]="build for this GPU"
  [tests]="ctest -L gpu"
  [collectives]="every collective in device memory, 2 ranks on one GPU"
  [kernels]="kernels beside a device-to-device copy"
  [torch-kernels]="the same operations in PyTorch"
  [nccl]="device collectives, 2 and 4 ranks on one GPU"
  [hierarchy]="hierarchical all-reduce, 2 nodes x 2 ranks on one GPU"
  [probe]="captures, torch over kolo, opposite orders, foreign memory, kill -9: 4 ranks on one GPU"
  [train]="kolo-train, GPT in bfloat16"
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

# why_no_gpu: succeeds if CUDA programs can be built and run on a GPU of this machine; else prints
# the reason.
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
  printf 'commit\t%s\n' "$(commit)"
}

# The commit of the checkout, or $KOLO_COMMIT if the checkout has no history.
commit() {
  local id
  if id=$(git -C "$root" -c safe.directory="$root" rev-parse --short HEAD 2>/dev/null); then
    if [[ -n $(git -C "$root" -c safe.directory="$root" status --porcelain 2>/dev/null) ]]; then id+=" with changes"; fi
    echo "$id"
  else
    echo "${KOLO_COMMIT:-unknown}"
  fi
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
program() { if [[ -x $build/$1 ]]; then echo "$build/$1"; else die "$1 was not built"; fi; }

part_build() {
  local architecture
  architecture=$(gpu compute_cap)
  # The machine's compiler may warn of more than the project's usual compilers.
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKOLO_WERROR=OFF \
    -DCMAKE_CUDA_ARCHITECTURES="${architecture/./}" -DKOLO_WITH_CUDA=ON -DKOLO_WITH_NCCL=ON \
    -DKOLO_WITH_CUDNN=ON -DKOLO_WITH_MPI=ON -DKOLO_WITH_UCX=ON
  # Builds only what the other parts run, half of the project, and goes on after errors, so that
  # they have something to run.
  cmake --build "$build" -j "$(jobs_at_once)" --target "${built_targets[@]}" -- -k 0
}

part_tests() {
  # The tests run in parallel: each has its own time limit, which is within the limit of this part.
  ctest --test-dir "$build" -L gpu -j 4 --no-tests=error --output-on-failure --output-junit "$KOLO_GPU_WORK/tests.xml"
  grep -q 'status="run"' "$KOLO_GPU_WORK/tests.xml" || die "every test was skipped"
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

part_kernels() {
  local bench trainer
  bench=$(program bin/gpu_kernel_bench)
  "$bench" --json "$KOLO_GPU_WORK/kernels.json"
  trainer=$(program bin/gpu_trainer_bench)
  "$trainer" --json "$KOLO_GPU_WORK/trainer-kernels.json"
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
    scripts/launch -n "$ranks" --timeout 45 -- scripts/lib/one-gpu "$test" | tee "$KOLO_GPU_WORK/nccl-$ranks.txt" ||
      status=$?
    grep -q '  OK ]' "$KOLO_GPU_WORK/nccl-$ranks.txt" || die "every test was skipped with $ranks ranks"
  done
  return "$status"
}

part_collectives() {
  local bench command status=0
  bench=$(program bin/kolo-bench)
  # NCCL sees each rank as a host, while Kolo sees one node. Few iterations, because each waits for
  # all ranks to take turns on the GPU. The next commands run even if one fails.
  for command in "${collectives[@]}"; do
    scripts/launch -n 2 --timeout 30 -- scripts/lib/one-gpu "$bench" "$command" --memory device-user --compare nccl \
      --sizes 4K,4M --iterations 4 --warmup 1 --rounds 1 --json "$KOLO_GPU_WORK/collective-$command.json" || status=$?
  done
  return "$status"
}

part_hierarchy() {
  local bench
  bench=$(program bin/kolo-bench)
  # No shared memory between the nodes, as between machines.
  export UCX_TLS=tcp,self
  scripts/launch -n 4 --nodes 2 --timeout 50 -- scripts/lib/one-gpu "$bench" all-reduce \
    --memory device --algorithm hierarchical:native,ring --sizes 1M,16M,64M --iterations 5 \
    --json "$KOLO_GPU_WORK/hierarchy.json"
}

part_probe() {
  has_torch || skip "PyTorch is not on this machine"
  KOLO_LIBRARY=$build/lib/libkolo.so.2 python3 -B scripts/lib/gpu_probe.py
}

part_train() {
  local train
  train=$(program bin/kolo-train)
  "$train" --model gpt --device cuda --precision bfloat16 --data "$root/comm" --sample 0 "${gpt[@]}" \
    --json "$KOLO_GPU_WORK/train.json"
}

part_torch_train() {
  has_torch || skip "PyTorch is not on this machine"
  python3 -B benchmarks/gpu/torch_gpt.py "${gpt[@]}" --json "$KOLO_GPU_WORK/torch-train.json"
}
