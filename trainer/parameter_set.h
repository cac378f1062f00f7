#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/error.h"
#include "comm/base/half.h"
#include "trainer/part.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// The sparse gradient of a table: only the rows that a step used, each with its index.
///
/// During backward passes it holds this rank's contributions, perhaps several for one row. The
/// runtime then replaces them by the averages over ranks, in which each row occurs once.
///
/// Threads: one.
class RowGradient {
 public:
  /// `width` is the number of elements per row.
  explicit RowGradient(std::size_t width) : width_(width) {}

  std::size_t width() const { return width_; }
  std::span<const std::int64_t> indices() const { return indices_; }
  /// The rows, in the order of `indices`. Shape: [indices().size(), width()].
  std::span<const float> values() const { return values_; }
  std::span<const float> values(std::size_t i) const {
    return std::span(values_).subspan(i * width_, width_);
  }

  void clear() {
    indices_.clear();
    values_.clear();
  }

  /// Appends a contribution to row `index`: factor times `row`.
  void append(std::int64_t index, std::span<const float> row, float factor) {
    indices_.push_back(index);
    for (const float value : row) values_.push_back(factor * value);
  }

 private:
  std::size_t width_;
  std::vector<std::int64_t> indices_;
  std::vector<float> values_;
};

class ParameterSet;

/// A range of a tensor's elements.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// Where a layer writes its contribution to a gradient, and whether it overwrites or adds.
struct Contribution {
  void* data;
  DType dtype;
  Into into;
};

/// One trained tensor and the memory of its gradient.
///
/// A gradient is float32 or bfloat16. A bfloat16 gradient is rounded once per step: by the layer
/// that writes it or, if several contributions add up in float32, after the last one.
class Parameter {
 public:
  /// `whole` is the shape of the tensor of which this rank has `part`.
  Parameter(ParameterSet& owner, std::size_t index, std::string name, Shape whole,
            const Part& part);

  const std::string& name() const { return name_; }
  std::size_t index() const { return index_; }
  ParameterSet& owner() { return owner_; }
  /// The shape of this rank's part.
  const Shape& shape() const { return shape_; }
  const Shape& whole_shape() const { return whole_shape_; }
  const Part& part() const { return part_; }
  std::size_t size() const { return value_.size(); }
  /// The values, to be written immediately: `version` changes with this call, not with a later
  /// write through the span. Waits for expected values (`expect_value`).
  std::span<float> value() {
    await_value();
    ++version_;
    return value_;
  }
  std::span<const float> value() const {
    await_value();
    return value_;
  }
  /// A number that changes whenever the values do. The owner of a cached copy in another dtype or
  /// layout compares it.
  std::uint64_t version() const { return version_; }

  /// Moves the values to `memory`, which has size() floats and is valid until `unbind_value`.
  void bind_value(std::span<float> memory);
  /// Moves the values back to memory that the parameter owns.
  void unbind_value();
  /// Announces that new values will be received: the next access to the values calls the hook
  /// `ParameterSet::on_value_needed`, which waits for them and calls `value_arrived`.
  void expect_value() {
    ++version_;
    is_value_expected_ = true;
  }
  void value_arrived() { is_value_expected_ = false; }

  /// The float32 memory in which contributions add up. For a float32 gradient, this is the gradient
  /// itself; if it has no memory yet, the hook `ParameterSet::on_gradient_needed` binds some. For a
  /// bfloat16 gradient, the first call allocates separate memory. Empty if the gradient is sparse.
  std::span<float> gradient();
  std::span<const float> gradient() const { return gradient_; }
  DType gradient_dtype() const { return rounded_.empty() ? DType::kFloat32 : DType::kBFloat16; }
  /// The sparse gradient, or null if the gradient is dense. See `ParameterSet::use_rows`.
  RowGradient* rows() { return rows_ ? &*rows_ : nullptr; }
  const RowGradient* rows() const { return rows_ ? &*rows_ : nullptr; }

  /// Restricts this rank's updates to the elements of `range`. `gradient` receives their averages
  /// and is valid until `own_all`; backward passes still write the whole gradient.
  void own_shard(ElementRange range, std::span<float> gradient);
  void own_all() { shard_.reset(); }
  bool is_sharded() const { return shard_.has_value(); }
  /// The elements that this rank updates.
  ElementRange owned() const { return shard_ ? shard_->range : ElementRange{0, size()}; }
  /// Calls `use(part)` for consecutive parts of the averages of `range`. Before: this rank owns
  /// `range`, and the gradient is dense.
  template <typename Use>
  void visit_averages(ElementRange range, const Use& use) const {
    if (rounded_.empty()) {
      use(averages().subspan(range.begin - owned().begin, range.count));
    } else {
      visit_rounded(range, [&](std::size_t, std::span<const float> part) { use(part); });
    }
  }

  /// Calls `use(begin, part)` for each part of this rank's gradient that may be nonzero. A part is
  /// all owned elements of a float32 gradient, a block of a bfloat16 gradient, or a row of a sparse
  /// one. `begin` is the index of its first element in the tensor.
  template <typename Use>
  void visit_gradient(const Use& use) const {
    if (!rounded_.empty()) return visit_rounded(owned(), use);
    if (!rows_) return use(owned().begin, averages());
    for (std::size_t i = 0; i < rows_->indices().size(); ++i) {
      use(static_cast<std::size_t>(rows_->indices()[i]) * rows_->width(), rows_->values(i));
    }
  }
  /// Makes `memory` the gradient from now on. Before: it holds size() elements and stays valid
  /// until `unbind_gradient` or the last backward pass.
  void bind_gradient(std::span<float> memory);
  void bind_gradient(std::span<BFloat16> memory);
  void unbind_gradient();

  /// Registers one more layer that uses the parameter and contributes to its gradient in every
  /// backward pass.
  void share() { ++users_; }
  bool is_shared() const { return users_ > 1; }

  /// How a layer stores its next contribution: the first contribution of a step overwrites the
  /// gradient, and the others add to it.
  Into next_contribution() const { return contributions_ == 0 ? Into::kOverwrite : Into::kAdd; }

  /// Where a layer writes its next contribution, which it can compute in dtype `offered` or in
  /// float32. This is the gradient itself if it has dtype `offered` and no other contribution.
  Contribution contribution(DType offered);

  /// Call after writing a contribution. The last contribution of a step completes the gradient.
  void contributed();

  // The next functions are for tables (see `ParameterSet::add_table`).

  /// Row `index` of the values.
  std::span<float> row(std::int32_t index) {
    await_value();
    return row_of(value_, index);
  }
  /// Prepares the gradient for a layer's contribution. Call before the first `add_to_row` of each
  /// backward pass of the layer.
  void begin_rows();
  /// Adds factor times `values` to the gradient of row `index`.
  void add_to_row(std::int32_t index, std::span<const float> values, float factor);

 private:
  friend class ParameterSet;
  struct Shard {
    ElementRange range;
    std::span<float> gradient;
  };

  void await_value() const;
  std::span<const float> averages() const { return shard_ ? shard_->gradient : gradient_; }

  /// Number of bfloat16 elements widened at a time; as float32 they fit in the first-level cache.
  static constexpr std::size_t kBlock = 2048;

  template <typename Use>
  void visit_rounded(ElementRange range, const Use& use) const {
    alignas(Tensor::kAlignment) std::array<float, kBlock> block;
    const std::size_t end = range.begin + range.count;
    for (std::size_t begin = range.begin; begin < end; begin += kBlock) {
      const std::span<float> part = std::span(block).first(std::min(kBlock, end - begin));
      widen(begin, part);
      use(begin, std::span<const float>(part));
    }
  }
  void widen(std::size_t begin, std::span<float> out) const;

  std::span<float> row_of(std::span<float> table, std::int32_t index) const {
    const std::size_t width = shape()[1];
    return table.subspan(static_cast<std::size_t>(index) * width, width);
  }

  ParameterSet& owner_;
  std::size_t index_;
  std::string name_;
  Shape whole_shape_;
  Part part_;
  Shape shape_;
  Tensor own_value_;  // empty while the values are in bound memory
  std::span<float> value_;
  std::uint64_t version_ = 1;
  bool is_value_expected_ = false;
  bool is_table_ = false;
  std::span<float> gradient_;
  std::optional<Shard> shard_;
  std::span<BFloat16> rounded_;  // the gradient if it is bfloat16, else empty
  Tensor sums_;                  // backs `gradient_` if the gradient is bfloat16
  bool is_rounded_ = false;      // whether this step's contribution was written to `rounded_`
  std::optional<RowGradient> rows_;
  std::size_t users_ = 1;
  std::size_t contributions_ = 0;  // number of contributions in this step
};

/// Initial values of a parameter: uniformly distributed random numbers with this mean and standard
/// deviation, or all equal to `mean` if `deviation` is 0. Unlike normal numbers, uniform ones need
/// no logarithm, so their bits do not depend on a mathematics library.
struct Initial {
  float mean = 0.0f;
  float deviation = 0.0f;
};

/// A tensor of a model that forward passes change and optimizers do not, such as running
/// statistics. It is saved, copied and broadcast like the parameters.
struct Buffer {
  std::string name;
  Tensor value;
};

/// The parameters and buffers of a model in the order of their registration, which is equal on all
/// ranks.
///
/// Threads: one.
class ParameterSet {
 public:
  using Hook = std::function<void(std::size_t index)>;

  /// Initial values of parameters depend only on `seed` and on the order of registration, not on
  /// the parts that ranks have. Without a seed, they are zero.
  explicit ParameterSet(std::optional<std::uint64_t> seed) : seed_(seed) {}
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;

  /// Adds a parameter: `part` of a tensor of shape `shape`. If models share the set, it returns the
  /// parameter of this name that the first model has added. The reference is valid as long as the
  /// set.
  Parameter& add(std::string name, Shape shape, Initial initial, const Part& part = {});

  /// Skips the random numbers of `parameters` parameters that only other ranks register.
  void leave_out(std::size_t parameters) { left_out_ += parameters; }

  /// Adds a parameter [height, width] of which a step uses few rows; layers contribute to its
  /// gradient row by row (`Parameter::add_to_row`).
  Parameter& add_table(std::string name, std::size_t height, std::size_t width, Initial initial);

  /// Adds a buffer with all elements equal to `value`. The reference is valid as long as the set.
  Buffer& add_buffer(std::string name, Shape shape, float value);

  std::deque<Buffer>& buffers() { return buffers_; }
  const std::deque<Buffer>& buffers() const { return buffers_; }

  std::size_t size() const { return parameters_.size(); }
  Parameter& operator[](std::size_t index) { return parameters_[index]; }
  const Parameter& operator[](std::size_t index) const { return parameters_[index]; }
  std::size_t element_count() const;
  /// Returns the parameter of this name, or null if there is none.
  const Parameter* find(std::string_view name) const;

  /// Sets the number of backward passes per step; their gradients add up. Call between steps.
  /// Before: passes > 0.
  void accumulate(std::size_t passes) { passes_ = passes; }

  /// Sets the hook that is called once per parameter and step, as soon as its gradient is complete.
  void on_gradient_ready(Hook hook) { gradient_ready_ = std::move(hook); }

  /// Sets the hook that binds memory to a gradient when a backward pass needs some.
  void on_gradient_needed(Hook hook) { gradient_needed_ = std::move(hook); }

  /// Sets the hook that waits for expected values (`Parameter::expect_value`). It is called when
  /// values are needed that have not been received.
  void on_value_needed(Hook hook) { value_needed_ = std::move(hook); }

  /// Makes the gradients of tables sparse from now on.
  void use_rows();

  /// Binds every dense gradient to memory that the set owns, for training without a runtime.
  void own_gradients();

  /// Copies all parameters and buffers of `other`. Errors: UsageError if shapes differ.
  void copy_values(const ParameterSet& other);

  /// XXH3-64 over the bytes of all parameters, then of all buffers, in registration order.
  std::uint64_t hash() const;

 private:
  friend class Parameter;
  std::optional<std::uint64_t> seed_;
  std::size_t left_out_ = 0;
  std::deque<Parameter> parameters_;
  std::deque<Buffer> buffers_;
  std::deque<Tensor> owned_gradients_;
  Hook gradient_ready_, gradient_needed_, value_needed_;
  std::size_t passes_ = 1;
};

inline void Parameter::await_value() const {
  if (is_value_expected_) owner_.value_needed_(index_);
}

/// Training has diverged: a loss, weight or gradient is infinite or NaN, and no lower loss scale
/// can help. All ranks find this in the same step.
class DivergedError final : public KoloError {
 public:
  /// Exit status of a program that ends with this error.
  static constexpr int kExitStatus = 79;

  using KoloError::KoloError;
};

/// Names the first tensor with an infinite or NaN element: "the weights of 'NAME'", in the order of
/// the forward pass; if all weights are finite, "the gradient of 'NAME'", in the order of the
/// backward pass. Returns an empty string if all are finite. Ignores gradients without memory.
std::string first_not_finite(const ParameterSet& parameters);

/// Throws DivergedError. Its message says that `what` is not finite, and names the first such
/// tensor.
[[noreturn]] void throw_diverged(const std::string& what, const ParameterSet& parameters);

}  // namespace kolo::trainer
