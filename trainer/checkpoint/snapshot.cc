#include "trainer/checkpoint/snapshot.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {

Snapshot::Snapshot(int rank, int ranks)
    : rank_(static_cast<std::size_t>(rank)), shared_bytes_(static_cast<std::size_t>(ranks)) {}

void Snapshot::clear() {
  count_ = 0;
  std::ranges::fill(shared_bytes_, 0);
}

void Snapshot::visit(Reach reach, std::string_view name, const Piece& piece) {
  if (reach == Reach::kShared) {
    visit_shared(name, piece);
  } else {
    add(std::string(PieceNames::kOwn).append(name), piece);
  }
}

void Snapshot::visit_shard(std::string_view name, const Piece& piece, std::size_t) {
  if (piece.bytes.empty()) return;
  const Shape elements{piece.bytes.size() / sizeof(float)};
  add(std::string(PieceNames::kShard).append(name), {piece.dtype, elements, piece.bytes});
}

/// All ranks visit the same shared pieces in the same order, so they agree on who saves which.
void Snapshot::visit_shared(std::string_view name, const Piece& piece) {
  const auto least = std::ranges::min_element(shared_bytes_);
  *least += piece.bytes.size();
  if (static_cast<std::size_t>(least - shared_bytes_.begin()) == rank_) {
    add(std::string(name), piece);
  }
}

void Snapshot::shared(std::string_view name, std::vector<double>& list) {
  visit_shared(name, {"F64", Shape{list.size()}, std::as_writable_bytes(std::span(list))});
}

void Snapshot::part_of_sum(std::string_view name, double& value) {
  add(std::string(PieceNames::kSum).append(name),
      {"F64", Shape{}, std::as_writable_bytes(std::span(&value, 1))});
}

void Snapshot::bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) {
  check(bytes.size() == 1, "a rank saves its own bytes");
  add(std::string(PieceNames::kRank).append(name), {"U8", Shape{bytes[0].size()}, bytes[0]});
}

void Snapshot::add(std::string name, const Piece& piece) {
  if (count_ == copies_.size()) copies_.emplace_back();
  Copy& copy = copies_[count_++];
  copy.memory.assign(piece.bytes.begin(), piece.bytes.end());
  copy.tensor = {.name = std::move(name),
                 .dtype = std::string(piece.dtype),
                 .shape = piece.shape,
                 .bytes = copy.memory};
}

std::vector<StoredTensor> Snapshot::tensors() const {
  std::vector<StoredTensor> tensors;
  for (std::size_t i = 0; i < count_; ++i) tensors.push_back(copies_[i].tensor);
  return tensors;
}

}  // namespace kolo::trainer
