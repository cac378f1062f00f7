#include "trainer/cuda/core/batch_staging.h"

#include <cstring>

#include "trainer/cuda/compute/wait.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

BatchPlan plan_batch(std::size_t input_bytes, std::size_t target_rows) {
  constexpr std::size_t kAlignment = 256;
  BatchPlan plan;
  plan.inputs = round_up(sizeof(BatchHeader), kAlignment);
  plan.targets = plan.inputs + round_up(input_bytes, kAlignment);
  plan.bytes = plan.targets + round_up(target_rows, kAlignment);
  return plan;
}

BatchStaging::BatchStaging(kolo::Device& device, Stream& stream, std::size_t input_bytes,
                           std::size_t target_rows)
    : stream_(stream),
      plan_(plan_batch(input_bytes, target_rows)),
      batch_(device.allocate(plan_.bytes, MemoryKind::kDevice)) {
  for (Slot& slot : slots_) {
    slot.memory = device.allocate(plan_.bytes, MemoryKind::kPinned);
    slot.copied = device.make_event();
    std::memset(slot.memory.data(), 0, plan_.bytes);
  }
}

void BatchStaging::load(const BatchHeader& header, std::span<const std::uint8_t> inputs,
                        std::span<const std::uint8_t> targets) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  wait_for(*slot.copied);
  std::memcpy(slot.memory.data(), &header, sizeof(header));
  std::memcpy(slot.memory.data() + plan_.inputs, inputs.data(), inputs.size());
  if (!targets.empty()) {
    std::memcpy(slot.memory.data() + plan_.targets, targets.data(), targets.size());
  }
  const std::size_t used = plan_.targets + targets.size();
  stream_.copy({batch_.data(), used, DType::kUInt8, MemoryKind::kDevice},
               {slot.memory.data(), used, DType::kUInt8, MemoryKind::kPinned});
  stream_.record(*slot.copied);
}

const BatchHeader* BatchStaging::header() const {
  return reinterpret_cast<const BatchHeader*>(batch_.data());
}
const std::uint8_t* BatchStaging::inputs() const {
  return reinterpret_cast<const std::uint8_t*>(batch_.data() + plan_.inputs);
}
const std::uint8_t* BatchStaging::targets() const {
  return reinterpret_cast<const std::uint8_t*>(batch_.data() + plan_.targets);
}

}  // namespace kolo::trainer::cuda
