#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/coordinator/frame.h"
#include "comm/message/message.h"

namespace kolo {

/// An offer that arrived before its receive.
struct EarlyOffer {
  int source = -1;
  Offer offer = {};
  std::vector<std::byte> payload = {};  ///< Elements that came with the offer.
};

/// Matches offers and receives of one rank. With equal tag and pair of ranks, they match in the
/// order in which they came; a receive from any rank takes the first offer with its tag, and an
/// offer takes the first receive that accepts it.
///
/// Before:  call `take_receive` for an offer, and keep the offer only if there is no receive for
/// it;
///          call `take_offer` for a receive, and post it only if there is no offer.
/// Threads: one.
/// Cost:    a scan of the pending entries with that tag. Allocates little for tags in steady use.
class MessageMatching {
 public:
  /// Removes and returns the first posted receive that accepts an offer from `source`; null if
  /// there is none.
  std::shared_ptr<Message> take_receive(int source, std::uint64_t tag);
  void keep(EarlyOffer early);

  /// Removes and returns the first offer for this receive.
  std::optional<EarlyOffer> take_offer(const Message& receive);
  void post(std::shared_ptr<Message> receive);
  /// Removes a receive. Returns false if it is not posted.
  bool withdraw(const Message& receive);

  /// Removes and returns the offer with this number from `source`, if it is kept.
  std::optional<EarlyOffer> withdraw_offer(int source, std::uint64_t number);
  /// Removes and returns the receives for which `is_wanted` holds.
  template <typename Predicate>
  std::vector<std::shared_ptr<Message>> withdraw_receives(Predicate is_wanted) {
    std::vector<std::shared_ptr<Message>> wanted;
    for (auto& [tag, line] : lines_) {
      std::erase_if(line.receives, [&](const std::shared_ptr<Message>& receive) {
        if (!is_wanted(*receive)) return false;
        wanted.push_back(receive);
        return true;
      });
    }
    receives_ -= wanted.size();
    return wanted;
  }

  bool has_receives() const { return receives_ > 0; }
  bool has_offers() const { return offers_ > 0; }

  /// Calls `visit` with each receive, in no particular order.
  template <typename Visit>
  void for_each_receive(Visit visit) const {
    for (const auto& [tag, line] : lines_) {
      for (const std::shared_ptr<Message>& receive : line.receives) visit(*receive);
    }
  }
  /// Calls `visit` with each offer, in no particular order.
  template <typename Visit>
  void for_each_offer(Visit visit) const {
    for (const auto& [tag, line] : lines_) {
      for (const EarlyOffer& early : line.offers) visit(early);
    }
  }
  void clear();

 private:
  /// Pending entries with one tag; never an offer and a receive that match.
  struct Line {
    std::deque<std::shared_ptr<Message>> receives;
    std::deque<EarlyOffer> offers;
  };
  /// Empty lines that are kept, because their tags are likely to be used again.
  static constexpr std::size_t kMostLines = 64;

  void forget_if_empty(std::unordered_map<std::uint64_t, Line>::iterator line);

  std::unordered_map<std::uint64_t, Line> lines_;  // by tag
  std::size_t receives_ = 0, offers_ = 0;
};

// The tensors of a message, whose elements travel as one run of bytes, in order. Pure.

/// Describes the tensors of a message in its offer.
void describe_in(Offer& offer, std::span<const BufferView> tensors);
/// Bytes of all elements; empty if that exceeds the address space.
std::optional<std::size_t> bytes_of(const Offer& offer);
/// Elements of all tensors.
std::size_t count_of(const Offer& offer);

/// Whether a receive has room for the offered tensors: one tensor of equal dtype that is as long or
/// longer, or several tensors with equal dtypes and lengths.
bool fits(const Offer& offer, const Message& receive);
/// "10 elements of float32", or "float32 [10] + int64 [5]".
std::string describe_tensors(const Offer& offer);
/// Why a receive does not fit: "which receives int64", "whose buffer holds 9", "which receives
/// float32 [10] + int64 [4]".
std::string describe_misfit(const Offer& offer, const Message& receive);

/// The memory of all tensors, if they are contiguous.
std::optional<std::span<std::byte>> in_one_piece(std::span<const BufferView> tensors);
/// Copies the elements to `bytes`, which has room for all.
void pack(std::span<const BufferView> tensors, std::byte* bytes);
/// Copies elements from `bytes` to the tensors, as many as came.
void unpack(std::span<const std::byte> bytes, std::span<const BufferView> tensors);

}  // namespace kolo
