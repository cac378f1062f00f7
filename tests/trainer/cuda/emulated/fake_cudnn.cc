// Stands in for cuDNN: the functions that compute/dnn.cc calls, as plain loops over tensors in host
// memory, after cuDNN's documentation. Each refuses what the documentation does not allow.

#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <vector>

#include "tests/trainer/cuda/references.h"

using kolo::DType;
using kolo::trainer::cuda::load_values;
using kolo::trainer::cuda::store_values;

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

/// Images [images, height, width, channels], or a filter [outputs, height, width, inputs].
struct cudnnTensorStruct {
  DType dtype = DType::kFloat32;
  int images = 0, height = 0, width = 0, channels = 0;

  std::size_t count() const {
    return static_cast<std::size_t>(images) * static_cast<std::size_t>(height * width * channels);
  }
  std::size_t at(int n, int y, int x, int c) const {
    return static_cast<std::size_t>(((n * height + y) * width + x) * channels + c);
  }
  bool has(int y, int x) const { return y >= 0 && y < height && x >= 0 && x < width; }
};
struct cudnnFilterStruct : cudnnTensorStruct {};

struct Window {
  int height = 0, width = 0;
  int padding_y = 0, padding_x = 0, stride_y = 0, stride_x = 0;

  bool fits(const cudnnTensorStruct& x, const cudnnTensorStruct& y) const {
    return y.images == x.images && y.height == (x.height + 2 * padding_y - height) / stride_y + 1 &&
           y.width == (x.width + 2 * padding_x - width) / stride_x + 1;
  }
};
struct cudnnConvolutionStruct : Window {};
struct cudnnPoolingStruct : Window {
  bool takes_mean = false;
};

namespace {

DType dtype_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_BFLOAT16) return DType::kBFloat16;
  return type == CUDNN_DATA_HALF ? DType::kFloat16 : DType::kFloat32;
}

template <typename Descriptor>
cudnnStatus_t create(Descriptor** descriptor) {
  *descriptor = new Descriptor;
  return CUDNN_STATUS_SUCCESS;
}
template <typename Descriptor>
cudnnStatus_t destroy(Descriptor* descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

bool overwrites(const void* alpha, const void* beta) {
  return *static_cast<const float*>(alpha) == 1.0f && *static_cast<const float*>(beta) == 0.0f;
}

/// Calls visit(place of x, place of the filter, place of y) for every product of a convolution.
/// Returns an error if the shapes do not fit.
template <typename Visit>
cudnnStatus_t for_products(const cudnnTensorStruct& x, const cudnnFilterStruct& f,
                           const cudnnConvolutionStruct& convolution, const cudnnTensorStruct& y,
                           const Visit& visit) {
  Window window = convolution;
  window.height = f.height;
  window.width = f.width;
  if (f.channels != x.channels || f.images != y.channels || !window.fits(x, y)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  for (int n = 0; n < y.images; ++n) {
    for (int place = 0; place < y.height * y.width; ++place) {
      const int row = place / y.width, column = place % y.width;
      for (int tap = 0; tap < f.height * f.width; ++tap) {
        const int from_row = row * window.stride_y - window.padding_y + tap / f.width;
        const int from_column = column * window.stride_x - window.padding_x + tap % f.width;
        if (!x.has(from_row, from_column)) continue;
        for (int out = 0; out < f.images; ++out) {
          const std::size_t x_at = x.at(n, from_row, from_column, 0);
          const std::size_t f_at = f.at(out, tap / f.width, tap % f.width, 0);
          const std::size_t y_at = y.at(n, row, column, out);
          for (int c = 0; c < f.channels; ++c) {
            visit(x_at + static_cast<std::size_t>(c), f_at + static_cast<std::size_t>(c), y_at);
          }
        }
      }
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

template <typename Perf, typename Algorithm>
cudnnStatus_t offer(Algorithm algorithm, int* count, Perf* offers) {
  offers[0] = {};
  offers[0].algo = algorithm;
  offers[0].status = CUDNN_STATUS_SUCCESS;
  offers[0].determinism = CUDNN_DETERMINISTIC;
  offers[0].memory = 0;
  *count = 1;
  return CUDNN_STATUS_SUCCESS;
}

/// Calls visit(place of y, places of x in its window) for every element of the output of pooling.
template <typename Visit>
cudnnStatus_t for_windows(const cudnnPoolingStruct& window, const cudnnTensorStruct& x,
                          const cudnnTensorStruct& y, const Visit& visit) {
  if (x.channels != y.channels || !window.fits(x, y)) return CUDNN_STATUS_BAD_PARAM;
  std::vector<std::size_t> places;
  for (int n = 0; n < y.images; ++n) {
    for (int place = 0; place < y.height * y.width; ++place) {
      const int row = place / y.width, column = place % y.width;
      for (int c = 0; c < y.channels; ++c) {
        places.clear();
        for (int tap = 0; tap < window.height * window.width; ++tap) {
          const int from_row = row * window.stride_y - window.padding_y + tap / window.width;
          const int from_column = column * window.stride_x - window.padding_x + tap % window.width;
          if (x.has(from_row, from_column)) places.push_back(x.at(n, from_row, from_column, c));
        }
        visit(y.at(n, row, column, c), places);
      }
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
std::size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "refused by the stand-in of cuDNN"; }

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return create(tensor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return destroy(tensor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *tensor = {.dtype = dtype_of(type), .images = n, .height = h, .width = w, .channels = c};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return create(filter);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return destroy(filter);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  *filter = {{.dtype = dtype_of(type), .images = k, .height = h, .width = w, .channels = c}};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return create(convolution);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return destroy(convolution);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
  *convolution = {{.padding_y = pad_h, .padding_x = pad_w, .stride_y = u, .stride_x = v}};
  const bool is_plain = dilation_h == 1 && dilation_w == 1 && mode == CUDNN_CROSS_CORRELATION;
  return is_plain && type == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t) {
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                     const cudnnFilterDescriptor_t,
                                                     const cudnnConvolutionDescriptor_t,
                                                     const cudnnTensorDescriptor_t, const int,
                                                     int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* offers) {
  return offer(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, count, offers);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnFilterDescriptor_t, const int, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* offers) {
  return offer(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, count, offers);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnConvolutionDescriptor_t, const cudnnTensorDescriptor_t, const int, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* offers) {
  return offer(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, count, offers);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void* alpha,
                                      const cudnnTensorDescriptor_t x_of, const void* x,
                                      const cudnnFilterDescriptor_t filter_of, const void* filter,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t, void*, std::size_t,
                                      const void* beta, const cudnnTensorDescriptor_t y_of,
                                      void* y) {
  if (!overwrites(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto from = load_values(x_of->dtype, x, x_of->count());
  const auto weights = load_values(filter_of->dtype, filter, filter_of->count());
  std::vector<float> sums(y_of->count());
  const auto status = for_products(
      *x_of, *filter_of, *convolution, *y_of,
      [&](std::size_t i, std::size_t f, std::size_t o) { sums[o] += from[i] * weights[f]; });
  store_values(y_of->dtype, sums, y);
  return status;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t, const void* alpha, const cudnnTensorDescriptor_t x_of, const void* x,
    const cudnnTensorDescriptor_t dy_of, const void* dy,
    const cudnnConvolutionDescriptor_t convolution, cudnnConvolutionBwdFilterAlgo_t, void*,
    std::size_t, const void* beta, const cudnnFilterDescriptor_t filter_of, void* dfilter) {
  if (!overwrites(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto from = load_values(x_of->dtype, x, x_of->count());
  const auto slopes = load_values(dy_of->dtype, dy, dy_of->count());
  std::vector<float> sums(filter_of->count());
  const auto status = for_products(
      *x_of, *filter_of, *convolution, *dy_of,
      [&](std::size_t i, std::size_t f, std::size_t o) { sums[f] += from[i] * slopes[o]; });
  store_values(filter_of->dtype, sums, dfilter);
  return status;
}
cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t, const void* alpha, const cudnnFilterDescriptor_t filter_of, const void* filter,
    const cudnnTensorDescriptor_t dy_of, const void* dy,
    const cudnnConvolutionDescriptor_t convolution, cudnnConvolutionBwdDataAlgo_t, void*,
    std::size_t, const void* beta, const cudnnTensorDescriptor_t dx_of, void* dx) {
  if (!overwrites(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto weights = load_values(filter_of->dtype, filter, filter_of->count());
  const auto slopes = load_values(dy_of->dtype, dy, dy_of->count());
  std::vector<float> sums(dx_of->count());
  const auto status = for_products(
      *dx_of, *filter_of, *convolution, *dy_of,
      [&](std::size_t i, std::size_t f, std::size_t o) { sums[i] += weights[f] * slopes[o]; });
  store_values(dx_of->dtype, sums, dx);
  return status;
}

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* pooling) {
  return create(pooling);
}
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling) {
  return destroy(pooling);
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t, int height, int width,
                                          int padding_y, int padding_x, int stride_y,
                                          int stride_x) {
  *pooling = {{.height = height,
               .width = width,
               .padding_y = padding_y,
               .padding_x = padding_x,
               .stride_y = stride_y,
               .stride_x = stride_x},
              mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING};
  return pooling->takes_mean || mode == CUDNN_POOLING_MAX_DETERMINISTIC
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t, const cudnnPoolingDescriptor_t pooling,
                                  const void* alpha, const cudnnTensorDescriptor_t x_of,
                                  const void* x, const void* beta,
                                  const cudnnTensorDescriptor_t y_of, void* y) {
  if (!overwrites(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto from = load_values(x_of->dtype, x, x_of->count());
  std::vector<float> results(y_of->count());
  const auto status = for_windows(
      *pooling, *x_of, *y_of, [&](std::size_t o, const std::vector<std::size_t>& window) {
        float sum = 0.0f, most = -std::numeric_limits<float>::infinity();
        for (const std::size_t i : window) {
          sum += from[i];
          most = std::max(most, from[i]);
        }
        results[o] = pooling->takes_mean ? sum / static_cast<float>(window.size()) : most;
      });
  store_values(y_of->dtype, results, y);
  return status;
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t, const cudnnPoolingDescriptor_t pooling,
                                   const void* alpha, const cudnnTensorDescriptor_t y_of,
                                   const void* y, const cudnnTensorDescriptor_t, const void* dy,
                                   const cudnnTensorDescriptor_t x_of, const void* x,
                                   const void* beta, const cudnnTensorDescriptor_t, void* dx) {
  if (!overwrites(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto from = load_values(x_of->dtype, x, x_of->count());
  const auto results = load_values(y_of->dtype, y, y_of->count());
  const auto slopes = load_values(y_of->dtype, dy, y_of->count());
  std::vector<float> sums(x_of->count());
  const auto status = for_windows(*pooling, *x_of, *y_of,
                                  [&](std::size_t o, const std::vector<std::size_t>& window) {
                                    for (const std::size_t i : window) {
                                      if (pooling->takes_mean) {
                                        sums[i] += slopes[o] / static_cast<float>(window.size());
                                      } else if (from[i] == results[o]) {
                                        sums[i] += slopes[o];
                                        return;
                                      }
                                    }
                                  });
  store_values(x_of->dtype, sums, dx);
  return status;
}
