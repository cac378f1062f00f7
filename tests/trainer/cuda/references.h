#pragma once

#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/layer_norm.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/cuda/kernels/update.h"

namespace kolo::trainer::cuda::reference {

// What the kernels of trainer/cuda compute, in plain loops; sums are taken in float64, which bounds
// the error of any order in float32.

void bias_activation(const BiasActivation& step);
void activation_backward(Activation activation, DType dtype, const void* before, std::size_t count,
                         void* gradient);
void cast(const float* from, std::size_t count, DType dtype, void* into);
void causal_softmax(const CausalSoftmax& step);
void causal_softmax_backward(const CausalSoftmaxBackward& step);
/// Sums in float64, which bounds the error of any order in float32.
void fold(const Fold& fold);
void sum_columns(const ColumnSums& sums);
void cross_entropy(const CrossEntropy& step);
void embed(const EmbeddingForward& step);
/// Sums in float64.
void embed_backward(const EmbeddingBackward& step);
void pack_filter(const FilterShape& shape, const float* parameter, DType dtype, void* packed);
void unpack_filter(const FilterShape& shape, DType dtype, const void* packed, float* parameter);
void split_heads(DType dtype, const HeadShape& shape, const void* joined, void* split);
void join_heads(DType dtype, const HeadShape& shape, const void* split, void* joined);
/// In float64 between the roundings of inputs and outputs.
void layer_norm(const LayerNormForward& step);
void layer_norm_backward(const LayerNormBackward& step);
void scale_pixels(const PixelCast& pixels);
/// Sums in float64.
void decide_update(const UpdateArrays& arrays, const DecisionRule& rule,
                   const std::uint32_t* non_finite, UpdateDecision* decision);
void update_adamw(const UpdateArrays& arrays, const AdamWRates& rates,
                  const UpdateDecision* decision);
void update_sgd(const UpdateArrays& arrays, const SgdRates& rates, const UpdateDecision* decision);

}  // namespace kolo::trainer::cuda::reference
