// Logistic regression in a C++ program that already uses MPI, with its own communicator, to assign
// ranks and print. Only the lines that name Kolo replace the gradient's MPI_Allreduce.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <kolo/kolo.h>
#include <mpi.h>

namespace {

constexpr std::size_t kFeatures = 6;
constexpr std::size_t kSamples = 512;  // Per rank.
constexpr int kSteps = 300;
constexpr float kLearningRate = 2.0F;

/// Samples whose class is the side of a plane on which they lie; each seed draws different ones.
struct Data {
  explicit Data(int seed) : x(kSamples * kFeatures), is_above(kSamples) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::normal_distribution<float> normal;
    for (std::size_t n = 0; n < kSamples; ++n) {
      float side = 0.5F;
      for (std::size_t i = 0; i < kFeatures; ++i) {
        x[n * kFeatures + i] = normal(random);
        side += (i % 2 == 0 ? 1.0F : -2.0F) * x[n * kFeatures + i];
      }
      is_above[n] = side > 0 ? 1.0F : 0.0F;
    }
  }

  std::vector<float> x, is_above;
};

struct Model {
  std::vector<float> weights = std::vector<float>(kFeatures + 1);  // The last one is the bias.

  float probability(const float* x) const {
    float sum = weights[kFeatures];
    for (std::size_t i = 0; i < kFeatures; ++i) sum += weights[i] * x[i];
    return 1.0F / (1.0F + std::exp(-sum));
  }
};

void add_gradient(const Model& model, const Data& data, std::vector<float>& gradient) {
  for (std::size_t n = 0; n < kSamples; ++n) {
    const float* const x = &data.x[n * kFeatures];
    const float error = (model.probability(x) - data.is_above[n]) / kSamples;
    for (std::size_t i = 0; i < kFeatures; ++i) gradient[i] += error * x[i];
    gradient[kFeatures] += error;
  }
}

int correct(const Model& model, const Data& data) {
  int right = 0;
  for (std::size_t n = 0; n < kSamples; ++n) {
    if ((model.probability(&data.x[n * kFeatures]) > 0.5F) == (data.is_above[n] > 0.5F)) ++right;
  }
  return right;
}

int train(MPI_Comm ranks) {
  int rank = 0, size = 1;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  auto runtime = kolo::Runtime::from_environment();

  const Data data(rank);
  Model model;
  std::vector<float> gradient(model.weights.size());
  auto gradients = runtime.register_gradients("model", {{.name = "weights", .data = gradient}});
  for (int step = 0; step < kSteps; ++step) {
    gradient.assign(gradient.size(), 0.0F);
    add_gradient(model, data, gradient);
    gradients.ready(0);
    gradients.wait();  // The average over all ranks.
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      model.weights[i] -= kLearningRate * gradient[i];
    }
  }

  int right = correct(model, data), all_right = 0;
  MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_SUM, ranks);
  const double accuracy = all_right / (static_cast<double>(kSamples) * size);
  if (rank == 0) std::printf("accuracy %.4f on %d ranks\n", accuracy, size);
  return accuracy > 0.97 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  const int status = train(ranks);
  MPI_Comm_free(&ranks);
  MPI_Finalize();
  return status;
}
