#include "trainer/cuda/parameters/device_parameters.h"

#include <algorithm>

#include "trainer/cuda/compute/wait.h"
#include "trainer/cuda/kernels/cast.h"

namespace kolo::trainer::cuda {

DeviceParameters::DeviceParameters(ParameterSet& host, kolo::Device& device, Stream& stream,
                                   DType dtype)
    : host_(host),
      stream_(stream),
      dtype_(dtype),
      plan_(plan_parameters(host)),
      values_(device.allocate(plan_.count * sizeof(float), MemoryKind::kDevice)),
      staging_(device.allocate(plan_.count * sizeof(float), MemoryKind::kPinned)),
      done_(device.make_event()) {
  if (dtype != DType::kFloat32) {
    copies_ = device.allocate(plan_.count * size_of(dtype), MemoryKind::kDevice);
  }
  // Gaps between parameters are copied too, so they need defined contents.
  std::fill_n(reinterpret_cast<float*>(staging_.data()), plan_.count, 0.0f);
  for (std::size_t i = 0; i < host.size(); ++i) {
    float* const value = values() + plan_.offsets[i];
    const void* const copy =
        copies_ ? copies_.data() + plan_.offsets[i] * size_of(dtype) : static_cast<void*>(value);
    parameters_.push_back({.index = i, .size = plan_.sizes[i], .value = value, .copy = copy});
  }
}

void DeviceParameters::upload() {
  auto* const staged = reinterpret_cast<float*>(staging_.data());
  for (std::size_t i = 0; i < size(); ++i) {
    const std::span<const float> value = host_[i].value();
    std::copy(value.begin(), value.end(), staged + plan_.offsets[i]);
  }
  stream_.copy({values_.data(), plan_.count, DType::kFloat32, MemoryKind::kDevice},
               {staging_.data(), plan_.count, DType::kFloat32, MemoryKind::kPinned});
  refresh_copies();
  wait_for_stream();
}

void DeviceParameters::download() {
  stream_.copy({staging_.data(), plan_.count, DType::kFloat32, MemoryKind::kPinned},
               {values_.data(), plan_.count, DType::kFloat32, MemoryKind::kDevice});
  wait_for_stream();
  const auto* const staged = reinterpret_cast<const float*>(staging_.data());
  for (std::size_t i = 0; i < size(); ++i) {
    std::copy_n(staged + plan_.offsets[i], plan_.sizes[i], host_[i].value().begin());
  }
}

void DeviceParameters::refresh_copies() {
  if (!copies_) return;
  cast({stream_.native()}, values(), plan_.count, dtype_, copies_.data());
}

void DeviceParameters::wait_for_stream() {
  stream_.record(*done_);
  wait_for(*done_);
}

}  // namespace kolo::trainer::cuda
