// Tests messages between two ranks on different nodes, in one thread.

#include "comm/message/messages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport/tag.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

class NotedMessage final : public Message {
 public:
  NotedMessage(Kind with_kind, int with_peer, std::uint64_t with_tag, std::vector<float>& data) {
    kind = with_kind;
    peer = with_peer;
    tag = with_tag;
    buffer = BufferView(data);
  }
  void complete() noexcept override { is_complete = true; }
  void fail(const Error& /*error*/) noexcept override {}
  bool is_awaited() const override { return true; }

  bool is_complete = false;
};

/// Ranks 0 and 1, each on a node of its own. Rank 0 sends to rank 1.
class TwoNodes {
 public:
  TwoNodes() {
    for (const int rank : {0, 1}) {
      transports_.push_back(hub_.transport(rank));
      messages_.push_back(std::make_unique<Messages>(*transports_.back(), BucketId{1}));
    }
  }

  std::shared_ptr<NotedMessage> send(std::uint64_t tag, std::vector<float>& data) {
    auto message = std::make_shared<NotedMessage>(Message::Kind::kSend, 1, tag, data);
    messages_[0]->submit(message);
    return message;
  }
  std::shared_ptr<NotedMessage> receive(std::uint64_t tag, std::vector<float>& data) {
    auto message = std::make_shared<NotedMessage>(Message::Kind::kReceive, 0, tag, data);
    messages_[1]->submit(message);
    poll();
    return message;
  }

  /// Polls rank 0, then rank 1.
  void poll() {
    ControlFrame received;
    for (std::size_t rank = 0; rank < transports_.size(); ++rank) {
      transports_[rank]->poll();
      while (transports_[rank]->receive_control(received)) {
        const std::optional<Frame> frame = decode(received.bytes);
        ASSERT_TRUE(frame && messages_[rank]->receive(received.peer, *frame));
      }
      messages_[rank]->poll();
    }
  }

 private:
  InProcessHub hub_{ProcessGrid::with_node_sizes({1, 1})};
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Messages>> messages_;
};

// The numbers of the messages no longer fit in the ordinal of a transport's tag.
TEST(Messages, OneThatWaitsIsNotMistakenForOneAMillionLater) {
  if (test::kSanitized) GTEST_SKIP() << "a million messages are left to the Release build";
  constexpr std::size_t kBehindOffer = Messages::kMostInOffer;  // elements; four bytes each
  TwoNodes job;
  std::vector<float> first(kBehindOffer, -1.0F), last(kBehindOffer, -2.0F), passing(1);
  std::vector<float> got_first(kBehindOffer), got_last(kBehindOffer), got(1);
  const auto waits = job.send(7, first);
  for (std::uint32_t number = 1; number < std::uint32_t{1} << kTagOrdinalBits; ++number) {
    passing[0] = static_cast<float>(number);
    job.send(8, passing);
    ASSERT_TRUE(job.receive(8, got)->is_complete) << number;
    ASSERT_EQ(got, passing);
  }
  const auto sent = job.send(8, last);
  EXPECT_TRUE(job.receive(8, got_last)->is_complete);
  EXPECT_TRUE(job.receive(7, got_first)->is_complete);
  EXPECT_EQ(got_last, last);
  EXPECT_EQ(got_first, first);
  EXPECT_TRUE(waits->is_complete && sent->is_complete);
}

}  // namespace
}  // namespace kolo
