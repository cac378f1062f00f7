#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/layers/transformer.h"

namespace kolo::trainer::cuda {
namespace {

/// Elements from one row of logits to the next. Rows begin at multiples of 16 bytes in every dtype,
/// which fast matrix products need, for any vocabulary.
std::size_t logits_stride(const Gpt::Options& o) { return round_up<std::size_t>(o.tokens, 8); }

SelfAttention::Options attention_options(const Gpt::Options& o) {
  return {.sequences = o.sequences,
          .length = o.context,
          .width = o.model.width,
          .heads = o.model.heads};
}

/// The Gpt of trainer/models/gpt.h on a CUDA device.
class CudaGpt final : public CudaModel {
 public:
  CudaGpt(Base base, const Gpt::Options& o, AttentionMode attention)
      : CudaModel(std::move(base)),
        rows_(o.sequences * o.context),
        scratch_(context(), attention_options(o), attention),
        embedding_(context(), device_parameters(), device_parameters().of("embedding.token"),
                   device_parameters().of("embedding.position"),
                   {.sequences = o.sequences, .length = o.context, .width = o.model.width}),
        final_norm_(context(), device_parameters(), "final_norm", rows_, o.model.width),
        output_(context(), device_parameters(), device_parameters().of("embedding.token"), nullptr,
                {.rows = rows_,
                 .inputs = o.model.width,
                 .outputs = o.tokens,
                 .activation = Activation::kNone,
                 .input_activation = Activation::kNone,
                 .is_float32_result = true,
                 .output_stride = logits_stride(o)}),
        embedded_(context().activations(rows_ * o.model.width)),
        normal_(context().activations(rows_ * o.model.width)),
        gradient_(context().activations(rows_ * o.model.width)),
        logits_(context().floats(rows_ * logits_stride(o))) {
    for (std::size_t i = 0; i < o.model.layers; ++i) {
      blocks_.emplace_back(context(), device_parameters(), scratch_, "block" + std::to_string(i),
                           attention_options(o));
    }
  }

 protected:
  const float* forward(const DeviceInputs& inputs) override {
    embedding_.forward(inputs.tokens, embedded_.data());
    last_ = embedded_.data();
    for (TransformerBlock& block : blocks_) last_ = block.forward(last_);
    final_norm_.forward(last_, normal_.data());
    output_.forward({.x = normal_.data(), .y = logits_.data()});
    return floats_of(logits_);
  }

  void backward(const void* logits_gradient, const DeviceInputs& inputs) override {
    void* const narrow = scratch_.narrow.data();
    output_.backward_parameters(normal_.data(), logits_gradient);
    output_.backward_input(logits_gradient, narrow);
    final_norm_.backward({.dy = narrow, .x = last_, .residual = nullptr, .dx = gradient_.data()});
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      block->backward(gradient_.data());
    }
    embedding_.backward(inputs.tokens, inputs.order, gradient_.data());
  }

 private:
  std::size_t rows_;
  BlockScratch scratch_;
  Embedding embedding_;
  std::deque<TransformerBlock> blocks_;
  LayerNorm final_norm_;
  Linear output_;  // shares the token table
  DeviceMemory embedded_;
  DeviceMemory normal_;
  DeviceMemory gradient_;
  DeviceMemory logits_;
  const void* last_ = nullptr;  // output of the last block
};

}  // namespace

std::unique_ptr<CudaModel> make_gpt(kolo::Device& device, const Gpt::Options& shape,
                                    const CudaModelOptions& options) {
  Gpt::Options host = shape;
  host.sequences = 1;
  host.chunk = 1;
  const std::size_t rows = shape.sequences * shape.context;
  trainer::Device processor;
  return make_model<CudaGpt>(device, options, Gpt(processor, host).parameters(),
                             {.inputs = rows, .vocabulary = shape.tokens, .rows = rows},
                             shape.tokens, logits_stride(shape), shape, options.attention);
}

}  // namespace kolo::trainer::cuda
