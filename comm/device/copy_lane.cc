#include "comm/device/copy_lane.h"

namespace kolo {

void CopyLane::keep(DeviceMemory memory, std::unique_ptr<Event> copied) {
  std::erase_if(kept_, [](const Kept& kept) { return kept.copied->done(); });
  kept_.push_back({std::move(memory), std::move(copied)});
}

}  // namespace kolo
