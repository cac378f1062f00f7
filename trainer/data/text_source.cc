// Plain text.

#include <memory>
#include <string>

#include <fmt/format.h>

#include "trainer/config.h"
#include "trainer/data/corpus.h"
#include "trainer/data/data_error.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/text/byte_tokenizer.h"
#include "trainer/text/make_tokenizer.h"
#include "trainer/tokens/token_dataset.h"

namespace kolo::trainer {
namespace {

/// The tokens of bytes [begin, end); bytes themselves stay where they are.
TokenArray tokens_of(const Config& config, const std::shared_ptr<const Corpus>& corpus,
                     std::size_t begin, std::size_t end, const Tokenizer& tokenizer) {
  const auto bytes = std::as_bytes(corpus->bytes().subspan(begin, end - begin));
  if (dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr) {
    return {.bytes = bytes, .width = 1, .owner = corpus, .file = config.data, .offset = begin};
  }
  const auto tokens = std::make_shared<const std::vector<std::int32_t>>(
      tokenizer.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  return {.bytes = std::as_bytes(std::span(*tokens)), .width = 4, .owner = tokens};
}

DataSplit load_text(const Config& config) {
  const auto corpus = std::make_shared<const Corpus>(config.data);
  std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(config.text_files);
  if (tokenizer == nullptr) tokenizer = std::make_shared<ByteTokenizer>();
  const std::size_t size = corpus->bytes().size();
  const std::size_t boundary = held_out_begin(size);
  const auto part = [&](std::size_t begin, std::size_t end) {
    auto dataset = std::make_unique<TokenDataset>(
        std::vector{tokens_of(config, corpus, begin, end, *tokenizer)}, tokenizer->size(),
        config.context);
    if (dataset->size() > 0) return dataset;
    throw_data_error(config.data, size,
                     fmt::format("the text is too short: its last tenth must hold a context of {} "
                                 "tokens and one more",
                                 config.context));
  };
  return {.train = part(0, boundary),
          .held_out = part(boundary, size),
          .tokenizer = tokenizer,
          .text_files = tokenizer->files()};
}

}  // namespace

DatasetEntry text_entry() {
  return {.name = "text",
          .task = "language-model",
          .help =
              "a file, or a directory of *.md *.txt *.h *.cc *.py *.sh, whose tokens are bytes or "
              "those of --tokenizer; the last tenth is held out",
          .accepts = [](const auto&) { return true; },
          .load = load_text,
          .reads = {"--context"}};
}

}  // namespace kolo::trainer
