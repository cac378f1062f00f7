#include "comm/verify/codec_play.h"

#include <algorithm>
#include <utility>

#include "comm/schedule/codec.h"

namespace kolo {
namespace {

/// Whether each source's lowest rank is above that of the one before.
bool ascend(const std::vector<SymbolicRuns>& sources) {
  const auto lowest = [](const SymbolicRuns& source) {
    const auto& counts = source.front().value.counts;
    return std::ranges::find_if(counts, [](auto count) { return count > 0; }) - counts.begin();
  };
  return std::ranges::adjacent_find(sources, [&](const auto& a, const auto& b) {
           return lowest(a) >= lowest(b);
         }) == sources.end();
}

/// The first codec step with this verb, or null.
const Step* find(const Schedule& schedule, CodecVerb verb) {
  const auto found = std::ranges::find_if(schedule.steps, [&](const Step& step) {
    return step.kind == StepKind::kCodec && step.verb == verb;
  });
  return found == schedule.steps.end() ? nullptr : &*found;
}

/// Where the elements lie that a rank encodes, and how many.
std::pair<std::size_t, std::size_t> extent(const Schedule& schedule) {
  const Step* const encode = find(schedule, CodecVerb::kEncode);
  if (encode == nullptr) return {};
  return {encode->sources[0].offset, encode->sources[0].count};
}

}  // namespace

CodecPlay::CodecPlay(std::span<const Schedule> schedules)
    : schedules_(schedules), narrowed_(schedules.size()) {}

std::optional<std::string> CodecPlay::play(std::size_t rank, const Step& step,
                                           const std::vector<SymbolicRuns>& sources,
                                           SymbolicRuns& result) {
  for (const SymbolicRuns& source : sources) {
    for (const SymbolicRun& run : source) {
      if (!run.value.written()) return "uses what nobody wrote, or adds up different elements";
    }
  }
  switch (step.verb) {
    case CodecVerb::kEncode:
    case CodecVerb::kFold:
    case CodecVerb::kPart:
      result = sources[0];
      return std::nullopt;
    case CodecVerb::kInspect:
      return std::nullopt;
    case CodecVerb::kMerge:
      if (!ascend(sources)) return "sums contributions in another order than that of ranks";
      [[fallthrough]];
    case CodecVerb::kTally:
      result = sources[0];
      for (std::size_t i = 1; i < sources.size(); ++i) result = combine(result, sources[i]);
      return std::nullopt;
    case CodecVerb::kJoin:
    case CodecVerb::kDecode:
      for (const SymbolicRuns& part : sources) {
        result.insert(result.end(), part.begin(), part.end());
      }
      return std::nullopt;
    case CodecVerb::kCount:
      // Counts are in no bucket: numbers of their own keep rounds apart.
      result = {{.count = step.target.count,
                 .value = contribution_of(rank, schedules_.size()),
                 .element = (std::size_t{step.ordinal} + 1) << 40}};
      return std::nullopt;
    case CodecVerb::kNarrow:
      if (step.ordinal != narrowed_[rank]++) return "narrows in another order than that of rounds";
      for (const SymbolicRun& run : sources[1]) {
        if (run.value.counts != owners_with(rank))
          return "narrows by counts that are not those of all";
        if (run.element >> 40 != std::size_t{step.ordinal} + 1) return "narrows by other counts";
      }
      result = sources[0];
      return std::nullopt;
    case CodecVerb::kFinish:
      if (step.ordinal != narrowed_[rank]) return "finishes what is not narrowed down";
      result = sources[0];
      return std::nullopt;
  }
  return std::nullopt;
}

// The ranks that narrow down sums of what `rank` has encoded a contribution to, once each.
std::vector<std::uint16_t> CodecPlay::owners_with(std::size_t rank) const {
  std::vector<std::uint16_t> owners(schedules_.size());
  for (std::size_t other = 0; other < owners.size(); ++other) {
    const bool narrows = find(schedules_[other], CodecVerb::kNarrow) != nullptr;
    owners[other] = narrows && extent(schedules_[other]) == extent(schedules_[rank]) ? 1 : 0;
  }
  return owners;
}

}  // namespace kolo
