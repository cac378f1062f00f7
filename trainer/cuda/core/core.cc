#include "trainer/cuda/core/core.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/device/cuda_stream.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kGradientAlignment = 16;  // bytes

const CudaModelOptions& checked(const CudaModelOptions& options) {
  check(options.dtype == DType::kFloat32 || is_16bit_float(options.dtype),
        "a model on a CUDA device computes in float32, bfloat16 or float16");
  return options;
}

}  // namespace

CudaModel::Core::Core(kolo::Device& device, std::unique_ptr<Stream> stream,
                      const CudaModelOptions& options, std::unique_ptr<ParameterSet> parameters,
                      const Shape& shape)
    : device_(device),
      options_(checked(options)),
      shape_(shape),
      stream_(std::move(stream)),
      device_index_(as_cuda(*stream_).device()),
      context_(device, *stream_, options.dtype, options.float32_math),
      host_parameters_(std::move(parameters)),
      parameters_(*host_parameters_, device, *stream_, options.dtype),
      batch_(device, *stream_, shape.input_bytes, shape.rows),
      loss_(device, *stream_, context_, batch_, {.rows = shape.rows, .classes = shape.classes}),
      graph_({stream_->native()}) {
  parameters_.upload();
}

void CudaModel::Core::bind_gradient(std::size_t index, float* memory) {
  check(reinterpret_cast<std::uintptr_t>(memory) % kGradientAlignment == 0,
        "the memory of a gradient on a CUDA device is aligned to 16 bytes: " +
            (*host_parameters_)[index].name());
  parameters_[index].gradient = memory;
  graph_.clear();
}

void CudaModel::Core::own_gradients() {
  own_gradients_ = context_.floats(parameters_.plan().count);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    bind_gradient(i, floats_of(own_gradients_) + parameters_.plan().offsets[i]);
  }
}

void CudaModel::Core::launch(const std::function<void()>& enqueue) {
  if (options_.launch == LaunchMode::kGraph && is_warm_) {
    if (!graph_.is_recorded()) record(enqueue);
    graph_.replay(hook_);
    return;
  }
  parameters_.on_ready(hook_);
  enqueue();
  is_warm_ = true;
}

void CudaModel::Core::record(const std::function<void()>& enqueue) {
  parameters_.on_ready(
      [this](std::size_t index) { graph_.ready(index, parameters_[index].size * sizeof(float)); });
  graph_.record(options_.milestone_bytes, enqueue);
}

void CudaModel::Core::load(std::span<const std::uint8_t> inputs,
                           std::span<const std::uint8_t> targets, const LossFactors& factors) {
  check(inputs.size() == shape_.input_bytes && targets.size() <= shape_.rows,
        "a model takes batches of the size it was made for, and at most as many targets");
  check(std::all_of(targets.begin(), targets.end(),
                    [this](std::uint8_t target) { return target < shape_.classes; }),
        "a target is one of the classes");
  batch_.load({.row_weight = factors.row_weight,
               .loss_scale = factors.loss_scale,
               .targets = narrow<std::uint32_t>(targets.size())},
              inputs, targets);
  rows_ += static_cast<double>(targets.size());
}

LossSums CudaModel::Core::take_sums() {
  const LossTotals totals = loss_.take();
  return {.loss = totals.loss, .score = totals.correct, .rows = std::exchange(rows_, 0.0)};
}

}  // namespace kolo::trainer::cuda
