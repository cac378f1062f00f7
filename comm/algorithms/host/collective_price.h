#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "comm/algorithms/algorithm.h"
#include "comm/algorithms/host_links.h"

namespace kolo {

/// The properties of a spec that decide the cost of an algorithm; parts are assumed equal.
struct CollectiveSize {
  CollectiveKind kind = CollectiveKind::kOther;
  double bytes = 0;                ///< Total of all parts, in the bucket's dtype.
  bool sums_in_one_place = false;  ///< Sums are made of the contributions of all ranks at once.
  double tensors = 1;              ///< Number of tensors; each may need messages of its own.
};
CollectiveSize size_of(const CompileContext& context);

/// An algorithm for a collective other than all-reduce, given as the functions of one file.
class CollectiveAlgorithm final : public Algorithm {
 public:
  struct Functions {
    std::string_view name;
    bool (*serves)(const CompileContext& context);
    void (*append)(ScheduleBuilder& builder, const CompileContext& context);
    /// Computes `Price::us`.
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

/// Building blocks for the prices of algorithms, for one spec among the ranks of `links`. Every
/// node is assumed to be as large as the largest.
///
/// Units: bytes; microseconds. Threads: any; immutable. `links` and `size` outlive it.
class CollectivePrice {
 public:
  CollectivePrice(const HostLinks& links, const CollectiveSize& size)
      : links_(links), size_(size) {}

  double nodes() const { return links_.grid().num_nodes(); }
  double ranks() const { return links_.ranks(); }
  double local() const { return links_.largest_node(); }
  /// Rounds until all nodes have the data, when the number of nodes that have it doubles per round.
  double doublings() const;
  /// Bytes of one part.
  double part_bytes() const;
  /// Only the root sends, if contributions go straight to their receivers.
  bool is_from_root() const { return kolo::is_from_root(size_.kind); }
  /// One rank sends to all others, or receives from all.
  bool has_root() const { return kolo::has_root(size_.kind); }
  /// Each contribution has one receiver, which gets it from the contributor itself.
  bool goes_straight() const { return !reduces(size_.kind) && !is_to_all(size_.kind); }
  /// Messages that the busiest rank sends or receives if each contribution goes straight to its
  /// receiver.
  double direct_messages() const;
  /// Bytes of the direct messages on the busiest link, in one direction.
  double direct_bytes() const;
  /// Time of copying contributions to slots and results from slots, on the busiest node.
  double copies_us() const;
  /// Time to pass data from another node on to the ranks of this one. Ranks that share cores have
  /// to be woken for it, as for a message.
  double handed_on_us() const;
  /// Time of a link for `bytes`; `is_crowded`: from several peers at once instead of one by one.
  double link_us(double bytes, bool is_crowded) const;

  /// Time of consecutive rounds, which overlap as far as the busiest resource allows.
  double rounds_us(const StageCost& one, double rounds) const;
  /// Time of blocks that move at once, when one rank holds `held` bytes of them; infinite if they
  /// do not fit in a slot.
  double blocks_us(const StageCost& all, double held, const CompileOptions& options) const;

 private:
  const HostLinks& links_;
  const CollectiveSize& size_;
};

/// The piece size with the lowest price: a slot, half a slot, a quarter, and so on. Small pieces
/// arrive earlier, large ones need fewer messages. The size is at least 1/4096 of `bytes`: a first
/// piece that small delays nothing, and each piece takes planning time. `predict_us` takes bytes.
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
