#include "trainer/layers/dropout_mask.h"

#include "trainer/random.h"

namespace kolo::trainer {
namespace {

/// Apart from the streams of initial values and of permutations, which count from 0.
constexpr std::uint64_t kFirstStream = std::uint64_t{1} << 48;

}  // namespace

bool DropoutMask::begin(const Pass& pass) {
  is_active_ = pass.is_training && options_.share > 0.0f;
  const std::uint64_t key = Random(options_.seed, kFirstStream + options_.layer).next();
  epoch_key_ = Random(key, pass.epoch).next();
  first_position_ = pass.first_position;
  return is_active_;
}

void DropoutMask::fill(std::size_t sample, std::uint64_t part, std::span<float> factors) const {
  const float kept = 1.0f / (1.0f - options_.share);
  const std::uint64_t key = Random(epoch_key_, first_position_ + sample).next();
  Random random(key, part);
  for (float& factor : factors) factor = random.uniform() < options_.share ? 0.0f : kept;
}

}  // namespace kolo::trainer
