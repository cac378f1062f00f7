// Least squares by stochastic gradient descent: an ordinary training loop, and its additions for
// Kolo. The README quotes the part between the markers.

#include <cstdio>
#include <random>
#include <vector>

#include <kolo/kolo.h>

namespace {

constexpr std::size_t kFeatures = 8;
constexpr std::size_t kBatch = 32;
constexpr int kSteps = 200;
constexpr float kLearningRate = 0.05F;

struct Sample {
  std::vector<float> x;
  float y;
};

/// Each seed draws different samples of the same function: y = sum of (i + 1) x_i, minus 3.
class Data {
 public:
  explicit Data(int seed) : random_(static_cast<unsigned>(seed)) {}

  Sample next() {
    Sample sample{.x = std::vector<float>(kFeatures), .y = -3.0F};
    for (std::size_t i = 0; i < kFeatures; ++i) {
      sample.x[i] = normal_(random_);
      sample.y += static_cast<float>(i + 1) * sample.x[i];
    }
    return sample;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

// [begin]
float train() {
  auto runtime = kolo::Runtime::from_environment();  // mpirun, torchrun, srun, or alone
  Data data(runtime.rank());                         // every rank has samples of its own

  std::vector<float> weights(kFeatures), weights_gradient(kFeatures);
  float bias = 0, bias_gradient = 0, loss = 0;
  runtime.broadcast("weights", weights, 0).wait();  // all start alike

  auto gradients =
      runtime.register_gradients("model", {{.name = "weights", .data = weights_gradient},
                                           {.name = "bias", .shape = {1}, .data = &bias_gradient}});

  for (int step = 0; step < kSteps; ++step) {
    weights_gradient.assign(kFeatures, 0);
    bias_gradient = loss = 0;
    for (std::size_t n = 0; n < kBatch; ++n) {
      const Sample sample = data.next();
      float error = bias - sample.y;
      for (std::size_t i = 0; i < kFeatures; ++i) error += weights[i] * sample.x[i];
      for (std::size_t i = 0; i < kFeatures; ++i)
        weights_gradient[i] += error * sample.x[i] / kBatch;
      bias_gradient += error / kBatch;
      loss += error * error / kBatch;
    }
    gradients.ready(0);  // communication starts here, while the rest is still being computed
    gradients.ready(1);
    gradients.wait();  // each gradient is now the average over all ranks

    for (std::size_t i = 0; i < kFeatures; ++i) weights[i] -= kLearningRate * weights_gradient[i];
    bias -= kLearningRate * bias_gradient;
  }
  runtime.all_reduce("loss", {&loss, 1}, kolo::ReduceOp::kAverage).wait();
  if (runtime.rank() == 0) std::printf("loss %.6f on %d ranks\n", loss, runtime.world_size());
  return loss;
}
// [end]

}  // namespace

int main() {
  try {
    return train() < 1e-3F ? 0 : 1;
  } catch (const kolo::KoloError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_status(e.error().code);
  }
}
