#include "compression/error_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "comm/base/check.h"
#include "compression/kernels/fold_scan.h"
#include "compression/kernels/nth_key.h"

namespace kolo {
namespace {

/// Numbers between two checks for bad values: a branch per number would prevent vector code.
constexpr std::size_t kNumbersPerCheck = 1024;

/// Treats floating-point numbers as `Bits`. Infinities and NaN have all bits of `exponent` set.
template <typename Bits>
bool all_below(const void* data, std::size_t count, Bits exponent) {
  const std::span bits(static_cast<const Bits*>(data), count);
  for (std::size_t begin = 0; begin < count; begin += kNumbersPerCheck) {
    Bits bad = 0;
    for (const Bits value : bits.subspan(begin, std::min(kNumbersPerCheck, count - begin))) {
      bad = static_cast<Bits>(bad | static_cast<Bits>((value & exponent) == exponent));
    }
    if (bad != 0) return false;
  }
  return true;
}

// Elements folded between two checks for values that are not finite.
constexpr std::size_t kFoldBlock = 1024;

// Folds all elements. Returns true if all sums are finite; only other sums are candidates.
bool fold_all(FoldScan scan, std::size_t count) {
  std::array<std::uint32_t, kFoldBlock + kCandidateSlack> indices;
  std::array<float, kFoldBlock + kCandidateSlack> values;
  scan.least_key = radix::kInfinityKey;
  bool finite = true;
  for (scan.begin = 0; scan.begin < count; scan.begin = scan.end) {
    scan.end = std::min(scan.begin + kFoldBlock, count);
    finite &= fold_scan(scan, {.indices = indices.data(), .values = values.data()}) == 0;
  }
  return finite;
}

std::vector<std::size_t> counts_of(const std::vector<FeedbackTensor>& tensors) {
  std::vector<std::size_t> counts;
  for (const FeedbackTensor& tensor : tensors) counts.push_back(tensor.count);
  return counts;
}

}  // namespace

bool are_finite(std::span<const float> values) {
  return all_below(values.data(), values.size(), std::uint32_t{0xff} << 23);
}

bool all_finite(const BufferView& tensor) {
  if (tensor.memory == MemoryKind::kDevice) return true;
  switch (tensor.dtype) {
    case DType::kFloat64:
      return all_below(tensor.data, tensor.count, std::uint64_t{0x7ff} << 52);
    case DType::kFloat32:
      return are_finite({static_cast<const float*>(tensor.data), tensor.count});
    case DType::kFloat16:
      return all_below(tensor.data, tensor.count, std::uint16_t{0x7c00});
    case DType::kBFloat16:
      return all_below(tensor.data, tensor.count, std::uint16_t{0x7f80});
    default:
      return true;
  }
}

ResidualStore::ResidualStore(std::span<const std::size_t> counts, Device* device) {
  constexpr std::size_t kUnit = kMemoryAlignment / sizeof(float);
  for (const std::size_t count : counts) {
    tensors_.push_back({.offset = floats_, .count = count});
    floats_ += (count + kUnit - 1) / kUnit * kUnit;
  }
  const std::size_t bytes = 2 * floats_ * sizeof(float);
  if (device != nullptr) {
    device_memory_ = device->allocate(bytes, MemoryKind::kDevice);
    base_ = reinterpret_cast<float*>(device_memory_.data());
    return;
  }
  memory_ = allocate_aligned(bytes);
  base_ = reinterpret_cast<float*>(memory_.get());
  std::ranges::fill(all(), 0.0f);
}

std::span<float> ResidualStore::room(std::size_t tensor, std::size_t half) const {
  const Tensor& place = tensors_.at(tensor);
  return {base_ + half * floats_ + place.offset, place.count};
}

ErrorFeedback::~ErrorFeedback() {
  if (device_) device_->finish();
}

ErrorFeedback::ErrorFeedback(std::vector<FeedbackTensor> tensors,
                             std::optional<MomentumCorrection> momentum)
    : tensors_(std::move(tensors)),
      momentum_(momentum),
      steps_(tensors_.size()),
      residuals_(counts_of(tensors_)) {
  if (momentum_) velocities_.emplace(counts_of(tensors_));
}

ErrorFeedback::ErrorFeedback(std::vector<FeedbackTensor> tensors,
                             std::optional<MomentumCorrection> momentum,
                             const std::shared_ptr<FeedbackStream>& on, std::size_t most_pairs)
    : tensors_(std::move(tensors)),
      momentum_(momentum),
      steps_(tensors_.size()),
      residuals_(counts_of(tensors_), &on->device) {
  std::size_t most_elements = 0;
  for (const FeedbackTensor& each : tensors_) most_elements = std::max(most_elements, each.count);
  device_ = std::make_unique<FeedbackDevice>(on, most_pairs, most_elements);
  device_->clear(residuals_.all());
  if (!momentum_) return;
  velocities_.emplace(counts_of(tensors_), &on->device);
  device_->clear(velocities_->all());
}

ErrorFeedback::Step& ErrorFeedback::begin(std::size_t tensor, std::span<const float> gradient) {
  Step& step = steps_.at(tensor);
  check(!step.open, "a tensor is folded once per step");
  check(gradient.size() == tensors_[tensor].count, "a gradient of another size");
  step.open = true;
  return step;
}

ErrorFeedback::Step& ErrorFeedback::end(std::size_t tensor) {
  Step& step = steps_.at(tensor);
  check(step.open, "a step ends after it has begun");
  step.open = false;
  return step;
}

FoldMomentum ErrorFeedback::momentum_of(std::size_t tensor) {
  if (!momentum_) return {};
  return {.before = velocities_->current(tensor).data(),
          .after = velocities_->pending(tensor).data(),
          .factor = momentum_->momentum};
}

SelectionReport ErrorFeedback::fold(std::size_t tensor, std::span<const float> gradient,
                                    float scale, std::size_t k, Pairs& selected) {
  check(k <= gradient.size(), "top-k cannot select more elements than there are");
  Step& step = begin(tensor, gradient);
  selected.indices.resize(k);
  selected.values.resize(k);
  return selector_.select({.residual = residuals_.current(tensor).data(),
                           .gradient = gradient.data(),
                           .sums = residuals_.pending(tensor).data(),
                           .scale = scale,
                           .momentum = momentum_of(tensor),
                           .count = gradient.size(),
                           .k = k,
                           .indices = selected.indices.data(),
                           .values = selected.values.data()},
                          step.hint);
}

bool ErrorFeedback::fold_to(std::span<float> sums, std::size_t tensor,
                            std::span<const float> gradient, float scale) {
  check(sums.size() == gradient.size(), "sums of another size");
  begin(tensor, gradient);
  return fold_all({.residual = residuals_.current(tensor).data(),
                   .gradient = gradient.data(),
                   .sums = sums.data(),
                   .scale = scale,
                   .momentum = momentum_of(tensor)},
                  sums.size());
}

bool ErrorFeedback::fold_dense(std::size_t tensor, std::span<const float> gradient, float scale,
                               std::span<float> sums) {
  const bool finite = fold_to(sums, tensor, gradient, scale);
  std::ranges::fill(residuals_.pending(tensor), 0.0f);
  return finite;
}

TopK ErrorFeedback::task_of(std::size_t tensor, std::span<const float> gradient) {
  const FoldMomentum momentum = momentum_of(tensor);
  return {.residual = residuals_.current(tensor).data(),
          .gradient = gradient.data(),
          .velocity = momentum.before,
          .next_velocity = momentum.after,
          .momentum = momentum.factor,
          .count = gradient.size()};
}

std::span<float> ErrorFeedback::fold(Stream& stream, std::size_t tensor,
                                     std::span<const float> gradient, std::size_t k,
                                     const Selection& selected) {
  begin(tensor, gradient);
  device_->begin_step(stream);
  TopK task = task_of(tensor, gradient);
  const std::span<float> sums = residuals_.pending(tensor);
  task.sums = sums.data();
  task.k = k;
  task.indices = selected.indices;
  task.values = selected.values;
  task.non_finite = selected.non_finite;
  device_->kernels().top_k(stream, task, device_->workspace());
  return sums;
}

void ErrorFeedback::fold_dense(Stream& stream, std::size_t tensor, std::span<float> elements,
                               std::span<const float> more) {
  begin(tensor, elements);
  device_->begin_step(stream);
  TopK task = task_of(tensor, elements);
  task.sums = elements.data();
  device_->kernels().top_k(stream, task, {});
  const std::span<float> rest = residuals_.pending(tensor);
  if (!more.empty()) {
    stream.copy(
        {rest.data(), rest.size(), DType::kFloat32, MemoryKind::kDevice},
        {const_cast<float*>(more.data()), more.size(), DType::kFloat32, MemoryKind::kPinned});
    device_->kernels().top_k(stream,
                             {.residual = rest.data(),
                              .gradient = elements.data(),
                              .sums = elements.data(),
                              .count = elements.size()},
                             {});
  }
  device_->kernels().spread_rows(stream, {}, nullptr, sizeof(float), rest.data(), rest.size());
}

ErrorFeedback::Sums ErrorFeedback::fold_in_place(std::size_t tensor,
                                                 std::span<const float> gradient, float scale) {
  const std::span<float> sums = residuals_.pending(tensor);
  return {.values = sums, .finite = fold_to(sums, tensor, gradient, scale)};
}

void ErrorFeedback::commit(std::size_t tensor, const Pairs& sent) {
  end(tensor);
  const std::span<float> residual = residuals_.pending(tensor);
  if (device_) {
    float* const velocity = momentum_ ? velocities_->pending(tensor).data() : nullptr;
    device_->subtract(sent, residual.data(), velocity);
    residuals_.accept(tensor);
    if (momentum_) velocities_->accept(tensor);
    return;
  }
  for (std::size_t j = 0; j < sent.size(); ++j) residual[sent.indices[j]] -= sent.values[j];
  residuals_.accept(tensor);
  if (!momentum_) return;
  const std::span<float> velocity = velocities_->pending(tensor);
  for (const std::uint32_t i : sent.indices) velocity[i] = 0.0f;
  velocities_->accept(tensor);
}

void ErrorFeedback::abort(std::size_t tensor) { end(tensor); }

void ErrorFeedback::drop_residual(std::size_t tensor) {
  check(!steps_.at(tensor).open, "a residual is dropped between steps");
  set_to_zero(residuals_.current(tensor));
}

std::vector<float> ErrorFeedback::copy_of(std::span<const float> numbers) const {
  if (!device_) return {numbers.begin(), numbers.end()};
  std::vector<float> copy(numbers.size());
  device_->read(numbers, copy);
  return copy;
}

void ErrorFeedback::copy_to(std::span<float> numbers, const std::vector<float>& from) {
  if (device_) return device_->write(numbers, from);
  std::ranges::copy(from, numbers.begin());
}

void ErrorFeedback::set_to_zero(std::span<float> numbers) {
  if (device_) return device_->clear(numbers);
  std::ranges::fill(numbers, 0.0f);
}

double ErrorFeedback::norm(std::span<const float> numbers) const {
  const std::vector<float> copy = device_ ? copy_of(numbers) : std::vector<float>();
  double squares = 0;
  for (const float value : device_ ? std::span(copy) : numbers)
    squares += double{value} * double{value};
  return std::sqrt(squares);
}

FeedbackState ErrorFeedback::save() const {
  FeedbackState state;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    check(!steps_[t].open, "a state is saved between steps");
    FeedbackState::Tensor saved{.name = tensors_[t].name,
                                .residual = copy_of(residuals_.current(t)),
                                .velocity = {},
                                .first = tensors_[t].first};
    if (velocities_) saved.velocity = copy_of(std::as_const(*velocities_).current(t));
    state.tensors.push_back(std::move(saved));
  }
  return state;
}

const FeedbackState::Tensor& ErrorFeedback::find(const FeedbackState& state,
                                                 const FeedbackTensor& tensor) const {
  const auto fail = [&](const char* what) {
    throw KoloError({.code = ErrorCode::kData,
                     .bucket = tensor.name,
                     .what = std::string("the saved state of error feedback ") + what});
  };
  const auto found = std::ranges::find(state.tensors, tensor.name, &FeedbackState::Tensor::name);
  if (found == state.tensors.end()) fail("lacks this tensor");
  if (found->residual.size() != tensor.count)
    fail("has this tensor with another number of elements");
  if (found->first != tensor.first) fail("has another part of this tensor");
  if (found->velocity.size() != (momentum_ ? tensor.count : 0)) {
    fail(momentum_ ? "has no velocity" : "has a velocity, but this job does not correct momentum");
  }
  return *found;
}

std::vector<const FeedbackState::Tensor*> ErrorFeedback::matching(
    const FeedbackState& state) const {
  std::vector<const FeedbackState::Tensor*> found;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    check(!steps_[t].open, "a state is loaded between steps");
    found.push_back(&find(state, tensors_[t]));
  }
  if (state.tensors.size() != tensors_.size()) {
    throw KoloError(
        {.code = ErrorCode::kData,
         .what = "the saved state of error feedback has tensors that this job does not have"});
  }
  return found;
}

void ErrorFeedback::load(const FeedbackState& state) {
  const std::vector<const FeedbackState::Tensor*> found = matching(state);
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    copy_to(residuals_.current(t), found[t]->residual);
    if (velocities_) copy_to(velocities_->current(t), found[t]->velocity);
  }
}

}  // namespace kolo
