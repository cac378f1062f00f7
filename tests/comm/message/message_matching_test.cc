// Offers and receives in random order, beside a model that knows nothing but two lists.

#include "comm/message/message_matching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace kolo {
namespace {

class Unheeded final : public Message {
 public:
  Unheeded(int from, std::uint64_t with_tag) {
    kind = Kind::kReceive;
    peer = from;
    tag = with_tag;
  }
  void complete() noexcept override {}
  void fail(const Error& /*error*/) noexcept override {}
  bool is_awaited() const override { return false; }
};

EarlyOffer offer_of(int source, std::uint64_t tag, std::uint64_t number) {
  return {.source = source, .offer = {.tag = tag, .number = number}};
}

/// As MPI says: lists in the order of the calls, and the first that fits.
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
    const std::uint64_t tags = seed % 2 == 0 ? 3 : 500;  // few in steady use, or many once
    for (std::uint64_t number = 0; number < 1000; ++number) {
      const std::uint64_t tag = random() % tags;
      const auto rank = static_cast<int>(random() % 4);
      if (random() % 2 == 0) {
        const auto receive = matching.take_receive(rank, tag);
        if (receive == nullptr) matching.keep(offer_of(rank, tag, number));
        ASSERT_EQ(receive, model.take_receive({rank, tag, number}));
      } else {
        const auto receive = std::make_shared<Unheeded>(random() % 3 == 0 ? kAnyRank : rank, tag);
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
  const auto first = std::make_shared<Unheeded>(2, 7);
  const auto any = std::make_shared<Unheeded>(kAnyRank, 7);
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
  const auto first = std::make_shared<Unheeded>(2, 7);
  const auto second = std::make_shared<Unheeded>(2, 7);
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
  const Unheeded receive(2, 7);
  EXPECT_EQ(matching.take_offer(receive)->offer.number, 1u);
  EXPECT_EQ(matching.take_offer(receive)->offer.number, 3u);
  EXPECT_FALSE(matching.take_offer(receive));
  EXPECT_TRUE(matching.withdraw_offer(1, 2));
  EXPECT_FALSE(matching.has_offers());

  std::vector<std::shared_ptr<Message>> receives;
  for (const int source : {0, 1, kAnyRank, 1}) {
    receives.push_back(std::make_shared<Unheeded>(source, 7));
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
    matching.post(std::make_shared<Unheeded>(0, tag));
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

}  // namespace
}  // namespace kolo
