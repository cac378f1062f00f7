#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/layer_norm.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/cuda/kernels/update.h"

namespace kolo::trainer::cuda {

/// Convert float32 values to the bytes of an activation dtype, and back.
std::vector<std::byte> encode(DType dtype, std::span<const float> values);
std::vector<float> decode(DType dtype, std::span<const std::byte> bytes);
/// The same from and to host memory.
std::vector<float> load_values(DType dtype, const void* data, std::size_t count);
void store_values(DType dtype, std::span<const float> values, void* into);

namespace reference {

// References of the kernels of trainer/cuda. They use the host trainer's kernels if there are any,
// and compute in float32 between the roundings of inputs and outputs.

void bias_activation(const BiasActivation& step);
void activation_backward(Activation activation, DType dtype, const void* before, std::size_t count,
                         const void* dy, void* dx);
void causal_softmax(const CausalSoftmax& step);
void causal_softmax_backward(const CausalSoftmaxBackward& step);
void sum_columns(const ColumnSums& sums);
void cross_entropy(const CrossEntropy& step);
void embed(const EmbeddingForward& step);
/// Computes its sums in float64.
void embed_backward(const EmbeddingBackward& step, std::size_t vocabulary);
void pack_filter(const FilterShape& shape, const float* parameter, DType dtype, void* packed);
void split_heads(DType dtype, const HeadShape& shape, const void* joined, void* split);
void layer_norm(const LayerNormForward& step);
void layer_norm_backward(const LayerNormBackward& step);
void scale_pixels(const PixelCast& pixels);
/// Computes its sums in float64.
void decide_update(const UpdateArrays& arrays, const DecisionRule& rule, UpdateDecision* decision);
void update_adamw(const UpdateArrays& arrays, const AdamWRates& rates,
                  const UpdateDecision* decision);
void update_sgd(const UpdateArrays& arrays, const SgdRates& rates, const UpdateDecision* decision);

}  // namespace reference
}  // namespace kolo::trainer::cuda
