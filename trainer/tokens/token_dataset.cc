#include "trainer/tokens/token_dataset.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

template <typename T>
void widen_tokens(const std::byte* from, std::span<std::int32_t> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    into[i] = static_cast<std::int32_t>(token);
  }
}

}  // namespace

SampleFormat token_windows(std::size_t vocabulary, std::size_t context) {
  const auto field = [=](std::string name) {
    return Field{
        .name = std::move(name), .dtype = DType::kInt32, .shape = {context}, .values = vocabulary};
  };
  return {.inputs = {field("tokens")}, .targets = {field("next")}};
}

TokenDataset::TokenDataset(std::vector<TokenArray> arrays, std::size_t vocabulary,
                           std::size_t context)
    : arrays_(std::move(arrays)),
      first_windows_{0},
      vocabulary_(vocabulary),
      context_(context),
      format_(token_windows(vocabulary, context)) {
  check(context > 0, "a window holds at least one token");
  for (const TokenArray& array : arrays_) {
    const std::size_t windows = array.size() == 0 ? 0 : (array.size() - 1) / context;
    first_windows_.push_back(first_windows_.back() + windows);
  }
}

void TokenDataset::copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
                        std::span<const TensorSlot> targets) const {
  check(index < size(), "a sample of a data set of tokens is copied by its index");
  const auto after = std::upper_bound(first_windows_.begin(), first_windows_.end(), index);
  const auto array = static_cast<std::size_t>(after - first_windows_.begin()) - 1;
  const std::size_t begin = (index - first_windows_[array]) * context_;
  copy_tokens(arrays_[array], begin, inputs[0].as<std::int32_t>());
  copy_tokens(arrays_[array], begin + 1, targets[0].as<std::int32_t>());
}

void TokenDataset::copy_tokens(const TokenArray& array, std::size_t begin,
                               std::span<std::int32_t> into) const {
  const std::byte* from = array.bytes.data() + begin * array.width;
  if (array.width == 1) widen_tokens<std::uint8_t>(from, into);
  if (array.width == 2) widen_tokens<std::uint16_t>(from, into);
  if (array.width == 4) widen_tokens<std::uint32_t>(from, into);
  const auto outside = std::ranges::find_if(into, [this](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= vocabulary_;
  });
  if (outside == into.end()) return;
  const std::size_t at = begin + static_cast<std::size_t>(outside - into.begin());
  throw_data_error(array.file, array.offset + at * array.width,
                   fmt::format("token {} is not below {}, the size of the vocabulary",
                               static_cast<std::uint32_t>(*outside), vocabulary_));
}

}  // namespace kolo::trainer
