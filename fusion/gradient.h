#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"

namespace kolo {

/// One gradient as the caller describes it.
struct GradientSpec {
  std::string name;                     ///< Unique within the set.
  std::vector<std::size_t> shape = {};  ///< Elements per dimension; empty means one element.
  DType dtype = DType::kFloat32;        ///< Element type: one of `kNumberDTypes`.
  /// The gradient's memory. Null: the runtime allocates it; see `GradientSet::view`.
  void* data = nullptr;
  MemoryKind memory = MemoryKind::kHost;  ///< kHost or kDevice.
  /// A compression spec such as "topk(0.01)"; empty: the rules of the set decide. Registration
  /// replaces it by the spec in force for this gradient; empty then means dense.
  std::string compression = {};
  /// Dtype on the wire; empty: the one of the set. A 16-bit `compression` sets it.
  std::optional<DType> wire_dtype = std::nullopt;

  /// Elements. Errors: UsageError if they are more than memory can hold.
  std::size_t count() const;
};

/// What the sum of a gradient is divided by in an average.
enum class Divisor : std::uint8_t {
  kAllRanks,           ///< The number of ranks.
  kContributingRanks,  ///< The number of ranks that have the gradient in this iteration.
  kSamples,            ///< Samples of those ranks; each multiplies its gradient by its own.
};

/// "all_ranks", "contributing_ranks" or "samples".
std::string_view to_string(Divisor divisor);

/// What all gradients of a set have in common.
struct GradientOptions {
  ReduceOp op = ReduceOp::kAverage;  ///< How contributions are combined: one of `kNumberOps`.
  /// Dtype of floating-point gradients on the wire; empty: the runtime's `wire_dtype` option, and
  /// if that is empty too, the dtype of each gradient.
  std::optional<DType> wire_dtype = std::nullopt;
  /// Compression rules by name, for gradients without a spec of their own; empty: the runtime's
  /// `compression` option.
  std::string compression = {};
  /// Of averages. Other divisors than all ranks are for floating-point gradients in host memory
  /// that are not sent sparsely; see `GradientSet::absent` and `GradientSet::set_samples`.
  ///
  /// Rounding: gradients are averaged over all ranks, then multiplied by N / contributing ranks,
  ///           or by N / samples, and rounded to their dtype. With contributing ranks, where all
  ///           ranks contribute, the bits are those of all ranks. With samples each contribution
  ///           is also rounded after its multiplication.
  Divisor divisor = Divisor::kAllRanks;
};

/// The set as text, which must be equal on all ranks: a line for the set, then one per gradient.
/// The hash of the text is the fingerprint of the set; errors quote its lines when ranks disagree.
std::string describe(std::span<const GradientSpec> gradients, const GradientOptions& options);

/// Dtype and shape for people: "float32 [3, 4]".
std::string describe_shape(DType dtype, std::span<const std::size_t> shape);

/// Throws UsageError on an empty set, an empty or repeated name, a shape that no memory can hold, a
/// dtype or operation that is not of numbers, a wire dtype that is not floating-point, or a divisor
/// without an average or with a gradient that it is not for.
void check_gradients(std::span<const GradientSpec> gradients, const GradientOptions& options);

}  // namespace kolo
