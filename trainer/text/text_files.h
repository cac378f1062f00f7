#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace kolo::trainer {

/// Small files by name, with their texts: the vocabularies without which a model's weights cannot
/// read a text.
struct TextFiles {
  /// Every name that such a file can have.
  static constexpr std::array kNames = {"bytes.txt", "classes.json", "merges.txt", "vocab.json",
                                        "words.json"};

  std::map<std::string, std::string> texts;
  std::filesystem::path origin;  ///< Folder or file that they came from, for errors.

  bool empty() const { return texts.empty(); }
  /// Null if there is none of this name.
  const std::string* find(const std::string& name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : &found->second;
  }
  std::filesystem::path path(const std::string& name) const { return origin / name; }
  /// Of names and texts.
  std::uint64_t hash() const;
};

/// Those in `folder`; none if there is no such folder.
/// Errors: KoloError(kData) naming a file that cannot be read.
TextFiles read_text_files(const std::filesystem::path& folder);

/// Those among `texts`, which come from `origin`.
TextFiles select_text_files(const std::map<std::string, std::string>& texts,
                            const std::filesystem::path& origin);

/// Writes them into a folder, which is made if needed. Errors: KoloError(kIo) naming the file.
void write_text_files(const TextFiles& files, const std::filesystem::path& folder);

}  // namespace kolo::trainer
