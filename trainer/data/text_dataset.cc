#include "trainer/data/text_dataset.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {

TextDataset::TextDataset(std::shared_ptr<const Corpus> corpus, std::size_t begin, std::size_t end,
                         std::size_t context)
    : corpus_(std::move(corpus)), context_(context) {
  check(context > 0 && begin < end && end <= corpus_->bytes().size(),
        "a text data set is a non-empty part of its corpus");
  text_ = corpus_->bytes().subspan(begin, end - begin);
}

void TextDataset::copy(std::size_t index, std::span<std::uint8_t> input,
                       std::span<std::uint8_t> target) const {
  check(index < size() && input.size() == context_ && target.size() == context_,
        "a sample of a text data set is copied by its index");
  const auto window = text_.subspan(index * context_, context_ + 1);
  std::copy_n(window.begin(), context_, input.begin());
  std::copy_n(window.begin() + 1, context_, target.begin());
}

}  // namespace kolo::trainer
