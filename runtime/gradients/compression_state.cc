#include "runtime/gradients/compression_state.h"

#include "comm/base/error.h"
#include "compression/state_bytes.h"

namespace kolo {
namespace {

constexpr std::uint64_t kMagic = 0x3153'5345'5250'4d43ULL;  // "CMPRESS1"
constexpr const char* kName = "state of compression";

std::uint64_t as_bits(int value) { return static_cast<std::uint64_t>(std::int64_t{value}); }

/// Packs flags into bits, the first flag in the lowest bit.
template <typename... Flags>
std::uint64_t packed(Flags... flags) {
  std::uint64_t bits = 0;
  int place = 0;
  ((bits |= std::uint64_t{flags} << place++), ...);
  return bits;
}

template <typename... Flags>
void unpack(std::uint64_t bits, Flags&... flags) {
  int place = 0;
  ((flags = (bits >> place++ & 1) != 0), ...);
}

}  // namespace

std::vector<std::byte> to_bytes(const CompressionState& state) {
  StateWriter writer;
  writer.number(kMagic);
  writer.number(state.step);
  writer.number(state.wires.size());
  for (const auto& [gradient, memory] : state.wires) {
    writer.text(gradient);
    writer.number(as_bits(memory.scale.exponent));
    writer.number(as_bits(memory.scale.room));
    writer.number(packed(memory.scale.is_settled, memory.scale.was_settled, memory.told_too_large,
                         memory.told_too_small, memory.may_be_too_small));
  }
  std::vector<std::byte> bytes = writer.take();
  const std::vector<std::byte> feedback = to_bytes(state.feedback);
  bytes.insert(bytes.end(), feedback.begin(), feedback.end());
  return bytes;
}

CompressionState compression_state_from(std::span<const std::byte> bytes) {
  StateReader reader(kName, bytes);
  if (reader.number() != kMagic) reader.fail("these bytes are not such a state");
  CompressionState state{.step = reader.number()};
  for (std::uint64_t left = reader.number(); left > 0; --left) {
    auto& [gradient, memory] = state.wires.emplace_back();
    gradient = reader.text();
    const auto exponent = static_cast<std::int64_t>(reader.number());
    const auto room = static_cast<std::int64_t>(reader.number());
    unpack(reader.number(), memory.scale.is_settled, memory.scale.was_settled,
           memory.told_too_large, memory.told_too_small, memory.may_be_too_small);
    if (!WireScale::is_possible(exponent, room)) {
      reader.fail("the wire exponent is out of range for '" + gradient + "'");
    }
    memory.scale.exponent = static_cast<int>(exponent);
    memory.scale.room = static_cast<int>(room);
  }
  state.feedback = feedback_state_from(reader.rest());
  return state;
}

CompressionState common_state(std::span<const CompressionState> old_ranks) {
  const auto fail = [](const std::string& what) {
    throw KoloError({.code = ErrorCode::kData, .what = std::string(kName) + ": " + what});
  };
  if (old_ranks.empty()) fail("no rank's state was given");
  CompressionState common{.step = old_ranks.front().step, .wires = old_ranks.front().wires};
  for (const CompressionState& rank : old_ranks) {
    if (rank.step != common.step) fail("ranks stopped at different steps");
    if (rank.wires.size() != common.wires.size()) fail("ranks have different gradients");
    for (std::size_t i = 0; i < common.wires.size(); ++i) {
      const auto& [gradient, memory] = rank.wires[i];
      WireMemory& merged = common.wires[i].memory;
      if (gradient != common.wires[i].gradient || memory.scale != merged.scale) {
        fail("ranks disagree about the wire of '" + common.wires[i].gradient + "'");
      }
      merged.told_too_large |= memory.told_too_large;
      merged.told_too_small |= memory.told_too_small;
    }
  }
  return common;
}

}  // namespace kolo
