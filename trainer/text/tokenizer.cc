#include "trainer/text/tokenizer.h"

#include <system_error>

#include <xxhash.h>

#include "comm/base/output_file.h"
#include "trainer/data/files.h"
#include "trainer/text/byte_pair_encoding.h"

namespace kolo::trainer {
namespace {

constexpr std::array<char, ByteTokenizer::kSize> kAllBytes = [] {
  std::array<char, ByteTokenizer::kSize> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

}  // namespace

std::uint64_t TextFiles::hash() const {
  std::string all;
  for (const auto& [name, text] : texts) all += name + '\0' + text + '\0';
  return XXH3_64bits(all.data(), all.size());
}

TextFiles read_text_files(const std::filesystem::path& folder) {
  TextFiles files{.texts = {}, .origin = folder};
  for (const char* name : TextFiles::kNames) {
    if (!is_there(folder / name)) continue;
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

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string_view ByteTokenizer::bytes_of(std::int32_t token) const {
  return {&kAllBytes.at(static_cast<std::size_t>(token)), 1};
}

TextFiles ByteTokenizer::files() const {
  return {.texts = {{kFile, "The tokens of this model are the 256 values of a byte.\n"}},
          .origin = {}};
}

std::shared_ptr<const Tokenizer> make_tokenizer(const TextFiles& files) {
  if (files.find(ByteTokenizer::kFile) != nullptr) return std::make_shared<ByteTokenizer>();
  for (const char* name : {BytePairEncoding::kVocabulary, BytePairEncoding::kMerges}) {
    if (files.find(name) != nullptr) {
      return std::make_shared<BytePairEncoding>(BytePairEncoding::from_files(files));
    }
  }
  return nullptr;
}

}  // namespace kolo::trainer
