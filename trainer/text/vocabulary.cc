#include "trainer/text/vocabulary.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {
namespace {

// The names of special entries; `split_words` never returns them.
constexpr const char* kNoWords[] = {"<padding>", "<unknown>", "[CLS]", "[MASK]"};
constexpr std::size_t kUnmarked = 2;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_of_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '\'' || static_cast<unsigned char>(c) > 127;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

SampleFormat text_format(const TextVocabulary& vocabulary, std::size_t max_length) {
  return {.inputs = {{.name = "tokens",
                      .dtype = DType::kInt32,
                      .shape = {max_length},
                      .values = vocabulary.size()},
                     {.name = "length", .dtype = DType::kInt32, .values = max_length + 1}},
          .targets = {}};
}

TokenVocabulary::TokenVocabulary(std::shared_ptr<const Tokenizer> tokenizer, const Options& options)
    : tokenizer_(std::move(tokenizer)), has_marks_(options.has_marks) {}

std::optional<TextVocabulary::Marks> TokenVocabulary::marks() const {
  if (!has_marks_) return std::nullopt;
  return Marks{.text = padding() + 1, .hidden = padding() + 2};
}

TextVocabulary::Range TokenVocabulary::tokens() const {
  return {.first = 0, .end = static_cast<std::int32_t>(tokenizer_->size())};
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  for (const char c : text) {
    const bool continues = is_in_word && is_of_word(c);
    is_in_word = is_of_word(c);
    if (is_space(c)) continue;
    if (!continues) words.emplace_back();
    words.back().push_back(lower(c));
  }
  return words;
}

Vocabulary::Vocabulary(std::span<const std::string> texts, const Options& options)
    : words_(kNoWords, kNoWords + (options.has_marks ? kMarked : kUnmarked)) {
  check(options.most >= words_.size(), "a vocabulary has room for the entries that are no words");
  std::unordered_map<std::string, std::size_t> counts;
  for (const std::string& text : texts) {
    for (std::string& word : split_words(text)) ++counts[std::move(word)];
  }
  std::erase_if(counts, [&](const auto& entry) { return entry.second < options.min_count; });
  std::vector<std::pair<std::string, std::size_t>> order(counts.begin(), counts.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  for (auto& [word, count] : order) {
    if (words_.size() == options.most) break;
    ids_.emplace(word, static_cast<std::int32_t>(words_.size()));
    words_.push_back(std::move(word));
  }
}

Vocabulary Vocabulary::from_entries(std::vector<std::string> entries,
                                    const std::filesystem::path& file) {
  for (std::size_t i = 0; i < kUnmarked; ++i) {
    if (i < entries.size() && entries[i] == kNoWords[i]) continue;
    throw_data_error(file, fmt::format("a vocabulary has {} as entry {}", kNoWords[i], i));
  }
  Vocabulary vocabulary;
  vocabulary.words_ = std::move(entries);
  const std::vector<std::string>& words = vocabulary.words_;
  for (auto i = static_cast<std::size_t>(vocabulary.tokens().first); i < words.size(); ++i) {
    if (split_words(words[i]) != std::vector<std::string>{words[i]}) {
      throw_data_error(file, fmt::format("entry {}, '{}', is not one word", i, words[i]));
    }
    vocabulary.ids_.emplace(words[i], static_cast<std::int32_t>(i));
  }
  return vocabulary;
}

std::vector<std::int32_t> Vocabulary::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const std::string& word : split_words(text)) ids.push_back(id(word));
  return ids;
}

std::optional<TextVocabulary::Marks> Vocabulary::marks() const {
  const bool has_marks =
      words_.size() >= kMarked &&
      std::equal(kNoWords + kUnmarked, kNoWords + kMarked, words_.begin() + kUnmarked);
  if (!has_marks) return std::nullopt;
  return Marks{.text = kClass, .hidden = kMask};
}

TextVocabulary::Range Vocabulary::tokens() const {
  return {.first = static_cast<std::int32_t>(marks() ? kMarked : kUnmarked),
          .end = static_cast<std::int32_t>(words_.size())};
}

TextFiles Vocabulary::files() const {
  return {.texts = {{kFile, to_numbered_json(words_)}}, .origin = {}};
}

std::int32_t Vocabulary::id(std::string_view word) const {
  const auto found = ids_.find(word);
  return found == ids_.end() ? kUnknown : found->second;
}

std::shared_ptr<const TextVocabulary> load_vocabulary(const Config& config,
                                                      std::span<const std::string> texts) {
  const TextFiles& files = config.text_files;
  if (const std::string* stored = files.find(Vocabulary::kFile)) {
    const std::filesystem::path file = files.path(Vocabulary::kFile);
    auto words = std::make_shared<const Vocabulary>(
        Vocabulary::from_entries(from_numbered_json(*stored, file), file));
    if (words->marks().has_value() == config.text_marks) return words;
    throw_data_error(file, config.text_marks ? "it has no [CLS] and [MASK]: --text-marks is on"
                                             : "it has [CLS] and [MASK]: --text-marks is off");
  }
  if (auto tokenizer = make_tokenizer(files)) {
    return std::make_shared<const TokenVocabulary>(
        std::move(tokenizer), TokenVocabulary::Options{.has_marks = config.text_marks});
  }
  return std::make_shared<const Vocabulary>(
      texts, Vocabulary::Options{.most = config.vocabulary.value_or(SIZE_MAX),
                                 .min_count = config.min_count,
                                 .has_marks = config.text_marks});
}

std::vector<std::string> word_options() {
  return {"--max-length", "--vocabulary", "--min-count", "--text-marks"};
}

bool has_vocabulary(const TextFiles& files) {
  return files.find(Vocabulary::kFile) != nullptr || make_tokenizer(files) != nullptr;
}

}  // namespace kolo::trainer
