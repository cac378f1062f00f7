#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/device/device.h"
#include "trainer/cuda/compute/context.h"
#include "trainer/models/pixel_scaling.h"

namespace kolo::trainer::cuda {

/// Converts bytes of grey images to scaled activations, with channels of zeros after the image's
/// one.
///
/// Shape: from [count] to [count, channels] of the context's dtype, which belong to the layer.
class PixelInput {
 public:
  struct Options {
    std::size_t count;  ///< Pixels per batch.
    std::size_t channels;
  };

  /// Blocks until the table of 256 values is on the device.
  PixelInput(kolo::Device& device, Stream& stream, Context& context, const PixelScaling& scaling,
             const Options& options);

  const void* forward(const std::uint8_t* bytes);
  const void* output() const { return output_.data(); }

 private:
  Context& context_;
  Options options_;
  DeviceMemory table_;
  DeviceMemory output_;
};

}  // namespace kolo::trainer::cuda
