#include "compression/feedback_state.h"

#include <algorithm>
#include <cstdint>

#include "comm/base/check.h"
#include "compression/state_bytes.h"

namespace kolo {
namespace {

constexpr std::uint64_t kMagic = 0x3456'4544'4545'464bULL;  // "KFEEDEV4"
constexpr std::string_view kName = "state of error feedback";

using Residual = FeedbackState::Tensor;

[[noreturn]] void fail(const std::string& what) {
  throw KoloError({.code = ErrorCode::kData, .what = std::string(kName) + ": " + what});
}

std::size_t end_of(const Residual& tensor) { return tensor.first + tensor.residual.size(); }

/// Returns the parts of tensor `name` that old ranks saved, in order; all or none have velocities.
std::vector<const Residual*> parts_of(std::span<const FeedbackState> old_ranks,
                                      const std::string& name) {
  std::vector<const Residual*> parts;
  for (const FeedbackState& old_rank : old_ranks) {
    for (const Residual& tensor : old_rank.tensors) {
      if (tensor.name == name) parts.push_back(&tensor);
    }
  }
  for (const Residual* part : parts) {
    const bool has_velocity = !parts.front()->velocity.empty();
    if (part->velocity.size() != (has_velocity ? part->residual.size() : 0)) {
      fail("only some saved states have a velocity of tensor '" + name + "'");
    }
  }
  return parts;
}

void scale(std::vector<float>& values, double factor) {
  for (float& value : values) value = static_cast<float>(value * factor);
}

}  // namespace

std::vector<std::byte> to_bytes(const FeedbackState& state) {
  StateWriter writer;
  writer.number(kMagic);
  writer.number(state.tensors.size());
  for (const Residual& tensor : state.tensors) {
    writer.text(tensor.name);
    writer.number(tensor.first);
    writer.floats(tensor.residual);
    writer.floats(tensor.velocity);
    writer.floats(tensor.of_sums);
    writer.floats(tensor.factor);
  }
  return writer.take();
}

FeedbackState feedback_state_from(std::span<const std::byte> bytes) {
  StateReader reader(kName, bytes);
  if (reader.number() != kMagic) reader.fail("these bytes are not such a state");
  FeedbackState state;
  for (std::uint64_t left = reader.number(); left > 0; --left) {
    Residual& tensor = state.tensors.emplace_back();
    tensor.name = reader.text();
    tensor.first = reader.number();
    tensor.residual = reader.floats();
    tensor.velocity = reader.floats();
    tensor.of_sums = reader.floats();
    tensor.factor = reader.floats();
    if (!tensor.of_sums.empty() && tensor.of_sums.size() != tensor.residual.size()) {
      reader.fail("tensor '" + tensor.name + "' has sums of another number of elements");
    }
  }
  if (!reader.rest().empty()) reader.fail("the bytes go on after the end of the state");
  return state;
}

FeedbackState remap(std::span<const FeedbackState> old_ranks, const FeedbackShare& share) {
  check(share.ranks > 0 && share.position >= 0 && share.position < share.ranks, "no such rank");
  FeedbackState result;
  for (const FeedbackTensor& wanted : share.tensors) {
    const std::vector<const Residual*> parts = parts_of(old_ranks, wanted.name);
    const bool has_velocity = !parts.empty() && !parts.front()->velocity.empty();
    Residual& sum = result.tensors.emplace_back();
    sum = {.name = wanted.name,
           .residual = std::vector<float>(wanted.count),
           .velocity = std::vector<float>(has_velocity ? wanted.count : 0),
           .first = wanted.first};
    std::size_t covered = 0;
    for (auto part = parts.begin(); part != parts.end(); ++part) {
      const auto before = std::count_if(parts.begin(), part, [&](const Residual* other) {
        return other->first == (*part)->first && end_of(*other) == end_of(**part);
      });
      const std::size_t first = std::max(wanted.first, (*part)->first);
      const std::size_t end = std::min(wanted.first + wanted.count, end_of(**part));
      if (first >= end) continue;
      if (before == 0) covered += end - first;
      if ((*part)->first == wanted.first && (*part)->residual.size() == wanted.count) {
        sum.factor = (*part)->factor;  // equal on all ranks
      }
      if (before % share.ranks != share.position) continue;
      for (std::size_t i = first; i < end; ++i) {
        sum.residual[i - sum.first] += (*part)->residual[i - (*part)->first];
        if (!(*part)->of_sums.empty()) {
          sum.residual[i - sum.first] += (*part)->of_sums[i - (*part)->first];
        }
        if (has_velocity) sum.velocity[i - sum.first] += (*part)->velocity[i - (*part)->first];
      }
    }
    if (covered != wanted.count)
      fail("the saved states lack some elements of tensor '" + wanted.name + "'");
    scale(sum.residual, share.factor);
    scale(sum.velocity, share.factor);
  }
  return result;
}

}  // namespace kolo
