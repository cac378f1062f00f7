#include "trainer/loop/local_updater.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/loop/compression_rules.h"

namespace kolo::trainer {
namespace {

/// Returns the compression of movements. Errors: KoloError(kConfig) for methods that apply to
/// gradients only.
std::string movement_compression(const Options& options) {
  const auto refuse = [&](std::string_view why) {
    throw_config_error(fmt::format("--exchange local and diloco with --compression {}: {}",
                                   options.compression, why));
  };
  const CompressionRules rules = CompressionRules::parse(options.compression);
  for (const auto& rule : rules.rules()) {
    if (rule.spec.is_open()) refuse("it follows the times of steps; name a method, such as int8");
    if (rule.spec.momentum > 0) refuse("dgc is for gradients, not for movements of weights");
  }
  return options.compression;
}

/// Makes the group of ranks that average gradients in local steps.
Group make_unit(const Runtime& runtime, LocalOptions::Unit unit, std::size_t gradient_bytes) {
  // The arena has address space for the gradients and for the buffers of their sums.
  const GroupOptions options{.name = "local steps",
                             .arena_bytes = (std::size_t{64} << 20) + 2 * gradient_bytes};
  if (unit == LocalOptions::Unit::kNode) return runtime.node_group(options);
  return runtime.group({runtime.rank()}, options);
}

class LocalUpdater final : public ParameterUpdater {
 public:
  LocalUpdater(Runtime& runtime, ParameterSet& parameters, std::unique_ptr<Optimizer> optimizer,
               const LocalOptions& options, const GradientExchange::Options& gradients,
               const Clock& clock)
      : parameters_(parameters),
        options_(options),
        clock_(clock),
        exchange_(runtime, parameters,
                  {.fragments = options.times.fragments,
                   .outer = options.outer,
                   .compression = movement_compression(runtime.options())}),
        unit_(make_unit(runtime, options.unit, parameters.element_count() * sizeof(float))),
        gradients_(runtime, parameters, std::move(optimizer), gradients, clock) {
    if (options_.after == 0) begin_local_steps();
  }

  float loss_scale() const override { return gradients_.loss_scale(); }
  void await_averages() override { gradients_.await_averages(); }
  UpdateVerdict clip() override { return gradients_.clip(); }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    StepReport report = gradients_.update(lr, verdict);
    ++steps_;
    const TimePoint begin = clock_.now();
    if (is_local_) {
      if (const auto fragment = options_.times.begins(local_step())) exchange_.begin(*fragment);
      if (options_.times.ends(local_step())) exchange_.finish();
    } else if (steps_ == options_.after) {
      begin_local_steps();
    }
    report.exposed += clock_.now() - begin;
    return report;
  }
  bool ranks_differ() const override {
    return is_local_ && !options_.times.agree_after(local_step());
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.shared("exchange.steps", steps_);
    if (visitor.is_restoring() && steps_ >= options_.after) {
      if (visitor.has_other_ranks()) {
        throw_config_error(
            "local steps have begun, in which each rank has its own state: resume on as many ranks "
            "as saved it, or begin with the mean of its weights, --weights CHECKPOINT");
      }
      if (!is_local_) begin_local_steps();
      if (const auto fragment = options_.times.under_way(local_step())) exchange_.resume(*fragment);
    }
    if (!is_local_) return gradients_.visit_state(visitor);
    exchange_.visit_state(visitor);
    visitor.as_own([&] { gradients_.visit_state(visitor); });
    if (!ranks_differ()) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      visitor.own("weights/" + parameters_[i].name(), parameters_[i].shape(),
                  parameters_[i].value());
    }
  }
  PlanSummary plan() const override { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return exchange_.compression_stats();
  }
  UpdateMemory memory() override {
    UpdateMemory memory = gradients_.memory();
    memory.optimizer_bytes += exchange_.bytes();
    return memory;
  }

 private:
  std::uint64_t local_step() const { return steps_ - options_.after; }
  void begin_local_steps() {
    gradients_.average_over(unit_);
    exchange_.agree();
    is_local_ = true;
  }

  ParameterSet& parameters_;
  const LocalOptions options_;
  const Clock& clock_;
  std::uint64_t steps_ = 0;
  bool is_local_ = false;
  WeightExchange exchange_;
  Group unit_;
  GradientExchange gradients_;
};

}  // namespace

std::unique_ptr<ParameterUpdater> make_local_updater(Runtime& runtime, ParameterSet& parameters,
                                                     std::unique_ptr<Optimizer> optimizer,
                                                     const LocalOptions& options,
                                                     const GradientExchange::Options& gradients,
                                                     const Clock& clock) {
  return std::make_unique<LocalUpdater>(runtime, parameters, std::move(optimizer), options,
                                        gradients, clock);
}

}  // namespace kolo::trainer
