#include "compression/payload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

// Elements of a buffer in the L1 cache, between memory of any alignment and the kernels.
constexpr std::size_t kBlock = 512;

void check_wire(DType wire, int exponent) {
  check(wire == DType::kFloat32 || is_16bit_float(wire),
        "values travel as float32, float16 or bfloat16");
  check(is_exponent_of(wire, exponent), "no such exponent for the values of a payload");
}

template <typename Run>
void for_blocks(std::size_t count, const Run& run) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    run(begin, std::min(kBlock, count - begin));
  }
}

std::size_t pages_of(std::size_t domain) { return (domain + kIndexPage - 1) / kIndexPage; }

template <typename T>
void put(std::span<std::byte> out, std::size_t i, T value) {
  std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T get(std::span<const std::byte> in, std::size_t i) {
  T value;
  std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
  return value;
}

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

int fitting_exponent(DType wire, float largest) {
  if (wire != DType::kFloat16 || largest == 0.0f) return 0;
  return std::clamp(14 - std::ilogb(largest), kLeastWireExponent, kMostWireExponent);
}

bool is_exponent_of(DType wire, int exponent) {
  if (wire != DType::kFloat16) return exponent == 0;
  return exponent >= kLeastWireExponent && exponent <= kMostWireExponent;
}

void encode_values(DType wire, int exponent, std::span<const float> values,
                   std::span<std::byte> out) {
  check_wire(wire, exponent);
  check(out.size() == values.size() * size_of(wire), "encoded values have another size");
  if (values.empty()) return;
  if (wire == DType::kFloat32) {
    std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  std::array<std::uint16_t, kBlock> encoded;
  for_blocks(values.size(), [&](std::size_t begin, std::size_t count) {
    to_wire(wire, encoded.data(), DType::kFloat32, values.data() + begin, count, exponent);
    std::memcpy(out.data() + 2 * begin, encoded.data(), 2 * count);
  });
}

void decode_values(DType wire, int exponent, std::span<const std::byte> in,
                   std::span<float> values) {
  check_wire(wire, exponent);
  check(in.size() == values.size() * size_of(wire), "encoded values have another size");
  if (values.empty()) return;
  if (wire == DType::kFloat32) {
    std::memcpy(values.data(), in.data(), in.size());
    return;
  }
  const double scale = std::ldexp(1.0, -exponent);
  std::array<std::uint16_t, kBlock> encoded;
  for_blocks(values.size(), [&](std::size_t begin, std::size_t count) {
    std::memcpy(encoded.data(), in.data() + 2 * begin, 2 * count);
    convert(DType::kFloat32, values.data() + begin, wire, encoded.data(), count, scale);
  });
}

void round_to_wire(DType wire, int exponent, std::span<const float> values,
                   std::span<float> rounded) {
  check(rounded.size() == values.size(), "rounded values have another count");
  std::array<std::byte, kBlock * sizeof(float)> encoded;
  for_blocks(values.size(), [&](std::size_t begin, std::size_t count) {
    const std::span<std::byte> bytes(encoded.data(), count * size_of(wire));
    encode_values(wire, exponent, values.subspan(begin, count), bytes);
    decode_values(wire, exponent, bytes, rounded.subspan(begin, count));
  });
}

IndexCoding smaller_coding(std::size_t domain, std::size_t count) {
  return index_bytes(IndexCoding::kU16Pages, domain, count) <
                 index_bytes(IndexCoding::kU32, domain, count)
             ? IndexCoding::kU16Pages
             : IndexCoding::kU32;
}

std::size_t index_bytes(IndexCoding coding, std::size_t domain, std::size_t count) {
  if (coding == IndexCoding::kU32) return count * sizeof(std::uint32_t);
  return pages_of(domain) * sizeof(std::uint32_t) + count * sizeof(std::uint16_t);
}

void encode_indices(IndexCoding coding, std::size_t domain, std::span<const std::uint32_t> indices,
                    std::span<std::byte> out) {
  check(out.size() == index_bytes(coding, domain, indices.size()),
        "encoded indices have another size");
  if (coding == IndexCoding::kU32) {
    if (!indices.empty()) std::memcpy(out.data(), indices.data(), out.size());
    return;
  }
  const std::span<std::byte> low_halves = out.subspan(pages_of(domain) * sizeof(std::uint32_t));
  std::size_t i = 0;
  for (std::size_t page = 0; page < pages_of(domain); ++page) {
    const std::size_t first = i;
    for (; i < indices.size() && indices[i] / kIndexPage == page; ++i) {
      put(low_halves, i, static_cast<std::uint16_t>(indices[i]));
    }
    put(out, page, static_cast<std::uint32_t>(i - first));
  }
  check(i == indices.size(), "indices ascend and are below their domain");
}

void decode_indices(IndexCoding coding, std::size_t domain, std::span<const std::byte> in,
                    std::span<std::uint32_t> indices) {
  ensure(in.size() == index_bytes(coding, domain, indices.size()),
         "encoded indices have another size");
  if (coding == IndexCoding::kU32) {
    if (!indices.empty()) std::memcpy(indices.data(), in.data(), in.size());
  } else {
    const std::span<const std::byte> low_halves =
        in.subspan(pages_of(domain) * sizeof(std::uint32_t));
    std::size_t i = 0;
    for (std::size_t page = 0; page < pages_of(domain); ++page) {
      const std::size_t count = get<std::uint32_t>(in, page);
      ensure(count <= indices.size() - i, "pages of indices hold too many");
      const auto base = static_cast<std::uint32_t>(page * kIndexPage);
      for (const std::size_t end = i + count; i < end; ++i) {
        indices[i] = base + get<std::uint16_t>(low_halves, i);
      }
    }
    ensure(i == indices.size(), "pages of indices hold too few");
  }
  ensure(std::ranges::all_of(indices, [&](std::uint32_t index) { return index < domain; }),
         "an index is not below its domain");
}

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
