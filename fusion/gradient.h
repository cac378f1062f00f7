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

/// The memory of a gradient, and the information in its C++ type: the dtype of a pointer, or the
/// dtype and number of elements of a vector, an array or a span.
class GradientData {
 public:
  /// Without memory: the runtime allocates it.
  constexpr GradientData(std::nullptr_t = nullptr) {}  // NOLINT(*-explicit-*): a pointer.
  /// For a pointer without a type: the caller gives the dtype separately.
  constexpr GradientData(void* data) : data_(data) {}  // NOLINT(*-explicit-*): a pointer.
  /// For a typed pointer. (A parameter `T*` would also accept arrays.)
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

/// The caller's description of one gradient.
struct GradientSpec {
  std::string name;  ///< Unique within the set.
  /// Elements per dimension; {1} for a scalar. May be omitted if `data` has a number of elements.
  std::vector<std::size_t> shape = {};
  /// Element type, one of `kNumberDTypes`. May be omitted if `data` has a dtype, and for float32
  /// memory that the runtime allocates.
  std::optional<DType> dtype = std::nullopt;
  /// The gradient's memory. It must not move while the set exists, and other gradients of the set
  /// must not share it. If null, the runtime allocates it; see `GradientSet::view`.
  GradientData data = nullptr;
  MemoryKind memory = MemoryKind::kHost;  ///< Either kHost or kDevice.
  /// A compression spec such as "topk(0.01)". If empty, the rules of the set apply. Registration
  /// replaces it by the spec in effect; empty then means dense.
  std::string compression = {};
  /// Dtype in messages; if empty, that of the set. A 16-bit `compression` sets it.
  std::optional<DType> wire_dtype = std::nullopt;

  DType element_type() const { return dtype.value_or(data.dtype().value_or(DType::kFloat32)); }
  /// Number of elements. Errors: UsageError if they exceed the address space.
  std::size_t count() const;
};

/// The divisor of the sum in an average.
enum class Divisor : std::uint8_t {
  kAllRanks,           ///< The number of ranks.
  kContributingRanks,  ///< The number of ranks that have the gradient in this iteration.
  kSamples,            ///< The number of samples of the ranks that have the gradient; each rank
                       ///< multiplies its gradient by its own number of samples.
};

/// Returns "all_ranks", "contributing_ranks" or "samples".
std::string_view to_string(Divisor divisor);

/// Options of all gradients of a set.
struct GradientOptions {
  ReduceOp op = ReduceOp::kAverage;  ///< How contributions are combined: one of `kNumberOps`.
  /// Dtype of floating-point gradients in messages. If empty, the runtime's `wire_dtype` option; if
  /// that is also empty, the dtype of each gradient.
  std::optional<DType> wire_dtype = std::nullopt;
  /// Compression rules by name, for gradients without a spec. If empty, the option `compression`.
  std::string compression = {};
  /// The divisor of averages. Divisors other than kAllRanks require floating-point gradients in
  /// host memory that are not sent sparsely, and kSamples no float16; see `GradientSet::absent` and
  /// `GradientSet::set_samples`.
  ///
  /// Rounding: gradients are averaged over all N ranks, then multiplied by N / contributing ranks,
  /// or by N / samples, and rounded to their dtype. If all ranks contribute, kContributingRanks
  /// gives the same bits as kAllRanks. With kSamples each contribution is also rounded after it is
  /// multiplied by its rank's number of samples.
  Divisor divisor = Divisor::kAllRanks;
};

/// Returns specs of adjacent gradients in `buffer`, with the given numbers of elements, for models
/// with one flat buffer. Their names are `names`, or their indices if `names` is empty.
///
/// Errors: UsageError if the buffer is null, the sizes do not add up to it, or `names` has another
///         length.
std::vector<GradientSpec> flat_gradients(const BufferView& buffer, Span<const std::size_t> sizes,
                                         Span<const std::string> names = {});

}  // namespace kolo
