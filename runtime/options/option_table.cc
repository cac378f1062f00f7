#include "runtime/options/option_table.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/algorithms/algorithm_request.h"
#include "comm/algorithms/registry.h"
#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "compression/compression_rules.h"
#include "runtime/options/option_values.h"
#include "topology/link_costs.h"

namespace kolo {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A year: beyond any job, and in nanoseconds far from the end of a 64-bit number.
constexpr milliseconds kLongestTimeout = std::chrono::hours(24 * 365);
/// A thread that polls for longer than a minute never sleeps in practice.
constexpr microseconds kLongestSpin = std::chrono::minutes(1);
/// The address space of a process, which is also beyond what one message or bucket can be.
constexpr std::size_t kMostBytes = std::size_t{1} << 47;
constexpr std::size_t kLeastArena = 4096;  // a page
constexpr OptionRange kSpin{.least = -1, .most = kLongestSpin.count(), .unit = "microseconds"};
constexpr OptionRange kThreads{.least = 0, .most = 256, .unit = "threads"};
constexpr std::size_t kLongestPath = 4096;  // Linux's PATH_MAX
constexpr std::size_t kLongestName = 255;

/// "time limit of start-up; milliseconds, 1 to 31536000000".
std::string with_range(std::string_view help, const OptionRange& range) {
  return fmt::format("{}; {}, {} to {}", help, range.unit, range.least, range.most);
}

OptionEntry bytes_option(std::string name, std::string_view help, std::size_t Options::*field,
                         std::size_t least) {
  return {
      .name = std::move(name),
      .value = "BYTES",
      .help = fmt::format("{}; bytes, {} to {}", help, bytes_text(least), bytes_text(kMostBytes)),
      .set =
          [field, least](Options& options, const std::string& text) {
            options.*field = parse_bytes(text, least, kMostBytes);
          },
      .get = [field](const Options& options) { return bytes_text(options.*field); },
      .job_wide = true};
}

/// The same, or "auto".
OptionEntry auto_bytes_option(std::string name, std::string_view help, std::size_t Options::*field,
                              std::size_t least) {
  OptionEntry entry = bytes_option(std::move(name), help, field, least);
  entry.value = "BYTES|auto";
  entry.set = [field, least](Options& options, const std::string& text) {
    options.*field = text == "auto" ? kAutoBytes : parse_bytes(text, least, kMostBytes);
  };
  entry.get = [field](const Options& options) {
    return options.*field == kAutoBytes ? "auto" : bytes_text(options.*field);
  };
  return entry;
}

OptionEntry text_option(std::string name, std::string value, std::string help,
                        std::string Options::*field, bool job_wide,
                        std::function<void(const std::string& text)> check_text) {
  return {
      .name = std::move(name),
      .value = std::move(value),
      .help = std::move(help),
      .set =
          [field, check_text = std::move(check_text)](Options& options, const std::string& text) {
            check_text(text);
            options.*field = text;
          },
      .get = [field](const Options& options) { return options.*field; },
      .job_wide = job_wide};
}

OptionEntry ms_option(std::string name, std::string_view help, milliseconds Options::*field,
                      std::int64_t least) {
  const OptionRange range{.least = least, .most = kLongestTimeout.count(), .unit = "milliseconds"};
  return {
      .name = std::move(name),
      .value = "MS",
      .help = with_range(help, range),
      .set =
          [field, range](Options& options, const std::string& text) {
            options.*field = milliseconds(parse_number(text, range));
          },
      .get = [field](const Options& options) { return std::to_string((options.*field).count()); }};
}

OptionEntry wire_option() {
  return {.name = "wire_dtype",
          .value = "DTYPE",
          .help =
              "dtype of floating-point gradients on the wire: float32, float64, float16 or "
              "bfloat16; empty: each gradient's own",
          .set =
              [](Options& options, const std::string& text) {
                const auto dtype = parse_dtype(text);
                if (!text.empty() && (!dtype || !is_float(*dtype))) {
                  static const std::vector<std::string> choices = {"float32", "float64", "float16",
                                                                   "bfloat16"};
                  throw UsageError(describe_unknown(text, choices));
                }
                options.wire_dtype = dtype;
              },
          .get =
              [](const Options& options) {
                return options.wire_dtype ? std::string(to_string(*options.wire_dtype))
                                          : std::string();
              },
          .job_wide = true};
}

OptionEntry compression_option() {
  return {
      .name = "compression",
      .value = "SPEC|PATTERN=SPEC,...",
      .help =
          "compression of gradients: none, fp16, bf16, topk(DENSITY,SETTING,...) or auto; or rules "
          "by name with * and ?, of which the first match counts, e.g. "
          "'*.bias=none,*=topk(0.01)'. DENSITY: share of elements that is sent, above 0 and up to "
          "1. SETTING: fp32, fp16 or bf16 (dtype of values), dgc[=MOMENTUM], warmup=STEPS (dense), "
          "ramp=STEPS (falling density), "
          "nofeedback, rule=quota|lossless, route=auto|allgather|owners|logstep, "
          "scope=nodes|flat. auto measures 20 dense steps, compresses where that makes steps at "
          "least 1.2 times as fast, and logs the reason",
      .set =
          [](Options& options, const std::string& text) {
            options.compression = CompressionRules::parse(text).to_string();
          },
      .get = [](const Options& options) { return options.compression; }};
}

OptionEntry link_costs_option() {
  return {
      .name = "link_costs",
      .value = "KEY=VALUE,...",
      .help = "link costs for the cost model, e.g. network_latency_us=2; kolo-topo lists the keys",
      .set =
          [](Options& options, const std::string& text) {
            try {
              parse_link_costs(text);
            } catch (const std::invalid_argument& e) {
              throw KoloError({.code = ErrorCode::kConfig, .what = e.what()});
            }
            options.link_costs = text;
          },
      .get = [](const Options& options) { return options.link_costs; },
      .job_wide = true};
}

void check_switch(const std::string& text) {
  static const std::vector<std::string> choices = {"on", "off"};
  check_choice(text, choices);
}

void check_path(const std::string& text) { check_plain_text(text, kLongestPath); }

OptionEntry switch_option(std::string name, std::string help, bool Options::*field) {
  return {.name = std::move(name),
          .value = "on|off",
          .help = std::move(help),
          .set =
              [field](Options& options, const std::string& text) {
                check_switch(text);
                options.*field = text == "on";
              },
          .get = [field](const Options& options) { return options.*field ? "on" : "off"; },
          .job_wide = true};
}

OptionEntry spin_option() {
  return {.name = "spin",
          .value = "US",
          .help = with_range(
              "time that a waiting thread polls before it sleeps; 0: sleep at once; -1: chosen "
              "from the cores of the node, its ranks and their compute threads (OMP_NUM_THREADS)",
              kSpin),
          .set =
              [](Options& options, const std::string& text) {
                options.spin = microseconds(parse_number(text, kSpin));
              },
          .get = [](const Options& options) { return std::to_string(options.spin.count()); }};
}

OptionEntry reduce_threads_option() {
  return {.name = "reduce_threads",
          .value = "N|auto",
          .help = with_range(
              "threads that help with reductions in host memory; auto: up to 3, on cores that the "
              "ranks of the node and their compute threads (OMP_NUM_THREADS) leave free; 0: none",
              kThreads),
          .set =
              [](Options& options, const std::string& text) {
                options.reduce_threads =
                    text == "auto" ? kAutoThreads : narrow<int>(parse_number(text, kThreads));
              },
          .get =
              [](const Options& options) {
                return options.reduce_threads == kAutoThreads
                           ? "auto"
                           : std::to_string(options.reduce_threads);
              }};
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
  } catch (const KoloError& error) {
    throw KoloError(
        {.code = error.error().code, .what = fmt::format("{}: {}", source, error.error().what)});
  }
}

Options validated(Options options) {
  for (const OptionEntry& entry : option_table()) {
    set_option(entry, options, "options." + entry.name, entry.get(options));
  }
  return options;
}

const std::vector<OptionEntry>& option_table() {
  static const auto check_name = [](const std::string& text) {
    check_plain_text(text, kLongestName);
  };
  static const auto check_algorithm = [](const std::string& text) {
    check_name(text);
    AlgorithmRequest{text};
  };
  static const std::vector<OptionEntry> table = {
      auto_bytes_option("fusion_bytes",
                        "largest bucket of gradients; 0 sends each gradient alone; auto: the "
                        "fastest, as predicted",
                        &Options::fusion_bytes, 0),
      text_option("algorithm", "[COLLECTIVE:]NAME",
                  fmt::format("algorithms for what they serve, separated by semicolons: {}; after "
                              "COLLECTIVE: for that one only, as in ring;broadcast:tree; where "
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
      link_costs_option(),
      text_option("calibrate", "on|off",
                  "on: measure the links at start, for up to 200 ms; off: use default costs",
                  &Options::calibrate, true, check_switch),
      text_option(
          "calibration_file", "PATH",
          "file that keeps measured link costs for later jobs of this shape, for 24 hours; "
          "auto: below $XDG_CACHE_HOME or ~/.cache, only for jobs across nodes; empty: none",
          &Options::calibration_file, false, check_path),
      wire_option(),
      compression_option(),
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
                  "identity of this rank's node, in place of host name and boot id: plays several "
                  "nodes on one machine",
                  &Options::node_id, false, check_name),
      text_option("ucx_library", "PATH",
                  "UCX's library libucp.so, which jobs across nodes load at start; empty: that of "
                  "the system",
                  &Options::ucx_library, false, check_path),
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
      spin_option(),
      reduce_threads_option(),
  };
  return table;
}

}  // namespace kolo
