#include "benchmarks/sim/mesh_prediction.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "trainer/loop/command_line.h"
#include "trainer/mesh/pipeline.h"
#include "trainer/mesh/rank_models.h"

namespace kolo::bench {
namespace {

/// Returns the time in which `elements` float32 numbers are added up over `ranks` ranks, whose
/// numbers in the job are `stride` apart. All groups of this kind exchange at the same time and
/// share the links of their nodes.
double sum_us(ClusterSpec spec, std::size_t ranks, std::size_t stride, std::size_t elements) {
  if (ranks == 1) return 0;
  const auto of_node = static_cast<std::size_t>(spec.ranks_per_node);
  std::size_t together = std::clamp<std::size_t>(of_node / stride, 1, ranks);
  while (ranks % together != 0) --together;
  spec.costs.links.network.bytes_per_us *=
      static_cast<double>(together) / static_cast<double>(of_node);
  spec.nodes = static_cast<int>(ranks / together);
  spec.ranks_per_node = static_cast<int>(together);
  Cluster cluster(spec);
  return cluster.run({cluster.layout(elements, DType::kFloat32)}, {0})[0];
}

/// Returns the time of a message from `rank` to the rank `distance` after it. All ranks of a node
/// send at the same time.
double message_us(const ClusterSpec& spec, std::size_t rank, std::size_t distance, double bytes) {
  const auto of_node = static_cast<std::size_t>(spec.ranks_per_node);
  const auto& [memory, network] = std::tie(spec.costs.links.memory, spec.costs.links.network);
  if (rank / of_node == (rank + distance) / of_node) {
    return memory.latency_us + bytes / memory.slot_bytes_per_us;
  }
  const auto senders = static_cast<double>(std::min(of_node, distance));
  return network.latency_us + 2 * network.message_us + bytes * senders / network.bytes_per_us;
}

}  // namespace

PipelineTimes play_passes(const std::vector<StageTimes>& stages, std::size_t passes) {
  const std::size_t count = stages.size();
  std::vector<std::size_t> next(count);
  std::vector<double> now(count), busy(count);
  std::map<std::tuple<bool, std::size_t, std::size_t>, double> ends;  // direction, stage, pass
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t i = 0; i < count; ++i) {
      const auto order = trainer::order_of_passes({.index = i, .count = count}, passes);
      if (next[i] == order.size()) continue;
      const auto [is_forward, pass] = order[next[i]];
      const std::size_t giver = is_forward ? i - 1 : i + 1;  // not a stage at both ends
      double ready = 0;
      if (giver < count) {
        const auto end = ends.find({is_forward, giver, pass});
        if (end == ends.end()) continue;
        ready = end->second + stages[std::min(i, giver)].message_us;
      }
      const double us = is_forward ? stages[i].forward_us : stages[i].backward_us;
      ends[{is_forward, i, pass}] = now[i] = std::max(now[i], ready) + us;
      busy[i] += us;
      ++next[i];
      moves = true;
    }
  }
  PipelineTimes times{.us = std::ranges::max(now)};
  for (const double us : busy) times.bubble += (1 - us / times.us) / static_cast<double>(count);
  return times;
}

MeshJob::MeshJob(const std::vector<std::string>& options) {
  std::vector<const char*> words = {"kolo-sim mesh"};
  for (const std::string& option : options) words.push_back(option.c_str());
  config_ = parse_command_line(static_cast<int>(words.size()), words.data(), catalog_).config;
  task_ = make_task(config_, catalog_);
}

nlohmann::json MeshJob::predict(const ClusterSpec& cluster, double flops_per_us,
                                double compute_us) const {
  const auto count = static_cast<std::size_t>(cluster.nodes * cluster.ranks_per_node);
  const trainer::MeshShape shape = trainer::parse_mesh(config_.mesh, count);
  require_splittable(config_, config_.runtime, shape, catalog_);
  std::vector<trainer::RankLoad> ranks;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const auto index = static_cast<int>(rank);
    ranks.push_back(shape.data_index(index) == 0
                        ? load_of_rank(config_, task_, catalog_, shape, index)
                        : ranks[rank - shape.tensor]);
  }
  const std::size_t rows = config_.batch * task_.rows_per_sample;
  double products = 0;  // per row, of the whole model
  for (const auto& rank : ranks) products += rank.products / static_cast<double>(shape.data);
  if (compute_us > 0) flops_per_us = 6 * products * static_cast<double>(rows) / compute_us;
  std::vector<StageTimes> stages;
  for (std::size_t rank = 0; rank < count; rank += shape.stage_ranks()) {
    const trainer::RankLoad& stage = ranks[rank];
    // A product is two operations forward and four backward.
    const double us = 2 * stage.products * static_cast<double>(rows) / flops_per_us;
    const double sums_us =
        static_cast<double>(stage.sums) * sum_us(cluster, shape.tensor, 1, rows * stage.width);
    stages.push_back({.forward_us = us + sums_us, .backward_us = 2 * us + sums_us});
    const std::size_t after = rank + shape.stage_ranks();
    if (after == count) break;
    const auto bytes = static_cast<double>(ranks[after].inputs * sizeof(float));
    stages.back().message_us = message_us(cluster, rank, after - rank, bytes);
  }
  const PipelineTimes passes = play_passes(stages, config_.accumulation);
  std::vector<std::size_t> parameters;
  trainer::RankLoad most{};
  for (const trainer::RankLoad& rank : ranks) {
    parameters.push_back(rank.parameters);
    most.parameters = std::max(most.parameters, rank.parameters);
    most.optimizer_bytes = std::max(most.optimizer_bytes, rank.optimizer_bytes);
    most.activation_bytes = std::max(most.activation_bytes, rank.activation_bytes);
  }
  const double gradients_us = sum_us(cluster, shape.data, shape.tensor, most.parameters);
  return {{"model", config_.model},
          {"mesh",
           fmt::format("data={},tensor={},pipeline={}", shape.data, shape.tensor, shape.pipeline)},
          {"passes", config_.accumulation},
          {"parameters", most.parameters},
          {"parameters_per_rank", parameters},
          {"optimizer_bytes", most.optimizer_bytes},
          {"activation_bytes", most.activation_bytes},
          {"bubble", passes.bubble},
          {"step_ms", (passes.us + gradients_us) / 1000}};
}

}  // namespace kolo::bench
