#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace kolo::trainer {

/// Small files by name, with their texts: the vocabularies without which a model's weights cannot
/// read a text.
struct TextFiles {
  std::map<std::string, std::string> texts;
  std::filesystem::path origin;  ///< Folder or file that they came from, for errors.

  bool empty() const { return texts.empty(); }
  /// Null if there is none of this name.
  const std::string* find(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : &found->second;
  }
  std::filesystem::path path(const std::string& name) const { return origin / name; }
};

}  // namespace kolo::trainer
