// Every option refuses a bad value with the same error, whether it is in the flag, the environment
// variable or the field of `Options`.

#include <gmock/gmock.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>

#include <array>
#include <chrono>

#include "comm/base/error.h"
#include "runtime/api/kolo.h"
#include "runtime/options/option_table.h"
#include "runtime/tools/command_line.h"
#include "tests/support/memory_rendezvous.h"

namespace kolo {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

/// A value that an option must refuse, as text and in code, and the expected error text.
struct BadValue {
  std::string option;
  std::string text;                        ///< The value for flag and variable.
  std::function<void(Options&)> set = {};  ///< Sets it in code; null if the field cannot hold it.
  ErrorCode code = ErrorCode::kConfig;
  std::string says = {};
};

constexpr std::size_t kTooManyBytes = (std::size_t{1} << 47) + 1;
const std::string kTooManyBytesText = "140737488355329";
constexpr milliseconds kTooLong = hours(24 * 366);
const std::string kTooLongText = "31622400000";

BadValue bad_bytes(const std::string& option, std::size_t Options::*field) {
  return {.option = option,
          .text = kTooManyBytesText,
          .set = [field](Options& o) { o.*field = kTooManyBytes; },
          .says = "to 131072G"};
}

BadValue bad_ms(const std::string& option, milliseconds Options::*field, milliseconds value,
                const std::string& text) {
  return {.option = option,
          .text = text,
          .set = [field, value](Options& o) { o.*field = value; },
          .says = "to 31536000000"};
}

BadValue bad_text(const std::string& option, std::string Options::*field, const std::string& text,
                  ErrorCode code, const std::string& says) {
  return {.option = option,
          .text = text,
          .set = [field, text](Options& o) { o.*field = text; },
          .code = code,
          .says = says};
}

std::vector<BadValue> bad_values() {
  constexpr ErrorCode kUsage = ErrorCode::kUsage;
  constexpr ErrorCode kConfig = ErrorCode::kConfig;
  const std::string long_name(256, 'x'), long_path(4097, 'x');
  std::vector<BadValue> values = {
      bad_bytes("fusion_bytes", &Options::fusion_bytes),
      bad_bytes("device_fusion_bytes", &Options::device_fusion_bytes),
      bad_bytes("chunk_bytes", &Options::chunk_bytes),
      bad_bytes("device_chunk_bytes", &Options::device_chunk_bytes),
      bad_bytes("network_window", &Options::network_window),
      bad_bytes("arena_bytes", &Options::arena_bytes),
      bad_bytes("group_arena_bytes", &Options::group_arena_bytes),
      {"chunk_bytes", "0", [](Options& o) { o.chunk_bytes = 0; }, kConfig, "from 1 to"},
      {"device_chunk_bytes", "0", [](Options& o) { o.device_chunk_bytes = 0; }, kConfig,
       "from 1 to"},
      {"arena_bytes", "4095", [](Options& o) { o.arena_bytes = 4095; }, kConfig, "from 4K to"},
      {"arena_bytes", "9223372036854775807K", nullptr, kConfig, "too large"},
      {"network_window", "auto", [](Options& o) { o.network_window = kAutoBytes; }, kConfig, ""},
      bad_text("calibrate", &Options::calibrate, "of", kUsage, "did you mean off?"),
      bad_text("calibrate", &Options::calibrate, "ON", kUsage, "on or off"),
      bad_text("calibrate", &Options::calibrate, "", kUsage, "on or off"),
      {"verify_schedules", "yes", nullptr, kUsage, "on or off"},
      {"reproducible", "yes", nullptr, kUsage, "on or off"},
      bad_text("device", &Options::device, "gpu", kUsage, "cpu, cuda or cuda:INDEX"),
      bad_text("device", &Options::device, "cude", kUsage, "did you mean cuda?"),
      bad_text("device", &Options::device, "cuda:1x", kConfig, "INDEX from 0"),
      bad_text("device", &Options::device, "cuda:-1", kConfig, "INDEX from 0"),
      bad_text("algorithm", &Options::algorithm, long_name, kConfig, "longer than 255"),
      bad_text("algorithm", &Options::algorithm, "rign", kUsage, "did you mean ring?"),
      bad_text("algorithm", &Options::algorithm, "hierarchical:direct,flat", kUsage, "CROSS"),
      bad_text("algorithm", &Options::algorithm, "ring;pairwize", kUsage, "did you mean pairwise?"),
      bad_text("algorithm", &Options::algorithm, "brodcast:ring", kUsage,
               "did you mean broadcast?"),
      bad_text("node_id", &Options::node_id, "a\nb", kConfig, "control characters"),
      bad_text("node_id", &Options::node_id, long_name, kConfig, "longer than 255"),
      bad_text("ucx_library", &Options::ucx_library, long_path, kConfig, "longer than 4096"),
      bad_text("nccl_library", &Options::nccl_library, long_path, kConfig, "longer than 4096"),
      bad_text("timeline", &Options::timeline, long_path, kConfig, "longer than 4096"),
      bad_text("calibration_file", &Options::calibration_file, "a\tb", kConfig,
               "control characters"),
      bad_text("link_costs", &Options::link_costs, "x=1", kConfig, "network_latency_us"),
      bad_text("link_costs", &Options::link_costs, "network_latency_us=-1", kConfig, "negative"),
      bad_text("compression", &Options::compression, "tpok(0.1)", kUsage, "did you mean topk?"),
      bad_text("compression", &Options::compression, "topk(0.1,rout=auto)", kUsage,
               "did you mean route=?"),
      bad_text("compression", &Options::compression, "topk(2)", kConfig, "density 2"),
      bad_text("compression", &Options::compression, "", kConfig, ""),
      {"wire_dtype", "int32", [](Options& o) { o.wire_dtype = DType::kInt32; }, kUsage, "float32"},
      {"wire_dtype", "floot16", nullptr, kUsage, "did you mean float16?"},
      {"spin", "-2", [](Options& o) { o.spin = microseconds(-2); }, kConfig, "from -1 to 60000000"},
      {"spin", "60000001", [](Options& o) { o.spin = microseconds(60'000'001); }, kConfig,
       "microseconds"},
      {"reduce_threads", "257", [](Options& o) { o.reduce_threads = 257; }, kConfig, "to 256"},
      {"reduce_threads", "-2", [](Options& o) { o.reduce_threads = -2; }, kConfig, "from 0"},
  };
  const std::array<std::pair<std::string, milliseconds Options::*>, 6> times = {
      {{"connect_timeout", &Options::connect_timeout},
       {"mismatch_after", &Options::mismatch_after},
       {"peer_timeout", &Options::peer_timeout},
       {"stall_warn", &Options::stall_warn},
       {"stall_abort", &Options::stall_abort},
       {"operation_timeout", &Options::operation_timeout}}};
  const std::set<std::string> may_be_zero = {"stall_warn", "stall_abort", "operation_timeout"};
  for (const auto& [name, field] : times) {
    values.push_back(bad_ms(name, field, milliseconds(-1), "-1"));
    values.push_back(bad_ms(name, field, kTooLong, kTooLongText));
    // In nanoseconds (times 10^6), this exceeds 2^63.
    values.push_back(bad_ms(name, field, milliseconds(10'000'000'000'000), "10000000000000"));
    if (!may_be_zero.contains(name)) values.push_back(bad_ms(name, field, milliseconds(0), "0"));
  }
  for (const OptionEntry& entry : option_table()) {
    if (entry.value != "MS") continue;
    values.push_back({.option = entry.name, .text = "-1", .says = "to 31536000000"});
    values.push_back({.option = entry.name, .text = "10s", .says = "milliseconds"});
  }
  return values;
}

const OptionEntry& entry_of(const std::string& name) {
  return *std::ranges::find(option_table(), name, &OptionEntry::name);
}

std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
    return std::nullopt;
  } catch (const KoloError& e) {
    return e.error();
  }
}

void parse_flag(const OptionEntry& entry, const std::string& text) {
  CLI::App app;
  Options options;
  add_runtime_options(app, options);
  // An empty value is a separate argument. A value that begins with a hyphen must not be.
  const std::string flag = text.empty() ? entry.flag() : entry.flag() + "=" + text;
  const std::array<const char*, 3> arguments = {"program", flag.c_str(), ""};
  app.parse(text.empty() ? 3 : 2, arguments.data());
}

void expect_refused(const std::string& door, const BadValue& bad,
                    const std::function<void()>& call) {
  const auto error = error_of(call);
  ASSERT_TRUE(error) << door << ": '" << bad.text << "' is accepted";
  EXPECT_EQ(error->code, bad.code) << error->what;
  EXPECT_THAT(error->what, StartsWith(door + ": "));
  EXPECT_THAT(error->what, HasSubstr(bad.says));
}

TEST(OptionErrors, AreTheSameByEveryDoor) {
  for (const BadValue& bad : bad_values()) {
    SCOPED_TRACE(bad.option + " = '" + bad.text + "'");
    const OptionEntry& entry = entry_of(bad.option);
    expect_refused(entry.flag(), bad, [&] { parse_flag(entry, bad.text); });

    ::setenv(entry.variable().c_str(), bad.text.c_str(), 1);
    expect_refused(entry.variable(), bad, [] { options_from_environment({}); });
    ::unsetenv(entry.variable().c_str());

    if (!bad.set) continue;
    Options options;
    bad.set(options);
    const std::string field = "options." + bad.option;
    expect_refused(field, bad, [&] { options_from_environment(options); });
    expect_refused(field, bad, [&] {
      const Runtime never(std::move(make_memory_rendezvous(1, milliseconds(1000)).front()),
                          options);
    });
  }
}

TEST(OptionErrors, NoOptionIsWithout) {
  std::set<std::string> tested;
  for (const BadValue& bad : bad_values()) tested.insert(bad.option);
  for (const OptionEntry& entry : option_table()) {
    EXPECT_TRUE(tested.contains(entry.name)) << entry.name;
  }
}

TEST(OptionErrors, TextsOfNumbersAreWhole) {
  for (const std::string option :
       {"fusion_bytes", "chunk_bytes", "arena_bytes", "peer_timeout", "spin", "reduce_threads"}) {
    for (const std::string text : {"", "four", "4T", "1.5", "2 ", " 2", "+2", "0x10", "Auto"}) {
      Options options;
      const auto error = error_of([&] { entry_of(option).set(options, text); });
      ASSERT_TRUE(error) << option << " = '" << text << "'";
      EXPECT_EQ(error->code, ErrorCode::kConfig);
      EXPECT_THAT(error->what, HasSubstr("'" + text + "'"));
      EXPECT_EQ(options, Options{});
    }
  }
}

TEST(OptionErrors, TheLongestTimesAreFarFromOverflow) {
  Options options;
  entry_of("peer_timeout").set(options, "31536000000");
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GT(now + 4 * std::chrono::nanoseconds(options.peer_timeout), now);
}

/// Returns the stderr output of a program with the command line `arguments`.
std::string usage_error(const std::vector<const char*>& arguments, int expected_status) {
  CLI::App app("a program", "program");
  app.require_subcommand(1);
  CLI::App& command = *app.add_subcommand("all-reduce");
  std::string memory;
  command.add_option("--memory", memory)->check(one_of({"arena", "user"}));
  Options options;
  add_runtime_options(command, options);
  testing::internal::CaptureStderr();
  const int status =
      run_program(app, static_cast<int>(arguments.size()), arguments.data(), [] { return true; });
  EXPECT_EQ(status, expected_status);
  return testing::internal::GetCapturedStderr();
}

TEST(CommandLine, SuggestsTheNameThatWasMeant) {
  EXPECT_THAT(usage_error({"program", "all-reduce", "--fusion-byte", "4M"}, 64),
              HasSubstr("no option --fusion-byte; did you mean --fusion-bytes? (--help"));
  EXPECT_THAT(usage_error({"program", "all-reduce", "--fusionbytes=4M"}, 64),
              HasSubstr("did you mean --fusion-bytes?"));
  EXPECT_THAT(usage_error({"program", "al-reduce"}, 64),
              HasSubstr("no subcommand 'al-reduce'; did you mean all-reduce?"));
  EXPECT_THAT(usage_error({"program", "all-reduce", "--memory", "arenas"}, 64),
              HasSubstr("'arenas' is not arena or user; did you mean arena?"));
  EXPECT_THAT(usage_error({"program", "all-reduce", "--device", "cpuu"}, 64),
              HasSubstr("--device: 'cpuu' is not cpu, cuda or cuda:INDEX; did you mean cpu?"));
  EXPECT_THAT(usage_error({"program", "all-reduce", "--speed", "4"}, 64),
              HasSubstr("no option --speed (--help"));
  EXPECT_THAT(usage_error({"program", "all-reduce", "--peer-timeout", "10000000000000"}, 78),
              HasSubstr("--peer-timeout: '10000000000000' is not a number of milliseconds"));
  EXPECT_EQ(usage_error({"program", "all-reduce", "--fusion-bytes", "4M"}, 0), "");
}

TEST(CommandLine, HelpListsEveryExitStatus) {
  const std::string help = help_footer();
  for (int code = 0; code <= static_cast<int>(kLastErrorCode); ++code) {
    const std::string status = std::to_string(exit_status(static_cast<ErrorCode>(code)));
    EXPECT_THAT(help, HasSubstr("\n  " + status + "  "));
  }
}

TEST(CommandLine, AnErrorThatIsLoggedIsNotRepeated) {
  const auto stderr_of = [](const Error& error) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_program([&]() -> int { throw KoloError(error); }), 69);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(stderr_of({.code = ErrorCode::kPeerLost, .what = "gone"}), HasSubstr("gone\n"));
  EXPECT_EQ(stderr_of({.code = ErrorCode::kPeerLost, .what = "gone", .logged = true}), "");
}

}  // namespace
}  // namespace kolo
