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

/// An offer that no receive has matched yet.
struct EarlyOffer {
  int source = -1;
  Offer offer = {};
  std::vector<std::byte> payload = {};  ///< Elements in the offer, if it carries them.
};

/// Matches the offers to one rank with the receives of this rank. An offer matches the first posted
/// receive with its tag that accepts its source. A receive matches the first kept offer with its
/// tag whose source it accepts.
///
/// Before:  call `take_receive` for a new offer, and `keep` the offer only if no receive matches;
///          call `take_offer` for a new receive, and `post` it only if no offer matches.
/// Threads: one.
/// Cost:    a scan of the pending entries with the tag.
class MessageMatching {
 public:
  /// Removes and returns the first posted receive that matches an offer from `source` with this
  /// tag, or returns null.
  std::shared_ptr<Message> take_receive(int source, std::uint64_t tag);
  void keep(EarlyOffer early);

  /// Removes and returns the first kept offer that matches this receive.
  std::optional<EarlyOffer> take_offer(const Message& receive);
  void post(std::shared_ptr<Message> receive);
  /// Removes a posted receive. Returns false if it is not posted.
  bool withdraw(const Message& receive);

  /// Removes and returns the kept offer from `source` with this sequence number, if any.
  std::optional<EarlyOffer> withdraw_offer(int source, std::uint64_t number);
  /// Removes and returns all posted receives for which `is_wanted` is true.
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

  /// Calls `visit` with each posted receive, in unspecified order.
  template <typename Visit>
  void for_each_receive(Visit visit) const {
    for (const auto& [tag, line] : lines_) {
      for (const std::shared_ptr<Message>& receive : line.receives) visit(*receive);
    }
  }
  /// Calls `visit` with each kept offer, in unspecified order.
  template <typename Visit>
  void for_each_offer(Visit visit) const {
    for (const auto& [tag, line] : lines_) {
      for (const EarlyOffer& early : line.offers) visit(early);
    }
  }
  void clear();

 private:
  /// Receives and offers with one tag. No offer here matches a receive here.
  struct Line {
    std::deque<std::shared_ptr<Message>> receives;
    std::deque<EarlyOffer> offers;
  };
  /// Empty lines are erased only beyond this number, because their tags are likely to be used
  /// again.
  static constexpr std::size_t kMostLines = 64;

  void forget_if_empty(std::unordered_map<std::uint64_t, Line>::iterator line);

  std::unordered_map<std::uint64_t, Line> lines_;  // lines by tag
  std::size_t receives_ = 0, offers_ = 0;
};

// Functions for the tensors of a message, whose elements are sent as one sequence of bytes. Pure.

/// Enters the counts and dtypes of `tensors` in `offer`.
void describe_in(Offer& offer, std::span<const BufferView> tensors);
/// Returns the bytes of all elements, or an empty value if they exceed the address space.
std::optional<std::size_t> bytes_of(const Offer& offer);
/// Returns the number of elements of all tensors.
std::size_t count_of(const Offer& offer);

/// Whether the offered tensors fit in the receive. A single tensor needs a buffer of equal dtype
/// and at least its length; several tensors need buffers of equal dtypes and lengths.
bool fits(const Offer& offer, const Message& receive);
/// Describes the offered tensors: "10 elements of float32", or "float32 [10] + int64 [5]".
std::string describe_tensors(const Offer& offer);
/// Describes why the offer does not fit: "which receives int64", "whose buffer holds 9", "which
/// receives float32 [10] + int64 [4]".
std::string describe_misfit(const Offer& offer, const Message& receive);

/// Returns the memory of all tensors, or an empty value if they are not contiguous.
std::optional<std::span<std::byte>> in_one_piece(std::span<const BufferView> tensors);
/// Copies all elements to `bytes`, which must have room for them.
void pack(std::span<const BufferView> tensors, std::byte* bytes);
/// Copies `bytes`, which may be shorter than the tensors, to the tensors.
void unpack(std::span<const std::byte> bytes, std::span<const BufferView> tensors);

}  // namespace kolo
