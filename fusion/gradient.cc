#include "fusion/gradient.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "fusion/gradient_checks.h"
#include "fusion/overlap.h"

namespace kolo {

namespace {

/// The number of float64 elements that a pointer difference can span.
constexpr std::size_t kMostElements = PTRDIFF_MAX / sizeof(double);

/// Checks that gradients do not overlap: a shared element would be summed twice, or summed while
/// another rank reads it.
void check_apart(std::span<const GradientSpec> gradients) {
  std::vector<UsedMemory> ranges;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const GradientSpec& gradient = gradients[i];
    if (gradient.data == nullptr) continue;
    ranges.push_back({.begin = gradient.data,
                      .bytes = gradient.count() * size_of(gradient.element_type()),
                      .index = i});
  }
  if (const auto overlap = find_overlap(std::move(ranges))) {
    throw UsageError(fmt::format(
        "gradients '{}' and '{}' of one set share memory, which would be combined twice; register "
        "weights that are tied once, and others with memory of their own",
        gradients[overlap->first].name, gradients[overlap->second].name));
  }
}

}  // namespace

std::size_t GradientSpec::count() const {
  if (shape.empty()) return data.count().value_or(1);
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

std::vector<GradientSpec> flat_gradients(const BufferView& buffer, Span<const std::size_t> sizes,
                                         Span<const std::string> names) {
  check(buffer.data != nullptr || buffer.count == 0, "the flat buffer of gradients is null");
  check(names.empty() || names.size() == sizes.size(),
        fmt::format("{} names for {} gradients of a flat buffer", names.size(), sizes.size()));
  std::vector<GradientSpec> gradients;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    check(sizes[i] <= buffer.count - begin,
          fmt::format("the first {} sizes of gradients add up to more than the {} elements of "
                      "their flat buffer",
                      i + 1, buffer.count));
    gradients.push_back({.name = names.empty() ? std::to_string(i) : names[i],
                         .shape = {sizes[i]},
                         .dtype = buffer.dtype,
                         .data = static_cast<void*>(static_cast<std::byte*>(buffer.data) +
                                                    begin * size_of(buffer.dtype)),
                         .memory = buffer.memory});
    begin += sizes[i];
  }
  check(begin == buffer.count,
        fmt::format("the sizes of gradients add up to {} elements, and their flat buffer has {}",
                    begin, buffer.count));
  return gradients;
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
    text += fmt::format("'{}': {} in {} {}memory", gradient.name,
                        describe_shape(gradient.element_type(), gradient.shape),
                        gradient.data ? "user" : "arena",
                        gradient.memory == MemoryKind::kDevice ? "device " : "");
    if (gradient.wire_dtype) text += fmt::format(", wire {}", to_string(*gradient.wire_dtype));
    if (!gradient.compression.empty()) text += ", " + gradient.compression;
    text += '\n';
  }
  return text;
}

void complete(std::span<GradientSpec> gradients) {
  for (GradientSpec& gradient : gradients) {
    const std::optional<std::size_t> count = gradient.data.count();
    if (gradient.shape.empty()) {
      check(count.has_value(),
            fmt::format("gradient '{}' has no shape; give the elements per dimension ({{1}} for a "
                        "scalar), or data that knows their number, such as a span",
                        gradient.name));
      gradient.shape = {*count};
    }
    check(!count || *count == gradient.count(),
          fmt::format("gradient '{}' has the shape [{}], but its data has {} elements",
                      gradient.name, fmt::join(gradient.shape, ", "), count.value_or(0)));
    check(gradient.dtype || gradient.data.dtype() || gradient.data == nullptr,
          fmt::format("gradient '{}' has no dtype, and the type of its pointer tells none; say it",
                      gradient.name));
    gradient.dtype = gradient.element_type();
  }
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
    const DType dtype = gradient.element_type();
    check(is_number(dtype),
          fmt::format("gradient '{}' is of {}; gradients are floating-point numbers or integers",
                      gradient.name, to_string(dtype)));
    check(gradient.name.find('\n') == std::string::npos, "a gradient's name must be one line");
    check(names.insert(gradient.name).second,
          fmt::format("gradient '{}' appears twice in the set", gradient.name));
    check(!gradient.wire_dtype || is_float(*gradient.wire_dtype),
          fmt::format("the wire dtype of gradient '{}' must be a float type", gradient.name));
    check(gradient.memory != MemoryKind::kPinned,
          fmt::format("gradient '{}' is either in host or in device memory", gradient.name));
    check(!divides || (is_float(dtype) && gradient.memory == MemoryKind::kHost),
          fmt::format("the divisor {} is for floating-point gradients in host memory, not for '{}'",
                      to_string(options.divisor), gradient.name));
    check(options.divisor != Divisor::kSamples || dtype != DType::kFloat16,
          fmt::format("gradient '{}' is of float16, whose range it would leave when it is "
                      "multiplied by samples; use bfloat16, float32 or another divisor",
                      gradient.name));
  }
  check_apart(gradients);
}

}  // namespace kolo
