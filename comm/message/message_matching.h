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

/// An offer that came before its receive.
struct EarlyOffer {
  int source = -1;
  Offer offer = {};
  std::vector<std::byte> payload = {};  ///< Elements that came in it.
};

/// Brings offers and receives of one rank together. Those of one tag and one pair of ranks match in
/// the order in which they came; a receive from any rank takes the first offer of its tag, and an
/// offer the first receive that may take it.
///
/// Before:  an offer asks `take_receive` first and is kept only if there is no receive for it; a
///          receive asks `take_offer` first and is posted only if there is no offer.
/// Threads: one.
/// Cost:    a scan over what is pending with that tag. Allocates little for tags in steady use.
class MessageMatching {
 public:
  /// The first receive that may take an offer from `source`, which then is no longer posted; null
  /// if there is none.
  std::shared_ptr<Message> take_receive(int source, std::uint64_t tag);
  void keep(EarlyOffer early);

  /// The first offer for this receive, which then is no longer kept.
  std::optional<EarlyOffer> take_offer(const Message& receive);
  void post(std::shared_ptr<Message> receive);
  /// Returns false if it is not posted.
  bool withdraw(const Message& receive);

  /// The offer with this number from `source`, which then is no longer kept, if it is.
  std::optional<EarlyOffer> withdraw_offer(int source, std::uint64_t number);
  /// The receives for which `is_wanted` holds, which then are no longer posted.
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
  /// The same with each offer.
  template <typename Visit>
  void for_each_offer(Visit visit) const {
    for (const auto& [tag, line] : lines_) {
      for (const EarlyOffer& early : line.offers) visit(early);
    }
  }
  void clear();

 private:
  /// What is pending with one tag; never an offer and a receive that match.
  struct Line {
    std::deque<std::shared_ptr<Message>> receives;
    std::deque<EarlyOffer> offers;
  };
  /// Empty lines that stay, because their tags are likely to come again.
  static constexpr std::size_t kMostLines = 64;

  void forget_if_empty(std::unordered_map<std::uint64_t, Line>::iterator line);

  std::unordered_map<std::uint64_t, Line> lines_;  // by tag
  std::size_t receives_ = 0, offers_ = 0;
};

// The tensors of a message, whose elements travel as one run of bytes, tensor behind tensor. Pure.

/// Describes the tensors of a message in its offer.
void describe_in(Offer& offer, std::span<const BufferView> tensors);
/// Bytes of all elements; empty if no memory holds as many.
std::optional<std::size_t> bytes_of(const Offer& offer);
/// Elements of all tensors.
std::size_t count_of(const Offer& offer);

/// Whether a receive has room for what is offered: one tensor of the same dtype that is as long or
/// longer, or several tensors that are the same, one by one.
bool fits(const Offer& offer, const Message& receive);
/// "10 elements of float32", or "float32 [10] + int64 [5]".
std::string describe_tensors(const Offer& offer);
/// Why a receive does not fit: "which receives int64", "whose buffer holds 9", "which receives
/// float32 [10] + int64 [4]".
std::string describe_misfit(const Offer& offer, const Message& receive);

/// The memory of all tensors, if they lie one behind another.
std::optional<std::span<std::byte>> in_one_piece(std::span<const BufferView> tensors);
/// Copies the elements to `bytes`, which has room for all.
void pack(std::span<const BufferView> tensors, std::byte* bytes);
/// Copies them from there, as many as came.
void unpack(std::span<const std::byte> bytes, std::span<const BufferView> tensors);

}  // namespace kolo
