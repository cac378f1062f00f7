#include "comm/coordinator/stall_table.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

namespace kolo {
namespace {

constexpr std::size_t kMostTensors = 8;
constexpr std::size_t kMostMissing = 16;
constexpr std::size_t kLongestText = 72;

std::string shortened(std::string_view text) {
  if (text.size() <= kLongestText) return std::string(text);
  return fmt::format("{}...", text.substr(0, kLongestText));
}

/// Returns "61 s", "17 min" or "5 h", rounded down.
std::string age_text(std::chrono::milliseconds age) {
  using std::chrono::duration_cast, std::chrono::seconds, std::chrono::minutes, std::chrono::hours;
  if (age < minutes(3)) return fmt::format("{} s", duration_cast<seconds>(age).count());
  if (age < hours(3)) return fmt::format("{} min", duration_cast<minutes>(age).count());
  return fmt::format("{} h", duration_cast<hours>(age).count());
}

std::string line_of(const MissingRank& rank) {
  std::string text = fmt::format("\n  rank {}: ", rank.rank);
  text += rank.last.text.empty()
              ? "nothing yet"
              : fmt::format("{}, {} ago", shortened(rank.last.text), age_text(rank.last.age));
  if (rank.waits_for.empty()) return text;
  text += fmt::format("\n    now waits for {}", shortened(rank.waits_for.front()));
  if (rank.waits_for.size() > 1) text += fmt::format(" and {} more", rank.waits_for.size() - 1);
  return text;
}

/// Returns "; missing: ranks 1-2", or an empty text for an empty set.
std::string list_of(std::string_view what, const RankSet& ranks) {
  return ranks.is_empty() ? "" : fmt::format("; {}: {}", what, ranges_text(ranks));
}

std::string line_of(const MuteRank& rank) {
  std::string text = fmt::format("\n  rank {}: for {}", rank.rank, age_text(rank.silence));
  if (!rank.stuck_in.empty()) {
    text += fmt::format(", stuck in '{}', in a call that has not returned", rank.stuck_in);
  }
  return text;
}

/// Returns the end of a list of `size` entries of which `shown` are shown.
std::string rest_of(std::size_t size, std::size_t shown) {
  return size <= shown ? "" : fmt::format("\n  ... and {} more", size - shown);
}

}  // namespace

std::string stall_table(std::span<const StalledTensor> tensors, const MissingRanks& missing,
                        std::span<const MuteRank> mute) {
  const bool one = tensors.size() == 1;
  std::string text = fmt::format(
      "{} tensor{} waited for ranks that have not submitted {}{}:", tensors.size(),
      one ? " has" : "s have", one ? "it" : "them", mute.empty() ? "" : ", or do not answer");
  RankSet mute_ranks;
  for (const MuteRank& rank : mute) mute_ranks.add(rank.rank);
  for (const StalledTensor& tensor : tensors.first(std::min(tensors.size(), kMostTensors))) {
    text += fmt::format("\n  {}\n    for {}; waiting: {}{}{}", shortened(tensor.text),
                        age_text(tensor.age), ranges_text(tensor.waiting),
                        list_of("missing", tensor.missing), list_of("no answer", mute_ranks));
  }
  text += rest_of(tensors.size(), kMostTensors);
  if (missing.count > 0) text += "\nwhat the missing ranks did last:";
  const std::size_t shown = std::min(missing.first.size(), kMostMissing);
  for (const MissingRank& rank : std::span(missing.first).first(shown)) text += line_of(rank);
  text += rest_of(missing.count, shown);
  if (!mute.empty()) text += "\nthe ranks that do not answer:";
  for (const MuteRank& rank : mute) text += line_of(rank);
  return text;
}

}  // namespace kolo
