#include "trainer/loop/job.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "trainer/errors.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/mesh/mesh.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {

namespace {

/// Returns the parameters and buffers of a model, with their names. If `only_whole` is true, it
/// leaves out parameters of which this rank has a part.
std::vector<NamedTensor> tensors_of(const ParameterSet& parameters, bool only_whole = false) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (only_whole && !parameters[i].part().is_whole()) continue;
    tensors.push_back({parameters[i].name(), parameters[i].value()});
  }
  for (const Buffer& buffer : parameters.buffers()) {
    tensors.push_back({buffer.name, buffer.value.span()});
  }
  return tensors;
}

/// Checks that weights and buffers are equal on all ranks that have them. Collective.
/// Errors: KoloError(kMismatch) naming the first tensor that differs.
void require_equal_weights(Runtime& runtime, Learner& learner) {
  constexpr const char* kName = "the weights after training";
  const ParameterSet& parameters = learner.parameters();
  Mesh* const mesh = learner.mesh();
  check_equal(mesh == nullptr ? runtime : mesh->data(), kName, tensors_of(parameters));
  if (mesh != nullptr) check_equal(mesh->tensor(), kName, tensors_of(parameters, true));
}

/// Returns the hash of the weights of the whole model, equal on all ranks. Collective.
std::uint64_t hash_of_weights(Runtime& runtime, Learner& learner) {
  std::uint64_t hash = learner.whole_parameters().hash();
  if (learner.mesh() != nullptr) {
    runtime.broadcast("hash of the weights", {&hash, 1, DType::kInt64}, 0).wait();
  }
  return hash;
}

/// Returns the first 64 bytes of each rank's text, in rank order. Collective.
std::vector<std::string> gather_text(Runtime& runtime, std::string text) {
  constexpr std::size_t kBytes = 64;
  text.resize(kBytes);
  std::string all(kBytes * static_cast<std::size_t>(runtime.world_size()), '\0');
  const ConstBuffer mine{text.data(), text.size(), DType::kUInt8};
  const BufferView everybodys{all.data(), all.size(), DType::kUInt8};
  runtime.all_gather("texts of settings", {mine, everybodys}).wait();
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kBytes) {
    texts.emplace_back(all.substr(at, kBytes).c_str());
  }
  return texts;
}

}  // namespace

std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(runtime.world_size()));
  const ConstBuffer mine{&value, 1, DType::kInt64};
  runtime.all_gather(name, {mine, {values.data(), values.size(), DType::kInt64}}).wait();
  return values;
}

std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values) {
  std::vector<std::size_t> others;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != values.front()) others.push_back(rank);
  }
  if (others.empty()) return {};
  return fmt::format("{} of rank{} {} differ from those of rank 0 ({:016x}, not {:016x})", what,
                     others.size() > 1 ? "s" : "", fmt::join(others, ", "), values[others.front()],
                     values.front());
}

void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value) {
  std::string difference = describe_difference(what, gather(runtime, what, value));
  if (difference.empty()) return;
  throw KoloError(Error{.code = ErrorCode::kMismatch,
                        .rank = runtime.rank(),
                        .verb = {},
                        .bucket = {},
                        .what = std::move(difference)});
}

void require_equal(Runtime& runtime, const std::vector<Setting>& settings) {
  const auto differing_rank = [&](std::string_view value) -> std::optional<std::size_t> {
    const std::vector<std::uint64_t> hashes =
        gather(runtime, "settings", XXH3_64bits(value.data(), value.size()));
    const auto other =
        std::ranges::find_if(hashes, [&](std::uint64_t hash) { return hash != hashes.front(); });
    if (other == hashes.end()) return std::nullopt;
    return static_cast<std::size_t>(other - hashes.begin());
  };
  std::string all;
  for (const Setting& setting : settings) all += setting.value + '\n';
  if (!differing_rank(all)) return;
  for (const Setting& setting : settings) {
    const auto other = differing_rank(setting.value);
    if (!other) continue;
    const std::vector<std::string> texts = gather_text(runtime, setting.value);
    throw KoloError({.code = ErrorCode::kMismatch,
                     .rank = runtime.rank(),
                     .what = fmt::format("the options of rank {} differ from those of rank 0: {} "
                                         "is '{}' there, and '{}' on rank 0",
                                         *other, setting.option, texts[*other], texts.front())});
  }
}

JobIdentity job_identity(const Config& config, const Runtime& runtime, const Task& task) {
  const Options& options = runtime.options();
  const std::size_t samples = task.data.train->size();
  const int ranks = data_ranks(config.mesh, runtime);
  JobIdentity job{.model = config.model, .settings = course_settings(config)};
  const auto add = [&](std::string option, std::string value) {
    job.settings.push_back({std::move(option), std::move(value)});
  };
  add("--lr times --lr-scaling", fmt::format("{}", peak_lr(config, ranks)));
  add("--batch times --accumulate times ranks",
      fmt::format("{}", config.batch * config.accumulation * static_cast<std::size_t>(ranks)));
  if (config.lr_schedule != "constant") {
    add("--steps or --epochs", fmt::format("{} steps", total_steps(config, samples, ranks)));
  }
  add("--wire", std::string(to_string(options.wire_dtype.value_or(DType::kFloat32))));
  add("--compression", options.compression);
  add("--data", fmt::format("{} training samples", samples));
  if (task.data.text_hash != 0) add(kTextSetting, fmt::format("{:016x}", task.data.text_hash));
  if (!task.data.text_files.empty()) {
    add("vocabulary", fmt::format("{:016x}", task.data.text_files.hash()));
  }
  return job;
}

void require_same_job(const Config& config, Runtime& runtime, const Task& task) {
  require_equal(runtime, common_settings(config));
  require_equal(runtime, "the numbers of training samples", task.data.train->size());
  require_equal(runtime, "the numbers of held-out samples", task.data.held_out->size());
  require_equal(runtime, "the texts of --data", task.data.text_hash);
  require_equal(runtime, "the vocabularies", task.data.text_files.hash());
}

LrSchedule make_schedule(const Config& config, const Runtime& runtime, const Task& task,
                         LrFall fall) {
  const int ranks = data_ranks(config.mesh, runtime);
  const float lr = peak_lr(config, ranks);
  return {.peak_lr = lr,
          .final_lr = lr * config.final_lr_share,
          .warmup_steps = config.warmup_steps,
          .total_steps = total_steps(config, task.data.train->size(), ranks),
          .fall = fall};
}

float row_weight(const Config& config, const Runtime& runtime, const Task& task,
                 const Batch& batch) {
  const bool is_own = config.uneven == "join";
  const std::size_t samples = is_own ? batch.rank_samples : batch.global_samples;
  // If some rows have no target, `rows` is the expected number of rows with a target.
  const double rows = static_cast<double>(samples) * task.targets_per_sample();
  return static_cast<float>((is_own ? 1 : data_ranks(config.mesh, runtime)) / rows);
}

Summary describe_job(const Config& config, Runtime& runtime, const Task& task, Learner& learner,
                     std::vector<CurvePoint> curve) {
  require_equal_weights(runtime, learner);
  const Options& options = runtime.options();
  const PlanSummary plan = learner.plan();
  const DType wire = options.wire_dtype.value_or(gradient_dtype(config, options));
  const CurvePoint last = curve.back();
  Summary summary{.model = config.model,
                  .ranks = runtime.world_size(),
                  .nodes = runtime.num_nodes(),
                  .device = options.device,
                  .precision = std::string(to_string(parse_precision(config.precision))),
                  .wire = std::string(to_string(wire)),
                  .compression = options.compression,
                  .algorithm = plan.algorithm,
                  .loss_scale = learner.loss_scale(),
                  .train_loss = last.train_loss,
                  .eval_loss = last.eval_loss.value(),
                  .metric = task.metric,
                  .eval_metric = last.eval_metric.value(),
                  .eval_bits_per_byte = task.bits_per_byte(last.eval_loss.value()),
                  .compression_groups = learner.compression_stats(),
                  .compression_decisions = plan.compression_decisions,
                  .fusion_bytes = plan.fusion_bytes,
                  .shard = config.shard,
                  .parameters_per_rank =
                      gather(runtime, "parameters per rank", learner.parameters().element_count()),
                  .weights_hash = hash_of_weights(runtime, learner),
                  .curve = std::move(curve)};
  if (const auto memory = learner.memory()) {
    summary.optimizer_bytes = memory->optimizer_bytes;
    summary.gradient_bytes = memory->gradient_bytes;
    summary.activation_bytes = memory->activation_bytes;
  }
  return summary;
}

void require_resumable(const Config& config, const Runtime& runtime) {
  if (!has_checkpoints(config)) return;
  const Options& options = runtime.options();
  const char* option = config.run.empty() ? "--resume" : "--run";
  if (CompressionRules::parse(options.compression).any(&CompressionSpec::is_open)) {
    throw_config_error(
        fmt::format("{}: --compression {} decides by measured times, so a job that is resumed "
                    "might take another way; name the method instead, which the line "
                    "'compression:' reports",
                    option, options.compression));
  }
}

}  // namespace kolo::trainer
