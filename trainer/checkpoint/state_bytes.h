#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

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

/// Bytes of a state on this rank that is not collective to visit.
inline std::size_t bytes_of(Stateful& state) {
  StateBytes bytes;
  state.visit_state(bytes);
  return bytes.total();
}

}  // namespace kolo::trainer
