#include "trainer/cuda/compute/batch_norm.h"

namespace kolo::trainer::cuda {
namespace {

constexpr double kEpsilon = 1e-5;

}  // namespace

BatchNorm::BatchNorm(Dnn& dnn, DType dtype, const Shape& s)
    : dnn_(dnn),
      x_(make_images(dtype, s.images, s.height, s.width, s.channels)),
      parameters_(make_images(DType::kFloat32, 1, 1, 1, s.channels)) {}

void BatchNorm::forward(const Forward& s) {
  check_dnn(cudnnBatchNormalizationForwardTraining(
                dnn_.handle(), CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, x_.get(), s.x, x_.get(), s.y,
                parameters_.get(), s.gain, s.bias, s.momentum, s.running_mean, s.running_variance,
                kEpsilon, s.mean, s.rstd),
            "cudnnBatchNormalizationForwardTraining");
}

void BatchNorm::backward(const Backward& s) {
  check_dnn(cudnnBatchNormalizationBackward(dnn_.handle(), CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero,
                                            &kOne, &kZero, x_.get(), s.x, x_.get(), s.dy, x_.get(),
                                            s.dx, parameters_.get(), s.gain, s.dgain, s.dbias,
                                            kEpsilon, s.mean, s.rstd),
            "cudnnBatchNormalizationBackward");
}

}  // namespace kolo::trainer::cuda
