#include "trainer/checkpoint/agreement_round.h"

#include <algorithm>

namespace kolo::trainer {

AgreementRound::AgreementRound(Runtime& runtime)
    : runtime_(runtime), memory_(std::make_unique<Memory>()) {
  memory_->all.resize(kWords * static_cast<std::size_t>(runtime.world_size()));
}

AgreementRound::~AgreementRound() {
  // A job that failed leaves the exchange open, and the runtime may still write to its memory.
  if (ticket_ && !ticket_->done()) static_cast<void>(memory_.release());
}

void AgreementRound::begin(std::span<const std::uint64_t, kWords> mine) {
  std::ranges::copy(mine, memory_->mine);
  ticket_ = runtime_.all_gather_async("checkpoints", memory_->mine,
                                      {memory_->all.data(), memory_->all.size(), DType::kInt64});
}

std::span<const std::uint64_t> AgreementRound::take() {
  ticket_->wait();
  ticket_.reset();
  return memory_->all;
}

}  // namespace kolo::trainer
