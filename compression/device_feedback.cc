#include "compression/device_feedback.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/device/kernels/top_k.h"

namespace kolo {
namespace {

constexpr std::size_t kFlagBytes = sizeof(std::uint32_t);
constexpr std::size_t kPairBytes = sizeof(std::int64_t) + sizeof(float);
constexpr std::size_t kStagedFloats = std::size_t{1} << 16;

BufferView bytes_at(const DeviceMemory& memory, std::size_t offset, std::size_t bytes) {
  return {memory.data() + offset, bytes, DType::kUInt8, memory.kind()};
}

BufferView on_device(std::span<const float> numbers) {
  return {const_cast<float*>(numbers.data()), numbers.size(), DType::kFloat32, MemoryKind::kDevice};
}

}  // namespace

DeviceFlag::DeviceFlag(Device& device)
    : pinned_(device.allocate(2 * kFlagBytes, MemoryKind::kPinned)),
      flag_(device.allocate(kFlagBytes, MemoryKind::kDevice)) {
  std::memset(pinned_.data(), 0, pinned_.bytes());
}

std::uint32_t* DeviceFlag::begin(Stream& stream) {
  stream.copy(bytes_at(flag_, 0, kFlagBytes), bytes_at(pinned_, 0, kFlagBytes));
  return reinterpret_cast<std::uint32_t*>(flag_.data());
}

void DeviceFlag::end(Stream& stream) {
  stream.copy(bytes_at(pinned_, kFlagBytes, kFlagBytes), bytes_at(flag_, 0, kFlagBytes));
}

DevicePairs::DevicePairs(Device& device, std::size_t most)
    : most_(most),
      pinned_(device.allocate(most * kPairBytes, MemoryKind::kPinned)),
      device_(device.allocate(most * kPairBytes, MemoryKind::kDevice)) {}

DevicePairs::List DevicePairs::add(const PairsView& pairs) {
  ensure(used_ + pairs.size() <= most_, "more pairs than planned");
  const std::size_t indices = used_ * sizeof(std::int64_t), values = values_at(used_);
  used_ += pairs.size();
  std::ranges::copy(pairs.indices, reinterpret_cast<std::int64_t*>(pinned_.data() + indices));
  std::ranges::copy(pairs.values, reinterpret_cast<float*>(pinned_.data() + values));
  return {
      .indices = {reinterpret_cast<const std::int64_t*>(device_.data() + indices), pairs.size()},
      .values = reinterpret_cast<const float*>(device_.data() + values)};
}

void DevicePairs::upload(Stream& stream) {
  const std::size_t count = used_ - uploaded_;
  if (count == 0) return;
  const auto copy = [&](std::size_t at, std::size_t bytes) {
    stream.copy(bytes_at(device_, at, bytes), bytes_at(pinned_, at, bytes));
  };
  copy(uploaded_ * sizeof(std::int64_t), count * sizeof(std::int64_t));
  copy(values_at(uploaded_), count * sizeof(float));
  uploaded_ = used_;
}

FeedbackDevice::FeedbackDevice(std::shared_ptr<FeedbackStream> on, std::size_t most_pairs,
                               std::size_t most_elements)
    : on_(std::move(on)),
      device_(on_->device),
      stream_(*on_->stream),
      enqueued_(device_.make_event()),
      workspace_(device_.allocate(most_pairs > 0 ? top_k_workspace_bytes(most_elements) : 0,
                                  MemoryKind::kDevice)),
      staging_(device_.allocate(kStagedFloats * sizeof(float), MemoryKind::kPinned)),
      sent_(device_, most_pairs) {}

void FeedbackDevice::finish() noexcept {
  if (*device_.stuck()) return;
  try {
    device_.finish(*enqueued_);
  } catch (const std::exception& e) {
    log::warn(std::string("the last step of error feedback on a device: ") + e.what());
  }
}

void FeedbackDevice::begin_step(Stream& stream) {
  stream.wait(*enqueued_);
  sent_.restart();
}

void FeedbackDevice::clear(std::span<float> numbers) {
  kernels().spread_rows(stream_, {}, nullptr, sizeof(float), numbers.data(), numbers.size());
  stream_.record(*enqueued_);
}

void FeedbackDevice::subtract(const PairsView& pairs, float* residual, float* velocity) {
  if (pairs.size() == 0) return;
  const DevicePairs::List list = sent_.add(pairs);
  sent_.upload(stream_);
  kernels().subtract_pairs(stream_, list.indices, list.values, residual, velocity);
  stream_.record(*enqueued_);
}

void FeedbackDevice::read(std::span<const float> numbers, std::span<float> to) {
  for (std::size_t at = 0; at < numbers.size(); at += kStagedFloats) {
    const std::size_t count = std::min(kStagedFloats, numbers.size() - at);
    stream_.copy({staging_.data(), count, DType::kFloat32, MemoryKind::kPinned},
                 on_device(numbers.subspan(at, count)));
    stream_.record(*enqueued_);
    device_.finish(*enqueued_);
    std::memcpy(to.data() + at, staging_.data(), count * sizeof(float));
  }
}

void FeedbackDevice::write(std::span<float> numbers, std::span<const float> from) {
  for (std::size_t at = 0; at < numbers.size(); at += kStagedFloats) {
    const std::size_t count = std::min(kStagedFloats, numbers.size() - at);
    std::memcpy(staging_.data(), from.data() + at, count * sizeof(float));
    stream_.copy(on_device(numbers.subspan(at, count)),
                 {staging_.data(), count, DType::kFloat32, MemoryKind::kPinned});
    stream_.record(*enqueued_);
    device_.finish(*enqueued_);
  }
}

}  // namespace kolo
