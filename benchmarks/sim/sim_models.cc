#include "benchmarks/sim/predictions.h"

#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "trainer/compute/device.h"
#include "trainer/models/gpt.h"

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
  constexpr std::size_t kTokens = 1024;
  trainer::ParameterSet parameters(std::nullopt);
  trainer::Gpt::Options options{.sequences = 1,
                                .context = kTokens,
                                .tokens = 50304,
                                .model = {},
                                .seed = 0,
                                .parameters = &parameters};
  options.model.layers = 22;
  options.model.width = 1792;
  options.model.tied = false;
  trainer::Device device;
  trainer::Gpt(device, options);
  ModelPreset model{.name = "gpt1b", .batch = 8};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const trainer::Parameter& each = parameters[i];
    const auto elements = static_cast<double>(each.size());
    double flops = each.name().ends_with(".weight") ? 2 * elements * kTokens : 0;
    // The operations of attention scores and their sums have no weights; they are added here.
    if (each.name().ends_with("project.weight")) flops += 4.0 * kTokens * kTokens * 1792;
    add(model, each.name(), each.shape(), flops);
  }
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
