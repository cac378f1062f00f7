// Measures the kernels of sums, selection and casts relative to the memory bandwidth, compared with
// memcpy and with kernels that move the same bytes and compute almost nothing (streaming_*).
// bytes_per_second counts every byte read and every byte written, per second of CPU time: the
// kernels are single-threaded, so a busy machine hardly disturbs them. Kernels of a team are timed
// by the clock.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/common/host_memory.h"
#include "benchmarks/common/streaming_kernels.h"
#include "comm/base/dtype.h"
#include "comm/kernels/reduce_kernels.h"
#include "comm/schedule/reduce_team.h"
#include "comm/schedule/step_progress.h"
#include "compression/kernels/top_k_selector.h"

namespace kolo {
namespace {

constexpr std::int64_t kCacheBytes = std::int64_t{256} << 10;
constexpr std::int64_t kMemoryBytes = std::int64_t{64} << 20;

// Writes the memory, so that no page is mapped while the clock runs. The bytes are a normal number
// in every dtype.
std::vector<std::byte> buffer(std::size_t bytes) {
  return std::vector<std::byte>(bytes, std::byte{0x3c});
}

void report(benchmark::State& state, std::size_t bytes_per_iteration) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes_per_iteration));
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto src = buffer(bytes);
  auto dst = buffer(bytes);
  for (auto _ : state) {
    std::memcpy(dst.data(), src.data(), bytes);
    benchmark::ClobberMemory();
  }
  report(state, 2 * bytes);
}

void reduce_sources(benchmark::State& state, DType dtype, std::size_t num_sources) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::vector<std::byte>> inputs(num_sources, buffer(bytes));
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  auto dst = buffer(bytes);
  for (auto _ : state) {
    reduce(dtype, ReduceOp::kSum, dst.data(), sources, bytes / size_of(dtype), 1.0);
    benchmark::ClobberMemory();
  }
  report(state, (num_sources + 1) * bytes);
}

// Measures the sum inside a node: the sum of all buffers replaces each buffer.
void reduce_in_place(benchmark::State& state, DType dtype, std::size_t num_buffers) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::vector<std::byte>> buffers(num_buffers, std::vector<std::byte>(bytes));
  std::vector<const void*> sources;
  std::vector<void*> outputs;
  for (auto& each : buffers) {
    sources.push_back(each.data());
    outputs.push_back(each.data());
  }
  for (auto _ : state) {
    reduce(dtype, ReduceOp::kSum, outputs, sources, bytes / size_of(dtype), 1.0);
    benchmark::ClobberMemory();
  }
  report(state, 2 * num_buffers * bytes);
}

// Measures the same sum on several threads, divided among them as by the executor. It is timed by
// the clock, because helpers save elapsed time but no CPU time.
void reduce_with_team(benchmark::State& state, std::size_t num_buffers) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<bench::HostMemory> buffers;
  for (std::size_t i = 0; i < num_buffers; ++i) buffers.emplace_back(bytes);
  const Step step{.kind = StepKind::kReduce,
                  .sources = std::vector<Range>(num_buffers),
                  .mirrors = std::vector<Range>(num_buffers - 1)};
  std::vector<KernelPiece> pieces;
  append_pieces({&step, 0, bytes / sizeof(float)}, sizeof(float), pieces);
  ReduceTeam team(static_cast<int>(state.range(1)) - 1,
                  {.background_spin = std::chrono::microseconds(state.range(2)),
                   .keep_core = std::chrono::microseconds(2)});
  std::vector<std::vector<void*>> outputs(team.size(), std::vector<void*>(num_buffers));
  std::vector<std::vector<const void*>> sources(team.size(), std::vector<const void*>(num_buffers));
  const auto work = [&](std::size_t piece, std::size_t member) {
    for (std::size_t i = 0; i < num_buffers; ++i) {
      sources[member][i] = outputs[member][i] =
          buffers[i].data() + pieces[piece].first * sizeof(float);
    }
    reduce(DType::kFloat32, ReduceOp::kSum, outputs[member], sources[member], pieces[piece].count,
           1.0);
  };
  for (auto _ : state) {
    team.run(pieces.size(), work);
    benchmark::ClobberMemory();
  }
  report(state, 2 * num_buffers * bytes);
}

// Measures an upper bound of the kernels above: the same streams on huge pages, without conversion,
// scale or rules for NaN.
void streaming_sum_in_place(benchmark::State& state, std::size_t num_buffers) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<bench::HostMemory> buffers;
  std::vector<const float*> in;
  std::vector<float*> out;
  for (std::size_t i = 0; i < num_buffers; ++i) {
    buffers.emplace_back(bytes);
    out.push_back(reinterpret_cast<float*>(buffers.back().data()));
    in.push_back(out.back());
  }
  for (auto _ : state) {
    bench::streaming_sum(in, out, bytes / sizeof(float), Stores::kCached);
    benchmark::ClobberMemory();
  }
  report(state, 2 * num_buffers * bytes);
}

// Measures a conversion. range(0) is the size of the wider side in bytes.
void convert_buffer(benchmark::State& state, DType to, DType from, double scale) {
  const std::size_t count =
      static_cast<std::size_t>(state.range(0)) / std::max(size_of(to), size_of(from));
  const auto src = buffer(count * size_of(from));
  auto dst = buffer(count * size_of(to));
  for (auto _ : state) {
    convert(to, dst.data(), from, src.data(), count, scale);
    benchmark::ClobberMemory();
  }
  report(state, src.size() + dst.size());
}

// Measures a cast to a wire dtype or back, with a scaling exponent that a tensor may have.
void cast_for_wire(benchmark::State& state, DType wire, bool narrows) {
  const std::size_t count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  const int exponent = wire == DType::kFloat16 ? 6 : 0;
  std::vector<float> wide(count, 1.0f);
  std::vector<std::uint16_t> narrow(count);
  to_wire(wire, narrow.data(), DType::kFloat32, wide.data(), count, exponent);
  for (auto _ : state) {
    if (narrows) {
      to_wire(wire, narrow.data(), DType::kFloat32, wide.data(), count, exponent);
    } else {
      from_wire(DType::kFloat32, wide.data(), wire, narrow.data(), count, exponent);
    }
    benchmark::ClobberMemory();
  }
  report(state, 6 * count);
}

// Measures an upper bound of these casts.
void streaming_cast(benchmark::State& state, bool narrows) {
  const std::size_t count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  std::vector<float> wide(count, 1.0f);
  std::vector<std::uint16_t> narrow(count);
  for (auto _ : state) {
    if (narrows) {
      bench::stream_narrow(narrow.data(), wide.data(), count, Stores::kCached);
    } else {
      bench::stream_widen(wide.data(), narrow.data(), count, Stores::kCached);
    }
    benchmark::ClobberMemory();
  }
  report(state, 6 * count);
}

// Measures top-k of one element in range(1). It cycles through more gradients than a branch
// predictor can learn. Each gradient begins a cache line later than the previous one.
void select_top_k(benchmark::State& state) {
  constexpr std::size_t kGradients = 61, kNext = 16;
  const std::size_t count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  const std::size_t k = count / static_cast<std::size_t>(state.range(1));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> residual(count), gradients(count + kGradients * kNext), sums(count), values(k);
  for (float& value : residual) value = normal(random);
  for (float& value : gradients) value = normal(random);
  std::vector<std::uint32_t> indices(k);
  TopKSelector selector;
  SelectionHint hint;
  std::size_t turn = 0;
  for (auto _ : state) {
    selector.select({.residual = residual.data(),
                     .gradient = &gradients[++turn % kGradients * kNext],
                     .sums = sums.data(),
                     .count = count,
                     .k = k,
                     .indices = indices.data(),
                     .values = values.data()},
                    hint);
    benchmark::ClobberMemory();
  }
  report(state, 3 * sizeof(float) * count);
}

void add_sizes(benchmark::internal::Benchmark* bench) {
  bench->Arg(kCacheBytes)->Arg(kMemoryBytes);
}

std::string text(std::string_view view) { return std::string(view); }

void register_all() {
  add_sizes(benchmark::RegisterBenchmark("memcpy", copy));
  add_sizes(benchmark::RegisterBenchmark("convert/copy", convert_buffer, DType::kFloat32,
                                         DType::kFloat32, 1.0));
  for (const std::int64_t bytes : {kCacheBytes, kMemoryBytes}) {
    for (const std::int64_t one_in : {100, 1000}) {
      benchmark::RegisterBenchmark("select/float32", select_top_k)
          ->ArgNames({"bytes", "one_in"})
          ->Args({bytes, one_in});
    }
  }
  for (const bool narrows : {true, false}) {
    const std::string direction = narrows ? "to_wire" : "from_wire";
    for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
      const std::string name = direction + "/" + text(to_string(wire));
      add_sizes(benchmark::RegisterBenchmark(name.c_str(), cast_for_wire, wire, narrows));
    }
    add_sizes(
        benchmark::RegisterBenchmark(("streaming_" + direction).c_str(), streaming_cast, narrows));
  }
  for (const DType dtype : kNumberDTypes) {
    for (const std::size_t num_sources : {2u, 4u, 16u}) {
      const std::string name =
          "reduce/" + text(to_string(dtype)) + "/sources:" + std::to_string(num_sources);
      add_sizes(benchmark::RegisterBenchmark(name.c_str(), reduce_sources, dtype, num_sources));
    }
    for (const std::size_t num_buffers : {2u, 4u}) {
      const std::string name =
          "reduce/" + text(to_string(dtype)) + "/in_place:" + std::to_string(num_buffers);
      add_sizes(benchmark::RegisterBenchmark(name.c_str(), reduce_in_place, dtype, num_buffers));
    }
  }
  for (const std::size_t num_buffers : {2u, 4u}) {
    const std::string name = "streaming_sum/float32/in_place:" + std::to_string(num_buffers);
    add_sizes(benchmark::RegisterBenchmark(name.c_str(), streaming_sum_in_place, num_buffers));
  }
  constexpr std::int64_t kLooks = 100;  // Microseconds; 0: helpers sleep between two kernels.
  for (const std::size_t num_buffers : {2u, 4u}) {
    const std::string name = "reduce_team/float32/in_place:" + std::to_string(num_buffers);
    auto* const bench = benchmark::RegisterBenchmark(name.c_str(), reduce_with_team, num_buffers)
                            ->ArgNames({"bytes", "threads", "looks"})
                            ->UseRealTime();
    for (const std::int64_t kib : {32, 64, 128, 256, 1024, 16 * 1024, 64 * 1024}) {
      bench->Args({kib << 10, 1, 0})->Args({kib << 10, 2, 0})->Args({kib << 10, 2, kLooks});
    }
  }
  constexpr std::pair<DType, DType> kConversions[] = {
      {DType::kFloat32, DType::kBFloat16}, {DType::kBFloat16, DType::kFloat32},
      {DType::kFloat32, DType::kFloat16},  {DType::kFloat16, DType::kFloat32},
      {DType::kFloat16, DType::kBFloat16}, {DType::kFloat32, DType::kFloat64},
      {DType::kFloat64, DType::kFloat32},  {DType::kFloat32, DType::kFloat32}};
  for (const auto& [from, to] : kConversions) {
    const std::string name = "convert/" + text(to_string(from)) + "_to_" + text(to_string(to));
    add_sizes(benchmark::RegisterBenchmark(name.c_str(), convert_buffer, to, from, 0.5));
  }
}

}  // namespace
}  // namespace kolo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  benchmark::AddCustomContext("kernel_target", kolo::kernel_target());
  kolo::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
