#include "trainer/cuda/cuda_model.h"

#include <utility>

#include "comm/base/check.h"
#include "comm/device/cuda_device_guard.h"
#include "trainer/cuda/core/core.h"

namespace kolo::trainer::cuda {

CudaModel::CudaModel(std::unique_ptr<Core> core) : core_(std::move(core)) {}

CudaModel::~CudaModel() = default;

ParameterSet& CudaModel::parameters() { return core_->host_parameters(); }
const ParameterSet& CudaModel::parameters() const { return core_->host_parameters(); }
const CudaModelOptions& CudaModel::options() const { return core_->options(); }

void CudaModel::upload_parameters() {
  const CudaDeviceGuard guard(core_->device_index());
  core_->parameters().upload();
}

void CudaModel::download_parameters() {
  const CudaDeviceGuard guard(core_->device_index());
  core_->parameters().download();
}

void CudaModel::bind_gradient(std::size_t index, float* memory) {
  core_->bind_gradient(index, memory);
}

float* CudaModel::gradient(std::size_t index) const { return core_->parameters()[index].gradient; }

void CudaModel::own_gradients() { core_->own_gradients(); }

void CudaModel::on_gradient_ready(ReadyHook hook) { core_->on_gradient_ready(std::move(hook)); }

void CudaModel::forward_backward(std::span<const std::uint8_t> inputs,
                                 std::span<const std::uint8_t> targets,
                                 const LossFactors& factors) {
  const CudaDeviceGuard guard(core_->device_index());
  core_->load(inputs, targets, factors);
  core_->launch([this] {
    Loss& loss = core_->loss();
    const std::uint8_t* const batch = core_->batch().inputs();
    loss.evaluate_with_gradient(forward(batch));
    backward(loss.gradient(), batch);
  });
}

void CudaModel::evaluate(std::span<const std::uint8_t> inputs,
                         std::span<const std::uint8_t> targets) {
  const CudaDeviceGuard guard(core_->device_index());
  core_->load(inputs, targets, {});
  core_->loss().evaluate(forward(core_->batch().inputs()));
}

LossSums CudaModel::take_sums() {
  const CudaDeviceGuard guard(core_->device_index());
  return core_->take_sums();
}

NativeStream CudaModel::stream() const { return core_->context().stream(); }
std::size_t CudaModel::input_bytes() const { return core_->shape().input_bytes; }
std::size_t CudaModel::target_rows() const { return core_->shape().rows; }

}  // namespace kolo::trainer::cuda
