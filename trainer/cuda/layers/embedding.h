#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/parameters/device_parameters.h"

namespace kolo::trainer::cuda {

/// The sum of a byte's row and its position's row, as trainer/layers/embedding.h.
///
/// Shape: bytes [sequences · length], y and dy [sequences · length, width] of the context's dtype.
class Embedding {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
  };

  Embedding(Context& context, DeviceParameters& parameters, DeviceParameter& token,
            DeviceParameter& position, const Options& options);

  void forward(const std::uint8_t* bytes, void* y);

  /// Adds to the gradient of the token table, which the output layer has written in the same pass,
  /// and reports both tables ready.
  void backward(const std::uint8_t* bytes, const void* dy);

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& token_;
  DeviceParameter& position_;
  Options options_;
};

}  // namespace kolo::trainer::cuda
