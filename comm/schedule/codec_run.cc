#include "comm/schedule/codec_run.h"

namespace kolo {

CodecRun::CodecRun(const Schedule& schedule, const Binding& binding)
    : schedule_(schedule), binding_(binding), payloads_(allocate_aligned(schedule.payload_bytes)) {
  sources_.reserve(schedule.payloads.size());
  targets_.reserve(schedule.payloads.size());
}

Range CodecRun::elements_of(const Step& step) {
  switch (step.verb) {
    case CodecVerb::kFold:
    case CodecVerb::kDecode:
    case CodecVerb::kScatter:
      return step.target;
    case CodecVerb::kSelect:
    case CodecVerb::kEncode:
    case CodecVerb::kRefine:
    case CodecVerb::kInspect:
      return step.sources[0];
    case CodecVerb::kMerge:
      break;
  }
  return {};
}

std::span<std::byte> CodecRun::payload(const Range& range) const {
  const PayloadSlot& slot = schedule_.payloads_in(range).front();
  return {payloads_.get() + slot.first_byte, slot.capacity};
}

void CodecRun::append(const Range& range, std::vector<std::span<std::byte>>& to) const {
  for (const PayloadSlot& slot : schedule_.payloads_in(range)) {
    to.push_back({payloads_.get() + slot.first_byte, slot.capacity});
  }
}

void CodecRun::run(const Step& step, const CodecElements& elements) {
  sources_.clear();
  targets_.clear();
  for (const Range& source : step.sources) {
    if (source.region == Region::kPayload) append(source, sources_);
  }
  if (step.target.region == Region::kPayload) append(step.target, targets_);
  Codec& codec = *binding_.codec;
  switch (step.verb) {
    case CodecVerb::kFold:
      return codec.fold(elements);
    case CodecVerb::kEncode:
      return codec.encode(elements, targets_);
    case CodecVerb::kMerge:
      return codec.merge(sources_, targets_);
    case CodecVerb::kRefine:
      return codec.refine(sources_, elements, targets_);
    case CodecVerb::kDecode:
      return codec.decode(sources_, elements, step.finishes ? binding_.scale : 1.0);
    case CodecVerb::kInspect:
      return codec.inspect(elements);
    case CodecVerb::kSelect:
    case CodecVerb::kScatter:
      break;  // on a device
  }
}

}  // namespace kolo
