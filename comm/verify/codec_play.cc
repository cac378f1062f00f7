#include "comm/verify/codec_play.h"

#include <algorithm>

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

}  // namespace

std::optional<std::string> play_codec_step(const Step& step,
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
      result = sources[0];
      for (std::size_t i = 1; i < sources.size(); ++i) result = combine(result, sources[i]);
      return std::nullopt;
    case CodecVerb::kJoin:
    case CodecVerb::kDecode:
      for (const SymbolicRuns& part : sources) {
        result.insert(result.end(), part.begin(), part.end());
      }
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace kolo
