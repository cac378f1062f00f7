// Each text for each option is either refused with an error that names it, or accepted as a value
// whose text gives the same value.

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "compression/compression_method.h"
#include "runtime/options/option_table.h"
#include "tests/support/random_text.h"

namespace kolo {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr int kTexts = 4000;

/// Returns texts that each kind of option accepts.
const std::map<std::string, std::vector<std::string>>& taken() {
  static const std::map<std::string, std::vector<std::string>> texts = {
      {"compression",
       {"none", "*.bias=none,*=topk(0.01)", "auto(0.25,bf16)", "topk(0.1,dgc)",
        "a?=fp16,topk( 0.02 , fp32, dgc=0.8, warmup=200, ramp=100, nofeedback, rule=lossless, "
        "route=owners, scope=flat )"}},
      {"device", {"cpu", "cuda", "cuda:1"}},
      {"link_costs", {"network_latency_us=2.5,bucket_us=1", "node_rates=1200:0:7.5e3"}},
  };
  return texts;
}

constexpr const char* kWords =
    "fp32 ( ) , = * ? : - + . 0 1 0.01 1e-3 1e-320 nan inf 9223372036854775807 "
    "18446744073709551616 K M G dgc warmup ramp nofeedback rule quota lossless route owners "
    "allgather scope nodes flat network_latency_us= node_rates= bucket_us= float32 "
    "float16 bfloat16 int32 on off cpu cuda: layer.weight";

TEST(OptionTexts, AreRefusedByNameOrComeBack) {
  std::istringstream stream(kWords);
  std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
  for (const char odd : {' ', '\0'}) words.emplace_back(1, odd);
  for (const CompressionMethod* method : compression_methods()) words.emplace_back(method->name);
  test::RandomText texts(kSeed, words);
  for (const OptionEntry& entry : option_table()) {
    SCOPED_TRACE(entry.name + ", seed " + std::to_string(kSeed));
    const auto found = taken().find(entry.name);
    const std::vector<std::string> whole =
        found != taken().end() ? found->second : std::vector<std::string>{"4096", "auto", "on"};
    int accepted = 0;
    for (int i = 0; i < kTexts; ++i) {
      const std::string text = texts.next(whole);
      Options options;
      try {
        entry.set(options, text);
      } catch (const KoloError& e) {
        ASSERT_TRUE(e.error().code == ErrorCode::kConfig || e.error().code == ErrorCode::kUsage)
            << "'" << text << "'";
        ASSERT_FALSE(e.error().what.empty()) << "'" << text << "'";
        ASSERT_EQ(options, Options{}) << "'" << text << "' was refused, but left something";
        continue;
      }
      ++accepted;
      const std::string own = entry.get(options);
      Options again;
      ASSERT_NO_THROW(entry.set(again, own)) << "'" << own << "' of '" << text << "'";
      ASSERT_EQ(entry.get(again), own) << "of '" << text << "'";
      ASSERT_EQ(again, options) << "'" << own << "' of '" << text << "'";
    }
    EXPECT_GT(accepted, kTexts / 100) << "the texts test nothing but the first word";
  }
}

}  // namespace
}  // namespace kolo
