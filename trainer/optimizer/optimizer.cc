#include "trainer/optimizer/optimizer.h"

#include <string>

#include "trainer/config_error.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/sgd.h"

namespace kolo::trainer {

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterSet& parameters,
                                          const OptimizerOptions& options) {
  if (name == "sgd") return std::make_unique<Sgd>(parameters, options);
  if (name == "adamw") return std::make_unique<AdamW>(parameters, options);
  throw_config_error("unknown optimizer '" + std::string(name) + "': choose sgd or adamw");
}

}  // namespace kolo::trainer
