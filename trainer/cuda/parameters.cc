#include "trainer/cuda/parameters.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_error.h"
#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/optimizer/optimizer.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kGradientAlignment = 16;  // alignment of gradients in bytes

int index_of(const kolo::Device& device) {
  const auto* cuda_device = dynamic_cast<const CudaDevice*>(&device);
  check(cuda_device != nullptr, "parameters on a device need a CUDA device");
  return cuda_device->index();
}

}  // namespace

void clear(Stream& stream, const DeviceMemory& memory) {
  if (!memory) return;
  require_cuda(
      cudaMemsetAsync(memory.data(), 0, memory.bytes(), static_cast<cudaStream_t>(stream.native())),
      "cudaMemsetAsync");
}

ParameterPlan plan_parameters(const ParameterSet& parameters) {
  ParameterPlan plan;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    plan.offsets.push_back(plan.count);
    plan.sizes.push_back(parameters[i].size());
    plan.owned.push_back({.begin = 0, .count = parameters[i].size()});
    plan.count += round_up(parameters[i].size(), kParameterAlignment);
  }
  plan.states = plan.offsets;
  plan.state_count = plan.count;
  return plan;
}

void visit_array(StateVisitor& visitor, std::string_view name, const ParameterSet& parameters,
                 const ParameterPlan& plan, float* values) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const std::string piece = std::string(name) + "/" + parameter.name();
    const ElementRange& owned = plan.owned[i];
    const std::span<float> elements(values + plan.states[i], owned.count);
    if (plan.is_sharded) {
      visitor.shard(piece, parameter.shape(), owned.begin, elements);
    } else {
      visitor.shared(piece, parameter.shape(), elements);
    }
  }
}

std::vector<PlannedChunk> plan_chunks(const ParameterPlan& plan, const ParameterSet& parameters) {
  std::vector<PlannedChunk> chunks;
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    const ElementRange& owned = plan.owned[i];
    for (std::size_t at = 0; at < owned.count; at += kUpdateChunk) {
      const std::size_t count = std::min(kUpdateChunk, owned.count - at);
      chunks.push_back({.parameter = i,
                        .begin = owned.begin + at,
                        .chunk = {.gradient = nullptr,
                                  .offset = plan.offsets[i] + owned.begin + at,
                                  .state = plan.states[i] + at,
                                  .count = static_cast<std::uint32_t>(count),
                                  .decays = decays(parameters[i]) ? 1u : 0u}});
    }
  }
  return chunks;
}

DeviceParameters::DeviceParameters(ParameterSet& host, kolo::Device& device, Stream& stream,
                                   DType dtype, ParameterPlan plan)
    : host_(host),
      device_(device),
      stream_(stream),
      device_index_(index_of(device)),
      dtype_(dtype),
      plan_(std::move(plan)),
      values_(device.allocate(plan_.count * sizeof(float), MemoryKind::kDevice)),
      staging_(device.allocate(plan_.count * sizeof(float), MemoryKind::kPinned)),
      done_(device.make_event()),
      sums_(host.size()) {
  if (dtype != DType::kFloat32) {
    copies_ = device.allocate(plan_.count * size_of(dtype), MemoryKind::kDevice);
  }
  // Gaps between parameters are copied, too, so they need defined contents.
  std::fill_n(reinterpret_cast<float*>(staging_.data()), plan_.count, 0.0f);
  for (std::size_t i = 0; i < host.size(); ++i) {
    float* const value = values() + plan_.offsets[i];
    const void* const copy =
        copies_ ? copies_.data() + plan_.offsets[i] * size_of(dtype) : static_cast<void*>(value);
    parameters_.push_back({.index = i, .size = plan_.sizes[i], .value = value, .copy = copy});
  }
}

DeviceParameter& DeviceParameters::of(std::string_view name) {
  const auto found = std::ranges::find_if(parameters_, [&](const DeviceParameter& parameter) {
    return host_[parameter.index].name() == name;
  });
  check(found != parameters_.end(),
        "the model on the processor has no parameter " + std::string(name));
  return *found;
}

void DeviceParameters::upload() {
  auto* const staged = reinterpret_cast<float*>(staging_.data());
  for (std::size_t i = 0; i < size(); ++i) {
    const std::span<const float> value = host_[i].value();
    std::copy(value.begin(), value.end(), staged + plan_.offsets[i]);
  }
  send(values(), plan_.count);
  refresh_copies();
  wait_for_stream();
}

void DeviceParameters::download() {
  const float* const staged = fetch(values(), plan_.count);
  for (std::size_t i = 0; i < size(); ++i) {
    std::copy_n(staged + plan_.offsets[i], plan_.sizes[i], host_[i].value().begin());
  }
}

float* DeviceParameters::fetch(float* array, std::size_t count) {
  stream_.copy({staging_.data(), count, DType::kFloat32, MemoryKind::kPinned},
               {array, count, DType::kFloat32, MemoryKind::kDevice});
  wait_for_stream();
  return reinterpret_cast<float*>(staging_.data());
}

void DeviceParameters::send(float* array, std::size_t count) {
  stream_.copy({array, count, DType::kFloat32, MemoryKind::kDevice},
               {staging_.data(), count, DType::kFloat32, MemoryKind::kPinned});
  wait_for_stream();
}

void DeviceParameters::refresh_copies() {
  if (!copies_) return;
  cast({stream_.native()}, values(), plan_.count, dtype_, copies_.data());
}

void DeviceParameters::bind_gradient(std::size_t index, void* memory, DType dtype) {
  check(reinterpret_cast<std::uintptr_t>(memory) % kGradientAlignment == 0,
        "the memory of a gradient on a CUDA device is aligned to 16 bytes: " + host_[index].name());
  const bool is_rounded = dtype == DType::kBFloat16;
  check(is_rounded || dtype == DType::kFloat32, "a gradient is float32 or bfloat16");
  sums_[index] = {};
  parameters_[index].gradient = is_rounded ? nullptr : static_cast<float*>(memory);
  parameters_[index].rounded = is_rounded ? memory : nullptr;
}

std::byte* DeviceParameters::own_gradients(DType dtype) {
  own_gradients_ = device_.allocate(plan_.count * size_of(dtype), MemoryKind::kDevice);
  for (std::size_t i = 0; i < size(); ++i) {
    bind_gradient(i, own_gradients_.data() + plan_.offsets[i] * size_of(dtype), dtype);
  }
  return own_gradients_.data();
}

void DeviceParameters::begin(GradientPass pass) {
  pass_ = pass;
  for (DeviceParameter& parameter : parameters_) {
    if (parameter.gradient != nullptr || parameter.rounded == nullptr) continue;
    if (is_rounded_by_product(parameter)) continue;
    DeviceMemory& sum = sums_[parameter.index];
    sum = device_.allocate(parameter.size * sizeof(float), MemoryKind::kDevice);
    parameter.gradient = floats_of(sum);
  }
}

std::size_t DeviceParameters::sum_bytes() const {
  std::size_t bytes = 0;
  for (const DeviceMemory& sum : sums_) bytes += sum.bytes();
  return bytes;
}

void DeviceParameters::ready(const DeviceParameter& parameter) {
  if (!pass_.is_last) return;
  if (parameter.rounded != nullptr && !is_rounded_by_product(parameter)) {
    cast({stream_.native()}, parameter.gradient, parameter.size, DType::kBFloat16,
         parameter.rounded);
  }
  if (hook_) hook_(parameter.index);
}

void DeviceParameters::wait_for_stream() {
  stream_.record(*done_);
  wait_for(*done_);
}

}  // namespace kolo::trainer::cuda
