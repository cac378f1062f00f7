#include "benchmarks/sim/predictions.h"

#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"

namespace kolo::bench {
namespace {

void add(ModelPreset& model, const std::string& name, std::vector<std::size_t> shape,
         double flops = 0) {
  model.gradients.push_back(
      {.name = fmt::format("{}.{}", model.gradients.size(), name), .shape = std::move(shape)});
  model.flops.push_back(flops);
}

/// Adds a convolution with `side` x `side` outputs, and the norm after it.
void add_convolution(ModelPreset& model, std::size_t in, std::size_t out, std::size_t kernel,
                     std::size_t side) {
  const double weights = static_cast<double>(in * out * kernel * kernel);
  add(model, "conv", {out, in, kernel, kernel}, 2 * weights * static_cast<double>(side * side));
  add(model, "norm.weight", {out});
  add(model, "norm.bias", {out});
}

/// Makes the model of He et al., CVPR 2016, with the stride in the 3 x 3 convolution, as is common.
ModelPreset resnet50() {
  ModelPreset model{.name = "resnet50", .batch = 64};
  add_convolution(model, 3, 64, 7, 112);
  std::size_t in = 64, width = 64, side = 56;
  for (int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      const std::size_t side_before = block == 0 && width > 64 ? 2 * side : side;
      add_convolution(model, in, width, 1, side_before);
      add_convolution(model, width, width, 3, side);
      add_convolution(model, width, 4 * width, 1, side);
      if (block == 0) add_convolution(model, in, 4 * width, 1, side);
      in = 4 * width;
    }
    width *= 2;
    side /= 2;
  }
  add(model, "fc.weight", {1000, 2048}, 2.0 * 1000 * 2048);
  add(model, "fc.bias", {1000});
  return model;
}

/// Makes the model of Radford et al., 2019, but with separate weights for the output layer.
ModelPreset gpt1b() {
  constexpr std::size_t kWidth = 1792, kVocabulary = 50304, kTokens = 1024;
  ModelPreset model{.name = "gpt1b", .batch = 8};
  const auto add_linear = [&](const char* name, std::size_t in, std::size_t out) {
    add(model, std::string(name) + ".weight", {out, in},
        2.0 * static_cast<double>(in * out * kTokens));
    add(model, std::string(name) + ".bias", {out});
  };
  const auto add_norm = [&] {
    add(model, "norm.weight", {kWidth});
    add(model, "norm.bias", {kWidth});
  };
  add(model, "tokens", {kVocabulary, kWidth});
  add(model, "positions", {kTokens, kWidth});
  for (int block = 0; block < 22; ++block) {
    add_norm();
    add_linear("attention", kWidth, 3 * kWidth);
    // The operations of attention scores and their sums have no weights; they are added here.
    add(model, "projection.weight", {kWidth, kWidth},
        2.0 * static_cast<double>(kWidth * kWidth * kTokens) +
            4.0 * static_cast<double>(kTokens * kTokens * kWidth));
    add(model, "projection.bias", {kWidth});
    add_norm();
    add_linear("up", kWidth, 4 * kWidth);
    add_linear("down", 4 * kWidth, kWidth);
  }
  add_norm();
  add(model, "head", {kVocabulary, kWidth},
      2.0 * static_cast<double>(kVocabulary * kWidth * kTokens));
  return model;
}

}  // namespace

std::size_t ModelPreset::parameters() const {
  std::size_t total = 0;
  for (const GradientSpec& gradient : gradients) total += gradient.count();
  return total;
}

double ModelPreset::forward_flops() const {
  return std::accumulate(flops.begin(), flops.end(), 0.0);
}

ModelPreset model_preset(const std::string& name) {
  if (name == "resnet50") return resnet50();
  if (name == "gpt1b") return gpt1b();
  static const std::vector<std::string> names = {"resnet50", "gpt1b"};
  throw UsageError("--model: " + describe_unknown(name, names));
}

}  // namespace kolo::bench
