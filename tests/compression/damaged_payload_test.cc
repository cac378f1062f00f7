// Payloads whose bytes are not what was sent: refused, or pairs that the plan allows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "comm/base/error.h"
#include "compression/payload.h"

namespace kolo {
namespace {

constexpr std::uint64_t kDamageSeed = 8;
constexpr int kMutations = 30'000;

TEST(DamagedPayload, IsRefusedOrHoldsPairsOfItsPlan) {
  SCOPED_TRACE("seed " + std::to_string(kDamageSeed));
  std::mt19937_64 random(kDamageSeed);
  int refused = 0, accepted = 0;
  Pairs decoded;
  for (int i = 0; i < kMutations; ++i) {
    constexpr DType kWireTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
    const PayloadPlan plan{.wire = kWireTypes[i % 3],
                           .coding = random() % 2 == 0 ? IndexCoding::kU32 : IndexCoding::kU16Pages,
                           .domain = 1 + random() % 200'000,
                           .segments = 2,
                           .most_pairs = 20};
    Pairs pairs;
    for (std::uint32_t index = 0; index < plan.domain && pairs.size() < 20; index += 10'007) {
      pairs.add(index, 1.5f);
    }
    const auto count = static_cast<std::uint32_t>(pairs.size());
    const std::vector<PayloadSegment> segments = {{count / 2, 0}, {count - count / 2, 0}};
    std::vector<std::byte> bytes(plan.capacity());
    bytes.resize(encode_payload(plan, segments, pairs, bytes));
    for (std::size_t left = 1 + random() % 3; left > 0; --left) {
      bytes[random() % bytes.size()] =
          random() % 4 == 0 ? std::byte{0xff} : static_cast<std::byte>(random());
    }
    // A copy of exactly this size, so that the address sanitizer sees a read beyond it.
    const std::vector<std::byte> sent(
        bytes.begin(),
        bytes.begin() + static_cast<std::ptrdiff_t>(random() % 8 == 0 ? random() % bytes.size()
                                                                      : bytes.size()));
    try {
      decode_payload(plan, sent, decoded);
      ++accepted;
      ASSERT_EQ(plan.bytes(decoded.size()), used_bytes(plan, sent)) << "mutation " << i;
      ASSERT_LE(decoded.size(), plan.most_pairs) << "mutation " << i;
      ASSERT_EQ(decoded.values.size(), decoded.size()) << "mutation " << i;
      ASSERT_THAT(decoded.indices, testing::Each(testing::Lt(plan.domain))) << "mutation " << i;
    } catch (const KoloError& e) {
      ++refused;
      ASSERT_EQ(e.error().code, ErrorCode::kInternal) << "mutation " << i;
    }
  }
  EXPECT_GT(accepted, kMutations / 100);
  EXPECT_GT(refused, kMutations / 10);
}

}  // namespace
}  // namespace kolo
