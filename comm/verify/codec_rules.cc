#include "comm/verify/codec_rules.h"

#include <algorithm>
#include <numeric>

namespace kolo {
namespace {

using Complaint = std::optional<std::string>;

bool is_payload(const Range& range) { return range.region == Region::kPayload; }
bool is_elements(const Range& range) {
  return range.region == Region::kBucket || range.region == Region::kUser;
}

/// The operands of a verb.
struct Form {
  bool reads_elements = false;
  bool writes_elements = false;
  std::size_t most_sources = 1;
};

constexpr std::size_t kAny = ~std::size_t{0};

Form form_of(CodecVerb verb) {
  switch (verb) {
    case CodecVerb::kFold:
      return {.reads_elements = true, .writes_elements = true};
    case CodecVerb::kEncode:
    case CodecVerb::kInspect:
      return {.reads_elements = true};
    case CodecVerb::kDecode:
      return {.writes_elements = true, .most_sources = kAny};
    case CodecVerb::kMerge:
    case CodecVerb::kJoin:
      return {.most_sources = kAny};
    case CodecVerb::kPart:
      return {};
  }
  return {};
}

bool is_one_payload(const Range& range, const Schedule& schedule) {
  return schedule.payloads_in(range).size() == 1;
}

// How long the target is, for sources of these lengths.
bool has_fitting_target(const Step& step) {
  const auto equals = [&](const Range& source) { return source.count == step.target.count; };
  switch (step.verb) {
    case CodecVerb::kInspect:
      return step.target.count == 0;
    case CodecVerb::kFold:
      return step.target == step.sources[0];
    case CodecVerb::kJoin:
    case CodecVerb::kDecode:
      return std::accumulate(step.sources.begin(), step.sources.end(), std::size_t{0},
                             [](std::size_t sum, const Range& source) {
                               return sum + source.count;
                             }) == step.target.count;
    default:
      return std::ranges::all_of(step.sources, equals);
  }
}

}  // namespace

Complaint check_payloads(const Step& step, const Schedule& schedule) {
  const bool is_message = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
  const auto check_one = [&](const Range& range) -> Complaint {
    if (!is_payload(range) || range.count == 0) return std::nullopt;
    if (!is_message && step.kind != StepKind::kCodec) return "touches a payload";
    if (schedule.payloads_in(range).empty()) return "touches a part of a payload";
    if (!is_message) return std::nullopt;
    if (!is_one_payload(range, schedule)) return "moves several payloads at once";
    return std::nullopt;
  };
  if (auto wrong = check_one(step.target)) return wrong;
  for (const Range& source : step.sources) {
    if (auto wrong = check_one(source)) return wrong;
  }
  return std::nullopt;
}

Complaint check_codec(const Step& step, const Schedule& schedule) {
  if (schedule.layout.memory != MemoryKind::kHost) return "codes a bucket that is not the host's";
  const Form form = form_of(step.verb);
  if (step.sources.empty() || step.sources.size() > form.most_sources) {
    return "has another number of sources";
  }
  for (const Range& source : step.sources) {
    if (form.reads_elements ? !is_elements(source) : !is_payload(source)) {
      return "reads from a region that its verb does not";
    }
  }
  const bool writes = step.target.count > 0;
  if (writes && (form.writes_elements ? !is_elements(step.target) : !is_payload(step.target))) {
    return "writes to a region that its verb does not";
  }
  if (!has_fitting_target(step)) return "combines ranges of different length";
  if (step.finishes && step.verb != CodecVerb::kDecode) return "scales what it does not decode";
  if (step.verb == CodecVerb::kJoin && !is_one_payload(step.target, schedule)) {
    return "writes several payloads";
  }
  if (step.verb == CodecVerb::kPart && !is_one_payload(step.sources[0], schedule)) {
    return "parts several payloads";
  }
  return std::nullopt;
}

}  // namespace kolo
