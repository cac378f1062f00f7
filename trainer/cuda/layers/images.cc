#include "trainer/cuda/layers/images.h"

#include <string>
#include <type_traits>
#include <variant>

#include "comm/base/check.h"
#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/kernels/batch_norm.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/cuda/layers/linear.h"

namespace kolo::trainer::cuda {
namespace {

Conv2d::Options padded(Conv2d::Options o) {
  check(o.output_channels % kChannelMultiple == 0,
        "a convolution on a CUDA device has a multiple of 8 output channels");
  o.input_channels = round_up(o.input_channels, kChannelMultiple);
  return o;
}

class ConvolutionLayer final : public DeviceLayer {
 public:
  ConvolutionLayer(const LayerContext& with, const std::string& name, const Conv2d::Options& o)
      : context_(with.context),
        parameters_(with.parameters),
        weight_(parameters_.of(name + ".weight")),
        bias_(o.has_bias ? &parameters_.of(name + ".bias") : nullptr),
        options_(padded(o)),
        filter_shape_{.outputs = o.output_channels,
                      .inputs = o.input_channels,
                      .padded_inputs = options_.input_channels,
                      .kernel = o.kernel},
        places_(o.images * o.output_height() * o.output_width()),
        convolution_(context_.dnn, context_.dtype(), options_),
        filter_(context_.activations(filter_shape_.packed_count())),
        filter_gradient_(context_.activations(filter_shape_.packed_count())),
        y_(context_.activations(places_ * o.output_channels)) {
    check(weight_.size == filter_shape_.parameter_count(), "the weight of a convolution: " + name);
    if (o.input_gradient) {
      dx_ = context_.activations(o.images * o.height * o.width * options_.input_channels);
    }
    if (o.has_bias) context_.reserve_scratch(column_sum_parts(places_) * o.output_channels);
  }

  const void* forward(const void* x, const ImagePass&) override {
    const NativeStream stream = context_.stream();
    x_ = x;
    pack_filter(stream, filter_shape_, weight_.value, context_.dtype(), filter_.data());
    convolution_.forward(x, filter_.data(), y_.data());
    if (bias_ == nullptr) return y_.data();
    bias_activation(stream, {.activation = Activation::kNone,
                             .dtype = context_.dtype(),
                             .rows = places_,
                             .width = options_.output_channels,
                             .x = y_.data(),
                             .bias = bias_->value,
                             .before = nullptr,
                             .y = y_.data()});
    return y_.data();
  }

  const void* backward(const void* dy) override {
    const NativeStream stream = context_.stream();
    convolution_.backward_filter(x_, dy, filter_gradient_.data());
    unpack_filter(stream, filter_shape_, context_.dtype(), filter_gradient_.data(),
                  parameters_.mode(), weight_.gradient);
    parameters_.ready(weight_);
    if (bias_ != nullptr) {
      sum_columns(stream, {.matrix = dy,
                           .dtype = context_.dtype(),
                           .rows = places_,
                           .width = options_.output_channels,
                           .partials = context_.scratch(),
                           .mode = parameters_.mode(),
                           .into = bias_->gradient});
      parameters_.ready(*bias_);
    }
    if (!options_.input_gradient) return nullptr;
    convolution_.backward_data(dy, filter_.data(), dx_.data());
    return dx_.data();
  }

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& weight_;
  DeviceParameter* bias_;    // null without a bias
  Conv2d::Options options_;  // with padded input channels
  FilterShape filter_shape_;
  std::size_t places_;  // images · output height · output width
  Convolution convolution_;
  DeviceMemory filter_, filter_gradient_;  // weight and its gradient in cuDNN's layout
  DeviceMemory y_, dx_;
  const void* x_ = nullptr;
};

class BatchNormLayer final : public DeviceLayer {
 public:
  BatchNormLayer(const LayerContext& with, const std::string& name, const BatchNorm::Options& o)
      : context_(with.context),
        parameters_(with.parameters),
        gain_(parameters_.of(name + ".gain")),
        bias_(parameters_.of(name + ".bias")),
        statistics_(context_.floats(5 * o.channels)),
        y_(context_.activations(o.samples * o.rows_per_sample * o.channels)),
        dx_(context_.activations(o.samples * o.rows_per_sample * o.channels)),
        pass_{.dtype = context_.dtype(),
              .rows = o.samples * o.rows_per_sample,
              .rows_per_sample = o.rows_per_sample,
              .channels = o.channels,
              .gain = gain_.value,
              .bias = bias_.value,
              .running_mean = with.buffers.of(name + ".running_mean").value,
              .running_variance = with.buffers.of(name + ".running_variance").value,
              .mean = floats_of(statistics_) + 3 * o.channels,
              .rstd = floats_of(statistics_) + 4 * o.channels,
              .factors = floats_of(statistics_),
              .y = y_.data()} {
    check(gain_.size == o.channels, "the gain of a batch norm: " + name);
    context_.reserve_scratch(pass_.partial_count());
  }

  const void* forward(const void* x, const ImagePass& pass) override {
    pass_.partials = context_.scratch();
    pass_.header = pass.header;
    pass_.is_training = pass.is_training;
    pass_.x = x;
    batch_norm(context_.stream(), pass_);
    return y_.data();
  }

  const void* backward(const void* dy) override {
    batch_norm_backward(context_.stream(), {.of = pass_,
                                            .dy = dy,
                                            .dx = dx_.data(),
                                            .mode = parameters_.mode(),
                                            .dgain = gain_.gradient,
                                            .dbias = bias_.gradient});
    parameters_.ready(gain_);
    parameters_.ready(bias_);
    return dx_.data();
  }

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& gain_;
  DeviceParameter& bias_;
  DeviceMemory statistics_;  // factors, mean and rstd
  DeviceMemory y_, dx_;
  BatchNormForward pass_;
};

class ReluLayer final : public DeviceLayer {
 public:
  ReluLayer(Context& context, std::size_t count)
      : context_(context),
        count_(count),
        y_(context.activations(count)),
        dx_(context.activations(count)) {}

  const void* forward(const void* x, const ImagePass&) override {
    bias_activation(context_.stream(), {.activation = Activation::kRelu,
                                        .dtype = context_.dtype(),
                                        .rows = 1,
                                        .width = count_,
                                        .x = x,
                                        .bias = nullptr,
                                        .before = nullptr,
                                        .y = y_.data()});
    return y_.data();
  }
  const void* backward(const void* dy) override {
    activation_backward(context_.stream(), Activation::kRelu, context_.dtype(), y_.data(), count_,
                        dy, dx_.data());
    return dx_.data();
  }

 private:
  Context& context_;
  std::size_t count_;
  DeviceMemory y_, dx_;
};

class PoolingLayer final : public DeviceLayer {
 public:
  template <typename Options>
  PoolingLayer(Context& context, const Options& o)
      : pooling_(context.dnn, context.dtype(), o),
        y_(context.activations(o.images * o.output_height() * o.output_width() * o.channels)),
        dx_(context.activations(o.images * o.height * o.width * o.channels)) {}

  const void* forward(const void* x, const ImagePass&) override {
    x_ = x;
    pooling_.forward(x, y_.data());
    return y_.data();
  }
  const void* backward(const void* dy) override {
    pooling_.backward(x_, y_.data(), dy, dx_.data());
    return dx_.data();
  }

 private:
  Pooling pooling_;
  DeviceMemory y_, dx_;
  const void* x_ = nullptr;
};

/// A 1 × 1 convolution whose filter is the identity, with zeros for added channels.
class ShortcutLayer final : public DeviceLayer {
 public:
  ShortcutLayer(Context& context, const PaddedShortcut::Options& o)
      : convolution_(context.dnn, context.dtype(), as_convolution(o)),
        filter_(context.activations(o.output_channels * o.input_channels)),
        y_(context.activations(o.images * o.output_height() * o.output_width() *
                               o.output_channels)),
        dx_(context.activations(o.images * o.height * o.width * o.input_channels)) {
    std::vector<float> identity(o.output_channels * o.input_channels);
    for (std::size_t i = 0; i < o.input_channels; ++i) identity[i * o.input_channels + i] = 1.0f;
    const DeviceMemory uploaded = context.upload(identity);
    cast(context.stream(), floats_of(uploaded), identity.size(), context.dtype(), filter_.data());
  }

  const void* forward(const void* x, const ImagePass&) override {
    convolution_.forward(x, filter_.data(), y_.data());
    return y_.data();
  }
  const void* backward(const void* dy) override {
    convolution_.backward_data(dy, filter_.data(), dx_.data());
    return dx_.data();
  }

 private:
  static Conv2d::Options as_convolution(const PaddedShortcut::Options& o) {
    return {.images = o.images,
            .height = o.height,
            .width = o.width,
            .input_channels = o.input_channels,
            .output_channels = o.output_channels,
            .kernel = 1,
            .stride = o.stride,
            .deviation = 0.0f};
  }

  Convolution convolution_;
  DeviceMemory filter_, y_, dx_;
};

class ResidualLayer final : public DeviceLayer {
 public:
  ResidualLayer(const LayerContext& with, const ResidualOptions& o)
      : context_(with.context),
        inputs_(o.inputs),
        outputs_(o.outputs),
        main_(with, o.main, false),
        shortcut_(with, o.shortcut, false),
        y_(context_.activations(o.outputs)),
        dx_(context_.activations(o.inputs)) {}

  const void* forward(const void* x, const ImagePass& pass) override {
    const void* const main = main_.forward(x, pass);
    add_elements(context_.stream(), context_.dtype(), outputs_, main, shortcut_.forward(x, pass),
                 y_.data());
    return y_.data();
  }
  const void* backward(const void* dy) override {
    const void* const main = main_.backward(dy);
    add_elements(context_.stream(), context_.dtype(), inputs_, main, shortcut_.backward(dy),
                 dx_.data());
    return dx_.data();
  }

 private:
  Context& context_;
  std::size_t inputs_, outputs_;
  DeviceLayers main_, shortcut_;
  DeviceMemory y_, dx_;
};

/// A dense layer, with ReLU after it if its options have that activation.
class DenseLayer final : public DeviceLayer {
 public:
  DenseLayer(const LayerContext& with, const std::string& name, const Linear::Options& o,
             bool has_input_gradient)
      : context_(with.context),
        options_(o),
        linear_(with.context, with.parameters, name, o),
        y_(o.is_float32_result ? context_.floats(o.rows * o.outputs)
                               : context_.activations(o.rows * o.outputs)) {
    if (has_input_gradient) dx_ = context_.activations(o.rows * o.inputs);
    if (has_relu()) before_ = context_.activations(o.rows * o.outputs);
  }

  const void* forward(const void* x, const ImagePass&) override {
    x_ = x;
    linear_.forward({.x = x, .y = y_.data()});
    return y_.data();
  }
  const void* backward(const void* dy) override {
    if (has_relu()) {
      activation_backward(context_.stream(), Activation::kRelu, context_.dtype(), y_.data(),
                          options_.rows * options_.outputs, dy, before_.data());
      dy = before_.data();
    }
    linear_.backward_parameters(x_, dy);
    if (!dx_) return nullptr;
    linear_.backward_input(dy, dx_.data());
    return dx_.data();
  }

 private:
  bool has_relu() const { return options_.activation == Activation::kRelu; }

  Context& context_;
  Linear::Options options_;
  Linear linear_;
  DeviceMemory y_, dx_;
  DeviceMemory before_;  // gradient of ReLU's input
  const void* x_ = nullptr;
};

/// Makes the layer of some options.
struct LayerMaker {
  using Made = std::unique_ptr<DeviceLayer>;

  const LayerContext& with;
  const std::string& name;
  bool has_relu;  // whether ReLU follows
  bool is_logits;

  Made operator()(const trainer::Conv2d::Options& o) const {
    return std::make_unique<ConvolutionLayer>(with, name, o);
  }
  Made operator()(const BatchNorm::Options& o) const {
    return std::make_unique<BatchNormLayer>(with, name, o);
  }
  Made operator()(const ReluOptions& o) const {
    return std::make_unique<ReluLayer>(with.context, o.count);
  }
  Made operator()(const MaxPool::Options& o) const {
    return std::make_unique<PoolingLayer>(with.context, o);
  }
  Made operator()(const AveragePool::Options& o) const {
    return std::make_unique<PoolingLayer>(with.context, o);
  }
  Made operator()(const PaddedShortcut::Options& o) const {
    return std::make_unique<ShortcutLayer>(with.context, o);
  }
  Made operator()(const ResidualOptions& o) const {
    return std::make_unique<ResidualLayer>(with, o);
  }
  Made operator()(const trainer::Linear::Options& o) const {
    const Linear::Options options{.rows = o.rows,
                                  .inputs = o.inputs,
                                  .outputs = o.outputs,
                                  .activation = has_relu ? Activation::kRelu : Activation::kNone,
                                  .is_float32_result = is_logits};
    return std::make_unique<DenseLayer>(with, name, options, o.input_gradient);
  }
};

}  // namespace

DeviceLayers::DeviceLayers(const LayerContext& with, std::span<const ImageLayer> layers,
                           bool has_logits) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool is_last = i + 1 == layers.size();
    const bool has_relu = !is_last && std::holds_alternative<ReluOptions>(layers[i + 1].options);
    layers_.push_back(std::visit(LayerMaker{.with = with,
                                            .name = layers[i].name,
                                            .has_relu = has_relu,
                                            .is_logits = is_last && has_logits},
                                 layers[i].options));
    // A dense layer does the ReLU after it.
    if (has_relu && std::holds_alternative<trainer::Linear::Options>(layers[i].options)) ++i;
  }
}

}  // namespace kolo::trainer::cuda
