#include "trainer/checkpoint/stored_vocabularies.h"

#include "trainer/checkpoint/safetensors.h"

namespace kolo::trainer {

TextFiles vocabularies_of(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path);
  // A path that ends with a slash has an empty name.
  const std::filesystem::path named = whole.has_filename() ? whole : whole.parent_path();
  const std::filesystem::path folder = named.parent_path();
  if (std::filesystem::is_directory(named)) return read_text_files(folder / kTokenizerFolder);
  TextFiles files = select_text_files(SafetensorsFile(named).metadata(), path);
  return files.empty() ? read_text_files(folder) : files;
}

TextFiles vocabularies_at(const std::filesystem::path& path) {
  for (const std::filesystem::path& folder : {path, path / kTokenizerFolder}) {
    TextFiles files = read_text_files(folder);
    if (!files.empty()) return files;
  }
  return vocabularies_of(path);
}

}  // namespace kolo::trainer
