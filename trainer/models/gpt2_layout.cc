#include "trainer/models/gpt2_layout.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kolo::trainer {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kBlock = "block";

using Names = std::pair<std::string_view, std::string_view>;  // ours, theirs

constexpr Names kNames[] = {{"embedding.token", "wte.weight"},
                            {"embedding.position", "wpe.weight"},
                            {"final_norm.gain", "ln_f.weight"},
                            {"final_norm.bias", "ln_f.bias"},
                            {"output.weight", "lm_head.weight"}};

/// After the number of a block. Weights of dense layers are those called "weight" by us.
constexpr Names kNamesInBlock[] = {{"attention_norm.gain", "ln_1.weight"},
                                   {"attention_norm.bias", "ln_1.bias"},
                                   {"query_key_value.weight", "attn.c_attn.weight"},
                                   {"query_key_value.bias", "attn.c_attn.bias"},
                                   {"project.weight", "attn.c_proj.weight"},
                                   {"project.bias", "attn.c_proj.bias"},
                                   {"inner_norm.gain", "ln_2.weight"},
                                   {"inner_norm.bias", "ln_2.bias"},
                                   {"expand.weight", "mlp.c_fc.weight"},
                                   {"expand.bias", "mlp.c_fc.bias"},
                                   {"contract.weight", "mlp.c_proj.weight"},
                                   {"contract.bias", "mlp.c_proj.bias"}};

std::optional<WeightLayout::Place> place_of(const std::string& parameter) {
  for (const auto& [ours, theirs] : kNames) {
    if (parameter != ours) continue;
    const std::string prefix(ours == "output.weight" ? "" : kPrefix);
    return WeightLayout::Place{.name = prefix + std::string(theirs)};
  }
  const std::size_t dot = parameter.find('.');
  if (!parameter.starts_with(kBlock) || dot == std::string::npos) return std::nullopt;
  const std::string number = parameter.substr(kBlock.size(), dot - kBlock.size());
  const std::string rest = parameter.substr(dot + 1);
  for (const auto& [ours, theirs] : kNamesInBlock) {
    if (rest != ours) continue;
    return WeightLayout::Place{
        .name = std::string(kPrefix) + "h." + number + "." + std::string(theirs),
        .is_transposed = ours.ends_with(".weight")};
  }
  return std::nullopt;
}

/// Masks of attention.
bool is_mask(std::string_view name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

}  // namespace

WeightLayout gpt2_layout() {
  return {.name = "gpt2",
          .help = "as GPT-2's published weights, from a gpt with learned positions",
          .prefix = std::string(kPrefix),
          .aliases = {{.name = "lm_head.weight",
                       .of = std::string(kPrefix) + "wte.weight",
                       .remedy = "--tied off"}},
          .needed = {"embedding.token", "embedding.position"},
          .place_of = place_of,
          .is_ignored = is_mask};
}

}  // namespace kolo::trainer
