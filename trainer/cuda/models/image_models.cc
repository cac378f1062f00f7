#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/device/device.h"
#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/parameters.h"
#include "trainer/models/image_models.h"

namespace kolo::trainer::cuda {
namespace {

FilterShape filter_shape(const ConvolutionShape& o) {
  check(o.output_channels % kChannelMultiple == 0,
        "a convolution on a CUDA device has a multiple of 8 output channels");
  return {.outputs = o.output_channels,
          .inputs = o.input_channels,
          .padded_inputs = round_up(o.input_channels, kChannelMultiple),
          .kernel = o.kernel};
}

PoolingShape pooling_shape(const ConvolutionShape& o) {
  return {.images = o.images,
          .height = o.height - o.kernel + 1,
          .width = o.width - o.kernel + 1,
          .channels = o.output_channels};
}

std::size_t pooled_count(const PoolingShape& s) {
  return s.images * (s.height / 2) * (s.width / 2) * s.channels;
}

constexpr std::size_t kByteValues = 256;

/// Converts bytes of images to scaled activations, followed by channels of zeros.
///
/// Shape: input [count, image_channels], output [count, channels] of the context's dtype, in memory
/// of this object.
class PixelInput {
 public:
  struct Options {
    std::size_t count;  ///< Number of pixels per batch.
    std::size_t image_channels;
    std::size_t channels;
  };

  /// Blocks until the table of 256 values has been copied to the device.
  PixelInput(kolo::Device& device, Stream& stream, Context& context, const PixelScaling& scaling,
             const Options& options)
      : context_(context),
        options_(options),
        table_(context.floats(kByteValues)),
        output_(context.activations(options.count * options.channels)) {
    std::array<std::uint8_t, kByteValues> bytes;
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    const DeviceMemory pinned = device.allocate(kByteValues * sizeof(float), MemoryKind::kPinned);
    scaling.apply(bytes, {floats_of(pinned), kByteValues});
    stream.copy({table_.data(), kByteValues, DType::kFloat32, MemoryKind::kDevice},
                {pinned.data(), kByteValues, DType::kFloat32, MemoryKind::kPinned});
    const std::unique_ptr<Event> copied = device.make_event();
    stream.record(*copied);
    wait_for(*copied);
  }

  const void* forward(const std::uint8_t* bytes) {
    scale_pixels(context_.stream(), {.bytes = bytes,
                                     .table = floats_of(table_),
                                     .count = options_.count,
                                     .image_channels = options_.image_channels,
                                     .channels = options_.channels,
                                     .dtype = context_.dtype(),
                                     .into = output_.data()});
    return output_.data();
  }
  const void* output() const { return output_.data(); }

 private:
  Context& context_;
  Options options_;
  DeviceMemory table_;
  DeviceMemory output_;
};

/// Two-dimensional convolution with bias and stride 1, without padding.
///
/// Channels: the layer before pads the channels of x with zeros to a multiple of kChannelMultiple;
/// the weight's gradient omits the padding. Output channels are a multiple of kChannelMultiple.
/// Shape:    x is [images, height, width, padded input channels], y [images, height - kernel + 1,
///           width - kernel + 1, output channels], both of the context's dtype.
/// Errors:   UsageError if output channels are not such a multiple.
class Conv2d {
 public:
  Conv2d(Context& context, DeviceParameters& parameters, const std::string& name,
         const ConvolutionShape& o)
      : context_(context),
        parameters_(parameters),
        weight_(parameters.of(name + ".weight")),
        bias_(parameters.of(name + ".bias")),
        filter_shape_(filter_shape(o)),
        places_(o.images * (o.height - o.kernel + 1) * (o.width - o.kernel + 1)),
        convolution_(context.dnn, context.dtype(),
                     {.images = o.images,
                      .height = o.height,
                      .width = o.width,
                      .input_channels = filter_shape_.padded_inputs,
                      .output_channels = o.output_channels,
                      .kernel = o.kernel}),
        filter_(context.activations(filter_shape_.packed_count())),
        filter_gradient_(context.activations(filter_shape_.packed_count())) {
    context.reserve_scratch(column_sum_parts(places_) * o.output_channels);
  }

  void forward(const void* x, void* y) {
    const NativeStream stream = context_.stream();
    pack_filter(stream, filter_shape_, weight_.value, context_.dtype(), filter_.data());
    convolution_.forward(x, filter_.data(), y);
    bias_activation(stream, {.activation = Activation::kNone,
                             .dtype = context_.dtype(),
                             .rows = places_,
                             .width = filter_shape_.outputs,
                             .x = y,
                             .bias = bias_.value,
                             .before = nullptr,
                             .y = y});
  }
  /// Computes the gradients of weight and bias, and reports them ready.
  void backward_parameters(const void* x, const void* dy) {
    const NativeStream stream = context_.stream();
    convolution_.backward_filter(x, dy, filter_gradient_.data());
    unpack_filter(stream, filter_shape_, context_.dtype(), filter_gradient_.data(),
                  parameters_.mode(), weight_.gradient);
    parameters_.ready(weight_);
    sum_columns(stream, {.matrix = dy,
                         .dtype = context_.dtype(),
                         .rows = places_,
                         .width = filter_shape_.outputs,
                         .partials = context_.scratch(),
                         .mode = parameters_.mode(),
                         .into = bias_.gradient});
    parameters_.ready(bias_);
  }
  void backward_input(const void* dy, void* dx) {
    convolution_.backward_data(dy, filter_.data(), dx);
  }

  std::size_t output_count() const { return places_ * filter_shape_.outputs; }

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& weight_;
  DeviceParameter& bias_;
  FilterShape filter_shape_;
  std::size_t places_;  // images · output height · output width
  Convolution convolution_;
  DeviceMemory filter_, filter_gradient_;  // weight and its gradient in cuDNN's layout
};

/// A convolutional stage of LeNet: y = relu(pool(conv(x))). ReLU after the pooling gives the same
/// result as before it, with a quarter of the elements.
///
/// Shape: x is that of Conv2d; y is [images, (height - kernel + 1) / 2, (width - kernel + 1) / 2,
///        output_channels] of the context's dtype, and belongs to the stage.
class ConvStage {
 public:
  ConvStage(Context& context, DeviceParameters& parameters, const std::string& name,
            const ConvolutionShape& options)
      : context_(context),
        convolution_(context, parameters, name, options),
        pooling_(context.dnn, context.dtype(), pooling_shape(options)),
        output_count_(pooled_count(pooling_shape(options))),
        convolved_(context.activations(convolution_.output_count())),
        pooled_(context.activations(output_count_)),
        output_(context.activations(output_count_)),
        convolved_gradient_(context.activations(convolution_.output_count())) {}

  const void* forward(const void* x) {
    convolution_.forward(x, convolved_.data());
    pooling_.forward(convolved_.data(), pooled_.data());
    bias_activation(context_.stream(), {.activation = Activation::kRelu,
                                        .dtype = context_.dtype(),
                                        .rows = 1,
                                        .width = output_count_,
                                        .x = pooled_.data(),
                                        .bias = nullptr,
                                        .before = nullptr,
                                        .y = output_.data()});
    return output_.data();
  }

  /// Converts the gradient of y to the gradient of ReLU's input, in place. If a linear layer
  /// follows, that layer does this.
  void backward_relu(void* y_gradient) {
    activation_backward(context_.stream(), Activation::kRelu, context_.dtype(), pooled_.data(),
                        output_count_, y_gradient);
  }
  /// Computes the gradients of weight and bias from that of ReLU's input, and reports them ready.
  void backward_parameters(const void* x, const void* before_relu_gradient) {
    pooling_.backward(convolved_.data(), pooled_.data(), before_relu_gradient,
                      convolved_gradient_.data());
    convolution_.backward_parameters(x, convolved_gradient_.data());
  }
  /// Computes the gradient of x. Call after `backward_parameters`.
  void backward_input(void* dx) { convolution_.backward_input(convolved_gradient_.data(), dx); }

  const void* output() const { return output_.data(); }
  std::size_t output_count() const { return output_count_; }

 private:
  Context& context_;
  Conv2d convolution_;
  MaxPooling pooling_;
  std::size_t output_count_;
  DeviceMemory convolved_, pooled_, output_;
  DeviceMemory convolved_gradient_;
};

/// The Mlp of trainer/models/image_models.h on a CUDA device.
class CudaMlp final : public CudaModel {
 public:
  CudaMlp(Base base, const ImageModelOptions& o)
      : CudaModel(std::move(base)),
        input_(device(), device_stream(), context(), o.scaling,
               {.count = o.images * o.height * o.width,
                .image_channels = o.channels,
                .channels = o.channels}),
        fc1_(context(), device_parameters(), "fc1",
             {.rows = o.images,
              .inputs = o.height * o.width * o.channels,
              .outputs = o.hidden,
              .activation = Activation::kRelu}),
        fc2_(context(), device_parameters(), "fc2",
             {.rows = o.images,
              .inputs = o.hidden,
              .outputs = o.hidden,
              .activation = Activation::kRelu,
              .input_activation = Activation::kRelu}),
        fc3_(context(), device_parameters(), "fc3",
             {.rows = o.images,
              .inputs = o.hidden,
              .outputs = o.classes,
              .activation = Activation::kNone,
              .input_activation = Activation::kRelu,
              .is_float32_result = true}),
        hidden1_(context().activations(o.images * o.hidden)),
        hidden2_(context().activations(o.images * o.hidden)),
        gradient1_(context().activations(o.images * o.hidden)),
        gradient2_(context().activations(o.images * o.hidden)),
        logits_(context().floats(o.images * o.classes)) {}

 protected:
  const float* forward(const DeviceInputs& inputs) override {
    fc1_.forward({.x = input_.forward(inputs.pixels), .y = hidden1_.data()});
    fc2_.forward({.x = hidden1_.data(), .y = hidden2_.data()});
    fc3_.forward({.x = hidden2_.data(), .y = logits_.data()});
    return floats_of(logits_);
  }

  void backward(const void* logits_gradient, const DeviceInputs&) override {
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
  DeviceMemory gradient1_, gradient2_;  // gradients of ReLU inputs
  DeviceMemory logits_;
};

// LeNet has 5 x 5 convolutions with 16 and 32 channels, each followed by 2 x 2 pooling.
constexpr std::size_t kLenetKernel = 5;
constexpr std::size_t kLenetChannels[] = {16, 32};
/// The height or width of an image after a convolution and pooling.
constexpr std::size_t lenet_reduced(std::size_t size) { return (size - kLenetKernel + 1) / 2; }

ConvolutionShape stage_options(const ImageModelOptions& o, std::size_t height, std::size_t width,
                               std::size_t input_channels, std::size_t output_channels) {
  return {.images = o.images,
          .height = height,
          .width = width,
          .input_channels = input_channels,
          .output_channels = output_channels,
          .kernel = kLenetKernel};
}

/// The Lenet of trainer/models/image_models.h on a CUDA device, with channels padded for cuDNN.
class CudaLenet final : public CudaModel {
 public:
  CudaLenet(Base base, const ImageModelOptions& o)
      : CudaModel(std::move(base)),
        input_(device(), device_stream(), context(), o.scaling,
               {.count = o.images * o.height * o.width,
                .image_channels = o.channels,
                .channels = round_up(o.channels, kChannelMultiple)}),
        stage1_(context(), device_parameters(), "conv1",
                stage_options(o, o.height, o.width, o.channels, kLenetChannels[0])),
        stage2_(context(), device_parameters(), "conv2",
                stage_options(o, lenet_reduced(o.height), lenet_reduced(o.width), kLenetChannels[0],
                              kLenetChannels[1])),
        fc1_(context(), device_parameters(), "fc1",
             {.rows = o.images,
              .inputs = stage2_.output_count() / o.images,
              .outputs = o.hidden,
              .activation = Activation::kRelu,
              .input_activation = Activation::kRelu}),
        fc2_(context(), device_parameters(), "fc2",
             {.rows = o.images,
              .inputs = o.hidden,
              .outputs = o.classes,
              .activation = Activation::kNone,
              .input_activation = Activation::kRelu,
              .is_float32_result = true}),
        hidden_(context().activations(o.images * o.hidden)),
        hidden_gradient_(context().activations(o.images * o.hidden)),
        stage1_gradient_(context().activations(stage1_.output_count())),
        stage2_gradient_(context().activations(stage2_.output_count())),
        logits_(context().floats(o.images * o.classes)) {}

 protected:
  const float* forward(const DeviceInputs& inputs) override {
    const void* const features = stage2_.forward(stage1_.forward(input_.forward(inputs.pixels)));
    fc1_.forward({.x = features, .y = hidden_.data()});
    fc2_.forward({.x = hidden_.data(), .y = logits_.data()});
    return floats_of(logits_);
  }

  void backward(const void* logits_gradient, const DeviceInputs&) override {
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
  DeviceMemory hidden_gradient_;                    // gradient of ReLU's input
  DeviceMemory stage1_gradient_, stage2_gradient_;  // gradients of ReLU inputs
  DeviceMemory logits_;
};

template <typename M, typename HostModel>
std::unique_ptr<CudaModel> make_image_model(kolo::Device& device, const ImageModelOptions& shape,
                                            const CudaModelOptions& options) {
  ImageModelOptions host = shape;
  host.images = 1;
  return make_model<M, HostModel>(
      device, options, shape, host,
      {.inputs = shape.images * shape.height * shape.width * shape.channels,
       .vocabulary = 0,
       .rows = shape.images},
      shape.classes, shape.classes);
}

}  // namespace

std::unique_ptr<CudaModel> make_mlp(kolo::Device& device, const ImageModelOptions& shape,
                                    const CudaModelOptions& options) {
  return make_image_model<CudaMlp, Mlp>(device, shape, options);
}

std::unique_ptr<CudaModel> make_lenet(kolo::Device& device, const ImageModelOptions& shape,
                                      const CudaModelOptions& options) {
  return make_image_model<CudaLenet, Lenet>(device, shape, options);
}

}  // namespace kolo::trainer::cuda
