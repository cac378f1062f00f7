#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

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

}  // namespace kolo
