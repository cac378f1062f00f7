#pragma once

#include <cstddef>
#include <vector>

#include "comm/schedule/step.h"

namespace kolo {

/// Elements [first, first + count) of what a kernel step writes.
struct KernelPiece {
  const Step* step = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Bytes that a piece reads and writes.
std::size_t moved_bytes(const KernelPiece& piece, std::size_t element_bytes);

/// Less work than this stays in one thread: calling another costs as much.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{512} << 10;

/// Bytes that a piece moves at most, unless a cache line of each operand is more: some 10 µs of
/// work, so that no thread waits long for the last one, and taking it costs little beside.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

/// Appends `whole` in pieces that several threads can work on at the same time, in order: of equal
/// length but for the last, and cut at cache lines of whatever begins at one. No bit depends on
/// where it is cut, for kernels work element by element.
///
/// Threads: pure. Allocates nothing while `pieces` has room; there are at most
/// `moved_bytes(whole) / (kPieceBytes / 2) + 1`.
void append_pieces(const KernelPiece& whole, std::size_t element_bytes,
                   std::vector<KernelPiece>& pieces);

}  // namespace kolo
