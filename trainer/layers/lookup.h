#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Numbers to the vectors of a table: y[i] = table[ids[i]].
///
/// Shape: ids are [count], the table [entries, width], y is [count, width]. Registers `name`, a
///        table whose gradient has the rows that were looked up.
/// Not a `Layer`: its input is integers and has no gradient.
class Lookup {
 public:
  struct Options {
    std::size_t count;
    std::size_t entries;
    std::size_t width;
    float deviation;  ///< Of initial values.
    /// An id whose vector is zero and stays so.
    std::optional<std::int32_t> padding = std::nullopt;
  };

  Lookup(ParameterSet& parameters, const std::string& name, const Options& options);

  /// Before: the ids, at most `count`, are in 0 … entries - 1 and stay valid until `backward`
  /// returns.
  std::span<const float> forward(std::span<const std::int32_t> ids);

  void backward(std::span<const float> output_gradient);

 private:
  Options options_;
  Parameter& table_;
  Tensor output_;
  std::span<const std::int32_t> ids_;
};

}  // namespace kolo::trainer
