// Runs a training pass of a model with tables on random ids, and writes all that goes in and comes
// out, for a comparison with PyTorch.
//
//     row_models_dump embedding-bag|lstm|matrix-factorization FOLDER
//
// FOLDER gets one file of raw elements for each of first, second (int32, the inputs), targets,
// output, value/NAME and gradient/NAME of each parameter.

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/torch/dump.h"
#include "trainer/compute/device.h"
#include "trainer/loss/loss.h"
#include "trainer/models/matrix_factorization.h"
#include "trainer/models/text_models.h"
#include "trainer/random.h"

namespace {

using namespace kolo::trainer;

constexpr std::size_t kSamples = 6;
constexpr std::size_t kEntries = 20;
constexpr std::size_t kWidth = 16;

std::vector<std::int32_t> integers(std::size_t count, std::size_t from, std::size_t below) {
  Random random(7, count);
  std::vector<std::int32_t> drawn(count);
  for (auto& one : drawn) one = static_cast<std::int32_t>(from + random.below(below - from));
  return drawn;
}

template <typename T>
void run(Model& model, Loss& loss, const std::vector<std::int32_t>& first,
         const std::vector<std::int32_t>& second, const std::vector<T>& wanted,
         const std::filesystem::path& folder) {
  ParameterSet& parameters = model.parameters();
  parameters.own_gradients();
  dump_values(folder, parameters);
  dump<std::int32_t>(folder / "first", first);
  dump<std::int32_t>(folder / "second", second);
  dump<T>(folder / "targets", wanted);
  const TensorView inputs[] = {first, second};
  const TensorView targets[] = {wanted};
  const std::span<const float> output = model.forward(inputs, {});
  dump<float>(folder / "output", output);
  loss.evaluate(output, targets, 1.0f);
  model.backward(loss.gradient());
  dump_gradients(folder, parameters);
}

template <typename TextModel>
void run_texts(const std::filesystem::path& folder) {
  constexpr std::size_t kLength = 9;
  constexpr std::size_t kClasses = 5;
  Device device;
  TextModel model(device, {.texts = kSamples,
                           .length = kLength,
                           .words = kEntries,
                           .width = kWidth,
                           .classes = kClasses,
                           .dropout = 0.0f,
                           .seed = 3});
  SoftmaxCrossEntropy loss({.rows = kSamples, .classes = kClasses});
  run(model, loss, integers(kSamples * kLength, 1, kEntries), integers(kSamples, 1, kLength + 1),
      integers(kSamples, 0, kClasses), folder);
}

void run_matrix_factorization(const std::filesystem::path& folder) {
  MatrixFactorization model({.ratings = kSamples,
                             .users = kEntries,
                             .items = kEntries,
                             .width = kWidth,
                             .mean = 3.5f,
                             .seed = 3});
  SquaredError loss(kSamples);
  run(model, loss, integers(kSamples, 1, kEntries), integers(kSamples, 1, kEntries / 2),
      std::vector<float>{1.0f, 2.5f, 5.0f, 4.0f, 3.0f, 0.5f}, folder);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 2) {
    std::cerr << "usage: row_models_dump embedding-bag|lstm|matrix-factorization FOLDER\n";
    return 64;
  }
  if (arguments[0] == "embedding-bag") {
    run_texts<EmbeddingBagClassifier>(arguments[1]);
  } else if (arguments[0] == "lstm") {
    run_texts<LstmClassifier>(arguments[1]);
  } else {
    run_matrix_factorization(arguments[1]);
  }
  return 0;
}
