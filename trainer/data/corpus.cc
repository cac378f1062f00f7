#include "trainer/data/corpus.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

bool is_build_tree(const fs::path& directory) { return fs::exists(directory / "CMakeCache.txt"); }

bool is_text(const fs::path& file) {
  constexpr std::array<std::string_view, 6> kExtensions = {".md", ".txt", ".h",
                                                           ".cc", ".py",  ".sh"};
  const std::string extension = file.extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

std::vector<fs::path> text_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path& path = entry->path();
    if (entry->is_directory()) {
      if (is_hidden(path) || is_build_tree(path)) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !is_hidden(path) && is_text(path)) {
      files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::uint8_t> concatenate(const fs::path& directory) {
  std::vector<std::uint8_t> text;
  try {
    for (const fs::path& file : text_files(directory)) {
      const MappedFile mapped(file);
      text.insert(text.end(), mapped.bytes().begin(), mapped.bytes().end());
    }
  } catch (const fs::filesystem_error& error) {
    throw_data_error(error.path1(), error.code().message());
  }
  if (text.empty())
    throw_data_error(directory,
                     "this directory holds no text files (*.md, *.txt, *.h, *.cc, *.py, *.sh)");
  return text;
}

std::variant<MappedFile, std::vector<std::uint8_t>> open(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return concatenate(path);
  return MappedFile(path);
}

}  // namespace

Corpus::Corpus(const std::filesystem::path& path) : text_(open(path)) {}

std::span<const std::uint8_t> Corpus::bytes() const {
  if (const auto* mapped = std::get_if<MappedFile>(&text_)) return mapped->bytes();
  return std::get<std::vector<std::uint8_t>>(text_);
}

}  // namespace kolo::trainer
