#include "comm/base/reduction.h"

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"

namespace kolo {

static_assert(is_in_order<kReduceOps>());

namespace {

std::vector<std::string_view> dtypes_of(ReduceOp op) {
  std::vector<std::string_view> names;
  for (const DType dtype : kAllDTypes) {
    if (takes(op, dtype)) names.push_back(to_string(dtype));
  }
  return names;
}

}  // namespace

std::string_view to_string(ReduceOp op) { return name_of<kReduceOps>(op); }
std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  return value_named<kReduceOps>(text);
}

std::string describe(ReduceOp op, const Scales& scales) {
  const auto [before, after] = scales;
  std::string text(to_string(op));
  if (before != 1 || after != 1) text += " scaled by ";
  if (before != 1) text += fmt::format("{} before", before);
  if (before != 1 && after != 1) text += " and ";
  if (after != 1) text += fmt::format("{} after", after);
  return text;
}

void check_reduction(std::string_view name, const Reduction& reduction, DType dtype) {
  const ReduceOp op = reduction.op;
  const Scales& scales = reduction.scales;
  const auto whose = [&] { return name.empty() ? "" : fmt::format("'{}': ", name); };
  if (!takes(op, dtype)) {
    throw UsageError(fmt::format("{}{} does not take {}, only {}", whose(), to_string(op),
                                 to_string(dtype), fmt::join(dtypes_of(op), ", ")));
  }
  if (scales == Scales()) return;
  if (!is_float(dtype) && !is_complex(dtype)) {
    throw UsageError(
        fmt::format("{}elements of {} cannot be scaled, only floating-point and complex ones",
                    whose(), to_string(dtype)));
  }
  if (!std::isfinite(scales.before) || !std::isfinite(scales.after)) {
    throw UsageError(fmt::format("{}the scales {} before and {} after are not both finite", whose(),
                                 scales.before, scales.after));
  }
}

}  // namespace kolo
