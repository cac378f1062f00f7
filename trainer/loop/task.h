#pragma once

#include <cstddef>
#include <memory>

#include "trainer/data/dataset.h"
#include "trainer/loop/config.h"
#include "trainer/models/model_spec.h"

namespace kolo::trainer {

/// A model and its data.
struct Task {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  ModelSpec model;  ///< Made for batches of config.batch samples.
  std::size_t classes;
  bool is_text;
};

/// Loads the data and determines the model that fits it.
/// Errors: KoloError(kData) as the loaders.
Task make_task(const Config& config);

}  // namespace kolo::trainer
