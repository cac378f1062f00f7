#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>

#include "comm/device/device.h"
#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/layers/images.h"
#include "trainer/models/image_models.h"

namespace kolo::trainer::cuda {
namespace {

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
  PixelInput(Context& context, const PixelScaling& scaling, const Options& options)
      : context_(context),
        options_(options),
        table_(context.upload(values_of(scaling))),
        output_(context.activations(options.count * options.channels)) {}

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

 private:
  static std::array<float, kByteValues> values_of(const PixelScaling& scaling) {
    std::array<std::uint8_t, kByteValues> bytes;
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    std::array<float, kByteValues> values;
    scaling.apply(bytes, values);
    return values;
  }

  Context& context_;
  Options options_;
  DeviceMemory table_;
  DeviceMemory output_;
};

/// The channels of scaled pixels: a convolution takes them padded.
std::size_t pixel_channels(const ImageModelOptions& o, const ImageNetwork& network) {
  const bool pads = std::holds_alternative<Conv2d::Options>(network.layers().front().options);
  return pads ? round_up(o.channels, kChannelMultiple) : o.channels;
}

/// An ImageClassifier on a CUDA device.
class CudaImageModel final : public CudaModel {
 public:
  CudaImageModel(Base base, const ImageModelOptions& o, const ImageNetwork& network)
      : CudaModel(std::move(base)),
        input_(context(), o.scaling,
               {.count = o.images * o.height * o.width,
                .image_channels = o.channels,
                .channels = pixel_channels(o, network)}),
        layers_(
            {.context = context(), .parameters = device_parameters(), .buffers = device_buffers()},
            network.layers(), true) {}

 protected:
  const float* forward(const DeviceInputs& inputs) override {
    return static_cast<const float*>(
        layers_.forward(input_.forward(inputs.pixels),
                        {.header = inputs.header, .is_training = inputs.is_training}));
  }
  void backward(const void* logits_gradient, const DeviceInputs&) override {
    layers_.backward(logits_gradient);
  }

 private:
  PixelInput input_;
  DeviceLayers layers_;
};

}  // namespace

std::unique_ptr<CudaModel> make_image_model(kolo::Device& device, DescribeNetwork describe,
                                            const ImageModelOptions& shape,
                                            const CudaModelOptions& options) {
  ImageModelOptions one_image = shape;
  one_image.images = 1;
  trainer::Device processor;
  const ImageClassifier host(processor, one_image, describe(one_image));
  return make_model<CudaImageModel>(
      device, options, host.parameters(),
      {.inputs = shape.images * shape.height * shape.width * shape.channels,
       .vocabulary = 0,
       .rows = shape.images},
      shape.classes, shape.classes, shape, describe(shape));
}

}  // namespace kolo::trainer::cuda
