#include "runtime/options/option_table.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "comm/base/error.h"
#include "runtime/options/option_values.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Returns the values, with a distinct time for each time option that has none.
std::map<std::string, std::string> with_times(std::map<std::string, std::string> values) {
  for (const OptionEntry& entry : option_table()) {
    if (entry.value == "MS") values.emplace(entry.name, std::to_string(values.size()));
  }
  return values;
}

/// Returns for each option the text of a value other than the default.
const std::map<std::string, std::string>& other_values() {
  static const std::map<std::string, std::string> values = with_times({
      {"fusion_bytes", "12345"},
      {"algorithm", "ring"},
      {"wire_dtype", "bfloat16"},
      {"compression", "*.bias=none,*=topk(0.01)"},
      {"chunk_bytes", "4K"},
      {"network_window", "3000M"},
      {"arena_bytes", "5G"},
      {"group_arena_bytes", "6G"},
      {"node_id", "node b"},
      {"ucx_library", "/opt/ucx/lib/libucp.so.0"},
      {"nccl_library", "/opt/nccl/lib/libnccl.so.2"},
      {"operation_timeout", "0"},
      {"spin", "17"},
      {"reduce_threads", "2"},
      {"device", "cuda:1"},
      {"device_fusion_bytes", "2M"},
      {"device_chunk_bytes", "1"},
      {"link_costs", "network_latency_us=2"},
      {"calibrate", "off"},
      {"verify_schedules", "on"},
      {"reproducible", "on"},
      {"calibration_file", "/tmp/costs.json"},
      {"timeline", "/tmp/trace.json"},
  });
  return values;
}

/// Sets an environment variable during the lifetime of this object.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

std::optional<Error> thrown_by(const std::function<void()>& call) {
  try {
    call();
    return std::nullopt;
  } catch (const KoloError& e) {
    return e.error();
  }
}

TEST(OptionTable, EveryOptionComesBackFromItsText) {
  ASSERT_EQ(option_table().size(), other_values().size());
  for (const OptionEntry& entry : option_table()) {
    SCOPED_TRACE(entry.name);
    const std::string value = other_values().at(entry.name);
    ASSERT_NE(entry.get(Options{}), value);
    Options options;
    entry.set(options, value);
    EXPECT_EQ(entry.get(options), value);
    EXPECT_NE(options, Options{});
    entry.set(options, entry.get(Options{}));
    EXPECT_EQ(options, Options{});
  }
}

// Every entry has a field, and no two entries share one.
TEST(OptionTable, EveryOptionHasAFieldOfItsOwn) {
  Options all;
  for (const OptionEntry& entry : option_table()) entry.set(all, other_values().at(entry.name));
  for (const OptionEntry& entry : option_table()) {
    EXPECT_EQ(entry.get(all), other_values().at(entry.name)) << entry.name;
  }
}

TEST(OptionTable, OneNameInThreePlaces) {
  for (const OptionEntry& entry : option_table()) {
    if (entry.name != "fusion_bytes") continue;
    EXPECT_EQ(entry.flag(), "--fusion-bytes");
    EXPECT_EQ(entry.variable(), "KOLO_FUSION_BYTES");
    return;
  }
  ADD_FAILURE() << "there is no fusion_bytes";
}

TEST(OptionTable, WhatRanksMustHaveAlikeIsJobWide) {
  const std::set<std::string> job_wide = {
      "fusion_bytes",        "algorithm",          "wire_dtype",     "chunk_bytes",
      "device_fusion_bytes", "device_chunk_bytes", "arena_bytes",    "group_arena_bytes",
      "link_costs",          "calibrate",          "network_window", "verify_schedules",
      "reproducible"};
  for (const OptionEntry& entry : option_table()) {
    EXPECT_EQ(entry.job_wide, job_wide.contains(entry.name)) << entry.name;
  }
}

TEST(OptionTable, HelpStatesUnitAndRangeOfNumbers) {
  for (const OptionEntry& entry : option_table()) {
    const std::string kind = entry.value.substr(0, entry.value.find('|'));
    const std::map<std::string, std::string> units = {{"BYTES", "; bytes, "},
                                                      {"MS", "; milliseconds, "},
                                                      {"US", "; microseconds, "},
                                                      {"N", "; threads, "}};
    if (!units.contains(kind)) continue;
    EXPECT_THAT(entry.help, HasSubstr(units.at(kind))) << entry.name;
    EXPECT_THAT(entry.help, testing::ContainsRegex("-?[0-9]+[KMG]? to [0-9]+[KMG]?$"))
        << entry.name;
  }
}

TEST(OptionsFromEnvironment, ReadsEveryVariable) {
  for (const OptionEntry& entry : option_table()) {
    const Variable variable(entry.variable(), other_values().at(entry.name));
    const Options options = options_from_environment({});
    EXPECT_EQ(entry.get(options), other_values().at(entry.name)) << entry.name;
  }
}

TEST(OptionsFromEnvironment, LeavesAloneWhatTheProgramHasSet) {
  const Variable variable("KOLO_FUSION_BYTES", "64K");
  EXPECT_EQ(options_from_environment({}).fusion_bytes, 65536u);
  EXPECT_EQ(options_from_environment({.fusion_bytes = 1}).fusion_bytes, 1u);
}

// Flags and the settings of a C program are set by `set_option`.
TEST(OptionsFromEnvironment, LeavesAloneWhatWasSetToTheDefault) {
  for (const OptionEntry& entry : option_table()) {
    const Variable variable(entry.variable(), other_values().at(entry.name));
    Options options;
    const std::string text = entry.get(options);
    set_option(entry, options, entry.flag(), text);
    EXPECT_EQ(entry.get(options_from_environment(options)), text) << entry.name;
  }
}

TEST(OptionTable, SizesCanBeLeftToTheModel) {
  for (const OptionEntry& entry : option_table()) {
    if (entry.name != "fusion_bytes" && entry.name != "chunk_bytes") continue;
    Options options{.fusion_bytes = 1, .chunk_bytes = 1};
    entry.set(options, "auto");
    EXPECT_EQ(entry.get(options), "auto");
    EXPECT_TRUE(options.fusion_bytes == kAutoBytes || options.chunk_bytes == kAutoBytes);
  }
}

TEST(OptionTable, ReduceThreadsMayBeLeftToTheCores) {
  const auto entry = std::ranges::find(option_table(), "reduce_threads", &OptionEntry::name);
  Options options{.reduce_threads = 2};
  entry->set(options, "auto");
  EXPECT_EQ(options.reduce_threads, kAutoThreads);
  EXPECT_EQ(entry->get(options), "auto");
  EXPECT_EQ(options, Options{});
}

TEST(UnknownVariables, AreToldWithTheNameThatWasMeant) {
  const Variable near("KOLO_FUSIONBYTES", "4M");
  const Variable cut("KOLO_WIRE", "float16");
  const Variable far("KOLO_SPEED", "high");
  const Variable other("KOLO_GPU_WORK", "/tmp");
  const Variable known("KOLO_FUSION_BYTES", "4M");
  testing::internal::CaptureStderr();
  warn_about_unknown_variables();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("KOLO_FUSIONBYTES; did you mean KOLO_FUSION_BYTES?\n"));
  EXPECT_THAT(text, HasSubstr("KOLO_WIRE; did you mean KOLO_WIRE_DTYPE?\n"));
  EXPECT_THAT(text, HasSubstr("unknown environment variable KOLO_SPEED; --help"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
}

TEST(ParseBytes, TakesANumberWithOneSuffix) {
  const std::map<std::string, std::size_t> sizes = {
      {"0", 0},
      {"1", 1},
      {"007", 7},
      {"65536", 65536},
      {"0G", 0},
      {"1K", 1024},
      {"1k", 1024},
      {"4M", std::size_t{4} << 20},
      {"16g", std::size_t{16} << 30},
      {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
      {"8589934591G", std::size_t{8589934591} << 30},
  };
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(ParseBytes, RefusesEverythingElse) {
  for (const std::string text :
       {"", "K", "M4", "4 M", " 4M", "4M ", "4MB", "4KK", "4T", "1.5M", "+4", "-1", "-1K", "0x10",
        "8589934592G", "9007199254740992K", "9223372036854775808"}) {
    const auto error = thrown_by([&] { parse_bytes(text); });
    ASSERT_TRUE(error) << "'" << text << "'";
    EXPECT_EQ(error->code, ErrorCode::kConfig);
    EXPECT_THAT(error->what, HasSubstr("'" + text + "'"));
  }
}

}  // namespace
}  // namespace kolo
