#include "benchmarks/choice_bench.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "benchmarks/kolo_system.h"
#include "topology/cost_model.h"

namespace kolo::bench {
namespace {

/// Kolo with an algorithm of its own, under the name of that algorithm.
class ForcedSystem final : public AllReduceSystem {
 public:
  ForcedSystem(Runtime& runtime, std::string name)
      : system_(make_kolo_system(runtime)), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  bool has_arena() const override { return system_->has_arena(); }
  std::vector<std::unique_ptr<AllReduceRun>> prepare(const AllReduceCase& what) override {
    return system_->prepare(what);
  }
  std::optional<std::uint64_t> wire_bytes() const override { return system_->wire_bytes(); }

 private:
  std::unique_ptr<AllReduceSystem> system_;
  std::string name_;
};

HostBucket bucket_of(const AllReduceCase& what) {
  return {.bytes = what.count() * size_of(what.wire.value_or(what.dtype)),
          .packing = what.home == Home::kArena ? Packing::kNone : Packing::kUser};
}

ChoiceCandidate candidate(const CostModel& model, const AllReduceRow& row) {
  return {.algorithm = row.algorithm,
          .median_us = row.time_us.median,
          .predicted_us = model.predict_us(row.algorithm, bucket_of(row.what))};
}

ChoiceRow choice_of(const CostModel& model, const std::vector<AllReduceRow>& rows) {
  ChoiceRow choice{.what = rows.front().what, .chosen = candidate(model, rows.front())};
  for (std::size_t i = 1; i < rows.size(); ++i) choice.forced.push_back(candidate(model, rows[i]));
  const auto best =
      std::ranges::min_element(choice.forced, {}, [](const auto& each) { return each.median_us; });
  choice.best = static_cast<std::size_t>(best - choice.forced.begin());
  choice.ratio = choice.chosen.median_us / best->median_us;
  return choice;
}

}  // namespace

ProcessGrid grid_of(Runtime& runtime) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(runtime.num_nodes()));
  sizes[static_cast<std::size_t>(runtime.node())] = 1;
  runtime.all_reduce("bench node sizes", {sizes.data(), sizes.size(), DType::kInt64},
                     ReduceOp::kSum);
  return ProcessGrid::with_node_sizes(std::vector<int>(sizes.begin(), sizes.end()));
}

bool measure_choice(const std::vector<Runtime*>& runtimes,
                    const std::vector<std::string>& algorithms, const AllReduceOptions& options,
                    const std::function<void(const ChoiceRow&)>& report) {
  Runtime& runtime = *runtimes.front();
  const CostModel model(grid_of(runtime), parse_link_costs(runtime.link_costs()));
  std::vector<std::unique_ptr<AllReduceSystem>> systems;
  systems.push_back(std::make_unique<ForcedSystem>(runtime, "auto"));
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    systems.push_back(std::make_unique<ForcedSystem>(*runtimes[i + 1], algorithms[i]));
  }
  std::vector<AllReduceRow> rows;
  bool right = true;
  measure_all_reduce(runtime, systems, options, [&](const AllReduceRow& row) {
    right = right && row.wrong.value_or(0) == 0;
    rows.push_back(row);
    if (rows.size() < systems.size()) return;
    report(choice_of(model, rows));
    rows.clear();
  });
  return right;
}

}  // namespace kolo::bench
