#include <memory>
#include <utility>

#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/layers/pixel_input.h"
#include "trainer/cuda/models/make_model.h"

namespace kolo::trainer::cuda {
namespace {

/// trainer/models/mlp.h on the device.
class CudaMlp final : public CudaModel {
 public:
  CudaMlp(std::unique_ptr<Core> core, const MlpParameters& names, const ImageModelOptions& o)
      : CudaModel(std::move(core)),
        input_(core_->device(), core_->stream(), core_->context(), o.scaling,
               {.count = o.images * o.height * o.width, .channels = 1}),
        fc1_(make_linear(*core_, names.fc1,
                         {.rows = o.images,
                          .inputs = o.height * o.width,
                          .outputs = o.hidden,
                          .activation = Activation::kRelu})),
        fc2_(make_linear(*core_, names.fc2,
                         {.rows = o.images,
                          .inputs = o.hidden,
                          .outputs = o.hidden,
                          .activation = Activation::kRelu,
                          .input_activation = Activation::kRelu})),
        fc3_(make_linear(*core_, names.fc3,
                         {.rows = o.images,
                          .inputs = o.hidden,
                          .outputs = o.classes,
                          .activation = Activation::kNone,
                          .input_activation = Activation::kRelu,
                          .is_float32_result = true})),
        hidden1_(core_->context().activations(o.images * o.hidden)),
        hidden2_(core_->context().activations(o.images * o.hidden)),
        gradient1_(core_->context().activations(o.images * o.hidden)),
        gradient2_(core_->context().activations(o.images * o.hidden)),
        logits_(core_->context().floats(o.images * o.classes)) {}

 protected:
  const float* forward(const std::uint8_t* inputs) override {
    fc1_.forward({.x = input_.forward(inputs), .y = hidden1_.data()});
    fc2_.forward({.x = hidden1_.data(), .y = hidden2_.data()});
    fc3_.forward({.x = hidden2_.data(), .y = logits_.data()});
    return floats_of(logits_);
  }

  void backward(const void* logits_gradient, const std::uint8_t*) override {
    fc3_.backward_parameters(hidden2_.data(), logits_gradient);
    fc3_.backward_input(logits_gradient, gradient2_.data(), hidden2_.data());
    fc2_.backward_parameters(hidden1_.data(), gradient2_.data());
    fc2_.backward_input(gradient2_.data(), gradient1_.data(), hidden1_.data());
    fc1_.backward_parameters(input_.output(), gradient1_.data());
  }

 private:
  PixelInput input_;
  Linear fc1_, fc2_, fc3_;
  DeviceMemory hidden1_, hidden2_;
  DeviceMemory gradient1_, gradient2_;  // of the input of ReLU
  DeviceMemory logits_;
};

}  // namespace

std::unique_ptr<CudaModel> make_mlp(kolo::Device& device, const ImageModelOptions& shape,
                                    const CudaModelOptions& options) {
  return make_model<CudaMlp>(device, options, shape,
                             {.input_bytes = shape.images * shape.height * shape.width,
                              .rows = shape.images,
                              .classes = shape.classes},
                             register_mlp);
}

}  // namespace kolo::trainer::cuda
