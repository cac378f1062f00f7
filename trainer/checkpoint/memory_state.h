#pragma once

#include <algorithm>
#include <cstddef>
#include <queue>
#include <span>
#include <string_view>
#include <vector>

#include "comm/base/check.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Copies the state of this rank from one object to another of the same kind through memory, on the
/// same ranks. The first visit saves the state; the visit after `restore` restores its pieces in
/// the same order.
///
/// Threads: one. Errors: UsageError if the pieces of the two visits differ.
class MemoryState final : public StateVisitor {
 public:
  /// Makes the next visit restore the saved state.
  void restore() { is_restoring_ = true; }

  bool is_restoring() const override { return is_restoring_; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view, std::vector<double>& list) override {
    if (is_restoring_) list.resize(next().size() / sizeof(double));
    move(std::as_writable_bytes(std::span(list)));
  }
  void part_of_sum(std::string_view, double& value) override {
    move(std::as_writable_bytes(std::span(&value, 1)));
  }
  void bytes_of_ranks(std::string_view, std::vector<std::vector<std::byte>>& bytes) override {
    if (is_restoring_) bytes.assign(1, next());
    move(bytes.front());
  }

 protected:
  void visit(Reach, std::string_view, const Piece& piece) override { move(piece.bytes); }
  void visit_shard(std::string_view, const Piece& piece, std::size_t) override {
    move(piece.bytes);
  }

 private:
  const std::vector<std::byte>& next() const {
    check(!pieces_.empty(), "state has as many pieces as the object that it is of");
    return pieces_.front();
  }
  void move(std::span<std::byte> bytes) {
    if (!is_restoring_) {
      pieces_.emplace(bytes.begin(), bytes.end());
      return;
    }
    check(next().size() == bytes.size(), "state has the sizes of the object that it is of");
    std::ranges::copy(next(), bytes.begin());
    pieces_.pop();
  }

  bool is_restoring_ = false;
  std::queue<std::vector<std::byte>> pieces_;
};

}  // namespace kolo::trainer
