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

}  // namespace

GradientCodec::GradientCodec(int rank, const ProcessGrid& grid, SparseOptions options)
    : options_(std::move(options)),
      layout_(sparse_layout(rank, grid, options_)),
      feedback_(feedback_tensors(layout_, options_), options_.momentum),
      sent_(layout_.parts.size()),
      places_(layout_.parts.size()),
      tensor_offsets_(tensor_offsets(options_)),
      looked_at_(shard_begins(rank, grid, layout_, options_)) {}

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
  check(finite_, "a step with numbers that are not finite is aborted");
  if (step_ == Step::kSparse) {
    find_sent();
  } else {
    for (Pairs& part : sent_) part.clear();
  }
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.commit(i, sent_[i]);
  if (step_ == Step::kSparse && !options_.feedback) drop_residuals();
  flushes_ = false;
  ++stats_.steps;
  step_ = Step::kNone;
}

void GradientCodec::abort() {
  check(step_ != Step::kNone, "a step is aborted after it has run");
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.abort(i);
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
}

double GradientCodec::residual_norm(std::size_t tensor) const {
  double squares = 0;
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
    if (layout_.parts[i].tensor != tensor) continue;
    const double norm = feedback_.residual_norm(i);
    squares += norm * norm;
  }
  return std::sqrt(squares);
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
  if (step_ == Step::kSparse) {
    for (const std::size_t begin : looked_at_) finite_ &= look(begin, 1);
    return;
  }
  for (std::size_t t = 0; t < tensor_offsets_.size(); ++t) {
    const std::size_t count = options_.tensors[t].count;
    if (count > 0) finite_ &= look(tensor_offsets_[t], count);
  }
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
