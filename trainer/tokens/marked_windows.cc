#include "trainer/tokens/marked_windows.h"

#include <utility>
#include <vector>

namespace kolo::trainer {

MarkedWindows::MarkedWindows(std::unique_ptr<TokenDataset> windows,
                             const TextVocabulary& vocabulary)
    : windows_(std::move(windows)),
      mark_(vocabulary.marks().value().text),
      format_(text_format(vocabulary, windows_->format().inputs[0].elements() + 1)) {}

void MarkedWindows::copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
                         std::span<const TensorSlot>) const {
  const std::span<std::int32_t> tokens = inputs[0].as<std::int32_t>();
  tokens[0] = mark_;
  std::vector<std::int32_t> next(tokens.size() - 1);
  const TensorSlot window[] = {tokens.subspan(1)}, left_out[] = {next};
  windows_->copy(index, epoch, window, left_out);
  inputs[1].as<std::int32_t>()[0] = static_cast<std::int32_t>(tokens.size());
}

}  // namespace kolo::trainer
