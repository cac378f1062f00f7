#include "trainer/loop/evaluator.h"

#include <array>

namespace kolo::trainer {

LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums) {
  std::array<double, 3> values{sums.loss, sums.correct, sums.rows};
  runtime.all_reduce(name,
                     {.data = values.data(), .count = values.size(), .dtype = DType::kFloat64});
  return {.loss = values[0], .correct = values[1], .rows = values[2]};
}

LossSums evaluate(Runtime& runtime, Model& model, SoftmaxCrossEntropy& loss, DataLoader& loader) {
  LossSums sums;
  for (std::size_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.load(0, step);
    if (batch.samples == 0) continue;
    sums += loss.evaluate(model.forward(batch.inputs), batch.targets, 1.0f);
  }
  return sum_over_ranks(runtime, "evaluation", sums);
}

}  // namespace kolo::trainer
