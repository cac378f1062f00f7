#include "compression/block_payload.h"

#include <cstring>

#include "comm/base/check.h"
#include "compression/value_codec.h"

namespace kolo {
namespace {

using Exponent = std::int16_t;

struct Header {
  std::uint64_t used_bytes;
  std::uint32_t values;
  std::uint32_t blocks;  // or kNotFinite
};
constexpr std::uint32_t kNotFinite = ~std::uint32_t{0};

// Offset of the values.
std::size_t values_at(const BlockPayloadPlan& plan, std::size_t blocks) {
  constexpr std::size_t kUnit = sizeof(float);
  const std::size_t exponents = plan.wire == DType::kFloat16 ? blocks * sizeof(Exponent) : 0;
  return sizeof(Header) + (exponents + kUnit - 1) / kUnit * kUnit;
}

Header header_of(const BlockPayloadPlan& plan, std::span<const std::byte> payload) {
  ensure(payload.size() >= sizeof(Header), "a payload of blocks without a header");
  Header header;
  std::memcpy(&header, payload.data(), sizeof(header));
  const bool is_finite = header.blocks != kNotFinite;
  ensure(is_finite || header.values == 0, "a payload of blocks has values and has none");
  ensure(header.values <= plan.most_values && (!is_finite || header.blocks <= plan.most_blocks) &&
             header.used_bytes <= payload.size() &&
             header.used_bytes == plan.bytes(is_finite ? header.blocks : 0, header.values),
         "a payload of blocks of another plan");
  return header;
}

}  // namespace

std::size_t BlockPayloadPlan::bytes(std::size_t blocks, std::size_t values) const {
  return values_at(*this, blocks) + values * size_of(wire);
}

std::size_t encode_blocks(const BlockPayloadPlan& plan, std::span<const BlockValues> blocks,
                          std::span<std::byte> out) {
  std::size_t values = 0;
  for (const BlockValues& block : blocks) values += block.values.size();
  check(blocks.size() <= plan.most_blocks && values <= plan.most_values,
        "more blocks than a payload was planned for");
  const std::size_t begin = values_at(plan, blocks.size());
  const Header header{.used_bytes = plan.bytes(blocks.size(), values),
                      .values = narrow<std::uint32_t>(values),
                      .blocks = narrow<std::uint32_t>(blocks.size())};
  check(out.size() >= header.used_bytes, "a payload's memory is smaller than planned");
  std::memset(out.data(), 0, begin);
  std::memcpy(out.data(), &header, sizeof(header));
  const std::size_t width = size_of(plan.wire);
  std::byte* exponent = out.data() + sizeof(header);
  std::size_t next = begin;
  for (const BlockValues& block : blocks) {
    const std::size_t bytes = block.values.size() * width;
    encode_values(plan.wire, block.exponent, block.values, out.subspan(next, bytes));
    next += bytes;
    if (plan.wire != DType::kFloat16) continue;
    const auto own = narrow<Exponent>(block.exponent);
    std::memcpy(exponent, &own, sizeof(own));
    exponent += sizeof(own);
  }
  return header.used_bytes;
}

std::size_t encode_blocks_not_finite(const BlockPayloadPlan& plan, std::span<std::byte> out) {
  const Header header{.used_bytes = plan.bytes(0, 0), .values = 0, .blocks = kNotFinite};
  check(out.size() >= header.used_bytes, "a payload's memory is smaller than planned");
  std::memcpy(out.data(), &header, sizeof(header));
  return header.used_bytes;
}

bool blocks_are_finite(const BlockPayloadPlan& plan, std::span<const std::byte> payload) {
  return header_of(plan, payload).blocks != kNotFinite;
}

void decode_blocks(const BlockPayloadPlan& plan, std::span<const std::byte> payload,
                   std::span<const std::size_t> counts, std::span<float> values) {
  const Header header = header_of(plan, payload);
  ensure(header.blocks == counts.size() && header.values == values.size(),
         "a payload of other blocks");
  const std::size_t width = size_of(plan.wire);
  const std::byte* exponent = payload.data() + sizeof(header);
  std::size_t next = values_at(plan, counts.size());
  std::size_t first = 0;
  for (const std::size_t count : counts) {
    Exponent own = 0;
    if (plan.wire == DType::kFloat16) {
      std::memcpy(&own, exponent, sizeof(own));
      exponent += sizeof(own);
      ensure(is_exponent_of(plan.wire, own), "no such exponent for a payload's values");
    }
    decode_values(plan.wire, own, payload.subspan(next, count * width),
                  values.subspan(first, count));
    next += count * width;
    first += count;
  }
}

}  // namespace kolo
