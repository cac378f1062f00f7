#include "trainer/text/text_files.h"

#include <system_error>

#include <xxhash.h>

#include "comm/base/output_file.h"
#include "trainer/data/packed_file.h"

namespace kolo::trainer {

std::uint64_t TextFiles::hash() const {
  std::string all;
  for (const auto& [name, text] : texts) all += name + '\0' + text + '\0';
  return XXH3_64bits(all.data(), all.size());
}

TextFiles read_text_files(const std::filesystem::path& folder) {
  TextFiles files{.texts = {}, .origin = folder};
  for (const char* name : TextFiles::kNames) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / name, ignored)) continue;
    files.texts.emplace(name, read_text(folder / name));
  }
  return files;
}

TextFiles select_text_files(const std::map<std::string, std::string>& texts,
                            const std::filesystem::path& origin) {
  TextFiles files{.texts = {}, .origin = origin};
  for (const char* name : TextFiles::kNames) {
    const auto found = texts.find(name);
    if (found != texts.end()) files.texts.insert(*found);
  }
  return files;
}

void write_text_files(const TextFiles& files, const std::filesystem::path& folder) {
  std::error_code ignored;  // writing a file says it
  std::filesystem::create_directories(folder, ignored);
  for (const auto& [name, text] : files.texts) write_file(folder / name, text);
}

}  // namespace kolo::trainer
