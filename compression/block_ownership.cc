#include "compression/block_ownership.h"

#include <algorithm>
#include <bit>

#include "comm/base/check.h"

namespace kolo {

BlockOwnership::BlockOwnership(std::size_t count, int owners) : count_(count) {
  check(owners > 0, "a compression group has at least one owner");
  owners_ = static_cast<std::size_t>(owners);
  constexpr std::size_t kBlocksPerOwner = 64;
  const std::size_t fair = count / (owners_ * kBlocksPerOwner);
  block_ = std::clamp<std::size_t>(std::bit_floor(fair), 64, 4096);
  check(most_local() <= std::size_t{1} << 32, "an owner's elements are numbered in 32 bits");
}

std::size_t BlockOwnership::local_count_below(int owner, std::size_t end) const {
  const std::size_t round = block_ * owners_;
  const std::size_t last_round = end % round;
  const std::size_t before = static_cast<std::size_t>(owner) * block_;
  const std::size_t rest = last_round > before ? std::min(last_round - before, block_) : 0;
  return end / round * block_ + rest;
}

}  // namespace kolo
