#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Copies the state of this rank from one object to another through memory, on the same ranks.
/// Visits before `restore` save the state; later visits restore it.
///
/// Threads: one. Errors: UsageError for a piece that was not saved, or that has another size.
class MemoryState final : public StateVisitor {
 public:
  /// Makes later visits restore the saved state.
  void restore() { is_restoring_ = true; }

  bool is_restoring() const override { return is_restoring_; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view name, std::vector<double>& list) override {
    if (is_restoring_) list.resize(saved("shared", name).size() / sizeof(double));
    move("shared", name, std::as_writable_bytes(std::span(list)));
  }
  void part_of_sum(std::string_view name, double& value) override {
    move("sum", name, std::as_writable_bytes(std::span(&value, 1)));
  }
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override {
    if (is_restoring_) bytes.assign(1, saved("rank", name));
    move("rank", name, bytes.front());
  }

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override {
    move(reach == Reach::kOwn ? "own" : "shared", name, piece.bytes);
  }
  void visit_shard(std::string_view name, const Piece& piece, std::size_t) override {
    move("shard", name, piece.bytes);
  }

 private:
  using Key = std::pair<std::string, std::string>;  // kind and name of a piece

  const std::vector<std::byte>& saved(std::string_view kind, std::string_view name) const {
    const auto found = pieces_.find(Key(kind, name));
    check(found != pieces_.end(), "state is restored into an object like the one that it is of");
    return found->second;
  }
  void move(std::string_view kind, std::string_view name, std::span<std::byte> bytes) {
    if (is_restoring_) {
      const std::vector<std::byte>& from = saved(kind, name);
      check(from.size() == bytes.size(), "state is restored into an object of the same size");
      std::ranges::copy(from, bytes.begin());
    } else {
      pieces_[Key(kind, name)].assign(bytes.begin(), bytes.end());
    }
  }

  bool is_restoring_ = false;
  std::map<Key, std::vector<std::byte>> pieces_;
};

}  // namespace kolo::trainer
