// Numbers that people give to things.

#include <cmath>
#include <utility>

#include "trainer/config.h"
#include "trainer/loss/squared_error.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

TaskEntry rating() {
  return {.name = "rating",
          .help = "the number that a user gives to an item",
          .make = [](const Config& config, DataSplit data) -> Task {
            const std::vector<Field>& targets = data.train->format().targets;
            if (targets.empty()) throw_wrong_samples(config, "a number to predict");
            const Field& target = targets[0];
            if (target.dtype != DType::kFloat32 || target.elements() != 1) {
              throw_wrong_samples(config, "a number to predict");
            }
            return {.data = std::move(data),
                    .outputs = 1,
                    .rows_per_sample = 1,
                    .unit = "samples",
                    .metric = {.name = "rmse",
                               .is_higher_better = false,
                               .is_share = false,
                               .value = [](double mean_square) { return std::sqrt(mean_square); }},
                    .make_loss = [](std::size_t batch) {
                      return std::make_unique<SquaredError>(batch);
                    }};
          }};
}

}  // namespace kolo::trainer
