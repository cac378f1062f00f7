// Tensors of a message: how an offer lists them, which receives it fits, and their bytes.

#include "comm/message/message_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PartsReceive final : public Message {
 public:
  explicit PartsReceive(std::vector<BufferView> given) {
    kind = Kind::kReceive;
    if (given.size() == 1) {
      buffer = given.front();
    } else {
      tensors = std::move(given);
    }
  }
  void complete() noexcept override {}
  void fail(const Error& /*error*/) noexcept override {}
  bool is_awaited() const override { return false; }
};

BufferView without_memory(std::size_t count, DType dtype) { return {nullptr, count, dtype}; }

Offer offer_of_tensors(const std::vector<BufferView>& tensors) {
  Offer offer;
  describe_in(offer, tensors);
  return offer;
}

TEST(MessageParts, AnOfferListsThem) {
  const Offer offer =
      offer_of_tensors({without_memory(3, DType::kFloat32), without_memory(0, DType::kInt64),
                        without_memory(5, DType::kUInt8)});
  EXPECT_EQ(bytes_of(offer), 17u);
  EXPECT_EQ(count_of(offer), 8u);
  EXPECT_EQ(describe_tensors(offer), "float32 [3] + int64 [0] + uint8 [5]");
  const Offer alone = offer_of_tensors({without_memory(3, DType::kFloat32)});
  EXPECT_EQ(bytes_of(alone), 12u);
  EXPECT_EQ(describe_tensors(alone), "3 elements of float32");
}

TEST(MessageParts, MoreBytesThanMemoryHasAreNone) {
  constexpr std::uint64_t kQuarter = std::uint64_t{1} << 61;
  EXPECT_EQ(bytes_of({.count = kQuarter, .dtype = DType::kUInt8, .more = {{1, DType::kUInt8}}}),
            kQuarter + 1);
  EXPECT_EQ(bytes_of({.count = kQuarter, .dtype = DType::kFloat32}), std::nullopt);
  EXPECT_EQ(bytes_of({.count = 1, .more = {{kQuarter, DType::kComplex128}}}), std::nullopt);
  const OfferedTensor quarter{.count = kQuarter, .dtype = DType::kUInt8};
  EXPECT_EQ(bytes_of({.dtype = DType::kUInt8, .more = {quarter, quarter, quarter}}), 3 * kQuarter);
  EXPECT_EQ(bytes_of({.dtype = DType::kUInt8, .more = {quarter, quarter, quarter, quarter}}),
            std::nullopt);
}

TEST(MessageParts, OneFitsALongerBufferAndSeveralFitTheSameOnes) {
  const BufferView three = without_memory(3, DType::kFloat32);
  const BufferView four = without_memory(4, DType::kFloat32);
  const BufferView bytes = without_memory(3, DType::kUInt8);
  const auto fit = [](const std::vector<BufferView>& sent, const std::vector<BufferView>& asked) {
    return fits(offer_of_tensors(sent), PartsReceive(asked));
  };
  EXPECT_TRUE(fit({three}, {three}));
  EXPECT_TRUE(fit({three}, {four}));
  EXPECT_FALSE(fit({four}, {three}));
  EXPECT_FALSE(fit({three}, {bytes}));
  EXPECT_TRUE(fit({three, bytes}, {three, bytes}));
  EXPECT_FALSE(fit({three, bytes}, {four, bytes}));
  EXPECT_FALSE(fit({three, three}, {three, four}));
  EXPECT_FALSE(fit({three, bytes}, {bytes, three}));
  EXPECT_FALSE(fit({three, bytes}, {three, three}));
  EXPECT_FALSE(fit({three, bytes}, {three, bytes, bytes}));
  EXPECT_FALSE(fit({three, bytes}, {three}));
  EXPECT_FALSE(fit({three}, {three, bytes}));
}

TEST(MessageParts, AMisfitIsDescribed) {
  const std::vector<BufferView> pair = {without_memory(3, DType::kFloat32),
                                        without_memory(2, DType::kInt64)};
  const BufferView nine = without_memory(9, DType::kFloat32);
  EXPECT_EQ(describe_misfit(offer_of_tensors({nine}), PartsReceive(pair)),
            "which receives float32 [3] + int64 [2]");
  EXPECT_EQ(describe_misfit(offer_of_tensors(pair), PartsReceive({nine})),
            "which receives float32 [9]");
  std::vector<BufferView> many(20, nine);
  const Offer offer = offer_of_tensors(many);
  EXPECT_EQ(describe_tensors(offer), "20 tensors");
  many[17].count = 8;
  many[18].dtype = DType::kInt32;
  EXPECT_EQ(describe_misfit(offer, PartsReceive(many)),
            "which receives 20 tensors; the first that differ are number 17, float32 [9] and "
            "float32 [8]");
  many.resize(19);
  EXPECT_EQ(describe_misfit(offer, PartsReceive(many)), "which receives 19 tensors");
}

TEST(MessageParts, AreOnePieceWhereTheyLieOneBehindAnother) {
  std::vector<std::byte> memory(100);
  const auto part = [&](std::size_t first, std::size_t count) {
    return BufferView{memory.data() + first, count, DType::kUInt8};
  };
  const std::vector<BufferView> line = {part(10, 5), part(90, 0), part(15, 20), part(35, 1)};
  const auto piece = in_one_piece(line);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->data(), memory.data() + 10);
  EXPECT_EQ(piece->size(), 26u);
  EXPECT_FALSE(in_one_piece(std::vector{part(10, 5), part(16, 5)}));
  EXPECT_FALSE(in_one_piece(std::vector{part(15, 5), part(10, 5)}));
  EXPECT_TRUE(in_one_piece(std::vector{part(1, 0), without_memory(0, DType::kInt64)})->empty());
}

TEST(MessageParts, TheirBytesComeBack) {
  std::vector<std::byte> memory(60), copy(60);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
  const auto tensors_in = [](std::vector<std::byte>& where) {
    return std::vector<BufferView>{
        {where.data() + 40, 3, DType::kInt32},
        {nullptr, 0, DType::kFloat32},
        {where.data() + 5, 7, DType::kUInt8},
    };
  };
  std::vector<std::byte> packed(19);
  pack(tensors_in(memory), packed.data());
  EXPECT_EQ(packed.front(), std::byte{40});
  EXPECT_EQ(packed.back(), std::byte{11});
  unpack(packed, tensors_in(copy));
  for (std::size_t i = 0; i < copy.size(); ++i) {
    const bool is_part = (i >= 40 && i < 52) || (i >= 5 && i < 12);
    EXPECT_EQ(copy[i], is_part ? memory[i] : std::byte{0}) << i;
  }
}

// A message may be shorter than its buffer.
TEST(MessageParts, OnlyBytesThatCameAreWritten) {
  std::vector<std::byte> memory(8, std::byte{9});
  const BufferView buffer{memory.data(), 8, DType::kUInt8};
  unpack(std::vector(3, std::byte{1}), {&buffer, 1});
  EXPECT_EQ(memory[2], std::byte{1});
  EXPECT_EQ(memory[3], std::byte{9});
}

}  // namespace
}  // namespace kolo
