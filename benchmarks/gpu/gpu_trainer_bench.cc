// Measures the trainer's memory-bound kernels relative to the memory bandwidth of a GPU. The upper
// bound is a copy inside the device, measured in the same run; tests/trainer/cuda checks results.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "benchmarks/gpu/gpu_bench.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/layer_norm.h"
#include "trainer/cuda/kernels/update.h"

namespace kolo::bench {
namespace {

namespace cuda = trainer::cuda;

template <typename T>
T* pointer(const DeviceMemory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

NativeStream stream_of(GpuBench& bench) { return {bench.native()}; }

DeviceMemory upload_floats(GpuBench& bench, std::size_t count, std::uint64_t seed) {
  const std::vector<float> values = random_floats(count, seed);
  return bench.upload(std::as_bytes(std::span(values)));
}

/// Measures norm, decision and update of one float32 parameter that fills a buffer.
std::vector<KernelTime> measure_updates(GpuBench& bench) {
  const std::size_t count = bench.bytes() / sizeof(float);
  const DeviceMemory gradient = upload_floats(bench, count, 1);
  const DeviceMemory values = upload_floats(bench, count, 2);
  const std::vector<float> zeros(count);
  const DeviceMemory first = bench.upload(std::as_bytes(std::span(zeros)));
  const DeviceMemory second = bench.upload(std::as_bytes(std::span(zeros)));
  const DeviceMemory copy =
      bench.device().allocate(count * size_of(DType::kBFloat16), MemoryKind::kDevice);
  std::vector<cuda::UpdateChunk> chunks;
  for (std::size_t begin = 0; begin < count; begin += cuda::kUpdateChunk) {
    chunks.push_back(
        {.gradient = pointer<float>(gradient) + begin,
         .offset = begin,
         .state = begin,
         .count = static_cast<std::uint32_t>(std::min(cuda::kUpdateChunk, count - begin)),
         .decays = 1});
  }
  const DeviceMemory table = bench.upload(std::as_bytes(std::span(chunks)));
  const DeviceMemory partials =
      bench.device().allocate(chunks.size() * sizeof(double), MemoryKind::kDevice);
  const std::vector<cuda::UpdateDecision> start(1);
  const DeviceMemory decision = bench.upload(std::as_bytes(std::span(start)));
  const cuda::UpdateArrays arrays{.chunks = pointer<cuda::UpdateChunk>(table),
                                  .chunk_count = chunks.size(),
                                  .values = pointer<float>(values),
                                  .first = pointer<float>(first),
                                  .second = pointer<float>(second),
                                  .copy_dtype = DType::kBFloat16,
                                  .copy = copy.data()};
  const auto decide = [&] {
    cuda::sum_squares(stream_of(bench), arrays, pointer<double>(partials));
    cuda::decide_update(stream_of(bench), pointer<double>(partials), chunks.size(),
                        {.gradient_scale = 1.0f, .clip_norm = 1.0, .beta1 = 0.9f, .beta2 = 0.99f},
                        pointer<cuda::UpdateDecision>(decision));
  };
  const auto adamw = [&] {
    cuda::update_adamw(
        stream_of(bench), arrays,
        {.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f},
        pointer<cuda::UpdateDecision>(decision));
  };
  const auto sgd = [&] {
    cuda::update_sgd(stream_of(bench), arrays,
                     {.lr = 1e-3f, .momentum = 0.9f, .weight_decay = 0.1f},
                     pointer<cuda::UpdateDecision>(decision));
  };
  const auto cast = [&] {
    cuda::cast(stream_of(bench), pointer<float>(values), count, DType::kBFloat16, copy.data());
  };
  decide();
  return {
      {.kernel = "gradient norm and decision", .bytes = 4 * count, .us = bench.median_us(decide)},
      {.kernel = "AdamW with bfloat16 copy", .bytes = 30 * count, .us = bench.median_us(adamw)},
      {.kernel = "SGD with bfloat16 copy", .bytes = 22 * count, .us = bench.median_us(sgd)},
      {.kernel = "cast to bfloat16", .bytes = 6 * count, .us = bench.median_us(cast)}};
}

/// Measures layer norm on bfloat16 rows that fill a buffer.
std::vector<KernelTime> measure_layer_norm(GpuBench& bench, std::size_t width) {
  const std::size_t rows = bench.bytes() / size_of(DType::kBFloat16) / width;
  const std::size_t bytes = rows * width * size_of(DType::kBFloat16);
  const auto activations = [&](std::uint64_t seed) {
    const DeviceMemory values = upload_floats(bench, rows * width, seed);
    DeviceMemory result = bench.device().allocate(bytes, MemoryKind::kDevice);
    cuda::cast(stream_of(bench), pointer<float>(values), rows * width, DType::kBFloat16,
               result.data());
    bench.download(result, sizeof(float));  // blocks, so that `values` may be destroyed
    return result;
  };
  const auto room = [&](std::size_t count) {
    return bench.device().allocate(count * sizeof(float), MemoryKind::kDevice);
  };
  const DeviceMemory x = activations(1), dy = activations(2), y = activations(3);
  const DeviceMemory gain = upload_floats(bench, width, 4), bias = upload_floats(bench, width, 5);
  const DeviceMemory mean = room(rows), rstd = room(rows), dgain = room(width), dbias = room(width);
  const DeviceMemory partials = room(cuda::plan_layer_norm(rows, width).partials);
  const auto forward = [&] {
    cuda::layer_norm(stream_of(bench), {.dtype = DType::kBFloat16,
                                        .rows = rows,
                                        .width = width,
                                        .x = x.data(),
                                        .gain = pointer<float>(gain),
                                        .bias = pointer<float>(bias),
                                        .y = y.data(),
                                        .mean = pointer<float>(mean),
                                        .rstd = pointer<float>(rstd)});
  };
  const auto backward = [&] {
    cuda::layer_norm_backward(stream_of(bench), {.dtype = DType::kBFloat16,
                                                 .rows = rows,
                                                 .width = width,
                                                 .dy = dy.data(),
                                                 .x = x.data(),
                                                 .gain = pointer<float>(gain),
                                                 .mean = pointer<float>(mean),
                                                 .rstd = pointer<float>(rstd),
                                                 .residual = nullptr,
                                                 .dx = y.data(),
                                                 .partials = pointer<float>(partials),
                                                 .dgain = pointer<float>(dgain),
                                                 .dbias = pointer<float>(dbias)});
  };
  const auto name = [&](std::string_view direction) {
    return fmt::format("layer norm {}, {} columns of bfloat16", direction, width);
  };
  const double forward_us = bench.median_us(forward);
  return {{.kernel = name("forward"), .bytes = 2 * bytes, .us = forward_us},
          {.kernel = name("backward"), .bytes = 3 * bytes, .us = bench.median_us(backward)}};
}

std::vector<KernelTime> measure_layer_norms(GpuBench& bench) {
  std::vector<KernelTime> times;
  for (const std::size_t width : {768U, 4096U}) {
    for (KernelTime& time : measure_layer_norm(bench, width)) times.push_back(std::move(time));
  }
  return times;
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  using namespace kolo::bench;
  return gpu_bench_main(argc, argv,
                        "Speed of the trainer's GPU kernels beside a copy inside the device",
                        {{"updates", measure_updates}, {"layer-norm", measure_layer_norms}});
}
