#pragma once

#include <cstddef>
#include <memory>

#include "trainer/data/dataset.h"
#include "trainer/loop/config.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

class Device;

/// What is trained on what.
struct Task {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  std::unique_ptr<Model> model;
  std::size_t classes;
  bool is_text;
};

/// Loads the data and makes the model for batches of config.batch samples. `device` outlives it.
/// Errors: KoloError(kData) as the loaders, UsageError when the model cannot take the images.
Task make_task(const Config& config, Device& device);

}  // namespace kolo::trainer
