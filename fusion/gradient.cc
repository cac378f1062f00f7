#include "fusion/gradient.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"

namespace kolo {

namespace {

/// As many float64 elements as a pointer difference can span.
constexpr std::size_t kMostElements = PTRDIFF_MAX / sizeof(double);

}  // namespace

std::size_t GradientSpec::count() const {
  if (std::ranges::find(shape, std::size_t{0}) != shape.end()) return 0;
  std::size_t product = 1;
  for (const std::size_t extent : shape) {
    check(extent <= kMostElements / product,
          fmt::format("gradient '{}' of shape [{}] has more elements than memory can hold", name,
                      fmt::join(shape, ", ")));
    product *= extent;
  }
  return product;
}

std::string describe_shape(DType dtype, std::span<const std::size_t> shape) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

std::string_view to_string(Divisor divisor) {
  constexpr std::string_view kNames[] = {"all_ranks", "contributing_ranks", "samples"};
  return kNames[static_cast<std::size_t>(divisor)];
}

std::string describe(std::span<const GradientSpec> gradients, const GradientOptions& options) {
  std::string text = fmt::format(
      "{} gradients, {}{}, wire {}\n", gradients.size(), to_string(options.op),
      options.divisor == Divisor::kAllRanks ? ""
                                            : fmt::format(" over {}", to_string(options.divisor)),
      options.wire_dtype ? to_string(*options.wire_dtype) : "as it is");
  for (const GradientSpec& gradient : gradients) {
    text += fmt::format(
        "'{}': {} in {} {}memory", gradient.name, describe_shape(gradient.dtype, gradient.shape),
        gradient.data ? "user" : "arena", gradient.memory == MemoryKind::kDevice ? "device " : "");
    if (gradient.wire_dtype) text += fmt::format(", wire {}", to_string(*gradient.wire_dtype));
    if (!gradient.compression.empty()) text += ", " + gradient.compression;
    text += '\n';
  }
  return text;
}

void check_gradients(std::span<const GradientSpec> gradients, const GradientOptions& options) {
  check(!gradients.empty(), "a gradient set needs at least one gradient");
  check(!options.wire_dtype || is_float(*options.wire_dtype),
        "the wire dtype must be floating-point");
  check(is_number_op(options.op),
        fmt::format("gradients are combined by sum, average, min, max or prod, not by {}",
                    to_string(options.op)));
  const bool divides = options.divisor != Divisor::kAllRanks;
  check(!divides || options.op == ReduceOp::kAverage,
        fmt::format("the divisor {} is for averages, not for {}", to_string(options.divisor),
                    to_string(options.op)));
  std::set<std::string_view> names;
  for (const GradientSpec& gradient : gradients) {
    check(!gradient.name.empty(), "a gradient needs a name");
    static_cast<void>(gradient.count());
    check(is_number(gradient.dtype),
          fmt::format("gradient '{}' is of {}; gradients are floating-point numbers or integers",
                      gradient.name, to_string(gradient.dtype)));
    check(gradient.name.find('\n') == std::string::npos, "a gradient's name must be one line");
    check(names.insert(gradient.name).second,
          fmt::format("gradient '{}' appears twice in the set", gradient.name));
    check(!gradient.wire_dtype || is_float(*gradient.wire_dtype),
          fmt::format("the wire dtype of gradient '{}' must be a float type", gradient.name));
    check(gradient.memory != MemoryKind::kPinned,
          fmt::format("gradient '{}' is either in host or in device memory", gradient.name));
    check(!divides || (is_float(gradient.dtype) && gradient.memory == MemoryKind::kHost),
          fmt::format("the divisor {} is for floating-point gradients in host memory, not for '{}'",
                      to_string(options.divisor), gradient.name));
  }
}

}  // namespace kolo
