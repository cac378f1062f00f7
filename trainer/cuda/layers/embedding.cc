#include "trainer/cuda/layers/embedding.h"

#include "trainer/cuda/kernels/embedding.h"

namespace kolo::trainer::cuda {

Embedding::Embedding(Context& context, DeviceParameters& parameters, DeviceParameter& token,
                     DeviceParameter& position, const Options& options)
    : context_(context),
      parameters_(parameters),
      token_(token),
      position_(position),
      options_(options) {
  const std::size_t rows = options.sequences * options.length;
  context.reserve_scratch(token_parts(rows) * kTokens * options.width);
}

void Embedding::forward(const std::uint8_t* bytes, void* y) {
  embed(context_.stream(), {.dtype = context_.dtype(),
                            .rows = options_.sequences * options_.length,
                            .length = options_.length,
                            .width = options_.width,
                            .bytes = bytes,
                            .token = token_.value,
                            .position = position_.value,
                            .y = y});
}

void Embedding::backward(const std::uint8_t* bytes, const void* dy) {
  embed_backward(context_.stream(), {.dtype = context_.dtype(),
                                     .rows = options_.sequences * options_.length,
                                     .length = options_.length,
                                     .width = options_.width,
                                     .bytes = bytes,
                                     .dy = dy,
                                     .partials = context_.scratch(),
                                     .dtoken = token_.gradient,
                                     .dposition = position_.gradient});
  parameters_.ready(position_);
  parameters_.ready(token_);
}

}  // namespace kolo::trainer::cuda
