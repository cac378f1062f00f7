// Compares offers and receives in random order with a model that consists of two lists. Also tests
// the tensors of a message: how an offer lists them, which receives match it, and their bytes.

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "comm/message/message_matching.h"

namespace kolo {
namespace {

/// A receive whose result is ignored.
class Receive final : public Message {
 public:
  Receive(int from, std::uint64_t with_tag) {
    kind = Kind::kReceive;
    peer = from;
    tag = with_tag;
  }
  explicit Receive(const std::vector<BufferView>& given) : Receive(kAnyRank, 0) {
    set_parts(given);
  }
  void complete() noexcept override {}
  void fail(const Error& /*error*/) noexcept override {}
  bool is_awaited() const override { return false; }
};

EarlyOffer offer_of(int source, std::uint64_t tag, std::uint64_t number) {
  return {.source = source, .offer = {.tag = tag, .number = number}};
}

/// Matches as in MPI: the lists are in the order of the calls, and the first match is taken.
class Model {
 public:
  struct Sent {
    int source;
    std::uint64_t tag, number;
  };

  std::shared_ptr<Message> take_receive(const Sent& sent) {
    const auto found =
        std::ranges::find_if(receives_, [&](const auto& receive) { return fits(*receive, sent); });
    if (found == receives_.end()) {
      offers_.push_back(sent);
      return nullptr;
    }
    const std::shared_ptr<Message> receive = *found;
    receives_.erase(found);
    return receive;
  }
  std::optional<std::uint64_t> take_offer(const std::shared_ptr<Message>& receive) {
    const auto found =
        std::ranges::find_if(offers_, [&](const Sent& sent) { return fits(*receive, sent); });
    if (found == offers_.end()) {
      receives_.push_back(receive);
      return std::nullopt;
    }
    const std::uint64_t number = found->number;
    offers_.erase(found);
    return number;
  }
  bool has_receives() const { return !receives_.empty(); }
  bool has_offers() const { return !offers_.empty(); }

 private:
  static bool fits(const Message& receive, const Sent& sent) {
    return receive.tag == sent.tag && (receive.peer == kAnyRank || receive.peer == sent.source);
  }

  std::vector<std::shared_ptr<Message>> receives_;
  std::vector<Sent> offers_;
};

TEST(MessageMatching, GivesWhatTheModelGives) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    MessageMatching matching;
    Model model;
    const std::uint64_t tags = seed % 2 == 0 ? 3 : 500;  // a few tags again and again, or many once
    for (std::uint64_t number = 0; number < 1000; ++number) {
      const std::uint64_t tag = random() % tags;
      const auto rank = static_cast<int>(random() % 4);
      if (random() % 2 == 0) {
        const auto receive = matching.take_receive(rank, tag);
        if (receive == nullptr) matching.keep(offer_of(rank, tag, number));
        ASSERT_EQ(receive, model.take_receive({rank, tag, number}));
      } else {
        const auto receive = std::make_shared<Receive>(random() % 3 == 0 ? kAnyRank : rank, tag);
        const auto early = matching.take_offer(*receive);
        if (!early) matching.post(receive);
        const auto expected = model.take_offer(receive);
        ASSERT_EQ(early.has_value(), expected.has_value());
        if (early) {
          ASSERT_EQ(early->offer.number, *expected);
        }
      }
      ASSERT_EQ(matching.has_receives(), model.has_receives());
      ASSERT_EQ(matching.has_offers(), model.has_offers());
    }
  }
}

TEST(MessageMatching, AReceiveFromAnyRankDoesNotOvertakeOneBeforeIt) {
  MessageMatching matching;
  const auto first = std::make_shared<Receive>(2, 7);
  const auto any = std::make_shared<Receive>(kAnyRank, 7);
  matching.post(first);
  matching.post(any);
  EXPECT_EQ(matching.take_receive(1, 7), any);
  matching.post(any);
  EXPECT_EQ(matching.take_receive(2, 7), first);
  EXPECT_EQ(matching.take_receive(2, 7), any);
  EXPECT_EQ(matching.take_receive(2, 7), nullptr);
}

TEST(MessageMatching, AReceiveThatIsWithdrawnTakesNothing) {
  MessageMatching matching;
  const auto first = std::make_shared<Receive>(2, 7);
  const auto second = std::make_shared<Receive>(2, 7);
  matching.post(first);
  matching.post(second);
  EXPECT_TRUE(matching.withdraw(*first));
  EXPECT_FALSE(matching.withdraw(*first));
  EXPECT_EQ(matching.take_receive(2, 7), second);
  EXPECT_FALSE(matching.withdraw(*second));
  EXPECT_FALSE(matching.has_receives());
}

TEST(MessageMatching, WhatIsWithdrawnIsLeftOutInItsLine) {
  MessageMatching matching;
  for (const std::uint64_t number : {1U, 2U, 3U}) matching.keep(offer_of(2, 7, number));
  matching.keep(offer_of(1, 7, 2));
  EXPECT_EQ(matching.withdraw_offer(2, 2)->source, 2);
  EXPECT_FALSE(matching.withdraw_offer(2, 2));
  EXPECT_FALSE(matching.withdraw_offer(0, 1));
  const Receive receive(2, 7);
  EXPECT_EQ(matching.take_offer(receive)->offer.number, 1u);
  EXPECT_EQ(matching.take_offer(receive)->offer.number, 3u);
  EXPECT_FALSE(matching.take_offer(receive));
  EXPECT_TRUE(matching.withdraw_offer(1, 2));
  EXPECT_FALSE(matching.has_offers());

  std::vector<std::shared_ptr<Message>> receives;
  for (const int source : {0, 1, kAnyRank, 1}) {
    receives.push_back(std::make_shared<Receive>(source, 7));
    matching.post(receives.back());
  }
  EXPECT_THAT(matching.withdraw_receives([](const Message& each) { return each.peer == 1; }),
              testing::ElementsAre(receives[1], receives[3]));
  EXPECT_EQ(matching.take_receive(1, 7), receives[2]);
  EXPECT_EQ(matching.take_receive(0, 7), receives[0]);
  EXPECT_FALSE(matching.has_receives());
}

TEST(MessageMatching, VisitsAllThatIsPending) {
  MessageMatching matching;
  for (std::uint64_t tag = 0; tag < 100; ++tag) {
    matching.post(std::make_shared<Receive>(0, tag));
    matching.keep(offer_of(1, tag, tag));
  }
  std::uint64_t receives = 0, offers = 0;
  matching.for_each_receive([&](const Message& receive) { receives += receive.tag + 1; });
  matching.for_each_offer([&](const EarlyOffer& early) { offers += early.offer.number + 1; });
  EXPECT_EQ(receives, 5050u);
  EXPECT_EQ(offers, 5050u);
  matching.clear();
  EXPECT_FALSE(matching.has_receives() || matching.has_offers());
}

using ::testing::AllOf;
using ::testing::HasSubstr;

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
    return fits(offer_of_tensors(sent), Receive(asked));
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
  EXPECT_EQ(describe_misfit(offer_of_tensors({nine}), Receive(pair)),
            "which receives float32 [3] + int64 [2]");
  EXPECT_EQ(describe_misfit(offer_of_tensors(pair), Receive({nine})), "which receives float32 [9]");
  std::vector<BufferView> many(20, nine);
  const Offer offer = offer_of_tensors(many);
  EXPECT_EQ(describe_tensors(offer), "20 tensors");
  many[17].count = 8;
  many[18].dtype = DType::kInt32;
  EXPECT_EQ(describe_misfit(offer, Receive(many)),
            "which receives 20 tensors; the first that differ are number 17, float32 [9] and "
            "float32 [8]");
  many.resize(19);
  EXPECT_EQ(describe_misfit(offer, Receive(many)), "which receives 19 tensors");
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
