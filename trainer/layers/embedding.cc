#include "trainer/layers/embedding.h"

#include "comm/base/check.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

Embedding::Embedding(ParameterSet& parameters, const std::string& name, const Options& options)
    : length_(options.length),
      width_(options.width),
      token_(parameters.add(name + ".token", {256, width_}, {.deviation = options.deviation})),
      position_(
          parameters.add(name + ".position", {length_, width_}, {.deviation = options.deviation})),
      output_({options.sequences * length_, width_}) {}

std::span<const float> Embedding::forward(std::span<const std::uint8_t> bytes) {
  check(bytes.size() * width_ == output_.size(), "an embedding takes as many bytes as it has rows");
  bytes_ = bytes;
  for (std::size_t row = 0; row < bytes.size(); ++row) {
    add(token_.value().subspan(bytes[row] * width_, width_),
        position_.value().subspan(row % length_ * width_, width_),
        output_.span().subspan(row * width_, width_));
  }
  return output_.span();
}

void Embedding::backward(std::span<const float> output_gradient) {
  // [sequences, length · width]: the sum over sequences is a sum of rows.
  sum_rows(output_gradient, position_.gradient());
  position_.gradient_ready();
  for (std::size_t row = 0; row < bytes_.size(); ++row) {
    const std::span<float> into = token_.gradient().subspan(bytes_[row] * width_, width_);
    add(into, output_gradient.subspan(row * width_, width_), into);
  }
  token_.gradient_ready();
}

}  // namespace kolo::trainer
