#include "fusion/wire_packer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/base/log.h"
#include "comm/kernels/reduce_kernels.h"
#include "comm/kernels/reference_kernels.h"
#include "fusion/pack_kernels.h"

namespace kolo {
namespace {

constexpr std::size_t kLanes = 2;

// Returns the value of a report element. Summed or averaged over any number of ranks, a raised flag
// is not zero.
std::uint16_t report_bits(bool flag) { return flag ? to_float16(1.0f).bits : 0; }

template <typename T>
bool any_value(const T* values, std::size_t count) {
  return std::any_of(values, values + count, [](T value) { return value != 0; });
}

// True if any of `count` elements is not zero.
bool has_value(DType dtype, const void* values, std::size_t count) {
  if (dtype == DType::kFloat64) return any_value(static_cast<const double*>(values), count);
  if (dtype == DType::kFloat32) return any_value(static_cast<const float*>(values), count);
  return reference::largest_magnitude(values, count) > 0;
}

}  // namespace

std::size_t report_count(const BucketLayout& layout) {
  const bool sums = layout.op == ReduceOp::kSum || layout.op == ReduceOp::kAverage;
  const bool is_cast = layout.memory == MemoryKind::kHost && layout.placement == Placement::kStaged;
  return layout.dtype == DType::kFloat16 && is_cast && sums ? kLanes : 0;
}

WirePacker::WirePacker(const BucketLayout& layout, std::vector<Segment> segments,
                       std::vector<std::size_t> tensors, std::shared_ptr<WireState> state,
                       std::string name)
    : wire_(layout.dtype),
      report_count_(report_count(layout)),
      name_(std::move(name)),
      places_(std::move(segments)),
      tensors_(std::move(tensors)),
      state_(std::move(state)) {
  check(tensors_.size() == places_.size(), "each segment of a wire is one tensor");
  for (Segment& place : places_) place.count += report_count_;
}

void WirePacker::rebind(std::size_t index, void* data, const void* input) {
  places_.at(index).data = data;
  places_.at(index).input = input;
}

void WirePacker::pack(std::size_t offset, std::size_t count, void* bucket, Stores /*stores*/) {
  auto* const to = static_cast<std::uint16_t*>(bucket);
  std::size_t packed_to = offset;
  const auto zero_up_to = [&](std::size_t position) {
    std::fill(to + (packed_to - offset), to + (position - offset), std::uint16_t{0});
  };
  for_each_overlap(places_, offset, offset + count,
                   [&](const Segment& place, std::size_t first, std::size_t last) {
                     zero_up_to(first);
                     pack_tensor(place, first, last, to + (first - offset));
                     packed_to = last;
                   });
  zero_up_to(offset + count);
}

void WirePacker::pack_tensor(const Segment& place, std::size_t first, std::size_t last,
                             std::uint16_t* to) {
  WireTensor& tensor = tensor_of(place);
  const std::size_t end = end_of(place);
  if (first < end) {
    const std::size_t count = std::min(last, end) - first;
    const void* const values = place.source_at(first);
    const std::size_t too_large =
        to_wire(wire_, to, place.dtype, values, count, tensor.scale.exponent());
    const bool looks = report_count_ > 0 && tensor.may_be_too_small;
    const bool has_values = looks && has_value(place.dtype, values, count);
    const bool sends_values = looks && has_value(wire_, to, count);
    if (too_large > 0) warn_once(too_large);
    const MutexLock lock(mutex_);
    tensor.is_too_large = tensor.is_too_large || too_large > 0;
    tensor.has_values = tensor.has_values || has_values;
    tensor.sends_values = tensor.sends_values || sends_values;
  }
  for (std::size_t element = std::max(first, end); element < last; ++element) {
    to[element - first] =
        report_bits(element == end ? tensor.told_too_large : tensor.told_too_small);
  }
}

void WirePacker::warn_once(std::size_t too_large) const {
  if (!state_->add_too_large(too_large)) return;
  log::warn(fmt::format(
      "{}: {} values are too large for {} and travel as the largest one; more are counted only",
      name_, too_large, to_string(wire_)));
}

void WirePacker::unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) {
  const auto* const from = static_cast<const std::uint16_t*>(bucket);
  for_each_overlap(places_, offset, offset + count,
                   [&](const Segment& place, std::size_t first, std::size_t last) {
                     unpack_tensor(place, first, last, from + (first - offset), stores);
                   });
}

void WirePacker::unpack_tensor(const Segment& place, std::size_t first, std::size_t last,
                               const std::uint16_t* from, Stores stores) {
  WireTensor& tensor = tensor_of(place);
  const std::size_t end = end_of(place);
  std::uint16_t largest = 0;
  if (first < end) {
    largest = from_wire(place.dtype, place.at(first), wire_, from, std::min(last, end) - first,
                        tensor.scale.exponent(), stores);
  }
  const MutexLock lock(mutex_);
  tensor.heard.largest = std::max(tensor.heard.largest, largest);
  for (std::size_t element = std::max(first, end); element < last; ++element) {
    (element == end ? tensor.heard.was_too_large : tensor.heard.was_too_small) =
        from[element - first] != 0;
  }
  tensor.unpacked += last - first;
  if (report_count_ > 0 && tensor.unpacked == place.count) finish(tensor);
}

void WirePacker::finish(WireTensor& tensor) {
  tensor.scale.step(tensor.heard);
  tensor = {.scale = tensor.scale,
            .told_too_large = tensor.is_too_large,
            .told_too_small = tensor.has_values && !tensor.sends_values,
            .may_be_too_small = tensor.heard.largest == 0};
}

Packer::Piece WirePacker::piece(std::size_t, std::size_t) {
  throw UsageError("tensors that are cast have no pieces of the bucket's dtype");
}

}  // namespace kolo
