#include "trainer/cuda/layers/pixel_input.h"

#include <array>
#include <memory>
#include <numeric>

#include "trainer/cuda/compute/wait.h"
#include "trainer/cuda/kernels/pixels.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kByteValues = 256;

}  // namespace

PixelInput::PixelInput(kolo::Device& device, Stream& stream, Context& context,
                       const PixelScaling& scaling, const Options& options)
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

const void* PixelInput::forward(const std::uint8_t* bytes) {
  scale_pixels(context_.stream(), {.bytes = bytes,
                                   .table = floats_of(table_),
                                   .count = options_.count,
                                   .channels = options_.channels,
                                   .dtype = context_.dtype(),
                                   .into = output_.data()});
  return output_.data();
}

}  // namespace kolo::trainer::cuda
