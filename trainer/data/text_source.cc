// Plain text.

#include <memory>
#include <string>

#include "trainer/config.h"
#include "trainer/data/corpus.h"
#include "trainer/data/data_error.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/data/text_dataset.h"

namespace kolo::trainer {
namespace {

DataSplit load_text(const Config& config) {
  const auto corpus = std::make_shared<const Corpus>(config.data);
  const std::size_t size = corpus->bytes().size();
  const std::size_t boundary = size - size / 10;
  const std::size_t needed = config.context + 1;
  if (boundary < needed || size - boundary < needed) {
    throw_data_error(config.data, size,
                     "the text is too short: its last tenth must hold a context of " +
                         std::to_string(config.context) + " bytes and one more");
  }
  return {.train = std::make_unique<TextDataset>(corpus, 0, boundary, config.context),
          .held_out = std::make_unique<TextDataset>(corpus, boundary, size, config.context)};
}

}  // namespace

DatasetEntry text_entry() {
  return {.name = "text",
          .task = "language-model",
          .help =
              "a file, or a directory of *.md *.txt *.h *.cc *.py *.sh; the last tenth is held "
              "out",
          .accepts = [](const auto&) { return true; },
          .load = load_text};
}

}  // namespace kolo::trainer
