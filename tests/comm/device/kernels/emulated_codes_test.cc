// Compares the kernel that encodes values on the emulated device bit for bit with its reference.

#include <gtest/gtest.h>

#include <vector>

#include "comm/device/kernels/kernels.h"
#include "tests/comm/device/kernels/code_cases.h"
#include "tests/compression/top_k_cases.h"
#include "tests/support/cuda_emulator/device.h"

namespace kolo {
namespace {

using codes::Kind;
using test::CodeCase;

constexpr std::uint32_t kCodeSeed = 29;
constexpr std::uint8_t kUntouched = 0xa5;

struct Encoded {
  std::vector<float> values;
  std::vector<std::uint8_t> codes;
};

template <typename Run>
Encoded encode(const CodeCase& input, Kind kind, std::uint32_t non_finite, const Run& run) {
  Encoded result{.values = input.values,
                 .codes = std::vector<std::uint8_t>(input.bytes, kUntouched)};
  run(Quantisation{.kind = kind,
                   .threshold = 0.3f,
                   .seed = 7,
                   .values = result.values.data(),
                   .out = result.codes.data(),
                   .blocks = input.blocks.data(),
                   .block_count = input.blocks.size(),
                   .non_finite = &non_finite});
  return result;
}

TEST(EmulatedCodes, EqualTheReference) {
  std::mt19937 random(kCodeSeed);
  for (const Kind kind : test::kCodeKinds) {
    for (std::uint32_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", seed " +
                   std::to_string(seed));
      const CodeCase input = test::any_code_case(random, kind);
      const Encoded expected = encode(input, kind, 0, quantise_on_host);
      emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 4});
      const Encoded actual =
          encode(input, kind, 0, [](const Quantisation& task) { launch_quantise(task, nullptr); });
      EXPECT_EQ(actual.codes, expected.codes);
      EXPECT_EQ(test::bits_of(actual.values), test::bits_of(expected.values));
      EXPECT_NE(test::bits_of(actual.values), test::bits_of(input.values));
    }
  }
}

// A step with such a value is discarded.
TEST(EmulatedCodes, AValueThatIsNotFiniteLeavesAllAsItIs) {
  std::mt19937 random(kCodeSeed);
  const CodeCase input = test::any_code_case(random, Kind::kInt8);
  emulator::Device device({.seed = kCodeSeed});
  const auto launch = [](const Quantisation& task) { launch_quantise(task, nullptr); };
  for (const Encoded& result :
       {encode(input, Kind::kInt8, 1, launch), encode(input, Kind::kInt8, 1, quantise_on_host)}) {
    EXPECT_EQ(test::bits_of(result.values), test::bits_of(input.values));
    EXPECT_EQ(result.codes, std::vector<std::uint8_t>(input.bytes, kUntouched));
  }
}

}  // namespace
}  // namespace kolo
