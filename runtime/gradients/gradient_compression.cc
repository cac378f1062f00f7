#include "runtime/gradients/gradient_compression.h"

#include <cstddef>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

/// Returns why a gradient does not follow the spec `asked`; empty if it does. `spec` is what
/// applies to a tensor of its shape.
std::string obstacle(const GradientSpec& gradient, const CompressionSpec& asked,
                     const CompressionSpec& spec) {
  if (asked.method->wire) {
    return is_float(gradient.element_type()) ? "" : "it is for floating-point gradients";
  }
  if (gradient.element_type() != DType::kFloat32) return "it is for float32 gradients";
  const bool on_device = gradient.memory == MemoryKind::kDevice;
  if (on_device && !asked.method->on_device && !asked.is_open()) {
    return "it is for gradients in host memory, and these are in device memory";
  }
  return spec.may_be_coded() ? "" : "small tensors and those of one dimension are sent dense";
}

/// The gradients for which one spec was asked.
struct Asked {
  std::vector<std::size_t> gradients;
  std::set<std::string> obstacles;
  bool is_followed = false;
};

CompressionDecision dense_decision(const std::string& spec, const Asked& asked,
                                   const std::vector<GradientSpec>& gradients) {
  CompressionDecision decision{
      .tensors = fmt::format("'{}'", gradients[asked.gradients.front()].name), .path = "dense"};
  if (asked.gradients.size() > 1) {
    decision.tensors += fmt::format(" and {} more", asked.gradients.size() - 1);
  }
  for (const std::size_t i : asked.gradients) decision.elements += gradients[i].count();
  decision.reason =
      fmt::format("no gradient follows {}: {}", spec, fmt::join(asked.obstacles, "; "));
  return decision;
}

/// Returns a text for display: the compression of a gradient, its wire dtype or "dense".
std::string way_of(const GradientSpec& gradient) {
  if (!gradient.compression.empty()) return gradient.compression;
  return gradient.wire_dtype ? std::string(to_string(*gradient.wire_dtype)) : "dense";
}

}  // namespace

std::vector<CompressionDecision> resolve_compression(std::vector<GradientSpec>& gradients,
                                                     const CompressionRules& rules) {
  std::map<std::string, Asked> all;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    GradientSpec& gradient = gradients[i];
    const CompressionSpec asked = spec_of(gradient, rules);
    const CompressionSpec spec = asked.for_tensor(gradient.shape);
    const std::string why = obstacle(gradient, asked, spec);
    if (spec.method->wire && is_float(gradient.element_type())) {
      gradient.wire_dtype = spec.method->wire;
    }
    gradient.compression = spec.may_be_coded() && why.empty() ? spec.to_string() : std::string();
    if (asked.method == &methods::none) continue;
    Asked& same = all[asked.to_string()];
    same.gradients.push_back(i);
    if (!why.empty()) same.obstacles.insert(why);
    same.is_followed |= why.empty();
  }
  std::vector<CompressionDecision> decisions;
  for (const auto& [spec, asked] : all) {
    if (!asked.is_followed) decisions.push_back(dense_decision(spec, asked, gradients));
  }
  return decisions;
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
