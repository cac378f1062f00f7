#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xxhash.h>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

/// A data set of consecutive windows of a text's tokens. The last window may be shorter.
///
/// Format: the inputs "tokens" and "length" of LabelledTextDataset; no target.
class WordWindows final : public Dataset {
 public:
  /// `lines` are the lines of the text; each has at least one token.
  WordWindows(std::span<const std::string> lines, const TextVocabulary& vocabulary,
              std::size_t max_length)
      : padding_(vocabulary.padding()),
        window_(max_length - (vocabulary.marks() ? 1 : 0)),
        format_(text_format(vocabulary, max_length)) {
    if (const auto marks = vocabulary.marks()) mark_ = marks->text;
    check(max_length > (mark_ ? 1u : 0u), "a window has room for a token");
    for (const std::string& line : lines)
      std::ranges::copy(vocabulary.encode(line), std::back_inserter(tokens_));
    check(!tokens_.empty(), "a text has tokens");
  }

  std::size_t size() const override { return (tokens_.size() + window_ - 1) / window_; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot>) const override {
    check(index < size(), "a window is copied by its index");
    const std::span<std::int32_t> all = inputs[0].as<std::int32_t>();
    const std::size_t begin = index * window_;
    const auto tokens =
        std::span(tokens_).subspan(begin, std::min(window_, tokens_.size() - begin));
    auto into = all.begin();
    if (mark_) *into++ = *mark_;
    into = std::ranges::copy(tokens, into).out;
    inputs[1].as<std::int32_t>()[0] = static_cast<std::int32_t>(into - all.begin());
    std::fill(into, all.end(), padding_);
  }

 private:
  std::optional<std::int32_t> mark_;
  std::int32_t padding_;
  std::size_t window_;  // tokens per window, without the mark
  SampleFormat format_;
  std::vector<std::int32_t> tokens_;
};

/// The lines of a text that contain a word.
std::vector<std::string> lines_of(std::span<const std::uint8_t> text) {
  std::vector<std::string> lines;
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find(begin, text.end(), '\n');
    std::string line(begin, end);
    if (!split_words(line).empty()) lines.push_back(std::move(line));
    begin = end == text.end() ? end : end + 1;
  }
  return lines;
}

DataSplit load_words(const Config& config) {
  constexpr std::size_t kEvery = 10;
  const Corpus corpus(config.data);
  const std::vector<std::string> lines = lines_of(corpus.bytes());
  if (lines.size() < kEvery) {
    throw_data_error(config.data, "the text is too short: it has " + std::to_string(lines.size()) +
                                      " lines with words, and needs " + std::to_string(kEvery));
  }
  const auto all = std::span(lines);
  const auto train = all.first(lines.size() - lines.size() / kEvery);
  auto vocabulary = load_vocabulary(config, train);
  return {.train = std::make_unique<WordWindows>(train, *vocabulary, config.max_length),
          .held_out = std::make_unique<WordWindows>(all.subspan(train.size()), *vocabulary,
                                                    config.max_length),
          .vocabulary = vocabulary,
          .text_hash = XXH3_64bits(corpus.bytes().data(), corpus.bytes().size()),
          .text_files = vocabulary->files()};
}

}  // namespace

DatasetEntry words_entry() {
  return {.name = "words",
          .task = "masked-tokens",
          .help =
              "the words of a file, or of a directory of *.md *.txt *.h *.cc *.py *.sh, or their "
              "tokens by --tokenizer; the last tenth of the lines is held out",
          .accepts = [](const auto&) { return true; },
          .load = load_words,
          .reads = word_options()};
}

}  // namespace kolo::trainer
