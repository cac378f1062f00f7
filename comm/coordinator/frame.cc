#include "comm/coordinator/frame.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <xxhash.h>

#include "comm/base/byte_codec.h"
#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr Delivery kAllDeliveries[] = {Delivery::kInOffer, Delivery::kBehindOffer,
                                       Delivery::kOnDemand};

void write(ByteWriter& writer, const Offer& offer) {
  writer.number(offer.tag);
  writer.number(offer.number);
  writer.number(offer.count);
  writer.number(static_cast<std::uint8_t>(offer.dtype));
  writer.number(static_cast<std::uint8_t>(offer.delivery));
}

Offer read_offer(ByteReader& reader) {
  Offer offer;
  offer.tag = reader.number<std::uint64_t>();
  offer.number = reader.number<std::uint64_t>();
  offer.count = reader.number<std::uint64_t>();
  offer.dtype = reader.choice(kAllDTypes);
  offer.delivery = reader.choice(kAllDeliveries);
  return offer;
}

constexpr std::size_t kTopicBytes = 16;
constexpr std::size_t kLeastPendingBytes = kTopicBytes + 13;
constexpr unsigned kBlockingBit = 1;
constexpr unsigned kPastBit = 2;

void write(ByteWriter& writer, const Topic& topic) {
  writer.number(topic.key);
  writer.number(topic.round);
}

Topic read_topic(ByteReader& reader) {
  Topic topic;
  topic.key = reader.number<std::uint64_t>();
  topic.round = reader.number<std::uint64_t>();
  return topic;
}

bool has_topics(FrameKind kind) { return kind == FrameKind::kReject || kind == FrameKind::kQuery; }
bool has_error(FrameKind kind) {
  return kind == FrameKind::kReject || kind == FrameKind::kWarn || kind == FrameKind::kFail ||
         kind == FrameKind::kRefuse;
}

}  // namespace

std::uint64_t name_key(std::string_view name) { return XXH3_64bits(name.data(), name.size()) >> 1; }

void encode(const Frame& frame, std::vector<std::byte>& bytes) {
  bytes.clear();
  ByteWriter writer(bytes);
  writer.number(static_cast<std::uint8_t>(frame.kind));
  write(writer, frame.topic);
  writer.number(frame.least);
  writer.number(frame.greatest);
  if (has_topics(frame.kind)) {
    writer.number(narrow<std::uint32_t>(frame.topics.size()));
    for (const Topic& topic : frame.topics) write(writer, topic);
  }
  if (frame.kind == FrameKind::kReport) {
    writer.number(static_cast<std::uint8_t>(frame.all_wait ? 1 : 0));
    writer.number(narrow<std::uint32_t>(frame.pending.size()));
    for (const PendingTopic& pending : frame.pending) {
      write(writer, pending.topic);
      writer.number(static_cast<std::uint8_t>((pending.blocking ? kBlockingBit : 0) |
                                              (pending.past ? kPastBit : 0)));
      writer.number(pending.name);
      writer.text(pending.text);
    }
    writer.text(frame.last.text);
    writer.number(static_cast<std::uint64_t>(frame.last.age.count()));
  }
  if (has_error(frame.kind)) write_error(writer, frame.error);
  if (frame.kind == FrameKind::kOffer) {
    write(writer, frame.offer);
    writer.payload(frame.payload);
  }
}

std::optional<Frame> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Frame frame;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(FrameKind::kRoom)) return std::nullopt;
  frame.kind = static_cast<FrameKind>(kind);
  frame.topic = read_topic(reader);
  frame.least = reader.number<std::uint64_t>();
  frame.greatest = reader.number<std::uint64_t>();
  if (has_topics(frame.kind)) {
    frame.topics.resize(reader.list(kTopicBytes));
    for (Topic& topic : frame.topics) topic = read_topic(reader);
  }
  if (frame.kind == FrameKind::kReport) {
    frame.all_wait = reader.number<std::uint8_t>() != 0;
    frame.pending.resize(reader.list(kLeastPendingBytes));
    for (PendingTopic& pending : frame.pending) {
      pending.topic = read_topic(reader);
      const auto bits = reader.number<std::uint8_t>();
      pending.blocking = (bits & kBlockingBit) != 0;
      pending.past = (bits & kPastBit) != 0;
      pending.name = reader.number<std::uint64_t>();
      pending.text = reader.text();
    }
    frame.last.text = reader.text();
    frame.last.age = std::chrono::milliseconds(reader.number<std::uint64_t>());
  }
  if (has_error(frame.kind)) {
    auto error = read_error(reader);
    if (!error) return std::nullopt;
    frame.error = std::move(*error);
  }
  if (frame.kind == FrameKind::kOffer) {
    frame.offer = read_offer(reader);
    frame.payload = reader.payload();
  }
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return frame;
}

}  // namespace kolo
