#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Prefixes of tensor names in a rank's file; shared pieces have none.
struct PieceNames {
  static constexpr std::string_view kShard = "shard/";
  static constexpr std::string_view kOwn = "own/";
  static constexpr std::string_view kSum = "sum/";
  static constexpr std::string_view kRank = "rank/";
};

/// A copy of the part of the state that this rank saves: its shards, its own pieces, and enough
/// shared pieces that all ranks save about as many bytes. The next copy reuses the memory.
///
/// Threads: one at a time.
class Snapshot final : public StateVisitor {
 public:
  Snapshot(int rank, int ranks);

  /// Starts a new copy.
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
  std::vector<std::size_t> shared_bytes_;  // by rank; equal on all ranks
  std::vector<Copy> copies_;               // the first `count_` are in use
  std::size_t count_ = 0;
};

/// The files of a checkpoint, opened to restore from.
class SavedState final : public StateVisitor {
 public:
  /// Opens the files of all ranks that saved, for rank `rank` of `ranks`, and verifies the
  /// checksums of some: the ranks divide the files, so that each is verified once.
  /// Errors: KoloError(kData) naming the file that is missing or damaged.
  SavedState(const std::filesystem::path& checkpoint, int rank, int ranks);

  const std::filesystem::path& path() const { return checkpoint_; }
  const Manifest& manifest() const { return manifest_; }
  /// The shared tensors whose names begin with `prefix`, returned by name without the prefix.
  std::vector<StoredTensor> shared_tensors(std::string_view prefix) const;

  bool is_restoring() const override { return true; }
  bool has_other_ranks() const override { return files_.size() != ranks_; }
  using StateVisitor::shared;
  void shared(std::string_view name, std::vector<double>& list) override;
  void part_of_sum(std::string_view name, double& value) override;
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override;

  /// Call after the last visit. Errors: KoloError(kData) naming a shared piece that was not
  /// restored.
  void require_all_taken() const;

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override;
  void visit_shard(std::string_view name, const Piece& piece, std::size_t begin) override;

 private:
  /// Returns null if no file has the piece.
  const StoredTensor* look_for_shared(std::string_view name);
  /// Errors: KoloError(kData) if no file has the piece.
  const StoredTensor& find_shared(std::string_view name);
  /// Fills the piece with the bytes from `begin` on of a tensor stored as shards.
  void copy_from_shards(std::string_view name, const Piece& piece, std::size_t begin);
  const StoredTensor& find_in(const SafetensorsFile& file, const std::string& name) const;

  std::filesystem::path checkpoint_;
  std::size_t rank_, ranks_;
  Manifest manifest_;
  std::deque<SafetensorsFile> files_;  // by rank
  std::set<std::string, std::less<>> taken_;
};

}  // namespace kolo::trainer
