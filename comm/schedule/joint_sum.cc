#include "comm/schedule/joint_sum.h"

#include <sched.h>

#include <algorithm>

namespace kolo {
namespace {

/// Of each bucket: so little that nobody waits long for the last piece, and so much that taking it
/// costs nothing beside.
constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

std::size_t elements_per_piece(std::size_t count, std::size_t element_bytes) {
  const std::size_t least = (count + JointLedger::kMostPieces - 1) / JointLedger::kMostPieces;
  return std::max(kPieceBytes / element_bytes, least);
}

/// Cores are numbered from 0 on, at least the first ones of a machine. A hint: wherever a rank
/// begins, all pieces are done once.
std::size_t share_of_this_core(std::size_t shares) {
  return static_cast<std::size_t>(std::max(::sched_getcpu(), 0)) % shares;
}

}  // namespace

JointSum::JointSum(Transport& transport, const Step& step, std::size_t element_bytes,
                   const Where& where)
    : transport_(transport),
      step_(step),
      where_(where),
      piece_count_(elements_per_piece(step.target.count, element_bytes)),
      ledger_(where.ledger, (step.target.count + piece_count_ - 1) / piece_count_) {
  if (step.ledger.rank == transport.rank()) ledger_.clear(where.first_iteration);
}

void JointSum::arrive(std::uint64_t iteration) {
  iteration_ = iteration;
  is_used_up_ = false;
  for (const Range& peer : step_.mirrors) {
    transport_.signal(peer.rank, flag(), where_.flag_base + iteration + 1);
  }
}

bool JointSum::has_begun() const {
  return std::ranges::all_of(step_.mirrors,
                             [&](const Range& peer) { return has_arrived(peer.rank); });
}

std::optional<KernelPiece> JointSum::take() {
  const auto piece = ledger_.take(iteration_, share_of_this_core(ledger_.shares()));
  is_used_up_ = !piece;
  if (!piece) return std::nullopt;
  const std::size_t first = *piece * piece_count_;
  return KernelPiece{&step_, first, std::min(piece_count_, step_.target.count - first)};
}

void JointSum::finish() {
  if (!ledger_.finish(iteration_)) return;
  for (const Range& peer : step_.mirrors) transport_.ring(peer.rank);
}

void JointSum::append_awaited_peers(std::vector<int>& peers) const {
  for (const Range& peer : step_.mirrors) {
    if (is_used_up_ || !has_arrived(peer.rank)) peers.push_back(peer.rank);
  }
}

bool JointSum::has_arrived(int peer) const {
  return transport_.signalled(peer, flag()) > where_.flag_base + iteration_;
}

}  // namespace kolo
