#include "topology/link_costs.h"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace kolo {
namespace {

struct Field {
  std::string_view key;
  LinkCost LinkCosts::*link;
  double LinkCost::*value;
  bool may_be_zero;
};

constexpr std::array<Field, 10> kFields = {{
    {"memory_latency_us", &LinkCosts::memory, &LinkCost::latency_us, true},
    {"memory_bytes_per_us", &LinkCosts::memory, &LinkCost::bytes_per_us, false},
    {"network_latency_us", &LinkCosts::network, &LinkCost::latency_us, true},
    {"network_bytes_per_us", &LinkCosts::network, &LinkCost::bytes_per_us, false},
    {"device_latency_us", &LinkCosts::device, &LinkCost::latency_us, true},
    {"device_bytes_per_us", &LinkCosts::device, &LinkCost::bytes_per_us, false},
    {"staging_latency_us", &LinkCosts::staging, &LinkCost::latency_us, true},
    {"staging_bytes_per_us", &LinkCosts::staging, &LinkCost::bytes_per_us, false},
    {"native_network_latency_us", &LinkCosts::native_network, &LinkCost::latency_us, true},
    {"native_network_bytes_per_us", &LinkCosts::native_network, &LinkCost::bytes_per_us, false},
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
    if (value == 0 && !field.may_be_zero) reject(item, "is no bandwidth");
    (defaults.*field.link).*field.value = value;
    names_network |= field.link == &LinkCosts::network;
    names_native_network |= field.link == &LinkCosts::native_network;
  }
  if (names_network && !names_native_network) defaults.native_network = defaults.network;
  return defaults;
}

std::string to_string(const LinkCosts& costs) {
  std::string text;
  for (const Field& field : kFields) {
    std::array<char, 32> digits;
    const double value = (costs.*field.link).*field.value;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    if (!text.empty()) text += ',';
    text.append(field.key).append("=").append(digits.data(), end);
  }
  return text;
}

}  // namespace kolo
