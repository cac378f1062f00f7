#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Prefixes of the names of tensors in a rank's file; shared pieces have none.
struct PieceNames {
  static constexpr std::string_view kShard = "shard/";
  static constexpr std::string_view kOwn = "own/";
  static constexpr std::string_view kSum = "sum/";
  static constexpr std::string_view kRank = "rank/";
};

/// A copy of the part of the state that this rank saves: its shards and own pieces, and shared ones
/// so that all ranks save about as many bytes. The memory is used again by the next copy.
///
/// Threads: one at a time.
class Snapshot final : public StateVisitor {
 public:
  Snapshot(int rank, int ranks);

  /// Begins a new copy.
  void clear();

  bool is_restoring() const override { return false; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view name, std::vector<double>& list) override;
  void part_of_sum(std::string_view name, double& value) override;
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override;

  /// Valid until the next copy.
  std::vector<StoredTensor> tensors() const;

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override;
  void visit_shard(std::string_view name, const Piece& piece, std::size_t begin) override;

 private:
  struct Copy {
    StoredTensor tensor;
    std::vector<std::byte> memory;
  };
  void visit_shared(std::string_view name, const Piece& piece);
  void add(std::string name, const Piece& piece);

  std::size_t rank_;
  std::vector<std::size_t> shared_bytes_;  // by rank, the same on all ranks
  std::vector<Copy> copies_;               // the first `count_` are in use
  std::size_t count_ = 0;
};

}  // namespace kolo::trainer
