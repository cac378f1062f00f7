#include "runtime/gradients/gradient_compression.h"

#include <cstddef>
#include <map>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"

namespace kolo {
namespace {

CompressionSpec spec_of(const GradientSpec& gradient, const CompressionRules& rules) {
  if (gradient.compression.empty()) return rules.spec_of(gradient.name);
  try {
    return CompressionSpec::parse(gradient.compression);
  } catch (const KoloError& e) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format("gradient '{}': {}", gradient.name, e.error().what)});
  }
}

bool can_be_coded(const GradientSpec& gradient) {
  return gradient.element_type() == DType::kFloat32 && gradient.memory == MemoryKind::kHost;
}

/// Returns a text for display: the compression of a gradient, its wire dtype or "dense".
std::string way_of(const GradientSpec& gradient) {
  if (!gradient.compression.empty()) return gradient.compression;
  return gradient.wire_dtype ? std::string(to_string(*gradient.wire_dtype)) : "dense";
}

}  // namespace

void resolve_compression(std::vector<GradientSpec>& gradients, const CompressionRules& rules) {
  for (GradientSpec& gradient : gradients) {
    const CompressionSpec spec = spec_of(gradient, rules).for_tensor(gradient.shape);
    if (spec.method->wire && is_float(gradient.element_type())) {
      gradient.wire_dtype = spec.method->wire;
    }
    const bool is_coded = spec.may_be_coded() && can_be_coded(gradient);
    gradient.compression = is_coded ? spec.to_string() : std::string();
  }
}

void check_compression(const std::vector<GradientSpec>& gradients, const GradientOptions& options) {
  const bool sums = options.op == ReduceOp::kSum || options.op == ReduceOp::kAverage;
  for (const GradientSpec& gradient : gradients) {
    if (gradient.compression.empty()) continue;
    check(sums, fmt::format("gradient '{}': {} takes sums and averages, not {}", gradient.name,
                            gradient.compression, to_string(options.op)));
    check(options.divisor == Divisor::kAllRanks,
          fmt::format("gradient '{}': {} takes the divisor all_ranks, not {}, because a residual "
                      "would be divided by the weights of a later iteration",
                      gradient.name, gradient.compression, to_string(options.divisor)));
  }
}

void check_reproducible(const std::vector<GradientSpec>& gradients) {
  for (const GradientSpec& gradient : gradients) {
    if (gradient.compression.empty()) continue;
    if (!CompressionSpec::parse(gradient.compression).is_open()) continue;
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format("gradient '{}': compression {} follows from measured "
                                         "times, which `reproducible` excludes; name a spec, such "
                                         "as topk(0.01) or none",
                                         gradient.name, gradient.compression)});
  }
}

std::string summarize_compression(const std::vector<GradientSpec>& gradients) {
  struct Part {
    std::size_t gradients = 0;
    std::size_t elements = 0;
  };
  std::map<std::string, Part> shares;
  std::size_t elements = 0;
  for (const GradientSpec& gradient : gradients) {
    Part& share = shares[way_of(gradient)];
    ++share.gradients;
    share.elements += gradient.count();
    elements += gradient.count();
  }
  if (shares.size() == 1 && shares.contains("dense")) return {};
  std::string text;
  for (const auto& [way, share] : shares) {
    text += fmt::format("{}{} of {} gradients ({:.1f} % of elements) {}", text.empty() ? "" : ", ",
                        share.gradients, gradients.size(),
                        100.0 * static_cast<double>(share.elements) / static_cast<double>(elements),
                        way);
  }
  return text;
}

}  // namespace kolo
