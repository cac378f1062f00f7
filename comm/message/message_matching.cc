#include "comm/message/message_matching.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

namespace {

/// Limit of a message in bytes, larger than any memory.
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
/// If there are more tensors, texts describe only the first difference.
constexpr std::size_t kMostTensorsInText = 16;

OfferedTensor offered(const BufferView& tensor) {
  return {.count = tensor.count, .dtype = tensor.dtype};
}

std::vector<OfferedTensor> tensors_of(const Offer& offer) {
  std::vector<OfferedTensor> tensors = {{.count = offer.count, .dtype = offer.dtype}};
  tensors.insert(tensors.end(), offer.more.begin(), offer.more.end());
  return tensors;
}

std::vector<OfferedTensor> tensors_of(const Message& message) {
  std::vector<OfferedTensor> tensors;
  for (const BufferView& tensor : message.parts()) tensors.push_back(offered(tensor));
  return tensors;
}

std::string text_of(const OfferedTensor& tensor) {
  return fmt::format("{} [{}]", to_string(tensor.dtype), tensor.count);
}

std::string text_of(std::span<const OfferedTensor> tensors) {
  if (tensors.size() > kMostTensorsInText) return fmt::format("{} tensors", tensors.size());
  std::vector<std::string> each;
  for (const OfferedTensor& tensor : tensors) each.push_back(text_of(tensor));
  return fmt::format("{}", fmt::join(each, " + "));
}

/// Describes the first difference between two equally long lists that are too long to be listed.
std::string difference(const std::vector<OfferedTensor>& sent,
                       const std::vector<OfferedTensor>& received) {
  if (sent.size() <= kMostTensorsInText || sent.size() != received.size()) return {};
  const auto [ours, theirs] = std::ranges::mismatch(sent, received);
  return fmt::format("; the first that differ are number {}, {} and {}", ours - sent.begin(),
                     text_of(*ours), text_of(*theirs));
}

}  // namespace

void describe_in(Offer& offer, std::span<const BufferView> tensors) {
  offer.count = tensors.front().count;
  offer.dtype = tensors.front().dtype;
  for (const BufferView& tensor : tensors.subspan(1)) offer.more.push_back(offered(tensor));
}

std::optional<std::size_t> bytes_of(const Offer& offer) {
  std::uint64_t bytes = 0;
  const auto add = [&](std::uint64_t count, DType dtype) {
    const std::size_t each = size_of(dtype);
    const bool is_possible = count <= (kMostBytes - bytes) / each;
    if (is_possible) bytes += count * each;
    return is_possible;
  };
  if (!add(offer.count, offer.dtype)) return std::nullopt;
  for (const auto& [count, dtype] : offer.more) {
    if (!add(count, dtype)) return std::nullopt;
  }
  return static_cast<std::size_t>(bytes);
}

std::size_t count_of(const Offer& offer) {
  std::uint64_t count = offer.count;
  for (const OfferedTensor& tensor : offer.more) count += tensor.count;
  return static_cast<std::size_t>(count);
}

bool fits(const Offer& offer, const Message& receive) {
  const std::span<const BufferView> parts = receive.parts();
  const BufferView& first = parts.front();
  if (parts.size() != 1 + offer.more.size() || offer.dtype != first.dtype) return false;
  if (offer.more.empty()) return offer.count <= first.count;
  return offer.count == first.count &&
         std::ranges::equal(parts.subspan(1), offer.more, {}, offered);
}

std::string describe_tensors(const Offer& offer) {
  if (offer.more.empty()) {
    return fmt::format("{} elements of {}", offer.count, to_string(offer.dtype));
  }
  return text_of(tensors_of(offer));
}

std::string describe_misfit(const Offer& offer, const Message& receive) {
  if (!offer.more.empty() || !receive.tensors.empty()) {
    const std::vector<OfferedTensor> received = tensors_of(receive);
    return "which receives " + text_of(received) + difference(tensors_of(offer), received);
  }
  const BufferView& buffer = receive.buffer;
  return offer.dtype != buffer.dtype ? fmt::format("which receives {}", to_string(buffer.dtype))
                                     : fmt::format("whose buffer holds {}", buffer.count);
}

std::optional<std::span<std::byte>> in_one_piece(std::span<const BufferView> tensors) {
  std::span<std::byte> all;
  for (const BufferView& tensor : tensors) {
    const std::span<std::byte> bytes = tensor.as_bytes();
    if (bytes.empty()) continue;
    if (all.empty()) {
      all = bytes;
    } else if (all.data() + all.size() == bytes.data()) {
      all = {all.data(), all.size() + bytes.size()};
    } else {
      return std::nullopt;
    }
  }
  return all;
}

void pack(std::span<const BufferView> tensors, std::byte* bytes) {
  for (const BufferView& tensor : tensors) {
    if (tensor.bytes() == 0) continue;
    std::memcpy(bytes, tensor.data, tensor.bytes());
    bytes += tensor.bytes();
  }
}

void unpack(std::span<const std::byte> bytes, std::span<const BufferView> tensors) {
  for (const BufferView& tensor : tensors) {
    const std::size_t size = std::min(bytes.size(), tensor.bytes());
    if (size == 0) continue;
    std::memcpy(tensor.data, bytes.data(), size);
    bytes = bytes.subspan(size);
  }
}

}  // namespace kolo
