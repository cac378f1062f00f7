#include "compression/payload.h"

#include <cstring>

#include "comm/base/check.h"
#include "compression/value_codec.h"

namespace kolo {
namespace {

struct Header {
  std::uint64_t used_bytes;
  std::uint32_t pairs;
  std::uint32_t not_finite;
};

// Offsets of the parts of a payload.
struct Parts {
  std::size_t segments, values, indices, end;
};

Parts parts_of(const PayloadPlan& plan, std::size_t pairs) {
  constexpr std::size_t kUnit = sizeof(std::uint32_t);
  Parts parts{};
  parts.segments = sizeof(Header);
  parts.values = parts.segments + plan.segments * sizeof(PayloadSegment);
  const std::size_t values_end = parts.values + pairs * size_of(plan.wire);
  parts.indices = (values_end + kUnit - 1) / kUnit * kUnit;
  parts.end = parts.indices + index_bytes(plan.coding, plan.domain, pairs);
  return parts;
}

Header header_of(const PayloadPlan& plan, std::span<const std::byte> payload) {
  ensure(payload.size() >= sizeof(Header), "a payload without a header");
  Header header;
  std::memcpy(&header, payload.data(), sizeof(header));
  ensure(header.pairs <= plan.most_pairs && header.used_bytes == plan.bytes(header.pairs) &&
             (header.not_finite == 0 || header.pairs == 0),
         "a payload of another plan");
  return header;
}

PayloadSegment segment_of(std::span<const std::byte> payload, std::size_t i) {
  PayloadSegment segment;
  std::memcpy(&segment, payload.data() + sizeof(Header) + i * sizeof(segment), sizeof(segment));
  return segment;
}

}  // namespace

std::size_t PayloadPlan::bytes(std::size_t pairs) const { return parts_of(*this, pairs).end; }

std::size_t encode_payload(const PayloadPlan& plan, std::span<const PayloadSegment> segments,
                           const PairsView& pairs, std::span<std::byte> out) {
  check(segments.size() == plan.segments, "a payload with another number of tensors");
  check(pairs.size() <= plan.most_pairs, "more pairs than a payload was planned for");
  const Parts parts = parts_of(plan, pairs.size());
  check(out.size() >= parts.end, "a payload's memory is smaller than planned");
  const Header header{
      .used_bytes = parts.end, .pairs = narrow<std::uint32_t>(pairs.size()), .not_finite = 0};
  std::memcpy(out.data(), &header, sizeof(header));
  if (!segments.empty()) {
    std::memcpy(out.data() + parts.segments, segments.data(), segments.size_bytes());
  }
  std::size_t begin = 0;
  for (const PayloadSegment& segment : segments) {
    check(segment.pairs <= pairs.size() - begin, "tensors' pairs do not add up");
    const std::size_t width = size_of(plan.wire);
    encode_values(plan.wire, segment.exponent, pairs.values.subspan(begin, segment.pairs),
                  out.subspan(parts.values + begin * width, segment.pairs * width));
    begin += segment.pairs;
  }
  check(begin == pairs.size(), "tensors' pairs do not add up");
  const std::size_t values_end = parts.values + pairs.size() * size_of(plan.wire);
  std::memset(out.data() + values_end, 0, parts.indices - values_end);
  encode_indices(plan.coding, plan.domain, pairs.indices,
                 out.subspan(parts.indices, parts.end - parts.indices));
  return parts.end;
}

std::size_t encode_not_finite(const PayloadPlan& plan, std::span<std::byte> out) {
  const Header header{.used_bytes = plan.bytes(0), .pairs = 0, .not_finite = 1};
  check(out.size() >= header.used_bytes, "a payload's memory is smaller than planned");
  std::memset(out.data(), 0, header.used_bytes);
  std::memcpy(out.data(), &header, sizeof(header));
  return header.used_bytes;
}

bool is_finite(const PayloadPlan& plan, std::span<const std::byte> payload) {
  return header_of(plan, payload).not_finite == 0;
}

std::size_t used_bytes(const PayloadPlan& plan, std::span<const std::byte> payload) {
  return header_of(plan, payload).used_bytes;
}

void decode_payload(const PayloadPlan& plan, std::span<const std::byte> payload, Pairs& pairs) {
  const Header header = header_of(plan, payload);
  ensure(payload.size() >= header.used_bytes, "a payload was cut off");
  const Parts parts = parts_of(plan, header.pairs);
  pairs.indices.resize(header.pairs);
  pairs.values.resize(header.pairs);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < plan.segments; ++i) {
    const PayloadSegment segment = segment_of(payload, i);
    ensure(segment.pairs <= header.pairs - begin, "tensors' pairs do not add up");
    ensure(is_exponent_of(plan.wire, segment.exponent), "no such exponent for a payload's values");
    const std::size_t width = size_of(plan.wire);
    decode_values(plan.wire, segment.exponent,
                  payload.subspan(parts.values + begin * width, segment.pairs * width),
                  std::span(pairs.values).subspan(begin, segment.pairs));
    begin += segment.pairs;
  }
  ensure(begin == header.pairs, "tensors' pairs do not add up");
  decode_indices(plan.coding, plan.domain,
                 payload.subspan(parts.indices, parts.end - parts.indices), pairs.indices);
}

}  // namespace kolo
