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

std::variant<MappedFile, std::vector<std::uint8_t>> open(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return MappedFile(path);
  std::vector<std::uint8_t> text;
  for (const fs::path& file : corpus_files(path)) {
    const MappedFile mapped(file);
    text.insert(text.end(), mapped.bytes().begin(), mapped.bytes().end());
  }
  return text;
}

}  // namespace

std::vector<fs::path> corpus_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> files;
  std::uintmax_t bytes = 0;
  try {
    files = text_files(path);
    for (const fs::path& file : files) bytes += fs::file_size(file);
  } catch (const fs::filesystem_error& error) {
    throw_data_error(error.path1(), error.code().message());
  }
  if (bytes == 0) {
    throw_data_error(path,
                     "this directory holds no text files (*.md, *.txt, *.h, *.cc, *.py, *.sh)");
  }
  return files;
}

Corpus::Corpus(const std::filesystem::path& path) : text_(open(path)) {}

std::span<const std::uint8_t> Corpus::bytes() const {
  if (const auto* mapped = std::get_if<MappedFile>(&text_)) return mapped->bytes();
  return std::get<std::vector<std::uint8_t>>(text_);
}

}  // namespace kolo::trainer
