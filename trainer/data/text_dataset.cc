#include "trainer/data/text_dataset.h"

#include <algorithm>
#include <string>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kByteValues = 256;

Field token_field(std::string name, std::size_t context) {
  return {
      .name = std::move(name), .dtype = DType::kInt32, .shape = {context}, .values = kByteValues};
}

}  // namespace

TextDataset::TextDataset(std::shared_ptr<const Corpus> corpus, std::size_t begin, std::size_t end,
                         std::size_t context)
    : corpus_(std::move(corpus)),
      context_(context),
      format_{.inputs = {token_field("tokens", context)},
              .targets = {token_field("next", context)}} {
  check(context > 0 && begin < end && end <= corpus_->bytes().size(),
        "a text data set is a non-empty part of its corpus");
  text_ = corpus_->bytes().subspan(begin, end - begin);
}

void TextDataset::copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
                       std::span<const TensorSlot> targets) const {
  check(index < size(), "a sample of a text data set is copied by its index");
  const auto window = text_.subspan(index * context_, context_ + 1);
  std::copy_n(window.begin(), context_, inputs[0].as<std::int32_t>().begin());
  std::copy_n(window.begin() + 1, context_, targets[0].as<std::int32_t>().begin());
}

}  // namespace kolo::trainer
