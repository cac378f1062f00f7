#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Writes the bytes of `values`, for a program in another language.
template <typename T>
void dump(const std::filesystem::path& file, std::span<const T> values) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.exceptions(std::ios::badbit | std::ios::failbit);
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size_bytes()));
}

/// The values of all parameters, as value/NAME.
inline void dump_values(const std::filesystem::path& folder, const ParameterSet& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    dump<float>(folder / "value" / parameters[i].name(), parameters[i].value());
  }
}

/// Their gradients, as gradient/NAME. `names`: of these only, if there are any.
inline void dump_gradients(const std::filesystem::path& folder, const ParameterSet& parameters,
                           std::span<const std::string> names = {}) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!names.empty() && std::ranges::find(names, parameters[i].name()) == names.end()) continue;
    dump<float>(folder / "gradient" / parameters[i].name(), parameters[i].gradient());
  }
}

}  // namespace kolo::trainer
