#include "trainer/report/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kolo::trainer {
namespace {

using Json = nlohmann::ordered_json;

template <typename Number>
Json or_null(const std::optional<Number>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string describe_bits(const std::optional<double>& bits_per_byte) {
  return bits_per_byte ? fmt::format(", {:.4f} bits per byte", *bits_per_byte) : std::string();
}

constexpr std::size_t kNumbersPerPoint = 5;
constexpr double kNotEvaluated = std::numeric_limits<double>::quiet_NaN();

std::optional<double> unless_missing(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

std::string to_json(const Summary& s) {
  const std::string metric = "eval_" + s.metric.name;
  Json curve = Json::array();
  for (const CurvePoint& point : s.curve) {
    curve.push_back({{"step", point.step},
                     {"seconds", point.seconds},
                     {"train_loss", point.train_loss},
                     {"eval_loss", or_null(point.eval_loss)},
                     {metric, or_null(point.eval_metric)}});
  }
  Json groups = Json::array();
  for (const CompressionStats& group : s.compression_groups) {
    groups.push_back({{"tensors", group.tensors},
                      {"path", group.path},
                      {"elements", group.elements},
                      {"steps", group.steps},
                      {"skipped_steps", group.skipped_steps},
                      {"k", group.k},
                      {"density", group.density},
                      {"payload_bytes", group.payload_bytes},
                      {"predicted_ms", group.predicted_ms},
                      {"measured_ms", group.measured_ms},
                      {"residual_norm", group.residual_norm},
                      {"gradient_norm", group.gradient_norm}});
  }
  Json decisions = Json::array();
  for (const CompressionDecision& decision : s.compression_decisions) {
    decisions.push_back({{"tensors", decision.tensors},
                         {"elements", decision.elements},
                         {"path", decision.path},
                         {"predicted_ms", decision.predicted_ms},
                         {"dense_ms", decision.dense_ms},
                         {"reason", decision.reason}});
  }
  const Json object = {{"model", s.model},
                       {"ranks", s.ranks},
                       {"nodes", s.nodes},
                       {"device", s.device},
                       {"precision", s.precision},
                       {"wire", s.wire},
                       {"compression", s.compression},
                       {"algorithm", s.algorithm},
                       {"steps", s.steps},
                       {"skipped_steps", s.skipped_steps},
                       {"loss_scale", s.loss_scale},
                       {"epochs", s.epochs},
                       {"train_loss", s.train_loss},
                       {"eval_loss", s.eval_loss},
                       {metric, s.eval_metric},
                       {"eval_samples", s.eval_samples},
                       {"eval_bits_per_byte", or_null(s.eval_bits_per_byte)},
                       {"samples_per_s", s.samples_per_s},
                       {"tokens_per_s", or_null(s.tokens_per_s)},
                       {"step_ms", s.step_ms},
                       {"compute_ms", s.compute_ms},
                       {"exposed_comm_ms", s.exposed_comm_ms},
                       {"data_wait_ms", s.data_wait_ms},
                       {"wire_bytes_per_step", s.wire_bytes_per_step},
                       {"fusion_bytes", s.fusion_bytes},
                       {"shard", s.shard},
                       {"optimizer_bytes", or_null(s.optimizer_bytes)},
                       {"gradient_bytes", or_null(s.gradient_bytes)},
                       {"activation_bytes", or_null(s.activation_bytes)},
                       {"parameters_per_rank", s.parameters_per_rank},
                       {"bubble", or_null(s.bubble)},
                       {"compression_groups", std::move(groups)},
                       {"compression_decisions", std::move(decisions)},
                       {"weights_hash", fmt::format("{:016x}", s.weights_hash)},
                       {"wall_s", s.wall_s},
                       {"curve", std::move(curve)}};
  return object.dump(2) + "\n";
}

std::string to_json(const Evaluation& e) {
  const Json object = {{"samples", e.samples},
                       {"eval_loss", e.loss},
                       {"eval_" + e.metric.name, e.value},
                       {"eval_bits_per_byte", or_null(e.bits_per_byte)}};
  return object.dump(2) + "\n";
}

std::string to_line(const Evaluation& e) {
  return fmt::format("{} held-out samples: loss {:.4f}, {}{}", e.samples, e.loss,
                     describe(e.metric, e.value), describe_bits(e.bits_per_byte));
}

std::string to_line(const Summary& s) {
  const std::string rate = s.tokens_per_s ? fmt::format("{:.0f} tokens/s", *s.tokens_per_s)
                                          : fmt::format("{:.0f} samples/s", s.samples_per_s);
  return fmt::format(
      "{}: {} ranks on {} nodes, {} steps in {:.1f} s, train loss {:.4f}, held-out loss {:.4f}, "
      "{}{}, {}, weights {:016x}",
      s.model, s.ranks, s.nodes, s.steps, s.wall_s, s.train_loss, s.eval_loss,
      describe(s.metric, s.eval_metric), describe_bits(s.eval_bits_per_byte), rate, s.weights_hash);
}

std::string describe_decisions(const PlanSummary& plan) {
  std::string text;
  for (const CompressionDecision& decision : plan.compression_decisions) {
    text += (text.empty() ? "compression: " : "\ncompression: ") + to_string(decision);
  }
  return text;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

std::vector<double> numbers_of(const std::vector<CurvePoint>& curve) {
  std::vector<double> numbers;
  for (const CurvePoint& point : curve) {
    numbers.insert(numbers.end(), {static_cast<double>(point.step), point.seconds, point.train_loss,
                                   point.eval_loss.value_or(kNotEvaluated),
                                   point.eval_metric.value_or(kNotEvaluated)});
  }
  return numbers;
}

std::vector<CurvePoint> curve_of(std::span<const double> numbers) {
  std::vector<CurvePoint> curve;
  for (; numbers.size() >= kNumbersPerPoint; numbers = numbers.subspan(kNumbersPerPoint)) {
    curve.push_back({.step = static_cast<std::size_t>(numbers[0]),
                     .seconds = numbers[1],
                     .train_loss = numbers[2],
                     .eval_loss = unless_missing(numbers[3]),
                     .eval_metric = unless_missing(numbers[4])});
  }
  return curve;
}

}  // namespace kolo::trainer
