#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace kolo {

/// Who does what of a joint sum: words that the ranks of a node share. The pieces of the sum are
/// dealt to shares, each of which has the same pieces in every iteration. Who takes a piece names
/// the share it likes best, as the one of its core, whose cache has these pieces; it gets them from
/// the front, and when they are used up those of others, from the back:
///
///   share 0    | 0 | 1 | 2 | 3 |      the core at home takes 0, 1, ...
///   share 1    | 4 | 5 | 6 | 7 |      others, whose own share is used up, take 7, 6, ...
///
/// So nobody waits for a rank that has no core, however unevenly the kernel places ranks.
///
/// Words carry the iteration, and whoever comes first in one begins it; nothing is ever reset.
/// Threads: any, of any process. Before: ranks take pieces of an iteration only while all ranks are
/// in it, and leave it when it is done. Whoever sees that it is sees what all wrote before
/// `finish`.
class JointLedger {
 public:
  /// What so many shares take.
  static constexpr std::size_t bytes(std::size_t shares) { return (1 + shares) * kLine; }

  /// Shape: `memory` begins at a cache line and is `bytes(shares)` long; `pieces` is at most
  ///        kMostPieces.
  JointLedger(std::span<std::byte> memory, std::size_t pieces);

  static constexpr std::size_t kMostPieces = (std::size_t{1} << 20) - 1;

  /// Nothing is left of an iteration before `first`. One rank does this, before it says that it is
  /// in an iteration.
  void clear(std::uint64_t first);

  /// A piece that nobody has taken, of share `home` if there is one left; nothing if none is left.
  std::optional<std::size_t> take(std::uint64_t iteration, std::size_t home);

  /// A piece that was taken is done. Returns whether it was the last.
  bool finish(std::uint64_t iteration);

  /// Whether all pieces are. Threads: of ranks that are in the iteration.
  bool is_done(std::uint64_t iteration) const;

  std::size_t shares() const { return shares_; }

 private:
  static constexpr std::size_t kLine = 64;

  std::atomic_ref<std::uint64_t> word(std::size_t line) const;
  std::optional<std::size_t> take_of(std::size_t share, std::uint64_t iteration, bool from_front);

  std::byte* memory_;
  std::size_t shares_;
  std::size_t pieces_;
};

}  // namespace kolo
