#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/common/commands.h"
#include "benchmarks/common/samples.h"
#include "benchmarks/common/streaming_kernels.h"
#include "benchmarks/common/table.h"
#include "comm/base/aligned_memory.h"
#include "comm/base/half.h"
#include "comm/base/output_file.h"
#include "comm/kernels/wire_kernels.h"
#include "compression/kernels/top_k.h"
#include "compression/kernels/top_k_selector.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

constexpr std::uint32_t kSeed = 7;
// Gradients that a selection meets in rotation: more than a branch predictor can learn.
constexpr std::size_t kGradients = 61;

struct CodecOptions {
  std::vector<std::string> sizes = {"64K", "256K", "4M", "64M"};  ///< Bytes of float32 a tensor.
  std::vector<double> densities = {0.01, 0.001};
  int rounds = 15;  ///< Rounds of each kernel; the median counts.
  std::string json = {};
};

struct CodecRow {
  std::string kernel;
  std::size_t bytes = 0;  ///< Size of the float32 tensor.
  std::size_t count = 0;
  std::optional<double> density = std::nullopt;
  std::size_t moved_bytes = 0;
  double time_us = 0;    ///< Median.
  double stream_us = 0;  ///< Median of the kernel that only moves the same bytes.
  /// The same with stores past the cache; empty in place, where the output is in the cache already.
  std::optional<double> past_us = std::nullopt;
  std::optional<std::size_t> candidates = std::nullopt;
  std::size_t wrong = 0;
};

/// `count` elements that begin at a cache line, like those of an arena.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : memory_(allocate_aligned(count * sizeof(T))), count_(count) {
    std::fill_n(data(), count, T{});
  }
  T* data() { return reinterpret_cast<T*>(memory_.get()); }
  T& operator[](std::size_t i) { return data()[i]; }
  std::size_t size() const { return count_; }
  void copy(Buffer& from) { std::copy_n(from.data(), count_, data()); }

 private:
  AlignedMemory memory_;
  std::size_t count_;
};

Buffer<float> normal_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Buffer<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = normal(random);
  return numbers;
}

enum class HasStores { kCached, kBoth };

/// Measures `kernel` and `stream` alternately, each after `prepare`, which is not timed and leaves
/// the caches in the same state for both; then `stream` past the cache if it `has_stores` of both
/// kinds. That comes last because it would evict memory that the others find in the cache.
void measure(CodecRow& row, int rounds, const std::function<void()>& prepare,
             const std::function<void()>& kernel, const std::function<void(Stores)>& stream,
             HasStores has_stores = HasStores::kBoth) {
  // Short runs are repeated more often: about as many bytes for every size, within limits.
  const auto repeats = std::clamp<std::size_t>((std::size_t{32} << 20) / row.bytes, 1, 64);
  const std::size_t runs = repeats * static_cast<std::size_t>(rounds);
  std::vector<double> kernel_us, cached_us, past_us;
  const auto add = [&](std::size_t run, std::vector<double>& times, const auto& body) {
    prepare();
    const double us = time_us(body);
    if (run >= 2) times.push_back(us);  // Memory is mapped and hints are found.
  };
  for (std::size_t run = 0; run < runs + 2; ++run) {
    add(run, kernel_us, kernel);
    add(run, cached_us, [&] { stream(Stores::kCached); });
  }
  row.time_us = summarise(std::move(kernel_us)).median;
  row.stream_us = summarise(std::move(cached_us)).median;
  if (has_stores == HasStores::kCached) return;
  for (std::size_t run = 0; run < runs + 2; ++run) {
    add(run, past_us, [&] { stream(Stores::kStreaming); });
  }
  row.past_us = summarise(std::move(past_us)).median;
}

/// sum[i] = a[i] + b[i], as a kernel without dtypes, scale or rules for NaN does it.
void stream_sum(float* sum, const float* a, const float* b, std::size_t count, Stores stores) {
  const float* const in[] = {a, b};
  streaming_sum(in, {&sum, 1}, count, stores);
}

/// The sum of two contributions elsewhere, as an owner computes it.
CodecRow measure_reduction(std::size_t bytes, int rounds) {
  const std::size_t count = bytes / sizeof(float);
  Buffer<float> a = normal_numbers(count, kSeed), b = normal_numbers(count, kSeed + 1), sum(count);
  const void* const sources[] = {a.data(), b.data()};
  CodecRow row{.kernel = "sum-2", .bytes = bytes, .count = count, .moved_bytes = 3 * bytes};
  measure(
      row, rounds, [] {},
      [&] { reduce(DType::kFloat32, ReduceOp::kSum, sum.data(), sources, count, 1.0); },
      [&](Stores stores) { stream_sum(sum.data(), a.data(), b.data(), count, stores); });
  reduce(DType::kFloat32, ReduceOp::kSum, sum.data(), sources, count, 1.0);
  for (std::size_t i = 0; i < count; ++i) row.wrong += sum[i] != a[i] + b[i];
  return row;
}

/// Destination of the sums of a selection.
enum class Sums { kInPlace, kElsewhere };

CodecRow measure_selection(std::size_t bytes, double density, Sums where, int rounds) {
  const std::size_t count = bytes / sizeof(float);
  const auto k = static_cast<std::size_t>(std::ceil(density * static_cast<double>(count)));
  Buffer<float> initial = normal_numbers(count, kSeed);
  // The next gradient begins a cache line later.
  constexpr std::size_t kNext = kMemoryAlignment / sizeof(float);
  Buffer<float> gradients = normal_numbers(count + kGradients * kNext, kSeed + 1);
  const float* gradient = gradients.data();
  Buffer<float> residual(count);
  Buffer<float> pending(where == Sums::kElsewhere ? count : 0);
  Buffer<std::uint32_t> indices(k);
  Buffer<float> values(k);
  float* const sums = where == Sums::kInPlace ? residual.data() : pending.data();

  TopKSelector selector;
  SelectionHint hint;
  SelectionReport report;
  const auto select = [&] {
    report = selector.select({.residual = residual.data(),
                              .gradient = gradient,
                              .sums = sums,
                              .count = count,
                              .k = k,
                              .indices = indices.data(),
                              .values = values.data()},
                             hint);
  };
  CodecRow row{.kernel = where == Sums::kInPlace ? "select" : "select-pending",
               .bytes = bytes,
               .count = count,
               .density = density,
               .moved_bytes = 3 * bytes};
  std::size_t turn = 0;
  const auto prepare = [&] {
    residual.copy(initial);
    gradient = gradients.data() + ++turn % kGradients * kNext;
  };
  const auto stream = [&](Stores stores) {
    stream_sum(sums, residual.data(), gradient, count, stores);
  };
  measure(row, rounds, prepare, select, stream,
          where == Sums::kInPlace ? HasStores::kCached : HasStores::kBoth);
  row.candidates = report.candidates;

  residual.copy(initial);
  select();
  Buffer<std::uint32_t> expected_indices(k);
  Buffer<float> expected_values(k);
  top_k({.residual = initial.data(),
         .gradient = gradient,
         .count = count,
         .k = k,
         .indices = expected_indices.data(),
         .values = expected_values.data()});
  for (std::size_t j = 0; j < k; ++j) {
    row.wrong += indices[j] != expected_indices[j] || values[j] != expected_values[j];
  }
  return row;
}

/// The exponent of a cast: a wire of float16 may have one, and that of bfloat16 is 0.
int exponent_of(DType wire) { return wire == DType::kFloat16 ? 6 : 0; }

/// A cast of float32 to the type of a wire, and back.
CodecRow measure_cast(DType wire, bool narrows, std::size_t bytes, int rounds) {
  const std::size_t count = bytes / sizeof(float);
  const int exponent = exponent_of(wire);
  Buffer<float> wide = normal_numbers(count, kSeed);
  Buffer<std::uint16_t> narrow(count);
  const auto to = [&] {
    to_wire(wire, narrow.data(), DType::kFloat32, wide.data(), count, exponent);
  };
  const auto from = [&] {
    from_wire(DType::kFloat32, wide.data(), wire, narrow.data(), count, exponent);
  };
  CodecRow row{.kernel = narrows ? fmt::format("float32-{}", to_string(wire))
                                 : fmt::format("{}-float32", to_string(wire)),
               .bytes = bytes,
               .count = count,
               .moved_bytes = 6 * count};
  to();
  measure(
      row, rounds, [] {},
      [&] {
        if (narrows) return to();
        from();
      },
      [&](Stores stores) {
        if (narrows) return stream_narrow(narrow.data(), wide.data(), count, stores);
        stream_widen(wide.data(), narrow.data(), count, stores);
      });
  wide = normal_numbers(count, kSeed);
  to();
  for (std::size_t i = 0; i < count; ++i) {
    const float scaled = std::ldexp(wide[i], exponent);
    const bool half = wire == DType::kFloat16;
    row.wrong += narrow[i] != (half ? to_float16(scaled).bits : to_bfloat16(scaled).bits);
  }
  from();
  for (std::size_t i = 0; i < count; ++i) {
    const float sent =
        wire == DType::kFloat16 ? to_float(Float16{narrow[i]}) : to_float(BFloat16{narrow[i]});
    row.wrong += wide[i] != std::ldexp(sent, -exponent);
  }
  return row;
}

nlohmann::json to_json(const CodecRow& row) {
  const auto rate = [&](double us) { return static_cast<double>(row.moved_bytes) / us / 1e3; };
  return {{"kernel", row.kernel},
          {"size", row.bytes},
          {"count", row.count},
          {"density", or_null(row.density)},
          {"time_us", row.time_us},
          {"bandwidth_GBps", rate(row.time_us)},
          {"stream_GBps", rate(row.stream_us)},
          {"past_GBps", row.past_us ? nlohmann::json(rate(*row.past_us)) : nullptr},
          {"share", row.stream_us / row.time_us},
          {"candidates", or_null(row.candidates)},
          {"wrong", row.wrong}};
}

bool run(const CodecOptions& options) {
  const std::vector<std::size_t> sizes = parse_sizes("--sizes", options.sizes);
  if (!options.json.empty()) expect_writable(options.json);
  Table table(/*speaks=*/true,
              {fmt::format("kolo-bench codec, kernels {}, one thread, medians", kernel_target()),
               "stream: moves the same bytes and does nothing else; past: so, with stores past the "
               "cache; share: stream time / time"},
              {{"size", 10},
               {"count", 10},
               {"kernel", -18},
               {"density", 8},
               {"time_us", 10, 2},
               {"bandwidth_GBps", 14, 1},
               {"stream_GBps", 11, 1},
               {"past_GBps", 9, 1},
               {"share", 6, 3},
               {"candidates", 10},
               {"wrong", 6}});
  bool right = true;
  const auto add = [&](const CodecRow& row) {
    table.add(to_json(row));
    right &= row.wrong == 0;
  };
  for (const std::size_t bytes : sizes) {
    add(measure_reduction(bytes, options.rounds));
    for (const double density : options.densities) {
      for (const Sums where : {Sums::kInPlace, Sums::kElsewhere}) {
        add(measure_selection(bytes, density, where, options.rounds));
      }
    }
    for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
      for (const bool narrows : {true, false}) {
        add(measure_cast(wire, narrows, bytes, options.rounds));
      }
    }
  }
  table.write(options.json);
  return right;
}

}  // namespace

Command add_codec(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "codec", "Sums, top-k selection and casts beside the memory's rate, on one thread");
  auto options = std::make_shared<CodecOptions>();
  command
      .add_option("--sizes", options->sizes,
                  "Bytes of float32, comma-separated, with suffixes K, M and G")
      ->delimiter(',');
  command.add_option("--densities", options->densities, "Shares that top-k keeps, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--rounds", options->rounds, "Rounds; each measures every kernel in turn")
      ->check(CLI::Range(1, 1000));
  command.add_option("--json", options->json, "Write the rows to this file");
  return {&command, [options] { return run(*options); }};
}

}  // namespace kolo::bench
