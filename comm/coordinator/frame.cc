#include "comm/coordinator/frame.h"

#include <utility>

#include "comm/base/byte_codec.h"
#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr Delivery kAllDeliveries[] = {Delivery::kInOffer, Delivery::kBehindOffer,
                                       Delivery::kOnDemand};

constexpr std::size_t kTensorBytes = sizeof(std::uint64_t) + sizeof(std::uint8_t);

void write(ByteWriter& writer, const Offer& offer) {
  writer.number(offer.tag);
  writer.number(offer.number);
  writer.number(offer.count);
  writer.number(static_cast<std::uint8_t>(offer.dtype));
  writer.number(static_cast<std::uint8_t>(offer.delivery));
  writer.number(narrow<std::uint32_t>(offer.more.size()));
  for (const auto& [count, dtype] : offer.more) {
    writer.number(count);
    writer.number(static_cast<std::uint8_t>(dtype));
  }
}

Offer read_offer(ByteReader& reader) {
  Offer offer;
  offer.tag = reader.number<std::uint64_t>();
  offer.number = reader.number<std::uint64_t>();
  offer.count = reader.number<std::uint64_t>();
  offer.dtype = reader.choice(kAllDTypes);
  offer.delivery = reader.choice(kAllDeliveries);
  offer.more.resize(reader.list(kTensorBytes));
  for (auto& [count, dtype] : offer.more) {
    count = reader.number<std::uint64_t>();
    dtype = reader.choice(kAllDTypes);
  }
  return offer;
}

bool has_keys(FrameKind kind) {
  return kind == FrameKind::kReject || kind == FrameKind::kQuery || kind == FrameKind::kInvite;
}
bool has_error(FrameKind kind) {
  return kind == FrameKind::kReject || kind == FrameKind::kWarn || kind == FrameKind::kFail ||
         kind == FrameKind::kRefuse || kind == FrameKind::kDecline;
}

}  // namespace

void encode(const Frame& frame, std::vector<std::byte>& bytes) {
  bytes.clear();
  ByteWriter writer(bytes);
  writer.number(static_cast<std::uint8_t>(frame.kind));
  write(writer, frame.key);
  writer.number(frame.least);
  writer.number(frame.greatest);
  if (has_keys(frame.kind)) {
    writer.number(narrow<std::uint32_t>(frame.keys.size()));
    for (const ProposalKey& key : frame.keys) write(writer, key);
  }
  if (frame.kind == FrameKind::kReport) write(writer, frame.report);
  if (has_error(frame.kind)) write_error(writer, frame.error);
  if (frame.kind == FrameKind::kOffer) {
    write(writer, frame.offer);
    writer.payload(frame.payload);
  }
  if (frame.kind == FrameKind::kInvite) {
    writer.text(frame.text);
    writer.payload(frame.terms);
  }
}

std::optional<Frame> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Frame frame;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(FrameKind::kClosed)) return std::nullopt;
  frame.kind = static_cast<FrameKind>(kind);
  frame.key = read_proposal_key(reader);
  frame.least = reader.number<std::uint64_t>();
  frame.greatest = reader.number<std::uint64_t>();
  if (has_keys(frame.kind)) {
    frame.keys.resize(reader.list(kProposalKeyBytes));
    for (ProposalKey& key : frame.keys) key = read_proposal_key(reader);
  }
  if (frame.kind == FrameKind::kReport) {
    auto report = read_aggregated_report(reader);
    if (!report) return std::nullopt;
    frame.report = std::move(*report);
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
  if (frame.kind == FrameKind::kInvite) {
    frame.text = reader.text();
    const std::span<const std::byte> terms = reader.payload();
    frame.terms.assign(terms.begin(), terms.end());
  }
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return frame;
}

}  // namespace kolo
