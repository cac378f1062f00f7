#include "compression/compressed_group.h"

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

constexpr std::size_t kWord = 64;  // bits

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

OwnerSum::OwnerSum(std::size_t local_count)
    : sums_(local_count), touched_((local_count + kWord - 1) / kWord) {}

void OwnerSum::add(const Pairs& pairs) {
  for (std::size_t j = 0; j < pairs.size(); ++j) {
    const std::uint32_t i = pairs.indices[j];
    check(i < sums_.size(), "a pair for another owner");
    const std::uint64_t bit = std::uint64_t{1} << i % kWord;
    std::uint64_t& word = touched_[i / kWord];
    sums_[i] = (word & bit) != 0 ? sums_[i] + pairs.values[j] : pairs.values[j];
    word |= bit;
  }
}

void OwnerSum::take(Pairs& sums) {
  sums.clear();
  for (std::size_t w = 0; w < touched_.size(); ++w) {
    for (std::uint64_t word = touched_[w]; word != 0; word &= word - 1) {
      const std::size_t i = w * kWord + static_cast<std::size_t>(std::countr_zero(word));
      sums.add(static_cast<std::uint32_t>(i), sums_[i]);
    }
    touched_[w] = 0;
  }
}

CompressedGroup::CompressedGroup(int rank, const ProcessGrid& grid, SparseOptions options)
    : options_(std::move(options)),
      layout_(sparse_layout(rank, grid, options_)),
      feedback_(feedback_tensors(layout_, options_), options_.momentum),
      places_(layout_.parts.size()),
      tensor_offsets_(tensor_offsets(options_)),
      looked_at_(shard_begins(rank, grid, layout_, options_)),
      ownership_(layout_.plan.ownership()),
      share_plan_(layout_.plan.share()),
      result_plan_(layout_.plan.result()),
      contribution_plan_(layout_.plan.contribution()),
      step_plan_(layout_.plan),
      sum_(options_.route == ExchangeRoute::kAllGather ? layout_.plan.count()
                                                       : ownership_.local_count(layout_.position)) {
  reserve();
}

void CompressedGroup::reserve() {
  const std::size_t parts = layout_.parts.size();
  const auto ranks = static_cast<std::size_t>(layout_.plan.ranks);
  const std::size_t k = layout_.plan.k;
  const bool gathers = options_.route == ExchangeRoute::kAllGather;
  const std::size_t summed = std::min(ranks * (gathers ? k : share_plan_.most_pairs),
                                      gathers ? layout_.plan.count() : share_plan_.domain);
  contribution_.tensors.resize(parts);
  contribution_.exponents.reserve(parts);
  sent_.resize(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t most = std::min(k, layout_.parts[i].count);
    contribution_.tensors[i].reserve(most);
    sent_[i].reserve(most);
  }
  (gathers ? whole_.pairs : shares_.pairs).reserve(k);
  decoded_.reserve(gathers ? k : share_plan_.most_pairs);
  sums_.reserve(summed);
  keys_.reserve(summed);
  quotas_.reserve(parts);
  owners_.resize(ranks);
  for (Pairs& owner : owners_) {
    owner.reserve(gathers ? std::min(ranks * k, share_plan_.domain) : result_plan_.most_pairs);
  }
}

// --- Around a step ------------------------------------------------------------------------------

void CompressedGroup::set_step(std::size_t step) {
  check(step_ == Step::kNone, "a step's number changes between steps");
  stats_.steps = step;
}

std::optional<double> CompressedGroup::density() const {
  if (flushes_) return std::nullopt;
  return density_at(options_.warm_up, options_.density, stats_.steps);
}

bool CompressedGroup::is_dense() const { return !density().has_value(); }

void CompressedGroup::begin(Step step) {
  check(step_ == Step::kNone, "a step ends with commit or abort before the next one begins");
  step_ = step;
  stats_.k = stats_.sent_pairs = stats_.kept_pairs = stats_.payload_bytes = 0;
}

void CompressedGroup::commit() {
  check(step_ != Step::kNone, "a step is committed after it has run");
  check(finite_, "a step with numbers that are not finite is aborted");
  if (step_ == Step::kSparse) {
    returned(step_plan_, contribution_, owners_, cursors_, sent_);
    for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.commit(i, sent_[i]);
  } else {
    for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.commit(i, Pairs{});
  }
  if (step_ == Step::kSparse && !options_.feedback) drop_residuals();
  flushes_ = false;
  ++stats_.steps;
  step_ = Step::kNone;
}

void CompressedGroup::abort() {
  check(step_ != Step::kNone, "a step is aborted after it has run");
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.abort(i);
  ++stats_.steps;
  ++stats_.skipped;
  step_ = Step::kNone;
}

FeedbackShare CompressedGroup::share(double factor) const {
  return {.tensors = feedback_tensors(layout_, options_),
          .position = layout_.position,
          .ranks = layout_.plan.ranks,
          .factor = factor};
}

void CompressedGroup::drop_residuals() {
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) feedback_.drop_residual(i);
}

double CompressedGroup::residual_norm(std::size_t tensor) const {
  double squares = 0;
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
    if (layout_.parts[i].tensor != tensor) continue;
    const double norm = feedback_.residual_norm(i);
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

// --- The bucket's elements ----------------------------------------------------------------------

void CompressedGroup::locate(const CodecElements& elements) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const SparsePart& part = layout_.parts[i];
    std::byte* place = nullptr;
    if (elements.data != nullptr) {
      place = elements.data + (part.offset - elements.offset) * sizeof(float);
    } else {
      const Packer::Piece piece = elements.tensors->piece(part.offset, part.count);
      ensure(piece.count == part.count, "a tensor of a compression group lies in pieces");
      place = piece.data;
    }
    places_[i] = reinterpret_cast<float*>(place);
  }
}

std::span<float> CompressedGroup::part_at(std::size_t part) const {
  return {places_[part], layout_.parts[part].count};
}

void CompressedGroup::fold(const CodecElements& elements) {
  begin(Step::kDense);
  locate(elements);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    feedback_.fold_dense(i, part_at(i), 1.0f, part_at(i));
  }
}

void CompressedGroup::inspect(const CodecElements& finished) {
  if (step_ == Step::kNone) begin(Step::kSparse);  // A rank with an empty shard.
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

// --- This rank's contribution -------------------------------------------------------------------

bool CompressedGroup::select() {
  const std::optional<double> keep = density();
  ensure(keep.has_value(), "a sparse schedule in a dense step");
  bool finite = true;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t k = pairs_to_keep(*keep, layout_.parts[i].count);
    finite &= feedback_.fold(i, part_at(i), 1.0f, k, contribution_.tensors[i]).finite;
    stats_.k += k;
  }
  step_plan_.k = stats_.k;
  return finite;
}

void CompressedGroup::encode(const CodecElements& contribution, Payloads payloads) {
  begin(Step::kSparse);
  locate(contribution);
  const bool gathers = options_.route == ExchangeRoute::kAllGather;
  if (!select()) {
    const PayloadPlan& plan = gathers ? contribution_plan_ : share_plan_;
    for (const std::span<std::byte> payload : payloads) {
      stats_.payload_bytes += encode_not_finite(plan, payload);
    }
    return;
  }
  prepare(step_plan_, contribution_);
  stats_.sent_pairs = stats_.k;
  if (gathers) {
    whole(step_plan_, contribution_, whole_);
    stats_.payload_bytes +=
        encode_payload(contribution_plan_, whole_.segments, whole_.pairs, payloads.front());
    return;
  }
  split(step_plan_, contribution_, shares_);
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    const int owner = static_cast<int>(i);
    stats_.payload_bytes += encode_payload(share_plan_, shares_.segments_of(owner),
                                           shares_.pairs_of(owner), payloads[i]);
  }
}

// --- As an owner --------------------------------------------------------------------------------

void CompressedGroup::merge(Payloads sources, Payloads sum) {
  const bool gathers = options_.route == ExchangeRoute::kAllGather;
  const PayloadPlan& plan = gathers ? contribution_plan_ : share_plan_;
  sum_is_finite_ = true;
  for (const std::span<std::byte> source : sources) sum_is_finite_ &= is_finite(plan, source);
  if (sum_is_finite_) {
    for (const std::span<std::byte> source : sources) {
      decode_payload(plan, source, decoded_);
      sum_.add(decoded_);
    }
  }
  sum_.take(sums_);
  if (gathers) {
    by_owner(ownership_, sums_, owners_);
    for (std::size_t i = 0; i < sum.size(); ++i)
      finish_owner(static_cast<int>(i), owners_[i], sum[i]);
  } else {
    finish_owner(layout_.position, sums_, sum.front());
  }
}

void CompressedGroup::finish_owner(int owner, Pairs& sums, std::span<std::byte> result) {
  if (options_.rule == QuotaRule::kQuota) {
    quota_parts(step_plan_, owner, quotas_);
    keep_largest(sums, quotas_, keys_);
  }
  const bool is_own = owner == layout_.position;
  if (!sum_is_finite_ || !are_finite(sums.values)) {
    const std::size_t bytes = encode_not_finite(result_plan_, result);
    if (is_own) stats_.payload_bytes += bytes;
    return;
  }
  const PayloadSegment segment{.pairs = narrow<std::uint32_t>(sums.size())};
  const std::size_t bytes = encode_payload(result_plan_, {&segment, 1}, sums, result);
  if (is_own) stats_.payload_bytes += bytes;
}

// --- The result ---------------------------------------------------------------------------------

void CompressedGroup::decode(Payloads results, const CodecElements& elements, double scale) {
  locate(elements);
  // Most of the result is zero.
  for (std::size_t i = 0; i < places_.size(); ++i) std::ranges::fill(part_at(i), 0.0f);
  const bool finite = std::ranges::all_of(
      results, [&](std::span<const std::byte> result) { return is_finite(result_plan_, result); });
  if (!finite) {
    // In an element that `inspect` reads on all ranks.
    places_.front()[0] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  for (Pairs& owner : owners_) owner.clear();
  for (std::size_t i = 0; i < results.size(); ++i) {
    decode_payload(result_plan_, results[i], owners_[i]);
    std::vector<float>& values = owners_[i].values;
    rescale(DType::kFloat32, values.data(), values.size(), scale);
    put(static_cast<int>(i), owners_[i]);
    stats_.kept_pairs += owners_[i].size();
  }
}

void CompressedGroup::put(int owner, const Pairs& result) {
  std::size_t part = 0;
  std::size_t begin = 0;
  for (std::size_t j = 0; j < result.size(); ++j) {
    const std::size_t element = ownership_.element(owner, result.indices[j]);
    while (element >= begin + step_plan_.tensor_counts[part]) {
      begin += step_plan_.tensor_counts[part++];
    }
    places_[part][element - begin] = result.values[j];
  }
}

}  // namespace kolo
