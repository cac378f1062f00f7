#include "comm/schedule/kernel_pieces.h"

#include <algorithm>

namespace kolo {
namespace {

constexpr std::size_t kLineBytes = 64;

std::size_t operands(const Step& step) { return 1 + step.sources.size() + step.mirrors.size(); }

}  // namespace

std::size_t moved_bytes(const KernelPiece& piece, std::size_t element_bytes) {
  return piece.count * element_bytes * operands(*piece.step);
}

void append_pieces(const KernelPiece& whole, std::size_t element_bytes,
                   std::vector<KernelPiece>& pieces) {
  const std::size_t bytes = kPieceBytes / operands(*whole.step) / kLineBytes * kLineBytes;
  const std::size_t longest = std::max(bytes, kLineBytes) / element_bytes;
  const std::size_t end = whole.first + whole.count;
  for (std::size_t first = whole.first; first < end; first += longest) {
    pieces.push_back({whole.step, first, std::min(longest, end - first)});
  }
}

}  // namespace kolo
