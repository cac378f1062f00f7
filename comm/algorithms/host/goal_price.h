#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/host_links.h"

namespace kolo {

/// A goal, as far as it decides what an algorithm costs: parts are taken to be equal.
struct GoalSize {
  GoalKind kind = GoalKind::kOther;
  double bytes = 0;                ///< Of all parts, in the bucket's dtype.
  bool sums_in_one_place = false;  ///< Sums are made of the contributions of all ranks at once.
  double tensors = 1;              ///< Each may take messages of its own.
};
GoalSize size_of(const CompileContext& context);

/// An algorithm of a collective other than all-reduce, as the functions of one file.
class CollectiveAlgorithm final : public Algorithm {
 public:
  struct Functions {
    std::string_view name;
    bool (*serves)(const CompileContext& context);
    void (*append)(ScheduleBuilder& builder, const CompileContext& context);
    /// As `Price::us`.
    double (*predict_us)(const HostLinks& links, const GoalSize& size,
                         const CompileOptions& options);
  };

  constexpr explicit CollectiveAlgorithm(const Functions& functions) : functions_(functions) {}

  std::string_view name() const override { return functions_.name; }
  bool serves(const CompileContext& context) const override { return functions_.serves(context); }
  Price price(const CompileContext& context) const override;
  /// The size with the least price.
  std::size_t chunk_bytes(const CompileContext& context) const override;
  void append(ScheduleBuilder& builder, const CompileContext& context) const override {
    functions_.append(builder, context);
  }

 private:
  Functions functions_;
};

/// The terms of which the prices of algorithms for goals are made, for one goal among the ranks of
/// `links`. Every node is taken to be as large as the largest.
///
/// Units: bytes; microseconds. Threads: immutable; any. `links` and `size` outlive it.
class GoalPrice {
 public:
  GoalPrice(const HostLinks& links, const GoalSize& size) : links_(links), size_(size) {}

  double nodes() const { return links_.grid().num_nodes(); }
  double ranks() const { return links_.ranks(); }
  double local() const { return links_.largest_node(); }
  /// Rounds in which the number of nodes that know something doubles until all do.
  double doublings() const;
  /// Bytes of one part.
  double part_bytes() const;
  /// The root sends, and nobody else where contributions go straight to their receivers.
  bool is_from_root() const { return kolo::is_from_root(size_.kind); }
  /// One rank sends to all others, or receives from all.
  bool has_root() const { return kolo::has_root(size_.kind); }
  /// Each contribution has one receiver, which gets it from the contributor itself.
  bool goes_straight() const { return !reduces(size_.kind) && !is_to_all(size_.kind); }
  /// Messages that the busiest rank sends or receives if each contribution goes straight to its
  /// receiver.
  double direct_messages() const;
  /// The bytes of these on the busiest link in one direction.
  double direct_bytes() const;
  /// Kernels of the busiest node: contributions are copied to slots, and results from them.
  double copies_us() const;
  /// Until what came from another node is handed on inside this one. Ranks that share cores have to
  /// be woken for it, as by a message.
  double handed_on_us() const;
  /// A link that passes `bytes`, from several peers at once or one by one.
  double link_us(double bytes, bool is_crowded) const;

  /// The time of rounds that follow each other as closely as the busiest resource allows.
  double rounds_us(const Passage& one, double rounds) const;
  /// The time of blocks that move at once, `held` bytes of them at one rank; infinite if a slot
  /// does not hold them.
  double blocks_us(const Passage& all, double held, const CompileOptions& options) const;

 private:
  const HostLinks& links_;
  const GoalSize& size_;
};

/// The size of pieces with the least price, of a slot, its half, its quarter, ...: small ones are
/// soon where they go, large ones are fewer messages. But none smaller than a 4096th of all
/// `bytes`: a first piece of that size delays nothing, and planning takes time for each.
/// `predict_us` takes bytes.
template <typename Predict>
std::size_t best_piece(std::size_t slot, double bytes, Predict predict_us) {
  const std::size_t smallest =
      std::max(std::size_t{8} << 10, static_cast<std::size_t>(bytes / 4096));
  std::size_t best = slot;
  double best_us = predict_us(static_cast<double>(slot));
  for (std::size_t piece = slot / 2; piece >= smallest; piece /= 2) {
    const double us = predict_us(static_cast<double>(piece));
    if (us >= best_us) continue;
    best = piece;
    best_us = us;
  }
  return best;
}

}  // namespace kolo
