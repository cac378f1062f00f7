#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/update_math.h"

namespace kolo::trainer::cuda {

/// A piece of one parameter: the work of one block. Plain data in device memory.
struct UpdateChunk {
  const float* gradient = nullptr;  ///< Address of the piece's first element.
  std::uint64_t offset = 0;         ///< Index of that element in the arrays of all parameters.
  std::uint32_t count = 0;
  std::uint32_t decays = 0;  ///< Whether weight_decay applies.
};

/// Elements of a full chunk. Chunks begin at multiples of it within their parameter, so if
/// parameters and gradients are aligned to 16 bytes, all accesses are, except for the last few
/// elements.
inline constexpr std::size_t kUpdateChunk = 8192;

/// The arrays of all parameters on the device, and their chunks.
struct UpdateArrays {
  const UpdateChunk* chunks;
  std::size_t chunk_count;
  float* values;
  float* first;   ///< AdamW: first moment. SGD: velocity.
  float* second;  ///< AdamW: second moment. SGD: null.
  DType copy_dtype;
  void* copy;  ///< values rounded to copy_dtype; null for none.
};

/// Sum of the squares of all gradients in a fixed order, float32 within a thread's 32 elements and
/// float64 between, then `decide`. Two launches.
///
/// Shape: partials [chunk_count]; `decision`, and `non_finite` unless null, in device memory.
void decide_update(NativeStream stream, const UpdateArrays& arrays, const DecisionRule& rule,
                   const std::uint32_t* non_finite, double* partials, UpdateDecision* decision);

/// One launch over all parameters; nothing changes if the decision is to skip. 30 bytes of memory
/// traffic per parameter for AdamW with a 16-bit copy.
///
/// Bits: those of the reference, a NaN in 16 bits aside.
void update_adamw(NativeStream stream, const UpdateArrays& arrays, const AdamWRates& rates,
                  const UpdateDecision* decision);
void update_sgd(NativeStream stream, const UpdateArrays& arrays, const SgdRates& rates,
                const UpdateDecision* decision);

namespace reference {
/// Sums in float64.
void decide_update(const UpdateArrays& arrays, const DecisionRule& rule,
                   const std::uint32_t* non_finite, UpdateDecision* decision);
void update_adamw(const UpdateArrays& arrays, const AdamWRates& rates,
                  const UpdateDecision* decision);
void update_sgd(const UpdateArrays& arrays, const SgdRates& rates, const UpdateDecision* decision);
}  // namespace reference

}  // namespace kolo::trainer::cuda
