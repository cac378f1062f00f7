#include "compression/gradient_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"
#include "compression/error_feedback.h"

namespace kolo {
namespace {

std::vector<FeedbackTensor> feedback_tensors(const SparseLayout& layout,
                                             const SparseOptions& options) {
  std::vector<FeedbackTensor> tensors;
  for (const SparsePart& part : layout.parts) {
    tensors.push_back(
        {.name = options.tensors[part.tensor].name, .count = part.count, .first = part.first});
  }
  return tensors;
}

std::vector<std::size_t> shard_begins(int rank, const ProcessGrid& grid, const SparseLayout& layout,
                                      const SparseOptions& options) {
  if (!layout.is_two_level) return {0};
  std::vector<std::size_t> begins;
  const auto shards = static_cast<std::size_t>(grid.local_size(rank));
  for (std::size_t i = 0; i < shards; ++i) {
    const Extent shard = part_of({0, bucket_count(options)}, shards, i, DType::kFloat32);
    if (shard.count > 0) begins.push_back(shard.offset);
  }
  return begins;
}

std::size_t coded_sums(const SparseLayout& layout, const SparseOptions& options) {
  return options.method->codes_sums ? layout.plan.ownership().local_count(layout.position) : 0;
}

std::vector<std::size_t> factor_counts(const SparseLayout& layout) {
  std::vector<std::size_t> counts(layout.parts.size());
  std::ranges::transform(layout.matrices, counts.begin(), &MatrixPart::right_count);
  return counts;
}

ErrorFeedback make_feedback(const SparseLayout& layout, const SparseOptions& options) {
  std::vector<FeedbackTensor> tensors = feedback_tensors(layout, options);
  if (options.device == nullptr) return ErrorFeedback(std::move(tensors), options.momentum);
  check(options.method->on_device, "this method is for tensors in host memory");
  const std::size_t pairs = options.method->codes_sums ? 0 : layout.plan.k;
  return {std::move(tensors), options.momentum, options.device, pairs};
}

std::vector<FeedbackTensor> sums_tensors(std::size_t count) {
  if (count == 0) return {};
  return {{.name = "sums", .count = count}};
}

}  // namespace

GradientCodec::GradientCodec(int rank, const ProcessGrid& grid, SparseOptions options)
    : options_(std::move(options)),
      layout_(sparse_layout(rank, grid, options_)),
      feedback_(make_feedback(layout_, options_)),
      owned_count_(coded_sums(layout_, options_)),
      sums_feedback_(sums_tensors(owned_count_)),
      factors_(factor_counts(layout_)),
      owned_sums_(owned_count_),
      sent_(layout_.parts.size()),
      places_(layout_.parts.size()),
      tensor_offsets_(tensor_offsets(options_)),
      looked_at_(shard_begins(rank, grid, layout_, options_)) {
  if (options_.device == nullptr) return;
  Device& device = options_.device->device;
  verdict_.emplace(device);
  if (!options_.method->codes_sums) return;
  staged_ = device.allocate(layout_.shard.count * sizeof(float), MemoryKind::kPinned);
}

// --- Around a step ------------------------------------------------------------------------------

void GradientCodec::set_step(std::size_t step) {
  check(step_ == Step::kNone, "a step's number changes between steps");
  stats_.steps = step;
}

std::optional<double> GradientCodec::density() const {
  if (flushes_) return std::nullopt;
  return density_at(options_.warm_up, options_.density, stats_.steps);
}

bool GradientCodec::is_dense() const { return !density().has_value(); }

void GradientCodec::begin(Step step) {
  check(step_ == Step::kNone, "a step ends with commit or abort before the next one begins");
  step_ = step;
  stats_.k = stats_.sent_pairs = stats_.kept_pairs = stats_.payload_bytes = 0;
}

void GradientCodec::commit() {
  check(step_ != Step::kNone, "a step is committed after it has run");
  check(finite(), "a step with numbers that are not finite is aborted");
  if (step_ == Step::kSparse) {
    find_sent();
  } else {
    for (Pairs& part : sent_) part.clear();
  }
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.commit(i, sent_[i]);
  if (owned_count_ > 0) sums_feedback_.commit(0, {});
  if (step_ == Step::kSparse && !options_.feedback) drop_residuals();
  flushes_ = false;
  ++stats_.steps;
  step_ = Step::kNone;
}

void GradientCodec::abort() {
  check(step_ != Step::kNone, "a step is aborted after it has run");
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.abort(i);
  if (owned_count_ > 0) sums_feedback_.abort(0);
  ++stats_.steps;
  ++stats_.skipped;
  step_ = Step::kNone;
}

FeedbackShare GradientCodec::share(double factor) const {
  return {.tensors = feedback_tensors(layout_, options_),
          .position = layout_.position,
          .ranks = layout_.plan.ranks,
          .factor = factor};
}

void GradientCodec::drop_residuals() {
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.drop_residual(i);
  if (owned_count_ > 0) sums_feedback_.drop_residual(0);
}

double GradientCodec::residual_norm(std::size_t tensor) const {
  double squares = 0;
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
    if (layout_.parts[i].tensor != tensor) continue;
    const double norm = feedback_.residual_norm(i);
    squares += norm * norm;
  }
  for_coded_sums([&](const OwnedRun& run) {
    if (layout_.parts[run.tensor].tensor != tensor) return;
    for (const float value : sums_feedback_.residual(0).subspan(run.local, run.count)) {
      squares += double{value} * double{value};
    }
  });
  return std::sqrt(squares);
}

FeedbackState GradientCodec::save() const {
  FeedbackState state = feedback_.save();
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const std::span<const float> factor = factors_.current(i);
    state.tensors[i].factor.assign(factor.begin(), factor.end());
  }
  for_coded_sums([&](const OwnedRun& run) {
    std::vector<float>& kept = state.tensors[run.tensor].of_sums;
    kept.resize(layout_.parts[run.tensor].count);
    std::ranges::copy(sums_feedback_.residual(0).subspan(run.local, run.count),
                      kept.begin() + static_cast<std::ptrdiff_t>(run.first));
  });
  return state;
}

std::vector<float> GradientCodec::kept_sums(const FeedbackState& state) const {
  std::vector<float> kept(owned_count_);
  std::size_t others = 0;  // nonzero residuals of sums that other ranks own
  for (const FeedbackState::Tensor& tensor : state.tensors) {
    others +=
        tensor.of_sums.size() - static_cast<std::size_t>(std::ranges::count(tensor.of_sums, 0.0f));
  }
  for_coded_sums([&](const OwnedRun& run) {
    const std::string& name = options_.tensors[layout_.parts[run.tensor].tensor].name;
    const auto& saved =
        std::ranges::find(state.tensors, name, &FeedbackState::Tensor::name)->of_sums;
    for (std::size_t i = 0; i < run.count && !saved.empty(); ++i) {
      kept[run.local + i] = saved[run.first + i];
      others -= saved[run.first + i] != 0.0f ? 1 : 0;
    }
  });
  if (others == 0) return kept;
  throw KoloError({.code = ErrorCode::kData,
                   .what = "the saved state of error feedback has sums that another rank owns now; "
                           "the states of all ranks can be remapped"});
}

void GradientCodec::check_state(const FeedbackState& state) const {
  feedback_.check_state(state);
  kept_sums(state);
}

void GradientCodec::load(const FeedbackState& state) {
  check_state(state);
  feedback_.load(state);
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
    const std::string& name = options_.tensors[layout_.parts[i].tensor].name;
    const auto& saved =
        std::ranges::find(state.tensors, name, &FeedbackState::Tensor::name)->factor;
    const std::span<float> factor = factors_.current(i);
    std::ranges::fill(factor, 0.0f);
    if (saved.size() == factor.size()) std::ranges::copy(saved, factor.begin());
  }
  if (owned_count_ == 0) return;
  FeedbackState kept;
  kept.tensors.emplace_back().name = "sums";
  kept.tensors.front().residual = kept_sums(state);
  sums_feedback_.load(kept);
}

// --- The bucket's elements ----------------------------------------------------------------------

void GradientCodec::locate(const CodecElements& elements) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const SparsePart& part = layout_.parts[i];
    std::byte* place = nullptr;
    if (elements.data != nullptr) {
      place = elements.data + (part.offset - elements.offset) * sizeof(float);
    } else {
      const Packer::Piece piece = elements.tensors->piece(part.offset, part.count);
      ensure(piece.count == part.count, "a tensor of a compressed bucket lies in pieces");
      place = piece.data;
    }
    places_[i] = reinterpret_cast<float*>(place);
  }
}

std::span<float> GradientCodec::part_at(std::size_t part) const {
  return {places_[part], layout_.parts[part].count};
}

void GradientCodec::fold(const CodecElements& elements) {
  begin(Step::kDense);
  locate(elements);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    feedback_.fold_dense(i, part_at(i), 1.0f, part_at(i));
  }
  if (owned_count_ > 0) fold_sums();
}

void GradientCodec::fold_sums() {
  const auto copy = [&](bool to_elements) {
    for_coded_sums([&](const OwnedRun& run) {
      float* const element = places_[run.tensor] + run.first;
      float* const sum = owned_sums_.data() + run.local;
      std::copy_n(to_elements ? sum : element, run.count, to_elements ? element : sum);
    });
  };
  copy(false);
  sums_feedback_.fold_dense(0, owned_sums_, 1.0f, owned_sums_);
  copy(true);
}

template <typename Look>
void GradientCodec::for_looked_at(const Look& look) const {
  if (step_ == Step::kSparse) {
    for (const std::size_t begin : looked_at_) look(begin, 1);
    return;
  }
  for (std::size_t t = 0; t < tensor_offsets_.size(); ++t) {
    const std::size_t count = options_.tensors[t].count;
    if (count > 0) look(tensor_offsets_[t], count);
  }
}

void GradientCodec::inspect(const CodecElements& finished) {
  if (step_ == Step::kNone) begin(Step::kSparse);  // this rank's shard is empty
  const auto look = [&](std::size_t offset, std::size_t count) {
    if (finished.data != nullptr) {
      return are_finite({reinterpret_cast<const float*>(finished.data) + offset, count});
    }
    const Packer::Piece piece = finished.tensors->piece(offset, count);
    return are_finite({reinterpret_cast<const float*>(piece.data), piece.count});
  };
  finite_ = true;
  for_looked_at([&](std::size_t offset, std::size_t count) { finite_ &= look(offset, count); });
}

CodecElements GradientCodec::staged() const {
  return {.data = staged_.data(), .offset = layout_.shard.offset, .count = layout_.shard.count};
}

bool GradientCodec::stage_kept_sums() {
  if (owned_count_ == 0) return false;
  std::ranges::fill(owned_sums_, 0.0f);
  sums_feedback_.fold_dense(0, owned_sums_, 1.0f, owned_sums_);
  if (std::ranges::all_of(owned_sums_, [](float sum) { return sum == 0; })) return false;
  locate(staged());
  std::fill_n(reinterpret_cast<float*>(staged_.data()), layout_.shard.count, -0.0f);
  for_coded_sums([&](const OwnedRun& run) {
    std::copy_n(owned_sums_.data() + run.local, run.count, places_[run.tensor] + run.first);
  });
  return true;
}

void GradientCodec::fold(Stream& stream, const CodecElements& elements) {
  begin(Step::kDense);
  const bool has_sums = stage_kept_sums();
  locate(elements);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const SparsePart& part = layout_.parts[i];
    std::span<const float> sums;
    if (has_sums) {
      sums = {reinterpret_cast<const float*>(staged_.data()) + part.offset - layout_.shard.offset,
              part.count};
    }
    feedback_.fold_dense(stream, i, part_at(i), sums);
  }
}

void GradientCodec::inspect(Stream& stream, const CodecElements& finished) {
  if (step_ == Step::kNone) begin(Step::kSparse);  // this rank's shard is empty
  std::uint32_t* const flag = verdict_->begin(stream);
  for_looked_at([&](std::size_t offset, std::size_t count) {
    options_.device->device.kernels().find_non_finite(
        stream, DType::kFloat32, finished.data + offset * sizeof(float), count, flag);
  });
  verdict_->end(stream);
}

void GradientCodec::begin_sparse(const CodecElements& contribution) {
  begin(Step::kSparse);
  locate(contribution);
}

void GradientCodec::spoil() {
  // `inspect` reads this element on all ranks.
  places_.front()[0] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace kolo
