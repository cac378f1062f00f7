#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/host_links.h"

namespace kolo {

/// The properties of a spec on which the price of an algorithm depends. All parts are assumed to
/// have equal sizes.
struct CollectiveSize {
  CollectiveKind kind = CollectiveKind::kOther;
  double bytes = 0;                ///< Bytes of all parts in total.
  bool sums_in_one_place = false;  ///< Whether one rank sums all contributions to a part.
  double tensors = 1;              ///< Number of tensors; each may need separate messages.
};
CollectiveSize size_of(const CompileContext& context);

/// An algorithm for collectives other than all-reduce, built from the functions of one source file.
class CollectiveAlgorithm final : public Algorithm {
 public:
  struct Functions {
    std::string_view name;
    bool (*serves)(const CompileContext& context);
    void (*append)(ScheduleBuilder& builder, const CompileContext& context);
    /// Computes `Price::us` in microseconds.
    double (*predict_us)(const HostLinks& links, const CollectiveSize& size,
                         const CompileOptions& options);
  };

  constexpr explicit CollectiveAlgorithm(const Functions& functions) : functions_(functions) {}

  std::string_view name() const override { return functions_.name; }
  bool serves(const CompileContext& context) const override { return functions_.serves(context); }
  Price price(const CompileContext& context) const override;
  /// The chunk size with the lowest price.
  std::size_t chunk_bytes(const CompileContext& context) const override;
  void append(ScheduleBuilder& builder, const CompileContext& context) const override {
    functions_.append(builder, context);
  }

 private:
  Functions functions_;
};

/// Terms from which algorithms compute their price of one spec among the ranks of `links`. Every
/// node is assumed to be as large as the largest.
///
/// Units: bytes; microseconds. Threads: any; immutable. `links` and `size` must outlive it.
class CollectivePrice {
 public:
  CollectivePrice(const HostLinks& links, const CollectiveSize& size)
      : links_(links), size_(size) {}

  double nodes() const { return links_.grid().num_nodes(); }
  double ranks() const { return links_.ranks(); }
  double local() const { return links_.largest_node(); }
  /// Bytes of one part.
  double part_bytes() const;
  /// Whether only the root sends data.
  bool is_from_root() const { return kolo::is_from_root(size_.kind); }
  /// Whether one rank sends to all others, or receives from all others.
  bool has_root() const { return kolo::has_root(size_.kind); }
  /// Whether each contribution has a single receiver and is not summed.
  bool goes_straight() const { return !reduces(size_.kind) && !is_to_all(size_.kind); }
  /// Messages that the busiest rank sends or receives if contributors send directly to receivers.
  double direct_messages() const;
  /// Bytes of these direct messages on the busiest link, in one direction.
  double direct_bytes() const;
  /// Time of copying contributions to slots, and results from slots, on the busiest node.
  double copies_us() const;
  /// Time to pass received data to the other ranks of the node. Includes waking ranks that share
  /// cores.
  double handed_on_us() const;
  /// Time of a link for `bytes`. `is_crowded` adds the loss of a link with several peers at once.
  double link_us(double bytes, bool is_crowded) const;

  /// Time of a bucket whose rounds of cost `one` are pipelined; see `pipeline_us`.
  double rounds_us(const StageCost& one, double rounds) const;

 private:
  const HostLinks& links_;
  const CollectiveSize& size_;
};

/// Returns the cheapest piece size in bytes: `slot` divided by a power of two. `predict_us(bytes)`
/// predicts the time with pieces of that size. The result is at least 1/4096 of `bytes`, because
/// smaller pieces save no time and every piece takes planning time.
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
