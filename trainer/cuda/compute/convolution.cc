#include "trainer/cuda/compute/convolution.h"

#include <algorithm>
#include <array>
#include <string>

#include "comm/base/error.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kWorkspaceLimit = std::size_t{512} << 20;

// The first suitable algorithm among those that cuDNN offers, fastest first. Reserves its workspace
// and sets the arithmetic in `convolution`, except for float32, where the caller decides.
template <typename Offers>
auto choose(Dnn& dnn, DType dtype, const Offers& offers, int count,
            const ConvolutionDescriptor& convolution, const char* what) {
  const auto end = offers.begin() + count;
  const auto suits = [](const auto& offer) {
    return offer.status == CUDNN_STATUS_SUCCESS && offer.determinism == CUDNN_DETERMINISTIC &&
           offer.memory <= kWorkspaceLimit;
  };
  const auto best = std::find_if(offers.begin(), end, suits);
  if (best == end) {
    throw KoloError({.code = ErrorCode::kInternal,
                     .what = std::string("cuDNN has no deterministic algorithm for the ") + what +
                             " of a convolution of this shape"});
  }
  dnn.reserve(best->memory);
  if (is_16bit_float(dtype)) {
    check_dnn(cudnnSetConvolutionMathType(convolution.get(), best->mathType),
              "cudnnSetConvolutionMathType");
  }
  return best->algo;
}

}  // namespace

Convolution::Convolution(Dnn& dnn, DType dtype, const ConvolutionShape& s)
    : dnn_(dnn),
      x_(make_images(dtype, s.images, s.height, s.width, s.input_channels)),
      y_(make_images(dtype, s.images, s.height - s.kernel + 1, s.width - s.kernel + 1,
                     s.output_channels)),
      filter_(make_filter(dtype, s.output_channels, s.kernel, s.input_channels)),
      for_forward_(make_convolution(dnn.math_of(dtype))),
      for_filter_(make_convolution(dnn.math_of(dtype))),
      for_data_(make_convolution(dnn.math_of(dtype))) {
  int count = 0;
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> forward{};
  check_dnn(cudnnGetConvolutionForwardAlgorithm_v7(
                dnn.handle(), x_.get(), filter_.get(), for_forward_.get(), y_.get(),
                static_cast<int>(forward.size()), &count, forward.data()),
            "cudnnGetConvolutionForwardAlgorithm_v7");
  forward_ = choose(dnn, dtype, forward, count, for_forward_, "forward pass");

  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT>
      backward_filter{};
  check_dnn(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                dnn.handle(), x_.get(), y_.get(), for_filter_.get(), filter_.get(),
                static_cast<int>(backward_filter.size()), &count, backward_filter.data()),
            "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
  backward_filter_ = choose(dnn, dtype, backward_filter, count, for_filter_, "filter gradient");

  std::array<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT>
      backward_data{};
  check_dnn(cudnnGetConvolutionBackwardDataAlgorithm_v7(
                dnn.handle(), filter_.get(), y_.get(), for_data_.get(), x_.get(),
                static_cast<int>(backward_data.size()), &count, backward_data.data()),
            "cudnnGetConvolutionBackwardDataAlgorithm_v7");
  backward_data_ = choose(dnn, dtype, backward_data, count, for_data_, "data gradient");
}

void Convolution::forward(const void* x, const void* filter, void* y) {
  check_dnn(cudnnConvolutionForward(dnn_.handle(), &kOne, x_.get(), x, filter_.get(), filter,
                                    for_forward_.get(), forward_, dnn_.workspace(),
                                    dnn_.workspace_bytes(), &kZero, y_.get(), y),
            "cudnnConvolutionForward");
}

void Convolution::backward_filter(const void* x, const void* dy, void* dfilter) {
  check_dnn(cudnnConvolutionBackwardFilter(dnn_.handle(), &kOne, x_.get(), x, y_.get(), dy,
                                           for_filter_.get(), backward_filter_, dnn_.workspace(),
                                           dnn_.workspace_bytes(), &kZero, filter_.get(), dfilter),
            "cudnnConvolutionBackwardFilter");
}

void Convolution::backward_data(const void* dy, const void* filter, void* dx) {
  check_dnn(cudnnConvolutionBackwardData(dnn_.handle(), &kOne, filter_.get(), filter, y_.get(), dy,
                                         for_data_.get(), backward_data_, dnn_.workspace(),
                                         dnn_.workspace_bytes(), &kZero, x_.get(), dx),
            "cudnnConvolutionBackwardData");
}

}  // namespace kolo::trainer::cuda
