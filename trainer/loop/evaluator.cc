#include "trainer/loop/evaluator.h"

#include <array>

namespace kolo::trainer {

LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums) {
  std::array<double, 3> values{sums.loss, sums.score, sums.rows};
  runtime.all_reduce(name, {values.data(), values.size(), DType::kFloat64});
  return {.loss = values[0], .score = values[1], .rows = values[2]};
}

LossSums evaluate(Runtime& runtime, Learner& learner, DataLoader& loader,
                  const std::function<void(std::size_t)>& progress) {
  learner.begin_evaluation();
  for (std::size_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.load(0, step);
    if (batch.samples > 0) learner.evaluate(batch);
    progress(step + 1);
  }
  learner.end_evaluation();
  return sum_over_ranks(runtime, "evaluation", learner.take_sums());
}

}  // namespace kolo::trainer
