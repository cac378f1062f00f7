#include "runtime/api/option_table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "compression/compression_rules.h"
#include "topology/link_costs.h"

namespace kolo {
namespace {

[[noreturn]] void fail(std::string what) {
  throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
}

std::int64_t parse_integer(const std::string& text, std::size_t& used) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) fail(fmt::format("'{}' is not a number", text));
  used = static_cast<std::size_t>(end - text.data());
  return value;
}

std::int64_t parse_duration(const std::string& text, std::int64_t least, std::string_view unit) {
  std::size_t used = 0;
  const std::int64_t value = parse_integer(text, used);
  if (used != text.size() || value < least) {
    fail(fmt::format("'{}' is not a number of {} of at least {}", text, unit, least));
  }
  return value;
}

constexpr std::string_view kSuffixes = "KMG";

/// As `parse_bytes` takes it, with the largest suffix that is exact.
std::string bytes_text(std::size_t bytes) {
  std::string suffix;
  for (const char each : kSuffixes) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    suffix = each;
  }
  return std::to_string(bytes) + suffix;
}

constexpr int kMostThreads = 256;

int parse_threads(const std::string& text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed != end || value < 0 || value > kMostThreads) {
    fail(fmt::format("'{}' is not auto or a number of threads from 0 to {}", text, kMostThreads));
  }
  return value;
}

OptionEntry bytes_option(std::string name, std::string help, std::size_t Options::*field) {
  return {.name = std::move(name),
          .value = "BYTES",
          .help = std::move(help),
          .set = [field](Options& options,
                         const std::string& text) { options.*field = parse_bytes(text); },
          .get = [field](const Options& options) { return bytes_text(options.*field); },
          .job_wide = true};
}

/// The same, or "auto".
OptionEntry auto_bytes_option(std::string name, std::string help, std::size_t Options::*field) {
  OptionEntry entry = bytes_option(std::move(name), std::move(help), field);
  entry.value = "BYTES|auto";
  entry.set = [field](Options& options, const std::string& text) {
    options.*field = text == "auto" ? kAutoBytes : parse_bytes(text);
  };
  entry.get = [field](const Options& options) {
    return options.*field == kAutoBytes ? "auto" : bytes_text(options.*field);
  };
  return entry;
}

OptionEntry text_option(std::string name, std::string value, std::string help,
                        std::string Options::*field, bool job_wide) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .set = [field](Options& options, const std::string& text) { options.*field = text; },
          .get = [field](const Options& options) { return options.*field; },
          .job_wide = job_wide};
}

OptionEntry ms_option(std::string name, std::string help, std::chrono::milliseconds Options::*field,
                      std::int64_t least) {
  return {
      .name = std::move(name),
      .value = "MS",
      .help = std::move(help),
      .set =
          [field, least](Options& options, const std::string& text) {
            options.*field = std::chrono::milliseconds(parse_duration(text, least, "milliseconds"));
          },
      .get = [field](const Options& options) { return std::to_string((options.*field).count()); }};
}

OptionEntry wire_option() {
  return {.name = "wire_dtype",
          .value = "DTYPE",
          .help =
              "dtype of floating-point gradients on the wire: float32, float16 or bfloat16; empty: "
              "their own",
          .set =
              [](Options& options, const std::string& text) {
                const auto dtype = parse_dtype(text);
                if (!text.empty() && (!dtype || !is_float(*dtype))) {
                  fail(fmt::format("'{}' is not float32, float64, float16 or bfloat16", text));
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
          "how gradients are compressed: none, fp16, bf16, topk(DENSITY,WORD,...), "
          "block_topk(DENSITY,BLOCK,WORD,...) or auto; by name "
          "with * and ?, the first rule that matches, e.g. '*.bias=none,*=topk(0.01)'. WORD: fp32 "
          "fp16 bf16 (of values), dgc[=MOMENTUM], warmup=STEPS (dense), ramp=STEPS (falling "
          "density), nofeedback, rule=quota|exact|lossless, "
          "route=auto|allgather|owners|logstep, scope=nodes|flat. auto is dense for 20 steps, "
          "measures them, takes what makes steps 1.2 times as short, and logs why",
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
      .help = "what links cost, for choosing, e.g. network_latency_us=2; kolo-topo prints all keys",
      .set =
          [](Options& options, const std::string& text) {
            try {
              parse_link_costs(text);
            } catch (const std::invalid_argument& e) {
              fail(e.what());
            }
            options.link_costs = text;
          },
      .get = [](const Options& options) { return options.link_costs; },
      .job_wide = true};
}

OptionEntry switch_option(std::string name, std::string help, std::string Options::*field) {
  OptionEntry entry = text_option(std::move(name), "on|off", std::move(help), field, true);
  entry.set = [field](Options& options, const std::string& text) {
    if (text != "on" && text != "off") fail(fmt::format("'{}' is not on or off", text));
    options.*field = text;
  };
  return entry;
}

OptionEntry spin_option() {
  return {
      .name = "spin",
      .value = "US",
      .help =
          "microseconds that a thread which waits polls before it sleeps; -1: by the cores of the "
          "node, its ranks and their compute threads (OMP_NUM_THREADS)",
      .set =
          [](Options& options, const std::string& text) {
            options.spin = std::chrono::microseconds(parse_duration(text, -1, "microseconds"));
          },
      .get = [](const Options& options) { return std::to_string(options.spin.count()); }};
}

OptionEntry reduce_threads_option() {
  return {.name = "reduce_threads",
          .value = "N|auto",
          .help =
              "threads that help with reductions in host memory; auto: up to 3, on cores that the "
              "ranks of the node and their compute threads (OMP_NUM_THREADS) leave over; 0: none",
          .set =
              [](Options& options, const std::string& text) {
                options.reduce_threads = text == "auto" ? kAutoThreads : parse_threads(text);
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

std::size_t parse_bytes(const std::string& text) {
  std::size_t used = 0;
  const std::int64_t value = parse_integer(text, used);
  unsigned shift = 0;
  if (used + 1 == text.size()) {
    const std::size_t suffix =
        kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text[used]))));
    if (suffix == std::string_view::npos) fail(fmt::format("'{}' has no suffix K, M or G", text));
    shift = 10 * (static_cast<unsigned>(suffix) + 1);
  } else if (used != text.size()) {
    fail(fmt::format("'{}' is not a size such as 65536, 64K or 4M", text));
  }
  if (value < 0 || value > std::numeric_limits<std::int64_t>::max() >> shift) {
    fail(fmt::format("'{}' is out of range", text));
  }
  return static_cast<std::size_t>(value) << shift;
}

const std::vector<OptionEntry>& option_table() {
  static const std::vector<OptionEntry> table = {
      auto_bytes_option("fusion_bytes",
                        "largest bucket of gradients; 0 sends each gradient alone; auto: by what "
                        "links cost",
                        &Options::fusion_bytes),
      text_option("algorithm", "NAME",
                  "auto, flat, ring, direct, halving_doubling, tree, hierarchical or "
                  "hierarchical:LOCAL,CROSS",
                  &Options::algorithm, true),
      text_option("device", "NAME",
                  "accelerator of this rank: cpu (none), cuda (by local rank) or cuda:INDEX",
                  &Options::device, false),
      text_option("device_algorithm", "NAME",
                  "for device memory: auto, native (one NCCL collective) or "
                  "hierarchical:native,CROSS with CROSS ring, direct, halving_doubling or tree",
                  &Options::device_algorithm, true),
      bytes_option("device_fusion_bytes", "largest bucket of gradients in device memory",
                   &Options::device_fusion_bytes),
      bytes_option("device_chunk_bytes", "largest piece of device memory that moves on its own",
                   &Options::device_chunk_bytes),
      link_costs_option(),
      switch_option("calibrate", "measure at start what links cost, for up to 200 ms",
                    &Options::calibrate),
      text_option(
          "calibration_file", "PATH",
          "remembers costs for jobs of this shape; costs that a short look at the "
          "links finds outlived are measured again; auto: below $XDG_CACHE_HOME or ~/.cache, "
          "costs for jobs across nodes only; empty: nowhere",
          &Options::calibration_file, false),
      wire_option(),
      compression_option(),
      auto_bytes_option("chunk_bytes",
                        "largest piece that moves through a schedule on its own; auto: by what "
                        "links cost",
                        &Options::chunk_bytes),
      bytes_option("network_window",
                   "what of a bucket is under way between nodes, in two chunks or more; 0: all",
                   &Options::network_window),
      bytes_option("arena_bytes", "address space of a rank's arena; memory is committed on use",
                   &Options::arena_bytes),
      text_option("timeline", "PATH",
                  "writes what iterations consist of to PATH.RANK, as trace events for Perfetto",
                  &Options::timeline, false),
      text_option("node_id", "TEXT", "tells nodes apart instead of host name and boot id",
                  &Options::node_id, false),
      ms_option("connect_timeout", "limit of start-up", &Options::connect_timeout, 1),
      ms_option("mismatch_after", "a tensor that not all ranks submit is looked into after this",
                &Options::mismatch_after, 1),
      ms_option("peer_timeout", "a peer that is needed and silent for this long is lost",
                &Options::peer_timeout, 1),
      ms_option("operation_timeout", "limit of every wait; 0: none", &Options::operation_timeout,
                0),
      spin_option(),
      reduce_threads_option(),
  };
  return table;
}

}  // namespace kolo
