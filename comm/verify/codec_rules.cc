#include "comm/verify/codec_rules.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace kolo {
namespace {

using Complaint = std::optional<std::string>;

bool is_payload(const Range& range) { return range.region == Region::kPayload; }
bool is_pairs(const Range& range) { return range.region == Region::kPairs; }
bool is_elements(const Range& range) {
  return range.region == Region::kBucket || range.region == Region::kUser;
}

/// The kinds of operands of codec verbs.
enum class Kind { kPayloads, kElements, kPairs };

bool is_of(Kind kind, const Range& range) {
  return kind == Kind::kElements ? is_elements(range)
         : kind == Kind::kPairs  ? is_pairs(range)
                                 : is_payload(range);
}

/// The operands that a codec verb takes.
struct Form {
  Kind first = Kind::kPayloads;  ///< The first source; the others are payloads.
  Kind target = Kind::kPayloads;
  std::size_t most_sources = 1;
};

constexpr std::size_t kAny = ~std::size_t{0};

/// Returns the form of a verb; empty if buckets in this memory do not have the verb.
std::optional<Form> form_of(CodecVerb verb, bool on_device) {
  const Kind worked_on = on_device ? Kind::kPairs : Kind::kElements;  // by the processor
  switch (verb) {
    case CodecVerb::kFold:
      return Form{.first = Kind::kElements, .target = Kind::kElements};
    case CodecVerb::kSelect:
      if (!on_device) return std::nullopt;
      return Form{.first = Kind::kElements, .target = Kind::kPairs};
    case CodecVerb::kScatter:
      if (!on_device) return std::nullopt;
      return Form{.first = Kind::kPairs, .target = Kind::kElements};
    case CodecVerb::kEncode:
      return Form{.first = worked_on};
    case CodecVerb::kInspect:
      return Form{.first = Kind::kElements};
    case CodecVerb::kRefine:
      if (on_device) return std::nullopt;
      return Form{.first = Kind::kElements, .most_sources = kAny};
    case CodecVerb::kDecode:
      return Form{.target = worked_on, .most_sources = kAny};
    case CodecVerb::kMerge:
      return Form{.most_sources = kAny};
  }
  return std::nullopt;
}

// Whether the target's length fits the lengths of the sources.
bool has_fitting_target(const Step& step) {
  const auto equals = [&](const Range& source) { return source.count == step.target.count; };
  const auto is_same = [&] {
    return step.sources[0].offset == step.target.offset && equals(step.sources[0]);
  };
  const auto sum = [&] {
    return std::accumulate(
        step.sources.begin(), step.sources.end(), std::size_t{0},
        [](std::size_t before, const Range& source) { return before + source.count; });
  };
  switch (step.verb) {
    case CodecVerb::kInspect:
      return step.target.count == 0;
    case CodecVerb::kFold:
      return step.target == step.sources[0];
    case CodecVerb::kSelect:
    case CodecVerb::kScatter:
      return is_same();
    case CodecVerb::kDecode:
      return sum() == step.target.count;
    case CodecVerb::kRefine:
      return equals(step.sources[0]) && sum() == 2 * step.target.count;
    default:
      return std::ranges::all_of(step.sources, equals);
  }
}

}  // namespace

Complaint check_payloads(const Step& step, const Schedule& schedule) {
  const bool is_message = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
  const auto check_one = [&](const Range& range) -> Complaint {
    if (range.count == 0) return std::nullopt;
    if (is_pairs(range) && step.kind != StepKind::kCodec) return "touches pairs of the codec";
    if (!is_payload(range)) return std::nullopt;
    if (!is_message && step.kind != StepKind::kCodec) return "touches a payload";
    const std::size_t payloads = schedule.payloads_in(range).size();
    if (payloads == 0) return "touches a part of a payload";
    if (is_message && payloads > 1) return "moves several payloads at once";
    return std::nullopt;
  };
  if (auto wrong = check_one(step.target)) return wrong;
  for (const std::vector<Range>* const ranges : {&step.sources, &step.mirrors}) {
    for (const Range& range : *ranges) {
      if (auto wrong = check_one(range)) return wrong;
    }
  }
  return std::nullopt;
}

Complaint check_codec(const Step& step, const Schedule& schedule) {
  const std::optional<Form> form = form_of(step.verb, schedule.layout.is_on_device());
  if (!form) return "has a verb that buckets in this memory lack";
  if (step.sources.empty() || step.sources.size() > form->most_sources) {
    return "has another number of sources";
  }
  for (const Range& source : step.sources) {
    const bool is_first = &source == &step.sources.front();
    if (!is_of(is_first ? form->first : Kind::kPayloads, source)) {
      return "reads from a region that its verb does not";
    }
  }
  if (step.target.count > 0 && !is_of(form->target, step.target)) {
    return "writes to a region that its verb does not";
  }
  if (step.verb == CodecVerb::kInspect && step.sources[0].count != schedule.layout.count) {
    return "inspects a part of the results";
  }
  if (!has_fitting_target(step)) return "combines ranges of different length";
  if (step.finishes && step.verb != CodecVerb::kDecode) return "scales what it does not decode";
  return std::nullopt;
}

}  // namespace kolo
