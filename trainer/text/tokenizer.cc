#include "trainer/text/tokenizer.h"

#include <system_error>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "comm/base/output_file.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/text/byte_pair_encoding.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kByteValues = 256;

constexpr bool is_printable(std::size_t byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

struct Alphabet {
  std::array<std::uint8_t, kByteValues> order{};
  std::array<std::size_t, kByteValues> character{};     // code point by byte
  std::array<std::int16_t, 2 * kByteValues> byte_of{};  // by code point; -1: none

  constexpr Alphabet() {
    byte_of.fill(-1);
    std::size_t next = 0;
    std::size_t other = kByteValues;
    for (const bool printable : {true, false}) {
      for (std::size_t byte = 0; byte < kByteValues; ++byte) {
        if (is_printable(byte) != printable) continue;
        order[next++] = static_cast<std::uint8_t>(byte);
        character[byte] = printable ? byte : other++;
        byte_of[character[byte]] = static_cast<std::int16_t>(byte);
      }
    }
  }
};

constexpr Alphabet kAlphabet;

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
  std::error_code ignored;  // writing a file reports the error
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

const std::array<std::uint8_t, kByteValues>& bytes_in_order() { return kAlphabet.order; }

// All characters are below U+0800, so each has at most two bytes in UTF-8.
std::string to_visible(std::string_view bytes) {
  std::string utf8;
  for (const char byte : bytes) {
    const std::size_t character = kAlphabet.character[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      utf8.push_back(static_cast<char>(character));
    } else {
      utf8.push_back(static_cast<char>(0xC0 | (character >> 6)));
      utf8.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return utf8;
}

std::optional<std::string> from_visible(std::string_view characters) {
  std::string bytes;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    std::size_t character = static_cast<unsigned char>(characters[i]);
    if (character >= 0x80) {
      const bool has_two = (character & 0xE0) == 0xC0 && i + 1 < characters.size();
      if (!has_two) return std::nullopt;
      const std::size_t low = static_cast<unsigned char>(characters[++i]);
      if ((low & 0xC0) != 0x80) return std::nullopt;
      character = (character & 0x1F) << 6 | (low & 0x3F);
    }
    if (character >= kAlphabet.byte_of.size() || kAlphabet.byte_of[character] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[character]));
  }
  return bytes;
}

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
