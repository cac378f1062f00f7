#include "comm/schedule/joint_ledger.h"

#include "comm/base/check.h"

namespace kolo {
namespace {

// A word of a share: the iteration, and which of the share's pieces are left. The first word: the
// iteration, and how many pieces are done.
//
//   | iteration, 24 bits | begin, 20 bits | end, 20 bits |
//
// All ranks are in one iteration, so the word's is that or the one before: few bits tell them
// apart.
constexpr unsigned kBits = 20;
constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

constexpr std::uint64_t tag(std::uint64_t iteration) { return iteration << 2 * kBits; }
constexpr bool is_of(std::uint64_t word, std::uint64_t iteration) {
  return (word ^ tag(iteration)) >> 2 * kBits == 0;
}

}  // namespace

JointLedger::JointLedger(std::span<std::byte> memory, std::size_t pieces)
    : memory_(memory.data()), shares_(memory.size() / kLine - 1), pieces_(pieces) {
  static_assert(kMostPieces == kMask);
  ensure(memory.size() >= bytes(1) && pieces <= kMostPieces, "a ledger that is too small");
}

std::atomic_ref<std::uint64_t> JointLedger::word(std::size_t line) const {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory_ + line * kLine));
}

void JointLedger::clear(std::uint64_t first) {
  for (std::size_t line = 0; line <= shares_; ++line) {
    word(line).store(tag(first - 1), std::memory_order_relaxed);
  }
}

std::optional<std::size_t> JointLedger::take(std::uint64_t iteration, std::size_t home) {
  for (std::size_t i = 0; i < shares_; ++i) {
    if (const auto piece = take_of((home + i) % shares_, iteration, i == 0)) return piece;
  }
  return std::nullopt;
}

std::optional<std::size_t> JointLedger::take_of(std::size_t share, std::uint64_t iteration,
                                                bool from_front) {
  const std::size_t first = pieces_ * share / shares_;
  const std::uint64_t all = pieces_ * (share + 1) / shares_ - first;
  const auto shared = word(1 + share);
  std::uint64_t seen = shared.load(std::memory_order_relaxed);
  for (;;) {
    const bool is_begun = is_of(seen, iteration);
    std::uint64_t begin = is_begun ? seen >> kBits & kMask : 0;
    std::uint64_t end = is_begun ? seen & kMask : all;
    if (begin == end) return std::nullopt;
    const std::uint64_t taken = from_front ? begin++ : --end;
    if (shared.compare_exchange_weak(seen, tag(iteration) | begin << kBits | end,
                                     std::memory_order_relaxed)) {
      return first + taken;
    }
  }
}

bool JointLedger::finish(std::uint64_t iteration) {
  const auto shared = word(0);
  std::uint64_t seen = shared.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint64_t done = (is_of(seen, iteration) ? seen & kMask : 0) + 1;
    if (shared.compare_exchange_weak(seen, tag(iteration) | done, std::memory_order_acq_rel,
                                     std::memory_order_relaxed)) {
      return done == pieces_;
    }
  }
}

// Others may have gone on to the next iteration, and done pieces of it.
bool JointLedger::is_done(std::uint64_t iteration) const {
  const std::uint64_t seen = word(0).load(std::memory_order_acquire);
  return is_of(seen, iteration) ? (seen & kMask) == pieces_ : is_of(seen, iteration + 1);
}

}  // namespace kolo
