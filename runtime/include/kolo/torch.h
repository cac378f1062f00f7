#pragma once

/// Kolo in programs over libtorch, on the CPU: gradients are sent while autograd computes others.
///
///     #include <kolo/torch.h>
///
///     kolo::TorchGradients gradients(runtime, model->named_parameters());
///     ...
///     optimizer.zero_grad();
///     loss.backward();   // gradients are sent as they are computed
///     gradients.wait();  // each is now the average over all ranks
///     optimizer.step();
///
/// This header contains all code, so it works with any libtorch from 2.1 on.

#include <kolo/kolo.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace kolo {

/// The type of `named_parameters()` and `named_buffers()` of a module.
using TorchTensors = torch::OrderedDict<std::string, torch::Tensor>;

/// The gradients of a model's parameters, combined over all ranks. They are in Kolo's arena, where
/// the ranks of a node sum them without a copy. If `zero_grad()` drops them, autograd allocates new
/// tensors, and each backward pass copies these to the arena.
///
/// From the backward pass until `wait` returns, the gradients belong to Kolo: neither read nor
/// change them. A TorchGradients must not outlive its group.
///
/// Threads: use it in the thread of the backward pass.
class TorchGradients {
 public:
  /// Collective. Broadcasts the parameters of rank 0 to all ranks, and registers a gradient for
  /// each parameter that requires one. Errors: as `Group::register_gradients`; UsageError for a
  /// parameter that is not on the CPU, or whose type `Group` does not average.
  TorchGradients(Group& group, const TorchTensors& named_parameters,
                 const std::string& name = "model", const GradientOptions& options = {})
      : state_(std::make_shared<State>(group, trained(named_parameters), name, options)) {
    for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
      // Keeps the accumulator alive; autograd drops it when no graph refers to it.
      state_->accumulators.push_back(
          torch::autograd::impl::grad_accumulator(state_->parameters[i].value()));
      auto mark = [i, state = std::weak_ptr<State>(state_)](const auto& outputs, const auto&) {
        if (const auto held = state.lock()) held->mark(i);
        return outputs;
      };
      state_->accumulators.back()->add_post_hook(
          std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(mark)));
    }
  }

  /// Call it once after each backward pass, on every rank. Returns when all gradients are combined.
  /// A gradient that this rank's pass has not computed counts as zeros, also if the pass ended in
  /// an exception. Errors: as `GradientSet::wait`.
  void wait() {
    state_->set.give_up();
    state_->set.wait();
    for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
      state_->parameters[i].value().mutable_grad() = state_->views[i];
    }
  }

  /// The set of gradients, for its plan, statistics and compression.
  GradientSet& set() { return state_->set; }

 private:
  using Parameters = std::vector<TorchTensors::Item>;

  struct State {
    State(Group& group, Parameters of, const std::string& name, const GradientOptions& options)
        : parameters(std::move(of)),
          set(group.register_gradients(name, specs(parameters), options)) {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        torch::Tensor& parameter = parameters[i].value();
        const torch::Tensor values = parameter.contiguous();
        group
            .broadcast(name + ": " + parameters[i].key(),
                       BufferView(values.data_ptr(), static_cast<std::size_t>(values.numel()),
                                  set.view(i).dtype),
                       0)
            .wait();
        parameter.copy_(values);
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        torch::Tensor& parameter = parameters[i].value();
        views.push_back(
            torch::from_blob(set.view(i).data, parameter.sizes(), torch::dtype(parameter.dtype())));
        parameter.mutable_grad() = views.back().zero_();
      }
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {  // The set owns the memory of the views.
      for (std::size_t i = 0; i < views.size(); ++i) {
        torch::Tensor& gradient = parameters[i].value().mutable_grad();
        if (gradient.is_same(views[i])) gradient.reset();
      }
    }

    /// Marks gradient i, which a backward pass has computed.
    void mark(std::size_t i) {
      torch::Tensor& gradient = parameters[i].value().mutable_grad();
      if (!gradient.is_same(views[i])) {
        const torch::NoGradGuard no_grad;
        views[i].copy_(gradient);
        gradient = views[i];
      }
      set.ready(i);
    }

    Parameters parameters;
    GradientSet set;
    std::vector<torch::Tensor> views;  // the gradients in the arena
    std::vector<decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()))> accumulators;
  };

  /// Parameters that require a gradient. A tied parameter, which has several names, is listed once.
  static Parameters trained(const TorchTensors& named_parameters) {
    Parameters parameters;
    std::unordered_set<const void*> seen;
    for (const auto& item : named_parameters) {
      const torch::Tensor& parameter = item.value();
      if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) {
        continue;
      }
      parameters.push_back(item);
    }
    return parameters;
  }

  static std::vector<GradientSpec> specs(const Parameters& parameters) {
    std::vector<GradientSpec> specs;
    for (const auto& item : parameters) {
      const torch::Tensor& parameter = item.value();
      GradientSpec spec;
      spec.name = item.key();
      spec.shape.assign(parameter.sizes().begin(), parameter.sizes().end());
      if (spec.shape.empty()) spec.shape = {1};
      spec.dtype = dtype_of(parameter, spec.name);
      specs.push_back(std::move(spec));
    }
    return specs;
  }

  static DType dtype_of(const torch::Tensor& parameter, const std::string& name) {
    if (parameter.is_cpu()) {
      if (parameter.scalar_type() == torch::kFloat32) return DType::kFloat32;
      if (parameter.scalar_type() == torch::kFloat64) return DType::kFloat64;
      if (parameter.scalar_type() == torch::kFloat16) return DType::kFloat16;
      if (parameter.scalar_type() == torch::kBFloat16) return DType::kBFloat16;
    }
    throw UsageError("the parameter '" + name + "' is of " + parameter.toString() + " on " +
                     parameter.device().str() +
                     "; TorchGradients takes real floating-point numbers on the CPU");
  }

  std::shared_ptr<State> state_;
};

/// `check_equal` for a module's `named_parameters()` or `named_buffers()`, on any device.
inline void check_equal(Group& group, std::string_view name, const TorchTensors& tensors) {
  std::vector<torch::Tensor> copies;
  std::vector<NamedTensor> named;
  for (const auto& item : tensors) {
    copies.push_back(item.value().detach().cpu().contiguous());
    named.push_back(
        {item.key(), ConstBuffer(copies.back().data_ptr(), copies.back().nbytes(), DType::kUInt8)});
  }
  check_equal(group, name, named);
}

}  // namespace kolo
