#include "trainer/cuda/learner/model_table.h"

#include <fmt/format.h>

#include "trainer/config_error.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_classifier.h"

namespace kolo::trainer::cuda {
namespace {

/// Kernels read tokens and targets as bytes.
constexpr std::size_t kMostTokens = 256;

using Maker = std::unique_ptr<CudaModel> (*)(kolo::Device&, const ModelSetting&,
                                             const CudaModelOptions&);

struct Entry {
  std::string_view name;
  Maker make;
};

/// Every model on a CUDA device; a new one adds its line.
constexpr Entry kModels[] = {
    {"mlp",
     [](kolo::Device& device, const ModelSetting& setting, const CudaModelOptions& options) {
       return make_mlp(device, image_model_options(setting), options);
     }},
    {"lenet",
     [](kolo::Device& device, const ModelSetting& setting, const CudaModelOptions& options) {
       return make_lenet(device, image_model_options(setting), options);
     }},
    {"gpt",
     [](kolo::Device& device, const ModelSetting& setting, const CudaModelOptions& options) {
       const Gpt::Options shape = Gpt::options(setting);
       if (shape.tokens != kMostTokens) {
         throw_config_error(
             fmt::format("--device cuda: gpt takes {} kinds of tokens there, bytes, and this data "
                         "has {}; choose --device cpu",
                         kMostTokens, shape.tokens));
       }
       return make_gpt(device, shape, options);
     }},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<CudaModel> make_model(std::string_view name, kolo::Device& device,
                                      const ModelSetting& setting,
                                      const CudaModelOptions& options) {
  for (const Entry& entry : kModels) {
    if (entry.name == name) return entry.make(device, setting, options);
  }
  throw_config_error(
      fmt::format("--device cuda: there is no model {} for it: choose {}, or --device cpu", name,
                  fmt::join(model_names(), ", ")));
}

}  // namespace kolo::trainer::cuda
