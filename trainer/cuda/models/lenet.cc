#include <memory>
#include <utility>

#include "trainer/cuda/layers/conv_stage.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/layers/pixel_input.h"
#include "trainer/cuda/models/make_model.h"

namespace kolo::trainer::cuda {
namespace {

Conv2d::Options stage_options(const ImageModelOptions& o, std::size_t height, std::size_t width,
                              std::size_t input_channels, std::size_t output_channels) {
  return {.images = o.images,
          .height = height,
          .width = width,
          .input_channels = input_channels,
          .output_channels = output_channels,
          .kernel = kLenetKernel};
}

/// trainer/models/lenet.h on the device; the one channel of the images is padded for cuDNN.
class CudaLenet final : public CudaModel {
 public:
  CudaLenet(std::unique_ptr<Core> core, const LenetParameters& names, const ImageModelOptions& o)
      : CudaModel(std::move(core)),
        input_(core_->device(), core_->stream(), core_->context(), o.scaling,
               {.count = o.images * o.height * o.width, .channels = kChannelMultiple}),
        stage1_(core_->context(), core_->parameters(), names.conv1,
                stage_options(o, o.height, o.width, 1, kLenetChannels[0])),
        stage2_(core_->context(), core_->parameters(), names.conv2,
                stage_options(o, lenet_reduced(o.height), lenet_reduced(o.width), kLenetChannels[0],
                              kLenetChannels[1])),
        fc1_(make_linear(*core_, names.fc1,
                         {.rows = o.images,
                          .inputs = stage2_.output_count() / o.images,
                          .outputs = o.hidden,
                          .activation = Activation::kRelu,
                          .input_activation = Activation::kRelu})),
        fc2_(make_linear(*core_, names.fc2,
                         {.rows = o.images,
                          .inputs = o.hidden,
                          .outputs = o.classes,
                          .activation = Activation::kNone,
                          .input_activation = Activation::kRelu,
                          .is_float32_result = true})),
        hidden_(core_->context().activations(o.images * o.hidden)),
        hidden_gradient_(core_->context().activations(o.images * o.hidden)),
        stage1_gradient_(core_->context().activations(stage1_.output_count())),
        stage2_gradient_(core_->context().activations(stage2_.output_count())),
        logits_(core_->context().floats(o.images * o.classes)) {}

 protected:
  const float* forward(const std::uint8_t* inputs) override {
    const void* const features = stage2_.forward(stage1_.forward(input_.forward(inputs)));
    fc1_.forward({.x = features, .y = hidden_.data()});
    fc2_.forward({.x = hidden_.data(), .y = logits_.data()});
    return floats_of(logits_);
  }

  void backward(const void* logits_gradient, const std::uint8_t*) override {
    fc2_.backward_parameters(hidden_.data(), logits_gradient);
    fc2_.backward_input(logits_gradient, hidden_gradient_.data(), hidden_.data());
    fc1_.backward_parameters(stage2_.output(), hidden_gradient_.data());
    fc1_.backward_input(hidden_gradient_.data(), stage2_gradient_.data(), stage2_.output());
    stage2_.backward_parameters(stage1_.output(), stage2_gradient_.data());
    stage2_.backward_input(stage1_gradient_.data());
    stage1_.backward_relu(stage1_gradient_.data());
    stage1_.backward_parameters(input_.output(), stage1_gradient_.data());
  }

 private:
  PixelInput input_;
  ConvStage stage1_, stage2_;
  Linear fc1_, fc2_;
  DeviceMemory hidden_;
  DeviceMemory hidden_gradient_;                    // of the input of ReLU
  DeviceMemory stage1_gradient_, stage2_gradient_;  // likewise, after backward through ReLU
  DeviceMemory logits_;
};

}  // namespace

std::unique_ptr<CudaModel> make_lenet(kolo::Device& device, const ImageModelOptions& shape,
                                      const CudaModelOptions& options) {
  return make_model<CudaLenet>(device, options, shape,
                               {.input_bytes = shape.images * shape.height * shape.width,
                                .rows = shape.images,
                                .classes = shape.classes},
                               register_lenet);
}

}  // namespace kolo::trainer::cuda
