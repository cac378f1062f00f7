#include "runtime/gradients/gradient_compression.h"

#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "compression/kernels/top_k_selector.h"

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

constexpr std::string_view kShape = "small tensors and those of one dimension are sent dense";

/// Returns why a gradient does not follow the spec `asked`; empty if it does. `spec` is what
/// applies to a tensor of its shape.
std::string_view obstacle(const GradientSpec& gradient, const CompressionSpec& asked,
                          const CompressionSpec& spec) {
  if (asked.method->wire) {
    return is_float(gradient.element_type()) ? "" : "it is for floating-point gradients";
  }
  if (gradient.element_type() != DType::kFloat32) return "it is for float32 gradients";
  const bool on_device = gradient.memory == MemoryKind::kDevice;
  if (on_device && !asked.method->on_device && !asked.is_open()) {
    return "it is for gradients in host memory, and these are in device memory";
  }
  const bool may_be_top_k = asked.method->takes_density;
  if (may_be_top_k && gradient.count() >= kMostTopKElements) {
    return "top-k takes fewer than 2^31 elements of a tensor";
  }
  return spec.may_be_coded() ? "" : kShape;
}

/// The gradients for which one spec was asked and that do not follow it, by the reason.
struct Asked {
  std::map<std::string_view, std::vector<std::size_t>> unfollowed;
  bool is_followed = false;  ///< By any gradient.
};

CompressionDecision dense_decision(std::string reason, const std::vector<std::size_t>& which,
                                   const std::vector<GradientSpec>& gradients) {
  CompressionDecision decision{.tensors = fmt::format("'{}'", gradients[which.front()].name),
                               .path = "dense",
                               .reason = std::move(reason)};
  if (which.size() > 1) decision.tensors += fmt::format(" and {} more", which.size() - 1);
  for (const std::size_t i : which) decision.elements += gradients[i].count();
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
    const std::string_view why = obstacle(gradient, asked, spec);
    if (spec.method->wire && is_float(gradient.element_type())) {
      gradient.wire_dtype = spec.method->wire;
    }
    gradient.compression = spec.may_be_coded() && why.empty() ? spec.to_string() : std::string();
    if (asked.method == &methods::none) continue;
    Asked& same = all[asked.to_string()];
    same.is_followed |= why.empty();
    if (!why.empty()) same.unfollowed[why].push_back(i);
  }
  std::vector<CompressionDecision> decisions;
  for (const auto& [spec, asked] : all) {
    for (const auto& [why, which] : asked.unfollowed) {
      if (asked.is_followed && why == kShape) continue;  // as every spec has it
      decisions.push_back(
          dense_decision(fmt::format("{} does not apply: {}", spec, why), which, gradients));
    }
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
