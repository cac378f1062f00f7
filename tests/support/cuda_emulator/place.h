#pragma once

#include <string>
#include <string_view>

namespace kolo::emulator {

/// A line of a kernel's source; stands in for std::source_location, which Clang 14 lacks.
struct Place {
  const char* file = "";
  unsigned line = 0;

  /// As a default argument: the place of the call.
  static constexpr Place here(const char* file = __builtin_FILE(),
                              unsigned line = __builtin_LINE()) {
    return {file, line};
  }

  bool operator==(const Place& other) const {
    return line == other.line && std::string_view(file) == other.file;
  }

  std::string describe() const { return std::string(file) + ":" + std::to_string(line); }
};

}  // namespace kolo::emulator
