#include "trainer/cuda/compute/max_pooling.h"

namespace kolo::trainer::cuda {

MaxPooling::MaxPooling(Dnn& dnn, DType dtype, const PoolingShape& s)
    : dnn_(dnn),
      x_(make_images(dtype, s.images, s.height, s.width, s.channels)),
      y_(make_images(dtype, s.images, s.height / 2, s.width / 2, s.channels)),
      pooling_(make_max_pooling()) {}

void MaxPooling::forward(const void* x, void* y) {
  check_dnn(
      cudnnPoolingForward(dnn_.handle(), pooling_.get(), &kOne, x_.get(), x, &kZero, y_.get(), y),
      "cudnnPoolingForward");
}

void MaxPooling::backward(const void* x, const void* y, const void* dy, void* dx) {
  check_dnn(cudnnPoolingBackward(dnn_.handle(), pooling_.get(), &kOne, y_.get(), y, y_.get(), dy,
                                 x_.get(), x, &kZero, x_.get(), dx),
            "cudnnPoolingBackward");
}

}  // namespace kolo::trainer::cuda
