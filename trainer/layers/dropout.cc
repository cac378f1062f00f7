#include "trainer/layers/dropout.h"

#include "trainer/kernels/vector.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

/// Apart from the streams of initial values and of permutations, which count from 0.
constexpr std::uint64_t kFirstStream = std::uint64_t{1} << 48;

}  // namespace

std::span<const float> Dropout::forward(std::span<const float> input, const Pass& pass) {
  if (!pass.is_training || options_.share == 0.0f) {
    factors_.fill(1.0f);
    return input;
  }
  const std::uint64_t key = Random(options_.seed, kFirstStream + options_.layer).next();
  const std::uint64_t epoch_key = Random(key, pass.epoch).next();
  const float kept = 1.0f / (1.0f - options_.share);
  for (std::size_t i = 0; i < options_.samples; ++i) {
    Random random(epoch_key, pass.first_position + i);
    for (float& factor : factors_.span().subspan(i * options_.width, options_.width)) {
      factor = random.uniform() < options_.share ? 0.0f : kept;
    }
  }
  multiply_elements(input, factors_.span(), output_.span());
  return output_.span();
}

std::span<const float> Dropout::backward(std::span<const float> output_gradient) {
  multiply_elements(output_gradient, factors_.span(), input_gradient_.span());
  return input_gradient_.span();
}

}  // namespace kolo::trainer
