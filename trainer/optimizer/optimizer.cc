#include "trainer/optimizer/optimizer.h"

#include "trainer/config_error.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/sgd.h"

namespace kolo::trainer {
namespace {

using Maker = std::unique_ptr<Optimizer> (*)(ParameterSet&, const OptimizerOptions&);

template <typename O>
std::unique_ptr<Optimizer> make(ParameterSet& parameters, const OptimizerOptions& options) {
  return std::make_unique<O>(parameters, options);
}

struct Entry {
  std::string_view name;
  Maker make;
};

/// Every optimizer; a new one adds its line.
constexpr Entry kOptimizers[] = {
    {"sgd", make<Sgd>},
    {"adamw", make<AdamW>},
};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kOptimizers) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterSet& parameters,
                                          const OptimizerOptions& options) {
  for (const Entry& entry : kOptimizers) {
    if (entry.name == name) return entry.make(parameters, options);
  }
  throw_unknown_choice("--optimizer", name, optimizer_names());
}

}  // namespace kolo::trainer
