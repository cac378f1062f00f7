#include "topology/link_costs.h"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace kolo {
namespace {

struct Field {
  std::string_view key;
  double& (*of)(LinkCosts&);

  /// Rates and sizes are divided by, times are not.
  bool may_be_zero() const { return key.find("bytes") == std::string_view::npos; }
};

template <auto Value>
double& at(LinkCosts& costs) {
  return costs.*Value;
}

template <auto Part, auto Value>
double& at(LinkCosts& costs) {
  return costs.*Part.*Value;
}

constexpr std::array<Field, 16> kFields = {{
    {"memory_latency_us", at<&LinkCosts::memory, &MemoryCost::latency_us>},
    {"memory_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::bytes_per_us>},
    {"memory_cached_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::cached_bytes_per_us>},
    {"memory_shared_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::shared_bytes_per_us>},
    {"memory_cache_bytes", at<&LinkCosts::memory, &MemoryCost::cache_bytes>},
    {"network_latency_us", at<&LinkCosts::network, &NetworkCost::latency_us>},
    {"network_bytes_per_us", at<&LinkCosts::network, &NetworkCost::bytes_per_us>},
    {"network_message_us", at<&LinkCosts::network, &NetworkCost::message_us>},
    {"device_latency_us", at<&LinkCosts::device, &LinkCost::latency_us>},
    {"device_bytes_per_us", at<&LinkCosts::device, &LinkCost::bytes_per_us>},
    {"staging_latency_us", at<&LinkCosts::staging, &LinkCost::latency_us>},
    {"staging_bytes_per_us", at<&LinkCosts::staging, &LinkCost::bytes_per_us>},
    {"native_network_latency_us", at<&LinkCosts::native_network, &LinkCost::latency_us>},
    {"native_network_bytes_per_us", at<&LinkCosts::native_network, &LinkCost::bytes_per_us>},
    {"bucket_us", at<&LinkCosts::bucket_us>},
    {"step_us", at<&LinkCosts::step_us>},
}};

[[noreturn]] void reject(std::string_view item, std::string_view why) {
  throw std::invalid_argument("link costs: '" + std::string(item) + "' " + std::string(why));
}

const Field& field_of(std::string_view key, std::string_view item) {
  for (const Field& field : kFields) {
    if (field.key == key) return field;
  }
  std::string keys;
  for (const Field& field : kFields) keys.append(keys.empty() ? "" : ", ").append(field.key) += '=';
  reject(item, "is not one of " + keys);
}

}  // namespace

LinkCosts parse_link_costs(std::string_view text, LinkCosts defaults) {
  bool names_network = false, names_native_network = false;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);

    const std::size_t equals = item.find('=');
    const Field& field = field_of(item.substr(0, equals), item);
    if (equals == std::string_view::npos) reject(item, "has no value");
    double value = 0;
    const char* end = item.data() + item.size();
    const auto [rest, error] = std::from_chars(item.data() + equals + 1, end, value);
    if (error != std::errc{} || rest != end) reject(item, "is not a number");
    if (!std::isfinite(value) || value < 0) reject(item, "is negative or not finite");
    if (value == 0 && !field.may_be_zero()) reject(item, "is no rate or size");
    field.of(defaults) = value;
    names_network |= field.key.starts_with("network_");
    names_native_network |= field.key.starts_with("native_network_");
  }
  if (names_network && !names_native_network) {
    defaults.native_network = {.latency_us = defaults.network.latency_us,
                               .bytes_per_us = defaults.network.bytes_per_us};
  }
  return defaults;
}

std::vector<std::pair<std::string_view, double>> link_cost_values(const LinkCosts& costs) {
  LinkCosts copy = costs;
  std::vector<std::pair<std::string_view, double>> values;
  for (const Field& field : kFields) values.emplace_back(field.key, field.of(copy));
  return values;
}

std::string to_string(const LinkCosts& costs, std::string_view prefix) {
  std::string text;
  for (const auto& [key, value] : link_cost_values(costs)) {
    if (!key.starts_with(prefix)) continue;
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    if (!text.empty()) text += ',';
    text.append(key).append("=").append(digits.data(), end);
  }
  return text;
}

}  // namespace kolo
