#pragma once

#include <memory>
#include <string_view>

#include "trainer/catalog.h"

namespace kolo::trainer {

/// An optimizer by its name. `parameters` outlive it.
inline std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterSet& parameters,
                                                 const OptimizerOptions& options) {
  return built_in_catalog().optimizers.at(name).make(parameters, options);
}

}  // namespace kolo::trainer
