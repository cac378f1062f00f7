#include "comm/message/message_matching.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

bool takes_from(const Message& receive, int source) {
  return receive.peer == kAnyRank || receive.peer == source;
}

}  // namespace

std::shared_ptr<Message> MessageMatching::take_receive(int source, std::uint64_t tag) {
  const auto line = lines_.find(tag);
  if (line == lines_.end()) return nullptr;
  auto& receives = line->second.receives;
  const auto found = std::ranges::find_if(
      receives, [&](const auto& receive) { return takes_from(*receive, source); });
  if (found == receives.end()) return nullptr;
  std::shared_ptr<Message> receive = std::move(*found);
  receives.erase(found);
  --receives_;
  forget_if_empty(line);
  return receive;
}

void MessageMatching::keep(EarlyOffer early) {
  lines_[early.offer.tag].offers.push_back(std::move(early));
  ++offers_;
}

std::optional<EarlyOffer> MessageMatching::take_offer(const Message& receive) {
  const auto line = lines_.find(receive.tag);
  if (line == lines_.end()) return std::nullopt;
  auto& offers = line->second.offers;
  const auto found = std::ranges::find_if(
      offers, [&](const EarlyOffer& early) { return takes_from(receive, early.source); });
  if (found == offers.end()) return std::nullopt;
  std::optional<EarlyOffer> early(std::move(*found));
  offers.erase(found);
  --offers_;
  forget_if_empty(line);
  return early;
}

void MessageMatching::post(std::shared_ptr<Message> receive) {
  auto& receives = lines_[receive->tag].receives;
  receives.push_back(std::move(receive));
  ++receives_;
}

bool MessageMatching::withdraw(const Message& receive) {
  const auto line = lines_.find(receive.tag);
  if (line == lines_.end()) return false;
  const auto is_it = [&](const auto& posted) { return posted.get() == &receive; };
  if (std::erase_if(line->second.receives, is_it) == 0) return false;
  --receives_;
  forget_if_empty(line);
  return true;
}

std::optional<EarlyOffer> MessageMatching::withdraw_offer(int source, std::uint64_t number) {
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    auto& offers = line->second.offers;
    const auto found = std::ranges::find_if(offers, [&](const EarlyOffer& early) {
      return early.source == source && early.offer.number == number;
    });
    if (found == offers.end()) continue;
    std::optional<EarlyOffer> early(std::move(*found));
    offers.erase(found);
    --offers_;
    forget_if_empty(line);
    return early;
  }
  return std::nullopt;
}

void MessageMatching::clear() {
  lines_.clear();
  receives_ = offers_ = 0;
}

void MessageMatching::forget_if_empty(std::unordered_map<std::uint64_t, Line>::iterator line) {
  const bool is_empty = line->second.receives.empty() && line->second.offers.empty();
  if (is_empty && lines_.size() > kMostLines) lines_.erase(line);
}

}  // namespace kolo
