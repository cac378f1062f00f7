#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// One tensor that every sample has: an image, its label, the tokens of a text.
struct Field {
  std::string name;
  DType dtype = DType::kFloat32;  ///< kUInt8, kInt32 or kFloat32.
  Shape shape = {};               ///< Of one sample; empty: a single element.
  /// Integers are below it: the classes of a label, the entries of a vocabulary. 0: any value.
  std::size_t values = 0;
  /// Over all elements of the data set, for models that normalise them.
  double mean = 0.0;
  double deviation = 1.0;

  std::size_t elements() const { return element_count(shape); }
  std::size_t bytes() const { return elements() * size_of(dtype); }
};

/// In place of the class of a row that has none to learn; see SoftmaxCrossEntropy.
inline constexpr std::int32_t kNoTarget = -1;

/// The tensors of a sample: those that the model reads, and those that the loss compares with.
struct SampleFormat {
  std::vector<Field> inputs;
  std::vector<Field> targets;
};

/// Whether samples of one format can stand for those of the other: same names, dtypes, shapes and
/// ranges.
bool is_compatible(const SampleFormat& a, const SampleFormat& b);

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kUInt8;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
}

/// Elements of a dtype that is known at run time, in memory of others. `Byte` is std::byte where
/// they are written and const std::byte where they are read.
template <typename Byte>
class TypedSpan {
 public:
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  TypedSpan(DType dtype, std::span<Byte> bytes) : dtype_(dtype), bytes_(bytes) {}
  /// All of a vector, an array or a span.
  template <std::ranges::contiguous_range R>
  requires(!std::is_same_v<std::remove_cvref_t<R>, TypedSpan>)
      TypedSpan(R&& elements)  // NOLINT: converts as a span does
      : dtype_(dtype_of<std::ranges::range_value_t<R>>()),
        bytes_(reinterpret_cast<Byte*>(std::ranges::data(elements)),
               std::ranges::size(elements) * sizeof(std::ranges::range_value_t<R>)) {}

  DType dtype() const { return dtype_; }
  std::span<Byte> bytes() const { return bytes_; }

  /// Errors: UsageError unless T is the type of the elements.
  template <typename T>
  std::span<Element<T>> as() const {
    check(dtype_of<T>() == dtype_, "a tensor of a batch is read as the type that it has");
    return {reinterpret_cast<Element<T>*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  DType dtype_;
  std::span<Byte> bytes_;
};

/// A tensor of a batch: samples back to back.
using TensorView = TypedSpan<const std::byte>;
/// Memory for a tensor of one sample.
using TensorSlot = TypedSpan<std::byte>;

/// One rank's samples of one pass, in memory of the loader.
struct Batch {
  std::vector<TensorView> inputs = {};   ///< Always a full batch; zeros after the last sample.
  std::vector<TensorView> targets = {};  ///< Those of the real samples only.
  std::size_t samples = 0;         ///< Real samples; fewer than a batch at the end of an epoch.
  std::size_t rank_samples = 0;    ///< Real samples of this rank in this step, over all passes.
  std::size_t global_samples = 0;  ///< Real samples of all ranks in this step.
  bool leaves_out_ranks = false;   ///< Some rank has none in this step.
  std::uint64_t epoch = 0;
  std::uint64_t first_position = 0;  ///< Of the first sample, in the order of the epoch.
};

}  // namespace kolo::trainer
