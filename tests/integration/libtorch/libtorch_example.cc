// A training loop over libtorch, and its additions for Kolo.

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include <kolo/torch.h>

namespace {

constexpr int kFeatures = 8;
constexpr int kBatch = 16;  // per rank
constexpr int kSteps = 40;

torch::nn::Sequential model_of(int seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 1));
}

/// Returns the samples of one step for all ranks, [size * kBatch, kFeatures], and each row's sum.
std::pair<torch::Tensor, torch::Tensor> samples_of(int step, int size) {
  torch::manual_seed(1000 + step);
  const torch::Tensor inputs = torch::randn({size * kBatch, kFeatures});
  return {inputs, inputs.sum(1, /*keepdim=*/true)};
}

/// Trains on the samples of ranks [first, first + ranks). Returns the last loss.
float train(torch::nn::Sequential& model, int size, int first, int ranks,
            kolo::TorchGradients* gradients) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  torch::Tensor loss;
  for (int step = 0; step < kSteps; ++step) {
    const auto [inputs, targets] = samples_of(step, size);
    const auto rows = torch::indexing::Slice(first * kBatch, (first + ranks) * kBatch);
    optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
    loss = torch::mse_loss(model->forward(inputs.index({rows})), targets.index({rows}));
    loss.backward();
    if (gradients != nullptr) gradients->wait();
    optimizer.step();
  }
  return loss.item<float>();
}

/// Makes another step. The last rank's batch is bad, so its gradients count as zeros.
void step_without_last(torch::nn::Sequential& model, int size, int rank,
                       kolo::TorchGradients& gradients) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.02));
  optimizer.zero_grad();
  try {
    if (rank == size - 1) throw std::runtime_error("a bad batch");
    const auto [inputs, targets] = samples_of(kSteps, 1);
    torch::mse_loss(model->forward(inputs), targets).backward();
  } catch (const std::runtime_error&) {
  }
  gradients.wait();
  optimizer.step();
}

/// Returns whether `model` has the weights that one rank with all samples would have.
bool as_one_rank(const torch::nn::Sequential& model, int size) {
  torch::nn::Sequential alone = model_of(0);
  train(alone, size, 0, size, nullptr);
  for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
    if (!torch::allclose(model->parameters()[i], alone->parameters()[i], 1e-4, 1e-6)) return false;
  }
  return true;
}

int run() {
  auto runtime = kolo::Runtime::from_environment();
  const int rank = runtime.rank(), size = runtime.world_size();

  torch::nn::Sequential model = model_of(rank);
  kolo::TorchGradients gradients(runtime, model->named_parameters());
  const float loss = train(model, size, rank, 1, &gradients);
  if (!as_one_rank(model, size)) {
    std::fprintf(stderr, "rank %d: not the weights that one rank with all samples gets\n", rank);
    return EXIT_FAILURE;
  }
  step_without_last(model, size, rank, gradients);
  kolo::check_equal(runtime, "weights", model->named_parameters());
  std::printf("loss %.4f on %d ranks, as on one\n", static_cast<double>(loss), size);
  return EXIT_SUCCESS;
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  try {
    return run();
  } catch (const kolo::KoloError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_status(error.error().code);
  }
}
