#include "benchmarks/codec/codec_bench.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <optional>
#include <random>

#include "benchmarks/codec/streaming_kernels.h"
#include "benchmarks/common/json_file.h"
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

  double gbps() const { return static_cast<double>(moved_bytes) / time_us / 1e3; }
  double stream_gbps() const { return static_cast<double>(moved_bytes) / stream_us / 1e3; }
  std::optional<double> past_gbps() const {
    if (!past_us) return std::nullopt;
    return static_cast<double>(moved_bytes) / *past_us / 1e3;
  }
  double share() const { return stream_us / time_us; }
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

double time_us(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

enum class HasStores { kCached, kBoth };

/// Measures `kernel` and `stream` alternately, each after `prepare`, which is not timed and leaves
/// the caches in the same state for both; then `stream` past the cache if it `has_stores` of both
/// kinds. That comes last because it would evict memory that the others find in the cache.
void measure(CodecRow& row, int rounds, const std::function<void()>& prepare,
             const std::function<void()>& kernel, const std::function<void(Stores)>& stream,
             HasStores has_stores) {
  // Short runs are repeated more often: about as many bytes for every size, within limits.
  const auto repeats = std::clamp<std::size_t>((std::size_t{32} << 20) / row.bytes, 1, 64);
  const std::size_t runs = repeats * static_cast<std::size_t>(rounds);
  const auto cached = [&] { stream(Stores::kCached); };
  const auto past = [&] { stream(Stores::kStreaming); };
  const auto medians = [&](std::initializer_list<std::function<void()>> bodies) {
    std::vector<std::vector<double>> times(bodies.size());
    for (std::size_t run = 0; run < runs + 2; ++run) {
      std::size_t i = 0;
      for (const auto& body : bodies) {
        prepare();
        const double time = time_us(body);
        if (run >= 2) times[i].push_back(time);  // Memory is mapped and hints are found.
        ++i;
      }
    }
    std::vector<double> result;
    for (auto& each : times) result.push_back(median(std::move(each)));
    return result;
  };
  const std::vector<double> in_turns = medians({kernel, cached});
  row.time_us = in_turns[0];
  row.stream_us = in_turns[1];
  if (has_stores == HasStores::kBoth) row.past_us = medians({past})[0];
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
    if (where == Sums::kInPlace) {
      stream_add(residual.data(), gradient, count);
    } else {
      stream_sum(pending.data(), residual.data(), gradient, count, stores);
    }
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

/// Of the casts: what a wire of float16 may have, and bfloat16 has.
int exponent_of(DType wire) { return wire == DType::kFloat16 ? 6 : 0; }

CodecRow measure_narrowing(DType wire, std::size_t bytes, int rounds) {
  const std::size_t count = bytes / sizeof(float);
  const int exponent = exponent_of(wire);
  Buffer<float> from = normal_numbers(count, kSeed);
  Buffer<std::uint16_t> to(count);
  CodecRow row{.kernel = fmt::format("float32-{}", to_string(wire)),
               .bytes = bytes,
               .count = count,
               .moved_bytes = 6 * count};
  measure(
      row, rounds, [] {},
      [&] { to_wire(wire, to.data(), DType::kFloat32, from.data(), count, exponent); },
      [&](Stores stores) { stream_narrow(to.data(), from.data(), count, stores); },
      HasStores::kBoth);
  to_wire(wire, to.data(), DType::kFloat32, from.data(), count, exponent);
  for (std::size_t i = 0; i < count; ++i) {
    const float scaled = std::ldexp(from[i], exponent);
    row.wrong +=
        to[i] != (wire == DType::kFloat16 ? to_float16(scaled).bits : to_bfloat16(scaled).bits);
  }
  return row;
}

CodecRow measure_widening(DType wire, std::size_t bytes, int rounds) {
  const std::size_t count = bytes / sizeof(float);
  const int exponent = exponent_of(wire);
  Buffer<float> numbers = normal_numbers(count, kSeed);
  Buffer<std::uint16_t> from(count);
  to_wire(wire, from.data(), DType::kFloat32, numbers.data(), count, exponent);
  Buffer<float> to(count);
  CodecRow row{.kernel = fmt::format("{}-float32", to_string(wire)),
               .bytes = bytes,
               .count = count,
               .moved_bytes = 6 * count};
  measure(
      row, rounds, [] {},
      [&] { from_wire(DType::kFloat32, to.data(), wire, from.data(), count, exponent); },
      [&](Stores stores) { stream_widen(to.data(), from.data(), count, stores); },
      HasStores::kBoth);
  from_wire(DType::kFloat32, to.data(), wire, from.data(), count, exponent);
  for (std::size_t i = 0; i < count; ++i) {
    const float sent =
        wire == DType::kFloat16 ? to_float(Float16{from[i]}) : to_float(BFloat16{from[i]});
    row.wrong += to[i] != std::ldexp(sent, -exponent);
  }
  return row;
}

void print_header() {
  fmt::print("# kolo-bench codec, kernels {}, one thread, medians\n", kernel_target());
  fmt::print(
      "# stream: moves the same bytes and does nothing else; past: so, with stores past the cache\n"
      "# share: stream time / time\n");
  constexpr auto kForm =
      "# {:>10} {:>10} {:<18} {:>8} {:>10} {:>8} {:>8} {:>8} {:>7} {:>10} {:>6}\n";
  fmt::print(kForm, "size", "count", "kernel", "density", "time", "bw", "stream", "past", "share",
             "candidates", "#wrong");
  fmt::print(kForm, "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "(%)", "",
             "");
}

void print_row(const CodecRow& row) {
  fmt::print(
      "  {:>10} {:>10} {:<18} {:>8} {:>10.2f} {:>8.1f} {:>8.1f} {:>8} {:>7.1f} {:>10} {:>6}\n",
      row.bytes, row.count, row.kernel, row.density ? fmt::format("{}", *row.density) : "-",
      row.time_us, row.gbps(), row.stream_gbps(),
      row.past_us ? fmt::format("{:.1f}", *row.past_gbps()) : "-", 100 * row.share(),
      row.candidates ? std::to_string(*row.candidates) : "-", row.wrong);
  std::fflush(stdout);
}

nlohmann::json to_json(const CodecRow& row) {
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  };
  return {{"kernel", row.kernel},
          {"size", row.bytes},
          {"count", row.count},
          {"density", or_null(row.density)},
          {"time_us", row.time_us},
          {"bandwidth_GBps", row.gbps()},
          {"stream_GBps", row.stream_gbps()},
          {"past_GBps", or_null(row.past_gbps())},
          {"share", row.share()},
          {"candidates", or_null(row.candidates)},
          {"wrong", row.wrong}};
}

}  // namespace

void add_codec_bench(CLI::App& app, CodecOptions& options) {
  CLI::App& codec = *app.add_subcommand(
      "codec", "Top-k selection and casts beside the memory's rate, on one thread");
  codec
      .add_option("--sizes", options.sizes,
                  "Bytes of float32, comma-separated, with suffixes K, M and G")
      ->delimiter(',')
      ->capture_default_str();
  codec.add_option("--densities", options.densities, "Shares that top-k keeps, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  codec.add_option("--rounds", options.rounds, "Rounds; each measures every kernel in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  codec.add_option("--json", options.json, "Write the rows to this file");
}

bool run_codec_bench(const CodecOptions& options) {
  const std::vector<std::size_t> sizes = parse_sizes("--sizes", options.sizes);
  if (!options.json.empty()) expect_writable(options.json);
  print_header();
  std::vector<CodecRow> rows;
  const auto add = [&](CodecRow row) {
    print_row(row);
    rows.push_back(std::move(row));
  };
  for (const std::size_t bytes : sizes) {
    for (const double density : options.densities) {
      for (const Sums where : {Sums::kInPlace, Sums::kElsewhere}) {
        add(measure_selection(bytes, density, where, options.rounds));
      }
    }
    for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
      add(measure_narrowing(wire, bytes, options.rounds));
      add(measure_widening(wire, bytes, options.rounds));
    }
  }
  nlohmann::json array = nlohmann::json::array();
  for (const CodecRow& row : rows) array.push_back(to_json(row));
  write_json(options.json, array);
  return std::ranges::all_of(rows, [](const CodecRow& row) { return row.wrong == 0; });
}

}  // namespace kolo::bench
