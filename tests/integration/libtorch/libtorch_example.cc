// A training loop over libtorch, and what Kolo adds to it. Gradients lie in Kolo's arena, so none
// is copied; each is on its way as soon as autograd has accumulated it.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

namespace {

constexpr int kFeatures = 8;
constexpr int kBatch = 16;  // of one rank
constexpr int kSteps = 40;

std::vector<kolo::GradientSpec> specs_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<kolo::GradientSpec> specs;
  for (const torch::Tensor& parameter : parameters) {
    specs.push_back({.name = "parameter " + std::to_string(specs.size()),
                     .shape = {parameter.sizes().begin(), parameter.sizes().end()}});
  }
  return specs;
}

/// The gradients of a model, averaged over all ranks. Every parameter gets one in each step; an
/// optimizer must keep their memory: `zero_grad(false)`.
class AveragedGradients {
 public:
  AveragedGradients(kolo::Runtime& runtime, const std::vector<torch::Tensor>& parameters)
      : set_(runtime.register_gradients("model", specs_of(parameters))) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor parameter = parameters[i];
      parameter.mutable_grad() = torch::from_blob(set_.view(i).data, parameter.sizes()).zero_();
      // Autograd itself holds its accumulators only while a graph leads to them.
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameter));
      auto mark = [this, i](const auto& outputs, const auto&) {
        set_.ready(i);  // communication starts here, while the rest is still being computed
        return outputs;
      };
      accumulators_.back()->add_post_hook(
          std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(mark)));
    }
  }
  AveragedGradients(const AveragedGradients&) = delete;
  AveragedGradients& operator=(const AveragedGradients&) = delete;

  /// After `backward`: returns when all gradients are averages.
  void wait() { set_.wait(); }

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));

  kolo::GradientSet set_;
  std::vector<Accumulator> accumulators_;
};

torch::nn::Sequential model_of(int seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 1));
}

/// Samples of one step for all ranks: [size * kBatch, kFeatures], and the sum of each row.
std::pair<torch::Tensor, torch::Tensor> samples_of(int step, int size) {
  torch::manual_seed(1000 + step);
  const torch::Tensor inputs = torch::randn({size * kBatch, kFeatures});
  return {inputs, inputs.sum(1, /*keepdim=*/true)};
}

/// Trains on the samples of ranks [first, first + ranks). Returns the last loss.
float train(torch::nn::Sequential& model, int size, int first, int ranks,
            AveragedGradients* gradients) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  torch::Tensor loss;
  for (int step = 0; step < kSteps; ++step) {
    const auto [inputs, targets] = samples_of(step, size);
    const auto rows = torch::indexing::Slice(first * kBatch, (first + ranks) * kBatch);
    optimizer.zero_grad(/*set_to_none=*/false);
    loss = torch::mse_loss(model->forward(inputs.index({rows})), targets.index({rows}));
    loss.backward();
    if (gradients != nullptr) gradients->wait();
    optimizer.step();
  }
  return loss.item<float>();
}

/// True if `model` has the weights that one rank with all samples gets.
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
  const std::vector<torch::Tensor> parameters = model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {  // all start as rank 0 does
    const auto count = static_cast<std::size_t>(parameters[i].numel());
    runtime.broadcast("parameter " + std::to_string(i), {parameters[i].data_ptr<float>(), count},
                      0);
  }
  AveragedGradients gradients(runtime, parameters);
  const float loss = train(model, size, rank, 1, &gradients);

  if (!as_one_rank(model, size)) {
    std::fprintf(stderr, "rank %d: not the weights that one rank with all samples gets\n", rank);
    return EXIT_FAILURE;
  }
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
