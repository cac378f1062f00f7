// An optimizer that moves every weight by the learning rate, against the sign of its gradient.

#include <memory>

#include <kolo/trainer/optimizer/optimizer.h>

namespace {

using namespace kolo::trainer;

class SignSgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void visit_state(StateVisitor&) override {}  // There is no state between steps.
  void begin_step() override {}
  void update(std::size_t index, float lr, float) override {
    Parameter& parameter = parameters_[index];
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      const float gradient = parameter.gradient()[i];
      parameter.value()[i] -= gradient > 0.0f ? lr : gradient < 0.0f ? -lr : 0.0f;
    }
  }
  void follow(std::size_t index, float lr, float scale) override { update(index, lr, scale); }
};

}  // namespace

OptimizerEntry sign_sgd() {
  return {.name = "sign-sgd",
          .help = "steps of one length",
          .make = [](ParameterSet& parameters, const OptimizerOptions& options) {
            return std::make_unique<SignSgd>(parameters, options);
          }};
}
