#include "runtime/options/option_table.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/algorithms/algorithm_request.h"
#include "comm/algorithms/registry.h"
#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "compression/compression_spec.h"
#include "runtime/options/option_values.h"
#include "topology/link_costs.h"

namespace kolo {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Largest timeout, a year: longer than any job, and in nanoseconds far below the 64-bit limit.
constexpr milliseconds kLongestTimeout = std::chrono::hours(24 * 365);
/// Largest `spin`: a thread that polls for a minute never sleeps in practice.
constexpr microseconds kLongestSpin = std::chrono::minutes(1);
/// Largest size: the address space of a process, which exceeds any message or bucket.
constexpr std::size_t kMostBytes = std::size_t{1} << 47;
constexpr std::size_t kLeastArena = 4096;  // a page
constexpr OptionRange kSpin{.least = -1, .most = kLongestSpin.count(), .unit = "microseconds"};
constexpr OptionRange kThreads{.least = 0, .most = 256, .unit = "threads"};
constexpr std::size_t kLongestPath = 4096;  // Linux's PATH_MAX
constexpr std::size_t kLongestName = 255;

/// Appends unit and range: "time limit of start-up; milliseconds, 1 to 31536000000".
std::string with_range(std::string_view help, const OptionRange& range) {
  return fmt::format("{}; {}, {} to {}", help, range.unit, range.least, range.most);
}

/// Makes the option of one field. `parse` checks a text and returns the value; `print` inverts it.
template <typename Field, typename Parse, typename Print>
OptionEntry option(std::string name, std::string value, std::string help, Field Options::*field,
                   bool job_wide, Parse parse, Print print) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .set = [field, parse = std::move(parse)](
                     Options& options, const std::string& text) { options.*field = parse(text); },
          .get = [field, print](const Options& options) -> std::string {
            return print(options.*field);
          },
          .job_wide = job_wide};
}

std::string bytes_help(std::string_view help, std::size_t least) {
  return fmt::format("{}; bytes, {} to {}", help, bytes_text(least), bytes_text(kMostBytes));
}

OptionEntry bytes_option(std::string name, std::string_view help, std::size_t Options::*field,
                         std::size_t least) {
  return option(
      std::move(name), "BYTES", bytes_help(help, least), field, true,
      [least](const std::string& text) { return parse_bytes(text, least, kMostBytes); },
      bytes_text);
}

/// Works like `bytes_option`, but also accepts "auto".
OptionEntry auto_bytes_option(std::string name, std::string_view help, std::size_t Options::*field,
                              std::size_t least) {
  return option(
      std::move(name), "BYTES|auto", bytes_help(help, least), field, true,
      [least](const std::string& text) {
        return text == "auto" ? kAutoBytes : parse_bytes(text, least, kMostBytes);
      },
      [](std::size_t bytes) { return bytes == kAutoBytes ? "auto" : bytes_text(bytes); });
}

template <typename Check>
OptionEntry text_option(std::string name, std::string value, std::string help,
                        std::string Options::*field, bool job_wide, Check check_text) {
  return option(
      std::move(name), std::move(value), std::move(help), field, job_wide,
      [check_text](const std::string& text) {
        check_text(text);
        return text;
      },
      std::identity());
}

OptionEntry ms_option(std::string name, std::string_view help, milliseconds Options::*field,
                      std::int64_t least) {
  const OptionRange range{.least = least, .most = kLongestTimeout.count(), .unit = "milliseconds"};
  return option(
      std::move(name), "MS", with_range(help, range), field, false,
      [range](const std::string& text) { return milliseconds(parse_number(text, range)); },
      [](milliseconds time) { return std::to_string(time.count()); });
}

std::optional<DType> parse_wire(const std::string& text) {
  const auto dtype = parse_dtype(text);
  if (text.empty() || (dtype && is_float(*dtype))) return dtype;
  static const std::vector<std::string> choices = {"float32", "float64", "float16", "bfloat16"};
  throw UsageError(describe_unknown(text, choices));
}

void check_link_costs(const std::string& text) {
  try {
    parse_link_costs(text);
  } catch (const std::invalid_argument& e) {
    throw KoloError({.code = ErrorCode::kConfig, .what = e.what()});
  }
}

void check_switch(const std::string& text) {
  static const std::vector<std::string> choices = {"on", "off"};
  check_choice(text, choices);
}

void check_path(const std::string& text) { check_plain_text(text, kLongestPath); }
void check_name(const std::string& text) { check_plain_text(text, kLongestName); }

void check_algorithm(const std::string& text) {
  check_name(text);
  AlgorithmRequest{text};
}

OptionEntry switch_option(std::string name, std::string help, bool Options::*field) {
  return option(
      std::move(name), "on|off", std::move(help), field, true,
      [](const std::string& text) {
        check_switch(text);
        return text == "on";
      },
      [](bool is_on) { return is_on ? "on" : "off"; });
}

std::string replace_underscores(std::string text) {
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

std::string OptionEntry::flag() const { return "--" + replace_underscores(name); }

std::string OptionEntry::variable() const {
  std::string upper = "KOLO_" + name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

void set_option(const OptionEntry& entry, Options& options, std::string_view source,
                const std::string& text) {
  try {
    entry.set(options, text);
    options.given.insert(entry.name);
  } catch (const KoloError& error) {
    throw KoloError(
        {.code = error.error().code, .what = fmt::format("{}: {}", source, error.error().what)});
  }
}

Options validated(Options options) {
  const std::set<std::string> given = options.given;
  for (const OptionEntry& entry : option_table()) {
    set_option(entry, options, "options." + entry.name, entry.get(options));
  }
  options.given = given;
  return options;
}

const std::vector<OptionEntry>& option_table() {
  static const std::vector<OptionEntry> table = {
      auto_bytes_option("fusion_bytes",
                        "largest bucket of gradients; 0 sends each gradient alone; auto: the "
                        "fastest, as predicted",
                        &Options::fusion_bytes, 0),
      text_option("algorithm", "[COLLECTIVE:]NAME",
                  fmt::format("algorithms for what they serve, separated by semicolons: {}; after "
                              "COLLECTIVE: for that one only, as in ring;broadcast:direct; where "
                              "none serves, auto",
                              fmt::join(algorithm_texts(), ", ")),
                  &Options::algorithm, true, check_algorithm),
      switch_option("reproducible",
                    "on: no bit of a sum in host memory depends on what was measured, on the size "
                    "of a tensor or on its place; between nodes algorithm auto is direct or "
                    "hierarchical:direct,direct, which may take longer than the fastest",
                    &Options::reproducible),
      text_option(
          "device", "NAME",
          "accelerator of this rank: cpu (none), cuda (the GPU whose index is the local rank) or "
          "cuda:INDEX, 0 to 65535",
          &Options::device, false, check_device_name),
      auto_bytes_option(
          "device_fusion_bytes",
          "largest bucket of gradients in device memory; 0 and auto: as of fusion_bytes",
          &Options::device_fusion_bytes, 0),
      bytes_option("device_chunk_bytes",
                   "largest chunk of a bucket in device memory; chunks are pipelined",
                   &Options::device_chunk_bytes, 1),
      text_option("link_costs", "KEY=VALUE,...",
                  "link costs for the cost model, e.g. network_latency_us=2; kolo-topo lists the "
                  "keys",
                  &Options::link_costs, true, check_link_costs),
      text_option("calibrate", "on|off",
                  "on: measure the links at start, for up to 200 ms; off: use default costs",
                  &Options::calibrate, true, check_switch),
      text_option(
          "calibration_file", "PATH",
          "file that keeps measured link costs for later jobs of this shape, for 24 hours, and the "
          "choices of kolo-bench tune; auto: below $XDG_CACHE_HOME or ~/.cache, costs only for "
          "jobs "
          "across nodes; empty: none",
          &Options::calibration_file, false, check_path),
      option(
          "wire_dtype", "DTYPE",
          "dtype of floating-point gradients on the wire: float32, float64, float16 or bfloat16; "
          "empty: each gradient's own",
          &Options::wire_dtype, true, parse_wire,
          [](std::optional<DType> dtype) { return std::string(dtype ? to_string(*dtype) : ""); }),
      option(
          "compression", "SPEC|PATTERN=SPEC,...",
          fmt::format(
              "compression of gradients: {}. auto measures 20 dense steps, compresses where "
              "that makes steps at least 1.2 times as fast, and logs the reason",
              compression_help()),
          &Options::compression, false,
          [](const std::string& text) { return CompressionRules::parse(text).to_string(); },
          std::identity()),
      auto_bytes_option("chunk_bytes",
                        "largest chunk of a bucket; chunks are pipelined; auto: the fastest, as "
                        "predicted",
                        &Options::chunk_bytes, 1),
      bytes_option("network_window",
                   "limit of the bytes of a bucket that are in flight between nodes, in at least "
                   "two chunks; 0: no limit",
                   &Options::network_window, 0),
      bytes_option("arena_bytes",
                   "address space of a rank's arena; memory is committed when it is used",
                   &Options::arena_bytes, kLeastArena),
      bytes_option("group_arena_bytes",
                   "address space of the arenas of all groups that a rank is in, and of what "
                   "`allocate` gives; memory is committed when it is used",
                   &Options::group_arena_bytes, kLeastArena),
      text_option("timeline", "PATH",
                  "writes the buckets and waits of each iteration to PATH.RANK, as trace events "
                  "for Perfetto",
                  &Options::timeline, false, check_path),
      switch_option("verify_schedules",
                    "on: prove the schedules of all ranks when a bucket is planned, and name the "
                    "step that is wrong",
                    &Options::verify_schedules),
      text_option("node_id", "TEXT",
                  "identity of this rank's node, in place of host name and boot id; simulates "
                  "several nodes on one machine",
                  &Options::node_id, false, check_name),
      text_option("ucx_library", "PATH",
                  "UCX's library libucp.so, which jobs across nodes load at start; empty: that of "
                  "the system",
                  &Options::ucx_library, false, check_path),
      text_option("nccl_library", "PATH",
                  "NCCL's library libnccl.so.2, which jobs with GPUs load at start; empty: that "
                  "which the process has loaded, or else that of the system",
                  &Options::nccl_library, false, check_path),
      ms_option("connect_timeout", "time limit of start-up", &Options::connect_timeout, 1),
      ms_option("mismatch_after",
                "delay before Kolo checks which ranks have not submitted a tensor",
                &Options::mismatch_after, 1),
      ms_option("peer_timeout",
                "a peer that others wait for and that is silent for this time is lost",
                &Options::peer_timeout, 1),
      ms_option("stall_warn",
                "delay before rank 0 logs which tensors are waited for in vain, which ranks lack "
                "them, and what those did last, and before a rank logs that it is stuck in a call "
                "(at most half of peer_timeout); 0: neither",
                &Options::stall_warn, 0),
      ms_option("stall_abort",
                "a tensor that ranks have waited for in vain for this time is an error on all "
                "ranks, and so is a call in which a rank is stuck, unless peers have lost it "
                "before, after "
                "peer_timeout; 0: nine tenths of operation_timeout",
                &Options::stall_abort, 0),
      ms_option("operation_timeout", "time limit of every wait; 0: none",
                &Options::operation_timeout, 0),
      option(
          "spin", "US",
          with_range(
              "time that a waiting thread polls before it sleeps; 0: sleep at once; -1: chosen "
              "from the cores of the node, its ranks and their compute threads (OMP_NUM_THREADS)",
              kSpin),
          &Options::spin, false,
          [](const std::string& text) { return microseconds(parse_number(text, kSpin)); },
          [](microseconds time) { return std::to_string(time.count()); }),
      option(
          "reduce_threads", "N|auto",
          with_range(
              "threads that help with reductions in host memory; auto: up to 3, on cores that the "
              "ranks of the node and their compute threads (OMP_NUM_THREADS) leave free; 0: none",
              kThreads),
          &Options::reduce_threads, false,
          [](const std::string& text) {
            return text == "auto" ? kAutoThreads : narrow<int>(parse_number(text, kThreads));
          },
          [](int threads) { return threads == kAutoThreads ? "auto" : std::to_string(threads); }),
  };
  return table;
}

}  // namespace kolo
