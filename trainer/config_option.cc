#include "trainer/config_option.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <type_traits>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

template <typename T>
constexpr bool is_optional = requires(T value) {
  value.value_or(0);
};

/// Returns `value` as a number, or empty if it is not a number.
template <typename T>
std::optional<double> number_in(const T& value) {
  if constexpr (is_optional<T>) {
    if (value) return static_cast<double>(*value);
  } else if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
    return static_cast<double>(value);
  }
  return std::nullopt;
}

template <typename T>
std::string text_of(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    return value ? "on" : "off";
  } else if constexpr (is_optional<T>) {
    return value ? text_of(*value) : "none";
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    return value.string();
  } else {
    return fmt::format("{}", value);
  }
}

}  // namespace

bool ConfigRange::holds(double value) const {
  return std::isfinite(value) && (has_least ? value >= least : value > least) &&
         (has_most ? value <= most : value < most);
}

std::string ConfigRange::words() const {
  if (std::isinf(least)) return {};
  if (!has_most) return fmt::format("at least {} and below {}", least, most);
  if (std::isfinite(most)) return fmt::format("between {} and {}", least, most);
  return fmt::format("{} {}", has_least ? "at least" : "greater than", least);
}

std::string ConfigOption::text() const {
  const std::string text = std::visit([](const auto* value) { return text_of(*value); }, field);
  const auto* form = std::get_if<TextForm>(&values);
  return form == nullptr || form->parse == nullptr ? text : form->parse(text);
}

void ConfigOption::check_value() const {
  const std::string value = text();
  if (const auto* choices = std::get_if<Choices>(&values)) {
    if (std::ranges::find(*choices, value) == choices->end()) {
      throw_unknown_choice(name, value, *choices);
    }
  } else if (const auto* range = std::get_if<ConfigRange>(&values)) {
    const auto number = std::visit([](const auto* each) { return number_in(*each); }, field);
    if (!number || range->holds(*number)) return;
    const bool needs_words = std::isfinite(*number) || std::isfinite(range->most);
    throw_config_error(
        fmt::format("{} must be {}", name, needs_words ? range->words() : "a finite number"));
  }
}

}  // namespace kolo::trainer
