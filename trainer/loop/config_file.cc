#include "trainer/loop/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <istream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "comm/base/nearest_name.h"
#include "runtime/options/option_table.h"
#include "runtime/tools/command_line.h"

namespace kolo::trainer {
namespace {

std::string text_of(std::string_view key, const toml::node& value) {
  if (const auto text = value.value_exact<std::string>()) return *text;
  if (const auto number = value.value_exact<std::int64_t>()) return fmt::format("{}", *number);
  if (const auto number = value.value_exact<double>()) return fmt::format("{}", *number);
  if (const auto is_on = value.value_exact<bool>()) return *is_on ? "on" : "off";
  throw CLI::ConfigError(fmt::format("line {}: {} must be a text, a number or true or false",
                                     value.source().begin.line, key));
}

/// Checks that a key names an option; CLI11's own error says only that the key cannot be read.
void require_option(const CLI::App& app, const std::string& key, const toml::node& value) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  if (std::ranges::find(names, key) != names.end()) return;
  const auto nearest = nearest_name(key, names);
  throw CLI::ConfigError(fmt::format("line {}: no option {}{}", value.source().begin.line, key,
                                     nearest ? "; did you mean " + *nearest + "?" : ""));
}

/// The position of `flag` in `text`, where it must not be part of a longer flag.
std::size_t find_flag(std::string_view text, std::string_view flag) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  for (std::size_t at = text.find(flag); at != text.npos; at = text.find(flag, at + 1)) {
    const std::string_view rest = text.substr(at + flag.size());
    if (rest.empty() || kLetters.find(rest.front()) == kLetters.npos) return at;
  }
  return text.npos;
}

/// Reads TOML for CLI11 with a full parser, because CLI11's own reader does not support escapes.
class TomlFormat final : public CLI::Config {
 public:
  /// `app` outlives this object.
  explicit TomlFormat(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    const std::string text(std::istreambuf_iterator<char>(in), {});
    std::vector<CLI::ConfigItem> options;
    keys_.clear();
    try {
      append_items(toml::parse(text), options);
    } catch (const toml::parse_error& error) {
      throw CLI::ConfigError(
          fmt::format("{}: line {}: {}", file(), error.source().begin.line, error.description()));
    } catch (const CLI::ConfigError& error) {
      throw CLI::ConfigError(fmt::format("{}: {}", file(), error.what()));
    }
    return options;
  }

  /// Returns "FILE: line N: " for the first option of the file that `text` names.
  std::string place_of(std::string_view text) const {
    const auto first = std::ranges::min_element(
        lines_, {}, [&](const auto& each) { return find_flag(text, each.first); });
    if (first == lines_.end() || find_flag(text, first->first) == std::string_view::npos) return {};
    return fmt::format("{}: line {}: ", file(), first->second);
  }

  std::string to_config(const CLI::App* app, bool, bool, std::string) const override {
    return to_toml(settings_of(*app));
  }

 private:
  std::string file() const { return app_.get_config_ptr()->as<std::string>(); }

  void append_items(const toml::table& table, std::vector<CLI::ConfigItem>& options) const {
    for (const auto& [key, value] : table) {
      const std::string name(std::string_view{key});
      if (const toml::table* group = value.as_table()) {
        append_items(*group, options);
        continue;
      }
      if (app_.get_allow_config_extras() == CLI::config_extras_mode::error) {
        require_option(app_, name, value);
      }
      require_first(name, value.source().begin.line);
      note_line(name, value.source().begin.line);
      options.push_back({.parents = {}, .name = name, .inputs = {text_of(name, value)}});
    }
  }

  /// Checks that no other key of the file sets the option of this one.
  void require_first(const std::string& name, std::uint32_t line) const {
    const CLI::Option* const option = app_.get_option_no_throw("--" + name);
    if (option == nullptr) return;
    const std::pair key(line, name);
    const auto [first, is_first] = keys_.try_emplace(option, key);
    if (is_first) return;
    const auto& [one, other] = std::minmax(first->second, key);
    throw CLI::ConfigError(fmt::format("lines {} and {}: {} and {} set the same option", one.first,
                                       other.first, one.second, other.second));
  }

  /// Records the line of an option unless the command line sets that option. Each of its names gets
  /// the line, because errors may use any of them.
  void note_line(const std::string& name, std::uint32_t line) const {
    const CLI::Option* const option = app_.get_option_no_throw("--" + name);
    if (option == nullptr || option->count() > 0) return;
    for (const std::string& each : option->get_lnames()) lines_["--" + each] = line;
  }

  const CLI::App& app_;
  mutable std::map<std::string, std::uint32_t> lines_;  // line numbers by flag
  // Line and name of the key that sets an option in the file that is read.
  mutable std::map<const CLI::Option*, std::pair<std::uint32_t, std::string>> keys_;
};

template <typename Number>
bool parse_whole(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end;
}

/// Returns `text` as a number in TOML; empty if `field` is no number or TOML does not have this
/// one.
std::optional<std::string> number_text(const ConfigOption::Field& field, const std::string& text) {
  const bool is_real = std::holds_alternative<float*>(field) ||
                       std::holds_alternative<double*>(field) ||
                       std::holds_alternative<std::optional<double>*>(field);
  const bool is_text = std::holds_alternative<std::string*>(field) ||
                       std::holds_alternative<std::filesystem::path*>(field);
  std::int64_t whole = 0;
  double number = 0.0;
  if (!is_text && parse_whole(text, whole)) return fmt::format("{}", whole);
  // The shortest text that reads back exactly.
  if (is_real && parse_whole(text, number)) return fmt::format("{}", number);
  return std::nullopt;
}

}  // namespace

void add_config_option(CLI::App& app) {
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.config_formatter(std::make_shared<TomlFormat>(app));
  app.set_config("--config", "",
                 "TOML file with options, as in batch = 32; those of the command line go first")
      ->type_name("FILE");
}

std::string in_config_file(const CLI::App& app, const std::string& text) {
  const auto* const format = dynamic_cast<const TomlFormat*>(app.get_config_formatter().get());
  return format == nullptr ? text : format->place_of(text) + text;
}

std::vector<Setting> settings_of(const CLI::App& app) {
  std::vector<Setting> settings;
  for (const CLI::Option* option : app.get_options()) {
    const bool has_value = option->get_items_expected_max() > 0;
    if (!has_value || option->get_lnames().empty() || option == app.get_config_ptr() ||
        option->get_group() == kRuntimeGroup) {
      continue;
    }
    const std::string value =
        option->count() > 0 ? option->results().back() : option->get_default_str();
    if (!value.empty()) settings.push_back({option->get_lnames().front(), value});
  }
  return settings;
}

std::vector<Setting> settings_of(const Options& options) {
  std::vector<Setting> settings;
  for (const OptionEntry& entry : option_table()) {
    const std::string value = entry.get(options);
    const bool is_given = options.given.contains(entry.name);
    if (entry.job_wide && (is_given || value != entry.get(Options{}))) {
      settings.push_back({entry.flag().substr(2), value});
    }
  }
  return settings;
}

std::string to_toml(const std::vector<Setting>& settings) {
  Config config;
  std::map<std::string, ConfigOption::Field> fields;
  for (const ConfigOption& option : options_of(config)) fields[option.name] = option.field;
  std::ostringstream text;
  for (const auto& [name, value] : settings) {
    text << name << " = ";
    const auto field = fields.find("--" + name);
    if (const auto number =
            field == fields.end() ? std::nullopt : number_text(field->second, value)) {
      text << *number;
    } else {
      text << toml::value<std::string>(value);  // a text that looks like a number, too
    }
    text << '\n';
  }
  return text.str();
}

}  // namespace kolo::trainer
