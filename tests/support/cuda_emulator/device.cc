#include "tests/support/cuda_emulator/device.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulator/block.h"

namespace kolo::emulator {
namespace {

thread_local Device* current_device = nullptr;

/// Applies the limits of CUDA's compute capabilities 8.0 to 10.0.
bool is_accepted(const Launch& launch) {
  const auto any_zero = [](const dim3& size) { return size.x == 0 || size.y == 0 || size.z == 0; };
  if (any_zero(launch.grid) || any_zero(launch.block)) return false;
  constexpr unsigned kMostThreads = 1024;
  const dim3& block = launch.block;
  return launch.grid.x < 1u << 31 && launch.grid.y < 1u << 16 && launch.grid.z < 1u << 16 &&
         block.x <= kMostThreads && block.y <= kMostThreads && block.z <= 64 &&
         block.x * block.y * block.z <= kMostThreads &&
         launch.shared_bytes <= SharedMemory::kMostBytes;
}

}  // namespace

Device::Device(const DeviceOptions& options)
    : options_(options), random_(options.seed), before_(std::exchange(current_device, this)) {}

Device::~Device() { current_device = before_; }

Device& Device::current() {
  if (current_device == nullptr) throw Fault("this thread has no emulated device");
  return *current_device;
}

bool Device::take_refusal() { return std::exchange(refused_, false); }

void Device::run(const Launch& launch) {
  if (!is_accepted(launch)) {
    refused_ = true;
    return;
  }
  const dim3& grid = launch.grid;
  std::vector<std::size_t> order(std::size_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  std::vector<std::unique_ptr<Block>> resident;
  while (!order.empty() || !resident.empty()) {
    if (!order.empty() && resident.size() < options_.resident_blocks) {
      const std::size_t at = order.back();
      order.pop_back();
      const uint3 index{static_cast<unsigned>(at % grid.x),
                        static_cast<unsigned>(at / grid.x % grid.y),
                        static_cast<unsigned>(at / grid.x / grid.y)};
      resident.push_back(std::make_unique<Block>(launch, index, random_, fibers_));
    }
    auto& block = resident[random_() % resident.size()];
    block->step();
    if (!block->is_done()) continue;
    std::swap(block, resident.back());
    resident.pop_back();
  }
}

}  // namespace kolo::emulator
