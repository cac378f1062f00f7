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

  /// Rates, sizes and cores are divisors and must not be zero; times, bursts and losses may be.
  bool may_be_zero() const {
    const bool is_divisor = key.find("bytes") != std::string_view::npos || key.ends_with("cores");
    return !is_divisor || key.ends_with("burst_bytes");
  }
};

template <auto Value>
double& at(LinkCosts& costs) {
  return costs.*Value;
}

template <auto Part, auto Value>
double& at(LinkCosts& costs) {
  return costs.*Part.*Value;
}

constexpr Field kFields[] = {
    {"memory_latency_us", at<&LinkCosts::memory, &MemoryCost::latency_us>},
    {"memory_cached_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::cached_bytes_per_us>},
    {"memory_bytes_per_us_8m", at<&LinkCosts::memory, &MemoryCost::bytes_per_us_8m>},
    {"memory_bytes_per_us_32m", at<&LinkCosts::memory, &MemoryCost::bytes_per_us_32m>},
    {"memory_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::bytes_per_us>},
    {"memory_shared_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::shared_bytes_per_us>},
    {"memory_slot_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::slot_bytes_per_us>},
    {"memory_packed_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::packed_bytes_per_us>},
    {"memory_streamed_bytes_per_us", at<&LinkCosts::memory, &MemoryCost::streamed_bytes_per_us>},
    {"network_latency_us", at<&LinkCosts::network, &NetworkCost::latency_us>},
    {"network_bytes_per_us", at<&LinkCosts::network, &NetworkCost::bytes_per_us>},
    {"network_message_us", at<&LinkCosts::network, &NetworkCost::message_us>},
    {"network_burst_bytes", at<&LinkCosts::network, &NetworkCost::burst_bytes>},
    {"network_crowded_loss", at<&LinkCosts::network, &NetworkCost::crowded_loss>},
    {"selector_bytes_per_us", at<&LinkCosts::selector, &SelectorCost::bytes_per_us>},
    {"selector_pair_us", at<&LinkCosts::selector, &SelectorCost::pair_us>},
    {"device_latency_us", at<&LinkCosts::device, &LinkCost::latency_us>},
    {"device_bytes_per_us", at<&LinkCosts::device, &LinkCost::bytes_per_us>},
    {"staging_latency_us", at<&LinkCosts::staging, &LinkCost::latency_us>},
    {"staging_bytes_per_us", at<&LinkCosts::staging, &LinkCost::bytes_per_us>},
    {"native_network_latency_us", at<&LinkCosts::native_network, &LinkCost::latency_us>},
    {"native_network_bytes_per_us", at<&LinkCosts::native_network, &LinkCost::bytes_per_us>},
    {"native_timed", at<&LinkCosts::native_timed>},
    {"bucket_us", at<&LinkCosts::bucket_us>},
    {"step_us", at<&LinkCosts::step_us>},
    {"private_read_us", at<&LinkCosts::private_read_us>},
    {"private_page_us", at<&LinkCosts::private_page_us>},
    {"rank_cores", at<&LinkCosts::rank_cores>},
};

constexpr std::string_view kNodeRates = "node_rates";

[[noreturn]] void reject(std::string_view item, std::string_view why) {
  throw std::invalid_argument("link costs: '" + std::string(item) + "' " + std::string(why));
}

const Field& field_of(std::string_view key, std::string_view item) {
  for (const Field& field : kFields) {
    if (field.key == key) return field;
  }
  std::string keys;
  for (const Field& field : kFields) keys.append(field.key) += "=, ";
  reject(item, "is not one of " + keys.append(kNodeRates) + '=');
}

/// Parses `text`, a number in `item`. Throws if it is not a finite number of at least zero.
double parse_number(std::string_view text, std::string_view item) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end) reject(item, "is not a number");
  if (!std::isfinite(value) || value < 0) reject(item, "is negative or not finite");
  return value;
}

/// Removes the text up to the first `separator` from `text`, and returns it without the separator.
std::string_view take_until(char separator, std::string_view& text) {
  const std::size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return head;
}

std::vector<double> parse_numbers(std::string_view text, std::string_view item) {
  std::vector<double> values;
  do {
    values.push_back(parse_number(take_until(':', text), item));
  } while (!text.empty());
  return values;
}

/// Returns the shortest text that parses to the same number.
std::string digits(double value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace

LinkCosts parse_link_costs(std::string_view text, LinkCosts defaults) {
  bool names_network = false, names_native_network = false, names_native_timed = false;
  bool names_device_latency = false, names_staging_latency = false;
  while (!text.empty()) {
    const std::string_view item = take_until(',', text);
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const bool is_list = key == kNodeRates;
    const Field* field = is_list ? nullptr : &field_of(key, item);
    if (equals == std::string_view::npos) reject(item, "has no value");
    if (is_list) {
      defaults.node_rates = parse_numbers(item.substr(equals + 1), item);
      continue;
    }
    const double value = parse_number(item.substr(equals + 1), item);
    if (value == 0 && !field->may_be_zero()) reject(item, "is no rate or size");
    field->of(defaults) = value;
    names_network |= key.starts_with("network_");
    names_native_network |= key.starts_with("native_network_");
    names_native_timed |= key == "native_timed";
    names_device_latency |= key == "device_latency_us";
    names_staging_latency |= key == "staging_latency_us";
  }
  if (names_network && !names_native_network) {
    defaults.native_network = {.latency_us = defaults.network.latency_us,
                               .bytes_per_us = defaults.network.bytes_per_us};
  }
  if ((names_network || names_native_network) && !names_native_timed) defaults.native_timed = 1;
  if (names_device_latency && !names_staging_latency) {
    defaults.staging.latency_us = 2 * defaults.device.latency_us;
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
  const auto begin = [&](std::string_view key) {
    text.append(text.empty() ? "" : ",").append(key) += '=';
  };
  for (const auto& [key, value] : link_cost_values(costs)) {
    if (!key.starts_with(prefix)) continue;
    begin(key);
    text += digits(value);
  }
  if (costs.node_rates.empty() || !kNodeRates.starts_with(prefix)) return text;
  begin(kNodeRates);
  for (std::size_t node = 0; node < costs.node_rates.size(); ++node) {
    text.append(node == 0 ? "" : ":").append(digits(costs.node_rates[node]));
  }
  return text;
}

}  // namespace kolo
