#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/tensor.h"

namespace kolo::trainer {

/// Visits all state that training carries from one step to the next, to save or to restore it. Each
/// owner of state lists its pieces in one function, which serves both.
///
/// A piece has one of four kinds: shared (equal on all ranks), a shard of a tensor that is divided
/// among ranks, an own piece of one rank, or one rank's part of a sum. If the number of ranks
/// changes, shared pieces stay as they are, shards are cut anew, sums are distributed anew, and own
/// pieces cannot be restored. Names are unique within a kind. A shard has the name of its whole
/// tensor, and each can be restored from the other.
///
/// Threads: one.
/// Errors:  when restoring: KoloError(kData) naming file and piece, if a piece is missing or has
///          another dtype or shape; KoloError(kConfig) for own pieces on another number of ranks.
class StateVisitor {
 public:
  /// The kind of a piece. kSavedHere is a shared piece that only this rank passes when saving.
  enum class Reach { kShared, kOwn, kSavedHere };

  virtual ~StateVisitor() = default;

  virtual bool is_restoring() const = 0;
  /// Whether the state that is restored was saved by another number of ranks.
  virtual bool has_other_ranks() const = 0;

  void shared(std::string_view name, const Shape& shape, std::span<float> values) {
    visit(reach_, name, {"F32", shape, std::as_writable_bytes(values)});
  }
  void shared(std::string_view name, float& value) { visit_number(reach_, name, value); }
  void shared(std::string_view name, double& value) { visit_number(reach_, name, value); }
  void shared(std::string_view name, std::uint64_t& value) { visit_number(reach_, name, value); }
  /// Calls `visit`, and visits as own pieces all pieces that it passes to `shared`, except lists.
  /// Use it for state that is usually equal on all ranks, while it differs between ranks.
  template <typename Visit>
  void as_own(const Visit& visit) {
    reach_ = Reach::kOwn;
    visit();
    reach_ = Reach::kShared;
  }

  /// Visits a shared list, whose length may change between steps.
  virtual void shared(std::string_view name, std::vector<double>& list) = 0;

  /// Visits this rank's shard: the elements from `begin` on of a tensor of shape `shape`. Shards
  /// follow each other in rank order. `values` is empty on a rank without elements.
  void shard(std::string_view name, const Shape& shape, std::size_t begin,
             std::span<float> values) {
    visit_shard(name, {"F32", shape, std::as_writable_bytes(values)}, begin * sizeof(float));
  }

  void own(std::string_view name, const Shape& shape, std::span<float> values) {
    visit(Reach::kOwn, name, {"F32", shape, std::as_writable_bytes(values)});
  }
  void own(std::string_view name, double& value) { visit_number(Reach::kOwn, name, value); }

  virtual void part_of_sum(std::string_view name, double& value) = 0;

  /// Visits bytes whose meaning only the owner of the state knows. Saving reads `bytes[0]`, the
  /// bytes of this rank. Restoring fills `bytes` with this rank's bytes or, if the number of ranks
  /// has changed, with the bytes of all former ranks in rank order.
  virtual void bytes_of_ranks(std::string_view name,
                              std::vector<std::vector<std::byte>>& bytes) = 0;

 protected:
  struct Piece {
    std::string_view dtype;  ///< Dtype in safetensors spelling, such as "F32".
    const Shape& shape;
    std::span<std::byte> bytes;
  };
  virtual void visit(Reach reach, std::string_view name, const Piece& piece) = 0;
  /// Visits a shard. `piece` has the shape of the whole tensor; its bytes are those of the shard,
  /// which starts at byte `begin` of the tensor.
  virtual void visit_shard(std::string_view name, const Piece& piece, std::size_t begin) = 0;

  /// Passes a piece to the visitor `to`, for visitors that wrap another visitor.
  static void pass_on(StateVisitor& to, Reach reach, std::string_view name, const Piece& piece) {
    to.visit(reach, name, piece);
  }

 private:
  static std::string_view dtype_of(float) { return "F32"; }
  static std::string_view dtype_of(double) { return "F64"; }
  static std::string_view dtype_of(std::uint64_t) { return "U64"; }

  template <typename T>
  void visit_number(Reach reach, std::string_view name, T& value) {
    visit(reach, name, {dtype_of(value), Shape{}, std::as_writable_bytes(std::span(&value, 1))});
  }

  Reach reach_ = Reach::kShared;  // reach of pieces passed to `shared`; see `as_own`
};

/// A part of training whose state can be saved and restored between steps.
class Stateful {
 public:
  virtual ~Stateful() = default;

  /// Passes every piece of the state to `visitor`, which reads it or sets it to its saved value.
  virtual void visit_state(StateVisitor& visitor) = 0;
};

/// Counts the bytes of a state on this rank.
class StateBytes final : public StateVisitor {
 public:
  std::size_t total() const { return total_; }

  bool is_restoring() const override { return false; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view, std::vector<double>& list) override {
    total_ += list.size() * sizeof(double);
  }
  void part_of_sum(std::string_view, double&) override { total_ += sizeof(double); }
  void bytes_of_ranks(std::string_view, std::vector<std::vector<std::byte>>& bytes) override {
    for (const std::vector<std::byte>& own : bytes) total_ += own.size();
  }

 protected:
  void visit(Reach, std::string_view, const Piece& piece) override { total_ += piece.bytes.size(); }
  void visit_shard(std::string_view, const Piece& piece, std::size_t) override {
    total_ += piece.bytes.size();
  }

 private:
  std::size_t total_ = 0;
};

/// The bytes of a state on this rank. Before: visiting the state is not collective.
inline std::size_t bytes_of(Stateful& state) {
  StateBytes bytes;
  state.visit_state(bytes);
  return bytes.total();
}

}  // namespace kolo::trainer
