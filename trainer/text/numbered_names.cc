#include "trainer/text/numbered_names.h"

#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/data/data_error.h"
#include "trainer/text/byte_alphabet.h"

namespace kolo::trainer {

std::string to_numbered_json(const std::vector<std::string>& names) {
  std::string json = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    json +=
        fmt::format("{}{}: {}", i == 0 ? "" : ", ", nlohmann::json(to_visible(names[i])).dump(), i);
  }
  return json + "}\n";
}

std::vector<std::string> from_numbered_json(const std::string& json,
                                            const std::filesystem::path& file) {
  std::vector<std::optional<std::string>> names;
  try {
    const auto object = nlohmann::json::parse(json);
    if (!object.is_object()) throw_data_error(file, "it holds no object of names and numbers");
    names.resize(object.size());
    for (const auto& [name, number] : object.items()) {
      if (!number.is_number_unsigned() || number.get<std::size_t>() >= names.size() ||
          names[number.get<std::size_t>()]) {
        throw_data_error(file,
                         fmt::format("'{}' has {}, and {} names have the numbers from 0 to {}, "
                                     "each once",
                                     name, number.dump(), names.size(), names.size() - 1));
      }
      auto& place = names[number.get<std::size_t>()];
      place = from_visible(name);
      if (!place) {
        throw_data_error(file, fmt::format("'{}' has characters that stand for no byte", name));
      }
    }
  } catch (const nlohmann::json::parse_error& error) {
    throw_data_error(file, error.byte > 0 ? error.byte - 1 : 0, error.what());
  } catch (const nlohmann::json::exception& error) {  // such as a number that is too large
    throw_data_error(file, error.what());
  }
  std::vector<std::string> bytes;
  for (auto& name : names) bytes.push_back(std::move(*name));
  return bytes;
}

}  // namespace kolo::trainer
