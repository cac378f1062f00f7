#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Prefixes of tensor names in a rank's file, by kind of piece; shared pieces have none.
struct PieceNames {
  static constexpr std::string_view kShard = "shard/";
  static constexpr std::string_view kOwn = "own/";
  static constexpr std::string_view kSum = "sum/";
  static constexpr std::string_view kRank = "rank/";
};

/// A copy of the part of the state that this rank saves: its shards, its own pieces, and so many
/// shared pieces that all ranks save about equally many bytes. The next copy reuses the memory.
///
/// Threads: any, but one at a time.
class Snapshot final : public StateVisitor {
 public:
  Snapshot(int rank, int ranks);

  /// Forgets the current copy; the visits that follow make a new one.
  void clear();

  bool is_restoring() const override { return false; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view name, std::vector<double>& list) override;
  void part_of_sum(std::string_view name, double& value) override;
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override;

  /// The copied pieces; their bytes are valid until the next `clear`.
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
  std::vector<std::size_t> shared_bytes_;  // shared bytes that each rank saves
  std::vector<Copy> copies_;               // the first `count_` are in use
  std::size_t count_ = 0;
};

/// The files of a checkpoint, from which state is restored.
class SavedState final : public StateVisitor {
 public:
  /// Opens the files of all ranks that saved the checkpoint, to restore the state of rank `rank` of
  /// `ranks`. The ranks divide the files, so each file's checksum is verified once.
  /// Errors: KoloError(kData) naming the file that is missing or damaged.
  SavedState(const std::filesystem::path& checkpoint, int rank, int ranks);

  const std::filesystem::path& path() const { return checkpoint_; }
  const Manifest& manifest() const { return manifest_; }
  /// The shared tensors whose names begin with `prefix`, sorted by name, without the prefix.
  std::vector<StoredTensor> shared_tensors(std::string_view prefix) const;

  bool is_restoring() const override { return true; }
  bool has_other_ranks() const override { return files_.size() != ranks_; }
  using StateVisitor::shared;
  void shared(std::string_view name, std::vector<double>& list) override;
  void part_of_sum(std::string_view name, double& value) override;
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override;

  /// Returns, for each stored shared tensor, 1 if the visits have not restored it here, otherwise
  /// 0. All ranks have the same order of tensors. Call after the last visit.
  std::vector<std::uint8_t> left() const;
  /// Checks that no tensor is left. `left` is the result of `left`, or its minima over ranks.
  /// Errors: KoloError(kData) naming the first tensor that is left.
  void require_none(std::span<const std::uint8_t> left) const;

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override;
  void visit_shard(std::string_view name, const Piece& piece, std::size_t begin) override;

 private:
  /// Marks a shared piece as restored and returns it, or null if no file has it.
  const StoredTensor* look_for_shared(std::string_view name);
  /// Like `look_for_shared`, for a required piece. Errors: KoloError(kData) if no file has it.
  const StoredTensor& find_shared(std::string_view name);
  /// Fills `piece` with the bytes from `begin` on of a tensor that is stored as shards.
  void copy_from_shards(std::string_view name, const Piece& piece, std::size_t begin);
  const StoredTensor& find_in(const SafetensorsFile& file, const std::string& name) const;

  std::filesystem::path checkpoint_;
  std::size_t rank_, ranks_;
  Manifest manifest_;
  std::deque<SafetensorsFile> files_;  // the files by rank
  std::set<std::string, std::less<>> taken_;
};

}  // namespace kolo::trainer
