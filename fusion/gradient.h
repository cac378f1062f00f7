#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/element.h"
#include "comm/base/reduction.h"
#include "comm/base/span.h"

namespace kolo {

/// The memory of a gradient, with what its C++ type tells: the dtype of a pointer, and the number
/// of elements of a vector, an array or a span.
class GradientData {
 public:
  /// None: the runtime allocates it.
  constexpr GradientData(std::nullptr_t = nullptr) {}  // NOLINT(*-explicit-*): a pointer.
  /// The caller says the dtype elsewhere.
  constexpr GradientData(void* data) : data_(data) {}  // NOLINT(*-explicit-*): a pointer.
  /// (Not of `T*`, which arrays are, too.)
  template <typename Pointer, typename Plain = std::remove_cv_t<std::remove_reference_t<Pointer>>,
            std::enable_if_t<std::is_pointer_v<Plain> && kIsElement<std::remove_pointer_t<Plain>>,
                             int> = 0>
  constexpr GradientData(Pointer&& data)  // NOLINT(*-explicit-*): a pointer.
      : data_(data), dtype_(kDTypeOf<std::remove_pointer_t<Plain>>) {}
  template <typename Range, std::enable_if_t<kIsElements<Range>, int> = 0>
  constexpr GradientData(Range&& range)  // NOLINT(*-explicit-*): it is the same memory.
      : data_(std::data(range)), dtype_(kDTypeOf<ElementOf<Range>>), count_(std::size(range)) {}

  constexpr operator void*() const { return data_; }  // NOLINT(*-explicit-*): a pointer.
  constexpr std::optional<DType> dtype() const { return dtype_; }
  constexpr std::optional<std::size_t> count() const { return count_; }

 private:
  void* data_ = nullptr;
  std::optional<DType> dtype_;
  std::optional<std::size_t> count_;
};

/// One gradient as the caller describes it.
struct GradientSpec {
  std::string name;  ///< Unique within the set.
  /// Elements per dimension; {1} for a scalar. May be left out where `data` knows their number.
  std::vector<std::size_t> shape = {};
  /// Element type: one of `kNumberDTypes`. May be left out where `data` tells it, and for float32
  /// that the runtime allocates.
  std::optional<DType> dtype = std::nullopt;
  /// The gradient's memory, which stays where it is as long as the set lives, and which no other
  /// gradient of the set shares. Null: the runtime allocates it; see `GradientSet::view`.
  GradientData data = nullptr;
  MemoryKind memory = MemoryKind::kHost;  ///< kHost or kDevice.
  /// A compression spec such as "topk(0.01)"; empty: the rules of the set decide. Registration
  /// replaces it by the spec in force for this gradient; empty then means dense.
  std::string compression = {};
  /// Dtype on the wire; empty: the one of the set. A 16-bit `compression` sets it.
  std::optional<DType> wire_dtype = std::nullopt;

  DType element_type() const { return dtype.value_or(data.dtype().value_or(DType::kFloat32)); }
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

/// Gradients that lie one after another in `buffer`, of so many elements each: those of a model
/// with one flat buffer. They are called by `names`, or without by their index.
///
/// Errors: UsageError unless the sizes add up to the buffer, and each has a name.
std::vector<GradientSpec> flat_gradients(const BufferView& buffer, Span<const std::size_t> sizes,
                                         Span<const std::string> names = {});

}  // namespace kolo
